import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { HitJson, SearchRequest } from '../src/service'

const ID = '0123456789abcdef'
const OTHER = 'fedcba9876543210'

function hit(rank: number, video_id: string, ...starts: number[]): HitJson {
  const moments = starts.map((start_s) => ({ start_s, end_s: start_s + 2, peak_s: start_s + 1, score: 1 / rank }))
  const [{ start_s, end_s, peak_s }] = moments
  return { rank, video: `${video_id}.mp4`, video_id, score: 1 / rank, confidence: null, duration_s: 60, start_s, end_s, peak_s, moments }
}
const HITS = [hit(1, ID, 0, 10), hit(2, OTHER, 5)]

let exact: { start_s: number; end_s: number } | null = null // the answer about edges
let edgeRequests: string[]
let asked: SearchRequest[]
let entries: string[] // of the browser's history
let session: (typeof import('../src/session.svelte'))['session']

/** What the page needs of a browser. */
function stubBrowser(): void {
  const location = { pathname: '/', search: '' }
  const go = (state: unknown, address?: string) => {
    history.state = state
    if (!address) return
    const url = new URL(address, 'http://page')
    location.search = url.search
  }
  const history = {
    state: null as unknown,
    pushState: (state: unknown, _: string, address: string) => (entries.push(address), go(state, address)),
    replaceState: (state: unknown, _: string, address?: string) => {
      if (address) entries[entries.length - 1] = address
      go(state, address)
    }
  }
  vi.stubGlobal('location', location)
  vi.stubGlobal('history', history)
  for (const area of ['localStorage', 'sessionStorage']) {
    const kept = new Map<string, string>()
    vi.stubGlobal(area, { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => kept.set(key, value) })
  }
  vi.stubGlobal('fetch', async (path: string, init?: RequestInit) => {
    if (path.includes('/edges?')) edgeRequests.push(path)
    if (path.includes('/edges?')) return exact ? Response.json(exact) : new Response(null, { status: 404 })
    if (path.startsWith('/api/videos/')) return Response.json({ video: 'known.mp4', duration_s: 60 })
    asked.push(JSON.parse(String(init!.body)))
    const hits = asked.at(-1)!.moments === 'all' ? [hit(1, ID, 0, 4, 10)] : structuredClone(HITS)
    return new Response(JSON.stringify({ answer: { hits, warnings: [], partial: false, took_s: 0 } }) + '\n')
  })
}

beforeEach(async () => {
  asked = []
  edgeRequests = []
  entries = ['/']
  stubBrowser()
  vi.resetModules()
  session = (await import('../src/session.svelte')).session
})

describe('playback', () => {
  it('begins at the peak of a moment', async () => {
    session.text = 'a dog'
    await session.search('new')
    session.show(0, 1)
    expect(session.open).toMatchObject({ start_s: 10, end_s: 12, from_s: 11 })
  })
  it('of the selected moment replaces that of another one without an entry of the history', async () => {
    Object.assign(session, { text: 'a dog', layout: 'video' })
    await session.search('new')
    session.playChosen()
    const { length } = entries
    session.step(1)
    session.playChosen()
    expect(session.open).toMatchObject({ start_s: 10 })
    expect([entries.length, entries.at(-1)]).toEqual([length, `/?q=a+dog&view=video&v=${ID}&s=10&e=12`])
  })
})

describe('an open moment', () => {
  it('gets the exact cuts, also in the list, unless its edges were moved by then', async () => {
    session.text = 'a dog'
    await session.search('new')
    exact = { start_s: 10.2, end_s: 11.8 }
    session.show(0, 1)
    await vi.waitFor(() => expect(session.open).toMatchObject({ start_s: 10.2, end_s: 11.8, from_s: 11 }))
    expect(session.open!.atCut).toEqual({ start_s: true, end_s: true })
    expect(session.hits[0].moments[1]).toMatchObject(exact)
    session.show(1, 0)
    const left = session.open!
    session.show(0, 1)
    await session.snapped
    await vi.waitFor(() => expect(left).toMatchObject(exact!)) // also if it was added to the bin before
    expect(session.open!.video_id).toBe(ID)
    exact = { start_s: 0.3, end_s: 2 }
    session.show(0, 0)
    session.trim('end_s', 2.5, 0.04)
    await session.snapped
    expect(session.open).toMatchObject({ start_s: 0, end_s: 2.5 })
    expect(session.hits[0].moments[0]).toMatchObject({ start_s: 0, end_s: 2 })
    exact = null
  })
  it('keeps a trim in the results, until it is undone and gets the exact cuts again', async () => {
    session.text = 'a dog'
    await session.search('new')
    session.show(0, 0)
    await session.snapped
    const { video_id, start_s, end_s } = session.open!
    const rounded = { start_s: start_s + 4e-7, end_s }
    expect(session.setEdges(video_id, rounded, { start_s: 0.5, end_s, atCut: { start_s: false } })).toBe(true)
    expect([session.open!.start_s, session.hits[0].moments[0].start_s]).toEqual([0.5, 0.5])
    session.show(1, 0)
    session.show(0, 0)
    expect(session.open!.start_s).toBe(0.5)
    session.setEdges(video_id, session.open!, { start_s, end_s, atCut: {} })
    expect(session.open!.start_s).toBe(start_s)
    exact = { start_s: 0.3, end_s }
    session.show(0, 0)
    await vi.waitFor(() => expect(session.open!.start_s).toBe(0.3))
    exact = null
  })
  it('keeps a trim in the next answer for the same sentence, and after a reload, but not for another sentence', async () => {
    session.text = 'a dog'
    await session.search('new')
    session.show(0, 1)
    const trimmed = { start_s: 10.4, end_s: 12, atCut: { start_s: false } }
    session.setEdges(ID, session.open!, trimmed)
    await session.search('new')
    await session.toggleAll(0)
    expect(session.hits[0].moments[2]).toMatchObject(trimmed)
    vi.resetModules()
    session = (await import('../src/session.svelte')).session
    session.text = 'a dog'
    await session.search('new')
    expect(session.hits[0].moments[1]).toMatchObject(trimmed)
    session.setEdges(ID, trimmed, { start_s: 10, end_s: 12 })
    await session.search('new')
    expect(session.hits[0].moments[1].start_s).toBe(10)
    session.setEdges(ID, session.hits[0].moments[1], trimmed)
    session.setEdges(ID, trimmed, { start_s: 10.4, end_s: 11 }) // as by an undo after a reload
    await session.search('new')
    expect(session.hits[0].moments[1]).toMatchObject({ start_s: 10.4, end_s: 11, atCut: {} })
    session.text = 'a cat'
    await session.search('new')
    expect(session.hits[0].moments[1].start_s).toBe(10)
  })
  it('keeps a trim that was made before all hits had arrived', async () => {
    const lines = new TransformStream<string, string>()
    const writer = lines.writable.getWriter()
    const send = (line: object) => writer.write(JSON.stringify(line) + '\n')
    vi.stubGlobal('fetch', async () => new Response(lines.readable.pipeThrough(new TextEncoderStream())))
    session.text = 'a dog'
    const search = session.search('new')
    void send({ hit: HITS[0] })
    await vi.waitFor(() => expect(session.hits).toHaveLength(1))
    session.show(0, 1)
    session.setEdges(ID, session.open!, { start_s: 10.4, end_s: 12, atCut: { start_s: false } })
    void send({ answer: { hits: HITS, warnings: [], partial: false, took_s: 0 } })
    await search
    expect(session.hits[0].moments[1]).toMatchObject({ start_s: 10.4, end_s: 12 })
    expect(session.hits).toHaveLength(2)
  })
  it('with words that are said is only extended', async () => {
    session.text = 'a dog'
    await session.search('new')
    const reason = { mode: 'said' as const, start_s: 10, end_s: 12, text: 'politics', source: 'subtitle', language: 'en', words: [] }
    session.hits[0].moments[1].evidence = [reason]
    session.show(0, 1)
    await session.snapped
    session.show(1, 0)
    await session.snapped
    expect(edgeRequests.map((path) => path.endsWith('&extend_only=true'))).toEqual([true, false])
  })
})

describe('all moments', () => {
  const starts = () => session.hits[0].moments.map((span) => span.start_s)

  it('of a video replace the best ones, until these are shown again', async () => {
    Object.assign(session, { text: 'a dog', layout: 'video' })
    await session.search('new')
    session.step(1)
    await session.toggleAll(0)
    expect(asked[1]).toMatchObject({ text: 'a dog', moments: 'all', limit: 1, filters: { within: `${ID}.mp4` } })
    expect(starts()).toEqual([0, 4, 10])
    expect(session.chosen).toEqual({ hit: 0, moment: 2 }) // the same moment as before
    await session.toggleAll(0)
    expect(asked).toHaveLength(2)
    expect(starts()).toEqual([0, 10])
    expect(session.chosen).toEqual({ hit: 0, moment: 1 })
  })
  it('are those of the best moments again after the next search', async () => {
    session.text = 'a dog'
    await session.search('new')
    await session.toggleAll(0)
    await session.search('new')
    expect(starts()).toEqual([0, 10])
    expect(session.best).toEqual({})
  })
})

describe('query', () => {
  it('is sent with trimmed words and the default bounds', async () => {
    session.text = ' a dog '
    session.without = 'rain; ;snow '
    await session.search('new')
    expect(asked).toHaveLength(1)
    expect(asked[0]).toMatchObject({ text: 'a dog', without: ['rain', 'snow'], limit: 30, moments: 6, curve_points: 48, weights: {}, filters: {} })
  })
  it('holds filters in the units of the service', async () => {
    const fields = { min_bytes: 1_500_000, max_bytes: 2_000_000, min_height: 180, max_height: 360, min_duration_s: 90 }
    Object.assign(session, { text: 'x', fields, layout: 'moments', fold: true, minConfidence: 50 })
    await session.search('new')
    expect(asked[0]).toMatchObject({ group_by: 'moment', fold: 0.95, min_confidence: 0.5 })
    expect(asked[0].filters).toMatchObject({
      min_bytes: 1_500_000, max_bytes: 2_000_000, min_height: 180, max_height: 360, min_duration_s: 90
    })
  })
  it('leaves out numbers and weights out of bounds', async () => {
    Object.assign(session, { text: 'x', fields: { limit: 501, within_s: -1, min_height: 1.5 }, weights: { text: 2, then: 0 } })
    await session.search('new')
    expect(asked[0]).toMatchObject({ limit: 30, weights: { text: 2 }, filters: {} })
  })
  it('has no chance where an example is part of it', async () => {
    session.minConfidence = 50
    await session.judge('like', { video: 'a', video_id: ID, start_s: 0, end_s: 2 })
    expect(asked[0].min_confidence).toBeNull()
  })
  it('is not sent when only unwanted things are named', async () => {
    session.without = 'rain'
    await session.search('new')
    expect(asked).toEqual([])
    expect(session.answer).toBeNull()
  })
})

describe('address', () => {
  it('gives the same search when it is read', async () => {
    const set = { text: 'a dog', then: 'a cat', fields: { within_s: 30, limit: 7, within: 'holiday', min_duration_s: 1.5 }, minConfidence: 40, layout: 'moments', weights: { then: 2 } }
    Object.assign(session, set)
    session.unlike = [{ video: 'a', video_id: ID, start_s: 1, end_s: 2.5 }]
    await session.search('new')
    const address = entries.at(-1)!
    Object.assign(session, { text: '', then: '', fields: {}, minConfidence: 0, layout: 'grid', weights: {}, unlike: [] })
    await session.read()
    expect(session).toMatchObject(set)
    expect(session.unlike[0]).toMatchObject({ video_id: ID, start_s: 1, end_s: 2.5 })
    expect(asked[1]).toEqual(asked[0])
    expect(entries.at(-1)).toBe(address)
  })
  it.each([
    ['s=50&e=99', 50, 60],
    ['s=-5&e=1', 0, 1],
    ['s=100&e=200', 0, 60],
    ['s=x&e=1', 0, 60],
    ['', 0, 60]
  ])('of an open moment (%s) opens it again, inside its video', async (times, start_s, end_s) => {
    location.search = `?v=${ID}&${times}`
    await session.read()
    expect(session.open).toMatchObject({ video_id: ID, video: 'known.mp4', start_s, end_s })
  })
  it('keeps the times of a moment to a microsecond', async () => {
    const [start_s, end_s] = [100, 200].map((frame) => (frame * 1001) / 60000)
    await session.view({ video_id: ID, start_s, end_s }, () => {})
    expect(entries.at(-1)).toMatch(/&s=1.668333&e=3.336667$/)
    await session.read()
    expect(session.open!.start_s).toBeCloseTo(start_s, 6)
    expect(session.open!.end_s).toBeCloseTo(end_s, 6)
  })
  it('keeps what is typed as one entry until it is valid', async () => {
    for (const text of ['a', 'a d', 'a dog']) {
      session.text = text
      await session.search('typed')
    }
    expect(entries).toEqual(['/', '/?q=a+dog'])
    await session.search('submitted')
    session.text = 'a cat'
    await session.search('typed')
    expect(entries).toEqual(['/', '/?q=a+dog', '/?q=a+cat'])
  })
})

describe('selection', () => {
  beforeEach(async () => {
    session.layout = 'video'
    session.text = 'x'
    await session.search('new')
  })
  it('goes over the moments of all videos, and stops at the ends', () => {
    const seen = [1, 1, 1, -1, -1, -1, -1].map((by) => {
      session.step(by)
      return [session.chosen.hit, session.chosen.moment]
    })
    expect(seen).toEqual([[0, 1], [1, 0], [1, 0], [0, 1], [0, 0], [0, 0], [0, 0]])
  })
  it('goes over the best moments only in the grid, until a video is unfolded', async () => {
    const walk = () =>
      [1, 1, 1].map((by) => {
        session.step(by)
        return [session.chosen.hit, session.chosen.moment]
      })
    session.layout = 'grid'
    expect(walk()).toEqual([[1, 0], [1, 0], [1, 0]])
    await session.toggleAll(0)
    session.chosen = { hit: 0, moment: 0 }
    expect(walk()).toEqual([[0, 1], [0, 2], [1, 0]])
  })
  it('goes from video to video', () => {
    session.step(1)
    session.stepVideo(1)
    expect(session.chosen).toEqual({ hit: 1, moment: 0 })
    session.stepVideo(5)
    expect(session.chosen).toEqual({ hit: 1, moment: 0 })
    session.stepVideo(-1)
    expect(session.chosen).toEqual({ hit: 0, moment: 0 })
  })
  it('moves the edges of the open moment inside the video, never past each other', () => {
    session.show(0, 0)
    session.trim('start_s', -0.5, 0.04)
    expect(session.open).toMatchObject({ start_s: 0, end_s: 2 })
    session.trim('start_s', 5, 0.04)
    expect(session.open).toMatchObject({ start_s: 1.96, end_s: 2 })
    session.trim('end_s', 100, 0.04)
    expect(session.open).toMatchObject({ end_s: 60 })
    expect(entries.at(-1)).toMatch(/e=60$/)
  })
  it('marks a start after the end, or an end before the start, by moving the other edge as well', () => {
    session.show(0, 1)
    session.mark('start_s', 20, 0.04)
    expect(session.open).toMatchObject({ start_s: 20, end_s: 22 })
    session.mark('end_s', 5, 0.04)
    expect(session.open).toMatchObject({ start_s: 3, end_s: 5 })
    session.mark('end_s', 4, 0.04)
    expect(session.open).toMatchObject({ start_s: 3, end_s: 4 })
  })
  it('changes the edges of a moment without an entry of the history', () => {
    session.show(0, 1)
    const { length } = entries
    session.trim('end_s', 12.5, 0.04)
    expect([entries.length, entries.at(-1)]).toEqual([length, `/?q=x&view=video&v=${ID}&s=10&e=12.5`])
  })
  it('judges a moment, takes the judgement back, and replaces one with other edges', async () => {
    const moment = { video: 'a', video_id: ID, start_s: 0, end_s: 2 }
    await session.judge('like', moment)
    expect(asked.at(-1)!.like).toEqual([{ video_id: ID, start_s: 0, end_s: 2 }])
    await session.judge('unlike', { ...moment, end_s: 3 })
    expect(asked.at(-1)).toMatchObject({ like: [], unlike: [{ video_id: ID, start_s: 0, end_s: 3 }] })
    await session.judge('unlike', { ...moment, end_s: 3 })
    expect(asked.at(-1)!.unlike).toEqual([])
    expect(session.chosen).toEqual({ hit: 0, moment: 0 })
  })
})
