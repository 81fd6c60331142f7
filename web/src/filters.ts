// The filters that are shown as chips: their fields, what a chip says, and how to remove them.

import { clock, plain } from './api'
import { MODE_NAMES } from './evidence'
import { FILTERS } from './service'
import { session } from './session.svelte'

const GROUPS = {
  Folder: ['within'],
  Date: ['since', 'until'],
  Length: ['min_duration_s', 'max_duration_s'],
  Format: ['min_height', 'max_height', 'min_bytes', 'max_bytes']
} as const
export type Group = keyof typeof GROUPS
const grouped: readonly string[] = Object.values(GROUPS).flat()
/** Filters of the service that belong to no other group. */
export const OTHERS = Object.keys(FILTERS).filter((name) => !grouped.includes(name))

export interface Filter { text: string; clear: () => void }

const value = (name: string) => (session.isSet(name) ? session.fields[name] : null)

/** A length such as 2:30:00, 1:30 or 45 s. */
export const length = (time_s: number) => (time_s < 60 ? `${time_s} s` : clock(time_s).replace(/\.0$/, ''))
const megabytes = (bytes: number) => `${bytes / 1e6} MB`
const pixels = (height: number) => `${height} px`

function range(low: string, high: string, show: (value: number) => string): string {
  const [from, to] = [value(low), value(high)]
  if (from === null && to === null) return ''
  if (from === null) return `up to ${show(Number(to))}`
  return to === null ? `from ${show(Number(from))}` : `${show(Number(from))} – ${show(Number(to))}`
}

/** What the chip of a group says; empty if none of its filters is set. */
export function textOf(group: Group): string {
  if (group === 'Folder') return value('within') === null ? '' : plain(String(value('within'))).replace(/\/+$/, '').split('/').at(-1)!
  if (group === 'Length') return range('min_duration_s', 'max_duration_s', length)
  if (group === 'Format') {
    return [range('min_height', 'max_height', pixels), range('min_bytes', 'max_bytes', megabytes)].filter(Boolean).join(', ')
  }
  const [since, until] = [value('since'), value('until')]
  return since && until ? `${since} – ${until}` : since ? `since ${since}` : until ? `until ${until}` : ''
}

export function clear(...names: readonly string[]): void {
  for (const name of names) delete session.fields[name]
  void session.search('new')
}
export const clearGroup = (group: Group) => clear(...GROUPS[group])

const CONFIDENCE: Record<number, string> = { 50: 'Likely', 20: 'Likely or possible' }
/** What the chip of the smallest confidence says. */
export const confidenceText = (percent: number) => (percent ? (CONFIDENCE[percent] ?? `from ${percent} %`) : '')

/** Filters that are set and can hide hits. */
export function setFilters(): Filter[] {
  const filters: Filter[] = (Object.keys(GROUPS) as Group[])
    .filter((group) => textOf(group))
    .map((group) => ({ text: `${group}: ${textOf(group)}`, clear: () => clearGroup(group) }))
  for (const name of [...OTHERS, 'min_score'].filter((name) => session.isSet(name))) {
    filters.push({ text: `${name === 'min_score' ? 'Minimum score' : FILTERS[name as keyof typeof FILTERS].help}: ${value(name)}`, clear: () => clear(name) })
  }
  if (session.minConfidence) {
    filters.push({
      text: confidenceText(session.minConfidence),
      clear: () => {
        session.minConfidence = 0
        void session.search('new')
      }
    })
  }
  if (session.modes.length) {
    filters.push({
      text: `Only ${session.modes.map((mode) => MODE_NAMES[mode].toLowerCase()).join(' or ')}`,
      clear: () => {
        session.modes = []
        void session.search('new')
      }
    })
  }
  if (session.fold) {
    filters.push({
      text: 'Hide near-duplicates',
      clear: () => {
        session.fold = false
        void session.search('new')
      }
    })
  }
  return filters
}

/** Whether anything is set that `Reset` removes. */
export const canReset = () =>
  setFilters().length > 0 ||
  session.nowhere ||
  ['limit', 'moments', 'within_s'].some((name) => session.isSet(name)) ||
  Object.values(session.weights).some((weight) => weight != null)
