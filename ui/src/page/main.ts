// A static page: its figures are drawn from the data beside them, its tables sorted in place.
import "uplot/dist/uPlot.min.css";
import "./page.css";
import { cdf } from "./cdf";
import { choice } from "./choice";
import type { LadderData, LanesData, Measure, SeriesData, SweepData } from "./data";
import { el, one } from "./dom";
import { folds } from "./folds";
import { ladder } from "./ladder";
import { lanes } from "./lanes/lanes";
import { series } from "./series";
import { sortable } from "./sort";
import { sweep } from "./sweep";
import { themes } from "./theme";
import { spaced } from "./units";

const given = <T>(figure: HTMLElement) => JSON.parse(one(figure, "script").textContent ?? "") as T;

const WIDGETS: Record<string, (figure: HTMLElement) => unknown> = {
  cdf: (figure) => cdf(figure, given<Measure[]>(figure)),
  choice,
  ladder: (figure) => ladder(figure, given<LadderData>(figure)),
  lanes: (figure) => lanes(figure, given<LanesData>(figure)),
  series: (figure) => series(figure, given<SeriesData>(figure)),
  sweep: (figure) => sweep(figure, given<SweepData>(figure)),
};

// Errors are left in the document, where a test (and a report of a fault) can find them.
const root = document.documentElement;
const note = (text: string) => { root.dataset.errors = (root.dataset.errors ?? "") + text + "; "; };
addEventListener("error", (e) => note(e.message));
addEventListener("unhandledrejection", (e) => note(String(e.reason)));

// A broken chart must not take the others with it.
async function start(figure: HTMLElement): Promise<void> {
  try {
    await WIDGETS[figure.dataset.widget ?? ""](figure);
    figure.dataset.ready = "yes";
  } catch (error) {
    const { message, stack } = error instanceof Error ? error : new Error(String(error));
    note(figure.id + ": " + (stack ?? message));
    const said = "This chart cannot be drawn here (" + message + "). The tables hold its numbers.";
    figure.append(el("p", { className: "warn" }, said));
  }
}

// The sentences write times as figures and tables do.
for (const said of document.querySelectorAll(".verdict p, p.outcome, p.certainty")) {
  said.childNodes.forEach((part) => { if (part.nodeType === Node.TEXT_NODE) part.nodeValue = spaced(part.nodeValue ?? ""); });
}
themes(one<HTMLButtonElement>(document, "#theme"));
folds();
document.querySelectorAll<HTMLTableElement>("table.data").forEach(sortable);
void Promise.all([...document.querySelectorAll<HTMLElement>("[data-widget]")].map(start))
  .then(() => { root.dataset.ready = "yes"; });
