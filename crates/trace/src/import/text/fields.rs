//! The fields of scheduling events, in the words of every kernel and tracer.
//!
//! | form | written by |
//! |---|---|
//! | `prev_comm=C prev_pid=N prev_prio=N prev_state=S ==> next_comm=C next_pid=N next_prio=N` | kernels from 2.6.32 on, perf |
//! | the same without `==>`, `prev_state` a number | `trace-cmd report -R`, lines that it failed to parse |
//! | `C:N [N] S ==> C:N [N]` | trace-cmd's plugin, perf's |
//! | `task C:N [N] (S) ==> C:N [N]`, `task C:N [N] ==> C:N [N]` | trace events of 2.6.28 to 2.6.31 |
//! | `N:N:S ==> [CPU] N:N:S C`, `N:N:S + [CPU] N:N:S C` | the sched_switch tracer of 2.6.27 to 2.6.37 |

use super::super::event::{Event, Name, Who};
use super::super::states::{self, KernelVersion};
use crate::export::MARK;
use schedlab_model::{MAX_CPUS, PrevState};

/// The event of a line, or which fields were expected. Sets `by_version` when a state's bits depend
/// on the kernel's version.
pub(super) fn event<'a>(
    name: &'a str,
    fields: &'a str,
    kernel: Option<KernelVersion>,
    by_version: &mut bool,
) -> Result<Event<'a>, &'static str> {
    let fields = fields.strip_prefix("[FAILED TO PARSE]").map_or(fields, str::trim_start);
    let fields = without_place(fields);
    Ok(match name {
        "sched_switch" => switch(fields, kernel, by_version).ok_or(
            "`prev_comm=C prev_pid=N prev_prio=N prev_state=S ==> next_comm=C next_pid=N \
             next_prio=N` or \
             `C:N [N] S ==> C:N [N]`",
        )?,
        "sched_waking" => Event::Waking(subject(fields).ok_or(SUBJECT)?),
        "sched_wakeup" => Event::Wakeup(subject(fields).ok_or(SUBJECT)?),
        "sched_wakeup_new" => Event::WakeupNew(subject(fields).ok_or(SUBJECT)?),
        "sched_migrate_task" => {
            migrate(fields).ok_or("`comm=C pid=N prio=N orig_cpu=N dest_cpu=N`")?
        }
        "sched_process_fork" => fork(fields).ok_or("`comm=C pid=N child_comm=C child_pid=N`")?,
        "sched_process_exit" => Event::Exit(subject(fields).ok_or(SUBJECT)?),
        "sched_process_exec" => Event::Exec { tid: number(fields, " pid=").ok_or("`pid=N`")? },
        "sys_enter" => Event::SyscallEnter { number: call(fields).ok_or("`NR N (...)`")? },
        "sys_exit" => Event::SyscallExit,
        "PERF_RECORD_LOST" => {
            let count = fields.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(1);
            Event::Lost { count }
        }
        "tracing_mark_write" | "print" => match fields.strip_prefix(MARK) {
            Some(mark) => Event::Mark(mark),
            None => Event::Other(name),
        },
        _ => Event::Other(name),
    })
}

/// The event of a switch that is no tracepoint.
pub(super) const CPU_WIDE: &str = "PERF_RECORD_SWITCH_CPU_WIDE";

/// One side of such a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CpuWide {
    /// The task of the line comes.
    In,
    /// It leaves, and thread `tid` of process `pid` comes.
    Out { state: PrevState, pid: u32, tid: u32 },
}

/// `OUT preempt  next pid/tid:   300/301`, `IN           prev pid/tid:   200/200`. Why a task left
/// otherwise, the record does not say.
pub(super) fn cpu_wide(fields: &str) -> Option<CpuWide> {
    let mut words = fields.split_whitespace();
    let out = match words.next()? {
        "IN" => return Some(CpuWide::In),
        "OUT" => words,
        _ => return None,
    };
    let preempted = out.clone().next() == Some("preempt");
    let (pid, tid) = out.last()?.split_once('/')?;
    let state = if preempted { PrevState::Runnable } else { PrevState::Blocked };
    Some(CpuWide::Out { state, pid: pid.parse().ok()?, tid: tid.parse().ok()? })
}

/// Takes off where the event is in its buffer, which `trace-cmd report --debug` prints behind it:
/// ` [4677:0xe8:64]`.
fn without_place(fields: &str) -> &str {
    let place = |text: &str| text.split(':').nth(1).is_some_and(|part| part.starts_with("0x"));
    match fields.strip_suffix(']').and_then(|text| text.rsplit_once(" [")) {
        Some((before, last)) if place(last) => before,
        _ => fields,
    }
}

const SUBJECT: &str = "`comm=C pid=N prio=N ...` or `C:N [N] ...`";

/// Whether an event of this name says something about the schedule: damage to it is a loss.
pub(super) fn is_known(name: &str) -> bool {
    matches!(
        name,
        "sched_switch"
            | "sched_waking"
            | "sched_wakeup"
            | "sched_wakeup_new"
            | "sched_migrate_task"
            | "sched_process_fork"
            | "sched_process_exit"
            | "sched_process_exec"
            | "sys_enter"
            | "sys_exit"
    )
}

fn switch<'a>(
    fields: &'a str,
    kernel: Option<KernelVersion>,
    by_version: &mut bool,
) -> Option<Event<'a>> {
    let mut state = |text: &str| {
        let (state, depends) = states::from_text(text, kernel);
        *by_version |= depends;
        state
    };
    if let Some(rest) = fields.strip_prefix("prev_comm=") {
        let (prev, next) = split_last(rest, " next_comm=")?;
        let prev = prev.strip_suffix(" ==>").unwrap_or(prev);
        let (prev, word) = split_last(prev, " prev_state=")?;
        // ftrace's option `fields` prints `0x1 (1)`.
        let word = word.split_once(" (").map_or(word, |(word, _)| word);
        let (prev, next) =
            (named(prev, " prev_pid=", " prev_prio=")?, named(next, " next_pid=", " next_prio=")?);
        // Every kernel prints the priority last: without it the line is cut, and the thread id may
        // be.
        next.prio?;
        return Some(Event::Switch { prev, state: state(word), next });
    }
    let (prev, next) = split_last(fields, " ==> ")?;
    let prev = prev.strip_prefix("task ").unwrap_or(prev);
    let next = next.strip_prefix("task ").unwrap_or(next);
    if prev.ends_with(']') {
        // 2.6.28 to 2.6.30 print no state; a task that left is not known to be runnable.
        return Some(Event::Switch {
            prev: short(prev)?,
            state: PrevState::Unknown,
            next: short(next)?,
        });
    }
    let (prev, word) = prev.rsplit_once(' ')?;
    let word = word.strip_prefix('(').and_then(|word| word.strip_suffix(')')).unwrap_or(word);
    Some(Event::Switch { prev: short(prev)?, state: state(word), next: short(next)? })
}

/// The lines of the sched_switch tracer (kernels 2.6.27 to 2.6.37), which name no event:
/// `4055:120:S ==> [001] 3997:120:R bash`.
pub(super) fn old_tracer<'a>(name: &'a str, fields: &'a str) -> Option<Event<'a>> {
    // Nearly all names of events begin with a letter.
    if !name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let (tid, prio, state) = side(name)?;
    let mut words = fields.split_whitespace();
    let arrow = words.next()?;
    let mut word = words.next()?;
    if word.starts_with('[') {
        word = words.next()?;
    }
    let (next, next_prio, _) = side(word)?;
    let comm = words.next().filter(|comm| *comm != "<...>").unwrap_or("");
    let other = Who { comm: comm.into(), tid: next, prio: next_prio };
    match arrow {
        "==>" => {
            let (state, _) = states::from_text(state, None);
            Some(Event::Switch {
                prev: Who { comm: Name::default(), tid, prio },
                state,
                next: other,
            })
        }
        "+" => Some(Event::Wakeup(other)),
        _ => None,
    }
}

/// `4055:120:S`.
fn side(text: &str) -> Option<(u32, Option<i32>, &str)> {
    let mut parts = text.split(':');
    let (tid, prio, state) =
        (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    parts.next().is_none().then_some((tid, Some(prio), state))
}

/// The task of a wakeup, migration or exit, in any form.
fn subject(fields: &str) -> Option<Who<'_>> {
    if let Some(rest) = fields.strip_prefix("comm=") {
        // The priority is behind the thread id: without it the line is cut, and the id may be.
        return named(rest, " pid=", " prio=").filter(|who| who.prio.is_some());
    }
    let fields = fields.strip_prefix("task ").unwrap_or(fields);
    let end = fields.find(']').map_or(fields.len(), |at| at + 1);
    short(&fields[..end])
}

fn migrate(fields: &str) -> Option<Event<'_>> {
    let task = subject(fields)?;
    // 2.6.28 to 2.6.31: `task C:N [N] from: N  to: N`.
    let cpu = |keys: [&str; 2]| {
        keys.iter().find_map(|key| number(fields, key)).filter(|&cpu| (cpu as usize) < MAX_CPUS)
    };
    let (from, to) = (cpu([" orig_cpu=", " from: "])?, cpu([" dest_cpu=", " to: "])?);
    Some(Event::Migrate { task, from, to })
}

fn fork(fields: &str) -> Option<Event<'_>> {
    if fields.contains(" child_comm=") {
        let (before, _) = split_last(fields, " child_pid=")?;
        let (_, comm) = split_last(before, " child_comm=")?;
        return Some(Event::Fork {
            child: Who { comm: comm.into(), tid: number(fields, " child_pid=")?, prio: None },
        });
    }
    // 2.6.28 to 2.6.31: `parent C:N  child C:N`.
    let (comm, tid) = split_last(fields, " child ")?.1.trim().rsplit_once(':')?;
    Some(Event::Fork { child: Who { comm: comm.into(), tid: tid.parse().ok()?, prio: None } })
}

fn call(fields: &str) -> Option<u32> {
    let at = fields.find("NR ")? + 3;
    fields[at..].split_whitespace().next()?.parse().ok()
}

/// The value of `key` (with its blank and equals sign), up to the next blank.
fn number(fields: &str, key: &str) -> Option<u32> {
    let at = find_last(fields, key)? + key.len();
    leading(&fields[at..])
}

/// The number at the beginning of a text, which a blank or the end follows; `0x1a (26)` with
/// ftrace's option `fields`.
fn leading(text: &str) -> Option<u32> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u32::from_str_radix(hex.split_whitespace().next()?, 16).ok();
    }
    let mut value = 0u32;
    let bytes = text.as_bytes();
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || bytes.get(digits).is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    for byte in &bytes[..digits] {
        value = value.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
    }
    Some(value)
}

fn split_last<'a>(text: &'a str, at: &str) -> Option<(&'a str, &'a str)> {
    let place = find_last(text, at)?;
    Some((&text[..place], &text[place + at.len()..]))
}

/// Where `key` is for the last time. Its last byte (an equals sign) is rare: looking for that is
/// faster than a search that is set up for each line.
#[inline]
fn find_last(text: &str, key: &str) -> Option<usize> {
    let (bytes, key) = (text.as_bytes(), key.as_bytes());
    let last = *key.last()?;
    let mut end = bytes.len();
    loop {
        end = memchr::memrchr(last, &bytes[..end])?;
        // The letter before tells nearly all keys apart, without a call.
        if is_letter_before(bytes, end, key) && bytes[..=end].ends_with(key) {
            return Some(end + 1 - key.len());
        }
    }
}

/// Whether the byte before the one at `end` is the last but one of `key`, which has more than one.
#[inline(always)]
fn is_letter_before(bytes: &[u8], end: usize, key: &[u8]) -> bool {
    end.checked_sub(1).and_then(|before| bytes.get(before))
        == key.len().checked_sub(2).and_then(|at| key.get(at))
}

/// Where `key` is for the first time.
#[inline]
fn find_first(text: &str, key: &str) -> Option<usize> {
    let (bytes, key) = (text.as_bytes(), key.as_bytes());
    let last = *key.last()?;
    let mut end = 0;
    loop {
        end += memchr::memchr(last, &bytes[end..])? + 1;
        if is_letter_before(bytes, end - 1, key) && bytes[..end].ends_with(key) {
            return Some(end - key.len());
        }
    }
}

/// `COMM<pid>N<prio>N…`; the name may hold anything.
fn named<'a>(text: &'a str, pid: &str, prio: &str) -> Option<Who<'a>> {
    let (comm, rest) = split_last(text, pid)?;
    let tid = leading(rest)?;
    let prio = find_first(rest, prio)
        .and_then(|at| priority(rest[at + prio.len()..].split_whitespace().next()?));
    Some(Who { comm: comm.into(), tid, prio })
}

/// `120`, `-1`, `0x78`, `0xffffffff` (-1).
fn priority(word: &str) -> Option<i32> {
    match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok().map(|bits| bits as i32),
        None => word.parse().ok(),
    }
}

/// `COMM:N [N]`.
fn short(text: &str) -> Option<Who<'_>> {
    let (name, prio) = text.trim().rsplit_once(" [")?;
    let (comm, tid) = name.rsplit_once(':')?;
    Some(Who {
        comm: comm.into(),
        tid: tid.parse().ok()?,
        prio: prio.strip_suffix(']')?.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(comm: &'static str, tid: u32, prio: i32) -> Who<'static> {
        Who { comm: comm.into(), tid, prio: Some(prio) }
    }

    #[test]
    fn a_switch_in_every_form() {
        let (prev, next) = (who("a b:1 [x]", 200, 120), who("srv", 300, 100));
        for (fields, state) in [
            (
                "prev_comm=a b:1 [x] prev_pid=200 prev_prio=120 prev_state=S ==> next_comm=srv \
                 next_pid=300 next_prio=100",
                PrevState::Sleeping,
            ),
            (
                "prev_comm=a b:1 [x] prev_pid=200 prev_prio=120 prev_state=R+ ==> next_comm=srv \
                 next_pid=300 next_prio=100 ffffffff81 schedule+0x1",
                PrevState::RunnableInKernel,
            ),
            (
                "prev_comm=a b:1 [x] prev_pid=200 prev_prio=120 prev_state=2 next_comm=srv \
                 next_pid=300 next_prio=100",
                PrevState::DiskSleep,
            ),
            (
                "[FAILED TO PARSE] prev_comm=a b:1 [x] prev_pid=200 prev_prio=120 prev_state=0x1 \
                 next_comm=srv next_pid=300 next_prio=100",
                PrevState::Sleeping,
            ),
            (
                "prev_comm=a b:1 [x] prev_pid=0xc8 (200) prev_prio=0x78 (120) prev_state=0x1 (1) \
                 next_comm=srv next_pid=0x12c (300) next_prio=0x64 (100)",
                PrevState::Sleeping,
            ),
            ("a b:1 [x]:200 [120] R ==> srv:300 [100]", PrevState::Runnable),
            ("a b:1 [x]:200 [120] R ==> srv:300 [100] [9354:0xa4:64]", PrevState::Runnable),
            ("task a b:1 [x]:200 [120] (S) ==> srv:300 [100]", PrevState::Sleeping),
            ("task a b:1 [x]:200 [120] ==> srv:300 [100]", PrevState::Unknown),
        ] {
            let found = event("sched_switch", fields, None, &mut false);
            assert_eq!(found, Ok(Event::Switch { prev, state, next }), "{fields}");
        }
    }

    #[test]
    fn other_events_in_every_form() {
        let srv = who("srv", 300, 120);
        for (name, fields, expected) in [
            ("sched_waking", "comm=srv pid=300 prio=120 target_cpu=001", Event::Waking(srv)),
            (
                "sched_wakeup",
                "comm=srv pid=300 prio=120 success=1 target_cpu=001",
                Event::Wakeup(srv),
            ),
            ("sched_wakeup", "srv:300 [120] success=1 CPU:001", Event::Wakeup(srv)),
            (
                "sched_waking",
                "comm=srv pid=0x12c (300) prio=0x78 (120) target_cpu=0x0 (0)",
                Event::Waking(srv),
            ),
            (
                "sched_waking",
                "comm=srv pid=300 prio=120 target_cpu=001 [37315:0x7c:36]",
                Event::Waking(srv),
            ),
            ("sched_wakeup", "task srv:300 [120] success=1", Event::Wakeup(srv)),
            (
                "sched_migrate_task",
                "comm=srv pid=300 prio=120 orig_cpu=0 dest_cpu=3",
                Event::Migrate { task: srv, from: 0, to: 3 },
            ),
            (
                "sched_migrate_task",
                "task srv:300 [120] from: 0  to: 3",
                Event::Migrate { task: srv, from: 0, to: 3 },
            ),
            ("sys_enter", "NR 232 (4, 7f, 8, ffff, 0, 0)", Event::SyscallEnter { number: 232 }),
            ("PERF_RECORD_LOST", "lost 17", Event::Lost { count: 17 }),
            ("tracing_mark_write", "schedlab: end", Event::Mark("end")),
            ("irq_handler_entry", "irq=1 name=x", Event::Other("irq_handler_entry")),
        ] {
            assert_eq!(event(name, fields, None, &mut false), Ok(expected), "{fields}");
        }
        let child = Who { comm: "kid".into(), tid: 9, prio: None };
        for fields in ["comm=srv pid=300 child_comm=kid child_pid=9", "parent srv:300  child kid:9"]
        {
            assert_eq!(
                event("sched_process_fork", fields, None, &mut false),
                Ok(Event::Fork { child })
            );
        }
        assert!(event("sched_switch", "prev_comm=a prev_pid=x", None, &mut false).is_err());
    }

    #[test]
    fn the_tracer_of_2_6_27() {
        let next = who("", 3997, 120);
        let prev = who("", 4055, 120);
        assert_eq!(
            old_tracer("4055:120:S", "==> [001]  3997:120:R <...>"),
            Some(Event::Switch { prev, state: PrevState::Sleeping, next })
        );
        assert_eq!(old_tracer("4055:120:R", "+  3997:120:R"), Some(Event::Wakeup(next)));
        assert_eq!(old_tracer("sched_switch", "==> a"), None);
    }
}
