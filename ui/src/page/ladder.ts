// The percentile ladder: one line for each run from p50 to the maximum, its name at its end.
import type { LadderData, LadderLine } from "./data";
import { one, svg } from "./dom";
import { again, color, dash, hue } from "./look";
import { tick, time } from "./units";

const LINE = 17, TURN = 14, LETTER = 7.3, LEFT = 62, TOP = 12;

// What is where in the picture.
interface Frame {
  width: number;
  height: number;
  right: number;
  // Between two rungs.
  gap: number;
  bottom: number;
  // Of a band of what cannot be told.
  wide: number;
  // Each name, in lines that fit.
  names: Map<LadderLine, string[]>;
  low: number;
  high: number;
  x: (rung: number) => number;
  y: (ns: number) => number;
  inside: (y: number) => number;
}

// A name that is longer than its margin goes on in the next line, whole.
function folded(name: string, room: number): string[] {
  const lines = [""], piece = new RegExp(".{1," + room + "}", "gu");
  for (const word of name.split(" ").flatMap((w) => w.match(piece) ?? [""])) {
    const last = lines.length - 1, joined = lines[last] ? lines[last] + " " + word : word;
    if (joined.length <= room) lines[last] = joined;
    else lines.push(word);
  }
  return lines;
}

const isTime = (v: number | null): v is number => v !== null && v > 0;

// All times that the picture has room for. Where it matters what cannot be told, all that a number
// may be is inside.
function times({ curves }: LadderData): number[] {
  const seen = curves.flatMap((c) => c.ns.filter(isTime));
  if (!seen.length || !curves.some((c) => c.open)) return seen;
  return seen.concat(curves.flatMap((c) => c.between.flat().filter(isTime)));
}

function frame({ rungs, curves }: LadderData, values: number[], width: number): Frame {
  const longest = Math.max(...curves.map((c) => c.name.length));
  const right = Math.min(width * 0.42, longest * LETTER + 16), room = width - LEFT - right;
  // Bands stand beside each other, and need room beside the first and the last rung.
  const tells = curves.some((c) => c.open), places = rungs.length * curves.length;
  const wide = tells ? Math.max(4, Math.min(22, room * 0.6 / places)) : 0;
  const side = wide * curves.length / 2;
  const gap = (room - 18 - 2 * side) / Math.max(1, rungs.length - 1), bottom = gap < 40 ? 39 : 26;
  const letters = Math.max(6, Math.floor((right - 16) / LETTER));
  const names = new Map(curves.map((c) => [c, folded(c.name, letters)]));
  const tall = curves.reduce((sum, c) => sum + tallness(names, c), 0);
  const height = Math.max(260, tall + TOP + bottom + 8);
  const lo = Math.log10(Math.min(...values)), hi = Math.log10(Math.max(...values));
  const pad = Math.max(0.08, (hi - lo) * 0.05), low = lo - pad, high = hi + pad;
  const scale = (height - TOP - bottom) / (high - low);
  return {
    width, height, right, gap, bottom, wide, names, low, high,
    x: (rung) => LEFT + 6 + side + rung * gap,
    y: (ns) => TOP + (high - Math.log10(Math.max(1, ns))) * scale,
    inside: (y) => Math.max(TOP, Math.min(height - bottom, y)),
  };
}

const tallness = (names: Frame["names"], c: LadderLine) =>
  LINE + ((names.get(c)?.length ?? 1) - 1) * TURN;

function axes(f: Frame, rungs: string[]): SVGElement[] {
  const all: SVGElement[] = [];
  for (let d = Math.ceil(f.low); d <= f.high; d++) {
    const value = Math.pow(10, d), y = f.y(value);
    all.push(svg("line", { x1: LEFT, x2: f.width - f.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: LEFT - 8, y: y + 4, class: "axis end" }, tick(value)));
  }
  rungs.forEach((rung, i) => {
    // Where there is no room beside each other, every second one stands higher.
    const up = f.gap < 40 && i % 2 ? 14 : 0;
    all.push(svg("text", { x: f.x(i), y: f.height - 6 - up, class: "axis mid" }, rung));
  });
  return all;
}

interface End {
  curve: LadderLine;
  rung: number;
  y: number;
  // Where its name is.
  at: number;
}

// Where each line ends, and its name: names that would cover each other are pushed apart, all of
// them inside the picture.
function ends(f: Frame, curves: LadderLine[]): End[] {
  const all = curves.map((curve): End => {
    let rung = curve.ns.length - 1;
    while (rung > 0 && curve.ns[rung] === null) rung--;
    const y = f.y(curve.ns[rung] ?? 1);
    return { curve, rung, y, at: y };
  }).sort((a, b) => a.y - b.y);
  let below = TOP;
  for (const end of all) {
    end.at = Math.max(end.y, below);
    below = end.at + tallness(f.names, end.curve);
  }
  let above = f.height - f.bottom;
  for (const end of [...all].reverse()) {
    end.at = Math.min(end.at, above - (tallness(f.names, end.curve) - LINE));
    above = end.at - LINE;
  }
  return all;
}

// Where a percentile lies, in words.
function interval(c: LadderLine, rung: number): string {
  const all = c.between[rung];
  if (all.every((v) => v === null)) return "";
  return " (95 %: " + all.map((v) => (v === null ? "?" : time(v))).join(" … ") + ")";
}

// The dots of a run, with a bar where the percentile lies, or a band over all that it may be where
// it cannot be told from the first run's.
function marks(f: Frame, rungs: string[], c: LadderLine, shift: number, group: SVGElement): void {
  const key = "run v" + hue(c.style);
  c.ns.forEach((v, k) => {
    if (v === null) return;
    const [low, high] = c.between[k], isOpen = c.open?.[k] ?? false;
    const name = c.name + ", " + rungs[k];
    if (isOpen && low !== null && high !== null) {
      const y = f.inside(f.y(high)), dye = color(c.style);
      group.prepend(svg("rect", {
        x: f.x(k) + shift - f.wide / 2 + 1, y, width: f.wide - 2,
        height: Math.max(2, f.inside(f.y(low)) - y), fill: dye, stroke: dye, class: "band",
      }, svg("title", {}, name + ": cannot tell" + interval(c, k))));
    }
    if (!isOpen && (low !== null || high !== null)) {
      // Open at an end that is not known.
      const x = f.x(k) + shift, y1 = f.inside(f.y(low ?? v)), y2 = f.inside(f.y(high ?? v));
      group.append(svg("line", { x1: x, x2: x, y1, y2, class: "bar " + key }));
    }
  });
  c.ns.forEach((v, k) => {
    if (v === null) return;
    const said = c.name + ", " + rungs[k] + ": " + time(v) + interval(c, k);
    const dot = { cx: f.x(k), cy: f.y(v), r: 3.2, class: key };
    group.append(svg("circle", dot, svg("title", {}, said)));
  });
}

function run(f: Frame, rungs: string[], end: End, shift: number): SVGElement {
  const c = end.curve, key = "run v" + hue(c.style), x = f.width - f.right + 12;
  const points = c.ns.flatMap((v, k) => (v === null ? [] : f.x(k) + "," + f.y(v))).join(" ");
  const parts = (f.names.get(c) ?? []).map((text, k) =>
    svg("tspan", { x, dy: k ? TURN : 0 }, text));
  const group = svg("g", { class: "row" },
    svg("polyline", { points, class: key, "stroke-dasharray": dash(c.style).join(" ") }),
    svg("line", {
      x1: f.x(end.rung), y1: end.y, x2: f.width - f.right + 8, y2: end.at, class: "lead " + key,
    }),
    svg("text", { x, y: end.at + 4, class: "name " + key }, ...parts, svg("title", {}, c.name)));
  marks(f, rungs, c, shift, group);
  return group;
}

function picture(data: LadderData, values: number[], width: number): SVGElement {
  const { rungs, curves } = data, f = frame(data, values, width);
  const shift = (c: LadderLine) => (curves.indexOf(c) - (curves.length - 1) / 2) * f.wide;
  const viewBox = "0 0 " + width + " " + f.height;
  return svg("svg", { width, height: f.height, viewBox, "aria-hidden": "true" },
    ...axes(f, rungs),
    ...ends(f, curves).map((end) => run(f, rungs, end, shift(end.curve))));
}

export function ladder(figure: HTMLElement, data: LadderData): void {
  const box = one(figure, ".plot"), values = times(data);
  let width = 0;
  const build = () => {
    width = box.clientWidth;
    if (width && values.length) box.replaceChildren(picture(data, values, width));
  };
  build();
  again(figure, build);
  new ResizeObserver(() => { if (box.clientWidth !== width) build(); }).observe(box);
}
