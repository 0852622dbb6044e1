//! What the recorder costs a context switch on this machine, now: measured before a recording
//! begins.
//!
//! Two threads of our own, bound to one CPU, wake each other over pipes: each message is a wakeup
//! and a switch. Their CPU time with the recording on, less that with it off, by message, is the
//! price of both. On and off take turns, so that what else the machine does meanwhile falls on
//! both; the median of the turns is the figure. It takes some milliseconds of CPU time and at most
//! [`LONGEST`] of elapsed time.
//!
//! Tiers that begin anew only after an RCU grace period ([`CpuSource::begins_once`]) are off in the
//! first turns and on in all others, and stay on. A grace period takes some 10 ms on a quiet
//! machine; where groups of great weight keep all CPUs busy, the kernel's threads that bring it to
//! its end wait behind them, and one took 12 s.

use super::CpuSource;
use rustix::time::{ClockId, clock_gettime};
use schedlab_model::CpuId;
use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::time::{Duration, Instant};

/// Messages of one thread in one turn. Chosen: 2 × 200 messages take about 2 ms.
const MESSAGES: u32 = 200;
/// Turns, each with the recording off and on.
const TURNS: usize = 15;
/// Fewer whole turns than this are no measurement: a CPU that others keep busy gives none.
const FEWEST: usize = 3;
/// Nothing new is begun after this time.
const LONGEST: Duration = Duration::from_millis(250);
/// A dearer switch than this is another thing's doing.
const MOST_NS: u64 = 50_000;

/// CPU time in nanoseconds that recording adds to a wakeup and its switch; `None` where it could
/// not be measured. The recording is off afterwards, unless it begins only once, and the rings are
/// empty.
pub(super) fn per_switch(
    sources: &mut [(CpuId, Box<dyn CpuSource>)],
    cpu: CpuId,
) -> io::Result<Option<u64>> {
    let began = Instant::now();
    if sources.iter().any(|(_, source)| source.begins_once()) {
        // Half of the time each; the messages stop by themselves when it is over.
        let off =
            several(|turn| turn < TURNS && began.elapsed() < LONGEST / 2, || messages(cpu, began))?;
        sources.iter_mut().try_for_each(|(_, source)| source.enable())?;
        let on =
            several(|turn| turn < off.len() && began.elapsed() < LONGEST, || messages(cpu, began))?;
        empty(sources);
        return Ok(between(&off, &on));
    }
    let mut extra = Vec::new();
    while extra.len() < TURNS && began.elapsed() < LONGEST {
        let off = messages(cpu, began)?;
        sources.iter_mut().try_for_each(|(_, source)| source.enable())?;
        let on = messages(cpu, began);
        sources.iter_mut().try_for_each(|(_, source)| source.disable())?;
        empty(sources);
        match (off, on?) {
            (Some(off), Some(on)) => extra.push(on as i64 - off as i64),
            _ => break,
        }
    }
    Ok(judge(extra))
}

/// The distance of the medians, when there are enough turns of both.
fn between(off: &[u64], on: &[u64]) -> Option<u64> {
    let median =
        |turns: &[u64]| turns.get(turns.len() / 2).filter(|_| turns.len() >= FEWEST).copied();
    let cost = median(on)?.saturating_sub(median(off)?);
    (cost <= MOST_NS).then_some(cost)
}

/// The turns that came to an end, in ascending order.
fn several(
    more: impl Fn(usize) -> bool,
    turn: impl Fn() -> io::Result<Option<u64>>,
) -> io::Result<Vec<u64>> {
    let mut turns = Vec::new();
    while more(turns.len()) {
        let Some(time) = turn()? else { break };
        turns.push(time);
    }
    turns.sort_unstable();
    Ok(turns)
}

/// Forgets what the rings hold.
pub(super) fn empty(sources: &mut [(CpuId, Box<dyn CpuSource>)]) {
    let (mut dropped, mut facts) = (VecDeque::new(), VecDeque::new());
    for (_, source) in sources {
        source.drain(&mut dropped);
        dropped.clear();
        source.drain_facts(&mut facts);
        facts.clear();
    }
}

/// The median turn, when there are enough.
fn judge(mut extra: Vec<i64>) -> Option<u64> {
    extra.sort_unstable();
    let median = *extra.get(extra.len() / 2).filter(|_| extra.len() >= FEWEST)?;
    let cost = u64::try_from(median).unwrap_or(0);
    (cost <= MOST_NS).then_some(cost)
}

/// CPU time of both threads by message, in nanoseconds; `None`: it took too long.
fn messages(cpu: CpuId, began: Instant) -> io::Result<Option<u64>> {
    let (to_us, from_it) = io::pipe()?;
    let (to_it, from_us) = io::pipe()?;
    let other = std::thread::spawn(move || side(cpu, began, to_it, from_it, false));
    let own = std::thread::spawn(move || side(cpu, began, to_us, from_us, true));
    let ended = |side: std::thread::JoinHandle<io::Result<Option<u64>>>| {
        side.join()
            .map_err(|_| io::Error::other("a thread of the recorder's calibration ended early"))?
    };
    let (other, own) = (ended(other), ended(own));
    let both = other?.zip(own?);
    Ok(both.map(|(a, b)| (a + b) / u64::from(2 * MESSAGES)))
}

/// One of the two; its CPU time in nanoseconds.
fn side(
    cpu: CpuId,
    began: Instant,
    mut from: PipeReader,
    mut to: PipeWriter,
    first: bool,
) -> io::Result<Option<u64>> {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu.index());
    rustix::thread::sched_setaffinity(None, &only)?;
    let mut byte = [0; 1];
    // One message is not counted: after it both threads are where they belong.
    if first {
        to.write_all(&byte)?;
        from.read_exact(&mut byte)?;
    } else {
        from.read_exact(&mut byte)?;
        to.write_all(&byte)?;
    }
    let before = thread_time();
    for _ in 0..MESSAGES {
        if first {
            to.write_all(&byte)?;
        }
        if from.read(&mut byte)? == 0 || began.elapsed() > LONGEST {
            // The other one gave up, or time is over: it hears of that by the end of the pipe.
            return Ok(None);
        }
        if !first {
            to.write_all(&byte)?;
        }
    }
    Ok(Some(thread_time() - before))
}

fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::raw::RawEvent;

    /// Costs nothing, and notes what it is told.
    #[derive(Default)]
    struct Told(std::rc::Rc<std::cell::RefCell<Vec<&'static str>>>, bool);

    impl CpuSource for Told {
        fn enable(&mut self) -> io::Result<()> {
            self.0.borrow_mut().push("on");
            Ok(())
        }
        fn disable(&mut self) -> io::Result<()> {
            self.0.borrow_mut().push("off");
            Ok(())
        }
        fn drain(&mut self, _: &mut VecDeque<RawEvent>) {
            self.0.borrow_mut().push("emptied");
        }
        fn ring_bytes(&self) -> usize {
            0
        }
        fn begins_once(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn every_turn_ends_with_the_recording_off_and_the_rings_empty() {
        let told = Told::default();
        let log = told.0.clone();
        let mut sources: Vec<(CpuId, Box<dyn CpuSource>)> = vec![(CpuId(0), Box::new(told))];
        per_switch(&mut sources, CpuId(0)).unwrap();
        let log = log.borrow();
        assert!(
            !log.is_empty() && log.chunks(3).all(|turn| turn == ["on", "off", "emptied"]),
            "{log:?}"
        );
    }

    #[test]
    fn what_begins_once_is_begun_once_and_stays_on() {
        let told = Told(std::rc::Rc::default(), true);
        let log = told.0.clone();
        let mut sources: Vec<(CpuId, Box<dyn CpuSource>)> = vec![(CpuId(0), Box::new(told))];
        per_switch(&mut sources, CpuId(0)).unwrap();
        assert_eq!(*log.borrow(), ["on", "emptied"]);
    }

    #[test]
    fn the_median_of_enough_turns_is_the_price() {
        assert_eq!(judge(vec![150, -20, 140, 90_000, 160]), Some(150));
        assert_eq!(judge(vec![150, 140]), None);
        assert_eq!(judge(vec![-5, -3, 4]), Some(0), "no cost is seen");
        assert_eq!(judge(vec![1_000_000; 5]), None);
        assert_eq!(between(&[100, 110, 900], &[200, 260, 270]), Some(150));
        assert_eq!(between(&[300; 3], &[200; 4]), Some(0));
        assert_eq!(between(&[100; 3], &[200; 2]), None);
        assert_eq!(between(&[100; 3], &[1_000_000; 3]), None);
    }
}
