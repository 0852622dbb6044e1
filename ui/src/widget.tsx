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

async function draw(figure: HTMLElement, props: Props): Promise<void> {
  try {
    if (props.kind === "ladder") ladder(figure, props.data);
    else {
      const view = await lanes(figure, props.data);
      props.ready?.(view);
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
    const figure = empty(props);
    place.current?.replaceChildren(figure);
    void draw(figure, props);
  }, [props.kind, props.id, props.data]);
  return <div ref={place} />;
}
