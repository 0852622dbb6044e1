//! The text of the kernel's own trace (ftrace, clock `mono`): a witness that is not schedlab.

/// A line of it, such as
/// `load-142 [001] d..2. 12.345678: sched_switch: prev_comm=load prev_pid=142 ...`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FtraceLine<'a> {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub(super) at: u64,
    pub(super) cpu: u32,
    pub(super) event: &'a str,
    pub(super) rest: &'a str,
}

/// A thread as a switch names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Who<'a> {
    pub(super) comm: &'a str,
    pub(super) tid: u32,
    /// The kernel's: 99 less the real-time priority; 100 and more are fair.
    pub(super) prio: u32,
}

/// What a `sched_switch` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stops<'a> {
    pub(super) prev: Who<'a>,
    /// `R` and `R+` want the CPU.
    pub(super) state: &'a str,
    pub(super) next: Who<'a>,
}

/// Takes a line apart. `None`: it is no event.
pub(super) fn line(text: &str) -> Option<FtraceLine<'_>> {
    let (before, event) = text.split_once("] ")?;
    let cpu = before.rsplit_once('[')?.1.parse().ok()?;
    let (flags_and_time, event) = event.split_once(": ")?;
    let time = flags_and_time.rsplit_once(' ')?.1;
    let (seconds, micros) = time.split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000;
    let (event, rest) = event.split_once(": ")?;
    Some(FtraceLine { at, cpu, event, rest })
}

/// Takes the text of a `sched_switch` apart.
pub(super) fn switch(rest: &str) -> Option<Stops<'_>> {
    let (prev, _) = rest.rsplit_once(" ==> next_comm=")?;
    let next = rest.get(prev.len() + " ==> ".len()..)?;
    let (prev, state) = prev.rsplit_once(" prev_state=")?;
    Some(Stops { prev: who(prev, "prev_")?, state, next: who(next, "next_")? })
}

/// `prev_comm=a prev_pid=1 prev_prio=120`; numbers are looked for from behind.
pub(super) fn who<'a>(text: &'a str, prefix: &str) -> Option<Who<'a>> {
    let (rest, prio) = text.rsplit_once(&format!(" {prefix}prio="))?;
    let (comm, tid) = rest.rsplit_once(&format!(" {prefix}pid="))?;
    let comm = comm.strip_prefix(&format!("{prefix}comm="))?;
    let number = |text: &str| text.split(' ').next()?.parse().ok();
    Some(Who { comm, tid: number(tid)?, prio: number(prio)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_taken_apart_whatever_the_names_are() {
        let text = "   load-142   [001] d..2.    12.345678: sched_switch: prev_comm=a ] b: c \
                    prev_pid=142 prev_prio=96 \
                    prev_state=R+ ==> next_comm=x ==> y next_pid=7 next_prio=120";
        let line = line(text).expect("an event");
        assert_eq!((line.at, line.cpu, line.event), (12_345_678_000, 1, "sched_switch"));
        let prev = Who { comm: "a ] b: c", tid: 142, prio: 96 };
        let next = Who { comm: "x ==> y", tid: 7, prio: 120 };
        assert_eq!(switch(line.rest), Some(Stops { prev, state: "R+", next }));
        let waking = "comm=c_a pid=9 prio=98 target_cpu=002";
        assert_eq!(who(waking, ""), Some(Who { comm: "c_a", tid: 9, prio: 98 }));
    }

    #[test]
    fn what_is_no_event_is_none() {
        for text in ["", "# tracer: nop", "CPU:1 [LOST 7 EVENTS]", "a-1 [001] d..2. 1.5"] {
            assert_eq!(line(text), None, "{text}");
        }
    }
}
