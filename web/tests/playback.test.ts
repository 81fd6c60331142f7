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
