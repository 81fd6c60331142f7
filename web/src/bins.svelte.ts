// The bins of the library: named, ordered lists of moments. Each change is stored by the service at once and can be undone.

import { untrack } from 'svelte'
import * as api from './api'
import { changes } from './changes'
import { connection } from './connection.svelte'
import type { Edited } from './edges'
import type { BinJson, BinList, BinMomentJson, BinSummary, Span } from './service'
import { isSameSpan, session, type Open } from './session.svelte'
import { forget, remember, remembered, stored } from './storage'

export type BinMoment = BinMomentJson
/** A moment to add. */
type NewMoment = Pick<BinMoment, 'video_id' | 'video' | 'start_s' | 'end_s'> & { sentence?: string }
/** A trim of the open moment. */
interface Trim { video_id: string; before: Edited; after: Edited }
/** `before` is the order before a drag. If `isQuiet`, the change is not announced. */
interface Details { before?: BinMoment[]; trim?: Trim; isQuiet?: boolean }
/** `key` names the bin in this page, also before it is stored and while it is deleted. No id: not stored yet. */
interface Bin { key: string; bin_id: string; name: string; moments: BinMoment[] }
/** A bin that is not stored, the stored version that it changes, the contents that were sent without an answer, and the library of the bin. */
interface Unsaved { bin: Bin; base: BinJson | null; tried: string[]; library: string }
const FIRST = 'new 0' // key of the bin that is shown until the bins are read

const OPEN = 'untrimmed-bin' // id of the open bin
const OLD = 'untrimmed-basket' // where the browser kept its only bin before libraries had bins
const UNSAVED = 'untrimmed-unsaved' // bins with changes that were not stored when the page was closed
const NAME = 'Bin'
const TRIM = 'Trim'
const NOTICE_MS = 8000

type Place = Span & { video_id: string }
const isSame = (a: Place, b: Place) => a.video_id === b.video_id && isSameSpan(a, b)

class Bins {
  all = $state<BinSummary[]>([])
  bin = $state<Bin>({ key: FIRST, bin_id: '', name: NAME, moments: [] })
  problem = $state('')
  isSaving = $state(false)
  notice = $state<{ text: string; offer: 'Undo' | 'Redo' | null } | null>(null)
  played = $state<number | null>(null) // place of the moment that "Play all" plays
  #openedAt = $state(-1) // the place in the bin of the moment that was opened last, or -1
  #playing: unknown = null // the open moment, while it is that of "Play all"
  #stored = new Map<string, BinJson>() // bins as this page has read or stored them last, by id
  #isSwitching = false // to the next moment of "Play all"
  #timer = 0 // hides the notice
  #ids = new Map<string, string>() // of stored bins, by key
  #numNew = 1 // bins that this page began
  #unsaved = new Map<string, Bin>() // bins with changes that are not stored, by key
  #sent: Bin | null = null // the bin that is being stored
  #tried = new Map<string, string[]>() // contents that were sent without an answer, by key: the service may have stored them
  #left = stored<Unsaved[]>(UNSAVED, [], 'sessionStorage') // bins that the previous page of this tab could not store
  #ofOthers: Unsaved[] = [] // unsaved bins of other libraries that were served at this address
  #save: Promise<void> = Promise.resolve() // the save that runs, or the last one

  get moments(): BinMoment[] {
    return this.bin.moments
  }
  get duration_s(): number {
    return this.moments.reduce((sum, { start_s, end_s }) => sum + end_s - start_s, 0)
  }
  /** The place of the open moment in the bin, or -1. */
  get place(): number {
    return session.open ? this.#placeOf(session.open) : -1
  }
  /** The place of a moment in the bin, or -1. Of equal moments, the one that was opened last is preferred. */
  #placeOf(place: Place): number {
    const opened = this.moments[this.#openedAt]
    return opened && isSame(opened, place) ? this.#openedAt : this.moments.findIndex((moment) => isSame(moment, place))
  }

  /** Read the bins of the library, and store the changes that this browser kept. If another page changed the open bin, show the change. */
  async load(): Promise<void> {
    if (this.isSaving || this.#unsaved.size) return // saving finds the changes of other pages
    const save = this.#save
    try {
      this.problem = ''
      await this.#migrate()
      await this.#list()
      await this.#recover()
      if (this.bin.key !== FIRST || this.moments.length) return await this.#showChange(save)
      const id = remembered(OPEN)
      const first = this.all.find((bin) => bin.bin_id === id) ?? this.all[0]
      const pending = first && this.#pending(first.bin_id)
      if (pending) this.bin = pending
      else if (first) this.#show(await api.bin(first.bin_id))
    } catch (error) {
      this.problem = (error as Error).message
    }
  }
  /** Show the other page's version of the open bin, unless this page has saved a change after the save `last`. */
  async #showChange(last: Promise<void>): Promise<void> {
    const { bin_id, key } = this.bin
    const listed = this.all.find((bin) => bin.bin_id === bin_id)
    if (!bin_id || listed?.version === this.#stored.get(bin_id)?.version) return
    const read = listed && (await api.bin(bin_id))
    if (this.bin.key !== key || this.#save !== last || this.#unsaved.size) return
    const own = $state.snapshot(this.bin)
    if (read) {
      this.#show(read)
      this.#follow(own.moments, read.moments)
      this.#tell(`${own.name} was changed in another window`, null)
    } else {
      changes.forget(key)
      this.#ids.delete(key)
      const text = `${own.name} was deleted in another window`
      changes.add({ name: text, undo: () => this.#restore(own) })
      this.#tell(text)
      if (this.all.length) await this.choose(this.all[0].bin_id)
      else this.create()
    }
  }
  /** Write changes that are not stored to the tab's storage, so that the next page of this tab can store them. */
  keepUnsaved(): void {
    const waiting = new Map(this.#unsaved)
    if (this.#sent && !waiting.has(this.#sent.key)) waiting.set(this.#sent.key, this.#sent)
    const own = [...waiting.values()].map((bin) => {
      const base = this.#stored.get(this.#ids.get(bin.key) ?? '') ?? null
      return { bin: $state.snapshot(bin), base, tried: this.#tried.get(bin.key) ?? [], library: session.libraryAddress }
    })
    remember(UNSAVED, JSON.stringify([...this.#left, ...this.#ofOthers, ...own]), 'sessionStorage')
  }
  /** Store the bins that the previous page of this tab could not store. */
  async #recover(): Promise<void> {
    if (!this.#left.length) return
    const waiting: Unsaved[] = []
    const { library } = await api.facts()
    const isOfOther = (one: Unsaved) => !!one.library && one.library !== library
    this.#ofOthers = this.#left.filter(isOfOther)
    for (const one of this.#left.filter((left) => !isOfOther(left))) {
      const { bin, tried } = one
      const known = this.all.find((other) => (bin.bin_id ? other.bin_id === bin.bin_id : other.name === bin.name))
      const now = known && (await api.bin(known.bin_id))
      if (now && contentOf(now) === contentOf(bin)) continue // it was stored
      const isOwn = now && tried.includes(contentOf(now))
      waiting.push(isOwn ? { ...one, bin: { ...bin, bin_id: now.bin_id }, base: now, tried: [] } : one)
    }
    for (const { bin, base, tried } of waiting) {
      const key = `recovered ${this.#numNew++}`
      if (bin.bin_id) this.#ids.set(key, bin.bin_id)
      if (base) this.#stored.set(base.bin_id, base)
      this.#tried.set(key, tried)
      this.#unsaved.set(key, { ...bin, key })
    }
    this.#left = []
    this.keepUnsaved()
    if (this.#unsaved.size) this.#begin()
  }
  async #list(): Promise<void> {
    const { bins, problems } = await api.bins()
    this.all = bins
    if (problems.length) this.problem = problems.join('\n')
  }
  async #migrate(): Promise<void> {
    if (!remembered(OLD)) return
    const { bins } = await api.bins()
    const moments = stored<(NewMoment & { note: string })[]>(OLD, [])
    if (!Array.isArray(moments) || !moments.length) return
    forget(OLD) // first: another tab may be loading too
    try {
      await api.createBin(freeName(NAME, bins), moments)
    } catch (error) {
      remember(OLD, JSON.stringify(moments))
      throw error
    }
  }
  #show(read: BinJson): void {
    const { bin_id, name, moments } = read
    const known = this.#stored.get(bin_id)
    const key = [...this.#ids].find(([, id]) => id === bin_id)?.[0] ?? bin_id
    if (known && known.version !== read.version) changes.forget(key) // undoing older steps would remove the other page's change
    this.#stored.set(bin_id, $state.snapshot(read))
    this.#ids.set(key, bin_id)
    this.bin = { key, bin_id, name, moments }
    remember(OPEN, bin_id)
  }
  /** A bin with changes that are not stored yet. */
  #pending(bin_id: string): Bin | undefined {
    return [...this.#unsaved.values(), this.#sent].find((bin) => bin && this.#ids.get(bin.key) === bin_id) ?? undefined
  }

  /** The bins other than the open one. */
  get #others(): { name: string }[] {
    const { bin_id, key } = this.bin
    const waiting = [...this.#unsaved.values(), ...(this.#sent ? [this.#sent] : [])]
    return [...this.all.filter((bin) => bin.bin_id !== bin_id), ...waiting.filter((bin) => bin.key !== key)]
  }
  /** Whether a change could not be stored, and would be lost if the page were closed. */
  get isUnsaved(): boolean {
    return this.problem !== '' && (this.#unsaved.size > 0 || this.#sent !== null || this.#left.length > 0)
  }

  /** Open another bin. */
  async choose(bin_id: string): Promise<void> {
    try {
      const read = this.#pending(bin_id) ? null : await api.bin(bin_id)
      const pending = this.#pending(bin_id)
      if (pending) {
        this.bin = pending
        remember(OPEN, bin_id)
      } else if (read) this.#show(read)
      if (!this.#unsaved.size) this.problem = ''
    } catch (error) {
      this.problem = (error as Error).message
    }
  }
  /** Begin an empty bin. It is stored with its first moment, or when it is renamed. */
  create(): void {
    const others = [...this.#others, this.bin]
    this.bin = { key: `new ${this.#numNew++}`, bin_id: '', name: freeName(NAME, others), moments: [] }
  }
  rename(name: string): void {
    const trimmed = name.trim()
    if (!trimmed || trimmed === this.bin.name) return
    if (this.#others.some((bin) => bin.name === trimmed)) this.#tell(`Another bin has the name ${trimmed}`, null)
    else this.#change(`Renamed to ${trimmed}`, (bin) => (bin.name = trimmed))
  }
  /** Delete the open bin. */
  async remove(): Promise<void> {
    const { key } = this.bin
    await this.#save // which may give the bin an id or a new version
    if (this.bin.key !== key) return
    const bin = $state.snapshot(this.bin)
    try {
      if (bin.bin_id) this.all = (await this.#deleted(bin.bin_id)).bins
      this.#unsaved.delete(key)
      this.#ids.delete(key)
      const text = `Deleted ${bin.name}`
      changes.add({ name: text, undo: () => this.#restore(bin) })
      this.#tell(text)
      if (this.bin.key !== key) return
      if (this.all.length) await this.choose(this.all[0].bin_id)
      else this.create()
    } catch (error) {
      this.problem = (error as Error).message
    }
  }

  /** Delete a bin, unless another page has deleted it already. Returns the bins that are left. */
  #deleted(bin_id: string): Promise<BinList> {
    return api.deleteBin(bin_id, this.#stored.get(bin_id)!.version).catch((error) => {
      if (error instanceof api.Refusal && error.status === 404) return api.bins()
      throw error
    })
  }
  /** Add a moment. Its note is the sentence that found it. */
  add({ video_id, video, start_s, end_s, sentence = session.foundBy }: NewMoment): void {
    const moment = { video_id, video, start_s, end_s, note: sentence.slice(0, 500), sentence, is_missing: false }
    if (this.moments.some((other) => isSame(other, moment))) this.#tell('This moment is in the bin already', null)
    else this.#change(`Added to ${this.bin.name}`, (bin) => bin.moments.push(moment))
  }
  discard(index: number): void {
    this.#change('Removed from the bin', (bin) => bin.moments.splice(index, 1))
  }
  empty(): void {
    this.#change('Emptied the bin', (bin) => void bin.moments.splice(0))
  }
  /** Move a moment to another place. `before` is the order before it was dragged, for undo. */
  move(from: number, to: number, before: BinMoment[] = this.moments): void {
    if (to < 0 || to >= this.moments.length) return
    const order = $state.snapshot(before)
    this.#change('Moved in the bin', (bin) => bin.moments.splice(to, 0, ...bin.moments.splice(from, 1)), { before: order })
  }
  note(index: number, note: string): void {
    this.#change('Note', (bin) => (bin.moments[index].note = note), { isQuiet: true })
  }

  #change(name: string, change: (bin: Bin) => void, { before, trim, isQuiet = false }: Details = {}): void {
    const now = $state.snapshot(this.bin)
    const past = before ? { ...now, moments: before } : now
    change(this.bin)
    const next = $state.snapshot(this.bin)
    const go = (bin: Bin, from?: Edited, to?: Edited) => {
      this.#restore(bin)
      if (from && to) session.setEdges(trim!.video_id, from, to)
    }
    const undo = () => go(past, trim?.after, trim?.before)
    changes.add({ name, of: this.bin.key, undo, redo: () => go(next, trim?.before, trim?.after) })
    if (!isQuiet) this.#tell(name)
    this.#store()
  }
  #restore(past: Bin): void {
    // By now the bin may have got an id, or have lost it because it was deleted.
    const id = this.#ids.get(past.key) ?? ''
    const isKnown = id !== '' && [this.bin, ...this.all].some((bin) => bin.bin_id === id)
    if (!isKnown) this.#ids.delete(past.key)
    const bin = { ...past, moments: [...past.moments] } // the step keeps its own list
    this.bin = isKnown ? { ...bin, bin_id: id } : { ...bin, bin_id: '', name: freeName(past.name, this.all) }
    this.#store()
  }
  undo(): void {
    const name = changes.undo()
    if (name) this.#tell(`Undone: ${name}`, changes.canRedo ? 'Redo' : null)
  }
  redo(): void {
    const name = changes.redo()
    if (name) this.#tell(`Redone: ${name}`)
  }
  #tell(text: string, offer: 'Undo' | 'Redo' | null = 'Undo'): void {
    clearTimeout(this.#timer)
    this.notice = { text, offer }
    this.#timer = window.setTimeout(() => (this.notice = null), NOTICE_MS)
  }

  /** Store the open bin, after the bins that wait to be stored. Changes during a save are stored by the same save. */
  #store(): void {
    this.#unsaved.set(this.bin.key, this.bin)
    this.#begin()
  }
  #begin(): void {
    if (!this.isSaving) this.#save = this.#saveAll()
  }
  async #saveAll(): Promise<void> {
    this.isSaving = true
    const refused = new Map<string, Bin>() // bins that could not be stored, by key
    try {
      do {
        for (let bin = this.#next(); bin; bin = this.#next()) {
          this.#unsaved.delete(bin.key)
          this.#sent = bin
          try {
            await this.#send(bin)
            refused.delete(bin.key)
            if (!refused.size) this.problem = ''
          } catch (error) {
            this.problem = `${bin.name} is not stored: ${(error as Error).message}`
            refused.set(bin.key, bin)
            if (error instanceof api.Unreachable) {
              void connection.returns().then(() => this.#begin())
              return
            }
          }
          this.#sent = null
        }
        await this.#list().catch((error: Error) => (this.problem = error.message))
      } while (this.#unsaved.size) // changed while the list was read
    } finally {
      this.#sent = null
      // The next save tries these again.
      for (const [key, bin] of refused) if (!this.#unsaved.has(key)) this.#unsaved.set(key, bin)
      this.isSaving = false
    }
  }
  #next(): Bin | undefined {
    return this.#unsaved.values().next().value
  }
  async #send(bin: Bin): Promise<void> {
    const { key, name, moments } = bin
    const bin_id = this.#ids.get(key) ?? ''
    if (!bin_id && !moments.length && !this.all.length && name === NAME) return // nothing to store yet
    const version = this.#stored.get(bin_id)?.version ?? this.all.find((other) => other.bin_id === bin_id)?.version ?? ''
    this.#tried.set(key, [...(this.#tried.get(key) ?? []), contentOf(bin)])
    try {
      const saved = await (bin_id ? api.replaceBin({ bin_id, name, moments, version }) : api.createBin(name, moments))
      this.#tried.delete(key)
      this.#stored.set(saved.bin_id, saved)
      this.#ids.set(key, saved.bin_id)
      if (!bin_id) this.all = [...this.all, saved]
      bin.bin_id = saved.bin_id
      if (this.bin.key !== key) return
      this.bin.bin_id = saved.bin_id // also if it was restored while it was stored
      remember(OPEN, saved.bin_id)
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error
      if (error.status === 412) await this.#merge(bin, bin_id)
      else if (error.status === 404 && bin_id) await this.#sendAgain(bin)
      else await this.#sendRenamed(bin, error)
    }
  }
  /** Another page deleted the bin: store it as a new one. */
  async #sendAgain(bin: Bin): Promise<void> {
    this.#ids.delete(bin.key)
    bin.bin_id = ''
    this.#tell(`${bin.name} was deleted in another window. It is stored again`, null)
    await this.#send(bin)
  }
  /** Store a bin under another name if another page has taken its name. Raises the error otherwise. */
  async #sendRenamed(bin: Bin, error: api.Refusal): Promise<void> {
    await this.#list()
    const others = this.all.filter((other) => other.bin_id !== bin.bin_id)
    const free = freeName(bin.name, others)
    if (free === bin.name) throw error
    const known = bin.bin_id ? undefined : others.find((other) => other.name === bin.name)
    const read = known && (await api.bin(known.bin_id))
    if (read && this.#isOwn(bin, read)) {
      this.#stored.set(read.bin_id, read)
      this.#ids.set(bin.key, read.bin_id)
      return this.#send(bin)
    }
    this.#tell(`${bin.name} is stored as ${free}, because another bin already has this name`, null)
    bin.name = free
    if (this.bin.key === bin.key) this.bin.name = free
    await this.#send(bin)
  }
  /** Whether this page sent the stored bin: the service stored it, but the answer was lost. */
  #isOwn(bin: Bin, read: BinJson): boolean {
    return (this.#tried.get(bin.key) ?? []).includes(contentOf(read))
  }
  /** Resolve a conflict with another page: keep both changes if they can be merged (see `merged`), or else the other page's version.
   *
   * In the second case, undo restores the version of this page.
   */
  async #merge(bin: Bin, bin_id: string): Promise<void> {
    const read = await api.bin(bin_id)
    const base = this.#stored.get(bin_id)
    this.#stored.set(bin_id, read)
    if (this.#isOwn(bin, read)) return this.#send(bin)
    const now = this.#unsaved.get(bin.key) ?? bin
    const haveBothNames = base && now.name !== base.name && read.name !== base.name && now.name !== read.name
    const moments = base && !haveBothNames && merged(base.moments, now.moments, read.moments)
    const show = (shown: BinJson | Bin, before: BinJson | Bin) => {
      this.#restore({ ...shown, key: bin.key })
      this.#follow(before.moments, shown.moments)
    }
    if (moments) {
      if (now.name === base.name) now.name = read.name
      now.moments = moments
      if (this.bin.key === bin.key) {
        this.#follow(this.bin.moments, moments)
        Object.assign(this.bin, { name: now.name, moments })
      }
      this.#unsaved.delete(bin.key)
      this.#sent = now
      changes.forget(bin.key) // undoing older steps would remove the other page's change
      const both = $state.snapshot(now)
      changes.add({ name: `Your change to ${now.name}`, of: bin.key, undo: () => show(read, both), redo: () => show(both, read) })
      this.#tell(`${now.name} was also changed in another window. Both changes are kept`)
      return this.#send(now)
    }
    const own = $state.snapshot(now)
    const name = `Change of ${bin.name} in another window`
    changes.add({ name, of: bin.key, undo: () => show(own, read), redo: () => show(read, own) })
    this.#unsaved.delete(bin.key)
    if (this.bin.key === bin.key) {
      this.#show(read)
      this.#follow(own.moments, read.moments)
    }
    this.#tell(`${bin.name} was changed in another window. Undo restores your version`)
  }
  /** If the moment that was opened last has other edges in the new version of the open bin, move them in the inspector and in the results. */
  #follow(before: BinMoment[], after: BinMoment[]): void {
    const [from, to] = [before[this.#openedAt], after[this.#openedAt]]
    if (!from || !to || after.length !== before.length) return
    const isMoved = after.some((moment) => isSame(moment, from)) || before.some((moment) => isSame(moment, to)) // to another place
    const isTrim = from.video_id === to.video_id && from.sentence === to.sentence && from.start_s < to.end_s && to.start_s < from.end_s
    if (isTrim && !isMoved) session.setEdges(from.video_id, from, to)
  }

  /** Open a moment of the bin in the inspector. */
  async open(index: number): Promise<void> {
    const moment = this.moments[index]
    this.played = null
    if (!moment) return
    const isFound = await session.view(moment, (problem) => this.#tell(problem, null)) // next to the bin
    if (isFound) this.#openedAt = index
  }
  /** Record that the edges of a moment were moved in the inspector, and move them in the results.
   *
   * If the moment was opened from the bin, they are also moved in the bin. Otherwise the bin keeps the moment as it was added, so that
   * another part of it can be marked and added, too.
   */
  recordTrim(open: Open, before: Edited): void {
    const { video_id, start_s, end_s, isOfBin } = open
    const after = { start_s, end_s, atCut: { ...open.atCut } }
    if (after.start_s === before.start_s && after.end_s === before.end_s) return
    const index = this.#placeOf({ video_id, ...before })
    session.setEdges(video_id, before, after)
    if (index < 0 && isOfBin) this.#tell('This moment is not in the open bin, so the bin does not change', null)
    if (index >= 0 && !isOfBin) this.#tell('The bin keeps the moment as it was added. Press B to add the trimmed one')
    if (index >= 0 && isOfBin) {
      const trim = { video_id, before, after }
      const details = { trim, isQuiet: !this.isPlayingAll } // announced during "Play all", because the next moment soon replaces the trimmed one
      this.#change(TRIM, (bin) => Object.assign(bin.moments[index], { start_s, end_s }), details)
      return
    }
    const undo = () => session.setEdges(video_id, after, before)
    changes.add({ name: TRIM, undo, redo: () => session.setEdges(video_id, before, after) })
  }
  /** Play all moments, one after another. */
  async playAll(index = 0): Promise<void> {
    const moment = this.moments[index]
    if (!moment) return
    this.played = index
    this.#isSwitching = true
    const isFound = await session.view(moment, (problem) => this.#tell(problem, null))
    this.#isSwitching = false
    if (isFound === null) return
    if (!isFound) return this.playAll(index + 1) // the video is no longer in the library
    this.#openedAt = index
    this.#playing = untrack(() => session.open)
  }
  /** Whether "Play all" runs: it ends when another moment is opened. */
  get isPlayingAll(): boolean {
    return this.played !== null && session.open === this.#playing
  }
  /** Go on with the next moment. Returns whether there is one. */
  playNext(): boolean {
    if (this.#isSwitching) return true
    const next = (this.played ?? -1) + 1
    if (next >= this.moments.length) {
      this.played = null
      return false
    }
    void this.playAll(next)
    return true
  }
}

/** Name and moments as text, to compare them. */
const contentOf = ({ name = '', moments }: { name?: string; moments: BinMoment[] }) =>
  JSON.stringify([name, moments.map(({ video_id, start_s, end_s, note, sentence }) => [video_id, start_s, end_s, note, sentence])])

const haveSameContent = (some: BinMoment[], others: BinMoment[]) => contentOf({ moments: some }) === contentOf({ moments: others })

/** Merge two lists if one only adds moments at the end, or if they change different moments. Otherwise return null. */
function merged(base: BinMoment[], mine: BinMoment[], theirs: BinMoment[]): BinMoment[] | null {
  const added = (list: BinMoment[]) => (haveSameContent(list.slice(0, base.length), base) ? list.slice(base.length) : null)
  const [ours, others] = [added(mine), added(theirs)]
  const without = (list: BinMoment[], known: BinMoment[]) => list.filter((moment) => !known.some((other) => isSame(other, moment)))
  if (ours) return [...theirs, ...without(ours, theirs)] // first, so that the other page's additions keep their places
  if (others) return [...mine, ...without(others, mine)]
  if (mine.length !== base.length || theirs.length !== base.length) return null
  const isKept = (list: BinMoment[], i: number) => haveSameContent([list[i]], [base[i]])
  if (!base.every((_, i) => isKept(mine, i) || isKept(theirs, i))) return null
  return base.map((_, i) => (isKept(mine, i) ? theirs[i] : mine[i]))
}

/** The name, followed by " 2" and so on where other bins have it. */
function freeName(base: string, others: { name: string }[]): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? base : `${base} ${number}`
    if (!others.some((other) => other.name === name)) return name
  }
}

export const bins = new Bins()
