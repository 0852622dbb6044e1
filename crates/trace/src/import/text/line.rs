//! One line of text → task, CPU, time, context, the event's name, and its fields.

mod time;

use super::super::event::{Context, Running, Stamp};
use memchr::memchr;
use schedlab_model::{MAX_CPUS, Ns};
use time::{digits, time};

pub(super) use time::{Time, seconds};

/// The part of a line that all events share, and what is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EventLine<'a> {
    pub(super) stamp: Stamp<'a>,
    /// Which kind of time stamp the line has.
    pub(super) time: Time,
    /// The event's name, without its group and modifiers.
    pub(super) event: &'a str,
    pub(super) fields: &'a str,
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
pub(super) fn split(text: &str, columns: Columns) -> Result<EventLine<'_>, String> {
    if let Some((place, time, after)) = usual(text, columns) {
        return rest(text, &place, time, after);
    }
    let mut words = Words { text, at: 0 };
    let mut before = Before::default();
    while let Some((start, word)) = words.next() {
        if word.starts_with('[')
            && let Some((cpu, time)) = glued(word)
        {
            let place = CpuAndFlags { start, cpu, context: Context::NotShown };
            return rest(text, &place, time, words.at);
        }
        if let Some((time, after)) = time_of(word, words)
            && let Some(place) = before.place(columns)
        {
            return rest(text, &place, time, after);
        }
        before.push(start, word);
    }
    Err(why_not(text))
}

/// What nearly all lines have behind the task: `[001] 1.5:` or `[001] d.h2. 1.5:`; the same as word
/// by word, which `None` leaves it to.
fn usual(text: &str, columns: Columns) -> Option<(CpuAndFlags, (u64, Time), usize)> {
    let bytes = text.as_bytes();
    let end = memchr(b']', bytes)?;
    let start = memchr::memrchr(b'[', &bytes[..end])?;
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    // A word that ends in a colon could be a time before this one.
    if start > 0 && !blank(&bytes[start - 1])
        || !blank(bytes.get(end + 1)?)
        || memchr(b':', &bytes[..start]).is_some()
    {
        return None;
    }
    let cpu = u32::try_from(digits(&bytes[start + 1..end])?).ok()?;
    let mut words = Words { text, at: end + 1 };
    let (_, first) = words.next()?;
    if let Some(time) = time(first) {
        return Some((CpuAndFlags { start, cpu, context: Context::NotShown }, time, words.at));
    }
    let (_, second) = words.next()?;
    let time = time(second)?;
    Some((CpuAndFlags { start, cpu, context: context(first, columns) }, time, words.at))
}

/// `[001]123456:`: `trace-cmd report --raw-ts` writes no blank.
fn glued(word: &str) -> Option<(u32, (u64, Time))> {
    let (cpu, stamp) = word.strip_prefix('[')?.split_once(']')?;
    Some((cpu.parse().ok()?, time(stamp)?))
}

/// The time that a word is, and where it ends: latency-format writes `123us :` where nothing marks
/// the gap.
fn time_of(word: &str, words: Words<'_>) -> Option<((u64, Time), usize)> {
    if let Some(time) = time(word) {
        return Some((time, words.at));
    }
    let number = word
        .strip_suffix("us")
        .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut more = words;
    let (_, mark) = more.next()?;
    (mark == ":").then_some(())?;
    Some(((digits(number.as_bytes())?.checked_mul(1000)?, Time::Microseconds), more.at))
}

/// Most words between the CPU and the time: `perf script -F +misc,+tod` prints a mark, a date and a
/// time of day there.
const BETWEEN: usize = 3;

/// The words before the one that is looked at.
#[derive(Clone, Copy, Default)]
struct Before<'a> {
    last: [Option<(usize, &'a str)>; 2],
    /// The last `[CPU]`: where it begins, which CPU, and how many words came after it.
    bracket: Option<(usize, u32, usize)>,
}

impl<'a> Before<'a> {
    fn push(&mut self, start: usize, word: &'a str) {
        self.last = [self.last[1], Some((start, word))];
        self.bracket =
            match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')?.parse().ok()) {
                Some(cpu) => Some((start, cpu, 0)),
                None => self.bracket.map(|(start, cpu, after)| (start, cpu, after + 1)),
            };
    }

    /// `[001]`, `[001] d.h2.`, `1d.h2.`; `None`: no CPU.
    fn place(&self, columns: Columns) -> Option<CpuAndFlags> {
        let (last_start, last) = self.last[1]?;
        if let Some((start, cpu, after)) = self.bracket.filter(|(.., after)| *after <= BETWEEN) {
            let context = if after == 1 { context(last, columns) } else { Context::NotShown };
            return Some(CpuAndFlags { start, cpu, context });
        }
        // ftrace's latency format: the CPU is the digits before the flags.
        let digits = last.bytes().take_while(u8::is_ascii_digit).count();
        let flags = &last[digits..];
        let is_flags =
            flags.len() >= 4 && matches!(flags.as_bytes()[0], b'd' | b'D' | b'b' | b'.' | b'X');
        if digits > 0 && is_flags {
            let cpu = last[..digits].parse().ok()?;
            return Some(CpuAndFlags { start: last_start, cpu, context: context(flags, columns) });
        }
        None
    }
}

/// What is between the task and the time.
struct CpuAndFlags {
    /// Where it begins.
    start: usize,
    cpu: u32,
    context: Context,
}

fn rest<'a>(
    text: &'a str,
    place: &CpuAndFlags,
    (at, time): (u64, Time),
    after: usize,
) -> Result<EventLine<'a>, String> {
    if place.cpu as usize >= MAX_CPUS {
        return Err(format!(
            "CPU {} is above {}, the highest that is supported",
            place.cpu,
            MAX_CPUS - 1
        ));
    }
    let running =
        running(text[..place.start].trim_ascii()).ok_or("no task name and pid before the CPU")?;
    let mut words = Words { text, at: after };
    let mut name = words.next().map_or("", |(_, word)| word);
    let is_difference = |name: &str| name.starts_with("(+") && name.ends_with(')');
    if is_difference(name) || !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        // A sample period is before the event's name, or what `trace-cmd report --ts-diff` prints.
        name = words.next().map_or("", |(_, word)| word);
    }
    let event = event_name(name);
    if event.is_empty() {
        return Err("no event name after the time".to_owned());
    }
    let stamp = Stamp { at: Ns(at), cpu: place.cpu, running, context: place.context };
    Ok(EventLine { stamp, time, event, fields: text[words.at..].trim_ascii() })
}

/// `sched:sched_switch/call-graph=no/:` and `sched:sched_switch:k:` are `sched_switch`.
fn event_name(word: &str) -> &str {
    // `sched:sched_switch:`, as nearly every line of `perf script` has it.
    if let Some(name) = word.strip_prefix("sched:").and_then(|rest| rest.strip_suffix(':'))
        && memchr::memchr2(b'/', b':', name.as_bytes()).is_none()
    {
        return name;
    }
    let name = word.split('/').next().unwrap_or(word).trim_end_matches(':');
    match name.split_once(':') {
        Some(("sched" | "raw_syscalls" | "ftrace", rest)) => rest.split(':').next().unwrap_or(rest),
        _ => name,
    }
}

/// `comm 12`, `comm 12/13` (pid/tid), `comm-12`, `comm-12 (11)`, `comm-12 (  11)`, `comm -1`;
/// `perf script -F` leaves out what it is not told to print: `12`, `comm`, nothing.
fn running(text: &str) -> Option<Running<'_>> {
    if text.is_empty() {
        return Some(Running::default());
    }
    // ftrace's TGID column.
    let (text, process) = match text.strip_suffix(')').and_then(|inside| inside.rsplit_once('(')) {
        Some((before, process)) => (before.trim_end(), process.trim().parse::<u32>().ok()),
        None => (text, None),
    };
    // `12`, `12/13`, `-1`; but `Worker 3-200` is thread 200 of that name.
    let is_id = |id: &str| {
        let digits = id.strip_prefix('-').unwrap_or(id);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let is_ids = |ids: &str| ids.split('/').all(is_id);
    let blank = memchr::memrchr2(b' ', b'\t', text.as_bytes());
    // The usual line of `perf script`.
    if let (Some(blank), None) = (blank, process)
        && let Some(tid) = digits(&text.as_bytes()[blank + 1..])
    {
        let tid = u32::try_from(tid).ok();
        return Some(Running { comm: text[..blank].trim_ascii().into(), tid, pid: None });
    }
    let (comm, ids) = match blank.map(|at| (&text[..at], &text[at + 1..])) {
        Some((comm, ids)) if is_ids(ids) => (comm, ids),
        None if text.bytes().all(|b| b.is_ascii_digit() || b == b'/') => ("", text),
        _ => match text.rsplit_once('-') {
            Some((comm, ids)) if ids.bytes().all(|b| b.is_ascii_digit()) && !ids.is_empty() => {
                (comm, ids)
            }
            // The name alone does not say which thread it is.
            _ => return Some(Running::default()),
        },
    };
    let (pid, tid) = match ids.split_once('/') {
        Some((pid, tid)) => (pid.parse().ok(), tid),
        None => (process, ids),
    };
    let tid: i64 = tid.parse().ok()?;
    Some(Running {
        comm: comm.trim_ascii().into(),
        tid: u32::try_from(tid).ok(),
        pid: pid.or(process),
    })
}

/// Which context ftrace's flags tell, such as `d.h2.`.
fn context(flags: &str, columns: Columns) -> Context {
    let bytes = flags.as_bytes();
    let letter = match columns {
        Columns::Context(at) => bytes.get(at).copied(),
        // Without a header: the first of these letters from the third column on. Need-resched (N,
        // n, p, L, l, b, B) and the depths (digits, a to f) have none of them.
        Columns::Unnamed if bytes.len() >= 4 => {
            let found =
                bytes[2..].iter().find(|byte| matches!(byte, b'h' | b'H' | b'z' | b'Z' | b's'));
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
    if has_time(text) {
        return "no `[CPU]` before the time (`perf script -F +cpu` prints it)".to_owned();
    }
    let off = |option: &str| {
        format!(
            "ftrace's option {option} is on: `echo 0 > /sys/kernel/tracing/options/{option}`, \
             then print the trace again"
        )
    };
    if text.contains("ms (+") && text.contains("ms): ") {
        return off("verbose");
    }
    if text.split_once(" type: ").is_some_and(|(ids, _)| words_are_numbers(ids, 10)) {
        return off("raw");
    }
    if text.split_once(" type: ").is_some_and(|(ids, _)| words_are_numbers(ids, 16)) {
        return off("hex");
    }
    if text.trim_start().starts_with("sched_") {
        return "no time stamp: ftrace's option context-info is off, or `perf script -F` has no time"
            .to_owned();
    }
    "no time stamp".to_owned()
}

/// Whether a word of the line is a time stamp.
pub(super) fn has_time(text: &str) -> bool {
    Words { text, at: 0 }.any(|word| time(word).is_some())
}

fn words_are_numbers(text: &str, radix: u32) -> bool {
    text.split_whitespace().count() == 3
        && text.split_whitespace().all(|word| u64::from_str_radix(word, radix).is_ok())
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
        let end =
            bytes[start..].iter().position(blank).map_or(bytes.len(), |length| start + length);
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

    fn ok(text: &str) -> EventLine<'_> {
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
        (
            "hog-200   12d..2. 16692us!: sched_switch: x",
            "hog",
            Some(200),
            12,
            16_692_000,
            "sched_switch",
        ),
        (
            "hog-200   1d..2. 100.5: sched_switch: x",
            "hog",
            Some(200),
            1,
            100_500_000_000,
            "sched_switch",
        ),
        (
            "Worker 3-200 [001] 1.5: sched_switch: x",
            "Worker 3",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
        ("hog-200  [01]  1.5: sched_switch: x", "hog", Some(200), 1, 1_500_000_000, "sched_switch"),
        ("hog-200  [01]  123456: sched_switch: x", "hog", Some(200), 1, 123_456, "sched_switch"),
        (
            "hog 200 [001] 1.5: sched:sched_switch:ppp: x",
            "hog",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
        // latency-format where nothing marks the gap; --raw-ts; --ts-diff.
        (
            "hog-200   12d..2. 16692us : sched_switch: x",
            "hog",
            Some(200),
            12,
            16_692_000,
            "sched_switch",
        ),
        (
            "hog-200 [001]1019801357475: sched_switch: x",
            "hog",
            Some(200),
            1,
            1_019_801_357_475,
            "sched_switch",
        ),
        (
            "hog-200 [001]  1.5: (+652)   sched_switch: x",
            "hog",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
        // perf script -F with less or more than usual.
        ("  200 [001] 1.5: sched:sched_switch: x", "", Some(200), 1, 1_500_000_000, "sched_switch"),
        (
            "12/200 [001] 1.5: sched:sched_switch: x",
            "",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
        ("[001] 1.5: sched:sched_switch: x", "", None, 1, 1_500_000_000, "sched_switch"),
        ("lto cgu.07 [001] 1.5: sched:sched_switch: x", "", None, 1, 1_500_000_000, "sched_switch"),
        (
            "hog 200 [001] U   1.5: sched:sched_switch: x",
            "hog",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
        (
            "hog 200 [001] U 2026-11-25 14:30:30.863209 1.5: sched:sched_switch: x",
            "hog",
            Some(200),
            1,
            1_500_000_000,
            "sched_switch",
        ),
    ];

    #[test]
    fn every_tracers_line_is_split() {
        for &(text, comm, tid, cpu, at, event) in LINES {
            let line = ok(text);
            let stamp = line.stamp;
            assert_eq!(
                (stamp.running.comm.text(), stamp.running.tid, stamp.cpu),
                (comm, tid, cpu),
                "{text}"
            );
            assert_eq!((stamp.at, line.event, line.fields), (Ns(at), event, "x"), "{text}");
        }
        assert_eq!(
            ok("hog-200 (  100) [001] d..2. 1.5: sched_switch: x").stamp.running.pid,
            Some(100)
        );
        assert_eq!(ok("hog 12/200 [001] 1.5: sched_switch: x").stamp.running.pid, Some(12));
        assert_eq!(ok("hog-200  [01]  123456: a: x").time, Time::Ticks);
    }

    /// Word by word a line is what it is at a glance.
    #[test]
    fn usual_lines_are_no_exception() {
        for (text, at_a_glance) in [
            ("hog 200 [001] 1.5: a: x", true),
            ("a b-200 [001] d.h2. 1.5: a: x", true),
            ("[001] 1.5: a: x", true),
            ("a [1] b-200 [001] d.h2. 1.5: a: x", false),
            ("a:b-200 [001] d.h2. 1.5: a: x", false),
            ("hog 200 [001] U 2026-11-25 14:30:30.863209 1.5: a: x", false),
            ("hog-200 [001]123: a: x", false),
            ("hog-200 1d.h2. 1.5: a: x [12] 5.0: b", false),
        ] {
            assert_eq!(usual(text, Columns::Unnamed).is_some(), at_a_glance, "{text}");
            assert_eq!(
                ok(text).stamp.at,
                Ns(if text.contains("]123") { 123 } else { 1_500_000_000 }),
                "{text}"
            );
            assert_eq!(ok(text).stamp.cpu, 1, "{text}");
        }
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
            ("18887 1 847638746672 type: 372", "options/raw"),
            ("000044f8 00000001 000000c5653143c7 type: 373", "options/hex"),
            ("sched_switch: prev_comm=a", "context-info"),
            (
                " lto 5  18760   1 9 00000002 00000000 [3282da5f] 847436.383ms (+0.008ms): \
                 sched_waking: x",
                "options/verbose",
            ),
            ("hog 200 [001] 100.000100:", "no event name"),
            ("hog 200 [99999] 100.000100: a: x", "highest that is supported"),
        ] {
            let why = split(text, Columns::Unnamed).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
