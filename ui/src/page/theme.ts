// Colours: those of the reader's system, or light or dark, in this browser's memory.
import { redraw } from "./look";

const THEMES = ["auto", "light", "dark"] as const;
type Theme = typeof THEMES[number];
const NAMES: Record<Theme, string> = { auto: "Auto", light: "Light", dark: "Dark" };
const KEY = "schedlab-theme";
const known = (text: string | null | undefined): Theme =>
  THEMES.find((theme) => theme === text) ?? "auto";

// What the address asks for (`#theme=dark`), otherwise what was chosen last.
function first(): Theme {
  const asked = /theme=(light|dark)/.exec(location.hash);
  if (asked) return known(asked[1]);
  try {
    return known(localStorage.getItem(KEY));
  } catch {
    return "auto";
  }
}

function keep(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch { /* not allowed: it lasts as long as the page */ }
}

export function themes(button: HTMLButtonElement): void {
  const root = document.documentElement;
  let theme = first();
  const show = () => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = NAMES[theme];
    button.setAttribute("aria-label", "Colours: " + theme + ". Press to change");
    redraw();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    keep(theme);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}
