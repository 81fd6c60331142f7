// The environment of tests: Node, with files compiled for browsers. Files compiled for servers would have no state.

import type { Environment } from 'vitest/runtime'

export default {
  name: 'client',
  viteEnvironment: 'client',
  setup: () => ({ teardown: () => {} })
} satisfies Environment
