//! A recording beside the kernel's own trace of the same second (ftrace, clock `mono`): the
//! switches of each CPU.

use super::catalogue::Verdict;
use super::ftrace::{self, FtraceLine};
use anyhow::{Context, Result};
use schedlab_model::{EventKind, TaskId};
use schedlab_trace::Recording;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// A switch: CLOCK_MONOTONIC in nanoseconds, the thread that stopped and the one that began; 0 is
/// the idle task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Switch {
    at: u64,
    prev: u32,
    next: u32,
    /// The thread that stopped has ended.
    ends: bool,
}

type PerCpu = BTreeMap<u32, Vec<Switch>>;

/// A switch at the very beginning or end of a recording may be on the other side of it in the other
/// list.
const EDGES: usize = 2;

/// Threads that end while the kernel traces. From the moment at which the kernel takes a thread's
/// number away until its last switch, perf's context-switch records call it -1, and the way
/// `switches` takes it for the idle task.
type Ending = BTreeSet<u32>;

/// Compares every `NAME.slt` with `NAME.ftrace` beside it.
pub(super) fn judge(folder: &Path) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_suffix(".ftrace")?.to_owned()))
        .collect();
    names.sort();
    for name in names {
        let text = std::fs::read(folder.join(format!("{name}.ftrace")))?;
        let kernels = of_ftrace(&String::from_utf8_lossy(&text));
        let ends = kernels.values().flatten().filter(|one| one.ends && name == "switches");
        let ending: Ending = ends.map(|one| one.prev).collect();
        let recording = Recording::open(folder.join(format!("{name}.slt")))?;
        let recorded = of_recording(&recording).with_context(|| name.clone())?;
        let begin = recording.header.clock_start_ns;
        let window = begin..begin + recording.duration.0;
        for (cpu, ours) in &recorded {
            let all = kernels.get(cpu).map_or(&[][..], Vec::as_slice);
            let theirs: Vec<Switch> =
                all.iter().filter(|one| window.contains(&one.at)).copied().collect();
            verdicts.push(compare(&name, *cpu, ours, &theirs, &ending));
        }
        let missing = missing(&kernels, &recorded, &window);
        verdicts.push(Verdict {
            good: missing.is_empty() && !recorded.is_empty(),
            text: format!("{name}: every CPU is in the recording (missing: {missing:?})"),
        });
    }
    Ok(verdicts)
}

/// CPUs that switched while the recording was made, and are not in it. The kernel's trace is
/// longer, and a CPU with one thread without end may not switch for a while.
fn missing(kernels: &PerCpu, recorded: &PerCpu, window: &Range<u64>) -> Vec<u32> {
    let inside = |all: &[Switch]| all.iter().filter(|one| window.contains(&one.at)).count();
    let switched = kernels.iter().filter(|(_, all)| inside(all) > EDGES);
    switched.map(|(&cpu, _)| cpu).filter(|cpu| !recorded.contains_key(cpu)).collect()
}

/// Whether what was recorded is what the kernel traced from the beginning of the recording to its
/// end.
fn compare(
    name: &str,
    cpu: u32,
    recorded: &[Switch],
    traced: &[Switch],
    ending: &Ending,
) -> Verdict {
    let equal = in_common(recorded, traced, ending);
    // Between the idle task and a thread that counts as it no switch is recorded.
    let silent = traced.iter().filter(|one| (one.prev, one.next) != (0, 0));
    let silent = silent
        .filter(|one| [one.prev, one.next].iter().all(|tid| *tid == 0 || ending.contains(tid)));
    let allowed = EDGES + silent.count();
    let differ = recorded.len() + traced.len() - 2 * equal;
    let text = format!(
        "{name}: CPU {cpu}: {} switches recorded, {} traced by the kernel within the recording, \
         {equal} in common",
        recorded.len(),
        traced.len()
    );
    Verdict { good: differ <= allowed && equal > 0, text }
}

/// The length of the longest common subsequence.
fn in_common(recorded: &[Switch], traced: &[Switch], ending: &Ending) -> usize {
    let mut row = vec![0; traced.len() + 1];
    let same = |ours: u32, theirs: u32| ours == theirs || ours == 0 && ending.contains(&theirs);
    for one in recorded {
        let mut diagonal = 0;
        for (at, other) in traced.iter().enumerate() {
            let above = row[at + 1];
            let same = same(one.prev, other.prev) && same(one.next, other.next);
            row[at + 1] = if same { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[traced.len()]
}

fn of_recording(recording: &Recording) -> Result<PerCpu> {
    let header = &recording.header;
    let tid = |task: Option<TaskId>| -> Result<u32> {
        let Some(task) = task else { return Ok(0) };
        Ok(header.tasks.get(task.index()).context("an event of a task that the header lacks")?.tid)
    };
    let mut found = PerCpu::new();
    for event in &recording.events {
        if let EventKind::Switch { prev, next, .. } = event.kind {
            let at = header.clock_start_ns + event.at.0;
            let switch = Switch { at, prev: tid(prev)?, next: tid(next)?, ends: false };
            found.entry(event.cpu.0).or_default().push(switch);
        }
    }
    Ok(found)
}

/// Lines such as
/// `load-142 [001] d..2. 12.345678: sched_switch: prev_comm=load prev_pid=142 ... ==> next_comm=... next_pid=0`.
fn of_ftrace(text: &str) -> PerCpu {
    let mut found = PerCpu::new();
    for line in text.lines() {
        if let Some((cpu, switch)) = line_of_ftrace(line) {
            found.entry(cpu).or_default().push(switch);
        }
    }
    // The text merges the CPUs by time; each CPU's own order is that of its buffer.
    found
}

fn line_of_ftrace(line: &str) -> Option<(u32, Switch)> {
    let FtraceLine { at, cpu, event, rest } = ftrace::line(line)?;
    let stops = ftrace::switch(rest).filter(|_| event == "sched_switch")?;
    let ends = stops.state.starts_with(['X', 'Z']);
    Some((cpu, Switch { at, prev: stops.prev.tid, next: stops.next.tid, ends }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "# tracer: nop\n\
        load-142 [001] d..2.    12.345678: sched_switch: prev_comm=load prev_pid=142 \
        prev_prio=120 prev_state=S ==> \
        next_comm=swapper/1 next_pid=0 next_prio=120\n\
        <idle>-0 [001] d..2.    12.345700: sched_switch: prev_comm=swapper/1 prev_pid=0 \
        prev_prio=120 prev_state=R ==> \
        next_comm=a ==> b next_pid=143 next_prio=120\n";

    #[test]
    fn the_kernels_text_is_read() {
        let found = of_ftrace(LINES);
        let first = Switch { at: 12_345_678_000, prev: 142, next: 0, ends: false };
        assert_eq!(
            found[&1],
            [first, Switch { at: 12_345_700_000, prev: 0, next: 143, ends: false }]
        );
    }

    #[test]
    fn missing_switches_are_found_and_those_at_the_edges_are_none() {
        let switch =
            |n: u32| Switch { at: u64::from(n), prev: n % 7, next: (n + 1) % 7, ends: n == 50 };
        let all: Vec<Switch> = (0..100).map(switch).collect();
        let none = Ending::new();
        assert!(compare("x", 0, &all, &all, &none).good);
        assert!(compare("x", 0, &all[1..99], &all, &none).good);
        assert!(!compare("x", 0, &all[20..], &all, &none).good, "a dead head");
        assert!(!compare("x", 0, &[&all[..40], &all[43..]].concat(), &all, &none).good, "a hole");
        assert!(!compare("x", 0, &[], &all, &none).good);
    }

    #[test]
    fn a_cpu_is_missing_where_it_switched_meanwhile() {
        let switches = |range: Range<u64>| {
            range.map(|at| Switch { at, prev: 1, next: 2, ends: false }).collect::<Vec<_>>()
        };
        let kernels =
            PerCpu::from([(0, switches(0..100)), (1, switches(0..52)), (2, switches(40..60))]);
        let recorded = PerCpu::from([(0, switches(50..90))]);
        // CPU 1 stood still but for two switches at the beginning, which may be on the other side
        // of it.
        assert_eq!(missing(&kernels, &recorded, &(50..90)), [2]);
    }

    #[test]
    fn a_thread_that_ends_may_be_taken_for_the_idle_task() {
        let switch = |prev: u32, next: u32| Switch { at: 0, prev, next, ends: prev == 9 };
        let ending = Ending::from([9]);
        // It is preempted four times on its way out.
        let traced = [
            vec![switch(8, 9)],
            [switch(9, 8), switch(8, 9)].repeat(4),
            vec![switch(9, 0), switch(0, 8)],
        ];
        let traced = traced.concat();
        let taken = |tid: u32| if tid == 9 { 0 } else { tid };
        let recorded: Vec<Switch> = traced
            .iter()
            .map(|one| switch(taken(one.prev), taken(one.next)))
            .filter(|one| one.prev != one.next)
            .collect();
        assert!(compare("switches", 0, &recorded, &traced, &ending).good);
        assert!(
            !compare("bpf", 0, &recorded, &traced, &Ending::new()).good,
            "other ways know its number"
        );
        assert!(!compare("switches", 0, &recorded[4..], &traced, &ending).good, "a hole");
    }
}
