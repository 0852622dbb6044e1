//! The accounts of time: per CPU (busy, overhead, idle) and per task (run, wait, throttled, sleep).

use super::state::{Bucket, Since, Task};
use super::ticks::Rest;
use super::{Engine, Step};
use crate::TaskMetrics;
use crate::metrics::ConservationMeter;
use schedlab_model::{CpuId, EventSink, Ns};

impl Task {
    /// Counts the task's time as `bucket` from `now` on. Returns how long it counted as the one
    /// before.
    #[inline(always)]
    pub(super) fn set_bucket(
        &mut self,
        t: usize,
        bucket: Bucket,
        now: u64,
        watch: &mut ConservationMeter,
        metrics: &mut [TaskMetrics],
    ) -> u64 {
        let length = self.spent(now, || &mut metrics[t]);
        let old = std::mem::replace(&mut self.bucket, bucket);
        if old == Bucket::Wait {
            watch.waits_no_more(t);
        }
        if bucket == Bucket::Wait {
            watch.waits(t);
        }
        if (old == Bucket::Throttled) != (bucket == Bucket::Throttled) {
            watch.throttle(t, bucket == Bucket::Throttled);
        }
        length
    }

    /// Counts the time since `bucket_from`, and returns it.
    #[inline(always)]
    fn spent<'m>(&mut self, now: u64, metrics: impl FnOnce() -> &'m mut TaskMetrics) -> u64 {
        let length = now - std::mem::replace(&mut self.bucket_from, now);
        match self.bucket {
            Bucket::Sleep | Bucket::Wait | Bucket::Run => self.sums[self.bucket as usize] += length,
            Bucket::Throttled => metrics().throttled_ns += Ns(length),
            Bucket::Out => {}
        }
        length
    }

    /// As [`set_bucket`](Self::set_bucket), in two steps, where it is known what the time counted
    /// as until `now`: this is the first. Not for time that is throttled.
    #[inline(always)]
    pub(super) fn leaves(&mut self, bucket: Bucket, now: u64) -> u64 {
        debug_assert_eq!(self.bucket, bucket);
        let length = now - std::mem::replace(&mut self.bucket_from, now);
        self.sums[bucket as usize] += length;
        length
    }

    /// The second, for a task that is runnable from now on, and did not wait before. Gives whether
    /// it waits, which the caller counts; that it is throttled is counted here.
    #[inline(always)]
    pub(super) fn waits(&mut self, t: usize, watch: &mut ConservationMeter) -> bool {
        self.bucket = self.waiting_bucket();
        if self.throttled {
            watch.throttle(t, true);
        }
        !self.throttled
    }

    /// Returns what the time of a runnable task that does not run counts as.
    #[inline]
    pub(super) fn waiting_bucket(&self) -> Bucket {
        if self.throttled { Bucket::Throttled } else { Bucket::Wait }
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Brings `cpu`'s account up to now: kernel work first, then the occupant's program.
    #[inline]
    pub(super) fn account(&mut self, cpu: usize) {
        let now = self.clock.now;
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
        if FREE {
            return c.charge(task, now);
        }
        let cost = self.tick_cost(cpu);
        let (c, task) = (&mut self.cpus[cpu], &mut self.tasks[occupant.index()]);
        let extra = &mut self.extras[occupant.index()];
        let from = std::mem::replace(&mut c.accounted, now);
        let owed = c.debt + extra.debt;
        let rest = if cost == 0 || now < c.quiet_until {
            Rest { added: 0, left: owed.saturating_sub(elapsed) }
        } else {
            c.quiet_until = self.world.next_edge(CpuId(cpu as u32), Ns(now)).0;
            self.input.machine.rest_of_debt(&self.world, cpu, from, now, (owed, cost))
        };
        extra.debt = extra.debt.min(rest.left);
        c.debt = rest.left - extra.debt;
        let work = task.left.min(elapsed - (owed + rest.added - rest.left));
        task.left -= work;
        extra.worked += work;
        c.counted.busy_ns += Ns(work);
        c.counted.overhead_ns += Ns(elapsed - work);
    }

    /// A task comes onto a CPU, after a yield or a wakeup after which a limit held it back.
    /// `waited` is the last part of its wait.
    #[cold]
    pub(super) fn comes_unrecorded(&mut self, t: usize, waited: u64) {
        let extra = &mut self.extras[t];
        if self.tasks[t].since != Since::LimitedWakeup {
            extra.came_back += 1;
            return;
        }
        let (all, queued) = std::mem::take(&mut extra.held_back);
        if !self.output.values.are_kept() {
            return;
        }
        let metrics = &mut self.output.metrics.tasks;
        self.output.values.flush_task(metrics, t);
        metrics[t].count_limited_wakeup(Ns(all + waited), Ns(queued + waited));
    }

    /// Returns the kernel work that a task owes before its program goes on.
    #[inline]
    pub(super) fn owes(&self, t: usize) -> u64 {
        if FREE { 0 } else { self.extras[t].debt }
    }

    /// See [`Task::set_bucket`].
    #[inline]
    pub(super) fn set_bucket(&mut self, t: usize, bucket: Bucket) -> u64 {
        self.tasks[t].set_bucket(
            t,
            bucket,
            self.clock.now,
            &mut self.output.conservation,
            &mut self.output.metrics.tasks,
        )
    }

    /// Charges what is under way up to now, for the end of the warm-up and of the run.
    pub(super) fn settle(&mut self) {
        for (t, task) in self.tasks.iter_mut().enumerate() {
            self.output.values.record_wait(
                &mut self.output.metrics.tasks,
                t,
                &mut task.waited,
                &mut task.counts,
            );
        }
        self.output.values.flush(&mut self.output.metrics.tasks);
        for cpu in 0..self.cpus.len() {
            self.count_stolen(cpu);
            self.account(cpu);
            self.output.metrics.cpus[cpu].add(std::mem::take(&mut self.cpus[cpu].counted));
        }
        for (channel, metrics) in
            self.traffic.channels.iter_mut().zip(&mut self.output.metrics.channels)
        {
            metrics.sent += std::mem::take(&mut channel.sent);
        }
        let tasks = self.tasks.iter_mut().zip(&mut self.extras);
        for ((task, extra), metrics) in tasks.zip(&mut self.output.metrics.tasks) {
            task.spent(self.clock.now, || metrics);
            if task.bucket != Bucket::Out {
                extra.lived += self.clock.now - extra.born;
            }
            extra.born = self.clock.now;
            let worked = std::mem::take(&mut extra.worked);
            metrics.work_ns += Ns(if FREE { task.sums[Bucket::Run as usize] } else { worked });
            into(metrics, task);
            // Every switch to it ends a wait, which is recorded but after a yield.
            metrics.switches =
                metrics.wake_latency.count() + metrics.preempt_wait.count() + extra.came_back;
            metrics.lifetime_ns += Ns(std::mem::take(&mut extra.lived));
            metrics.yields += std::mem::take(&mut extra.yields);
            let stolen = std::mem::take(&mut extra.stolen);
            metrics.cpu_ns = metrics.cpu_ns.saturating_sub(Ns(stolen));
            metrics.stolen_ns += Ns(stolen);
        }
    }

    /// The warm-up is over: the metrics begin again.
    pub(super) fn restart_metrics(&mut self) -> Step {
        self.settle();
        self.output.metrics.restart(Ns(self.clock.now));
        self.extras.iter_mut().for_each(|extra| extra.came_back = 0);
        Ok(())
    }
}

/// Moves what was counted in the hot record into the metrics.
fn into(metrics: &mut TaskMetrics, task: &mut Task) {
    let [sleep, wait, run] = std::mem::take(&mut task.sums);
    metrics.sleep_ns += Ns(sleep);
    metrics.wait_ns += Ns(wait);
    metrics.cpu_ns += Ns(run);
    task.counts.go_into(metrics);
}
