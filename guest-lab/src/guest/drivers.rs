//! The same load in the simulator, under elevation and under sched_ext
//! (`guest-lab/guest/tests/drivers.sh`), by the kernel's own trace: shares, turns and orders side
//! by side; and what a hand-over costs. A judge that also writes the table of docs/sched-ext.md,
//! beside the files of the test.

use super::catalogue::Verdict;
use super::conformance::{self, Driver, Threads};
use anyhow::{Context, Result, ensure};
use schedlab_model::{
    Amount, CpuId, EventKind, Ns, Op, Policy, PrevState, Program, SchedEvent, Start, TaskId,
    TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions, TickSkew, run};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// What the script plays.
const SCHEDULERS: [&str; 6] = [
    "rr:slice_ns=20ms",
    "fifo-centralized",
    "shinjuku:quantum=20ms",
    "layers",
    "linux-6.12",
    "edf",
];
const CPUS: [u32; 2] = [2, 3];
const HOGS: usize = 6;
const MS: u64 = 1_000_000;
/// Each computes so long; they begin `APART` one after the other. A share is only told to within a
/// turn (20 ms), which is to be less than [`POINTS`] of the time for which it is measured.
const WORK: Ns = Ns(900 * MS);
const APART: u64 = 10 * MS;
/// And one of 5 ms so long after the moment.
const URGENT: (Ns, Ns) = (Ns(150 * MS), Ns(5 * MS));
/// A tick of Debian's kernels (HZ=250).
const TICK: u64 = 4 * MS;
const HZ: u32 = 250;
/// Points of one CPU by which a share may differ from the simulator's.
const POINTS: f64 = 2.0;

/// A stay of a thread on a CPU: the hogs are 0 to 5, the urgent one is the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stay {
    task: usize,
    cpu: u32,
    from: u64,
    to: u64,
    /// It wanted to go on.
    wants: bool,
    /// A driver gave it the CPU.
    given: bool,
}

/// One play, from whatever witness.
#[derive(Default)]
struct Play {
    stays: Vec<Stay>,
    /// When each wanted a CPU first, and when it ended.
    began: Vec<u64>,
    ended: Vec<u64>,
}

/// What is compared.
#[derive(Clone, PartialEq, Debug)]
struct Found {
    /// Of one CPU, in per cent, while all hogs wanted one: on each CPU parts of what they had
    /// together there, so that what elevation gives to the fair class by its yield windows, and
    /// what drivers cost (more on one CPU than on another), is not in them.
    shares: Vec<f64>,
    /// Median length of a turn that another one ended; `None`: there are none.
    turn: Option<u64>,
    /// What the hogs had together of a managed CPU, in per cent: the least and the most.
    all: (f64, f64),
    /// The hogs by their first turn.
    first: Vec<usize>,
    /// How long the urgent one waited; `None`: its driver did not run it (it was given back).
    waited: Option<u64>,
}

impl Play {
    fn found(mut self, cpus: u32) -> Result<Found> {
        self.stays.sort_by_key(|stay| stay.from);
        let from = self.began[..HOGS].iter().copied().max().unwrap_or(0);
        let to = self.ended[..HOGS].iter().copied().min().unwrap_or(0);
        ensure!(from < to && to < u64::MAX, "the threads did not compute at the same time");
        // By CPU, what each hog had of it.
        let mut had: BTreeMap<u32, [u64; HOGS]> = BTreeMap::new();
        for stay in self.stays.iter().filter(|stay| stay.task < HOGS) {
            had.entry(stay.cpu).or_default()[stay.task] +=
                stay.to.min(to).saturating_sub(stay.from.max(from));
        }
        let sums: BTreeMap<u32, f64> = had
            .iter()
            .map(|(cpu, of)| (*cpu, of.iter().sum::<u64>() as f64))
            .filter(|one| one.1 > 0.0)
            .collect();
        ensure!(sums.len() == cpus as usize, "the threads had {} of {cpus} CPUs", sums.len());
        let share =
            |task: usize| sums.iter().map(|(cpu, sum)| 100.0 * had[cpu][task] as f64 / sum).sum();
        let shares = (0..HOGS).map(share).collect();
        let parts = || sums.values().map(|sum| 100.0 * sum / (to - from) as f64);
        let all = (parts().fold(f64::MAX, f64::min), parts().fold(0.0, f64::max));
        let first = |task: usize| {
            let begun = self.began[task];
            let mut of = self.stays.iter().filter(|stay| stay.task == task && stay.given);
            of.find(|stay| stay.from >= begun).map(|stay| stay.from)
        };
        let mut order: Vec<usize> = (0..HOGS).collect();
        // Who was not given a CPU is the last.
        order.sort_by_key(|task| (first(*task).is_none(), first(*task)));
        Ok(Found {
            shares,
            turn: self.turn(from, to),
            all,
            waited: first(HOGS).map(|at| at.saturating_sub(self.began[HOGS])),
            first: order,
        })
    }

    /// Median of the turns that began and ended within these times and that another thread of the
    /// play ended. What else had the CPU in between is part of a turn.
    fn turn(&self, from: u64, to: u64) -> Option<u64> {
        let mut lengths = Vec::new();
        let mut on: BTreeMap<u32, Stay> = BTreeMap::new();
        for stay in self.stays.iter().filter(|stay| stay.given && stay.task < HOGS) {
            match on.get_mut(&stay.cpu) {
                Some(turn) if turn.task == stay.task => {
                    (turn.to, turn.wants) = (stay.to, stay.wants)
                }
                other => {
                    if let Some(turn) =
                        other.filter(|turn| turn.wants && turn.from >= from && turn.to <= to)
                    {
                        lengths.push(turn.to - turn.from);
                    }
                    on.insert(stay.cpu, *stay);
                }
            }
        }
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied()
    }
}

/// Returns what the kernel's trace has of a play.
fn traced(threads: &Threads) -> Result<Play> {
    let names = (1..=HOGS).map(|number| format!("c_{number}")).chain(["c_s".to_owned()]);
    let mut play = Play::default();
    for (task, name) in names.enumerate() {
        let thread = threads.get(&name).with_context(|| format!("{name} is not in the trace"))?;
        let stay = |stay: &conformance::Stay| Stay {
            task,
            cpu: stay.cpu,
            from: stay.from,
            to: stay.to,
            wants: stay.left == conformance::Left::Runnable,
            given: stay.given,
        };
        play.stays.extend(thread.stays.iter().map(stay));
        play.began.push(thread.began());
        play.ended.push(thread.ended());
    }
    Ok(play)
}

/// Returns the play of the script in the simulator, without any costs of a driver.
fn simulated(scheduler: &str, cpus: usize) -> Result<Play> {
    let (late, soon) = match scheduler {
        "edf" => ("deadline:1ms/500ms/500ms", "deadline:1ms/20ms/20ms"),
        _ => ("batch", "other"),
    };
    // A queue for each CPU: which threads share one is given, as in the script.
    let queues = !conformance::is_first_come(scheduler.split(':').next().unwrap_or(scheduler));
    let task = |at: usize, start: Ns, work: Ns, policy: &str| -> Result<TaskSpec> {
        let mut task =
            TaskSpec::new(format!("c_{at}"), Program::once([Op::Run(Amount::Fixed(work))]));
        (task.start, task.policy) = (Start::At(start), policy.parse::<Policy>()?);
        if queues {
            task.affinity = [CpuId((at % HOGS % cpus) as u32)].into_iter().collect();
        }
        Ok(task)
    };
    let hog = |at: usize| task(at, Ns(APART * (at as u64 + 1)), WORK, late);
    let mut tasks: Vec<TaskSpec> = (0..HOGS).map(hog).collect::<Result<_>>()?;
    tasks.push(task(HOGS, URGENT.0, URGENT.1, soon)?);
    let began = (0..HOGS as u64).map(|at| APART * (at + 1)).chain([URGENT.0.0]).collect();
    let machine = Machine { hz: HZ, ticks: TickSkew::Aligned, ..Machine::flat(cpus) };
    let built = registry::build(&scheduler.parse()?, cpus)?;
    let mut events: Vec<SchedEvent> = Vec::new();
    let workload = Workload { tasks, ..Workload::default() };
    run(&machine, &workload, &*built, &RunOptions::for_time(Ns::from_ms(5_000)), &mut events)?;
    let mut play = Play { began, ended: vec![u64::MAX; HOGS + 1], ..Play::default() };
    let mut on: BTreeMap<u32, (TaskId, u64)> = BTreeMap::new();
    for event in &events {
        let EventKind::Switch { prev_state, next, .. } = event.kind else { continue };
        if let Some((task, from)) = on.remove(&event.cpu.0) {
            let (task, wants) = (task.index(), prev_state.is_runnable() == Some(true));
            play.stays.push(Stay {
                task,
                cpu: event.cpu.0,
                from,
                to: event.at.0,
                wants,
                given: true,
            });
            if prev_state == PrevState::Dead {
                play.ended[task] = event.at.0;
            }
        }
        on.extend(next.map(|next| (event.cpu.0, (next, event.at.0))));
    }
    Ok(play)
}

/// Judges every play, and writes the tables.
pub(super) fn judge(folder: &Path) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    let mut table = "| scheduler | CPUs | shares, points from the simulator's: elevation | \
                     sched_ext | of the CPUs: elevation | sched_ext | turns: simulator | \
                     elevation | sched_ext | order | urgent one waits: simulator \
                     | elevation | sched_ext |\n\
                     |---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for scheduler in SCHEDULERS {
        for cpus in CPUS {
            let name = scheduler.split(':').next().unwrap_or(scheduler);
            let by = |driver: Driver, word: &str| {
                let path = folder.join(format!("{name}.{cpus}.{word}.ftrace"));
                let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
                let (threads, faults) = conformance::read(&String::from_utf8_lossy(&text), driver);
                ensure!(faults.is_empty(), "{}: {}", path.display(), faults.join("; "));
                traced(&threads)?.found(cpus).with_context(|| path.display().to_string())
            };
            let elevation = by(Driver::Elevation, "elevation")?;
            let sched_ext = by(Driver::SchedExt, "sched-ext")?;
            let simulator = simulated(scheduler, cpus as usize)?.found(cpus)?;
            let ordered = conformance::is_first_come(name);
            table += &row(scheduler, cpus, &simulator, [&elevation, &sched_ext], ordered);
            for (found, word) in [(&elevation, "elevation"), (&sched_ext, "sched_ext")] {
                let text = format!("{scheduler} on {cpus} CPUs, {word} beside the simulator");
                let faults = faults(&simulator, found, ordered);
                let good = faults.is_empty();
                verdicts.push(Verdict { good, text: format!("{text}: {}", faults.join("; ")) });
            }
        }
    }
    let costs = format!("{}\n{}", costs(folder)?, empties(folder)?);
    std::fs::write(folder.join("drivers.md"), format!("{table}\n{costs}"))?;
    println!("{table}\n{costs}");
    Ok(verdicts)
}

/// Returns the largest difference of two threads' shares, in points of one CPU.
fn apart(one: &Found, other: &Found) -> f64 {
    one.shares.iter().zip(&other.shares).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
}

fn faults(simulator: &Found, found: &Found, ordered: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let points = apart(simulator, found);
    if points > POINTS {
        let text = |found: &Found| {
            found.shares.iter().map(|share| format!("{share:.1}")).collect::<Vec<_>>().join(" ")
        };
        faults.push(format!(
            "shares differ by {points:.1} points ({}, {})",
            text(simulator),
            text(found)
        ));
    }
    let close = match (simulator.turn, found.turn) {
        (Some(one), Some(other)) => one.abs_diff(other) <= TICK,
        (one, other) => one == other,
    };
    if !close {
        faults.push(format!(
            "turns of {}, {} in the simulator",
            ms(found.turn),
            ms(simulator.turn)
        ));
    }
    if ordered && simulator.first != found.first {
        let text = format!("{:?}, {:?} in the simulator", found.first, simulator.first);
        faults.push(format!("another order of first turns: {text}"));
    }
    faults
}

fn ms(time: Option<u64>) -> String {
    time.map_or("none".to_owned(), |time| format!("{:.1} ms", time as f64 / MS as f64))
}

fn row(
    scheduler: &str,
    cpus: u32,
    simulator: &Found,
    [one, other]: [&Found; 2],
    ordered: bool,
) -> String {
    let order = match ordered {
        false => "not defined",
        true if [one, other].iter().all(|found| found.first == simulator.first) => "equal",
        true => "differs",
    };
    let mut text = format!("| {scheduler} | {cpus} |");
    [one, other].iter().for_each(|found| text += &format!(" {:.1} |", apart(simulator, found)));
    [one, other]
        .iter()
        .for_each(|found| text += &format!(" {:.0} to {:.0} % |", found.all.0, found.all.1));
    [simulator, one, other].iter().for_each(|found| text += &format!(" {} |", ms(found.turn)));
    text += &format!(" {order} |");
    [simulator, one, other].iter().for_each(|found| text += &format!(" {} |", ms(found.waited)));
    text + "\n"
}

/// Returns the table of how long a CPU is empty when its thread blocks while another one waits for
/// it.
fn empties(folder: &Path) -> Result<String> {
    let mut table = "| | blocks while another waits | the CPU is empty: median | 9 of 10 below |\n\
         |---|---|---|---|\n"
        .to_owned();
    for (key, name, driver) in [
        ("kernel", "the kernel's fair class", Driver::SchedExt),
        ("elevation", "elevation, fifo-per-cpu", Driver::Elevation),
        ("sched-ext", "sched_ext, fifo-per-cpu", Driver::SchedExt),
    ] {
        let path = folder.join(format!("sleepers.{key}.ftrace"));
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let (threads, _) = conformance::read(&String::from_utf8_lossy(&text), driver);
        let empty = empty(&threads);
        ensure!(
            empty.len() > 100,
            "{}: {} blocks beside a waiting thread",
            path.display(),
            empty.len()
        );
        let us = |at: usize| empty[at] as f64 / 1e3;
        let (half, most) = (us(empty.len() / 2), us(empty.len() * 9 / 10));
        let _ = writeln!(table, "| {name} | {} | {half:.1} us | {most:.1} us |", empty.len());
    }
    Ok(table)
}

/// Returns, shortest first, the times from a block of a thread to the next stay of another that was
/// woken before it.
fn empty(threads: &Threads) -> Vec<u64> {
    let of = |thread: &'_ conformance::Thread| {
        let woken = thread.woken.clone();
        let last = move |from: u64| woken.iter().copied().take_while(|at| *at <= from).last();
        let given = thread.stays.iter().filter(|stay| stay.given);
        given.map(move |stay| (*stay, last(stay.from))).collect::<Vec<_>>()
    };
    let mut stays: Vec<_> = threads.values().flat_map(of).collect();
    stays.sort_by_key(|(stay, _)| stay.from);
    let gap = |pair: &[(conformance::Stay, Option<u64>)]| {
        let ((one, _), (next, woken)) = (pair[0], pair[1]);
        let waited =
            one.left == conformance::Left::Asleep && woken.is_some_and(|woken| woken < one.to);
        waited.then(|| next.from.saturating_sub(one.to))
    };
    let mut empty: Vec<u64> = stays.windows(2).filter_map(gap).collect();
    empty.sort_unstable();
    empty
}

/// Returns the table of costs: the time of a hand-over, and the agents' CPU time for a decision.
fn costs(folder: &Path) -> Result<String> {
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned());
    let mut hand_overs: BTreeMap<String, f64> = BTreeMap::new();
    for line in read("costs.txt")?.lines() {
        let [name, from, to, count] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let seconds = to.parse::<f64>()? - from.parse::<f64>()?;
        hand_overs.insert(name.to_owned(), 1e6 * seconds / count.parse::<f64>()?);
    }
    let mut agents: BTreeMap<String, f64> = BTreeMap::new();
    for line in read("agents.txt")?.lines() {
        let [name, used, decisions] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        agents.insert(name.to_owned(), used.parse::<f64>()? / decisions.parse::<f64>()? / 1e3);
    }
    let bare = *hand_overs.get("bare").context("no hand-over by the bare FIFO")?;
    let mut table = "| | a hand-over | beside the bare FIFO | agents' CPU time for a decision |\n\
         |---|---|---|---|\n"
        .to_owned();
    for (key, name) in [
        ("kernel", "the kernel's fair class"),
        ("bare", "bare sched_ext FIFO"),
        ("elevation", "elevation, fifo-per-cpu"),
        ("sched-ext", "sched_ext, fifo-per-cpu"),
    ] {
        let time = *hand_overs.get(key).with_context(|| format!("no hand-over by {key}"))?;
        let agent = agents.get(key).map_or("-".to_owned(), |agent| format!("{agent:.1} us"));
        let _ = writeln!(table, "| {name} | {time:.1} us | x {:.2} | {agent} |", time / bare);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(task: usize, cpu: u32, from: u64, to: u64) -> Stay {
        Stay { task, cpu, from: from * MS, to: to * MS, wants: true, given: true }
    }

    #[test]
    fn a_share_is_one_of_what_the_hogs_had_of_a_cpu() {
        // CPU 2 was another's for half of the time: its two share what is left.
        let stays = vec![
            stay(0, 1, 0, 40),
            stay(1, 1, 40, 100),
            stay(2, 2, 0, 25),
            stay(3, 2, 50, 75),
            stay(4, 3, 0, 50),
            stay(5, 3, 50, 100),
        ];
        let play = Play { stays, began: vec![0; HOGS + 1], ended: vec![100 * MS; HOGS + 1] };
        let found = play.found(3).expect("all compute");
        assert_eq!(found.shares, [40.0, 60.0, 50.0, 50.0, 50.0, 50.0]);
        assert_eq!((found.all, found.first), ((50.0, 100.0), vec![0, 2, 4, 1, 3, 5]));
    }

    #[test]
    fn a_cpu_is_empty_from_a_block_to_the_next_thread_that_waited() {
        let line = |(us, event): &(u64, &str)| format!(" x-1 [001] d..2. 1.{us:06}: {event}\n");
        let switch = |prev: (&str, u32, &str), next: (&str, u32)| {
            let ((prev, pid, state), (next, tid)) = (prev, next);
            format!(
                "sched_switch: prev_comm={prev} prev_pid={pid} prev_prio=120 prev_state={state} \
                 ==> next_comm={next} next_pid={tid} next_prio=120"
            )
        };
        let events = [
            (100, switch(("swapper/1", 0, "R"), ("c_1", 1))),
            (200, "sched_waking: comm=c_2 pid=2 prio=120 target_cpu=001".to_owned()),
            (300, switch(("c_1", 1, "S"), ("swapper/1", 0))),
            (312, switch(("swapper/1", 0, "R"), ("c_2", 2))),
            // No task waits when it blocks.
            (400, switch(("c_2", 2, "S"), ("swapper/1", 0))),
            (500, "sched_waking: comm=c_1 pid=1 prio=120 target_cpu=001".to_owned()),
            (520, switch(("swapper/1", 0, "R"), ("c_1", 1))),
            (600, switch(("c_1", 1, "S"), ("swapper/1", 0))),
        ];
        let text: String = events.iter().map(|(us, event)| line(&(*us, event.as_str()))).collect();
        let (threads, _) = conformance::read(&text, Driver::SchedExt);
        assert_eq!(empty(&threads), [12_000]);
    }
}
