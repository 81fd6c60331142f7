import { describe, expect, it, vi } from 'vitest'
import { background, numPictures } from '../src/scrub'

vi.stubGlobal('Image', class {})
const sprite = (pictures: number) => ({ address: '/overview', pictures, image: new Image() })

describe('scrubbing', () => {
  it('steps about once a second, at most a hundred times', () => {
    expect([0.2, 1, 41.6, 3600].map(numPictures)).toEqual([1, 1, 42, 100])
  })
  it.each([
    [0, '0% 0%'],
    [0.5, '22.22222222222222% 50%'], // picture 12 of 25 is the third in the second of three rows
    [0.99, '44.44444444444444% 100%'],
    [1, '44.44444444444444% 100%']
  ])('shows at %d of the video the picture of that part', (part, place) => {
    const shown = background(sprite(25), part)
    expect(shown).toContain('1000% 300%')
    expect(shown).toContain(place)
  })
  it('shows the only picture of a short video', () => {
    expect(background(sprite(1), 0.7)).toContain('0% 0% / 100% 100%')
  })
})
