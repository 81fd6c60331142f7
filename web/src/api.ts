// Client of the service that /api/openapi.json describes.

import { connection } from './connection.svelte'
import type { BinJson, BinList, BinMomentRequest, BinRequest, CountedFolder, ExportRequest, Facts, Folder, FolderListing, HitJson, Job, RelevanceCurve, RemovedVideos, SearchAnswer, SearchLine, SearchRequest, Span, Stopped, ThumbnailSheets, TranscriptLine, VideoDetail, VideoList, Watch } from './service'

export type { CountedFolder, Folder, FolderListing, Job, RelevanceCurve, Watch }

const CURVE_POINTS = 4000 // the maximum of the service; enough to zoom in on a film
const MAX_KEPT_ALIVE = 20_000 // characters of a request; browsers allow 64 KB

/** The service cannot be reached. */
export class Unreachable extends Error {
  constructor() {
    super('The service does not respond. Check that it is running.')
  }
}
/** The service refused the request. */
export class Refusal extends Error {
  constructor(
    message: string,
    readonly status: number
  ) {
    super(message)
  }
}
const unreachable = (error: Error): never => {
  if (error.name === 'AbortError') throw error
  void connection.returns()
  throw new Unreachable()
}

async function ask(path: string, init?: RequestInit): Promise<Response> {
  const answer = await fetch(path, init).catch(unreachable)
  if (answer.ok) return answer
  const problem = await answer.json().catch(() => null)
  throw new Refusal(problem?.detail ?? `${answer.status} ${answer.statusText}`, answer.status)
}

function jsonBody(body: unknown, signal?: AbortSignal): RequestInit {
  return { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal }
}

const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await ask(path, { signal })).json()
const post = async <T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> =>
  (await ask(path, body === undefined ? { method: 'POST', signal } : jsonBody(body, signal))).json()

export const videos = (limit: number, offset: number) => get<VideoList>(`/api/videos?limit=${limit}&offset=${offset}`)
export const facts = () => get<Facts>('/api/facts')
export const detail = (id: string) => get<VideoDetail>(`/api/videos/${id}`)
export const folders = () => get<Folder[]>('/api/folders')
export const removeFolder = async (folder_id: string): Promise<RemovedVideos> =>
  (await ask(`/api/folders/${folder_id}`, { method: 'DELETE' })).json()
/** The folders that can be chosen in a folder, or at the top. */
export const browse = (folder_id = '') => get<FolderListing>(`/api/browse${folder_id && `/${folder_id}`}`)
export const stopService = () => post<Stopped>('/api/stop')
export const findFolders = (name: string) => post<CountedFolder[]>('/api/browse/find', { name })
export const watches = () => get<Watch[]>('/api/watches')
export const watch = (folder_id: string) => post<Watch[]>('/api/watches', { folder_ids: [folder_id] })
export const unwatch = async (folder_id: string): Promise<Watch[]> =>
  (await ask(`/api/watches/${folder_id}`, { method: 'DELETE' })).json()
export const jobs = () => get<Job[]>('/api/jobs')
export const startJob = (folder_ids: string[]) => post<Job>('/api/jobs', { folder_ids })
export const controlJob = (id: string, action: 'pause' | 'resume' | 'stop' | 'retry') => post<Job>(`/api/jobs/${id}/${action}`)
export const bins = () => get<BinList>('/api/bins')
export const bin = (id: string) => get<BinJson>(`/api/bins/${id}`)
export const createBin = (name: string, moments: BinMomentRequest[]) => post<BinJson>('/api/bins', binBody(name, moments))
export async function replaceBin({ bin_id, version, name, moments }: BinRequest & { bin_id: string; version: string }): Promise<BinJson> {
  const request = jsonBody({ ...binBody(name, moments), version })
  const keepalive = String(request.body).length < MAX_KEPT_ALIVE // the request continues if the page is closed
  return (await ask(`/api/bins/${bin_id}`, { ...request, method: 'PUT', keepalive })).json()
}
export const deleteBin = async (id: string, version: string): Promise<BinList> =>
  (await ask(`/api/bins/${id}?version=${encodeURIComponent(version)}`, { method: 'DELETE' })).json()
function binBody(name: string, moments: BinMomentRequest[]): BinRequest {
  const request = ({ video_id, video, start_s, end_s, note, sentence }: BinMomentRequest) => ({ video_id, video, start_s, end_s, note, sentence })
  return { name, moments: moments.map(request) }
}
/** Search. Calls `onHit` with each video as soon as it is found and returns the complete answer. */
export async function search(query: SearchRequest, signal: AbortSignal, onHit: (hit: HitJson) => void): Promise<SearchAnswer> {
  const { body } = await ask('/api/search/lines', jsonBody(query, signal))
  const reader = body!.pipeThrough(new TextDecoderStream()).getReader()
  for (let rest = ''; ; ) {
    const { value, done } = await reader.read().catch(unreachable)
    if (done) throw new Unreachable()
    const lines = (rest + value).split('\n')
    rest = lines.pop()!
    for (const line of lines) {
      const { hit, answer, problem } = JSON.parse(line) as SearchLine
      if (problem) throw new Error(problem)
      if (answer) return answer
      if (hit) onHit(hit)
    }
  }
}
export const searchPicture = async (picture: Blob, query: SearchRequest, signal: AbortSignal): Promise<SearchAnswer> => {
  const parameters = new URLSearchParams({ query: JSON.stringify(query) })
  return (await ask(`/api/search/picture?${parameters}`, { method: 'POST', body: picture, signal })).json()
}
export const curve = (id: string, query: SearchRequest, signal?: AbortSignal) =>
  post<RelevanceCurve>(`/api/videos/${id}/relevance?points=${CURVE_POINTS}`, query, signal)

/** The transcript of a video, in which the words of `texts` are marked. */
export const transcript = (id: string, texts: string[], signal?: AbortSignal) =>
  get<TranscriptLine[]>(`/api/videos/${id}/transcript?${new URLSearchParams(texts.map((text) => ['text', text]))}`, signal)

export const frame = (id: string, time_s: number, side = 180) =>
  `/api/videos/${id}/frame?time_s=${Math.max(0, time_s).toFixed(2)}&short_side=${side}`
/** The address of a thumbnail at most half a second from a time. If it has a `version`, browsers cache it permanently. */
export const thumbnail = (id: string, time_s: number, version = '') =>
  `/api/videos/${id}/thumbnail?time_s=${Math.max(0, time_s).toFixed(3)}${version && `&version=${version}`}`
/** The address of a thumbnail at a moment's peak, or at its middle if the peak was trimmed off; from inside the moment, if possible. */
export const momentThumbnail = (id: string, { start_s, end_s, peak_s }: Span & { peak_s?: number }) => {
  const hasPeak = peak_s !== undefined && peak_s > start_s && peak_s < end_s
  const at_s = hasPeak ? peak_s : (start_s + end_s) / 2
  return `${thumbnail(id, at_s)}&start_s=${exact(start_s)}&end_s=${exact(end_s)}`
}
export const thumbnails = (id: string) => get<ThumbnailSheets>(`/api/videos/${id}/thumbnails`)
/** The address of one image with thumbnails at equal distances, in rows of ten. */
export const overview = (id: string, pictures: number) => `/api/videos/${id}/thumbnails/overview?pictures=${pictures}`
/** The span after its edges are moved to the exact shot changes. With `extendOnly`, the edges do not move inwards. */
export const edges = (id: string, { start_s, end_s }: Span, extendOnly: boolean) =>
  get<Span>(`/api/videos/${id}/edges?start_s=${start_s}&end_s=${end_s}&extend_only=${extendOnly}`)
/** The start time of each frame in a span, for files with a variable frame rate. The first frame may start before the span. */
export const frames = (id: string, { start_s, end_s }: Span) => get<number[]>(`/api/videos/${id}/frames?start_s=${start_s}&end_s=${end_s}`)
/** Seconds rounded to microseconds: milliseconds would lose frames of 59.94 frames per second. */
export const exact = (time_s: number) => String(Number(time_s.toFixed(6)))
/** The address of a span as an MP4 file. */
export const clip = (id: string, { start_s, end_s }: Span) =>
  `/api/videos/${id}/clip?start_s=${exact(start_s)}&end_s=${exact(end_s)}`
/** The address of a span as a proxy that browsers can play. */
export const proxy = (id: string, { start_s, end_s }: Span) =>
  `/api/videos/${id}/proxy?start_s=${exact(start_s)}&end_s=${exact(end_s)}`
export const media = (id: string) => `/api/videos/${id}/media`

/** Export moments to a file. */
export const exported = (request: ExportRequest) => ask('/api/export', jsonBody(request))
/** Export moments to a file with this name that the browser downloads. The service chooses the suffix; archives also name their format. */
export async function download(request: ExportRequest, name: string): Promise<void> {
  const answer = await exported(request)
  const suffix = /filename="[^".]*(\.[^"]+)"/.exec(answer.headers.get('content-disposition') ?? '')?.[1] ?? `.${request.format}`
  const link = document.createElement('a')
  link.href = URL.createObjectURL(await answer.blob())
  link.download = safe(name) + (suffix === '.zip' ? `_${request.format}` : '') + suffix
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

/** A name that is safe to show. Control and direction characters could make it look like another name. */
export const plain = (name: string) => name.replace(/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd')
/** A name without characters that file systems forbid. */
export const safe = (name: string) => plain(name).replace(/[\\/:*?"<>|\ufffd]|^\./g, '_')
export const fileName = (path: string) => plain(path.slice(path.lastIndexOf('/') + 1))
export const folderOf = (path: string) => plain(path.slice(0, path.lastIndexOf('/')))

/** Format seconds like a player does: 75.25 is 1:15.2. */
export function clock(time_s: number): string {
  const near = Math.round(time_s * 10)
  const tenths = Math.abs(time_s * 10 - near) === 0.5 && near % 2 ? near - 1 : near // rounds half to even, like the command line
  const hours = Math.floor(tenths / 36000)
  const minutes = Math.floor(tenths / 600) % 60
  const seconds = `${String(Math.floor(tenths / 10) % 60).padStart(2, '0')}.${tenths % 10}`
  return hours ? `${hours}:${String(minutes).padStart(2, '0')}:${seconds}` : `${minutes}:${seconds}`
}

/** Format the length of a moment. A single frame is shorter than a tenth of a second. */
export const seconds = (length_s: number) => `${length_s.toFixed(length_s < 1 ? 2 : 1)} s`

/** Format an estimated time with few digits. */
export function roundTime(time_s: number): string {
  if (time_s < 55) return `${Math.max(1, Math.round(time_s / 10)) * 10} s`
  let minutes = Math.max(1, Math.round(time_s / 60))
  if (minutes < 60) return `${minutes} min`
  if (minutes >= 600) return `${Math.round(minutes / 60)} h`
  minutes = Math.round(minutes / 5) * 5
  return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`
}
/** A number with its noun: 1 video, 2 videos. */
export const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`
