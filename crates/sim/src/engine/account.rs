//! Whose time it was: per CPU (busy, overhead, idle) and per task (run, wait, throttled, sleep).

use super::state::{Bucket, Task};
use super::{Engine, Step};
use crate::TaskMetrics;
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
        task.worked += work;
        let metrics = &mut self.metrics.cpus[cpu];
        metrics.busy_ns += Ns(work);
        metrics.overhead_ns += Ns(elapsed - work);
        Ok(())
    }

    /// From now on the task's time counts as `bucket`. Gives back how long it counted as the one before.
    #[inline]
    pub(super) fn set_bucket(&mut self, t: usize, bucket: Bucket) -> u64 {
        let task = &mut self.tasks[t];
        let length = self.now - task.bucket_from;
        let old = std::mem::replace(&mut task.bucket, bucket);
        task.sums[old as usize] += length;
        task.bucket_from = self.now;
        if old == Bucket::Wait {
            self.watch.waits_no_more(t);
        }
        if bucket == Bucket::Wait {
            self.watch.waits(t);
        }
        if (old == Bucket::Throttled) != (bucket == Bucket::Throttled) {
            self.watch.throttle(bucket == Bucket::Throttled);
        }
        length
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
            self.count_stolen(cpu);
            self.account(cpu)?;
        }
        let tasks = self.tasks.iter_mut().zip(&mut self.extras);
        for ((task, extra), metrics) in tasks.zip(&mut self.metrics.tasks) {
            task.sums[task.bucket as usize] += self.now - task.bucket_from;
            task.bucket_from = self.now;
            if task.bucket != Bucket::Out {
                task.lived += self.now - task.born;
            }
            task.born = self.now;
            into(metrics, task);
            let stolen = std::mem::take(&mut extra.stolen);
            metrics.cpu_ns = metrics.cpu_ns.saturating_sub(Ns(stolen));
            metrics.stolen_ns += Ns(stolen);
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

/// Moves what was counted in the hot record into the metrics.
fn into(metrics: &mut TaskMetrics, task: &mut Task) {
    let [sleep, wait, throttled, run, _] = std::mem::take(&mut task.sums);
    metrics.sleep_ns += Ns(sleep);
    metrics.wait_ns += Ns(wait);
    metrics.throttled_ns += Ns(throttled);
    metrics.cpu_ns += Ns(run);
    metrics.work_ns += Ns(std::mem::take(&mut task.worked));
    metrics.lifetime_ns += Ns(std::mem::take(&mut task.lived));
    let counts = std::mem::take(&mut task.counts);
    metrics.wakeups += counts.wakeups;
    metrics.switches += counts.switches;
    metrics.preemptions += counts.preemptions;
    metrics.yields += counts.yields;
    metrics.migrations += counts.migrations;
}
