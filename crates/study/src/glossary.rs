//! The words of the tables, verdicts and messages, for `schedlab explain`. A metric's meaning is
//! that of [`METRICS`]; what is here are all other words.

use crate::error_parts::{MEANING, PARTS};
use crate::metric::{METRICS, Metric};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-explain/1";

/// The JSON of `explain`: words of tables, verdicts and messages, and their meanings.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ExplainOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The words.
    pub terms: &'a [Term],
}

/// A word and what it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Term {
    /// The word.
    #[serde(rename = "term")]
    pub name: &'static str,
    /// Other words and signs for the same.
    pub also: &'static [&'static str],
    /// One to four sentences.
    pub meaning: &'static str,
}

const fn term(name: &'static str, also: &'static [&'static str], meaning: &'static str) -> Term {
    Term { name, also, meaning }
}

/// Every word that is no metric, by alphabet.
const WORDS: &[Term] = &[
    term(
        "activation",
        &[],
        "One piece of work of a task: from the wakeup to blocking again. Throughput counts \
         activations, response time is their length.",
    ),
    term(
        "affinity",
        &["cpus"],
        "The CPUs on which a task may run (sched_setaffinity(2), `taskset`), after its cpuset.",
    ),
    term(
        "agent",
        &[],
        "A user-space thread that runs a scheduler for other threads (ghOSt's word, SOSP 2021). \
         schedlab's live agents set policies and priorities of stock Linux threads.",
    ),
    term(
        "band",
        &["FIFO band"],
        "A SCHED_FIFO priority that schedlab's elevation driver gives to the thread that its \
         scheduler picked, and to no other.",
    ),
    term(
        "bandwidth",
        &["cpu.max", "quota", "period"],
        "The CPU time that a control group may use in each period (cgroup v2's cpu.max). A group \
         that used its quota is throttled until the next period, whatever the CPUs do.",
    ),
    term(
        "baseline",
        &["first row"],
        "The row that all changes are measured against: the recording as it was, or a scenario's \
         first row.",
    ),
    term(
        "blame",
        &[],
        "Who ran while a task waited: every nanosecond of waiting is laid to the task that was on \
         the CPU of its run queue.",
    ),
    term(
        "cannot tell",
        &["~"],
        "The change is smaller than its error (`schedlab explain error`). It may be there; this \
         data does not show it.",
    ),
    term(
        "cap",
        &[],
        "Xen's limit of a domain, in per cent of one physical CPU; 0 is none. Linux has cpu.max \
         instead.",
    ),
    term(
        "class",
        &["task group"],
        "All tasks of one program name: tables have one line for them unless a variant changes \
         only some.",
    ),
    term(
        "commit",
        &["transaction"],
        "An agent's decision that thread T runs on CPU C now, as handed to the kernel, which may \
         refuse it (ghOSt).",
    ),
    term(
        "confidence interval",
        &["±", "interval"],
        "The range that holds the true value with the stated confidence. Percentiles get theirs \
         from order statistics, which assume no distribution.",
    ),
    term(
        "context switch",
        &["switch"],
        "The CPU leaves one task for another. Its price is the direct cost and the caches that \
         are cold afterwards.",
    ),
    term(
        "coordinated omission",
        &[],
        "The fault of a load generator that waits for a slow answer before it sends the next \
         request, and so does not count the requests that would have waited. An open-loop source \
         has no such fault.",
    ),
    term(
        "delegation",
        &[],
        "A scheduler that decides outside of the kernel: per CPU, or by one global agent that \
         spins on a CPU of its own.",
    ),
    term("error", &["error of the method", "half width"], MEANING),
    term(
        "fair server",
        &["dl_server"],
        "Since Linux 6.12 a deadline reservation keeps 5 % of each CPU (50 ms in a second) for \
         fair tasks when real-time tasks never block. It replaced RT throttling.",
    ),
    term(
        "gate",
        &["--fail-if"],
        "A condition that must not be met. It is met, not met, or CANNOT SAY when the interval \
         contains the threshold; exit code 1, 0, 3.",
    ),
    term(
        "idle",
        &["SCHED_IDLE"],
        "The policy of tasks that run when no other fair task wants the CPU, with a weight of 3 \
         against 1024. A waking normal task preempts it at once.",
    ),
    term(
        "ladder",
        &["percentile ladder"],
        "The percentiles of one distribution from the median to the maximum: p50, p90, p99, \
         p99.9, p99.99, max.",
    ),
    term(
        "lag",
        &[],
        "What EEVDF owes a task: the service it should have had less the service it had, in \
         weighted time. A task with lag of 0 or more is eligible.",
    ),
    term("migration", &[], "A task moves to another CPU's run queue."),
    term(
        "nice",
        &[],
        "The weight of a fair task, -20 (heaviest) to 19: one step is a factor of about 1.25 in \
         CPU time against its competitors.",
    ),
    term(
        "not certain",
        &[],
        "The seeds or rounds do not agree well enough for a verdict. More of them (--seeds, \
         --rounds) narrow the interval.",
    ),
    term(
        "percentile",
        &["p50", "p99", "p99.9"],
        "pN is the value that N of 100 values do not exceed (nearest rank). p50 is the median. \
         Below 100/(100-N) values a percentile is the maximum, and the tables say `few`.",
    ),
    term(
        "policy",
        &["chrt"],
        "What sched(7) and chrt call so: other, batch, idle, fifo:N, rr:N, deadline. It belongs \
         to the task; the scheduler to the kernel.",
    ),
    term(
        "preempted",
        &["preemption"],
        "Taken off the CPU while still runnable. Involuntary, unlike blocking or yielding.",
    ),
    term(
        "PSI",
        &["pressure"],
        "Pressure stall information, /proc/pressure/cpu: the part of time in which some task \
         waited for a CPU.",
    ),
    term("run queue", &[], "The runnable tasks of one CPU, or of several where they share one."),
    term("runnable", &[], "Ready to run, and either running or waiting for a CPU."),
    term(
        "seed",
        &["seeds"],
        "The number that all random draws of a run derive from. The same seed gives the same run, \
         to the bit; several seeds show how much chance matters.",
    ),
    term(
        "self-replay",
        &[],
        "The recording, simulated under the scheduler that it was recorded under. What differs is \
         one part of the error of every predicted change (`schedlab explain error`).",
    ),
    term(
        "slice",
        &["base_slice_ns", "time slice"],
        "How long a task runs before another of equal rank may take its place. EEVDF derives its \
         virtual deadline from it; a shorter slice means earlier and more frequent turns, not \
         more CPU time.",
    ),
    term("slowdown", &[], "Response time divided by the time that the same work takes alone."),
    term(
        "steal",
        &["stolen"],
        "Time in which a hypervisor ran something else on the CPU of this virtual machine. No \
         scheduler inside can give it back.",
    ),
    term(
        "throttled",
        &["throttling"],
        "Held back by a limit although runnable: cpu.max, RT throttling, or a deadline task's \
         budget.",
    ),
    term("unchanged", &["=", "same"], "Exactly equal in every seed."),
    term(
        "variant",
        &[],
        "One thing to try: changes of tasks, groups or the machine under a name, written 'NAME: \
         TARGET SETTING...'.",
    ),
    term(
        "vruntime",
        &["virtual runtime"],
        "CPU time divided by weight. CFS ran the task with the least; EEVDF computes lag from it.",
    ),
    term("wakeup", &[], "A task becomes runnable: something it waited for happened."),
    term(
        "weight",
        &["cpu.weight", "cpu.shares"],
        "The part of a contended CPU, against the weights of the others: 1024 for nice 0, 100 for \
         a control group's cpu.weight.",
    ),
    term(
        "work conservation",
        &[],
        "No CPU idles while a task waits that may run on it. Caps and bandwidth limits break it \
         on purpose, load balancing by oversight.",
    ),
];

/// Returns every word: those of this list, then the metrics.
pub fn terms() -> Vec<Term> {
    let metrics =
        METRICS.iter().map(|row| Term { name: row.name, also: &[], meaning: row.doc.trim() });
    let parts = PARTS.iter().map(|def| Term { name: def.name, also: &[], meaning: def.meaning });
    let known =
        |name: &str| WORDS.iter().any(|word| word.name == name || word.also.contains(&name));
    let unknown = metrics.chain(parts).filter(|row| !known(row.name));
    let mut all: Vec<Term> = WORDS.iter().copied().chain(unknown).collect();
    all.sort_by_key(|term| term.name.to_lowercase());
    all
}

/// Returns the word as it is written in a table or message, whatever its case; a statistic after a
/// metric is left out (`latency p99` is `latency`).
pub fn find(wanted: &str) -> Option<Term> {
    let all = terms();
    let is = |term: &Term, text: &str| {
        term.name.eq_ignore_ascii_case(text)
            || term.also.iter().any(|also| also.eq_ignore_ascii_case(text))
    };
    let by = |text: &str| all.iter().find(|term| is(term, text)).copied();
    let metric = |text: &str| {
        text.parse::<Metric>().ok().and_then(|_| by(text.split_whitespace().next()?))
    };
    let trimmed = wanted.trim().trim_start_matches("CPU ");
    by(trimmed)
        .or_else(|| metric(trimmed))
        .or_else(|| by(trimmed.strip_suffix(" time")?))
        .or_else(|| by(trimmed.strip_suffix('s')?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_word_is_there_twice() {
        let mut seen = BTreeSet::new();
        for term in terms() {
            for name in std::iter::once(term.name).chain(term.also.iter().copied()) {
                assert!(seen.insert(name.to_lowercase()), "{name} is there twice");
            }
            assert!(term.meaning.ends_with('.'), "{}", term.name);
        }
        let names: Vec<String> = WORDS.iter().map(|term| term.name.to_lowercase()).collect();
        assert!(names.is_sorted(), "{names:?}");
    }

    #[test]
    fn the_words_of_tables_are_found() {
        for (wanted, name) in [
            ("Response time", "response"),
            ("latency p99", "latency"),
            ("~", "cannot tell"),
            ("cpu.max", "bandwidth"),
            ("wakeups", "wakeup"),
            ("CPU share", "share"),
        ] {
            assert_eq!(find(wanted).map(|term| term.name), Some(name), "{wanted}");
        }
        assert_eq!(find("elephant"), None);
        let latency = find("latency").map_or("", |term| term.meaning);
        assert!(latency.contains("slack") && latency.contains("cyclictest"), "{latency}");
    }
}
