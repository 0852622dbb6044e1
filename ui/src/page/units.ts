// How times are written.
type Unit = [size: number, name: string];
const UNITS: Unit[] = [[1e3, "ns"], [1e6, "µs"], [1e9, "ms"], [Infinity, "s"]];
const unit = (ns: number): Unit => {
  const place = UNITS.findIndex(([below]) => ns < below);
  return [place > 0 ? UNITS[place - 1][0] : 1, UNITS[place][1]];
};

// A time with three digits or so; the space before the unit does not break.
export function time(ns: number): string {
  const abs = Math.abs(ns), [size, name] = unit(abs), value = abs / size;
  const digits = value >= 100 || name === "ns" ? 0 : value >= 10 ? 1 : 2;
  return (ns < 0 ? "−" : "") + value.toFixed(digits) + "\u00a0" + name;
}

// A time on an axis: no needless digits.
export function tick(ns: number): string {
  const [size, name] = unit(ns);
  return +(ns / size).toPrecision(6) + "\u00a0" + name;
}

// A place in a run.
export const moment = (ns: number) => (ns / 1e9).toFixed(6) + " s";

// A sentence whose numbers are written as `time` writes them.
export const spaced = (text: string) =>
  text.replace(/(^|[\s(±])([−-]?\d[\d.,]*)(ns|us|µs|ms|s|%)(?=$|[\s).,;:])/g,
    (_, before: string, number: string, unit: string) =>
      before + number + "\u00a0" + unit.replace("us", "µs"));
