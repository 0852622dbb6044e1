//! What the recorder keeps while the kernel decides: packed records, and the tasks and groups that
//! they name. A copy of it becomes a recording in any thread, by the same way from records to
//! events as every other recording ([`Merger`]).

use super::bpf::Decoder;
use super::merge::Merger;
use super::pack::{Packs, lost_here};
use super::raw::RawEvent;
use super::tasks::Tasks;
use super::{CpuSource, RecordSink};
use crate::facts::{GroupFacts, TaskFacts};
use schedlab_model::{CpuId, GroupId, Ns, TaskId};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

/// A task's last switch follows its end.
const AFTER_THE_END: u64 = 10_000_000;

/// Records are turned into events for so much time at once.
const STEP: u64 = 100_000_000;

/// A task: what is known of it, and when that changed.
#[derive(Clone, Debug)]
pub(crate) struct KeptTask {
    facts: TaskFacts,
    /// When it was created, where that was seen; and when it ended.
    born: Option<u64>,
    ended: Option<u64>,
    /// When it came to which group.
    moved: VecDeque<(u64, GroupId)>,
    /// Whether an event has named it by now.
    named: bool,
}

/// The tasks that kept records name, by thread id, each in the order of their lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptTasks {
    lives: HashMap<u32, VecDeque<KeptTask>, foldhash::fast::FixedState>,
    /// The beginning of what is read: what is older was before it.
    begin: u64,
}

impl KeptTasks {
    fn last(&mut self, tid: u32) -> Option<&mut KeptTask> {
        self.lives.get_mut(&tid).and_then(VecDeque::back_mut)
    }

    /// Notes what is known of a task now.
    pub(crate) fn told(&mut self, facts: &TaskFacts, born: Option<u64>) {
        if let Some(known) = self.last(facts.tid).filter(|known| known.facts.id == facts.id) {
            known.facts.clone_from(facts);
            known.born = known.born.or(born);
            return;
        }
        let moved = VecDeque::new();
        let task = KeptTask { facts: facts.clone(), born, ended: None, moved, named: false };
        self.lives.entry(facts.tid).or_default().push_back(task);
    }

    pub(crate) fn ended(&mut self, tid: u32, at: u64) {
        if let Some(task) = self.last(tid) {
            task.ended = Some(at);
        }
    }

    pub(crate) fn moved(&mut self, tid: u32, at: u64, group: GroupId) {
        if let Some(task) = self.last(tid) {
            task.moved.push_back((at, group));
        }
    }

    /// Forgets what was before `begin`.
    pub(crate) fn begin_at(&mut self, begin: u64) {
        self.begin = begin;
        self.lives.retain(|_, lives| {
            let gone = |task: &KeptTask| task.ended.is_some_and(|at| at + AFTER_THE_END < begin);
            while lives.front().is_some_and(gone) {
                lives.pop_front();
            }
            for task in lives.iter_mut() {
                while task.moved.front().is_some_and(|&(at, _)| at < begin) {
                    task.moved.pop_front();
                }
            }
            !lives.is_empty()
        });
    }

    /// Returns the facts of the task with a thread id that is there when it is first named, or of
    /// the next one, which `is_new`.
    pub(crate) fn take(&mut self, id: TaskId, tid: u32, is_new: bool) -> Option<TaskFacts> {
        let begin = self.begin;
        let lives = self.lives.get_mut(&tid)?;
        let before = |task: &KeptTask| task.named || task.born.is_none_or(|born| born < begin);
        while is_new && lives.front().is_some_and(before) {
            lives.pop_front();
        }
        let task = lives.front_mut()?;
        task.named = true;
        Some(TaskFacts { id, ..task.facts.clone() })
    }

    /// Takes the next group to which a thread came.
    pub(crate) fn next_group(&mut self, tid: u32) -> Option<GroupId> {
        self.lives.get_mut(&tid)?.front_mut()?.moved.pop_front().map(|(_, group)| group)
    }
}

/// Time that a hypervisor took: when it was seen, where, how much.
pub(crate) type Stolen = (u64, CpuId, Ns);

/// A copy of what the recorder keeps.
#[derive(Clone, Debug)]
pub struct KeptEvents {
    pub(crate) origin: u64,
    pub(crate) end: u64,
    /// By CPU.
    pub(crate) packs: Vec<Packs>,
    pub(crate) tasks: KeptTasks,
    pub(crate) groups: Vec<GroupFacts>,
    pub(crate) stolen: Vec<Stolen>,
    /// Whether memory was too small for all that was to be kept.
    pub(crate) short: bool,
}

impl KeptEvents {
    /// Whether memory was too small for all that was to be kept.
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// Hands out the groups, and then tasks and events as [`record`](super::record()) does, in the
    /// same time. `flush` of the sink is called again and again.
    ///
    /// # Errors
    /// As the sink's `flush` says.
    pub fn replay(mut self, sink: &mut dyn RecordSink) -> io::Result<()> {
        let first = self.packs.iter().filter_map(|packs| packs.front()).map(|pack| pack.first());
        let Some(begin) = first.min() else { return Ok(()) };
        self.groups.iter().for_each(|group| sink.group(group));
        self.tasks.begin_at(begin);
        let cpus = self.packs.len();
        let until = Rc::new(Cell::new(begin));
        let source = |(cpu, packs): (usize, Packs)| {
            let source: Box<dyn CpuSource> = Box::new(PackSource {
                packs,
                until: Rc::clone(&until),
                decoder: Decoder::default(),
            });
            (CpuId::from(cpu), source)
        };
        let mut sources: Vec<_> = self.packs.into_iter().enumerate().map(source).collect();
        let mut merger = Merger::new(self.origin, cpus, Tasks::known(self.tasks), false);
        let mut stolen = self.stolen.into_iter().peekable();
        loop {
            let horizon = until.get().saturating_add(STEP).min(self.end);
            until.set(horizon);
            while let Some((at, cpu, ns)) = stolen.next_if(|(at, ..)| *at <= horizon) {
                if at >= begin {
                    merger.replay(&mut sources, at, sink);
                    merger.stolen_at(at, cpu, ns, sink);
                }
            }
            merger.replay(&mut sources, horizon, sink);
            sink.flush()?;
            if horizon >= self.end {
                return Ok(());
            }
        }
    }
}

/// The packs of one CPU, as far as they begin before a time.
struct PackSource {
    packs: Packs,
    until: Rc<Cell<u64>>,
    decoder: Decoder,
}

impl CpuSource for PackSource {
    fn enable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn disable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn drain(&mut self, out: &mut VecDeque<RawEvent>) {
        let until = self.until.get();
        while let Some(pack) = self.packs.pop_front_if(|pack| pack.first() <= until) {
            pack.unpack(|words| {
                if let Some(count) = lost_here(words) {
                    let RawEvent { kind, .. } = self.decoder.lost(count);
                    return out.push_back(RawEvent { at: words[0], kind });
                }
                for event in self.decoder.before(words) {
                    out.extend(event);
                }
                out.extend(self.decoder.record(words));
            });
        }
    }

    fn ring_bytes(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactSource;
    use crate::record::pack::Packer;
    use schedlab_model::{CpuSet, EventKind, EventSink, Nice, Policy, SchedEvent};
    use std::sync::Arc;

    fn facts(id: u32, tid: u32, comm: &str) -> TaskFacts {
        TaskFacts {
            id: TaskId(id),
            tid,
            process: tid,
            session: 0,
            comm: comm.to_owned(),
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
            from: FactSource::Kernel,
        }
    }

    /// What a sink hears, in words.
    #[derive(Default)]
    struct Heard(Vec<String>);

    impl EventSink for Heard {
        fn event(&mut self, event: &SchedEvent) {
            let what = match event.kind {
                EventKind::Switch { next: Some(next), .. } => format!("switch to {}", next.0),
                EventKind::Wake { task, .. } => format!("wake {}", task.0),
                EventKind::Steal { ns } => format!("stolen {}", ns.0),
                EventKind::Lost { count } => format!("lost {count}"),
                other => format!("{other:?}"),
            };
            self.0.push(format!("{} {} {what}", event.at.0, event.cpu.index()));
        }
    }

    impl RecordSink for Heard {
        fn group(&mut self, group: &GroupFacts) {
            self.0.push(format!("group {}", group.path));
        }
        fn task(&mut self, task: &TaskFacts) {
            self.0.push(format!("task {} {}", task.id.0, task.comm));
        }
    }

    /// Two CPUs; the events of both come in the order of time, each after what it names.
    #[test]
    fn what_is_kept_becomes_events_in_the_order_of_time() {
        let record = |at: u64, kind: u64, a: u64, b: u64| [at, a | b << 32, kind << 48, 0];
        let pack = |records: &[[u64; 4]], lost: u64| {
            let mut packer = Packer::new();
            records.iter().for_each(|words| assert!(packer.push(*words).is_none()));
            if lost > 0 {
                packer.lost(lost);
            }
            Packs::from([Arc::new(packer.close().expect("records"))])
        };
        const SECOND: u64 = 1_000_000_000;
        let mut tasks = KeptTasks::default();
        tasks.told(&facts(10, 7, "redis"), None);
        tasks.told(&facts(11, 8, "batch"), None);
        let root = GroupFacts {
            id: GroupId::ROOT,
            path: "/".to_owned(),
            parent: None,
            weight: None,
            idle: false,
            bandwidth: None,
            rt_runtime_us: None,
            autogroup_nice: None,
            leader: None,
        };
        let kept = KeptEvents {
            origin: SECOND,
            end: 3 * SECOND,
            packs: vec![
                pack(&[record(SECOND + 100, 2, 7, 8), record(2 * SECOND, 1, 8, 7)], 5),
                pack(&[record(SECOND + 200, 1, 0, 8), record(3 * SECOND + 1, 2, 7, 8)], 0),
            ],
            tasks,
            groups: vec![root],
            stolen: vec![(SECOND + SECOND / 2, CpuId(1), Ns(77))],
            short: false,
        };
        let mut heard = Heard::default();
        kept.replay(&mut heard).unwrap();
        assert_eq!(
            heard.0,
            [
                "group /",
                "task 0 redis",
                "100 0 wake 0",
                "task 1 batch",
                "200 1 switch to 1",
                "500000000 1 stolen 77",
                "1000000000 0 switch to 0",
                "1000000000 0 lost 5",
            ]
        );
    }

    /// One thread id, three tasks: the first ended before what is read, the second was there when
    /// it began, the third was created in it.
    #[test]
    fn a_thread_id_names_the_task_that_had_it_then() {
        let mut tasks = KeptTasks::default();
        tasks.told(&facts(0, 7, "gone"), Some(10_000_000));
        tasks.ended(7, 20_000_000);
        tasks.told(&facts(1, 7, "early"), Some(30_000_000));
        tasks.told(&facts(1, 7, "renamed"), None);
        tasks.moved(7, 40_000_000, GroupId(3));
        tasks.moved(7, 200_000_000, GroupId(4));
        tasks.ended(7, 250_000_000);
        tasks.told(&facts(2, 7, "late"), Some(300_000_000));
        let mut seen = tasks.clone();
        seen.begin_at(100_000_000);
        let name = |facts: Option<TaskFacts>| facts.map(|facts| facts.comm);
        assert_eq!(name(seen.take(TaskId(0), 7, false)).as_deref(), Some("renamed"));
        assert_eq!((seen.next_group(7), seen.next_group(7)), (Some(GroupId(4)), None));
        assert_eq!(name(seen.take(TaskId(1), 7, true)).as_deref(), Some("late"));
        assert_eq!(name(seen.take(TaskId(2), 7, true)), None, "no task is left");
        // The second is named by no event of this time.
        tasks.begin_at(260_000_000);
        assert_eq!(name(tasks.take(TaskId(0), 7, true)).as_deref(), Some("late"));
        tasks.begin_at(270_000_000);
        assert_eq!(name(tasks.take(TaskId(0), 8, false)), None);
    }
}
