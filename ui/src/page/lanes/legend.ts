// Which colour is what. The classes that used most CPU time have one each, the rest share grey.
import { el } from "../dom";
import { again, css } from "../look";
import type { Desk } from "./lanes";
import { COLORS, kinds, NAMES } from "./marks";
import { OTHERS } from "./scene";

export class Legend {
  readonly element = el("ul",
    { className: "legend", "aria-label": "Tasks by CPU time; press to highlight them" });
  private readonly waiting: HTMLElement;

  constructor(private readonly desk: Desk) {
    const { ranked, used, classes, paint } = desk.scene;
    const inUse = ranked.filter((c) => used[c] > 0);
    for (const c of inUse.slice(0, OTHERS)) this.key("--c" + paint[c], classes[c], (k) => k === c);
    if (inUse.length > OTHERS) {
      const text = inUse.length - OTHERS + " others";
      this.key("--c" + OTHERS, text, (k) => paint[k] === OTHERS && used[k] > 0);
    }
    this.waiting = this.key("--ink", "waits");
    for (const kind of kinds(desk.scene)) this.key(COLORS[kind], NAMES[kind]);
  }

  // `mine`: which classes it is of; a key without them is not pressed.
  private key(dye: string, text: string, mine?: (c: number) => boolean): HTMLElement {
    const swatch = el("i"), { desk } = this;
    const paint = () => { swatch.style.background = css(dye); };
    again(desk.figure, paint);
    paint();
    const key = mine ? el("button", { type: "button", "aria-pressed": "false" }, swatch, text)
      : el("span", {}, swatch, text);
    if (mine) {
      key.addEventListener("click", () => {
        const { tasks, classOf } = desk.scene, on = key.getAttribute("aria-pressed") !== "true";
        this.press(on ? key : null);
        desk.search.clear();
        if (on) desk.light(tasks.map((_, t) => mine(classOf[t])), "Highlighted: " + text + ".");
        else desk.light(null, "");
      });
    }
    const item = el("li", {}, key);
    this.element.append(item);
    return item;
  }

  press(key: HTMLElement | null): void {
    for (const button of this.element.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button === key));
    }
  }

  waits(are: boolean): void {
    this.waiting.hidden = !are;
  }
}
