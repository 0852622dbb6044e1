// Tables that are sorted by a button in each head; `aria-sort` tells screen readers the direction.
import { el } from "./dom";

type Key = number | string;

// What units are worth; crates/report/src/table.rs has the same.
const UNITS: Record<string, number> =
  { "": 1, "%": 0.01, "/s": 1, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9 };

// The number that a text is, such as `4.11 ms` or `1.7 %`.
function number(text: string): number {
  const [, value, unit] = /^(\d+(?:\.\d+)?)\s?(.*)$/.exec(text) ?? [];
  return +value * UNITS[unit];
}

// What a cell is sorted by: its number, which its text is where no other is given; or its text.
function key(row: HTMLTableRowElement, column: number, isNumber: boolean): Key {
  const cell = row.cells[column], value = cell.dataset.v;
  if (value !== undefined) return +value;
  if (!isNumber) return cell.textContent ?? "";
  // Behind the text may be a remark.
  const parsed = number(cell.firstChild?.nodeValue ?? "");
  return isNaN(parsed) ? -Infinity : parsed;
}

function compare(x: Key, y: Key): number {
  if (typeof x === "string" || typeof y === "string") return String(x).localeCompare(String(y));
  return x < y ? -1 : x > y ? 1 : 0;
}

function sort(body: HTMLTableSectionElement, head: HTMLTableCellElement, column: number): void {
  const isNumber = head.classList.contains("n"), was = head.getAttribute("aria-sort");
  // Numbers begin with the largest.
  const down = was === null ? isNumber : was === "ascending";
  const heads = (head.parentElement as HTMLTableRowElement).cells;
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const order = [...body.rows].sort((a, b) => {
    const less = compare(key(a, column, isNumber), key(b, column, isNumber));
    return down ? -less : less;
  });
  body.append(...order);
}

export function sortable(table: HTMLTableElement): void {
  const body = table.tBodies[0];
  if (body.rows.length < 2) return;
  [...table.tHead?.rows[0].cells ?? []].forEach((head, column) => {
    const button = el("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(body, head, column));
  });
}
