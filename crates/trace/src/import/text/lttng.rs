//! LTTng's kernel events as babeltrace 1 and 2 print them:
//!
//! ```text
//! [13:37:28.123456789] (+0.000001234) host sched_switch: { cpu_id = 1 }, { prev_comm = "a", prev_tid = 2, prev_prio = 20, prev_state = 1, next_comm = "b", next_tid = 3, next_prio = 20 }
//! ```
//! Priorities are the kernel's less 100 (lttng-modules, include/instrumentation/events/sched.h).
//! Interrupt context is not shown in the events themselves.

use super::super::event::{Context, Event, Running, Stamp, Who};
use super::super::states::{self, KernelVersion};
use schedlab_model::{MAX_CPUS, Ns};

/// Half a day: a clock that goes back by more has passed midnight.
const HALF_DAY: u64 = 43_200_000_000_000;

/// A line in its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BabeltraceLine<'a> {
    pub(super) text: &'a str,
    time: &'a str,
    event: &'a str,
    /// All fields, from the first brace on.
    fields: &'a str,
}

/// Splits a line; `None`: it is none of babeltrace.
pub(super) fn split(text: &str) -> Option<BabeltraceLine<'_>> {
    if text.starts_with("timestamp = ") {
        return with_names(text);
    }
    let (time, rest) = text.strip_prefix('[')?.split_once("] ")?;
    let at = rest.find(": {")?;
    let event = rest[..at].split_whitespace().next_back()?;
    let is_time = time.len() > 10
        && time.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-' | b' '));
    is_time.then(|| BabeltraceLine { text, time, event, fields: &rest[at + 2..] })
}

/// `timestamp = 13:37:28.123456789, delta = +0.000001234, name = sched_switch, stream.packet.context = { cpu_id = 1 }, event.fields = { ... }`:
/// with `--names all`.
fn with_names(text: &str) -> Option<BabeltraceLine<'_>> {
    let after =
        |key: &str| text.split_once(key).map(|(_, rest)| rest.split(", ").next().unwrap_or(rest));
    let event = after(", name = ")?;
    let event = event.trim_matches(['"', '(', ')']);
    Some(BabeltraceLine {
        text,
        time: after("timestamp = ")?,
        event,
        fields: &text[text.find('{')?..],
    })
}

/// Times of day have no date: the day is counted.
#[derive(Debug, Default)]
pub(super) struct Clock {
    days: u64,
    last: u64,
}

impl Clock {
    /// `13:37:28.123456789`, with a date before it or not, or seconds with decimals
    /// (`--clock-seconds`).
    fn read(&mut self, text: &str, clock_hz: Option<u64>) -> Option<Ns> {
        let text = text.rsplit(' ').next().unwrap_or(text);
        // `--clock-cycles`.
        if let (Some(hz), Ok(cycles)) = (clock_hz.filter(|hz| *hz > 0), text.parse::<u64>()) {
            return u64::try_from(u128::from(cycles) * 1_000_000_000 / u128::from(hz)).ok().map(Ns);
        }
        let (whole, part) = text.split_once('.')?;
        let part: u64 = format!("{part:0<9}").get(..9)?.parse().ok()?;
        let mut seconds = 0u64;
        let by_day = whole.contains(':');
        for number in whole.split(':') {
            seconds = seconds.checked_mul(60)?.checked_add(number.parse().ok()?)?;
        }
        let ns = seconds.checked_mul(1_000_000_000)?.checked_add(part)?;
        if by_day && ns.saturating_add(HALF_DAY) < self.last {
            self.days += 1;
        }
        self.last = ns;
        self.days.checked_mul(2 * HALF_DAY)?.checked_add(ns).map(Ns)
    }

    /// The CPU, time and number of discarded events that babeltrace warns of:
    /// `[warning] Tracer discarded 3 events between [TIME] and [TIME] in trace ..., at relative path: "channel0_1".`
    /// (1), `WARNING: Tracer discarded 3 events ... "channel0_1"` (2).
    pub(super) fn loss(&mut self, text: &str) -> Option<(u32, Ns, u64)> {
        let rest = text
            .strip_prefix("[warning] Tracer ")
            .or_else(|| text.strip_prefix("WARNING: Tracer "))?;
        let rest =
            rest.strip_prefix("discarded ").or_else(|| rest.strip_prefix("may have discarded "))?;
        let count = rest.split_whitespace().next()?.parse().ok()?;
        let at = self.read(rest.split_once("between [")?.1.split(']').next()?, None)?;
        // A stream is the buffer of one CPU; its name ends with the CPU's number.
        let (_, stream) = rest.rsplit_once("channel")?;
        let (_, number) = stream.split('"').next()?.rsplit_once('_')?;
        let cpu = number.parse().ok().filter(|&cpu: &u32| (cpu as usize) < MAX_CPUS)?;
        Some((cpu, at, count))
    }

    /// The event of a line.
    pub(super) fn event<'a>(
        &mut self,
        line: &BabeltraceLine<'a>,
        (kernel, clock_hz): (Option<KernelVersion>, Option<u64>),
        by_version: &mut bool,
    ) -> Result<(Stamp<'a>, Event<'a>), String> {
        let contexts = Fields(line.fields);
        // The event's own fields come last; contexts before them may have fields of the same name.
        let last =
            line.fields.rfind("}, {").map(|at| at + 3).or(line.fields.rfind("event.fields = {"));
        let fields = Fields(last.map_or(line.fields, |at| &line.fields[at..]));
        let at = self.read(line.time, clock_hz).ok_or_else(|| not_a_time(line.time))?;
        let cpu = contexts.cpu("cpu_id").ok_or("no `cpu_id`")?;
        let lacks = || format!("fields of {} not understood", line.event);
        // `perf data convert --to-ctf` keeps the kernel's names and priorities.
        let of_perf = line.event.strip_prefix("sched:");
        let name = of_perf.unwrap_or(line.event);
        let (tid_is, plus) = if of_perf.is_some() { ("pid", 0) } else { ("tid", 100) };
        let who = |comm: &str, tid: &str, prio: &str| {
            let tid = fields.id(&tid.replace("tid", tid_is))?;
            let prio = fields.number(prio).map(|prio| (prio as i32).saturating_add(plus));
            Some(Who { comm: fields.text(comm)?.into(), tid, prio })
        };
        let subject = || who("comm", "tid", "prio").ok_or_else(lacks);
        let mut running = if contexts.0.len() > fields.0.len() {
            self.running(&contexts)
        } else {
            Running::default()
        };
        let event = match name {
            "sched_switch" => {
                let prev = who("prev_comm", "prev_tid", "prev_prio").ok_or_else(lacks)?;
                let next = who("next_comm", "next_tid", "next_prio").ok_or_else(lacks)?;
                let (state, depends) =
                    states::from_text(fields.value("prev_state").ok_or_else(lacks)?, kernel);
                *by_version |= depends;
                running = Running { comm: prev.comm, tid: Some(prev.tid), pid: None };
                Event::Switch { prev, state, next }
            }
            "sched_waking" => Event::Waking(subject()?),
            "sched_wakeup" => Event::Wakeup(subject()?),
            "sched_wakeup_new" => Event::WakeupNew(subject()?),
            "sched_process_exit" => Event::Exit(subject()?),
            "sched_migrate_task" => {
                let from = fields.cpu("orig_cpu").ok_or_else(lacks)?;
                let to = fields.cpu("dest_cpu").ok_or_else(lacks)?;
                Event::Migrate { task: subject()?, from, to }
            }
            "sched_process_fork" => {
                let child = who("child_comm", "child_tid", "").ok_or_else(lacks)?;
                if let Some(parent) = who("parent_comm", "parent_tid", "") {
                    running = Running { comm: parent.comm, tid: Some(parent.tid), pid: None };
                }
                Event::Fork { child }
            }
            "sched_process_exec" => Event::Exec { tid: fields.id(tid_is).ok_or_else(lacks)? },
            other => Event::Other(other),
        };
        // LTTng's events do not show interrupts: which task woke another is unknown.
        let context = match fields.number("common_flags").filter(|_| of_perf.is_some()) {
            Some(flags) => Context::of_flags(flags as u64),
            None => Context::NotShown,
        };
        if let Some(tid) = fields.number("common_pid").filter(|_| of_perf.is_some()) {
            running.tid = running.tid.or(u32::try_from(tid).ok());
        }
        Ok((Stamp { at, cpu, running, context }, event))
    }

    /// The task that was running, where the trace has the contexts `tid` and `procname`.
    fn running<'a>(&self, fields: &Fields<'a>) -> Running<'a> {
        // Without the context `procname`, `tid` is a field of the event.
        let Some(comm) = fields.text("procname") else { return Running::default() };
        Running { comm: comm.into(), tid: fields.id("tid"), pid: fields.id("pid") }
    }
}

fn not_a_time(text: &str) -> String {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!(
            "`{text}` counts cycles: leave out babeltrace's --clock-cycles, or give the clock's \
             frequency with --clock-hz"
        ),
        false => format!("`{text}` is no time"),
    }
}

/// `{ a = 1, b = "x" }, { c = 2 }`, nested or not.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    /// The value of a field, as it is printed: without quotes; of an enumeration the number, where
    /// there is one, else the name.
    fn value(&self, key: &str) -> Option<&'a str> {
        if key.is_empty() {
            return None;
        }
        let text = self.0;
        let mut from = 0;
        while let Some(at) = text[from..].find(key).map(|at| at + from) {
            from = at + key.len();
            let before = text[..at].bytes().next_back();
            let Some(rest) = text[from..].strip_prefix(" = ") else { continue };
            if !matches!(before, Some(b' ' | b'{')) {
                continue;
            }
            if let Some(quoted) = rest.strip_prefix('"') {
                return quoted.split('"').next();
            }
            if let Some(list) = rest.strip_prefix("( ") {
                // `( "TASK_INTERRUPTIBLE" : container = 1 )`
                let inner = list.split(" )").next()?;
                return inner
                    .rsplit(" = ")
                    .next()
                    .map(str::trim)
                    .filter(|value| *value != inner)
                    .or_else(|| inner.split('"').nth(1));
            }
            return rest.split([',', ' ', '}']).next();
        }
        None
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.value(key)
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.value(key)?.parse().ok()
    }

    /// The number of a thread or process.
    fn id(&self, key: &str) -> Option<u32> {
        u32::try_from(self.number(key)?).ok()
    }

    /// The number of a CPU, if a recording can have it.
    fn cpu(&self, key: &str) -> Option<u32> {
        self.id(key).filter(|&cpu| (cpu as usize) < MAX_CPUS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::PrevState;

    const SWITCH: &str = "[13:37:28.123456789] (+0.000001234) host sched_switch: { cpu_id = 1 }, \
                          { prev_comm = \"a b\", prev_tid = 2, \
                          prev_prio = 20, prev_state = 1, next_comm = \"c\", next_tid = 3, \
                          next_prio = -1 }";

    #[test]
    fn a_switch_of_both_babeltraces() {
        let line = split(SWITCH).unwrap();
        let (stamp, event) = Clock::default().event(&line, (None, None), &mut false).unwrap();
        assert_eq!((stamp.at, stamp.cpu), (Ns(49_048_123_456_789), 1));
        let prev = Who { comm: "a b".into(), tid: 2, prio: Some(120) };
        let next = Who { comm: "c".into(), tid: 3, prio: Some(99) };
        assert_eq!(event, Event::Switch { prev, state: PrevState::Sleeping, next });
        let two = SWITCH
            .replace("prev_state = 1", "prev_state = ( \"TASK_INTERRUPTIBLE\" : container = 1 )");
        let line = split(&two).unwrap();
        assert_eq!(Clock::default().event(&line, (None, None), &mut false).unwrap().1, event);
        let (context, fields) = SWITCH.split_once("}, {").unwrap();
        let cpu = context.split_once(": {").unwrap().1;
        let named = format!(
            "timestamp = 13:37:28.123456789, delta = +0.000001234, name = sched_switch, \
             stream.packet.context = {{{cpu}}}, event.fields = {{{fields}"
        );
        let line = split(&named).unwrap();
        let found = Clock::default().event(&line, (None, None), &mut false).unwrap();
        assert_eq!(found, (stamp, event));
        let cycles = SWITCH.replace("13:37:28.123456789", "00000049048123456789");
        let line = split(&cycles).unwrap();
        let why = Clock::default().event(&line, (None, None), &mut false).unwrap_err();
        assert!(why.contains("--clock-hz"), "{why}");
        let found = Clock::default().event(&line, (None, Some(1_000_000_000)), &mut false).unwrap();
        assert_eq!(found, (stamp, event));
    }

    #[test]
    fn perf_converts_to_the_same_format() {
        let text = "[00:13:25.863209916] (+?.?????????) sched:sched_waking: { cpu_id = 0 }, \
                    { perf_ip = 0xFFFFFFFF813A88B4, \
                    perf_tid = 17, perf_pid = 17, perf_id = 14, perf_period = 1, common_type = \
                    375, common_flags = 13, \
                    common_preempt_count = 5, common_pid = 17, comm = \"srv\", pid = 18, prio = \
                    120, target_cpu = 0 }";
        let line = split(text).unwrap();
        let (stamp, event) = Clock::default().event(&line, (None, None), &mut false).unwrap();
        assert_eq!(event, Event::Waking(Who { comm: "srv".into(), tid: 18, prio: Some(120) }));
        assert_eq!((stamp.running.tid, stamp.context), (Some(17), Context::HardIrq));
    }

    #[test]
    fn midnight_is_a_day() {
        let mut clock = Clock::default();
        let before = clock.read("23:59:59.999999999", None).unwrap();
        let after = clock.read("00:00:00.000000001", None).unwrap();
        assert_eq!(after.0 - before.0, 2);
        assert_eq!(Clock::default().read("1234.5", None), Some(Ns(1_234_500_000_000)));
        assert_eq!(Clock::default().read("2015-01-02 00:00:01.5", None), Some(Ns(1_500_000_000)));
    }

    /// Both sums overflowed on inputs of the fuzzer.
    #[test]
    fn numbers_at_the_limit_are_read() {
        let text = SWITCH.replace("next_prio = -1", "next_prio = 2147483647");
        let line = split(&text).unwrap();
        let Event::Switch { next, .. } =
            Clock::default().event(&line, (None, None), &mut false).unwrap().1
        else {
            panic!("a switch")
        };
        assert_eq!(next.prio, Some(i32::MAX));
        assert_eq!(
            Clock::default().read("307445734:33.5", None),
            Some(Ns(18_446_744_073_500_000_000))
        );
    }

    #[test]
    fn other_lines_are_none_of_it() {
        for text in ["hog-200 [001] 1.5: sched_switch: { x", "[001] a", "[2021] x: {"] {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
