// Light or dark: as the system has it, unless somebody has chosen.

import { remember, remembered } from './kept'

const KEY = 'untrimmed-theme'
const NAMES = { system: 'as the system', light: 'light', dark: 'dark' } as const
export type Choice = keyof typeof NAMES

const system = matchMedia('(prefers-color-scheme: dark)')

class Theme {
  choice = $state<Choice>('system')
  #isSystemDark = $state(system.matches)

  constructor() {
    const kept = remembered(KEY)
    this.#use(kept in NAMES ? (kept as Choice) : 'system')
    system.addEventListener('change', () => (this.#isSystemDark = system.matches))
  }
  get name(): string {
    return NAMES[this.choice]
  }
  get isDark(): boolean {
    return this.choice === 'system' ? this.#isSystemDark : this.choice === 'dark'
  }
  /** The next of the three, remembered. */
  turn(): void {
    const all = Object.keys(NAMES) as Choice[]
    this.#use(all[(all.indexOf(this.choice) + 1) % all.length])
    remember(KEY, this.choice)
  }
  #use(choice: Choice): void {
    this.choice = choice
    document.documentElement.dataset.theme = choice
  }
}

export const theme = new Theme()
