// What static pages draw with (crates/report/assets), served as /widgets.js.
interface Again {
  figure: Element;
  draw: () => void;
}
declare const Lab: {
  redraw: Again[];
  time(ns: number): string;
  ladder(figure: HTMLElement): void;
  lanes(figure: HTMLElement): Promise<void>;
};
declare module "*.css";
