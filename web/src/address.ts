// What stands in the address of the page, and under which name.

import type { Place, Weights } from './api'

export interface Example extends Place { video: string } // its path is for people

export const WORDS = { q: 'text', then: 'then', not: 'without', in: 'within', since: 'since', until: 'until' } as const
/** Numbers of a query, and the field of each. */
export const NUMBERS = {
  gap: 'gap',
  min: 'minScore',
  longer: 'minDuration',
  shorter: 'maxDuration',
  larger: 'minMegabytes',
  smaller: 'maxMegabytes',
  minheight: 'minHeight',
  maxheight: 'maxHeight',
  hits: 'limit',
  moments: 'moments'
} as const
type Bounds = { min?: number; max?: number; step?: 'any' }
/** What a field may hold, and the service takes: attributes of its input; without a step, whole numbers. */
export const BOUNDS: Record<(typeof NUMBERS)[keyof typeof NUMBERS], Bounds> = {
  gap: { min: 0.1, max: 1e7, step: 'any' },
  minScore: { min: -1e6, max: 1e6, step: 'any' },
  minDuration: { min: 0, max: 1e7, step: 'any' },
  maxDuration: { min: 0, max: 1e7, step: 'any' },
  minMegabytes: { min: 0, max: 1e9, step: 'any' },
  maxMegabytes: { min: 0, max: 1e9, step: 'any' },
  minHeight: { min: 0, max: 1e5 },
  maxHeight: { min: 0, max: 1e5 },
  limit: { min: 1, max: 500 },
  moments: { min: 1, max: 50 }
}
export const WEIGHT: Bounds = { min: 0.01, max: 1e6, step: 'any' } // of a part of the query
/** The number, if it is one that the field may hold. */
export function within(value: number | null, { min = -Infinity, max = Infinity, step }: Bounds): number | null {
  const isMeant = value !== null && Number.isFinite(value) && min <= value && value <= max
  return isMeant && (step === 'any' || Number.isInteger(value)) ? value : null
}
/** The parts of a query, and how much each counts where nothing else is said. */
export const WEIGHTS = { text: 1, then: 1, without: 1, image: 1, like: 0.75, unlike: 0.15 } as const

export function example(text: string): Example[] {
  const match = /^([0-9a-f]{16})@(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?$/.exec(text)
  if (!match) return []
  return [{ video: '', video_id: match[1], start_s: Number(match[2]), end_s: match[3] ? Number(match[3]) : null }]
}

/** Weights of parts, as `wthen=2`; those that are not there are the usual ones. */
export function readWeights(words: URLSearchParams): Weights {
  const named = Object.keys(WEIGHTS).map((part) => [part, Number(words.get(`w${part}`))] as const)
  return Object.fromEntries(named.filter(([, weight]) => within(weight, WEIGHT) !== null))
}
