// Between a slider and the text of a value. What a value may be comes from the server; here is only how it is written.
import type { Values } from "./types";

// Nanoseconds with the largest unit in which they are whole or have few digits, as the program writes them.
export function time(ns: number): string {
  const units: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
  const [size, unit] = units.find(([size]) => ns >= size) ?? units[3];
  return +(ns / size).toPrecision(12) + unit;
}
export function nanoseconds(text: string): number | null {
  const found = /^([\d.]+)(ns|us|ms|s)$/.exec(text);
  const size = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 }[found?.[2] ?? ""];
  return found && size ? Number(found[1]) * size : null;
}

export interface Slide {
  low: number;
  high: number;
  // Steps are factors: the range goes over more than a factor of ten.
  wide: boolean;
  step: number;
  text: (value: number) => string;
  value: (text: string) => number | null;
}

const number = (text: string) => (/^-?\d+$/.test(text) ? Number(text) : null);

// The slider of a range; null: it is no range.
export function slide(values: Values): Slide | null {
  const of = (low: number, high: number, step: number, text: Slide["text"], value: Slide["value"]): Slide => ({ low, high, step, wide: low > 0 && high / low > 10, text, value });
  switch (values.kind) {
    case "number":
      return of(values.low, values.high, 1, String, number);
    case "time":
      return of(values.low_ns, values.high_ns, values.step_ns, time, nanoseconds);
    case "factor":
      return of(values.low_permille, values.high_permille, 1, (n) => "x" + n / 1000, (text) => (text.startsWith("x") ? Math.round(Number(text.slice(1)) * 1000) || null : null));
    case "limit":
      return of(1, values.high_percent, 1, (n) => (n >= values.high_percent ? "max" : n + "%"), (text) => (text === "max" ? values.high_percent : text.endsWith("%") ? number(text.slice(0, -1)) : null));
    default:
      return null;
  }
}

// Steps of a slider whose steps are factors.
export const STEPS = 200;

export function at(slide: Slide, place: number): number {
  if (!slide.wide) return place;
  const value = slide.low * Math.pow(slide.high / slide.low, place / STEPS);
  // Two digits, in whole steps, inside.
  const digits = Math.pow(10, Math.max(0, Math.floor(Math.log10(value)) - 1));
  const rounded = Math.round(Math.round(value / digits) * digits / slide.step) * slide.step;
  return Math.min(slide.high, Math.max(slide.low, rounded));
}
export function place(slide: Slide, value: number): number {
  if (!slide.wide) return value;
  return Math.round(STEPS * Math.log(Math.max(value, slide.low) / slide.low) / Math.log(slide.high / slide.low));
}

// The first value of a default such as `2.8ms (scaled by ...)`, where it has one.
export function first(slide: Slide, text: string): number | null {
  const word = text.split(/[\s(]/)[0];
  const value = slide.value(word);
  return value !== null && value >= slide.low && value <= slide.high ? value : null;
}
