// A lane as pixels: spans wider than two pixels as they are, narrower ones summed up by column.
import { columns, type Dyes, Sums } from "./bins";
import { DYES, NONE, WAITING } from "./scene";
import { end, find, type Run, type Spans, WAITS } from "./types";

// A smaller part of a column is not seen.
const LEAST = 0.004;

// A span that has room for its name.
export interface Label {
  span: number;
  dye: number;
  x: number;
  wide: number;
}

// Colours as a canvas has them in memory: red first, on machines whose numbers begin with the
// lowest byte, as those of all browsers do.
export function pixel(dye: string): number {
  const [r, g, b] = (dye.match(/[0-9a-f]{2}/gi) ?? []).map((hex) => parseInt(hex, 16));
  return (255 << 24 | (b ?? 0) << 16 | (g ?? 0) << 8 | (r ?? 0)) >>> 0;
}

export class Pixels {
  readonly image: ImageData;
  private readonly all: Uint32Array;
  private readonly sums: Sums;

  // `scale`: pixels of the screen in one of the page.
  constructor(readonly wide: number, readonly high: number, readonly scale: number) {
    this.image = new ImageData(wide, high);
    this.all = new Uint32Array(this.image.data.buffer);
    this.sums = new Sums(wide);
  }

  clear(paper: number): void {
    this.all.fill(paper);
  }

  // Adds the columns of one more schedule.
  add(run: Run, c: Spans, look: Dyes, a: number, b: number): void {
    columns(run, c, look, a, b, this.sums);
  }

  // Draws the columns between two rows, of which each has its part, and forgets them.
  stack(colors: Uint32Array, top: number, bottom: number, whole: number): void {
    const { all, wide } = this, { parts, used } = this.sums, high = (bottom - top) / whole;
    for (let x = 0; x < wide; x++) {
      let base = bottom, sum = 0;
      for (let left = used[x], dye = 0; left; left >>= 1, dye++) {
        if (!(left & 1)) continue;
        const part = parts[x * DYES + dye];
        parts[x * DYES + dye] = 0;
        if (part <= LEAST) continue;
        sum += part * high;
        // At least one pixel each.
        const to = Math.max(top, Math.min(base - 1, Math.round(bottom - sum)));
        for (let y = to; y < base; y++) all[y * wide + x] = colors[dye];
        base = to;
      }
      used[x] = 0;
    }
  }

  // One lane as high as the image; returns which spans have room for a name.
  lane(
    run: Run, c: Spans, look: Dyes, colors: Uint32Array, paper: number, a: number, b: number,
  ): Label[] {
    const { all, wide, high } = this, labels: Label[] = [], waits: number[] = [];
    const first = find(c, a), last = find(c, b);
    // The first row is drawn and copied.
    all.fill(paper, 0, wide);
    const isDense = last - first > 4 * wide;
    if (isDense) this.add(run, c, look, a, b);
    else this.spans(run, c, look, colors, a, b, first, last, labels, waits);
    for (let y = 1; y < high; y++) all.copyWithin(y * wide, 0, wide);
    // A wait is told from running by its height, too.
    const low = Math.round(high * 0.7);
    for (let k = 0; k < waits.length; k += 2) {
      for (let y = low; y < high; y++) {
        all.fill(colors[WAITING], y * wide + waits[k], y * wide + waits[k + 1]);
      }
    }
    this.stack(colors, 0, high, 1);
    return labels;
  }

  // `waits`: from where to where a thread waits, pairs.
  private spans(
    run: Run, c: Spans, { dyes }: Dyes, colors: Uint32Array, a: number, b: number,
    first: number, last: number, labels: Label[], waits: number[],
  ): void {
    const { all, wide, scale, sums } = this, { who, start } = c, each = wide / (b - a);
    for (let i = first; i <= last; i++) {
      const dye = dyes[who[i] - WAITS];
      if (dye === NONE) continue;
      const from = Math.max(a, start[i]), to = Math.min(b, end(run, c, i));
      if (to <= from) continue;
      const p = (from - a) * each, q = (to - a) * each;
      if (q - p > 2 * scale) {
        const x = Math.round(p), gap = q - p > 6 * scale ? Math.max(1, Math.round(scale / 2)) : 0;
        const end = Math.min(wide, Math.max(x + 1, Math.round(q) - gap));
        if (dye === WAITING) waits.push(x, end);
        else all.fill(colors[dye], x, end);
        if (q - p > 34 * scale && who[i] >= 0) labels.push({ span: i, dye, x: p, wide: q - p });
        continue;
      }
      const at = Math.floor(p);
      if (q <= at + 1 && at < wide) {
        sums.add(at, dye, q - p);
        continue;
      }
      for (let col = at; col <= q && col < wide; col++) {
        sums.add(col, dye, Math.max(0, Math.min(q, col + 1) - Math.max(p, col)));
      }
    }
  }
}
