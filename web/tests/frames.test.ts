import { beforeEach, describe, expect, it, vi } from 'vitest'
import { VariableFrames } from '../src/frames'

const STARTS: number[] = []
let asked: string[]

beforeEach(() => {
  asked = []
  STARTS.splice(0, Infinity, 0, 0.04, 0.2, 0.25, 1, 3, 3.5, 6, 9, 9.5) // of a video of 10 s
  vi.stubGlobal('fetch', async (path: string) => {
    asked.push(path)
    const { searchParams } = new URL(path, 'http://page')
    const [start_s, end_s] = ['start_s', 'end_s'].map((name) => Number(searchParams.get(name)))
    const first = STARTS.filter((time_s) => time_s <= start_s).at(-1)!
    return Response.json(STARTS.filter((time_s) => time_s >= first && time_s < end_s))
  })
})

describe('the frames of a file with a variable rate', () => {
  it('are found by the time and by steps, with one request for times that are near', async () => {
    const frames = new VariableFrames('a', 10)
    expect(await frames.at(0.1)).toEqual({ start_s: 0.04, end_s: 0.2 })
    expect(await frames.at(0.2, -2)).toEqual({ start_s: 0, end_s: 0.04 })
    expect(await frames.at(0.2, -9)).toEqual({ start_s: 0, end_s: 0.04 })
    expect(await frames.at(0.9, 1)).toEqual({ start_s: 1, end_s: 3 })
    expect(asked).toHaveLength(1)
    expect(await frames.at(9.9)).toEqual({ start_s: 9.5, end_s: 10 })
    expect(await frames.at(10)).toEqual({ start_s: 9.5, end_s: 10 })
    expect(asked).toHaveLength(2)
  })
  it('have edges where a frame appears or the video ends', async () => {
    const frames = new VariableFrames('a', 10)
    expect(await frames.edge(0.19)).toBe(0.2)
    expect(await frames.edge(0.2, 1)).toBe(0.25)
    expect(await frames.edge(9.9)).toBe(10)
    expect(await frames.edge(10, -1)).toBe(9.5)
  })
  it('are found before and after a frame that is on screen for a long time', async () => {
    STARTS.splice(0, Infinity, 0, 1, 1.04, 31, 31.04)
    const frames = new VariableFrames('a', 40)
    expect(await frames.at(16)).toEqual({ start_s: 1.04, end_s: 31 })
    expect(await frames.at(16, 1)).toEqual({ start_s: 31, end_s: 31.04 })
    expect(await frames.at(16, -1)).toEqual({ start_s: 1, end_s: 1.04 })
    expect(await frames.edge(17)).toBe(31)
    expect(await frames.edge(31.04, 5)).toBe(40)
  })
  it('are requested only for the first and the last of several times', async () => {
    const frames = new VariableFrames('a', 100)
    const answers = await Promise.all([10, 30, 50, 70].map((time_s) => frames.at(time_s, 0, true)))
    expect(answers.map((frame) => frame !== null)).toEqual([true, false, false, true])
    const kept = await Promise.all([80, 10, 50].map((time_s) => frames.at(time_s)))
    expect(kept.map((frame) => frame !== null)).toEqual([true, true, true])
  })
  it('end at the first one that is listed, if damaged frames before it are left out', async () => {
    vi.stubGlobal('fetch', async () => Response.json([50.5, 50.54]))
    const frames = new VariableFrames('a', 100)
    expect(await frames.at(50)).toEqual({ start_s: 50.5, end_s: 50.54 })
    expect(await frames.at(50.5, -3)).toEqual({ start_s: 50.5, end_s: 50.54 })
  })
  it('are unknown if the file cannot be read', async () => {
    vi.stubGlobal('fetch', async () => new Response(null, { status: 422 }))
    expect(await new VariableFrames('a', 10).at(5)).toBeNull()
  })
})
