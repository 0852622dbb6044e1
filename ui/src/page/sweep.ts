// A number over the values of a setting, and a slider that goes from row to row.
import type uPlot from "uplot";
import type { SweepData, SweepLine } from "./data";
import { el, one } from "./dom";
import { color, css } from "./look";
import { axis, chart, chooser, type Made, PLAIN } from "./plot";
import { tick } from "./units";

// A number of an axis.
function written(scale: SweepLine["scale"], v: number | null): string {
  if (v === null) return "";
  if (scale === "time") return tick(v);
  return scale === "part" ? +(v * 100).toPrecision(4) + " %" : String(+v.toPrecision(4));
}

// A bar for where each number lies, and a line at the row of the slider.
const marks = (line: SweepLine, row: () => number): uPlot.Plugin => ({ hooks: { draw: (u) => {
  const g = u.ctx, px = devicePixelRatio || 1;
  const x = (i: number) => u.valToPos(i, "x", true), y = (v: number) => u.valToPos(v, "y", true);
  const stroke = (x0: number, y0: number, y1: number) => {
    g.beginPath();
    g.moveTo(x0, y0);
    g.lineTo(x0, y1);
    g.stroke();
  };
  g.save();
  g.strokeStyle = color(2);
  g.globalAlpha = 0.35;
  g.lineWidth = 5 * px;
  line.between.forEach((b, i) => { if (b) stroke(x(i), y(b[0]), y(b[1])); });
  g.globalAlpha = 1;
  g.lineWidth = px;
  g.strokeStyle = css("--ink");
  stroke(x(row()), u.bbox.top, u.bbox.top + u.bbox.height);
  g.restore();
} } });

function plot(data: SweepData, line: SweepLine, plugins: uPlot.Plugin[]): Made {
  const ends = line.between.flatMap((b) => b ?? []);
  const all = line.at.concat(ends).filter((v) => v !== null);
  const top = Math.max(...all, 0) * 1.08 || 1, bottom = Math.min(0, ...all);
  const name = (i: number) => (Number.isInteger(i) ? data.values[i] ?? "" : "");
  return {
    data: [data.values.map((_, i) => i), line.at],
    opts: {
      ...PLAIN,
      scales: {
        x: { time: false, range: [-0.5, data.values.length - 0.5] }, y: { range: [bottom, top] },
      },
      axes: [
        axis({
          label: data.what, size: 30, incrs: [1, 2, 5, 10, 20], values: (_, v) => v.map(name),
        }),
        axis({
          label: line.name, size: 66, values: (_, v) => v.map((n) => written(line.scale, n)),
        }),
      ],
      plugins,
      series: [{}, {
        label: line.name, stroke: color(2), width: 2,
        points: { show: true, size: 7, fill: color(2) },
      }],
    },
  };
}

export function sweep(figure: HTMLElement, data: SweepData): void {
  const slider = one<HTMLInputElement>(figure, "input"), said = one(figure, "output");
  let line = 0, drawn: uPlot | null = null;
  const row = () => Number(slider.value);
  const say = () => {
    const name = data.what + " = " + data.values[row()];
    slider.setAttribute("aria-valuetext", name);
    const lines = data.lines.map((l) => el("div", {}, l.name + ": " + l.text[row()]));
    said.replaceChildren(el("b", {}, name), ...lines);
    drawn?.redraw(false);
  };
  const clicks: uPlot.Plugin = { hooks: { ready: (u) => {
    drawn = u;
    u.over.addEventListener("click", () => {
      if (u.cursor.idx == null) return;
      slider.value = String(u.cursor.idx);
      say();
    });
  } } };
  const build = chart(figure, () => {
    const chosen = data.lines[line];
    drawn = null;
    return plot(data, chosen, [marks(chosen, row), clicks]);
  });
  slider.addEventListener("input", say);
  chooser(figure, "line", (place) => {
    line = place;
    build();
  });
  say();
}
