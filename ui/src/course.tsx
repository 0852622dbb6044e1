// The lessons of the course (docs/guide/course.md), and small pictures of scenarios.
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api";
import { Control, recorded, targets } from "./panel";
import { changed, without, type View } from "./state";
import type { Lesson, Overview, Picture, Settings } from "./types";
import { time } from "./page/units";

// Words between backticks are of programs, those between asterisks are said with weight.
export function Prose({ text }: { text: string }) {
  return <>{text.split(/(`[^`]+`|\*[^*]+\*)/).map((part) => (part.startsWith("`") ? <code>{part.slice(1, -1)}</code> : part.startsWith("*") && part.length > 1 ? <em><Prose text={part.slice(1, -1)} /></em> : part))}</>;
}

export function useCourse(): Lesson[] {
  const [lessons, set] = useState<Lesson[]>([]);
  useEffect(() => { get<{ lessons: Lesson[] }>("course").then((course) => set(course.lessons), () => {}); }, []);
  return lessons;
}

// A picture is simulated when it comes into view.
export function Thumb({ id, name }: { id: string; name: string }) {
  const [picture, set] = useState<Picture | null>(null), place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const end = new AbortController();
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((one) => one.isIntersecting)) return;
      seen.disconnect();
      get<Picture>("inputs/" + encodeURIComponent(id) + "/picture", end.signal).then(set, () => {});
    });
    seen.observe(place.current!);
    return () => { seen.disconnect(); end.abort(); };
  }, [id]);
  const h = picture ? Math.max(4, Math.min(16, 48 / picture.cpus.length)) : 0;
  const spans = (row: number[]) => row.flatMap((who, at) => (who === 0 || (at > 0 && row[at - 1] === who) ? [] : [{ who, at, to: row.findIndex((other, next) => next > at && other !== who) }]));
  return (
    <div class="thumb" ref={place}>
      {picture && (
        <svg viewBox={`0 0 ${picture.cpus[0]?.length ?? 1} 48`} preserveAspectRatio="none" role="img" aria-label={name + ": its first " + time(picture.duration_ns) + " under " + picture.scheduler + ", mostly " + picture.programs.slice(0, 3).join(", ") + (picture.more_cpus ? "; " + picture.more_cpus + " CPUs more" : "")}>
          {picture.cpus.map((row, cpu) => spans(row).map(({ who, at, to }) => <rect x={at} y={cpu * h + (48 - picture.cpus.length * h) / 2} width={(to < 0 ? row.length : to) - at} height={h - (h > 6 ? 1.5 : 0.6)} class={"p" + Math.min(who - 1, 7)} />))}
        </svg>
      )}
    </div>
  );
}

export function Lessons({ lessons, open }: { lessons: Lesson[]; open: (lesson: Lesson) => void }) {
  return (
    <section aria-labelledby="course"><h2 id="course">A course in schedulers</h2>
      <p class="lead">From 2.4 to EEVDF: each lesson is a scenario with two sliders and one question.</p>
      <ol class="inputs grid">{lessons.filter((one) => one.scenario).map((one) => (
        <li key={one.number}><button type="button" class="open" onClick={() => open(one)}>
          <Thumb id={"g:" + one.scenario} name={one.title} /><b>{one.number}. {one.title}</b><small><Prose text={one.question ? one.question[0].toUpperCase() + one.question.slice(1) : one.text[0] ?? ""} /></small>
        </button></li>
      ))}</ol>
      {lessons.some((one) => !one.scenario) && <details class="fold"><summary>Lessons without a slider</summary>{lessons.filter((one) => !one.scenario).map((one) => <div key={one.number}><h3>{one.number}. {one.title}</h3>{one.text.map((text) => <p><Prose text={text} /></p>)}{one.command && <figure class="code"><pre tabIndex={0}>{one.command}</pre></figure>}</div>)}</details>}
    </section>
  );
}

// The text of the lesson that is open, with its two sliders.
export function LessonCard({ lesson, lessons, overview, settings, view, update, open }: { lesson: Lesson; lessons: Lesson[]; overview: Overview; settings: Settings; view: View; update: (next: Partial<View>) => void; open: (lesson: Lesson) => void }) {
  const all = targets(overview, view.draft), own = settings.schedulers.find((one) => one.name === overview.scheduler.split(":")[0]);
  const live = lessons.filter((one) => one.scenario), place = live.findIndex((one) => one.number === lesson.number);
  const sliders = lesson.settings.flatMap(([name, key]) => {
    // One task of several with a name is no program of its own.
    const target = all.find((one) => one.name === name) ?? { name, of: "task" as const, title: name };
    const setting = (target.of === "scheduler" ? own?.knobs ?? [] : settings.settings.filter((one) => one.of === target.of)).find((one) => one.key === key);
    return setting ? [{ target, setting }] : [];
  });
  return (
    <section class="lesson" aria-labelledby="lesson">
      <h2 id="lesson">{lesson.number}. {lesson.title}</h2>
      {lesson.text.map((text) => <p key={text}><Prose text={text} /></p>)}
      <div class="controls pair">{sliders.map(({ target, setting }) => (
        <Control key={target.name + setting.key} setting={setting} name={target.name + " " + setting.key} value={view.draft.find((one) => one.target === target.name && one.key === setting.key)?.value} was={recorded(overview, target, setting.key)} schedulers={settings.schedulers.map((one) => one.name)}
          set={(value) => update({ draft: value === undefined ? without(view.draft, target.name, setting.key) : changed(view.draft, { target: target.name, key: setting.key, value }) })} />
      ))}</div>
      <p class="choices">
        {place > 0 && <button type="button" onClick={() => open(live[place - 1])}>Lesson before</button>}
        {place + 1 < live.length && <button type="button" onClick={() => open(live[place + 1])}>Next lesson</button>}
        <button type="button" onClick={() => update({ lesson: "" })}>All settings of this scenario</button>
      </p>
    </section>
  );
}
