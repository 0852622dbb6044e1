//! Which tasks a limit holds back: `cpu.max` of their control group, or the limits on real-time
//! tasks.
//!
//! The kernel says of a control group's limit when it takes the CPU away; it is over when the task
//! runs again (what it waits in a queue after its release is not told apart). Of the other limits
//! (the budget of a deadline task, `sched_rt_runtime_us`, the fair server) it is seen that a
//! runnable task loses its CPU to one of a lower class, which nothing else does; it is held back as
//! long as lower classes run there.

use schedlab_model::CpuId;
use std::collections::BTreeSet;

/// A scheduling class, the higher first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    Deadline,
    RealTime,
    Fair,
    Idle,
}

impl Class {
    /// By the kernel's priority of a task (Linux: deadline below 0, real time below 100).
    pub(crate) const fn of_priority(priority: i32) -> Class {
        match priority {
            ..0 => Class::Deadline,
            0..100 => Class::RealTime,
            _ => Class::Fair,
        }
    }

    /// By the number in a record of `bpf/sched.bpf.c`.
    pub(crate) const fn of_number(number: u8) -> Option<Class> {
        match number {
            1 => Some(Class::Deadline),
            2 => Some(Class::RealTime),
            3 => Some(Class::Fair),
            _ => None,
        }
    }
}

/// A task that lost its CPU to a lower class.
#[derive(Clone, Copy, Debug)]
struct Displaced {
    tid: u32,
    class: Class,
    cpu: CpuId,
    held: bool,
}

/// What begins or ends for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Held(u32),
    Released(u32),
}

/// The tasks that are held back now.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    groups: BTreeSet<u32>,
    displaced: Vec<Displaced>,
}

impl Limits {
    /// The limit of its group holds `tid`. Whether that is news.
    pub(crate) fn hold(&mut self, tid: u32) -> bool {
        self.groups.insert(tid)
    }

    /// `tid` lost `cpu` to a lower class.
    pub(crate) fn displace(&mut self, tid: u32, class: Class, cpu: CpuId) {
        self.displaced.retain(|task| task.tid != tid);
        self.displaced.push(Displaced { tid, class, cpu, held: true });
    }

    /// `tid` is gone, or somewhere else, and waits for other reasons. Whether it was held until
    /// now.
    pub(crate) fn forget(&mut self, tid: u32) -> bool {
        let mut held = false;
        self.displaced.retain(|task| {
            held |= task.tid == tid && task.held;
            task.tid != tid
        });
        held | self.groups.remove(&tid)
    }

    /// What the switch of `cpu` to `next` of a class (`None`: not known) changes. Comes before the
    /// switch.
    pub(crate) fn switch(&mut self, cpu: CpuId, next: u32, class: Option<Class>) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.groups.is_empty() && self.displaced.is_empty() {
            return changes;
        }
        if next != 0 && self.forget(next) {
            changes.push(Change::Released(next));
        }
        for task in self.displaced.iter_mut().filter(|task| task.cpu == cpu) {
            let held = class.is_some_and(|class| class > task.class);
            if held != task.held {
                task.held = held;
                changes.push(if held {
                    Change::Held(task.tid)
                } else {
                    Change::Released(task.tid)
                });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: CpuId = CpuId(0);

    #[test]
    fn a_group_holds_until_the_task_runs() {
        let mut limits = Limits::default();
        assert!(limits.hold(7));
        assert!(!limits.hold(7), "no news");
        assert_eq!(limits.switch(HERE, 9, Some(Class::Fair)), []);
        assert_eq!(limits.switch(HERE, 7, Some(Class::Fair)), [Change::Released(7)]);
        assert!(!limits.forget(7));
    }

    #[test]
    fn a_displaced_task_is_held_while_lower_classes_run_there() {
        let mut limits = Limits::default();
        limits.displace(7, Class::RealTime, HERE);
        assert_eq!(limits.switch(HERE, 9, Some(Class::Fair)), []);
        assert_eq!(limits.switch(CpuId(1), 3, Some(Class::RealTime)), [], "elsewhere");
        assert_eq!(limits.switch(HERE, 0, Some(Class::Idle)), []);
        assert_eq!(limits.switch(HERE, 4, Some(Class::RealTime)), [Change::Released(7)]);
        assert_eq!(limits.switch(HERE, 9, Some(Class::Fair)), [Change::Held(7)]);
        assert_eq!(limits.switch(HERE, 7, Some(Class::RealTime)), [Change::Released(7)]);
        assert_eq!(limits.switch(HERE, 9, Some(Class::Fair)), [], "it ran: this is another story");
        limits.displace(7, Class::RealTime, HERE);
        assert!(limits.forget(7), "it went to another CPU");
        assert_eq!(limits.switch(HERE, 4, Some(Class::RealTime)), []);
    }
}
