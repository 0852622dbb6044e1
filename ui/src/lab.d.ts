// What static pages draw with (crates/report/assets), served as /widgets.js.
interface Again {
  figure: Element;
  draw: () => void;
}
// Lanes that move together: `onview` is called when a reader moves them, `view` moves them without calling it.
interface LanesView {
  onview: ((from_ns: number, to_ns: number) => void) | null;
  view(from_ns: number, to_ns: number): void;
}
declare const Lab: {
  redraw: Again[];
  time(ns: number): string;
  ladder(figure: HTMLElement): void;
  lanes(figure: HTMLElement): Promise<LanesView>;
};
declare module "*.css";
