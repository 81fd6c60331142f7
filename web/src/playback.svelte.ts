// Plays the video of the inspector. Its state is read from the video element in each frame of the screen, so it is always
// what the element really does.

import { remember, stored } from './storage'

export type Status = 'loading' | 'playing' | 'paused' | 'waiting' | 'failed'
interface Loop { start_s: number; end_s: number }

const MUTED = 'untrimmed-muted'
const MAX_SPEED = 8
const STALL_MS = 400 // without progress, after which playback counts as waiting
const BEFORE_LOOP_S = 0.3 // playback this far before the loop does not jump: the edge was moved while playing

export class Playback {
  time_s = $state(0)
  status = $state<Status>('loading')
  isRunning = $state(false) // whether it plays, or would if it had data
  speed = $state(1) // of playback while it runs; negative: backwards
  isMuted = $state(stored(MUTED, true))
  loop: () => Loop | null = () => null // the span to repeat; null plays to the end of the video
  onEnd = (): boolean => false // called at the end of the loop; if it returns true, the loop is not repeated
  #video: HTMLVideoElement | null = null
  #offset_s = 0 // time of the file at which the element's media begins
  #target_s: number | null = null // where to seek once the current seek has ended
  #isBackwards = false
  #isMeant = false // to run: elements also pause at their end
  #before = 0 // time of the last frame of the screen
  #movedAt = 0 // when the position changed last

  /** Control this element, whose media begins at `offset_s` of the file. It plays if the element before it did.
   *
   * Returns a function that lets go of it.
   */
  attach(video: HTMLVideoElement, offset_s = 0): () => void {
    this.#video = video
    this.#offset_s = offset_s
    video.muted = this.isMuted
    this.status = 'loading'
    if (this.#isMeant) this.#run(this.speed)
    let request = requestAnimationFrame(function tick(this: Playback, now: number) {
      this.#tick(now)
      request = requestAnimationFrame(tick.bind(this))
    }.bind(this))
    return () => {
      cancelAnimationFrame(request)
      if (this.#video !== video) return
      this.#video = null
      this.isRunning = this.#isBackwards = false
    }
  }

  /** Play forwards at normal speed. */
  play(): void {
    this.#run(1)
  }
  pause(): void {
    this.#isBackwards = this.#isMeant = false
    this.speed = 1
    this.#video?.pause()
  }
  toggle(): void {
    if (this.#isRunning()) this.pause()
    else this.play()
  }
  /** Play forwards (1) or backwards (-1); each repetition doubles the speed, and the other direction starts anew. */
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
    this.#isMeant = true
    this.#isBackwards = speed < 0
    if (this.#isBackwards) {
      video.pause() // elements cannot play backwards: each frame of the screen seeks
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
    const elapsed_s = Math.min(0.25, (now - this.#before) / 1000)
    this.#before = now
    if (video.readyState > 0 && !video.seeking) {
      if (this.#target_s !== null) this.#land(video)
      else this.#move(video, elapsed_s, now)
    }
    this.#read(video, now)
  }
  #land(video: HTMLVideoElement): void {
    video.currentTime = Math.max(0, this.#target_s! - this.#offset_s)
    this.#target_s = null
  }
  #move(video: HTMLVideoElement, elapsed_s: number, now: number): void {
    const at_s = video.currentTime + this.#offset_s
    if (at_s !== this.time_s) this.#movedAt = now
    this.time_s = at_s
    const loop = this.loop()
    if (this.#isBackwards) {
      const to_s = at_s + this.speed * elapsed_s
      if (to_s > 0) this.seek(to_s)
      else this.pause()
    } else if ((video.ended && this.#isMeant) || (loop && !video.paused && at_s >= loop.end_s)) {
      if (this.onEnd() || !loop) return
      this.seek(loop.start_s) // which may be before this element's media
      if (loop.start_s >= this.#offset_s) this.#land(video)
      this.#run(this.speed) // at the end of the video the element has paused
    } else if (loop && !video.paused && at_s < loop.start_s - BEFORE_LOOP_S) this.seek(loop.start_s)
  }
  #read(video: HTMLVideoElement, now: number): void {
    const isOver = video.ended || video.error !== null // which pauses the element too
    if (video.paused && !isOver && !this.#isBackwards) this.#isMeant = false // the browser paused it
    this.isRunning = this.#isRunning()
    const isLate = now - this.#movedAt > STALL_MS
    if (video.error) this.status = 'failed'
    else if (video.readyState < 2 && video.currentTime === 0) this.status = 'loading'
    else if (!this.isRunning) this.status = video.seeking && isLate ? 'waiting' : 'paused'
    else this.status = isLate || (video.readyState < 3 && !video.seeking) ? 'waiting' : 'playing'
  }
}
