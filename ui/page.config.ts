// What a static page has inside: one classic script, one style, and the licence of what is in them.
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

const LICENCE = readFileSync(new URL("node_modules/uplot/LICENSE", import.meta.url), "utf8");

const licence = (): Plugin => ({
  name: "licence",
  generateBundle() {
    this.emitFile({ type: "asset", fileName: "uPlot-LICENSE", source: LICENCE });
  },
});

export default defineConfig({
  base: "/",
  publicDir: false,
  plugins: [licence()],
  build: {
    outDir: (process.env.SCHEDLAB_UI_OUT ?? "dist") + "/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      input: "src/page/main.ts",
      output: {
        format: "iife", entryFileNames: "page.js", assetFileNames: "page[extname]",
        codeSplitting: false,
      },
    },
  },
});
