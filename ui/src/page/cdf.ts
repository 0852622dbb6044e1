// Which part of all values took longer than a time, on two logarithmic axes.
import uPlot from "uplot";
import type { Curve, Measure } from "./data";
import { color, dash } from "./look";
import { axis, chart, chooser, type Made, PLAIN, tip } from "./plot";
import { tick, time } from "./units";

function percentile(longer: number): string {
  const p = 100 * (1 - longer);
  return "p" + p.toFixed(p >= 99.999 ? 4 : p >= 99.9 ? 3 : p >= 99 ? 2 : 1);
}

// Whole decades, and 2 and 5 between them where there is room.
function decades(low: number, high: number, width: number): number[] {
  const marks = Math.log10(high / low) * 3 * 64 < width - 60 ? [1, 2, 5] : [1], found = [];
  for (let d = Math.pow(10, Math.floor(Math.log10(low))); d <= high; d *= 10) {
    for (const mark of marks) {
      const v = Math.round(d * mark);
      if (v >= low && v <= high) found.push(v);
    }
  }
  return found;
}

// A curve is a staircase: its value at any time is that of the last step before.
function steps(curve: Curve, times: number[]): (number | null)[] {
  let at = -1;
  return times.map((x) => {
    while (at + 1 < curve.ns.length && Math.max(1, curve.ns[at + 1]) <= x) at++;
    return at < 0 ? 1 : curve.longer[at] > 0 ? curve.longer[at] : null;
  });
}

const RUNGS = [1, 0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6];

// Between which values the axes lie.
function ranges(curves: Curve[]): { x: [number, number]; y: [number, number] } {
  // Left of where the first curve begins to fall there is nothing to see.
  const falls = (c: Curve) => c.ns[Math.max(0, c.longer.findIndex((v) => v < 0.93))];
  const lowest = Math.min(...curves.map((c) => Math.max(1, falls(c))));
  const highest = Math.max(...curves.map((c) => c.ladder.max));
  const most = Math.max(...curves.map((c) => c.count));
  const low = Math.max(lowest * 0.5, highest / 1e7);
  return {
    x: [low, Math.max(highest * 1.15, low * 10)],
    y: [Math.pow(10, Math.floor(Math.log10(1 / most))), 1],
  };
}

function plot(measure: Measure): Made | null {
  const { curves } = measure;
  const times = [...new Set(curves.flatMap((c) => c.ns.map((ns) => Math.max(1, ns))))];
  if (!times.length) return null;
  times.sort((a, b) => a - b);
  const { x, y } = ranges(curves), rungs = RUNGS.filter((v) => v >= y[0] * 0.99);
  const said = (u: uPlot, k: number, i: number) => {
    const v = u.data[k + 1][i];
    return v == null ? "none" : +(v * 100).toPrecision(2) + " % (" + percentile(v) + ")";
  };
  const rung = (v: number) => (v === 1 ? "" : "p" + +(100 - v * 100).toFixed(4));
  return {
    data: [times, ...curves.map((c) => steps(c, times))],
    opts: {
      ...PLAIN,
      scales: { x: { time: false, distr: 3, range: x }, y: { distr: 3, range: y } },
      axes: [
        axis({
          label: measure.name, size: 30, filter: (_, v) => v, values: (_, v) => v.map(tick),
          splits: (u) => decades(u.scales.x.min ?? x[0], u.scales.x.max ?? x[1], u.width),
        }),
        axis({
          label: "percentile", size: 58, filter: (_, v) => v, values: (_, v) => v.map(rung),
          splits: () => rungs,
        }),
      ],
      plugins: [tip((u, i) => ["took longer than " + time(u.data[0][i]),
        curves.map((c, k) => c.name + ": " + said(u, k, i))])],
      series: [{}, ...curves.map((c): uPlot.Series => ({
        label: c.name, stroke: color(c.style), width: c.style === 0 ? 2.5 : 2,
        dash: dash(c.style), points: { show: false }, paths: uPlot.paths.stepped!({ align: 1 }),
      }))],
    },
  };
}

export function cdf(figure: HTMLElement, measures: Measure[]): void {
  let chosen = 0;
  const build = chart(figure, () => plot(measures[chosen]));
  chooser(figure, "measure", (place) => {
    chosen = place;
    figure.querySelectorAll<HTMLElement>(".behind").forEach((table) => {
      table.hidden = Number(table.dataset.measure) !== chosen;
    });
    build();
  });
}
