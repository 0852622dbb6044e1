// The lanes in Perfetto, which reads Chrome's JSON. Its page says PONG when it listens; without a
// network the trace is saved as a file.
import { el } from "../dom";
import type { Scene } from "./scene";
import { end, type Run } from "./types";

const THERE = "https://ui.perfetto.dev", FILE = "schedlab-lanes.json";
// So often is asked whether it listens, every 50 ms.
const TRIES = 200, PAUSE_MS = 50;

function cpu(scene: Scene, run: Run, pid: number, cpu: number): object[] {
  const c = run.cpus[cpu], tid = cpu + 1;
  const name = { name: scene.rowName(run, cpu) };
  const events: object[] = [{ ph: "M", name: "thread_name", pid, tid, args: name }];
  for (let i = 0; i < c.n; i++) {
    if (c.who[i] < 0) continue;
    const args = c.wait[i] > 0 ? { waited_us: c.wait[i] / 1e3 } : {};
    const ts = c.start[i] / 1e3, dur = (end(run, c, i) - c.start[i]) / 1e3;
    events.push({ ph: "X", name: scene.nameOf(c.who[i]), pid, tid, ts, dur, args });
  }
  return events;
}

function trace(scene: Scene): string {
  const traceEvents = scene.runs.flatMap((run, k) => {
    const pid = k + 1, name = { name: run.name };
    const of = scene.drawn(run).flatMap((number) => cpu(scene, run, pid, number));
    return [{ ph: "M", name: "process_name", pid, args: name }, ...of];
  });
  return JSON.stringify({ traceEvents });
}

export function perfetto(scene: Scene, say: (text: string) => void): void {
  const save = () => {
    const href = URL.createObjectURL(new Blob([trace(scene)], { type: "application/json" }));
    el("a", { href, download: FILE }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
    say("Saved as " + FILE + ": open it in ui.perfetto.dev.");
  };
  const page = window.open(THERE);
  if (!page) {
    save();
    return;
  }
  let tries = 0;
  const stop = () => {
    clearInterval(ask);
    removeEventListener("message", answer);
  };
  const ask = setInterval(() => {
    if (++tries > TRIES) {
      stop();
      save();
    } else page.postMessage("PING", THERE);
  }, PAUSE_MS);
  const answer = (e: MessageEvent) => {
    if (e.source !== page || e.origin !== THERE || e.data !== "PONG") return;
    stop();
    const buffer = new TextEncoder().encode(trace(scene)).buffer;
    page.postMessage({ perfetto: { buffer, title: document.title, fileName: FILE } }, THERE);
  };
  addEventListener("message", answer);
}
