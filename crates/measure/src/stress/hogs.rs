//! Threads that take all the CPU time they get, and threads that stream through memory.

use super::{StressError, resources};
use rustix::time::{ClockId, clock_gettime};
use schedlab_model::Ns;
use schemars::JsonSchema;
use serde::Serialize;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct HogsRequest {
    /// Threads that only compute.
    pub hogs: usize,
    /// Bytes through which one more thread streams, over and over; 0: no such thread.
    pub memory_bytes: usize,
    /// End after this time; `None`: when `stop` says so.
    pub duration: Option<Ns>,
}

/// What one thread got.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct HogReport {
    /// `hog` or `memory`.
    pub kind: &'static str,
    /// CPU time.
    pub cpu_ns: Ns,
    /// CPU time as a part of the time it existed, 0 to 1.
    pub share: f64,
    /// Memory threads: bytes read and written in all.
    pub bytes: u64,
}

const LINE_WORDS: usize = 8;

/// Runs the threads until the time is over or `stop`, asked every 20 ms, says so. All have ended
/// when it returns.
///
/// # Errors
/// Nothing to run, or too much; no more threads or memory.
pub fn run_hogs(
    request: &HogsRequest,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<HogReport>, StressError> {
    if (request.hogs == 0 && request.memory_bytes == 0) || request.hogs > 10_000 {
        return Err(StressError::Request(
            "a load takes 1 to 10000 hogs, or memory to stream through".to_owned(),
        ));
    }
    let mut buffer: Vec<u64> = Vec::new();
    let words = request.memory_bytes.div_ceil(size_of::<u64>());
    let no_memory = |error: std::collections::TryReserveError| {
        resources("get the memory")(std::io::Error::other(error.to_string()))
    };
    buffer.try_reserve_exact(words).map_err(no_memory)?;
    let stopping = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    let spawned = (|| {
        for _ in 0..request.hogs {
            let stopping = Arc::clone(&stopping);
            threads.push(Builder::new().name("hog".to_owned()).spawn(move || hog(&stopping))?);
        }
        if words > 0 {
            buffer.resize(words, 1);
            let stopping = Arc::clone(&stopping);
            threads.push(
                Builder::new()
                    .name("memory".to_owned())
                    .spawn(move || stream(&mut buffer, &stopping))?,
            );
        }
        Ok(())
    })();
    let start = Instant::now();
    let over =
        || request.duration.is_some_and(|wanted| start.elapsed() >= Duration::from_nanos(wanted.0));
    while spawned.is_ok() && !over() && !stop() {
        let left = request.duration.map_or(u64::MAX, |wanted| wanted.0);
        sleep(Duration::from_nanos(left.min(20_000_000)));
    }
    stopping.store(true, Ordering::Relaxed);
    let reports = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
    spawned.map_err(resources("start a thread"))?;
    Ok(reports)
}

fn hog(stopping: &AtomicBool) -> HogReport {
    measured("hog", || {
        let mut state = 1_u64;
        while !stopping.load(Ordering::Relaxed) {
            for _ in 0..1000 {
                state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        }
        0
    })
}

/// Reads and writes one word of every cache line, pass after pass.
fn stream(buffer: &mut [u64], stopping: &AtomicBool) -> HogReport {
    measured("memory", || {
        let mut lines = 0_u64;
        'passes: loop {
            for part in buffer.chunks_mut(LINE_WORDS << 12) {
                for line in part.chunks_mut(LINE_WORDS) {
                    line[0] = black_box(line[0].wrapping_add(1));
                    lines += 1;
                }
                if stopping.load(Ordering::Relaxed) {
                    break 'passes;
                }
            }
        }
        lines * (LINE_WORDS * size_of::<u64>()) as u64
    })
}

fn measured(kind: &'static str, work: impl FnOnce() -> u64) -> HogReport {
    let (start, cpu) = (Instant::now(), cpu_time());
    let bytes = work();
    let cpu_ns = Ns(cpu_time().saturating_sub(cpu));
    let share = cpu_ns.0 as f64 / start.elapsed().as_nanos().max(1) as f64;
    HogReport { kind, cpu_ns, share, bytes }
}

fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_runs_and_all_end() {
        let request = HogsRequest { hogs: 2, memory_bytes: 1 << 20, duration: Some(Ns(1)) };
        let reports = run_hogs(&request, &|| false).unwrap();
        let kinds: Vec<_> = reports.iter().map(|report| report.kind).collect();
        assert_eq!(kinds, ["hog", "hog", "memory"]);
        assert!(reports[2].bytes > 0 && reports.iter().all(|report| report.cpu_ns.0 > 0));
    }

    #[test]
    fn stops_when_asked_and_refuses_nothing() {
        let request = HogsRequest { hogs: 1, ..HogsRequest::default() };
        assert_eq!(run_hogs(&request, &|| true).unwrap().len(), 1);
        assert!(matches!(
            run_hogs(&HogsRequest::default(), &|| true),
            Err(StressError::Request(_))
        ));
    }
}
