// The strip with the whole run: a drag inside the part in view moves it, any other chooses a part,
// a click goes there.
import type { Desk } from "./lanes";

const SLIP = 3;

interface Brush {
  t: number;
  x: number;
  hasMoved: boolean;
  // Where the part that is moved began; null: a part is chosen.
  from: number | null;
}

export function strip(desk: Desk): void {
  const { scene, strip: canvas } = desk;
  let brush: Brush | null = null;
  const at = (e: PointerEvent) => {
    const { begin, finish, gutter, width } = scene;
    const x = e.clientX - canvas.getBoundingClientRect().left - gutter;
    return begin + x / (width - gutter) * (finish - begin);
  };
  canvas.addEventListener("pointerdown", (e) => {
    const t = at(e), { view: { a, b }, begin, finish } = scene, isAll = b - a >= finish - begin;
    canvas.setPointerCapture(e.pointerId);
    brush = { t, x: e.clientX, hasMoved: false, from: !isAll && t > a && t < b ? a : null };
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!brush) return;
    if (Math.abs(e.clientX - brush.x) > SLIP) brush.hasMoved = true;
    if (!brush.hasMoved) return;
    const t = at(e), span = scene.view.b - scene.view.a;
    if (brush.from === null) desk.set(Math.min(t, brush.t), Math.max(t, brush.t));
    else desk.set(brush.from + t - brush.t, brush.from + t - brush.t + span);
  });
  canvas.addEventListener("pointerup", () => {
    if (brush && !brush.hasMoved) {
      const half = (scene.view.b - scene.view.a) / 2;
      desk.set(brush.t - half, brush.t + half);
    }
    brush = null;
  });
  canvas.addEventListener("pointercancel", () => { brush = null; });
}
