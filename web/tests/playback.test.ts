import { expect, it, vi } from 'vitest'

const element = (currentTime: number) => {
  const video = {
    currentTime, readyState: 4, seeking: false, ended: false, error: null, paused: true, playbackRate: 1,
    play: async () => void (video.paused = false),
    pause: () => (video.paused = true)
  }
  return video
}
const asVideo = (video: ReturnType<typeof element>) => video as unknown as HTMLVideoElement

it('repeats a loop whose start is before the media of the element', async () => {
  let tick: FrameRequestCallback = () => {}
  vi.stubGlobal('requestAnimationFrame', (next: FrameRequestCallback) => (tick = next))
  vi.stubGlobal('cancelAnimationFrame', () => {})
  const { Playback } = await import('../src/playback.svelte')
  const playback = new Playback()
  playback.loop = () => ({ start_s: 10, end_s: 130 })
  playback.attach(asVideo(element(30)), 100)
  playback.play()
  tick(0)
  expect(playback.time_s).toBe(10)
  const first = element(0)
  playback.attach(asVideo(first), 9.5)
  tick(20)
  expect(first.currentTime).toBeCloseTo(0.5)
})

it('goes on in the next element as in the one before it', async () => {
  let tick: FrameRequestCallback = () => {}
  vi.stubGlobal('requestAnimationFrame', (next: FrameRequestCallback) => (tick = next))
  vi.stubGlobal('cancelAnimationFrame', () => {})
  const { Playback } = await import('../src/playback.svelte')
  const playback = new Playback()
  const attach = (): [ReturnType<typeof element>, () => void] => {
    const video = element(1)
    return [video, playback.attach(asVideo(video))]
  }
  const [first, leaveFirst] = attach()
  playback.shuttle(1)
  playback.shuttle(1)
  leaveFirst()
  const [second, leaveSecond] = attach()
  expect([first.paused, second.paused, second.playbackRate]).toEqual([false, false, 2])
  playback.pause()
  leaveSecond()
  const [third] = attach()
  expect(third.paused).toBe(true)
  playback.play()
  third.pause() // as a browser does, for example for a call
  tick(0)
  const [fourth] = attach()
  expect(fourth.paused).toBe(true)
})

it.each([-1, -2, -8])('plays backwards at %d times the speed if each seek takes 80 ms', async (speed) => {
  let tick: FrameRequestCallback = () => {}
  vi.stubGlobal('requestAnimationFrame', (next: FrameRequestCallback) => (tick = next))
  vi.stubGlobal('cancelAnimationFrame', () => {})
  const { Playback } = await import('../src/playback.svelte')
  const playback = new Playback()
  const video = { ...element(0), at_s: 60, ends_ms: 0 }
  let now = 0
  Object.defineProperty(video, 'currentTime', {
    get: () => video.at_s,
    set: (to_s: number) => ([video.at_s, video.ends_ms, video.seeking] = [to_s, now + 80, true])
  })
  const refresh = () => {
    now += 1000 / 60
    if (now >= video.ends_ms) video.seeking = false
    tick(now)
  }
  playback.attach(asVideo(video))
  refresh()
  for (let fold = 1; fold <= -speed; fold *= 2) playback.shuttle(-1)
  for (let i = 0; i < 120; i++) refresh()
  const ratio = (60 - playback.time_s) / 2 / -speed
  expect(ratio).toBeGreaterThan(0.9)
  expect(ratio).toBeLessThan(1.1)
  for (let i = 0; i < 3600; i++) refresh()
  expect([video.currentTime, playback.isRunning]).toEqual([0, false])
})

it('does not end a loop where a part of the video ends', async () => {
  let tick: FrameRequestCallback = () => {}
  vi.stubGlobal('requestAnimationFrame', (next: FrameRequestCallback) => (tick = next))
  vi.stubGlobal('cancelAnimationFrame', () => {})
  const { Playback } = await import('../src/playback.svelte')
  const ends: number[] = []
  for (const isPart of [true, false]) {
    const playback = new Playback()
    playback.loop = () => ({ start_s: 10, end_s: 1000 })
    playback.onEnd = () => (ends.push(playback.time_s), true)
    const video = element(590)
    playback.attach(asVideo(video), 10, isPart)
    playback.play()
    tick(0)
    Object.assign(video, { ended: true, paused: true })
    tick(20)
    expect(ends).toEqual(isPart ? [] : [600])
  }
})

it('goes back while the last frame of the loop is on screen', async () => {
  let tick: FrameRequestCallback = () => {}
  vi.stubGlobal('requestAnimationFrame', (next: FrameRequestCallback) => (tick = next))
  vi.stubGlobal('cancelAnimationFrame', () => {})
  const { Playback } = await import('../src/playback.svelte')
  const playback = new Playback()
  playback.loop = () => ({ start_s: 10, last_s: 10.96, end_s: 11 })
  let shown: VideoFrameRequestCallback = () => {}
  const video = Object.assign(element(10.93), { requestVideoFrameCallback: (next: VideoFrameRequestCallback) => (shown = next) && 1 })
  playback.attach(asVideo(video))
  playback.play()
  const refresh = (at_s: number, frame_s: number) => {
    video.currentTime = at_s
    shown(0, { mediaTime: frame_s } as VideoFrameCallbackMetadata)
    tick(0)
    return video.currentTime
  }
  expect(refresh(10.955, 10.92)).toBe(10.955)
  expect(refresh(10.94, 10.96)).toBe(10.94) // the last frame is shown early
  expect(refresh(10.957, 10.96)).toBe(10)
})
