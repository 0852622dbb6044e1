// What can be changed: the settings of a target, each as the server declares it.
import { useId, useState } from "preact/hooks";
import { changed, variant, without, type Change, type View } from "./state";
import { MOST, SearchForm, dimension, wanted } from "./search";
import type { Overview, Setting, SettingOf, Settings, Values } from "./types";
import { isBusy } from "./see";
import { at, first, place, slide, STEPS } from "./values";

interface ControlProps {
  setting: Setting;
  value: string | undefined;
  was: string;
  schedulers: string[];
  set: (value: string | undefined) => void;
  // Its name, where the target is not said above it.
  name?: string;
  // Adds its values to a search; missing: it cannot be searched.
  search?: () => void;
}

// One setting: its control, what it is now, and a way back.
export function Control({ setting, value, was, schedulers, set, name, search }: ControlProps) {
  const id = useId(), range = slide(setting.values);
  const usual = setting.default.length > 12 ? "default" : setting.default;
  const now = value === undefined ? was || usual || "as it was" : value === "" ? "on" : value;
  return (
    <div class={value === undefined ? "control" : "control set"}>
      <label for={id}>{name ?? setting.key}</label>
      <output for={id} class="num">{now}</output>
      {range ? (
        <input id={id} type="range" min={range.wide ? 0 : range.low} max={range.wide ? STEPS : range.high} step={range.wide ? 1 : range.step}
          value={place(range, (value !== undefined ? range.value(value) : first(range, was) ?? first(range, setting.default)) ?? (range.wide ? Math.sqrt(range.low * range.high) : Math.max(range.low, Math.min(0, range.high))))}
          aria-valuetext={now} aria-describedby={id + "-doc"}
          onInput={(e) => set(range.text(at(range, Number(e.currentTarget.value))))} />
      ) : (
        <Choice id={id} values={setting.values} value={value} schedulers={schedulers} set={set} />
      )}
      {search && <button type="button" class="seek link" aria-label={"Search the values of " + setting.key} onClick={search}>search it</button>}
      <button type="button" class="back" hidden={value === undefined} aria-label={setting.key + " as it was"} onClick={() => set(undefined)}>as it was</button>
      <small id={id + "-doc"}>{setting.doc}{setting.default && " [default: " + setting.default + "]"}</small>
    </div>
  );
}

function Choice({ id, values, value, schedulers, set }: { id: string; values: Values; value: string | undefined; schedulers: string[]; set: (value: string | undefined) => void }) {
  const [wrong, say] = useState("");
  const list = (words: string[]) => (
    <select id={id} aria-describedby={id + "-doc"} value={value ?? ""} onChange={(e) => set(e.currentTarget.value || undefined)}>
      <option value="">as it was</option>
      {value !== undefined && !words.includes(value) && <option value={value}>{value}</option>}
      {words.map((word) => <option value={word}>{word}</option>)}
    </select>
  );
  switch (values.kind) {
    case "flag":
      return list(["on", "off"]);
    case "scheduler":
      return list(["none", ...schedulers]);
    case "present":
      return <input id={id} type="checkbox" aria-describedby={id + "-doc"} checked={value !== undefined} onChange={(e) => set(e.currentTarget.checked ? "" : undefined)} />;
    case "words": {
      const [word, rank] = (value ?? "").split(":");
      const ranked = values.ranked.includes(word);
      return (
        <>
          <select id={id} aria-describedby={id + "-doc"} value={word} onChange={(e) => { const next = e.currentTarget.value; set(next === "" ? undefined : values.ranked.includes(next) ? next + ":" + values.low : next); }}>
            <option value="">as it was</option>
            {[...values.words, ...values.ranked].map((one) => <option value={one}>{one}</option>)}
          </select>
          {ranked && <input type="range" aria-label="priority" min={values.low} max={values.high} value={Number(rank) || values.low} onInput={(e) => set(word + ":" + e.currentTarget.value)} />}
        </>
      );
    }
    default: {
      // CPUs and paths are written; they count when they have the form.
      const good = (text: string) => (values.kind === "path" ? /^\/\S*$/ : /^(\d+(-\d+)?(,\d+(-\d+)?)*|none)$/).test(text);
      const form = values.kind === "path" ? "a path, such as /batch" : "CPUs, such as 0 or 0-1,3";
      return (
        <>
          <input id={id} type="text" spellcheck={false} placeholder={form} value={value ?? ""} aria-describedby={id + "-doc"} aria-invalid={wrong !== ""}
            onChange={(e) => { const text = e.currentTarget.value.trim(); if (text === "") { say(""); set(undefined); } else if (good(text)) { say(""); set(text); } else say("write " + form); }} />
          {wrong && <small class="warn" role="alert">{wrong}</small>}
        </>
      );
    }
  }
}

interface Target {
  name: string;
  of: SettingOf;
  title: string;
  idle?: boolean;
}

// Everything that has settings: programs, groups (also those that a change makes), sources, the machine, the scheduler.
export function targets(overview: Overview, draft: Change[]): Target[] {
  const made = draft.filter((one) => one.key === "group").map((one) => one.value);
  const groups = [...new Set([...overview.groups.map((one) => one.name), ...made])];
  return [
    ...overview.programs.map((one): Target => ({ name: one.name, of: "task", title: one.name, idle: !isBusy(one) })),
    ...groups.map((name): Target => ({ name, of: "group", title: "group " + name })),
    ...overview.sources.map((name): Target => ({ name, of: "source", title: "requests of " + name })),
    { name: "scheduler", of: "scheduler", title: "scheduler " + overview.scheduler.split(":")[0] },
    { name: "machine", of: "machine", title: "the kernel of the machine" },
  ];
}

// What a setting is in the recording, as far as it says so.
export function recorded(overview: Overview, target: Target, key: string): string {
  const program = overview.programs.find((one) => one.name === target.name), group = overview.groups.find((one) => one.name === target.name);
  const knob = overview.scheduler.split(":").slice(1).join(":").split(",").find((text) => text.startsWith(key + "="));
  if (target.of === "scheduler") return knob ? knob.slice(key.length + 1) : "";
  if (target.of === "task" && program) return { policy: program.policies.join(", "), nice: program.nice[0] === program.nice[1] ? String(program.nice[0]) : "", cpus: program.cpus || "all", group: program.groups.join(", ") }[key] ?? "";
  if (target.of === "group" && group) return { "cpu.weight": String(group.weight ?? ""), weight: String(group.weight ?? ""), "cpu.max": group.limit_percent ? Math.round(group.limit_percent) + "%" : "", cap: String(group.limit_percent ?? "") }[key] ?? "";
  return "";
}

interface PanelProps {
  overview: Overview;
  settings: Settings;
  view: View;
  target: string;
  choose: (target: string) => void;
  update: (next: Partial<View>) => void;
  running: boolean;
  search: () => void;
  stop: () => void;
}

export function Panel({ overview, settings, view, target, choose, update, running, search, stop }: PanelProps) {
  const all = targets(overview, view.draft), chosen = all.find((one) => one.name === target) ?? all[0];
  const own = settings.schedulers.find((one) => one.name === overview.scheduler.split(":")[0]);
  const shown = chosen.of === "scheduler" ? own?.knobs ?? [] : settings.settings.filter((one) => one.of === chosen.of);
  const names = settings.schedulers.map((one) => one.name), draft = variant(view.draft);
  const value = (key: string) => view.draft.find((one) => one.target === chosen.name && one.key === key)?.value;
  const set = (key: string) => (value: string | undefined) =>
    update({ draft: value === undefined ? without(view.draft, chosen.name, key) : changed(view.draft, { target: chosen.name, key, value }) });
  const seek = (one: Setting) => {
    const text = dimension(chosen.name, one, view.draft, names), now = wanted(view, overview, settings).space, what = text.slice(0, text.lastIndexOf("="));
    if (!text) return undefined;
    const others = (view.space.length > 0 ? now : []).filter((other) => !other.startsWith(what + "="));
    return others.length >= MOST ? undefined : () => {
      update({ space: [...others, text] });
      document.querySelector<HTMLDetailsElement>(".searching")!.open = true;
    };
  };
  return (
    <aside class="panel" aria-labelledby="ask">
      <h2 id="ask">What if …</h2>
      {(view.recorded || (overview.kind === "recording" && overview.scheduler === "")) && (
        <>
          <label class="line"><span>Recorded under</span>
            <select id="recorded" value={view.recorded} onChange={(e) => update({ recorded: e.currentTarget.value })}>
              <option value="">not known</option>
              {settings.schedulers.map((one) => <option value={one.name} title={one.summary}>{one.name}</option>)}
            </select></label>
          {!view.recorded && <p class="lead">The recording does not say which kernel scheduled it. Choose the scheduler that is nearest to that kernel: each answer begins with it.</p>}
        </>
      )}
      <label class="line"><span>Change</span>
        <select id="target" value={chosen.name} onChange={(e) => choose(e.currentTarget.value)}>{all.filter((one) => !one.idle).map((one) => <option value={one.name}>{one.title}</option>)}
          {all.some((one) => one.idle) && <optgroup label="Programs that did little">{all.filter((one) => one.idle).map((one) => <option value={one.name}>{one.title}</option>)}</optgroup>}
        </select></label>
      <div class="controls" key={chosen.name}>
        {shown.map((one) => <Control key={chosen.name + one.key} setting={one} value={value(one.key)} was={recorded(overview, chosen, one.key)} schedulers={names} set={set(one.key)} search={seek(one)} />)}
        {shown.length === 0 && <p class="lead">Nothing of it can be changed.</p>}
      </div>
      <p class="draft"><code>{draft || "nothing is changed yet"}</code></p>
      <p class="choices">
        <button type="button" disabled={draft === "" || view.pins.includes(draft)} onClick={() => { update({ pins: [...view.pins, draft], draft: [] }); document.getElementById("target")?.focus(); }}>Pin it, and try another</button>
        <button type="button" disabled={draft === ""} onClick={() => { update({ draft: [] }); document.getElementById("target")?.focus(); }}>Start over</button>
      </p>
      {view.pins.length > 0 && <ul class="pins" aria-label="Pinned">{view.pins.map((pin) => (
        <li key={pin}><code>{pin}</code> <button type="button" aria-label={"Remove " + pin} onClick={() => update({ pins: view.pins.filter((one) => one !== pin) })}>×</button></li>
      ))}</ul>}
      <SearchForm overview={overview} settings={settings} view={view} update={update} running={running} search={search} stop={stop} />
      <label class="line"><span>Also under</span>
        <select value="" onChange={(e) => { const name = e.currentTarget.value; e.currentTarget.value = ""; if (name && !view.schedulers.includes(name)) update({ schedulers: [...view.schedulers, name] }); }}>
          <option value="">another scheduler …</option>
          {settings.schedulers.map((one) => <option value={one.name} title={one.summary}>{one.name}</option>)}
        </select></label>
      {view.schedulers.length > 0 && <ul class="pins" aria-label="Schedulers">{view.schedulers.map((name) => (
        <li key={name}><code>{name}</code> <button type="button" aria-label={"Remove " + name} onClick={() => update({ schedulers: view.schedulers.filter((one) => one !== name) })}>×</button></li>
      ))}</ul>}
      <label class="line"><span>Server</span>
        <select value={view.serve} onChange={(e) => update({ serve: e.currentTarget.value })}>
          <option value="">{overview.guess && overview.server ? "found: " + overview.server : "none named"}</option>
          {view.serve && !all.some((one) => one.of === "task" && one.name === view.serve) && <option value={view.serve}>{view.serve}</option>}
          {all.filter((one) => one.of === "task").map((one) => <option value={one.name}>{one.name}</option>)}
        </select></label>
    </aside>
  );
}
