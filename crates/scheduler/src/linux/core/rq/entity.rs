//! What a run queue holds: tasks, and the shares of groups.

use super::{Class, NONE, QueueId};
use crate::linux::balance::placement::Partners;
use crate::linux::dl::cbs::Cbs;
use crate::linux::fair::pelt::TaskSignal;
use crate::linux::fair::weights::{Load, NICE_0};
use schedlab_model::Policy;
use std::mem::offset_of;

/// What is scheduled: a task, or a group's share of one CPU. The order of the fields is that of
/// their use: on a CPU with plain fair tasks a decision touches the first two cache lines, which
/// stand side by side as some processors read them.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::linux) struct Entity {
    /// The task; [`NONE`] for a group.
    pub(in crate::linux) task: u32,
    /// The queue that it waits in (its parent's).
    pub(in crate::linux) queue: QueueId,
    /// The queue that it represents; [`NONE`] for a task.
    pub(in crate::linux) owns: QueueId,
    /// Which class serves it.
    pub(in crate::linux) class: Class,
    /// SCHED_IDLE task, or `cpu.idle` group.
    pub(in crate::linux) idle: bool,
    /// Queued or running.
    pub(in crate::linux) on_rq: bool,
    /// EEVDF: blocked, but still queued until its lag is gone.
    pub(in crate::linux) delayed: bool,
    /// It has not been placed since it was created.
    pub(in crate::linux) fresh: bool,
    /// CFS: `vruntime` belongs to no queue at present.
    pub(in crate::linux) relative: bool,
    /// EEVDF: the request was set by the user.
    pub(in crate::linux) custom_slice: bool,
    /// EEVDF: `deadline` is relative to `vruntime`.
    pub(in crate::linux) rel_deadline: bool,
    /// RT: priority 1 … 99; 100 for deadline tasks.
    pub(in crate::linux) rt_priority: u8,
    /// It may run on one CPU only.
    pub(in crate::linux) pinned: bool,
    /// It may run on every CPU of the machine.
    pub(in crate::linux) anywhere: bool,
    /// Its policy, which is rarely read, is `Other`: as a wakee it may preempt.
    pub(in crate::linux) normal: bool,
    /// Weight.
    pub(in crate::linux) load: Load,
    /// EEVDF: request, ns. The longest that can be asked for is 1 s.
    pub(in crate::linux) slice: u32,
    /// `clock_task` at the last account, ns; 0 = never ran.
    pub(in crate::linux) exec_start: u64,
    /// Virtual run time, virtual ns. While `relative`, CFS counts it from its queue's
    /// `min_vruntime`.
    pub(in crate::linux) vruntime: i64,
    /// EEVDF: virtual deadline, virtual ns.
    pub(in crate::linux) deadline: i64,
    // Second line.
    /// EEVDF: lag saved when it left its queue, virtual ns.
    pub(in crate::linux) vlag: i64,
    /// What its present stint on the CPU, or its last one, is measured by: CFS: how long it ran,
    /// ns; EEVDF: up to which vruntime (6.17+) or deadline (6.12) it is protected against
    /// preemption.
    stint: i64,
    /// Several CPUs: load signals of a task.
    pub(in crate::linux) signal: TaskSignal,
    /// Several CPUs: which task it wakes and where it ran.
    pub(in crate::linux) partners: Partners,
    /// When it was queued or ran last, as a count on its CPU: balancing takes the smallest first.
    pub(in crate::linux) stamp: u32,
    // Rarely used.
    /// Groups: CPU time so far, ns.
    pub(in crate::linux) sum_exec: u64,
    /// Bandwidth, 6.18: it waits in the `limbo` of its queue.
    pub(in crate::linux) in_limbo: bool,
    /// Policy of a task; `Other` for a group.
    pub(in crate::linux) policy: Policy,
    /// Levels below the root queue: 0 for an entity of the root queue.
    pub(in crate::linux) depth: u32,
    /// RT: ticks left of the RR slice.
    pub(in crate::linux) rr_ticks: u32,
    /// Deadline: budget and deadline; missing for tasks of other classes.
    pub(in crate::linux) dl: Option<Box<Cbs>>,
}

const _: () = assert!(size_of::<Entity>() == 192, "three cache lines");
const _: () = assert!(offset_of!(Entity, vlag) == 64, "the first ends where a field does");
const _: () = assert!(offset_of!(Entity, sum_exec) == 2 * 64, "two of them are in use");

impl Entity {
    /// EEVDF: where its protection against preemption ends.
    #[inline(always)]
    pub(in crate::linux) fn protected_until(&self) -> i64 {
        self.stint
    }
    /// EEVDF: it is protected up to there.
    #[inline(always)]
    pub(in crate::linux) fn protect_until(&mut self, until: i64) {
        self.stint = until;
    }
    /// CFS: how long it has run since it was switched in, ns.
    #[inline(always)]
    pub(in crate::linux) fn ran(&self) -> u64 {
        self.stint as u64
    }
    /// CFS: it is switched in.
    #[inline(always)]
    pub(in crate::linux) fn begin_stint(&mut self) {
        self.stint = 0;
    }
    /// CFS: it ran for `delta`, ns.
    #[inline(always)]
    pub(in crate::linux) fn ran_on(&mut self, delta: u64) {
        self.stint += delta as i64;
        self.add_exec(delta);
    }
    /// Notes the CPU time of a group, ns; that of a task is never asked for.
    #[inline(always)]
    pub(in crate::linux) fn add_exec(&mut self, delta: u64) {
        if self.owns != NONE {
            self.sum_exec += delta;
        }
    }
    /// An entity that is not queued.
    pub(in crate::linux) fn new(task: u32, queue: QueueId, depth: u32) -> Entity {
        Entity {
            task,
            queue,
            owns: NONE,
            depth,
            class: Class::Fair,
            policy: Policy::Other,
            idle: false,
            on_rq: false,
            load: Load::from_weight(NICE_0),
            exec_start: 0,
            sum_exec: 0,
            vruntime: 0,
            relative: true,
            fresh: true,
            deadline: 0,
            vlag: 0,
            slice: 0,
            custom_slice: false,
            rel_deadline: false,
            delayed: false,
            stint: 0,
            dl: None,
            rt_priority: 0,
            rr_ticks: 0,
            pinned: false,
            anywhere: false,
            in_limbo: false,
            normal: true,
            signal: TaskSignal::default(),
            stamp: 0,
            partners: Partners::new(),
        }
    }
}
