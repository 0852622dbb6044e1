// What the charts drawn by uPlot share: the frame that follows its box, axes, and a tooltip.
import uPlot from "uplot";
import { el, one } from "./dom";
import { again, css } from "./look";

export interface Made {
  opts: Omit<uPlot.Options, "width" | "height">;
  data: uPlot.AlignedData;
}

// Draws into `.plot` of the figure, anew when the colours change; returns what draws it again. What
// is folded away is drawn when it is seen.
export function chart(figure: HTMLElement, make: () => Made | null): () => void {
  const box = one(figure, ".plot");
  const size = () => ({ width: Math.max(220, box.clientWidth), height: box.clientHeight });
  let plot: uPlot | null = null;
  const build = () => {
    plot?.destroy();
    plot = null;
    box.replaceChildren();
    const made = box.clientWidth > 0 ? make() : null;
    plot = made && new uPlot({ ...size(), ...made.opts }, made.data, box);
  };
  build();
  again(figure, build);
  new ResizeObserver(() => {
    if (!plot) build();
    else if (box.clientWidth > 0 && plot.width !== size().width) plot.setSize(size());
  }).observe(box);
  return build;
}

export function axis(more: uPlot.Axis): uPlot.Axis {
  const font = "12px " + css("--sans");
  return {
    stroke: css("--soft"), font, labelFont: font, labelSize: 22, labelGap: 2,
    grid: { stroke: css("--hair"), width: 1 }, ticks: { show: false }, gap: 6, ...more,
  };
}

// What all charts have: no legend of uPlot's own, a cursor that only points.
export const PLAIN = {
  legend: { show: false },
  cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
} satisfies Partial<uPlot.Options>;

// A tooltip that follows the pointer: a heading, and a line for each run.
export function tip(lines: (plot: uPlot, place: number) => [string, string[]]): uPlot.Plugin {
  const box = el("div", { className: "tip" });
  const follow = (plot: uPlot) => {
    const { left, idx } = plot.cursor;
    if (idx == null || left === undefined || left < 0) {
      box.style.display = "none";
      return;
    }
    const [head, rows] = lines(plot, idx);
    box.replaceChildren(el("b", {}, head), ...rows.map((row) => el("div", {}, row)));
    box.style.display = "block";
    const right = left > plot.over.clientWidth / 2;
    box.style.left = (right ? left - box.offsetWidth - 12 : left + 12) + "px";
    box.style.top = "8px";
  };
  return { hooks: { init: (plot) => { plot.over.append(box); }, setCursor: follow } };
}

// Buttons of which one is pressed; `name` is the place that each has in `data-…`.
export function chooser(figure: HTMLElement, name: string, chosen: (place: number) => void): void {
  const buttons = figure.querySelectorAll<HTMLButtonElement>(".choices button");
  buttons.forEach((button) => button.addEventListener("click", () => {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    chosen(Number(button.dataset[name]));
  }));
}
