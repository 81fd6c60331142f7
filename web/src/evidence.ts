// Passages of a video that match the query. Their text is shown as text: a subtitle file may contain anything.

import type { EvidenceJson, MomentJson, TranscriptLine } from './service'

export interface Piece { text: string; isMatch: boolean }

export const MODE_NAMES = { seen: 'Seen', said: 'Said', written: 'Written' } as const

const BEFORE = 24 // characters of a snippet before the first matching word

/** The text of a passage in pieces, in order. The service counts characters; JavaScript counts UTF-16 units. */
export function pieces({ text, words }: Pick<EvidenceJson, 'text'> & { words: Pick<EvidenceJson['words'][number], 'start' | 'end'>[] }): Piece[] {
  const characters = Array.from(text)
  const result: Piece[] = []
  let position = 0
  const add = (end: number, isMatch: boolean) => {
    if (end > position) result.push({ text: characters.slice(position, end).join(''), isMatch })
    position = Math.max(position, end)
  }
  for (const { start, end } of [...words].sort((a, b) => a.start - b.start)) {
    add(start, false)
    add(end, true)
  }
  add(characters.length, false)
  return result
}

/** The pieces from shortly before the first matching word, so that one line shows it. */
export function snippet(all: Piece[]): Piece[] {
  const [first, ...others] = all
  if (!others.length || first.isMatch || first.text.length <= BEFORE) return all
  const end = first.text.slice(-BEFORE)
  return [{ text: `… ${end.slice(end.indexOf(' ') + 1)}`, isMatch: false }, ...others]
}

/** The strongest passage that matches a moment, if any. */
export const passageOf = ({ evidence }: MomentJson): EvidenceJson | undefined => evidence?.find(({ text }) => text)

const MAX_TRACKS = 16 // lines of other tracks that may begin between a line and the time

/**
 * The number of the line at a time: the last line that has begun, or 0. Lines are in the order of their starts. If another
 * track, for example another language, has a line that begins at about the same time, a line with a matching word is preferred.
 */
export function lineAt(lines: Pick<TranscriptLine, 'start_s' | 'end_s' | 'words'>[], time_s: number): number {
  let [low, high] = [0, lines.length]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (lines[middle].start_s <= time_s + 0.01) low = middle
    else high = middle
  }
  for (let i = low; i >= Math.max(0, low - MAX_TRACKS) && lines[i].start_s > lines[low].start_s - 1; i--) {
    if (lines[i].words.length && lines[i].start_s <= time_s + 0.01 && time_s < lines[i].end_s) return i
  }
  return low
}
