//! One thread that decides for one CPU.

use super::locks::{Meter, meter};
use crate::calibrate::{Filler, become_policy};
use schedlab_host::cycles;
use schedlab_host::threads::set_affinity;
use schedlab_model::{CpuId, CpuSet, Ns, Policy, TaskId};
use schedlab_scheduler::{Cx, Out, Prev, Scheduler, Work, World};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than any slice, so that it is used up at every tick: 30 ticks of 10 ms.
const SLICE: Ns = Ns::from_ms(300);
/// Single calls that are kept of a round.
const KEPT: usize = 2_000;
/// Not longer than that for a round in any case, counts of the cycle counter: several seconds.
const LONGEST: u64 = 20_000_000_000;

/// Cold decisions of each thread in a round; the first is not counted.
pub(super) const COLD_CALLS: u32 = 5;

/// Everything that the thread needs.
pub(super) struct Seat<'a> {
    /// The CPU that it decides for.
    pub(super) cpu: CpuId,
    /// The CPU where it runs.
    pub(super) host: CpuId,
    pub(super) world: &'a World,
    pub(super) scheduler: &'a (dyn Scheduler + Sync),
    pub(super) policy: Policy,
    /// What is read before each of [`COLD_CALLS`] decisions.
    pub(super) cold: Option<&'a Filler>,
    /// Counts of the cycle counter.
    pub(super) budget: u64,
    pub(super) ready: &'a AtomicUsize,
    pub(super) go: &'a AtomicBool,
}

/// What it did, in counts of the cycle counter.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) calls: u64,
    /// Inside of `schedule`.
    pub(super) spent: u64,
    /// From the first counted call to the last.
    pub(super) elapsed: u64,
    pub(super) samples: Vec<u64>,
    pub(super) meter: Meter,
    pub(super) looked: u64,
    /// Another thread got the CPU meanwhile.
    pub(super) preempted: bool,
}

/// Lets every thread begin when all are ready.
pub(super) fn start(ready: &AtomicUsize, go: &AtomicBool, threads: usize) {
    let since = Instant::now();
    // A thread that could not begin never says so; the others end by themselves.
    while ready.load(Ordering::Acquire) < threads && since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_micros(50));
    }
    go.store(true, Ordering::Release);
}

impl Seat<'_> {
    pub(super) fn sit<const METERED: bool>(&self) -> io::Result<Tally> {
        set_affinity(0, &CpuSet::single(self.host))?;
        if self.policy != Policy::Other {
            become_policy(self.policy)?;
        }
        let mut table = Table {
            seat: self,
            out: Out::new(1),
            told: Vec::new(),
            now: Ns::from_s(1),
            current: None,
        };
        let preempted = involuntary();
        self.ready.fetch_add(1, Ordering::AcqRel);
        // Asleep, so that others can get ready on this CPU when there are too few; then awake
        // together.
        while !self.go.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(20));
        }
        let mut tally = match self.cold {
            Some(filler) => table.cold::<METERED>(filler)?,
            None => table.hot::<METERED>()?,
        };
        tally.preempted = involuntary() != preempted;
        Ok(tally)
    }
}

/// How often this thread had to give its CPU away; 0 where the kernel does not say.
fn involuntary() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// The CPU that is decided for.
struct Table<'a> {
    seat: &'a Seat<'a>,
    out: Out,
    told: Vec<schedlab_scheduler::Cmd>,
    now: Ns,
    current: Option<TaskId>,
}

impl Table<'_> {
    fn hot<const METERED: bool>(&mut self) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let begin = cycles();
        let warm = begin + self.seat.budget / 4;
        let end = begin + self.seat.budget.min(LONGEST);
        let mut first = None;
        loop {
            let (entry, exit) = self.decide::<METERED>(&mut tally, first.is_some())?;
            match first {
                Some(first) => {
                    tally.calls += 1;
                    tally.spent += exit.saturating_sub(entry);
                    if tally.samples.len() < KEPT {
                        tally.samples.push(exit.saturating_sub(entry));
                    }
                    // A round has 20 calls at least, however long they are, or 16 times its time.
                    let over =
                        exit >= end && (tally.calls >= 20 || exit - begin > 16 * self.seat.budget);
                    if over {
                        tally.elapsed = exit - first;
                        return Ok(tally);
                    }
                }
                None if exit >= warm => first = Some(exit),
                None => {}
            }
        }
    }

    fn cold<const METERED: bool>(&mut self, filler: &Filler) -> io::Result<Tally> {
        let mut tally = Tally::default();
        for call in 0..COLD_CALLS {
            filler.read();
            let counted = call > 0;
            let (entry, exit) = self.decide::<METERED>(&mut tally, counted)?;
            if counted {
                tally.calls += 1;
                tally.spent += exit.saturating_sub(entry);
                tally.samples.push(exit.saturating_sub(entry));
            }
        }
        // Reading through memory is not what a decision costs.
        tally.elapsed = tally.spent;
        Ok(tally)
    }

    /// The slice ends, and the next task is chosen. Entry and return of `schedule`.
    fn decide<const METERED: bool>(
        &mut self,
        tally: &mut Tally,
        counted: bool,
    ) -> io::Result<(u64, u64)> {
        let Seat { cpu, world, scheduler, .. } = *self.seat;
        self.now += SLICE;
        let cx = Cx { now: self.now, cpu, world, out: &self.out };
        scheduler.tick(&cx, cpu);
        let why = if self.current.is_some() { Prev::Runnable } else { Prev::Idle };
        let before = (METERED && counted).then(|| (meter(), self.out.work(Work::Scan)));
        let entry = cycles();
        let pick = scheduler.schedule(&cx, cpu, self.current, why);
        let exit = cycles();
        if let Some((meter_before, looked)) = before {
            let after = meter();
            tally.meter.taken += after.taken - meter_before.taken;
            tally.meter.wait += after.wait - meter_before.wait;
            tally.meter.hold += after.hold - meter_before.hold;
            tally.looked += self.out.work(Work::Scan) - looked;
        }
        if pick.task != self.current {
            if METERED {
                self.check(pick.task)?;
            }
            if let Some(prev) = self.current {
                scheduler.saved(&cx, cpu, prev);
            }
        }
        self.current = pick.task;
        // What other CPUs should do they do anyway: they decide all the time.
        self.out.take_cmds(&mut self.told);
        self.told.clear();
        Ok((entry, exit))
    }

    /// No thread may run on two CPUs. In metered rounds only: the marks are lines that CPUs share.
    fn check(&self, next: Option<TaskId>) -> io::Result<()> {
        let view = |task: TaskId| &self.seat.world.tasks[task.index()];
        if let Some(prev) = self.current {
            view(prev).switched_out(self.now, Ns::ZERO);
        }
        if let Some(next) = next {
            if let Some(other) = view(next).on_cpu() {
                let text = format!(
                    "the scheduler gave task {} to {} while it ran on {other}",
                    next.0, self.seat.cpu
                );
                return Err(io::Error::other(text));
            }
            view(next).switched_in(self.seat.cpu, self.now);
        }
        Ok(())
    }
}
