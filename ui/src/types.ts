// The JSON of the server: docs/schema/workbench-1.json and compare-1.json. Only what the page reads.

export interface Listed {
  id: string;
  name: string;
  about: string;
  longest_wait_ns?: number;
}
export interface Inputs {
  files: Listed[];
  complete: boolean;
  first?: string;
  serve?: string;
  gallery: Listed[];
  live: boolean;
}
export interface Program {
  name: string;
  tasks: number;
  share: number;
  waited_ns: number;
  latency_p50_ns?: number;
  latency_p99_ns?: number;
  behind: [string, number][];
  serves: boolean;
  policies: string[];
  nice: [number, number];
  cpus: string;
  groups: string[];
}
export interface Group {
  name: string;
  weight?: number;
  limit_percent?: number;
}
export interface Wait {
  cpu: number;
  from_ns: number;
  to_ns: number;
  head: string;
  text: string;
}
export interface Overview {
  id: string;
  name: string;
  kind: "recording" | "scenario";
  title: string;
  cpus: number;
  events: number;
  duration_ns: number;
  part_ns: [number, number];
  kernel: string;
  scheduler: string;
  answer: string;
  waited?: [string, string];
  server?: string;
  guess?: string;
  programs: Program[];
  more_programs: number;
  // They are not counted yet, and follow.
  programs_follow: boolean;
  groups: Group[];
  sources: string[];
  waits: Wait[];
  waits_of?: string;
}
export type Values =
  | { kind: "number"; low: number; high: number; unit: string }
  | { kind: "time"; low_ns: number; high_ns: number; step_ns: number; off: boolean }
  | { kind: "flag" }
  | { kind: "words"; words: string[]; ranked: string[]; low: number; high: number }
  | { kind: "cpus"; count: number }
  | { kind: "path" }
  | { kind: "factor"; low_permille: number; high_permille: number }
  | { kind: "limit"; high_percent: number }
  | { kind: "scheduler" }
  | { kind: "present" };
export type SettingOf = "task" | "source" | "group" | "machine" | "scheduler";
export interface Setting {
  of: SettingOf;
  key: string;
  values: Values;
  default: string;
  doc: string;
}
export interface Scheduler {
  name: string;
  summary: string;
  knobs: Setting[];
}
export interface Settings {
  settings: Setting[];
  schedulers: Scheduler[];
}
export interface Stage {
  seeds: number;
  stages: number[];
  done: number;
  all: number;
  after_ms: number;
  command: string;
}
export type Judgement = "better" | "worse" | "different" | "cannot-tell" | "same";
export interface Between {
  low?: number | null;
  high?: number | null;
}
export interface Cell {
  metric: string;
  value: { median: number; low: number; high: number };
  error_bar?: Between;
  interval?: Between;
  change?: { difference: number; error: number; error_bar?: Between; ratio: number | null; judgement: Judgement };
}
export interface Subject {
  kind: string;
  name: string;
  tasks: number;
  changed: boolean;
  cells: Cell[];
}
export interface Row {
  scheduler: string;
  variant: string;
  subjects: Subject[];
  notes: string[];
  bound?: string;
  deploy?: { what: string; shell?: string; systemd?: string; kubernetes?: string; xl?: string; caveats?: string[] };
}
export interface Study {
  seeds: number[];
  verdict: { outcome: string; certainty: string; row?: number };
  headline: { kind: string; subject: string; metric: string }[];
  served?: { classes: string[] };
  guess?: { name: string };
  rows: Row[];
  self_replay?: { trusted: boolean; distrust: string[] } | null;
  notes: string[];
}

export interface SearchProgress {
  done: number;
  all: number;
  after_ms: number;
  command: string;
  asked: string[];
  settings: { setting: string; runs: number; figures: ([number, number, number] | null)[]; front: boolean }[];
}
export interface Tuned {
  asked: { text: string; metric: string }[];
  verdict: { outcome: string; certainty: string };
  search: { settings: number };
  settings: { setting: string; scheduler: string; figures: (Cell | null)[]; front: boolean }[];
  trusted: boolean;
  notes: string[];
  partial?: { runs: number; of_runs: number };
}
export interface Diff {
  before: { file: string };
  after: { file: string };
  verdict: { outcome: string; certainty: string };
  subjects: { kind: string; name: string; tasks: [number, number]; cells: { metric: string; before: number; after: number; interval: [number, number] | null; judgement: Judgement; lacks: string | null }[] }[];
  gone: string[];
  new: string[];
  notes: string[];
}
export interface Flow {
  missing?: string;
  nodes: { name: string; serves: boolean; answered: number; messages: number }[];
  edges: FlowEdge[];
  more_edges: number;
  requests: FlowRequest[];
  notes: string[];
}
export interface FlowEdge {
  from: number;
  to: number;
  over: string;
  messages: number;
  per_second: number;
  bytes: number;
  longest_queue_bytes?: number;
  queued_p50_ns?: number;
  queued_p99_ns?: number;
}
export interface FlowRequest {
  which: "slowest" | "median";
  of: number;
  over: string;
  from_ns: number;
  to_ns: number;
  frames: { depth: number; task: string; program: string; over: string; from_ns: number; to_ns: number; states: [string, number, number][]; waited_ns: number }[];
  more_frames: number;
}
export interface Lesson {
  number: number;
  title: string;
  command: string;
  text: string[];
  question: string;
  scenario?: string;
  settings: [string, string][];
}
export interface Picture {
  duration_ns: number;
  scheduler: string;
  programs: string[];
  cpus: number[][];
  more_cpus: number;
}
export interface Watched {
  at_ns: number;
  window_ns: number;
  backend: string | null;
  events: number;
  lost: number;
  own_cpu_ns: number;
  guess: { name: string } | null;
  tasks: { task: string; cpu_ns: number; waits: number; p50_ns: number; p99_ns: number; p99_interval_ns: [number | null, number | null]; max_ns: number; waited_ns: number }[];
  worst: { task: string; tid: number; from_ns: number; length_ns: number; cpu: number; culprit: string; culprit_ns: number }[];
  delays: { waited: string; ran: string; time_ns: number }[];
}
