// Frames and SMPTE timecodes of a file, counted as in src/untrimmed/exports/counting.py.

/** The fields of a video that say how its frames are counted. */
export interface Timing { frame_rate: string; has_variable_rate: boolean; start_timecode: string }

type Rate = readonly [frames: number, seconds: number]

const RATES: Rate[] = [[24000, 1001], [24, 1], [25, 1], [30000, 1001], [30, 1], [50, 1], [60000, 1001], [60, 1]] // at which timecodes are counted
const USUAL_RATE = 25 // step of files whose rate is unknown
const SAME_RATE = 0.0003 // editors treat rates as equal up to this relative difference
const ROUNDING_S = 0.001 // rounding changes the times of moments by less than this
const ROUNDING = 0.05 // of a frame: containers round times to milliseconds

/** The rate at which timecodes of a file are counted: its own rate if there are timecodes at that rate, otherwise the default rate of its timeline. */
function countedRate(own: Rate): Rate {
  const isMultiple = ([frames, seconds]: Rate, of: Rate) => (frames * of[1]) % (seconds * of[0]) === 0
  const distance = ([frames, seconds]: Rate) => Math.abs(frames / seconds - own[0] / own[1])
  return (
    RATES.find((rate) => isMultiple(rate, own)) ??
    [...RATES].reverse().find((rate) => isMultiple(own, rate)) ??
    RATES.reduce((best, rate) => (distance(rate) < distance(best) ? rate : best))
  )
}

const two = (value: number) => String(value).padStart(2, '0')

/** Converts between seconds from the first frame, frames, and timecodes of one file. */
export class FrameClock {
  readonly isKnown: boolean
  readonly isVariable: boolean
  readonly isDrop: boolean
  readonly #frames: number // per `#seconds`
  readonly #seconds: number
  readonly #counted: Rate // of timecodes
  readonly #isOwn: boolean // the timecodes count the frames of the file
  readonly #base: number // timecodes per second
  readonly #skipped: number // timecodes at the start of a minute
  readonly #start: number // frame of the start timecode
  readonly #end: number // number of timecodes of the file
  readonly #last: number // frame of the file, which stays on screen at its end

  constructor({ frame_rate, has_variable_rate, start_timecode }: Timing, duration_s = Infinity) {
    const [frames, seconds = 1] = frame_rate.split('/').map(Number)
    this.isKnown = frames > 0 && seconds > 0
    this.isVariable = has_variable_rate
    this.#frames = this.isKnown ? frames : USUAL_RATE
    this.#seconds = this.isKnown ? seconds : 1
    this.#counted = countedRate([this.#frames, this.#seconds])
    this.#isOwn = Math.abs((this.#counted[0] * this.#seconds) / (this.#counted[1] * this.#frames) - 1) < SAME_RATE && !has_variable_rate
    this.#base = Math.ceil(this.#counted[0] / this.#counted[1])
    this.isDrop = start_timecode.includes(';') && this.#counted[1] === 1001 && this.#base % 30 === 0
    this.#skipped = this.isDrop ? this.#base / 15 : 0
    this.#start = this.#frameOf(start_timecode)
    this.#end = Math.max(1, Math.floor((duration_s * this.#counted[0]) / this.#counted[1] + 0.5))
    this.#last = Math.max(0, this.nearest(duration_s) - 1)
  }

  get rate(): number {
    return this.#frames / this.#seconds
  }
  /** The rate for people, e.g. 29.97. */
  get rateName(): string {
    if (!this.isKnown) return 'unknown frame rate'
    const rate = Math.round(this.rate * 1000) / 1000
    const timecode = this.#isOwn || this.isVariable ? '' : `, timecode at ${this.#base} fps`
    const kind = this.isDrop ? ' drop frame' : this.isVariable ? ', variable' : timecode
    return `${this.#seconds === 1001 && rate > 24 ? rate.toFixed(2) : rate} fps${kind}`
  }
  /** The number of the frame that is on screen at a time. */
  frameAt(time_s: number): number {
    return Math.min(this.#last, Math.max(0, Math.floor((time_s * this.#frames) / this.#seconds + ROUNDING)))
  }
  /** The number of the frame whose start is nearest to a time. */
  nearest(time_s: number): number {
    return Math.max(0, Math.floor((time_s * this.#frames) / this.#seconds + 0.5))
  }
  /** The time at which a frame begins. */
  timeOf(frame: number): number {
    return (frame * this.#seconds) / this.#frames
  }
  /** The middle of a frame: players that seek there show this frame, however they round. */
  middleOf(frame: number): number {
    return this.timeOf(frame + 0.5)
  }
  /** The nearest time at which a frame begins. */
  snap(time_s: number): number {
    return this.timeOf(this.nearest(time_s))
  }
  /** The timecode of the frame that is on screen at a time: HH:MM:SS:FF, with `;` before the frames for drop frame. */
  at(time_s: number): string {
    return this.isKnown ? this.first(this.timeOf(this.frameAt(time_s))) : clockTime(time_s)
  }
  /** The timecode of a moment's first frame, which begins nearest to its start. */
  first(start_s: number): string {
    return this.isKnown ? this.timecode(this.#start + this.#count(start_s)) : clockTime(start_s)
  }
  /** The timecode of a moment's last frame: its end is the start of the next one. */
  last(end_s: number): string {
    return this.isKnown ? this.timecode(this.#start + Math.max(0, this.#until(end_s) - 1)) : clockTime(end_s)
  }
  /** The number of frames of a moment, as HH:MM:SS:FF. */
  length(start_s: number, end_s: number): string {
    return this.isKnown ? this.timecode(Math.max(1, this.#until(end_s) - this.#count(start_s))) : clockTime(end_s - start_s)
  }
  /** The time at which a second of the timecode begins. */
  timeOfSecond(second: number): number {
    const isSkipped = second % 60 === 0 && second % 600 !== 0
    const frame = this.#frame(second, isSkipped ? this.#skipped : 0) - this.#start
    return (frame * this.#counted[1]) / this.#counted[0]
  }
  /** The timecode at a time, in seconds of the timecode. */
  secondAt(time_s: number): number {
    return this.#number(this.#start + Math.ceil((time_s * this.#counted[0]) / this.#counted[1] - ROUNDING)) / this.#base
  }
  /** The number of timecodes from the first frame to a time. If the file has another rate, the number is rounded up, so that no timecode shows an earlier frame. */
  #count(time_s: number): number {
    if (this.#isOwn) return this.nearest(time_s)
    const start_s = this.isVariable ? time_s - ROUNDING_S : this.snap(time_s)
    return Math.max(0, Math.ceil((start_s * this.#counted[0]) / this.#counted[1] - 1e-6))
  }
  /** The number of timecodes up to the end of a moment. */
  #until(end_s: number): number {
    return Math.min(this.#end, this.#count(end_s))
  }
  /** The number of frames before a timecode. The first numbers of each minute are skipped, except in every tenth minute. */
  #frame(second: number, frames: number): number {
    const minute = Math.floor(second / 60)
    return second * this.#base + frames - this.#skipped * (minute - Math.floor(minute / 10))
  }
  /** The number of a frame, with the skipped numbers before it. */
  #number(frame: number): number {
    const perMinute = this.#base * 60 - this.#skipped
    const perTenMinutes = perMinute * 10 + this.#skipped
    const tens = Math.floor(frame / perTenMinutes)
    const rest = frame % perTenMinutes
    return frame + this.#skipped * (9 * tens + Math.max(0, Math.floor((rest - this.#skipped) / perMinute)))
  }
  /** The timecode with this number, at the rate that timecodes count. After 24 hours, timecodes start again at 0. */
  timecode(frame: number): string {
    const number = this.#number(frame) % (this.#base * 86400)
    const seconds = Math.floor(number / this.#base)
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60].map(two).join(':')
    return `${parts}${this.isDrop ? ';' : ':'}${two(number % this.#base)}`
  }
  /** The frame of a timecode; 0 if it is none of this rate. */
  #frameOf(text: string): number {
    const match = /^(\d\d):(\d\d):(\d\d)[:;](\d+)$/.exec(text)
    if (!match) return 0
    const [hours, minutes, seconds, frames] = match.slice(1).map(Number)
    const own = Math.ceil(this.rate)
    if (minutes > 59 || seconds > 59 || frames >= own) return 0
    return this.#frame((hours * 60 + minutes) * 60 + seconds, Math.floor((frames * this.#base) / own))
  }
}

/** HH:MM:SS.mmm, for files whose frames cannot be counted. */
function clockTime(time_s: number): string {
  const thousandths = Math.max(0, Math.round(time_s * 1000))
  const seconds = Math.floor(thousandths / 1000)
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60].map(two).join(':')
  return `${parts}.${String(thousandths % 1000).padStart(3, '0')}`
}
