import { createHash } from 'node:crypto'
import { readFileSync, readdirSync } from 'node:fs'
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

/** Identify the sources that the page is built from: a test notices a page that was not built again after a change. */
function sourceHash(): string {
  const files = ['src', 'public'].flatMap((folder) => readdirSync(folder).map((name) => `${folder}/${name}`))
  const hash = createHash('sha256')
  for (const file of [...files, 'index.html'].sort()) hash.update(`${file}\n`).update(readFileSync(file))
  return hash.digest('hex').slice(0, 16)
}

// Names without hashes: the built page is part of the package.
export default defineConfig({
  plugins: [
    svelte(),
    {
      name: 'source-hash',
      transformIndexHtml: () => [{ tag: 'meta', attrs: { name: 'source', content: sourceHash() }, injectTo: 'head' }]
    }
  ],
  test: { environment: './tests/client.ts' },
  server: { proxy: { '/api': 'http://127.0.0.1:8765' } },
  build: {
    outDir: '../src/untrimmed/server/page',
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    rollupOptions: { output: { entryFileNames: 'page.js', assetFileNames: 'page[extname]' } }
  }
})
