//! Text of `perf sched timehist`: a row for each stay of a task on a CPU, with its end, its length,
//! and how long the task waited for the CPU after its wakeup.
//!
//! A stay whose task waits before its next one, and not because it was woken, ended by a
//! preemption; any other one by blocking (the states of tasks are in the text with `--state` only,
//! and are not needed). Which task woke another is not in it.

use super::build::Builder;
use super::event::{Context, Event, Name, Running, Stamp, Who};
use crate::TraceError;
use schedlab_model::text::scaled;
use schedlab_model::{MAX_CPUS, Ns, PrevState};
use std::collections::BTreeMap;

/// Ends and lengths are rounded to microseconds each.
const ROUNDED: u64 = 2_000;

/// One row.
struct Stay<'a> {
    from: u64,
    to: u64,
    cpu: u32,
    comm: &'a str,
    /// 0: the CPU idled.
    tid: u32,
    /// Time since the stay before, and the part of it since the wakeup.
    wait: u64,
    delay: u64,
    /// How it ended.
    ended: PrevState,
}

impl Stay<'_> {
    fn who(&self) -> Who<'_> {
        Who { comm: Name::from(self.comm), tid: self.tid, prio: None }
    }
}

/// Reads a whole text into `builder`.
pub(super) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), TraceError> {
    builder.source.backend = "perf-timehist";
    builder.source.clock = "as recorded by perf";
    let text = String::from_utf8_lossy(bytes);
    let mut stays = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        match stay(line) {
            Some(Ok((stay, pid))) => {
                if stay.tid != 0 {
                    builder.describe(stay.tid, pid, stay.comm);
                }
                stays.push(stay);
            }
            Some(Err(why)) => builder.summary().odd_line(number, line, why),
            None => {}
        }
    }
    tell_ends(&mut stays);
    builder.summary().note(
        "the text of `perf sched timehist` says how long tasks ran and waited, and not which task \
         woke another: wakers, interrupts, migrations and a replay need the perf.data",
    );
    for (at, cpu, event) in events(&stays) {
        let running = Running::default();
        let stamp = Stamp { at: Ns(at), cpu, running, context: Context::NotShown };
        builder.event(&stamp, &event)?;
    }
    Ok(())
}

/// Reads a row and its process; `None`: the line is none.
fn stay(line: &str) -> Option<Result<(Stay<'_>, u32), &'static str>> {
    let (time, rest) = line.trim().split_once(char::is_whitespace)?;
    let to = scaled(time, 9).filter(|_| time.contains('.'))?;
    let (cpu, rest) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    let cpu: u32 = cpu.parse().ok()?;
    if cpu as usize >= MAX_CPUS {
        return Some(Err("has a CPU beyond those that are supported"));
    }
    let Some((name, [wait, delay, run])) = columns(rest) else {
        // `awakened: ...`, `migrated: ...` (-w, -M) belong to no stay.
        return None;
    };
    let (comm, tid, pid) = match name {
        "<idle>" => (name, 0, 0),
        _ => match named(name) {
            Some(found) => found,
            None => return Some(Err("names no task: NAME[TID] or NAME[TID/PID] is expected")),
        },
    };
    let Some(from) = to.checked_sub(run) else {
        return Some(Err("ran longer than since time 0"));
    };
    let ended = PrevState::Unknown;
    Some(Ok((Stay { from, to, cpu, comm, tid, wait, delay, ended }, pid)))
}

/// The name of a row, and the three times behind it, in nanoseconds.
fn columns(rest: &str) -> Option<(&str, [u64; 3])> {
    let time = |word: &str| scaled(word, 6).filter(|_| word.contains('.'));
    let words: Vec<&str> = rest.split_whitespace().collect();
    let times = words.windows(3).find_map(|three| {
        let [a, b, c] = [time(three[0])?, time(three[1])?, time(three[2])?];
        Some((three[0], [a, b, c]))
    });
    let (first, times) = times?;
    let at = first.as_ptr() as usize - rest.as_ptr() as usize;
    Some((rest[..at].trim(), times))
}

/// `comm[tid]` or `comm[tid/pid]`.
fn named(name: &str) -> Option<(&str, u32, u32)> {
    let (comm, ids) = name.strip_suffix(']')?.rsplit_once('[')?;
    let (tid, pid) = ids.split_once('/').unwrap_or((ids, ids));
    Some((comm, tid.parse().ok()?, pid.parse().ok()?))
}

/// Tells of each stay whether its task was preempted, by its next one.
fn tell_ends(stays: &mut [Stay<'_>]) {
    stays.sort_by_key(|stay| (stay.to, stay.cpu));
    let mut next: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for stay in stays.iter_mut().rev() {
        stay.ended = match next.insert(stay.tid, (stay.wait, stay.delay)) {
            Some((wait, 0)) if wait > 0 => PrevState::Runnable,
            Some(_) => PrevState::Blocked,
            None => PrevState::Unknown,
        };
    }
}

/// The switches and wakeups of these stays, in order.
fn events<'a>(stays: &'a [Stay<'a>]) -> Vec<(u64, u32, Event<'a>)> {
    const IDLE: Who<'static> = Who { comm: Name::new(b"swapper"), tid: 0, prio: None };
    let mut events: Vec<(u64, u32, Event<'a>)> = Vec::new();
    let mut last: BTreeMap<u32, &Stay<'a>> = BTreeMap::new();
    for stay in stays {
        let switch = |prev, state, next| Event::Switch { prev, state, next };
        let mut from = stay.from;
        match last.insert(stay.cpu, stay) {
            Some(before) if stay.from.abs_diff(before.to) <= ROUNDED => {
                from = before.to;
                events.push((from, stay.cpu, switch(before.who(), before.ended, stay.who())));
            }
            before => {
                if let Some(before) = before {
                    let gone = switch(before.who(), before.ended, IDLE);
                    events.push((before.to, stay.cpu, gone));
                }
                events.push((from, stay.cpu, switch(IDLE, PrevState::Runnable, stay.who())));
            }
        }
        if stay.delay > 0 && stay.tid != 0 {
            let woken = from.saturating_sub(stay.delay);
            events.push((woken, stay.cpu, Event::Waking(stay.who())));
        }
    }
    for (cpu, stay) in last {
        let event = Event::Switch { prev: stay.who(), state: stay.ended, next: IDLE };
        events.push((stay.to, cpu, event));
    }
    events.retain(|(_, _, event)| {
        !matches!(event, Event::Switch { prev, next, .. } if prev.tid == 0 && next.tid == 0)
    });
    events.sort_by_key(|(at, cpu, event)| (*at, matches!(event, Event::Switch { .. }), *cpu));
    events
}
