// What the browser remembers of this page, where it is allowed to remember anything.

export function remembered(key: string): string {
  try {
    return localStorage.getItem(key) ?? ''
  } catch {
    return ''
  }
}

export function stored<T>(key: string, otherwise: T): T {
  try {
    return JSON.parse(remembered(key)) as T
  } catch {
    return otherwise
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(key, value)
  } catch {
    // forbidden, or full: it lasts as long as the page is open
  }
}
