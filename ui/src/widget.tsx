// A figure that static pages have, too: its data is put into it, and the same script draws it.
import { useEffect, useRef } from "preact/hooks";

interface Props {
  kind: "ladder" | "lanes";
  id: string;
  title: string;
  names: string;
  data: unknown;
}

export function Widget({ kind, id, title, names, data }: Props) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const figure = document.createElement("figure");
    figure.className = kind;
    figure.id = id;
    figure.dataset.names = names;
    const inner = document.createElement("div");
    inner.className = kind === "lanes" ? "mount" : "plot";
    if (kind === "ladder") {
      inner.setAttribute("role", "img");
      inner.setAttribute("aria-label", title);
    }
    const given = document.createElement("script");
    given.type = "application/json";
    given.textContent = JSON.stringify(data);
    figure.append(inner, given);
    place.current!.replaceChildren(figure);
    const failed = (error: unknown) => {
      const said = document.createElement("p");
      said.className = "warn";
      said.textContent = "This cannot be drawn here (" + (error instanceof Error ? error.message : String(error)) + ").";
      figure.append(said);
    };
    try {
      void Promise.resolve(Lab[kind](figure)).then(() => { figure.dataset.ready = "yes"; }, failed);
    } catch (error) {
      failed(error);
    }
  }, [kind, id, data]);
  return <div ref={place} />;
}
