// What a span is, in words.
import { moment, time } from "../units";
import { during } from "./marks";
import { meanwhile } from "./part";
import type { Place, Scene } from "./scene";
import { end, IDLE, type Run, UNKNOWN, WAITS } from "./types";

const WHY = ["then: unknown", "then still runnable (preempted or yielded)",
  "then preempted in the kernel", "then slept (S)", "then in disk sleep (D)", "then stopped",
  "then ended", "then blocked"];
const WAKERS = ["an unknown source", "an interrupt", "a softirq"];

function waker(scene: Scene, run: Run, wake: number): string {
  if (wake < 0) return "preempted";
  const by = run.wakes.by[wake], name = by < 3 ? WAKERS[by] : scene.nameOf(by - 3);
  return "woken by " + name + " on " + scene.rowName(run, run.wakes.cpu[wake]);
}

// The span of a CPU that a span of a thread's lane is; itself on a CPU's.
function onCpu(scene: Scene, { lane, span }: Place): Place | null {
  const { c, run } = lane;
  if (!c.on) return { lane, span };
  const cpu = c.on.cpu[span];
  if (cpu < 0) return null;
  const there = scene.laneOf(run, cpu) ?? { run, c: run.cpus[cpu], cpu, y: 0 };
  return { lane: there, span: c.on.span[span] };
}

export function words(scene: Scene, place: Place): string[] {
  const { lane, span } = place, { c, run, cpu } = lane, who = c.who[span];
  const from = c.start[span], ran = end(run, c, span) - from;
  const where = (scene.runs.length > 1 ? run.name + ", " : "") + scene.rowName(run, cpu);
  const length = time(ran) + " from " + moment(from), to = from + ran;
  const marks = during(scene, lane, from, to);
  if (who === IDLE) return [where + (cpu < 0 ? ": sleeps" : ": idle"), length, ...marks];
  if (who === WAITS) return [where + ": waits for a CPU", length, ...marks];
  const there = onCpu(scene, place);
  if (c.on && there) return words(scene, there);
  if (who === UNKNOWN) return [where + ": not recorded who ran", length, ...marks];
  const lines = [where + ": " + scene.nameOf(who), "ran " + length];
  if (c.wait[span] > 0) {
    lines.push("waited " + time(c.wait[span]) + " before it, " + waker(scene, run, c.wake[span]));
  }
  if (span + 1 < c.n) lines.push(WHY[c.why[span + 1]] ?? WHY[0]);
  return [...lines, ...marks];
}

// What was on the CPU while the task of a span waited for it.
function behind(scene: Scene, place: Place): string {
  const { lane: { c, run }, span } = place;
  // Of a wait in a thread's lane: the span that it led to.
  const next = c.on && c.who[span] === WAITS && span + 1 < c.n ? span + 1 : span;
  const there = onCpu(scene, { lane: place.lane, span: next });
  if (!there || !(there.lane.c.wait[there.span] > 0)) return "";
  const all = meanwhile(run, there.lane.c, there.span, (who) => scene.nameOf(who));
  if (!all.length) return "";
  const more = all.length - 4;
  const first = all.slice(0, 4).map(([name, ns]) => name + " " + time(ns)).join(", ");
  return "meanwhile on " + scene.rowName(run, there.lane.cpu) + ": " + first +
    (more > 0 ? " and " + more + " more" : "");
}

export const told = (scene: Scene, place: Place) =>
  [...words(scene, place), behind(scene, place)].filter((text) => text).join(" · ");

export const inView = ({ view: { a, b } }: Scene) =>
  "In view: " + time(b - a) + " from " + moment(a);
