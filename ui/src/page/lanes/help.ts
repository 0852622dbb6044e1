// Which gestures and keys there are.
import { el } from "../dom";

const GESTURES = "Drag to move, drag with Shift or in the strip above to choose a part, Ctrl and " +
  "wheel (or wheel after a click) to zoom, double click for one span. Keys: ";
const KEYS: [text: string, ...keys: string[]][] = [
  ["move", "←", "→"], ["lane", "↑", "↓"], ["span", ",", "."], ["zoom", "+", "−"], ["whole", "0"],
  ["longest waits", "n", "p"],
  ["marks", "m", "M"], ["lane of the thread", "t"], ["search", "/"], ["let go", "Esc"],
];

export function help(id: string): HTMLElement {
  const keys = KEYS.flatMap(([text, ...all]) =>
    [...all.flatMap((key) => [el("kbd", {}, key), " "]), text + "  "]);
  return el("p", { className: "help", id }, GESTURES, ...keys);
}
