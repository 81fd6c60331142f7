import { describe, expect, it } from 'vitest'
import { FrameClock } from '../src/timecode'
import TIMECODES from './timecodes.json'

const clock = (frame_rate: string, start_timecode = '', has_variable_rate = false) =>
  new FrameClock({ frame_rate, start_timecode, has_variable_rate })

describe('timecode', () => {
  it.each([
    ['25', '', 90000, '01:00:00:00'],
    ['24000/1001', '', 86400, '01:00:00:00'],
    ['30000/1001', '', 107892, '00:59:56:12'],
    ['30000/1001', '00:00:00;00', 107892, '01:00:00;00'],
    ['30000/1001', '00:00:00;00', 1799, '00:00:59;29'],
    ['30000/1001', '00:00:00;00', 1800, '00:01:00;02'],
    ['30000/1001', '00:00:00;00', 17981, '00:09:59;29'],
    ['30000/1001', '00:00:00;00', 17982, '00:10:00;00'],
    ['60000/1001', '00:00:00;00', 3600, '00:01:00;04'],
    ['10', '', 25, '00:00:00:25'], // counted at 30 per second
    ['25', '', 25 * 86400 + 1, '00:00:00:01']
  ])('at %s frames (start %s), frame %d is %s', (rate, start, frame, expected) => {
    expect(clock(rate, start).timecode(frame)).toBe(expected)
  })
  it.each([
    ['30000/1001', '01:00:00;00', 3000, '01:50:00;00'],
    ['30000/1001', '01:00:00:00', 3000, '01:49:57:00'],
    ['25', '10:00:00:12', 1, '10:00:01:12'],
    ['30', '01:00:00;00', 1, '01:00:01:00'], // a drop-frame timecode that the rate does not have counts without drops
    ['25', '01:00:00:40', 1, '00:00:01:00'], // not a timecode of this rate
    ['', '', 1.5, '00:00:01.500']
  ])('at %s frames from %s, the time %d s is %s', (rate, start, time_s, expected) => {
    expect(clock(rate, start).at(time_s)).toBe(expected)
  })
})

// tests/exports/test_counting.py compares the same file with src/untrimmed/exports/counting.py.
it.each(TIMECODES)('a moment at %s frames from "%s" has the timecodes of exports', (rate, start, first, last) => {
  expect([clock(rate, start).first(15.25), clock(rate, start).last(62.35)]).toEqual([first, last])
})
it('shows the timecode of the start of a frame on screen', () => {
  const frames = clock('25/2')
  expect([0, 1, 2, 25].map((frame) => frames.at(frames.middleOf(frame)))).toEqual([
    '00:00:00:00', '00:00:00:02', '00:00:00:04', '00:00:02:00'
  ])
})

it('shows the last frame at the end of a file', () => {
  const frames = new FrameClock({ frame_rate: '25', start_timecode: '10:21:00:00', has_variable_rate: false }, 0.48)
  expect([frames.at(0.44), frames.at(0.479), frames.at(0.48), frames.at(5)]).toEqual(Array(4).fill('10:21:00:11'))
})

describe('frames', () => {
  it.each(['10', '24000/1001', '24', '25', '30000/1001', '30', '50', '60000/1001'])('of %s per second are found at their times', (rate) => {
    const frames = clock(rate)
    for (const frame of [0, 1, 7, 1799, 89910, 215999]) {
      const start_s = frames.timeOf(frame)
      const rounded = [start_s, Math.round(start_s * 1000) / 1000, frames.middleOf(frame)] // containers round to milliseconds
      expect(rounded.map((time_s) => frames.frameAt(time_s))).toEqual([frame, frame, frame])
      expect(frames.nearest(start_s)).toBe(frame)
    }
  })
  it('are those that exports count', () => {
    expect(clock('30000/1001').nearest(3000)).toBe(89910)
    expect(clock('24').nearest(0.041)).toBe(1)
    expect(clock('25').snap(1.05)).toBeCloseTo(1.04, 9)
  })
  it('end with the file, as exports do', () => {
    const variable = new FrameClock({ frame_rate: '30', start_timecode: '', has_variable_rate: true }, 10.012)
    expect([variable.last(10.012), variable.length(2, 10.012)]).toEqual(['00:00:09:29', '00:00:08:00'])
    const fast = new FrameClock({ frame_rate: '144', start_timecode: '', has_variable_rate: false }, 1441 / 144)
    expect(fast.last(1441 / 144)).toBe('00:00:09:23')
  })
  it('have a rate with a name', () => {
    expect(clock('30000/1001', '01:00:00;00').rateName).toBe('29.97 fps drop frame')
    expect(clock('24000/1001').rateName).toBe('23.976 fps')
    expect(clock('25').rateName).toBe('25 fps')
    expect(clock('30', '', true).rateName).toBe('30 fps, variable')
    expect(clock('').rateName).toBe('unknown frame rate')
  })
})
