// What comes out: the sentences, the ladder, the numbers, and how to set it.
import { useMemo, useState } from "preact/hooks";
import type { Between } from "./page/data";
import { spaced, time } from "./page/units";
import type { Cell, Row, Stage, Study } from "./types";
import { Widget } from "./widget";

export interface Asked {
  stage: Stage;
  study: Study;
}

const WORDS = { better: "better", worse: "worse", different: "", "cannot-tell": "cannot tell", same: "same" } as const;

export function show(metric: string, value: number): string {
  if (/^(latency|wait|response|run|behind|throttled|end-to-end|delivery|commit|decision)\b/.test(metric)) return time(value);
  if (metric === "share" || metric === "busy") return (value * 100).toFixed(1) + " %";
  if (!metric) return String(+value.toPrecision(4));
  return value >= 100 ? Math.round(value) + "/s" : value.toPrecision(3) + "/s";
}

export const arrows = (text: string) => spaced(text).replaceAll(" -> ", "\u00a0→\u00a0").replaceAll(" ± ", "\u00a0±\u00a0");

const labelOf = (study: Study, row: Row) => {
  const many = new Set(study.rows.map((one) => one.scheduler)).size > 1;
  return many ? row.scheduler + ", " + row.variant : row.variant;
};

// Whose numbers are drawn: what was chosen, else what the answer is about.
export function subjectOf(study: Study, chosen: string, waiting: string | undefined): string {
  const names = study.rows[0].subjects.filter((one) => one.cells.some((cell) => / p\d/.test(cell.metric))).map((one) => one.name);
  const wanted = [chosen, study.served?.classes[0], study.guess?.name, waiting, ...study.headline.map((one) => one.subject)];
  return wanted.find((name) => name !== undefined && names.includes(name)) ?? names[0] ?? "";
}

// The percentiles of one quantity, a curve for each row.
function ladder(study: Study, subject: string, quantity: string) {
  const stats = ["p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"];
  const cell = (row: Row, stat: string) => row.subjects.find((one) => one.name === subject)?.cells.find((one) => one.metric === quantity + " " + stat);
  const rungs = stats.filter((stat) => study.rows.some((row) => cell(row, stat)));
  const ends = (found: Cell | undefined): Between => { const bar = found?.error_bar ?? found?.interval; return [bar?.low ?? null, bar?.high ?? null]; };
  const curves = study.rows.map((row, index) => {
    const cells = rungs.map((stat) => cell(row, stat));
    return {
      name: labelOf(study, row), style: index + 1,
      ns: cells.map((found) => (found ? Math.max(1, found.value.median) : null)),
      between: cells.map(ends),
      open: cells.map((found) => found?.change?.judgement === "cannot-tell"),
    };
  });
  return { rungs, curves: curves.filter((curve) => curve.ns.some((ns) => ns !== null)) };
}

function Numbers({ study, subject }: { study: Study; subject: string }) {
  const metrics = ["share", "throughput", "latency p50", "latency p99", "response p50", "response p99", "latency max"];
  const of = (row: Row) => row.subjects.find((one) => one.name === subject);
  const shown = metrics.filter((metric) => study.rows.some((row) => of(row)?.cells.some((cell) => cell.metric === metric)));
  const heads: Record<string, string> = { share: "CPU share", throughput: "rate" };
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={"Numbers of " + subject}>
      <table class="data">
        <thead><tr><th scope="col">row</th>{shown.map((metric) => <th scope="col" class="n">{heads[metric] ?? metric}</th>)}</tr></thead>
        <tbody>{study.rows.filter(of).map((row) => (
          <tr>
            <th scope="row" class="long">{labelOf(study, row)}{row.bound && <small>a bound: {row.bound}</small>}</th>
            {shown.map((metric) => {
              const cell = of(row)!.cells.find((one) => one.metric === metric);
              if (!cell) return <td class="n">–</td>;
              const bar = cell.error_bar ?? cell.interval, word = cell.change && WORDS[cell.change.judgement];
              const tone = cell.change?.judgement === "better" ? "good" : cell.change?.judgement === "worse" ? "bad" : "";
              return (
                <td class="n">{show(metric, cell.value.median)}
                  {bar && <small>{bar.low == null ? "?" : show(metric, bar.low)} … {bar.high == null ? "?" : show(metric, bar.high)}</small>}
                  {word && <small class={tone}>{word}</small>}
                </td>
              );
            })}
          </tr>
        ))}</tbody>
      </table>
    </div>
  );
}

function Deploy({ rows, study }: { rows: Row[]; study: Study }) {
  const best = study.verdict.row === undefined ? undefined : study.rows[study.verdict.row];
  const [picked, pick] = useState(""), [form, choose] = useState("shell");
  const row = rows.find((one) => one.variant === picked) ?? (best?.deploy ? best : rows[0]);
  if (!row?.deploy) return null;
  const forms = (["shell", "systemd", "kubernetes", "xl"] as const).filter((form) => row.deploy![form]);
  const shown = forms.find((one) => one === form) ?? forms[0];
  return (
    <section aria-labelledby="deploy">
      <h2 id="deploy">Set it without schedlab</h2>
      <p class="choices"><label>Row <select value={row.variant} onChange={(e) => pick(e.currentTarget.value)}>{rows.map((one) => <option value={one.variant}>{one.variant}</option>)}</select></label>
        {forms.map((one) => <button type="button" aria-pressed={one === shown} onClick={() => choose(one)}>{one}</button>)}</p>
      {shown && <figure class="code"><pre tabIndex={0} aria-label={shown}>{row.deploy![shown]}</pre></figure>}
      {row.deploy.caveats?.map((text) => <p class="lead">{text}</p>)}
    </section>
  );
}

interface AnswerProps {
  asked: Asked | null;
  progress: Stage | null;
  failed: string;
  pending: boolean;
  waiting: string | undefined;
  subject: string;
  choose: (subject: string) => void;
  page: () => void;
}

export function Answer({ asked, progress, failed, pending, waiting, subject, choose, page }: AnswerProps) {
  const [wanted, want] = useState("");
  const study = asked?.study, name = study ? subjectOf(study, subject, waiting) : "";
  const has = (quantity: string) => !!study?.rows.some((row) => row.subjects.some((one) => one.name === name && one.cells.some((cell) => cell.metric.startsWith(quantity + " p"))));
  const quantities = ["latency", "response", "wait"].filter(has);
  const headline = study?.headline.find((one) => one.subject === name)?.metric.split(" ")[0] ?? "";
  const quantity = [wanted, headline].find((one) => quantities.includes(one)) ?? quantities[0];
  const data = useMemo(() => (study && quantity ? ladder(study, name, quantity) : null), [study, name, quantity]);
  const stage = asked?.stage, rows = study?.rows.filter((row) => row.deploy) ?? [];
  const status = failed ? "" : pending
    ? (stage ? "With " + stage.seeds + (stage.seeds === 1 ? " seed" : " seeds") + "; more are being played" : "Being played") + (progress?.all ? " (" + progress.done + " of " + progress.all + " runs)" : "") + " …"
    : stage ? "With " + stage.seeds + " seeds, " + (stage.after_ms / 1000).toFixed(1) + " s after the question." : "";
  if (!asked && !pending && !failed) return null;
  return (
    <>
      <section class="answer" aria-labelledby="answer">
        <h2 id="answer">What would come of it</h2>
        <p class="status" role="status" aria-live="polite" id="stage" data-seeds={stage?.seeds ?? 0}>{status}</p>
        {failed && <p class="warn" role="alert">{failed}</p>}
        {study && (
          <div class={failed ? "stale" : ""}>
            <p class="outcome">{arrows(study.verdict.outcome)}</p>
            <p class={study.self_replay?.trusted === false ? "certainty warn" : "certainty"}>{arrows(study.verdict.certainty)}</p>
            <p class="choices">
              <label>Numbers of <select value={name} onChange={(e) => choose(e.currentTarget.value)}>{study.rows[0].subjects.filter((one) => one.cells.length > 2).map((one) => <option value={one.name}>{one.name}</option>)}</select></label>
              {quantities.map((one) => <button type="button" aria-pressed={one === quantity} onClick={() => want(one)}>{{ latency: "wakeup to running", response: "wakeup to done", wait: "preempted to running" }[one]}</button>)}
            </p>
            {data && data.curves.length > 0 && <Widget kind="ladder" id="ladder" names={name} data={data} title={"Percentiles of " + name + ", a line for each row; the table below holds the same numbers"} />}
            <p class="lead">A bar is where the number lies: of a recording what a second one would show. A band: it cannot be told from the first row.</p>
            <Numbers study={study} subject={name} />
            <details class="fold"><summary>The command that gives this answer, and a page of it</summary>
              <figure class="code"><pre tabIndex={0} id="command">{stage!.command}</pre></figure>
              <p class="choices"><button type="button" onClick={page}>Save as a page</button></p>
            </details>
          </div>
        )}
      </section>
      {study && rows.length > 0 && <Deploy rows={rows} study={study} />}
    </>
  );
}
