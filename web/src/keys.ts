// The page by keyboard; the keys are those that users of VISIONE know.

import { tick } from 'svelte'
import { session } from './session.svelte'

interface Target {
  focusSearch(): void
  help(): void
  player?: { toggle(): void; seek(by: number): void }
}

export const KEYS: [string, string][] = [
  ['q or /', 'write what is to be seen'],
  ['Enter', 'search; on a moment: play it'],
  ['← →', 'the moment before, the next one'],
  ['↑ ↓', 'the video before, the next one'],
  ['Space', 'play or pause'],
  [', .', 'a tenth of a second back, forward'],
  ['[ and {', 'the start of the span earlier, later'],
  ['] and }', 'the end of the span later, earlier'],
  ['p', 'more like this; once more takes it back'],
  ['n', 'less like this'],
  ['i', 'only moments that look like this one'],
  ['v', 'the moment in its whole video, and back to the loop'],
  ['b', 'put the moment into the basket'],
  ['+ −', 'larger, smaller pictures'],
  ['Esc', 'close the player'],
  ['?', 'this help']
]

const NUDGE_S = 0.5

/** Do what a key means, unless somebody is writing. */
export function keys(event: KeyboardEvent, target: Target): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
  const at = event.target as HTMLElement
  const isWriting = at.matches('input:not([type=range]), textarea, select')
  if (isWriting) {
    if (event.key === 'Escape') {
      at.blur()
      event.preventDefault() // a search field would lose what is written
    }
    if (event.key === 'ArrowDown' && at.id === 'q') {
      at.blur()
      focusChosen()
      event.preventDefault()
    }
    return
  }
  const act = actions(target)[event.key]
  if (!act || (at.matches('[role=slider], input, video') && event.key.startsWith('Arrow'))) return
  if (event.key === 'Enter' && at.matches('button, summary')) return // the deed is its own
  if (event.key === ' ' && at.matches(session.open ? 'button:not(.tile), summary' : 'button, summary')) return
  event.preventDefault()
  act()
}

function actions(target: Target): Record<string, () => void> {
  const { open, chosen, hits } = session
  const hit = hits[chosen.hit]
  const onTile = hit && { ...hit, ...hit.moments[chosen.moment] }
  const span = (session.hasMovedOn ? onTile : open) ?? onTile // what plays, until arrows lead on to another moment
  const judged = session.judged ?? span
  const go = (move: () => void) => () => {
    move()
    focusChosen()
  }
  return {
    q: target.focusSearch,
    '/': target.focusSearch,
    '?': target.help,
    Enter: () => session.show(chosen.hit, chosen.moment),
    Escape: go(() => session.close()),
    ArrowRight: go(() => session.step(1)),
    ArrowLeft: go(() => session.step(-1)),
    ArrowDown: go(() => session.stepVideo(1)),
    ArrowUp: go(() => session.stepVideo(-1)),
    '+': () => session.resize(1),
    '=': () => session.resize(1),
    '-': () => session.resize(-1),
    '[': () => session.nudge('start_s', -NUDGE_S),
    '{': () => session.nudge('start_s', NUDGE_S),
    ']': () => session.nudge('end_s', NUDGE_S),
    '}': () => session.nudge('end_s', -NUDGE_S),
    p: () => judged && void session.judge('like', judged).then(keepFocus),
    n: () => judged && void session.judge('unlike', judged).then(keepFocus),
    i: () => span && void session.askFrame(span.video, span.video_id, (span.start_s + span.end_s) / 2).then(keepFocus),
    v: () => (session.inContext = !session.inContext),
    b: () => span && session.collect(span.video, span.video_id, span.start_s, span.end_s),
    ' ': () => target.player?.toggle(),
    ',': () => target.player?.seek(-0.1),
    '.': () => target.player?.seek(0.1)
  }
}

/** Where what had the focus is gone, the chosen moment has it, else the search box. */
export async function keepFocus(): Promise<void> {
  await tick()
  if (document.activeElement !== document.body) return
  if (document.querySelector('[data-chosen=true]')) focusChosen()
  else document.getElementById('q')!.focus()
}

/** Bring the chosen moment into view, with the focus on it. */
export function focusChosen(): void {
  void tick().then(() => {
    const tile = document.querySelector<HTMLElement>('[data-chosen=true]')
    tile?.focus({ preventScroll: true })
    tile?.scrollIntoView({ block: 'nearest' })
  })
}
