//! System calls: on oneself, and on a thread that sleeps, is queued, or runs elsewhere.

use super::{ProbeSettings, become_policy};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use rustix::process::Pid;
use rustix::thread::{CpuSet as RawMask, gettid, sched_setaffinity, sched_yield};
use rustix::time::{ClockId, clock_gettime};
use schedlab_host::threads::{affinity, scheduling, set_affinity, set_scheduling};
use schedlab_model::{CpuId, CpuSet, Policy};
use std::hint::{black_box, spin_loop};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Calls shorter than a clock read are timed so many at a time.
const BATCH: u32 = 100;

pub(super) fn clock(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    settings.calls(BATCH, || {
        black_box(clock_gettime(ClockId::Monotonic));
        Ok(())
    })
}

pub(super) fn cpu_clock(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    settings.calls(BATCH, || {
        black_box(clock_gettime(ClockId::ThreadCPUTime));
        Ok(())
    })
}

pub(super) fn null(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    settings.calls(BATCH, || {
        black_box(rustix::process::getppid());
        Ok(())
    })
}

pub(super) fn alone(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    // A fair thread that runs here too is none to give way to then.
    let _ = become_policy(Policy::Fifo(1));
    settings.calls(BATCH, || {
        sched_yield();
        Ok(())
    })
}

/// Changes the policy of thread `tid` there and back, a call a sample.
fn toggle(settings: &ProbeSettings, tid: u32, there: Policy) -> io::Result<Vec<f64>> {
    let before = scheduling(tid)?;
    let changed = before.with_policy(there);
    let mut next = [changed, before].into_iter().cycle();
    let samples =
        settings.calls(1, || next.next().map_or(Ok(()), |wanted| set_scheduling(tid, &wanted)));
    set_scheduling(tid, &before)?;
    samples
}

pub(super) fn setattr_self(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    toggle(settings, 0, Policy::Batch)
}

pub(super) fn setattr_fifo(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("needs policy fifo:1: {error}"));
    toggle(settings, 0, Policy::Fifo(1)).map_err(told)
}

/// What the thread of a [`Helper`] does.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Waits for the end.
    Sleeps,
    /// Spins.
    Spins,
    /// Does this again and again.
    Repeats(fn()),
}

/// A thread for others to be busy with. Ends on drop.
pub(super) struct Helper {
    tid: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts it on `cpu` with a fair policy, and waits until it is at it.
    pub(super) fn start(cpu: CpuId, policy: Policy, does: Does) -> io::Result<Helper> {
        let (tid, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (tid_in, stop_in, wake_in) = (Arc::clone(&tid), Arc::clone(&stop), Arc::clone(&wake));
        let thread = std::thread::Builder::new().name("sl-helper".to_owned()).spawn(move || {
            let ready = set_affinity(0, &CpuSet::single(cpu)).and_then(|()| become_policy(policy));
            let own = if ready.is_ok() { gettid().as_raw_nonzero().get() as u32 } else { u32::MAX };
            tid_in.store(own, Ordering::Release);
            let once = match does {
                Does::Sleeps => {
                    // An error ends the thread as well.
                    let _ = read(&*wake_in, &mut [0u8; 8]);
                    return;
                }
                Does::Spins => spin_loop,
                Does::Repeats(work) => work,
            };
            while !stop_in.load(Ordering::Relaxed) {
                once();
            }
        })?;
        let helper = Helper { tid, stop, wake, thread: Some(thread) };
        let start = Instant::now();
        while helper.tid() == 0 {
            if start.elapsed() > Duration::from_secs(5) {
                return Err(io::Error::other(
                    "no CPU time for a helping thread: the machine is overloaded",
                ));
            }
            std::thread::yield_now();
        }
        match helper.tid() {
            u32::MAX => Err(io::Error::other("a helping thread could not be bound to its CPU")),
            _ => Ok(helper),
        }
    }

    pub(super) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Acquire)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn setattr_sleeping(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let helper = Helper::start(settings.cpu, Policy::Other, Does::Sleeps)?;
    toggle(settings, helper.tid(), Policy::Batch)
}

pub(super) fn setattr_running(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let helper = Helper::start(settings.cpu, Policy::Other, Does::Spins)?;
    // Above it, so that it is runnable and never runs; equals take turns where that is not allowed.
    let _ = become_policy(Policy::Fifo(1));
    toggle(settings, helper.tid(), Policy::Batch)
}

pub(super) fn setattr_remote(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let helper = Helper::start(settings.other()?, Policy::Other, Does::Spins)?;
    toggle(settings, helper.tid(), Policy::Batch)
}

/// The kernel's form of a mask, made before the clock runs.
fn mask(cpus: &[CpuId]) -> RawMask {
    let mut mask = RawMask::new();
    cpus.iter().for_each(|cpu| mask.set(cpu.index()));
    mask
}

/// Sets the masks of thread `tid` in turn, a call a sample.
fn masks(settings: &ProbeSettings, tid: u32, masks: [&[CpuId]; 2]) -> io::Result<Vec<f64>> {
    let before = affinity(tid)?;
    let masks = masks.map(mask);
    let (pid, mut next) = (Pid::from_raw(tid as i32), masks.iter().cycle());
    let samples =
        settings.calls(1, || next.next().map_or(Ok(()), |mask| Ok(sched_setaffinity(pid, mask)?)));
    set_affinity(tid, &before)?;
    samples
}

pub(super) fn affinity_same(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    masks(settings, 0, [&[settings.cpu]; 2])
}

pub(super) fn affinity_stay(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    // Above every thread fair: or the balancer would move it while it may run on both.
    let _ = become_policy(Policy::Fifo(1));
    masks(settings, 0, [&[settings.cpu, settings.other()?], &[settings.cpu]])
}

pub(super) fn affinity_migrate(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    masks(settings, 0, [&[settings.other()?], &[settings.cpu]])
}

pub(super) fn affinity_sleeping(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let helper = Helper::start(settings.cpu, Policy::Other, Does::Sleeps)?;
    masks(settings, helper.tid(), [&[settings.cpu, settings.other()?], &[settings.cpu]])
}

pub(super) fn affinity_remote(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let other = settings.other()?;
    let helper = Helper::start(other, Policy::Other, Does::Spins)?;
    // Here it would be queued behind us; only the call that drives it away from where it runs is
    // timed.
    let _ = become_policy(Policy::Fifo(1));
    let (pid, here, there) =
        (Pid::from_raw(helper.tid() as i32), mask(&[settings.cpu]), mask(&[other]));
    settings.fill(|| {
        let start = Instant::now();
        sched_setaffinity(pid, &here)?;
        let took = start.elapsed();
        sched_setaffinity(pid, &there)?;
        // It must be at it again before it can be driven away.
        std::thread::sleep(Duration::from_micros(100));
        Ok(took.as_nanos() as f64)
    })
}
