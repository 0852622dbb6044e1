// The workbench: what is asked is in the address, what is answered comes from the server.
import { render } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Answer, arrows, type Asked } from "./answer";
import { Beside, Second } from "./beside";
import { enter, get, post, stream } from "./api";
import { LessonCard, useCourse } from "./course";
import { Messages } from "./flow";
import { Live } from "./live";
import type { LanesData } from "./page/data";
import { redraw } from "./page/look";
import { time } from "./page/units";
import { Panel } from "./panel";
import { Search, useSearch, wanted } from "./search";
import { Programs, Schedule, Verdict } from "./see";
import { EMPTY, options, read, write, type View } from "./state";
import { Start } from "./start";
import "./style.css";
import type { Inputs, Lesson, Overview, Program, Settings, Stage, Study } from "./types";

// After so many milliseconds without another change a question is asked.
const PAUSE = 120;

const themes = ["auto", "light", "dark"] as const;
function useTheme() {
  const [theme, set] = useState(() => { try { return localStorage.getItem("schedlab-theme") ?? "auto"; } catch { return "auto"; } });
  useEffect(() => {
    const root = document.documentElement;
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    try { localStorage.setItem("schedlab-theme", theme); } catch { /* not kept then */ }
    redraw();
  }, [theme]);
  useEffect(() => { matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw); }, []);
  const next = () => set(themes[(themes.indexOf(theme as typeof themes[number]) + 1) % 3]);
  return [theme, next] as const;
}

interface Seen {
  overview: Overview;
  settings: Settings;
  lanes: LanesData | null;
  version: number;
}

// Of a wide window two thirds are for the lanes.
const COLUMNS = Math.max(360, Math.round(innerWidth * 2 / 3));

// Resolves when the page has drawn what it has.
const idle = () => new Promise<void>((then) => { if ("requestIdleCallback" in window) requestIdleCallback(() => then(), { timeout: 2000 }); else setTimeout(then, 500); });

// What is in the input, or in a part of it.
function useInput(id: string, view: View): [Seen | null, string] {
  const [seen, set] = useState<Seen | null>(null);
  const [failed, fail] = useState("");
  const version = useRef(0), drawn = useRef("");
  useEffect(() => {
    set((before) => (before?.overview.id === id ? before : null));
    fail("");
    if (!id) return;
    const end = new AbortController();
    const asked = (all: Record<string, string>) => { const text = new URLSearchParams(Object.entries(all).filter(([, text]) => text !== "")).toString(); return text && "?" + text; };
    const query = asked({ serve: view.serve, from: view.from, to: view.to }), under = asked({ under: view.recorded });
    const path = "inputs/" + encodeURIComponent(id);
    // Of what is drawn already the first look is not needed again.
    const isNew = drawn.current !== id;
    void (async () => {
      try {
        // The sentences do not wait for the schedule, which is larger; of a large one a summary for this window comes first.
        const first = isNew ? get<LanesData>(path + "/lanes" + (query ? query + "&" : "?") + "columns=" + COLUMNS, end.signal) : null;
        first?.catch(() => undefined);
        const look = { serve: view.serve, from: view.from, to: view.to, under: view.recorded };
        const [said, settings] = await Promise.all([get<Overview>(path + "/overview" + asked({ ...look, programs: isNew ? "later" : "" }), end.signal), get<Settings>(path + "/settings" + under, end.signal)]);
        let now = { overview: said, settings, version: ++version.current };
        set((before) => ({ ...now, lanes: before?.overview.id === id ? before.lanes : null }));
        let lanes = await first;
        if (lanes) set({ ...now, lanes });
        if (said.programs_follow) {
          now = { ...now, overview: await get<Overview>(path + "/overview" + asked(look), end.signal) };
          set({ ...now, lanes });
        }
        if (!lanes || lanes.runs.some((run) => run.summed)) {
          lanes = await get<LanesData>(path + "/lanes" + query, end.signal);
          set({ ...now, lanes });
        }
        drawn.current = id;
        if (now.overview.more_programs === 0) return;
        // The first hundred programs are enough for what one sees first.
        const { programs } = await get<{ programs: Program[] }>(path + "/programs" + query, end.signal);
        await idle();
        if (!end.signal.aborted) set({ ...now, lanes, overview: { ...now.overview, programs, more_programs: 0 } });
      } catch (error) {
        if (!end.signal.aborted) fail((error as Error).message);
      }
    })();
    return () => end.abort();
  }, [id, view.serve, view.from, view.to, view.recorded]);
  return [seen, failed];
}

// The machine itself, among the inputs.
const LIVE = ":live";

// This view's questions: the next one ends the one before.
const tab = crypto.getRandomValues(new Uint32Array(2)).join("-");

function useAnswer(id: string, view: View, own: string, kind: string) {
  const [asked, answer] = useState<Asked | null>(null);
  const [progress, setProgress] = useState<Stage | null>(null);
  const [failed, fail] = useState("");
  const [pending, wait] = useState(false);
  const question = JSON.stringify({ input: id, tab, options: options(view, own, kind) });
  const asks = id !== "" && (view.draft.length > 0 || view.pins.length > 0 || view.schedulers.length > 0);
  useEffect(() => {
    fail("");
    setProgress(null);
    if (!asks) {
      answer(null);
      wait(false);
      return;
    }
    const end = new AbortController();
    wait(true);
    const timer = setTimeout(() => {
      let stage: Stage | null = null;
      stream("ask", question, end.signal, (event, data) => {
        if (end.signal.aborted) return;
        if (event === "progress") setProgress(data as Stage);
        else if (event === "stage") stage = data as Stage;
        else if (event === "answer" && stage) answer({ stage, study: data as Study });
        else if (event === "failed") fail((data as { error: string }).error);
      }).catch((error: unknown) => { if (!end.signal.aborted) fail((error as Error).message); })
        .finally(() => { if (!end.signal.aborted) wait(false); });
    }, PAUSE);
    return () => { clearTimeout(timer); end.abort(); };
  }, [question, asks]);
  return { asked, progress, failed, pending, question };
}

// The server reads the input and plays it once while one looks, so that the first question is answered at once.
function usePrepared(id: string, view: View, kind: string) {
  const question = JSON.stringify({ input: id, tab, options: options({ ...view, draft: [], pins: [], schedulers: [] }, "", kind) });
  useEffect(() => {
    if (!id) return;
    const end = new AbortController();
    // What is wrong is said when something is asked.
    stream("prepare", question, end.signal, () => undefined).catch(() => undefined);
    return () => end.abort();
  }, [id, question]);
}

// In a narrow window the answer is below all settings: its sentence stays in view while one of them is moved.
function Told({ asked, pending }: { asked: Asked | null; pending: boolean }) {
  const show = () => document.getElementById("answer")?.scrollIntoView();
  return <p class="told"><span>{asked ? arrows(asked.study.verdict.outcome) : "Being played …"}{asked && pending ? " …" : ""}</span> <button type="button" onClick={show}>See all of it</button></p>;
}

function App() {
  const [inputs, setInputs] = useState<Inputs | null>(null);
  const [refused, refuse] = useState("");
  const [view, setView] = useState<View>(() => read(location.hash));
  const [target, choose] = useState("");
  const [theme, nextTheme] = useTheme();
  const refresh = useCallback(() => { get<Inputs>("inputs").then(setInputs, (error: Error) => refuse(error.message)); }, []);
  useEffect(refresh, []);
  useEffect(() => {
    const changed = () => setView((before) => (write(before) === location.hash ? before : read(location.hash)));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const update = (next: Partial<View>) => setView((before) => {
    const after = { ...before, ...next };
    history.replaceState(null, "", write(after));
    return after;
  });
  const named = (name: string) => inputs && [...inputs.files, ...inputs.gallery].find((one) => one.name === name || one.id === name);
  const open = (id: string) => {
    const next = { ...EMPTY, serve: inputs?.serve ?? "", input: named(id)?.name ?? id };
    history.pushState(null, "", write(next));
    setView(next);
    choose("");
    scrollTo(0, 0);
  };
  const lessons = useCourse(), lesson = lessons.find((one) => String(one.number) === view.lesson);
  const teach = (one: Lesson) => {
    const next = { ...EMPTY, input: one.scenario!, lesson: String(one.number) };
    history.pushState(null, "", write(next));
    setView(next);
    choose("");
    scrollTo(0, 0);
  };
  const watch = () => {
    const next = { ...EMPTY, input: LIVE };
    history.pushState(null, "", write(next));
    setView(next);
  };
  // The button that was pressed is gone then: the keyboard goes on from the content.
  const opened = useRef(false);
  useEffect(() => {
    if (opened.current) document.getElementById("main")?.focus({ preventScroll: true });
    opened.current = true;
  }, [view.input]);
  const first = inputs?.first;
  useEffect(() => { if (first && !view.input) open(first); }, [first]);
  const id = inputs && view.input && view.input !== LIVE ? named(view.input)?.id ?? view.input : "";
  const [seen, failed] = useInput(id, view);
  const answer = useAnswer(seen ? id : "", view, seen?.overview.scheduler.split(":")[0] ?? "", seen?.overview.kind ?? "");
  // What one sees first is not held up by it.
  const isWhole = seen?.lanes?.runs.every((run) => !run.summed);
  usePrepared(isWhole && (seen?.overview.scheduler || seen?.overview.kind === "scenario") ? id : "", view, seen?.overview.kind ?? "");
  const searching = useSearch(seen ? id : "", tab, view);
  const search = () => { if (seen) searching.search(wanted(view, seen.overview, seen.settings)); };
  // What was dropped is in the address by its number, and has a name all the same.
  const called = seen?.overview.name ?? view.input;
  useEffect(() => { document.title = (called ? called + " · " : "") + "schedlab workbench"; }, [called]);
  // What one wants to change first is what ran while the server waited.
  const running = seen?.overview.waited?.[1] ?? "";
  const selected = (name: string) => { choose(name); document.getElementById("target")?.focus(); };
  const other = view.with ? named(view.with)?.id ?? view.with : "";
  const part = new URLSearchParams(Object.entries({ serve: view.serve, from: view.from, to: view.to }).filter(([, text]) => text !== "")).toString();
  const save = () => {
    void post("page", answer.question).then((got) => got.blob()).then((blob) => {
      const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "schedlab.html" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }, (error: Error) => refuse(error.message));
  };
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <header>
        <div class="brand"><span aria-hidden="true" class="mark"><i /><i /><i /></span>schedlab</div>
        <nav aria-label="Input">
          {view.input && <button type="button" class="link" onClick={() => { history.pushState(null, "", "#"); setView(EMPTY); }}>All inputs</button>}
          <span class="where">{view.input === LIVE ? "this machine" : called}</span>
        </nav>
        <button type="button" id="theme" aria-label={"Colours: " + theme + ". Press to change"} onClick={nextTheme}>{theme[0].toUpperCase() + theme.slice(1)}</button>
      </header>
      {refused && <p class="refused warn" role="alert">{refused}</p>}
      {!inputs ? <main id="main" tabIndex={-1} /> : !view.input ? <Start inputs={inputs} lessons={lessons} refresh={refresh} open={open} teach={teach} watch={watch} /> : view.input === LIVE ? <Live tab={tab} opened={(id) => { refresh(); open(id); }} /> : (
        <main id="main" tabIndex={-1} class="bench" data-ready={seen && !seen.overview.programs_follow ? "yes" : "no"}>
          <div class="top">
            <h1>{seen?.overview.title || view.input}</h1>
            <p class="subtitle">{seen ? [seen.overview.name, seen.overview.cpus + (seen.overview.cpus === 1 ? " CPU" : " CPUs"), time(seen.overview.duration_ns), seen.overview.kernel && "Linux " + seen.overview.kernel, view.from && "the part from " + time(seen.overview.part_ns[0]) + " to " + time(seen.overview.part_ns[1])].filter(Boolean).join(" · ") : failed ? "" : "is being read …"}</p>
            {failed && <p class="warn" role="alert">{failed}</p>}
            {seen?.overview.kind === "recording" && <Second inputs={inputs} id={id} chosen={view.with} choose={(name) => update({ with: name })} />}
          </div>
          {seen && (
            <>
              <div class="first">{lesson && <LessonCard key={lesson.number} lesson={lesson} lessons={lessons} overview={seen.overview} settings={seen.settings} view={view} update={update} open={teach} />}<Verdict overview={seen.overview} version={seen.version} /></div>
              <div class="side">{seen.overview.programs_follow ? <aside class="panel" aria-labelledby="ask" aria-busy="true"><h2 id="ask">What if …</h2><p class="status" role="status">The programs are being counted …</p></aside> : <Panel overview={seen.overview} settings={seen.settings} view={view} target={target || running} choose={choose} update={update} running={searching.state.running} search={search} stop={searching.stop} />}
                {(answer.asked || answer.pending) && <Told asked={answer.asked} pending={answer.pending} />}</div>
              <div class="body">
                <Answer {...answer} waiting={seen.overview.waited?.[0]} subject={view.subject} choose={(subject) => update({ subject })} page={save} />
                <Search state={searching.state} view={view} update={update} stop={searching.stop} />
                {other && <Beside id={id} other={other} overview={seen.overview} query={part && "&" + part} />}
                <Schedule lanes={seen.lanes} overview={seen.overview} part={view.from !== ""} setPart={(from, to) => update({ from, to })} />
                {seen.overview.kind === "recording" && <Messages id={id} query={part} choose={selected} known={(name) => seen.overview.programs.some((one) => one.name === name)} part={(from, to) => update({ from, to })} />}
                {!seen.overview.programs_follow && <Programs overview={seen.overview} choose={selected} />}
              </div>
            </>
          )}
        </main>
      )}
    </>
  );
}

// Errors are left in the document, where a test (and a report of a fault) can find them.
const note = (text: string) => { document.documentElement.dataset.errors = (document.documentElement.dataset.errors ?? "") + text + "; "; };
addEventListener("error", (e) => note(e.message));
addEventListener("unhandledrejection", (e) => note(String(e.reason)));

void enter().then(() => render(<App />, document.getElementById("app")!));
