//! The k-way merge of the rings, and the way from raw events to [`SchedEvent`]s.

use super::bpf::OUTSIDE;
use super::limits::{Change, Class, Limits};
use super::messages::{Messages, RawFact};
use super::raw::{Comm, Context, RawEvent, RawKind};
use super::switches::UNKNOWN_PRIO;
use super::tasks::{Hint, Tasks};
use super::{CpuSource, RecordSink};
use crate::proc;
use rustix::time::ClockId;
use schedlab_model::{CpuId, EventKind, Fact, FactKind, Ns, PrevState, SchedEvent, TaskId, Waker};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// No name came with it.
const NONE: Comm = [0; 16];

pub(crate) struct Merger {
    /// CLOCK_MONOTONIC of event time 0; what is older is not handed out.
    origin: u64,
    queues: Vec<VecDeque<RawEvent>>,
    facts_of: Vec<VecDeque<RawFact>>,
    messages: Messages,
    tasks: Tasks,
    /// The tasks that represent those that are not recorded, per CPU, where not every task is.
    stand_ins: Vec<Option<TaskId>>,
    /// Own-tasks recording: who runs. (A task that exits leaves no "out" record.)
    running: Vec<Option<TaskId>>,
    limits: Limits,
    steal: Vec<(CpuId, u64)>,
    last: Ns,
    pub(crate) events: u64,
    pub(crate) lost: u64,
    pub(crate) facts: u64,
    pub(crate) facts_lost: u64,
    pub(crate) stolen: Ns,
}

/// Most events for which a queue has touched memory at the beginning, for one CPU and for all.
const TOUCHED: (usize, usize) = (8192, 1 << 19);

/// Empty queues whose memory is there: a page fault in the middle of a recording may wait for the
/// memory lock.
fn touched_queues(cpus: usize) -> Vec<VecDeque<RawEvent>> {
    let each = TOUCHED.0.min(TOUCHED.1 / cpus.max(1));
    let nothing = RawEvent { at: 0, kind: RawKind::Lost { count: 0 } };
    let queue = || {
        let mut queue = VecDeque::from(vec![nothing; each]);
        queue.clear();
        queue
    };
    (0..cpus).map(|_| queue()).collect()
}

/// The times of the oldest entries of all rings that have one: on many CPUs a look at each of them
/// for every event would be most of the work.
struct Fronts(BinaryHeap<Reverse<(u64, usize)>>);

impl Fronts {
    fn of(times: impl Iterator<Item = Option<u64>>) -> Fronts {
        let front = |(cpu, at): (usize, Option<u64>)| Some(Reverse((at?, cpu)));
        Fronts(times.enumerate().filter_map(front).collect())
    }

    /// Returns the time and the CPU of the oldest entry that is not later than `horizon`; of
    /// several, the first CPU's.
    fn oldest(&self, horizon: u64) -> Option<(u64, usize)> {
        self.0.peek().map(|Reverse(front)| *front).filter(|(at, _)| *at <= horizon)
    }

    /// Notes that the oldest entry was taken, and the time of the one behind it.
    fn next(&mut self, at: Option<u64>) {
        let Some(mut oldest) = self.0.peek_mut() else { return };
        match at {
            Some(at) => oldest.0.0 = at,
            None => {
                PeekMut::pop(oldest);
            }
        }
    }
}

/// When a recording is over.
pub(crate) struct Over {
    /// CLOCK_MONOTONIC.
    pub(crate) at: u64,
    /// Stolen time of each CPU then.
    steal: Vec<(CpuId, u64)>,
}

impl Merger {
    pub(crate) fn new(origin: u64, cpus: usize, mut tasks: Tasks, stand_ins: bool) -> Merger {
        let stand_ins: Vec<_> =
            (0..cpus).map(|cpu| stand_ins.then(|| tasks.stand_in(cpu as u32))).collect();
        Merger {
            origin,
            queues: touched_queues(cpus),
            facts_of: (0..cpus).map(|_| VecDeque::new()).collect(),
            messages: Messages::new(origin),
            tasks,
            running: stand_ins.clone(),
            stand_ins,
            limits: Limits::default(),
            steal: proc::steal(),
            last: Ns::ZERO,
            events: 0,
            lost: 0,
            facts: 0,
            facts_lost: 0,
            stolen: Ns::ZERO,
        }
    }

    /// How many events wait for the next round.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// CLOCK_MONOTONIC of event time 0.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// The end of a recording of this length, or now: to be asked before anything is switched off.
    pub(crate) fn end_at(&self, duration: Option<Ns>) -> Over {
        let asked = duration.map_or(u64::MAX, |duration| self.origin.saturating_add(duration.0));
        Over { at: super::clock(ClockId::Monotonic).min(asked), steal: proc::steal() }
    }

    /// Notes which threads run virtual CPUs now; see [`Tasks::find_vcpus`].
    pub(crate) fn find_vcpus(&mut self, only: Option<&[u32]>) {
        self.tasks.find_vcpus(only);
    }

    /// Reads the facts of this thread again: they have changed since the stock was taken.
    pub(crate) fn look_again(&mut self, tid: u32) {
        self.tasks.look_again(tid);
    }

    /// Reads every ring and hands out the events up to `horizon` (CLOCK_MONOTONIC nanoseconds): the
    /// time at which the last round began, since every event before it was complete before this
    /// round.
    pub(crate) fn round(
        &mut self,
        sources: &mut [(CpuId, Box<dyn CpuSource>)],
        horizon: u64,
        sink: &mut dyn RecordSink,
    ) {
        self.drain(sources);
        self.hand_out_to(horizon, sink);
        self.report_steal(&proc::steal(), sink);
        self.tasks.forget(self.last);
        self.messages.forget(horizon);
    }

    /// Reads every ring a last time and hands out what happened before the end.
    pub(crate) fn finish(
        &mut self,
        sources: &mut [(CpuId, Box<dyn CpuSource>)],
        over: &Over,
        sink: &mut dyn RecordSink,
    ) {
        self.drain(sources);
        self.hand_out_to(over.at, sink);
        self.report_steal(&over.steal, sink);
    }

    /// Hands out what the sources hold up to `horizon`; they hold what was.
    pub(crate) fn replay(
        &mut self,
        sources: &mut [(CpuId, Box<dyn CpuSource>)],
        horizon: u64,
        sink: &mut dyn RecordSink,
    ) {
        self.drain(sources);
        self.hand_out_to(horizon, sink);
        self.tasks.forget(self.last);
    }

    /// Hands out that a hypervisor had taken `ns` of a CPU by then.
    pub(crate) fn stolen_at(&mut self, at: u64, cpu: CpuId, ns: Ns, sink: &mut dyn RecordSink) {
        let at = Ns(at.saturating_sub(self.origin)).max(self.last);
        self.emit(SchedEvent { at, cpu, kind: EventKind::Steal { ns } }, sink);
    }

    /// Facts first: what a fact names was told by an event before it, which is then read too.
    fn drain(&mut self, sources: &mut [(CpuId, Box<dyn CpuSource>)]) {
        for (cpu, source) in sources {
            source.drain_facts(&mut self.facts_of[cpu.index()]);
            source.drain(&mut self.queues[cpu.index()]);
        }
    }

    fn hand_out_to(&mut self, horizon: u64, sink: &mut dyn RecordSink) {
        let mut events =
            Fronts::of(self.queues.iter().map(|queue| queue.front().map(|one| one.at)));
        let mut facts =
            Fronts::of(self.facts_of.iter().map(|queue| queue.front().map(|one| one.at)));
        loop {
            let fact = facts.oldest(horizon);
            // At the same time the event comes first: a task is switched to before it does
            // anything.
            if let Some((_, cpu)) = events.oldest(fact.map_or(horizon, |(at, _)| at)) {
                let event = self.queues[cpu].pop_front();
                events.next(self.queues[cpu].front().map(|one| one.at));
                if let Some(event) = event.filter(|event| event.at >= self.origin) {
                    self.hand_out(CpuId::from(cpu), event, sink);
                }
            } else if let Some((_, cpu)) = fact {
                self.hand_out_fact(cpu, sink);
                facts.next(self.facts_of[cpu].front().map(|one| one.at));
            } else {
                return;
            }
        }
    }

    fn hand_out_fact(&mut self, cpu: usize, sink: &mut dyn RecordSink) {
        let Some(raw) = self.facts_of[cpu].pop_front().filter(|raw| raw.at >= self.origin) else {
            return;
        };
        let at = Ns(raw.at.saturating_sub(self.origin)).max(self.last);
        let Some(fact) = self.messages.fact(at, CpuId::from(cpu), &raw, &mut self.tasks) else {
            return;
        };
        self.tell_fresh(sink);
        if self.messages.has_fresh() {
            self.messages.fresh().iter().for_each(|(id, object)| sink.object(*id, object));
        }
        self.last = at;
        self.count_fact(&fact);
        sink.fact(&fact);
    }

    fn count_fact(&mut self, fact: &Fact) {
        match fact.kind {
            FactKind::Lost { count } => self.facts_lost += count,
            _ => self.facts += 1,
        }
    }

    fn hand_out(&mut self, cpu: CpuId, event: RawEvent, sink: &mut dyn RecordSink) {
        let at = Ns(event.at.saturating_sub(self.origin)).max(self.last);
        self.limits(at, cpu, event.kind, sink);
        let Some(kind) = self.translate(cpu, event.kind).and_then(|kind| self.wanted(cpu, kind))
        else {
            return;
        };
        self.emit(SchedEvent { at, cpu, kind }, sink);
    }

    /// What an event changes for tasks that a limit holds back; comes before it.
    fn limits(&mut self, at: Ns, cpu: CpuId, kind: RawKind, sink: &mut dyn RecordSink) {
        let changes = match kind {
            RawKind::Switch { next, next_prio, .. } => {
                let known = next != OUTSIDE && next_prio != UNKNOWN_PRIO;
                let class = if next == 0 {
                    Some(Class::Idle)
                } else {
                    known.then(|| Class::of_priority(next_prio))
                };
                self.limits.switch(cpu, next, class)
            }
            RawKind::Migrate { tid, .. } | RawKind::Exit { tid } if self.limits.forget(tid) => {
                vec![Change::Released(tid)]
            }
            _ => return,
        };
        for change in changes {
            let known = match change {
                Change::Held(tid) => self.task(tid, &NONE).map(|task| EventKind::Throttle { task }),
                Change::Released(tid) => {
                    self.task(tid, &NONE).map(|task| EventKind::Unthrottle { task })
                }
            };
            if let Some(kind) = known.and_then(|kind| self.wanted(cpu, kind)) {
                self.emit(SchedEvent { at, cpu, kind }, sink);
            }
        }
    }

    fn emit(&mut self, event: SchedEvent, sink: &mut dyn RecordSink) {
        self.tell_fresh(sink);
        self.last = event.at;
        self.events += 1;
        sink.event(&event);
    }

    fn tell_fresh(&mut self, sink: &mut dyn RecordSink) {
        if self.tasks.has_fresh() {
            let tasks = self.tasks.fresh();
            self.tasks.fresh_groups().iter().for_each(|group| sink.group(group));
            tasks.iter().for_each(|task| sink.task(task));
        }
    }

    fn report_steal(&mut self, now: &[(CpuId, u64)], sink: &mut dyn RecordSink) {
        for (&(cpu, after), &(before_cpu, before)) in now.iter().zip(&self.steal.clone()) {
            if cpu == before_cpu && after > before {
                let ns = Ns(after - before);
                self.stolen = self.stolen.saturating_add(ns);
                self.emit(SchedEvent { at: self.last, cpu, kind: EventKind::Steal { ns } }, sink);
            }
        }
        self.steal = now.to_vec();
    }

    /// What is left of an event when only some tasks are kept: as `on_switch` and the others of
    /// `bpf/sched.bpf.c` do it in the kernel.
    fn wanted(&self, cpu: CpuId, kind: EventKind) -> Option<EventKind> {
        if !self.tasks.filters() {
            return Some(kind);
        }
        let stand_in = self.stand_ins[cpu.index()];
        let known = |task: Option<TaskId>| match task {
            Some(task) if !self.tasks.kept(task) => stand_in,
            other => other,
        };
        match kind {
            EventKind::Switch { prev, prev_state, next } => {
                let (prev, next) = (known(prev), known(next));
                (prev != next).then_some(EventKind::Switch { prev, prev_state, next })
            }
            EventKind::Wake { task, .. }
            | EventKind::New { task, .. }
            | EventKind::Exec { task }
            | EventKind::Exit { task }
            | EventKind::Migrate { task, .. }
            | EventKind::Throttle { task }
            | EventKind::Unthrottle { task }
            | EventKind::SyscallEnter { task, .. }
            | EventKind::Regroup { task, .. } => self.tasks.kept(task).then_some(kind),
            _ => Some(kind),
        }
    }

    fn task(&mut self, tid: u32, comm: &Comm) -> Option<TaskId> {
        let id = self.tasks.find_or_add(tid, Hint { comm: *comm, ..Hint::default() })?;
        self.tasks.named(id, comm);
        Some(id)
    }

    fn translate(&mut self, cpu: CpuId, kind: RawKind) -> Option<EventKind> {
        Some(match kind {
            RawKind::Switch { prev, prev_comm, prev_state, next, next_comm, next_prio } => {
                let priority = (next_prio != UNKNOWN_PRIO).then_some(next_prio);
                let stand_in = self.stand_ins[cpu.index()];
                let prev = if prev == OUTSIDE { stand_in } else { self.task(prev, &prev_comm) };
                let next = if next == OUTSIDE {
                    stand_in
                } else {
                    self.tasks.find_or_add(next, Hint { comm: next_comm, priority, parent: None })
                };
                if let Some(next) = next.filter(|_| next != stand_in) {
                    self.tasks.named(next, &next_comm);
                }
                let prev_state = if prev.is_none() { PrevState::Runnable } else { prev_state };
                EventKind::Switch { prev, prev_state, next }
            }
            RawKind::Wake { tid, comm, context } => {
                let waker = self.waker(context);
                EventKind::Wake { task: self.task(tid, &comm)?, waker }
            }
            RawKind::New { tid, parent, comm } => {
                let parent = self.task(parent, &NONE);
                let task = self.tasks.created(tid, Hint { comm, priority: None, parent });
                EventKind::New { task, parent }
            }
            RawKind::Exec { tid } => EventKind::Exec { task: self.task(tid, &NONE)? },
            RawKind::Exit { tid } => {
                let task = self.task(tid, &NONE)?;
                self.tasks.ended(task, self.last);
                EventKind::Exit { task }
            }
            RawKind::Migrate { tid, from, to } => EventKind::Migrate {
                task: self.task(tid, &NONE)?,
                from: CpuId(from),
                to: CpuId(to),
            },
            RawKind::Regroup { tid } => {
                let task = self.task(tid, &NONE)?;
                EventKind::Regroup { task, group: self.tasks.regroup(task)? }
            }
            RawKind::Lost { count } => {
                self.lost += count;
                EventKind::Lost { count }
            }
            RawKind::Out { tid, state } => {
                let prev = self.task(tid, &NONE);
                let next = self.stand_ins[cpu.index()];
                self.running[cpu.index()] = next;
                EventKind::Switch { prev, prev_state: state, next }
            }
            RawKind::In { tid } => {
                let next = self.task(tid, &NONE);
                let prev = std::mem::replace(&mut self.running[cpu.index()], next);
                EventKind::Switch { prev, prev_state: PrevState::Unknown, next }
            }
            RawKind::Call { tid, number } => {
                EventKind::SyscallEnter { task: self.task(tid, &NONE)?, number }
            }
            RawKind::Held { tid } => self.held(tid, None)?,
            RawKind::Displaced { tid, class } => self.held(tid, Some((class, cpu)))?,
            RawKind::Comm { tid, comm } => {
                self.task(tid, &comm);
                return None;
            }
        })
    }

    /// A limit holds a task back: that of its control group, or the one for which it was displaced.
    fn held(&mut self, tid: u32, displaced: Option<(Class, CpuId)>) -> Option<EventKind> {
        let task = self.task(tid, &NONE)?;
        let news = match displaced {
            None => self.limits.hold(tid),
            Some((class, cpu)) => {
                self.limits.displace(tid, class, cpu);
                true
            }
        };
        news.then_some(EventKind::Throttle { task })
    }

    fn waker(&mut self, context: Context) -> Waker {
        let mut known = |tid, make: fn(TaskId) -> Waker| {
            self.tasks.find_or_add(tid, Hint::default()).map_or(Waker::Unknown, make)
        };
        match context {
            Context::Task(tid) => known(tid, Waker::Task),
            Context::Inline(tid) => known(tid, Waker::InlineSoftirq),
            Context::SoftIrq => Waker::SoftIrq,
            Context::HardIrq => Waker::HardIrq,
            Context::Unknown => Waker::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::switch_on;
    use super::*;
    use schedlab_model::EventSink;
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;

    /// A ring with these events; notes when it is switched on.
    struct Ring {
        events: VecDeque<RawEvent>,
        on: Rc<RefCell<Vec<u64>>>,
    }

    impl CpuSource for Ring {
        fn enable(&mut self) -> io::Result<()> {
            self.on.borrow_mut().push(super::super::clock(ClockId::Monotonic));
            // Where events come quickly the first rings are full before the last is on.
            std::thread::sleep(std::time::Duration::from_millis(30));
            Ok(())
        }
        fn disable(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn drain(&mut self, out: &mut VecDeque<RawEvent>) {
            out.append(&mut self.events);
        }
        fn ring_bytes(&self) -> usize {
            0
        }
    }

    fn ring(cpu: usize, times: &[u64], on: &Rc<RefCell<Vec<u64>>>) -> (CpuId, Box<dyn CpuSource>) {
        let event = |at: &u64| RawEvent { at: *at, kind: RawKind::Lost { count: 1 } };
        (
            CpuId::from(cpu),
            Box::new(Ring { events: times.iter().map(event).collect(), on: Rc::clone(on) }),
        )
    }

    #[derive(Default)]
    struct Sink(Vec<(u64, usize)>);

    impl EventSink for Sink {
        fn event(&mut self, event: &SchedEvent) {
            if let EventKind::Lost { .. } = event.kind {
                self.0.push((event.at.0, event.cpu.index()));
            }
        }
    }

    impl RecordSink for Sink {}

    #[test]
    fn a_recording_holds_what_all_cpus_saw() {
        // CPU 0 was on from 900 on, CPU 1 from 1000 on; they are switched off after 2000, CPU 0
        // first.
        let on = Rc::default();
        let mut sources = vec![ring(0, &[900, 1500], &on), ring(1, &[1100, 2000, 2500], &on)];
        let mut merger = Merger::new(1000, 2, Tasks::new(true), false);
        let mut sink = Sink::default();
        merger.round(&mut sources, 1800, &mut sink);
        assert_eq!(sink.0, [(100, 1), (500, 0)]);
        merger.finish(&mut sources, &Over { at: 2000, steal: Vec::new() }, &mut sink);
        assert_eq!(sink.0, [(100, 1), (500, 0), (1000, 1)]);
    }

    /// A ring that is written to while it is read.
    struct Fed(Rc<RefCell<VecDeque<RawEvent>>>);

    impl CpuSource for Fed {
        fn enable(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn disable(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn drain(&mut self, out: &mut VecDeque<RawEvent>) {
            out.append(&mut self.0.borrow_mut());
        }
        fn ring_bytes(&self) -> usize {
            0
        }
    }

    /// Each round a ring has up to 40 events of a millisecond; many rings have events of the same
    /// nanosecond. What is handed out is in order and complete, and what is held back is never more
    /// than what the last round brought.
    #[test]
    fn many_rings_are_merged_in_order_and_completely() {
        const RINGS: usize = 256;
        const ROUND: u64 = 1_000_000;
        let rings: Vec<_> = (0..RINGS).map(|_| Rc::new(RefCell::new(VecDeque::new()))).collect();
        let source = |(cpu, ring): (usize, &Rc<_>)| {
            (CpuId::from(cpu), Box::new(Fed(Rc::clone(ring))) as Box<dyn CpuSource>)
        };
        let mut sources: Vec<_> = rings.iter().enumerate().map(source).collect();
        let mut merger = Merger::new(0, RINGS, Tasks::new(true), false);
        let (mut sink, mut made, mut random) = (Sink::default(), Vec::new(), 1_u64);
        for round in 0..20 {
            let mut fresh = 0;
            for (cpu, ring) in rings.iter().enumerate() {
                // Knuth's linear congruential generator (MMIX).
                let mut below = |bound: u64| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005);
                    random = random.wrapping_add(1_442_695_040_888_963_407);
                    (random >> 33) % bound
                };
                let mut times: Vec<u64> =
                    (0..below(40)).map(|_| below(ROUND / 100) * 100).collect();
                times.sort_unstable();
                for at in times.iter().map(|at| round * ROUND + at) {
                    ring.borrow_mut().push_back(RawEvent { at, kind: RawKind::Lost { count: 1 } });
                    made.push((at, cpu));
                }
                fresh += times.len();
            }
            merger.round(&mut sources, (round * ROUND).saturating_sub(1), &mut sink);
            assert_eq!(merger.waiting(), fresh);
        }
        merger.finish(&mut sources, &Over { at: 20 * ROUND, steal: Vec::new() }, &mut sink);
        made.sort_unstable();
        assert_eq!((merger.lost, sink.0.len()), (made.len() as u64, made.len()));
        assert_eq!(sink.0, made);
    }

    #[test]
    fn a_recording_begins_when_the_last_cpu_is_on() {
        let on = Rc::default();
        let mut sources = vec![ring(0, &[1, 2, 3], &on), ring(1, &[1], &on), ring(2, &[], &on)];
        let begin = switch_on(&mut sources).expect("rings of memory");
        assert_eq!(on.borrow().len(), 3);
        assert!(on.borrow().iter().all(|at| *at < begin));
        let mut left = VecDeque::new();
        sources.iter_mut().for_each(|(_, source)| source.drain(&mut left));
        assert!(left.is_empty(), "what came before is in no recording, and takes no room");
    }

    #[test]
    fn the_asked_time_is_not_exceeded() {
        let now = super::super::clock(ClockId::Monotonic);
        let merger = Merger::new(now - 5_000_000_000, 1, Tasks::new(true), false);
        assert_eq!(merger.end_at(Some(Ns::from_s(2))).at, now - 3_000_000_000);
        assert!(merger.end_at(None).at >= now);
    }
}
