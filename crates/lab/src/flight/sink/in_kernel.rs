//! Where the kernel decides (`schedlab_host::in_kernel`): its sums are the metrics and the waits of
//! which percentiles are taken, and what it tells of is compared with the rules as it is from
//! events.

use super::{FlightSink, Look, SECOND};
use crate::flight::classes::Classes;
use crate::flight::meters::name_of;
use crate::flight::windows::EndedWait;
use crate::record::{StretchKind, group_info, task_info};
use schedlab_host::in_kernel::{InKernelSink, LongStretch, Stretch, View, Watch};
use schedlab_host::{GroupFacts, RecordStart, TaskFacts};
use schedlab_model::{CpuId, EventKind, Ns, SchedEvent, TaskId};
use std::collections::BTreeMap;
use std::io;

/// Time between two looks at what tasks do that has not ended.
const LASTING: Ns = Ns::from_ms(500);

/// What only this way needs.
pub(super) struct InKernelPart {
    classes: Classes,
    /// The thread id of each task.
    tasks: BTreeMap<TaskId, u32>,
    /// When the sums were read last.
    summed: Option<Ns>,
    looked: Ns,
    /// The rules are new: what is told of each task, too.
    again: bool,
}

impl InKernelPart {
    pub(super) fn new(classes: usize) -> InKernelPart {
        InKernelPart {
            classes: Classes::new(classes),
            tasks: BTreeMap::new(),
            summed: None,
            looked: Ns::ZERO,
            again: false,
        }
    }

    /// The rules are new.
    pub(super) fn rules_are_new(&mut self) {
        self.again = true;
    }
}

fn kind(of: Stretch) -> StretchKind {
    match of {
        Stretch::Wait => StretchKind::Wait,
        Stretch::Run => StretchKind::Run,
        Stretch::Block => StretchKind::Block,
    }
}

impl FlightSink<'_> {
    /// Returns what the kernel counts and tells of a task.
    fn watch(&mut self, task: TaskId) -> Watch {
        let slot = self.live.slot(task);
        let by = self.config.by.by();
        let findings = self.live.listener();
        let (counts, limit, throttled) = findings.windows.watch(slot);
        let name = name_of(by, slot, &findings.header);
        let class = self.kernel.as_mut().map_or(0, |part| part.classes.of(task, name, counts));
        let bound = |measure| self.stops.bound(task, measure);
        Watch {
            class,
            wait: bound(StretchKind::Wait).into_iter().chain(limit).min(),
            run: bound(StretchKind::Run),
            block: bound(StretchKind::Block),
            throttled,
        }
    }

    /// Reads the sums when it is time.
    fn sum(&mut self, view: &View<'_>) {
        let findings = self.live.listener();
        let Some(part) = &mut self.kernel else { return };
        let waits = part.summed.is_some_and(|at| view.now.saturating_sub(at) < SECOND);
        if waits && !findings.windows.count_all() {
            return;
        }
        part.summed = Some(view.now);
        part.classes.read(view, |classes, counted| {
            findings.windows.counted(counted.rules, counted.sums.waits);
            if let Some(meters) = &mut findings.meters {
                meters.counted(counted, view.now, |number| classes.name(number));
            }
        });
    }

    /// Looks at what tasks do that rules mean. Returns whether it was time.
    fn see_lasting(&mut self, view: &View<'_>) -> bool {
        let Some(part) = &mut self.kernel else { return false };
        if view.now.saturating_sub(part.looked) < LASTING {
            return false;
        }
        part.looked = view.now;
        for (task, tid) in self.stops.watched() {
            let doing = view.doing(tid).map(|(what, since)| (kind(what), since));
            self.stops.does(task, doing);
        }
        true
    }

    fn watch_again(&mut self, view: &View<'_>) {
        let Some(part) = self.kernel.as_mut().filter(|part| part.again) else { return };
        part.again = false;
        for (task, tid) in part.tasks.clone() {
            view.watch(tid, &self.watch(task));
        }
    }

    fn progress(&mut self, view: &View<'_>) {
        (self.so_far.at, self.so_far.events, self.so_far.lost) = (view.now, view.events, view.lost);
        self.sum(view);
    }
}

impl InKernelSink for FlightSink<'_> {
    fn start(&mut self, start: &RecordStart) -> io::Result<()> {
        self.started(start, "the kernel sums up, and tells what a rule may mean")
    }

    fn group(&mut self, group: &GroupFacts) {
        let info = group_info(group);
        self.stops.group(group.id, &info);
        self.live.group(group.id, info);
    }

    fn task(&mut self, task: &TaskFacts) -> Watch {
        let info = task_info(task);
        self.stops.task(task.id, &info, task.stand_in);
        self.live.meet(task.id, info);
        if let Some(part) = &mut self.kernel {
            part.tasks.insert(task.id, task.tid);
        }
        self.watch(task.id)
    }

    fn ended(&mut self, task: TaskId, at: Ns) {
        // What it did when it was looked at last is over.
        self.stops.does(task, None);
        let event = SchedEvent { at, cpu: CpuId(0), kind: EventKind::Exit { task } };
        self.stops.event(&event);
        self.live.event(&event);
        if let Some(part) = &mut self.kernel {
            part.classes.ended(task);
            part.tasks.remove(&task);
        }
    }

    fn stretch(&mut self, stretch: &LongStretch) {
        let &LongStretch { task, did, from, to, throttled } = stretch;
        self.stops.ended(task, kind(did), from, to);
        if let Some((condition, caught)) = self.stops.take() {
            self.found.push((self.stretches[condition], caught));
        }
        if did == Stretch::Wait {
            let slot = self.live.slot(task);
            let ended = EndedWait { task: slot, from, length: to.saturating_sub(from) };
            let findings = self.live.listener();
            let caught = findings.windows.told(ended, &findings.header, throttled);
            findings.caught.extend(caught);
        }
    }

    fn round(&mut self, view: &View<'_>) -> io::Result<()> {
        self.progress(view);
        self.live.forget_ended();
        let look = if self.see_lasting(view) { Look::AtLasting } else { Look::AtEnded };
        self.look(look);
        self.hand_on(false);
        self.heed_signals();
        self.watch_again(view);
        self.account();
        self.heart.beat();
        self.send(Some(&|| view.kept()));
        Ok(())
    }

    fn over(&mut self, view: &View<'_>) {
        self.progress(view);
        self.look(Look::AtEnded);
        self.hand_on(true);
        self.send(Some(&|| view.kept()));
    }
}
