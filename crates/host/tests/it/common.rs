//! What the tests that record this machine share: what was recorded, and what a machine that allows
//! none of it gets.
#![allow(clippy::print_stderr, reason = "what is skipped says so by name")]

use schedlab_host::{GroupFacts, HostError, RecordSink, RecordStart, TaskFacts};
use schedlab_model::{EventSink, SchedEvent, TaskId};
use std::collections::BTreeMap;

/// Thread ids by the recorder's own numbers.
pub(crate) type Tids = BTreeMap<TaskId, u32>;

/// What a recorder told, with `look` at each event as it comes.
pub(crate) struct Kept<F> {
    pub(crate) start: Option<RecordStart>,
    pub(crate) tasks: BTreeMap<TaskId, TaskFacts>,
    pub(crate) tids: Tids,
    pub(crate) groups: usize,
    pub(crate) events: Vec<SchedEvent>,
    look: F,
}

/// All that is told, and no more.
pub(crate) fn kept() -> Kept<fn(&SchedEvent, &Tids)> {
    looking(|_, _| ())
}

/// All that is told, and `look` is called with each event and the thread ids known by then.
pub(crate) fn looking<F: FnMut(&SchedEvent, &Tids)>(look: F) -> Kept<F> {
    let (tasks, tids) = (BTreeMap::new(), Tids::new());
    Kept { start: None, tasks, tids, groups: 0, events: Vec::new(), look }
}

impl<F: FnMut(&SchedEvent, &Tids)> EventSink for Kept<F> {
    fn event(&mut self, event: &SchedEvent) {
        self.events.push(*event);
        (self.look)(event, &self.tids);
    }
}

impl<F: FnMut(&SchedEvent, &Tids)> RecordSink for Kept<F> {
    fn start(&mut self, start: &RecordStart) -> std::io::Result<()> {
        assert!(self.start.is_none() && self.events.is_empty(), "it comes first, once");
        self.start = Some(start.clone());
        Ok(())
    }
    fn group(&mut self, group: &GroupFacts) {
        assert_eq!(group.id.index(), self.groups, "groups come in order");
        assert!(group.parent.is_none_or(|parent| parent < group.id));
        self.groups += 1;
    }
    fn task(&mut self, task: &TaskFacts) {
        assert!(task.group.index() < self.groups, "the group of {} comes first", task.comm);
        self.tids.insert(task.id, task.tid);
        self.tasks.insert(task.id, task.clone());
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<F> Kept<F> {
    /// When the recording's clock was 0, on CLOCK_MONOTONIC.
    pub(crate) fn origin(&self) -> u64 {
        self.start.as_ref().expect("it began").monotonic_ns
    }

    /// The facts of the thread with this number.
    pub(crate) fn of_tid(&self, tid: u32) -> Option<&TaskFacts> {
        self.tasks.values().find(|task| task.tid == tid)
    }
}

/// Says by name why a test cannot run; in CI as root it must.
pub(crate) fn skip(test: &str, why: &str) {
    let root = rustix::process::geteuid().is_root();
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!(ci && root), "{test} must run here: {why}");
    eprintln!("SKIPPED {test}: {why}");
}

/// What a recording gave, or `None` (said by name) when this machine does not allow it.
pub(crate) fn allowed<T>(test: &str, recorded: Result<T, HostError>) -> Option<T> {
    match recorded {
        Ok(recorded) => Some(recorded),
        Err(error @ (HostError::NoBackend { .. } | HostError::Backend { .. })) => {
            skip(test, &error.to_string());
            None
        }
        Err(error) => panic!("{test}: {error}"),
    }
}

/// The number of the calling thread.
pub(crate) fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// CLOCK_MONOTONIC in ns, which is the recorders' clock.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// From now on the calling thread runs there only.
pub(crate) fn pin_to(cpu: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only).expect("the CPU is online");
}
