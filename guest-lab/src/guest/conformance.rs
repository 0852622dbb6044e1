//! What must hold of the threads of `guest-lab/guest/tests/conformance.sh` under each scheduler, by
//! the kernel's own trace: the questions of `crates/cli/tests/conformance` on several CPUs, to a
//! witness that is not schedlab.
//!
//! Under elevation each managed CPU is given to the fair class for some milliseconds of each 100.
//! There the kernel decides, so an order is judged by the turns of raised threads: those that the
//! driver gave the CPU to. Under sched_ext a managed thread has a CPU only when the driver gave it,
//! so each of its stays is a turn.

mod play;

use super::catalogue::Verdict;
use super::ftrace::{self, FtraceLine, Stops, Who};
use anyhow::{Context, Result, ensure};
use play::plays;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The kernel's priority of a raised thread (SCHED_FIFO 3) and of a parked one (SCHED_FIFO 1).
const RAISED: u32 = 96;
const PARKED: u32 = 98;
/// The first priority of the fair classes.
const FAIR: u32 = 100;
/// Within this a thread that goes first has a CPU: some rounds of agents on CPUs that take turns,
/// and a yield window. A thread that has to wait in these plays waits for 30 ms and more.
const SOON: u64 = 15_000_000;
/// A parked thread that wakes on an idle CPU runs until the agent has raised it.
const LEAK: u64 = 5_000_000;
/// A thread is released after 200 ms of waiting (`--starve-after`), and has the next yield window
/// then.
const STARVED: u64 = 450_000_000;
/// The thread that is released.
const RELEASED: &str = "c_sw";

/// By which driver the threads were managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    Elevation,
    SchedExt,
}

impl Driver {
    /// Whether the driver gave a CPU to a thread that came and went with these priorities.
    /// SCHED_EXT has no priority of its own: the kernel's trace shows the nice value's.
    fn gave(self, (came, went): (u32, u32)) -> bool {
        match self {
            Driver::Elevation => came == RAISED || went == RAISED,
            Driver::SchedExt => true,
        }
    }

    /// Whether such a thread is managed.
    fn manages(self, (came, went): (u32, u32)) -> bool {
        match self {
            Driver::Elevation => came < FAIR && went < FAIR,
            Driver::SchedExt => true,
        }
    }
}

/// A stay of a thread on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stay {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) cpu: u32,
    /// Its priority when it came and when it went.
    prio: (u32, u32),
    /// The driver gave it the CPU.
    pub(super) given: bool,
    pub(super) left: Left,
}

/// In which state a thread left a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// It wanted to go on.
    Runnable,
    /// It sleeps, or waits for the gate.
    Asleep,
    /// Else: it waits for a lock of the kernel, or is dead.
    Otherwise,
}

impl Left {
    fn from_state(state: &str) -> Left {
        match state.chars().next() {
            Some('R') => Left::Runnable,
            Some('S') => Left::Asleep,
            _ => Left::Otherwise,
        }
    }
}

/// What the kernel saw of one thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Thread {
    pub(super) stays: Vec<Stay>,
    pub(super) woken: Vec<u64>,
    ended: Option<u64>,
    /// When it had narrowed its affinity, and to which CPU.
    narrowed: Option<(u64, u32)>,
}

impl Thread {
    /// When it had a CPU first, in whatever class, from `at` on.
    fn runs(&self, at: u64) -> u64 {
        let first = self.stays.iter().find(|stay| stay.to > at);
        first.map_or(u64::MAX, |stay| stay.from.max(at))
    }

    /// When the driver gave it a CPU first, from `at` on.
    fn given(&self, at: u64) -> u64 {
        let first = self.stays.iter().find(|stay| stay.from >= at && stay.given);
        first.map_or(u64::MAX, |stay| stay.from)
    }

    /// The last wakeup before its CPU time: that at its moment.
    pub(super) fn began(&self) -> u64 {
        // The gate opens; on some kernels (7.2) all that waited for it then wait for its lock, one
        // after the other; and its moment comes, for which it sleeps, if it has not come before.
        let slept = self.stays.iter().find(|stay| stay.left == Left::Asleep).map(|stay| stay.to);
        let moment = slept.and_then(|slept| self.woken.iter().find(|at| **at >= slept));
        moment.or_else(|| self.woken.iter().take(2).next_back()).copied().unwrap_or(u64::MAX)
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended.unwrap_or(u64::MAX)
    }

    /// When it went to sleep after it had begun.
    fn blocked(&self) -> u64 {
        let begun = self.began();
        let sleeps =
            self.stays.iter().find(|stay| stay.from >= begun && stay.left != Left::Runnable);
        sleeps.map_or(u64::MAX, |stay| stay.to)
    }
}

pub(super) type Threads = BTreeMap<String, Thread>;

/// What a scheduler promises.
struct Rules {
    /// One queue for all CPUs: first come, first served among equals, and a CPU that is free is
    /// given away at once.
    first_come: bool,
    /// What goes first takes a CPU at once from what goes later.
    preempts: bool,
    /// Batch work takes turns.
    turns: bool,
}

fn rules(scheduler: &str) -> Option<Rules> {
    let rules = |first_come, preempts, turns| Some(Rules { first_come, preempts, turns });
    match scheduler {
        "fifo-centralized" => rules(true, false, false),
        "edf" => rules(true, true, false),
        "shinjuku" | "layers" => rules(true, true, true),
        // A queue for each CPU.
        "rr" | "linux-6.12" => rules(false, false, true),
        _ => None,
    }
}

/// Whether a scheduler has one queue for all CPUs, so that an order is defined.
pub(super) fn is_first_come(scheduler: &str) -> bool {
    rules(scheduler).is_some_and(|rules| rules.first_come)
}

/// Judges every `SCHEDULER.CPUS[.run|.starved].ftrace` of threads under elevation.
pub(super) fn judge(folder: &Path) -> Result<Vec<Verdict>> {
    all(folder, Driver::Elevation)
}

/// The same of threads under sched_ext.
pub(super) fn judge_sched_ext(folder: &Path) -> Result<Vec<Verdict>> {
    all(folder, Driver::SchedExt)
}

fn all(folder: &Path, driver: Driver) -> Result<Vec<Verdict>> {
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names
            .extend(entry?.file_name().into_string().ok().filter(|name| name.ends_with(".ftrace")));
    }
    names.sort();
    ensure!(!names.is_empty(), "no trace came back");
    let mut verdicts = Vec::new();
    for name in names {
        let bytes = std::fs::read(folder.join(&name))?;
        let words = name.strip_suffix(".ftrace").unwrap_or_default();
        let (words, play) = match words.rsplit_once('.') {
            Some((words, play @ ("run" | "starved"))) => (words, play),
            _ => (words, ""),
        };
        let (scheduler, cpus) = words.rsplit_once('.').with_context(|| name.clone())?;
        let cpus: u32 = cpus.parse().with_context(|| name.clone())?;
        let rules = rules(scheduler).with_context(|| format!("no rules for `{scheduler}`"))?;
        let (threads, mut faults) = read(&String::from_utf8_lossy(&bytes), driver);
        // The one that waits too long has its own policy again, of which the trace tells nothing
        // under sched_ext.
        let released = (driver == Driver::SchedExt && play == "starved").then_some(RELEASED);
        let (more, used) = everywhere(&threads, cpus, driver, released);
        faults.extend(more);
        match play {
            "run" => faults.extend(narrowed(&threads, 8)),
            "starved" => faults.extend(starved(&threads)),
            _ => {
                faults.extend(plays(&threads, &rules, cpus));
                if used.len() != cpus as usize {
                    faults.push(format!("threads were given the CPUs {used:?} only"));
                }
            }
        }
        let stays: usize = threads.values().map(|thread| thread.stays.len()).sum();
        let found = match faults.as_slice() {
            [] => String::new(),
            some => format!(": {}", some.join("; ")),
        };
        let text =
            format!("{words} {play}: {} threads, {stays} stays on CPUs{found}", threads.len());
        verdicts.push(Verdict { good: faults.is_empty() && stays > 0, text });
    }
    Ok(verdicts)
}

/// Reads what the kernel saw of the threads of the play, and what cannot be.
pub(super) fn read(text: &str, driver: Driver) -> (Threads, Vec<String>) {
    let mut reader = Reader::new(driver);
    text.lines().filter_map(ftrace::line).for_each(|line| reader.event(&line));
    let threads =
        reader.threads.into_iter().map(|(tid, thread)| (reader.names[&tid].clone(), thread));
    (threads.collect(), reader.faults)
}

struct Reader {
    driver: Driver,
    /// By thread id: a new thread has its maker's name for a while.
    threads: BTreeMap<u32, Thread>,
    /// The last name of each.
    names: BTreeMap<u32, String>,
    /// By CPU: who came when, with which priority.
    on: BTreeMap<u32, (u32, u64, u32)>,
    dead: BTreeSet<u32>,
    faults: Vec<String>,
}

impl Reader {
    fn new(driver: Driver) -> Reader {
        let (threads, names, on) = Default::default();
        Reader { driver, threads, names, on, dead: BTreeSet::new(), faults: Vec::new() }
    }

    fn one(&mut self, who: Who<'_>) -> Option<&mut Thread> {
        is_one(who.comm).then(|| {
            self.names.insert(who.tid, who.comm.to_owned());
            self.threads.entry(who.tid).or_default()
        })
    }

    fn event(&mut self, &FtraceLine { at, cpu, event, rest }: &FtraceLine<'_>) {
        match event {
            "sched_switch" => {
                if let Some(stops) = ftrace::switch(rest) {
                    self.switch(at, cpu, &stops);
                }
            }
            "sched_waking" => {
                if let Some(one) = ftrace::who(rest, "").and_then(|who| self.one(who)) {
                    one.woken.push(at);
                }
            }
            "sched_process_exit" => {
                if let Some(one) = ftrace::who(rest, "").and_then(|who| self.one(who)) {
                    one.ended = Some(at);
                }
            }
            "tracing_mark_write" => {
                if let ["narrowed", name, "to", mask, ..] = rest.split(' ').collect::<Vec<_>>()[..]
                {
                    let cpu = u32::from_str_radix(mask, 16).map_or(u32::MAX, u32::trailing_zeros);
                    let tid =
                        self.names.iter().find(|(_, known)| *known == name).map(|(tid, _)| *tid);
                    if let Some(one) = tid.and_then(|tid| self.threads.get_mut(&tid)) {
                        one.narrowed = Some((at, cpu));
                    }
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, at: u64, cpu: u32, stops: &Stops<'_>) {
        let (prev, next) = (stops.prev, stops.next);
        if stops.state.starts_with(['X', 'Z']) {
            self.dead.insert(prev.tid);
        }
        if let Some((tid, from, prio)) = self.on.remove(&cpu)
            && tid == prev.tid
        {
            let left = Left::from_state(stops.state);
            let prio = (prio, prev.prio);
            let stay = Stay { from, to: at, cpu, prio, given: self.driver.gave(prio), left };
            if let Some(one) = self.one(prev) {
                one.stays.push(stay);
            }
        }
        if self.one(next).is_none() {
            return;
        }
        let Who { comm: name, tid, prio } = next;
        if let Some((elsewhere, _)) = self.on.iter().find(|(_, (other, ..))| *other == tid) {
            self.faults.push(format!("{name} comes to CPU {cpu} and is on CPU {elsewhere}"));
        }
        if self.dead.contains(&tid) {
            self.faults.push(format!("{name} runs after its end"));
        }
        self.on.insert(cpu, (tid, at, prio));
    }
}

fn is_one(name: &str) -> bool {
    name.starts_with("c_")
}

/// What holds in each play: where managed threads run, parked ones do not, and all end. Returns the
/// CPUs that were given away, too. `released` may run anywhere.
fn everywhere(
    threads: &Threads,
    cpus: u32,
    driver: Driver,
    released: Option<&str>,
) -> (Vec<String>, BTreeSet<u32>) {
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for (name, thread) in threads {
        if thread.ended.is_none() {
            faults.push(format!("{name} does not end"));
        }
        for stay in &thread.stays {
            let managed = driver.manages(stay.prio) && released != Some(name.as_str());
            if managed && !(1..=cpus).contains(&stay.cpu) {
                faults.push(format!("{name} is managed and runs on CPU {}", stay.cpu));
            }
            if stay.prio == (PARKED, PARKED) && stay.to - stay.from > LEAK {
                faults.push(format!(
                    "{name} is parked and runs for {} us",
                    (stay.to - stay.from) / 1000
                ));
            }
            used.extend(Some(stay.cpu).filter(|_| stay.given));
        }
    }
    (faults, used)
}

/// A thread that confined itself is on no other CPU from then on.
fn narrowed(threads: &Threads, count: usize) -> Vec<String> {
    let mut faults = Vec::new();
    let told: Vec<_> =
        threads.iter().filter_map(|(name, one)| Some((name, one, one.narrowed?))).collect();
    if told.len() != count {
        faults.push(format!("{} of {count} threads confined themselves", told.len()));
    }
    for (name, thread, (at, cpu)) in told {
        let elsewhere: Vec<_> =
            thread.stays.iter().filter(|stay| stay.to > at && stay.cpu != cpu).collect();
        if let Some(first) = elsewhere.first() {
            faults.push(format!(
                "affinity: {name} confined itself to CPU {cpu}, and is {} times elsewhere, first \
                 on CPU {} after {} us",
                elsewhere.len(),
                first.cpu,
                first.from.saturating_sub(at) / 1000
            ));
        }
    }
    faults
}

fn starved(threads: &Threads) -> Vec<String> {
    let Some(waits) = threads.get(RELEASED) else { return vec!["no thread waits".to_owned()] };
    let waited = waits.runs(waits.began()).saturating_sub(waits.began());
    let text = format!("starvation bound: it waited for {} ms", waited / 1_000_000);
    if waited > STARVED { vec![text] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace of three threads on CPU 1: time in ms, the event.
    fn trace(events: &[(u64, &str)]) -> String {
        let line =
            |(at, event): &(u64, &str)| format!(" x-1 [001] d..2. 1.{:06}: {event}\n", at * 1000);
        events.iter().map(line).collect()
    }

    fn switch(prev: &str, prio: u32, state: &str, next: &str) -> String {
        format!(
            "sched_switch: prev_comm={prev} prev_pid=1 prev_prio={prio} prev_state={state} ==> \
             next_comm={next} \
             next_pid=2 next_prio=96"
        )
    }

    #[test]
    fn stays_wakeups_and_ends_are_read() {
        let comes = switch("swapper", 120, "R", "c_a");
        let goes = switch("c_a", 98, "R+", "sched-agent").replace("prev_pid=1", "prev_pid=2");
        let text = trace(&[
            (1, "sched_waking: comm=c_a pid=2 prio=98 target_cpu=001"),
            (2, &comes),
            (5, &goes),
            (6, "sched_process_exit: comm=c_a pid=2 prio=98"),
        ]);
        let (threads, faults) = read(&text, Driver::Elevation);
        let ms = |ms: u64| 1_000_000_000 + ms * 1_000_000;
        let stay = Stay {
            from: ms(2),
            to: ms(5),
            cpu: 1,
            prio: (96, 98),
            given: true,
            left: Left::Runnable,
        };
        let thread =
            Thread { stays: vec![stay], woken: vec![ms(1)], ended: Some(ms(6)), narrowed: None };
        assert_eq!((threads.get("c_a"), faults.len()), (Some(&thread), 0));
        assert_eq!(
            (thread.given(0), thread.runs(ms(3)), thread.runs(ms(5))),
            (ms(2), ms(3), u64::MAX)
        );
    }

    #[test]
    fn a_thread_begins_when_its_moment_comes() {
        let stay = |from, to, left| Stay { from, to, cpu: 1, prio: (98, 98), given: false, left };
        let of = |stays: &[Stay], woken: &[u64]| Thread {
            stays: stays.to_vec(),
            woken: woken.to_vec(),
            ..Thread::default()
        };
        let (asleep, lock, on) = (Left::Asleep, Left::Otherwise, Left::Runnable);
        // The gate, its lock, a sleep until the moment.
        let waited = [
            stay(2, 3, lock),
            stay(5, 6, on),
            stay(7, 8, asleep),
            stay(91, 95, asleep),
            stay(120, 130, lock),
        ];
        let thread = of(&waited, &[1, 4, 90, 119]);
        assert_eq!((thread.began(), thread.blocked()), (90, 95));
        // Without a lock, and with a moment that had come before.
        assert_eq!(of(&[stay(2, 8, asleep), stay(91, 95, lock)], &[1, 90]).began(), 90);
        assert_eq!(of(&[stay(2, 95, lock)], &[1]).began(), 1);
    }

    #[test]
    fn what_cannot_be_is_a_fault() {
        let (comes, goes) = (switch("x", 120, "R", "c_a"), switch("c_a", 96, "S", "x"));
        let text = trace(&[
            (1, &comes),
            (2, "tracing_mark_write: narrowed c_a to 4 from 1"),
            (3, &goes.replace("prev_pid=1", "prev_pid=2").replace("state=S", "state=Z")),
            (20, &comes),
            (21, &goes.replace("prev_pid=1", "prev_pid=2")),
        ]);
        let (threads, faults) = read(&text, Driver::Elevation);
        assert_eq!(faults, ["c_a runs after its end"]);
        let faults = narrowed(&threads, 1);
        assert!(faults[0].contains("2 times elsewhere, first on CPU 1"), "{faults:?}");
        assert_eq!(everywhere(&threads, 2, Driver::Elevation, None).1, BTreeSet::from([1]));
        let parked = comes.replace("next_prio=96", "next_prio=98");
        let stops = switch("c_a", 98, "R", "x").replace("prev_pid=1", "prev_pid=2");
        let elevated = Driver::Elevation;
        let faults =
            everywhere(&read(&trace(&[(1, &parked), (9, &stops)]), elevated).0, 1, elevated, None)
                .0;
        assert!(
            faults.iter().any(|fault| fault.contains("is parked and runs for 8000 us")),
            "{faults:?}"
        );
    }

    #[test]
    fn under_sched_ext_each_stay_is_a_turn_and_a_managed_thread_is_nowhere_else() {
        let comes = switch("swapper", 120, "R", "c_sw").replace("next_prio=96", "next_prio=120");
        let goes = switch("c_sw", 120, "S", "x").replace("prev_pid=1", "prev_pid=2");
        let text =
            trace(&[(1, &comes), (2, &goes), (3, "sched_process_exit: comm=c_sw pid=2 prio=120")]);
        let faults_of = |driver, cpu: &str, released| {
            let (threads, _) = read(&text.replace("[001]", cpu), driver);
            let (faults, used) = everywhere(&threads, 2, driver, released);
            (faults.len(), used.len())
        };
        assert_eq!(faults_of(Driver::SchedExt, "[001]", None), (0, 1));
        assert_eq!(
            faults_of(Driver::Elevation, "[001]", None),
            (0, 0),
            "a fair thread has no turn"
        );
        assert_eq!(faults_of(Driver::SchedExt, "[000]", None).0, 1, "CPU 0 is not managed");
        assert_eq!(faults_of(Driver::SchedExt, "[000]", Some(RELEASED)).0, 0);
        assert_eq!(faults_of(Driver::Elevation, "[000]", None).0, 0);
    }

    #[test]
    fn each_scheduler_of_the_script_has_rules() {
        let script = include_str!("../../guest/tests/conformance.sh");
        let line =
            script.lines().find(|line| line.starts_with("for scheduler in")).expect("a list");
        let names =
            line["for scheduler in ".len()..].split(';').next().expect("it ends").split(' ');
        for name in names {
            assert!(rules(name.split(':').next().expect("a name")).is_some(), "{name}");
        }
    }
}
