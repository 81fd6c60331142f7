// Plays a proxy of a span while the service renders it: Media Source allows seeking before the file is whole.

/** Make a video element play a proxy. Times of the element are seconds from the start of the span.
 *
 * Abort the signal to stop the request; the service then stops rendering. Rejects if the proxy cannot be played.
 */
export async function playProxy(
  video: HTMLVideoElement,
  address: string,
  durationS: number,
  signal: AbortSignal
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
  const blocks = answer.body.getReader()
  for (let block = await blocks.read(); !block.done; block = await blocks.read()) {
    buffer.appendBuffer(block.value)
    await once(buffer, 'updateend')
  }
  if (source.readyState === 'open') source.endOfStream()
}

function once(target: EventTarget, name: string): Promise<Event> {
  return new Promise((resolve) => target.addEventListener(name, resolve, { once: true }))
}
