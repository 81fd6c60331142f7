// Changes that can be undone and redone: of bins, and of the edges of the open moment.

interface Step {
  undo: () => void
  redo?: () => void
  isPossible?: () => boolean // whether it can be undone or redone now; otherwise the step is skipped
}

const MAX_STEPS = 50

class Changes {
  #past: Step[] = [] // the last one first to undo
  #future: Step[] = [] // the last one first to redo

  get canRedo(): boolean {
    return this.#future.some(isPossible)
  }
  /** Record a change that was made. */
  add(step: Step): void {
    this.#past.push(step)
    this.#past.splice(0, this.#past.length - MAX_STEPS)
    this.#future = []
  }
  /** Undo the last change. Returns whether there was one. */
  undo(): boolean {
    const step = takeLast(this.#past)
    if (!step) return false
    step.undo()
    if (step.redo) this.#future.push(step)
    else this.#future = []
    return true
  }
  /** Make the change again that was undone last. Returns whether there was one. */
  redo(): boolean {
    const step = takeLast(this.#future)
    if (!step) return false
    step.redo!()
    this.#past.push(step)
    return true
  }
}

const isPossible = (step: Step) => step.isPossible?.() ?? true

function takeLast(steps: Step[]): Step | undefined {
  for (let step = steps.pop(); step; step = steps.pop()) if (isPossible(step)) return step
  return undefined
}

export const changes = new Changes()
