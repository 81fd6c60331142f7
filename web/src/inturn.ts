// Pictures are asked for a few at a time, once they come into view. A browser has six connections to a service: films,
// searches and curves would wait behind dozens of pictures, each of which has to be decoded.

import type { Attachment } from 'svelte/attachments'

const AT_ONCE = 3
const waiting = new Map<HTMLImageElement, string>()
const onTheWay = new Set<HTMLImageElement>()

function next(): void {
  for (const [image, src] of waiting) {
    if (onTheWay.size >= AT_ONCE) return
    waiting.delete(image)
    onTheWay.add(image)
    image.src = src
  }
}
function leave(image: HTMLImageElement): void {
  waiting.delete(image)
  if (onTheWay.delete(image)) next()
}

const sight = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const image = target as HTMLImageElement
      if (isIntersecting) waiting.set(image, image.dataset.src!)
      else waiting.delete(image)
    }
    next()
  },
  { rootMargin: '200px' }
)

/** The picture of an `img`; one that is exchanged, as under the pointer, comes at once, one that is left is given up. */
export const inTurn = (src: string): Attachment<HTMLImageElement> => (image) => {
  const before = image.dataset.src
  image.dataset.src = src
  if (image.src || (before && before !== src)) {
    if (before !== src) image.src = src
    return
  }
  const done = () => {
    sight.unobserve(image)
    leave(image)
  }
  image.addEventListener('load', done)
  image.addEventListener('error', done)
  sight.observe(image)
  return () => {
    image.removeEventListener('load', done)
    image.removeEventListener('error', done)
    sight.unobserve(image)
    waiting.delete(image)
    if (!onTheWay.delete(image)) return
    image.removeAttribute('src')
    queueMicrotask(next) // those that are left with this one are gone by then
  }
}
