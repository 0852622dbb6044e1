// One script and one style under fixed names: what the program has inside is compared with what this gives.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

const licence = readFileSync(new URL("node_modules/preact/LICENSE", import.meta.url), "utf8").trim();

export default defineConfig({
  base: "/",
  build: {
    outDir: process.env.SCHEDLAB_UI_OUT ?? "dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      input: "src/main.tsx",
      output: { postBanner: (chunk) => (chunk.isEntry ? "/*! Preact (https://preactjs.com)\n" + licence + "\n*/" : ""), entryFileNames: "workbench.js", assetFileNames: "workbench[extname]", codeSplitting: false },
    },
  },
});
