import { afterEach, describe, expect, it, vi } from 'vitest'
import { pictureAt, storedPictures } from '../src/thumbnails'

const stored = { version: 'v', times_s: [0, 1, 2, 6, 6.5], width: 284, height: 160 }
const time = (address: string) => Number(/time_s=([\d.]+)/.exec(address)![1])

describe('pictureAt', () => {
  it.each([
    [0, 0],
    [0.4, 0],
    [0.6, 1],
    [2.5, 2],
    [5.6, 6],
    [6.4, 6.5],
    [6.9, 6.5]
  ])('takes the stored picture nearest to %d s', (time_s, expected) => {
    expect(pictureAt('id', time_s, stored)).toContain('version=v')
    expect(time(pictureAt('id', time_s, stored))).toBe(expected)
  })
  it.each([2.6, 4, 5.4, 7.1])('asks for the time itself where no picture is near: %d s', (time_s) => {
    expect(pictureAt('id', time_s, stored)).not.toContain('version')
    expect(time(pictureAt('id', time_s, stored))).toBe(time_s)
  })
  it('asks for the time itself if nothing is stored', () => {
    for (const nothing of [null, { ...stored, times_s: [] }]) expect(time(pictureAt('id', 3, nothing))).toBe(3)
  })
})

describe('storedPictures', () => {
  afterEach(() => vi.unstubAllGlobals())

  it('asks once per video, and again after a failure', async () => {
    const fetch = vi.fn().mockRejectedValueOnce(new TypeError()).mockImplementation(async () => Response.json(stored))
    vi.stubGlobal('fetch', fetch)
    expect(await storedPictures('a')).toBeNull()
    expect(await Promise.all([storedPictures('a'), storedPictures('a')])).toEqual([stored, stored])
    expect(fetch).toHaveBeenCalledTimes(2)
  })
})
