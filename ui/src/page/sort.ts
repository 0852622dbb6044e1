// Tables that are sorted by a button in each head; `aria-sort` tells screen readers the direction.
import { el } from "./dom";

type Key = number | string;

// What a cell is sorted by: its number, or its text.
function key(row: HTMLTableRowElement, column: number, isNumber: boolean): Key {
  const cell = row.cells[column], value = cell.dataset.v;
  if (value !== undefined) return +value;
  return isNumber ? -Infinity : cell.textContent ?? "";
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
