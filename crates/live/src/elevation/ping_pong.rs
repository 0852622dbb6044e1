//! Two threads that wake each other and block: the cost of a driver is what their turns take
//! longer. `benches/dispatch.rs` measures the driver with it, and `schedlab confirm` prices its
//! predictions.

use crate::driver::monotonic;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use rustix::time::{ClockId, clock_gettime};
use schedlab_model::Ns;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

/// Turns that are kept.
const KEPT: usize = 1 << 18;

/// What the two threads measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PingPong {
    /// From the last step of the thread that blocks to the first of the next one: p50 and p99.
    pub block_to_next: (Ns, Ns),
    /// A whole turn without its burst: the same, and the wakeup of the other thread, which waits.
    /// p50 and p99.
    pub cycle: (Ns, Ns),
    /// The part of the time that was no burst.
    pub overhead: f64,
    /// Turns.
    pub turns: u64,
}

/// When the thread that blocks did its last step, and when the last one came back; 0: not yet.
#[derive(Default)]
struct Times {
    left: AtomicU64,
    back: AtomicU64,
}

/// One thread's turns (ns).
#[derive(Default)]
struct Turns {
    block_to_next: Vec<u64>,
    cycle: Vec<u64>,
}

/// Makes two threads of this process take turns of `burst` CPU time each, for `time`. `begin` gets
/// their thread ids before the first turn.
///
/// # Panics
/// When the kernel gives no eventfd, or no thread.
pub fn play(burst: Ns, time: Ns, begin: impl FnOnce([u32; 2])) -> PingPong {
    let wake_fd = || eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let bells: Arc<[OwnedFd; 2]> = Arc::new([wake_fd(), wake_fd()]);
    let (times, end) = (Arc::new(Times::default()), Arc::new(AtomicU64::new(u64::MAX)));
    let (ready, told) = channel();
    let workers = [0, 1].map(|own: usize| {
        let (bells, times, end, ready) = (bells.clone(), times.clone(), end.clone(), ready.clone());
        std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            ready.send((own, tid)).expect("it is waited for");
            turns(own, burst.0, &bells, &times, &end)
        })
    });
    // No spinning: a driver does not see a yield.
    let mut tids = [0; 2];
    for (own, tid) in told.iter().take(2) {
        tids[own] = tid;
    }
    begin(tids);
    let began = monotonic();
    end.store((began + time).0, Ordering::Relaxed);
    write(&bells[0], &1_u64.to_ne_bytes()).expect("an eventfd");
    let mut all = Turns::default();
    for worker in workers {
        let one = worker.join().expect("a worker");
        all.block_to_next.extend(one.block_to_next);
        all.cycle.extend(one.cycle);
    }
    let (elapsed, turns) = (monotonic().saturating_sub(began), all.cycle.len() as u64);
    let overhead = 1.0 - (turns * burst.0) as f64 / elapsed.0.max(1) as f64;
    PingPong { block_to_next: middle(all.block_to_next), cycle: middle(all.cycle), overhead, turns }
}

fn turns(own: usize, burst: u64, bells: &[OwnedFd; 2], times: &Times, end: &AtomicU64) -> Turns {
    let used = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let mut round =
        Turns { block_to_next: Vec::with_capacity(KEPT), cycle: Vec::with_capacity(KEPT) };
    loop {
        read(&bells[own], &mut [0; 8]).expect("an eventfd");
        let now = monotonic().0;
        let (left, back) =
            (times.left.load(Ordering::Relaxed), times.back.swap(now, Ordering::Relaxed));
        if back > 0 && round.cycle.len() < round.cycle.capacity() {
            round.block_to_next.extend((left > 0).then(|| now.saturating_sub(left)));
            // What a turn costs beside its burst.
            round.cycle.push(now.saturating_sub(back).saturating_sub(burst));
        }
        let over = now > end.load(Ordering::Relaxed);
        if burst > 0 && !over {
            let until = used() + burst;
            while used() < until {}
        }
        // Until this one blocks: a thread that comes before then was let in front of it, and has no
        // block to measure.
        times.left.store(0, Ordering::Relaxed);
        write(&bells[1 - own], &1_u64.to_ne_bytes()).expect("an eventfd");
        if over {
            return round;
        }
        times.left.store(monotonic().0, Ordering::Relaxed);
    }
}

/// Returns p50 and p99.
fn middle(mut values: Vec<u64>) -> (Ns, Ns) {
    values.sort_unstable();
    let at = |percent: usize| Ns(values.get(values.len() * percent / 100).copied().unwrap_or(0));
    (at(50), at(99))
}
