// A lane as pixels: spans wider than two pixels as they are, narrower ones summed up by column.
import { columns, type Dyes } from "./bins";
import { DYES, NONE, WAITING } from "./scene";
import { end, find, type Run, type Spans, WAITS } from "./types";

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
  private readonly sums: Float32Array;

  // `scale`: pixels of the screen in one of the page.
  constructor(readonly wide: number, readonly high: number, readonly scale: number) {
    this.image = new ImageData(wide, high);
    this.all = new Uint32Array(this.image.data.buffer);
    this.sums = new Float32Array(wide * DYES);
  }

  private rect(x0: number, x1: number, y0: number, y1: number, dye: number): void {
    for (let y = y0; y < y1; y++) this.all.fill(dye, y * this.wide + x0, y * this.wide + x1);
  }

  clear(paper: number): void {
    this.all.fill(paper);
    this.sums.fill(0);
  }

  // Adds the columns of one more schedule.
  add(run: Run, c: Spans, look: Dyes, a: number, b: number): void {
    columns(run, c, look, a, b, this.wide, this.sums);
  }

  // Draws the columns between two rows, of which each has its part.
  stack(colors: Uint32Array, top: number, bottom: number, whole: number): void {
    const { all, wide, sums } = this, high = bottom - top;
    for (let x = 0; x < wide; x++) {
      let base = bottom, sum = 0;
      for (let dye = 0; dye < DYES; dye++) {
        const part = sums[x * DYES + dye];
        if (part <= 0.004) continue;
        sum += part * high / whole;
        // At least one pixel each.
        const to = Math.max(top, Math.min(base - 1, Math.round(bottom - sum)));
        for (let y = to; y < base; y++) all[y * wide + x] = colors[dye];
        base = to;
      }
    }
    sums.fill(0);
  }

  // One lane between two rows; returns which spans have room for a name.
  lane(
    run: Run, c: Spans, look: Dyes, colors: Uint32Array, a: number, b: number,
    top: number, bottom: number,
  ): Label[] {
    const labels: Label[] = [], first = find(c, a), last = find(c, b);
    if (last - first > 4 * this.wide) this.add(run, c, look, a, b);
    else this.spans(run, c, look, colors, a, b, first, last, top, bottom, labels);
    this.stack(colors, top, bottom, 1);
    return labels;
  }

  private spans(
    run: Run, c: Spans, { dyes }: Dyes, colors: Uint32Array, a: number, b: number,
    first: number, last: number, top: number, bottom: number, labels: Label[],
  ): void {
    const { wide, sums, scale } = this, each = wide / (b - a), low = (bottom - top) * 0.7;
    for (let i = first; i <= last; i++) {
      const dye = dyes[c.who[i] - WAITS];
      if (dye === NONE) continue;
      const from = Math.max(a, c.start[i]), to = Math.min(b, end(run, c, i));
      if (to <= from) continue;
      const p = (from - a) * each, q = (to - a) * each;
      if (q - p > 2 * scale) {
        const x = Math.round(p), gap = q - p > 6 * scale ? Math.max(1, Math.round(scale / 2)) : 0;
        // A wait is told from running by its height, too.
        const y = dye === WAITING ? top + Math.round(low) : top;
        this.rect(x, Math.min(wide, Math.max(x + 1, Math.round(q) - gap)), y, bottom, colors[dye]);
        if (q - p > 34 * scale && c.who[i] >= 0) labels.push({ span: i, dye, x: p, wide: q - p });
        continue;
      }
      for (let col = Math.floor(p); col <= q && col < wide; col++) {
        sums[col * DYES + dye] += Math.max(0, Math.min(q, col + 1) - Math.max(p, col));
      }
    }
  }
}
