// Mouse, pen and fingers on the lanes.
import { el } from "../dom";
import type { Desk } from "./lanes";
import { end } from "./types";
import { words } from "./words";

// So many pixels are no drag yet; two fingers are at least so far from each other.
const SLIP = 3, APART = 4;

interface Drag {
  x: number;
  a: number;
  b: number;
  hasMoved: boolean;
  // Whether it chooses a part.
  chooses: boolean;
}

class Pointer {
  private drag: Drag | null = null;
  private readonly touches = new Map<number, number>();

  constructor(private readonly desk: Desk) {
    const { canvas } = desk;
    canvas.addEventListener("pointerdown", (e) => this.down(e));
    canvas.addEventListener("pointermove", (e) => this.move(e));
    canvas.addEventListener("pointerup", (e) => this.up(e));
    canvas.addEventListener("pointercancel", (e) => {
      this.touches.delete(e.pointerId);
      this.drag = null;
    });
    canvas.addEventListener("pointerleave", () => this.hide());
    canvas.addEventListener("dblclick", (e) => this.whole(e));
    canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
  }

  private left(): number {
    return this.desk.canvas.getBoundingClientRect().left;
  }

  private hide(): void {
    this.desk.tip.style.display = "none";
  }

  private hit(e: MouseEvent) {
    const box = this.desk.canvas.getBoundingClientRect();
    return this.desk.scene.hit(e.clientX - box.left, e.clientY - box.top);
  }

  private down(e: PointerEvent): void {
    const { canvas, scene: { view } } = this.desk;
    canvas.setPointerCapture(e.pointerId);
    this.touches.set(e.pointerId, e.clientX);
    this.drag = { x: e.clientX, a: view.a, b: view.b, hasMoved: false, chooses: e.shiftKey };
    canvas.focus({ preventScroll: true });
  }

  private move(e: PointerEvent): void {
    const isDown = this.touches.has(e.pointerId);
    if (isDown && this.touches.size === 2) {
      this.pinch(e);
      return;
    }
    if (isDown) this.touches.set(e.pointerId, e.clientX);
    if (this.drag) this.pull(e, this.drag);
    else this.hover(e);
  }

  private pinch(e: PointerEvent): void {
    const { desk } = this, [p, q] = this.touches.values(), before = Math.abs(p - q);
    this.touches.set(e.pointerId, e.clientX);
    const [u, v] = this.touches.values(), after = Math.abs(u - v);
    if (before > APART && after > APART) {
      desk.zoom(before / after, desk.scene.time((u + v) / 2 - this.left()));
    }
    this.drag = null;
  }

  private pull(e: PointerEvent, drag: Drag): void {
    const { desk } = this, { width, gutter } = desk.scene;
    if (Math.abs(e.clientX - drag.x) > SLIP) drag.hasMoved = true;
    if (!drag.hasMoved) return;
    this.hide();
    if (drag.chooses) {
      const left = this.left();
      desk.painter.choosing(drag.x - left, e.clientX - left);
      return;
    }
    const by = (drag.x - e.clientX) / (width - gutter) * (drag.b - drag.a);
    desk.set(drag.a + by, drag.b + by);
  }

  private hover(e: PointerEvent): void {
    const { tip, scene } = this.desk, place = this.hit(e);
    if (!place) {
      this.hide();
      return;
    }
    const [head, ...rest] = words(scene, place), x = e.clientX - this.left();
    tip.replaceChildren(el("b", {}, head), ...rest.map((text) => el("div", {}, text)));
    tip.style.display = "block";
    const left = x > scene.width / 2 ? x - tip.offsetWidth - 10 : x + 12;
    tip.style.left = Math.max(0, left) + "px";
    tip.style.top = place.lane.y + scene.laneHeight + 10 + "px";
  }

  private up(e: PointerEvent): void {
    const { desk, drag } = this;
    this.touches.delete(e.pointerId);
    this.drag = null;
    if (!drag) return;
    if (!drag.hasMoved) {
      desk.pick(this.hit(e));
      return;
    }
    if (!drag.chooses) return;
    const time = (x: number) => desk.scene.time(x - this.left());
    desk.set(time(Math.min(drag.x, e.clientX)), time(Math.max(drag.x, e.clientX)));
  }

  // One span, with half of its length on both sides.
  private whole(e: MouseEvent): void {
    const place = this.hit(e);
    if (!place) return;
    const { lane: { c, run }, span } = place, from = c.start[span];
    const ran = end(run, c, span) - from;
    this.desk.set(from - ran * 0.5, from + ran * 1.5);
  }

  private wheel(e: WheelEvent): void {
    const { desk } = this, { scene: { view, width } } = desk;
    if (!e.ctrlKey && !e.metaKey && document.activeElement !== desk.canvas) return;
    e.preventDefault();
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) desk.move(e.deltaX / width * (view.b - view.a));
    else {
      const factor = Math.exp(Math.max(-1, Math.min(1, e.deltaY / 240)));
      desk.zoom(factor, desk.scene.time(e.clientX - this.left()));
    }
  }
}

export function pointer(desk: Desk): void {
  new Pointer(desk);
}
