import { afterEach, describe, expect, it, vi } from 'vitest'
import * as api from '../src/api'
import { isReachable } from '../src/connection.svelte'

afterEach(() => vi.unstubAllGlobals())

const answer = (hits: unknown[]) => ({ hits, warnings: [], partial: false, took_s: 0.1 })
const QUERY = {}

/** Serve these pieces of text as one answer. */
function serve(...pieces: string[]) {
  const body = new ReadableStream({
    start(stream) {
      for (const piece of pieces) stream.enqueue(new TextEncoder().encode(piece))
      stream.close()
    }
  })
  vi.stubGlobal('fetch', vi.fn(async () => new Response(body)))
}

describe('search', () => {
  it('reports each hit, wherever the network cuts the lines', async () => {
    const lines = [{ hit: { rank: 1 } }, { hit: { rank: 2 } }, { answer: answer([]) }]
    const text = lines.map((line) => JSON.stringify(line) + '\n').join('')
    serve(text.slice(0, 7), text.slice(7, 30), text.slice(30))
    const ranks: number[] = []
    const found = await api.search(QUERY, new AbortController().signal, (hit) => ranks.push(hit.rank))
    expect(ranks).toEqual([1, 2])
    expect(found).toEqual(answer([]))
  })
  it('raises Unreachable when the answer ends early', async () => {
    serve('{"hit": {"rank": 1}}\n')
    await expect(api.search(QUERY, new AbortController().signal, () => {})).rejects.toThrow(api.Unreachable)
  })
  it('raises the problem of a search that fails half way', async () => {
    serve('{"problem": "out of memory"}\n')
    await expect(api.search(QUERY, new AbortController().signal, () => {})).rejects.toThrow('out of memory')
  })
  it('raises Refusal with the status', async () => {
    vi.stubGlobal('fetch', async () => new Response('{"detail": "no such video"}', { status: 404 }))
    await expect(api.detail('x')).rejects.toMatchObject({ status: 404, message: 'no such video' })
    expect(await isReachable()).toBe(true)
  })
  it('raises Unreachable when nothing answers', async () => {
    vi.stubGlobal('fetch', async () => Promise.reject(new TypeError('failed')))
    await expect(api.facts()).rejects.toThrow(api.Unreachable)
    expect(await isReachable()).toBe(false)
  })
})

describe('names and times', () => {
  it.each([
    [0, '0:00.0'],
    [75.25, '1:15.2'],
    [75.75, '1:15.8'],
    [59.96, '1:00.0'],
    [3725.04, '1:02:05.0']
  ])('shows %d seconds as %s', (time_s, text) => expect(api.clock(time_s)).toBe(text))
  it.each([
    [1001 / 60000, '0.02 s'],
    [0.04, '0.04 s'],
    [1, '1.0 s'],
    [14, '14.0 s']
  ])('shows a moment of %d seconds as %s', (length_s, text) => expect(api.seconds(length_s)).toBe(text))
  it('takes characters out of names that file systems forbid', () => {
    expect(api.safe('Día 1: "A/B"')).toBe('Día 1_ _A_B_')
    expect(api.safe('.a\u202e\\b.c')).toBe('_a__b.c')
  })
  it('takes a path apart, without letters that turn or break a line', () => {
    expect(api.fileName('/a/b\u202e.mp4')).toBe('b\ufffd.mp4')
    expect(api.folderOf('/a/b.mp4')).toBe('/a')
  })
  it('asks for stored pictures by their version, if it is known', () => {
    expect(api.thumbnail('id', 1.25)).toBe('/api/videos/id/thumbnail?time_s=1.250')
    expect(api.thumbnail('id', -1, 'abc')).toBe('/api/videos/id/thumbnail?time_s=0.000&version=abc')
  })
  it('asks for the picture of a moment at its peak, or at its middle', () => {
    const span = { start_s: 1.25, end_s: 3.75 }
    expect(api.momentThumbnail('id', { ...span, peak_s: 1.5 })).toBe('/api/videos/id/thumbnail?time_s=1.500&start_s=1.25&end_s=3.75')
    expect(api.momentThumbnail('id', span)).toContain('?time_s=2.500&')
  })
  it('asks for clips that begin and end at frames, also at 59.94 frames per second', () => {
    const timeOf = (frame: number) => (frame * 1001) / 60000
    expect(api.clip('id', { start_s: timeOf(100), end_s: timeOf(200) })).toBe('/api/videos/id/clip?start_s=1.668333&end_s=3.336667')
    expect(api.clip('id', { start_s: 1.5, end_s: 2 })).toBe('/api/videos/id/clip?start_s=1.5&end_s=2')
  })
  it('asks for frames at times that are not negative', () => {
    expect(api.frame('id', -1)).toBe('/api/videos/id/frame?time_s=0.00&short_side=180')
  })
})

it('shows estimates no more precise than they are, as the command line does', () => {
  const shown = [0, 7, 50, 55, 200, 3599, 5000, 35_900, 200_000].map(api.roundTime)
  expect(shown).toEqual(['10 s', '10 s', '50 s', '1 min', '3 min', '1 h', '1 h 25 min', '10 h', '56 h'])
})
