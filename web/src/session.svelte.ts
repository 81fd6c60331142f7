// What the page shows: the search, its hits, the moment that is open, the basket; and the address that says so.

import * as api from './api'
import type { Answer, Hit, Mark, Wanted } from './api'

export interface Open { video_id: string; video: string; duration_s: number; start_s: number; end_s: number }
export interface Kept extends Mark { video: string }

type Question = { kind: 'text' } | { kind: 'frame'; video_id: string; time_s: number } | { kind: 'picture'; file: File }

const KEPT = 'untrimmed-basket'
const SIDE = 'untrimmed-size'
const SIZES = [120, 168, 232, 320]

function stored<T>(key: string, otherwise: T): T {
  try {
    return JSON.parse(localStorage.getItem(key) ?? '') as T
  } catch {
    return otherwise
  }
}

class Session {
  text = $state('')
  within = $state('')
  minScore = $state<number | null>(null)
  limit = $state(20)
  moments = $state(4)
  question = $state<Question>({ kind: 'text' })
  answer = $state<Answer | null>(null)
  problem = $state('')
  isBusy = $state(false)
  library = $state<Hit[]>([]) // shown while nothing is asked
  numVideos = $state(0)
  open = $state<Open | null>(null)
  chosen = $state({ hit: 0, moment: 0 })
  inContext = $state(false)
  basket = $state<Kept[]>(stored<Kept[]>(KEPT, []))
  size = $state(Math.min(SIZES.length - 1, Math.max(0, stored(SIDE, 1))))
  #abort = new AbortController()

  get hits(): Hit[] {
    return this.answer?.hits ?? (this.isAsked ? [] : this.library)
  }
  get tile(): number {
    return SIZES[this.size]
  }
  get isAsked(): boolean {
    return this.question.kind !== 'text' || this.text.trim() !== ''
  }
  /** The sentence whose relevance a curve can show. */
  get sentence(): string {
    return this.question.kind === 'text' ? this.text.trim() : ''
  }

  #wanted(): Wanted {
    const { limit, moments, minScore: min_score } = this
    return { limit, moments, min_score, within: this.within || null }
  }

  /** Ask the service; an answer that comes after the next question is dropped. */
  async ask(remember: boolean): Promise<void> {
    this.#abort.abort()
    const abort = (this.#abort = new AbortController())
    this.problem = ''
    this.write(remember)
    if (!this.isAsked) {
      this.answer = null
      this.isBusy = false
      return
    }
    this.isBusy = true
    const question = this.question
    try {
      const wanted = this.#wanted()
      const answer = await (question.kind === 'text'
        ? api.search(this.text.trim(), wanted, abort.signal)
        : question.kind === 'frame'
          ? api.similar(question.video_id, question.time_s, wanted, abort.signal)
          : api.similarTo(question.file, wanted, abort.signal))
      this.answer = answer
      this.chosen = { hit: 0, moment: 0 }
    } catch (error) {
      if (abort.signal.aborted) return
      this.answer = { hits: [], warnings: [], partial: false, took_s: 0 }
      this.problem = String((error as Error).message)
    } finally {
      if (!abort.signal.aborted) this.isBusy = false
    }
  }

  askText(remember: boolean): void {
    this.question = { kind: 'text' }
    void this.ask(remember)
  }
  askFrame(video_id: string, time_s: number): void {
    this.question = { kind: 'frame', video_id, time_s: Math.round(time_s * 100) / 100 }
    void this.ask(true)
  }
  askPicture(file: File): void {
    this.question = { kind: 'picture', file }
    void this.ask(true)
  }

  async loadLibrary(): Promise<void> {
    try {
      const { total, videos } = await api.videos(48)
      this.numVideos = total
      this.library = videos.map((video, i) => ({
        ...video,
        rank: i + 1,
        score: 0,
        moments: [{ start_s: 0, end_s: video.duration_s, score: 0 }]
      }))
    } catch (error) {
      this.problem = String((error as Error).message)
    }
  }

  show(hit: number, moment: number): void {
    const found = this.hits[hit]
    const span = found?.moments[moment]
    if (!span) return
    this.chosen = { hit, moment }
    const { video_id, video, duration_s } = found
    this.open = { video_id, video, duration_s, start_s: span.start_s, end_s: span.end_s }
    this.inContext = false
    this.write(true)
  }
  close(): void {
    this.open = null
    this.write(true)
  }
  /** Move an edge of the open span. */
  nudge(edge: 'start_s' | 'end_s', by: number): void {
    if (!this.open) return
    const moved = Math.min(this.open.duration_s, Math.max(0, this.open[edge] + by))
    if (edge === 'start_s' ? moved < this.open.end_s - 0.05 : moved > this.open.start_s + 0.05) {
      this.open[edge] = Math.round(moved * 1000) / 1000
      this.write(false)
    }
  }
  /** Choose the moment `by` steps further, over all videos. */
  step(by: number): void {
    let { hit, moment } = this.chosen
    moment += by
    while (hit >= 0 && hit < this.hits.length) {
      if (moment >= 0 && moment < this.hits[hit].moments.length) {
        this.chosen = { hit, moment }
        return
      }
      if (by > 0) {
        moment -= this.hits[hit].moments.length
        hit += 1
      } else {
        hit -= 1
        if (hit >= 0) moment += this.hits[hit].moments.length
      }
    }
  }
  stepVideo(by: number): void {
    const hit = Math.min(this.hits.length - 1, Math.max(0, this.chosen.hit + by))
    if (hit >= 0) this.chosen = { hit, moment: 0 }
  }
  resize(by: number): void {
    this.size = Math.min(SIZES.length - 1, Math.max(0, this.size + by))
    localStorage.setItem(SIDE, JSON.stringify(this.size))
  }

  collect(video: string, video_id: string, start_s: number, end_s: number): void {
    if (this.basket.some((k) => k.video_id === video_id && k.start_s === start_s && k.end_s === end_s)) return
    this.basket.push({ video, video_id, start_s, end_s, note: this.sentence.slice(0, 500) })
    this.keep()
  }
  discard(index: number): void {
    this.basket.splice(index, 1)
    this.keep()
  }
  empty(): void {
    this.basket = []
    this.keep()
  }
  keep(): void {
    localStorage.setItem(KEPT, JSON.stringify(this.basket))
  }

  /** Say in the address what is shown, so that it can be shared and reloaded. */
  write(remember: boolean): void {
    const words = new URLSearchParams()
    const { question, open } = this
    if (question.kind === 'frame') words.set('like', `${question.video_id}@${question.time_s}`)
    else if (this.text.trim()) words.set('q', this.text.trim())
    if (this.within) words.set('in', this.within)
    if (this.minScore !== null) words.set('min', String(this.minScore))
    if (open) {
      words.set('v', open.video_id)
      words.set('s', open.start_s.toFixed(3))
      words.set('e', open.end_s.toFixed(3))
    }
    const address = `/${words.size ? `?${words}` : ''}`
    if (address === location.pathname + location.search) return
    history[remember ? 'pushState' : 'replaceState'](null, '', address)
  }

  /** Show what the address says. */
  async read(): Promise<void> {
    const words = new URLSearchParams(location.search)
    this.text = words.get('q') ?? ''
    this.within = words.get('in') ?? ''
    const min = words.get('min')
    this.minScore = min !== null && Number.isFinite(Number(min)) ? Number(min) : null
    const [video_id, time] = (words.get('like') ?? '').split('@')
    this.question = time ? { kind: 'frame', video_id, time_s: Number(time) } : { kind: 'text' }
    const [id, start_s, end_s] = [words.get('v'), Number(words.get('s')), Number(words.get('e'))]
    this.open = null
    const asked = this.#asked(id, start_s, end_s)
    if (this.isAsked) await this.#keepAddress(() => this.ask(false))
    else this.answer = null
    await asked
  }

  async #asked(id: string | null, start_s: number, end_s: number): Promise<void> {
    if (!id || !(end_s > start_s)) return
    try {
      const { video, duration_s } = await api.detail(id)
      this.open = { video_id: id, video, duration_s, start_s, end_s }
    } catch (error) {
      this.problem = String((error as Error).message)
    }
  }
  async #keepAddress(work: () => Promise<void>): Promise<void> {
    const address = location.pathname + location.search
    const done = work()
    history.replaceState(null, '', address)
    await done
  }
}

export const session = new Session()
