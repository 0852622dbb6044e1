"use strict";
(() => {
  // Errors are left in the document, where a test (and a bug report) can find them.
  const root = document.documentElement;
  addEventListener("error", (e) => { root.dataset.errors = (root.dataset.errors || "") + e.message + "; "; });
  addEventListener("unhandledrejection", (e) => { root.dataset.errors = (root.dataset.errors || "") + e.reason + "; "; });

  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const asked = /theme=(light|dark)/.exec(location.hash);
  let theme = asked ? asked[1] : "auto";
  try { if (!asked) theme = localStorage.getItem("schedlab-theme") || "auto"; } catch { /* not allowed: keep auto */ }
  if (!themes.includes(theme)) theme = "auto";
  const show = () => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
    button.setAttribute("aria-label", "Colours: " + theme + ". Press to change");
    Lab.redraw.forEach((one) => one.draw());
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % 3];
    try { localStorage.setItem("schedlab-theme", theme); } catch { /* not kept then */ }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();

  // A folded section opens when it is gone to.
  const open = () => {
    const at = location.hash.slice(1) && document.getElementById(location.hash.slice(1));
    const fold = at && at.querySelector(":scope > details");
    if (fold) fold.open = true;
  };
  addEventListener("hashchange", open);
  open();

  // Sorting: a button in each head; the direction is told to screen readers by aria-sort.
  for (const table of document.querySelectorAll("table.data")) {
    if (table.tBodies[0].rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const sort = Lab.el("button", { type: "button" }, ...head.childNodes);
      head.append(sort);
      sort.addEventListener("click", () => {
        const number = head.classList.contains("n");
        const down = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : number;
        [...head.parentNode.cells].forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => { const c = row.cells[column]; return c.dataset.v === undefined ? (number ? -Infinity : c.textContent) : +c.dataset.v; };
        const order = [...table.tBodies[0].rows].sort((a, b) => {
          const x = key(a), y = key(b);
          const less = typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y)) : x < y ? -1 : x > y ? 1 : 0;
          return down ? -less : less;
        });
        table.tBodies[0].append(...order);
      });
    });
  }

  // A broken chart must not take the others with it.
  const work = [];
  for (const figure of document.querySelectorAll("[data-widget]")) {
    work.push((async () => {
      try {
        await Lab[figure.dataset.widget](figure);
        figure.dataset.ready = "yes";
      } catch (error) {
        root.dataset.errors = (root.dataset.errors || "") + figure.id + ": " + (error && error.stack || error) + "; ";
        figure.append(Lab.el("p", { className: "warn" }, "This chart cannot be drawn here (" + error.message + "). The tables hold its numbers."));
      }
    })());
  }
  Promise.all(work).then(() => { root.dataset.ready = "yes"; });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
