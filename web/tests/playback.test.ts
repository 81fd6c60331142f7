import { expect, it, vi } from 'vitest'

it('repeats a loop whose start is before the media of the element', async () => {
  let tick: FrameRequestCallback = () => {}
  vi.stubGlobal('requestAnimationFrame', (next: FrameRequestCallback) => (tick = next))
  vi.stubGlobal('cancelAnimationFrame', () => {})
  const { Playback } = await import('../src/playback.svelte')
  const playback = new Playback()
  const element = (currentTime: number) =>
    ({ currentTime, readyState: 4, seeking: false, paused: false, ended: false, play: async () => {}, pause: () => {} }) as unknown as HTMLVideoElement
  playback.loop = () => ({ start_s: 10, end_s: 130 })
  const second = element(30)
  playback.attach(second, 100)
  tick(0)
  expect(playback.time_s).toBe(10)
  const first = element(0)
  playback.attach(first, 9.5)
  tick(20)
  expect(first.currentTime).toBeCloseTo(0.5)
})
