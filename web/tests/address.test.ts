import { describe, expect, it } from 'vitest'
import { FIELDS, example, readFields, readLayout, readWeights, valid } from '../src/address'
import { WEIGHTS } from '../src/service'

const ID = '0123456789abcdef'

describe('valid', () => {
  it('keeps a number that the field may hold', () => {
    expect(valid(1, FIELDS.limit)).toBe(1)
    expect(valid(500, FIELDS.limit)).toBe(500)
    expect(valid(0.1, FIELDS.within_s)).toBe(0.1)
    expect(valid(' /a ', FIELDS.within)).toBe('/a')
  })
  it.each([null, NaN, Infinity, 0, 501, 2.5])('drops %s from a field of whole numbers from 1 to 500', (value) => {
    expect(valid(value, FIELDS.limit)).toBeNull()
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

describe('readFields', () => {
  it('keeps fields of the service with values in bounds', () => {
    const words = new URLSearchParams({ limit: '5', moments: '99', since: '2026-05-01', min_bytes: '10', colour: 'red' })
    expect(readFields(words)).toEqual({ limit: 5, moments: null, since: '2026-05-01', min_bytes: 10 })
  })
})

describe('readWeights', () => {
  it('keeps known parts with weights in bounds', () => {
    const words = new URLSearchParams({ wtext: '2', wthen: '0.5', wlike: '0', wimage: 'much', wother: '3' })
    expect(readWeights(words)).toEqual({ text: 2, then: 0.5 })
    expect(valid(0, WEIGHTS.text)).toBeNull()
  })
})

describe('readLayout', () => {
  it('knows three layouts, and the parameter of earlier versions', () => {
    const layouts = ['view=grid', 'view=video', 'view=moments', 'view=other', 'q=x', 'flat=1'].map((text) => readLayout(new URLSearchParams(text)))
    expect(layouts).toEqual(['grid', 'video', 'moments', null, null, 'moments'])
  })
})
