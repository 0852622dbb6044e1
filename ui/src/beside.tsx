// A second recording below the first: what `schedlab diff` says, and the lanes of both from one common beginning.
import { useEffect, useState } from "preact/hooks";
import { arrows, show } from "./answer";
import { get, stream } from "./api";
import type { Diff, Inputs, Overview } from "./types";
import type { LanesData } from "./page/data";
import { Widget } from "./widget";

const signed = (metric: string, value: number) => (value < 0 ? "−" : "+") + show(metric, Math.abs(value));

function Table({ diff, all }: { diff: Diff; all: boolean }) {
  const rows = diff.subjects.flatMap((subject) => subject.cells.map((cell) => ({ subject, cell }))).filter(({ cell }) => all || !["same", "cannot-tell"].includes(cell.judgement));
  if (rows.length === 0) return <p class="lead">No number changed by more than chance.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="What changed">
      <table class="data" id="diff-table">
        <thead><tr><th scope="col">task or group</th><th scope="col">metric</th><th scope="col" class="n">before</th><th scope="col" class="n">after</th><th scope="col" class="n">change</th><th scope="col" class="n">interval of the change</th></tr></thead>
        <tbody>{rows.map(({ subject, cell }) => {
          const ratio = (cell.after / cell.before - 1) * 100, tone = cell.judgement === "better" ? "good" : cell.judgement === "worse" ? "bad" : "";
          return (
            <tr key={subject.kind + subject.name + cell.metric}>
              <th scope="row">{subject.name}{subject.kind !== "task" && <small>{subject.kind}</small>}</th><td>{cell.metric}</td>
              <td class="n">{show(cell.metric, cell.before)}</td><td class="n">{show(cell.metric, cell.after)}</td>
              <td class={"n " + tone}>{Number.isFinite(ratio) ? (ratio < 0 ? "−" : "+") + Math.abs(ratio).toFixed(1) + " %" : ""}{tone && <small class={tone}>{cell.judgement}</small>}</td>
              <td class="n">{cell.lacks ?? (cell.interval ? signed(cell.metric, cell.interval[0]) + " … " + signed(cell.metric, cell.interval[1]) : "")}</td>
            </tr>
          );
        })}</tbody>
      </table>
    </div>
  );
}

export function Beside({ id, other, overview, query }: { id: string; other: string; overview: Overview; query: string }) {
  const [diff, setDiff] = useState<Diff | null>(null), [lanes, setLanes] = useState<LanesData | null>(null);
  const [failed, fail] = useState(""), [all, showAll] = useState(false);
  useEffect(() => {
    const end = new AbortController(), ends = end.signal, of = "inputs/" + encodeURIComponent(id) + "/", to = "with=" + encodeURIComponent(other);
    setDiff(null);
    setLanes(null);
    fail("");
    const wrong = (error: unknown) => { if (!ends.aborted) fail((error as Error).message); };
    stream(of + "diff?" + to, null, ends, (event, data) => {
      if (ends.aborted) return;
      if (event === "answer") setDiff(data as Diff);
      else if (event === "failed") fail((data as { error: string }).error);
    }).catch(wrong);
    get<LanesData>(of + "beside?" + to + query, ends).then(setLanes, wrong);
    return () => end.abort();
  }, [id, other, query]);
  return (
    <section class="answer" aria-labelledby="beside" data-ready={diff && lanes ? "yes" : "no"}>
      <h2 id="beside">Both above each other</h2>
      {failed && <p class="warn" role="alert">{failed}</p>}
      {!failed && !diff && <p class="status" role="status">The two are being compared …</p>}
      {diff && (
        <>
          <p class="lead">Before: {diff.before.file}. After: {diff.after.file}.</p>
          <p class="outcome">{arrows(diff.verdict.outcome)}</p>
          <p class="certainty">{arrows(diff.verdict.certainty)}</p>
          <Table diff={diff} all={all} />
          <p class="choices"><button type="button" aria-pressed={all} onClick={() => showAll(!all)}>Also what did not change</button></p>
          {diff.gone.length > 0 && <p class="lead">Only before: {diff.gone.slice(0, 20).join(", ")}{diff.gone.length > 20 && " and " + (diff.gone.length - 20) + " more"}.</p>}
          {diff.new.length > 0 && <p class="lead">Only after: {diff.new.slice(0, 20).join(", ")}{diff.new.length > 20 && " and " + (diff.new.length - 20) + " more"}.</p>}
          {diff.notes.map((note) => <p class="lead">{note}</p>)}
          <figure class="code"><pre tabIndex={0} id="diff-command">schedlab diff {[diff.before.file, diff.after.file].map((file) => (/^[\w@%+=:,./-]+$/.test(file) ? file : "'" + file.replaceAll("'", "'\\''") + "'")).join(" ")}</pre></figure>
        </>
      )}
      {lanes !== null && <><p class="lead">Each begins at 0; one view moves over both. A program has one colour in both.</p><Widget kind="lanes" id="both" title="" names={overview.name + " and the other"} data={lanes} /></>}
    </section>
  );
}

// The choice of the second recording.
export function Second({ inputs, id, chosen, choose }: { inputs: Inputs; id: string; chosen: string; choose: (name: string) => void }) {
  const others = inputs.files.filter((one) => one.id !== id);
  if (others.length === 0) return null;
  return (
    <label class="second">Compare with <select value={chosen} onChange={(e) => choose(e.currentTarget.value)}>
      <option value="">no other recording</option>
      {chosen && !others.some((one) => one.name === chosen) && <option value={chosen}>{chosen}</option>}
      {others.map((one) => <option value={one.name}>{one.name}</option>)}
    </select></label>
  );
}
