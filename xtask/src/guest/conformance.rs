//! What must hold of the threads of `xtask/guest/tests/conformance.sh` under each scheduler, by the kernel's own trace: the questions of
//! `crates/cli/tests/conformance` on several CPUs, to a witness that is not schedlab.
//!
//! Each managed CPU is given to the fair class for some milliseconds of each 100. There the kernel decides, so an order is judged by the
//! turns of raised threads: those that the driver gave the CPU to.

use super::catalogue::Verdict;
use super::ftrace::{self, Line, Stops, Who};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The kernel's priority of a raised thread (SCHED_FIFO 3) and of a parked one (SCHED_FIFO 1).
const RAISED: u32 = 96;
const PARKED: u32 = 98;
/// The first priority of the fair classes.
const FAIR: u32 = 100;
/// Within this a thread that goes first has a CPU: some rounds of agents on CPUs that take turns, and a yield window. A thread that has to
/// wait in these plays waits for 30 ms and more.
const SOON: u64 = 15_000_000;
/// A parked thread that wakes on an idle CPU runs until the agent has raised it.
const LEAK: u64 = 5_000_000;
/// A thread is released after 200 ms of waiting (`--starve-after`), and has the next yield window then.
const STARVED: u64 = 450_000_000;

/// A stay of a thread on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stay {
    from: u64,
    to: u64,
    cpu: u32,
    /// Its priority when it came and when it went.
    prio: (u32, u32),
    left: Left,
}

/// In which state a thread left a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// It wanted to go on.
    Runnable,
    /// It sleeps, or waits for the gate.
    Asleep,
    /// Else: it waits for a lock of the kernel, or is dead.
    Otherwise,
}

impl Left {
    fn of(state: &str) -> Left {
        match state.chars().next() {
            Some('R') => Left::Runnable,
            Some('S') => Left::Asleep,
            _ => Left::Otherwise,
        }
    }
}

impl Stay {
    fn is_raised(&self) -> bool {
        self.prio.0 == RAISED || self.prio.1 == RAISED
    }
}

/// What the kernel saw of one thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Thread {
    stays: Vec<Stay>,
    woken: Vec<u64>,
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
    fn raised(&self, at: u64) -> u64 {
        let first = self.stays.iter().find(|stay| stay.from >= at && stay.is_raised());
        first.map_or(u64::MAX, |stay| stay.from)
    }

    /// The last wakeup before its CPU time: that at its moment.
    fn began(&self) -> u64 {
        // The gate opens; on some kernels (7.2) all that waited for it then wait for its lock, one after the other; and its moment comes,
        // for which it sleeps, if it has not come before.
        let slept = self.stays.iter().find(|stay| stay.left == Left::Asleep).map(|stay| stay.to);
        let moment = slept.and_then(|slept| self.woken.iter().find(|at| **at >= slept));
        moment.or_else(|| self.woken.iter().take(2).next_back()).copied().unwrap_or(u64::MAX)
    }

    fn ended(&self) -> u64 {
        self.ended.unwrap_or(u64::MAX)
    }

    /// When it went to sleep after it had begun.
    fn blocked(&self) -> u64 {
        let begun = self.began();
        let sleeps = self.stays.iter().find(|stay| stay.from >= begun && stay.left != Left::Runnable);
        sleeps.map_or(u64::MAX, |stay| stay.to)
    }
}

type Threads = BTreeMap<String, Thread>;

/// What a scheduler promises.
struct Rules {
    /// One queue for all CPUs: first come, first served among equals, and a CPU that is free is given away at once.
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

/// Judges every `SCHEDULER.CPUS[.run|.starved].ftrace`.
pub(super) fn judge(folder: &Path) -> Result<Vec<Verdict>> {
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| name.ends_with(".ftrace")));
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
        let (threads, mut faults) = read(&String::from_utf8_lossy(&bytes));
        let (more, used) = everywhere(&threads, cpus);
        faults.extend(more);
        match play {
            "run" => faults.extend(narrowed(&threads, 8)),
            "starved" => faults.extend(starved(&threads)),
            _ => {
                faults.extend(plays(&threads, &rules, cpus));
                if used.len() != cpus as usize {
                    faults.push(format!("threads were raised on the CPUs {used:?} only"));
                }
            }
        }
        let stays: usize = threads.values().map(|thread| thread.stays.len()).sum();
        let found = match faults.as_slice() {
            [] => String::new(),
            some => format!(": {}", some.join("; ")),
        };
        let text = format!("{words} {play}: {} threads, {stays} stays on CPUs{found}", threads.len());
        verdicts.push(Verdict { good: faults.is_empty() && stays > 0, text });
    }
    Ok(verdicts)
}

/// Reads what the kernel saw of the threads of the play, and what cannot be.
fn read(text: &str) -> (Threads, Vec<String>) {
    let mut reader = Reader::default();
    text.lines().filter_map(ftrace::line).for_each(|line| reader.event(&line));
    let threads = reader.threads.into_iter().map(|(tid, thread)| (reader.names[&tid].clone(), thread));
    (threads.collect(), reader.faults)
}

#[derive(Default)]
struct Reader {
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
    fn one(&mut self, who: Who<'_>) -> Option<&mut Thread> {
        is_one(who.comm).then(|| {
            self.names.insert(who.tid, who.comm.to_owned());
            self.threads.entry(who.tid).or_default()
        })
    }

    fn event(&mut self, &Line { at, cpu, event, rest }: &Line<'_>) {
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
                if let ["narrowed", name, "to", mask, ..] = rest.split(' ').collect::<Vec<_>>()[..] {
                    let cpu = u32::from_str_radix(mask, 16).map_or(u32::MAX, u32::trailing_zeros);
                    let tid = self.names.iter().find(|(_, known)| *known == name).map(|(tid, _)| *tid);
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
            let left = Left::of(stops.state);
            let stay = Stay { from, to: at, cpu, prio: (prio, prev.prio), left };
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

/// What holds in each play: where managed threads run, parked ones do not, and all end. Returns the CPUs that were given away, too.
fn everywhere(threads: &Threads, cpus: u32) -> (Vec<String>, BTreeSet<u32>) {
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for (name, thread) in threads {
        if thread.ended.is_none() {
            faults.push(format!("{name} does not end"));
        }
        for stay in &thread.stays {
            let managed = stay.prio.0 < FAIR && stay.prio.1 < FAIR;
            if managed && !(1..=cpus).contains(&stay.cpu) {
                faults.push(format!("{name} is managed and runs on CPU {}", stay.cpu));
            }
            if stay.prio == (PARKED, PARKED) && stay.to - stay.from > LEAK {
                faults.push(format!("{name} is parked and runs for {} us", (stay.to - stay.from) / 1000));
            }
            used.extend(Some(stay.cpu).filter(|_| stay.is_raised()));
        }
    }
    (faults, used)
}

/// A thread that confined itself is on no other CPU from then on.
fn narrowed(threads: &Threads, count: usize) -> Vec<String> {
    let mut faults = Vec::new();
    let told: Vec<_> = threads.iter().filter_map(|(name, one)| Some((name, one, one.narrowed?))).collect();
    if told.len() != count {
        faults.push(format!("{} of {count} threads confined themselves", told.len()));
    }
    for (name, thread, (at, cpu)) in told {
        let elsewhere: Vec<_> = thread.stays.iter().filter(|stay| stay.to > at && stay.cpu != cpu).collect();
        if let Some(first) = elsewhere.first() {
            faults.push(format!(
                "affinity: {name} confined itself to CPU {cpu}, and is {} times elsewhere, first on CPU {} after {} us",
                elsewhere.len(),
                first.cpu,
                first.from.saturating_sub(at) / 1000
            ));
        }
    }
    faults
}

fn starved(threads: &Threads) -> Vec<String> {
    let Some(waits) = threads.get("c_sw") else { return vec!["no thread waits".to_owned()] };
    let waited = waits.runs(waits.began()).saturating_sub(waits.began());
    let text = format!("starvation bound: it waited for {} ms", waited / 1_000_000);
    if waited > STARVED { vec![text] } else { Vec::new() }
}

/// The phases of one play.
struct Play<'a> {
    threads: &'a Threads,
    cpus: u32,
    faults: Vec<String>,
}

fn plays(threads: &Threads, rules: &Rules, cpus: u32) -> Vec<String> {
    let mut play = Play { threads, cpus, faults: Vec::new() };
    play.wake_order(rules);
    play.preemption(rules);
    play.turns(rules);
    play.block(rules);
    play.exit(rules);
    play.fork();
    play.faults.extend(narrowed(threads, 2));
    play.faults
}

impl Play<'_> {
    fn one(&self, name: &str) -> Thread {
        self.threads.get(&format!("c_{name}")).cloned().unwrap_or_default()
    }

    /// The threads NAME1 to NAMEn.
    fn all(&self, name: &str, count: u32) -> Vec<Thread> {
        (1..=count).map(|number| self.one(&format!("{name}{number}"))).collect()
    }

    fn must(&mut self, what: &str, holds: bool, found: impl std::fmt::Display) {
        if !holds {
            self.faults.push(format!("{what}: {found}"));
        }
    }

    /// Three that come while all CPUs are busy begin in the order in which they came, when the first CPU is free.
    fn wake_order(&mut self, rules: &Rules) {
        let [a, b, c] = ["oa", "ob", "oc"].map(|name| self.one(name));
        let free = self.all("oh", self.cpus).iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        let raised = [&a, &b, &c].map(|one| one.raised(one.began()));
        if rules.first_come {
            for (later, earlier, names) in [(raised[1], &a, "oa ob"), (raised[2], &b, "ob oc")] {
                let in_order = later == u64::MAX || later >= earlier.runs(earlier.began());
                self.must("wake order", in_order, names);
            }
            for (name, at) in ["oa", "ob", "oc"].iter().zip(raised) {
                self.must("wake order", at >= free, format!("{name} runs while others have all CPUs"));
            }
            let begins = a.runs(a.began());
            self.must("wake order", begins <= free.saturating_add(SOON), "oa waits though a CPU is free");
        }
    }

    /// One that goes first comes while all CPUs are busy with what goes later.
    fn preemption(&mut self, rules: &Rules) {
        let late = self.all("ph", self.cpus);
        let first = self.one("pl");
        let free = late.iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        let waited = first.runs(first.began()).saturating_sub(first.began());
        let busy = first.began() < free;
        self.must("preemption", busy, "the CPUs were not busy");
        if rules.preempts {
            self.must("preemption", waited <= SOON, format!("it waited for {} us", waited / 1000));
        } else if rules.first_come {
            let raised = first.raised(first.began());
            self.must("preemption", raised >= free, "it is not its turn while others have all CPUs");
        }
    }

    /// Twice as many as CPUs: under a scheduler with turns all begin before the first ends, under one without none does that waits.
    fn turns(&mut self, rules: &Rules) {
        let all = self.all("t", 2 * self.cpus);
        let first_end = all.iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        let early = all.iter().filter(|one| one.raised(one.began()) < first_end).count();
        let wanted = if rules.turns { all.len() } else { self.cpus as usize };
        self.must("turns", early == wanted, format!("{early} of {} begin before the first ends", all.len()));
    }

    /// A CPU is given to another thread when one sleeps, and given back where the sleeper goes before it.
    fn block(&mut self, rules: &Rules) {
        let (sleeper, others) = (self.one("ba"), self.all("bh", self.cpus));
        let (sleeps, wakes) =
            (sleeper.blocked(), sleeper.woken.iter().copied().find(|at| *at > sleeper.blocked()));
        let wakes = wakes.unwrap_or(u64::MAX);
        self.must("block", wakes < u64::MAX, "it sleeps for ever");
        let again = sleeper.runs(wakes).saturating_sub(wakes);
        let free = others.iter().map(Thread::ended).min().unwrap_or(u64::MAX);
        if rules.first_come {
            let last = others.iter().map(|one| one.runs(one.began())).max().unwrap_or(u64::MAX);
            let takes = last.saturating_sub(sleeps);
            self.must("block", takes <= SOON, format!("its CPU was taken after {} us", takes / 1000));
        }
        if rules.preempts {
            self.must("block", again <= SOON, format!("it waited for {} us after its sleep", again / 1000));
        } else if rules.first_come {
            self.must("block", sleeper.raised(wakes) >= free, "it goes on while others have all CPUs");
        }
    }

    /// Those that wait get the CPUs of those that end.
    fn exit(&mut self, rules: &Rules) {
        let (first, then) = (self.all("eh", self.cpus), self.all("ew", self.cpus));
        let last_end = first.iter().map(Thread::ended).max().unwrap_or(u64::MAX);
        let last_begin = then.iter().map(|one| one.runs(one.began())).max().unwrap_or(u64::MAX);
        if rules.first_come {
            let waited = last_begin.saturating_sub(last_end);
            self.must("exit", waited <= SOON, format!("one waits {} us longer", waited / 1000));
        }
        self.must("exit", last_end < u64::MAX && last_begin < u64::MAX, "one never ran");
    }

    /// A child comes under management, too.
    fn fork(&mut self) {
        let child = self.one("fpk");
        self.must("fork", child.stays.iter().any(Stay::is_raised), "the child was never managed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace of three threads on CPU 1: time in ms, the event.
    fn trace(events: &[(u64, &str)]) -> String {
        let line = |(at, event): &(u64, &str)| format!(" x-1 [001] d..2. 1.{:06}: {event}\n", at * 1000);
        events.iter().map(line).collect()
    }

    fn switch(prev: &str, prio: u32, state: &str, next: &str) -> String {
        format!(
            "sched_switch: prev_comm={prev} prev_pid=1 prev_prio={prio} prev_state={state} ==> next_comm={next} \
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
        let (threads, faults) = read(&text);
        let ms = |ms: u64| 1_000_000_000 + ms * 1_000_000;
        let stay = Stay { from: ms(2), to: ms(5), cpu: 1, prio: (96, 98), left: Left::Runnable };
        let thread = Thread { stays: vec![stay], woken: vec![ms(1)], ended: Some(ms(6)), narrowed: None };
        assert_eq!((threads.get("c_a"), faults.len()), (Some(&thread), 0));
        assert_eq!((thread.raised(0), thread.runs(ms(3)), thread.runs(ms(5))), (ms(2), ms(3), u64::MAX));
    }

    #[test]
    fn a_thread_begins_when_its_moment_comes() {
        let stay = |from, to, left| Stay { from, to, cpu: 1, prio: (98, 98), left };
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
        let (threads, faults) = read(&text);
        assert_eq!(faults, ["c_a runs after its end"]);
        let faults = narrowed(&threads, 1);
        assert!(faults[0].contains("2 times elsewhere, first on CPU 1"), "{faults:?}");
        assert_eq!(everywhere(&threads, 2).1, BTreeSet::from([1]));
        let parked = comes.replace("next_prio=96", "next_prio=98");
        let stops = switch("c_a", 98, "R", "x").replace("prev_pid=1", "prev_pid=2");
        let faults = everywhere(&read(&trace(&[(1, &parked), (9, &stops)])).0, 1).0;
        assert!(faults.iter().any(|fault| fault.contains("is parked and runs for 8000 us")), "{faults:?}");
    }

    #[test]
    fn each_scheduler_of_the_script_has_rules() {
        let script = include_str!("../../guest/tests/conformance.sh");
        let line = script.lines().find(|line| line.starts_with("for scheduler in")).expect("a list");
        let names = line["for scheduler in ".len()..].split(';').next().expect("it ends").split(' ');
        for name in names {
            assert!(rules(name.split(':').next().expect("a name")).is_some(), "{name}");
        }
    }
}
