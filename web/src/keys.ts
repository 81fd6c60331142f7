// Keyboard shortcuts, similar to those of VISIONE.

import { tick } from 'svelte'
import { session } from './session.svelte'

interface Target {
  focusSearch(): void
  help(): void
  player?: { toggle(): void; seek(by: number): void }
}

export const KEYS: [string, string][] = [
  ['q or /', 'describe a moment'],
  ['Enter', 'search, or play the selected moment'],
  ['← →', 'previous or next moment'],
  ['↑ ↓', 'previous or next video'],
  ['Space', 'play or pause'],
  [', .', 'back or forward by 0.1 seconds'],
  ['[ and {', 'move the start of the moment earlier or later'],
  ['] and }', 'move the end of the moment later or earlier'],
  ['p', 'more like this; press again to undo'],
  ['n', 'less like this'],
  ['i', 'find similar moments'],
  ['v', 'play the whole video, or loop the moment again'],
  ['b', 'add the moment to the bin'],
  ['+ −', 'larger or smaller pictures'],
  ['Esc', 'close the player'],
  ['?', 'show this help']
]

const NUDGE_S = 0.5

/** Run the action of a key, unless the user is typing. */
export function keys(event: KeyboardEvent, target: Target): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
  const at = event.target as HTMLElement
  const isWriting = at.matches('input:not([type=range]), textarea, select')
  if (isWriting) {
    if (event.key === 'Escape') {
      at.blur()
      event.preventDefault() // by default Escape clears a search field
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
  if (event.key === 'Enter' && at.matches('button, summary')) return // the button handles Enter
  if (event.key === ' ' && at.matches(session.open ? 'button:not(.tile), summary' : 'button, summary')) return
  event.preventDefault()
  act()
}

function actions(target: Target): Record<string, () => void> {
  const { open, chosen, hits } = session
  const hit = hits[chosen.hit]
  const onTile = hit && { ...hit, ...hit.moments[chosen.moment] }
  const span = (session.hasMovedOn ? onTile : open) ?? onTile // the open moment, until the arrow keys select another
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
    i: () => span && void session.searchFrame(span.video, span.video_id, (span.start_s + span.end_s) / 2).then(keepFocus),
    v: () => (session.inContext = !session.inContext),
    b: () => span && session.collect(span.video, span.video_id, span.start_s, span.end_s),
    ' ': () => target.player?.toggle(),
    ',': () => target.player?.seek(-0.1),
    '.': () => target.player?.seek(0.1)
  }
}

/** If the focused element was removed, focus the selected moment, else the search box. */
export async function keepFocus(): Promise<void> {
  await tick()
  if (document.activeElement !== document.body) return
  if (document.querySelector('[data-chosen=true]')) focusChosen()
  else document.getElementById('q')!.focus()
}

/** Focus the selected moment and scroll it into view. */
export function focusChosen(): void {
  void tick().then(() => {
    const tile = document.querySelector<HTMLElement>('[data-chosen=true]')
    tile?.focus({ preventScroll: true })
    tile?.scrollIntoView({ block: 'nearest' })
  })
}
