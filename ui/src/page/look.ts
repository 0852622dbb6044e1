// Colours and dashes, and what is drawn anew when they change.

const style = () => getComputedStyle(document.documentElement);
export const css = (name: string) => style().getPropertyValue(name).trim();

// Key of a run: one of seven colours with one of four dashes, so that 28 runs differ. 0 is the
// recording, 1 the first row.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
export function dash(key: number): number[] {
  if (key < 2) return key ? [] : [2, 3];
  return DASHES[((key - 2) % 7 + Math.floor((key - 2) / 7)) % 4];
}
export const hue = (key: number) => (key < 2 ? key : 2 + (key - 2) % 7);
export const color = (key: number) => css("--v" + hue(key));

// Black or white, whichever is easier to read on a colour (the contrast of WCAG 2).
export function ink(dye: string): string {
  const part = (hex: string) => {
    const v = parseInt(hex, 16) / 255;
    return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
  };
  const [r, g, b] = (dye.match(/[0-9a-f]{2}/gi) ?? ["00", "00", "00"]).map(part);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

interface Drawn {
  figure: Element;
  draw: () => void;
}
let drawn: Drawn[] = [];

// Has `draw` called when the colours change, as long as the figure is in the page.
export function again(figure: Element, draw: () => void): void {
  drawn = drawn.filter((one) => one.figure.isConnected).concat({ figure, draw });
  // A test sees that what left the page is forgotten.
  document.documentElement.dataset.redrawn = String(drawn.length);
}

export function redraw(): void {
  drawn.forEach((one) => one.draw());
}
