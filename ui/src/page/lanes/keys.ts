// The keyboard on the lanes.
import type { Desk } from "./lanes";
import { inView } from "./words";

// Part of the view that an arrow key moves.
const STEP = 0.2;
// After these is said what is in view.
const VIEWING = ["+", "=", "-", "0", "ArrowLeft", "ArrowRight", "Home", "End"];

export function keys(desk: Desk): void {
  const { scene, canvas } = desk, span = () => scene.view.b - scene.view.a;
  const moves: Record<string, () => void> = {
    ArrowLeft: () => desk.move(-STEP * span()),
    ArrowRight: () => desk.move(STEP * span()),
    ArrowUp: () => desk.nextLane(-1),
    ArrowDown: () => desk.nextLane(1),
    ",": () => desk.step(-1),
    ".": () => desk.step(1),
    "+": () => desk.zoom(0.5),
    "=": () => desk.zoom(0.5),
    "-": () => desk.zoom(2),
    0: () => desk.all(),
    Home: () => desk.set(scene.begin, scene.begin + span()),
    End: () => desk.set(scene.finish - span(), scene.finish),
    n: () => desk.jump(1),
    p: () => desk.jump(-1),
    m: () => desk.nextMark(1),
    M: () => desk.nextMark(-1),
    t: () => desk.ownLane(),
    "/": () => desk.search.focus(),
    Escape: () => desk.letGo(),
  };
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || !Object.hasOwn(moves, e.key)) return;
    e.preventDefault();
    moves[e.key]();
    if (VIEWING.includes(e.key)) desk.say(inView(scene));
  });
}
