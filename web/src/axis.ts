// The part of a video that a time axis shows, and what is drawn on it.

import type { FrameClock } from './timecode'

export interface View { from_s: number; to_s: number }

const MIN_VIEW_S = 0.5
const MOMENT_SHARE = 0.08 // if a moment is shorter than this share of its video, the axis shows only its surroundings
const SURROUNDINGS = 4 // length of this axis, in lengths of the moment
const MIN_SURROUNDINGS_S = 2

export const lengthOf = ({ from_s, to_s }: View) => to_s - from_s

/** Move a view into the video. It is shortened if it is longer than the video. */
function inside(from_s: number, length_s: number, duration_s: number): View {
  const length = Math.min(duration_s, Math.max(Math.min(MIN_VIEW_S, duration_s), length_s))
  const from = Math.min(duration_s - length, Math.max(0, from_s))
  return { from_s: from, to_s: from + length }
}

/** Zoom in by a factor (below 1: out). The time `at_s` keeps its position on the screen. */
export function zoom(view: View, factor: number, at_s: number, duration_s: number): View {
  const length_s = Math.min(duration_s, Math.max(MIN_VIEW_S, lengthOf(view) / factor))
  return inside(at_s - ((at_s - view.from_s) / lengthOf(view)) * length_s, length_s, duration_s)
}

export function pan(view: View, by_s: number, duration_s: number): View {
  return inside(view.from_s + by_s, lengthOf(view), duration_s)
}

/** Show a span with its surroundings. */
export function fit(start_s: number, end_s: number, duration_s: number): View {
  const length_s = Math.max(MIN_SURROUNDINGS_S, (end_s - start_s) * SURROUNDINGS)
  return inside((start_s + end_s - length_s) / 2, length_s, duration_s)
}

/** The first view of a moment: the whole video, or the surroundings of a moment that would be too small. */
export function firstView(start_s: number, end_s: number, duration_s: number): View {
  if (end_s - start_s >= MOMENT_SHARE * duration_s) return { from_s: 0, to_s: duration_s }
  return fit(start_s, end_s, duration_s)
}

/** Scroll the view until it shows a time. */
export function reveal(view: View, at_s: number, duration_s: number): View {
  if (at_s >= view.from_s && at_s <= view.to_s) return view
  const margin_s = lengthOf(view) * 0.1
  return inside(at_s < view.from_s ? at_s - margin_s : at_s + margin_s - lengthOf(view), lengthOf(view), duration_s)
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200]
export const LABEL_WIDTH = 92 // pixels

/** The times of the labels in a view that is `width` pixels wide: whole seconds of the timecode, or frames if zoomed in. */
export function ticks(view: View, width: number, clock: FrameClock): number[] {
  const step_s = (lengthOf(view) * LABEL_WIDTH) / Math.max(width, 1)
  const seconds = STEPS_S.find((step) => step >= step_s) ?? Math.ceil(step_s / 3600) * 3600
  if (step_s > 0.5) return upTo(Math.ceil(clock.secondAt(view.from_s) / seconds), (n) => clock.timeOfSecond(n * seconds), view.to_s)
  const frames = Math.max(1, Math.ceil(step_s * clock.rate))
  return upTo(Math.ceil(clock.frameAt(view.from_s) / frames), (n) => clock.timeOf(n * frames), view.to_s)
}

/** The spans of the pictures of a film strip, each about `size` pixels wide. Scrolling does not change the spans. */
export function cells(view: View, width: number, size: number, duration_s: number): View[] {
  const length_s = 2 ** Math.ceil(Math.log2((lengthOf(view) * size) / Math.max(width, 1) / Math.SQRT2))
  const starts = upTo(Math.floor(view.from_s / length_s), (n) => n * length_s, Math.min(view.to_s, duration_s))
  return starts.map((from_s) => ({ from_s, to_s: from_s + length_s }))
}

function upTo(first: number, time: (n: number) => number, end_s: number): number[] {
  const times_s = []
  for (let n = first; time(n) < end_s; n++) times_s.push(time(n))
  return times_s
}
