// Plays a proxy of a span while the service renders it: Media Source allows seeking before the file is whole.

const AHEAD_S = 60 // to load before the position; the rest waits
const BEHIND_S = 10 // to keep behind the position when the browser has no more space

/** Make a video element play a proxy. Times of the element are seconds from the start of the span.
 *
 * Abort the signal to stop the request; the service then stops rendering. Resolves when the element seeks to a time that
 * had to be removed to save space. Rejects if the proxy cannot be played.
 */
export function playProxy(
  video: HTMLVideoElement,
  address: string,
  durationS: number,
  signal: AbortSignal
): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = () => reject(new Error('The browser cannot play the proxy.'))
    video.addEventListener('error', fail, { once: true, signal })
    feed(video, address, durationS, signal, resolve).catch(reject)
  })
}

async function feed(
  video: HTMLVideoElement,
  address: string,
  durationS: number,
  signal: AbortSignal,
  onGone: () => void
): Promise<void> {
  const answer = await fetch(address, { signal })
  const kind = answer.headers.get('content-type') ?? ''
  if (!answer.ok || !answer.body) throw new Error((await answer.json()).detail)
  if (typeof MediaSource === 'undefined' || !MediaSource.isTypeSupported(kind)) {
    await answer.body.cancel()
    video.src = address // plays from the start, without seeking until the proxy is whole
    return
  }
  const source = new MediaSource()
  video.src = URL.createObjectURL(source)
  await once(source, 'sourceopen')
  URL.revokeObjectURL(video.src)
  source.duration = durationS
  const buffer = source.addSourceBuffer(kind)
  let firstS = 0 // the media before this time was removed
  video.addEventListener('seeking', () => video.currentTime < firstS && onGone(), { signal })
  const blocks = answer.body.getReader()
  for (let block = await blocks.read(); !block.done; block = await blocks.read()) {
    while (loadedAhead(video) > AHEAD_S) await moved(video, signal)
    while (!append(buffer, block.value)) {
      const keptS = video.currentTime - BEHIND_S
      if (buffer.buffered.length && buffer.buffered.start(0) < keptS) {
        firstS = keptS
        buffer.remove(0, keptS)
        await once(buffer, 'updateend')
      } else await moved(video, signal)
    }
    await once(buffer, 'updateend')
  }
  if (source.readyState === 'open') source.endOfStream()
}

/** Begin to append a block. Returns false if the browser has no space for it. */
function append(buffer: SourceBuffer, block: Uint8Array<ArrayBuffer>): boolean {
  try {
    buffer.appendBuffer(block)
    return true
  } catch (error) {
    if ((error as Error).name === 'QuotaExceededError') return false
    throw error
  }
}
/** The seconds that can be played from the position. */
function loadedAhead({ buffered, currentTime }: HTMLVideoElement): number {
  for (let i = 0; i < buffered.length; i++) {
    if (buffered.start(i) <= currentTime && currentTime <= buffered.end(i)) return buffered.end(i) - currentTime
  }
  return 0
}
/** Wait until the position changes. Rejects when the signal is aborted. */
async function moved(video: HTMLVideoElement, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  const stop = new AbortController()
  const events = ['timeupdate', 'seeking'].map((name) => once(video, name, stop.signal))
  await Promise.race([...events, once(signal, 'abort', stop.signal)])
  stop.abort() // removes the listeners
  signal.throwIfAborted()
}

function once(target: EventTarget, name: string, signal?: AbortSignal): Promise<Event> {
  return new Promise((resolve) => target.addEventListener(name, resolve, { once: true, signal }))
}
