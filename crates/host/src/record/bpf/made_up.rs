//! Load that no machine made: a thread writes switches and wakeups into rings of the layout of
//! `bpf/sched.bpf.c`, and the recorder's reader and merge take them. For the bench `rings`.

use super::CONTROL;
use super::decode::{RECORD, SEQUENCE};
use super::ring::{HEAD, LOST, Reader, TAIL};
use crate::record::merge::Merger;
use crate::record::raw::RawEvent;
use crate::record::tasks::Tasks;
use crate::record::{CpuSource, RecordSink};
use crate::sys::Shared;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, SchedEvent};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// Time between two looks at the rings, as the recorder has it.
const POLL: Duration = Duration::from_millis(20);
/// Tasks of each CPU that take turns, and the first one's number: larger than the kernel gives.
const TASKS: u64 = 8;
const FIRST: u64 = 1 << 22;

/// What is made: so many rings with so many slots each, and this many events in all of them
/// together, at this rate.
#[derive(Clone, Copy, Debug)]
pub struct MadeUp {
    /// Rings.
    pub rings: usize,
    /// Slots of each: a power of two.
    pub slots: usize,
    /// Events.
    pub events: u64,
    /// Events a second.
    pub rate: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Events that were written.
    pub written: u64,
    /// Events for which a ring had no room.
    pub no_room: u64,
    /// Events that were handed out, in the order of time.
    pub handed_out: u64,
    /// Events that the reader said to be lost.
    pub said_lost: u64,
    /// CPU time of the thread that reads and merges.
    pub cpu: Duration,
    /// Events that the merge held at most.
    pub held: usize,
}

/// Makes the load, and takes it as the recorder does.
///
/// # Errors
/// The system gives no memory for the rings.
///
/// # Panics
/// What is handed out is not in the order of time.
pub fn take(load: MadeUp) -> io::Result<Taken> {
    let mut sink = InOrder::default();
    let memory = Memory::new(load)?;
    let (rings, controls) = memory.map(load)?;
    let (rings, controls) = (Rc::new(rings), Rc::new(controls));
    let reader = |cpu| {
        let reader = Reader::new((&rings, &controls), (cpu, load.slots));
        (CpuId::from(cpu), Box::new(Ring(reader)) as Box<dyn CpuSource>)
    };
    let mut sources: Vec<_> = (0..load.rings).map(reader).collect();
    let mut merger = Merger::new(now(), load.rings, Tasks::new(true), false);
    let is_over = AtomicBool::new(false);
    let (cpu, held, counted) = std::thread::scope(|threads| {
        let write = || {
            let counted = memory.map(load).map(|memory| write(load, &memory));
            is_over.store(true, Release);
            counted
        };
        let writer = threads.spawn(write);
        let (before, mut held, mut horizon) = (cpu_time(), 0, now());
        loop {
            std::thread::sleep(POLL);
            let (last, begins) = (is_over.load(Acquire), now());
            merger.round(&mut sources, if last { begins } else { horizon }, &mut sink);
            held = held.max(merger.waiting());
            horizon = begins;
            if last {
                break;
            }
        }
        (cpu_time() - before, held, writer.join().expect("it only writes"))
    });
    let (written, no_room) = counted?;
    Ok(Taken { written, no_room, handed_out: sink.events, said_lost: merger.lost, cpu, held })
}

/// Counts what is handed out.
#[derive(Default)]
struct InOrder {
    last: Ns,
    events: u64,
}

impl EventSink for InOrder {
    fn event(&mut self, event: &SchedEvent) {
        assert!(event.at >= self.last, "{event:?} after {}", self.last);
        self.last = event.at;
        self.events += u64::from(!matches!(event.kind, EventKind::Lost { .. }));
    }
}

impl RecordSink for InOrder {}

/// The memory of rings and their controls, which writer and reader map each for themselves.
struct Memory {
    rings: OwnedFd,
    controls: OwnedFd,
}

impl Memory {
    fn new(load: MadeUp) -> io::Result<Memory> {
        let of_bytes = |bytes: usize| -> io::Result<OwnedFd> {
            let file = memfd_create("schedlab-rings", MemfdFlags::CLOEXEC)?;
            ftruncate(&file, bytes as u64)?;
            Ok(file)
        };
        let rings = of_bytes(load.rings * load.slots * RECORD)?;
        Ok(Memory { rings, controls: of_bytes(load.rings * CONTROL)? })
    }

    fn map(&self, load: MadeUp) -> io::Result<(Shared, Shared)> {
        let rings = Shared::map(self.rings.as_fd(), load.rings * load.slots * RECORD)?;
        Ok((rings, Shared::map(self.controls.as_fd(), load.rings * CONTROL)?))
    }
}

/// Writes at the rate that was asked for, ring after ring; returns how many events there was room
/// for, and for how many there was none.
fn write(load: MadeUp, memory: &(Shared, Shared)) -> (u64, u64) {
    let (mut written, mut no_room, began) = (0, 0, Instant::now());
    while written + no_room < load.events {
        let due = began.elapsed().as_nanos() * u128::from(load.rate) / 1_000_000_000;
        while u128::from(written + no_room) < due.min(load.events.into()) {
            let number = written + no_room;
            let cpu = (number % load.rings as u64) as usize;
            match put(load, memory, cpu, number / load.rings as u64) {
                true => written += 1,
                false => no_room += 1,
            }
        }
        std::thread::yield_now();
    }
    (written, no_room)
}

/// Puts one record into a ring as the programs do: room first, the sequence number last.
fn put(load: MadeUp, (rings, controls): &(Shared, Shared), cpu: usize, number: u64) -> bool {
    let control = |part: usize| controls.long(cpu * CONTROL + part);
    let head = control(HEAD).load(Relaxed);
    if head - control(TAIL).load(Acquire) >= load.slots as u64 {
        control(LOST).fetch_add(1, Relaxed);
        return false;
    }
    let task = |turn: u64| FIRST + cpu as u64 * TASKS + turn % TASKS;
    // A task that stops wakes up before its next turn: every other record is a switch.
    let (turn, is_wake) = (number / 2, number % 2);
    let (a, b, kind) = match is_wake {
        1 => (task(turn + 2), task(turn + 1), 2_u64),
        _ => (task(turn), task(turn + 1), 1),
    };
    let offset = (cpu * load.slots + head as usize % load.slots) * RECORD;
    let words = [now(), a | b << 32, 1 | 120 << 32 | kind << 48];
    for (word, value) in words.into_iter().enumerate() {
        rings.long(offset + 8 * word).store(value, Relaxed);
    }
    rings.word(offset + SEQUENCE).store((head as u32).wrapping_add(1), Release);
    control(HEAD).store(head + 1, Release);
    true
}

struct Ring(Reader);

impl CpuSource for Ring {
    fn enable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn disable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn drain(&mut self, out: &mut VecDeque<RawEvent>) {
        self.0.events(out);
    }

    fn ring_bytes(&self) -> usize {
        self.0.bytes()
    }
}

fn now() -> u64 {
    crate::record::clock(ClockId::Monotonic)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rings that are too small for what is written: what finds no room is said, and nothing else
    /// is missing.
    #[test]
    fn what_finds_no_room_is_said() {
        let load = MadeUp { rings: 256, slots: 8, events: 100_000, rate: u64::MAX };
        let taken = take(load).unwrap();
        assert!(taken.no_room > 0, "{taken:?}");
        assert_eq!((taken.handed_out, taken.said_lost), (taken.written, taken.no_room));
        assert!(taken.held <= 2 * load.rings * (load.slots + 1), "{taken:?}");
    }
}
