// A figure that static pages have, too, drawn by the same code from data of the server.
import { useEffect, useRef } from "preact/hooks";
import type { LadderData, LanesData } from "./page/data";
import { el } from "./page/dom";
import { ladder } from "./page/ladder";
import { lanes, type LanesView } from "./page/lanes/lanes";
import "./page/page.css";

type Props = { id: string; title: string; names: string } & (
  | { kind: "ladder"; data: LadderData }
  | { kind: "lanes"; data: LanesData; ready?: (view: LanesView) => void }
);

// The figure without what is drawn into it.
function empty({ kind, id, title, names }: Props): HTMLElement {
  const inner = el("div", { className: kind === "lanes" ? "mount" : "plot" });
  if (kind === "ladder") {
    inner.setAttribute("role", "img");
    inner.setAttribute("aria-label", title);
  }
  const figure = el("figure", { className: kind, id }, inner);
  figure.dataset.names = names;
  return figure;
}

// What is drawn takes the place of what was there when it is read, and has the part in view that a reader has moved to.
async function draw(place: HTMLElement, figure: HTMLElement, props: Props, isLast: () => boolean): Promise<void> {
  const before = props.kind === "lanes" ? place.querySelector<HTMLElement>("figure[data-ready=summed]") : null;
  if (!before) place.replaceChildren(figure);
  try {
    if (props.kind === "ladder") ladder(figure, props.data);
    else {
      let held: [number, number] | null = null;
      const view = await lanes(figure, props.data, () => {
        if (!before) return;
        if (!isLast()) throw new Error("another one is drawn");
        const { from, to, all } = before.dataset;
        if (from + " " + to !== all) held = [Number(from), Number(to)];
        place.replaceChildren(figure);
      });
      if (held) view.view(...(held as [number, number]));
      props.ready?.(view);
      if (props.data.runs.some((run) => run.summed)) {
        figure.dataset.all = figure.dataset.from + " " + figure.dataset.to;
        figure.dataset.ready = "summed";
        return;
      }
    }
    figure.dataset.ready = "yes";
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    figure.append(el("p", { className: "warn" }, "This cannot be drawn here (" + why + ")."));
  }
}

export function Widget(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let isLast = true;
    void draw(place.current!, empty(props), props, () => isLast);
    return () => { isLast = false; };
  }, [props.kind, props.id, props.data]);
  return <div ref={place} />;
}
