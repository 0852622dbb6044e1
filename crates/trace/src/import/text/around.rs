//! What is around an event on its line: colours of `grep` and `less`, the time of the kernel's log,
//! the comment of a function graph, the name of trace-cmd's buffer.

use super::super::event::{Context, Running, Stamp};
use super::line::{EventLine, Time, seconds};
use crate::TraceError;
use schedlab_model::{MAX_CPUS, Ns};
use std::collections::BTreeSet;

/// The line without escape sequences of terminals; `None` when it has none.
pub(super) fn without_colours(text: &str) -> Option<String> {
    memchr::memchr(0x1b, text.as_bytes())?;
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Numbers and semicolons, then the letter of the command.
        let end = part.find(|c: char| !(c.is_ascii_digit() || c == ';')).unwrap_or(part.len());
        let mut rest = part[end..].chars();
        rest.next();
        plain += rest.as_str();
    }
    Some(plain)
}

/// The line without the time and caller of the kernel's log, into which `ftrace_dump_on_oops`
/// writes: `[    5.123456][   T12] `.
pub(super) fn without_log_time(text: &str) -> &str {
    let bracket = |text: &str| -> Option<(usize, bool)> {
        let (inner, _) = text.strip_prefix('[')?.split_once(']')?;
        let word = inner.trim_start();
        let time = word.split_once('.').is_some_and(|(whole, part)| {
            !whole.is_empty() && part.len() == 6 && [whole, part].iter().all(|text| is_digits(text))
        });
        let caller = word.strip_prefix(['T', 'C']).is_some_and(is_digits);
        (time || caller).then_some((inner.len() + 2, time))
    };
    let Some((length, true)) = bracket(text) else { return text };
    let rest = &text[length..];
    let rest = match bracket(rest) {
        Some((length, false)) => &rest[length..],
        _ => rest,
    };
    // babeltrace writes the time since the last event behind its own.
    if rest.trim_start().starts_with('(') { text } else { rest.strip_prefix(' ').unwrap_or(rest) }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// An event in a function graph that was printed with its options `funcgraph-abstime` (and
/// `funcgraph-proc`):
/// `  100.000100 |   1)   hog-200    |               |  /* sched_waking: comm=srv pid=300 prio=120 target_cpu=001 */`.
pub(super) fn in_graph(text: &str) -> Option<EventLine<'_>> {
    let (before, rest) = text.split_once("/* ")?;
    let body = rest.trim_end().strip_suffix("*/")?.trim_end();
    let (event, fields) = body.split_once(": ")?;
    let mut columns = before.split('|').map(str::trim);
    let (whole, part) = columns.next()?.split_once('.')?;
    let at = seconds(whole.as_bytes(), part.as_bytes())?;
    let (cpu, task) = columns.next()?.split_once(')')?;
    let cpu = cpu.trim().parse().ok().filter(|cpu: &u32| (*cpu as usize) < MAX_CPUS)?;
    let running = task.trim().rsplit_once('-').and_then(|(comm, tid)| {
        Some(Running { comm: comm.into(), tid: Some(tid.parse().ok()?), pid: None })
    });
    let running = running.unwrap_or_default();
    let stamp = Stamp { at: Ns(at), cpu, running, context: Context::NotShown };
    Some(EventLine { stamp, time: Time::Seconds, event: event.trim(), fields: fields.trim() })
}

/// The buffers of a report of trace-cmd that has several: `NAME: ` is before each line of one that
/// has a name. The same event may be in several buffers, so that each kind of event is taken from
/// the first buffer that has it.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The buffer of the line at hand.
    current: String,
    /// From which buffer the events of a name are taken: event and buffer, a handful.
    of_event: Vec<(Name, String)>,
    left_out: BTreeSet<String>,
    /// A file whose `cpus=` was read.
    file: Option<String>,
}

/// The name of an event; its first and last eight bytes tell it apart from others without a call
/// for each of them.
#[derive(Debug)]
struct Name {
    text: String,
    ends: (u64, u64),
}

impl Name {
    #[inline]
    fn ends(text: &str) -> (u64, u64) {
        let bytes = text.as_bytes();
        let eight = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (eight(bytes.first_chunk()), eight(bytes.last_chunk()))
    }

    #[inline]
    fn is(&self, text: &str, ends: (u64, u64)) -> bool {
        let length = text.len();
        self.text.len() == length
            && self.ends == ends
            && ((8..=16).contains(&length) || self.text == text)
    }
}

fn several_files(number: u64, one: &str, other: &str) -> TraceError {
    let what = format!(
        "this is the report of several files ({one}, {other}), whose clocks and tasks differ: \
         `trace-cmd report -i {one}` prints one"
    );
    TraceError::Import { line: number, what }
}

/// A line without the name of its buffer.
pub(super) enum Buffered<'a> {
    Line(&'a str),
    /// `FILE: cpus=2`.
    Preamble,
}

/// Width of the task's name before its `-` and thread id, in the reports of trace-cmd and in
/// ftrace.
const NAME: usize = 16;
/// The same in latency-format.
const NAME_LATENCY: usize = 8;

impl Buffers {
    pub(super) fn line<'a>(
        &mut self,
        number: u64,
        text: &'a str,
    ) -> Result<Buffered<'a>, TraceError> {
        self.current.clear();
        let Some((name, rest)) = prefix(text) else { return Ok(Buffered::Line(text)) };
        if rest.trim().strip_prefix("cpus=").is_some_and(is_digits) {
            if let Some(other) = self.file.replace(name.to_owned()) {
                return Err(several_files(number, &other, name));
            }
            return Ok(Buffered::Preamble);
        }
        if !is_padded(rest) {
            return Ok(Buffered::Line(text));
        }
        // Of several files trace-cmd prints one `cpus=` only where they are a host and its guests;
        // by default a file is trace.dat.
        if name.ends_with(".dat") {
            match &self.file {
                Some(other) if other != name => return Err(several_files(number, other, name)),
                Some(_) => {}
                None => self.file = Some(name.to_owned()),
            }
        }
        name.clone_into(&mut self.current);
        Ok(Buffered::Line(rest))
    }

    /// Whether an event of this name is taken from the buffer of the line at hand.
    #[inline]
    pub(super) fn takes(&mut self, event: &str) -> bool {
        let ends = Name::ends(event);
        let takes = match self.of_event.iter().find(|(name, _)| name.is(event, ends)) {
            // Mostly neither has a name.
            Some((_, buffer)) => {
                buffer.is_empty() && self.current.is_empty() || *buffer == self.current
            }
            None => {
                self.of_event.push((Name { text: event.to_owned(), ends }, self.current.clone()));
                true
            }
        };
        if !takes && !self.left_out.contains(&self.current) {
            self.left_out.insert(self.current.clone());
        }
        takes
    }

    /// What a reader has to know of the buffers.
    pub(super) fn note(&self) -> Option<String> {
        let of = |name: &str| {
            if name.is_empty() { "the unnamed one".to_owned() } else { format!("`{name}`") }
        };
        let left: Vec<String> = self.left_out.iter().map(|name| of(name)).collect();
        let taken: BTreeSet<&str> =
            self.of_event.iter().map(|(_, buffer)| buffer.as_str()).collect();
        let taken: Vec<String> = taken.into_iter().map(of).collect();
        (!left.is_empty()).then(|| {
            format!(
                "The report has several buffers: each kind of event was taken from the first that \
                 has it ({}), and is left out \
                 where it comes again ({}).",
                taken.join(", "),
                left.join(", ")
            )
        })
    }
}

/// `NAME: REST`, with blanks before the name.
fn prefix(text: &str) -> Option<(&str, &str)> {
    let name = text.trim_ascii_start();
    let at = memchr::memchr2(b':', b' ', name.as_bytes())?;
    let rest = name[at..].strip_prefix(": ")?;
    (at > 0).then(|| (&name[..at], rest))
}

/// Whether a line begins as ftrace pads it: the name of the task ends at a certain column. A task
/// whose name has a colon is not counted as a buffer: its line is padded with the colon in it.
fn is_padded(text: &str) -> bool {
    let ends_at = |width: usize| {
        text.as_bytes().get(width) == Some(&b'-')
            && text.as_bytes().get(width + 1).is_some_and(u8::is_ascii_digit)
    };
    ends_at(NAME) || ends_at(NAME_LATENCY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_log_times_go() {
        let coloured = "perf 1 [000] 1.5: sched:\x1b[01;31m\x1b[Ksched_switch\x1b[m\x1b[K: prev";
        assert_eq!(
            without_colours(coloured).as_deref(),
            Some("perf 1 [000] 1.5: sched:sched_switch: prev")
        );
        assert_eq!(without_colours("plain"), None);
        for (text, plain) in [
            ("[    5.123456] hog-1 x", "hog-1 x"),
            ("[  805.123456][   T12]   hog-1 x", "  hog-1 x"),
            (
                "[805.863209916] (+0.000004537) sched_waking: { x",
                "[805.863209916] (+0.000004537) sched_waking: { x",
            ),
            (
                "[805.863209] (+0.000004) sched_waking: { x",
                "[805.863209] (+0.000004) sched_waking: { x",
            ),
            ("[001] 1.5: sched_switch: x", "[001] 1.5: sched_switch: x"),
            // Cut off.
            ("[  100.123456", "[  100.123456"),
            ("[    5.123456][  T1", "[  T1"),
        ] {
            assert_eq!(without_log_time(text), plain);
        }
    }

    #[test]
    fn an_event_in_a_function_graph() {
        let text = "  100.000100 |   1)   a b-200    |               |  /* sched_waking: comm=srv \
                    pid=300 prio=120 target_cpu=001 */";
        let line = in_graph(text).unwrap();
        assert_eq!(
            (line.event, line.fields),
            ("sched_waking", "comm=srv pid=300 prio=120 target_cpu=001")
        );
        assert_eq!((line.stamp.at, line.stamp.cpu), (Ns(100_000_100_000), 1));
        assert_eq!((line.stamp.running.comm.text(), line.stamp.running.tid), ("a b", Some(200)));
        assert_eq!(in_graph(" 1)               |  /* sched_waking: comm=srv */"), None);
    }
}
