// Which task works for which: a graph of messages, and what one request went through.
import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import type { Flow, FlowEdge, FlowRequest } from "./types";
import { time } from "./page/units";

const count = (value: number) => (value >= 1e6 ? (value / 1e6).toPrecision(3) + " M" : value >= 1e4 ? (value / 1e3).toPrecision(3) + " k" : value >= 100 ? String(Math.round(value)) : String(+value.toPrecision(3)));
const bytes = (value: number) => (value >= 1 << 20 ? (value / (1 << 20)).toPrecision(3) + " MiB" : value >= 1024 ? (value / 1024).toPrecision(3) + " KiB" : value + " bytes");
const named = (flow: Flow, place: number) => flow.nodes[place].name || "elsewhere";
// Programs in the picture; all are in the table.
const NODES = 14;

// One arrow for each pair of programs: the busiest of what goes between them is named.
function arrows(flow: Flow): FlowEdge[] {
  const pairs = new Map<string, FlowEdge>();
  for (const edge of flow.edges) {
    if (edge.from === edge.to || edge.from >= NODES || edge.to >= NODES) continue;
    const key = edge.from + ">" + edge.to, known = pairs.get(key);
    pairs.set(key, known ? { ...known, messages: known.messages + edge.messages, per_second: known.per_second + edge.per_second, longest_queue_bytes: Math.max(known.longest_queue_bytes ?? 0, edge.longest_queue_bytes ?? 0) || undefined } : edge);
  }
  return [...pairs.values()];
}

// Columns from left to right: those that ask, the server, those that it asks.
function columns(flow: Flow, edges: FlowEdge[]): number[] {
  const shown = Math.min(flow.nodes.length, NODES), level = Array<number>(shown).fill(-1);
  const server = Math.max(0, flow.nodes.findIndex((one) => one.serves || one.answered > 0));
  level[server] = 1;
  const near = (place: number) => edges.filter((one) => one.from === place || one.to === place).map((one) => (one.from === place ? one.to : one.from));
  const queue = [server];
  for (let at = 0; at < queue.length; at++) for (const next of near(queue[at])) {
    if (level[next] >= 0) continue;
    // A program that answers is asked by the one before; any other one asks it.
    level[next] = flow.nodes[next].answered > 0 ? level[queue[at]] + 1 : Math.max(0, level[queue[at]] - 1);
    queue.push(next);
  }
  return level.map((one) => (one < 0 ? 0 : one));
}

function Graph({ flow, choose, known }: { flow: Flow; choose: (name: string) => void; known: (name: string) => boolean }) {
  const edges = arrows(flow), level = columns(flow, edges);
  // A program that exchanges messages with itself alone has no arrow; it is in the table.
  const alone = (place: number) => edges.length > 0 && !edges.some((one) => one.from === place || one.to === place);
  const drawn = level.map((_, place) => place).filter((place) => !alone(place));
  const levels = [...new Set(drawn.map((place) => level[place]))].sort((a, b) => a - b), rows = levels.map((one) => drawn.filter((place) => level[place] === one));
  const w = 168, h = 50, gap = 150, tall = Math.max(...rows.map((row) => row.length)) * 84, W = Math.max(1, levels.length) * w + (levels.length - 1) * gap, H = Math.max(84, tall);
  const at = (place: number) => {
    const column = levels.indexOf(level[place]), row = rows[column], step = H / row.length;
    return { x: column * (w + gap), y: step * row.indexOf(place) + step / 2 - h / 2 };
  };
  const most = Math.max(...edges.map((one) => one.per_second), 1);
  const say = (edge: FlowEdge) => count(edge.per_second) + "/s" + (edge.longest_queue_bytes ? ", queue up to " + bytes(edge.longest_queue_bytes) : "");
  const about = (place: number) => {
    const node = flow.nodes[place], to = edges.filter((one) => one.from === place).map((one) => "sends " + named(flow, one.to) + " " + say(one) + " over " + one.over);
    return named(flow, place) + (node.answered ? ", answered " + count(node.answered) + " requests" : "") + (to.length ? "; " + to.join("; ") : "") + (known(node.name) ? ". Press to change its settings" : "");
  };
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Graph of messages">
      <svg class="graph" viewBox={`-2 -12 ${W + 4} ${H + 24}`} style={{ width: W + 4 + "px", minWidth: Math.min(W, 900) * 0.75 + "px" }} role="group" aria-label="Which task works for which">
        <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0,0L8,4L0,8z" /></marker></defs>
        {edges.map((edge) => {
          const a = at(edge.from), b = at(edge.to), right = b.x > a.x, same = b.x === a.x, shift = edge.from < edge.to ? -9 : 9;
          const x1 = same ? a.x + w : a.x + (right ? w : 0), x2 = same ? b.x + w : b.x + (right ? 0 : w), y1 = a.y + h / 2 + shift, y2 = b.y + h / 2 + shift;
          const bend = same ? gap * 0.5 : (x2 - x1) / 2, path = `M${x1},${y1}C${x1 + bend},${y1} ${same ? x2 + bend : x2 - bend},${y2} ${x2},${y2}`;
          return (
            <g key={edge.from + ">" + edge.to} aria-hidden="true"><path class="edge" d={path} marker-end="url(#head)" stroke-width={1 + 2.5 * Math.sqrt(edge.per_second / most)} />
              <text x={same ? x1 + gap * 0.4 : (x1 + x2) / 2} y={(y1 + y2) / 2 + (shift < 0 ? -6 : 15)} text-anchor="middle">{count(edge.per_second)}/s</text>
              {edge.longest_queue_bytes !== undefined && <title>{say(edge)}</title>}</g>
          );
        })}
        {drawn.map((place) => {
          const { x, y } = at(place), node = flow.nodes[place], press = known(node.name);
          return (
            <g key={place} class={node.serves ? "node serves" : "node"} role={press ? "button" : "img"} tabindex={press ? 0 : undefined} aria-label={about(place)} onClick={() => press && choose(node.name)}
              onKeyDown={(e) => { if (press && (e.key === "Enter" || e.key === " ")) { e.preventDefault(); choose(node.name); } }}>
              <rect x={x} y={y} width={w} height={h} rx={8} /><text x={x + w / 2} y={y + 21} text-anchor="middle" class="name">{named(flow, place).slice(0, 22)}</text>
              <text x={x + w / 2} y={y + 38} text-anchor="middle">{node.answered ? count(node.answered) + " requests answered" : count(node.messages) + " messages"}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

const KINDS: [string, string, (state: string) => boolean][] = [
  ["runs", "runs", (state) => state === "Running"],
  ["waits", "waits for a CPU", (state) => /^Runnable|^Throttled/.test(state)],
  ["sleeps", "sleeps or is blocked", () => true],
];
const kindOf = (state: string) => KINDS.find(([, , is]) => is(state))!;

function Request({ request, part }: { request: FlowRequest; part: (from: string, to: string) => void }) {
  const length = Math.max(1, request.to_ns - request.from_ns), W = 720, row = 40, depths = [...new Set(request.frames.map((one) => one.depth))].sort((a, b) => a - b);
  const x = (ns: number) => ((ns - request.from_ns) / length) * W;
  const H = depths.length * row, title = "The " + request.which + " of " + request.of + " requests over " + request.over + ": " + time(length);
  const about = (frame: FlowRequest["frames"][0]) => frame.task + (frame.over ? ", asked over " + frame.over : ", the client") + ": " + time(frame.to_ns - frame.from_ns) + ", of which it waited " + time(frame.waited_ns) + " for a CPU";
  return (
    <figure class="request">
      <figcaption><b>{title}</b> <button type="button" onClick={() => { const room = Math.round(length * 0.2); part(Math.max(0, request.from_ns - room) + "ns", request.to_ns + room + "ns"); }}>Only this part</button></figcaption>
      <svg viewBox={`0 0 ${W} ${H + 18}`} role="img" aria-label={title + ". " + request.frames.map(about).join(". ")}>
        {request.frames.map((frame, place) => {
          const y = depths.indexOf(frame.depth) * row, wide = x(frame.to_ns) - x(frame.from_ns);
          return (
            <g key={place}><title>{about(frame)}</title><rect class="frame" x={x(frame.from_ns)} y={y} width={Math.max(1, wide)} height={row - 4} />
              {frame.states.map(([state, from, to]) => <rect class={kindOf(state)[0]} x={x(from)} y={y + 18} width={Math.max(0.6, x(to) - x(from))} height={row - 24} />)}
              {wide > 60 && <text x={x(frame.from_ns) + 5} y={y + 13}>{(frame.task + (frame.over ? " · " + frame.over : " · client")).slice(0, Math.floor(wide / 7))}</text>}</g>
          );
        })}
        <text x={0} y={H + 13}>{time(request.from_ns)}</text><text x={W} y={H + 13} text-anchor="end">{"+" + time(length)}</text>
      </svg>
      {request.more_frames > 0 && <p class="lead">{request.more_frames} requests inside are not drawn.</p>}
    </figure>
  );
}

export function Messages({ id, query, choose, known, part }: { id: string; query: string; choose: (name: string) => void; known: (name: string) => boolean; part: (from: string, to: string) => void }) {
  const [flow, set] = useState<Flow | null>(null), [failed, fail] = useState("");
  useEffect(() => {
    const end = new AbortController();
    set(null);
    fail("");
    get<Flow>("inputs/" + encodeURIComponent(id) + "/flow?" + query, end.signal).then(set, (error: Error) => { if (!end.signal.aborted) fail(error.message); });
    return () => end.abort();
  }, [id, query]);
  const ns = (value: number | undefined) => (value === undefined ? "–" : time(value));
  return (
    <section aria-labelledby="flow" data-ready={flow ? "yes" : "no"}>
      <h2 id="flow">Which task works for which</h2>
      {failed && <p class="warn" role="alert">{failed}</p>}
      {flow?.missing && <p class="lead">Not known here: {flow.missing}.</p>}
      {flow && !flow.missing && flow.edges.length === 0 && <p class="lead">No task sent anything that another one received.</p>}
      {flow && flow.edges.length > 0 && (
        <>
          <p class="lead">Arrows are messages a second, thicker where there are more. Press a program to change its settings.</p>
          <Graph flow={flow} choose={choose} known={known} />
          <details class="fold"><summary>All messages, with their queues, as a table</summary>
            <div class="scroll" tabIndex={0} role="region" aria-label="Messages"><table class="data"><thead><tr><th scope="col">from</th><th scope="col">to</th><th scope="col">over</th><th scope="col" class="n">a second</th><th scope="col" class="n">bytes</th><th scope="col" class="n">longest queue</th><th scope="col" class="n">until received, p50</th><th scope="col" class="n">p99</th></tr></thead>
              <tbody>{flow.edges.map((edge) => <tr><th scope="row">{named(flow, edge.from)}</th><td>{named(flow, edge.to)}</td><td>{edge.over}</td><td class="n">{count(edge.per_second)}</td><td class="n">{bytes(edge.bytes)}</td><td class="n">{edge.longest_queue_bytes === undefined ? "–" : bytes(edge.longest_queue_bytes)}</td><td class="n">{ns(edge.queued_p50_ns)}</td><td class="n">{ns(edge.queued_p99_ns)}</td></tr>)}</tbody></table></div>
            {flow.more_edges > 0 && <p class="lead">{flow.more_edges} pairs with fewer messages are left out.</p>}
          </details>
          {flow.requests.length > 0 && <h3>One request, from process to process</h3>}
          {flow.requests.map((request) => <Request key={request.which} request={request} part={part} />)}
          {flow.requests.length > 0 && <ul class="colours" aria-label="What the colours mean">{KINDS.map(([key, word]) => <li key={key}><span><i class={"key " + key} />{word}</span></li>)}</ul>}
          {flow.notes.map((note) => <p class="lead">{note}</p>)}
        </>
      )}
    </section>
  );
}
