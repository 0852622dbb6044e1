// Elements. Text reaches a page as text only.
type Props = Record<string, unknown>;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, props: Props = {}, ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    // `list` of an input can only be read.
    if (key in made && key !== "list") Reflect.set(made, key, value);
    else made.setAttribute(key, String(value));
  }
  made.append(...children);
  return made;
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K, props: Props, ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

export function one<E extends Element = HTMLElement>(within: ParentNode, what: string): E {
  const found = within.querySelector<E>(what);
  if (!found) throw new Error("the page has no " + what);
  return found;
}

// A table of texts; the columns from `left` on hold numbers, except the last `after`.
export function table(heads: string[], rows: (Node | string)[][], left: number, after: number) {
  const isNumber = (k: number) => k >= left && k < heads.length - after;
  const head = heads.map((text, k) =>
    el("th", { scope: "col", className: isNumber(k) ? "n" : "" }, text));
  const cell = (what: Node | string, k: number) => (k === 0 && left > 0
    ? el("th", { scope: "row" }, what)
    : el("td", { className: isNumber(k) ? "n" : "" }, what));
  return [el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell))))];
}
