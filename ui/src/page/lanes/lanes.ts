// Schedules by CPU, from the whole run to nanoseconds.
import type { LanesData } from "../data";
import { el, one } from "../dom";
import { again } from "../look";
import { bar, type Bar } from "./bar";
import { decode } from "./decode";
import { follow } from "./follow";
import { help } from "./help";
import { keys } from "./keys";
import { Legend } from "./legend";
import { Painter } from "./painter";
import { type Stop, stops } from "./marks";
import { longest } from "./part";
import { pointer } from "./pointer";
import { type Lane, type Place, Scene } from "./scene";
import { Search } from "./search";
import { strip } from "./strip";
import { Tables } from "./tables";
import { end, find, IDLE, type Run } from "./types";
import { told } from "./words";

// What the caller gets. Two lanes move together when the one's `onview` calls the other's `view`,
// which tells nothing back.
export interface LanesView {
  onview: ((from_ns: number, to_ns: number) => void) | null;
  view(from_ns: number, to_ns: number): void;
}

const POINT = "Point at a span, or press a key, to see who ran, how long, and why it waited.";
const CHOOSE = "Choose a span of a thread first (click it, or use the arrow keys, comma and full " +
  "stop).";
// Around a wait that is gone to: parts of it before and behind, and its least length.
const BEFORE = 0.25, BEHIND = 0.35, LEAST_NS = 2000;
// So many threads have a lane of their own at a time.
const OWN = 4;

// What a reader does with the lanes; every part of the figure calls these.
export class Desk {
  readonly canvas: HTMLCanvasElement;
  readonly strip = el("canvas", { className: "over", "aria-hidden": "true" });
  readonly tip = el("div", { className: "tip" });
  readonly stage: HTMLElement;
  readonly painter: Painter;
  readonly tables: Tables;
  readonly search: Search;
  readonly legend: Legend;
  readonly handle: LanesView;
  private readonly bar: Bar;
  private readonly status = el("p",
    { className: "status", role: "status", "aria-live": "polite" }, POINT);
  // Place among the longest waits.
  private turn = -1;
  // The mark that was gone to last.
  private mark: Stop | null = null;

  constructor(readonly figure: HTMLElement, readonly scene: Scene) {
    const label = "Schedule by CPU: " + (figure.dataset.names ?? "") +
      ". Arrow keys move, plus and minus zoom.";
    this.canvas = el("canvas", {
      tabIndex: 0, role: "application", "aria-label": label,
      "aria-describedby": figure.id + "-help",
    });
    this.stage = el("div", { className: "stage" }, this.canvas, this.tip);
    this.painter = new Painter(scene, this.canvas, this.strip);
    this.tables = new Tables(scene);
    this.search = new Search(this);
    this.legend = new Legend(this);
    this.bar = bar(this);
    this.handle = { onview: null, view: (from, to) => this.place(from, to) };
    const { unused, cpus } = scene;
    const left = scene.runs.reduce((sum, run) => sum + run.unmarked, 0);
    const silent = (unused.size
      ? unused.size + " of " + cpus + " CPUs ran no task and are not drawn." : "") +
      (left ? " " + left + " losses, throttlings and stolen times are not marked." : "");
    one(figure, ".mount").append(this.bar.element, this.strip, this.stage, this.legend.element,
      this.status, this.tables.seen, el("p", { className: "help unused" }, silent),
      help(figure.id + "-help"), this.tables.list);
    keys(this);
    pointer(this);
    strip(this);
  }

  say(text: string): void {
    this.status.textContent = text;
  }

  // Another size, or other lanes.
  layout(): void {
    this.scene.layout(this.stage.clientWidth);
    this.legend.waits(this.scene.own.length > 0);
    this.painter.resize();
    this.tables.soon();
  }

  // Has a part in view.
  place(from: number, to: number): void {
    const { view } = this.scene;
    this.scene.place(from, to);
    this.figure.dataset.from = String(Math.round(view.a));
    this.figure.dataset.to = String(Math.round(view.b));
    this.painter.soon();
    this.tables.soon();
  }

  // As `place`, by the reader.
  set(from: number, to: number): void {
    this.place(from, to);
    this.handle.onview?.(this.scene.view.a, this.scene.view.b);
  }

  all(): void {
    this.set(this.scene.begin, this.scene.finish);
  }

  move(by: number): void {
    const { a, b } = this.scene.view;
    this.set(a + by, b + by);
  }

  zoom(factor: number, at?: number): void {
    const { a, b } = this.scene.view, t = at ?? (a + b) / 2;
    this.set(t - (t - a) * factor, t + (b - t) * factor);
  }

  pick(place: Place | null, isQuiet = false): void {
    this.scene.picked = place;
    if (place && !isQuiet) this.say(told(this.scene, place));
    this.painter.soon();
  }

  // Highlights tasks; null: no choice.
  light(lit: boolean[] | null, text?: string): void {
    this.scene.light(lit);
    this.turn = -1;
    if (text !== undefined) this.say(text);
    this.painter.soon();
    this.tables.soon();
  }

  private around(from: number, to: number): void {
    const room = Math.max(to - from, LEAST_NS);
    this.set(from - room * BEFORE, to + room * BEHIND);
  }

  // Goes to the next of the longest waits, or the one before.
  jump(by: number): void {
    const { scene } = this;
    const all = scene.shown.flatMap((run) => longest(run, scene.lit).map((wait) => ({ wait, run })))
      .sort((a, b) => b.wait.ns - a.wait.ns);
    if (!all.length) {
      this.say("No wait was seen.");
      return;
    }
    this.turn = (this.turn + by + all.length) % all.length;
    const { wait: { ns, cpu, span }, run } = all[this.turn], to = run.cpus[cpu].start[span];
    this.around(to - ns, to);
    const lane = scene.laneOf(run, cpu);
    if (!lane) return;
    const place = { lane, span };
    this.pick(place, true);
    this.say("Wait " + (this.turn + 1) + " of " + all.length + " by length · " +
      told(scene, place));
  }

  // Goes to the next mark behind the middle of the view, or the one before.
  nextMark(by: number): void {
    const { scene } = this, { a, b } = scene.view, all = stops(scene);
    if (!all.length) {
      this.say("Nothing is marked: no loss, no throttling, no stolen time, no incident.");
      return;
    }
    const here = this.mark ? all.findIndex((one) =>
      one.from === this.mark?.from && one.to === this.mark.to) : -1;
    const behind = all.findIndex((one) => one.from > (a + b) / 2);
    const end = behind < 0 ? all.length : behind;
    const next = here >= 0 ? here + by : by > 0 ? end : end - 1;
    const place = (next + all.length) % all.length, stop = all[place];
    this.mark = stop;
    this.around(stop.from, stop.to);
    this.say("Mark " + (place + 1) + " of " + all.length + " · " + stop.text);
  }

  // Brings a wait into view that ended on this CPU, with the span that it led to.
  show(run: Run | undefined, cpu: number, from: number, to: number): void {
    if (!run) return;
    if (!run.on) this.bar.toggle(run);
    this.around(from, to);
    const lane = this.scene.laneOf(run, cpu);
    if (lane) this.pick({ lane, span: find(lane.c, to) });
  }

  private middle(lane: Lane): Place {
    const { a, b } = this.scene.view;
    return { lane, span: find(lane.c, (a + b) / 2) };
  }

  // The next span of the chosen one's lane in which something runs.
  step(by: number): void {
    const { scene } = this, { picked, lanes, view: { a, b } } = scene;
    if (!picked) {
      this.pick(this.middle(lanes[0]));
      return;
    }
    const lane = scene.laneOf(picked.lane.run, picked.lane.cpu) ?? lanes[0], { c, run } = lane;
    let i = picked.span;
    do i += by; while (i > 0 && i < c.n - 1 && c.who[i] === IDLE);
    i = Math.max(0, Math.min(c.n - 1, i));
    const from = c.start[i], span = b - a;
    if (from < a || end(run, c, i) > b) this.set(from - span / 3, from - span / 3 + span);
    this.pick({ lane, span: i });
  }

  // The lane above or below the chosen span's.
  nextLane(by: number): void {
    const { picked, lanes } = this.scene;
    const at = picked
      ? lanes.findIndex((l) => l.run === picked.lane.run && l.cpu === picked.lane.cpu) : -1;
    const lane = lanes[Math.max(0, Math.min(lanes.length - 1, at + by))];
    const t = picked?.lane.c.start[picked.span];
    this.pick(t === undefined ? this.middle(lane) : { lane, span: find(lane.c, t) });
  }

  // A lane for the thread of the chosen span, or none any more.
  ownLane(): void {
    const { scene } = this, { picked, own } = scene, task = picked ? scene.taskOf(picked) : -1;
    if (!picked || task < 0) {
      this.say(CHOOSE);
      return;
    }
    const has = own.includes(task);
    scene.own = has ? own.filter((t) => t !== task) : own.concat(task).slice(-OWN);
    // Lanes of threads change their numbers.
    if (picked.lane.cpu < 0) scene.picked = null;
    this.layout();
    const what = has ? "No lane of its own any more: " : "A lane of its own: ";
    this.say(what + scene.nameOf(task) + ".");
  }

  letGo(): void {
    this.pick(null);
    this.search.clear();
    this.legend.press(null);
    this.light(null, "");
  }
}

// The waits that the page names lead here.
function links(desk: Desk): void {
  const { figure, scene } = desk;
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".waits a")) {
    if (link.hash !== "#" + figure.id) continue;
    link.addEventListener("click", (e) => {
      const fold = figure.closest("details"), { run, cpu, from, to } = link.dataset;
      e.preventDefault();
      if (fold) fold.open = true;
      desk.show(scene.runs[Number(run)], Number(cpu), Number(from), Number(to));
      figure.scrollIntoView();
      desk.canvas.focus({ preventScroll: true });
    });
  }
}

// `put`: called when all is read and the figure is about to be drawn, which has to be in the page
// then.
export async function lanes(
  figure: HTMLElement, data: LanesData, put?: () => void,
): Promise<LanesView> {
  const runs: Run[] = [];
  for (const packed of data.runs) {
    const schedule = await decode(packed, data.tasks.length);
    follow(schedule, data.tasks.length);
    const { name, from_ns, to_ns, events, focus_ns, rows, incident, unmarked } = packed;
    const about = { name, from_ns, to_ns, events, focus_ns, rows, incident, unmarked };
    runs.push({ ...about, ...schedule, on: false, threads: new Map() });
  }
  const scene = new Scene(data, runs);
  put?.();
  const desk = new Desk(figure, scene);
  if (!runs.length) return desk.handle;
  desk.layout();
  desk.place(scene.begin, scene.finish);
  again(figure, () => desk.painter.restyle());
  new ResizeObserver(() => {
    const wide = desk.stage.clientWidth;
    if (wide && wide !== scene.width) desk.layout();
  }).observe(desk.stage);
  links(desk);
  const asked = /longest=(\d+)/.exec(location.hash);
  const focus = runs.find((run) => run.focus_ns)?.focus_ns;
  if (asked) desk.jump(Number(asked[1]));
  else if (focus) desk.place(...focus);
  const count = runs.reduce((n, r) => n + r.cpus.reduce((m, c) => m + c.n, 0), 0);
  figure.dataset.spans = String(count);
  return desk.handle;
}
