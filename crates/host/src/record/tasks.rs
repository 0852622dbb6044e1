//! From thread ids to [`TaskId`]s, with the facts of each task.

use super::RecordFilter;
use super::kept::KeptTasks;
use super::raw::{Comm, comm_text};
use crate::HostError;
use crate::cgroup::{Groups, find_group};
use crate::facts::{FactSource, TaskFacts};
use crate::{proc, vcpus};
use schedlab_model::text::is_in_group;
use schedlab_model::{CpuSet, GroupId, Nice, Ns, Policy, TaskId};
use std::collections::{HashMap, VecDeque};

/// Found several times for each event: the standard library's hash is a fifth of the recorder's CPU
/// time.
type Table<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// Every task met so far.
pub(crate) struct Tasks {
    groups: Groups,
    default_slice: Option<u64>,
    /// /proc speaks of the same thread ids as the events.
    ask: bool,
    /// Events of the past: what was known of their tasks then.
    known: Option<KeptTasks>,
    by_tid: Table<u32, TaskId>,
    /// Those that live, and those that ended a moment ago.
    all: Table<TaskId, Known>,
    next: u32,
    /// Tasks that ended (or whose thread id another one has now), and when that was learnt.
    ended: VecDeque<(TaskId, Ns)>,
    /// Tasks whose facts the sink has not seen in this form, in the order of their change.
    dirty: Vec<TaskId>,
    keep: Keep,
}

/// Whose events are kept, where the kernel's side does not choose.
enum Keep {
    All,
    /// Sorted.
    Processes(Vec<u32>),
    Below(String),
}

struct Known {
    facts: TaskFacts,
    comm: Comm,
    dirty: bool,
    kept: bool,
}

/// What an event says about a thread that is met for the first time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    pub(crate) comm: Comm,
    pub(crate) priority: Option<i32>,
    pub(crate) parent: Option<TaskId>,
}

impl Tasks {
    pub(crate) fn new(ask: bool) -> Tasks {
        Tasks {
            groups: Groups::new(),
            default_slice: proc::default_slice(),
            ask,
            known: None,
            by_tid: Table::default(),
            all: Table::default(),
            next: 0,
            ended: VecDeque::new(),
            dirty: Vec::new(),
            keep: Keep::All,
        }
    }

    /// For events of the past: /proc is not asked.
    pub(crate) fn known(tasks: KeptTasks) -> Tasks {
        Tasks { known: Some(tasks), ..Tasks::new(false) }
    }

    /// Keeps only these from now on.
    pub(crate) fn keep_only(&mut self, filter: &RecordFilter) -> Result<(), HostError> {
        self.keep = match filter {
            RecordFilter::All => Keep::All,
            RecordFilter::Processes(list) => {
                let mut list = list.clone();
                list.sort_unstable();
                Keep::Processes(list)
            }
            RecordFilter::Group(path) => Keep::Below(find_group(path)?.path_of_cpu_controller()?),
        };
        Ok(())
    }

    /// Whether a task is left out.
    pub(crate) fn filters(&self) -> bool {
        !matches!(self.keep, Keep::All)
    }

    /// Whether this task's events are kept.
    pub(crate) fn kept(&self, id: TaskId) -> bool {
        self.all.get(&id).is_some_and(|known| known.kept)
    }

    fn is_kept(&self, facts: &TaskFacts, parent: Option<TaskId>) -> bool {
        match &self.keep {
            Keep::All => true,
            Keep::Processes(list) => {
                list.binary_search(&facts.process).is_ok()
                    || parent.is_some_and(|parent| self.kept(parent))
            }
            Keep::Below(path) => is_in_group(self.groups.path(facts.group), path),
        }
    }

    /// Takes stock of the threads that exist now.
    pub(crate) fn scan(&mut self, only: Option<&[u32]>) {
        if self.ask {
            for (_, tid) in proc::threads(only) {
                self.find_or_add(tid, Hint::default());
            }
        }
    }

    /// The task with this thread id; a new one when it was never seen. 0, the idle task, is `None`.
    pub(crate) fn find_or_add(&mut self, tid: u32, hint: Hint) -> Option<TaskId> {
        if tid == 0 {
            return None;
        }
        match self.by_tid.get(&tid) {
            Some(&id) => Some(id),
            None => Some(self.add(tid, hint, false)),
        }
    }

    /// A task that was just created: its thread id may have belonged to another one before.
    pub(crate) fn created(&mut self, tid: u32, hint: Hint) -> TaskId {
        self.add(tid, hint, true)
    }

    /// Notes the name that an event carries (all zero: it carries none).
    pub(crate) fn named(&mut self, id: TaskId, comm: &Comm) {
        if comm[0] == 0 {
            return;
        }
        let Some(known) = self.all.get_mut(&id) else { return };
        if known.comm != *comm {
            known.comm = *comm;
            known.facts.comm = comm_text(comm);
            self.touch(id);
        }
    }

    /// Reads the group again; `Some` when it has changed.
    pub(crate) fn regroup(&mut self, id: TaskId) -> Option<GroupId> {
        let facts = &self.all.get(&id)?.facts;
        if let Some(known) = &mut self.known {
            return known.next_group(facts.tid);
        }
        let group = if self.ask { self.groups.of_thread(facts.tid) } else { facts.group };
        if group == facts.group {
            return None;
        }
        let facts = TaskFacts { group, ..facts.clone() };
        let kept =
            self.is_kept(&facts, None) || matches!(self.keep, Keep::Processes(_)) && self.kept(id);
        let known = self.all.get_mut(&id)?;
        (known.facts, known.kept) = (facts, kept);
        self.touch(id);
        Some(group)
    }

    /// Reads policy, nice value and affinity of a thread again that is known already.
    pub(crate) fn look_again(&mut self, tid: u32) {
        let Some(&id) = self.by_tid.get(&tid).filter(|_| self.ask) else { return };
        let Some(now) = proc::task(id, tid, &mut self.groups, self.default_slice) else { return };
        let Some(known) = self.all.get_mut(&id) else { return };
        let TaskFacts { policy, ext, nice, affinity, .. } = now;
        known.facts = TaskFacts { policy, ext, nice, affinity, ..known.facts.clone() };
        self.touch(id);
    }

    /// Notes which threads run virtual CPUs of KVM guests, as far as they show it now.
    pub(crate) fn find_vcpus(&mut self, only: Option<&[u32]>) {
        if !self.ask {
            return;
        }
        for tid in vcpus::find(only) {
            let Some(&id) = self.by_tid.get(&tid) else { continue };
            if let Some(known) = self.all.get_mut(&id).filter(|known| !known.facts.vcpu) {
                known.facts.vcpu = true;
                self.touch(id);
            }
        }
    }

    /// Represents all tasks that an own-tasks recording cannot see on CPU `cpu`.
    pub(crate) fn stand_in(&mut self, cpu: u32) -> TaskId {
        let id = TaskId(self.next);
        let mut facts = bare(id, 0);
        facts.comm = format!("others/{cpu}");
        facts.stand_in = true;
        self.push(facts, true)
    }

    /// Facts that are new or have changed since the last call, each task once.
    pub(crate) fn fresh(&mut self) -> Vec<TaskFacts> {
        let ids = std::mem::take(&mut self.dirty);
        ids.into_iter()
            .filter_map(|id| {
                let known = self.all.get_mut(&id)?;
                known.dirty = false;
                Some(known.facts.clone())
            })
            .collect()
    }

    /// Groups that are new since the last call.
    pub(crate) fn fresh_groups(&mut self) -> &[crate::facts::GroupFacts] {
        // Those of the past were told before.
        if self.known.is_some() { &[] } else { self.groups.fresh() }
    }

    /// Whether anything is to be told before the next event.
    pub(crate) fn has_fresh(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Notes that a task ended at `at`, which is the time of the recording.
    pub(crate) fn ended(&mut self, id: TaskId, at: Ns) {
        self.ended.push_back((id, at));
    }

    /// Forgets the tasks that ended more than [`AFTER_THE_END`] before `now`: a long recording
    /// meets any number.
    pub(crate) fn forget(&mut self, now: Ns) {
        while let Some(&(id, at)) = self.ended.front() {
            if at.saturating_add(AFTER_THE_END) > now {
                break;
            }
            self.ended.pop_front();
            if let Some(known) = self.all.remove(&id)
                && self.by_tid.get(&known.facts.tid) == Some(&id)
            {
                self.by_tid.remove(&known.facts.tid);
            }
        }
    }

    fn add(&mut self, tid: u32, hint: Hint, is_new: bool) -> TaskId {
        let id = TaskId(self.next);
        let asked = match &mut self.known {
            Some(known) => known.take(id, tid, is_new),
            None if self.ask => proc::task(id, tid, &mut self.groups, self.default_slice),
            None => None,
        };
        let mut facts = asked.unwrap_or_else(|| self.guess(id, tid, hint));
        if hint.comm[0] != 0 {
            facts.comm = comm_text(&hint.comm);
        }
        if let Some(before) = self.by_tid.insert(tid, id) {
            // Its end was not seen; no later event can mean it.
            self.ended.push_back((before, Ns::ZERO));
        }
        let kept = self.is_kept(&facts, hint.parent);
        self.push(facts, kept)
    }

    fn push(&mut self, facts: TaskFacts, kept: bool) -> TaskId {
        let id = facts.id;
        let mut comm = [0; 16];
        let length = facts.comm.len().min(15);
        comm[..length].copy_from_slice(&facts.comm.as_bytes()[..length]);
        self.all.insert(id, Known { facts, comm, dirty: true, kept });
        self.next += 1;
        self.dirty.push(id);
        id
    }

    fn touch(&mut self, id: TaskId) {
        if let Some(known) = self.all.get_mut(&id).filter(|known| !known.dirty) {
            known.dirty = true;
            self.dirty.push(id);
        }
    }

    /// For a thread that is gone already: what its parent had, else what its priority tells.
    fn guess(&self, id: TaskId, tid: u32, hint: Hint) -> TaskFacts {
        if let Some(parent) = hint.parent.and_then(|parent| self.all.get(&parent)) {
            return TaskFacts {
                id,
                tid,
                process: tid,
                process_name: None,
                vcpu: false,
                from: FactSource::Parent,
                ..parent.facts.clone()
            };
        }
        let (policy, nice) =
            hint.priority.map_or((Policy::Other, Nice::ZERO), proc::from_kernel_priority);
        TaskFacts { policy, nice, ..bare(id, tid) }
    }
}

/// A task's last switch follows its end, and other CPUs' rings may lag.
const AFTER_THE_END: Ns = Ns(2_000_000_000);

fn bare(id: TaskId, tid: u32) -> TaskFacts {
    TaskFacts {
        id,
        tid,
        process: 0,
        session: 0,
        comm: String::new(),
        process_name: None,
        policy: Policy::Other,
        nice: Nice::ZERO,
        affinity: CpuSet::ALL,
        slice: None,
        group: GroupId::ROOT,
        ext: false,
        kernel: false,
        vcpu: false,
        stand_in: false,
        from: FactSource::Events,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_id_used_twice_is_two_tasks() {
        let mut tasks = Tasks::new(false);
        let hint = |name: &[u8]| Hint {
            comm: super::super::tracepoints::comm_from(name),
            ..Hint::default()
        };
        let first = tasks.find_or_add(77, hint(b"make")).unwrap();
        assert_eq!(tasks.find_or_add(77, Hint::default()), Some(first));
        let second = tasks.created(77, hint(b"cc"));
        assert_ne!(first, second);
        assert_eq!(tasks.find_or_add(77, Hint::default()), Some(second));
        assert_eq!(tasks.find_or_add(0, Hint::default()), None);
        let names: Vec<_> = tasks.fresh().into_iter().map(|facts| facts.comm).collect();
        assert_eq!(names, ["make", "cc"]);
        tasks.named(second, b"cc1\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(tasks.fresh()[0].comm, "cc1");
        assert!(!tasks.has_fresh());
    }

    #[test]
    fn tasks_that_ended_are_forgotten() {
        let mut tasks = Tasks::new(false);
        let lives = tasks.find_or_add(1, Hint::default()).unwrap();
        for number in 0..10_000 {
            let at = Ns::from_ms(number);
            // Few thread ids, used again and again.
            let id = tasks.created(100 + number as u32 % 5000, Hint::default());
            tasks.ended(id, at);
            tasks.forget(at);
        }
        assert!(tasks.all.len() <= 2002 && tasks.by_tid.len() <= 2002, "{} tasks", tasks.all.len());
        assert_eq!(tasks.find_or_add(1, Hint::default()), Some(lives));
        tasks.fresh();
        assert_eq!(
            tasks.created(7, Hint::default()),
            TaskId(10_001),
            "numbers are never used again"
        );
    }

    #[test]
    fn a_child_that_is_gone_has_its_parents_facts() {
        let mut tasks = Tasks::new(false);
        let parent = tasks.find_or_add(5, Hint { priority: Some(130), ..Hint::default() });
        tasks.created(6, Hint { parent, ..Hint::default() });
        let facts = tasks.fresh();
        assert_eq!((facts[1].nice.get(), facts[1].from), (10, FactSource::Parent));
    }
}
