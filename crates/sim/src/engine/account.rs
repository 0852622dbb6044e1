//! Whose time it was: per CPU (busy, overhead, idle) and per task (run, wait, throttled, sleep).

use super::state::{Bucket, Task};
use super::{Engine, Step};
use crate::TaskMetrics;
use crate::metrics::Watch;
use schedlab_model::{EventSink, Ns};

impl Task<'_> {
    /// From `now` on the task's time counts as `bucket`. Gives back how long it counted as the one before.
    #[inline(always)]
    pub(super) fn set_bucket(&mut self, t: usize, bucket: Bucket, now: u64, watch: &mut Watch) -> u64 {
        let length = now - self.bucket_from;
        let old = std::mem::replace(&mut self.bucket, bucket);
        self.sums[old as usize] += length;
        self.bucket_from = now;
        if old == Bucket::Wait {
            watch.waits_no_more(t);
        }
        if bucket == Bucket::Wait {
            watch.waits(t);
        }
        if (old == Bucket::Throttled) != (bucket == Bucket::Throttled) {
            watch.throttle(bucket == Bucket::Throttled);
        }
        length
    }

    /// As [`set_bucket`](Self::set_bucket), in two steps, where it is known what the time counted as until `now`: this is
    /// the first.
    #[inline(always)]
    pub(super) fn leaves(&mut self, bucket: Bucket, now: u64) -> u64 {
        debug_assert_eq!(self.bucket, bucket);
        let length = now - std::mem::replace(&mut self.bucket_from, now);
        self.sums[bucket as usize] += length;
        length
    }

    /// The second, for a task that is runnable from now on, and did not wait before.
    #[inline(always)]
    pub(super) fn waits(&mut self, t: usize, watch: &mut Watch) {
        self.bucket = self.waiting_bucket();
        if self.bucket == Bucket::Wait {
            watch.waits(t);
        } else {
            watch.throttle(true);
        }
    }

    /// Runnable and not running: waits, or is throttled.
    #[inline]
    pub(super) fn waiting_bucket(&self) -> Bucket {
        if self.throttled { Bucket::Throttled } else { Bucket::Wait }
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Brings `cpu`'s account up to now: kernel work first, then the occupant's program.
    #[inline]
    pub(super) fn account(&mut self, cpu: usize) {
        let now = self.now;
        let c = &mut self.cpus[cpu];
        let elapsed = now - c.accounted;
        if elapsed == 0 {
            return;
        }
        let Some(occupant) = c.occupant else {
            c.accounted = now;
            let overhead = c.debt.min(elapsed);
            c.debt -= overhead;
            c.counted.overhead_ns += Ns(overhead);
            c.counted.idle_ns += Ns(elapsed - overhead);
            return;
        };
        let task = &mut self.tasks[occupant.index()];
        let from = std::mem::replace(&mut c.accounted, now);
        let spent = if FREE {
            0
        } else {
            let owed = c.debt + task.debt;
            let rest = self.machine.rest_of_debt(&self.world, cpu, from, now, owed);
            task.debt = task.debt.min(rest.left);
            c.debt = rest.left - task.debt;
            owed + rest.added - rest.left
        };
        let work = task.left.min(elapsed - spent);
        task.left -= work;
        task.worked += work;
        c.counted.busy_ns += Ns(work);
        c.counted.overhead_ns += Ns(elapsed - work);
    }

    /// See [`Task::set_bucket`].
    #[inline]
    pub(super) fn set_bucket(&mut self, t: usize, bucket: Bucket) -> u64 {
        self.tasks[t].set_bucket(t, bucket, self.now, &mut self.watch)
    }

    /// Charges what is under way up to now, for the end of the warm-up and of the run.
    pub(super) fn settle(&mut self) {
        self.log.flush(&mut self.metrics.tasks);
        for cpu in 0..self.cpus.len() {
            self.count_stolen(cpu);
            self.account(cpu);
            self.metrics.cpus[cpu].add(std::mem::take(&mut self.cpus[cpu].counted));
        }
        let tasks = self.tasks.iter_mut().zip(&mut self.extras);
        for ((task, extra), metrics) in tasks.zip(&mut self.metrics.tasks) {
            task.sums[task.bucket as usize] += self.now - task.bucket_from;
            task.bucket_from = self.now;
            if task.bucket != Bucket::Out {
                extra.lived += self.now - extra.born;
            }
            extra.born = self.now;
            into(metrics, task);
            metrics.lifetime_ns += Ns(std::mem::take(&mut extra.lived));
            metrics.yields += std::mem::take(&mut extra.yields);
            let stolen = std::mem::take(&mut extra.stolen);
            metrics.cpu_ns = metrics.cpu_ns.saturating_sub(Ns(stolen));
            metrics.stolen_ns += Ns(stolen);
        }
    }

    /// The warm-up is over.
    pub(super) fn restart_metrics(&mut self) -> Step {
        self.settle();
        self.metrics.restart(Ns(self.now));
        Ok(())
    }
}

/// Moves what was counted in the hot record into the metrics.
fn into(metrics: &mut TaskMetrics, task: &mut Task<'_>) {
    let [sleep, wait, throttled, run, _] = std::mem::take(&mut task.sums);
    metrics.sleep_ns += Ns(sleep);
    metrics.wait_ns += Ns(wait);
    metrics.throttled_ns += Ns(throttled);
    metrics.cpu_ns += Ns(run);
    metrics.work_ns += Ns(std::mem::take(&mut task.worked));
    metrics.wakeups += std::mem::take(&mut task.wakeups);
    metrics.switches += std::mem::take(&mut task.switches);
    metrics.preemptions += std::mem::take(&mut task.preemptions);
    metrics.migrations += std::mem::take(&mut task.migrations);
}
