// The page's address: names for the sentences are ours, other query fields have the names of the service.

import { MODE_NAMES } from './evidence'
import { FILTERS, QUERY, WEIGHTS, type EvidenceJson, type Field, type PlaceJson, type WeightsJson } from './service'

export interface Example extends PlaceJson { video: string; end_s: number | null } // `video` is the path, for display
export type Value = string | number | null
export type Mode = EvidenceJson['mode']

export const WORDS = { q: 'text', then: 'then', not: 'without' } as const
const { within_s, min_score, limit, moments } = QUERY
export const FIELDS: Record<string, Field> = { within_s, min_score, limit, moments, ...FILTERS }

export const MODES = Object.keys(MODE_NAMES) as Mode[]

/** How results are arranged: a picture per video, rows of a video's moments, or all moments by rank. */
export type Layout = 'grid' | 'video' | 'moments'

/** The value if it is valid for the field, else null. */
export function valid(value: Value | undefined, { type, bounds }: Field): Value {
  if (typeof value === 'string') return type === 'string' ? value.trim() || null : null
  const { min = -Infinity, max = Infinity } = bounds
  const isInRange = value != null && Number.isFinite(value) && min <= value && value <= max
  return isInRange && (type === 'number' || Number.isInteger(value)) ? value : null
}

export function example(text: string): Example[] {
  const match = /^([0-9a-f]{16})@(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?$/.exec(text)
  if (!match) return []
  return [{ video: '', video_id: match[1], start_s: Number(match[2]), end_s: match[3] ? Number(match[3]) : null }]
}

/** The fields of a query that the address sets. */
export function readFields(parameters: URLSearchParams): Record<string, Value> {
  const set = Object.entries(FIELDS).filter(([name]) => parameters.has(name))
  const typed = set.map(([name, field]) => [name, field.type === 'string' ? parameters.get(name) : Number(parameters.get(name)), field] as const)
  return Object.fromEntries(typed.map(([name, value, field]) => [name, valid(value, field)]))
}

/** Weights of query parts, e.g. `wthen=2`. Parts without one have the default weight. */
export function readWeights(parameters: URLSearchParams): WeightsJson {
  const named = Object.entries(WEIGHTS).map(([part, field]) => [part, valid(Number(parameters.get(`w${part}`)), field)] as const)
  return Object.fromEntries(named.filter(([, weight]) => weight !== null))
}

/** The modes to search in; none for all. */
export function readModes(parameters: URLSearchParams): Mode[] {
  const names = parameters.getAll('modes')
  return MODES.filter((mode) => names.includes(mode))
}

/** The view that the address sets. Older addresses have `flat` for moments. */
export function readLayout(parameters: URLSearchParams): Layout | null {
  const view = parameters.has('flat') ? 'moments' : parameters.get('view')
  return view === 'grid' || view === 'video' || view === 'moments' ? view : null
}
