// The heat strip under a picture: the relevance over the video's time as the intensity of one colour.

import type { HitJson } from './service'

const MAX_HITS = 6 // that set the scale, so that it does not change with every hit that arrives

export interface Scale { low: number; high: number }

/** The scale of all strips of an answer: from the median of the first curves, which is background, to the highest value. */
export function heatScale(hits: HitJson[]): Scale {
  const values = hits.slice(0, MAX_HITS).flatMap((hit) => hit.curve ?? []).sort((a, b) => a - b)
  if (!values.length) return { low: 0, high: 1 }
  return { low: values[values.length >> 1], high: values[values.length - 1] }
}

const GAMMA = 0.7 // makes low relevance visible

/** The intensity of a value, from 0 to 1. */
export function intensity(value: number, { low, high }: Scale): number {
  return high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) ** GAMMA : 0
}

/** A CSS mask that shows a colour by the intensity of a curve. */
export function heatMask(curve: number[], scale: Scale): string {
  const stops = curve.map((value, i) => {
    const alpha = Math.round(255 * intensity(value, scale)).toString(16).padStart(2, '0')
    return `#000000${alpha} ${((100 * (i + 0.5)) / curve.length).toFixed(1)}%`
  })
  return `linear-gradient(to right, ${stops.join(', ')})`
}
