// The frames of a file with a variable rate. The page requests their times from the service: a frame's number does not give its time.

import * as api from './api'
import type { Span } from './service'

const AROUND_S = 4 // frames are requested from this many seconds before a time to this many seconds after it
const EPSILON_S = 5e-4

export class VariableFrames {
  #starts: number[] = [] // start times of the frames in `#known`
  #known: Span = { start_s: 0, end_s: 0 }
  #request: Promise<void> | null = null
  #latest = 0 // number of the latest call

  constructor(
    readonly video_id: string,
    readonly duration_s: number
  ) {}

  /** The frame that is `by` frames after the one on screen at a time.
   *
   * Null if the file cannot be read. Also null if `canBeSkipped` is true and a later call was made while this call waited.
   */
  async at(time_s: number, by = 0, canBeSkipped = false): Promise<Span | null> {
    if (!(await this.#load(time_s, canBeSkipped))) return null
    const [starts, known] = [this.#starts, this.#known]
    const last = starts.length - 1
    const place = starts.filter((start_s) => start_s <= time_s + EPSILON_S).length - 1 + by
    const isFromStart = starts[0] <= known.start_s // false if damaged frames at the start are missing from the list
    if (place < 0 && known.start_s > 0 && isFromStart) return this.at(starts[0] - 2 * EPSILON_S, place + 1, canBeSkipped)
    if (place >= last && known.end_s < this.duration_s) return this.at(known.end_s - 2 * EPSILON_S, place - last, canBeSkipped)
    const found = Math.min(last, Math.max(0, place))
    return { start_s: starts[found], end_s: starts[found + 1] ?? this.duration_s }
  }
  /** The frame boundary that is `by` frames after the one nearest to a time. Null if the file cannot be read. */
  async edge(time_s: number, by = 0): Promise<number | null> {
    const frame = await this.at(time_s)
    if (!frame) return null
    const place = by + (time_s - frame.start_s < frame.end_s - time_s ? 0 : 1) // from the start of this frame
    const other = await this.at(frame.start_s, place > 0 ? place - 1 : place)
    return other && (place > 0 ? other.end_s : other.start_s)
  }
  /** Request the frames around a time, unless they are known. Returns whether they are known now. */
  async #load(time_s: number, canBeSkipped: boolean): Promise<boolean> {
    const call = ++this.#latest
    const [start_s, end_s] = [Math.max(0, time_s - AROUND_S), Math.min(this.duration_s, time_s + AROUND_S)]
    const inside = [Math.max(0, time_s - AROUND_S / 2), Math.min(this.duration_s, time_s + AROUND_S / 2)]
    const isKnown = () => this.#starts.length > 0 && this.#known.start_s <= inside[0] && this.#known.end_s >= inside[1]
    while (!isKnown() && this.#request) await this.#request
    if (isKnown()) return true
    if (canBeSkipped && call !== this.#latest) return false
    this.#request = api.frames(this.video_id, { start_s, end_s }).then(
      (starts) => void ([this.#starts, this.#known] = [starts, { start_s, end_s }]),
      () => {} // the file cannot be read
    )
    await this.#request
    this.#request = null
    return isKnown()
  }
}
