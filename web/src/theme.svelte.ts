// Light or dark colours. The system's setting applies until the user chooses one.

import { remember, remembered } from './storage'

const KEY = 'untrimmed-theme'
const NAMES = { system: 'system', light: 'light', dark: 'dark' } as const
export type Choice = keyof typeof NAMES

const system = matchMedia('(prefers-color-scheme: dark)')

class Theme {
  choice = $state<Choice>('system')
  #isSystemDark = $state(system.matches)

  constructor() {
    const name = remembered(KEY)
    this.#apply(name in NAMES ? (name as Choice) : 'system')
    system.addEventListener('change', () => (this.#isSystemDark = system.matches))
  }
  get name(): string {
    return NAMES[this.choice]
  }
  get isDark(): boolean {
    return this.choice === 'system' ? this.#isSystemDark : this.choice === 'dark'
  }
  /** Switch to the next of the three themes and store the choice. */
  next(): void {
    const all = Object.keys(NAMES) as Choice[]
    this.#apply(all[(all.indexOf(this.choice) + 1) % all.length])
    remember(KEY, this.choice)
  }
  #apply(choice: Choice): void {
    this.choice = choice
    document.documentElement.dataset.theme = choice
  }
}

export const theme = new Theme()
