// Search: what matches is highlighted in the lanes and marked in the tables of the page; Enter goes
// from wait to wait.
import { el } from "../dom";
import type { Desk } from "./lanes";

// So many names are offered, and so many of the found ones are said.
const OFFERED = 500, SAID = 4;
const LABEL = "Find a task by name or number; Enter goes to its longest wait";

function mark(text: string): void {
  for (const head of document.querySelectorAll("table.data tbody th")) {
    const isFound = text !== "" && (head.textContent ?? "").toLowerCase().includes(text);
    head.parentElement?.classList.toggle("found", isFound);
  }
}

export class Search {
  readonly elements: HTMLElement[];
  private readonly field: HTMLInputElement;

  constructor(private readonly desk: Desk) {
    const list = desk.figure.id + "-tasks", names = new Set(desk.scene.tasks.map((t) => t[0]));
    this.field = el("input",
      { type: "search", placeholder: "Find a task", "aria-label": LABEL, list });
    const options = [...names].slice(0, OFFERED).map((value) => el("option", { value }));
    this.elements = [this.field, el("datalist", { id: list }, ...options)];
    this.field.addEventListener("input", () => this.seek());
    this.field.addEventListener("keydown", (e) => {
      if (e.key === "Enter") {
        e.preventDefault();
        if (desk.scene.lit?.includes(true)) desk.jump(e.shiftKey ? -1 : 1);
      }
      if (e.key === "Escape") {
        this.field.value = "";
        this.seek();
        desk.canvas.focus({ preventScroll: true });
      }
    });
  }

  focus(): void {
    this.field.focus();
  }

  clear(): void {
    if (this.field.value) mark("");
    this.field.value = "";
  }

  private seek(): void {
    const { desk } = this, { tasks } = desk.scene, text = this.field.value.trim().toLowerCase();
    mark(text);
    desk.legend.press(null);
    if (!text) {
      desk.light(null, "");
      return;
    }
    const hits = tasks.map((t) => t[0].toLowerCase().includes(text));
    const found = tasks.filter((_, t) => hits[t]).map((t) => t[0]), more = found.length - SAID;
    const names = found.slice(0, SAID).join(", ") + (more > 0 ? " and " + more + " more" : "");
    desk.light(hits, found.length
      ? found.length + " of " + tasks.length + " tasks: " + names + ". Enter: longest wait."
      : "No task is called so.");
  }
}
