// The page's storage, if the browser allows any. `sessionStorage` is that of one tab.

type Area = 'localStorage' | 'sessionStorage'

export function remembered(key: string, area: Area = 'localStorage'): string {
  try {
    return globalThis[area].getItem(key) ?? ''
  } catch {
    return ''
  }
}

export function stored<T>(key: string, fallback: T, area: Area = 'localStorage'): T {
  try {
    return JSON.parse(remembered(key, area)) as T
  } catch {
    return fallback
  }
}

export function remember(key: string, value: string, area: Area = 'localStorage'): void {
  try {
    globalThis[area].setItem(key, value)
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
