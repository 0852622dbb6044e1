// What is in view as numbers and as a table, soon after the last of several changes.
import { el, table } from "../dom";
import { moment, time } from "../units";
import { type Line, tally } from "./part";
import type { Lane, Scene } from "./scene";
import { end, find, type Run } from "./types";
import { inView } from "./words";

// Lines of each run, and spans of the table.
const LINES = 8, SPANS = 300;
const PAUSE_MS = 40;
const COUNTED = " Waits that end in it count whole; latency: from a wakeup to running; behind: " +
  "what was on the CPU on which the task then ran.";

const number = (ns: number | null) => (ns === null ? "–" : time(ns));

function region(label: string, kind: string, parts: Node[]): HTMLElement {
  const made = el("table", { className: kind }, ...parts);
  const about = { className: "scroll", tabIndex: 0, role: "region", "aria-label": label };
  return el("div", about, made);
}

function behind(line: Line): string {
  if (line.waited <= 0) return "";
  const all = line.behind.slice(0, 2)
    .map(([name, ns]): [string, number] => [name, Math.round(100 * ns / line.waited)]);
  return all.filter(([, part]) => part > 0).map(([name, part]) => name + " " + part + " %")
    .join(", ") + (line.whole ? "" : " (of a part: zoom in)");
}

// The spans in view of the CPUs, in order of time, and how many there is no room for.
function spans(scene: Scene): [rows: [Lane, number][], more: number] {
  const rows: [Lane, number][] = [], { view, lit } = scene;
  let more = 0;
  for (const lane of scene.lanes) {
    const { c, cpu } = lane, last = find(c, view.b);
    if (cpu < 0) continue;
    for (let i = find(c, view.a); i <= last; i++) {
      if (c.who[i] < 0 || lit && !lit[c.who[i]]) continue;
      if (rows.length < SPANS) rows.push([lane, i]);
      else more++;
    }
  }
  const from = ([lane, i]: [Lane, number]) => lane.c.start[i];
  return [rows.sort((x, y) => from(x) - from(y)), more];
}

export class Tables {
  readonly seen = el("div", { className: "window" });
  readonly list = el("details", { className: "fold" },
    el("summary", {}, "Spans in view, as a table"));
  private due = 0;

  constructor(private readonly scene: Scene) {
    this.list.addEventListener("toggle", () => { if (this.list.open) this.fill(); });
  }

  soon(): void {
    clearTimeout(this.due);
    this.due = window.setTimeout(() => {
      this.tally();
      if (this.list.open) this.fill();
    }, PAUSE_MS);
  }

  // By program; by thread where some are highlighted.
  private lines(run: Run): Line[] {
    const { scene } = this, { lit, view, tasks } = scene;
    const names = lit ? tasks.map((t) => t[0]) : scene.classes;
    // Threads of one name share a line.
    const place = new Map<string, number>();
    names.forEach((name, i) => { if (!place.has(name)) place.set(name, i); });
    const lineOf = lit
      ? Int32Array.from(names, (name, t) => (lit[t] ? place.get(name) ?? t : -1)) : scene.classOf;
    const part = { run, a: view.a, b: view.b, lineOf, names };
    return tally(part, LINES, (who) => scene.nameOf(who));
  }

  private tally(): void {
    const { scene } = this, isMany = scene.shown.length > 1;
    const rows = scene.shown.flatMap((run) => this.lines(run).map((l) => [
      l.line, ...(isMany ? [run.name] : []), number(l.waited), number(l.longest),
      String(l.wakeups), number(l.p50), number(l.p99), number(l.ran), behind(l)]));
    const heads = [scene.lit ? "thread" : "program", ...(isMany ? ["run"] : []), "waited",
      "longest", "wakeups", "latency p50", "p99", "CPU time", "mostly behind"];
    const parts = table(heads, rows, isMany ? 2 : 1, 1);
    this.seen.replaceChildren(el("p", {}, inView(scene) + "." + COUNTED),
      region("Waiting in view", "data", parts));
  }

  // The view as a table, for readers who cannot see a canvas.
  private fill(): void {
    const { scene, list } = this, [rows, more] = spans(scene), { a, b } = scene.view;
    const cells = rows.map(([{ c, run, cpu }, i]) => [
      moment(c.start[i]), run.name, String(cpu), scene.nameOf(c.who[i]),
      time(end(run, c, i) - c.start[i]), c.wait[i] < 0 ? "–" : time(c.wait[i])]);
    const heads = ["from", "run", "CPU", "task", "ran", "waited before"];
    const count = rows.length + " spans" + (more ? " (" + more + " more: zoom in)" : "");
    list.querySelectorAll(".scroll,p").forEach((old) => old.remove());
    list.append(el("p", {}, count + ", " + time(b - a) + " from " + moment(a)),
      region("Spans in view", "", table(heads, cells, 0, heads.length)));
  }
}
