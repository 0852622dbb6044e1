// The machine while it works: what `schedlab watch` shows, and a button that keeps the last seconds.
import { useEffect, useState } from "preact/hooks";
import { post, stream } from "./api";
import type { Watched } from "./types";
import { time } from "./page/units";

const ROWS = 25;

export function Live({ tab, opened }: { tab: string; opened: (id: string) => void }) {
  const [state, set] = useState<Watched | null>(null), [failed, fail] = useState(""), [find, seek] = useState("");
  const [paused, pause] = useState(false), [keeping, keep] = useState(false);
  useEffect(() => {
    if (paused) return;
    const end = new AbortController();
    stream("live?tab=" + encodeURIComponent(tab + "-live"), null, end.signal, (event, data) => {
      if (event === "state") set(data as Watched);
      else if (event === "failed") fail((data as { error: string }).error);
    }).catch((error: unknown) => { if (!end.signal.aborted) fail((error as Error).message); });
    return () => end.abort();
  }, [paused]);
  const take = async () => {
    keep(true);
    fail("");
    try {
      const [id] = (await (await post("live/keep", "")).json()) as string[];
      opened(id);
    } catch (error) {
      fail((error as Error).message);
    }
    keep(false);
  };
  const is = (name: string) => name.toLowerCase().includes(find.toLowerCase());
  const lead = state?.guess?.name, tasks = (state?.tasks ?? []).filter((one) => is(one.task)).sort((a, b) => Number(b.task === lead) - Number(a.task === lead) || b.waited_ns - a.waited_ns);
  const part = (ns: number) => ((ns / Math.max(1, state?.window_ns ?? 1)) * 100).toFixed(1) + " %";
  const behind = (name: string) => (state?.delays ?? []).filter((one) => one.waited === name).sort((a, b) => b.time_ns - a.time_ns).slice(0, 2).map((one) => one.ran + " " + time(one.time_ns)).join(", ");
  return (
    <main id="main" tabIndex={-1}>
      <h1 class="hello">This machine</h1>
      <p class="lead">Waits of all tasks for a CPU since the start{state ? ": " + time(state.window_ns) + ", " + state.events + " events by " + state.backend + (state.lost ? ", " + state.lost + " lost" : "") + "; schedlab itself " + part(state.own_cpu_ns) + " of a CPU" : ""}.</p>
      {failed && <p class="warn" role="alert">{failed}</p>}
      <p class="choices">
        <button type="button" id="keep" disabled={keeping || !state} onClick={() => void take()}>{keeping ? "Being kept …" : "Keep the last 10 s, and open them"}</button>
        <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>Pause</button>
        <label>Find <input type="search" value={find} onInput={(e) => seek(e.currentTarget.value)} /></label>
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Tasks by waiting"><table class="data" id="live">
        <thead><tr><th scope="col">task</th><th scope="col" class="n">CPU</th><th scope="col" class="n">waits</th><th scope="col" class="n">waited</th><th scope="col" class="n">p50</th><th scope="col" class="n">p99</th><th scope="col" class="n">longest</th><th scope="col">mostly behind</th></tr></thead>
        <tbody>{tasks.slice(0, ROWS).map((one) => (
          <tr key={one.task}><th scope="row">{one.task}{one.task === lead && <small>taken for the server</small>}</th><td class="n">{part(one.cpu_ns)}</td><td class="n">{one.waits}</td><td class="n">{time(one.waited_ns)}</td><td class="n">{time(one.p50_ns)}</td>
            <td class="n">{time(one.p99_ns)}<small>{one.p99_interval_ns.map((end) => (end === null ? "?" : time(end))).join(" … ")}</small></td><td class="n">{time(one.max_ns)}</td><td class="long">{behind(one.task)}</td></tr>
        ))}</tbody></table></div>
      {tasks.length > ROWS && <p class="lead">{tasks.length - ROWS} tasks that waited less are not shown: find them by name.</p>}
      {state && state.worst.length > 0 && <><h2>The longest waits so far</h2><ol class="waits">{state.worst.filter((one) => is(one.task)).slice(0, 8).map((one) => <li key={one.tid + ":" + one.from_ns}>{one.task}[{one.tid}] waited {time(one.length_ns)} on CPU {one.cpu}; {one.culprit || "no task"} ran {time(one.culprit_ns)} meanwhile</li>)}</ol></>}
    </main>
  );
}
