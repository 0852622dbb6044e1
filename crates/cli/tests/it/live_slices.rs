//! Two hogs on one CPU: the turns that perf(1) records under the live driver beside those of the
//! simulator.

use super::live::turn;
use super::{Folder, skip};
use schedlab_model::{EventKind, Ns, Program, SchedEvent, TaskSpec, Workload};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions, run};
use schedlab_testing::settles;
use std::process::{Command, Stdio};

/// The hogs' program.
const HOG: &str = "slices-hog";

/// One stretch on the CPU.
struct Stretch {
    who: u32,
    from: Ns,
    to: Ns,
}

/// What came of a pair of hogs.
#[derive(Debug)]
struct Turns {
    /// Median CPU time of a turn, in ms.
    median_ms: f64,
    /// The part of the CPU time of both that the first got.
    share: f64,
    count: usize,
}

/// In a yield window (6 ms of each 100 ms) the kernel may let the other hog run, too, though it is
/// SCHED_IDLE then: for a tick or two, when it finds that the chosen one has had more than its
/// share. That ends no turn of the scheduler's.
const GIFT: Ns = Ns::from_ms(7);

/// A turn ends when the other one begins and goes on for longer than a yield window; who else ran
/// in between does not count.
fn turns(stretches: &[Stretch]) -> Turns {
    let whole = joined(stretches.iter().map(|one| (one.who, one.to.saturating_sub(one.from))));
    // The time of an interruption is no task's.
    let mut lengths = joined(whole.iter().copied().filter(|(_, time)| *time > GIFT));
    let first = lengths.first().map_or(0, |(who, _)| *who);
    let of_first: Ns = whole.iter().filter(|(who, _)| *who == first).map(|(_, time)| *time).sum();
    let whole: Ns = whole.iter().map(|(_, time)| *time).sum();
    // The last one was cut off by the end.
    lengths.pop();
    let mut times: Vec<Ns> = lengths.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Turns {
        median_ms: median.0 as f64 / 1e6,
        share: of_first.0 as f64 / whole.0.max(1) as f64,
        count: times.len(),
    }
}

/// Neighbours of one hog are one.
fn joined(stretches: impl Iterator<Item = (u32, Ns)>) -> Vec<(u32, Ns)> {
    let mut all: Vec<(u32, Ns)> = Vec::new();
    for (who, time) in stretches {
        match all.last_mut() {
            Some((last, length)) if *last == who => *length += time,
            _ => all.push((who, time)),
        }
    }
    all
}

fn simulated(scheduler: &str, length: Ns) -> Turns {
    let scheduler =
        registry::build(&scheduler.parse().expect("a scheduler"), 1).expect("it exists");
    let tasks = ["a", "b"].map(|name| TaskSpec::new(name, Program::hog())).to_vec();
    let workload = Workload { tasks, ..Workload::default() };
    let mut events: Vec<SchedEvent> = Vec::new();
    // The tick of this kernel: old schedulers count in ticks.
    let machine = Machine { hz: schedlab_host::machine().hz, ..Machine::flat(1) };
    run(&machine, &workload, &*scheduler, &RunOptions::for_time(length), &mut events)
        .expect("a clean run");
    let switches = events.iter().filter_map(|event| match event.kind {
        EventKind::Switch { next, .. } => Some((event.at, next.map(|task| task.0))),
        _ => None,
    });
    turns(&stretches(switches, length))
}

fn stretches(switches: impl Iterator<Item = (Ns, Option<u32>)>, end: Ns) -> Vec<Stretch> {
    let mut all = Vec::new();
    let mut runs: Option<(Ns, u32)> = None;
    for (at, next) in switches {
        if let Some((from, who)) = runs {
            all.push(Stretch { who, from, to: at });
        }
        runs = next.map(|who| (at, who));
    }
    all.extend(runs.map(|(from, who)| Stretch { who, from, to: end.max(from) }));
    all
}

/// Of `perf script -F time,event,trace`: when, and who runs next when that is one of this test's.
fn switch(line: &str, name: &str) -> Option<(Ns, Option<u32>)> {
    let (time, rest) = line.trim().split_once(": sched:sched_switch:")?;
    let (seconds, micros) = time.trim().split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000_000
        + format!("{micros:0<9}").parse::<u64>().ok()?;
    let next = rest.split_once("next_comm=")?.1;
    let (comm, next) = next.split_once(" next_pid=")?;
    let pid = next.split_whitespace().next()?.parse().ok()?;
    Some((Ns(at), (comm == name).then_some(pid)))
}

/// What perf saw of two hogs under `schedlab run`.
fn recorded(folder: &Folder, scheduler: &str) -> Option<Turns> {
    let data = folder.0.join("perf.data");
    // A name of its own: others may run yes(1), too. When a guardian ends the driver (a hypervisor
    // may take the CPU from it for too long), its command goes on: that must end by itself and hold
    // no end of perf's output.
    let hog = folder.0.join(HOG);
    let script =
        format!("for i in 1 2; do timeout --foreground 20 {HOG} >/dev/null 2>&1 & done; wait");
    let _ = std::fs::remove_file(&hog);
    std::fs::copy("/usr/bin/yes", &hog).expect("coreutils");
    let path = format!("{}:/usr/bin:/bin", folder.0.display());
    // The other hog waits for as long as a turn lasts.
    let patience = ["--starve-after", "1s"];
    let arguments = [
        &["run", "--scheduler", scheduler][..],
        &patience,
        &["--for", "4s", "--", "sh", "-c", &script],
    ];
    let arguments = arguments.concat();
    // perf(1) starts it, so that nothing comes before perf is ready, however busy the machine is.
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "sched:sched_switch", "-C", "0", "-o"]).arg(&data).arg("--");
    perf.arg(env!("CARGO_BIN_EXE_schedlab"))
        .args(arguments)
        .env("SCHEDLAB_RUN_DIR", folder.0.join("run"));
    let recorded =
        perf.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::null()).output().ok()?;
    assert!(recorded.status.success(), "{scheduler}: {recorded:?}");
    let script = Command::new("perf")
        .args(["script", "-F", "time,event,trace", "--ns", "-i"])
        .arg(&data)
        .output();
    let text = String::from_utf8_lossy(&script.expect("perf was there").stdout).into_owned();
    let switches: Vec<_> = text.lines().filter_map(|line| switch(line, HOG)).collect();
    // While they come up, and while they are given back, they are the kernel's.
    let begin = switches.iter().find(|(_, next)| next.is_some())?.0 + Ns::from_ms(300);
    let steady =
        switches.into_iter().filter(|(at, _)| (begin..begin + Ns::from_ms(1_600)).contains(at));
    Some(turns(&stretches(steady, begin + Ns::from_ms(1_600))))
}

#[test]
#[allow(clippy::print_stderr)] // the figures are the point
fn turns_of_two_hogs_agree_with_the_simulators() {
    let test = "turns_of_two_hogs_agree_with_the_simulators";
    let Some(_turn) = turn(test) else { return };
    let folder = Folder::new("live-slices");
    for scheduler in ["rr:slice_ns=20ms", "linux-2.4", "xen-credit2"] {
        let there = settles(3, || {
            let Some(live) = recorded(&folder, scheduler) else { return false };
            let predicted = simulated(scheduler, Ns::from_ms(1_600));
            eprintln!("{scheduler}: by perf {live:?}, simulated {predicted:?}");
            let off = (live.median_ms - predicted.median_ms).abs() / predicted.median_ms;
            // In a yield window the chosen one goes on in the fair class: turns of any length stay
            // whole.
            assert!(off < 0.15, "{scheduler}: by perf {live:?}, simulated {predicted:?}");
            assert!(
                (live.share - predicted.share).abs() < 0.08,
                "{scheduler}: {live:?}, {predicted:?}"
            );
            assert!(live.count > 10, "{scheduler}: {live:?}");
            true
        });
        if !there {
            assert!(std::env::var_os("CI").is_none(), "{test}: CI has perf(1)");
            skip(test, "perf(1) is missing");
            return;
        }
    }
}

#[test]
fn an_interruption_in_a_yield_window_ends_no_turn() {
    let ms = Ns::from_ms;
    let mut at = Ns::ZERO;
    let stretches: Vec<Stretch> = [(1, 20), (2, 10), (1, 3), (2, 9), (1, 20), (2, 5)]
        .into_iter()
        .map(|(who, length)| {
            let from = at;
            at += ms(length);
            Stretch { who, from, to: at }
        })
        .collect();
    let turns = turns(&stretches);
    // 20, 19 and the last one, which was cut off.
    assert_eq!((turns.count, turns.median_ms), (2, 20.0), "{turns:?}");
}

#[test]
fn a_line_of_perf_is_read() {
    let line = "  1234.000567890: sched:sched_switch: prev_comm=yes prev_pid=7 prev_prio=96 \
                prev_state=R ==> \
                next_comm=yes next_pid=8 next_prio=96";
    assert_eq!(switch(line, "yes"), Some((Ns(1_234_000_567_890), Some(8))));
    assert_eq!(switch(line, "no"), Some((Ns(1_234_000_567_890), None)));
    assert_eq!(switch("# nothing", "yes"), None);
}
