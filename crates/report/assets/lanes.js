"use strict";
// Schedules by CPU on a canvas, from the whole run to nanoseconds. The format of the data: crates/report/src/lanes.rs.
Lab.lanes = async (figure) => {
  const { el, time } = Lab;
  const given = JSON.parse(figure.querySelector("script").textContent);
  const WHY = ["then: unknown", "then still runnable (preempted or yielded)", "then preempted in the kernel", "then slept (S)", "then in disk sleep (D)", "then stopped", "then ended", "then blocked"];
  const unpack = async (text) => {
    if (typeof DecompressionStream === "undefined") throw new Error("lanes need Chrome 103, Firefox 113, Safari 16.4 or later");
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer());
  };
  const decode = (bytes, run) => {
    let at = 0;
    const next = () => { let v = 0, f = 1, b; do { b = bytes[at++]; v += (b & 127) * f; f *= 128; } while (b > 127); return v; };
    const column = (n, Type) => { const c = new Type(n); for (let i = 0; i < n; i++) c[i] = next(); return c; };
    const sums = (c, from) => { let t = from; for (let i = 0; i < c.length; i++) c[i] = t += c[i]; return c; };
    const cpus = [];
    for (let k = 0; k < run.cpus; k++) {
      const n = next();
      const start = sums(column(n, Float64Array), run.from_ns), who = column(n, Int32Array), why = column(n, Uint8Array);
      // -1: idle, -2: unknown.
      for (let i = 0; i < n; i++) who[i] = who[i] === 0 ? -2 : who[i] - 2;
      cpus.push({ start, who, why, n, wait: new Float64Array(n).fill(-1), wake: new Int32Array(n).fill(-1) });
    }
    const n = next();
    const wakes = { n, at: sums(column(n, Float64Array), run.from_ns), cpu: column(n, Int32Array), task: column(n, Int32Array), by: column(n, Int32Array) };
    return { cpus, wakes };
  };
  // How long each span waited before it, and which wakeup began it: all events once, in order of time.
  const follow = (run) => {
    const { cpus, wakes } = run, heads = cpus.map(() => 0);
    const since = new Float64Array(given.tasks.length).fill(-1), woken = new Int32Array(given.tasks.length).fill(-1);
    const onCpu = new Int32Array(given.tasks.length).fill(-1);
    let w = 0;
    for (;;) {
      let cpu = -1, t = Infinity;
      for (let k = 0; k < cpus.length; k++) if (heads[k] < cpus[k].n && cpus[k].start[heads[k]] < t) { t = cpus[k].start[heads[k]]; cpu = k; }
      if (w < wakes.n && wakes.at[w] <= t) {
        const task = wakes.task[w];
        if (onCpu[task] < 0 && since[task] < 0) { since[task] = wakes.at[w]; woken[task] = w; }
        w++;
        continue;
      }
      if (cpu < 0) break;
      const c = cpus[cpu], i = heads[cpu]++;
      const prev = i ? c.who[i - 1] : -2, task = c.who[i];
      if (prev >= 0) {
        onCpu[prev] = -1; woken[prev] = -1;
        since[prev] = c.why[i] === 1 || c.why[i] === 2 ? t : -1;
      }
      if (task >= 0) {
        if (i && since[task] >= 0) { c.wait[i] = t - since[task]; c.wake[i] = woken[task]; }
        since[task] = -1; woken[task] = -1; onCpu[task] = cpu;
      }
    }
  };
  const runs = [];
  for (const run of given.runs) {
    const r = Object.assign({}, run, decode(await unpack(run.data), run));
    delete r.data;
    follow(r);
    runs.push(r);
  }
  // The classes that used most CPU time get the colours; the rest share grey.
  const names = [...new Set(given.tasks.map((t) => t[1]))], classOf = Int32Array.from(given.tasks, (t) => names.indexOf(t[1]));
  const used = names.map(() => 0);
  for (const r of runs) for (const c of r.cpus) for (let i = 0; i < c.n; i++) {
    if (c.who[i] >= 0) used[classOf[c.who[i]]] += (i + 1 < c.n ? c.start[i + 1] : r.to_ns) - c.start[i];
  }
  const ranked = names.map((_, i) => i).sort((a, b) => used[b] - used[a]);
  const paint = names.map(() => 7);
  ranked.slice(0, 7).forEach((c, i) => { paint[c] = i; });

  // A CPU on which no task ran in any run is not drawn.
  const idle = (cpu) => runs.every((r) => !r.cpus[cpu] || !r.cpus[cpu].who.some((who) => who >= 0));
  const cpuCount = Math.max(...runs.map((r) => r.cpus.length)), unused = new Set([...Array(cpuCount).keys()].filter(idle));
  if (unused.size === cpuCount) unused.clear();
  const drawn = (r) => r.cpus.map((c, cpu) => [c, cpu]).filter(([, cpu]) => !unused.has(cpu));

  const begin = Math.min(...runs.map((r) => r.from_ns)), finish = Math.max(...runs.map((r) => r.to_ns));
  const view = { a: begin, b: finish };
  let shown = [], total = 0;
  // Where two runs do not fit on a screen, the one in which most happened says most.
  const first = runs.length && runs[0].cpus.length > 12 ? runs.reduce((best, r, i) => (r.events > runs[best].events ? i : best), 0) : 0;
  runs.forEach((r, i) => { r.on = i === first || first === 0 && (i < 4 && total + r.cpus.length <= 24); if (r.on) total += r.cpus.length; });
  // `lit`: which tasks are highlighted; null: all.
  let picked = null, hover = null, lit = null, lowest = 50;
  const nameOf = (who) => (who >= 0 ? given.tasks[who][0] : who === -1 ? "no task (idle)" : "unknown");
  const { find, end } = Lab;

  const over = el("canvas", { className: "over", "aria-hidden": "true" });
  const canvas = el("canvas", { tabIndex: 0, "aria-describedby": figure.id + "-help", role: "application",
    "aria-label": "Schedule by CPU: " + figure.dataset.names + ". Arrow keys move, plus and minus zoom." });
  const tip = el("div", { className: "tip" });
  const status = el("p", { className: "status", role: "status", "aria-live": "polite" }, "Point at a span, or press a key, to see who ran, how long, and why it waited.");
  const bar = el("div", { className: "bar", role: "group", "aria-label": "Lanes" });
  const action = (text, label, run) => { const b = el("button", { type: "button", "aria-label": label, title: label }, text); b.onclick = run; return b; };
  if (runs.length > 1) runs.forEach((r) => {
    const b = el("button", { type: "button", "aria-pressed": String(r.on) }, r.name);
    b.onclick = () => { if (r.on && runs.filter((o) => o.on).length === 1) return; r.on = !r.on; b.setAttribute("aria-pressed", r.on); layout(); };
    bar.append(b);
  });
  const zoomers = [action("Longest wait", "Go to the longest wait (n: next, p: previous)", () => jump(1)),
    action("−", "Zoom out", () => zoom(2)), action("+", "Zoom in", () => zoom(0.5)), action("Whole", "Show everything (0)", () => set(begin, finish)),
    action("Thread lane", "A lane for the chosen thread, or none any more (t)", () => ownLane()),
    action("Open in Perfetto", "Open these lanes in ui.perfetto.dev; the data stays in this browser", () => perfetto())];
  const legend = el("ul", { className: "legend", "aria-label": "Tasks by CPU time; press to highlight them" });
  const light = (chosen, button, text) => {
    lit = chosen; turn = -1;
    legend.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
    if (text !== undefined) status.textContent = text;
    if (button && search.value) { search.value = ""; mark(""); }
    drawOver(); draw(); renew();
  };
  const key = (dye, text, mine) => {
    const swatch = el("i"), b = el(mine ? "button" : "span", mine ? { type: "button", "aria-pressed": "false" } : {}, swatch, text);
    const paintIt = () => { swatch.style.background = Lab.css(dye); };
    Lab.again(figure, paintIt); paintIt();
    if (mine) b.onclick = () => (b.getAttribute("aria-pressed") === "true" ? light(null, null, "") : light(given.tasks.map((_, t) => mine(classOf[t])), b, "Highlighted: " + text + "."));
    legend.append(el("li", {}, b));
  };
  const inUse = ranked.filter((c) => used[c] > 0);
  inUse.slice(0, 7).forEach((c) => key("--c" + paint[c], names[c], (k) => k === c));
  if (inUse.length > 7) key("--c7", inUse.length - 7 + " others", (k) => paint[k] === 7 && used[k] > 0);
  key("--ink", "waits");
  const waiting = legend.lastChild;
  // Search: what matches is highlighted here and marked in the tables of the page; Enter goes from wait to wait.
  const search = el("input", { type: "search", placeholder: "Find a task", "aria-label": "Find a task by name or number; Enter goes to its longest wait", list: figure.id + "-tasks" });
  const known = el("datalist", { id: figure.id + "-tasks" }, ...[...new Set(given.tasks.map((t) => t[0]))].slice(0, 500).map((value) => el("option", { value })));
  const mark = (text) => document.querySelectorAll("table.data tbody th").forEach((th) => th.parentNode.classList.toggle("found", text !== "" && th.textContent.toLowerCase().includes(text)));
  const seek = () => {
    const text = search.value.trim().toLowerCase(), hits = given.tasks.map((t) => text !== "" && t[0].toLowerCase().includes(text));
    const found = given.tasks.filter((_, t) => hits[t]).map((t) => t[0]), more = found.length - 4;
    mark(text);
    light(text ? hits : null, null, text ? (found.length ? found.length + " of " + given.tasks.length + " tasks: " + found.slice(0, 4).join(", ") + (more > 0 ? " and " + more + " more" : "") + ". Enter: longest wait." : "No task is called so.") : "");
  };
  search.addEventListener("input", seek);
  search.addEventListener("keydown", (e) => {
    if (e.key === "Enter") { e.preventDefault(); if (lit && lit.includes(true)) jump(e.shiftKey ? -1 : 1); }
    if (e.key === "Escape") { search.value = ""; seek(); canvas.focus({ preventScroll: true }); }
  });
  // Lanes of single threads, above the CPUs of each run.
  let own = (given.own || []).slice();
  const threads = runs.map(() => new Map());
  const threadOf = (r, task) => { const all = threads[runs.indexOf(r)]; if (!all.has(task)) all.set(task, Lab.thread(r, task)); return all.get(task); };
  const taskOf = (p) => (p && p.l.cpu < 0 ? own[-1 - p.l.cpu] : p ? p.l.c.who[p.i] : -1);
  const ownLane = () => {
    const task = taskOf(picked);
    if (task === undefined || task < 0) { status.textContent = "Choose a span of a thread first (click it, or use the arrow keys, comma and full stop)."; return; }
    const on = own.includes(task), at = picked.l.cpu < 0 && on ? null : picked;
    own = on ? own.filter((t) => t !== task) : own.concat(task).slice(-4);
    picked = at && at.l.cpu >= 0 ? at : null;
    layout();
    status.textContent = (on ? "No lane of its own any more: " : "A lane of its own: ") + nameOf(task) + ".";
  };
  // Perfetto reads Chrome's JSON; the page there says PONG when it listens. Without a network the trace is saved as a file.
  const trace = () => {
    const events = [];
    runs.forEach((r, p) => {
      events.push({ ph: "M", name: "process_name", pid: p + 1, args: { name: r.name } });
      drawn(r).forEach(([c, cpu]) => {
        events.push({ ph: "M", name: "thread_name", pid: p + 1, tid: cpu + 1, args: { name: rowName(r, cpu) } });
        for (let i = 0; i < c.n; i++) if (c.who[i] >= 0) {
          const args = c.wait[i] > 0 ? { waited_us: c.wait[i] / 1e3 } : {};
          events.push({ ph: "X", name: given.tasks[c.who[i]][0], pid: p + 1, tid: cpu + 1, ts: c.start[i] / 1e3, dur: (end(r, c, i) - c.start[i]) / 1e3, args });
        }
      });
    });
    return JSON.stringify({ traceEvents: events });
  };
  const save = () => {
    const link = el("a", { href: URL.createObjectURL(new Blob([trace()], { type: "application/json" })), download: "schedlab-lanes.json" });
    link.click();
    status.textContent = "Saved as schedlab-lanes.json: open it in ui.perfetto.dev.";
  };
  const perfetto = () => {
    const there = "https://ui.perfetto.dev", page = window.open(there);
    if (!page) return save();
    let tries = 0;
    const ask = setInterval(() => { if (++tries > 200) { clearInterval(ask); removeEventListener("message", answer); save(); } else page.postMessage("PING", there); }, 50);
    const answer = (e) => {
      if (e.source !== page || e.origin !== there || e.data !== "PONG") return;
      clearInterval(ask); removeEventListener("message", answer);
      const buffer = new TextEncoder().encode(trace()).buffer;
      page.postMessage({ perfetto: { buffer, title: document.title, fileName: "schedlab-lanes.json" } }, there);
    };
    addEventListener("message", answer);
  };
  bar.append(el("span", { className: "gap" }), search, known, ...zoomers);
  const help = el("p", { className: "help", id: figure.id + "-help" });
  const keys = (text, ...ks) => { ks.forEach((k) => help.append(el("kbd", {}, k), " ")); help.append(text + "  "); };
  help.append("Drag to move, drag with Shift or in the strip above to choose a part, Ctrl and wheel (or wheel after a click) to zoom, double click for one span. Keys: ");
  keys("move", "←", "→"); keys("lane", "↑", "↓"); keys("span", ",", "."); keys("zoom", "+", "−"); keys("whole", "0"); keys("longest waits", "n", "p"); keys("lane of the thread", "t"); keys("search", "/"); keys("let go", "Esc");
  const seen = el("div", { className: "window" });
  const list = el("details", { className: "fold" }, el("summary", {}, "Spans in view, as a table"));
  const stage = el("div", { className: "stage" }, canvas, tip);
  const silent = el("p", { className: "help unused" }, unused.size ? unused.size + " of " + cpuCount + " CPUs ran no task and are not drawn." : "");
  figure.querySelector(".mount").append(bar, over, stage, legend, status, seen, silent, help, list);

  // Rows of vCPUs have names, which are longer.
  const rowName = (r, cpu) => (cpu < 0 ? nameOf(own[-1 - cpu]) : (r.rows && r.rows[cpu]) || "CPU " + cpu);
  const AXIS = 22, wideNames = runs.some((r) => r.rows);
  let GUTTER = 62, width = 0, lanes = [], height = 0, laneHeight = 24;
  const layout = () => {
    shown = runs.filter((r) => r.on);
    waiting.hidden = !own.length;
    const count = shown.reduce((n, r) => n + drawn(r).length + own.length, 0);
    laneHeight = count <= 8 ? 30 : count <= 16 ? 22 : count <= 48 ? 14 : 8;
    lanes = []; let y = 0;
    for (const r of shown) {
      r.head = y; y += 24;
      own.forEach((task, k) => { lanes.push({ r, c: threadOf(r, task), cpu: -1 - k, y }); y += laneHeight + 5; });
      drawn(r).forEach(([c, cpu]) => { lanes.push({ r, c, cpu, y }); y += laneHeight + (laneHeight > 10 ? 5 : 2); });
      y += 8;
    }
    height = y + AXIS;
    width = Math.max(240, stage.clientWidth);
    GUTTER = own.length || wideNames ? Math.min(128, width * 0.3) : 62;
    for (const [c, h] of [[canvas, height], [over, 26]]) {
      const scale = window.devicePixelRatio || 1;
      c.width = Math.round(width * scale); c.height = Math.round(h * scale); c.style.height = h + "px";
      c.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    }
    drawOver(); draw(); renew();
  };
  const X = (t) => GUTTER + (t - view.a) / (view.b - view.a) * (width - GUTTER);
  const T = (x) => view.a + (x - GUTTER) / (width - GUTTER) * (view.b - view.a);
  // What the caller gets: two lanes move together when the one's `onview` calls the other's `view`, which tells nothing back.
  const handle = { onview: null, view: (from_ns, to_ns) => place(from_ns, to_ns) };
  const set = (a, b) => {
    place(a, b);
    if (handle.onview) handle.onview(view.a, view.b);
  };
  const place = (a, b) => {
    const span = Math.min(finish - begin, Math.max(lowest, b - a));
    a = Math.max(begin, Math.min(a, finish - span));
    view.a = a; view.b = a + span;
    figure.dataset.from = Math.round(view.a); figure.dataset.to = Math.round(view.b);
    drawOver(); draw(); renew();
  };
  const zoom = (factor, at) => { const t = at === undefined ? (view.a + view.b) / 2 : at; set(t - (t - view.a) * factor, t + (view.b - t) * factor); };

  // One lane: spans wider than two pixels as they are, narrower ones summed up by column of pixels.
  const drawLane = (g, r, c, y, h, x0, x1, a, b, dyes, wide) => {
    const scale = (x1 - x0) / (b - a), cols = Math.ceil(x1 - x0), classes = dyes.length;
    const sums = new Float32Array(cols * classes);
    const last = find(c, b);
    for (let i = find(c, a); i <= last; i++) {
      const who = c.who[i];
      if (who === -1) continue;
      const s = Math.max(a, c.start[i]), e = Math.min(b, end(r, c, i));
      if (e <= s) continue;
      const p = (s - a) * scale, q = (e - a) * scale;
      const cls = who < 0 ? -1 : classOf[who], dim = lit && who >= 0 && !lit[who];
      const dye = who === -3 ? 10 : who < 0 ? 8 : dim ? 9 : paint[cls];
      if (q - p > 2) {
        g.fillStyle = dyes[dye];
        // A wait is told from running by its height, too.
        const low = who === -3 ? h * 0.7 : 0;
        g.fillRect(x0 + p, y + low, Math.max(1, q - p - (q - p > 6 ? 0.5 : 0)), h - low);
        if (wide && q - p > 34 && who >= 0 && h > 12) {
          g.save(); g.beginPath(); g.rect(x0 + p, y, q - p - 3, h); g.clip();
          g.fillStyle = dim ? Lab.css("--soft") : Lab.ink(dyes[dye]);
          g.fillText(c.on ? "CPU " + c.on[i][0] : given.tasks[who][0], x0 + p + 5, y + h / 2); g.restore();
        }
        continue;
      }
      for (let col = Math.floor(p); col <= q && col < cols; col++) {
        sums[col * classes + dye] += Math.max(0, Math.min(q, col + 1) - Math.max(p, col));
      }
    }
    for (let col = 0; col < cols; col++) {
      let base = y + h;
      for (let k = 0; k < classes; k++) {
        const part = sums[col * classes + k];
        if (part > 0.004) { const tall = Math.max(0.6, part * h); g.fillStyle = dyes[k]; g.fillRect(x0 + col, base - tall, 1, tall); base -= tall; }
      }
    }
  };
  const dyes = () => [...Array(8).keys()].map((i) => Lab.css("--c" + i)).concat(Lab.css("--unknown"), Lab.css("--hair"), Lab.css("--ink"));
  const drawOver = () => {
    const g = over.getContext("2d"), r = shown[0];
    g.clearRect(0, 0, width, 26);
    g.fillStyle = Lab.css("--raise"); g.fillRect(GUTTER, 0, width - GUTTER, 26);
    const seen = drawn(r).slice(0, 16), h = 22 / seen.length, colors = dyes(), keep = lit; lit = null;
    seen.forEach(([c], k) => drawLane(g, r, c, 2 + k * h, Math.max(1, h - 1), GUTTER, width, begin, finish, colors, false));
    lit = keep;
    const x = (t) => GUTTER + (t - begin) / (finish - begin) * (width - GUTTER);
    g.fillStyle = Lab.css("--paper"); g.globalAlpha = 0.72;
    g.fillRect(GUTTER, 0, x(view.a) - GUTTER, 26); g.fillRect(x(view.b), 0, width - x(view.b), 26);
    g.globalAlpha = 1; g.strokeStyle = Lab.css("--ink"); g.lineWidth = 1;
    g.strokeRect(x(view.a) + 0.5, 0.5, Math.max(2, x(view.b) - x(view.a) - 1), 25);
  };
  const steps = () => {
    const rough = (view.b - view.a) / Math.max(2, (width - GUTTER) / 110), mag = Math.pow(10, Math.floor(Math.log10(rough)));
    return mag * [1, 2, 5, 10].find((m) => m * mag >= rough);
  };
  const label = (t, step) => (t / 1e9).toFixed(Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / 1e9) - 1e-6)))) + " s";
  const draw = () => {
    const g = canvas.getContext("2d"), font = Lab.css("--sans"), soft = Lab.css("--soft"), ink = Lab.css("--ink"), colors = dyes();
    g.clearRect(0, 0, width, height);
    g.textBaseline = "middle";
    const step = steps();
    g.font = "12px " + font; g.fillStyle = soft; g.textAlign = "center";
    for (let t = Math.ceil(view.a / step) * step; t <= view.b; t += step) {
      const x = Math.round(X(t)) + 0.5;
      g.strokeStyle = Lab.css("--hair"); g.beginPath(); g.moveTo(x, 0); g.lineTo(x, height - AXIS); g.stroke();
      if (x > GUTTER + 20 && x < width - 34) g.fillText(label(t, step), x, height - AXIS / 2);
    }
    g.textAlign = "left";
    shown.forEach((r) => { g.font = "600 12.5px " + font; g.fillStyle = ink; g.fillText(r.name, 0, r.head + 12); });
    g.font = "12px " + font;
    for (const l of lanes) {
      g.fillStyle = soft; g.textAlign = "left";
      if (laneHeight > 10 || l.cpu % 4 === 0) { g.save(); g.beginPath(); g.rect(0, l.y, GUTTER - 6, laneHeight); g.clip(); g.fillText(rowName(l.r, l.cpu), 0, l.y + laneHeight / 2); g.restore(); }
      g.fillStyle = Lab.css("--raise"); g.fillRect(GUTTER, l.y, width - GUTTER, laneHeight);
      g.save(); g.beginPath(); g.rect(GUTTER, l.y, width - GUTTER, laneHeight); g.clip();
      drawLane(g, l.r, l.c, l.y, laneHeight, GUTTER, width, view.a, view.b, colors, true);
      if (l.r.to_ns < view.b) { g.fillStyle = Lab.css("--paper"); g.fillRect(X(l.r.to_ns), l.y, width, laneHeight); }
      g.restore();
    }
    arrows(g, ink, soft);
    if (picked) outline(g, picked, ink, 2);
  };
  const laneOf = (r, cpu) => lanes.find((l) => l.r === r && l.cpu === cpu);
  const outline = (g, { l, i }, dye, thick) => {
    const line = laneOf(l.r, l.cpu); if (!line) return;
    g.save(); g.beginPath(); g.rect(GUTTER, 0, width - GUTTER, height - AXIS); g.clip();
    const p = X(l.c.start[i]), q = X(end(l.r, l.c, i));
    g.strokeStyle = dye; g.lineWidth = thick; g.strokeRect(p, line.y - 1, Math.max(2, q - p), laneHeight + 2);
    g.restore();
  };
  // Waits as thin lines below the lane on which they end, wakeups as arrows from waker to wakee; only where few
  // enough are in view to be read, or those of the followed tasks and the chosen span.
  const arrows = (g, ink, soft) => {
    g.save(); g.beginPath(); g.rect(GUTTER, 0, width - GUTTER, height - AXIS); g.clip();
    for (const r of shown) {
      let count = 0;
      for (const c of r.cpus) count += find(c, view.b) - find(c, view.a);
      const few = count < 160;
      for (const l of lanes.filter((x) => x.r === r && x.cpu >= 0)) {
        const last = find(l.c, view.b) + (few ? 1 : 0);
        if (!few && !lit && !(picked && picked.l.r === r && picked.l.cpu === l.cpu)) continue;
        if (!few && count > 4000 && !(picked && picked.l.r === r)) continue;
        for (let i = find(l.c, view.a); i <= Math.min(last, l.c.n - 1); i++) {
          const mine = picked && picked.l.c === l.c && picked.i === i;
          const who = l.c.who[i];
          if (who < 0 || l.c.wait[i] <= 0) continue;
          if (!mine && !(lit ? lit[who] && count <= 4000 : few)) continue;
          const s = l.c.start[i], x = X(s), from = X(s - l.c.wait[i]), y = l.y + laneHeight + 2;
          g.strokeStyle = Lab.css("--c" + paint[classOf[who]]); g.lineWidth = mine ? 3 : 2; g.globalAlpha = 0.9;
          g.beginPath(); g.moveTo(from, y); g.lineTo(x, y); g.stroke();
          g.globalAlpha = 1;
          const w = l.c.wake[i];
          if (w < 0) continue;
          const src = laneOf(r, r.wakes.cpu[w]), wx = X(r.wakes.at[w]), by = r.wakes.by[w];
          g.strokeStyle = g.fillStyle = mine ? ink : soft; g.lineWidth = mine ? 1.6 : 1;
          if (by < 3 || !src) { g.beginPath(); g.arc(wx, y, 2.4, 0, 7); g.fill(); continue; }
          const y0 = src.y + laneHeight / 2, y1 = l.y === src.y ? y - 1 : l.y > src.y ? l.y : l.y + laneHeight;
          g.globalAlpha = mine ? 1 : 0.8;
          g.beginPath(); g.moveTo(wx, y0); const mx = (wx + x) / 2; g.bezierCurveTo(mx, y0, mx, y1, x, y1); g.stroke();
          const dir = l.y > src.y || l.y === src.y ? -1 : 1;
          g.beginPath(); g.moveTo(x, y1); g.lineTo(x - 3.5, y1 + 6 * dir); g.lineTo(x + 3.5, y1 + 6 * dir); g.fill();
          g.globalAlpha = 1;
        }
      }
    }
    g.restore();
  };
  const word = ({ l, i }) => {
    const { c, r, cpu } = l, who = c.who[i], s = c.start[i], e = end(r, c, i), where = (runs.length > 1 ? r.name + ", " : "") + rowName(r, cpu);
    const when = (s / 1e9).toFixed(6) + " s";
    if (who === -1) return [where + (cpu < 0 ? ": sleeps" : ": idle"), time(e - s) + " from " + when];
    if (who === -3) return [where + ": waits for a CPU", time(e - s) + " from " + when];
    // A span of a thread's lane is one of a CPU.
    if (c.on) { const [on, k] = c.on[i]; return word({ l: { r, c: r.cpus[on], cpu: on }, i: k }); }
    if (who === -2) return [where + ": unknown who ran", time(e - s) + " from " + when];
    const lines = [where + ": " + given.tasks[who][0], "ran " + time(e - s) + " from " + when];
    if (c.wait[i] > 0) {
      const w = c.wake[i], by = w < 0 ? -1 : r.wakes.by[w];
      lines.push("waited " + time(c.wait[i]) + " before it, " + (w < 0 ? "preempted" : "woken by " + (by >= 3 ? (given.tasks[by - 3] || ["?"])[0] : ["an unknown source", "an interrupt", "a softirq"][by]) + " on " + rowName(r, r.wakes.cpu[w])));
    }
    if (i + 1 < c.n) lines.push(WHY[c.why[i + 1]]);
    return lines;
  };
  // Who was on the CPU while the task of a span waited for it.
  const meanwhile = ({ l, i }) => {
    const { r } = l, at = l.cpu >= 0 ? [l.cpu, i] : l.c.on[i] || (l.c.who[i] === -3 && i + 1 < l.c.n ? l.c.on[i + 1] : null);
    if (!at || !(r.cpus[at[0]].wait[at[1]] > 0)) return "";
    const all = Lab.meanwhile(r, r.cpus[at[0]], at[1], nameOf), more = all.length - 4;
    return all.length ? "meanwhile on " + rowName(r, at[0]) + ": " + all.slice(0, 4).map(([n, ns]) => n + " " + time(ns)).join(", ") + (more > 0 ? " and " + more + " more" : "") : "";
  };
  const told = (p) => [...word(p), meanwhile(p)].filter((t) => t).join(" · ");
  const pick = (l, i, quiet) => { picked = { l, i }; if (!quiet) status.textContent = told(picked); draw(); };
  let turn = -1;
  const jump = (by) => {
    const all = shown.flatMap((r) => Lab.longest(r, lit).map((w) => [w, r])).sort((a, b) => b[0][0] - a[0][0]);
    if (!all.length) { status.textContent = "No wait was seen."; return; }
    turn = (turn + by + all.length) % all.length;
    const [[wait, cpu, i], r] = all[turn], c = r.cpus[cpu], s = c.start[i], room = Math.max(wait, 2000);
    set(s - wait - room * 0.25, s + room * 0.35);
    pick(laneOf(r, cpu), i, true);
    status.textContent = "Wait " + (turn + 1) + " of " + all.length + " by length · " + told(picked);
  };
  // Brings a wait into view that ended on this CPU, with the span that it led to.
  const show = (r, cpu, from, to) => {
    if (!r.on) { r.on = true; bar.querySelectorAll("button")[runs.indexOf(r)].setAttribute("aria-pressed", "true"); layout(); }
    const room = Math.max(to - from, 2000);
    set(from - room * 0.25, to + room * 0.35);
    const l = laneOf(r, cpu);
    if (l) pick(l, find(l.c, to));
  };
  for (const link of document.querySelectorAll(".waits a")) if (link.hash === "#" + figure.id) link.addEventListener("click", (e) => {
    const { run, cpu, from, to } = link.dataset, fold = figure.closest("details");
    e.preventDefault();
    if (fold) fold.open = true;
    show(runs[+run], +cpu, +from, +to);
    figure.scrollIntoView();
    canvas.focus({ preventScroll: true });
  });
  const step = (by) => {
    if (!picked) { const l = lanes[0]; return pick(l, find(l.c, (view.a + view.b) / 2)); }
    let { l, i } = picked; l = laneOf(l.r, l.cpu) || lanes[0];
    do { i += by; } while (i > 0 && i < l.c.n - 1 && l.c.who[i] === -1);
    i = Math.max(0, Math.min(l.c.n - 1, i));
    const s = l.c.start[i], e = end(l.r, l.c, i), span = view.b - view.a;
    if (s < view.a || e > view.b) set(s - span / 3, s - span / 3 + span);
    pick(l, i);
  };
  const lane = (by) => {
    const at = picked ? lanes.findIndex((l) => l.r === picked.l.r && l.cpu === picked.l.cpu) : -1;
    const l = lanes[Math.max(0, Math.min(lanes.length - 1, at + by))];
    pick(l, find(l.c, picked ? picked.l.c.start[picked.i] : (view.a + view.b) / 2));
  };
  const hit = (e) => {
    const box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    const l = lanes.find((o) => y >= o.y - 2 && y <= o.y + laneHeight + 4);
    if (!l || x < GUTTER) return null;
    const t = T(x); let i = find(l.c, t);
    // Below the lane are the waits: the span that ended the one under the pointer.
    if (y > l.y + laneHeight) for (let k = i; k < l.c.n && k < i + 400; k++) if (l.c.wait[k] > 0 && l.c.start[k] >= t && l.c.start[k] - l.c.wait[k] <= t) return { l, i: k };
    // A narrow neighbour within two pixels is easier to point at.
    for (const k of [i, i + 1, i - 1]) if (k >= 0 && k < l.c.n && l.c.who[k] >= 0 && X(l.c.start[k]) - 2 <= x && X(end(l.r, l.c, k)) + 2 >= x) { i = k; break; }
    return t >= l.r.from_ns && t <= l.r.to_ns ? { l, i } : null;
  };
  let drag = null; const touches = new Map();
  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId); touches.set(e.pointerId, e.clientX);
    drag = { x: e.clientX, a: view.a, b: view.b, moved: false, box: e.shiftKey };
    canvas.focus({ preventScroll: true });
  });
  canvas.addEventListener("pointermove", (e) => {
    const left = canvas.getBoundingClientRect().left;
    if (touches.has(e.pointerId) && touches.size === 2) {
      const [p, q] = [...touches.values()], far = Math.abs(p - q); touches.set(e.pointerId, e.clientX);
      const [u, v] = [...touches.values()]; if (far > 4 && Math.abs(u - v) > 4) zoom(far / Math.abs(u - v), T((u + v) / 2 - left));
      drag = null; return;
    }
    if (touches.has(e.pointerId)) touches.set(e.pointerId, e.clientX);
    if (drag) {
      if (Math.abs(e.clientX - drag.x) > 3) drag.moved = true;
      if (!drag.moved) return;
      if (drag.box) {
        draw(); const g = canvas.getContext("2d"); g.globalAlpha = 0.15; g.fillStyle = Lab.css("--ink");
        g.fillRect(Math.min(drag.x, e.clientX) - left, 0, Math.abs(e.clientX - drag.x), height - AXIS); g.globalAlpha = 1;
      } else { const dt = (drag.x - e.clientX) / (width - GUTTER) * (drag.b - drag.a); set(drag.a + dt, drag.b + dt); }
      tip.style.display = "none"; return;
    }
    hover = hit(e);
    if (!hover) { tip.style.display = "none"; return; }
    const [head, ...rest] = word(hover);
    tip.replaceChildren(el("b", {}, head), ...rest.map((t) => el("div", {}, t)));
    tip.style.display = "block";
    const x = e.clientX - left, y = hover.l.y + laneHeight + 10;
    tip.style.left = Math.max(0, x > width / 2 ? x - tip.offsetWidth - 10 : x + 12) + "px"; tip.style.top = y + "px";
  });
  const release = (e) => {
    touches.delete(e.pointerId);
    if (!drag) return;
    const d = drag, left = canvas.getBoundingClientRect().left; drag = null;
    if (d.box && d.moved) return set(T(Math.min(d.x, e.clientX) - left), T(Math.max(d.x, e.clientX) - left));
    if (!d.moved) { const h = hit(e); if (h) pick(h.l, h.i); else { picked = null; draw(); } }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", (e) => { touches.delete(e.pointerId); drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", (e) => {
    const h = hit(e); if (!h) return;
    const s = h.l.c.start[h.i], d = end(h.l.r, h.l.c, h.i) - s; set(s - d * 0.5, s + d * 1.5);
  });
  canvas.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
    e.preventDefault();
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const dt = e.deltaX / width * (view.b - view.a); return set(view.a + dt, view.b + dt); }
    zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 240))), T(e.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  // In the strip: a drag inside the part in view moves it, any other chooses a part, a click goes there.
  let brush = null;
  const at = (e) => begin + (e.clientX - over.getBoundingClientRect().left - GUTTER) / (width - GUTTER) * (finish - begin);
  over.addEventListener("pointerdown", (e) => {
    const t = at(e), whole = view.b - view.a >= finish - begin;
    over.setPointerCapture(e.pointerId);
    brush = { t, x: e.clientX, moved: false, from: !whole && t > view.a && t < view.b ? view.a : null };
  });
  over.addEventListener("pointermove", (e) => {
    if (!brush) return;
    if (Math.abs(e.clientX - brush.x) > 3) brush.moved = true;
    if (!brush.moved) return;
    const t = at(e), span = view.b - view.a;
    if (brush.from === null) set(Math.min(t, brush.t), Math.max(t, brush.t)); else set(brush.from + t - brush.t, brush.from + t - brush.t + span);
  });
  over.addEventListener("pointerup", () => {
    if (brush && !brush.moved) { const half = (view.b - view.a) / 2; set(brush.t - half, brush.t + half); }
    brush = null;
  });
  over.addEventListener("pointercancel", () => { brush = null; });
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const span = view.b - view.a, moves = {
      ArrowLeft: () => set(view.a - span * 0.2, view.b - span * 0.2), ArrowRight: () => set(view.a + span * 0.2, view.b + span * 0.2),
      ArrowUp: () => lane(-1), ArrowDown: () => lane(1), ",": () => step(-1), ".": () => step(1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => set(begin, finish),
      Home: () => set(begin, begin + span), End: () => set(finish - span, finish), n: () => jump(1), p: () => jump(-1),
      t: () => ownLane(), "/": () => search.focus(),
      Escape: () => { picked = null; search.value = ""; mark(""); light(null, null, ""); },
    };
    if (moves[e.key]) {
      e.preventDefault(); moves[e.key]();
      if (["+", "=", "-", "0", "ArrowLeft", "ArrowRight", "Home", "End"].includes(e.key)) status.textContent = "In view: " + time(view.b - view.a) + " from " + (view.a / 1e9).toFixed(6) + " s";
    }
  });
  // The view as a table, for those who cannot see a canvas; made when opened and on demand.
  const fill = () => {
    list.querySelectorAll(".scroll,p").forEach((n) => n.remove());
    const rows = []; let more = 0;
    for (const l of lanes) {
      const last = find(l.c, view.b);
      if (l.cpu >= 0) for (let i = find(l.c, view.a); i <= last; i++) {
        if (l.c.who[i] < 0 || lit && !lit[l.c.who[i]]) continue;
        if (rows.length >= 300) { more++; continue; }
        rows.push([l, i]);
      }
    }
    rows.sort((x, y) => x[0].c.start[x[1]] - y[0].c.start[y[1]]);
    const heads = ["from", "run", "CPU", "task", "ran", "waited before"];
    const body = rows.map(([l, i]) => el("tr", {}, ...[(l.c.start[i] / 1e9).toFixed(6) + " s", l.r.name, String(l.cpu), given.tasks[l.c.who[i]][0], time(end(l.r, l.c, i) - l.c.start[i]), l.c.wait[i] < 0 ? "–" : time(l.c.wait[i])].map((t) => el("td", {}, t))));
    list.append(el("p", {}, rows.length + " spans" + (more ? " (" + more + " more: zoom in)" : "") + ", " + time(view.b - view.a) + " from " + (view.a / 1e9).toFixed(6) + " s"),
      el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Spans in view" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, ...body))));
  };
  list.addEventListener("toggle", () => { if (list.open) fill(); });
  // The numbers of what is in view: by program; by thread where some are highlighted.
  const ROWS = 8;
  const tally = () => {
    const line = lit ? (who) => (lit[who] ? nameOf(who) : null) : (who) => given.tasks[who][1];
    const rows = shown.flatMap((r) => Lab.tally(r, view.a, view.b, line, nameOf, 2e6).slice(0, ROWS).map((l) => [r, l]));
    const number = (ns) => (ns === null ? "–" : time(ns)), behind = (l) => l.behind.slice(0, 2).map(([n, ns]) => [n, Math.round(100 * ns / l.waited)]).filter(([, part]) => part > 0).map(([n, part]) => n + " " + part + " %").join(", ") + (l.whole ? "" : " (of a part: zoom in)");
    const heads = [lit ? "thread" : "program", ...(shown.length > 1 ? ["run"] : []), "waited", "longest", "wakeups", "latency p50", "p99", "CPU time", "mostly behind"];
    const body = rows.map(([r, l]) => el("tr", {}, el("th", { scope: "row" }, l.line), ...(shown.length > 1 ? [el("td", {}, r.name)] : []),
      ...[number(l.waited), number(l.longest), String(l.wakeups), number(l.p50), number(l.p99), number(l.ran)].map((t) => el("td", { className: "n" }, t)), el("td", {}, l.waited > 0 ? behind(l) : "")));
    const left = shown.length > 1 ? 2 : 1;
    seen.replaceChildren(el("p", {}, "In view: " + time(view.b - view.a) + " from " + (view.a / 1e9).toFixed(6) + " s. Waits that end in it count whole; latency: from a wakeup to running; behind: what was on the CPU on which the task then ran."),
      el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Waiting in view" }, el("table", { className: "data" },
        el("thead", {}, el("tr", {}, ...heads.map((h, k) => el("th", { scope: "col", className: k >= left && k < heads.length - 1 ? "n" : "" }, h)))), el("tbody", {}, ...body))));
  };
  // Soon after the last of several changes.
  let due = 0;
  const renew = () => { clearTimeout(due); due = setTimeout(() => { tally(); if (list.open) fill(); }, 40); };

  layout();
  Lab.again(figure, () => { drawOver(); draw(); });
  new ResizeObserver(() => { if (stage.clientWidth && stage.clientWidth !== width) layout(); }).observe(stage);
  const asked = /longest=(\d+)/.exec(location.hash);
  const focus = runs.map((r) => r.focus_ns).find((f) => f);
  if (asked) jump(+asked[1]); else if (focus) set(focus[0], focus[1]);
  figure.dataset.spans = runs.reduce((n, r) => n + r.cpus.reduce((m, c) => m + c.n, 0), 0);
  return handle;
};
