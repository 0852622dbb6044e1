// Draws the scene on two canvases: the lanes, and a strip above them with the whole run.
import { css, ink } from "../look";
import { arrows, type Inks } from "./arrows";
import { COLORS, drawMarks, drawStripMarks } from "./marks";
import { type Label, pixel, Pixels } from "./pixels";
import { AXIS, DIM, type Place, type Scene } from "./scene";
import { end } from "./types";

export const STRIP = 26;
// So many CPUs have a row of their own in the strip; more are summed up.
const ROWS = 16;

interface Look extends Inks {
  font: string;
  hair: string;
  paper: string;
  raise: string;
  pixels: Uint32Array;
  raised: number;
  marks: typeof COLORS;
}

function look(): Look {
  const hair = css("--hair"), dark = css("--ink"), raise = css("--raise");
  const classes = Array.from({ length: 8 }, (_, i) => css("--c" + i));
  const dyes = [...classes, css("--unknown"), hair, dark];
  return {
    font: css("--sans"), soft: css("--soft"), ink: dark, hair, paper: css("--paper"), raise, dyes,
    pixels: Uint32Array.from(dyes, pixel), raised: pixel(raise),
    marks: {
      lost: css(COLORS.lost), throttled: css(COLORS.throttled), stolen: css(COLORS.stolen),
      incident: css(COLORS.incident),
    },
  };
}

function context(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const made = canvas.getContext("2d");
  if (!made) throw new Error("no canvas");
  return made;
}

const digits = (step: number) =>
  Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / 1e9) - 1e-6)));

export class Painter {
  private look: Look = look();
  private scale = 1;
  private lane: Pixels | null = null;
  // The strip without what says which part is in view.
  private whole: HTMLCanvasElement | null = null;
  private readonly lengths = new Map<string, number>();
  private asked = false;

  constructor(
    private readonly scene: Scene, readonly canvas: HTMLCanvasElement,
    readonly strip: HTMLCanvasElement,
  ) {}

  // The colours, or what there is to draw, are others.
  restyle(): void {
    this.look = look();
    this.whole = null;
    this.lengths.clear();
    this.draw();
  }

  // What is shown has another size.
  resize(): void {
    const { scene } = this, scale = this.scale = devicePixelRatio || 1;
    for (const [canvas, high] of [[this.canvas, scene.height], [this.strip, STRIP]] as const) {
      canvas.width = Math.round(scene.width * scale);
      canvas.height = Math.round(high * scale);
      canvas.style.height = high + "px";
      context(canvas).setTransform(scale, 0, 0, scale, 0, 0);
    }
    this.lane = null;
    this.restyle();
  }

  // Draws with the next picture of the screen, however often it is asked for until then.
  soon(): void {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  draw(): void {
    this.drawStrip();
    const { scene, look } = this, g = context(this.canvas);
    g.clearRect(0, 0, scene.width, scene.height);
    g.textBaseline = "middle";
    this.drawAxis(g);
    g.textAlign = "left";
    g.font = "12px " + look.font;
    const labels = this.drawLanes(g);
    g.save();
    g.beginPath();
    g.rect(scene.gutter, 0, scene.width - scene.gutter, scene.height - AXIS);
    g.clip();
    labels.forEach(([place, label]) => this.drawLabel(g, place, label));
    drawMarks(g, scene, look.marks);
    arrows(g, scene, look);
    if (scene.picked) this.outline(g, scene.picked);
    g.restore();
  }

  private drawAxis(g: CanvasRenderingContext2D): void {
    const { scene, look } = this, { a, b } = scene.view;
    const rough = (b - a) / Math.max(2, (scene.width - scene.gutter) / 110);
    const size = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = size * ([1, 2, 5].find((m) => m * size >= rough) ?? 10);
    g.font = "12px " + look.font;
    g.fillStyle = look.soft;
    g.strokeStyle = look.hair;
    g.lineWidth = 1;
    g.textAlign = "center";
    const bottom = scene.height - AXIS;
    for (let t = Math.ceil(a / step) * step; t <= b; t += step) {
      const x = Math.round(scene.x(t)) + 0.5;
      g.beginPath();
      g.moveTo(x, 0);
      g.lineTo(x, bottom);
      g.stroke();
      if (x <= scene.gutter + 20 || x >= scene.width - 34) continue;
      g.fillText((t / 1e9).toFixed(digits(step)) + " s", x, bottom + AXIS / 2);
    }
  }

  private drawLanes(g: CanvasRenderingContext2D): [Place, Label][] {
    const { scene, look, scale } = this, { a, b } = scene.view, high = scene.laneHeight;
    const left = Math.round(scene.gutter * scale), labels: [Place, Label][] = [];
    const rows = Math.round(high * scale), wide = Math.round(scene.width * scale) - left;
    const pixels = this.lane ??= new Pixels(wide, rows, scale);
    let run = null;
    for (const lane of scene.lanes) {
      if (lane.run !== run) {
        run = lane.run;
        g.font = "600 12.5px " + look.font;
        g.fillStyle = look.ink;
        g.fillText(run.name, 0, lane.y - 12);
        g.font = "12px " + look.font;
      }
      if (high > 10 || lane.cpu % 4 === 0) this.drawName(g, scene.rowName(run, lane.cpu), lane.y);
      const found = pixels.lane(run, lane.c, scene, look.pixels, look.raised, a, b);
      g.putImageData(pixels.image, left, Math.round(lane.y * scale));
      if (run.to_ns < b) {
        g.fillStyle = look.paper;
        g.fillRect(scene.x(run.to_ns), lane.y, scene.width, high);
      }
      if (high > 12) found.forEach((label) => labels.push([{ lane, span: label.span }, label]));
    }
    return labels;
  }

  private drawName(g: CanvasRenderingContext2D, name: string, y: number): void {
    const { scene, look } = this;
    g.fillStyle = look.soft;
    this.text(g, name, 0, y, scene.gutter - 6);
  }

  private drawLabel(g: CanvasRenderingContext2D, { lane, span }: Place, label: Label): void {
    const { scene, look, scale } = this, { on } = lane.c;
    const text = on ? "CPU " + on.cpu[span] : scene.nameOf(lane.c.who[span]);
    g.fillStyle = label.dye === DIM ? look.soft : ink(look.dyes[label.dye]);
    this.text(g, text, scene.gutter + label.x / scale + 5, lane.y, label.wide / scale - 8);
  }

  // A text in a lane, cut where there is no room.
  private text(
    g: CanvasRenderingContext2D, text: string, x: number, y: number, room: number,
  ): void {
    const high = this.scene.laneHeight;
    let length = this.lengths.get(text);
    if (length === undefined) this.lengths.set(text, length = g.measureText(text).width);
    if (length <= room) {
      g.fillText(text, x, y + high / 2);
      return;
    }
    g.save();
    g.beginPath();
    g.rect(x, y, room, high);
    g.clip();
    g.fillText(text, x, y + high / 2);
    g.restore();
  }

  private outline(g: CanvasRenderingContext2D, { lane: { c, run, cpu }, span }: Place): void {
    const { scene, look } = this, line = scene.laneOf(run, cpu);
    if (!line) return;
    const p = scene.x(c.start[span]), q = scene.x(end(run, c, span));
    g.strokeStyle = look.ink;
    g.lineWidth = 2;
    g.strokeRect(p, line.y - 1, Math.max(2, q - p), scene.laneHeight + 2);
  }

  // A part of the picture that a reader is choosing.
  choosing(x0: number, x1: number): void {
    this.draw();
    const g = context(this.canvas), { height } = this.scene;
    g.globalAlpha = 0.15;
    g.fillStyle = this.look.ink;
    g.fillRect(Math.min(x0, x1), 0, Math.abs(x1 - x0), height - AXIS);
    g.globalAlpha = 1;
  }

  private drawStrip(): void {
    const { scene, look } = this, { view, begin, finish, gutter, width } = scene;
    const g = context(this.strip);
    const whole = this.whole ??= this.drawWhole();
    g.clearRect(0, 0, width, STRIP);
    g.drawImage(whole, 0, 0, width, STRIP);
    const x = (t: number) => gutter + (t - begin) / (finish - begin) * (width - gutter);
    g.fillStyle = look.paper;
    g.globalAlpha = 0.72;
    g.fillRect(gutter, 0, x(view.a) - gutter, STRIP);
    g.fillRect(x(view.b), 0, width - x(view.b), STRIP);
    g.globalAlpha = 1;
    g.strokeStyle = look.ink;
    g.lineWidth = 1;
    g.strokeRect(x(view.a) + 0.5, 0.5, Math.max(2, x(view.b) - x(view.a) - 1), STRIP - 1);
  }

  // The first run that is shown, from its beginning to its end, nothing highlighted.
  private drawWhole(): HTMLCanvasElement {
    const { scene, look, scale } = this, { begin, finish } = scene, run = scene.shown[0];
    const canvas = document.createElement("canvas");
    canvas.width = this.strip.width;
    canvas.height = this.strip.height;
    const left = Math.round(scene.gutter * scale), rows = canvas.height;
    const pixels = new Pixels(canvas.width - left, rows, scale);
    pixels.clear(look.raised);
    const cpus = scene.drawn(run), edge = Math.round(2 * scale), room = rows - 2 * edge;
    if (cpus.length > ROWS) {
      for (const cpu of cpus) pixels.add(run, run.cpus[cpu], scene.plain, begin, finish);
      pixels.stack(look.pixels, edge, rows - edge, cpus.length);
    } else {
      cpus.forEach((cpu, k) => {
        const top = edge + Math.round(k * room / cpus.length);
        const bottom = edge + Math.round((k + 1) * room / cpus.length);
        const last = Math.max(top + 1, bottom - (bottom - top > 2 ? 1 : 0));
        pixels.add(run, run.cpus[cpu], scene.plain, begin, finish);
        pixels.stack(look.pixels, top, last, 1);
      });
    }
    const g = context(canvas), wide = (canvas.width - left) / (finish - begin);
    g.putImageData(pixels.image, left, 0);
    drawStripMarks(g, run, look.marks, (t) => left + (t - begin) * wide, rows);
    return canvas;
  }
}
