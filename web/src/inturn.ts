// Requests a few pictures at a time, once they are in view. A browser opens at most six connections to a service, so
// videos, searches and curves would wait for dozens of pictures that the service has to decode.

import type { Attachment } from 'svelte/attachments'
import { connection } from './connection.svelte'

const AT_ONCE = 3
const waiting = new Map<HTMLImageElement, string>()
const loading = new Set<HTMLImageElement>()

function next(): void {
  for (const [image, src] of waiting) {
    if (loading.size >= AT_ONCE) return
    waiting.delete(image)
    loading.add(image)
    image.src = src
  }
}
function leave(image: HTMLImageElement): void {
  waiting.delete(image)
  if (loading.delete(image)) next()
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
  { rootMargin: '200px', scrollMargin: '200px' } as IntersectionObserverInit // the list of results scrolls
)

/** Load the picture of an `img` in turn, once it is in view or, if `isFirst`, now.
 *
 * A picture that replaces a loaded one (on hover) loads at once. Removing the `img` cancels the load.
 */
export const inTurn = (src: string, isFirst = false): Attachment<HTMLImageElement> => (image) => {
  void connection.attempt
  if (image.src && image.complete && !image.naturalWidth) image.removeAttribute('src') // loading failed: try again
  const before = image.dataset.src
  image.dataset.src = src
  if (image.src) {
    if (before !== src) image.src = src
    return
  }
  const done = ({ type }: Event) => {
    image.style.visibility = type === 'error' ? 'hidden' : ''
    sight.unobserve(image)
    leave(image)
  }
  image.addEventListener('load', done)
  image.addEventListener('error', done)
  if (isFirst) {
    waiting.set(image, src)
    next()
  } else sight.observe(image)
  return () => {
    image.removeEventListener('load', done)
    image.removeEventListener('error', done)
    sight.unobserve(image)
    waiting.delete(image)
    if (!loading.delete(image)) return
    image.removeAttribute('src')
    queueMicrotask(next) // by then, images removed together with this one have left the queue
  }
}
