// What happened beside the schedule: losses, throttling, stolen time, and the incident for which
// the recording was kept. Each kind has its place in a lane, so that it is told without colours,
// too.
import { moment, time } from "../units";
import type { Lane, Scene } from "./scene";
import type { Mark, Run } from "./types";

type Kind = Mark["kind"] | "incident";
export const COLORS: Record<Kind, string> =
  { lost: "--bad", throttled: "--v4", stolen: "--v3", incident: "--bad" };
export const NAMES: Record<Kind, string> = {
  lost: "│ events lost", throttled: "▁ throttled", stolen: "▔ stolen by the hypervisor",
  incident: "▒ what it was kept for",
};
// Height of a bar, in pixels.
const BAR = 3;

const made = new WeakMap<Run, Map<number, Mark[]>>();

// Marks of each CPU, and by -1 - task those of each throttled thread, in order of time.
function byLane(run: Run): Map<number, Mark[]> {
  const known = made.get(run);
  if (known) return known;
  const all = new Map<number, Mark[]>();
  const add = (lane: number, mark: Mark) => {
    const marks = all.get(lane);
    if (marks) marks.push(mark);
    else all.set(lane, [mark]);
  };
  for (const mark of [...run.marks].sort((a, b) => a.from - b.from)) {
    add(mark.cpu, mark);
    if (mark.kind === "throttled") add(-1 - mark.what, mark);
  }
  made.set(run, all);
  return all;
}

function marksOf(scene: Scene, { run, cpu }: Lane): Mark[] {
  return byLane(run).get(cpu < 0 ? -1 - scene.own[-1 - cpu] : cpu) ?? [];
}

// The kinds that are there, for the legend.
export function kinds(scene: Scene): Kind[] {
  const all = new Set<Kind>(scene.runs.flatMap((run) => run.marks.map((mark) => mark.kind)));
  if (scene.runs.some((run) => run.incident)) all.add("incident");
  return [...all];
}

function ofLane(
  g: CanvasRenderingContext2D, scene: Scene, lane: Lane, colors: Record<Kind, string>,
): void {
  const { a, b } = scene.view, high = scene.laneHeight;
  // What begins in a column that has one already is not seen.
  const last: Partial<Record<Kind, number>> = {};
  for (const { kind, from, to } of marksOf(scene, lane)) {
    if (to < a) continue;
    if (from > b) break;
    const x = scene.x(from), wide = Math.max(1, scene.x(to) - x), end = x + wide;
    if (end - (last[kind] ?? -1) < 0.5) continue;
    last[kind] = end;
    g.fillStyle = colors[kind];
    if (kind === "lost") g.fillRect(x - 0.5, lane.y - 2, 1.5, high + 4);
    else g.fillRect(x, kind === "stolen" ? lane.y : lane.y + high - BAR, wide, BAR);
  }
}

export function drawMarks(
  g: CanvasRenderingContext2D, scene: Scene, colors: Record<Kind, string>,
): void {
  scene.lanes.forEach((lane) => ofLane(g, scene, lane, colors));
  for (const run of scene.shown) {
    const lanes = scene.lanes.filter((lane) => lane.run === run);
    if (!run.incident || !lanes.length) continue;
    const { from_ns, to_ns } = run.incident, x = scene.x(from_ns);
    const wide = Math.max(2, scene.x(to_ns) - x), top = lanes[0].y - 3;
    const high = lanes[lanes.length - 1].y + scene.laneHeight + 3 - top;
    g.fillStyle = g.strokeStyle = colors.incident;
    g.globalAlpha = 0.1;
    g.fillRect(x, top, wide, high);
    g.globalAlpha = 1;
    g.lineWidth = 1;
    g.strokeRect(x, top, wide, high);
  }
}

// In the strip, at its lower edge: `x` is the place of a time there.
export function drawStripMarks(
  g: CanvasRenderingContext2D, run: Run, colors: Record<Kind, string>, x: (t: number) => number,
  high: number,
): void {
  for (const { kind, from, to } of run.marks) {
    g.fillStyle = colors[kind];
    g.fillRect(x(from), high - 3, Math.max(1, x(to) - x(from)), 3);
  }
  if (!run.incident) return;
  const from = x(run.incident.from_ns);
  g.fillStyle = colors.incident;
  g.fillRect(from, 0, Math.max(2, x(run.incident.to_ns) - from), 3);
}

export function said(scene: Scene, run: Run, mark: Mark): string {
  const where = " on " + scene.rowName(run, mark.cpu) + " from " + moment(mark.from);
  switch (mark.kind) {
    case "lost":
      return mark.what + " events lost on " + scene.rowName(run, mark.cpu) + " before " +
        moment(mark.from);
    case "throttled":
      return scene.nameOf(mark.what) + " throttled for " + time(mark.to - mark.from) + where;
    case "stolen":
      return time(mark.to - mark.from) + " stolen by the hypervisor" + where;
  }
}

// What is marked during a span of a lane, the first few.
export function during(scene: Scene, lane: Lane, from: number, to: number): string[] {
  const all = marksOf(scene, lane).filter((mark) => mark.to >= from && mark.from <= to);
  const more = all.length - 3, first = all.slice(0, 3).map((mark) => said(scene, lane.run, mark));
  return more > 0 ? [...first, "and " + more + " more marks"] : first;
}

export interface Stop {
  run: Run;
  from: number;
  to: number;
  text: string;
}

// What a reader can go to, in order of time.
export function stops(scene: Scene): Stop[] {
  return scene.shown.flatMap((run): Stop[] => {
    const { incident } = run;
    const marks = run.marks.map((mark) =>
      ({ run, from: mark.from, to: mark.to, text: said(scene, run, mark) }));
    if (!incident) return marks;
    return [{ run, from: incident.from_ns, to: incident.to_ns, text: incident.text }, ...marks];
  }).sort((a, b) => a.from - b.from);
}
