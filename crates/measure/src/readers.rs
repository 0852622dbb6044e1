//! The program of the SMP evaluation (Taniguchi, Ishikawa, Hiraki): threads of one process, each of
//! which reads 4 MB fifty times; from the first `pthread_create` to the last `pthread_join`.
//!
//! The threads read the same 4 MB: 1024 buffers would not have fitted into the paper's machine (4
//! GB).

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

/// What each thread reads, in the paper.
pub const BYTES: usize = 4 << 20;
/// How often, in the paper.
pub const READS: u32 = 50;
/// Such a thread needs next to no stack, and there are many.
const STACK: usize = 64 << 10;
/// More threads than this are refused.
pub const MOST_READERS: u32 = 16_384;

/// How many threads read what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadersRequest {
    /// Threads, 1 … [`MOST_READERS`].
    pub threads: u32,
    /// Bytes that each reads at a time, at least 64.
    pub bytes: usize,
    /// How often.
    pub reads: u32,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadersReport {
    /// What was asked for.
    pub request: ReadersRequest,
    /// From the first creation to the last join, nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the process meanwhile, nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the creating thread from the first creation to the last, nanoseconds.
    pub creating_ns: u64,
    /// The sum of all words that were read: without it a compiler could leave the reading out.
    pub sum: u64,
}

/// Runs the program.
///
/// # Errors
/// Numbers out of bounds, or threads that cannot be created.
pub fn readers(request: &ReadersRequest) -> io::Result<ReadersReport> {
    if !(1..=MOST_READERS).contains(&request.threads) || request.bytes < 64 || request.reads == 0 {
        let text = format!("1 to {MOST_READERS} threads, at least 64 bytes, at least 1 read");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // Written, so that every page is there.
    let buffer: Arc<Vec<u64>> = Arc::new((0..request.bytes as u64 / 8).collect());
    let clock = |id| {
        let time = clock_gettime(id);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let (cpu, own) = (|| clock(ClockId::ProcessCPUTime), || clock(ClockId::ThreadCPUTime));
    let (cpu_before, own_before, start) = (cpu(), own(), Instant::now());
    let mut threads = Vec::with_capacity(request.threads as usize);
    let mut failed = None;
    for _ in 0..request.threads {
        let (buffer, reads) = (Arc::clone(&buffer), request.reads);
        match Builder::new()
            .name("reader".to_owned())
            .stack_size(STACK)
            .spawn(move || read(&buffer, reads))
        {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let creating_ns = own() - own_before;
    let sum =
        threads.into_iter().filter_map(|thread| thread.join().ok()).fold(0, u64::wrapping_add);
    let (elapsed_ns, cpu_ns) = (start.elapsed().as_nanos() as u64, cpu() - cpu_before);
    failed
        .map_or(Ok(ReadersReport { request: *request, elapsed_ns, cpu_ns, creating_ns, sum }), Err)
}

fn read(buffer: &[u64], reads: u32) -> u64 {
    (0..reads).fold(0u64, |sum, _| {
        black_box(buffer).iter().fold(sum, |sum, word| sum.wrapping_add(*word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_reads_everything() {
        let request = ReadersRequest { threads: 3, bytes: 800, reads: 5 };
        let report = readers(&request).unwrap();
        // 0 + 1 + ... + 99, five times, by three threads.
        assert_eq!(report.sum, 3 * 5 * 4950);
        assert!(report.elapsed_ns > 0 && report.cpu_ns > 0);
        assert!(report.creating_ns > 0 && report.creating_ns <= report.cpu_ns);
    }

    #[test]
    fn nonsense_is_refused() {
        for (threads, bytes, reads) in
            [(0, 800, 1), (MOST_READERS + 1, 800, 1), (1, 8, 1), (1, 800, 0)]
        {
            assert!(readers(&ReadersRequest { threads, bytes, reads }).is_err());
        }
    }
}
