//! Which tasks ran on which CPU, window by window: of a recording, and of its replay.

use anyhow::Result;
use schedlab_model::{EventKind, EventSink, Ns, SchedEvent, TaskId};
use schedlab_study::compare::RecordedInput;
use schedlab_trace::Recording;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Tasks with less of a CPU than this within a window are left out.
const MATTERS: f64 = 0.03;
/// Width of a CPU's column.
const WIDTH: usize = 36;

/// Time on each CPU by window and task.
struct Places {
    window: Ns,
    running: Vec<(Option<TaskId>, Ns)>,
    ran: BTreeMap<(u64, usize, TaskId), Ns>,
}

impl Places {
    fn new(cpus: usize, window: Ns) -> Places {
        Places { window, running: vec![(None, Ns::ZERO); cpus], ran: BTreeMap::new() }
    }

    /// Lays the time since `from` to the windows that it is in.
    fn add(&mut self, cpu: usize, task: TaskId, mut from: Ns, to: Ns) {
        while from < to {
            let window = from.0 / self.window.0;
            let end = to.min(Ns((window + 1) * self.window.0));
            *self.ran.entry((window, cpu, task)).or_default() += end - from;
            from = end;
        }
    }

    fn show(&self, names: &[&str]) -> String {
        let mut text = String::new();
        let last = self.ran.keys().map(|key| key.0).max().unwrap_or(0);
        for window in 0..=last {
            let _ = write!(text, "{:6.2} s", (window * self.window.0) as f64 / 1e9);
            for cpu in 0..self.running.len() {
                let first = (window, cpu, TaskId(0));
                let mut tasks: Vec<(f64, &str)> = (self
                    .ran
                    .range(first..=(window, cpu, TaskId(u32::MAX))))
                .map(|((.., task), ran)| (ran.0 as f64 / self.window.0 as f64, names[task.index()]))
                .filter(|(part, _)| *part >= MATTERS)
                .collect();
                tasks.sort_by(|a, b| b.0.total_cmp(&a.0));
                let shown: Vec<String> = tasks
                    .iter()
                    .map(|(part, name)| format!("{name} {:.0}", part * 100.0))
                    .collect();
                let _ = write!(text, " | {:WIDTH$.WIDTH$}", shown.join(", "));
            }
            text = text.trim_end().to_owned() + "\n";
        }
        text
    }
}

impl EventSink for Places {
    fn event(&mut self, event: &SchedEvent) {
        let EventKind::Switch { next, .. } = event.kind else { return };
        let cpu = event.cpu.index();
        if let (Some(task), since) = std::mem::replace(&mut self.running[cpu], (next, event.at)) {
            self.add(cpu, task, since, event.at);
        }
    }
}

/// Returns the percentages of each CPU that tasks had in the recording and in the replay with
/// `seed`.
pub(super) fn show(path: &Path, seed: u64, window: Ns) -> Result<String> {
    let recording = Recording::open(path)?;
    let input = RecordedInput::open(path)?;
    let cpus = recording.header.topology.cpus();
    let names: Vec<&str> = recording.header.tasks.iter().map(|task| task.comm.as_str()).collect();
    let (mut was, mut is) = (Places::new(cpus, window), Places::new(cpus, window));
    recording.events.iter().for_each(|event| was.event(event));
    input.play(seed, &mut is)?;
    Ok(format!("recorded\n{}simulated, seed {seed}\n{}", was.show(&names), is.show(&names)))
}
