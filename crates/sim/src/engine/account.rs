//! Whose time it was: per CPU (busy, overhead, idle) and per task (run, wait, throttled, sleep).

use super::state::Bucket;
use super::{Engine, Step};
use crate::metrics::Metrics;
use schedlab_model::{EventSink, Ns};

impl<S: EventSink> Engine<'_, S> {
    /// Brings `cpu`'s account up to now: kernel work first, then the occupant's program.
    #[inline]
    pub(super) fn account(&mut self, cpu: usize) -> Step {
        let c = &mut self.cpus[cpu];
        let elapsed = self.now - c.accounted;
        if elapsed == 0 {
            return Ok(());
        }
        let Some(occupant) = c.occupant else {
            c.accounted = self.now;
            let overhead = c.debt.min(elapsed);
            c.debt -= overhead;
            let metrics = &mut self.metrics.cpus[cpu];
            metrics.overhead_ns += Ns(overhead);
            metrics.idle_ns += Ns(elapsed - overhead);
            return Ok(());
        };
        let task = &mut self.tasks[occupant.index()];
        let spent = if self.free {
            c.accounted = self.now;
            0
        } else {
            let owed = c.debt + task.debt;
            let rest = self.machine.rest_of_debt(&self.world, cpu, c.accounted, self.now, owed);
            c.accounted = self.now;
            let spent = owed + rest.added - rest.left;
            task.debt = task.debt.min(rest.left);
            c.debt = rest.left - task.debt;
            spent
        };
        let work = task.left.min(elapsed - spent);
        task.left -= work;
        let metrics = &mut self.metrics.cpus[cpu];
        metrics.busy_ns += Ns(work);
        metrics.overhead_ns += Ns(elapsed - work);
        self.metrics.tasks[occupant.index()].work_ns += Ns(work);
        Ok(())
    }

    /// From now on the task's time counts as `bucket`.
    #[inline]
    pub(super) fn set_bucket(&mut self, t: usize, bucket: Bucket) {
        let task = &mut self.tasks[t];
        let old = task.bucket;
        add(&mut self.metrics, t, old, self.now - task.bucket_from);
        task.bucket = bucket;
        task.bucket_from = self.now;
        if old == Bucket::Wait && bucket != Bucket::Wait {
            self.watch.waits_no_more(t);
        } else if bucket == Bucket::Wait && old != Bucket::Wait {
            self.watch.waits(t);
        }
    }

    /// Runnable and not running: waits, or is throttled.
    #[inline]
    pub(super) fn waiting_bucket(&self, t: usize) -> Bucket {
        if self.tasks[t].throttled { Bucket::Throttled } else { Bucket::Wait }
    }

    /// Charges what is under way up to now, for the end of the warm-up and of the run.
    pub(super) fn settle(&mut self) -> Step {
        self.log.flush(&mut self.metrics.tasks);
        for cpu in 0..self.cpus.len() {
            self.account(cpu)?;
        }
        for t in 0..self.tasks.len() {
            let task = &mut self.tasks[t];
            add(&mut self.metrics, t, task.bucket, self.now - task.bucket_from);
            task.bucket_from = self.now;
        }
        Ok(())
    }

    /// The warm-up is over.
    pub(super) fn restart_metrics(&mut self) -> Step {
        self.settle()?;
        self.metrics.restart(Ns(self.now));
        Ok(())
    }
}

#[inline]
fn add(metrics: &mut Metrics, t: usize, bucket: Bucket, ns: u64) {
    let metrics = &mut metrics.tasks[t];
    match bucket {
        Bucket::Out => return,
        Bucket::Sleep => metrics.sleep_ns += Ns(ns),
        Bucket::Wait => metrics.wait_ns += Ns(ns),
        Bucket::Throttled => metrics.throttled_ns += Ns(ns),
        Bucket::Run => metrics.cpu_ns += Ns(ns),
    }
    metrics.lifetime_ns += Ns(ns);
}
