//! A recording of a large machine in a real browser: two million events of 64 CPUs and 2,000
//! programs. They are written down instead of simulated, which takes a second instead of many.

use super::super::Folder;
use super::Server;
use super::browser::{Browser, ERRORS, READY};
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_study::{scenario, show};
use schedlab_trace::Recording;
use serde_json::json;

const EVENTS: usize = 2_000_000;
const CPUS: u32 = 64;
const TASKS: u32 = 2_000;
/// Bytes of what the page gets before its first sentences: chosen between the 36 kB of one run and
/// the 700 kB of all 2,000 programs.
const OVERVIEW: u64 = 150_000;
/// Bytes that the scripts hold for an event that is drawn at most: chosen, more than twice the 12
/// of one run of Chromium 156.
const HELD: u64 = 30;
/// Events that a page draws at most (`EVENTS` in `study/src/compare/detail.rs`).
const DRAWN: u64 = 1_000_000;

/// The header of a machine with so many programs. It names no kernel: what the page would get ready
/// for questions is not what is tested here.
fn header() -> schedlab_trace::Header {
    let toml = format!(
        "title = \"a large machine\"\nschedulers = [\"linux-6.12\"]\nduration = \"1us\"\n\
         [machine]\ncpus = {CPUS}\n[[task]]\nname = \"worker\"\ncount = {TASKS}\nprogram = \
         [\"sleep 1s\"]\n"
    );
    let scenario = scenario::parse("made", "made.toml", &toml).unwrap();
    let header = show::simulate(&scenario, None, None, None).unwrap().header;
    schedlab_trace::Header { kernel: String::new(), ..header }
}

/// What one CPU does: a task runs, wakes the next one and blocks; or nothing runs until an
/// interrupt wakes the next one. Each CPU has its own tasks.
fn of_cpu(cpu: u32, count: usize) -> Vec<SchedEvent> {
    let own: Vec<TaskId> = (0..TASKS).filter(|task| task % CPUS == cpu).map(TaskId).collect();
    let (mut events, mut at, mut on) = (Vec::with_capacity(count + 3), u64::from(cpu), None);
    // Knuth's constants of MMIX: any sequence without a short period does.
    let mut random = u64::from(cpu) + 1;
    let mut push = |at: u64, kind: EventKind| {
        events.push(SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind });
        events.len() < count
    };
    let mut turn = 0;
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        at += 2_000 + (random >> 33) % 40_000;
        // A fifth of the time the CPU is idle in between.
        let is_idle = on.is_some() && (random >> 40).is_multiple_of(5);
        let next = (!is_idle).then(|| own[turn % own.len()]);
        if let Some(task) = next {
            turn += 1;
            push(at, EventKind::Wake { task, waker: on.map_or(Waker::HardIrq, Waker::Task) });
            at += 500 + (random >> 50) % 4_000;
        }
        let prev_state = PrevState::Sleeping;
        if !push(at, EventKind::Switch { prev: on, prev_state, next }) {
            return events;
        }
        on = next;
    }
}

fn made(folder: &Folder) -> String {
    let of_cpu = |cpu| of_cpu(cpu, EVENTS / CPUS as usize);
    let mut events: Vec<SchedEvent> = (0..CPUS).flat_map(of_cpu).collect();
    events.sort_by_key(|event| (event.at, event.cpu));
    let duration = events.last().unwrap().at;
    let recording = Recording::from_parts(header(), events, duration).unwrap();
    let path = folder.0.join("large.slt");
    schedlab_trace::save(&recording, &path).unwrap();
    path.display().to_string()
}

#[test]
fn a_large_recording_is_looked_at() {
    let Some(mut browser) = Browser::new("ui-large") else { return };
    let folder = Folder::new("ui-large-file");
    let file = made(&folder);
    let server = Server::new(&[&file]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    let events = server.get("/api/1/inputs/f0/overview").json()["events"].as_u64().unwrap();
    assert!(events >= EVENTS as u64, "{events} events");
    // What comes first is small, and all programs are there in the end.
    let size = "performance.getEntriesByType('resource').find((one) => \
                one.name.includes('/overview')).decodedBodySize";
    let size = browser.run(&tab, size).as_u64().unwrap();
    assert!(size < OVERVIEW, "{size} bytes before the first sentence");
    browser.wait(&tab, "document.querySelectorAll('#target option').length >= 2000");
    let rows = "[...document.querySelectorAll('#programs ~ .scroll')][0].querySelectorAll('tbody \
                tr').length";
    assert_eq!(browser.run(&tab, rows), 100);
    // A part that was not looked at: its sentences come without programs, which follow.
    let part = |more: &str| server.get(&format!("/api/1/inputs/f0/overview?from=1ms{more}")).json();
    let (first, then) = (part("&programs=later"), part(""));
    assert!(first["programs_follow"] == true && first["programs"] == json!([]), "{first}");
    assert!(then["programs_follow"] == false && then["more_programs"].as_u64() >= Some(1900));
    assert!(first["answer"] == then["answer"] && first["waits"] == then["waits"], "{first}");
    assert_eq!(part("&programs=later"), then, "they are counted already");
    // A wait is gone to, and the view moves.
    browser.run(&tab, "document.querySelector('.waits a').click()");
    let view = "['from', 'to'].map((end) => Number(document.getElementById('lanes').dataset[end]))";
    browser.wait(&tab, &format!("(([from, to]) => to - from < 5e7)({view})"));
    let before = browser.run(&tab, view);
    browser.run(&tab, "document.querySelector('#lanes canvas[tabindex]').focus()");
    browser.key(&tab, "ArrowRight", 39);
    browser.wait(&tab, &format!("(([from]) => from > {})({view})", before[0]));
    let held = browser.heap(&tab);
    assert!(held < DRAWN * HELD, "the scripts hold {held} bytes for {events} events");
    assert_eq!(browser.run(&tab, ERRORS), "");
}
