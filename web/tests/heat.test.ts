import { describe, expect, it } from 'vitest'
import { heatMask, heatScale, intensity } from '../src/heat'
import type { HitJson } from '../src/service'

const hits = [{ curve: [0, 0, 1] }, { curve: [0, 0.5] }, {}] as HitJson[]

describe('the heat strip', () => {
  it('is coldest at the median of all curves and hottest at the best time of the answer', () => {
    const scale = heatScale(hits)
    expect(scale).toEqual({ low: 0, high: 1 })
    expect(intensity(1, scale)).toBe(1)
    expect(intensity(-3, scale)).toBe(0)
    expect(intensity(0.5, scale)).toBeGreaterThan(0.5)
  })
  it('has a stop in the middle of each part', () => {
    const mask = heatMask([0, 1], { low: 0, high: 1 })
    expect(mask).toContain('#00000000 25.0%')
    expect(mask).toContain('#000000ff 75.0%')
  })
  it('is cold if nothing stands out', () => expect(intensity(0.3, heatScale([{ curve: [0.3, 0.3] }] as HitJson[]))).toBe(0))
})
