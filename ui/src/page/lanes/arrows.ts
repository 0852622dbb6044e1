// Waits as thin lines below the lane on which they end, wakeups as arrows from waker to wakee; only
// where few enough are in view to be read, or those of the highlighted tasks and the chosen span.
import type { Lane, Place, Scene } from "./scene";
import { find, type Run } from "./types";

// So many spans in view of a run leave room for all, and for those of highlighted tasks.
const FEW = 160, MANY = 4000;

export interface Inks {
  ink: string;
  soft: string;
  dyes: string[];
}

export function arrows(g: CanvasRenderingContext2D, scene: Scene, inks: Inks): void {
  const { view, picked } = scene;
  for (const run of scene.shown) {
    const count = run.cpus.reduce((n, c) => n + find(c, view.b) - find(c, view.a), 0);
    const all = count < FEW && !scene.lit, lit = count <= MANY ? scene.lit : null;
    for (const lane of scene.lanes) {
      if (lane.run !== run || lane.cpu < 0) continue;
      if (all || lit) ofLane(g, scene, inks, lane, count < FEW ? 1 : 0, lit);
    }
    if (!picked || picked.lane.run !== run || picked.lane.cpu < 0) continue;
    const lane = scene.laneOf(run, picked.lane.cpu);
    if (lane) wait(g, scene, inks, { lane, span: picked.span }, true);
  }
}

// `more`: spans behind the view whose wait may reach into it.
function ofLane(
  g: CanvasRenderingContext2D, scene: Scene, inks: Inks, lane: Lane, more: number,
  lit: boolean[] | null,
): void {
  const { c } = lane, last = Math.min(find(c, scene.view.b) + more, c.n - 1);
  for (let span = find(c, scene.view.a); span <= last; span++) {
    const who = c.who[span];
    if (who >= 0 && (!lit || lit[who])) wait(g, scene, inks, { lane, span }, false);
  }
}

function wait(
  g: CanvasRenderingContext2D, scene: Scene, inks: Inks, { lane, span }: Place, isMine: boolean,
): void {
  const { c, run } = lane, who = c.who[span];
  if (who < 0 || c.wait[span] <= 0) return;
  const s = c.start[span], x = scene.x(s), y = lane.y + scene.laneHeight + 2;
  g.strokeStyle = inks.dyes[scene.paint[scene.classOf[who]]];
  g.lineWidth = isMine ? 3 : 2;
  g.globalAlpha = 0.9;
  g.beginPath();
  g.moveTo(scene.x(s - c.wait[span]), y);
  g.lineTo(x, y);
  g.stroke();
  g.globalAlpha = 1;
  if (c.wake[span] < 0) return;
  g.strokeStyle = g.fillStyle = isMine ? inks.ink : inks.soft;
  g.lineWidth = isMine ? 1.6 : 1;
  arrow(g, scene, run, c.wake[span], lane, x, isMine);
}

// From where the waker was to where its wakee then ran; a dot where no task woke it.
function arrow(
  g: CanvasRenderingContext2D, scene: Scene, run: Run, wake: number, lane: Lane, x: number,
  isMine: boolean,
): void {
  const from = scene.laneOf(run, run.wakes.cpu[wake]), high = scene.laneHeight;
  const wx = scene.x(run.wakes.at[wake]), below = lane.y + high + 2;
  if (run.wakes.by[wake] < 3 || !from) {
    g.beginPath();
    g.arc(wx, below, 2.4, 0, 7);
    g.fill();
    return;
  }
  const isUp = lane.y < from.y, y0 = from.y + high / 2, mid = (wx + x) / 2;
  const y1 = lane.y === from.y ? below - 1 : isUp ? lane.y + high : lane.y;
  const tail = isUp ? y1 + 6 : y1 - 6;
  g.globalAlpha = isMine ? 1 : 0.8;
  g.beginPath();
  g.moveTo(wx, y0);
  g.bezierCurveTo(mid, y0, mid, y1, x, y1);
  g.stroke();
  g.beginPath();
  g.moveTo(x, y1);
  g.lineTo(x - 3.5, tail);
  g.lineTo(x + 3.5, tail);
  g.fill();
  g.globalAlpha = 1;
}
