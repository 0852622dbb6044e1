// Values over time.
import uPlot from "uplot";
import type { SeriesData } from "./data";
import { color, dash } from "./look";
import { axis, chart, type Made, PLAIN, tip } from "./plot";
import { tick, time } from "./units";

function plot(data: SeriesData): Made | null {
  const { traces } = data, count = Math.max(0, ...traces.map((t) => t.values.length));
  if (!count) return null;
  const times = Array.from({ length: count }, (_, i) => data.from_ns + i * data.step_ns);
  const said = (u: uPlot, k: number, i: number) => {
    const v = u.data[k + 1][i];
    return v == null ? "–" : v.toFixed(2);
  };
  return {
    data: [times, ...traces.map((t) => times.map((_, i) => t.values[i] ?? null))],
    opts: {
      ...PLAIN,
      scales: { x: { time: false }, y: { range: (_, __, high) => [0, Math.max(high * 1.08, 1)] } },
      axes: [axis({ label: "time", size: 30, values: (_, v) => v.map(tick) }),
        axis({ label: data.unit, size: 56 })],
      plugins: [tip((u, i) => ["at " + time(u.data[0][i]),
        traces.map((t, k) => t.name + ": " + said(u, k, i))])],
      series: [{}, ...traces.map((t): uPlot.Series => ({
        label: t.name, stroke: color(t.style), width: 1.5, dash: dash(t.style),
        points: { show: false }, paths: uPlot.paths.stepped!({ align: 1 }),
      }))],
    },
  };
}

export function series(figure: HTMLElement, data: SeriesData): void {
  chart(figure, () => plot(data));
}
