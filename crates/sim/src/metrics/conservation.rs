//! Measures, incrementally, how long CPUs idle while tasks wait that may run there: tasks with the
//! same mask are one class.

use super::WorkConservation;
use schedlab_model::{CpuSet, Ns, TaskId};

/// Counters of one class of tasks: those with the same affinity.
#[derive(Debug)]
struct Class {
    mask: CpuSet,
    waiting: u32,
    idle: u32,
    throttled: u32,
}

/// The state of the measurement.
#[derive(Debug)]
pub(crate) struct ConservationMeter {
    classes: Vec<Class>,
    class_of: Vec<u32>,
    classes_of_cpu: Vec<Vec<u32>>,
    /// All tasks may run everywhere: the classes need not be kept up to date.
    uniform: bool,
    idle: Vec<bool>,
    idle_cpus: u32,
    /// Tasks that wait.
    waiting: u32,
    /// Runnable tasks that are throttled.
    throttled: u32,
    /// Classes with both a waiting task and an idle CPU; unless `uniform`.
    violating: u32,
    in_spell: bool,
    spell: u64,
}

impl ConservationMeter {
    /// Returns a meter for a machine on which all CPUs are idle and no task waits. `masks`: of all
    /// tasks; `later`: those that tasks may have later.
    pub(crate) fn new(masks: &[CpuSet], later: &[CpuSet], cpus: usize) -> ConservationMeter {
        let mut classes: Vec<Class> = Vec::new();
        let mut class_of = Vec::with_capacity(masks.len());
        for mask in masks.iter().chain(later) {
            let class = classes.iter().position(|c| c.mask == *mask).unwrap_or_else(|| {
                classes.push(Class {
                    mask: *mask,
                    waiting: 0,
                    idle: mask.count() as u32,
                    throttled: 0,
                });
                classes.len() - 1
            });
            class_of.push(class as u32);
        }
        class_of.truncate(masks.len());
        let mut classes_of_cpu = vec![Vec::new(); cpus];
        for (i, class) in classes.iter().enumerate() {
            class.mask.iter().for_each(|cpu| classes_of_cpu[cpu.index()].push(i as u32));
        }
        ConservationMeter {
            uniform: matches!(&classes[..], [all] if all.mask == CpuSet::first(cpus)),
            classes,
            class_of,
            classes_of_cpu,
            idle: vec![true; cpus],
            idle_cpus: cpus as u32,
            waiting: 0,
            throttled: 0,
            violating: 0,
            in_spell: false,
            spell: 0,
        }
    }

    /// A task that runs may run elsewhere from now on; `mask` is one of those that were told.
    pub(crate) fn set_mask(&mut self, task: usize, mask: &CpuSet) {
        if let Some(class) = self.classes.iter().position(|class| class.mask == *mask) {
            self.class_of[task] = class as u32;
        }
    }

    /// A task starts to wait.
    #[inline]
    pub(crate) fn waits(&mut self, task: usize) {
        self.waiting += 1;
        if !self.uniform {
            self.waits_in_class(task);
        }
    }

    #[inline(never)]
    fn waits_in_class(&mut self, task: usize) {
        let class = &mut self.classes[self.class_of[task] as usize];
        class.waiting += 1;
        if class.waiting == 1 && class.idle > 0 {
            self.violating += 1;
        }
    }

    /// A task no longer waits.
    #[inline]
    pub(crate) fn waits_no_more(&mut self, task: usize) {
        self.waiting -= 1;
        if !self.uniform {
            self.waits_no_more_in_class(task);
        }
    }

    #[inline(never)]
    fn waits_no_more_in_class(&mut self, task: usize) {
        let class = &mut self.classes[self.class_of[task] as usize];
        class.waiting -= 1;
        if class.waiting == 0 && class.idle > 0 {
            self.violating -= 1;
        }
    }

    /// A CPU goes over to `next`, which waited; the task before it waits from now on, if it is
    /// given. Mostly both may run on the same CPUs, and nothing changes.
    #[inline]
    pub(crate) fn take_turns(&mut self, before: Option<TaskId>, next: Option<TaskId>) {
        if let (Some(before), Some(next)) = (before, next)
            && (self.uniform || self.class_of[before.index()] == self.class_of[next.index()])
        {
            return;
        }
        before.into_iter().for_each(|task| self.waits(task.index()));
        next.into_iter().for_each(|task| self.waits_no_more(task.index()));
    }

    /// A CPU becomes idle or busy.
    #[inline]
    pub(crate) fn set_idle(&mut self, cpu: usize, idle: bool) {
        if std::mem::replace(&mut self.idle[cpu], idle) == idle {
            return;
        }
        self.idle_cpus = if idle { self.idle_cpus + 1 } else { self.idle_cpus - 1 };
        if !self.uniform {
            self.set_idle_in_classes(cpu, idle);
        }
    }

    #[inline(never)]
    fn set_idle_in_classes(&mut self, cpu: usize, idle: bool) {
        for &class in &self.classes_of_cpu[cpu] {
            let class = &mut self.classes[class as usize];
            let before = class.idle > 0;
            class.idle = if idle { class.idle + 1 } else { class.idle - 1 };
            if class.waiting > 0 && before != (class.idle > 0) {
                self.violating = if before { self.violating - 1 } else { self.violating + 1 };
            }
        }
    }

    /// Time goes on from `since` to `now`.
    #[inline]
    pub(crate) fn advance(&mut self, since: u64, now: u64, into: &mut WorkConservation) {
        // No task can wait beside an idle CPU while no CPU is idle.
        if self.idle_cpus > 0 && self.waiting + self.throttled > 0 {
            self.advance_with_idle(now - since, into);
        } else {
            self.in_spell = false;
        }
    }

    #[inline(never)]
    fn advance_with_idle(&mut self, length: u64, into: &mut WorkConservation) {
        let violated = if self.uniform { self.waiting > 0 } else { self.violating > 0 };
        if violated {
            into.violated_ns += Ns(length);
            into.idle_ns += Ns(length * self.idle_for_waiters());
            if !self.in_spell {
                into.violations += 1;
                (self.in_spell, self.spell) = (true, 0);
            }
            self.spell += length;
            into.longest_ns = into.longest_ns.max(Ns(self.spell));
        } else {
            self.in_spell = false;
        }
        if self.throttled > 0 {
            into.capped_idle_ns += Ns(length * self.idle_for_throttled());
        }
    }

    /// A runnable task is throttled (`true`), or no longer.
    pub(crate) fn throttle(&mut self, task: usize, throttled: bool) {
        let class = &mut self.classes[self.class_of[task] as usize];
        for count in [&mut self.throttled, &mut class.throttled] {
            *count = if throttled { *count + 1 } else { *count - 1 };
        }
    }

    /// Returns the idle CPUs that throttled tasks would use: each task one on which it may run. The
    /// classes with the fewest CPUs choose first, which is the most that can be used where masks do
    /// not overlap in part.
    fn idle_for_throttled(&self) -> u64 {
        if self.uniform {
            return u64::from(self.idle_cpus.min(self.throttled));
        }
        let mut classes: Vec<&Class> =
            self.classes.iter().filter(|class| class.throttled > 0).collect();
        classes.sort_by_key(|class| class.mask.count());
        let mut free: Vec<bool> = self.idle.clone();
        let mut used = 0;
        for class in classes {
            let allowed =
                class.mask.iter().map(|cpu| cpu.index()).filter(|cpu| *cpu < self.idle.len());
            let taken: Vec<usize> =
                allowed.filter(|cpu| free[*cpu]).take(class.throttled as usize).collect();
            used += taken.len() as u64;
            taken.into_iter().for_each(|cpu| free[cpu] = false);
        }
        used
    }

    /// Returns the idle CPUs on which one of the waiting tasks may run.
    fn idle_for_waiters(&self) -> u64 {
        if self.uniform {
            return u64::from(self.idle_cpus);
        }
        let waits = |class: &u32| self.classes[*class as usize].waiting > 0;
        let useful = |cpu: &usize| self.idle[*cpu] && self.classes_of_cpu[*cpu].iter().any(waits);
        (0..self.idle.len()).filter(useful).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tasks are throttled, one of CPU 0 and one of both CPUs.
    #[test]
    fn a_limit_is_charged_only_for_cpus_that_its_tasks_may_use() {
        let masks: Vec<CpuSet> = ["0", "0-1"].iter().map(|m| m.parse().unwrap()).collect();
        let mut meter = ConservationMeter::new(&masks, &[], 2);
        let mut seen = WorkConservation::default();
        meter.throttle(0, true);
        meter.set_idle(0, false);
        meter.advance(0, 10, &mut seen);
        assert_eq!(seen.capped_idle_ns, Ns(0), "CPU 1 idles, but the task may not run there");
        meter.throttle(1, true);
        meter.advance(10, 20, &mut seen);
        assert_eq!(seen.capped_idle_ns, Ns(10));
        meter.set_idle(0, true);
        meter.advance(20, 30, &mut seen);
        assert_eq!(seen.capped_idle_ns, Ns(30));
        meter.throttle(0, false);
        meter.advance(30, 40, &mut seen);
        assert_eq!(seen.capped_idle_ns, Ns(40));
    }

    #[test]
    fn counts_only_allowed_cpus() {
        let masks: Vec<CpuSet> = ["0", "0-1"].iter().map(|m| m.parse().unwrap()).collect();
        let mut watch = ConservationMeter::new(&masks, &[], 2);
        let mut seen = WorkConservation::default();
        watch.set_idle(0, false);
        watch.waits(0); // only CPU 0 is allowed, and it is busy
        watch.advance(0, 10, &mut seen);
        assert_eq!(seen, WorkConservation::default());
        watch.waits(1); // CPU 1 is idle
        watch.advance(10, 15, &mut seen);
        watch.advance(15, 20, &mut seen);
        let (violated_ns, longest_ns, idle_ns) = (Ns(10), Ns(10), Ns(10));
        let want = WorkConservation { violations: 1, violated_ns, longest_ns, idle_ns, ..seen };
        assert_eq!(seen, want);
        assert_eq!(seen.capped_idle_ns, Ns(0));
        watch.set_idle(1, false);
        watch.advance(20, 30, &mut seen);
        assert_eq!(seen.violated_ns, Ns(10));
        watch.waits_no_more(1);
        watch.waits_no_more(0);
        watch.set_idle(1, true);
        watch.advance(30, 40, &mut seen);
        assert_eq!(seen.violated_ns, Ns(10));
    }

    /// One task of both CPUs, which confines itself to CPU 0 while it runs there.
    #[test]
    fn a_task_that_confines_itself_waits_for_other_cpus() {
        let masks: Vec<CpuSet> = ["0-1", "0-1"].iter().map(|m| m.parse().unwrap()).collect();
        let later: CpuSet = "0".parse().unwrap();
        let mut meter = ConservationMeter::new(&masks, &[later], 2);
        let mut seen = WorkConservation::default();
        meter.set_idle(0, false);
        meter.waits(0);
        meter.advance(0, 10, &mut seen);
        assert_eq!(seen.violated_ns, Ns(10), "CPU 1 is idle");
        meter.waits_no_more(0);
        meter.set_mask(0, &later);
        meter.waits(0);
        meter.advance(10, 30, &mut seen);
        assert_eq!(seen.violated_ns, Ns(10), "it may not run on CPU 1");
        meter.waits(1);
        meter.advance(30, 35, &mut seen);
        assert_eq!(seen.violated_ns, Ns(15), "the other one may");
    }
}
