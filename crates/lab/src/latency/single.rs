//! One measurement and what it means: the ladder with the samples that its rungs need, a verdict in
//! words, gates.

use schedlab_host::marks::Tracer;
use schedlab_measure::{
    Budget, LatencyError, LatencyLine, LatencyReport, LatencyRequest, Samples, latency,
};
use schedlab_model::{CpuId, Ns};
use schedlab_study::gate::{Bound, Evidence, Gate, GateError, GateOutcome};
use schedlab_study::metric::{Metric, Stat};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-latency/1";

/// The rungs that are printed: name, and part of all samples.
pub const RUNGS: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// Foreign CPU time or steal above this part of the time is a doubt (chosen).
const DISTURBED: f64 = 0.05;

/// Shortest run for which counters that move by clock ticks of 10 ms say something.
const TICKS_COUNT_FROM: Ns = Ns::from_ms(200);

/// The result of `schedlab latency`: wakeup latencies of measuring threads, and what they mean.
/// Times are nanoseconds.
#[derive(Debug, JsonSchema, Serialize)]
pub struct LatencyResult {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The kernel's release and version, as `uname -rv` (a PREEMPT_RT kernel says so here).
    pub kernel: String,
    /// What was measured.
    #[serde(flatten)]
    pub report: LatencyReport,
    /// One for each thread, then one for all together.
    pub rows: Vec<Row>,
    /// The verdict in words.
    pub verdict: Vec<String>,
    /// Why the numbers may mislead.
    pub doubts: Vec<String>,
    /// The outcome of the conditions.
    pub gates: Vec<Judged>,
    /// Where the time of the wakeup that ended the run went; `None`: no wakeup ended it, or nothing
    /// can be recorded here (`doubts` says why).
    pub blame: Option<Budget>,
}

/// Length of the ring of `--break`, nanoseconds. Of a wakeup that is later than this a part is
/// unknown.
const RING_NS: u64 = 5_000_000_000;

/// A measurement, and the causes of the late wakeup that ended it.
#[derive(Debug)]
pub struct Measured {
    /// What was measured.
    pub report: LatencyReport,
    /// Where the time went, or why that is not known; `None`: no wakeup ended the run.
    pub blame: Option<Result<Budget, String>>,
}

/// Measures as [`latency`](schedlab_measure::latency) does; when the request has a `break_above`,
/// interrupts, softirqs and switches of all CPUs are recorded meanwhile in a ring.
///
/// # Errors
/// As for [`latency`](schedlab_measure::latency). That nothing can be recorded is no error.
pub fn measure(
    request: &LatencyRequest,
    progress: &mut dyn FnMut(&[LatencyLine]),
    stop: &dyn Fn() -> bool,
) -> Result<Measured, LatencyError> {
    let online = schedlab_host::machine().online;
    let mut tracer = match request.break_above {
        None => Err(String::new()),
        Some(_) => Tracer::start(&online, RING_NS).map_err(|error| error.to_string()),
    };
    let mut both = |lines: &[LatencyLine]| {
        if let Ok(tracer) = &mut tracer {
            tracer.drain();
        }
        progress(lines);
    };
    let report = latency(request, &mut both, stop)?;
    let rt_runtime = schedlab_host::rt_runtime();
    let budget = |tracer: Tracer, broke| {
        Budget::of_wakeup(broke, request.policy, report.slack, rt_runtime, &tracer.finish())
    };
    let blame = report.broke.as_ref().map(|broke| tracer.map(|tracer| budget(tracer, broke)));
    Ok(Measured { report, blame })
}

/// A row of the ladder, nanoseconds.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Row {
    /// `cpu0`, or `all`.
    pub name: String,
    /// Number of samples.
    pub count: u64,
    /// Smallest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// p50, p90, p99, p99.9 and p99.99; `None`: fewer than ten samples lie beyond.
    pub rungs_ns: Vec<Option<u64>>,
    /// Between which samples each of them lies with 95 %, by order statistics; `None` at an end:
    /// the samples are too few for one.
    pub intervals_ns: Vec<[Option<u64>; 2]>,
    /// Largest.
    pub max_ns: u64,
}

/// The outcome of a condition.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Judged {
    /// The condition as it was written.
    pub gate: String,
    /// The thread that it is about.
    pub subject: String,
    /// The value, nanoseconds.
    pub value_ns: Option<u64>,
    /// `met` means that the condition fails.
    pub outcome: GateOutcome,
    /// Why there is no answer.
    pub lacks: Option<String>,
}

impl Row {
    fn from_samples(name: String, samples: &Samples) -> Row {
        let rung = |&(_, q): &(&str, f64)| {
            (samples.count() >= Samples::needed(q)).then(|| samples.quantile(q))
        };
        Row {
            name,
            count: samples.count(),
            min_ns: samples.min(),
            mean_ns: samples.mean(),
            rungs_ns: RUNGS.iter().map(rung).collect(),
            intervals_ns: RUNGS.iter().map(|(_, quantile)| samples.interval(*quantile)).collect(),
            max_ns: samples.max(),
        }
    }
}

/// Reads the conditions of `--fail-if`.
///
/// # Errors
/// A text that is no condition, or one that is not about latency as measured here.
pub fn gates(texts: &[String]) -> Result<Vec<Gate>, String> {
    let gate = |text: &String| {
        let odd = |error: GateError| {
            let what = error.what();
            format!(
                "'{text}': {what}; write METRIC OP TIME, such as 'p99.9 > 200us' or 'cpu1 max >= \
                 1ms'"
            )
        };
        let gate = Gate::parse_with(text, Some("latency")).map_err(odd)?;
        match (gate.metric, gate.bound) {
            (Metric::Latency(Stat::Mode), _) => Err(format!(
                "'{text}': the most frequent value is not measured; take p50, p99.9 or max"
            )),
            (Metric::Latency(_), Bound::Value(_)) => Ok(gate),
            (Metric::Latency(_), _) => Err(format!(
                "'{text}': there is nothing before to compare with; write a time, as in 'p99.9 > \
                 200us'"
            )),
            _ => Err(format!(
                "'{text}': only latency is measured here; write 'p99.9 > 200us' or 'cpu1 max > 1ms'"
            )),
        }
    };
    texts.iter().map(gate).collect()
}

/// Refuses conditions about CPUs that are not measured, before the measurement.
///
/// # Errors
/// The first such condition.
pub fn check_subjects(gates: &[Gate], cpus: &[CpuId]) -> Result<(), String> {
    let names: Vec<String> = cpus.iter().map(CpuId::to_string).chain(["all".to_owned()]).collect();
    let covers = |gate: &Gate| gate.subject.is_none() || names.iter().any(|name| gate.covers(name));
    match gates.iter().find(|gate| !covers(gate)) {
        None => Ok(()),
        Some(gate) => {
            Err(format!("'{gate}': there is no such thread; there are {}", names.join(", ")))
        }
    }
}

/// Returns what was measured with its verdict, its doubts and the outcome of the conditions.
pub fn judge(measured: Measured, gates: &[Gate]) -> LatencyResult {
    let Measured { report, blame } = measured;
    let all = report.all();
    let mut named: Vec<(String, &Samples)> =
        report.threads.iter().map(|thread| (thread.cpu.to_string(), &thread.latency)).collect();
    named.push(("all".to_owned(), &all));
    let judged = gates.iter().flat_map(|gate| judged(gate, &named)).collect();
    let rows =
        named.iter().map(|(name, samples)| Row::from_samples(name.clone(), samples)).collect();
    let (mut verdict, mut doubts) = (verdict(&report, &all), doubts(&report, &all));
    let blame = match blame {
        None => None,
        Some(Ok(budget)) => {
            verdict.insert(0, budget.blame());
            Some(budget)
        }
        Some(Err(why)) => {
            doubts.push(format!(
                "the causes of the late wakeup are not known, since nothing could be recorded: \
                 {why}"
            ));
            None
        }
    };
    LatencyResult {
        schema: SCHEMA,
        kernel: kernel(),
        rows,
        verdict,
        doubts,
        gates: judged,
        report,
        blame,
    }
}

/// Returns release and version of the running kernel, as `uname -rv`.
pub fn kernel() -> String {
    let read =
        |name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", read("osrelease").trim(), read("version").trim())
}

fn judged(gate: &Gate, named: &[(String, &Samples)]) -> Vec<Judged> {
    let chosen = named.iter().filter(|(name, _)| match gate.subject {
        None => name == "all",
        Some(_) => gate.covers(name),
    });
    let mut found: Vec<Judged> = chosen.map(|(name, samples)| one(gate, name, samples)).collect();
    if found.is_empty() {
        let lacks = Some("no such thread: they are called cpu0, cpu1, ..., and all".to_owned());
        let subject = gate.subject.clone().unwrap_or_default();
        found.push(Judged {
            gate: gate.to_string(),
            subject,
            value_ns: None,
            outcome: GateOutcome::CannotSay,
            lacks,
        });
    }
    found
}

fn one(gate: &Gate, name: &str, samples: &Samples) -> Judged {
    let Metric::Latency(stat) = gate.metric else { unreachable!("gates() takes latency alone") };
    let value = match stat {
        Stat::Min => samples.min(),
        Stat::Mean | Stat::Mode => samples.mean(),
        Stat::Percentile(thousandths) => samples.quantile(f64::from(thousandths) / 100_000.0),
        Stat::Max => samples.max(),
    };
    let needed = match stat {
        Stat::Percentile(thousandths) => Samples::needed(f64::from(thousandths) / 100_000.0),
        _ => 1,
    };
    let bound = if let Bound::Value(ns) = gate.bound { ns as u64 } else { 0 };
    // Ten samples beyond the bound decide, however few there are in all.
    let few = samples.count() < needed && (samples.above(bound) < 10 || samples.count() == 0);
    let lacks = few.then(|| {
        format!(
            "{needed} samples are needed, there are {}: measure longer or at a shorter interval",
            samples.count()
        )
    });
    let after = (samples.count() > 0).then_some(value as f64);
    let outcome = gate.judge(&Evidence { after, lacks: lacks.as_deref(), ..Evidence::default() });
    let value_ns = after.map(|_| value);
    Judged { gate: gate.to_string(), subject: name.to_owned(), value_ns, outcome, lacks }
}

fn verdict(report: &LatencyReport, all: &Samples) -> Vec<String> {
    let worst = report.threads.iter().max_by_key(|thread| thread.latency.max());
    let Some(worst) = worst.filter(|_| all.count() > 0) else {
        return vec!["Nothing was measured: it ended before the first expiry.".to_owned()];
    };
    let highest =
        RUNGS.iter().rev().find(|(_, q)| all.count() >= Samples::needed(*q)).unwrap_or(&RUNGS[0]);
    let most = match highest.1 > 0.5 {
        true => format!("{} of them at most {}; ", highest.0, Ns(all.quantile(highest.1))),
        false => String::new(),
    };
    let mut said = vec![format!(
        "Half of {} wakeups were at most {} late; {most}the worst, on {}, was {} late.",
        all.count(),
        Ns(all.quantile(0.5)),
        worst.cpu,
        Ns(all.max())
    )];
    let share = |limit: Ns| all.above(limit.0) as f64 / all.count() as f64;
    let words = match all.max() {
        0..1_000_000 if all.count() < Samples::needed(0.99) => {
            "Too few samples to say for which loops that is enough: measure longer.".to_owned()
        }
        0..100_000 => {
            "No wakeup was 100 us late: good enough for control loops of a millisecond, on this \
             evidence."
                .to_owned()
        }
        100_000..1_000_000 => {
            "All stayed below 1 ms: a loop of some milliseconds holds, one of 100 us does not."
                .to_owned()
        }
        _ => format!(
            "1 ms was exceeded by {:.3} % of the wakeups: a period of 1 ms cannot be promised \
             with this policy here.",
            share(Ns::from_ms(1)) * 100.0
        ),
    };
    said.push(words);
    said.push(format!(
        "A maximum grows with the length of a run: this one is of {}; compare it only with \
         equally long ones.",
        report.elapsed
    ));
    said
}

/// Returns the number with its noun.
pub(super) fn expiries(count: u64) -> String {
    if count == 1 { "1 expiry".to_owned() } else { format!("{count} expiries") }
}

fn doubts(report: &LatencyReport, all: &Samples) -> Vec<String> {
    let mut doubts = Vec::new();
    if report.stopped {
        doubts.push("ended early, by a signal".to_owned());
    }
    if let Some(why) = &report.unlocked {
        doubts.push(format!(
            "memory is not locked ({why}), so the samples may contain page faults: raise `ulimit \
             -l` or be root; --no-lock accepts it"
        ));
    }
    if report.slack.0 >= 10_000
        && !report.request.wake.has_waker()
        && report.request.wake != schedlab_measure::Wake::Timerfd
    {
        doubts.push(format!(
            "{} of each sample may be timer slack, which real-time threads do not have: --slack \
             1ns removes it",
            report.slack
        ));
    }
    let missed: u64 = report.threads.iter().map(|thread| thread.missed).sum();
    if missed > 0 {
        let uncorrected = report.threads.iter().map(|t| t.uncorrected.count()).sum::<u64>();
        doubts.push(format!(
            "{} passed while a thread was still late; they count (cyclictest leaves them out: it \
             would have {uncorrected} samples)",
            expiries(missed)
        ));
    }
    let withheld: u64 = report.threads.iter().map(|thread| thread.withheld).sum();
    if withheld > 0 {
        doubts.push(format!(
            "waking threads were late themselves and left out {}, which are in no sample",
            expiries(withheld)
        ));
    }
    let time = report.elapsed.0.max(1) as f64;
    for cpu in &report.cpus {
        for (what, ns) in [
            ("was stolen by the hypervisor", cpu.steal_ns),
            ("went to other programs", cpu.foreign_ns),
        ] {
            let part = ns as f64 / time;
            if part > DISTURBED && report.elapsed >= TICKS_COUNT_FROM {
                doubts.push(format!("{:.0} % of CPU {} {what}", part.min(1.0) * 100.0, cpu.cpu));
            }
        }
    }
    let highest = RUNGS.iter().find(|(_, q)| all.count() < Samples::needed(*q));
    if let Some((name, q)) = highest {
        doubts.push(format!(
            "{name} needs {} samples and is left out: measure longer",
            Samples::needed(*q)
        ));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl Iterator<Item = u64>) -> Samples {
        let mut samples = Samples::default();
        values.for_each(|us| samples.add(us * 1000));
        samples
    }

    fn outcome(gate: &str, samples: &Samples) -> GateOutcome {
        let gate = &gates(&[gate.to_owned()]).unwrap()[0];
        judged(gate, &[("cpu0".to_owned(), samples), ("all".to_owned(), samples)])[0].outcome
    }

    #[test]
    fn gates_know_what_the_samples_carry() {
        let many = samples(1..=10_000);
        assert_eq!(outcome("p99.9 > 5ms", &many), GateOutcome::Met);
        assert_eq!(outcome("p99.9 > 9.995ms", &many), GateOutcome::Not);
        assert_eq!(outcome("p99.99 > 50ms", &many), GateOutcome::CannotSay);
        // A hundred samples are too few for p99.9, but all of them are above the bound.
        assert_eq!(outcome("p99.9 > 1us", &samples(10..110)), GateOutcome::Met);
        assert_eq!(outcome("p99.9 > 1ms", &samples(10..110)), GateOutcome::CannotSay);
        assert_eq!(outcome("cpu0 max > 1ms", &samples(10..110)), GateOutcome::Not);
        assert_eq!(outcome("cpu7 max > 1ms", &many), GateOutcome::CannotSay);
        assert_eq!(outcome("max > 1ms", &samples(0..0)), GateOutcome::CannotSay);
    }

    #[test]
    fn a_gate_about_a_cpu_that_is_not_measured_is_refused() {
        let of = |text: &str| gates(&[text.to_owned()]).unwrap();
        let cpus = [CpuId(0), CpuId(3)];
        for good in ["p99 > 1ms", "all max > 1ms", "cpu3 max > 1ms", "cpu* max > 1ms"] {
            assert_eq!(check_subjects(&of(good), &cpus), Ok(()), "{good}");
        }
        let odd = check_subjects(&of("cpu1 max > 1ms"), &cpus).unwrap_err();
        assert!(odd.contains("cpu0, cpu3, all"), "{odd}");
    }

    #[test]
    fn gates_about_other_things_are_refused() {
        for (text, expected) in [
            ("share > 50%", "only latency"),
            ("p99 > +20%", "nothing before"),
            ("p99 > 20", "not a time"),
            ("p99.9 >", "write METRIC OP TIME, such as 'p99.9 > 200us'"),
        ] {
            let error = gates(&[text.to_owned()]).unwrap_err();
            assert!(error.contains(expected) && !error.contains("SUBJECT"), "{text}: {error}");
        }
    }

    #[test]
    fn rungs_without_enough_samples_are_empty() {
        let row = Row::from_samples("all".to_owned(), &samples(1..=1000));
        assert_eq!(
            row.rungs_ns.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, true, true, false, false]
        );
        assert_eq!((row.count, row.max_ns, row.mean_ns), (1000, 1_000_000, 500_500));
    }
}
