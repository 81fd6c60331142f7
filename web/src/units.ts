// Units of fields. The page has sizes in megabytes; the request and the address have them in bytes.

import type { Value } from './address'
import type { Bounds, Field } from './service'

const MEGABYTE = 1e6

/** The label of an input, with the unit of the number that the user enters. */
export function withUnit(label: string, { unit = '' }: Field): string {
  if (!unit || label.endsWith(` ${unit}`)) return label
  return `${label} (${unit === 'bytes' ? 'MB' : unit})`
}

/** The value of a field as the page shows it. */
export function toShown(value: Value, { unit }: Field): Value {
  return typeof value === 'number' && unit === 'bytes' ? value / MEGABYTE : value
}

/** The value of a field for the service, from the value that the user entered. */
export function fromShown(value: Value, { unit }: Field): Value {
  return typeof value === 'number' && unit === 'bytes' ? Math.round(value * MEGABYTE) : value
}

/** The bounds of an input, in the unit that the page shows. */
export function shownBounds({ unit, bounds }: Field): Bounds {
  return unit === 'bytes' ? { min: bounds.min! / MEGABYTE, max: bounds.max! / MEGABYTE, step: 'any' } : bounds
}
