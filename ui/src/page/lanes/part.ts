// What is in a part of a run: how late tasks ran after a wakeup (as `schedlab show --latency` counts
// it), how long they waited in all, and behind what. Waits count where they end, whole.
import { end, find, type Run, type Spans } from "./types";

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

class Sum {
  ran = 0;
  waited = 0;
  longest = 0;
  readonly woken: number[] = [];
  // By occupant.
  readonly behind = new Map<number, number>();

  line(line: string, nameOf: (who: number) => string, whole: boolean): Line {
    const sorted = Float64Array.from(this.woken).sort(), n = sorted.length;
    const at = (q: number) => (n ? sorted[Math.max(0, Math.ceil(q * n) - 1)] : null);
    const times = new Map<string, number>();
    this.behind.forEach((ns, who) => add(times, nameOf(who), ns));
    const { ran, waited, longest } = this;
    return {
      line, ran, waited, longest, wakeups: n, p50: at(0.5), p99: at(0.99),
      behind: ranked(times), whole,
    };
  }
}

// So many spans are looked at for what was waited behind.
const ROOM = 2e6;

// The lines of the part from `a` to `b`, that which waited most first. `lineOf`: the line of a
// task, by number; -1: it has none.
export function tally(
  run: Run, a: number, b: number, lineOf: Int32Array, names: string[],
  nameOf: (who: number) => string,
): Line[] {
  const sums = new Map<number, Sum>();
  let room = ROOM;
  for (const c of run.cpus) {
    if (!c.n) continue;
    for (let i = find(c, a), last = find(c, b); i <= last; i++) {
      const line = c.who[i] < 0 ? -1 : lineOf[c.who[i]];
      if (line < 0) continue;
      let sum = sums.get(line);
      if (!sum) sums.set(line, sum = new Sum());
      sum.ran += Math.max(0, Math.min(b, end(run, c, i)) - Math.max(a, c.start[i]));
      const wait = c.wait[i];
      if (wait < 0 || c.start[i] < a || c.start[i] > b) continue;
      if (c.wake[i] >= 0) sum.woken.push(wait);
      sum.waited += wait;
      if (wait > sum.longest) sum.longest = wait;
      if (wait === 0 || room <= 0) continue;
      const times = sum.behind;
      room -= behind(run, c, i, (who, ns) => times.set(who, (times.get(who) ?? 0) + ns));
    }
  }
  return [...sums].map(([line, sum]) => sum.line(names[line], nameOf, room > 0))
    .sort((x, y) => y.waited - x.waited || y.ran - x.ran);
}
