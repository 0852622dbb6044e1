// What is drawn where: runs, lanes, the part in view. Knows no element.
import type { LanesData } from "../data";
import { thread } from "./thread";
import { end, find, IDLE, type Run, type Spans, UNKNOWN, WAITS } from "./types";

export interface Lane {
  run: Run;
  c: Spans;
  // -1 - k: the lane of the thread that is number k of those that have one.
  cpu: number;
  y: number;
}
// A span of a lane.
export interface Place {
  lane: Lane;
  span: number;
}

// Colours: seven classes of tasks, one for all others, then these. NONE is not drawn.
export const OTHERS = 7, STRANGE = 8, DIM = 9, WAITING = 10, DYES = 11, NONE = 255;
export const AXIS = 22;
const GUTTER = 62;
// The shortest part that can be in view, in nanoseconds.
const LOWEST = 50;

export class Scene {
  readonly tasks: [string, string][];
  // Classes, as their tasks name them.
  readonly classes: string[];
  readonly classOf: Int32Array;
  // CPU time of each class, the classes by it, and their colours.
  readonly used: number[];
  readonly ranked: number[];
  readonly paint: Uint8Array;
  readonly unused: Set<number>;
  readonly cpus: number;
  readonly begin: number;
  readonly finish: number;
  readonly view: { a: number; b: number };
  // Colours by occupant, from WAITS on; the version is another one for each choice of highlighted
  // tasks, 0 without one, as in `plain`.
  readonly dyes: Uint8Array;
  version = 0;
  private choices = 0;
  readonly plain: { dyes: Uint8Array; version: number };
  // Which tasks are highlighted; null: all.
  lit: boolean[] | null = null;
  // Threads with a lane of their own.
  own: number[];
  picked: Place | null = null;
  shown: Run[] = [];
  lanes: Lane[] = [];
  laneHeight = 24;
  width = 0;
  height = 0;
  gutter = GUTTER;

  constructor(data: LanesData, readonly runs: Run[]) {
    this.tasks = data.tasks;
    this.own = data.own.slice();
    this.classes = [...new Set(data.tasks.map((t) => t[1]))];
    const place = new Map(this.classes.map((name, i) => [name, i]));
    this.classOf = Int32Array.from(data.tasks, (t) => place.get(t[1]) ?? 0);
    this.used = this.cpuTimes();
    this.ranked = this.classes.map((_, i) => i).sort((a, b) => this.used[b] - this.used[a]);
    this.paint = new Uint8Array(this.classes.length).fill(OTHERS);
    this.ranked.slice(0, OTHERS).forEach((c, i) => { this.paint[c] = i; });
    this.cpus = Math.max(0, ...runs.map((r) => r.cpus.length));
    this.unused = this.silent();
    this.begin = Math.min(...runs.map((r) => r.from_ns));
    this.finish = Math.max(...runs.map((r) => r.to_ns));
    this.view = { a: this.begin, b: this.finish };
    this.dyes = new Uint8Array(data.tasks.length - WAITS);
    this.dye();
    this.plain = { dyes: this.dyes.slice(), version: 0 };
    this.choose();
  }

  private cpuTimes(): number[] {
    const used = this.classes.map(() => 0);
    for (const run of this.runs) {
      for (const c of run.cpus) {
        for (let i = 0; i < c.n; i++) {
          if (c.who[i] >= 0) used[this.classOf[c.who[i]]] += end(run, c, i) - c.start[i];
        }
      }
    }
    return used;
  }

  // A CPU on which no task ran in any run is not drawn, unless there is no other.
  private silent(): Set<number> {
    const runsOn = (run: Run, cpu: number) => run.cpus[cpu]?.who.some((who) => who >= 0) ?? false;
    const all = Array.from({ length: this.cpus }, (_, cpu) => cpu);
    const silent = all.filter((cpu) => !this.runs.some((run) => runsOn(run, cpu)));
    return new Set(silent.length === this.cpus ? [] : silent);
  }

  // Which runs are in view at first: where two do not fit on a screen, that in which most happened.
  private choose(): void {
    const { runs } = this, isWide = (runs[0]?.cpus.length ?? 0) > 12;
    const most = runs.reduce((best, r, i) => (r.events > runs[best].events ? i : best), 0);
    const first = isWide ? most : 0;
    let total = 0;
    runs.forEach((r, i) => {
      r.on = i === first || first === 0 && i < 4 && total + r.cpus.length <= 24;
      if (r.on) total += r.cpus.length;
    });
  }

  private dye(): void {
    const { dyes, lit } = this, task = (who: number) => this.paint[this.classOf[who]];
    dyes[IDLE - WAITS] = NONE;
    dyes[UNKNOWN - WAITS] = STRANGE;
    dyes[0] = WAITING;
    for (let t = 0; t < this.tasks.length; t++) dyes[t - WAITS] = lit && !lit[t] ? DIM : task(t);
    this.version = lit ? ++this.choices : 0;
  }

  light(lit: boolean[] | null): void {
    this.lit = lit;
    this.dye();
  }

  nameOf(who: number): string {
    if (who >= 0) return this.tasks[who]?.[0] ?? "?";
    return who === IDLE ? "no task (idle)" : "unknown";
  }

  // Rows of vCPUs have names.
  rowName(run: Run, cpu: number): string {
    if (cpu < 0) return this.nameOf(this.own[-1 - cpu]);
    return run.rows?.[cpu] || "CPU " + cpu;
  }

  taskOf(place: Place): number {
    const { c, cpu } = place.lane;
    return cpu < 0 ? this.own[-1 - cpu] : c.who[place.span];
  }

  drawn(run: Run): number[] {
    return run.cpus.map((_, cpu) => cpu).filter((cpu) => !this.unused.has(cpu));
  }

  layout(width: number): void {
    const { runs, own } = this;
    this.shown = runs.filter((r) => r.on);
    const count = this.shown.reduce((n, r) => n + this.drawn(r).length + own.length, 0);
    const high = this.laneHeight = count <= 8 ? 30 : count <= 16 ? 22 : count <= 48 ? 14 : 8;
    this.lanes = [];
    let y = 0;
    for (const run of this.shown) {
      y += 24;
      own.forEach((task, k) => {
        this.lanes.push({ run, c: thread(run, task), cpu: -1 - k, y });
        y += high + 5;
      });
      for (const cpu of this.drawn(run)) {
        this.lanes.push({ run, c: run.cpus[cpu], cpu, y });
        y += high + (high > 10 ? 5 : 2);
      }
      y += 8;
    }
    this.height = y + AXIS;
    this.width = Math.max(240, width);
    const isWide = own.length > 0 || runs.some((r) => r.rows);
    this.gutter = isWide ? Math.min(128, this.width * 0.3) : GUTTER;
  }

  x(t: number): number {
    const { a, b } = this.view;
    return this.gutter + (t - a) / (b - a) * (this.width - this.gutter);
  }

  time(x: number): number {
    const { a, b } = this.view;
    return a + (x - this.gutter) / (this.width - this.gutter) * (b - a);
  }

  // Has a part in view, as far as there is one.
  place(from: number, to: number): void {
    const { begin, finish, view } = this;
    const span = Math.min(finish - begin, Math.max(LOWEST, to - from));
    view.a = Math.max(begin, Math.min(from, finish - span));
    view.b = view.a + span;
  }

  laneOf(run: Run, cpu: number): Lane | undefined {
    return this.lanes.find((l) => l.run === run && l.cpu === cpu);
  }

  // What is at a place of the picture.
  hit(x: number, y: number): Place | null {
    const high = this.laneHeight;
    const lane = this.lanes.find((l) => y >= l.y - 2 && y <= l.y + high + 4);
    if (!lane || x < this.gutter) return null;
    const { c, run } = lane, t = this.time(x), under = find(c, t);
    if (y > lane.y + high) {
      // Below the lane are the waits: the span that ended the one under the pointer.
      for (let k = under; k < c.n && k < under + 400; k++) {
        const s = c.start[k];
        if (c.wait[k] > 0 && s >= t && s - c.wait[k] <= t) return { lane, span: k };
      }
    }
    if (t < run.from_ns || t > run.to_ns) return null;
    // A narrow neighbour within two pixels is easier to point at.
    const isNear = (k: number) => k >= 0 && k < c.n && c.who[k] >= 0 &&
      this.x(c.start[k]) - 2 <= x && this.x(end(run, c, k)) + 2 >= x;
    return { lane, span: [under, under + 1, under - 1].find(isNear) ?? under };
  }
}
