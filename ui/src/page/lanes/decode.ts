// From columns of numbers to schedules: the other side of crates/report/src/lanes/pack.rs, which
// says what is in which column. Each event is said by what is known before it.
import type { LaneRun } from "../data";
import { Column, inflate, Reader } from "./bytes";
import { type Mark, MARKS, type Schedule, type Spans, UNKNOWN } from "./types";

const WAKE = 0, LOST = 1, SWITCH = 2;
const RUNNING = 3, AGAIN = 4, ANY = 5;
const NO_TASK = 0, OTHER = 1, WAITING = 2;
// Occupants, as they are written.
const STRANGE = 0, IDLE = 1, TASK = 2;

// What follows from the events so far.
class Known {
  readonly on: Int32Array;
  private readonly queues: number[][];
  // CPUs, that on which something happened last at the end.
  private readonly order: number[];
  // By task: 1 + the CPU on which it waits, and on which it was last; whether it runs; 1 + the task
  // that woke it last, and which it woke last.
  private readonly waits: Int32Array;
  readonly last: Int32Array;
  private readonly runs: Uint8Array;
  readonly waker: Int32Array;
  readonly wakee: Int32Array;

  constructor(cpus: number, tasks: number) {
    this.on = new Int32Array(cpus);
    this.queues = Array.from({ length: cpus }, () => []);
    this.order = Array.from({ length: cpus }, (_, cpu) => cpu);
    this.waits = new Int32Array(tasks);
    this.last = new Int32Array(tasks);
    this.runs = new Uint8Array(tasks);
    this.waker = new Int32Array(tasks);
    this.wakee = new Int32Array(tasks);
  }

  // The CPU of a rank, which is the first from then on.
  ranked(rank: number): number {
    const cpu = this.order[this.order.length - 1 - rank];
    this.touch(cpu, this.order.length - 1 - rank);
    return cpu;
  }

  touch(cpu: number, place = this.order.lastIndexOf(cpu)): void {
    const { order } = this, end = order.length - 1;
    for (let k = place; k < end; k++) order[k] = order[k + 1];
    order[end] = cpu;
  }

  private wait(task: number, cpu: number): void {
    this.waits[task] = cpu + 1;
    this.queues[cpu].push(task);
  }

  // The waiting task of a rank.
  waiting(cpu: number, rank: number): number {
    const [task] = this.queues[cpu].splice(rank, 1);
    this.waits[task] = 0;
    return task;
  }

  take(task: number): void {
    const waits = this.waits[task] - 1;
    if (waits < 0) return;
    this.waits[task] = 0;
    const queue = this.queues[waits];
    queue.splice(queue.indexOf(task), 1);
  }

  occupy(cpu: number, who: number, waits: boolean): void {
    const before = this.on[cpu] - TASK;
    if (before >= 0) {
      this.runs[before] = 0;
      if (waits) this.wait(before, cpu);
    }
    this.on[cpu] = who;
    if (who < TASK) return;
    this.runs[who - TASK] = 1;
    this.last[who - TASK] = cpu + 1;
  }

  woken(task: number, cpu: number): void {
    this.last[task] = cpu + 1;
    if (this.waits[task] === 0 && !this.runs[task]) this.wait(task, cpu);
  }
}

// Switches as they come, of all CPUs.
class Switches {
  count = 0;
  readonly at: Float64Array;
  readonly cpu: Int32Array;
  readonly who: Int32Array;
  readonly why: Uint8Array;

  constructor(most: number) {
    this.at = new Float64Array(most);
    this.cpu = new Int32Array(most);
    this.who = new Int32Array(most);
    this.why = new Uint8Array(most);
  }

  push(at: number, cpu: number, who: number, why: number): void {
    const k = this.count++;
    this.at[k] = at;
    this.cpu[k] = cpu;
    this.who[k] = who;
    this.why[k] = why;
  }

  // By CPU; `first` was on each before.
  spans(first: number[], from: number): Spans[] {
    const counts = first.map(() => 1);
    for (let k = 0; k < this.count; k++) counts[this.cpu[k]]++;
    const who = (occupant: number) => (occupant === STRANGE ? UNKNOWN : occupant - TASK);
    const cpus = counts.map((n, cpu): Spans => {
      const wait = new Float64Array(n).fill(-1), wake = new Int32Array(n).fill(-1);
      const start = new Float64Array(n), on = new Int32Array(n);
      start[0] = from;
      on[0] = who(first[cpu]);
      return { n, start, who: on, why: new Uint8Array(n), wait, wake };
    });
    const ends = counts.map(() => 1);
    for (let k = 0; k < this.count; k++) {
      const c = cpus[this.cpu[k]], i = ends[this.cpu[k]]++;
      c.start[i] = this.at[k];
      c.who[i] = who(this.who[k]);
      c.why[i] = this.why[k];
    }
    return cpus;
  }
}

class Decoder {
  private readonly first: number[];
  private readonly started: boolean[];
  private readonly known: Known;
  private readonly what: Column;
  private readonly after: Column;
  private readonly wakers: Column;
  private readonly ranks: Column;
  private readonly wokens: Column;
  private readonly tasks: Column;
  private readonly cpus: Column;
  private readonly nexts: Column;
  private readonly whys: Column;

  constructor(reader: Reader, run: LaneRun, tasks: number) {
    this.first = Array.from({ length: run.cpus }, () => reader.next());
    this.started = this.first.map(() => false);
    this.known = new Known(run.cpus, tasks);
    this.what = reader.column();
    this.after = reader.column();
    this.wakers = reader.column();
    this.ranks = reader.column();
    this.wokens = reader.column();
    this.tasks = reader.column();
    this.cpus = reader.column();
    this.nexts = reader.column();
    this.whys = reader.column();
  }

  schedule(from: number): Omit<Schedule, "marks"> {
    const { what, known, wakers } = this, n = wakers.length;
    const switches = new Switches(what.length - n), column = () => new Int32Array(n);
    const wakes = { n, at: new Float64Array(n), cpu: column(), task: column(), by: column() };
    for (let k = 0, w = 0, at = from; k < what.length; k++) {
      const kind = what.next();
      at += this.after.next();
      if (kind >= SWITCH) {
        const cpu = known.ranked(kind - SWITCH), why = this.whys.next();
        switches.push(at, cpu, this.next(cpu, why), why);
      } else if (kind === WAKE) {
        wakes.at[w] = at;
        [wakes.cpu[w], wakes.task[w], wakes.by[w]] = this.wake();
        w++;
      } else if (kind === LOST) {
        const cpu = this.cpus.next();
        this.started[cpu] = true;
        known.occupy(cpu, STRANGE, false);
        switches.push(at, cpu, STRANGE, 0);
      }
    }
    return { cpus: switches.spans(this.first, from), wakes };
  }

  // The occupant from a switch on.
  private next(cpu: number, why: number): number {
    const { known } = this;
    if (!this.started[cpu]) {
      this.started[cpu] = true;
      known.occupy(cpu, this.first[cpu], false);
    }
    // One that goes on by itself waits first: it may be the next.
    known.occupy(cpu, STRANGE, why === 1 || why === 2);
    const said = this.nexts.next();
    let who = IDLE;
    if (said === OTHER) {
      const task = this.tasks.next();
      known.take(task);
      who = TASK + task;
    } else if (said !== NO_TASK) who = TASK + known.waiting(cpu, said - WAITING);
    known.occupy(cpu, who, false);
    return who;
  }

  private wake(): [cpu: number, task: number, waker: number] {
    const { known } = this, said = this.wakers.next();
    let cpu, task, waker;
    if (said === RUNNING) {
      cpu = known.ranked(this.ranks.next());
      waker = known.on[cpu] + 1;
      const woken = this.wokens.next();
      task = (woken === 0 ? known.wakee[waker - 3] : woken) - 1;
    } else {
      task = this.tasks.next();
      const on = this.cpus.next();
      cpu = (on === 0 ? known.last[task] : on) - 1;
      known.touch(cpu);
      waker = said < RUNNING ? said : said === AGAIN ? known.waker[task] + 2 : said - ANY + 3;
    }
    if (waker >= 3) {
      known.wakee[waker - 3] = task + 1;
      known.waker[task] = waker - 2;
    }
    known.woken(task, cpu);
    return [cpu, task, waker];
  }
}

function marks(reader: Reader, from: number): Mark[] {
  return Array.from({ length: reader.next() }, () => {
    const kind = MARKS[reader.next()], begin = from + reader.next(), end = begin + reader.next();
    return { kind, from: begin, to: end, cpu: reader.next(), what: reader.next() };
  });
}

export async function decode(run: LaneRun, tasks: number): Promise<Schedule> {
  const reader = new Reader(await inflate(run.data));
  const schedule = new Decoder(reader, run, tasks).schedule(run.from_ns);
  return { ...schedule, marks: marks(reader, run.from_ns) };
}
