// Whether the service responds. What failed while it did not is requested again once it does.

const POLL_MS = 2000

class Connection {
  attempt = $state(0) // grows when requests that failed should be made again
  #return: Promise<void> | null = null

  /** Fulfilled once the service responds. Call this when a request was not answered. */
  returns(): Promise<void> {
    return (this.#return ??= this.#poll())
  }
  async #poll(): Promise<void> {
    do await new Promise((wake) => setTimeout(wake, POLL_MS))
    while (!(await isReachable()))
    this.#return = null
    this.attempt += 1
  }
}

/** Whether the service responds, even with an error. */
export const isReachable = () => fetch('/api/facts').then(() => true, () => false)
export const connection = new Connection()
