import { describe, expect, it } from 'vitest'
import { readModes } from '../src/address'
import { lineAt, pieces, snippet } from '../src/evidence'

describe('pieces', () => {
  it('marks the matching words and keeps all of the text', () => {
    expect(pieces({ text: 'We cut budgets.', words: [{ start: 7, end: 14 }, { start: 3, end: 6 }] })).toEqual([
      { text: 'We ', isMatch: false },
      { text: 'cut', isMatch: true },
      { text: ' ', isMatch: false },
      { text: 'budgets', isMatch: true },
      { text: '.', isMatch: false }
    ])
    expect(pieces({ text: 'rain', words: [] })).toEqual([{ text: 'rain', isMatch: false }])
  })
  it('counts characters, not UTF-16 units', () => {
    expect(pieces({ text: '🎬𝄞 cut', words: [{ start: 3, end: 6 }] })[1]).toEqual({ text: 'cut', isMatch: true })
  })
  it('repeats no text of words that overlap', () => {
    const all = pieces({ text: 'budget', words: [{ start: 0, end: 4 }, { start: 2, end: 6 }] })
    expect(all.map(({ text }) => text).join('')).toBe('budget')
  })
})

describe('snippet', () => {
  it('begins with a whole word shortly before the first match', () => {
    const text = `${'blah '.repeat(20)}of the cuts`
    const [first, match] = snippet(pieces({ text, words: [{ start: 107, end: 111 }] }))
    expect(first.text).toMatch(/^… blah .*of the $/)
    expect(first.text.length).toBeLessThan(30)
    expect(match.text).toBe('cuts')
  })
  it('keeps a passage without a match, or with an early one', () => {
    for (const words of [[], [{ start: 3, end: 6 }]]) {
      const all = pieces({ text: 'We cut budgets, as we said in a long sentence.', words })
      expect(snippet(all)).toEqual(all)
    }
  })
})

describe('readModes', () => {
  it('keeps each known mode once', () => {
    expect(readModes(new URLSearchParams('modes=said&modes=heard&modes=seen&modes=said'))).toEqual(['seen', 'said'])
    expect(readModes(new URLSearchParams())).toEqual([])
  })
})

describe('the line at a time', () => {
  const lines = [0, 2, 2.5].map((start_s) => ({ start_s, end_s: start_s + 1, words: [] }))
  it.each([[-1, 0], [0, 0], [1.9, 0], [2, 1], [2.5, 2], [99, 2]])('is the last one that has begun: %d', (time_s, number) => {
    expect(lineAt(lines, time_s)).toBe(number)
  })
  it('has a matching word if another language has a line at the same time', () => {
    const tracks = [[], [{ start: 0, end: 3 }], []].map((words) => ({ start_s: 1, end_s: 3, words }))
    expect([lineAt(tracks, 2), lineAt(tracks, 3)]).toEqual([1, 2])
    const sign = { start_s: 0, end_s: 60, words: [{ start: 0, end: 3 }] } // is on the screen while people speak
    expect(lineAt([sign, tracks[2]], 2)).toBe(1)
  })
})
