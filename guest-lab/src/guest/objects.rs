//! The same sched_ext object under a kernel and in the simulator: shares, turns, waits and the
//! choice of idle CPUs side by side (`guest-lab/guest/tests/sched-ext-objects.sh`). A judge that
//! also writes the table, beside the files of the test.

mod build;
mod calls;
mod endings;
pub(super) mod held;
mod plays;
mod snapshot;
mod tried;
mod types;

use super::catalogue::Verdict;
use super::conformance::{self, Driver};
use super::cpio::Archive;
use super::image;
use super::kernels::Kernel;
use super::store::Store;
use crate::root;
use anyhow::{Context, Result, ensure};
use held::{Figures, Held, HeldPlay};
use plays::{Does, Play, SUBJECTS, Shape, Subject};
use schedlab_model::{EventKind, Ns, SchedEvent, Topology, Workload};
use schedlab_scheduler::sched_ext::{self, Btf, Each, Profile, ProfileCall};
use schedlab_scheduler::{Scheduler, registry};
use schedlab_sim::{Costs, Machine, RunOptions, TickSkew, run};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
pub use tried::{ObjectsArgs, command};

const MS: u64 = 1_000_000;
/// A tick of Debian's kernels (HZ=250).
const TICK: u64 = 4 * MS;
/// From the moment on, so long is not looked at: tasks come one after the other.
const SETTLED: u64 = 200 * MS;
/// Points of one CPU by which a share may differ: a turn of 24 ms in 3.8 s is 0.6 of them, and a
/// kernel thread that takes a part in the order moves one.
const POINTS: f64 = 2.5;

/// The part of a guest's root with objects, their loader and what is played on one CPU.
pub(super) fn one(store: &Store, kernel: &Kernel) -> Result<Vec<u8>> {
    archive(store, kernel, Shape::One)
}

/// The same on four.
pub(super) fn four(store: &Store, kernel: &Kernel) -> Result<Vec<u8>> {
    archive(store, kernel, Shape::Four)
}

/// The same on two cores of two hardware threads.
pub(super) fn smt(store: &Store, kernel: &Kernel) -> Result<Vec<u8>> {
    archive(store, kernel, Shape::Smt)
}

fn archive(store: &Store, kernel: &Kernel, shape: Shape) -> Result<Vec<u8>> {
    let folder = build::built(store, kernel)?;
    let mut archive = Archive::default();
    archive.folder("objects");
    let ours = root().join("bpf/sim");
    for subject in SUBJECTS {
        let own = if subject.name == plays::LOG { ours.clone() } else { folder.clone() };
        let file = own.join(format!("{}.bpf.o", subject.name));
        // Samples came one after the other.
        if file.exists() {
            archive.file(&format!("objects/{}.bpf.o", subject.name), &image::read(&file)?);
        }
    }
    let faults = format!("{}.bpf.o", plays::FAULTS);
    archive.file(&format!("objects/{faults}"), &image::read(&ours.join(&faults))?);
    let script = plays::script(shape) + &plays::faults(shape);
    archive.file("objects/plays.sh", script.as_bytes());
    let loader = folder.join(build::LOADER);
    archive.file(&format!("bin/{}", build::LOADER), &image::read(&loader)?);
    image::libraries(&loader, &mut archive)?;
    Ok(archive.finish())
}

/// A stay of a task on a CPU; times are from the moment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stay {
    task: usize,
    cpu: u32,
    from: u64,
    to: u64,
    /// It wanted to go on.
    wants: bool,
}

/// One play, from whatever witness.
#[derive(Default)]
struct Seen {
    stays: Vec<Stay>,
    /// Wakeups: task and time.
    woken: Vec<(usize, u64)>,
}

/// What is compared.
#[derive(Clone, PartialEq, Debug)]
struct Found {
    /// CPU time of each task, in per cent of one CPU.
    shares: Vec<f64>,
    /// Tasks that had turns on CPU 0, in order, with the length of each.
    turns: Vec<(usize, u64)>,
    /// Waits of tasks that sleep, shortest first.
    waits: Vec<u64>,
    /// Of these wakeups, in per cent: those that ran where the task ran before.
    stayed: f64,
    /// Of the time in which tasks ran on both threads of a core and another core was idle, in per
    /// cent of the play.
    crowded: f64,
}

impl Seen {
    fn found(mut self, play: &Play, shape: Shape) -> Found {
        self.stays.sort_by_key(|stay| (stay.from, stay.cpu));
        let (from, to) = (SETTLED, play.seconds * 1_000 * MS);
        let within = |stay: &Stay| stay.to.min(to).saturating_sub(stay.from.max(from));
        let mut had = vec![0; play.actors.len()];
        self.stays.iter().for_each(|stay| had[stay.task] += within(stay));
        let shares = had.iter().map(|had| 100.0 * *had as f64 / (to - from) as f64).collect();
        let (waits, stayed) = self.waits(play, from, to);
        Found {
            shares,
            turns: self.turns(from, to),
            waits,
            stayed,
            crowded: if shape == Shape::Smt { self.crowded(from, to) } else { 0.0 },
        }
    }

    /// Turns on CPU 0: stays of one task with what interrupted it in between.
    fn turns(&self, from: u64, to: u64) -> Vec<(usize, u64)> {
        let mut turns: Vec<(usize, u64, u64)> = Vec::new();
        for stay in self.stays.iter().filter(|stay| stay.cpu == 0) {
            match turns.last_mut() {
                Some(last) if last.0 == stay.task => last.2 = stay.to,
                _ => turns.push((stay.task, stay.from, stay.to)),
            }
        }
        let inside = turns.iter().filter(|(_, begin, end)| *begin >= from && *end <= to);
        inside.map(|(task, begin, end)| (*task, end - begin)).collect()
    }

    /// From each wakeup of a task that sleeps to its next stay, and how many stayed where they
    /// were.
    fn waits(&self, play: &Play, from: u64, to: u64) -> (Vec<u64>, f64) {
        let (mut waits, mut stayed) = (Vec::new(), 0);
        for (task, _) in play.actors.iter().enumerate().filter(|(_, a)| a.does != Does::Hog) {
            let own: Vec<&Stay> = self.stays.iter().filter(|stay| stay.task == task).collect();
            for (_, at) in self.woken.iter().filter(|(t, at)| *t == task && (from..to).contains(at))
            {
                let next = own.partition_point(|stay| stay.from < *at);
                let Some(stay) = own.get(next) else { continue };
                waits.push(stay.from - at);
                stayed += usize::from(next > 0 && own[next - 1].cpu == stay.cpu);
            }
        }
        waits.sort_unstable();
        let share = 100.0 * stayed as f64 / waits.len().max(1) as f64;
        (waits, share)
    }

    fn crowded(&self, from: u64, to: u64) -> f64 {
        let mut edges: Vec<(u64, u32, bool)> = Vec::new();
        for stay in &self.stays {
            edges.extend([(stay.from, stay.cpu, true), (stay.to, stay.cpu, false)]);
        }
        edges.sort_by_key(|(at, cpu, begins)| (*at, *begins, *cpu));
        let (mut busy, mut last, mut sum) = ([0i32; 4], 0, 0);
        for (at, cpu, begins) in edges {
            let both = |core: usize| busy[2 * core] > 0 && busy[2 * core + 1] > 0;
            let none = |core: usize| busy[2 * core] <= 0 && busy[2 * core + 1] <= 0;
            if both(0) && none(1) || both(1) && none(0) {
                sum += at.min(to).saturating_sub(last.max(from));
            }
            busy[cpu as usize & 3] += if begins { 1 } else { -1 };
            last = at;
        }
        100.0 * sum as f64 / (to - from) as f64
    }
}

/// Returns what the kernel's trace has of a play.
fn traced(folder: &Path, name: &str, play: &Play) -> Result<Seen> {
    let text = |end: &str| -> Result<String> {
        let path = folder.join(format!("{name}.{end}"));
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let moment: u64 = text("moment")?.trim().parse().context("the moment")?;
    let (threads, faults) = conformance::read(&text("ftrace")?, Driver::SchedExt);
    ensure!(faults.is_empty(), "{name}: {}", faults.join("; "));
    let mut seen = Seen::default();
    for (task, actor) in play.actors.iter().enumerate() {
        let thread = threads.get(actor.name);
        let thread =
            thread.with_context(|| format!("{name}: {} is not in the trace", actor.name))?;
        let since = |at: u64| at.saturating_sub(moment);
        seen.stays.extend(thread.stays.iter().filter(|stay| stay.from >= moment).map(|stay| {
            Stay {
                task,
                cpu: stay.cpu,
                from: since(stay.from),
                to: since(stay.to),
                wants: stay.left == conformance::Left::Runnable,
            }
        }));
        let woken = thread.woken.iter().filter(|at| **at >= moment);
        seen.woken.extend(woken.map(|at| (task, since(*at))));
    }
    Ok(seen)
}

/// How long decisions take. Between CPUs that decide at the same time shares depend on it: a CPU
/// takes its next task before it gives the previous one back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timing {
    /// The guest's: the prices of `oracle-7.2`, which were measured at 1 ns an instruction, at 4
    /// ns; busy CPUs take turns of 200 us on one thread of the host, and so do their ticks.
    Guest,
    /// None, and all ticks at once.
    Free,
    /// The guest's, beside two threads that wake now and then and do next to nothing, as those of a
    /// kernel do.
    Threads,
    /// As if each decision were cut into the turns of all CPUs, and all ticks at once.
    Slow,
}

/// With what shares may change, on several CPUs: times of decisions, and starts.
const OTHERS: [(Timing, u64); 6] = [
    (Timing::Threads, 1),
    (Timing::Free, 1),
    (Timing::Slow, 1),
    (Timing::Guest, 3),
    (Timing::Guest, 5),
    (Timing::Guest, 7),
];

/// The machine of a shape.
fn machine(shape: Shape, timing: Timing) -> Machine {
    let cpus = shape.cpus() as u64;
    let mut machine = Machine { hz: 250, ..Machine::flat(shape.cpus()) };
    if shape == Shape::Smt {
        machine.topology = Topology::regular(1, 1, 2, 2);
    }
    let times = match timing {
        Timing::Guest | Timing::Threads => 4,
        Timing::Free => 0,
        Timing::Slow => 4 * cpus,
    };
    let prices = Costs::oracle_7_2();
    for (name, _) in Costs::knobs() {
        machine.costs.set(name, Ns(prices.get(name).unwrap_or_default().0 * times));
    }
    if matches!(timing, Timing::Guest | Timing::Threads) {
        machine.ticks = TickSkew::At((0..cpus).map(|cpu| Ns(TICK + 200_000 * cpu)).collect());
    }
    machine
}

/// How a play is simulated: on which machine, and how many times as late as in the guest tasks
/// begin.
type How = (Shape, Timing, u64);

/// Plays in the simulator.
fn play_out(
    scheduler: &dyn Scheduler,
    play: &Play,
    (shape, timing, spread): How,
    events: &mut Vec<SchedEvent>,
) -> Result<()> {
    let machine = machine(shape, timing);
    let mut tasks = plays::tasks(play, spread)?;
    if timing == Timing::Threads {
        tasks.extend(plays::threads());
    }
    let workload = Workload { tasks, ..Workload::default() };
    let options = RunOptions::for_time(Ns::from_s(play.seconds));
    run(&machine, &workload, scheduler, &options, events)?;
    Ok(())
}

/// Returns the play in the simulator.
fn simulated(spec: &str, play: &Play, how: How) -> Result<Seen> {
    let mut events: Vec<SchedEvent> = Vec::new();
    let scheduler = registry::build(&spec.parse()?, how.0.cpus())?;
    play_out(&*scheduler, play, how, &mut events)?;
    let mut seen = Seen::default();
    let mut on: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for event in &events {
        match event.kind {
            EventKind::Switch { prev_state, next, .. } => {
                if let Some((task, from)) = on.remove(&event.cpu.0) {
                    let wants = prev_state.is_runnable() == Some(true);
                    let (cpu, to) = (event.cpu.0, event.at.0);
                    seen.stays.push(Stay { task, cpu, from, to, wants });
                }
                on.extend(next.map(|next| (event.cpu.0, (next.index(), event.at.0))));
            }
            EventKind::Wake { task, .. } => seen.woken.push((task.index(), event.at.0)),
            _ => {}
        }
    }
    let end = play.seconds * 1_000 * MS;
    let open = on.into_iter();
    seen.stays.extend(open.map(|(cpu, (task, from))| Stay {
        task,
        cpu,
        from,
        to: end,
        wants: true,
    }));
    // Threads beside the play.
    seen.stays.retain(|stay| stay.task < play.actors.len());
    seen.woken.retain(|(task, _)| *task < play.actors.len());
    Ok(seen)
}

/// The part of two orders of turns that is alike: the longest common subsequence, by the longer
/// one.
fn alike(one: &[(usize, u64)], other: &[(usize, u64)]) -> f64 {
    let mut row = vec![0u32; other.len() + 1];
    for (task, _) in one {
        let mut before = 0;
        for (at, (beside, _)) in other.iter().enumerate() {
            let kept = row[at + 1];
            row[at + 1] = if task == beside { before + 1 } else { kept.max(row[at]) };
            before = kept;
        }
    }
    100.0 * f64::from(row[other.len()]) / one.len().max(other.len()).max(1) as f64
}

fn median(turns: &[(usize, u64)]) -> u64 {
    let mut lengths: Vec<u64> = turns.iter().map(|(_, length)| *length).collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or(0)
}

/// By how many points the kernel's shares lie outside of what the simulator gives with one time of
/// decisions or another, and with other starts.
fn outside(kernel: &Found, simulator: &Found, range: &[Found]) -> f64 {
    let points = kernel.shares.iter().enumerate().map(|(task, share)| {
        let all = || range.iter().chain([simulator]).map(|found| found.shares[task]);
        let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
        (low - share).max(share - high).max(0.0)
    });
    points.fold(0.0, f64::max)
}

/// Says so where shares depend on how long decisions take, or on when tasks begin: turns of several
/// CPUs can lock into a cycle. By more than a turn explains.
fn depends(simulator: &Found, range: &[Found]) -> String {
    let most = range.iter().map(|found| apart(simulator, found)).fold(0.0, f64::max);
    if most > POINTS { format!("; depends on timing by {most:.1}") } else { String::new() }
}

/// The mean length of a turn: lengths may be of two kinds, between which a median jumps.
fn mean(found: &Found) -> u64 {
    let sum: u64 = found.turns.iter().map(|(_, length)| length).sum();
    sum / found.turns.len().max(1) as u64
}

fn at(sorted: &[u64], part: usize) -> u64 {
    sorted
        .get((sorted.len() * part / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}

fn apart(one: &Found, other: &Found) -> f64 {
    let points = one.shares.iter().zip(&other.shares).map(|(one, other)| (one - other).abs());
    points.fold(0.0, f64::max)
}

/// Judges all plays of one CPU, writes the table.
pub(super) fn judge_one(folder: &Path) -> Result<Vec<Verdict>> {
    judge(folder, Shape::One)
}

/// The same of four.
pub(super) fn judge_four(folder: &Path) -> Result<Vec<Verdict>> {
    judge(folder, Shape::Four)
}

/// The same of two cores of two threads.
pub(super) fn judge_smt(folder: &Path) -> Result<Vec<Verdict>> {
    judge(folder, Shape::Smt)
}

fn judge(folder: &Path, shape: Shape) -> Result<Vec<Verdict>> {
    let kernel = std::fs::read(folder.join("vmlinux.btf")).context("the kernel's types")?;
    let kernel = Arc::new(Btf::of_file(&kernel)?);
    let mut table = "| object | play | shares in the kernel | in the simulator | points apart | turns \
                     on CPU 0, ms | alike | waits p50, p90, max, ms | stays on its CPU | crowded core |\n\
                     |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut verdicts = Vec::new();
    let mut held = Held { shape: shape.word().to_owned(), ..Held::default() };
    for subject in SUBJECTS {
        let file = folder.join(format!("{}.bpf.o", subject.name));
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let refused = sched_ext::provide(subject.name, &bytes, &kernel).err();
        for play in plays::on(subject, shape) {
            let name = format!("{}.{}", subject.name, play.name);
            if play.calls {
                let (verdict, sequence) = calls::judge(folder, &name, play, shape)?;
                verdicts.push(verdict);
                held.sequences.push(sequence);
                continue;
            }
            let both = compared(folder, subject, play, shape, refused.as_ref());
            held.plays.extend(both.held(subject.name, play.name));
            verdicts.push(row(&mut table, &name, shape, both)?);
        }
    }
    if let Some(verdict) = snapshot::judge(folder, shape)? {
        held.snapshot = Some(verdict.text.clone());
        verdicts.push(verdict);
    }
    for (verdict, ending) in endings::judge(folder, &kernel, shape)? {
        verdicts.push(verdict);
        held.endings.push(ending);
    }
    std::fs::write(folder.join("objects.md"), &table)?;
    std::fs::write(folder.join(held::FILE), serde_json::to_string(&held)?)?;
    println!("{table}");
    Ok(verdicts)
}

/// The two sides of a play; or why one of them has none.
struct Both {
    kernel: Result<Found, String>,
    simulator: Result<Found, String>,
    /// With other times of decisions and other starts, on several CPUs.
    range: Vec<Found>,
}

impl Both {
    /// What is kept of it.
    fn held(&self, object: &str, play: &str) -> Option<HeldPlay> {
        let (Ok(kernel), Ok(simulator)) = (&self.kernel, &self.simulator) else { return None };
        Some(HeldPlay {
            object: object.to_owned(),
            play: play.to_owned(),
            kernel: Figures::of(kernel),
            simulator: Figures::of(simulator),
            outside: (10.0 * outside(kernel, simulator, &self.range)).round() / 10.0,
            alike: alike(&kernel.turns, &simulator.turns).round(),
            why: plays::known(object, play).map(str::to_owned),
        })
    }
}

/// The profile that tells a scheduler which CPUs share a core, as its `calls` do in the guest; by
/// the name under which it is known.
fn siblings(subject: &Subject) -> String {
    let args = [("cpu_id", "cpu"), ("sibling_cpu_id", "sibling")];
    let call = ProfileCall {
        program: "enable_sibling_cpu".to_owned(),
        each: Each::Sibling,
        args: args.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        ..ProfileCall::default()
    };
    let scheduler = subject.name.trim_start_matches("scx_").to_owned();
    let name = format!("siblings-{scheduler}");
    let profile = Profile { scheduler, calls: vec![call], ..Profile::default() };
    sched_ext::provide_profile(&name, profile);
    name
}

fn compared(
    folder: &Path,
    subject: &Subject,
    play: &Play,
    shape: Shape,
    refused: Option<&sched_ext::ObjectError>,
) -> Both {
    let name = format!("{}.{}", subject.name, play.name);
    let kernel = match std::fs::read_to_string(folder.join(format!("{name}.refused"))) {
        Ok(why) => Err(why.lines().last().unwrap_or_default().to_owned()),
        Err(_) => traced(folder, &name, play)
            .map(|seen| seen.found(play, shape))
            .map_err(|error| format!("{error:#}")),
    };
    let mut set = plays::settings(subject, shape).join(",");
    if shape == Shape::Smt && !subject.calls.is_empty() {
        set += &format!(",{}={}", sched_ext::PROFILE, siblings(subject));
    }
    let spec = if set.is_empty() { String::new() } else { format!("?{set}") };
    let simulator = |timing, spread| match refused {
        Some(why) => Err(why.to_string()),
        None => simulated(&format!("bpf:{}{spec}", subject.name), play, (shape, timing, spread))
            .map(|seen| seen.found(play, shape))
            .map_err(|error| format!("{error:#}")),
    };
    let others: &[(Timing, u64)] = match shape {
        // Its CPU decides alone.
        Shape::One => &OTHERS[..1],
        _ => &OTHERS,
    };
    let range = others.iter().filter_map(|(timing, spread)| simulator(*timing, *spread).ok());
    let range = range.collect();
    let simulator = simulator(Timing::Guest, 1);
    Both { kernel, simulator, range }
}

fn row(table: &mut String, name: &str, shape: Shape, both: Both) -> Result<Verdict> {
    let _ = write!(
        table,
        "| {} | {} |",
        name.split('.').next().unwrap_or(name),
        name.rsplit('.').next().unwrap_or(name)
    );
    let (kernel, simulator) = match (both.kernel.clone(), both.simulator.clone()) {
        (Ok(kernel), Ok(simulator)) => (kernel, simulator),
        (kernel, simulator) => {
            let words = |side: &Result<Found, String>| {
                side.as_ref().map_or_else(Clone::clone, |_| "runs".to_owned())
            };
            let (kernel, simulator) = (words(&kernel), words(&simulator));
            let _ = writeln!(table, " {kernel} | {simulator} | | | | | | |");
            let text =
                format!("{name} on {}: kernel: {kernel}; simulator: {simulator}", shape.word());
            return Ok(Verdict { good: false, text });
        }
    };
    let shares = |found: &Found| {
        found.shares.iter().map(|share| format!("{share:.1}")).collect::<Vec<_>>().join(" ")
    };
    let points = apart(&kernel, &simulator);
    let outside = outside(&kernel, &simulator, &both.range);
    let ms = |time: u64| time as f64 / MS as f64;
    let waits = |found: &Found| {
        let of = &found.waits;
        format!(
            "{:.2} {:.2} {:.2}",
            ms(at(of, 50)),
            ms(at(of, 90)),
            ms(of.last().copied().unwrap_or(0))
        )
    };
    let order = alike(&kernel.turns, &simulator.turns);
    let _ = writeln!(
        table,
        " {} | {} | {points:.1}{} | {:.1} ({}) and {:.1} ({}) | {order:.0} % | {} and {} | {:.0} and {:.0} % | {:.1} and {:.1} % |",
        shares(&kernel),
        shares(&simulator),
        depends(&simulator, &both.range),
        ms(median(&kernel.turns)),
        kernel.turns.len(),
        ms(median(&simulator.turns)),
        simulator.turns.len(),
        waits(&kernel),
        waits(&simulator),
        kernel.stayed,
        simulator.stayed,
        kernel.crowded,
        simulator.crowded,
    );
    // On several CPUs a task has turns on any of them.
    let turns = shape != Shape::One || mean(&kernel).abs_diff(mean(&simulator)) <= TICK;
    let (object, play) = name.split_once('.').unwrap_or((name, ""));
    let known = plays::known(object, play);
    let mut text = format!("{name} on {}: shares differ by {points:.1} points", shape.word());
    if !turns {
        text +=
            &format!(", turns last {:.1} and {:.1} ms", ms(mean(&kernel)), ms(mean(&simulator)));
    }
    if let Some(why) = known {
        let _ = writeln!(table, "| | | {why} | | | | | | | |");
        text += &format!(" (known: {why})");
    }
    let good = known.is_some() || outside <= POINTS && turns;
    Ok(Verdict { good, text })
}
