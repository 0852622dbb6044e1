// One script and one style under fixed names: what the program has inside is compared with what this gives.
import { defineConfig } from "vite";

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
      output: { entryFileNames: "workbench.js", assetFileNames: "workbench[extname]", codeSplitting: false },
    },
  },
});
