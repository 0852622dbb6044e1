// Schedules as the lanes draw them: columns of numbers.
import type { Incident } from "../data";

// Who occupies a span, besides the number of a task.
export const IDLE = -1, UNKNOWN = -2, WAITS = -3;

// What is on one CPU, or what one thread does; a span ends where the next begins.
export interface Spans {
  n: number;
  start: Float64Array;
  who: Int32Array;
  // Why the one before stopped: a number of WHY (words.ts).
  why: Uint8Array;
  // How long the task waited before it, -1: not at all; the wakeup that began the wait, -1: none.
  wait: Float64Array;
  wake: Int32Array;
  // Of a thread: the CPU and the span there, -1 where it did not run.
  on?: { cpu: Int32Array; span: Int32Array };
}

export interface Wakes {
  n: number;
  at: Float64Array;
  cpu: Int32Array;
  task: Int32Array;
  // 0 unknown, 1 interrupt, 2 softirq, 3 + task.
  by: Int32Array;
}

// What happened beside the schedule; `what`: the lost events, the throttled task.
export const MARKS = ["lost", "throttled", "stolen"] as const;
export interface Mark {
  kind: typeof MARKS[number];
  from: number;
  to: number;
  cpu: number;
  what: number;
}

export interface Schedule {
  cpus: Spans[];
  wakes: Wakes;
  marks: Mark[];
}

export interface Run extends Schedule {
  name: string;
  from_ns: number;
  to_ns: number;
  events: number;
  focus_ns?: [number, number];
  rows?: string[];
  incident?: Incident;
  unmarked: number;
  // Whether a reader has it in view.
  on: boolean;
  // Lanes of single threads, made when first asked for.
  threads: Map<number, Spans>;
}

// The last span that began at or before a time.
export function find(c: Spans, t: number): number {
  let lo = 0, hi = c.n - 1;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (c.start[mid] <= t) lo = mid;
    else hi = mid - 1;
  }
  return lo;
}

export const end = (run: { to_ns: number }, c: Spans, i: number) =>
  (i + 1 < c.n ? c.start[i + 1] : run.to_ns);
