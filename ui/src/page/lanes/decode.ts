// From the text in a page to columns of numbers.
import type { LaneRun } from "../data";
import { type Schedule, type Spans, UNKNOWN, type Wakes } from "./types";

function bytes(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64), all = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) all[i] = text.charCodeAt(i);
  return all;
}

async function inflate(base64: string): Promise<Uint8Array> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("lanes need Chrome 103, Firefox 113, Safari 16.4 or later");
  }
  const inflated = new Blob([bytes(base64)]).stream()
    .pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}

type Column = Float64Array | Int32Array | Uint8Array;

// Numbers in groups of seven bits, the lowest first.
class Reader {
  private at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  next(): number {
    const { bytes } = this;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, factor = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * factor;
      factor *= 128;
    } while (byte > 127);
    return value;
  }

  column<C extends Column>(column: C): C {
    for (let i = 0; i < column.length; i++) column[i] = this.next();
    return column;
  }

  // Each number is the difference to the one before.
  times(n: number, from: number): Float64Array {
    const column = new Float64Array(n);
    for (let i = 0, t = from; i < n; i++) column[i] = t += this.next();
    return column;
  }
}

function spans(reader: Reader, from: number): Spans {
  const n = reader.next(), start = reader.times(n, from);
  const who = reader.column(new Int32Array(n)), why = reader.column(new Uint8Array(n));
  // 0 unknown, 1 idle, 2 + task.
  for (let i = 0; i < n; i++) who[i] = who[i] === 0 ? UNKNOWN : who[i] - 2;
  const wait = new Float64Array(n).fill(-1), wake = new Int32Array(n).fill(-1);
  return { n, start, who, why, wait, wake };
}

function wakes(reader: Reader, from: number): Wakes {
  const n = reader.next(), at = reader.times(n, from);
  const cpu = reader.column(new Int32Array(n)), task = reader.column(new Int32Array(n));
  return { n, at, cpu, task, by: reader.column(new Int32Array(n)) };
}

export async function decode(run: LaneRun): Promise<Schedule> {
  const reader = new Reader(await inflate(run.data)), cpus: Spans[] = [];
  for (let cpu = 0; cpu < run.cpus; cpu++) cpus.push(spans(reader, run.from_ns));
  return { cpus, wakes: wakes(reader, run.from_ns) };
}
