// The buttons above the lanes.
import { el } from "../dom";
import type { Desk } from "./lanes";
import { perfetto } from "./perfetto";
import type { Run } from "./types";

export interface Bar {
  element: HTMLElement;
  // Has a run in view, or no more; one always is.
  toggle(run: Run): void;
}

function action(text: string, label: string, act: () => void): HTMLButtonElement {
  const button = el("button", { type: "button", "aria-label": label, title: label }, text);
  button.addEventListener("click", act);
  return button;
}

export function bar(desk: Desk): Bar {
  const { runs } = desk.scene, buttons = new Map<Run, HTMLButtonElement>();
  const toggle = (run: Run) => {
    if (run.on && runs.filter((other) => other.on).length === 1) return;
    run.on = !run.on;
    buttons.get(run)?.setAttribute("aria-pressed", String(run.on));
    desk.layout();
  };
  for (const run of runs.length > 1 ? runs : []) {
    const button = el("button", { type: "button", "aria-pressed": String(run.on) }, run.name);
    button.addEventListener("click", () => toggle(run));
    buttons.set(run, button);
  }
  const element = el("div", { className: "bar", role: "group", "aria-label": "Lanes" },
    ...buttons.values(), el("span", { className: "gap" }), ...desk.search.elements,
    action("Longest wait", "Go to the longest wait (n: next, p: previous)", () => desk.jump(1)),
    action("−", "Zoom out", () => desk.zoom(2)),
    action("+", "Zoom in", () => desk.zoom(0.5)),
    action("Whole", "Show everything (0)", () => desk.all()),
    action("Thread lane", "A lane for the chosen thread, or none any more (t)",
      () => desk.ownLane()),
    action("Open in Perfetto",
      "Open these lanes in ui.perfetto.dev; the data stays in this browser",
      () => perfetto(desk.scene, (text) => desk.say(text))));
  return { element, toggle };
}
