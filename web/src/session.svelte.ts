// What the page shows: the search, its hits, the moment that is open, the basket; and the address that says so.

import { FIELDS, WORDS, example, meant, readFields, readWeights, type Example, type Value } from './address'
import { remember, stored } from './kept'
import * as api from './api'
import {
  FILTERS,
  WEIGHTS,
  type AskedWeights,
  type FoundMoment,
  type FoundVideo,
  type Mark,
  type SearchAnswer,
  type SearchRequest
} from './service'

export interface Open { video_id: string; video: string; duration_s: number; start_s: number; end_s: number }
export interface Kept extends Mark { video: string; note: string }
/** What a change is to the browser's history: something new to go back from, a draft, the draft as it is meant, nothing. */
type Change = 'new' | 'typed' | 'asked' | 'small'

const KEPT = 'untrimmed-basket'
const SIDE = 'untrimmed-size'
const EARLIER = 'untrimmed-earlier'
const MOST_EARLIER = 8
const SIZES = [120, 168, 232, 320]

const SAME = 0.95 // the cosine from which moments count as one
const AGAIN_MS = 2000 // after which a service that was silent is asked anew
// What counts where nothing else is said; else it is what the service says.
export const LIMIT = 20
export const MOMENTS = 4
export const MOST_CHANCE = 95 // percent

class Session {
  text = $state('')
  then = $state('')
  without = $state('') // sentences, with semicolons between them
  like = $state<Example[]>([])
  unlike = $state<Example[]>([])
  picture = $state<File | null>(null)
  fields = $state<Record<string, Value>>({}) // of a query and its filters, by the names and in the units of the service
  minChance = $state(0) // percent
  askedChance = $state(0) // that of the answer
  flat = $state(false)
  fold = $state(false)
  weights = $state<AskedWeights>({})
  answer = $state<SearchAnswer | null>(null)
  problem = $state('')
  lost = $state('') // of what the address names and the library does not have
  isBusy = $state(false)
  isArriving = $state(false) // the first of what is shown are those of the present question
  library = $state<FoundVideo[]>([]) // shown while nothing is asked
  numVideos = $state(0)
  place = $state('LIBRARY') // of the library, for a command line
  open = $state<Open | null>(null)
  pair = $state<FoundMoment[] | null>(null) // the moment that was opened, and what follows it
  chosen = $state({ hit: 0, moment: 0 })
  hasMovedOn = false // from the moment that is open to the one that is chosen
  judged: Example | null = null // the last deed: keys judge it once more, wherever the answer has put it
  #openAt: { hit: number; moment: number } | null = null // among the hits, as long as these are the same
  inContext = $state(false)
  basket = $state<Kept[]>(stored<Kept[]>(KEPT, []))
  earlier = $state<string[]>(stored<string[]>(EARLIER, [])) // sentences, the last one first
  size = $state(Math.min(SIZES.length - 1, Math.max(0, stored(SIDE, 1))))
  #abort = new AbortController()

  get hits(): FoundVideo[] {
    return this.answer?.hits ?? (this.isAsked ? [] : this.library)
  }
  get tile(): number {
    return SIZES[this.size]
  }
  /** Whether there is anything to search for: not only what is unwanted. */
  get isAsked(): boolean {
    return this.text.trim() !== '' || this.like.length > 0 || this.picture !== null
  }
  /** What examples find has a score, but no chance. */
  get hasExamples(): boolean {
    return this.like.length + this.unlike.length > 0 || this.picture !== null
  }
  /** Whether the library's encoder has chances at all. */
  get knowsChances(): boolean {
    return this.minChance > 0 || this.askedChance > 0 || this.hits.some((hit) => hit.confidence != null)
  }
  /** The chance that the best hit holds what was asked for. */
  get bestChance(): number | null {
    const known = this.answer?.hits.flatMap((hit) => hit.confidence ?? []) ?? []
    return known.length ? Math.max(...known) : null
  }
  get sentence(): string {
    return this.text.trim()
  }
  /** What a curve can show: nothing of a query with a picture, which is not sent again. */
  get curveQuery(): SearchRequest | null {
    return this.picture === null && this.isAsked ? this.#query() : null
  }
  /** The parts of the query, where there are several that can be weighed. */
  get weighed(): (keyof AskedWeights)[] {
    const parts = { text: this.sentence, then: this.then.trim(), without: this.without.trim() }
    const examples = { image: this.picture !== null, like: this.like.length, unlike: this.unlike.length }
    const used = Object.entries({ ...parts, ...examples }).filter(([, some]) => some)
    return used.length > 1 ? used.map(([part]) => part as keyof AskedWeights) : []
  }
  get #setWeights(): [string, number][] {
    return Object.entries(this.weights).filter(([part, weight]) => meant(weight, WEIGHTS[part as keyof AskedWeights]) !== null)
  }
  /** The fields that count: what one may not hold is told there, and left out. */
  get #set(): [string, Value][] {
    const set = Object.entries(FIELDS).map(([name, field]): [string, Value] => [name, meant(this.fields[name], field)])
    return set.filter(([, value]) => value !== null)
  }
  get numFilters(): number {
    const words = [this.then, this.without].filter((word) => word.trim())
    return words.length + this.#set.length + this.#setWeights.length + Number(this.flat) + Number(this.fold)
  }

  #query(): SearchRequest {
    const place = ({ video_id, start_s, end_s }: Example) => ({ video_id, start_s, end_s })
    return {
      limit: LIMIT,
      moments: MOMENTS,
      ...Object.fromEntries(this.#set.filter(([name]) => !(name in FILTERS))),
      text: this.text.trim(),
      then: this.then.trim(),
      without: this.without.split(';').map((some) => some.trim()).filter(Boolean),
      like: this.like.map(place),
      unlike: this.unlike.map(place),
      weights: Object.fromEntries(this.#setWeights),
      filters: Object.fromEntries(this.#set.filter(([name]) => name in FILTERS)),
      group_by: this.flat ? 'moment' : 'video',
      fold: this.fold ? SAME : null,
      min_confidence: this.minChance > 0 && !this.hasExamples ? this.minChance / 100 : null
    }
  }

  /** Ask the service; an answer that comes after the next question is dropped. What the address says already is no change. */
  async ask(change: Change | null, judged: Example | null = null): Promise<void> {
    this.judged = judged
    this.#abort.abort()
    const abort = (this.#abort = new AbortController())
    this.problem = ''
    this.pair = null
    if (change) {
      this.lost = ''
      this.write(change)
    }
    if (!this.isAsked) {
      this.answer = null
      this.isBusy = this.isArriving = false
      return
    }
    this.isBusy = true
    this.isArriving = false
    try {
      const query = this.#query()
      this.askedChance = query.min_confidence === null ? 0 : this.minChance
      this.answer = await (this.picture
        ? api.searchPicture(this.picture, query, abort.signal)
        : api.search(query, abort.signal, (hit) => this.#take(hit, abort.signal)))
      if (!this.isArriving) this.#startOver()
      if (this.judged) this.#choose(this.judged)
      const isMeant = change === 'new' || change === 'asked'
      if (isMeant && this.sentence) this.#remember([this.sentence, ...this.earlier.filter((s) => s !== this.sentence)])
    } catch (error) {
      if (abort.signal.aborted) return
      this.problem = String((error as Error).message)
      if (error instanceof api.Silence) return void this.#askOnceItAnswers(abort.signal) // what was found stays
      this.answer = { hits: [], warnings: [], partial: false, took_s: 0 }
    } finally {
      if (!abort.signal.aborted) this.isBusy = this.isArriving = false
    }
  }
  async #askOnceItAnswers(signal: AbortSignal): Promise<void> {
    if (await api.answers()) {
      if (!signal.aborted) this.problem = 'The question got no answer: ask once more, or choose the picture anew.'
    } else if (await this.#answersAgain(() => signal.aborted)) await this.ask(null, this.judged)
  }
  /** Wait until the service answers; false where nobody waits any more. */
  async #answersAgain(isGivenUp: () => boolean): Promise<boolean> {
    do {
      await new Promise((wake) => setTimeout(wake, AGAIN_MS))
      if (isGivenUp()) return false
    } while (!(await api.answers()))
    return !isGivenUp()
  }
  #remember(sentences: string[]): void {
    this.earlier = sentences.slice(0, MOST_EARLIER)
    remember(EARLIER, JSON.stringify(this.earlier))
  }
  forget(): void {
    this.#remember([])
  }
  askAgain(sentence: string): Promise<void> {
    this.text = sentence
    return this.ask('new')
  }
  #startOver(): void {
    this.chosen = { hit: 0, moment: 0 }
    this.hasMovedOn = false
    this.#openAt = null
  }
  #moveTo(chosen: { hit: number; moment: number }): void {
    this.chosen = chosen
    this.hasMovedOn = chosen.hit !== this.#openAt?.hit || chosen.moment !== this.#openAt.moment
    this.judged = null
  }
  /** Choose a moment where the present answer has it, if it has. */
  #choose({ video_id, start_s, end_s }: Example): void {
    const hit = this.hits.findIndex(
      (other) => other.video_id === video_id && other.moments.some((span) => span.start_s === start_s && span.end_s === end_s)
    )
    if (hit < 0) return
    const moment = this.hits[hit].moments.findIndex((span) => span.start_s === start_s && span.end_s === end_s)
    this.chosen = { hit, moment }
    const { open } = this
    this.hasMovedOn = open?.video_id !== video_id || open.start_s !== start_s || open.end_s !== end_s
  }
  /** Show what is known of an answer already. */
  #take(hit: FoundVideo, { aborted }: AbortSignal): void {
    if (aborted) return
    if (hit.rank === 1) {
      this.answer = { hits: [], warnings: [], partial: false, took_s: 0 }
      this.#startOver()
      this.isArriving = true
    }
    const { hits } = this.answer!
    if (!hits.some((other) => other.video_id === hit.video_id)) hits.push(hit) // the library may have changed meanwhile
  }

  /** Only moments that look like this frame. */
  askFrame(video: string, video_id: string, time_s: number): Promise<void> {
    this.text = this.then = this.without = ''
    this.unlike = []
    this.picture = null
    this.like = [{ video, video_id, start_s: Math.round(time_s * 100) / 100, end_s: null }]
    return this.ask('new')
  }
  askPicture(file: File): void {
    this.picture = file
    void this.ask('new')
  }
  /** Feedback on a moment: more like it, or less; the second time it is taken back, with other edges they are moved. */
  async judge(kind: 'like' | 'unlike', { video, video_id, start_s, end_s }: Example): Promise<void> {
    const isSame = (other: Example) => other.video_id === video_id && other.start_s === start_s && other.end_s === end_s
    const meets = (other: Example) =>
      other.video_id === video_id && other.start_s < (end_s ?? start_s) && start_s < (other.end_s ?? other.start_s)
    const wasThere = this[kind].some(isSame)
    const isAnother = (other: Example) => !isSame(other) && !meets(other)
    this.like = this.like.filter(isAnother)
    this.unlike = this.unlike.filter(isAnother)
    const judged = { video, video_id, start_s, end_s }
    if (!wasThere) this[kind].push(judged)
    await this.ask('new', judged)
  }

  async askPlace(): Promise<void> {
    const { library } = await api.facts()
    this.place = /^[\w./:@%+,-]+$/.test(library) ? library : `'${library.replaceAll("'", "'\\''")}'`
  }
  /** What is in the library, and once more what a library without it could not answer. */
  async loadAnew(): Promise<void> {
    if (this.lost) void this.read()
    else if (this.problem) void this.ask(null)
    await this.loadLibrary()
  }
  async loadLibrary(): Promise<void> {
    try {
      const { total, videos } = await api.videos(48)
      this.numVideos = total
      if (!total) await this.askPlace()
      this.library = videos.map((video, i) => ({
        ...video,
        rank: i + 1,
        score: 0,
        confidence: null,
        start_s: 0,
        end_s: video.duration_s,
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
    this.chosen = this.#openAt = { hit, moment }
    this.hasMovedOn = false
    this.judged = null
    this.pair = found.then ? [span, found.then[moment]] : null
    const { video_id, video, duration_s } = found
    this.open = { video_id, video, duration_s, start_s: span.start_s, end_s: span.end_s }
    this.inContext = false
    this.lost = ''
    this.write('new')
  }
  /** Loop another span of the video that is open. */
  turnTo({ start_s, end_s }: FoundMoment): void {
    if (!this.open) return
    this.hasMovedOn = false
    this.#openAt = this.judged = null
    Object.assign(this.open, { start_s, end_s })
    this.inContext = false
    this.write('new')
  }
  close(): void {
    this.open = null
    this.write('new')
  }
  /** Move an edge of the open span. */
  nudge(edge: 'start_s' | 'end_s', by: number): void {
    if (!this.open) return
    this.hasMovedOn = false
    this.judged = null
    const moved = Math.min(this.open.duration_s, Math.max(0, this.open[edge] + by))
    if (edge === 'start_s' ? moved < this.open.end_s - 0.05 : moved > this.open.start_s + 0.05) {
      this.open[edge] = Math.round(moved * 1000) / 1000
      this.write('small')
    }
  }
  /** Choose the moment `by` steps further, over all videos. */
  step(by: number): void {
    let { hit, moment } = this.chosen
    moment += by
    while (hit >= 0 && hit < this.hits.length) {
      if (moment >= 0 && moment < this.hits[hit].moments.length) {
        this.#moveTo({ hit, moment })
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
    if (hit < 0 || (hit === this.chosen.hit && this.chosen.moment === 0)) return
    this.#moveTo({ hit, moment: 0 })
  }
  resize(by: number): void {
    this.size = Math.min(SIZES.length - 1, Math.max(0, this.size + by))
    remember(SIDE, JSON.stringify(this.size))
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
    remember(KEPT, JSON.stringify(this.basket))
  }

  /** Say in the address what is shown, so that it can be shared and reloaded.
   *
   * All that is typed until it is asked for, or left for something new, is one entry of the history: a draft.
   */
  write(change: Change): void {
    const isDraft = history.state?.isDraft === true
    if (change === 'new' && isDraft) history.replaceState(null, '')
    const address = this.#address()
    if (address !== location.pathname + location.search) {
      if (change === 'small' || (change !== 'new' && isDraft)) history.replaceState(history.state, '', address)
      else history.pushState(change === 'typed' ? { isDraft: true } : null, '', address)
    }
    if (change === 'asked') history.replaceState(null, '')
  }
  #address(): string {
    const words = new URLSearchParams()
    const { open } = this
    for (const [name, field] of Object.entries(WORDS)) if (this[field].trim()) words.set(name, this[field].trim())
    for (const [name, value] of this.#set) words.set(name, String(value))
    for (const [part, weight] of this.#setWeights) words.set(`w${part}`, String(weight))
    if (this.minChance > 0) words.set('sure', String(this.minChance))
    if (this.flat) words.set('flat', '1')
    if (this.fold) words.set('fold', '1')
    for (const kind of ['like', 'unlike'] as const) {
      for (const { video_id, start_s, end_s } of this[kind]) {
        words.append(kind, `${video_id}@${start_s}${end_s === null ? '' : `-${end_s}`}`)
      }
    }
    if (open) {
      words.set('v', open.video_id)
      words.set('s', open.start_s.toFixed(3))
      words.set('e', open.end_s.toFixed(3))
    }
    return `/${words.size ? `?${words}` : ''}`
  }

  /** Show what the address says. */
  async read(): Promise<void> {
    const words = new URLSearchParams(location.search)
    for (const [name, field] of Object.entries(WORDS)) this[field] = words.get(name) ?? ''
    this.fields = readFields(words)
    this.weights = readWeights(words)
    this.minChance = Math.min(MOST_CHANCE, Math.max(0, Math.round(Number(words.get('sure')) || 0)))
    this.flat = words.has('flat')
    this.fold = words.has('fold')
    this.picture = null
    this.like = words.getAll('like').flatMap(example)
    this.unlike = words.getAll('unlike').flatMap(example)
    const [id, start_s, end_s] = [words.get('v'), Number(words.get('s')), Number(words.get('e'))]
    this.open = null
    this.#nameExamples()
    await Promise.all([this.#reopen(id, start_s, end_s), this.ask(null)])
  }

  async #reopen(id: string | null, start_s: number, end_s: number): Promise<void> {
    this.lost = ''
    if (!id) return
    const isLeft = () => new URLSearchParams(location.search).get('v') !== id
    try {
      const { video, duration_s } = await api.detail(id)
      const [start, end] = [Math.max(0, start_s), Math.min(duration_s, end_s)]
      const span = start < end ? { start_s: start, end_s: end } : { start_s: 0, end_s: duration_s } // no time of it: all
      if (!isLeft()) this.open = { video_id: id, video, duration_s, ...span }
    } catch (error) {
      if (isLeft()) return
      if (error instanceof api.Refusal && [404, 422].includes(error.status)) {
        this.lost = 'The video of this address is not in the library.'
        return
      }
      this.problem = String((error as Error).message)
      if (!(error instanceof api.Silence) || !(await this.#answersAgain(isLeft))) return
      if (!this.isAsked) this.problem = ''
      await this.#reopen(id, start_s, end_s)
    }
  }
  /** An address holds no names; where a video is not there, the search says so. */
  #nameExamples(): void {
    const examples = [...this.like, ...this.unlike]
    for (const id of new Set(examples.map((one) => one.video_id))) {
      const own = examples.filter((one) => one.video_id === id)
      void api.detail(id).then(({ video }) => own.forEach((one) => (one.video = video)), () => {})
    }
  }
}

export const session = new Session()
