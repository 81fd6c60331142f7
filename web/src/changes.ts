// Changes that can be undone and redone: of bins, and of the edges of the open moment.

/** A change. `name` is shown when the change is undone or redone. `of` is the key of the bin that it changes.
 *
 * `undo` and `redo` return false if there is nothing left to change; the step is then skipped.
 */
interface Step {
  name: string
  of?: string
  undo: () => boolean | void
  redo?: () => boolean | void
}

const MAX_STEPS = 50

class Changes {
  #past: Step[] = [] // the last one first to undo
  #future: Step[] = [] // the last one first to redo

  /** Forget the changes of a bin. */
  forget(key: string): void {
    this.#past = this.#past.filter(({ of }) => of !== key)
    this.#future = this.#future.filter(({ of }) => of !== key)
  }
  get canRedo(): boolean {
    return this.#future.length > 0
  }
  /** Record a change that was made. */
  add(step: Step): void {
    this.#past.push(step)
    this.#past.splice(0, this.#past.length - MAX_STEPS)
    this.#future = []
  }
  /** Undo the last change. Returns its name, or null if there was none. */
  undo(): string | null {
    for (let step = this.#past.pop(); step; step = this.#past.pop()) {
      if (step.undo() === false) continue
      if (step.redo) this.#future.push(step)
      else this.#future = []
      return step.name
    }
    return null
  }
  /** Redo the change that was undone last. Returns its name, or null if there was none. */
  redo(): string | null {
    for (let step = this.#future.pop(); step; step = this.#future.pop()) {
      if (step.redo!() === false) continue
      this.#past.push(step)
      return step.name
    }
    return null
  }
}

export const changes = new Changes()
