//! What a reader does with a page in a real browser, and what the page then says. Skips by name
//! where there is no Chromium; with CI=true that is a failure.

use crate::browser::{attribute, browser, file, run, sweep, with_script};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_report::*;

/// One CPU: `server` is woken by an interrupt at 1 ms, while `hog` runs, and runs from 4 ms to 5
/// ms; then `hog` again until 10 ms.
fn one_wait() -> Page {
    let (hog, server) = (TaskId(0), TaskId(1));
    let mut recorder = LaneRecorder::new(1, Ns::ZERO, 1_000);
    let mut tell =
        |ms: u64, kind| recorder.event(&SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind });
    tell(0, EventKind::Switch { prev: None, prev_state: PrevState::Sleeping, next: Some(hog) });
    tell(1, EventKind::Wake { task: server, waker: Waker::HardIrq });
    tell(
        4,
        EventKind::Switch { prev: Some(hog), prev_state: PrevState::Runnable, next: Some(server) },
    );
    tell(
        5,
        EventKind::Switch { prev: Some(server), prev_state: PrevState::Sleeping, next: Some(hog) },
    );
    let run = recorder.finish("recorded", 0, Ns::from_ms(10));
    let task = |name: &str| LaneTask { name: name.to_owned(), class: name.to_owned() };
    let mut page = Page::new("one wait");
    page.verdict("server waited", "for hog");
    let head = "server waited 3 ms".to_owned();
    let (from, to, text) = (Ns::from_ms(1), Ns::from_ms(4), String::new());
    page.waits("The longest waits", vec![LaneWait { run: 0, cpu: CpuId(0), from, to, head, text }]);
    let mut section = Section::new("Who ran when");
    let tasks = vec![task("hog"), task("server")];
    section.push(Lanes { tasks, runs: vec![run], own: Vec::new() });
    page.push(section);
    page
}

/// Points at the span of the server, then at its wait below the lane, and clicks there.
const POINT: &str = r#"
addEventListener("load", () => {
  const root = document.documentElement;
  const look = () => {
    if (root.dataset.ready !== "yes") return setTimeout(look, 100);
    const canvas = document.querySelector(".lanes .stage canvas"), box = canvas.getBoundingClientRect();
    // A pointer that a script makes up cannot be captured.
    canvas.setPointerCapture = () => {};
    const gutter = 62, head = 24, lane = 30;
    const send = (kind, ms, y) => canvas.dispatchEvent(new PointerEvent(kind, {
      pointerId: 1, bubbles: true, clientX: box.left + gutter + ms / 10 * (box.width - gutter), clientY: box.top + y }));
    const tip = document.querySelector(".lanes .tip"), status = document.querySelector(".lanes .status");
    send("pointermove", 4.5, head + lane / 2);
    root.dataset.span = getComputedStyle(tip).display + ": " + [...tip.children].map((c) => c.textContent).join(" | ");
    send("pointermove", 2.5, head + lane + 2);
    root.dataset.wait = [...tip.children].map((c) => c.textContent).join(" | ");
    send("pointerdown", 2.5, head + lane + 2);
    send("pointerup", 2.5, head + lane + 2);
    root.dataset.clicked = status.textContent;
    send("pointerleave", 2.5, head + lane + 2);
    root.dataset.gone = getComputedStyle(tip).display;
  };
  look();
});
"#;

#[test]
fn hover_names_task_and_time_and_a_click_on_a_wait_says_who_ran_meanwhile() {
    let Some(browser) = browser() else { return };
    let file = file("point", &with_script(&one_wait(), POINT));
    let dom = run(browser, &file, "", &["--dump-dom", "--window-size=1200,900"]);
    assert_eq!(attribute(&dom, "errors"), "");
    let head = &dom[..dom.len().min(1200)];
    let span = attribute(&dom, "span").replace("&nbsp;", " ");
    for part in [
        "block: ",
        "CPU 0: server",
        "ran 1.00 ms from 0.004000 s",
        "waited 3.00 ms",
        "an interrupt",
    ] {
        assert!(span.contains(part), "{part}: {span}: {head}");
    }
    assert!(attribute(&dom, "wait").contains("CPU 0: server"), "{head}");
    let clicked = attribute(&dom, "clicked").replace("&nbsp;", " ");
    assert!(clicked.contains("CPU 0: server"), "{clicked}");
    assert!(clicked.contains("meanwhile on CPU 0: hog 3.00 ms"), "{clicked}");
    assert_eq!(attribute(&dom, "gone"), "none");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

/// Does what a reader does with the lanes, one thing after the other, and leaves behind each what
/// the page then says.
const READ: &str = r##"
addEventListener("load", () => {
  const root = document.documentElement, $ = (q) => document.querySelector(q);
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const seen = () => $(".window p").textContent.split(". ")[0] + " | " + [...document.querySelectorAll(".window tr")].map((r) => [...r.cells].map((c) => c.textContent).join(", ")).join(" | ");
  const look = async () => {
    if (root.dataset.ready !== "yes") return setTimeout(look, 100);
    const canvas = $(".lanes .stage canvas"), over = $(".lanes canvas.over"), status = $(".lanes .status"), search = $(".lanes input");
    for (const c of [canvas, over]) c.setPointerCapture = () => {};
    await wait(200);
    root.dataset.whole = seen();
    $(".waits a").click();
    await wait(200);
    root.dataset.link = status.textContent + " | " + seen();
    root.dataset.focus = document.activeElement === canvas;
    const key = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const before = canvas.clientHeight;
    key("t");
    root.dataset.lane = status.textContent + " | " + (canvas.clientHeight > before) + " | " + [...document.querySelectorAll(".legend li")].filter((l) => !l.hidden).map((l) => l.textContent);
    key("0");
    const box = over.getBoundingClientRect(), gutter = Math.min(128, box.width * 0.3);
    const drag = (kind, ms) => over.dispatchEvent(new PointerEvent(kind, { pointerId: 1, bubbles: true, clientX: box.left + gutter + ms / 10 * (box.width - gutter), clientY: box.top + 5 }));
    drag("pointerdown", 0); drag("pointermove", 2); drag("pointermove", 4.5); drag("pointerup", 4.5);
    await wait(200);
    root.dataset.brushed = seen();
    canvas.focus(); key("/");
    root.dataset.slash = document.activeElement === search;
    search.value = "SERV"; search.dispatchEvent(new Event("input"));
    await wait(200);
    root.dataset.found = status.textContent + " | " + seen();
    root.dataset.rows = [...document.querySelectorAll("table.data tr.found th")].map((t) => t.textContent);
    key("Enter");
    root.dataset.entered = status.textContent;
    search.value = "nothing"; search.dispatchEvent(new Event("input"));
    root.dataset.nothing = status.textContent;
    const hog = [...document.querySelectorAll(".legend button")].find((b) => b.textContent === "hog");
    hog.click();
    await wait(200);
    root.dataset.legend = hog.getAttribute("aria-pressed") + " " + search.value + " | " + seen();
    hog.click();
    root.dataset.released = hog.getAttribute("aria-pressed");
    root.dataset.done = "yes";
  };
  look();
});
"##;

/// What one sees of the lanes follows the reader: numbers of the part in view, at once.
#[test]
fn links_brush_search_legend_and_thread_lanes_answer() {
    let Some(browser) = browser() else { return };
    let mut page = one_wait();
    let mut section = Section::new("Tasks");
    section.push(Table {
        caption: "tasks".to_owned(),
        columns: vec![Column::text("task")],
        rows: vec![vec![Cell::head("hog")], vec![Cell::head("server")]],
        fold: None,
    });
    page.push(section);
    let file = file("read", &with_script(&page, READ));
    let dom = run(browser, &file, "", &["--dump-dom", "--window-size=1200,900"]);
    let head = &dom[..dom.find("<head").unwrap_or(dom.len())];
    let said = |name: &str| attribute(&dom, name).replace("&nbsp;", " ");
    assert_eq!((said("errors"), said("done")), (String::new(), "yes".to_owned()), "{head}");
    let heads = |of: &str| {
        format!("{of}, waited, longest, wakeups, latency p50, p99, CPU time, mostly behind")
    };
    let server = "server, 3.00 ms, 3.00 ms, 1, 3.00 ms, 3.00 ms";
    let whole = format!(
        "In view: 10.0 ms from 0.000000 s | {} | {server}, 1.00 ms, hog 100 % | \
         hog, 1.00 ms, 1.00 ms, 0, –, –, 9.00 ms, server 100 %",
        heads("program")
    );
    assert_eq!(said("whole"), whole);
    // From a quarter of the wait before it to a third behind it.
    assert!(said("link").contains("CPU 0: server · ran 1.00 ms from 0.004000 s"), "{head}");
    assert!(said("link").contains("meanwhile on CPU 0: hog 3.00 ms"), "{head}");
    assert!(said("link").contains("In view: 4.80 ms from 0.000250 s"), "{head}");
    assert_eq!(said("focus"), "true");
    assert_eq!(said("lane"), "A lane of its own: server. | true | hog,server,waits");
    let brushed = said("brushed");
    assert!(brushed.starts_with("In view: 4.50 ms from 0.000000 s"), "{brushed}");
    assert!(brushed.contains(&format!("{server}, 500 µs, hog 100 %")), "{brushed}");
    assert!(brushed.contains("hog, 0 ns, 0 ns, 0, –, –, 4.00 ms"), "{brushed}");
    assert_eq!(said("slash"), "true");
    let found = said("found");
    assert!(found.starts_with("1 of 2 tasks: server."), "{found}");
    assert!(found.contains(&heads("thread")) && !found.contains("| hog"), "{found}");
    assert_eq!(said("rows"), "server", "in the table of the page");
    assert!(said("entered").starts_with("Wait 1 of 1 by length · CPU 0: server"), "{head}");
    assert_eq!(said("nothing"), "No task is called so.");
    let legend = said("legend");
    assert!(legend.starts_with("true  | ") && !legend.contains("| server"), "{legend}");
    assert_eq!(said("released"), "false");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

/// Moves the slider of a curve and takes another number.
const SLIDE: &str = r#"
addEventListener("load", () => {
  const root = document.documentElement;
  const look = () => {
    if (root.dataset.ready !== "yes") return setTimeout(look, 100);
    const slider = document.querySelector(".sweep input"), said = document.querySelector(".sweep output");
    const text = () => [...said.children].map((c) => c.textContent).join(" | ");
    root.dataset.first = text();
    for (const at of [1, 3]) {
      slider.value = at; slider.dispatchEvent(new Event("input"));
      root.dataset["row" + at] = text();
    }
    root.dataset.says = slider.getAttribute("aria-valuetext") + " of " + slider.max;
    root.dataset.drawn = document.querySelectorAll(".sweep canvas").length;
  };
  look();
});
"#;

#[test]
fn the_slider_goes_from_computed_row_to_computed_row() {
    let Some(browser) = browser() else { return };
    let mut page = Page::new("a scan");
    let mut section = Section::new("Over the values");
    section.push(sweep("hog nice"));
    page.push(section);
    let file = file("slide", &with_script(&page, SLIDE));
    let dom = run(browser, &file, "", &["--dump-dom", "--window-size=1200,900"]);
    let said = |name: &str| attribute(&dom, name).replace("&nbsp;", " ");
    assert_eq!(said("errors"), "");
    assert_eq!(said("first"), "hog nice = 0 | hog nice: 2.00 ms");
    assert_eq!(said("row1"), "hog nice = 5 | hog nice: 1.00 ms (−50 %, better)");
    assert_eq!(said("row3"), "hog nice = hog nice | hog nice: no value");
    assert_eq!((said("says"), said("drawn")), ("hog nice = hog nice of 3".into(), "1".into()));
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}
