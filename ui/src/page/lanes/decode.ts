// From the text in a page to columns of numbers.
import type { LaneRun } from "../data";
import { type Schedule, type Spans, UNKNOWN, type Wakes } from "./types";

function bytes(base64: string): Uint8Array<ArrayBuffer> {
  // Newer browsers have it, several times as fast.
  const { fromBase64 } = Uint8Array as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  if (fromBase64) return fromBase64.call(Uint8Array, base64);
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
    return this.column(new Float64Array(1))[0];
  }

  column<C extends Column>(column: C): C {
    const { bytes } = this;
    let { at } = this;
    for (let i = 0; i < column.length; i++) {
      let byte = bytes[at++], value = byte & 127;
      for (let factor = 128; byte > 127; factor *= 128) {
        byte = bytes[at++];
        value += (byte & 127) * factor;
      }
      column[i] = value;
    }
    this.at = at;
    return column;
  }

  // Each number is the difference to the one before.
  times(n: number, from: number): Float64Array {
    const column = this.column(new Float64Array(n));
    for (let i = 0, t = from; i < n; i++) column[i] = t += column[i];
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
