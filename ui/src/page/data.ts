// The JSON in a page, as crates/report and crates/ui write it. sample.ts holds one of each as the
// Rust structs give it (a test of crates/report compares), so that tsc compares both.

// Nanoseconds.
export type Ns = number;
// Where a number lies with 95 %; null: an end that is not known.
export type Between = [Ns | null, Ns | null];

export interface Percentiles {
  p50: Ns;
  p90: Ns;
  p99: Ns;
  p999: Ns | null;
  p9999: Ns | null;
  max: Ns;
  intervals: Between[];
}
// One distribution: which part of all values is longer than each of `ns`.
export interface Curve {
  name: string;
  style: number;
  count: number;
  ladder: Percentiles;
  ns: Ns[];
  longer: number[];
}
export interface Measure {
  name: string;
  about: string;
  curves: Curve[];
}

export interface LadderLine {
  name: string;
  style: number;
  ns: (Ns | null)[];
  between: Between[];
  // By rung: whether it cannot be told from the first run's. Static pages do not say.
  open?: boolean[];
}
export interface LadderData {
  rungs: string[];
  curves: LadderLine[];
}

export interface Trace {
  name: string;
  style: number;
  values: number[];
}
export interface SeriesData {
  title: string;
  unit: string;
  about: string;
  from_ns: Ns;
  step_ns: Ns;
  traces: Trace[];
}

export interface SweepLine {
  name: string;
  scale: "time" | "part" | "number";
  at: (number | null)[];
  between: ([number, number] | null)[];
  text: string[];
}
export interface SweepData {
  what: string;
  values: string[];
  lines: SweepLine[];
}

// What a flight recorder kept a recording for.
export interface Incident {
  from_ns: Ns;
  to_ns: Ns;
  text: string;
}
export interface LaneRun {
  name: string;
  style: number;
  cpus: number;
  from_ns: Ns;
  to_ns: Ns;
  whole_ns: Ns;
  focus_ns?: [Ns, Ns];
  events: number;
  rows?: string[];
  incident?: Incident;
  // Marks for which there was no room.
  unmarked: number;
  // A summary for a first look.
  summed?: boolean;
  // Columns of numbers, deflated, in base 85: crates/report/src/lanes/pack.rs says which.
  data: string;
}
export interface LanesData {
  // Name and class.
  tasks: [string, string][];
  runs: LaneRun[];
  // Tasks that have a lane of their own at first.
  own: number[];
}
