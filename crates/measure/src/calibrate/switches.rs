//! Two threads that hand each other the CPU, or a byte.

use super::{ProbeSettings, become_policy};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use rustix::thread::{futex, sched_yield};
use schedlab_host::threads::set_affinity;
use schedlab_model::{CpuId, CpuSet, Policy};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Through what they speak.
#[derive(Clone, Copy)]
enum By {
    Pipe,
    Futex,
    Eventfd,
}

/// One direction of a pair. Each end is used by one thread.
enum OneWayChannel {
    Pipe(OwnedFd, OwnedFd),
    Futex(AtomicU32),
    Eventfd(OwnedFd),
}

impl OneWayChannel {
    fn new(by: By) -> io::Result<OneWayChannel> {
        Ok(match by {
            By::Pipe => {
                let (reader, writer) = io::pipe()?;
                OneWayChannel::Pipe(reader.into(), writer.into())
            }
            By::Futex => OneWayChannel::Futex(AtomicU32::new(0)),
            By::Eventfd => OneWayChannel::Eventfd(eventfd(0, EventfdFlags::CLOEXEC)?),
        })
    }

    fn post(&self) -> io::Result<()> {
        match self {
            OneWayChannel::Pipe(_, writer) => drop(write(writer, &[1])?),
            OneWayChannel::Eventfd(fd) => drop(write(fd, &1u64.to_ne_bytes())?),
            OneWayChannel::Futex(word) => {
                word.store(1, Ordering::Release);
                futex::wake(word, futex::Flags::PRIVATE, 1)?;
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        match self {
            OneWayChannel::Pipe(reader, _) => drop(read(reader, &mut [0u8; 1])?),
            OneWayChannel::Eventfd(fd) => drop(read(fd, &mut [0u8; 8])?),
            OneWayChannel::Futex(word) => {
                while word.swap(0, Ordering::Acquire) == 0 {
                    match futex::wait(word, futex::Flags::PRIVATE, 0, None) {
                        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }
}

/// A thread that answers every call, on a CPU. Ends on drop.
pub(super) struct Echo {
    lines: Arc<(OneWayChannel, OneWayChannel)>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl Echo {
    fn start(by: By, cpu: CpuId) -> io::Result<Echo> {
        let lines = Arc::new((OneWayChannel::new(by)?, OneWayChannel::new(by)?));
        let stop = Arc::new(AtomicBool::new(false));
        let (own, stopping) = (Arc::clone(&lines), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("sl-echo".to_owned()).spawn(move || {
            let bound = set_affinity(0, &CpuSet::single(cpu));
            while !stopping.load(Ordering::Acquire) {
                own.0.wait()?;
                own.1.post()?;
            }
            bound
        })?;
        Ok(Echo { lines, stop, thread: Some(thread) })
    }

    /// Of pipes between two threads of one CPU: what the recorder is measured with.
    pub(super) fn through_pipes(cpu: CpuId) -> io::Result<Echo> {
        Echo::start(By::Pipe, cpu)
    }

    /// There and back.
    pub(super) fn call(&self) -> io::Result<()> {
        self.lines.0.post()?;
        self.lines.1.wait()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // One last call lets it see that.
        let _ = self.lines.0.post();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Round trips with a thread on `cpu`; a sample is half of one.
fn one_way(settings: &ProbeSettings, by: By, cpu: CpuId) -> io::Result<Vec<f64>> {
    let echo = Echo::start(by, cpu)?;
    echo.call()?;
    let mut samples = settings.calls(1, || echo.call())?;
    samples.iter_mut().for_each(|sample| *sample /= 2.0);
    Ok(samples)
}

pub(super) fn pipe_same(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    one_way(settings, By::Pipe, settings.cpu)
}

pub(super) fn futex_same(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    one_way(settings, By::Futex, settings.cpu)
}

pub(super) fn eventfd_same(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    one_way(settings, By::Eventfd, settings.cpu)
}

pub(super) fn pipe_cross(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    one_way(settings, By::Pipe, settings.other()?)
}

pub(super) fn futex_cross(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    one_way(settings, By::Futex, settings.other()?)
}

pub(super) fn eventfd_cross(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    one_way(settings, By::Eventfd, settings.other()?)
}

/// Two FIFO threads of one CPU that give way to each other: each yield is a switch.
pub(super) fn yields(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    const TURNS: u32 = 50;
    become_policy(Policy::Fifo(1))?;
    let (turns, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, stopping) = (Arc::clone(&turns), Arc::clone(&stop));
    let cpu = settings.cpu;
    // Not longer than this, whatever happens: it is a real-time thread.
    let limit = settings.budget * 2 + Duration::from_millis(100);
    let other = std::thread::Builder::new().name("sl-yield".to_owned()).spawn(move || {
        set_affinity(0, &CpuSet::single(cpu))?;
        become_policy(Policy::Fifo(1))?;
        let start = Instant::now();
        while !stopping.load(Ordering::Relaxed) && start.elapsed() < limit {
            counted.fetch_add(1, Ordering::Relaxed);
            sched_yield();
        }
        io::Result::Ok(())
    })?;
    // It begins as a fair thread, which needs the CPU that this one has.
    std::thread::sleep(Duration::from_millis(1));
    let samples = settings.fill(|| {
        let (before, start) = (turns.load(Ordering::Relaxed), Instant::now());
        for _ in 0..TURNS {
            sched_yield();
        }
        let took = start.elapsed().as_nanos() as f64;
        let theirs = turns.load(Ordering::Relaxed).wrapping_sub(before);
        // Without the other thread these were no switches.
        Ok(if theirs + 1 >= TURNS { took / f64::from(TURNS + theirs) } else { f64::NAN })
    });
    stop.store(true, Ordering::Relaxed);
    let ended =
        other.join().unwrap_or_else(|_| Err(io::Error::other("the second thread ended early")));
    let samples: Vec<f64> = samples?.into_iter().filter(|sample| sample.is_finite()).collect();
    ended?;
    if samples.is_empty() {
        return Err(io::Error::other(
            "the two threads did not take turns: a thread of higher priority runs there",
        ));
    }
    Ok(samples)
}
