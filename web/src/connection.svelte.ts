// Waits for a service that does not respond. Failed requests are repeated once it responds again.

const POLL_MS = 2000

class Connection {
  attempt = $state(0) // increases when failed requests should be repeated
  #return: Promise<void> | null = null

  /** Resolve once the service responds. Call this after a request without an answer. */
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
