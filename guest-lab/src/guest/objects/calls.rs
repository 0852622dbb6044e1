//! Which callback follows which, for each task: under a kernel and in the simulator, by an object
//! that prints its callbacks.

use super::held::HeldSequence;
use super::plays::{self, Play, Shape};
use super::{Timing, play_out};
use crate::guest::catalogue::Verdict;
use crate::guest::ftrace;
use anyhow::{Context, Result};
use schedlab_scheduler::sched_ext;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::PoisonError;

/// Callbacks of each task, by its number, in order: `enqueue 1`.
type Calls = BTreeMap<u64, Vec<String>>;

/// Steps from one callback of a task to its next one.
type Steps = BTreeSet<(String, String)>;

/// Takes `scx c_ enqueue 288 1` apart: the task, and the callback with its value.
fn call(text: &str) -> Option<(u64, String)> {
    let mut words = text.strip_prefix("scx c_ ")?.split_whitespace();
    let (name, task, value) = (words.next()?, words.next()?, words.next()?);
    Some((task.parse().ok()?, format!("{name} {value}")))
}

fn by_task(calls: impl Iterator<Item = (u64, String)>) -> Calls {
    let mut all = Calls::new();
    calls.for_each(|(task, call)| all.entry(task).or_default().push(call));
    all
}

fn steps(calls: &Calls) -> Steps {
    let pairs = calls.values().flat_map(|of| of.windows(2));
    pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Steps of what the simulated play does not have: a wakeup by a child's end (`waitpid`) is one of
/// a waker that sleeps at once (WF_SYNC, 16); and a task that a thread above the class interrupts
/// for a moment (the stopper, for another task's change) goes on with the rest of its slice.
fn of_others((from, to): &(String, String)) -> bool {
    let waits = from == "select_cpu 18" || to == "select_cpu 18";
    waits || (from.as_str(), to.as_str()) == ("stopping 1", "running 0")
}

/// Judges a play of the object that prints.
pub(super) fn judge(
    folder: &Path,
    name: &str,
    play: &Play,
    shape: Shape,
) -> Result<(Verdict, HeldSequence)> {
    let path = folder.join(format!("{name}.ftrace"));
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let path = folder.join(format!("{name}.moment"));
    let moment = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let moment: u64 = moment.trim().parse().context("the moment")?;
    let printed = text.lines().filter_map(ftrace::line);
    let printed = printed.filter(|line| line.event == "bpf_trace_printk" && line.at >= moment);
    let kernel = steps(&by_task(printed.filter_map(|line| call(line.rest))));
    let spec = format!("bpf:{}", plays::LOG).parse()?;
    let (scheduler, prints) = sched_ext::build_printing(&spec)?;
    play_out(&*scheduler, play, (shape, Timing::Guest, 1), &mut Vec::new())?;
    let prints = prints.lock().unwrap_or_else(PoisonError::into_inner);
    // The kernel's trace begins when the scheduler is there and the tasks are.
    let later = prints.iter().filter(|(at, ..)| *at > 0);
    let simulator = steps(&by_task(later.filter_map(|(_, _, text)| call(text))));
    let word = |(from, to): &(String, String)| format!("{from} -> {to}");
    let missing = kernel.difference(&simulator).filter(|step| !of_others(step));
    let only_kernel: Vec<String> = missing.map(word).collect();
    let only_simulator: Vec<String> = simulator.difference(&kernel).map(word).collect();
    let alike = kernel.intersection(&simulator).count();
    let good = only_kernel.is_empty() && only_simulator.is_empty() && alike > 0;
    let mut text = format!("{name} on {}: {alike} steps between callbacks are equal", shape.word());
    for (who, steps) in [("kernel", &only_kernel), ("simulator", &only_simulator)] {
        if !steps.is_empty() {
            text += &format!("; only in the {who}: {}", steps.join(", "));
        }
    }
    println!("{text}");
    let play = play.name.to_owned();
    let held = HeldSequence { play, equal: alike, only_kernel, only_simulator };
    Ok((Verdict { good, text }, held))
}
