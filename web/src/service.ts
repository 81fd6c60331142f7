// Written by web/service.py from the OpenAPI document: run `make page` after a change.

export interface BinJson { bin_id: string; name: string; version: string; num_moments: number; duration_s: number; changed_at: number; moments: BinMomentJson[] }
export interface BinList { bins: BinSummary[]; problems: string[] }
export interface BinMomentJson { video_id: string; video: string; start_s: number; end_s: number; note: string; sentence: string; is_missing: boolean }
export interface BinMomentRequest { video_id: string; start_s: number; end_s: number; note?: string; sentence?: string; video?: string }
export interface BinReplacement { name: string; moments: BinMomentRequest[]; version: string }
export interface BinRequest { name: string; moments: BinMomentRequest[] }
export interface BinSummary { bin_id: string; name: string; version: string; num_moments: number; duration_s: number; changed_at: number }
export interface CountedFolder { folder_id: string; name: string; path: string; num_videos: number | null; is_complete: boolean; is_silent: boolean }
export interface EvidenceJson { mode: 'seen' | 'said' | 'written'; start_s: number; end_s: number; text: string; source: string; language: string; words: MatchedWordJson[] }
export interface ExportRequest { format: 'clips' | 'otio' | 'edl' | 'xml' | 'fcpxml' | 'kdenlive' | 'csv' | 'json' | 'srt' | 'vtt' | 'chapters'; moments: Mark[]; rate?: '23.976' | '24' | '25' | '29.97' | '29.97df' | '30' | '50' | '59.94' | '59.94df' | '60' | null; title?: string }
export interface Facts { library: string; version: string; num_videos: number; duration_s: number; encoder: string | null; model: string | null; sampling: string | null; modes: ('seen' | 'said' | 'written')[] }
export interface FailedFile { path: string; reason: string }
export interface FiltersJson { within?: string | null; since?: string | null; until?: string | null; min_duration_s?: number | null; max_duration_s?: number | null; min_bytes?: number | null; max_bytes?: number | null; min_height?: number | null; max_height?: number | null }
export interface Folder { folder_id: string; path: string; num_videos: number }
export interface FolderListing { folder: CountedFolder | null; parents: NamedFolder[]; folders: CountedFolder[]; num_omitted: number }
export interface FolderQuery { name: string }
export interface Health { status: 'ok' | 'empty'; num_videos: number }
export interface HitJson { rank: number; video: string; video_id: string; score: number; duration_s: number; start_s: number; end_s: number; peak_s: number; moments: MomentJson[]; confidence: number | null; then?: MomentJson[] | null; width?: number; height?: number; curve?: number[] | null; folded?: string[] | null }
export interface Job { job_id: string; paths: string[]; state: 'waiting' | 'running' | 'paused' | 'stopping' | 'done' | 'stopped' | 'failed'; position: number; total: number; num_done: number; num_skipped: number; num_moved: number; num_copied: number; num_removed: number; path: string | null; done_s: number; duration_s: number; video_s: number; speed: number | null; remaining_s: number | null; failed: FailedFile[]; num_failed: number; problem: string | null; notice: string | null; started_at: number | null; ended_at: number | null }
export interface JobRequest { folder_ids: string[] }
export interface Mark { video_id: string; start_s: number; end_s: number; note?: string }
export interface MatchedWordJson { start: number; end: number; start_s: number | null; end_s: number | null }
export interface MomentJson { start_s: number; end_s: number; score: number; peak_s: number; evidence?: EvidenceJson[] | null }
export interface NamedFolder { folder_id: string; name: string; path: string }
export interface PlaceJson { video_id: string; start_s: number; end_s?: number | null }
export interface RelevanceCurve { times_s: number[]; relevance: number[] }
export interface RemovedVideos { num_removed: number }
export interface SearchAnswer { warnings: string[]; partial: boolean; filters_exclude_all?: boolean; hits: HitJson[]; took_s: number; words?: WordWeight[] | null }
export interface SearchLine { hit?: HitJson | null; answer?: SearchAnswer | null; problem?: string | null }
export interface SearchRequest { text?: string; then?: string; within_s?: number; without?: string[]; without_in?: 'shot' | 'video'; said?: string; written?: string; modes?: ('seen' | 'said' | 'written')[]; like?: PlaceJson[]; unlike?: PlaceJson[]; weights?: WeightsJson; filters?: FiltersJson; group_by?: 'video' | 'moment'; fold?: number | null; limit?: number; moments?: number | 'all'; min_moment_s?: number; edges?: 'sampled' | 'exact'; min_score?: number | null; min_confidence?: number | null; curve_points?: number }
export interface Span { start_s: number; end_s: number }
export interface Stopped { is_stopping: boolean }
export interface ThumbnailSheets { version: string; times_s: number[]; width: number; height: number }
export interface TranscriptLine { mode: 'said' | 'written'; start_s: number; end_s: number; text: string; source: string; language: string; track: string; words: WordPlace[]; strength: number }
export interface Video { video_id: string; video: string; duration_s: number; width: number; height: number; size: number; num_frames: number; sampling: string; indexed_at: number; warnings: string; frame_rate: string; has_variable_rate: boolean; start_timecode: string; num_audio_tracks: number }
export interface VideoDetail { video_id: string; video: string; duration_s: number; width: number; height: number; size: number; num_frames: number; sampling: string; indexed_at: number; warnings: string; frame_rate: string; has_variable_rate: boolean; start_timecode: string; num_audio_tracks: number; can_be_read: boolean; problem: string | null; kind: string | null; picture_start_s: number }
export interface VideoList { total: number; videos: Video[] }
export interface Watch { folder_id: string; path: string; state: 'watching' | 'polling' | 'missing'; problem: string | null; waiting: string[]; failed: FailedFile[]; job_id: string | null }
export interface WeightsJson { text?: number; then?: number; without?: number; image?: number; like?: number; unlike?: number }
export interface WordPlace { start: number; end: number }
export interface WordWeight { word: string; weight: number }
export interface Problem { title: string; status: number; detail: string; error?: string | null }

export interface Bounds { min?: number; max?: number; step?: 'any' }
export interface Field { type: string; help: string; unit?: string; default?: unknown; maxLength?: number; bounds: Bounds }

export const QUERY: Record<'text' | 'then' | 'within_s' | 'without' | 'without_in' | 'said' | 'written' | 'modes' | 'like' | 'unlike' | 'group_by' | 'fold' | 'limit' | 'moments' | 'min_moment_s' | 'edges' | 'min_score' | 'min_confidence' | 'curve_points', Field> = {
  text: {"type": "string", "help": "Describe what the moment shows", "default": "", "bounds": {}, "maxLength": 4000},
  then: {"type": "string", "help": "What the picture shows next in the same video", "default": "", "bounds": {}, "maxLength": 4000},
  within_s: {"type": "number", "help": "Longest gap before the second moment, in seconds", "unit": "s", "default": 60.0, "bounds": {"min": 0.01, "max": 10000000.0, "step": "any"}},
  without: {"type": "array", "help": "What to avoid in the picture", "default": [], "bounds": {}},
  without_in: {"type": "string", "help": "`video`: Avoid the whole video if an unwanted scene is anywhere in it", "default": "shot", "bounds": {}},
  said: {"type": "string", "help": "What is said at the same time", "default": "", "bounds": {}, "maxLength": 4000},
  written: {"type": "string", "help": "Text on the screen at the same time", "default": "", "bounds": {}, "maxLength": 4000},
  modes: {"type": "array", "help": "Search only in what is seen, said or written. Default: all", "default": [], "bounds": {}},
  like: {"type": "array", "help": "Prefer moments that look like this place", "default": [], "bounds": {}},
  unlike: {"type": "array", "help": "Avoid moments that look like this place", "default": [], "bounds": {}},
  group_by: {"type": "string", "help": "`moment`: List moments instead of videos", "default": "video", "bounds": {}},
  fold: {"type": "number", "help": "Hide a moment if its cosine with a better moment is at least COSINE (e.g. 0.95), i.e. if the two look almost alike", "default": null, "bounds": {"min": -1.0, "max": 1.0, "step": "any"}},
  limit: {"type": "integer", "help": "Maximum number of hits", "default": 10, "bounds": {"min": 1.0, "max": 500.0}},
  moments: {"type": "integer", "help": "Maximum number of moments per video. all: all moments, in time order", "default": 3, "bounds": {"min": 1.0, "max": 50.0}},
  min_moment_s: {"type": "number", "help": "Shortest moment, in seconds", "unit": "s", "default": 1.0, "bounds": {"min": 0.0, "max": 10000000.0, "step": "any"}},
  edges: {"type": "string", "help": "`exact`: Move starts and ends of moments to the exact shot changes", "default": "sampled", "bounds": {}},
  min_score: {"type": "number", "help": "Hide hits with a lower score. Usual scores depend on the encoder and the model, so search without this option first", "default": null, "bounds": {"step": "any"}},
  min_confidence: {"type": "number", "help": "Hide hits with a lower confidence, e.g. 0.5. Hits have a confidence if the query is a sentence, the encoder is `builtin`, and the library has no model", "default": null, "bounds": {"min": 0.0, "max": 1.0, "step": "any"}},
  curve_points: {"type": "integer", "help": "Number of values of each hit's `curve`; 0: no curves", "default": 0, "bounds": {"min": 0.0, "max": 500.0}}
}

export const FILTERS: Record<'within' | 'since' | 'until' | 'min_duration_s' | 'max_duration_s' | 'min_bytes' | 'max_bytes' | 'min_height' | 'max_height', Field> = {
  within: {"type": "string", "help": "Only this folder or file", "default": null, "bounds": {}, "maxLength": 4096},
  since: {"type": "string", "help": "Changed on this day or later", "default": null, "bounds": {}, "maxLength": 40},
  until: {"type": "string", "help": "Changed on this day or earlier", "default": null, "bounds": {}, "maxLength": 40},
  min_duration_s: {"type": "number", "help": "Shortest video to include", "unit": "s", "default": null, "bounds": {"min": 0.0, "max": 10000000.0, "step": "any"}},
  max_duration_s: {"type": "number", "help": "Longest video to include", "unit": "s", "default": null, "bounds": {"min": 0.0, "max": 10000000.0, "step": "any"}},
  min_bytes: {"type": "integer", "help": "Smallest file to include", "unit": "bytes", "default": null, "bounds": {"min": 0.0, "max": 1e+18}},
  max_bytes: {"type": "integer", "help": "Largest file to include", "unit": "bytes", "default": null, "bounds": {"min": 0.0, "max": 1e+18}},
  min_height: {"type": "integer", "help": "Smallest picture height, in pixels", "unit": "pixels", "default": null, "bounds": {"min": 0.0, "max": 100000.0}},
  max_height: {"type": "integer", "help": "Largest picture height, in pixels", "unit": "pixels", "default": null, "bounds": {"min": 0.0, "max": 100000.0}}
}

export const WEIGHTS: Record<'text' | 'then' | 'without' | 'image' | 'like' | 'unlike', Field> = {
  text: {"type": "number", "help": "How much this part counts", "default": 1.0, "bounds": {"min": 0.01, "max": 1000000.0, "step": "any"}},
  then: {"type": "number", "help": "How much this part counts", "default": 1.0, "bounds": {"min": 0.01, "max": 1000000.0, "step": "any"}},
  without: {"type": "number", "help": "How much this part counts", "default": 2.0, "bounds": {"min": 0.01, "max": 1000000.0, "step": "any"}},
  image: {"type": "number", "help": "How much this part counts", "default": 1.0, "bounds": {"min": 0.01, "max": 1000000.0, "step": "any"}},
  like: {"type": "number", "help": "How much this part counts", "default": 0.75, "bounds": {"min": 0.01, "max": 1000000.0, "step": "any"}},
  unlike: {"type": "number", "help": "How much this part counts", "default": 0.15, "bounds": {"min": 0.01, "max": 1000000.0, "step": "any"}}
}
