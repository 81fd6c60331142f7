// The page's local storage, if the browser allows any.

export function remembered(key: string): string {
  try {
    return localStorage.getItem(key) ?? ''
  } catch {
    return ''
  }
}

export function stored<T>(key: string, fallback: T): T {
  try {
    return JSON.parse(remembered(key)) as T
  } catch {
    return fallback
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(key, value)
  } catch {
    // forbidden or full: the value lasts until the page is closed
  }
}

export function forget(key: string): void {
  try {
    localStorage.removeItem(key)
  } catch {
    // forbidden: there is nothing to forget
  }
}
