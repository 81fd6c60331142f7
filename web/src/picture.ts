// The picture of a query: the middle of a dropped video, and the copies that survive a reload of the tab.

import * as api from './api'

const KEY = 'untrimmed.picture ' // followed by the number of the picture
const MAX_COPIES = 8
const MAX_KEPT = 1 << 20 // bytes of a picture that is kept unchanged; browsers keep about 5 MB of text
const MAX_WAIT_MS = 5000 // for a frame after a seek
const KEPT_SIDE = 720 // shorter side of a smaller copy, in pixels

const ids = new WeakMap<File, number>()
const pictures = new Map<number, File>() // of this page
let lastId = 0

/** Whether a file is a video. Browsers report no type for some containers, so the suffix counts, too. */
export const isVideo = (file: File) => file.type.startsWith('video/') || /\.(avi|flv|m2ts?|m4v|mkv|mov|mpe?g|mts|mxf|ts|vob|wmv)$/i.test(file.name)

/** The picture, unchanged. Rejects if the browser cannot read it. */
export async function checked(picture: File): Promise<File> {
  const bitmap = await createImageBitmap(picture)
  bitmap.close()
  return picture
}

/** The frame in the middle of a video, as a picture. Rejects if the browser cannot play the video. */
export async function middleFrame(file: File): Promise<File> {
  const video = document.createElement('video')
  const address = URL.createObjectURL(file)
  const until = (name: string) =>
    new Promise((resolve, reject) => {
      video.addEventListener(name, resolve, { once: true })
      video.addEventListener('error', reject, { once: true })
    })
  try {
    video.muted = true
    video.preload = 'auto'
    const loaded = until('loadeddata')
    video.src = address
    await loaded
    const time_s = Number.isFinite(video.duration) ? video.duration / 2 : 0
    const found = until('seeked')
    video.currentTime = time_s
    await found
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight)
    const pen = canvas.getContext('2d')!
    const deadline = performance.now() + MAX_WAIT_MS
    // On a busy machine Chromium may report the end of a seek before it has a frame. Then it draws nothing.
    do {
      await new Promise(requestAnimationFrame)
      pen.drawImage(video, 0, 0)
    } while (!pen.getImageData(0, 0, 1, 1).data[3] && performance.now() < deadline)
    return new File([await canvas.convertToBlob()], `${file.name} at ${api.clock(time_s)}`, { type: 'image/png' })
  } finally {
    video.removeAttribute('src')
    URL.revokeObjectURL(address)
  }
}

/** A copy of a large picture that is small enough to be kept. Encoders read less than this. */
async function smaller(picture: File): Promise<Blob> {
  if (picture.size <= MAX_KEPT) return picture
  const bitmap = await createImageBitmap(picture)
  const scale = Math.min(1, KEPT_SIDE / Math.min(bitmap.width, bitmap.height))
  const canvas = new OffscreenCanvas(Math.round(bitmap.width * scale), Math.round(bitmap.height * scale))
  canvas.getContext('2d')!.drawImage(bitmap, 0, 0, canvas.width, canvas.height)
  bitmap.close()
  return canvas.convertToBlob({ type: 'image/jpeg', quality: 0.92 })
}

/** The number of a picture in a history entry. The picture is kept until the tab is closed. */
export function pictureId(picture: File): number {
  const known = ids.get(picture)
  if (known !== undefined) return known
  lastId = Math.max(Date.now(), lastId + 1) // also larger than the numbers from before a reload
  hold(lastId, picture)
  void keep(lastId, picture)
  return lastId
}
function hold(id: number, picture: File): void {
  ids.set(picture, id)
  pictures.set(id, picture)
}
/** Copy a picture to the session storage, so that it survives a reload. */
async function keep(id: number, picture: File): Promise<void> {
  try {
    const copy = await smaller(picture)
    const data = await new Promise<string>((resolve, reject) => {
      const reader = new FileReader()
      reader.onload = () => resolve(String(reader.result))
      reader.onerror = reject
      reader.readAsDataURL(copy)
    })
    const text = JSON.stringify({ name: picture.name, data })
    const older = keptIds()
    for (const oldest of older.splice(0, older.length - MAX_COPIES + 1)) sessionStorage.removeItem(KEY + oldest)
    while (!isStored(KEY + id, text) && older.length) sessionStorage.removeItem(KEY + older.shift())
  } catch {
    // forbidden or unreadable: the picture lasts until the page is reloaded
  }
}
/** The numbers of the copies in the session storage, oldest first. */
const keptIds = () =>
  Object.keys(sessionStorage)
    .filter((key) => key.startsWith(KEY))
    .map((key) => Number(key.slice(KEY.length)))
    .sort((a, b) => a - b)
/** Store a text. Returns whether there was room for it. */
function isStored(key: string, text: string): boolean {
  try {
    sessionStorage.setItem(key, text)
    return true
  } catch {
    return false
  }
}

/** The picture with this number, if it is still kept. */
export function keptPicture(id: number | null): File | null {
  if (id === null) return null
  const held = pictures.get(id)
  if (held) return held
  try {
    const { name, data } = JSON.parse(sessionStorage.getItem(KEY + id)!) as { name: string; data: string }
    const bytes = Uint8Array.from(atob(data.slice(data.indexOf(',') + 1)), (letter) => letter.charCodeAt(0))
    const picture = new File([bytes], name)
    hold(id, picture)
    return picture
  } catch {
    return null
  }
}
