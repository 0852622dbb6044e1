//! One line of text → who, where, when, which event, and its fields.

use schedlab_model::{MAX_CPUS, Ns, PrevState};

/// The part of a line that all events share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line<'a> {
    /// Name of the task that was running, without its pid.
    pub(super) comm: &'a str,
    /// Its thread id.
    pub(super) tid: u32,
    pub(super) cpu: u32,
    pub(super) at: Ns,
    /// Interrupt context, where flags are shown.
    pub(super) context: Context,
    /// Event name without `sched:`.
    pub(super) event: &'a str,
    pub(super) fields: &'a str,
}

/// In which context the event was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Context {
    NotShown,
    Task,
    SoftIrq,
    HardIrq,
}

/// One side of a switch, or the subject of another event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Who<'a> {
    pub(super) comm: &'a str,
    pub(super) tid: u32,
    pub(super) prio: Option<i32>,
}

const SHAPE: &str = "expected `COMM PID [CPU] TIME: EVENT: FIELDS`, as `perf script` prints it";

/// Splits a line. `Ok(None)`: a comment, an empty line or a line of a call chain.
pub(super) fn split(text: &str) -> Result<Option<Line<'_>>, String> {
    let trimmed = text.trim_start();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(None);
    }
    let mut words = Words { text, at: 0 };
    let mut before: [Option<(usize, &str)>; 2] = [None, None];
    while let Some((start, word)) = words.next() {
        let time = word.strip_suffix(':').and_then(seconds);
        if let Some(at) = time {
            return rest(text, before, at, words.at).map(Some);
        }
        before = [before[1], Some((start, word))];
    }
    // `perf script` of samples with call chains prints one address a line.
    if trimmed.split_whitespace().next().is_some_and(|w| u64::from_str_radix(w, 16).is_ok()) {
        return Ok(None);
    }
    Err(format!("no time stamp; {SHAPE}"))
}

fn rest<'a>(
    text: &'a str,
    before: [Option<(usize, &'a str)>; 2],
    at: Ns,
    after: usize,
) -> Result<Line<'a>, String> {
    let cpu_of = |word: &str| word.strip_prefix('[')?.strip_suffix(']')?.parse::<u32>().ok();
    let (start, cpu, context) = match before {
        [_, Some((start, word))] if cpu_of(word).is_some() => (start, cpu_of(word), Context::NotShown),
        [Some((start, word)), Some((_, flags))] => (start, cpu_of(word), context(flags)),
        _ => (0, None, Context::NotShown),
    };
    let cpu = cpu.ok_or_else(|| format!("no `[CPU]` before the time; {SHAPE} (`perf script -F +cpu`)"))?;
    if cpu as usize >= MAX_CPUS {
        return Err(format!("CPU {cpu} is above {}, the highest that is supported", MAX_CPUS - 1));
    }
    let (comm, tid) = who_ran(text[..start].trim())
        .ok_or_else(|| format!("no task name and pid before `[CPU]`; {SHAPE}"))?;
    let mut words = Words { text, at: after };
    let mut name = words.next().map_or("", |(_, word)| word);
    if name.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() {
        // A sample period stands before the event's name.
        name = words.next().map_or("", |(_, word)| word);
    }
    let event = name.strip_suffix(':').unwrap_or(name);
    let event = event.strip_prefix("sched:").unwrap_or(event);
    if event.is_empty() {
        return Err(format!("no event name after the time; {SHAPE}"));
    }
    Ok(Line { comm, tid, cpu, at, context, event, fields: text[words.at..].trim() })
}

/// `comm 12`, `comm 12/13` (pid/tid), `comm-12`, `comm-12 (11)`.
fn who_ran(text: &str) -> Option<(&str, u32)> {
    let text = match text.rfind(" (") {
        Some(at) if text.ends_with(')') => text[..at].trim_end(),
        _ => text,
    };
    let (comm, ids) = match text.rsplit_once(char::is_whitespace) {
        Some((comm, ids)) if ids.bytes().all(|b| b.is_ascii_digit() || b == b'/') => (comm, ids),
        _ => text.rsplit_once('-')?,
    };
    let tid = ids.rsplit('/').next()?;
    // perf prints -1 for a task that it does not know; ftrace prints `<...>` for the name.
    Some((comm.trim(), tid.parse().ok()?))
}

/// `123.456789` with 1 to 9 decimals.
fn seconds(word: &str) -> Option<Ns> {
    let (whole, part) = word.split_once('.')?;
    if part.is_empty() || part.len() > 9 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = format!("{part:0<9}").parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(part).map(Ns)
}

/// ftrace's flags, such as `d.h2.`: the third character tells the context.
fn context(flags: &str) -> Context {
    match flags.as_bytes().get(2) {
        Some(b'h' | b'H' | b'z' | b'Z') => Context::HardIrq,
        Some(b's') => Context::SoftIrq,
        Some(_) if flags.len() >= 4 => Context::Task,
        _ => Context::NotShown,
    }
}

/// Words with their places.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let rest = &self.text[self.at..];
        let start = self.at + (rest.len() - rest.trim_start().len());
        let word = self.text[start..].split(char::is_whitespace).next().filter(|w| !w.is_empty())?;
        self.at = start + word.len();
        Some((start, word))
    }
}

/// The two sides of a switch and the state of the first.
pub(super) fn switch(fields: &str) -> Result<(Who<'_>, PrevState, Who<'_>), String> {
    let error = || {
        "fields of sched_switch not understood; expected `prev_comm=C prev_pid=N prev_prio=N prev_state=S ==> \
         next_comm=C next_pid=N next_prio=N` or `C:N [N] S ==> C:N [N]`"
            .to_owned()
    };
    if let Some((prev, next)) = split_last(fields, " ==> next_comm=") {
        let (prev, state) = split_last(prev, " prev_state=").ok_or_else(error)?;
        let prev = prev.strip_prefix("prev_comm=").ok_or_else(error)?;
        let prev = named(prev, " prev_pid=", " prev_prio=").ok_or_else(error)?;
        let next = named(next, " next_pid=", " next_prio=").ok_or_else(error)?;
        return Ok((prev, state_of(state), next));
    }
    let (prev, next) = split_last(fields, " ==> ").ok_or_else(error)?;
    let (prev, state) = prev.rsplit_once(' ').ok_or_else(error)?;
    Ok((short(prev).ok_or_else(error)?, state_of(state), short(next).ok_or_else(error)?))
}

/// The task of a wakeup, migration, exit, in either form.
pub(super) fn subject(fields: &str) -> Option<Who<'_>> {
    if let Some(rest) = fields.strip_prefix("comm=") {
        return named(rest, " pid=", " prio=").or_else(|| named(rest, " pid=", " "));
    }
    let end = fields.find(']').map_or(fields.len(), |at| at + 1);
    short(&fields[..end])
}

/// The value of `key` (with its blank and equals sign), up to the next blank.
pub(super) fn number(fields: &str, key: &str) -> Option<u32> {
    let at = fields.rfind(key)? + key.len();
    fields[at..].split_whitespace().next()?.parse().ok()
}

/// Text between the last `from` before `to`, and `to` or the end.
pub(super) fn between<'a>(fields: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (before, _) = split_last(fields, to).unwrap_or((fields, ""));
    split_last(before, from).map(|(_, value)| value)
}

fn split_last<'a>(text: &'a str, at: &str) -> Option<(&'a str, &'a str)> {
    text.rsplit_once(at)
}

/// `COMM<pid>N<prio>N…`; the name may hold anything.
fn named<'a>(text: &'a str, pid: &str, prio: &str) -> Option<Who<'a>> {
    let (comm, rest) = split_last(text, pid)?;
    let tid = rest.split_whitespace().next()?.parse().ok()?;
    let prio = rest.split_once(prio).and_then(|(_, p)| p.split_whitespace().next()?.parse().ok());
    Some(Who { comm, tid, prio })
}

/// `COMM:N [N]`.
fn short(text: &str) -> Option<Who<'_>> {
    let (name, prio) = text.trim().rsplit_once(" [")?;
    let (comm, tid) = name.rsplit_once(':')?;
    Some(Who { comm, tid: tid.parse().ok()?, prio: prio.strip_suffix(']')?.parse().ok() })
}

/// The kernel's letters; several may be joined by `|`, a `+` means preempted in the kernel.
fn state_of(text: &str) -> PrevState {
    let text = text.trim();
    match text.as_bytes().first() {
        Some(b'R') if text.contains('+') => PrevState::RunnableInKernel,
        Some(b'R') => PrevState::Runnable,
        // `I` is the idle state of kernel threads: they wait for work, not for a device.
        Some(b'S' | b'I' | b'P') => PrevState::Sleeping,
        Some(b'D' | b'K' | b'W') => PrevState::DiskSleep,
        Some(b'T' | b't') => PrevState::Stopped,
        Some(b'X' | b'Z' | b'x') => PrevState::Dead,
        _ => PrevState::Unknown,
    }
}
