// A folded section opens when it is gone to, and all do on paper.
import { redraw } from "./look";

function open(): void {
  const name = location.hash.slice(1), at = name && document.getElementById(name);
  const fold = at ? at.querySelector<HTMLDetailsElement>(":scope > details") : null;
  if (fold) fold.open = true;
}

export function folds(): void {
  addEventListener("hashchange", open);
  open();
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
    // What was folded was not drawn yet.
    redraw();
  });
}
