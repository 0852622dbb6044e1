"use strict";
// What is in a part of a run: how late tasks ran after a wakeup (as `schedlab show --latency` counts it), how long they waited in
// all, and behind what. Waits count where they end, whole. `lineOf`: the line of a task; `room`: steps at most.
Lab.find = (c, t) => { let lo = 0, hi = c.n - 1; while (lo < hi) { const m = (lo + hi + 1) >> 1; if (c.start[m] <= t) lo = m; else hi = m - 1; } return lo; };
Lab.end = (r, c, i) => (i + 1 < c.n ? c.start[i + 1] : r.to_ns);
// The longest waits, of the highlighted tasks where some are: length, CPU, span.
Lab.longest = (r, lit) => {
  const all = [];
  r.cpus.forEach((c, cpu) => { for (let i = 0; i < c.n; i++) if (c.wait[i] > 0 && (!lit || lit[c.who[i]])) all.push([c.wait[i], cpu, i]); });
  return all.sort((x, y) => y[0] - x[0]).slice(0, 200);
};
// What was on the CPU of a span while its task waited for it: name and time, the longest first.
Lab.meanwhile = (r, c, i, nameOf) => {
  const to = c.start[i], from = to - c.wait[i], ran = new Map();
  for (let k = Lab.find(c, from); k < i; k++) {
    const part = Math.min(to, Lab.end(r, c, k)) - Math.max(from, c.start[k]), name = nameOf(c.who[k]);
    if (part > 0) ran.set(name, (ran.get(name) || 0) + part);
  }
  return [...ran].sort((x, y) => y[1] - x[1]);
};
Lab.tally = (r, a, b, lineOf, nameOf, room) => {
  const lines = new Map();
  for (const c of r.cpus) for (let i = Lab.find(c, a), last = Lab.find(c, b); i <= last && c.n; i++) {
    const line = c.who[i] < 0 ? null : lineOf(c.who[i]);
    if (line === null) continue;
    const l = lines.get(line) || { line, ran: 0, woken: [], waited: 0, longest: 0, behind: new Map() };
    lines.set(line, l);
    l.ran += Math.max(0, Math.min(b, Lab.end(r, c, i)) - Math.max(a, c.start[i]));
    if (c.wait[i] < 0 || c.start[i] < a || c.start[i] > b) continue;
    if (c.wake[i] >= 0) l.woken.push(c.wait[i]);
    l.waited += c.wait[i]; l.longest = Math.max(l.longest, c.wait[i]);
    room -= i - Lab.find(c, c.start[i] - c.wait[i]);
    if (c.wait[i] > 0 && room > 0) for (const [name, part] of Lab.meanwhile(r, c, i, nameOf)) l.behind.set(name, (l.behind.get(name) || 0) + part);
  }
  return [...lines.values()].map((l) => {
    const sorted = Float64Array.from(l.woken).sort(), at = (q) => (sorted.length ? sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] : null);
    return Object.assign(l, { wakeups: sorted.length, p50: at(0.5), p99: at(0.99), behind: [...l.behind].sort((x, y) => y[1] - x[1]), whole: room > 0 });
  }).sort((x, y) => y.waited - x.waited || y.ran - x.ran);
};
// One thread as a lane: where it ran (`on`: the CPU and the span there), where it waited (-3), where it slept (-1).
Lab.thread = (r, task) => {
  const spans = [];
  r.cpus.forEach((c, cpu) => { for (let i = 0; i < c.n; i++) if (c.who[i] === task) spans.push([c.start[i], Lab.end(r, c, i), cpu, i]); });
  spans.sort((x, y) => x[0] - y[0]);
  const start = [], who = [], why = [], wait = [], on = [];
  const put = (t, w, more) => { start.push(t); who.push(w); why.push(more ? more[0] : 0); wait.push(more ? more[1] : -1); on.push(more ? more[2] : null); };
  let at = r.from_ns;
  for (const [from, to, cpu, i] of spans) {
    const c = r.cpus[cpu], since = Math.max(at, from - Math.max(0, c.wait[i]));
    if (since > at) put(at, -1);
    if (from > since) put(since, -3);
    put(from, task, [0, c.wait[i], [cpu, i]]);
    at = to;
  }
  if (at < r.to_ns) {
    const [, , cpu, i] = spans[spans.length - 1] || [], c = r.cpus[cpu];
    put(at, c && i + 1 < c.n && (c.why[i + 1] === 1 || c.why[i + 1] === 2) ? -3 : -1);
  }
  return { start: Float64Array.from(start), who: Int32Array.from(who), why: Uint8Array.from(why), wait: Float64Array.from(wait), wake: new Int32Array(start.length).fill(-1), n: start.length, on };
};
