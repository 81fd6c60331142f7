// The stored pictures of videos. Their times are requested once per video, so that each picture has one address.

import * as api from './api'
import type { ThumbnailSheets } from './service'

const MAX_DISTANCE_S = 0.5 // of a picture from the requested time; the service decodes frames that are farther away
const requests = new Map<string, Promise<ThumbnailSheets | null>>()

/** The stored pictures of a video; null if the service cannot be asked. */
export function storedPictures(id: string): Promise<ThumbnailSheets | null> {
  let request = requests.get(id)
  if (!request) {
    request = api.thumbnails(id).catch(() => {
      requests.delete(id)
      return null
    })
    requests.set(id, request)
  }
  return request
}

/** The address of the picture nearest to a time. */
export function pictureAt(id: string, time_s: number, stored: ThumbnailSheets | null): string {
  const times_s = stored?.times_s ?? []
  let low = 0
  let high = times_s.length - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if ((times_s[middle] + times_s[middle + 1]) / 2 < time_s) low = middle + 1
    else high = middle
  }
  const nearest_s = times_s[low]
  const isStored = nearest_s !== undefined && Math.abs(nearest_s - time_s) <= MAX_DISTANCE_S
  return isStored ? api.thumbnail(id, nearest_s, stored!.version) : api.thumbnail(id, time_s)
}
