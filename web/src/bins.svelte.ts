// The bins of the library: named, ordered lists of moments. Each change is stored by the service at once and can be undone.

import { untrack } from 'svelte'
import * as api from './api'
import type { BinJson, BinMomentJson, BinSummary } from './service'
import { session } from './session.svelte'
import { forget, remember, remembered, stored } from './storage'

export type BinMoment = BinMomentJson
/** A moment to add. */
type Found = Pick<BinMoment, 'video_id' | 'video' | 'start_s' | 'end_s'>
interface Bin { bin_id: string; name: string; moments: BinMoment[] } // no id: not stored yet

const OPEN = 'untrimmed-bin' // id of the open bin
const OLD = 'untrimmed-basket' // where the browser kept its only bin before libraries had bins
const NAME = 'Bin'
const MAX_UNDO = 50
const NOTICE_MS = 8000
const RETRY_MS = 2000

const isSame = (a: Found, b: Found) => a.video_id === b.video_id && a.start_s === b.start_s && a.end_s === b.end_s

class Bins {
  all = $state<BinSummary[]>([])
  bin = $state<Bin>({ bin_id: '', name: NAME, moments: [] })
  problem = $state('')
  isSaving = $state(false)
  notice = $state<{ text: string; canUndo: boolean } | null>(null)
  played = $state<number | null>(null) // place of the moment that "Play all" plays
  opened = $state.raw<{ moment: BinMoment; open: unknown } | null>(null) // from the bin
  #playing: unknown = null // the open moment, while it is that of "Play all"
  #versions = new Map<string, string>() // of bins that this page has read or stored, by id
  #isSwitching = false // to the next moment of "Play all"
  #past: Bin[] = [] // bins before changes, the last one first to restore
  #timer = 0 // hides the notice
  #isChanged = false // since the save that runs began

  get moments(): BinMoment[] {
    return this.bin.moments
  }
  get duration_s(): number {
    return this.moments.reduce((sum, { start_s, end_s }) => sum + end_s - start_s, 0)
  }
  /** The place of the open moment in the bin, or -1. */
  get place(): number {
    const { open } = session
    return open ? this.moments.findIndex((moment) => isSame(moment, open)) : -1
  }

  /** Read the bins of the library, and store the bin that this browser kept before. */
  async load(): Promise<void> {
    try {
      await this.#migrate()
      await this.#list()
      const id = remembered(OPEN)
      const first = this.all.find((bin) => bin.bin_id === id) ?? this.all[0]
      if (first && !this.bin.bin_id && !this.moments.length) this.#show(await api.bin(first.bin_id))
    } catch (error) {
      this.problem = (error as Error).message
    }
  }
  async #list(): Promise<void> {
    const { bins, problems } = await api.bins()
    this.all = bins
    if (problems.length) this.problem = problems.join('\n')
  }
  async #migrate(): Promise<void> {
    const moments = stored<(Found & { note: string })[]>(OLD, [])
    if (!Array.isArray(moments) || !moments.length) return
    const { bins } = await api.bins()
    await api.createBin(freeName(bins.map((bin) => bin.name)), moments)
    forget(OLD)
  }
  #show({ bin_id, version, name, moments }: BinJson): void {
    this.bin = { bin_id, name, moments }
    this.#versions.set(bin_id, version)
    remember(OPEN, bin_id)
  }

  /** Open another bin. */
  async choose(bin_id: string): Promise<void> {
    try {
      this.#show(await api.bin(bin_id))
      this.problem = ''
    } catch (error) {
      this.problem = (error as Error).message
    }
  }
  /** Begin an empty bin. It is stored with its first moment, or when it is renamed. */
  create(): void {
    this.bin = { bin_id: '', name: freeName(this.all.map((bin) => bin.name)), moments: [] }
  }
  rename(name: string): void {
    const trimmed = name.trim()
    if (trimmed && trimmed !== this.bin.name) this.#change(`Renamed to ${trimmed}`, (bin) => (bin.name = trimmed))
  }
  /** Delete the open bin. */
  async remove(): Promise<void> {
    const bin = $state.snapshot(this.bin)
    try {
      if (bin.bin_id) this.all = (await api.deleteBin(bin.bin_id, this.#versions.get(bin.bin_id)!)).bins
      this.#past.push({ ...bin, bin_id: '' })
      this.#tell(`Deleted ${bin.name}`)
      if (this.all.length) await this.choose(this.all[0].bin_id)
      else this.create()
    } catch (error) {
      this.problem = (error as Error).message
    }
  }

  add({ video_id, video, start_s, end_s }: Found): void {
    const { sentence } = session
    const moment = { video_id, video, start_s, end_s, note: sentence.slice(0, 500), sentence, is_missing: false }
    if (this.moments.some((other) => isSame(other, moment))) this.#tell('This moment is in the bin already', false)
    else this.#change(`Added to ${this.bin.name}`, (bin) => bin.moments.push(moment))
  }
  discard(index: number): void {
    this.#change('Removed from the bin', (bin) => bin.moments.splice(index, 1))
  }
  empty(): void {
    this.#change('Emptied the bin', (bin) => (bin.moments = []))
  }
  /** Move a moment to another place. `before` is the order before it was dragged, for undo. */
  move(from: number, to: number, before: BinMoment[] = this.moments): void {
    if (to < 0 || to >= this.moments.length) return
    const order = $state.snapshot(before)
    this.#change('', (bin) => bin.moments.splice(to, 0, ...bin.moments.splice(from, 1)), order)
  }
  note(index: number, note: string): void {
    this.#change('', (bin) => (bin.moments[index].note = note))
  }

  #change(text: string, change: (bin: Bin) => void, before?: BinMoment[]): void {
    const past = $state.snapshot(this.bin)
    this.#past.push(before ? { ...past, moments: before } : past)
    this.#past.splice(0, this.#past.length - MAX_UNDO)
    change(this.bin)
    if (text) this.#tell(text)
    void this.#save()
  }
  /** Restore the bin before the last change. */
  undo(): void {
    const past = this.#past.pop()
    if (!past) return
    // by now the bin may have got an id, or have lost it because it was deleted
    const known = [this.bin, ...this.all].find((bin) => (past.bin_id ? bin.bin_id === past.bin_id : bin.name === past.name))
    this.bin = { ...past, bin_id: known?.bin_id ?? '' }
    this.#tell('Undone', this.#past.length > 0)
    void this.#save()
  }
  #tell(text: string, canUndo = true): void {
    clearTimeout(this.#timer)
    this.notice = { text, canUndo }
    this.#timer = window.setTimeout(() => (this.notice = null), NOTICE_MS)
  }

  /** Store the bin. Changes during a save are stored by the next one. */
  async #save(): Promise<void> {
    this.#isChanged = true
    if (this.isSaving) return
    this.isSaving = true
    try {
      while (this.#isChanged) {
        this.#isChanged = false
        const { bin } = this
        if (!bin.bin_id && !bin.moments.length && !this.all.length && bin.name === NAME) continue // nothing to store yet
        const version = this.#versions.get(bin.bin_id) ?? this.all.find((other) => other.bin_id === bin.bin_id)?.version ?? ''
        const saved = await (bin.bin_id ? api.replaceBin({ ...bin, version }) : api.createBin(bin.name, bin.moments))
        this.#versions.set(saved.bin_id, saved.version)
        bin.bin_id = saved.bin_id
        if (!this.bin.bin_id && this.bin.name === bin.name) this.bin.bin_id = saved.bin_id // restored while it was stored
        if (this.bin.bin_id === saved.bin_id) remember(OPEN, saved.bin_id)
        this.problem = ''
      }
      await this.#list()
    } catch (error) {
      await this.#recover(error as Error)
    } finally {
      this.isSaving = false
    }
  }
  async #recover(error: Error): Promise<void> {
    if (error instanceof api.Refusal && error.status === 412) {
      this.#past.push($state.snapshot(this.bin))
      await this.choose(this.bin.bin_id)
      this.#tell('This bin was changed elsewhere. Undo restores your version')
      return
    }
    this.problem = `The bin is not stored. ${error.message}`
    if (error instanceof api.Unreachable) setTimeout(() => void this.#save(), RETRY_MS)
  }

  /** Open a moment of the bin in the inspector. */
  async open(index: number): Promise<void> {
    const moment = this.moments[index]
    this.played = null
    if (moment && (await session.view(moment))) this.opened = { moment, open: untrack(() => session.open) }
  }
  /** The place of the moment that was opened from the bin and trimmed since, or -1. */
  get trimmed(): number {
    return this.place < 0 && this.opened && this.opened.open === session.open ? this.moments.indexOf(this.opened.moment) : -1
  }
  /** Give the moment in the bin the edges of the open one. */
  update(): void {
    const { start_s, end_s } = session.open!
    const index = this.trimmed
    this.#change('Updated in the bin', (bin) => Object.assign(bin.moments[index], { start_s, end_s }))
  }
  /** Play all moments, one after another. */
  async playAll(index = 0): Promise<void> {
    const moment = this.moments[index]
    if (!moment) return
    this.played = index
    this.#isSwitching = true
    const isFound = await session.view(moment)
    this.#isSwitching = false
    if (!isFound) return this.playAll(index + 1) // the video is no longer in the library
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

/** "Bin", or "Bin 2" and so on where other bins have the name. */
function freeName(names: string[]): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? NAME : `${NAME} ${number}`
    if (!names.includes(name)) return name
  }
}

export const bins = new Bins()
