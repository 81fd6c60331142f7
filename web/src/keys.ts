// Keyboard shortcuts, as in editing programs: J K L, I and O, Space, comma and full stop.

import { tick } from 'svelte'
import { bins } from './bins.svelte'
import { session } from './session.svelte'

type Edge = 'start_s' | 'end_s'
/** What keys do with the open moment. */
export interface PlayerKeys {
  toggle(): void
  shuttle(direction: 1 | -1): void
  stop(): void
  step(frames: number): void
  go(to: 'first' | 'last' | Edge): void
  mark(edge: Edge): void
  nudge(edge: Edge, frames: number): void
  toggleLoop(): void
  toggleFit(): void
  toggleSound(): void
  fullScreen(): void
  add(): void
  findSimilar(): void
}
interface Target {
  focusSearch(): void
  help(): void
  exportBin(): void
  player?: PlayerKeys
}

export const KEYS: { title: string; keys: [string, string][] }[] = [
  {
    title: 'Search and results',
    keys: [
      ['Q or /', 'describe a moment'],
      ['← →', 'play the previous or next moment'],
      ['↑ ↓', 'play the moment in the row above or below'],
      ['Enter', 'play the selected moment'],
      ['P, N', 'more like this, less like this; again to undo'],
      ['S', 'find moments like the frame on screen'],
      ['+ −', 'larger or smaller pictures']
    ]
  },
  {
    title: 'Play',
    keys: [
      ['Space', 'play or pause'],
      ['J K L', 'backwards, stop, forwards; J or L again: faster'],
      ['K + J, K + L', 'one frame back or forward'],
      [', .', 'one frame back or forward; also Shift ← →'],
      ['< >', 'ten frames back or forward'],
      ['Home, End', 'start or end of the video'],
      ['V', 'loop the moment, or play on'],
      ['M, F', 'sound, full screen']
    ]
  },
  {
    title: 'Trim',
    keys: [
      ['I, O', 'first or last frame of the moment: the one on screen'],
      ['Shift I, Shift O', 'go to the first or last frame'],
      ['[ {', 'start one frame earlier or later'],
      ['] }', 'end one frame later or earlier'],
      ['Z', 'time axis: the moment, or the whole video']
    ]
  },
  {
    title: 'Bin and page',
    keys: [
      ['B', 'add the moment to the bin'],
      ['Ctrl Z', 'undo a trim or a change of the bin; Ctrl Shift Z: redo'],
      ['Shift ← →', 'in the bin: move the moment; Delete removes it'],
      ['Shift P', 'play the bin'],
      ['E', 'export the bin'],
      ['Esc', 'close the player'],
      ['?', 'show these keys']
    ]
  }
]

const FAST = 10 // frames
const REST_MS = 150 // without another step of a held arrow key, after which the selected moment plays

let isStopHeld = false // K is down, so that J and L step
let playing = 0 // timer

addEventListener('keyup', (event) => {
  if (event.key.toLowerCase() === 'k') isStopHeld = false
})
addEventListener('blur', () => (isStopHeld = false))

/** Run the action of a key, unless the user is typing. */
export function keys(event: KeyboardEvent, target: Target): void {
  if (event.altKey || event.defaultPrevented) return
  const at = event.target as HTMLElement
  const isWriting = at.matches('input:not([type=range]), textarea, select')
  if (event.ctrlKey || event.metaKey) {
    const key = event.key.toLowerCase()
    if (isWriting || !(key === 'z' || key === 'y')) return
    event.preventDefault()
    if (key === 'y' || event.shiftKey) bins.redo()
    else bins.undo()
    return
  }
  if (isWriting) {
    if (event.key === 'Escape') {
      at.blur()
      event.preventDefault() // by default Escape clears a search field
    }
    if (event.key === 'ArrowDown' && at.id === 'q') {
      at.blur()
      focusChosen()
      session.playChosen()
      event.preventDefault()
    }
    return
  }
  const name = event.key.length === 1 ? event.key : `${event.shiftKey ? 'Shift ' : ''}${event.key}`
  const act = actions(target, event.repeat)[name] ?? actions(target, event.repeat)[name.toLowerCase()]
  if (!act || (at.matches('[role=slider], input') && /Arrow|Home|End|Page/.test(event.key))) return
  if (event.key === 'Enter' && at.matches('button, summary, a')) return // the button handles Enter
  if (event.key === ' ' && at.matches(session.open ? 'button:not(.tile), summary' : 'button, summary')) return
  event.preventDefault()
  act()
}

function actions(target: Target, isRepeat: boolean): Record<string, () => void> {
  const { open, chosen, hits } = session
  const { player } = target
  const hit = hits[chosen.hit]
  const span = open ?? (hit && { ...hit, ...hit.moments[chosen.moment] })
  const judged = session.judged ?? span
  const once = (run: () => void) => () => isRepeat || run()
  const select = (move: () => void) => () => {
    move()
    focusChosen()
    clearTimeout(playing)
    if (isRepeat) playing = window.setTimeout(() => session.playChosen(), REST_MS)
    else session.playChosen()
  }
  const shuttle = (direction: 1 | -1) => () => {
    if (isStopHeld) player?.step(direction)
    else if (!isRepeat) player?.shuttle(direction)
  }
  return {
    q: target.focusSearch,
    '/': target.focusSearch,
    '?': target.help,
    Enter: () => session.show(chosen.hit, chosen.moment),
    Escape: () => {
      session.close()
      focusChosen()
    },
    ArrowRight: select(() => session.step(1)),
    ArrowLeft: select(() => session.step(-1)),
    ArrowDown: select(() => session.stepVideo(1)),
    ArrowUp: select(() => session.stepVideo(-1)),
    '+': () => session.resize(1),
    '=': () => session.resize(1),
    '-': () => session.resize(-1),
    p: once(() => judged && void session.judge('like', judged).then(keepFocus)),
    n: once(() => judged && void session.judge('unlike', judged).then(keepFocus)),
    s: once(() => {
      if (player) player.findSimilar()
      else if (span) void session.searchFrame(span.video, span.video_id, (span.start_s + span.end_s) / 2).then(keepFocus)
    }),
    b: once(() => (player ? player.add() : span && bins.add(span))),
    P: once(() => void bins.playAll()),
    e: once(target.exportBin),
    ' ': once(() => player?.toggle()),
    k: () => {
      isStopHeld = true
      player?.stop()
    },
    j: shuttle(-1),
    l: shuttle(1),
    ',': () => player?.step(-1),
    '.': () => player?.step(1),
    'Shift ArrowLeft': () => player?.step(-1),
    'Shift ArrowRight': () => player?.step(1),
    '<': () => player?.step(-FAST),
    '>': () => player?.step(FAST),
    Home: () => player?.go('first'),
    End: () => player?.go('last'),
    i: () => player?.mark('start_s'),
    o: () => player?.mark('end_s'),
    I: () => player?.go('start_s'),
    O: () => player?.go('end_s'),
    '[': () => player?.nudge('start_s', -1),
    '{': () => player?.nudge('start_s', 1),
    ']': () => player?.nudge('end_s', 1),
    '}': () => player?.nudge('end_s', -1),
    v: once(() => player?.toggleLoop()),
    z: once(() => player?.toggleFit()),
    m: once(() => player?.toggleSound()),
    f: once(() => player?.fullScreen())
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
