import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { BinJson } from '../src/service'

const moment = (start_s: number) => ({ video_id: '0123456789abcdef', video: 'sea.mp4', start_s, end_s: start_s + 2 })

let server: Map<string, BinJson> // the stored bins
let kept: Map<string, string> // local storage
let isDown: boolean
let held: (() => void)[] | null // requests that wait, if they do
let numCreated: number
let library: string
let bins: (typeof import('../src/bins.svelte'))['bins']

function bin(bin_id: string, name: string, moments: object[]): BinJson {
  const full = moments.map((one) => ({ note: '', sentence: '', is_missing: false, ...one }))
  const version = `${Number(server.get(bin_id)?.version ?? 0) + 1}`
  const stored = { bin_id, name, version, num_moments: full.length, duration_s: 0, changed_at: 0, moments: full } as BinJson
  server.set(bin_id, stored)
  return stored
}
async function answer(path: string, init?: RequestInit): Promise<Response> {
  const { method = 'GET', body } = init ?? {}
  if (isDown) throw new TypeError('refused')
  if (held && method !== 'GET') await new Promise<void>((resolve) => held!.push(resolve))
  if (path === '/api/facts') return Response.json({ library, modes: [] })
  const id = /^\/api\/bins\/([^?]+)/.exec(path)?.[1]
  const sent = body ? JSON.parse(String(body)) : {}
  const isTaken = [...server.values()].some((other) => other.name === sent.name && other.bin_id !== id)
  if (isTaken && (method === 'POST' || method === 'PUT')) return Response.json({ detail: 'name exists' }, { status: 422 })
  if (method === 'POST') return Response.json(bin(`id${++numCreated}`, sent.name, sent.moments))
  if (!id) return Response.json({ bins: [...server.values()], problems: [] })
  const known = server.get(id)
  if (!known) return Response.json({ detail: 'no such bin' }, { status: 404 })
  if (method === 'GET') return Response.json(known)
  if (method === 'PUT') {
    if (sent.version !== known.version) return Response.json({ detail: 'changed' }, { status: 412 })
    return Response.json(bin(id, sent.name, sent.moments))
  }
  server.delete(id)
  return Response.json({ bins: [...server.values()], problems: [] })
}
const starts = () => Object.fromEntries([...server.values()].map(({ name, moments }) => [name, moments.map((one) => one.start_s)]))

beforeEach(async () => {
  vi.useFakeTimers()
  server = new Map()
  kept = new Map()
  ;[isDown, held, numCreated, library] = [false, null, 0, 'here']
  vi.stubGlobal('window', globalThis)
  vi.stubGlobal('location', { pathname: '/', search: '' })
  vi.stubGlobal('history', { state: null, pushState: () => {}, replaceState: () => {} })
  vi.stubGlobal('localStorage', {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => kept.set(key, value),
    removeItem: (key: string) => kept.delete(key)
  })
  vi.stubGlobal('sessionStorage', localStorage)
  vi.stubGlobal('fetch', answer)
  bin('a', 'A', [moment(0)])
  bin('b', 'B', [moment(10)])
  vi.resetModules()
  bins = (await import('../src/bins.svelte')).bins
})
const settle = (ms = 0) => vi.advanceTimersByTimeAsync(ms)

describe('a change by another page', () => {
  const shown = () => bins.moments.map((one) => one.start_s)
  it('is shown when the bins are read again', async () => {
    await bins.load()
    bins.add(moment(1))
    await settle()
    bin('a', 'A', [moment(5)])
    await bins.load()
    expect(shown()).toEqual([5])
    bins.undo()
    await settle()
    expect(starts()).toEqual({ A: [5], B: [10] })
  })
  it('is not removed by undo after its bin is chosen again', async () => {
    await bins.load()
    bins.add(moment(1))
    await settle()
    await bins.choose('b')
    bin('a', 'A', [moment(0), moment(1), moment(7)])
    await bins.choose('a')
    bins.undo()
    await settle()
    expect(starts().A).toEqual([0, 1, 7])
  })
  it('is not reported if this page stored the change while the bins were read', async () => {
    await bins.load()
    const list = answer('/api/bins') // as it was before the change
    vi.stubGlobal('fetch', (path: string, init?: RequestInit) => {
      if (path !== '/api/bins' || init?.method) return answer(path, init)
      vi.stubGlobal('fetch', answer)
      return new Promise((resolve) => setTimeout(() => resolve(list), 100))
    })
    const loaded = bins.load()
    bins.add(moment(1))
    await settle(200)
    await loaded
    expect(bins.notice?.text).toBe('Added to A')
    bins.undo()
    await settle()
    expect(starts().A).toEqual([0])
  })
  it('does not replace a change that is not stored', async () => {
    await bins.load()
    isDown = true
    bins.add(moment(1))
    await settle()
    bin('a', 'A', [moment(0), moment(5)])
    isDown = false
    await bins.load()
    expect(shown()).toEqual([0, 1])
    await settle(3000)
    expect(starts()).toEqual({ A: [0, 5, 1], B: [10] })
  })
  it('stays when the addition of this page is undone', async () => {
    await bins.load()
    bin('a', 'A', [moment(0), moment(5)])
    bins.add(moment(1))
    await settle()
    expect(starts().A).toEqual([0, 5, 1])
    bins.undo()
    await settle()
    expect(starts().A).toEqual([0, 5])
  })
  it('is kept when the trim of this page is undone, also in the inspector', async () => {
    const { session } = await import('../src/session.svelte')
    bin('a', 'A', [moment(0), moment(4)])
    await bins.load()
    await bins.open(0)
    bin('a', 'A', [moment(0), { ...moment(4), end_s: 5 }])
    const open = session.open!
    open.end_s = 1
    bins.recordTrim(open, { start_s: 0, end_s: 2 })
    await settle()
    expect(server.get('a')!.moments.map(({ end_s }) => end_s)).toEqual([1, 5])
    bins.undo()
    await settle()
    expect(server.get('a')!.moments.map(({ end_s }) => end_s)).toEqual([2, 5])
    expect(session.open!.end_s).toBe(2)
  })
  it('that deletes the open bin can be undone', async () => {
    await bins.load()
    server.delete('a')
    await bins.load()
    expect(bins.bin.name).toBe('B')
    bins.undo()
    await settle()
    expect(starts()).toEqual({ A: [0], B: [10] })
  })
  it('leaves a bin that is not stored yet alone', async () => {
    await bins.load()
    bins.create()
    await bins.load()
    expect(bins.bin.name).toBe('Bin')
  })
  it('moves the edges of the open moment if it trims it, but not if it replaces it', async () => {
    const { session } = await import('../src/session.svelte')
    const dog = { ...moment(0), sentence: 'dog' }
    bin('a', 'A', [dog])
    await bins.load()
    await bins.open(0)
    bin('a', 'A', [{ ...dog, end_s: 1.5 }])
    await bins.load()
    expect(session.open).toMatchObject({ start_s: 0, end_s: 1.5 })
    for (const other of [{ ...moment(1), sentence: 'cars' }, { ...moment(9), sentence: 'dog' }]) {
      bin('a', 'A', [other])
      await bins.load()
      expect(session.open).toMatchObject({ start_s: 0, end_s: 1.5 })
    }
  })
  it('of another moment is kept, and so is the change of this page', async () => {
    bin('a', 'A', [moment(0), moment(2), moment(4)])
    await bins.load()
    const { moments } = server.get('a')!
    bin('a', 'A', [moments[0], { ...moments[1], note: 'theirs' }, moments[2]])
    bins.note(2, 'mine')
    await settle()
    expect(server.get('a')!.moments.map(({ note }) => note)).toEqual(['', 'theirs', 'mine'])
    bin('a', 'A', server.get('a')!.moments.map((one) => ({ ...one, note: 'theirs' })))
    bins.note(2, 'mine again')
    await settle()
    expect(server.get('a')!.moments.map(({ note }) => note)).toEqual(['theirs', 'theirs', 'theirs'])
    bins.undo()
    await settle()
    expect(server.get('a')!.moments.map(({ note }) => note)).toEqual(['', 'theirs', 'mine again'])
  })
})

describe('a change that is not stored yet', () => {
  it('is stored when another bin is begun while the service is down', async () => {
    await bins.load()
    isDown = true
    bins.add(moment(1))
    await settle()
    expect(bins.problem).not.toBe('')
    expect(bins.isUnsaved).toBe(true)
    bins.create()
    bins.add(moment(20))
    await settle()
    isDown = false
    await settle(3000)
    expect(starts()).toEqual({ A: [0, 1], B: [10], Bin: [20] })
    expect(bins.problem).toBe('')
  })
  it('is stored when another bin is chosen during a slow save, and shown when its bin is chosen again', async () => {
    await bins.load()
    held = []
    bins.add(moment(1))
    await settle()
    bins.add(moment(2))
    await bins.choose('b')
    bins.add(moment(11))
    await bins.choose('a')
    expect(bins.moments.map((one) => one.start_s)).toEqual([0, 1, 2])
    const waiting = held
    held = null
    waiting.forEach((go) => go())
    await settle()
    expect(starts()).toEqual({ A: [0, 1, 2], B: [10, 11] })
  })
  it('of a bin that another page changed can be restored, also when another bin is open', async () => {
    await bins.load()
    held = []
    bins.note(0, 'mine')
    await settle()
    bin('a', 'A', [moment(5)])
    await bins.choose('b')
    const waiting = held
    held = null
    waiting.forEach((go) => go())
    await settle()
    expect(bins.bin.name).toBe('B')
    expect(starts()).toEqual({ A: [5], B: [10] })
    bins.undo()
    await settle()
    expect(starts()).toEqual({ A: [0], B: [10] })
    bins.redo()
    await settle()
    expect(starts()).toEqual({ A: [5], B: [10] })
  })
  it('does not keep others from being stored if the service refuses it', async () => {
    await bins.load()
    const full = async (path: string, init?: RequestInit) =>
      init?.method === 'PUT' && path.endsWith('/a') ? Response.json({ detail: 'disk full' }, { status: 507 }) : answer(path, init)
    vi.stubGlobal('fetch', full)
    bins.add(moment(1))
    await settle()
    expect(bins.problem).not.toBe('')
    await bins.choose('b')
    bins.add(moment(11))
    await settle()
    expect(starts()).toEqual({ A: [0], B: [10, 11] })
    expect(bins.problem).not.toBe('')
  })
})

describe('a name', () => {
  it('of another bin is refused', async () => {
    await bins.load()
    bins.rename('B')
    await settle()
    expect([bins.bin.name, bins.problem]).toEqual(['A', ''])
    expect(bins.notice!.text).toContain('B')
  })
  it('that another page has taken gets a number, so that no moment is lost', async () => {
    await bins.load()
    bin('c', 'C', [])
    bins.rename('C')
    bins.add(moment(1))
    await settle()
    expect(starts()).toEqual({ 'C 2': [0, 1], B: [10], C: [] })
    expect([bins.bin.name, bins.problem, bins.isUnsaved]).toEqual(['C 2', '', false])
  })
})

it('opens a moment once the service responds, unless another one was opened by then', async () => {
  const { session } = await import('../src/session.svelte')
  bin('a', 'A', [moment(0), moment(4)])
  await bins.load()
  isDown = true
  void bins.open(0)
  await settle()
  expect([session.open, bins.notice?.text]).toEqual([null, expect.stringContaining('does not respond')])
  void bins.open(1)
  await settle()
  isDown = false
  await settle(3000)
  expect(session.open?.start_s).toBe(4)
})

describe('a page that is closed before all is stored', () => {
  const reopened = async () => {
    bins.keepUnsaved()
    isDown = false
    vi.clearAllTimers()
    vi.resetModules()
    bins = (await import('../src/bins.svelte')).bins
    await bins.load()
    await settle()
  }
  it('leaves its changes to the next page of the tab', async () => {
    await bins.load()
    isDown = true
    bins.note(0, 'waves')
    bins.create()
    bins.add(moment(30))
    await settle()
    await reopened()
    expect(server.get('a')!.moments[0].note).toBe('waves')
    expect(starts()).toEqual({ A: [0], B: [10], Bin: [30] })
    await reopened()
    expect(starts()).toEqual({ A: [0], B: [10], Bin: [30] })
  })
  it('leaves them although the next page is closed before it has read the bins, or cannot read them', async () => {
    await bins.load()
    isDown = true
    bins.note(0, 'waves')
    await settle()
    bins.keepUnsaved()
    for (const isRead of [false, true]) {
      vi.resetModules()
      bins = (await import('../src/bins.svelte')).bins
      const loaded = bins.load()
      if (isRead) await loaded
      bins.keepUnsaved()
    }
    expect(bins.isUnsaved).toBe(true)
    await reopened()
    expect(server.get('a')!.moments[0].note).toBe('waves')
  })
  it('stores its changes only in their own library', async () => {
    await bins.load()
    const { session } = await import('../src/session.svelte')
    session.libraryAddress = 'here'
    isDown = true
    bins.note(0, 'waves')
    await settle()
    library = 'elsewhere'
    await reopened()
    expect(server.get('a')!.moments[0].note).toBe('')
    library = 'here'
    await reopened()
    expect(server.get('a')!.moments[0].note).toBe('waves')
  })
  it.each([true, false])('stores a new bin once (whether its first save arrived: %s)', async (hasArrived) => {
    await bins.load()
    bins.create()
    held = []
    bins.add(moment(30))
    await settle()
    if (hasArrived) bin('new', 'Bin', [moment(30)])
    bins.add(moment(31))
    held = null
    await reopened()
    expect(starts()).toEqual({ A: [0], B: [10], Bin: [30, 31] })
  })
  it('leaves a note although another page has renamed the bin', async () => {
    await bins.load()
    isDown = true
    bins.note(0, 'waves')
    await settle()
    bin('a', 'New', [moment(0)])
    await reopened()
    expect(server.get('a')).toMatchObject({ name: 'New', moments: [{ note: 'waves' }] })
  })
})

describe('an answer that is lost', () => {
  it('does not make the own change look like that of another page', async () => {
    await bins.load()
    let isLost = true
    vi.stubGlobal('fetch', async (path: string, init?: RequestInit) => {
      const stored = await answer(path, init)
      if (init?.method !== 'PUT' || !isLost) return stored
      isLost = false
      throw new TypeError('reset')
    })
    bins.note(0, 'first')
    await settle()
    bins.note(0, 'second')
    await settle(3000)
    expect(server.get('a')!.moments[0].note).toBe('second')
    expect([bins.notice, bins.problem]).toEqual([null, ''])
  })
})

describe('changes of one bin by two pages', () => {
  it('show the other name, which undo replaces, if both pages renamed the bin', async () => {
    await bins.load()
    bin('a', 'Theirs', server.get('a')!.moments)
    bins.rename('Mine')
    await settle()
    expect(bins.bin.name).toBe('Theirs')
    bins.undo()
    await settle()
    expect(starts()).toEqual({ Mine: [0], B: [10] })
  })
  it('are both kept if one of them is only a new name', async () => {
    await bins.load()
    bin('a', 'New', server.get('a')!.moments)
    bins.add(moment(1))
    await settle()
    expect(starts()).toEqual({ New: [0, 1], B: [10] })
    expect(bins.bin.name).toBe('New')
    bin('a', 'New', [...server.get('a')!.moments, moment(2)])
    bins.rename('Newer')
    await settle()
    expect(starts()).toEqual({ Newer: [0, 1, 2], B: [10] })
    expect(bins.moments).toHaveLength(3)
    bins.undo() // only the own change
    await settle()
    expect(starts()).toEqual({ New: [0, 1, 2], B: [10] })
    bins.redo()
    await settle()
    expect(starts()).toEqual({ Newer: [0, 1, 2], B: [10] })
  })
  it('leave moments that were removed here to undo', async () => {
    await bins.load()
    bins.note(0, 'waves')
    await settle()
    bin('a', 'A', [...server.get('a')!.moments, moment(5)])
    bins.empty()
    await settle()
    expect(starts()).toEqual({ A: [5], B: [10] })
    bins.undo()
    await settle()
    expect(starts()).toEqual({ A: [0, 5], B: [10] })
    expect(server.get('a')!.moments[0].note).toBe('waves')
  })
  it('are both kept if one of them only adds moments', async () => {
    await bins.load()
    bin('a', 'A', [...server.get('a')!.moments, moment(5)])
    bins.note(0, 'waves')
    await settle()
    expect(starts()).toEqual({ A: [0, 5], B: [10] })
    expect(server.get('a')!.moments[0].note).toBe('waves')
    bin('a', 'A', server.get('a')!.moments.map((one) => ({ ...one, note: 'theirs' })))
    bins.add(moment(6))
    bins.add(moment(7))
    await settle()
    expect(starts()).toEqual({ A: [0, 5, 6, 7], B: [10] })
    expect(server.get('a')!.moments[0].note).toBe('theirs')
  })
  it('are both kept if one page deletes the bin', async () => {
    await bins.load()
    server.delete('a')
    bins.add(moment(1))
    await settle()
    expect(starts()).toEqual({ A: [0, 1], B: [10] })
    expect(bins.problem).toBe('')
  })
})

describe('undo', () => {
  it('removes an added moment, and redo adds it again', async () => {
    await bins.load()
    bins.add(moment(1))
    bins.undo()
    await settle()
    expect(starts()).toEqual({ A: [0], B: [10] })
    bins.redo()
    await settle()
    expect(starts()).toEqual({ A: [0, 1], B: [10] })
  })
  it('of a deletion does not replace a bin that another page gave the same name', async () => {
    await bins.load()
    await bins.remove()
    bin('other', 'A', [moment(7)])
    bins.all = [...server.values()]
    bins.undo()
    await settle()
    expect(starts()).toEqual({ A: [7], B: [10], 'A 2': [0] })
  })
})

describe('the bin that the browser kept', () => {
  const OLD = 'untrimmed-basket'
  it('is stored once by two pages that load at once', async () => {
    kept.set(OLD, JSON.stringify([moment(3)]))
    vi.resetModules()
    const other = (await import('../src/bins.svelte')).bins
    await Promise.all([bins.load(), other.load()])
    expect(starts()).toEqual({ A: [0], B: [10], Bin: [3] })
    expect(kept.has(OLD)).toBe(false)
  })
  it('is kept if it cannot be stored', async () => {
    kept.set(OLD, JSON.stringify([moment(3)]))
    vi.stubGlobal('fetch', (path: string, init?: RequestInit) =>
      init?.method === 'POST' ? Promise.reject(new TypeError('refused')) : answer(path, init)
    )
    await bins.load()
    expect(JSON.parse(kept.get(OLD)!)).toEqual([moment(3)])
  })
})
