//! Sums of the kernel by CPU: `/proc/schedstat`, and the report of `perf sched stats`, which is the
//! distance of two of them.
//!
//! A line `cpuN` has nine numbers since version 15 (2.6.39): calls of `sched_yield`, one that is
//! not kept any more, calls of `schedule`, those that left the CPU idle, wakeups, those of this
//! CPU's own, ns that tasks ran, ns that they waited to run, and how often one began to run
//! (Documentation/scheduler/sched-stats.rst; `show_schedstat`, kernel/sched/stats.c). What
//! balancing did is by domain, in lines of their own, which are not read.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// The first version whose lines have these nine numbers.
const FIRST_VERSION: u32 = 15;

/// What one CPU did, as sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Calls of `schedule`.
    pub schedules: u64,
    /// Those that left the CPU idle.
    pub left_idle: u64,
    /// Wakeups.
    pub wakeups: u64,
    /// Those of tasks that the CPU itself woke for itself.
    pub local_wakeups: u64,
    /// Time that tasks ran, ns.
    pub run_ns: u64,
    /// Time that tasks waited to run, ns.
    pub wait_ns: u64,
    /// How often a task began to run.
    pub turns: u64,
}

impl Sums {
    /// Adds those of another CPU.
    pub fn add(&mut self, other: &Sums) {
        self.each(other, u64::saturating_add);
    }

    fn each(&mut self, other: &Sums, by: impl Fn(u64, u64) -> u64) {
        for (one, two) in [
            (&mut self.schedules, other.schedules),
            (&mut self.left_idle, other.left_idle),
            (&mut self.wakeups, other.wakeups),
            (&mut self.local_wakeups, other.local_wakeups),
            (&mut self.run_ns, other.run_ns),
            (&mut self.wait_ns, other.wait_ns),
            (&mut self.turns, other.turns),
        ] {
            *one = by(*one, two);
        }
    }
}

/// What a text holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Sums since the machine started (`/proc/schedstat`).
    SinceStart,
    /// Those of an interval (`perf sched stats report`).
    Interval,
}

/// A text that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedStat {
    /// What it holds.
    pub holds: Holds,
    /// Time since the machine started, or the length of the interval, in jiffies.
    pub jiffies: u64,
    /// By CPU.
    pub cpus: BTreeMap<u32, Sums>,
}

/// Why a text is not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchedStatError {
    /// A version whose lines mean something else.
    #[error(
        "it is version {0} of /proc/schedstat; lines have the numbers that are read here since \
         version {FIRST_VERSION} (Linux 2.6.39)"
    )]
    Version(u32),
    /// A line that is none.
    #[error("line {line}: {why}")]
    Line {
        /// Which.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// No `timestamp`, or no `Time elapsed`.
    #[error("it does not say when it was made: the line `{0}` is missing")]
    NoTime(&'static str),
    /// No CPU at all.
    #[error("it has no line for a CPU")]
    NoCpus,
    /// The second is the older one, or of another boot.
    #[error(
        "the second was made before the first (timestamp {later} after {earlier}), or after \
         another boot: give the earlier one first"
    )]
    Backwards {
        /// Of the first.
        earlier: u64,
        /// Of the second.
        later: u64,
    },
    /// A sum that became smaller.
    #[error("cpu{0} has a smaller sum in the second: the two are not of one boot of one machine")]
    Smaller(u32),
    /// No CPU that both have.
    #[error("the two have no CPU in common")]
    NothingInCommon,
}

impl SchedStat {
    /// Whether a text is one of these, by its beginning.
    pub fn is(head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(&head[..head.len().min(64 << 10)]);
        is_proc(&text) || is_report(&text)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// A line that is none, a version of old, no CPU.
    pub fn read(text: &str) -> Result<SchedStat, SchedStatError> {
        let read = if is_proc(text) { proc(text)? } else { report(text)? };
        match read.cpus.is_empty() {
            true => Err(SchedStatError::NoCpus),
            false => Ok(read),
        }
    }

    /// What happened between `earlier` and this one, both since the machine started. CPUs that one
    /// of the two lacks, which were offline then, are left out.
    ///
    /// # Errors
    /// The two are not of one boot, or in the wrong order.
    pub fn since(&self, earlier: &SchedStat) -> Result<SchedStat, SchedStatError> {
        if self.jiffies < earlier.jiffies {
            let (earlier, later) = (earlier.jiffies, self.jiffies);
            return Err(SchedStatError::Backwards { earlier, later });
        }
        let mut cpus = BTreeMap::new();
        for (cpu, sums) in &self.cpus {
            let Some(before) = earlier.cpus.get(cpu) else { continue };
            // All but the two times and the turns are 32 bits wide in the kernel.
            if sums.run_ns < before.run_ns
                || sums.wait_ns < before.wait_ns
                || sums.turns < before.turns
            {
                return Err(SchedStatError::Smaller(*cpu));
            }
            let mut between = *sums;
            between.each(before, |now, then| {
                now.checked_sub(then)
                    .unwrap_or_else(|| now.saturating_add(1 << 32).saturating_sub(then))
            });
            cpus.insert(*cpu, between);
        }
        match cpus.is_empty() {
            true => Err(SchedStatError::NothingInCommon),
            false => Ok(SchedStat {
                holds: Holds::Interval,
                jiffies: self.jiffies - earlier.jiffies,
                cpus,
            }),
        }
    }

    /// The sums of all CPUs together.
    pub fn machine(&self) -> Sums {
        self.cpus.values().fold(Sums::default(), |mut all, sums| {
            all.add(sums);
            all
        })
    }
}

/// The first line that is not empty.
fn first(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

fn is_proc(text: &str) -> bool {
    version(first(text)).is_some()
}

fn version(line: &str) -> Option<u32> {
    line.strip_prefix("version ")?.trim().parse().ok()
}

const ELAPSED: &str = "Time elapsed (in jiffies)";

fn is_report(text: &str) -> bool {
    // `perf sched stats diff` has two columns, and begins alike.
    let elapsed = text.lines().find(|line| line.trim_start().starts_with(ELAPSED));
    elapsed.is_some_and(|line| !line.contains(','))
}

fn proc(text: &str) -> Result<SchedStat, SchedStatError> {
    match version(first(text)) {
        Some(version) if version < FIRST_VERSION => return Err(SchedStatError::Version(version)),
        _ => {}
    }
    let (mut jiffies, mut cpus) = (None, BTreeMap::new());
    for (line, number) in text.lines().zip(1..) {
        let fail = |why| SchedStatError::Line { line: number, why };
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        if name == "timestamp" {
            let value = words.next().and_then(|word| word.parse().ok());
            jiffies = Some(value.ok_or_else(|| fail("no number behind `timestamp`"))?);
        } else if let Some(cpu) = name.strip_prefix("cpu").and_then(|cpu| cpu.parse::<u32>().ok()) {
            let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
            let sums = numbers.as_deref().and_then(sums_of_line);
            let sums = sums.ok_or_else(|| fail("a CPU has nine whole numbers"))?;
            if cpus.insert(cpu, sums).is_some() {
                return Err(fail("this CPU was there before"));
            }
        }
    }
    let jiffies = jiffies.ok_or(SchedStatError::NoTime("timestamp N"))?;
    Ok(SchedStat { holds: Holds::SinceStart, jiffies, cpus })
}

fn sums_of_line(numbers: &[u64]) -> Option<Sums> {
    let &[_, _, schedules, left_idle, wakeups, local_wakeups, run_ns, wait_ns, turns] = numbers
    else {
        return None;
    };
    Some(Sums { schedules, left_idle, wakeups, local_wakeups, run_ns, wait_ns, turns })
}

fn report(text: &str) -> Result<SchedStat, SchedStatError> {
    let (mut jiffies, mut cpus) = (None, BTreeMap::<u32, Sums>::new());
    let mut of: Option<u32> = None;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        let fail = |why| SchedStatError::Line { line: number, why };
        if let Some(heading) = line.strip_prefix("CPU") {
            // "CPU 0"; "CPU 0, DOMAIN SMT CPUS 0,64" and "CPU <ALL CPUS SUMMARY>" are others.
            of = heading.trim_start_matches(':').trim().parse().ok();
            if let Some(cpu) = of
                && cpus.insert(cpu, Sums::default()).is_some()
            {
                return Err(fail("this CPU was there before"));
            }
            continue;
        }
        let Some((name, value)) = line.rsplit_once(" :").or_else(|| line.rsplit_once("\t:")) else {
            continue;
        };
        let value = value.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        if name.trim() == ELAPSED {
            jiffies = Some(value.ok_or_else(|| fail("no number of jiffies"))?);
        }
        let sums = of.and_then(|cpu| cpus.get_mut(&cpu));
        if let Some(sum) = sums.and_then(|sums| field(sums, name.trim())) {
            *sum = value.ok_or_else(|| fail("no whole number behind the colon"))?;
        }
    }
    let jiffies = jiffies.ok_or(SchedStatError::NoTime(ELAPSED))?;
    Ok(SchedStat { holds: Holds::Interval, jiffies, cpus })
}

/// The sum that a line of the report names: in a word, or with `-v` in a sentence, which has
/// brackets behind a function's name or not.
fn field<'a>(sums: &'a mut Sums, name: &str) -> Option<&'a mut u64> {
    let plain = name.replace("()", "").to_ascii_lowercase();
    let plain = plain.split(" (in ").next().unwrap_or_default();
    Some(match plain {
        "sched_count" | "schedule called" => &mut sums.schedules,
        "sched_goidle" | "schedule left the processor idle" => &mut sums.left_idle,
        "ttwu_count" | "try_to_wake_up was called" => &mut sums.wakeups,
        "ttwu_local" | "try_to_wake_up was called to wake up the local cpu" => {
            &mut sums.local_wakeups
        }
        "rq_cpu_time" | "total runtime by tasks on this processor" => &mut sums.run_ns,
        "run_delay" | "total waittime by tasks on this processor" => &mut sums.wait_ns,
        "pcount" | "total timeslices run on this cpu" => &mut sums.turns,
        _ => return None,
    })
}
