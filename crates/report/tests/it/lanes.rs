//! Schedules as they arrive in a browser, and what is marked in them. Skips by name where there is
//! no Chromium; with CI=true that is a failure.

use crate::browser::{attribute, browser, file, run, with_script};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_report::*;

const TASKS: u32 = 6;
const CPUS: u32 = 3;

/// Numbers that look random, the same each time (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as u32 % limit
    }
}

/// One recorder's run as a page.
fn page(run: LaneRun) -> Page {
    let mut page = Page::new("a run");
    let mut section = Section::new("Who ran when");
    let task = |n: u32| LaneTask { name: format!("t{n}"), class: format!("t{n}") };
    section.push(Lanes { tasks: (0..TASKS).map(task).collect(), runs: vec![run], own: Vec::new() });
    page.push(section);
    page
}

/// A schedule in which tasks wait, change their CPU, wake each other and are lost sight of; and its
/// spans of tasks: when, on which CPU, which task.
fn random(seed: u64, fast: bool) -> (LaneRun, Vec<(u64, u32, u32)>) {
    let (mut numbers, mut spans) = (Numbers(seed), Vec::new());
    let recorder = LaneRecorder::new(CPUS as usize, Ns::ZERO, 10_000);
    let mut recorder = if fast { recorder.fast() } else { recorder };
    let (mut on, mut begun) = ([None; CPUS as usize], [false; CPUS as usize]);
    on[1] = Some(TaskId(5));
    for step in 1..200u64 {
        let (at, cpu) = (Ns::from_us(10 * step), numbers.below(CPUS));
        let place = cpu as usize;
        let mut tell = |kind| recorder.event(&SchedEvent { at, cpu: CpuId(cpu), kind });
        let task = TaskId(numbers.below(TASKS));
        match numbers.below(10) {
            0..4 => {
                let wakers = [Waker::Unknown, Waker::HardIrq, Waker::Task(TaskId(0))];
                let own = on[place].map(Waker::Task);
                let waker = own.unwrap_or(wakers[numbers.below(3) as usize]);
                tell(EventKind::Wake { task, waker });
            }
            4 => {
                tell(EventKind::Lost { count: 3 });
                (on[place], begun[place]) = (None, true);
            }
            _ => {
                let next = Some(task).filter(|task| !on.contains(&Some(*task)));
                let states = [PrevState::Sleeping, PrevState::Runnable, PrevState::Blocked];
                let prev_state = states[numbers.below(3) as usize];
                let prev = on[place];
                tell(EventKind::Switch { prev, prev_state, next });
                if let (Some(task), false) = (prev, begun[place]) {
                    spans.push((0, cpu, task.0));
                }
                begun[place] = true;
                on[place] = next;
                next.into_iter().for_each(|task| spans.push((10 * step, cpu, task.0)));
            }
        }
    }
    spans.sort_unstable();
    (recorder.finish("recorded", 0, Ns::from_ms(3)), spans)
}

/// Opens the table of the spans in view and leaves its rows in the document.
const TABLE: &str = r#"
addEventListener("load", () => {
  const root = document.documentElement;
  const look = () => {
    const rows = [...document.querySelectorAll(".lanes details tbody tr")];
    if (root.dataset.ready !== "yes") return setTimeout(look, 50);
    document.querySelector(".lanes details").open = true;
    if (!rows.length) return setTimeout(look, 50);
    root.dataset.rows = rows.map((r) => [0, 2, 3].map((k) => r.cells[k].textContent).join(" ")).join("; ");
  };
  look();
});
"#;

#[test]
fn a_schedule_arrives_as_it_was() {
    let Some(browser) = browser() else { return };
    for (seed, fast) in [(1, false), (0x5eed, false), (0xdead_beef, false), (0x5eed, true)] {
        let (run_of, spans) = random(seed, fast);
        let file = file("random", &with_script(&page(run_of), TABLE));
        let dom = run(browser, &file, "", &["--dump-dom"]);
        assert_eq!(attribute(&dom, "errors"), "", "{seed}");
        let mut rows: Vec<String> = spans
            .iter()
            .map(|(us, cpu, task)| format!("{}.{:06} s {cpu} t{task}", us / 1_000_000, us))
            .collect();
        let mut found: Vec<&str> = attribute(&dom, "rows").split("; ").collect();
        rows.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, rows, "{seed}");
        std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }
}

/// Goes from mark to mark, and points at one.
const MARKS: &str = r#"
addEventListener("load", () => {
  const root = document.documentElement;
  const look = () => {
    if (root.dataset.ready !== "yes") return setTimeout(look, 50);
    const canvas = document.querySelector(".lanes .stage canvas"), status = document.querySelector(".lanes .status");
    const key = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const said = [];
    for (let i = 0; i < 5; i++) { key("m"); said.push(status.textContent); }
    root.dataset.said = said.join(" | ");
    key("0");
    key("ArrowDown");
    root.dataset.span = status.textContent;
    root.dataset.keys = [...document.querySelectorAll(".legend li")].filter((l) => !l.hidden).map((l) => l.textContent).join("; ");
    root.dataset.done = "yes";
  };
  look();
});
"#;

#[test]
fn losses_throttling_stolen_time_and_the_incident_are_marked() {
    let Some(browser) = browser() else { return };
    let mut recorder = LaneRecorder::new(1, Ns::ZERO, 100).caught(Some(LaneIncident {
        from_ns: Ns::from_ms(90),
        to_ns: Ns::from_ms(95),
        text: "t1 waited 5 ms: kept for this".to_owned(),
    }));
    let mut tell =
        |ms: u64, kind| recorder.event(&SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind });
    let (prev, prev_state) = (None, PrevState::Sleeping);
    tell(0, EventKind::Switch { prev, prev_state, next: Some(TaskId(0)) });
    tell(60, EventKind::Throttle { task: TaskId(2) });
    tell(70, EventKind::Unthrottle { task: TaskId(2) });
    tell(80, EventKind::Steal { ns: Ns::from_ms(3) });
    tell(85, EventKind::Lost { count: 17 });
    let run_of = recorder.finish("recorded", 0, Ns::from_ms(100));
    let file = file("marks", &with_script(&page(run_of), MARKS));
    let dom = run(browser, &file, "", &["--dump-dom", "--window-size=1200,900"]);
    let said = |name: &str| attribute(&dom, name).replace("&nbsp;", " ");
    assert_eq!((said("errors"), said("done")), (String::new(), "yes".to_owned()));
    let expected = [
        "Mark 1 of 4 · t2 throttled for 10.0 ms on CPU 0 from 0.060000 s",
        "Mark 2 of 4 · 3.00 ms stolen by the hypervisor on CPU 0 from 0.077000 s",
        "Mark 3 of 4 · 17 events lost on CPU 0 before 0.085000 s",
        "Mark 4 of 4 · t1 waited 5 ms: kept for this",
        "Mark 1 of 4 · t2 throttled for 10.0 ms on CPU 0 from 0.060000 s",
    ];
    assert_eq!(said("said"), expected.join(" | "));
    assert!(said("span").contains("3.00 ms stolen by the hypervisor"), "{}", said("span"));
    for kind in ["events lost", "throttled", "stolen by the hypervisor", "what it was kept for"] {
        assert!(said("keys").contains(kind), "{}", said("keys"));
    }
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}
