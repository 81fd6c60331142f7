// The edges of moments that were trimmed or moved to exact cuts. The service knows only the original edges.

import type { MomentJson, Span } from './service'
import { remember, stored } from './storage'

export type Edge = 'start_s' | 'end_s'
/** Which edges are at a shot change. */
export type Edges = Partial<Record<Edge, boolean>>
/** The edges of a moment before or after a trim. */
export type Edited = Span & { atCut?: Edges }
/** A moment of the results. `atCut` is set once its edges have been moved; `found` has the edges that the service found. */
export type ShownMoment = MomentJson & { atCut?: Edges; found?: Span }

const KEPT = 'untrimmed-edges'
const MAX_KEPT = 1000

/** Moved edges by sentence, video and original edges. They last as long as the tab. */
class MovedEdges {
  #kept = new Map<string, Edited>(stored<[string, Edited][]>(KEPT, [], 'sessionStorage'))

  #key(sentence: string, video_id: string, { start_s, end_s }: Span): string {
    return JSON.stringify([sentence, video_id, start_s, end_s])
  }
  /** Move the edges of a moment, and remember them. If they are the original edges again, forget them. */
  move(sentence: string, video_id: string, moment: ShownMoment, { start_s, end_s, atCut }: Edited): void {
    const found = (moment.found ??= { start_s: moment.start_s, end_s: moment.end_s })
    const isMoved = start_s !== found.start_s || end_s !== found.end_s
    const edges = { start_s, end_s, atCut: atCut ?? (isMoved ? {} : undefined) }
    this.#apply(moment, edges)
    const key = this.#key(sentence, video_id, found)
    this.#kept.delete(key)
    if (edges.atCut) this.#kept.set(key, edges)
    if (this.#kept.size > MAX_KEPT) this.#kept.delete(this.#kept.keys().next().value!)
    remember(KEPT, JSON.stringify([...this.#kept]), 'sessionStorage')
  }
  /** Apply the remembered edges to moments that arrive from the service. */
  restore(sentence: string, video_id: string, moments: ShownMoment[] = []): void {
    for (const moment of moments) {
      const found = { start_s: moment.start_s, end_s: moment.end_s }
      const edges = this.#kept.get(this.#key(sentence, video_id, found))
      if (!edges) continue
      moment.found = found
      this.#apply(moment, edges)
    }
  }
  #apply(moment: ShownMoment, { start_s, end_s, atCut }: Edited): void {
    Object.assign(moment, { start_s, end_s, atCut: atCut && { ...atCut } })
  }
}

export const movedEdges = new MovedEdges()
