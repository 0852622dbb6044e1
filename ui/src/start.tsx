// The first view: what can be opened.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post } from "./api";
import { Lessons, Thumb } from "./course";
import { spaced, time } from "./page/units";
import type { Inputs, Lesson, Listed } from "./types";

export function Start({ inputs, lessons, refresh, open, teach, watch }: { inputs: Inputs; lessons: Lesson[]; refresh: () => void; open: (name: string) => void; teach: (lesson: Lesson) => void; watch: () => void }) {
  const [said, say] = useState("");
  const [over, setOver] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (inputs.complete) return;
    const timer = setInterval(refresh, 1000);
    return () => clearInterval(timer);
  }, [inputs.complete]);
  const take = async (file: File | undefined) => {
    if (!file) return;
    say("Reading " + file.name + " …");
    try {
      const answer = await post("inputs?name=" + encodeURIComponent(file.name), file);
      const [id] = (await answer.json()) as string[];
      // As the page asks next: one look at the events is enough for both.
      await get("inputs/" + id + "/overview" + (inputs.serve ? "?serve=" + encodeURIComponent(inputs.serve) : ""));
      say("");
      refresh();
      open(id);
    } catch (error) {
      const why = (error as Error).message;
      say(why.startsWith(file.name + ": ") ? why : file.name + ": " + why);
    }
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    void take(event.dataTransfer?.files[0]);
  };
  const item = (one: Listed, _: number, all: Listed[]) => (
    <li key={one.id}>
      <button type="button" class="open" onClick={() => open(one.id)}>
        {all === inputs.gallery && <Thumb id={one.id} name={one.name} />}
        <b>{one.name}</b>
        {one.longest_wait_ns !== undefined && <span class="num">longest wait {time(one.longest_wait_ns)}</span>}
        <small>{spaced(one.about) || "is being looked at …"}</small>
      </button>
    </li>
  );
  return (
    <main id="main" tabIndex={-1}>
      <h1 class="hello">What made the server wait, and what would help?</h1>
      <p class="lead">Open a recording, see what waited for what, change a setting and see the percentiles move, each with its error. Nothing leaves this machine.</p>
      <div class={over ? "drop over" : "drop"} onDragOver={(e) => { e.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)} onDrop={drop}>
        <p>Drop a recording (.slt), a perf.data, a Perfetto or an ftrace trace here, or <button type="button" onClick={() => picker.current!.click()}>choose a file</button></p>
        <input ref={picker} type="file" hidden aria-hidden="true" tabIndex={-1} onChange={(e) => void take(e.currentTarget.files?.[0])} />
        <p class="status" role="status" aria-live="polite">{said}</p>
      </div>
      {inputs.live && <p class="choices"><button type="button" id="watch" onClick={watch}>Watch this machine</button></p>}
      {inputs.files.length > 0 && (
        <section aria-labelledby="files"><h2 id="files">Recordings{inputs.files.length > 1 ? ", worst first" : ""}</h2>
          {!inputs.complete && <p class="lead">They are being looked at; the order may change.</p>}
          <ul class="inputs">{inputs.files.map(item)}</ul></section>
      )}
      {lessons.length > 0 && <Lessons lessons={lessons} open={teach} />}
      <section aria-labelledby="gallery"><h2 id="gallery">Scenarios</h2>
        <p class="lead">Workloads of the gallery, most of them from published experiments.</p>
        <ul class="inputs grid">{inputs.gallery.map(item)}</ul></section>
    </main>
  );
}
