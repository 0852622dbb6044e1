//! Signs of what facts cannot show: tasks that run and run, and exchange nothing.

use crate::Recording;
use crate::analysis::follow::{Followed, Listener, Span, ThreadState};
use crate::analysis::{Keys, Scope};
use schedlab_model::{FactKind, Ns};
use std::collections::BTreeSet;

/// Run time of each task, and whether it was ever blocked.
struct Busy {
    run: Vec<Ns>,
    blocked: Vec<bool>,
}

impl Listener for Busy {
    fn span(&mut self, span: &Span) {
        let task = span.task.index();
        match span.state {
            ThreadState::Running => self.run[task] = self.run[task].saturating_add(span.length()),
            ThreadState::Sleeping
            | ThreadState::DiskSleep
            | ThreadState::Blocked
            | ThreadState::Stopped => {
                self.blocked[task] = true;
            }
            _ => {}
        }
    }
}

/// Returns the lines of tasks that had a CPU for more than half of the window, were never blocked
/// and have no fact but that they lost a CPU: they compute, or spin on memory that others write.
pub(super) fn silent(recording: &Recording, scope: &Scope, keys: &Keys) -> BTreeSet<usize> {
    let tasks = recording.header.tasks.len();
    let busy = Busy { run: vec![Ns::ZERO; tasks], blocked: vec![false; tasks] };
    let mut busy = Followed::over(recording, scope, busy);
    for fact in &recording.facts.list {
        if let Some(task) = fact.task.filter(|_| !matches!(fact.kind, FactKind::Preempted { .. })) {
            busy.blocked[task.index()] = true;
        }
    }
    let window = scope.end(recording);
    let silent = |task: &usize| !busy.blocked[*task] && busy.run[*task].0 > window.0 / 2;
    (0..tasks).filter(silent).map(|task| keys.line(task.into())).collect()
}
