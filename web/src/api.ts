// The service, as /api/openapi.json describes it.

export interface Moment { start_s: number; end_s: number; score: number }
export interface Place { video_id: string; start_s: number; end_s: number | null }
export interface Hit {
  rank: number
  video: string
  video_id: string
  score: number
  confidence?: number | null // the chance that the video holds it, where that is known
  duration_s: number
  moments: Moment[]
  then?: Moment[] | null // what follows each of them
  folded?: string[] | null // videos that look the same
}
export interface Word { word: string; weight: number }
export interface Answer {
  warnings: string[]
  partial: boolean
  hits: Hit[]
  took_s: number
  words?: Word[] | null // of the sentence, where the model weighs them
}
export interface Video { video_id: string; video: string; duration_s: number; width: number; height: number }
export interface Detail extends Video { can_be_read: boolean; problem: string | null; kind: string | null }
export interface Curve { times_s: number[]; relevance: number[] }
export interface Folder { folder_id: string; path: string; num_videos: number }
export interface Watch {
  folder_id: string
  path: string
  state: 'watching' | 'polling' | 'missing'
  problem: string | null
  waiting: string[]
  failed: { path: string; reason: string }[]
}
export interface Job {
  job_id: string
  paths: string[]
  state: 'waiting' | 'running' | 'paused' | 'stopping' | 'done' | 'stopped' | 'failed'
  position: number
  total: number
  num_done: number
  num_skipped: number
  path: string | null
  done_s: number
  duration_s: number
  failed: { path: string; reason: string }[]
  num_failed: number
  problem: string | null
  notice: string | null
  started_at: number | null // seconds since 1970
}
export interface Filters {
  within: string | null
  since: string | null
  until: string | null
  min_duration_s: number | null
  max_duration_s: number | null
  min_bytes: number | null
  max_bytes: number | null
  min_height: number | null
  max_height: number | null
}
export type Weights = Partial<Record<'text' | 'then' | 'without' | 'image' | 'like' | 'unlike', number>>
export interface Query {
  text: string
  then: string
  within_s: number
  without: string[]
  like: Place[]
  unlike: Place[]
  weights: Weights
  filters: Filters
  group_by: 'video' | 'moment'
  fold: number | null
  limit: number
  moments: number
  min_score: number | null
  min_confidence: number | null
}
export interface Mark { video_id: string; start_s: number; end_s: number; note: string }

/** The service is not there, for the time being. */
export class Silence extends Error {
  constructor() {
    super('The service does not answer: see whether it still runs.')
  }
}
/** What the service said no to. */
export class Refusal extends Error {
  constructor(
    message: string,
    readonly status: number
  ) {
    super(message)
  }
}
const silent = (error: Error): never => {
  throw error.name === 'AbortError' ? error : new Silence()
}

async function ask(path: string, init?: RequestInit): Promise<Response> {
  const answer = await fetch(path, init).catch(silent)
  if (answer.ok) return answer
  const problem = await answer.json().catch(() => null)
  throw new Refusal(problem?.detail ?? `${answer.status} ${answer.statusText}`, answer.status)
}

function sent(body: unknown, signal?: AbortSignal): RequestInit {
  return { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal }
}

const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await ask(path, { signal })).json()
const post = async <T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> =>
  (await ask(path, body === undefined ? { method: 'POST', signal } : sent(body, signal))).json()

export const videos = (limit: number) => get<{ total: number; videos: Video[] }>(`/api/videos?limit=${limit}`)
export const facts = () => get<{ library: string }>('/api/facts')
/** Whether the service is there, whatever it says. */
export const answers = () => facts().then(() => true, (error) => !(error instanceof Silence))
export const detail = (id: string) => get<Detail>(`/api/videos/${id}`)
export const folders = () => get<Folder[]>('/api/folders')
export const watches = () => get<Watch[]>('/api/watches')
export const watch = (folder_id: string) => post<Watch[]>('/api/watches', { folder_ids: [folder_id] })
export const unwatch = async (folder_id: string): Promise<Watch[]> =>
  (await ask(`/api/watches/${folder_id}`, { method: 'DELETE' })).json()
export const jobs = () => get<Job[]>('/api/jobs')
export const startJob = (folder_ids: string[]) => post<Job>('/api/jobs', { folder_ids })
export const steer = (id: string, what: 'pause' | 'resume' | 'stop' | 'retry') => post<Job>(`/api/jobs/${id}/${what}`)
/** Ask, and hear of each video as soon as it is found; the answer is the whole. */
export async function search(query: Query, signal: AbortSignal, tell: (hit: Hit) => void): Promise<Answer> {
  const { body } = await ask('/api/search/lines', sent(query, signal))
  const reader = body!.pipeThrough(new TextDecoderStream()).getReader()
  for (let rest = ''; ; ) {
    const { value, done } = await reader.read().catch(silent)
    if (done) throw new Silence()
    const lines = (rest + value).split('\n')
    rest = lines.pop()!
    for (const line of lines) {
      const { hit, answer, problem } = JSON.parse(line) as { hit?: Hit; answer?: Answer; problem?: string }
      if (problem) throw new Error(problem)
      if (answer) return answer
      if (hit) tell(hit)
    }
  }
}
export const searchPicture = async (picture: Blob, query: Query, signal: AbortSignal): Promise<Answer> => {
  const words = new URLSearchParams({ query: JSON.stringify(query) })
  return (await ask(`/api/search/picture?${words}`, { method: 'POST', body: picture, signal })).json()
}
export const curve = (id: string, query: Query, signal?: AbortSignal) =>
  post<Curve>(`/api/videos/${id}/relevance`, query, signal)

export const frame = (id: string, time_s: number, side = 180) =>
  `/api/videos/${id}/frame?time_s=${Math.max(0, time_s).toFixed(2)}&short_side=${side}`
export const media = (id: string) => `/api/videos/${id}/media`

/** Write moments in a format, and hand the file to the browser's downloads. */
export async function download(format: string, moments: Mark[]): Promise<void> {
  const answer = await ask('/api/export', sent({ format, moments }))
  const name = /filename="([^"]+)"/.exec(answer.headers.get('content-disposition') ?? '')?.[1] ?? `moments.${format}`
  const link = document.createElement('a')
  link.href = URL.createObjectURL(await answer.blob())
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

/** A name as it can be shown: letters that turn or break the line would make it look like another one. */
export const plain = (name: string) => name.replace(/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd')
export const fileName = (path: string) => plain(path.slice(path.lastIndexOf('/') + 1))
export const folderOf = (path: string) => plain(path.slice(0, path.lastIndexOf('/')))

/** Seconds as a player shows them: 75.25 is 1:15.2. */
export function clock(time_s: number): string {
  const near = Math.round(time_s * 10)
  const tenths = Math.abs(time_s * 10 - near) === 0.5 && near % 2 ? near - 1 : near // as the command line has them
  const hours = Math.floor(tenths / 36000)
  const minutes = Math.floor(tenths / 600) % 60
  const seconds = `${String(Math.floor(tenths / 10) % 60).padStart(2, '0')}.${tenths % 10}`
  return hours ? `${hours}:${String(minutes).padStart(2, '0')}:${seconds}` : `${minutes}:${seconds}`
}
