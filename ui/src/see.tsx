// What is in an input: the answer, the longest waits, the schedule, the programs.
import { useState } from "preact/hooks";
import type { LanesData } from "./page/data";
import { spaced, time } from "./page/units";
import type { Overview, Program } from "./types";
import { Widget } from "./widget";

// Whether a program has a row of its own: a thousandth of a CPU, or a millisecond of waiting.
export const isBusy = (one: Program) => one.share >= 0.001 || one.waited_ns >= 1e6 || one.serves;

export function Verdict({ overview, version }: { overview: Overview; version: number }) {
  return (
    <section class="verdict" aria-label="What the recording says">
      <p class="outcome">{spaced(overview.answer)}</p>
      {overview.guess && <p class="certainty">serve: {spaced(overview.guess)}</p>}
      {overview.waits.length > 0 && (
        <>
          <h2 id="waits">The longest waits{overview.waits_of ? " of " + overview.waits_of : ""}</h2>
          <ol class="waits" aria-labelledby="waits" key={version}>
            {overview.waits.map((wait) => (
              <li>
                <a href="#lanes" data-run="0" data-cpu={wait.cpu} data-from={wait.from_ns} data-to={wait.to_ns}>{wait.head}</a> {wait.text}
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  );
}

export function Schedule({ lanes, overview, part, setPart }: { lanes: LanesData | null; overview: Overview; part: boolean; setPart: (from: string, to: string) => void }) {
  const view = () => {
    const figure = document.getElementById("lanes")!;
    setPart(figure.dataset.from + "ns", figure.dataset.to + "ns");
  };
  return (
    <section aria-labelledby="who">
      <h2 id="who">Who ran when</h2>
      <p class="lead">What ran on each CPU; the height of a column is how busy it was. Zoom in far enough and waits appear as lines below a lane, wakeups as arrows from the waker.</p>
      <p class="choices">
        <button type="button" onClick={view} title="Numbers, waits and questions are then about this part alone">Only the part in view</button>
        {part && <button type="button" onClick={() => setPart("", "")}>The whole {overview.kind}</button>}
      </p>
      {lanes?.runs.some((run) => run.summed) && <p class="status" role="status">Summed up for a first look: single spans, waits and wakeups follow.</p>}
      {lanes === null ? <p class="status" role="status">The schedule is on its way …</p> : <Widget kind="lanes" id="lanes" title="" names={overview.name} data={lanes} />}
    </section>
  );
}

// Rows that are made before one asks for more: a page of two thousand programs takes a second longer.
const FIRST = 100;

export function Programs({ overview, choose }: { overview: Overview; choose: (target: string) => void }) {
  const [all, showAll] = useState(false), [open, unfold] = useState(false);
  const busy = overview.programs.filter(isBusy), rest = overview.programs.filter((one) => !isBusy(one));
  const number = (ns: number | undefined) => (ns === undefined ? "–" : time(ns));
  const table = (programs: Program[], label: string) => (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class="data">
        <thead><tr><th scope="col">program</th><th scope="col" class="n">CPU share</th><th scope="col" class="n">waited</th><th scope="col" class="n">latency p50</th><th scope="col" class="n">p99</th><th scope="col">mostly behind</th><th scope="col">policy, nice, group</th></tr></thead>
        <tbody>{programs.map((one) => (
          <tr key={one.name}>
            <th scope="row"><button type="button" class="link" title="Change its settings" onClick={() => choose(one.name)}>{one.name}</button>{one.tasks > 1 && " (" + one.tasks + ")"}{one.serves && <small>the server</small>}</th>
            <td class="n">{(one.share * 100).toFixed(1)} %</td><td class="n">{number(one.waited_ns)}</td>
            <td class="n">{number(one.latency_p50_ns)}</td><td class="n">{number(one.latency_p99_ns)}</td>
            <td class="long">{one.behind.slice(0, 2).filter(([, part]) => part >= 0.005).map(([name, part]) => name + " " + Math.round(part * 100) + " %").join(", ")}</td>
            <td>{one.policies.join(", ")}, {one.nice[0] === one.nice[1] ? one.nice[0] : one.nice.join(" to ")}, {one.groups.join(", ")}</td>
          </tr>
        ))}</tbody>
      </table>
    </div>
  );
  return (
    <section aria-labelledby="programs">
      <h2 id="programs">Programs</h2>
      <p class="lead">CPU time in parts of one CPU; latency: from a wakeup to running; behind: what was on the CPU meanwhile. Press a name to change its settings.</p>
      {table(all ? busy : busy.slice(0, FIRST), "Programs")}
      {!all && busy.length > FIRST && <p><button type="button" onClick={() => showAll(true)}>Show all {busy.length} programs</button></p>}
      {rest.length > 0 && <details class="fold" onToggle={(e) => unfold(e.currentTarget.open)}><summary>{rest.length} programs that did little</summary>{open && table(rest, "Programs that did little")}</details>}
    </section>
  );
}
