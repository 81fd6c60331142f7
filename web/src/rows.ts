// Rows of pictures: all pictures of a row have one height and together fill the width, without bars beside them.

export const GAP = 8 // between pictures, in pixels
const TALLEST = 1.05 // largest height of a row, as a multiple of the requested height
const FLATTEST = 0.7 // smallest height of a row of several pictures
const MIN_ASPECT = 0.4
const MAX_ASPECT = 3

export interface Size { width: number; height: number; row: number }

/** Width divided by height; 16:9 if the size is unknown. Extreme pictures are cropped. */
export function aspect({ width, height }: { width?: number; height?: number }): number {
  return width && height ? Math.min(MAX_ASPECT, Math.max(MIN_ASPECT, width / height)) : 16 / 9
}

/** The height of full rows of pictures with one aspect ratio. */
export function usualHeight(aspect: number, width: number, height: number): number {
  const tallest = height * TALLEST
  const count = Math.max(1, Math.ceil((width + GAP) / (tallest * aspect + GAP)))
  return Math.min(tallest, (width - GAP * (count - 1)) / (count * aspect))
}

/** Sizes of pictures with these aspect ratios, in rows of a width and about a height. The last row may be shorter than the width. */
export function justify(aspects: number[], width: number, height: number): Size[] {
  const sizes: Size[] = []
  let row: number[] = []
  let sum = 0
  let numRows = 0
  const rowHeight = () => (width - GAP * (row.length - 1)) / sum
  const finish = (height: number, isFull: boolean) => {
    let rest = width - GAP * (row.length - 1)
    row.forEach((aspect, i) => {
      const exact = Math.floor(aspect * height)
      const own = Math.max(1, isFull && i === row.length - 1 ? Math.floor(rest) : Math.min(exact, Math.floor(width)))
      rest -= own
      sizes.push({ width: own, height: Math.round(height), row: numRows })
    })
    numRows += 1
    row = []
    sum = 0
  }
  for (const aspect of aspects) {
    row.push(aspect)
    sum += aspect
    if (rowHeight() > height * TALLEST) continue
    if (row.length > 1 && rowHeight() < height * FLATTEST) {
      row.pop()
      sum -= aspect
      finish(Math.min(rowHeight(), height * TALLEST), rowHeight() <= height * TALLEST)
      row = [aspect]
      sum = aspect
    }
    if (rowHeight() <= height * TALLEST) finish(rowHeight(), true)
  }
  if (row.length) finish(usualHeight(sum / row.length, width, height), false)
  return sizes
}
