import { describe, expect, it } from 'vitest'
import { FIELDS, readFields } from '../src/address'
import { fromShown, shownBounds, toShown, withUnit } from '../src/units'

describe('a size', () => {
  const { min_bytes, max_bytes } = FIELDS

  it('is shown in megabytes, and sent in whole bytes', () => {
    expect(fromShown(1.5, min_bytes)).toBe(1_500_000)
    expect(fromShown(0.0000014, max_bytes)).toBe(1)
    expect(toShown(1_500_000, max_bytes)).toBe(1.5)
    expect(fromShown(null, min_bytes)).toBeNull()
  })
  it('is in bytes in the address', () => {
    const { max_bytes: bytes } = readFields(new URLSearchParams({ max_bytes: '1234567' }))
    expect(fromShown(toShown(bytes, max_bytes), max_bytes)).toBe(1234567)
  })
  it('has bounds in megabytes, and no step', () => {
    expect(shownBounds(max_bytes)).toEqual({ min: 0, max: 1e12, step: 'any' })
  })
})

it('leaves values and bounds of other fields', () => {
  expect(fromShown(90, FIELDS.max_duration_s)).toBe(90)
  expect(toShown('/a', FIELDS.within)).toBe('/a')
  expect(shownBounds(FIELDS.min_height)).toBe(FIELDS.min_height.bounds)
})

it('shows a unit once in a label', () => {
  expect(withUnit('Smallest file', FIELDS.min_bytes)).toBe('Smallest file (MB)')
  expect(withUnit('Longest video', FIELDS.max_duration_s)).toBe('Longest video (s)')
  expect(withUnit('Height, in pixels', FIELDS.min_height)).toBe('Height, in pixels')
  expect(withUnit('Hits', FIELDS.limit)).toBe('Hits')
})
