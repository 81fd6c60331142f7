import { describe, expect, it } from 'vitest'
import { GAP, aspect, justify } from '../src/rows'

const WIDTH = 1000

function rows(aspects: number[], height = 126) {
  const sizes = justify(aspects, WIDTH, height)
  expect(sizes).toHaveLength(aspects.length)
  const numRows = (sizes.at(-1)?.row ?? -1) + 1
  return Array.from({ length: numRows }, (_, row) => sizes.filter((size) => size.row === row))
}
const widthOf = (row: { width: number }[]) => row.reduce((sum, { width }) => sum + width, GAP * (row.length - 1))

describe('justify', () => {
  it('fills all rows but the last, whatever the aspect ratios are', () => {
    const all = rows([16 / 9, 9 / 16, 4 / 3, 2.39, 1, 16 / 9, 16 / 9, 0.4, 3, 3, 3, 1.5, 1, 1, 1.2])
    expect(all.length).toBeGreaterThan(2)
    for (const row of all.slice(0, -1)) {
      expect(widthOf(row)).toBeGreaterThan(WIDTH - 1)
      expect(widthOf(row)).toBeLessThanOrEqual(WIDTH)
      expect(new Set(row.map(({ height }) => height)).size).toBe(1)
    }
  })
  it('gives an unfinished row the height of full rows of such pictures', () => {
    const [full, [last]] = rows(Array(6).fill(16 / 9))
    expect(full).toHaveLength(5)
    expect(last.height).toBe(full[0].height)
  })
  it('makes no row much higher than requested, and none wider than the page', () => {
    for (const height of [60, 126, 400]) {
      for (const size of rows([3, 0.4, 1, 3, 3, 1.7, 0.6], height).flat()) {
        expect(size.height).toBeLessThanOrEqual(height * 1.06)
        expect(size.width).toBeLessThanOrEqual(WIDTH)
      }
    }
  })
  it('has no sizes without pictures', () => expect(justify([], WIDTH, 126)).toEqual([]))
})

describe('aspect', () => {
  it('is bounded, and 16:9 if the size is unknown', () => {
    expect(aspect({ width: 400, height: 300 })).toBe(4 / 3)
    expect([aspect({ width: 10, height: 100 }), aspect({ width: 100, height: 1 })]).toEqual([0.4, 3])
    expect([aspect({}), aspect({ width: 0, height: 0 })]).toEqual([16 / 9, 16 / 9])
  })
})
