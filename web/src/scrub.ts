// Scrubbing over a picture: one image with many stored pictures of the video, loaded once, so that a step needs no request.

import { overview } from './api'

const MAX_PICTURES = 100
const MAX_KEPT = 40 // images
const COLUMNS = 10

/** An image of pictures from equal parts of a video, in rows of ten. */
export interface Sprite { address: string; pictures: number; image: HTMLImageElement }

const sprites = new Map<string, Promise<Sprite | null>>()

/** The number of pictures to step through: about one a second. */
export const numPictures = (duration_s: number) => Math.min(MAX_PICTURES, Math.max(1, Math.round(duration_s)))

/** Load the image of a video; null if its pictures are not stored, or the service does not respond. */
export function sprite(id: string, duration_s: number): Promise<Sprite | null> {
  let loading = sprites.get(id)
  if (loading) sprites.delete(id) // it becomes the last one
  else {
    const pictures = numPictures(duration_s)
    const image = new Image()
    image.src = overview(id, pictures)
    loading = image.decode().then(
      () => ({ address: image.src, pictures, image }),
      () => {
        sprites.delete(id)
        return null
      }
    )
  }
  sprites.set(id, loading)
  if (sprites.size > MAX_KEPT) sprites.delete(sprites.keys().next().value!)
  return loading
}

/** The CSS background that shows the picture of a part of the video, from 0 to 1. */
export function background({ address, pictures }: Sprite, part: number): string {
  const cell = Math.min(pictures - 1, Math.max(0, Math.floor(part * pictures)))
  const columns = Math.min(COLUMNS, pictures)
  const rows = Math.ceil(pictures / COLUMNS)
  const position = (index: number, count: number) => `${count > 1 ? (100 * index) / (count - 1) : 0}%`
  const place = `${position(cell % COLUMNS, columns)} ${position(Math.floor(cell / COLUMNS), rows)}`
  return `url("${address}") ${place} / ${100 * columns}% ${100 * rows}% no-repeat`
}
