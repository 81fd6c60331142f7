import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { playProxy } from '../src/proxy'

const BLOCK_S = 20 // of media in each block
let room: number // blocks that fit into the buffer
let appended: number

class FakeBuffer extends EventTarget {
  startS = 0
  endS = 0
  get buffered() {
    return { length: this.endS > this.startS ? 1 : 0, start: () => this.startS, end: () => this.endS }
  }
  appendBuffer(): void {
    if ((this.endS - this.startS) / BLOCK_S + 1 > room) throw Object.assign(new Error('full'), { name: 'QuotaExceededError' })
    this.endS += BLOCK_S
    appended++
    setTimeout(() => this.dispatchEvent(new Event('updateend')))
  }
  remove(_: number, endS: number): void {
    this.startS = endS
    setTimeout(() => this.dispatchEvent(new Event('updateend')))
  }
}
let buffer: FakeBuffer
class FakeSource extends EventTarget {
  static isTypeSupported = () => true
  readyState = 'open'
  duration = 0
  constructor() {
    super()
    setTimeout(() => this.dispatchEvent(new Event('sourceopen')))
  }
  addSourceBuffer = () => buffer
  endOfStream = () => (this.readyState = 'ended')
}
class FakeVideo extends EventTarget {
  src = ''
  currentTime = 0
  get buffered() {
    return buffer.buffered
  }
  moveTo(time_s: number, name = 'timeupdate'): void {
    this.currentTime = time_s
    this.dispatchEvent(new Event(name))
  }
}
const settle = () => new Promise((resolve) => setTimeout(resolve, 50))

let video: FakeVideo
let abort: AbortController
const play = () => playProxy(video as unknown as HTMLVideoElement, '/proxy', 200, abort.signal)

beforeEach(() => {
  ;[room, appended] = [100, 0]
  ;[buffer, video, abort] = [new FakeBuffer(), new FakeVideo(), new AbortController()]
  vi.stubGlobal('MediaSource', FakeSource)
  vi.stubGlobal('URL', { createObjectURL: () => 'blob:proxy', revokeObjectURL: () => {} })
  const body = () => new ReadableStream({
    start: (stream) => {
      for (let i = 0; i < 10; i++) stream.enqueue(new Uint8Array(1))
      stream.close()
    }
  })
  vi.stubGlobal('fetch', async () => new Response(body(), { headers: { 'content-type': 'video/mp4' } }))
})
afterEach(() => abort.abort())

it('plays the address without Media Source, and rejects if the element cannot', async () => {
  vi.stubGlobal('MediaSource', undefined)
  const played = play()
  await settle()
  expect(video.src).toBe('/proxy')
  video.dispatchEvent(new Event('error'))
  await expect(played).rejects.toThrow()
})
it('loads about a minute ahead of the position', async () => {
  void play().catch(() => {})
  await settle()
  expect(appended).toBe(4)
  video.moveTo(50)
  await settle()
  expect(appended).toBe(6)
  video.moveTo(199)
  await settle()
  expect(appended).toBe(10)
})
it('removes what was played when the browser has no more space, and resolves when that is sought', async () => {
  room = 3
  const done = vi.fn()
  void play().then(done, () => {})
  await settle()
  expect(appended).toBe(3)
  video.moveTo(45)
  await settle()
  expect(buffer.startS).toBe(35)
  expect(appended).toBe(4)
  video.moveTo(36, 'seeking')
  await settle()
  expect(done).not.toHaveBeenCalled()
  video.moveTo(5, 'seeking')
  await settle()
  expect(done).toHaveBeenCalled()
})
