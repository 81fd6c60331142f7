// The heat strip under a picture: the relevance over the video's time as the intensity of one colour.

import type { HitJson } from './service'

export interface Scale { low: number; high: number }

/** The scale of all strips of an answer: from the median of all curves, which is background, to the highest value. */
export function heatScale(hits: HitJson[]): Scale {
  const values = hits.flatMap((hit) => hit.curve ?? []).sort((a, b) => a - b)
  if (!values.length) return { low: 0, high: 1 }
  return { low: values[values.length >> 1], high: values[values.length - 1] }
}

const GAMMA = 0.7 // makes low relevance visible

/** The intensity of a value, from 0 to 1. */
export function intensity(value: number, { low, high }: Scale): number {
  return high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) ** GAMMA : 0
}

/** A CSS gradient from `--cold` to `--accent`. */
export function heatGradient(curve: number[], scale: Scale): string {
  const stops = curve.map((value, i) => {
    const share = Math.round(100 * intensity(value, scale))
    return `color-mix(in srgb, var(--accent) ${share}%, var(--cold)) ${((100 * (i + 0.5)) / curve.length).toFixed(1)}%`
  })
  return `linear-gradient(to right, ${stops.join(', ')})`
}
