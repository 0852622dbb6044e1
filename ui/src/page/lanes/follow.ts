// How long each span's task waited before it, and which wakeup began the wait: all events once, in
// order of time.
import type { Schedule, Spans } from "./types";

// The CPU with the earliest span that is left: a heap of CPUs, equal times by number.
class Order {
  private readonly heads: Int32Array;
  private readonly heap: number[];

  constructor(private readonly cpus: Spans[]) {
    this.heads = new Int32Array(cpus.length);
    this.heap = cpus.map((_, cpu) => cpu).filter((cpu) => cpus[cpu].n > 0);
    for (let at = this.heap.length >> 1; at >= 0; at--) this.sink(at);
  }

  private sooner(a: number, b: number): boolean {
    const s = this.cpus[a].start[this.heads[a]], t = this.cpus[b].start[this.heads[b]];
    return s < t || s === t && a < b;
  }

  private sink(at: number): void {
    const { heap } = this, cpu = heap[at];
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && this.sooner(heap[child + 1], heap[child])) child++;
      if (!this.sooner(heap[child], cpu)) break;
      heap[at] = heap[child];
      at = child;
    }
    if (at < heap.length) heap[at] = cpu;
  }

  // -1: none is left.
  first(): number {
    return this.heap.length ? this.heap[0] : -1;
  }

  time(): number {
    return this.heap.length ? this.cpus[this.heap[0]].start[this.heads[this.heap[0]]] : Infinity;
  }

  // The span of the first CPU, which is then behind.
  take(): number {
    const { heap, heads } = this, cpu = heap[0], span = heads[cpu]++;
    if (heads[cpu] >= this.cpus[cpu].n) {
      const last = heap.pop();
      if (heap.length && last !== undefined) heap[0] = last;
    }
    this.sink(0);
    return span;
  }
}

export function follow({ cpus, wakes }: Schedule, tasks: number): void {
  const since = new Float64Array(tasks).fill(-1), woken = new Int32Array(tasks).fill(-1);
  const onCpu = new Int32Array(tasks).fill(-1), order = new Order(cpus);
  const wakeup = (w: number) => {
    const task = wakes.task[w];
    if (onCpu[task] < 0 && since[task] < 0) {
      since[task] = wakes.at[w];
      woken[task] = w;
    }
  };
  let w = 0;
  for (let cpu = order.first(); cpu >= 0; cpu = order.first()) {
    const t = order.time();
    while (w < wakes.n && wakes.at[w] <= t) wakeup(w++);
    const c = cpus[cpu], i = order.take(), task = c.who[i], prev = i ? c.who[i - 1] : -2;
    if (prev >= 0) {
      onCpu[prev] = -1;
      woken[prev] = -1;
      since[prev] = c.why[i] === 1 || c.why[i] === 2 ? t : -1;
    }
    if (task < 0) continue;
    if (i && since[task] >= 0) {
      c.wait[i] = t - since[task];
      c.wake[i] = woken[task];
    }
    since[task] = -1;
    woken[task] = -1;
    onCpu[task] = cpu;
  }
}
