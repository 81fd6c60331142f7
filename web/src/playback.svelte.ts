// Plays the video of the inspector. The state is read from the video element at each screen refresh, so it never differs from
// what the element does.

import { remember, stored } from './storage'

export type Status = 'loading' | 'playing' | 'paused' | 'waiting' | 'failed'
/** A span to repeat. Its last frame begins at `last_s`, if that is known. */
interface Loop { start_s: number; last_s?: number; end_s: number }

const MUTED = 'untrimmed-muted'
const MAX_SPEED = 8
const STALL_MS = 400 // playback that makes no progress for this long is waiting
const MAX_LAG_S = 0.15 // largest difference between the element's time and the start of the frame on screen; beyond it, the element's time counts
const AHEAD_S = 0.05 // at normal speed, browsers show a frame up to this long before the time of the element reaches its start
const BEFORE_LOOP_S = 0.3 // the start of the loop may move during playback: positions up to this far before it do not jump

export class Playback {
  time_s = $state(0)
  status = $state<Status>('loading')
  isRunning = $state(false) // whether it plays, or would if it had data
  speed = $state(1) // negative: backwards
  isMuted = $state(stored(MUTED, true))
  loop: () => Loop | null = () => null // the span to repeat; null plays to the end of the video
  onEnd = (): boolean => false // called at the end of the loop; if it returns true, the loop is not repeated
  #video: HTMLVideoElement | null = null
  #isPart = false // the element's media ends before the video does
  #offset_s = 0 // time of the file at which the element's media begins; negative if its sound begins before its picture
  #shown_s: number | null = null // when the frame on screen begins, in the time of the element; null if this is unknown
  #target_s: number | null = null // where to seek once the current seek has ended
  #isSought = false // whether the element's time is that of the last seek, and no frame was played since
  #isBackwards = false
  #shouldRun = false // stays true at the end of the video, where the element pauses
  #lastTick = 0 // time of the last screen refresh
  #sinceSeek_s = 0 // time since the last seek began; how far the next seek of backward playback goes
  #at_s = 0 // position of the element, in the time of the file
  #movedAt = 0 // when `#at_s` changed last

  /** Control a video element whose media begins at `offset_s` of the file. It plays if the previous element was playing.
   *
   * With `isPart`, the media is only a part of the video, and the loop does not end where the media ends.
   * Returns a function that releases the element.
   */
  attach(video: HTMLVideoElement, offset_s = 0, isPart = false): () => void {
    if (offset_s < 0) this.seek(this.time_s) // the start of the picture may have become known during playback
    this.#video = video
    this.#offset_s = offset_s
    this.#isPart = isPart
    this.#shown_s = null
    video.muted = this.isMuted
    this.status = 'loading'
    if (this.#shouldRun) this.#run(this.speed)
    let request = requestAnimationFrame(function tick(this: Playback, now: number) {
      this.#tick(now)
      request = requestAnimationFrame(tick.bind(this))
    }.bind(this))
    let frameRequest = video.requestVideoFrameCallback?.(function shown(this: Playback, _: number, { mediaTime }: VideoFrameCallbackMetadata) {
      this.#shown_s = mediaTime
      if (!video.paused) this.#isSought = false
      frameRequest = video.requestVideoFrameCallback(shown.bind(this))
    }.bind(this))
    return () => {
      cancelAnimationFrame(request)
      if (frameRequest !== undefined) video.cancelVideoFrameCallback(frameRequest)
      if (this.#video !== video) return
      this.#video = null
      this.isRunning = this.#isBackwards = false
    }
  }

  /** A time at which the frame on screen is shown. The element's own time can be a frame before or after it. */
  get shownAt_s(): number {
    return this.#target_s === null ? this.#shownAt(this.time_s) : this.time_s
  }
  #shownAt(at_s: number): number {
    const shown_s = this.#shown_s === null || this.#isSought ? at_s : Math.max(0, this.#shown_s + this.#offset_s)
    return Math.abs(shown_s - at_s) < MAX_LAG_S ? shown_s : at_s
  }
  /** Play forwards at normal speed. */
  play(): void {
    this.#run(1)
  }
  pause(): void {
    this.#isBackwards = this.#shouldRun = false
    this.speed = 1
    this.#video?.pause()
  }
  toggle(): void {
    if (this.#isRunning()) this.pause()
    else this.play()
  }
  /** Play forwards (1) or backwards (-1). Each repetition doubles the speed. A change of direction starts at normal speed. */
  shuttle(direction: 1 | -1): void {
    const isFaster = this.#isRunning() && Math.sign(this.speed) === direction
    this.#run(isFaster ? direction * Math.min(MAX_SPEED, Math.abs(this.speed) * 2) : direction)
  }
  #isRunning(): boolean {
    return this.#isBackwards || (this.#video !== null && !this.#video.paused)
  }
  #run(speed: number): void {
    const video = this.#video
    if (!video) return
    this.speed = speed
    this.#shouldRun = true
    this.#isBackwards = speed < 0
    if (this.#isBackwards) {
      this.#sinceSeek_s = 0
      video.pause() // elements cannot play backwards, so seeks follow one another
      return
    }
    video.playbackRate = speed
    video.play().catch(() => {}) // the status shows whether it plays
  }
  /** Go to a time of the file. Several requests while the element seeks become one. */
  seek(to_s: number): void {
    this.#target_s = this.time_s = Math.max(0, to_s)
    this.#movedAt = performance.now()
  }
  mute(isMuted: boolean): void {
    this.isMuted = isMuted
    remember(MUTED, JSON.stringify(isMuted))
    if (this.#video) this.#video.muted = isMuted
  }

  #tick(now: number): void {
    const video = this.#video
    if (!video) return
    this.#sinceSeek_s += Math.min(0.25, (now - this.#lastTick) / 1000) // a hidden page has no screen refreshes
    this.#lastTick = now
    if (video.readyState > 0 && !video.seeking) {
      if (this.#target_s !== null) this.#land(video)
      else this.#move(video, now)
    }
    this.#read(video, now)
  }
  #land(video: HTMLVideoElement): void {
    video.currentTime = Math.max(0, this.#target_s! - this.#offset_s)
    this.#target_s = null
    this.#isSought = true
    this.#sinceSeek_s = 0
  }
  #move(video: HTMLVideoElement, now: number): void {
    const at_s = Math.max(0, video.currentTime + this.#offset_s)
    if (at_s !== this.#at_s) this.#movedAt = now
    this.#at_s = at_s
    this.time_s = video.paused ? this.#shownAt(at_s) : at_s
    const loop = this.loop()
    if (this.#isBackwards) {
      const to_s = at_s + this.speed * this.#sinceSeek_s
      this.seek(to_s)
      if (to_s >= this.#offset_s) this.#land(video)
      if (to_s <= 0) this.pause()
    } else if ((video.ended && this.#shouldRun && !this.#isPart) || (loop && !video.paused && this.#isOver(loop, at_s))) {
      if (this.onEnd() || !loop) return
      this.seek(loop.start_s) // may be before the media of this element
      if (loop.start_s >= this.#offset_s) this.#land(video)
      this.#run(this.speed) // the element pauses at the end of the video
    } else if (loop && !video.paused && at_s < loop.start_s - BEFORE_LOOP_S) this.seek(loop.start_s)
  }
  /** Whether the last frame of the loop is on screen and would soon be replaced. */
  #isOver({ start_s, last_s = Infinity, end_s }: Loop, at_s: number): boolean {
    const shown_s = this.#isSought || this.#shown_s === null ? at_s : this.#shown_s + this.#offset_s
    return at_s >= end_s - (shown_s >= last_s ? Math.min(AHEAD_S * this.speed, (end_s - start_s) / 2) : 0)
  }
  #read(video: HTMLVideoElement, now: number): void {
    const isOver = video.ended || video.error !== null // the element is paused in both cases
    if (video.paused && !isOver && !this.#isBackwards) this.#shouldRun = false // the browser paused it
    this.isRunning = this.#isRunning()
    const isLate = now - this.#movedAt > STALL_MS
    if (video.error) this.status = 'failed'
    else if (video.readyState < 2 && video.currentTime === 0) this.status = 'loading'
    else if (!this.isRunning) this.status = video.seeking && isLate ? 'waiting' : 'paused'
    else this.status = isLate || (video.readyState < 3 && !video.seeking) ? 'waiting' : 'playing'
  }
}
