//! The measuring thread and its waker.

use super::wake::{Mailbox, Timer, now, own_cpu, sleep_until};
use super::{LatencyRequest, Samples, ThreadReport};
use rustix::thread::{gettid, sched_getcpu, set_current_timer_slack};
use schedlab_host::threads::{Scheduling, scheduling, set_affinity, set_scheduling};
use schedlab_model::{CpuId, CpuSet, Ns, Policy};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::{fs, hint, io};

/// Stack that is touched before measuring, bytes: more than the loop ever uses.
const PREFAULT: usize = 64 * 1024;

/// What the main thread sees of a measuring thread.
#[derive(Default)]
pub(super) struct Live {
    pub(super) tid: AtomicU32,
    pub(super) count: AtomicU64,
    pub(super) min: AtomicU64,
    pub(super) last: AtomicU64,
    pub(super) max: AtomicU64,
    pub(super) sum: AtomicU64,
    /// When the first sample above `break_above` was read off the clock; 0: none was.
    pub(super) broke_at: AtomicU64,
    pub(super) broke_late: AtomicU64,
    /// It waits for what its waker sends.
    pub(super) listens: AtomicBool,
}

/// One measuring thread's part of a request.
pub(super) struct Job<'a> {
    pub(super) index: usize,
    pub(super) cpu: CpuId,
    pub(super) interval: Ns,
    pub(super) request: &'a LatencyRequest,
    pub(super) live: &'a Live,
    pub(super) stop: &'a AtomicBool,
}

/// Makes the calling thread what was asked for.
pub(super) fn prepare(request: &LatencyRequest, cpu: CpuId, slack: Option<Ns>) -> io::Result<()> {
    match request.policy {
        // The kernel wants such a thread to be allowed on every CPU of its root domain.
        Policy::Deadline { .. } => set_affinity(0, &request.cpus.iter().copied().collect())?,
        _ => set_affinity(0, &CpuSet::single(cpu))?,
    }
    if let Some(slack) = slack {
        // Zero would mean the default: 1 ns is the least.
        set_current_timer_slack(NonZeroU64::new(slack.0.max(1)))?;
    }
    prefault();
    if request.policy != Policy::Other {
        let old = scheduling(0)?;
        set_scheduling(0, &Scheduling { slice: None, ..old.with_policy(request.policy) })?;
    }
    Ok(())
}

/// Touches the stack, so that the loop meets no page fault.
fn prefault() {
    let mut stack = [0u8; PREFAULT];
    for at in (0..PREFAULT).step_by(1024) {
        stack[at] = 1;
    }
    hint::black_box(&stack);
}

/// What a thread collects.
struct Tally<'a> {
    latency: Samples,
    uncorrected: Samples,
    wakes: u64,
    migrations: u64,
    cpu: Option<usize>,
    live: &'a Live,
}

impl Tally<'_> {
    /// One waking; `late` is how late the oldest expiry is.
    fn woken(&mut self, late: u64) {
        self.wakes += 1;
        self.uncorrected.add(late);
        let cpu = sched_getcpu();
        self.migrations += u64::from(self.cpu.is_some_and(|before| before != cpu));
        self.cpu = Some(cpu);
        // Only this thread writes.
        let live = self.live;
        live.last.store(late, Ordering::Relaxed);
        live.min.store(self.uncorrected.min(), Ordering::Relaxed);
        live.max.store(self.uncorrected.max(), Ordering::Relaxed);
        live.sum.fetch_add(late, Ordering::Relaxed);
        live.count.store(self.wakes, Ordering::Relaxed);
    }
}

impl Job<'_> {
    /// Measures from `base` on. With a `mailbox` a waker sends, otherwise a timer wakes.
    pub(super) fn measure(&self, base: u64, mailbox: Option<&Mailbox>) -> io::Result<ThreadReport> {
        let mut tally = Tally {
            latency: Samples::default(),
            uncorrected: Samples::default(),
            wakes: 0,
            migrations: 0,
            cpu: None,
            live: self.live,
        };
        let (cpu_before, preempted_before) = (own_cpu(), preempted());
        match mailbox {
            None => self.by_timer(base, &mut tally)?,
            Some(mailbox) => self.by_mail(mailbox, &mut tally)?,
        }
        Ok(ThreadReport {
            thread: self.index as u32,
            tid: gettid().as_raw_nonzero().get() as u32,
            cpu: match self.request.policy {
                Policy::Deadline { .. } => CpuId::from(sched_getcpu()),
                _ => self.cpu,
            },
            interval: self.interval,
            missed: tally.latency.count() - tally.wakes,
            wakes: tally.wakes,
            withheld: 0,
            latency: tally.latency,
            uncorrected: tally.uncorrected,
            migrations: tally.migrations,
            preempted: preempted().saturating_sub(preempted_before),
            cpu_ns: own_cpu() - cpu_before,
        })
    }

    fn by_timer(&self, base: u64, tally: &mut Tally<'_>) -> io::Result<()> {
        let mut grid = self.grid(base);
        grid.begin_after(now());
        let timer = Timer::start(self.request.wake, grid.next, self.interval)?;
        while grid.open() && !self.stop.load(Ordering::Relaxed) {
            let now = timer.wait(grid.next)?;
            // A signal came first.
            let Some(late) = now.checked_sub(grid.next) else { continue };
            tally.woken(late);
            self.worse(now, late);
            grid.expired(now, |late| tally.latency.add(late));
        }
        Ok(())
    }

    /// Ends the run at the first wakeup that is later than the request's `break_above`.
    fn worse(&self, now: u64, late: u64) {
        if self.request.break_above.is_some_and(|limit| late > limit.0)
            && !self.stop.swap(true, Ordering::Relaxed)
        {
            let live = self.live;
            live.broke_at.store(now, Ordering::Relaxed);
            live.broke_late.store(late, Ordering::Relaxed);
        }
    }

    /// Where the grid of this thread begins. Threads on one grid would expire in the same instants
    /// and meet each other in interrupts and idle exits; the golden section keeps any number of
    /// them apart, whatever their intervals.
    fn begin(&self, base: u64) -> u64 {
        const GOLDEN: u64 = 618_034;
        let part = self.index as u64 * GOLDEN % 1_000_000;
        if self.request.aligned { base } else { base + self.request.interval.0 * part / 1_000_000 }
    }

    fn grid(&self, base: u64) -> Grid {
        let base = self.begin(base);
        let last =
            self.request.duration.map_or(u64::MAX, |duration| base.saturating_add(duration.0));
        let left = self.request.loops.unwrap_or(u64::MAX);
        Grid { next: base + self.interval.0, interval: self.interval.0, last, left }
    }

    fn by_mail(&self, mailbox: &Mailbox, tally: &mut Tally<'_>) -> io::Result<()> {
        self.live.listens.store(true, Ordering::Release);
        loop {
            let mut oldest = None;
            let mut at = 0;
            let open = mailbox.receive(&mut |sent, woken| {
                at = woken;
                // What was sent after the thread woke found it awake.
                let late = woken.saturating_sub(sent);
                oldest.get_or_insert(late);
                tally.latency.add(late);
            })?;
            if let Some(late) = oldest {
                tally.woken(late);
                self.worse(at, late);
            }
            if !open {
                return Ok(());
            }
        }
    }

    /// The waker: sends on the grid until the end. Gives how many expiries it did not send (late
    /// itself, or the reader far behind), and its CPU time.
    pub(super) fn wake(&self, base: u64, mailbox: &Mailbox) -> io::Result<(u64, u64)> {
        let cpu_before = own_cpu();
        let mut withheld = 0;
        let mut send = || -> io::Result<()> {
            // What is sent to a thread that has not begun would measure its beginning.
            while !self.live.listens.load(Ordering::Acquire) && !self.stop.load(Ordering::Relaxed) {
                sleep_until(now() + self.interval.0)?;
            }
            let mut grid = self.grid(base);
            grid.begin_after(now());
            while grid.open() && !self.stop.load(Ordering::Relaxed) {
                sleep_until(grid.next)?;
                let now = now();
                if now < grid.next {
                    continue;
                }
                let sent = mailbox.post()?;
                let mut expired = 0u64;
                grid.expired(now, |_| expired += 1);
                withheld += expired - u64::from(sent);
            }
            Ok(())
        };
        let sent = send();
        // The reader must end also after an error here.
        mailbox.close()?;
        sent.map(|()| (withheld, own_cpu() - cpu_before))
    }
}

/// The expiries: every `interval` from the first on, whatever happens.
struct Grid {
    next: u64,
    interval: u64,
    last: u64,
    left: u64,
}

impl Grid {
    /// Moves the whole grid behind `now` by whole intervals: a thread that gets its CPU late for
    /// the first time is late by its own start, which is no wakeup latency.
    fn begin_after(&mut self, now: u64) {
        let moved = if now < self.next { 0 } else { (now - self.next) / self.interval + 1 };
        self.next += moved * self.interval;
        self.last = self.last.saturating_add(moved * self.interval);
    }

    fn open(&self) -> bool {
        self.left > 0 && self.next <= self.last
    }

    /// Every expiry until `now` goes to `take`, with how late it is.
    fn expired(&mut self, now: u64, mut take: impl FnMut(u64)) {
        while self.open() && self.next <= now {
            take(now - self.next);
            self.next += self.interval;
            self.left -= 1;
        }
    }
}

/// How often the calling thread lost its CPU without sleeping.
fn preempted() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missed_expiry_is_a_sample() {
        let mut grid = Grid { next: 1000, interval: 1000, last: 10_000, left: u64::MAX };
        let mut late = Vec::new();
        grid.expired(1010, |ns| late.push(ns));
        assert_eq!((&late[..], grid.next), (&[10][..], 2000));
        // A stall over three expiries.
        grid.expired(4500, |ns| late.push(ns));
        assert_eq!((&late[1..], grid.next), (&[2500, 1500, 500][..], 5000));
        // Nothing after the end, which belongs to it.
        grid.expired(50_000, |ns| late.push(ns));
        assert_eq!((late.len(), late.last(), grid.open()), (10, Some(&40_000), false));
    }

    #[test]
    fn a_late_beginning_is_no_sample() {
        let late_by = |start: u64| {
            let mut grid = Grid { next: 1000, interval: 1000, last: 3000, left: u64::MAX };
            grid.begin_after(start);
            let (first, mut late) = (grid.next, Vec::new());
            grid.expired(grid.last, |ns| late.push(ns));
            (first, late)
        };
        assert_eq!(late_by(400), (1000, vec![2000, 1000, 0]), "in time: the grid stays");
        assert_eq!(
            late_by(1000),
            (2000, vec![2000, 1000, 0]),
            "that expiry cannot be waited for any more"
        );
        assert_eq!(late_by(28_100), (29_000, vec![2000, 1000, 0]), "as many expiries, later");
    }

    #[test]
    fn loops_are_counted_exactly() {
        let mut grid = Grid { next: 1000, interval: 1000, last: u64::MAX, left: 3 };
        let mut count = 0;
        grid.expired(9000, |_| count += 1);
        assert_eq!((count, grid.open()), (3, false));
    }
}
