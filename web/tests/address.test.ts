import { describe, expect, it } from 'vitest'
import { BOUNDS, WEIGHT, example, readWeights, within } from '../src/address'

const ID = '0123456789abcdef'

describe('within', () => {
  it('keeps a number that the field may hold', () => {
    expect(within(1, BOUNDS.limit)).toBe(1)
    expect(within(500, BOUNDS.limit)).toBe(500)
    expect(within(0.1, BOUNDS.gap)).toBe(0.1)
  })
  it.each([null, NaN, Infinity, 0, 501, 2.5])('drops %s from a field of whole numbers from 1 to 500', (value) => {
    expect(within(value, BOUNDS.limit)).toBeNull()
  })
})

describe('example', () => {
  it('reads a frame and a span', () => {
    expect(example(`${ID}@2.5`)).toEqual([{ video: '', video_id: ID, start_s: 2.5, end_s: null }])
    expect(example(`${ID}@2-4.25`)).toEqual([{ video: '', video_id: ID, start_s: 2, end_s: 4.25 }])
  })
  it.each(['', ID, `${ID}@`, `${ID}@-1`, `${ID}@1-`, 'ABC@1', `${ID}@1-2-3`, `${ID}0@1`])('ignores %j', (text) => {
    expect(example(text)).toEqual([])
  })
})

describe('readWeights', () => {
  it('keeps known parts with weights in bounds', () => {
    const words = new URLSearchParams({ wtext: '2', wthen: '0.5', wlike: '0', wimage: 'much', wother: '3' })
    expect(readWeights(words)).toEqual({ text: 2, then: 0.5 })
    expect(within(0, WEIGHT)).toBeNull()
  })
})
