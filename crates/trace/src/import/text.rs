//! Text of every tracer, line by line: `perf script`, ftrace, `trace-cmd report`, atrace and
//! systrace, LTTng by babeltrace.
//!
//! A line is an event, or says something about the recording (a header), or belongs to another line
//! (a call chain), or is odd. Odd lines are counted and shown, up to a bound; damaged events are
//! losses with their time and CPU.

mod around;
mod fields;
mod line;
mod lttng;
mod markup;

use super::build::Builder;
use super::event::{Context, Event, Name, Running, Stamp, Who};
use super::states::KernelVersion;
use crate::TraceError;
use around::{Buffered, Buffers};
use fields::CpuWide;
use line::{Columns, Time};
use markup::Markup;
use schedlab_model::Ns;
use std::collections::BTreeMap;
use std::io::BufRead;

/// Longest line that is read, in bytes.
const LINE_MAX: usize = 64 << 10;
/// Most lines that are read.
const LINES_MAX: u64 = 2_000_000_000;
/// So many odd lines are always skipped.
const ODD_FREE: u64 = 1_000;
/// Beyond those, one line of so many may be odd.
const ODD_ONE_OF: u64 = 5;

/// Reads a whole text into `builder`.
pub(super) fn read(input: &mut dyn BufRead, builder: &mut Builder<'_>) -> Result<(), TraceError> {
    let mut text = Text::new(builder);
    let mut number = 0;
    // The beginning of a line whose end has not been read.
    let mut begun: Vec<u8> = Vec::new();
    loop {
        let buffer = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
        let length = buffer.len();
        let mut rest = buffer;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            number += 1;
            if begun.is_empty() {
                text.bytes(number, line)?;
            } else {
                begun.extend_from_slice(line);
                text.bytes(number, &begun)?;
                begun.clear();
            }
        }
        begun.extend_from_slice(rest);
        if begun.len() > LINE_MAX || length == 0 && !begun.is_empty() {
            text.bytes(number + 1, &begun)?;
        }
        if length == 0 || text.builder.is_over() {
            return text.finish();
        }
        input.consume(length);
    }
}

struct Text<'b, 'o> {
    builder: &'b mut Builder<'o>,
    markup: Markup,
    lttng: lttng::Clock,
    columns: Columns,
    /// Columns of flags that the header has named so far.
    named: usize,
    kernel: Option<KernelVersion>,
    /// A state had bits whose meaning depends on the kernel's version.
    by_version: bool,
    lines: u64,
    /// Lines that are no events.
    quiet: u64,
    microseconds: bool,
    /// The last line was one of a call chain: what follows it and is indented (the place in the
    /// source) belongs to it.
    in_chain: bool,
    buffers: Buffers,
    /// The process of each thread that a switch without tracepoints named.
    pids: BTreeMap<u32, u32>,
}

impl<'b, 'o> Text<'b, 'o> {
    fn new(builder: &'b mut Builder<'o>) -> Text<'b, 'o> {
        let kernel = builder.options().kernel;
        builder.source.backend = "perf-script";
        builder.source.clock = "as recorded by perf";
        Text {
            builder,
            markup: Markup::default(),
            lttng: lttng::Clock::default(),
            columns: Columns::default(),
            named: 0,
            kernel,
            by_version: false,
            lines: 0,
            quiet: 0,
            microseconds: false,
            in_chain: false,
            buffers: Buffers::default(),
            pids: BTreeMap::new(),
        }
    }

    /// A line without its end.
    fn bytes(&mut self, number: u64, bytes: &[u8]) -> Result<(), TraceError> {
        if bytes.len() > LINE_MAX {
            let what = format!("is longer than {LINE_MAX} bytes; this is not the text of a tracer");
            return Err(TraceError::Import { line: number, what });
        }
        if number > LINES_MAX {
            return Err(TraceError::TooLarge {
                what: format!("it has more than {LINES_MAX} lines"),
            });
        }
        // Names may hold any byte: what is no UTF-8 is replaced.
        match std::str::from_utf8(bytes) {
            Ok(line) if !line.ends_with('\r') => self.line(number, line),
            Ok(line) => self.line(number, line.trim_end_matches('\r')),
            Err(_) => self.line(number, String::from_utf8_lossy(bytes).trim_end_matches('\r')),
        }
    }

    fn line(&mut self, number: u64, text: &str) -> Result<(), TraceError> {
        self.lines += 1;
        match around::without_colours(text) {
            Some(plain) => self.plain(number, &plain),
            None => self.plain(number, text),
        }
    }

    fn plain(&mut self, number: u64, text: &str) -> Result<(), TraceError> {
        let Some(text) = self.markup.line(text) else {
            self.quiet += 1;
            return Ok(());
        };
        let text = around::without_log_time(text);
        let trimmed = text.trim_ascii_start();
        if trimmed.is_empty() || trimmed.starts_with("=>") {
            (self.quiet, self.in_chain) = (self.quiet + 1, false);
            return Ok(());
        }
        // A task's name may begin so, too.
        if let Some(comment) = trimmed.strip_prefix('#')
            && line::split(text, self.columns).is_err()
        {
            self.comment(comment);
            return Ok(());
        }
        if trimmed.starts_with("CPU:") && self.lost(trimmed)? {
            self.quiet += 1;
            return Ok(());
        }
        if let Some((cpu, at, count)) = self.lttng.loss(trimmed) {
            let stamp = Stamp { at, cpu, running: Running::default(), context: Context::NotShown };
            return self.builder.event(&stamp, &Event::Lost { count });
        }
        if let Some(line) = lttng::split(trimmed) {
            return self.of_lttng(number, &line);
        }
        let text = match self.buffers.line(number, text)? {
            Buffered::Line(text) => text,
            Buffered::Preamble => {
                self.quiet += 1;
                return Ok(());
            }
        };
        match line::split(text, self.columns).or_else(|why| around::in_graph(text).ok_or(why)) {
            Ok(line) => self.event(number, text, line),
            // Only what is no event: tasks may be called `trace-cmd`.
            Err(_) if self.preamble(trimmed) => {
                self.quiet += 1;
                Ok(())
            }
            Err(_) if is_call_chain(text) || self.in_chain && text.starts_with([' ', '\t']) => {
                (self.quiet, self.in_chain) = (self.quiet + 1, true);
                Ok(())
            }
            Err(why) => self.odd(number, text, why),
        }
    }

    fn event(
        &mut self,
        number: u64,
        text: &str,
        mut line: line::EventLine<'_>,
    ) -> Result<(), TraceError> {
        self.in_chain = false;
        match line.time {
            Time::Seconds => {}
            Time::Microseconds => self.microseconds = true,
            Time::Ticks => line.stamp.at = self.ticks(number, line.stamp.at.0)?,
        }
        if !self.buffers.takes(line.event) {
            self.quiet += 1;
            return Ok(());
        }
        if line.event == fields::CPU_WIDE {
            return self.cpu_wide(number, text, &line);
        }
        let parsed = match fields::old_tracer(line.event, line.fields) {
            Some(event) => Ok(event),
            None => fields::event(line.event, line.fields, self.kernel, &mut self.by_version),
        };
        match parsed {
            Ok(event) => self.builder.event(&line.stamp, &event),
            Err(expected) => {
                let why = format!(
                    "fields of {} not understood: `{}`; expected {expected}",
                    line.event, line.fields
                );
                if fields::is_known(line.event) && !self.builder.options().strict {
                    self.builder.summary().damage(number, text, &why);
                    return self.builder.event(&line.stamp, &Event::Lost { count: 1 });
                }
                self.odd(number, text, why)
            }
        }
    }

    /// A switch without tracepoints (`perf record --switch-events`): the line of the task that
    /// leaves has the event, that of the task that comes has its name.
    fn cpu_wide(
        &mut self,
        number: u64,
        text: &str,
        line: &line::EventLine<'_>,
    ) -> Result<(), TraceError> {
        let running = line.stamp.running;
        match (fields::cpu_wide(line.fields), running.tid) {
            (Some(CpuWide::In), tid) => {
                self.quiet += 1;
                if let Some((tid, pid)) = tid.and_then(|tid| Some((tid, *self.pids.get(&tid)?))) {
                    self.builder.describe(tid, pid, running.comm.text());
                }
                Ok(())
            }
            (Some(CpuWide::Out { state, pid, tid }), Some(own)) => {
                self.pids.insert(tid, pid);
                let prev = Who { comm: running.comm, tid: own, prio: None };
                let next = Who { comm: Name::default(), tid, prio: None };
                self.builder.event(&line.stamp, &Event::Switch { prev, state, next })
            }
            _ => self.odd(
                number,
                text,
                format!("fields of {} not understood: `{}`", line.event, line.fields),
            ),
        }
    }

    fn of_lttng(
        &mut self,
        number: u64,
        line: &lttng::BabeltraceLine<'_>,
    ) -> Result<(), TraceError> {
        self.builder.source.backend = "lttng";
        self.builder.source.clock = "as recorded by LTTng";
        let clock_hz = self.builder.options().clock_hz;
        match self.lttng.event(line, (self.kernel, clock_hz), &mut self.by_version) {
            Ok((stamp, event)) => self.builder.event(&stamp, &event),
            Err(why) => self.odd(number, line.text, why),
        }
    }

    /// The time of a clock that counts in its own unit.
    fn ticks(&self, number: u64, ticks: u64) -> Result<Ns, TraceError> {
        match self.builder.options().clock_hz {
            Some(hz) if hz > 0 => {
                let ns = u128::from(ticks) * 1_000_000_000 / u128::from(hz);
                Ok(Ns(u64::try_from(ns).unwrap_or(u64::MAX)))
            }
            _ => Err(TraceError::Import {
                line: number,
                what: "the time stamps are whole numbers, of trace_clock x86-tsc, counter or \
                       uptime: give the clock's \
                       frequency with --clock-hz (the TSC's is in `dmesg | grep tsc`), or record \
                       with another clock \
                       (`echo mono > /sys/kernel/tracing/trace_clock`)"
                    .to_owned(),
            }),
        }
    }

    /// A comment: headers name the columns, the kernel, the machine.
    fn comment(&mut self, comment: &str) {
        self.quiet += 1;
        // `_-----=> hardirq/softirq`: the order of these lines is the order of the flags.
        if let Some((_, name)) = comment.split_once("=> ") {
            match name.trim() {
                "hardirq/softirq" => self.columns = Columns::Context(self.named),
                // latency-format writes the CPU's number before the flags; it is none of them.
                "CPU#" => return,
                _ => {}
            }
            self.named += 1;
            return;
        }
        let comment = comment.trim();
        if comment.starts_with("tracer:") || comment.contains("TASK-PID") {
            self.is_ftrace();
        }
        if comment.starts_with("tracer:") {
            // A new header: another buffer, or another file.
            (self.named, self.columns) = (0, Columns::default());
        }
        if let Some((_, version)) =
            comment.split_once("latency trace v").and_then(|(_, rest)| rest.split_once(" on "))
        {
            self.kernel_is(version);
        }
        if let Some((_, rest)) = comment.split_once("#P:") {
            self.builder.at_least_cpus(
                rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0),
            );
        }
        if let Some(entries) = comment.strip_prefix("entries-in-buffer/entries-written:") {
            self.overwritten(entries);
        }
        // `perf script --header`
        if let Some((key, value)) = comment.split_once(" : ") {
            match key.trim() {
                "os release" => self.kernel_is(value),
                "hostname" => value.trim().clone_into(&mut self.builder.source.hostname),
                "nrcpus online" | "nrcpus avail" => {
                    self.builder.at_least_cpus(value.trim().parse().unwrap_or(0));
                }
                "cmdline" => {
                    self.builder.source.own_only = is_own_only(value);
                    value.trim().clone_into(&mut self.builder.source.command);
                }
                _ => {}
            }
        }
    }

    fn is_ftrace(&mut self) {
        self.builder.source.backend = "ftrace";
        self.builder.source.clock = "as recorded by ftrace";
    }

    fn kernel_is(&mut self, release: &str) {
        let release = release.split_whitespace().next().unwrap_or_default();
        if self.builder.options().kernel.is_none() {
            self.kernel = release.parse().ok();
        }
        release.clone_into(&mut self.builder.source.kernel);
    }

    /// `5/1000   #P:2`: of 1000 entries the buffer kept 5.
    fn overwritten(&mut self, entries: &str) {
        let numbers = entries.split_whitespace().next().and_then(|word| word.split_once('/'));
        let parse = |text: &str| text.parse::<u64>().ok();
        if let Some((Some(kept), Some(written))) =
            numbers.map(|(kept, written)| (parse(kept), parse(written)))
            && written > kept
        {
            self.builder.summary().note(&format!(
                "The buffer held the last {kept} of {written} entries: what came before was \
                 overwritten."
            ));
        }
    }

    /// `CPU:3 [LOST 234 EVENTS]` (ftrace), `CPU:3 [234 EVENTS DROPPED]` (trace-cmd).
    fn lost(&mut self, text: &str) -> Result<bool, TraceError> {
        let parsed = || {
            let (cpu, rest) = text.strip_prefix("CPU:")?.split_once('[')?;
            let words: Vec<&str> = rest.trim_end_matches(']').split_whitespace().collect();
            let count = match words[..] {
                ["LOST", count, "EVENTS"] | [count, "EVENTS", "DROPPED"] => {
                    count.parse().unwrap_or(1)
                }
                ["EVENTS", "DROPPED"] => 1,
                _ => return None,
            };
            Some((cpu.trim().parse().ok()?, count))
        };
        let Some((cpu, count)) = parsed() else { return Ok(false) };
        self.builder.lost_since_last(cpu, count)?;
        Ok(true)
    }

    /// What is printed around the events.
    fn preamble(&mut self, text: &str) -> bool {
        if let Some(count) = text.strip_prefix("cpus=").and_then(|count| count.trim().parse().ok())
        {
            self.is_ftrace();
            self.builder.at_least_cpus(count);
            return true;
        }
        // perf's words on standard error, when both streams went into one file.
        if let Some(rest) = text.strip_prefix("Processed ")
            && let Some((_, lost)) = rest.split_once(" events and lost ")
        {
            let count = lost.split_whitespace().next().unwrap_or("some");
            self.builder
                .summary()
                .note(&format!("perf lost {count} chunks of events; where is unknown."));
            return true;
        }
        let empty_cpu = text.starts_with("CPU ")
            && (text.ends_with(" is empty") || text.contains("buffer started"));
        let started = text.starts_with("##### CPU ")
            || text.starts_with("CPU:") && text.contains("[SUBBUFFER START]");
        let known = [
            "version = ",
            "trace-cmd ",
            "TRACE:",
            "capturing trace...",
            "Warning:",
            "Check IO/CPU overload!",
        ];
        empty_cpu || started || known.iter().any(|start| text.starts_with(start))
    }

    fn odd(&mut self, number: u64, text: &str, why: String) -> Result<(), TraceError> {
        if self.builder.options().strict {
            return Err(TraceError::Import { line: number, what: why });
        }
        self.builder.summary().odd_line(number, text, &why);
        let odd = &self.builder.summary().odd;
        let events = self.lines - self.quiet;
        if odd.count > ODD_FREE && odd.count * ODD_ONE_OF > events {
            let first = &odd.first[0];
            let what = format!(
                "{} (of {events} lines so far {} are no events that are understood)",
                first.why, odd.count
            );
            return Err(TraceError::Import { line: first.line, what });
        }
        Ok(())
    }

    fn finish(self) -> Result<(), TraceError> {
        if let Some(note) = self.buffers.note() {
            self.builder.summary().note(&note);
        }
        if self.by_version {
            let note = match self.kernel {
                Some(kernel) => format!(
                    "Task states are numbers; they were read as those of \
                                         kernel {kernel}."
                ),
                None => "Task states are numbers and the text does not name the kernel; they were \
                         read as those of 4.14 and \
                         later (--kernel VERSION reads older ones)."
                    .to_owned(),
            };
            self.builder.summary().note(&note);
        }
        if self.microseconds {
            self.builder.summary().note("Times are microseconds (ftrace's latency-format).");
        }
        Ok(())
    }
}

/// `perf script` of samples with call chains prints one address a line, and its symbol: 16 digits
/// wide, behind a tab.
fn is_call_chain(text: &str) -> bool {
    let indented = text.strip_prefix('\t').unwrap_or(text);
    let word = indented.split_whitespace().next().unwrap_or_default();
    let aligned = indented.get(..16).is_some_and(|column| column.trim_start() == word);
    let is_address = text.starts_with([' ', '\t']) && word.len() >= 4 || aligned;
    is_address && u64::from_str_radix(word, 16).is_ok() && !line::has_time(text)
}

/// Whether a `perf record` command line records one program and not the machine.
pub(super) fn is_own_only(command: &str) -> bool {
    let mut words = command.split_whitespace().skip_while(|word| *word != "record").skip(1);
    let records = command.split_whitespace().any(|word| word == "record");
    let all = |word: &str| {
        word == "--all-cpus"
            || word == "--cpu"
            || word.starts_with("--cpu=")
            || word.starts_with('-') && !word.starts_with("--") && word[1..].contains(['a', 'C'])
    };
    records && !words.any(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_call_chains() {
        for text in [
            "\tffffffff813a88b4 try_to_wake_up+0x3a4 ([kernel.kallsyms])",
            "\t             be1 __vdso_clock_gettime+0xf1 ([vdso])",
            "\t               0 [unknown] ([unknown])",
            "        7f495b85b000 [unknown] ([unknown])",
        ] {
            assert!(is_call_chain(text), "{text}");
        }
        for text in [
            "hog 200",
            "be1 x",
            "what is this",
            "1 é               x",
            " 17659 805.863209: sched:sched_waking: x",
        ] {
            assert!(!is_call_chain(text), "{text}");
        }
    }

    #[test]
    fn a_command_line_tells_whose_events_there_are() {
        assert!(!is_own_only("/usr/bin/perf record -a -e sched:sched_switch sleep 1"));
        assert!(!is_own_only("/usr/bin/perf record -C 0 -e sched:sched_switch"));
        assert!(!is_own_only("perf record -ga"));
        assert!(is_own_only("perf record -e sched:sched_switch -p 12"));
        assert!(!is_own_only("perf sched timehist"));
    }
}
