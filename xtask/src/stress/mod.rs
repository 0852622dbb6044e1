//! `cargo xtask stress`: random scenarios (`schedlab generate`) under all assertions of the engine, a checker that knows
//! only the events, and three runs each: twice alike, and once with every tick delivered (not nested machines); all three
//! must give the same events. A scenario that fails is made as small as it goes and printed, as a file for `schedlab compare`.

use anyhow::{Context, Result, bail};
pub(crate) use schedlab_lab::generate::Dice;
use schedlab_lab::generate::{self, Draft, Verdict};
use schedlab_model::Ns;
use schedlab_scheduler::registry;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How many scenarios are tried to make one smaller.
const TRIALS: usize = 3_000;

/// Runs cases from `--seed` on until the time is over or `--runs` are done; stops at the first failure.
pub(crate) fn command(args: &[String]) -> Result<ExitCode> {
    let options = parse(args)?;
    let begin = Instant::now();
    let (mut done, mut refused, mut events) = (0, 0, 0);
    let mut why = BTreeMap::<String, u64>::new();
    println!("stress: from seed {}", options.seed);
    while done < options.runs && begin.elapsed() < options.time {
        let seed = options.seed.wrapping_add(done);
        let draft = generate::draft(seed, options.scheduler.as_deref())?;
        // Written before the run: a case that never ends can be found again.
        if let Some(path) = &options.last {
            std::fs::write(path, draft.to_toml()).with_context(|| path.clone())?;
        }
        match generate::trial(&draft.to_toml(), &registry::build) {
            Verdict::Ran(count) => events += count,
            Verdict::Refused(reason) => {
                refused += 1;
                *why.entry(reason).or_default() += 1;
            }
            Verdict::Failed(text) => {
                println!("stress: seed {seed} failed: {text}");
                println!("{}", smallest(&draft));
                println!("repeat it with: cargo xtask stress --seed {seed} --runs 1");
                return Ok(ExitCode::FAILURE);
            }
        }
        done += 1;
        if done % 1000 == 0 {
            println!("stress: up to seed {seed}, {events} events, {refused} refused");
        }
    }
    println!(
        "stress: {done} cases from seed {} to {}, {events} events, no failure, {refused} refused",
        options.seed,
        options.seed.wrapping_add(done.saturating_sub(1))
    );
    for (reason, count) in why {
        println!("  {count} x {reason}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The smallest scenario found that still fails, and how.
fn smallest(draft: &Draft) -> String {
    // Every trial that fails says so on standard error; what is printed here is the last of them.
    let small = generate::shrink(draft, &registry::build, TRIALS);
    let text = small.to_toml();
    match generate::trial(&text, &registry::build) {
        Verdict::Failed(how) => format!("as small as it goes ({how}):\n\n{text}"),
        _ => format!("the scenario:\n\n{}", draft.to_toml()),
    }
}

#[derive(Debug)]
struct Options {
    seed: u64,
    runs: u64,
    time: Duration,
    scheduler: Option<String>,
    last: Option<String>,
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options =
        Options { seed: 1, runs: u64::MAX, time: Duration::from_secs(10), scheduler: None, last: None };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--seed" => options.seed = value.parse().context("--seed: a whole number")?,
            "--runs" => {
                options.runs = value.parse().context("--runs: a whole number")?;
                options.time = Duration::MAX;
            }
            "--for" => {
                options.time = time(value)?;
            }
            "--scheduler" => {
                registry::find(value)?;
                options.scheduler = Some(value.clone());
            }
            "--last" => options.last = Some(value.clone()),
            other => {
                bail!(
                    "stress has no option `{other}`: use --seed N, --runs N, --for 10s, --scheduler NAME, --last FILE"
                )
            }
        }
    }
    Ok(options)
}

/// The value of `--for`.
pub(crate) fn time(value: &str) -> Result<Duration> {
    if let Some(hours) = value.strip_suffix('h').and_then(|hours| hours.parse::<u32>().ok()) {
        return Ok(Duration::from_secs(3_600 * u64::from(hours)));
    }
    let time: Ns = value.parse().context("--for: a time such as 10s, 5m or 1h")?;
    Ok(Duration::from_nanos(time.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, Policy, TaskId};
    use schedlab_scheduler::{
        Change, Cx, KnobError, Needs, Pick, Prev, Scheduler, SchedulerSpec, Timer, Wake,
    };
    use std::cell::Cell;

    /// A short walk on every run of the tests; `cargo xtask stress` goes on for as long as you like.
    #[test]
    fn random_cases_of_each_scheduler_hold() {
        for entry in registry::all() {
            let mut ran = 0;
            for seed in 1..=15 {
                let text = generate::draft(seed, Some(entry.name)).unwrap().to_toml();
                match generate::trial(&text, &registry::build) {
                    Verdict::Ran(_) => ran += 1,
                    Verdict::Refused(_) => {}
                    Verdict::Failed(how) => panic!("seed {seed}: {how}\n{text}"),
                }
            }
            assert!(ran >= 8, "{}: only {ran} of 15 cases ran", entry.name);
        }
    }

    #[test]
    fn a_case_follows_from_its_number() {
        let text = |seed| generate::draft(seed, None).unwrap().to_toml();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn options_are_checked() {
        let parse = |text: &str| parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("--seed 5 --for 2s").unwrap().time, Duration::from_secs(2));
        assert!(parse("--sead 5").unwrap_err().to_string().contains("--seed N"));
        assert!(parse("--for ten").is_err());
        assert!(parse("--scheduler linux-9").is_err());
    }

    /// What is wrong with a copy of round robin.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fault {
        None,
        /// It forgets every 20th wakeup.
        Forgets,
        /// It lets a task run anywhere, every 20th time.
        Anywhere,
        /// It says that no tick matters.
        Tickless,
        /// What it does depends on how often it was made before.
        Unsteady(u64),
    }

    /// A scheduler with a fault planted in it.
    struct Faulty {
        inner: Box<dyn Scheduler>,
        fault: Fault,
        calls: Cell<u64>,
        tasks: Cell<u32>,
    }

    impl Faulty {
        fn strikes(&self) -> bool {
            self.calls.set(self.calls.get() + 1);
            self.calls.get().is_multiple_of(20)
        }
    }

    impl Scheduler for Faulty {
        fn needs(&self) -> Needs {
            self.inner.needs()
        }
        fn refuses(&self, policy: Policy) -> Option<&'static str> {
            self.inner.refuses(policy)
        }
        fn init(&self, cx: &Cx<'_>) {
            self.inner.init(cx);
        }
        fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
            self.tasks.set(self.tasks.get().max(task.0 + 1));
            if self.fault != Fault::Forgets || !self.strikes() {
                self.inner.wake(cx, task, wake);
            }
        }
        fn leave(&self, cx: &Cx<'_>, task: TaskId) {
            self.inner.leave(cx, task);
        }
        fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
            self.inner.yielded(cx, task);
        }
        fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
            let mut pick = self.inner.schedule(cx, cpu, prev, why);
            if let (Fault::Unsteady(n), true) = (self.fault, self.strikes()) {
                pick.slice_ns = pick.slice_ns.map(|slice| slice + Ns(n));
            }
            if self.fault == Fault::Anywhere && self.strikes() {
                let other = TaskId((self.calls.get() / 20) as u32 % self.tasks.get().max(1));
                return Pick::run(other);
            }
            pick
        }
        fn saved(&self, cx: &Cx<'_>, cpu: CpuId, prev: TaskId) {
            self.inner.saved(cx, cpu, prev);
        }
        fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
            self.inner.tick(cx, cpu);
        }
        fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
            if self.fault == Fault::Tickless { u64::MAX } else { self.inner.tick_due(cx, cpu) }
        }
        fn timer(&self, cx: &Cx<'_>, timer: Timer) {
            self.inner.timer(cx, timer);
        }
        fn call(&self, cx: &Cx<'_>, cookie: u64) {
            self.inner.call(cx, cookie);
        }
        fn changed(&self, cx: &Cx<'_>, change: Change) {
            self.inner.changed(cx, change);
        }
        fn resync(&self, cx: &Cx<'_>) {
            self.inner.resync(cx);
        }
    }

    /// The first seed of at most 60 that fails, with its words and its smallest scenario.
    fn caught(scheduler: &str, fault: Fault) -> Option<(u64, String, String)> {
        let made = Cell::new(0);
        let build = move |spec: &SchedulerSpec, cpus: usize| -> Result<Box<dyn Scheduler>, KnobError> {
            made.set(made.get() + 1);
            let fault = if let Fault::Unsteady(_) = fault { Fault::Unsteady(made.get()) } else { fault };
            let inner = registry::build(spec, cpus)?;
            Ok(Box::new(Faulty { inner, fault, calls: Cell::new(0), tasks: Cell::new(0) }))
        };
        (1..=60).find_map(|seed| {
            let draft = generate::draft(seed, Some(scheduler)).unwrap();
            let Verdict::Failed(how) = generate::trial(&draft.to_toml(), &build) else { return None };
            let small = generate::shrink(&draft, &build, 300);
            assert!(small.parts.len() <= draft.parts.len());
            Some((seed, how, small.to_toml()))
        })
    }

    #[test]
    fn a_planted_fault_is_caught_and_shrunk() {
        for scheduler in ["rr", "linux-6.18"] {
            assert_eq!(caught(scheduler, Fault::None), None, "{scheduler}");
        }
        let (_, how, small) = caught("rr", Fault::Forgets).expect("a lost wakeup is found");
        assert!(how.contains("lost") || how.contains("not runnable"), "{how}");
        // The scenario can be run, and holds little more than the tasks that matter.
        assert!(schedlab_lab::scenario::parse("small", "small.toml", &small).is_ok(), "{small}");
        assert!(small.matches("[[task]]").count() <= 2, "{small}");
        let (_, how, _) = caught("rr", Fault::Anywhere).expect("a wrong pick is found");
        assert!(how.contains("it picked"), "{how}");
        let (_, how, _) = caught("linux-6.1", Fault::Tickless).expect("ticks that matter are found");
        assert!(how.contains("every tick"), "{how}");
        let (_, how, _) = caught("rr", Fault::Unsteady(0)).expect("a run that cannot be repeated is found");
        assert!(how.contains("run again"), "{how}");
    }
}
