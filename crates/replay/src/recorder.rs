//! The recorder's own threads. What they do follows from how much is recorded: each time that one
//! wakes it takes what was told since it slept. So its work is no property of its own, but of what
//! the other tasks do, and a setting that makes a server answer more gives the recorder more to do.

use crate::facts::{Facts, Kind, Operation};
use crate::lives::Lives;
use schedlab_model::{Act, EventKind, Ns, OwnThread, Step, TaskId};
use schedlab_trace::Recording;
use std::collections::BTreeMap;

/// Returns by thread of the recorder what it does before each of its sleeps: its CPU time there in
/// all, for all that was told meanwhile. The simulation takes of it the part that belongs to what
/// it tells.
pub(crate) fn drains(
    facts: &Facts,
    lives: &Lives,
    recording: &Recording,
) -> BTreeMap<TaskId, Step> {
    let of = |(number, task): (usize, &schedlab_trace::TaskInfo)| {
        let own = &facts.tasks[number].operations;
        let id = TaskId::from(number);
        if task.comm != OwnThread::PROGRAM || lives.serves(id) {
            return None;
        }
        let first = own.iter().find(|done| drains_before(done))?.began;
        let last = own.iter().rfind(|done| drains_before(done))?.at;
        let cost: Ns = own.iter().filter(|done| drains_before(done)).map(|done| done.before).sum();
        let records = told(facts, lives, recording, (first, last));
        let step = Step::new(Ns::ZERO, Act::Drain { records }, cost);
        (records > 0).then_some((id, step))
    };
    recording.header.tasks.iter().enumerate().filter_map(of).collect()
}

/// Returns whether a thread of the recorder takes what was told, and then does this: it sleeps on
/// its timer.
pub(crate) fn drains_before(operation: &Operation) -> bool {
    matches!(operation.kind, Kind::Sleep(_)) && operation.slept.is_some()
}

/// Returns how many events and facts were recorded after the first time and up to the second, of
/// those that a simulation tells.
fn told(facts: &Facts, lives: &Lives, recording: &Recording, (from, to): (Ns, Ns)) -> u64 {
    let within = |at: Ns| from < at && at <= to;
    let events = recording.events.iter().filter(|event| {
        within(event.at) && matches!(event.kind, EventKind::Switch { .. } | EventKind::Wake { .. })
    });
    let operations = facts.tasks.iter().enumerate().flat_map(|(number, task)| {
        let serves = lives.serves(number.into());
        task.operations.iter().filter(move |done| within(done.at) && is_told(done, serves))
    });
    (events.count() + operations.count()) as u64
}

/// Returns whether a simulation tells the operation; `serves`: of a thread of an executor.
fn is_told(operation: &Operation, serves: bool) -> bool {
    match operation.kind {
        Kind::Select { .. } => serves,
        Kind::Sleep(_) => operation.slept.is_some(),
        Kind::Nothing(_) | Kind::Unknown | Kind::Spawn(_) | Kind::Silent => false,
        _ => true,
    }
}
