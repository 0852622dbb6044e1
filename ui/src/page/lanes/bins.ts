// Which part of each column of pixels each colour has. What is narrower than one is summed up,
// and where many spans are in one, by sums made once: the work of a frame is bounded by the
// picture.
import { DYES, NONE } from "./scene";
import { end, find, type Run, type Spans, WAITS } from "./types";

// The sums are those before every 16th span: 5.5 bytes a span.
const BLOCK = 16;

export interface Dyes {
  dyes: Uint8Array;
  version: number;
}

// By column, then by colour: which part each has. `used`: one bit for each colour that has some.
export class Sums {
  readonly parts: Float32Array;
  readonly used: Uint16Array;

  constructor(readonly count: number) {
    this.parts = new Float32Array(count * DYES);
    this.used = new Uint16Array(count);
  }

  add(column: number, dye: number, part: number): void {
    this.parts[column * DYES + dye] += part;
    this.used[column] |= 1 << dye;
  }
}

interface Before {
  version: number;
  before: Float64Array;
}
const made = new WeakMap<Spans, Before>();

function beforeOf(run: Run, c: Spans, { dyes, version }: Dyes): Float64Array {
  const known = made.get(c);
  if (known && known.version === version) return known.before;
  const before = known?.before ?? new Float64Array((Math.ceil(c.n / BLOCK) + 1) * DYES);
  const sum = new Float64Array(DYES);
  for (let i = 0; i < c.n; i++) {
    if (i % BLOCK === 0) before.set(sum, i / BLOCK * DYES);
    const dye = dyes[c.who[i] - WAITS];
    if (dye !== NONE) sum[dye] += end(run, c, i) - c.start[i];
  }
  before.set(sum, Math.ceil(c.n / BLOCK) * DYES);
  made.set(c, { version, before });
  return before;
}

// The last span that began at or before a time, looked for from an earlier one on.
function onward(c: Spans, from: number, t: number): number {
  let step = 1, lo = from;
  while (lo + step < c.n && c.start[lo + step] <= t) {
    lo += step;
    step *= 2;
  }
  let hi = Math.min(c.n, lo + step);
  while (hi - lo > 1) {
    const mid = (lo + hi) >> 1;
    if (c.start[mid] <= t) lo = mid;
    else hi = mid;
  }
  return lo;
}

// Adds which part of each column between `a` and `b` each colour has.
export function columns(
  run: Run, c: Spans, look: Dyes, a: number, b: number, sums: Sums,
): void {
  if (!c.n) return;
  const { dyes } = look, { who, start } = c, { count } = sums, wide = (b - a) / count;
  const before = beforeOf(run, c, look);
  let i = find(c, a);
  for (let col = 0; col < count; col++) {
    const from = Math.max(a + col * wide, start[i]);
    const to = Math.min(a + (col + 1) * wide, run.to_ns);
    if (to <= from) continue;
    const last = onward(c, i, to);
    const part = (k: number, ns: number) => {
      const dye = dyes[who[k] - WAITS];
      if (dye !== NONE) sums.add(col, dye, ns / wide);
    };
    if (last === i) {
      part(i, to - from);
      continue;
    }
    part(i, start[i + 1] - from);
    const first = Math.ceil((i + 1) / BLOCK), behind = Math.floor(last / BLOCK);
    let k = i + 1;
    if (behind > first) {
      for (; k < first * BLOCK; k++) part(k, start[k + 1] - start[k]);
      const p = first * DYES, q = behind * DYES;
      for (let d = 0; d < DYES; d++) {
        if (before[q + d] > before[p + d]) sums.add(col, d, (before[q + d] - before[p + d]) / wide);
      }
      k = behind * BLOCK;
    }
    for (; k < last; k++) part(k, start[k + 1] - start[k]);
    part(last, to - start[last]);
    i = last;
  }
}
