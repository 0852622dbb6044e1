//! One line of text → task, CPU, time, context, the event's name, and its fields.

use super::super::event::{Context, Running, Stamp};
use memchr::memchr;
use schedlab_model::{MAX_CPUS, Ns};

/// The part of a line that all events share, and what is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line<'a> {
    pub(super) stamp: Stamp<'a>,
    /// Which kind of time stamp the line has.
    pub(super) time: Time,
    /// The event's name, without its group and modifiers.
    pub(super) event: &'a str,
    pub(super) fields: &'a str,
}

/// How a line writes its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Time {
    /// Seconds with decimals.
    Seconds,
    /// A whole number of an unknown clock (`trace_clock` x86-tsc, counter, uptime).
    Ticks,
    /// Microseconds since the start of the buffer (ftrace's `latency-format`).
    Microseconds,
}

/// Which column of ftrace's flags tells the interrupt context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Columns {
    /// The text has no header: the letters of the context are looked for. No other column has them.
    #[default]
    Unnamed,
    /// By the header, counted from 0.
    Context(usize),
}

/// Splits a line. `Err`: why it is none of an event.
pub(super) fn split(text: &str, columns: Columns) -> Result<Line<'_>, String> {
    let mut words = Words { text, at: 0 };
    let mut before: [Option<(usize, &str)>; 2] = [None, None];
    while let Some((start, word)) = words.next() {
        if let Some((at, time)) = time(word)
            && let Some(place) = place(before, columns)
        {
            return rest(text, &place, (at, time), words.at);
        }
        before = [before[1], Some((start, word))];
    }
    Err(why_not(text))
}

/// What is between the task and the time.
struct Place {
    /// Where it begins.
    start: usize,
    cpu: u32,
    context: Context,
}

/// `[001]`, `[001] d.h2.`, `1d.h2.`; `None`: no CPU.
fn place(before: [Option<(usize, &str)>; 2], columns: Columns) -> Option<Place> {
    let in_brackets = |word: &str| word.strip_prefix('[')?.strip_suffix(']')?.parse::<u32>().ok();
    let (last_start, last) = before[1]?;
    if let Some(cpu) = in_brackets(last) {
        return Some(Place { start: last_start, cpu, context: Context::NotShown });
    }
    if let Some((start, word)) = before[0]
        && let Some(cpu) = in_brackets(word)
    {
        return Some(Place { start, cpu, context: context(last, columns) });
    }
    // ftrace's latency format: the CPU is the digits before the flags.
    let digits = last.bytes().take_while(u8::is_ascii_digit).count();
    let flags = &last[digits..];
    let is_flags = flags.len() >= 4 && matches!(flags.as_bytes()[0], b'd' | b'D' | b'b' | b'.' | b'X');
    if digits > 0 && is_flags {
        let cpu = last[..digits].parse().ok()?;
        return Some(Place { start: last_start, cpu, context: context(flags, columns) });
    }
    None
}

fn rest<'a>(text: &'a str, place: &Place, (at, time): (u64, Time), after: usize) -> Result<Line<'a>, String> {
    if place.cpu as usize >= MAX_CPUS {
        return Err(format!("CPU {} is above {}, the highest that is supported", place.cpu, MAX_CPUS - 1));
    }
    let running = running(text[..place.start].trim()).ok_or("no task name and pid before the CPU")?;
    let mut words = Words { text, at: after };
    let mut name = words.next().map_or("", |(_, word)| word);
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        // A sample period is before the event's name.
        name = words.next().map_or("", |(_, word)| word);
    }
    let event = event_name(name);
    if event.is_empty() {
        return Err("no event name after the time".to_owned());
    }
    let stamp = Stamp { at: Ns(at), cpu: place.cpu, running, context: place.context };
    Ok(Line { stamp, time, event, fields: text[words.at..].trim() })
}

/// `sched:sched_switch/call-graph=no/:` and `sched:sched_switch:k:` are `sched_switch`.
fn event_name(word: &str) -> &str {
    let name = word.split('/').next().unwrap_or(word).trim_end_matches(':');
    match name.split_once(':') {
        Some(("sched" | "raw_syscalls" | "ftrace", rest)) => rest.split(':').next().unwrap_or(rest),
        _ => name,
    }
}

/// `comm 12`, `comm 12/13` (pid/tid), `comm-12`, `comm-12 (11)`, `comm-12 (  11)`, `comm -1`.
fn running(text: &str) -> Option<Running<'_>> {
    // ftrace's TGID column.
    let (text, process) = match text.rfind('(') {
        Some(at) if text.ends_with(')') => {
            (text[..at].trim_end(), text[at + 1..text.len() - 1].trim().parse::<u32>().ok())
        }
        _ => (text, None),
    };
    let is_ids = |ids: &str| ids.bytes().all(|b| b.is_ascii_digit() || b == b'/' || b == b'-');
    let (comm, ids) = match text.rsplit_once([' ', '\t']) {
        Some((comm, ids)) if is_ids(ids) => (comm, ids),
        _ => text.rsplit_once('-')?,
    };
    let (pid, tid) = match ids.split_once('/') {
        Some((pid, tid)) => (pid.parse().ok(), tid),
        None => (process, ids),
    };
    let tid: i64 = tid.parse().ok()?;
    Some(Running { comm: comm.trim(), tid: u32::try_from(tid).ok(), pid: pid.or(process) })
}

/// `123.456789:` with 1 to 9 decimals, `123456:`, `123us!:`.
fn time(word: &str) -> Option<(u64, Time)> {
    let word = word.strip_suffix(':')?;
    let bytes = word.as_bytes();
    if !bytes.first()?.is_ascii_digit() {
        return None;
    }
    match memchr(b'.', bytes) {
        Some(point) => seconds(&bytes[..point], &bytes[point + 1..]).map(|at| (at, Time::Seconds)),
        None => {
            if let Some(at) = digits(bytes) {
                return Some((at, Time::Ticks));
            }
            // A mark of how long the gap is may follow: `+ ! # * @ $` (Documentation/trace/ftrace.rst).
            let number = word.trim_end_matches(['+', '!', '#', '*', '@', '$']).strip_suffix("us")?;
            Some((digits(number.as_bytes())?.checked_mul(1000)?, Time::Microseconds))
        }
    }
}

fn digits(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

fn seconds(whole: &[u8], part: &[u8]) -> Option<u64> {
    const SCALE: [u64; 9] = [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let scale = SCALE.get(part.len().checked_sub(1)?)?;
    digits(whole)?.checked_mul(1_000_000_000)?.checked_add(digits(part)? * scale)
}

/// Which context ftrace's flags tell, such as `d.h2.`.
fn context(flags: &str, columns: Columns) -> Context {
    let bytes = flags.as_bytes();
    let letter = match columns {
        Columns::Context(at) => bytes.get(at).copied(),
        // Without a header: the first of these letters from the third column on. Need-resched (N, n, p, L, l, b, B) and the
        // depths (digits, a to f) have none of them.
        Columns::Unnamed if bytes.len() >= 4 => {
            let found = bytes[2..].iter().find(|byte| matches!(byte, b'h' | b'H' | b'z' | b'Z' | b's'));
            Some(found.copied().unwrap_or(b'.'))
        }
        Columns::Unnamed => None,
    };
    match letter {
        Some(b'h' | b'H' | b'z' | b'Z') => Context::HardIrq,
        Some(b's') => Context::SoftIrq,
        Some(_) => Context::Task,
        None => Context::NotShown,
    }
}

/// Why a line is none of an event, for people.
fn why_not(text: &str) -> String {
    let has_time = Words { text, at: 0 }.any(|word| time(word).is_some());
    if has_time {
        "no `[CPU]` before the time (`perf script -F +cpu` prints it)".to_owned()
    } else {
        "no time stamp".to_owned()
    }
}

/// Words with their places.
#[derive(Clone, Copy)]
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    #[inline]
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let bytes = self.text.as_bytes();
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let start = self.at + bytes[self.at..].iter().position(|byte| !blank(byte))?;
        let end = bytes[start..].iter().position(blank).map_or(bytes.len(), |length| start + length);
        self.at = end;
        Some((start, &self.text[start..end]))
    }

    fn any(mut self, test: impl Fn(&str) -> bool) -> bool {
        while let Some((_, word)) = self.next() {
            if test(word) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(text: &str) -> Line<'_> {
        split(text, Columns::Unnamed).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    /// A line, and what is in it: name, thread, CPU, time in nanoseconds, event.
    type Split = (&'static str, &'static str, Option<u32>, u32, u64, &'static str);

    const LINES: &[Split] = &[
        (
            "  hog   200 [001]   100.000100: sched:sched_waking: x",
            "hog",
            Some(200),
            1,
            100_000_100_000,
            "sched_waking",
        ),
        (
            "hog 12/200 [001] 100.5: 1 sched:sched_waking: x",
            "hog",
            Some(200),
            1,
            100_500_000_000,
            "sched_waking",
        ),
        (
            ":-1    -1 [000]   0.000000900: sched:sched_switch/call-graph=no/: x",
            ":-1",
            None,
            0,
            900,
            "sched_switch",
        ),
        (
            "a b-c-200     [011] d.h3.  1.5: sched_switch: x",
            "a b-c",
            Some(200),
            11,
            1_500_000_000,
            "sched_switch",
        ),
        (
            "hog-200 (  100) [001] d..2. 1.5: sched_switch: x",
            "hog",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
        (
            "<...>-200 (-----) [001] .... 1.5: sched_switch: x",
            "<...>",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
        ("hog-200   12d..2. 16692us!: sched_switch: x", "hog", Some(200), 12, 16_692_000, "sched_switch"),
        ("hog-200   1d..2. 100.5: sched_switch: x", "hog", Some(200), 1, 100_500_000_000, "sched_switch"),
        ("hog-200  [01]  1.5: sched_switch: x", "hog", Some(200), 1, 1_500_000_000, "sched_switch"),
        ("hog-200  [01]  123456: sched_switch: x", "hog", Some(200), 1, 123_456, "sched_switch"),
        ("hog 200 [001] 1.5: sched:sched_switch:ppp: x", "hog", Some(200), 1, 1_500_000_000, "sched_switch"),
    ];

    #[test]
    fn every_tracers_line_is_split() {
        for &(text, comm, tid, cpu, at, event) in LINES {
            let line = ok(text);
            let stamp = line.stamp;
            assert_eq!((stamp.running.comm, stamp.running.tid, stamp.cpu), (comm, tid, cpu), "{text}");
            assert_eq!((stamp.at, line.event, line.fields), (Ns(at), event, "x"), "{text}");
        }
        assert_eq!(ok("hog-200 (  100) [001] d..2. 1.5: sched_switch: x").stamp.running.pid, Some(100));
        assert_eq!(ok("hog 12/200 [001] 1.5: sched_switch: x").stamp.running.pid, Some(12));
        assert_eq!(ok("hog-200  [01]  123456: a: x").time, Time::Ticks);
    }

    #[test]
    fn the_header_says_which_column_is_the_context() {
        let of = |flags: &str, columns| {
            let text = format!("hog-200 [001] {flags} 1.5: sched_waking: x");
            split(&text, columns).unwrap().stamp.context
        };
        assert_eq!(of("d..h2..", Columns::Context(3)), Context::HardIrq);
        assert_eq!(of("d..s2..", Columns::Unnamed), Context::SoftIrq);
        assert_eq!(of("dL.h2.1", Columns::Unnamed), Context::HardIrq);
        assert_eq!(of("dN.Z2..", Columns::Unnamed), Context::HardIrq);
        assert_eq!(of("d...2..", Columns::Context(3)), Context::Task);
        assert_eq!(of("d.h2", Columns::Context(2)), Context::HardIrq);
    }

    #[test]
    fn what_is_no_event_is_told() {
        for (text, part) in [
            ("cpus=8", "no time stamp"),
            ("hog 200 100.000100: sched:sched_waking: x", "perf script -F +cpu"),
            ("[001] 100.000100: sched:sched_waking: x", "no task name"),
            ("hog 200 [001] 100.000100:", "no event name"),
            ("hog 200 [99999] 100.000100: a: x", "highest that is supported"),
        ] {
            let why = split(text, Columns::Unnamed).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
