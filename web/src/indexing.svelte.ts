// State of indexing: folders, runs and watched folders. One instance is shared by the header, the panel and the first view.

import * as api from './api'
import { session } from './session.svelte'

const POLL_MS = 2000 // while the panel is open, because watched folders start runs
const SLOW_POLL_MS = 10_000

export const isOpen = (job: api.Job) => ['waiting', 'running', 'paused', 'stopping'].includes(job.state)

class Indexing {
  folders = $state<api.Folder[]>([])
  jobs = $state<api.Job[]>([]) // newest first
  watches = $state<api.Watch[]>([])
  problem = $state('') // of the last button pressed
  connectionProblem = $state('')
  hasStopped = $state(false) // the user has stopped the service
  numNew = $state(0) // videos indexed since the last search
  #isShown = false
  #counted: Record<string, number> | null = null // videos of each run that are counted in `numNew` or older than the page
  #timer = 0
  #events: EventSource | null = null // only one, because a browser opens at most six connections per site

  /** The run that is active or next. Runs are processed one after another, oldest first. */
  get job(): api.Job | undefined {
    return this.jobs.filter(isOpen).at(-1)
  }
  /** Whether to show the view for an empty library. */
  get isFirstRun(): boolean {
    return session.isLoaded && session.numVideos === 0
  }
  /** Look for runs from now on, often while `isShown`. */
  start(isShown: boolean): void {
    this.#isShown = isShown
    if (isShown) this.problem = ''
    void this.#poll()
  }
  async #poll(): Promise<void> {
    clearTimeout(this.#timer)
    await this.refresh()
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.#poll(), this.#isShown || this.isFirstRun ? POLL_MS : SLOW_POLL_MS)
  }
  async refresh(): Promise<void> {
    try {
      if (this.#isShown) [this.folders, this.watches] = await Promise.all([api.folders(), api.watches()])
      this.jobs = await api.jobs()
      this.connectionProblem = ''
      this.#counted ??= Object.fromEntries(this.jobs.map((job) => [job.job_id, job.num_done]))
      this.jobs.forEach((job) => this.#count(job))
      this.#follow()
    } catch (error) {
      this.connectionProblem = (error as Error).message
    }
  }
  async #guard(work: () => Promise<void>): Promise<void> {
    this.problem = ''
    try {
      await work()
    } catch (error) {
      this.problem = (error as Error).message
    }
  }

  #update(job: api.Job): void {
    const at = this.jobs.findIndex((other) => other.job_id === job.job_id)
    if (at < 0) this.jobs.unshift(job)
    else this.jobs[at] = job
    this.#count(job)
  }
  #count({ job_id, num_done }: api.Job): void {
    const counted = (this.#counted ??= {})
    const numNew = num_done - (counted[job_id] ?? 0)
    if (numNew <= 0) return
    counted[job_id] = num_done
    this.numNew += numNew
    void session.reload() // new videos appear while indexing goes on
  }
  /** Subscribe to the active run. */
  #follow(): void {
    const { job } = this
    if (!job || this.#events) return
    const source = (this.#events = new EventSource(`/api/jobs/${job.job_id}/events`))
    source.addEventListener('error', () => {
      if (source.readyState === EventSource.CLOSED) this.#events = null // the service has restarted and does not know the run
    })
    source.addEventListener('job', (event) => {
      const latest = JSON.parse(event.data) as api.Job
      this.#update(latest)
      if (!isOpen(latest)) {
        source.close()
        this.#events = null
        void session.reload()
        void this.refresh()
      }
    })
  }

  index = (folder_id: string) =>
    this.#guard(async () => {
      this.#update(await api.startJob([folder_id]))
      this.#follow()
    })
  control = (job: api.Job, action: 'pause' | 'resume' | 'stop' | 'retry') =>
    this.#guard(async () => {
      this.#update(await api.controlJob(job.job_id, action))
      this.#follow()
    })
  watchOf = (folder: api.Folder) => this.watches.find((watch) => watch.folder_id === folder.folder_id)
  toggleWatch = (folder: api.Folder) =>
    this.#guard(async () => {
      this.watches = await (this.watchOf(folder) ? api.unwatch : api.watch)(folder.folder_id)
    })
  stopService = () =>
    this.#guard(async () => {
      await api.stopService()
      this.hasStopped = true
    })
  remove = (folder: api.Folder) =>
    this.#guard(async () => {
      await api.removeFolder(folder.folder_id)
      await Promise.all([this.refresh(), session.reload()])
    })
}

export const indexing = new Indexing()
