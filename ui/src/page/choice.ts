// One of several tables at a time.
import { one } from "./dom";

export function choice(figure: HTMLElement): void {
  const select = one<HTMLSelectElement>(figure, "select");
  const items = [...figure.querySelectorAll<HTMLElement>(".item")];
  const show = () => items.forEach((item, i) => { item.hidden = i !== select.selectedIndex; });
  select.addEventListener("change", show);
  one(figure, ".choices").hidden = items.length < 2;
  show();
}
