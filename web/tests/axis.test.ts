import { describe, expect, it } from 'vitest'
import { cells, firstView, fit, lengthOf, pan, reveal, ticks, zoom } from '../src/axis'
import { FrameClock } from '../src/timecode'

const FILM_S = 52 * 60
const whole = { from_s: 0, to_s: FILM_S }
const clock = new FrameClock({ frame_rate: '25', has_variable_rate: false, start_timecode: '' })

describe('zoom', () => {
  it('keeps the time under the pointer in its place, down to two seconds of a film and less', () => {
    let view = whole
    const place = (1234.5 - view.from_s) / lengthOf(view)
    for (let i = 0; i < 40; i++) {
      view = zoom(view, 1.2, 1234.5, FILM_S)
      expect((1234.5 - view.from_s) / lengthOf(view)).toBeCloseTo(place, 6)
    }
    expect(lengthOf(view)).toBeLessThan(2.2)
    for (let i = 0; i < 20; i++) view = zoom(view, 1.2, 1234.5, FILM_S)
    expect(lengthOf(view)).toBeCloseTo(0.5, 6)
    for (let i = 0; i < 80; i++) view = zoom(view, 1 / 1.2, 1234.5, FILM_S)
    expect(view).toEqual(whole)
  })
  it('stays inside the video', () => {
    expect(zoom({ from_s: 0, to_s: 10 }, 0.5, 9, 60)).toEqual({ from_s: 0, to_s: 20 })
    expect(zoom({ from_s: 50, to_s: 60 }, 0.5, 51, 60)).toEqual({ from_s: 40, to_s: 60 })
  })
  it('of a video shorter than the shortest view shows all of it', () => {
    expect(zoom({ from_s: 0, to_s: 0.2 }, 4, 0.1, 0.2)).toEqual({ from_s: 0, to_s: 0.2 })
  })
})

it('pans up to the ends of the video', () => {
  expect(pan({ from_s: 10, to_s: 20 }, 5, 60)).toEqual({ from_s: 15, to_s: 25 })
  expect(pan({ from_s: 10, to_s: 20 }, -50, 60)).toEqual({ from_s: 0, to_s: 10 })
  expect(pan({ from_s: 10, to_s: 20 }, 500, 60)).toEqual({ from_s: 50, to_s: 60 })
})

describe('the first view', () => {
  it('is the whole of a short video, and the surroundings of a short moment of a film', () => {
    expect(firstView(10, 16, 60)).toEqual({ from_s: 0, to_s: 60 })
    expect(firstView(1000, 1005, FILM_S)).toEqual({ from_s: 992.5, to_s: 1012.5 })
    expect(fit(0, 5, FILM_S)).toEqual({ from_s: 0, to_s: 20 })
  })
  it('moves only as far as necessary to show a time', () => {
    const view = { from_s: 100, to_s: 110 }
    expect(reveal(view, 105, FILM_S)).toBe(view)
    expect(reveal(view, 120, FILM_S)).toEqual({ from_s: 111, to_s: 121 })
    expect(reveal(view, 95, FILM_S)).toEqual({ from_s: 94, to_s: 104 })
  })
})

describe('labels', () => {
  it('are at whole seconds of a film, and at frames of a close view', () => {
    expect(ticks(whole, 420, clock)).toEqual([0, 900, 1800, 2700])
    expect(ticks({ from_s: 9.5, to_s: 40 }, 420, clock)).toEqual([10, 20, 30])
    expect(ticks({ from_s: 1, to_s: 2 }, 420, clock).map((time_s) => clock.at(time_s))).toEqual([
      '00:00:01:05', '00:00:01:11', '00:00:01:17', '00:00:01:23'
    ])
  })
  it.each([
    ['60000/1001', '', { from_s: 0, to_s: 40 }, ['00:00:00:00', '00:00:10:00', '00:00:20:00', '00:00:30:00']],
    ['60000/1001', '', { from_s: 10.001, to_s: 40 }, ['00:00:10:00', '00:00:20:00', '00:00:30:00']],
    ['30000/1001', '00:00:55;00', { from_s: 0, to_s: 240 }, ['00:01:00;02', '00:02:00;02', '00:03:00;02', '00:04:00;02']],
    ['25', '01:00:00:12', { from_s: 0, to_s: 40 }, ['01:00:10:00', '01:00:20:00', '01:00:30:00', '01:00:40:00']],
    ['25/2', '', { from_s: 0, to_s: 5 }, ['00:00:00:00', '00:00:02:00', '00:00:04:00']]
  ])('are round timecodes at %s frames from %s', (frame_rate, start_timecode, view, expected) => {
    const frames = new FrameClock({ frame_rate, has_variable_rate: false, start_timecode })
    expect(ticks(view, 420, frames).map((time_s) => frames.first(time_s))).toEqual(expected)
  })
})

describe('pictures of the film strip', () => {
  it('cover the view and are the same after a pan', () => {
    const before = cells({ from_s: 10, to_s: 30 }, 420, 50, FILM_S)
    const after = cells({ from_s: 12, to_s: 32 }, 420, 50, FILM_S)
    expect(before[0].from_s).toBeLessThanOrEqual(10)
    expect(before.at(-1)!.to_s).toBeGreaterThanOrEqual(30)
    const shared = before.filter(({ from_s }) => after.some((cell) => cell.from_s === from_s))
    expect(shared.length).toBeGreaterThanOrEqual(before.length - 1)
    const width = (lengthOf(before[0]) / 20) * 420
    expect(width).toBeGreaterThan(50 / Math.SQRT2 - 0.1)
    expect(width).toBeLessThan(50 * Math.SQRT2 + 0.1)
  })
})
