// What is in a part of a run: how late tasks ran after a wakeup (as `schedlab show --latency`
// counts it), how long they waited in all, and behind what. Waits count where they end, whole.
import { end, find, type Run, type Spans, WAITS } from "./types";

export interface Wait {
  ns: number;
  cpu: number;
  span: number;
}

// How many of the longest waits a reader can go through.
const LONGEST = 200;

// The longest waits, of the highlighted tasks where some are.
export function longest(run: Run, lit: boolean[] | null): Wait[] {
  let all: Wait[] = [], least = 0;
  const keep = () => {
    all.sort((x, y) => y.ns - x.ns);
    all = all.slice(0, LONGEST);
    if (all.length === LONGEST) least = all[LONGEST - 1].ns;
  };
  run.cpus.forEach((c, cpu) => {
    for (let span = 0; span < c.n; span++) {
      const ns = c.wait[span];
      if (ns <= least || lit && !lit[c.who[span]]) continue;
      all.push({ ns, cpu, span });
      if (all.length > 20 * LONGEST) keep();
    }
  });
  keep();
  return all;
}

type Share = [name: string, ns: number];
const ranked = (times: Map<string, number>): Share[] => [...times].sort((x, y) => y[1] - x[1]);
const add = (times: Map<string, number>, name: string, ns: number) =>
  times.set(name, (times.get(name) ?? 0) + ns);

// Adds what was on the CPU of a span while its task waited for it; returns how many spans.
function behind(run: Run, c: Spans, i: number, tell: (who: number, ns: number) => void): number {
  const to = c.start[i], from = to - c.wait[i], first = find(c, from);
  for (let k = first; k < i; k++) {
    const part = Math.min(to, end(run, c, k)) - Math.max(from, c.start[k]);
    if (part > 0) tell(c.who[k], part);
  }
  return i - first;
}

// What was on the CPU of a span while its task waited for it: name and time, the longest first.
export function meanwhile(run: Run, c: Spans, i: number, nameOf: (who: number) => string): Share[] {
  const times = new Map<string, number>();
  behind(run, c, i, (who, ns) => add(times, nameOf(who), ns));
  return ranked(times);
}

export interface Line {
  line: string;
  ran: number;
  waited: number;
  longest: number;
  wakeups: number;
  p50: number | null;
  p99: number | null;
  behind: Share[];
  // Whether all that was waited behind was looked at.
  whole: boolean;
}

// So many spans are looked at for what was waited behind.
const ROOM = 2e6;

// What is counted of all lines, before it is known which are shown.
class Totals {
  readonly ran: Float64Array;
  readonly waited: Float64Array;
  readonly longest: Float64Array;

  constructor(count: number) {
    this.ran = new Float64Array(count);
    this.waited = new Float64Array(count);
    this.longest = new Float64Array(count);
  }

  // The lines in which something ran or waited, that which waited most first.
  first(most: number): number[] {
    const { ran, waited } = this, all: number[] = [];
    for (let line = 0; line < ran.length; line++) if (ran[line] || waited[line]) all.push(line);
    return all.sort((x, y) => waited[y] - waited[x] || ran[y] - ran[x]).slice(0, most);
  }
}

// A part of a run, and the line of each task: -1 for those that have none.
export interface Part {
  run: Run;
  a: number;
  b: number;
  lineOf: Int32Array;
  names: string[];
}

function totals({ run, a, b, lineOf, names }: Part): Totals {
  const sums = new Totals(names.length), { ran, waited, longest } = sums;
  for (const c of run.cpus) {
    if (!c.n) continue;
    const { who, wait, start } = c;
    for (let i = find(c, a), last = find(c, b); i <= last; i++) {
      const line = who[i] < 0 ? -1 : lineOf[who[i]];
      if (line < 0) continue;
      ran[line] += Math.max(0, Math.min(b, end(run, c, i)) - Math.max(a, start[i]));
      const ns = wait[i];
      if (ns < 0 || start[i] < a || start[i] > b) continue;
      waited[line] += ns;
      if (ns > longest[line]) longest[line] = ns;
    }
  }
  return sums;
}

// What is counted of the lines that are shown.
class Details {
  readonly woken: number[] = [];
  // By occupant.
  readonly behind: Float64Array;

  constructor(tasks: number) {
    this.behind = new Float64Array(tasks - WAITS);
  }

  shares(nameOf: (who: number) => string): Share[] {
    const times = new Map<string, number>();
    this.behind.forEach((ns, k) => { if (ns > 0) add(times, nameOf(k + WAITS), ns); });
    return ranked(times);
  }

  // The wakeup latencies below which a part of all is.
  latencies(...parts: number[]): (number | null)[] {
    const sorted = Float64Array.from(this.woken).sort(), n = sorted.length;
    return parts.map((q) => (n ? sorted[Math.max(0, Math.ceil(q * n) - 1)] : null));
  }
}

// Returns whether there was room for all that was waited behind.
function details({ run, a, b, lineOf }: Part, of: (Details | undefined)[]): boolean {
  let room = ROOM;
  for (const c of run.cpus) {
    if (!c.n) continue;
    const { who, wait, start } = c;
    for (let i = find(c, a), last = find(c, b); i <= last; i++) {
      if (wait[i] < 0 || who[i] < 0 || start[i] < a || start[i] > b) continue;
      const line = lineOf[who[i]], detail = line < 0 ? undefined : of[line];
      if (!detail) continue;
      if (c.wake[i] >= 0) detail.woken.push(wait[i]);
      if (wait[i] === 0 || room <= 0) continue;
      const times = detail.behind;
      room -= behind(run, c, i, (k, ns) => { times[k - WAITS] += ns; });
    }
  }
  return room > 0;
}

// The lines of a part, that which waited most first, `most` of them.
export function tally(part: Part, most: number, nameOf: (who: number) => string): Line[] {
  const sums = totals(part), shown = sums.first(most);
  const of: (Details | undefined)[] = part.names.map(() => undefined);
  const made = shown.map((line) => of[line] = new Details(part.lineOf.length));
  const whole = details(part, of);
  return shown.map((line, k): Line => {
    const [p50, p99] = made[k].latencies(0.5, 0.99);
    return {
      line: part.names[line], ran: sums.ran[line], waited: sums.waited[line],
      longest: sums.longest[line], wakeups: made[k].woken.length, p50, p99,
      behind: made[k].shares(nameOf), whole,
    };
  });
}
