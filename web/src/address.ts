// What stands in the address of the page, and under which name.

import type { Place, Weights } from './api'

export interface Example extends Place { video: string } // its path is for people

export const WORDS = { q: 'text', then: 'then', not: 'without', in: 'within', since: 'since', until: 'until' } as const
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
/** The parts of a query, and how much each counts where nothing else is said. */
export const WEIGHTS = { text: 1, then: 1, without: 1, image: 1, like: 0.75, unlike: 0.15 } as const

export function example(text: string): Example[] {
  const match = /^([0-9a-f]{16})@([\d.]+)(?:-([\d.]+))?$/.exec(text)
  if (!match) return []
  return [{ video: '', video_id: match[1], start_s: Number(match[2]), end_s: match[3] ? Number(match[3]) : null }]
}

/** Weights of parts, as `wthen=2`; those that are not there are the usual ones. */
export function readWeights(words: URLSearchParams): Weights {
  const named = Object.keys(WEIGHTS).map((part) => [part, Number(words.get(`w${part}`))] as const)
  return Object.fromEntries(named.filter(([, weight]) => weight > 0))
}
