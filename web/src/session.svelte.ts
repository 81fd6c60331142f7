// State of the page: query, hits, and open moment, mirrored in the address.

import { FIELDS, MODES, WORDS, example, readFields, readLayout, readModes, readWeights, valid, type Example, type Layout, type Mode, type Value } from './address'
import { connection, isReachable } from './connection.svelte'
import { movedEdges, type Edge, type Edges, type Edited, type ShownMoment } from './edges'
import { passageOf } from './evidence'
import { checked, isVideo, keptPicture, middleFrame, pictureId } from './picture'
import { remember, remembered, stored } from './storage'
import * as api from './api'
import {
  FILTERS,
  WEIGHTS,
  type HitJson,
  type MomentJson,
  type SearchAnswer,
  type SearchRequest,
  type Span,
  type Video,
  type VideoDetail,
  type WeightsJson
} from './service'

/** The moment in the inspector. Playback begins at `from_s`; `atCut` says which edges are at a shot change.
 *
 * `sentence` is the query that found it. `isOfBin` tells whether the moment was opened from the bin.
 */
export interface Open extends Span { video_id: string; video: string; duration_s: number; from_s: number; atCut: Edges; sentence: string; isOfBin: boolean }
/** The effect on the browser's history: a new entry, a draft entry, a finished draft, or no entry. */
type Change = 'new' | 'typed' | 'submitted' | 'small'
/** What an entry of the history stores besides its address: whether it is a draft, the number of the picture, and whether the moment was opened from the bin. */
interface Entry { isDraft: boolean; picture: number | null; isOfBin: boolean }

const SIZE = 'untrimmed-size'
const LAYOUT = 'untrimmed-layout'
const RECENT = 'untrimmed-earlier'
const MAX_RECENT = 8
export const HEIGHTS = [88, 126, 168, 232, 320] // of rows of pictures, in pixels

const NEAR_DUPLICATE = 0.95 // cosine
// Defaults of the page. Other fields have the defaults of the service.
export const LIMIT = 30
export const MOMENTS = 6
const CURVE_POINTS = 48
const MAX_CONFIDENCE = 95 // percent
const LIBRARY_PAGE = 60 // videos

const ROUNDING_S = 1e-5 // times in the page's address are rounded to microseconds
const isNear = (a_s: number, b_s: number) => Math.abs(a_s - b_s) < ROUNDING_S
export const isSameSpan = (a: Span, b: Span) => isNear(a.start_s, b.start_s) && isNear(a.end_s, b.end_s)
/** Where playback of a moment begins: at its peak, unless a trim has cut it off. */
const peakOf = ({ start_s, end_s, peak_s }: MomentJson) => (peak_s >= start_s && peak_s < end_s ? peak_s : start_s)
const hitKey = (hit: HitJson) => `${hit.video_id} ${hit.start_s}`

/** A whole video, in the form of a hit. */
function libraryHit({ video, video_id, duration_s, width, height }: Video, rank: number): HitJson {
  const span = { start_s: 0, end_s: duration_s, score: 0, peak_s: duration_s / 2 }
  return { video, video_id, duration_s, width, height, rank, confidence: null, ...span, moments: [span] }
}

class Session {
  text = $state('')
  then = $state('')
  without = $state('') // sentences separated by semicolons
  like = $state<Example[]>([])
  unlike = $state<Example[]>([])
  picture = $state<File | null>(null)
  fields = $state<Record<string, Value>>({}) // query and filter fields, with the names and units of the service
  minConfidence = $state(0) // percent
  nowhere = $state(false) // excluded sentences exclude whole videos
  layout = $state<Layout>('grid')
  fold = $state(false)
  modes = $state<Mode[]>([]) // to search in; empty for all
  libraryModes = $state<Mode[]>([]) // that can be searched
  weights = $state<WeightsJson>({})
  answer = $state<SearchAnswer | null>(null)
  foundBy = $state('') // the sentence of the query that found the hits
  problem = $state('')
  lost = $state('') // the address names a video that is not in the library
  best = $state<Record<string, Pick<HitJson, 'moments' | 'then'>>>({}) // of videos whose moments are all shown, by id
  isBusy = $state(false)
  isArriving = $state(false) // the hits shown belong to a search that is still running
  library = $state<HitJson[]>([]) // shown while there is no query
  numVideos = $state(0)
  isLoaded = $state(false) // whether `numVideos` is known
  #numExtra = 0 // hits beyond the limit that were requested with `more`
  rowStep: ((by: number) => { hit: number; moment: number } | undefined) | null = null // the moment in the row above or below; set by the list of results
  libraryAddress = $state('') // '' if it is unknown
  open = $state<Open | null>(null)
  viewed = $state.raw<VideoDetail | null>(null) // the video of the last moment that was opened from the bin or the address
  snapped = Promise.resolve() // fulfilled once the edges of the open moment are at the exact cuts
  pair = $state<MomentJson[] | null>(null) // the moment that was opened and its follow-up
  chosen = $state({ hit: 0, moment: 0 })
  isChosen = $state(false) // by a key or a click; otherwise `chosen` is only where keys begin
  judged: Example | null = null // the moment of the last feedback: keys act on it again, wherever the new answer ranks it
  inContext = $state(false)
  recent = $state<string[]>(stored<string[]>(RECENT, [])) // newest first
  size = $state(Math.min(HEIGHTS.length - 1, Math.max(0, stored(SIZE, 1))))
  #wanted: Span | null = null // the moment of the bin to open, until another moment is opened
  #abort = new AbortController()
  #latestPicture: File | null = null // the latest file that was dropped or chosen

  get hits(): HitJson[] {
    return this.answer?.hits ?? (this.hasQuery ? [] : this.library)
  }
  /** The height of a row of pictures, in pixels. */
  get rowHeight(): number {
    return HEIGHTS[this.size]
  }
  /** The moments of a hit that are on the page: in the grid only the best one, until all are shown. */
  shown(hit: HitJson): MomentJson[] {
    return this.layout === 'grid' && !(hit.video_id in this.best) ? hit.moments.slice(0, 1) : hit.moments
  }
  get limit(): number {
    return Number(valid(this.fields.limit, FIELDS.limit) ?? LIMIT)
  }
  /** Whether there are probably more hits, or videos of the library. */
  get hasMore(): boolean {
    if (!this.hasQuery) return this.library.length < this.numVideos
    return this.answer !== null && !this.isBusy && this.hits.length >= this.limit + this.#numExtra
  }
  /** Whether there is a query. Negative parts alone are none. */
  get hasQuery(): boolean {
    return this.text.trim() !== '' || this.like.length > 0 || this.picture !== null
  }
  /** Whether the query has examples. Their hits have a score but no confidence. */
  get hasExamples(): boolean {
    return this.like.length + this.unlike.length > 0 || this.picture !== null
  }
  /** One line about the search or the library. */
  get status(): string {
    if (this.isBusy) return 'Searching …'
    if (this.problem) return this.problem
    const kind = this.layout === 'moments' ? 'moment' : 'video'
    if (this.answer) return this.hits.length ? `${api.count(this.hits.length, kind)} in ${Math.round(this.answer.took_s * 1000)} ms` : 'No results'
    return this.hasQuery || !this.numVideos ? '' : `${api.count(this.numVideos, 'video')} in the library`
  }
  /** Whether the library's encoder measures confidence. */
  get hasConfidence(): boolean {
    return this.minConfidence > 0 || this.hits.some((hit) => hit.confidence != null)
  }
  /** The address of the library, quoted for a shell. */
  get libraryPath(): string {
    const address = this.libraryAddress || 'LIBRARY'
    return /^[\w./:@%+,-]+$/.test(address) ? address : `'${address.replaceAll("'", "'\\''")}'`
  }
  get sentence(): string {
    return this.text.trim()
  }
  /** The query for a relevance curve. Null for a query with a picture, which is not uploaded again. */
  get curveQuery(): SearchRequest | null {
    return this.picture === null && this.hasQuery ? this.#query() : null
  }
  /** The parts of the query that can be weighted, if there are several. */
  get weightedParts(): (keyof WeightsJson)[] {
    const parts = { text: this.sentence, then: this.then.trim(), without: this.without.trim() }
    const examples = { image: this.picture !== null, like: this.like.length, unlike: this.unlike.length }
    const used = Object.entries({ ...parts, ...examples }).filter(([, value]) => value)
    return used.length > 1 ? used.map(([part]) => part as keyof WeightsJson) : []
  }
  get #setWeights(): [string, number][] {
    return Object.entries(this.weights).filter(([part, weight]) => valid(weight, WEIGHTS[part as keyof WeightsJson]) !== null)
  }
  /** The fields with a valid value. The form reports the invalid ones. */
  get #set(): [string, Value][] {
    const set = Object.entries(FIELDS).map(([name, field]): [string, Value] => [name, valid(this.fields[name], field)])
    return set.filter(([, value]) => value !== null)
  }
  isSet(name: string): boolean {
    return valid(this.fields[name], FIELDS[name]) !== null
  }
  /** Remove all filters and weights, but no part of the query. */
  reset(): Promise<void> {
    this.fields = {}
    this.weights = {}
    this.minConfidence = 0
    this.nowhere = this.fold = false
    this.modes = []
    return this.search('new')
  }

  #query(): SearchRequest {
    const place = ({ video_id, start_s, end_s }: Example) => ({ video_id, start_s, end_s })
    return {
      limit: LIMIT,
      moments: MOMENTS,
      ...Object.fromEntries(this.#set.filter(([name]) => !(name in FILTERS))),
      text: this.text.trim(),
      then: this.then.trim(),
      without: this.without.split(';').map((sentence) => sentence.trim()).filter(Boolean),
      like: this.like.map(place),
      unlike: this.unlike.map(place),
      weights: Object.fromEntries(this.#setWeights),
      filters: Object.fromEntries(this.#set.filter(([name]) => name in FILTERS)),
      without_in: this.nowhere ? 'video' : 'shot',
      group_by: this.layout === 'moments' ? 'moment' : 'video',
      curve_points: CURVE_POINTS,
      modes: this.modes,
      fold: this.fold ? NEAR_DUPLICATE : null,
      min_confidence: this.minConfidence > 0 && !this.hasExamples ? this.minConfidence / 100 : null
    }
  }

  /** Search. A later search cancels this one. `change` is null if the address already holds the query. */
  async search(change: Change | null, judged: Example | null = null): Promise<void> {
    this.judged = judged
    this.#abort.abort()
    const abort = (this.#abort = new AbortController())
    this.problem = ''
    this.pair = null
    this.best = {}
    this.#numExtra = 0
    if (change) {
      this.lost = ''
      this.write(change)
    }
    const isEmpty = this.isLoaded && this.numVideos === 0 // `reload` searches after the first video
    if (!this.hasQuery || isEmpty) {
      this.answer = null
      this.foundBy = ''
      this.isBusy = this.isArriving = false
      return
    }
    this.isBusy = true
    this.isArriving = false
    const query = this.#query()
    try {
      this.answer = await this.#ask(query, abort.signal, (hit) => this.#addHit(hit, query, abort.signal))
      this.foundBy = query.text!
      if (!this.isArriving) this.#startOver()
      if (this.judged) this.isChosen = this.#choose(this.judged)
      const isFinished = change === 'new' || change === 'submitted'
      if (isFinished && this.sentence) this.#remember([this.sentence, ...this.recent.filter((s) => s !== this.sentence)])
    } catch (error) {
      if (abort.signal.aborted) return
      this.problem = String((error as Error).message)
      if (error instanceof api.Unreachable) return void this.#retryWhenReachable(abort.signal) // keeps the hits
      this.answer = { hits: [], warnings: [], partial: false, took_s: 0 }
    } finally {
      if (!abort.signal.aborted) this.isBusy = this.isArriving = false
    }
  }
  async #ask(query: SearchRequest, signal: AbortSignal, onHit: (hit: HitJson) => void = () => {}): Promise<SearchAnswer> {
    const restored = (hit: HitJson) => {
      for (const places of [hit.moments, hit.then ?? []]) movedEdges.restore(query.text!, hit.video_id, places)
      return hit
    }
    const found = this.picture ? api.searchPicture(this.picture, query, signal) : api.search(query, signal, (hit) => onHit(restored(hit)))
    const answer = await found
    answer.hits.forEach(restored)
    return answer
  }
  /** Add the next hits, or the next videos of the library, to those shown. */
  async more(): Promise<void> {
    if (!this.hasQuery) return this.loadLibrary(this.library.length)
    const { signal } = this.#abort
    this.#numExtra += LIMIT
    this.isBusy = this.isArriving = true
    try {
      const answer = await this.#ask({ ...this.#query(), limit: this.limit + this.#numExtra }, signal)
      if (signal.aborted) return
      const known = new Set(this.hits.map(hitKey))
      this.answer = { ...answer, hits: [...this.hits, ...answer.hits.filter((hit) => !known.has(hitKey(hit)))] }
    } catch (error) {
      if (!signal.aborted) this.problem = String((error as Error).message)
    } finally {
      if (!signal.aborted) this.isBusy = this.isArriving = false
    }
  }
  /** The modes that the page offers: those of the library, and those that the address sets. */
  get offeredModes(): Mode[] {
    const modes = MODES.filter((mode) => mode === 'seen' || this.libraryModes.includes(mode) || this.modes.includes(mode))
    return modes.length > 1 || this.modes.length ? modes : []
  }
  /** The modes after one was added or removed. None and all of them mean the same. */
  #toggled(mode: Mode): Mode[] {
    const offered = this.offeredModes
    const modes = offered.filter((other) => (other === mode) !== this.modes.includes(other))
    return modes.length < offered.length ? modes : []
  }
  toggleMode(mode: Mode): void {
    this.modes = this.#toggled(mode)
    void this.search('new')
  }
  /** Whether a mode can be added or removed. Queries with `then` compare pictures. */
  canToggle(mode: Mode): boolean {
    const modes = this.#toggled(mode)
    return !this.then.trim() || !modes.length || modes.includes('seen')
  }
  setLayout(layout: Layout): void {
    const isOtherQuery = (layout === 'moments') !== (this.layout === 'moments')
    this.layout = layout
    remember(LAYOUT, layout)
    if (isOtherQuery) void this.search('new')
    else this.write('small')
  }
  async #retryWhenReachable(signal: AbortSignal): Promise<void> {
    if (await isReachable()) {
      if (!signal.aborted) this.problem = 'The browser could not send this search. Search again, or choose the picture again.'
      return
    }
    await connection.returns()
    if (!signal.aborted) await this.search(null, this.judged)
  }
  #remember(sentences: string[]): void {
    this.recent = sentences.slice(0, MAX_RECENT)
    remember(RECENT, JSON.stringify(this.recent))
  }
  clearRecent(): void {
    this.#remember([])
  }
  searchAgain(sentence: string): Promise<void> {
    this.text = sentence
    return this.search('new')
  }
  /** The moment that the list marks: the one that was chosen, or else the open one. */
  get marked(): { hit: number; moment: number } | null {
    if (this.isChosen) return this.chosen
    const { open } = this
    if (!open) return null
    const overlap_s = (span: Span) => Math.min(open.end_s, span.end_s) - Math.max(open.start_s, span.start_s)
    const places = this.hits.flatMap((video, hit) =>
      video.video_id === open.video_id ? this.shown(video).map((span, moment) => ({ hit, moment, overlap_s: overlap_s(span) })) : []
    )
    const best = places.sort((a, b) => b.overlap_s - a.overlap_s)[0]
    return best?.overlap_s > 0 ? best : null
  }
  #startOver(): void {
    this.chosen = { hit: 0, moment: 0 }
    this.isChosen = false
  }
  #moveTo(chosen: { hit: number; moment: number }): void {
    this.chosen = chosen
    this.isChosen = true
    this.judged = null
  }
  /** Select a moment. Returns whether the current answer has it. */
  #choose({ video_id, start_s, end_s }: Example): boolean {
    const hit = this.hits.findIndex(
      (other) => other.video_id === video_id && other.moments.some((span) => span.start_s === start_s && span.end_s === end_s)
    )
    if (hit < 0) return false
    const moment = this.hits[hit].moments.findIndex((span) => span.start_s === start_s && span.end_s === end_s)
    this.chosen = { hit, moment }
    return true
  }
  /** Show a hit of an answer that is not complete yet. */
  #addHit(hit: HitJson, { text }: SearchRequest, { aborted }: AbortSignal): void {
    if (aborted) return
    if (hit.rank === 1) {
      this.answer = { hits: [], warnings: [], partial: false, took_s: 0 }
      this.foundBy = text!
      this.#startOver()
      this.isArriving = true
    }
    const { hits } = this.answer!
    if (!hits.some((other) => other.video_id === hit.video_id)) hits.push(hit) // a video can arrive twice if the library changes
  }

  /** Search for moments that look like a frame. */
  searchFrame(video: string, video_id: string, time_s: number): Promise<void> {
    this.#latestPicture = null
    this.text = this.then = this.without = ''
    this.unlike = []
    this.picture = null
    this.like = [{ video, video_id, start_s: Math.round(time_s * 100) / 100, end_s: null }]
    return this.search('new')
  }
  /** Search for moments that look like a picture, or like the middle of a video. */
  async searchPicture(file: File | null): Promise<void> {
    this.#latestPicture = file
    try {
      const picture = file && (await (isVideo(file) ? middleFrame(file) : checked(file)))
      if (this.#latestPicture !== file) return // another file was dropped meanwhile
      this.picture = picture
    } catch {
      if (this.#latestPicture !== file) return
      const name = api.plain(file!.name)
      this.problem = isVideo(file!)
        ? `The browser cannot play ${name}. Drop a picture of the scene, or add the video with Index.`
        : `${name} is not a picture that can be read. Choose a PNG, JPEG, WebP, BMP or GIF file.`
      return
    }
    await this.search('new')
  }
  /** Give feedback on a moment. The same feedback again removes it; a span that overlaps an earlier one replaces it. */
  async judge(kind: 'like' | 'unlike', place: Example): Promise<void> {
    await this.snapped // the same edges as the open moment will have
    const { video, video_id, start_s, end_s } = place
    const isSame = (other: Example) => other.video_id === video_id && other.start_s === start_s && other.end_s === end_s
    const meets = (other: Example) =>
      other.video_id === video_id && other.start_s < (end_s ?? start_s) && start_s < (other.end_s ?? other.start_s)
    const isUndo = this[kind].some(isSame)
    const isUnrelated = (other: Example) => !isSame(other) && !meets(other)
    this.like = this.like.filter(isUnrelated)
    this.unlike = this.unlike.filter(isUnrelated)
    const judged = { video, video_id, start_s, end_s }
    if (!isUndo) this[kind].push(judged)
    await this.search('new', judged)
  }

  /** Show all moments of a video in time order, or its best ones again. */
  async toggleAll(index: number): Promise<void> {
    const hit = this.hits[index]
    const { video, video_id } = hit
    const span = hit.moments[this.chosen.hit === index ? this.chosen.moment : 0]
    const best = this.best[video_id]
    if (best) {
      Object.assign(hit, best)
      delete this.best[video_id]
    } else {
      const { signal } = this.#abort
      const query = this.#query()
      const all: SearchRequest = { ...query, moments: 'all', limit: 1, fold: null, filters: { ...query.filters, within: video } }
      try {
        const { hits } = await this.#ask(all, signal)
        if (signal.aborted || !hits.length || this.best[video_id]) return
        this.best[video_id] = { moments: hit.moments, then: hit.then }
        Object.assign(hit, { moments: hits[0].moments, then: hits[0].then })
      } catch (error) {
        if (!signal.aborted) this.problem = String((error as Error).message)
        return
      }
    }
    if (this.chosen.hit === index) {
      this.chosen = { hit: index, moment: 0 }
      this.#choose({ video, video_id, ...span })
    }
  }

  async #loadFacts(): Promise<void> {
    const { library, modes } = await api.facts()
    this.libraryModes = modes
    this.libraryAddress = library
  }
  /** Reload the library and retry what failed without the new videos. */
  async reload(): Promise<void> {
    await this.loadLibrary()
    if (this.lost) void this.read()
    else if (this.problem || (this.hasQuery && !this.answer && !this.isBusy)) void this.search(null)
  }
  /** Load a page of the library's videos, by path. */
  async loadLibrary(offset = 0): Promise<void> {
    if (!offset) void this.#loadFacts().catch(() => {}) // the list of videos reports the problem
    try {
      const { total, videos } = await api.videos(LIBRARY_PAGE, offset)
      this.numVideos = total
      this.isLoaded = true
      const hits = videos.map((video, i) => libraryHit(video, offset + i + 1))
      this.library = [...this.library.slice(0, offset), ...hits]
    } catch (error) {
      this.problem = String((error as Error).message)
    }
  }

  /** Open a moment of the hits. `change` is "small" for steps from moment to moment, which Back skips. */
  show(hit: number, moment: number, change: Change = 'new'): void {
    const video = this.hits[hit]
    const span: ShownMoment | undefined = video?.moments[moment]
    if (!span) return
    this.chosen = { hit, moment }
    this.isChosen = true
    this.judged = this.#wanted = null
    this.pair = video.then ? [span, video.then[moment]] : null
    const { video_id, duration_s } = video
    const { start_s, end_s, atCut } = span
    const from_s = this.hasQuery ? peakOf(span) : start_s
    this.open = { video_id, video: video.video, duration_s, start_s, end_s, from_s, atCut: atCut ?? {}, sentence: this.foundBy, isOfBin: false }
    this.inContext = false
    this.lost = ''
    this.write(change)
    this.snapped = this.hasQuery && !atCut ? this.#snap(span, this.open) : Promise.resolve()
  }
  /** Open a moment of the bin. If the service does not respond, wait until it does. `onProblem` gets the reason for a failure or a wait.
   *
   * Returns whether the video could be opened, or null if another moment was opened in the meantime.
   */
  async view(place: Span & { video_id: string }, onProblem: (problem: string) => void): Promise<boolean | null> {
    const { video_id, start_s, end_s } = place
    this.#wanted = place
    try {
      const detail = await api.detail(video_id)
      if (this.#wanted !== place) return null
      const { video, duration_s } = (this.viewed = detail)
      const change = this.open ? 'small' : 'new'
      this.judged = this.pair = null
      this.isChosen = false
      this.snapped = Promise.resolve()
      this.open = { video_id, video, duration_s, start_s, end_s, from_s: start_s, atCut: {}, sentence: '', isOfBin: true }
      this.inContext = false
      this.write(change)
      return true
    } catch (error) {
      if (this.#wanted !== place) return null
      onProblem((error as Error).message)
      if (!(error instanceof api.Unreachable)) return false
      await connection.returns()
      return this.#wanted === place ? this.view(place, onProblem) : null
    }
  }
  /** Open the selected moment, unless it is open already. */
  playChosen(): void {
    const hit = this.hits[this.chosen.hit]
    const span = hit?.moments[this.chosen.moment]
    const { open } = this
    if (!span || (open?.video_id === hit.video_id && open.start_s === span.start_s && open.end_s === span.end_s)) return
    this.show(this.chosen.hit, this.chosen.moment, open ? 'small' : 'new')
  }
  /** Move the edges of an open moment to the exact cuts, unless they were moved by then. */
  async #snap(span: ShownMoment, open: Open): Promise<void> {
    const { start_s, end_s } = span
    const exact = await api.edges(open.video_id, span, !!passageOf(span)).catch((error) => {
      if (error instanceof api.Unreachable) void connection.returns().then(() => this.#snap(span, open))
      return null // if the video cannot be read, the moment keeps its edges
    })
    if (!exact || (exact.start_s === start_s && exact.end_s === end_s)) return
    if (open.start_s !== start_s || open.end_s !== end_s) return
    const atCut = { start_s: exact.start_s !== start_s, end_s: exact.end_s !== end_s }
    this.setEdges(open.video_id, { start_s, end_s }, { ...exact, atCut })
    Object.assign(open, exact, { atCut }) // also if another moment is open by now
  }
  /** Loop another span of the open video. */
  turnTo(moment: ShownMoment): void {
    if (!this.open) return
    this.judged = null
    const { start_s, end_s, atCut = {} } = moment
    this.open = { ...this.open, start_s, end_s, from_s: peakOf(moment), atCut, isOfBin: false }
    this.inContext = false
    this.write('new')
  }
  close(): void {
    this.open = this.#wanted = null
    this.write('new')
  }
  /** Set the start or end of the open moment. If it is on the other side of the other edge, that moves too. */
  mark(edge: Edge, to_s: number, min_s: number): void {
    const { open } = this
    if (!open) return
    const length_s = open.end_s - open.start_s
    if (edge === 'start_s' && to_s > open.end_s - min_s) this.trim('end_s', to_s + length_s, min_s)
    if (edge === 'end_s' && to_s < open.start_s + min_s) this.trim('start_s', to_s - length_s, min_s)
    this.trim(edge, to_s, min_s)
  }
  /** Move an edge of the open moment, up to `min_s` before the other edge. */
  trim(edge: Edge, to_s: number, min_s: number): void {
    const { open } = this
    if (!open) return
    this.judged = null
    const moved = edge === 'start_s' ? Math.min(to_s, open.end_s - min_s) : Math.max(to_s, open.start_s + min_s)
    open[edge] = Math.min(open.duration_s, Math.max(0, moved))
    open.atCut[edge] = false
    this.write('small')
  }
  /** Move both edges of a moment, in the inspector and in the results. Returns whether there was one with the edges `from`. */
  setEdges(video_id: string, from: Span, { start_s, end_s, atCut = {} }: Edited): boolean {
    const hits = this.hasQuery ? this.hits.filter((hit) => hit.video_id === video_id) : []
    const listed = [...hits, this.best[video_id]].flatMap((hit) => [...(hit?.moments ?? []), ...(hit?.then ?? [])])
    const moved = listed.filter((place) => isSameSpan(place, from))
    const isFinal = Object.keys(atCut).length > 0 // otherwise, opening the moment moves its edges to the exact cuts
    for (const place of moved) movedEdges.move(this.foundBy, video_id, place, { start_s, end_s, atCut: isFinal ? atCut : undefined })
    const { open } = this
    const isOpen = open?.video_id === video_id && isSameSpan(open, from)
    if (isOpen) Object.assign(open, { start_s, end_s, atCut: { ...atCut } })
    this.write('small')
    return isOpen || moved.length > 0
  }
  /** Select the moment `by` steps away, across videos. */
  step(by: number): void {
    let { hit, moment } = this.chosen
    if (this.hits[hit]) moment = Math.min(moment, this.shown(this.hits[hit]).length - 1) + by
    while (hit >= 0 && hit < this.hits.length) {
      const { length } = this.shown(this.hits[hit])
      if (moment >= 0 && moment < length) {
        this.#moveTo({ hit, moment })
        return
      }
      if (by > 0) {
        moment = Math.max(0, moment - length)
        hit += 1
      } else {
        hit -= 1
        if (hit >= 0) moment = this.shown(this.hits[hit]).length - 1
      }
    }
  }
  /** Select a moment in the row of pictures above or below; without a list, of the previous or next video. */
  stepVideo(by: number): void {
    if (this.rowStep) {
      const chosen = this.rowStep(by)
      if (chosen) this.#moveTo(chosen)
      return
    }
    const hit = Math.min(this.hits.length - 1, Math.max(0, this.chosen.hit + by))
    if (hit < 0 || (hit === this.chosen.hit && this.chosen.moment === 0)) return
    this.#moveTo({ hit, moment: 0 })
  }
  resize(by: number): void {
    this.size = Math.min(HEIGHTS.length - 1, Math.max(0, this.size + by))
    remember(SIZE, JSON.stringify(this.size))
  }

  /** Write the state to the address, so that it can be shared and reloaded. A picture is kept with the history entry.
   *
   * Typing changes one history entry, the draft, until the search is submitted or something else is opened.
   */
  write(change: Change): void {
    const entry = history.state as Entry | null
    const isDraft = entry?.isDraft ?? false
    const now = { picture: this.picture && pictureId(this.picture), isOfBin: this.open?.isOfBin ?? false }
    const address = this.#address()
    const isFinal = change === 'new' || change === 'submitted'
    const isSame = address === location.pathname + location.search && now.picture === (entry?.picture ?? null)
    if (isSame || change === 'small' || (change !== 'new' && isDraft)) {
      history.replaceState({ isDraft: isDraft && !isFinal, ...now }, '', address)
      return
    }
    if (isDraft) history.replaceState({ ...entry, isDraft: false }, '')
    history.pushState({ isDraft: change === 'typed', ...now }, '', address)
  }
  #address(): string {
    const parameters = new URLSearchParams()
    const { open } = this
    for (const [name, field] of Object.entries(WORDS)) if (this[field].trim()) parameters.set(name, this[field].trim())
    for (const [name, value] of this.#set) parameters.set(name, String(value))
    for (const [part, weight] of this.#setWeights) parameters.set(`w${part}`, String(weight))
    if (this.minConfidence > 0) parameters.set('sure', String(this.minConfidence))
    if (this.nowhere) parameters.set('nowhere', '1')
    if (this.layout !== 'grid') parameters.set('view', this.layout)
    if (this.fold) parameters.set('fold', '1')
    for (const mode of this.modes) parameters.append('modes', mode)
    for (const kind of ['like', 'unlike'] as const) {
      for (const { video_id, start_s, end_s } of this[kind]) {
        parameters.append(kind, `${video_id}@${start_s}${end_s === null ? '' : `-${end_s}`}`)
      }
    }
    if (open) {
      parameters.set('v', open.video_id)
      parameters.set('s', api.exact(open.start_s))
      parameters.set('e', api.exact(open.end_s))
    }
    return `/${parameters.size ? `?${parameters}` : ''}`
  }

  /** Restore the state from the address. */
  async read(): Promise<void> {
    this.#latestPicture = null
    const parameters = new URLSearchParams(location.search)
    for (const [name, field] of Object.entries(WORDS)) this[field] = parameters.get(name) ?? ''
    this.fields = readFields(parameters)
    this.weights = readWeights(parameters)
    this.minConfidence = Math.min(MAX_CONFIDENCE, Math.max(0, Math.round(Number(parameters.get('sure')) || 0)))
    this.nowhere = parameters.has('nowhere')
    this.layout = readLayout(parameters) ?? (parameters.size ? 'grid' : readLayout(new URLSearchParams({ view: remembered(LAYOUT) }))) ?? 'grid'
    this.fold = parameters.has('fold')
    this.modes = readModes(parameters)
    this.picture = keptPicture((history.state as Entry | null)?.picture ?? null)
    this.like = parameters.getAll('like').flatMap(example)
    this.unlike = parameters.getAll('unlike').flatMap(example)
    const [id, start_s, end_s] = [parameters.get('v'), Number(parameters.get('s')), Number(parameters.get('e'))]
    this.open = this.#wanted = null
    this.isChosen = false
    this.#nameExamples()
    await Promise.all([this.#reopen(id, start_s, end_s), this.search(null)])
  }

  async #reopen(id: string | null, start_s: number, end_s: number): Promise<void> {
    this.lost = ''
    if (!id) return
    const hasLeft = () => new URLSearchParams(location.search).get('v') !== id
    try {
      const { video, duration_s } = (this.viewed = await api.detail(id))
      const [start, end] = [Math.max(0, start_s), Math.min(duration_s, end_s)]
      const span = start < end ? { start_s: start, end_s: end } : { start_s: 0, end_s: duration_s } // invalid times: the whole video
      if (!hasLeft()) this.open = { video_id: id, video, duration_s, ...span, from_s: span.start_s, atCut: {}, sentence: this.sentence, isOfBin: (history.state as Entry | null)?.isOfBin ?? false }
    } catch (error) {
      if (hasLeft()) return
      if (error instanceof api.Refusal && [404, 422].includes(error.status)) {
        this.lost = 'The video in this link is not in the library.'
        return
      }
      this.problem = String((error as Error).message)
      if (!(error instanceof api.Unreachable)) return
      await connection.returns()
      if (hasLeft()) return
      if (!this.hasQuery) this.problem = ''
      await this.#reopen(id, start_s, end_s)
    }
  }
  /** Look up the names of example videos, which the address does not hold. The search reports missing videos. */
  #nameExamples(): void {
    const examples = [...this.like, ...this.unlike]
    for (const id of new Set(examples.map((place) => place.video_id))) {
      const places = examples.filter((place) => place.video_id === id)
      void api.detail(id).then(({ video }) => places.forEach((place) => (place.video = video)), () => {})
    }
  }
}

export const session = new Session()
