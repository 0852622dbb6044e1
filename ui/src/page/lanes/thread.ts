// One thread as a lane: where it ran, where it waited for a CPU, where it slept.
import { end, IDLE, type Run, type Spans, WAITS } from "./types";

// Its spans on all CPUs, in order of time.
function ran(run: Run, task: number): [cpu: number, span: number][] {
  const found: [number, number][] = [];
  run.cpus.forEach((c, cpu) => {
    for (let i = 0; i < c.n; i++) if (c.who[i] === task) found.push([cpu, i]);
  });
  const from = ([cpu, i]: [number, number]) => run.cpus[cpu].start[i];
  return found.sort((x, y) => from(x) - from(y));
}

const wasRunnable = (c: Spans | undefined, i: number) =>
  c !== undefined && i + 1 < c.n && (c.why[i + 1] === 1 || c.why[i + 1] === 2);

function lane(run: Run, task: number): Spans {
  const rows: [start: number, who: number, wait: number, cpu: number, span: number][] = [];
  let at = run.from_ns, last: [Spans | undefined, number] = [undefined, 0];
  for (const [cpu, i] of ran(run, task)) {
    const c = run.cpus[cpu], from = c.start[i];
    const since = Math.max(at, from - Math.max(0, c.wait[i]));
    if (since > at) rows.push([at, IDLE, -1, -1, -1]);
    if (from > since) rows.push([since, WAITS, -1, -1, -1]);
    rows.push([from, task, c.wait[i], cpu, i]);
    at = end(run, c, i);
    last = [c, i];
  }
  if (at < run.to_ns) rows.push([at, wasRunnable(...last) ? WAITS : IDLE, -1, -1, -1]);
  const n = rows.length, column = (k: 1 | 3 | 4) => Int32Array.from(rows, (row) => row[k]);
  return {
    n, start: Float64Array.from(rows, (row) => row[0]), who: column(1), why: new Uint8Array(n),
    wait: Float64Array.from(rows, (row) => row[2]), wake: new Int32Array(n).fill(-1),
    on: { cpu: column(3), span: column(4) },
  };
}

export function thread(run: Run, task: number): Spans {
  const made = run.threads.get(task) ?? lane(run, task);
  run.threads.set(task, made);
  return made;
}
