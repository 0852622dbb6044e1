"use strict";
// Shared helpers and the two kinds of uPlot charts. Text reaches the page by textContent only.
const Lab = {
  css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); },
  el(tag, props, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(props || {})) {
      if (k in e && k !== "list") e[k] = v; else e.setAttribute(k, v);
    }
    e.append(...children);
    return e;
  },
  time(ns) {
    const neg = ns < 0 ? "−" : ""; ns = Math.abs(ns);
    const put = (v, u) => neg + v.toFixed(v >= 100 || u === "ns" ? 0 : v >= 10 ? 1 : 2) + "\u00a0" + u;
    return ns < 1e3 ? put(Math.round(ns), "ns") : ns < 1e6 ? put(ns / 1e3, "µs") : ns < 1e9 ? put(ns / 1e6, "ms") : put(ns / 1e9, "s");
  },
  // A time on an axis: no needless digits.
  tick(ns) {
    const [d, u] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "µs"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
    return +(ns / d).toPrecision(6) + "\u00a0" + u;
  },
  // Key of a run: one of seven colours with one of four dashes, so that 28 runs differ. 0 is the recording, 1 the first row.
  dashes: [[], [8, 4], [2, 3], [10, 3, 2, 3]],
  dash(style) { return style < 2 ? (style ? [] : [2, 3]) : Lab.dashes[((style - 2) % 7 + Math.floor((style - 2) / 7)) % 4]; },
  color(style) { return Lab.css("--v" + (style < 2 ? style : 2 + (style - 2) % 7)); },
  // What is drawn anew when the colours change; what is no longer in the page is forgotten.
  redraw: [],
  again(figure, draw) { Lab.redraw = Lab.redraw.filter((one) => one.figure.isConnected).concat({ figure, draw }); },
  // Black or white, whichever is easier to read on a colour (the contrast of WCAG 2).
  ink(dye) {
    const [r, g, b] = dye.match(/[0-9a-f]{2}/gi).map((h) => { const v = parseInt(h, 16) / 255; return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
  },
};

Lab.axis = (more) => Object.assign({
  stroke: Lab.css("--soft"), font: "12px " + Lab.css("--sans"), labelFont: "12px " + Lab.css("--sans"), labelSize: 22, labelGap: 2,
  grid: { stroke: Lab.css("--hair"), width: 1 }, ticks: { show: false }, gap: 6,
}, more);

Lab.chart = (figure, make) => {
  const box = figure.querySelector(".plot");
  let plot = null, size = () => ({ width: Math.max(220, box.clientWidth), height: box.clientHeight });
  const build = () => {
    if (plot) plot.destroy();
    box.replaceChildren();
    const made = make(box);
    plot = made && new uPlot(Object.assign(size(), made.opts), made.data, box);
  };
  build();
  Lab.again(figure, build);
  new ResizeObserver(() => plot && plot.width !== size().width && plot.setSize(size())).observe(box);
  return build;
};

// A tooltip that follows the pointer over a uPlot chart.
Lab.tip = (lines) => {
  let tip;
  return { hooks: {
    init: (u) => { tip = Lab.el("div", { className: "tip" }); u.over.append(tip); },
    setCursor: (u) => {
      const { left, idx } = u.cursor;
      if (idx == null || left < 0) { tip.style.display = "none"; return; }
      const [head, rows] = lines(u, idx);
      tip.replaceChildren(Lab.el("b", {}, head), ...rows.map((row) => Lab.el("div", {}, row)));
      tip.style.display = "block";
      const right = left > u.over.clientWidth / 2;
      tip.style.left = (right ? left - tip.offsetWidth - 12 : left + 12) + "px";
      tip.style.top = "8px";
    },
  } };
};

Lab.cdf = (figure) => {
  const measures = JSON.parse(figure.querySelector("script").textContent);
  let chosen = 0;
  const percentile = (longer) => {
    const p = 100 * (1 - longer);
    return "p" + (p >= 99.999 ? p.toFixed(4) : p >= 99.9 ? p.toFixed(3) : p >= 99 ? p.toFixed(2) : p.toFixed(1));
  };
  // Whole decades, and 2 and 5 between them where there is room.
  const decades = (low, high, width) => {
    const marks = Math.log10(high / low) * 3 * 64 < width - 60 ? [1, 2, 5] : [1], found = [];
    for (let d = Math.pow(10, Math.floor(Math.log10(low))); d <= high; d *= 10) {
      marks.forEach((m) => { const v = Math.round(d * m); if (v >= low && v <= high) found.push(v); });
    }
    return found;
  };
  const build = Lab.chart(figure, () => {
    const curves = measures[chosen].curves;
    const xs = [...new Set(curves.flatMap((c) => c.ns.map((ns) => Math.max(1, ns))))].sort((a, b) => a - b);
    if (!xs.length) return null;
    // Left of where the first curve begins to fall there is nothing to see.
    const lowest = Math.min(...curves.map((c) => Math.max(1, c.ns[Math.max(0, c.longer.findIndex((v) => v < 0.93))])));
    const highest = Math.max(...curves.map((c) => c.ladder.max));
    const floor = Math.pow(10, Math.floor(Math.log10(1 / Math.max(...curves.map((c) => c.count)))));
    // Every curve is a staircase: its value at any time is that of the last step before.
    const all = curves.map((c) => {
      let at = -1;
      return xs.map((x) => {
        while (at + 1 < c.ns.length && Math.max(1, c.ns[at + 1]) <= x) at++;
        return at < 0 ? 1 : c.longer[at] > 0 ? c.longer[at] : null;
      });
    });
    const rungs = [1, 0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6].filter((v) => v >= floor * 0.99);
    const low = Math.max(lowest * 0.5, highest / 1e7);
    return {
      data: [xs, ...all],
      opts: {
        scales: { x: { time: false, distr: 3, range: [low, Math.max(highest * 1.15, low * 10)] }, y: { distr: 3, range: [floor, 1] } },
        axes: [
          Lab.axis({ label: measures[chosen].name, size: 30, splits: (u) => decades(u.scales.x.min, u.scales.x.max, u.width), filter: (u, v) => v, values: (_, v) => v.map(Lab.tick) }),
          Lab.axis({ label: "percentile", size: 58, splits: () => rungs, filter: (u, v) => v,
            values: (_, v) => v.map((y) => (y === 1 ? "" : "p" + +(100 - y * 100).toFixed(4))) }),
        ],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        plugins: [Lab.tip((u, i) => ["took longer than " + Lab.time(u.data[0][i]), curves.map((c, k) => {
          const v = u.data[k + 1][i];
          return c.name + ": " + (v == null ? "none" : +(v * 100).toPrecision(2) + " % (" + percentile(v) + ")");
        })])],
        series: [{}, ...curves.map((c) => ({ label: c.name, stroke: Lab.color(c.style), width: c.style === 0 ? 2.5 : 2, dash: Lab.dash(c.style),
          points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) }))],
      },
    };
  });
  const buttons = figure.querySelectorAll(".choices button");
  buttons.forEach((b) => b.addEventListener("click", () => {
    chosen = +b.dataset.measure;
    buttons.forEach((o) => o.setAttribute("aria-pressed", o === b));
    figure.querySelectorAll(".behind").forEach((t) => { t.hidden = +t.dataset.measure !== chosen; });
    build();
  }));
};

Lab.series = (figure) => {
  const s = JSON.parse(figure.querySelector("script").textContent);
  Lab.chart(figure, () => {
    const n = Math.max(0, ...s.traces.map((t) => t.values.length));
    if (!n) return null;
    const xs = Array.from({ length: n }, (_, i) => s.from_ns + i * s.step_ns);
    return {
      data: [xs, ...s.traces.map((t) => xs.map((_, i) => t.values[i] ?? null))],
      opts: {
        scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, Math.max(hi * 1.08, 1)] } },
        axes: [Lab.axis({ label: "time", size: 30, values: (_, v) => v.map(Lab.tick) }), Lab.axis({ label: s.unit, size: 56 })],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        plugins: [Lab.tip((u, i) => ["at " + Lab.time(u.data[0][i]), s.traces.map((t, k) => t.name + ": " + (u.data[k + 1][i] == null ? "–" : u.data[k + 1][i].toFixed(2)))])],
        series: [{}, ...s.traces.map((t) => ({ label: t.name, stroke: Lab.color(t.style), width: 1.5, dash: Lab.dash(t.style), points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) }))],
      },
    };
  });
};

// A number over the values of a setting, and a slider that goes from row to row.
Lab.sweep = (figure) => {
  const s = JSON.parse(figure.querySelector("script").textContent), slider = figure.querySelector("input"), said = figure.querySelector("output");
  let line = 0, plot = null;
  const scale = (v) => { const l = s.lines[line].scale; return v === null ? "" : l === "time" ? Lab.tick(v) : l === "part" ? +(v * 100).toPrecision(4) + " %" : +v.toPrecision(4) + ""; };
  const at = () => +slider.value;
  // A bar for where each number lies, and a line at the row of the slider.
  const marks = { hooks: { draw: (u) => {
    const g = u.ctx, l = s.lines[line], x = (i) => u.valToPos(i, "x", true), y = (v) => u.valToPos(v, "y", true), px = devicePixelRatio || 1;
    g.save(); g.strokeStyle = Lab.color(2); g.globalAlpha = 0.35; g.lineWidth = 5 * px;
    l.between.forEach((b, i) => { if (b) { g.beginPath(); g.moveTo(x(i), y(b[0])); g.lineTo(x(i), y(b[1])); g.stroke(); } });
    g.globalAlpha = 1; g.lineWidth = px; g.strokeStyle = Lab.css("--ink");
    g.beginPath(); g.moveTo(x(at()), u.bbox.top); g.lineTo(x(at()), u.bbox.top + u.bbox.height); g.stroke(); g.restore();
  } } };
  const build = Lab.chart(figure, () => {
    const l = s.lines[line], all = l.at.concat(l.between.flatMap((b) => b || [])).filter((v) => v !== null), top = Math.max(...all, 0);
    return {
      data: [s.values.map((_, i) => i), l.at],
      opts: {
        scales: { x: { time: false, range: [-0.5, s.values.length - 0.5] }, y: { range: [Math.min(0, ...all), top * 1.08 || 1] } },
        axes: [Lab.axis({ label: s.what, size: 30, incrs: [1, 2, 5, 10, 20], values: (_, v) => v.map((i) => (Number.isInteger(i) && s.values[i] !== undefined ? s.values[i] : "")) }),
          Lab.axis({ label: l.name, size: 66, values: (_, v) => v.map(scale) })],
        legend: { show: false }, cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        plugins: [marks, { hooks: { ready: (u) => { plot = u; u.over.addEventListener("click", () => { if (u.cursor.idx !== null) { slider.value = u.cursor.idx; say(); } }); } } }],
        series: [{}, { label: l.name, stroke: Lab.color(2), width: 2, points: { show: true, size: 7, fill: Lab.color(2) } }],
      },
    };
  });
  const say = () => {
    const name = s.what + " = " + s.values[at()];
    slider.setAttribute("aria-valuetext", name);
    said.replaceChildren(Lab.el("b", {}, name), ...s.lines.map((l) => Lab.el("div", {}, l.name + ": " + l.text[at()])));
    if (plot) plot.redraw(false);
  };
  slider.addEventListener("input", say);
  const buttons = figure.querySelectorAll(".choices button");
  buttons.forEach((b) => b.addEventListener("click", () => { line = +b.dataset.line; buttons.forEach((o) => o.setAttribute("aria-pressed", o === b)); build(); }));
  say();
};

// The percentile ladder: one line for each run from p50 to the maximum, its name at its end.
Lab.ladder = (figure) => {
  const given = JSON.parse(figure.querySelector("script").textContent), box = figure.querySelector(".plot");
  const svg = (tag, props, ...children) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(props)) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  const rungs = given.rungs, curves = given.curves, seen = curves.flatMap((c) => c.ns.filter((v) => v !== null && v > 0));
  // Where it matters what cannot be told, all that a number may be is inside the picture, and rows stand beside each other.
  const tells = curves.some((c) => c.open), ends = tells ? curves.flatMap((c) => c.between.flat().filter((v) => v !== null && v > 0)) : [];
  const values = seen.concat(seen.length ? ends : []);
  let width = 0;
  const build = () => {
    width = box.clientWidth;
    if (!width || !values.length) return;
    const line = 17, turn = 14, longest = Math.max(...curves.map((c) => c.name.length));
    const right = Math.min(width * 0.42, longest * 7.3 + 16), left = 62, top = 12;
    // Where there is no room for the rungs beside each other, every second one stands higher.
    // Bands of the first and the last rung need room beside them.
    const wide = tells ? Math.max(4, Math.min(22, (width - left - right) * 0.6 / (rungs.length * curves.length))) : 0, side = wide * curves.length / 2;
    const gap = (width - left - right - 18 - 2 * side) / Math.max(1, rungs.length - 1), bottom = gap < 40 ? 39 : 26;
    // A name that is longer than its margin goes on in the next line, whole.
    const room = Math.max(6, Math.floor((right - 16) / 7.3));
    const folded = (name) => {
      const lines = [""];
      for (const word of name.split(" ").flatMap((w) => w.match(new RegExp(".{1," + room + "}", "gu")) || [""])) {
        const last = lines.length - 1, joined = lines[last] ? lines[last] + " " + word : word;
        if (joined.length <= room) lines[last] = joined; else lines.push(word);
      }
      return lines;
    };
    const names = new Map(curves.map((c) => [c, folded(c.name)])), tall = (c) => line + (names.get(c).length - 1) * turn;
    const height = Math.max(260, curves.reduce((sum, c) => sum + tall(c), 0) + top + bottom + 8);
    const lo = Math.log10(Math.min(...values)), hi = Math.log10(Math.max(...values)), pad = Math.max(0.08, (hi - lo) * 0.05);
    const Y = (v) => top + (hi + pad - Math.log10(Math.max(1, v))) / (hi - lo + 2 * pad) * (height - top - bottom);
    const X = (i) => left + 6 + side + i * gap, inside = (y) => Math.max(top, Math.min(height - bottom, y));
    const all = svg("svg", { width, height, viewBox: "0 0 " + width + " " + height, "aria-hidden": "true" });
    for (let d = Math.ceil(lo - pad); d <= hi + pad; d++) {
      const y = Y(Math.pow(10, d));
      all.append(svg("line", { x1: left, x2: width - right, y1: y, y2: y, class: "grid" }), svg("text", { x: left - 8, y: y + 4, class: "axis end" }, Lab.tick(Math.pow(10, d))));
    }
    rungs.forEach((r, i) => all.append(svg("text", { x: X(i), y: height - 6 - (gap < 40 && i % 2 ? 14 : 0), class: "axis mid" }, r)));
    const tips = curves.map((c) => { let i = c.ns.length - 1; while (i > 0 && c.ns[i] === null) i--; return { c, i, y: Y(c.ns[i]) }; }).sort((a, b) => a.y - b.y);
    // Names that would cover each other are pushed apart, all of them inside the picture.
    let below = top;
    tips.forEach((e) => { e.at = Math.max(e.y, below); below = e.at + tall(e.c); });
    let above = height - bottom;
    [...tips].reverse().forEach((e) => { e.at = Math.min(e.at, above - (tall(e.c) - line)); above = e.at - line; });
    for (const { c, i, y, at } of tips) {
      const key = "run v" + (c.style < 2 ? c.style : 2 + (c.style - 2) % 7), dash = Lab.dash(c.style).join(" ");
      const points = c.ns.map((v, k) => (v === null ? null : X(k) + "," + Y(v))).filter((p) => p).join(" ");
      const x = width - right + 12;
      const label = svg("text", { x, y: at + 4, class: "name " + key },
        ...names.get(c).map((part, k) => svg("tspan", { x, dy: k ? turn : 0 }, part)), svg("title", {}, c.name));
      const group = svg("g", { class: "row" },
        svg("polyline", { points, class: key, "stroke-dasharray": dash }),
        svg("line", { x1: X(i), y1: y, x2: width - right + 8, y2: at, class: "lead " + key }), label);
      const between = (k) => c.between[k].some((v) => v !== null) ? " (95 %: " + c.between[k].map((v) => (v === null ? "?" : Lab.time(v))).join(" … ") + ")" : "";
      // What cannot be told apart from the first run: a band over all that it may be.
      const shift = (curves.indexOf(c) - (curves.length - 1) / 2) * wide;
      (c.open || []).forEach((open, k) => {
        const [low, high] = c.between[k];
        if (!open || c.ns[k] === null || low === null || high === null) return;
        const y0 = inside(Y(high)), band = { x: X(k) + shift - wide / 2 + 1, y: y0, width: wide - 2, height: Math.max(2, inside(Y(low)) - y0), fill: Lab.color(c.style), stroke: Lab.color(c.style), class: "band" };
        group.prepend(svg("rect", band, svg("title", {}, c.name + ", " + rungs[k] + ": cannot tell" + between(k))));
      });
      // Where the percentile lies with 95 %: a bar through the dot, open at an end that is not known.
      c.between.forEach(([low, high], k) => {
        if (c.ns[k] === null || (low === null && high === null) || c.open && c.open[k]) return;
        group.append(svg("line", { x1: X(k) + shift, x2: X(k) + shift, y1: inside(Y(low ?? c.ns[k])), y2: inside(Y(high ?? c.ns[k])), class: "bar " + key }));
      });
      c.ns.forEach((v, k) => { if (v === null) return; const dot = svg("circle", { cx: X(k), cy: Y(v), r: 3.2, class: key }); dot.append(svg("title", {}, c.name + ", " + rungs[k] + ": " + Lab.time(v) + between(k))); group.append(dot); });
      all.append(group);
    }
    box.replaceChildren(all);
  };
  build();
  Lab.again(figure, build);
  new ResizeObserver(() => { if (box.clientWidth !== width) build(); }).observe(box);
};

// One of several tables at a time.
Lab.choice = (figure) => {
  const select = figure.querySelector("select"), items = [...figure.querySelectorAll(".item")];
  const show = () => items.forEach((item, i) => { item.hidden = i !== select.selectedIndex; });
  select.addEventListener("change", show);
  figure.querySelector(".choices").hidden = items.length < 2;
  show();
};
