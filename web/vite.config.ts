import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// Names without hashes: the built page is part of the package, and is compared byte by byte with a fresh build.
export default defineConfig({
  plugins: [svelte()],
  server: { proxy: { '/api': 'http://127.0.0.1:8765' } },
  build: {
    outDir: process.env.OUT ?? '../src/untrimmed/server/page',
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    rollupOptions: { output: { entryFileNames: 'page.js', assetFileNames: 'page[extname]' } }
  }
})
