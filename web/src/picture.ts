// The picture of a query: the middle of a dropped video, and the copy that survives a reload of the tab.

import * as api from './api'

const KEY = 'untrimmed.picture'
const MAX_KEPT = 1 << 20 // bytes of a picture that is kept unchanged; browsers keep about 5 MB of text
const MAX_WAIT_MS = 5000 // for a frame after a seek
const KEPT_SIDE = 720 // shorter side of a smaller copy, in pixels

export const isVideo = (file: File) => file.type.startsWith('video/')

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

/** Keep a picture with the address of its query until the tab is closed. */
export async function keepPicture(picture: File | null, address: string): Promise<void> {
  try {
    sessionStorage.removeItem(KEY)
    if (!picture) return
    const kept = await smaller(picture)
    const data = await new Promise<string>((resolve, reject) => {
      const reader = new FileReader()
      reader.onload = () => resolve(String(reader.result))
      reader.onerror = reject
      reader.readAsDataURL(kept)
    })
    sessionStorage.setItem(KEY, JSON.stringify({ address, name: picture.name, data }))
  } catch {
    // forbidden or too large: the picture lasts until the page is reloaded
  }
}

/** The picture that was kept with this address. */
export function keptPicture(address: string): File | null {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? 'null') as { address: string; name: string; data: string } | null
    if (kept?.address !== address) return null
    const bytes = Uint8Array.from(atob(kept.data.slice(kept.data.indexOf(',') + 1)), (letter) => letter.charCodeAt(0))
    return new File([bytes], kept.name)
  } catch {
    return null
  }
}
