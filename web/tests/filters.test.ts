import { expect, it, vi } from 'vitest'

it.each([
  [45, '45 s'],
  [90, '1:30'],
  [119.5, '1:59.5'],
  [9000, '2:30:00']
])('shows a length of %d seconds as %s', async (time_s, text) => {
  vi.stubGlobal('localStorage', { getItem: () => null })
  const { length } = await import('../src/filters')
  expect(length(time_s)).toBe(text)
})
