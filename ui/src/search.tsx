// A search (`schedlab tune`): what is asked for, and its curve while it grows.
import { useEffect, useRef, useState } from "preact/hooks";
import { post, stream } from "./api";
import { arrows, show } from "./answer";
import { quoted, type Change, type View } from "./state";
import type { Between, Overview, SearchProgress, Setting, Settings, Tuned } from "./types";
import { time } from "./values";

// As `schedlab tune` takes them; three dimensions at most.
export const MOST = 3;

// What a setting's values are in a search; empty: it is none that can be searched.
export function dimension(target: string, setting: Setting, draft: Change[], schedulers: string[]): string {
  const { key, values } = setting;
  const range = (): string => {
    switch (values.kind) {
      case "number": return values.low + ".." + values.high;
      case "time": return time(values.low_ns) + ".." + time(values.high_ns);
      case "limit": return "10%.." + values.high_percent + "%";
      case "flag": return "off,on";
      case "words": return values.words.join(",");
      case "scheduler": return schedulers.join(",");
      default: return "";
    }
  };
  const text = range();
  if (!text) return "";
  if (target === "scheduler") return key + "=" + text;
  // A group that is not there yet is made by every setting of the search.
  const made = draft.find((one) => one.key === "group" && one.value === target);
  const fixed = made ? quoted(made.target) + " group=" + target + " ; " : "";
  return fixed + quoted(target) + " " + key + "=" + text;
}

export interface Wanted {
  goal: string;
  keep: string;
  space: string[];
}

// What one would search first: the program that ran while the server waited.
export function suggested(overview: Overview, settings: Settings): Wanted {
  const [waiting, running] = overview.waited ?? [overview.server ?? overview.programs[0]?.name ?? "", overview.programs.find((one) => !one.serves)?.name ?? ""];
  const has = (key: string) => settings.settings.some((one) => one.of === "task" && one.key === key);
  const space = running && has("nice") ? [quoted(running) + " nice=0..19", quoted(running) + " policy=other,batch,idle"] : [];
  const source = overview.sources[0];
  return { goal: source ? source + " response p99" : (overview.server ?? waiting) + " latency p99", keep: running ? running + " share" : "", space };
}

export const wanted = (view: View, overview: Overview, settings: Settings): Wanted => {
  const first = suggested(overview, settings);
  return { goal: view.goal || first.goal, keep: view.keep || first.keep, space: view.space.length > 0 ? view.space : first.space };
};

export function SearchForm({ overview, settings, view, update, running, search, stop }: { overview: Overview; settings: Settings; view: View; update: (next: Partial<View>) => void; running: boolean; search: () => void; stop: () => void }) {
  const now = wanted(view, overview, settings);
  const names = [...overview.sources, ...overview.programs.map((one) => one.name)];
  const suggestions = names.slice(0, 12).flatMap((name) => (overview.sources.includes(name) ? ["response p99", "response p50", "throughput"] : ["latency p99", "latency p50", "share", "response p99"]).map((metric) => name + " " + metric));
  const space = (place: number, text: string) => update({ space: now.space.map((one, at) => (at === place ? text : one)).filter((one) => one !== "") });
  return (
    <details class="fold searching">
      <summary>Search for the best setting</summary>
      <datalist id="aims">{suggestions.map((one) => <option value={one} />)}</datalist>
      <label class="line"><span>Better</span><input type="text" id="goal" list="aims" spellcheck={false} value={now.goal} onChange={(e) => update({ goal: e.currentTarget.value.trim() })} /></label>
      <label class="line"><span>What it costs</span><input type="text" id="keep" list="aims" spellcheck={false} value={now.keep} onChange={(e) => update({ keep: e.currentTarget.value.trim() })} /></label>
      <p class="hint">A bound may follow, such as <code>&lt; 1ms</code> or <code>&gt; 30%</code>.</p>
      <ul class="pins" aria-label="Settings that are searched">{now.space.map((one, place) => (
        <li key={place}><input type="text" spellcheck={false} aria-label={"Searched setting " + (place + 1)} value={one} onChange={(e) => space(place, e.currentTarget.value.trim())} />
          <button type="button" aria-label={"Do not search " + one} onClick={() => update({ space: now.space.filter((_, at) => at !== place) })}>×</button></li>
      ))}</ul>
      <p class="hint">{now.space.length < MOST ? "“Search it” at a setting above adds its values; " + MOST + " settings at most." : MOST + " settings are the most that one search takes."}</p>
      <p class="choices">
        <button type="button" id="search" disabled={running || now.space.length === 0 || !now.goal} onClick={search}>Search</button>
        <button type="button" disabled={!running} onClick={stop}>Stop, and keep what is found</button>
      </p>
    </details>
  );
}

export interface Searched {
  progress: SearchProgress | null;
  tuned: Tuned | null;
  failed: string;
  running: boolean;
}
const NOTHING: Searched = { progress: null, tuned: null, failed: "", running: false };

// The options of `schedlab tune`.
function options(view: View, now: Wanted): [string, string][] {
  const all: [string, string][] = [["goal", now.goal], ["keep", now.keep], ...now.space.map((one): [string, string] => ["space", one])];
  return [...all, ...([["serve", view.serve], ["from", view.from], ["to", view.to]] as [string, string][])].filter(([, text]) => text !== "");
}

// One search at a time; a change of the input ends it.
export function useSearch(id: string, tab: string, view: View) {
  const [state, set] = useState<Searched>(NOTHING);
  const end = useRef<AbortController | null>(null);
  useEffect(() => {
    set(NOTHING);
    return () => end.current?.abort();
  }, [id]);
  const search = (now: Wanted) => {
    end.current?.abort();
    const own = (end.current = new AbortController());
    set({ ...NOTHING, running: true });
    const some = (next: Partial<Searched>) => { if (!own.signal.aborted) set((before) => ({ ...before, ...next })); };
    stream("tune", JSON.stringify({ input: id, tab: tab + "-tune", options: options(view, now) }), own.signal, (event, data) => {
      if (event === "progress") some({ progress: data as SearchProgress });
      else if (event === "answer") some({ tuned: data as Tuned });
      else if (event === "failed") some({ failed: (data as { error: string }).error });
    }).catch((error: unknown) => some({ failed: (error as Error).message })).finally(() => some({ running: false }));
    // The curve is below the answer, which may be long.
    requestAnimationFrame(() => document.getElementById("searched")?.scrollIntoView({ block: "nearest" }));
  };
  const stop = () => void post("stop", JSON.stringify(tab + "-tune"));
  return { state, search, stop };
}

interface Dot {
  setting: string;
  scheduler: string;
  at: [Range, Range];
  front: boolean;
  first: boolean;
}
// The number, and where it lies; null: that end is not known.
interface Range {
  mid: number;
  low: number | null;
  high: number | null;
}

const metricOf = (aim: string) => /(latency|response|wait|run|behind|end-to-end|delivery|commit|decision) (p[\d.]+|max|mean)|share|busy|throughput|switches|migrations/.exec(aim)?.[0] ?? "";

// What is known now: of the answer, or of the runs that are finished.
export function dots({ progress, tuned }: Searched): { asked: string[]; dots: Dot[] } {
  if (tuned) {
    const range = (cell: Tuned["settings"][0]["figures"][0]): Range | null => {
      const bar: Between | undefined = cell?.error_bar ?? cell?.interval;
      return cell ? { mid: cell.value.median, low: bar?.low ?? null, high: bar?.high ?? null } : null;
    };
    const all = tuned.settings.map((one, place) => ({ setting: one.setting, scheduler: one.scheduler, at: [range(one.figures[0]), range(one.figures[1] ?? one.figures[0])], front: one.front, first: place === 0 }));
    return { asked: tuned.asked.map((one) => one.text), dots: all.filter((one): one is Dot => one.at.every(Boolean)) };
  }
  const range = (figure: [number, number, number] | null | undefined): Range | null => (figure ? { low: figure[0], mid: figure[1], high: figure[2] } : null);
  const all = (progress?.settings ?? []).map((one, place) => ({ setting: one.setting, scheduler: "", at: [range(one.figures[0]), range(one.figures[1] ?? one.figures[0])], front: one.front, first: place === 0 }));
  return { asked: progress?.asked ?? [], dots: all.filter((one): one is Dot => one.at.every(Boolean)) };
}

// A place on an axis: times by factors, all else evenly.
function axis(all: number[], metric: string, from: number, to: number) {
  const wide = / (p[\d.]+|max|mean)$/.test(metric) && Math.min(...all) > 0 && Math.max(...all) / Math.min(...all) > 3;
  const f = wide ? Math.log10 : (value: number) => value;
  let low = f(Math.min(...all)), high = f(Math.max(...all));
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  low -= room; high += room;
  const place = (value: number) => from + (f(value) - low) / (high - low) * (to - from);
  const ticks: number[] = [];
  if (wide) {
    for (let power = Math.floor(low); power <= high + 1; power++) for (const factor of high - low > 1.6 ? [1] : [1, 2, 5]) ticks.push(factor * 10 ** power);
  } else {
    const rough = (high - low) / 5, size = 10 ** Math.floor(Math.log10(rough)), step = size * [1, 2, 5, 10].find((one) => one * size >= rough)!;
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  }
  return { place, ticks: ticks.filter((tick) => f(tick) >= low && f(tick) <= high) };
}

const between = (metric: string, { low, high }: Range) => (low === null && high === null ? "" : " (" + (low === null ? "?" : show(metric, low)) + " … " + (high === null ? "?" : show(metric, high)) + ")");
const words = (dot: Dot, asked: string[], metrics: string[]) => (dot.first ? "unchanged" : dot.setting) + ": " + asked.slice(0, 2).map((aim, at) => aim + " " + show(metrics[at], dot.at[at].mid) + between(metrics[at], dot.at[at])).join(", ");

function Curve({ asked, all, pick }: { asked: string[]; all: Dot[]; pick: (dot: Dot) => void }) {
  const [over, point] = useState("");
  const W = 640, H = 340, L = 64, B = 44, metrics = asked.map(metricOf);
  const ends = (at: 0 | 1) => all.flatMap((dot) => [dot.at[at].mid, ...(dot.front || dot.first ? [dot.at[at].low, dot.at[at].high] : [])]).filter((value): value is number => value !== null);
  const y = axis(ends(0), metrics[0], H - B, 12), x = axis(ends(1), metrics[1] ?? metrics[0], L, W - 14);
  const cx = (dot: Dot) => x.place(dot.at[1].mid), cy = (dot: Dot) => y.place(dot.at[0].mid);
  const front = all.filter((dot) => dot.front).sort((a, b) => cx(a) - cx(b));
  const bar = (dot: Dot) => {
    const [up, side] = dot.at, inside = (value: number | null, otherwise: number) => (value === null ? otherwise : value);
    return <path class="bars" d={`M${cx(dot)},${y.place(inside(up.low, up.mid))}V${y.place(inside(up.high, up.mid))}M${x.place(inside(side.low, side.mid))},${cy(dot)}H${x.place(inside(side.high, side.mid))}`} />;
  };
  return (
    <figure class="curve">
      <svg viewBox={`0 0 ${W} ${H}`} role="group" aria-label={"Settings: " + asked.slice(0, 2).join(" against ")}>
        {y.ticks.map((tick) => <g key={"y" + tick}><line x1={L} x2={W - 14} y1={y.place(tick)} y2={y.place(tick)} class="grid" /><text x={L - 8} y={y.place(tick) + 4} text-anchor="end">{show(metrics[0], tick)}</text></g>)}
        {x.ticks.map((tick) => <g key={"x" + tick}><line y1={12} y2={H - B} x1={x.place(tick)} x2={x.place(tick)} class="grid" /><text x={x.place(tick)} y={H - B + 18} text-anchor="middle">{show(metrics[1] ?? metrics[0], tick)}</text></g>)}
        <text x={W - 14} y={H - 6} text-anchor="end" class="name">{asked[1] ?? asked[0]}</text><text x={4} y={10} class="name">{asked[0]}</text>
        <polyline class="front" points={front.map((dot) => cx(dot) + "," + cy(dot)).join(" ")} />
        {all.filter((dot) => !dot.front && !dot.first).map((dot) => <circle key={dot.setting} cx={cx(dot)} cy={cy(dot)} r={3} class="other"><title>{words(dot, asked, metrics)}</title></circle>)}
        {[...front, ...all.filter((dot) => dot.first)].map((dot) => (
          <g key={dot.setting} class={dot.first ? "dot first" : "dot"} role={dot.first ? "img" : "button"} tabindex={dot.first ? undefined : 0} aria-label={words(dot, asked, metrics) + (dot.first ? "" : ". Press to pin it")}
            onClick={() => !dot.first && pick(dot)} onKeyDown={(e) => { if (!dot.first && (e.key === "Enter" || e.key === " ")) { e.preventDefault(); pick(dot); } }}
            onFocus={() => point(words(dot, asked, metrics))} onMouseEnter={() => point(words(dot, asked, metrics))}>
            {bar(dot)}
            <circle cx={cx(dot)} cy={cy(dot)} r={12} class="reach" />
            <circle cx={cx(dot)} cy={cy(dot)} r={dot.first ? 8 : 5.5} />
          </g>
        ))}
      </svg>
      <figcaption class="status" aria-live="off">{over || "Each point is a setting; the line joins those that no other is better than in both numbers. Point at one, or reach it by Tab; press to pin it."}</figcaption>
    </figure>
  );
}

export function Search({ state, view, update, stop }: { state: Searched; view: View; update: (next: Partial<View>) => void; stop: () => void }) {
  const { progress, tuned, failed, running } = state;
  if (!progress && !tuned && !failed && !running) return null;
  const { asked, dots: all } = dots(state), metrics = asked.map(metricOf);
  const base = tuned?.settings[0].scheduler ?? "";
  const pick = (dot: Dot) => {
    // A setting under another scheduler has that before it.
    const other = dot.scheduler !== "" && dot.scheduler !== base ? dot.scheduler : "";
    const text = other && dot.setting.startsWith(other) ? dot.setting.slice(other.length).replace(/^, /, "") : dot.setting;
    update({
      draft: [],
      pins: text && !view.pins.includes(text) ? [...view.pins, text] : view.pins,
      schedulers: other && !view.schedulers.includes(other) ? [...view.schedulers, other] : view.schedulers,
    });
  };
  const shown = all.filter((dot) => dot.front || dot.first);
  return (
    <section class="answer" aria-labelledby="searched" data-search={running ? "running" : tuned ? "done" : "failed"}>
      <h2 id="searched">The search</h2>
      <p class="status" role="status" aria-live="polite">{failed ? "" : running ? (progress?.all ? progress.done + " of " + progress.all + " runs, " + Math.max(0, progress.settings.length - 1) + " settings in this round …" : "The input is being read …") : tuned ? tuned.search.settings + " settings tried" + (progress ? ", " + (progress.after_ms / 1000).toFixed(1) + " s" : "") + "." : ""}
        {running && <button type="button" class="beside" onClick={stop}>Stop</button>}</p>
      {running && progress && progress.all > 0 && <progress max={progress.all} value={progress.done} aria-label="Runs" />}
      {failed && <p class="warn" role="alert">{failed}</p>}
      {tuned && <><p class="outcome">{arrows(tuned.verdict.outcome)}</p><p class={tuned.trusted ? "certainty" : "certainty warn"}>{arrows(tuned.verdict.certainty)}</p></>}
      {tuned?.partial && <p class="warn">The search was ended early: {tuned.partial.runs} of {tuned.partial.of_runs} runs.</p>}
      {all.length > 1 && <Curve asked={asked} all={all} pick={pick} />}
      {!tuned && all.length > 1 && <p class="lead">Bars go from the smallest to the largest run so far; those of the answer are its errors.</p>}
      {shown.length > 1 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Settings on the curve"><table class="data">
          <thead><tr><th scope="col">setting</th>{asked.slice(0, 2).map((aim) => <th scope="col" class="n">{aim}</th>)}<th scope="col"><span class="unseen">Pin</span></th></tr></thead>
          <tbody>{shown.map((dot) => (
            <tr key={dot.setting}><th scope="row" class="long">{dot.first ? "unchanged" : dot.setting}</th>
              {asked.slice(0, 2).map((_, at) => <td class="n">{show(metrics[at], dot.at[at].mid)}<small>{between(metrics[at], dot.at[at])}</small></td>)}
              <td>{!dot.first && <button type="button" aria-label={"Pin " + dot.setting} disabled={view.pins.includes(dot.setting)} onClick={() => pick(dot)}>{view.pins.includes(dot.setting) ? "pinned" : "pin"}</button>}</td></tr>
          ))}</tbody></table></div>
      )}
      {tuned?.notes.map((note) => <p class="lead">{note}</p>)}
      {progress && <details class="fold"><summary>The command that repeats this search</summary><figure class="code"><pre tabIndex={0} id="tune-command">{progress.command}</pre></figure></details>}
    </section>
  );
}
