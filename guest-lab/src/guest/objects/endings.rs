//! How a kernel ends a scheduler that does what it must not, and the simulator: reason and words.

use super::held::HeldEnding;
use super::plays::{self, Does, Ending, Play, Shape};
use super::{Timing, play_out};
use crate::guest::catalogue::Verdict;
use anyhow::{Context, Result};
use schedlab_scheduler::registry;
use schedlab_scheduler::sched_ext::{self, Btf};
use std::path::Path;
use std::sync::Arc;

/// What the simulator plays meanwhile: any task will do.
const PLAY: Play = Play {
    calls: false,
    name: "fault",
    shapes: &[Shape::One],
    seconds: 4,
    actors: &[plays::actor("c_a", Does::Hog), plays::actor("c_b", Does::Hog)],
};

/// Judges all faults.
pub(super) fn judge(
    folder: &Path,
    kernel: &Arc<Btf>,
    shape: Shape,
) -> Result<Vec<(Verdict, HeldEnding)>> {
    let path = folder.join(format!("{}.bpf.o", plays::FAULTS));
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    sched_ext::provide(plays::FAULTS, &bytes, kernel)?;
    plays::endings(shape).map(|ending| one(folder, ending, shape)).collect()
}

fn one(folder: &Path, ending: &Ending, shape: Shape) -> Result<(Verdict, HeldEnding)> {
    let Ending { set, what, .. } = ending;
    let path = folder.join(format!("{}.{set}.dmesg", plays::FAULTS));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let kernel = of_kernel(&text);
    let spec = format!("bpf:{}?{set}", plays::FAULTS).parse()?;
    let scheduler = registry::build(&spec, shape.cpus())?;
    let played = play_out(&*scheduler, &PLAY, (shape, Timing::Guest, 1), &mut Vec::new());
    let simulator = played.err().and_then(|error| of_simulator(&format!("{error:#}")));
    let good = kernel.is_some() && kernel == simulator;
    let words = |ending: Option<(String, String)>| {
        ending.map_or_else(|| "it goes on".to_owned(), |(why, text)| format!("{why}: {text}"))
    };
    let (kernel, simulator) = (words(kernel), words(simulator));
    let text = match good {
        true => format!("{what} on {} ends it as in the kernel: {kernel}", shape.word()),
        false => format!("{what}: kernel: {kernel}; simulator: {simulator}"),
    };
    println!("{text}");
    Ok((Verdict { good, text }, HeldEnding { what: (*what).to_owned(), kernel, simulator }))
}

/// Reason and words of the kernel's log.
fn of_kernel(log: &str) -> Option<(String, String)> {
    let (_, rest) = log.split_once(" disabled (")?;
    let (reason, after) = rest.split_once(')')?;
    let begin = format!("sched_ext: {}: ", plays::FAULTS);
    let words = after.lines().find_map(|line| line.split_once(&*begin).map(|(_, words)| words));
    Some((reason.to_owned(), plain(words.unwrap_or_default())))
}

/// The same of the simulator's error.
fn of_simulator(error: &str) -> Option<(String, String)> {
    let (_, rest) = error.split_once(" disabled (")?;
    let (reason, words) = rest.split_once("): ")?;
    Some((reason.to_owned(), plain(words)))
}

/// Words without what no two runs have in common: the name and number of a task, and times.
fn plain(words: &str) -> String {
    let one = |word: &str| match word {
        word if word.ends_with(']') && word.contains('[') => "TASK".to_owned(),
        word if word.ends_with('s') && word.starts_with(|c: char| c.is_ascii_digit()) => {
            "TIME".to_owned()
        }
        word => word.to_owned(),
    };
    words.split_whitespace().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_compared_by_reason_and_words() {
        let log = "[    3.1] sched_ext: BPF scheduler \"faults\" enabled\n\
                   [    4.5] sched_ext: BPF scheduler \"faults\" disabled (runnable task stall)\n\
                   [    4.5] sched_ext: faults: kworker/0:1[37] failed to run for 1.210s\n";
        let kernel = of_kernel(log);
        let error = "at 1s: sched_ext: BPF scheduler \"faults\" disabled (runnable task stall): \
                     c_a[1000] failed to run for 1.000s";
        assert_eq!(kernel, of_simulator(error));
        let said = ("runnable task stall".to_owned(), "TASK failed to run for TIME".to_owned());
        assert_eq!(kernel, Some(said));
        assert_eq!(of_kernel("nothing"), None);
    }
}
