//! Reading the oracle files: one JSON object a line (`oracles/linux/README.md`).

use anyhow::{Context, Result, bail, ensure};
use schedlab_model::{Nice, Ns, Policy};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// One scenario and what a real kernel did with it.
#[derive(Debug)]
pub(crate) struct Record {
    /// Name of the scenario.
    pub(crate) id: String,
    /// Kernel version as text, such as `6.12.95+deb12-amd64`.
    pub(crate) kernel: String,
    /// Settings read back from the kernel.
    pub(crate) knobs: KernelKnobs,
    /// The tasks, in scenario order.
    pub(crate) tasks: Vec<TaskLine>,
    /// Length of the run.
    pub(crate) duration: Ns,
    /// First tick after the start; later ones every `1 s / HZ`.
    pub(crate) first_tick: Ns,
    /// What was measured, in the order of `tasks`.
    pub(crate) measured: Vec<Measured>,
    /// Recorded context switches of the first 1.5 s.
    pub(crate) switches: Vec<Switch>,
    /// Recorded wakeups of the first 1.5 s.
    pub(crate) wakeups: Vec<(Ns, String)>,
}

/// One `task NAME KIND a b class nice` line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskLine {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) policy: Policy,
    pub(crate) nice: Nice,
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Runs for ever.
    Hog,
    /// Works, sleeps, repeats.
    Closed { sleep: Ns, work: Ns },
    /// Job `k` is due at `k * period`.
    Periodic { period: Ns, work: Ns },
}

/// One recorded context switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Switch {
    pub(crate) at: Ns,
    /// `None` = idle.
    pub(crate) prev: Option<String>,
    /// `None` = idle.
    pub(crate) next: Option<String>,
    /// The previous task was still runnable.
    pub(crate) runnable: bool,
}

/// Settings of the kernel. What a kernel does not have is `None`.
#[derive(Debug, Deserialize)]
pub(crate) struct KernelKnobs {
    pub(crate) latency_ns: Option<u64>,
    pub(crate) min_granularity_ns: Option<u64>,
    pub(crate) idle_min_granularity_ns: Option<u64>,
    pub(crate) wakeup_granularity_ns: Option<u64>,
    pub(crate) child_runs_first: Option<u8>,
    pub(crate) base_slice_ns: Option<u64>,
    pub(crate) features: Vec<String>,
    pub(crate) rt_runtime_us: i64,
    pub(crate) rt_period_us: i64,
    pub(crate) rr_timeslice_ms: i64,
    #[serde(rename = "HZ")]
    pub(crate) hz: u32,
    pub(crate) fair_server: Option<FairServer>,
}

/// The fair server's parameters (6.12 and later).
#[derive(Debug, Deserialize)]
pub(crate) struct FairServer {
    pub(crate) runtime_ns: u64,
    pub(crate) period_ns: u64,
}

/// What was measured of one task. Times in microseconds as in the file.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Measured {
    pub(crate) share: f64,
    pub(crate) nr_wakeups: u64,
    #[serde(default)]
    pub(crate) wait_mean_us: Option<f64>,
    #[serde(default)]
    pub(crate) wait_p50_us: Option<f64>,
    #[serde(default)]
    pub(crate) wait_p99_us: Option<f64>,
    /// The six most frequent run lengths, `(rounded length, count)`; interruptions by kernel
    /// threads merged.
    pub(crate) run_len_merged_hist_us: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct Raw {
    id: String,
    kernel: String,
    knobs: KernelKnobs,
    scenario: Vec<String>,
    duration_us: f64,
    first_tick_us: f64,
    tasks: BTreeMap<String, Measured>,
    switches: Vec<(f64, String, String, String)>,
    wakeups: Vec<(f64, String)>,
}

/// Reads a file of Linux scenarios.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>> {
    let shown = path.display();
    let records =
        parse(&read_text(path)?).with_context(|| format!("{shown}: not an oracle file"))?;
    ensure!(!records.is_empty(), "{shown}: holds no scenario");
    Ok(records)
}

/// The text of a file (`.zst` is unpacked on the fly).
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| {
        format!("{shown}: cannot be read; give a file such as oracles/linux/6.12.95.jsonl.zst")
    })?;
    if path.extension().is_none_or(|e| e != "zst") {
        return String::from_utf8(bytes)
            .with_context(|| format!("{shown}: not text; oracle files are JSON lines"));
    }
    let mut text = String::new();
    let mut decoder =
        zstd::Decoder::new(&bytes[..]).with_context(|| format!("{shown}: not a zstd file"))?;
    decoder.read_to_string(&mut text).with_context(|| format!("{shown}: damaged zstd data"))?;
    Ok(text)
}

/// Reads every line of `text`.
pub(crate) fn parse(text: &str) -> Result<Vec<Record>> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let raw: Raw =
                serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
            let id = raw.id.clone();
            record(raw).with_context(|| format!("line {} (scenario {id})", number + 1))
        })
        .collect()
}

fn record(raw: Raw) -> Result<Record> {
    let tasks: Vec<TaskLine> =
        raw.scenario.iter().map(|line| task_line(line)).collect::<Result<_>>()?;
    ensure!((1..=100_000).contains(&raw.knobs.hz), "HZ {} is outside 1 to 100000", raw.knobs.hz);
    let measured = tasks
        .iter()
        .map(|task| {
            let found = raw.tasks.get(&task.name).cloned();
            found.with_context(|| format!("task `{}` has no entry in \"tasks\"", task.name))
        })
        .collect::<Result<_>>()?;
    let switches = raw
        .switches
        .into_iter()
        .map(|(at, prev, next, state)| {
            Ok(Switch {
                at: us(at)?,
                runnable: state.starts_with('R'),
                prev: task(prev),
                next: task(next),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let wakeups = raw
        .wakeups
        .into_iter()
        .map(|(at, name)| Ok((us(at)?, name)))
        .collect::<Result<Vec<_>>>()?;
    ensure!(switches.is_sorted_by_key(|s| s.at), "\"switches\" must be in ascending time");
    ensure!(wakeups.is_sorted_by_key(|w| w.0), "\"wakeups\" must be in ascending time");
    Ok(Record {
        id: raw.id,
        kernel: raw.kernel,
        knobs: raw.knobs,
        tasks,
        duration: us(raw.duration_us)?,
        first_tick: us(raw.first_tick_us)?,
        measured,
        switches,
        wakeups,
    })
}

fn task(name: String) -> Option<String> {
    (name != "idle").then_some(name)
}

/// Microseconds with decimals to nanoseconds.
fn us(value: f64) -> Result<Ns> {
    ensure!((0.0..1e12).contains(&value), "time {value} us: must be 0 or more");
    Ok(Ns((value * 1000.0).round() as u64))
}

fn task_line(line: &str) -> Result<TaskLine> {
    const SHAPE: &str =
        "must be `task NAME hog|closed|periodic A B CLASS NICE` with A and B in microseconds";
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["task", name, kind, a, b, class, nice] = words[..] else { bail!("`{line}` {SHAPE}") };
    let time = |word: &str| -> Result<Ns> {
        let value: u64 =
            word.parse().with_context(|| format!("`{line}`: `{word}` is no time; {SHAPE}"))?;
        Ok(Ns::from_us(value))
    };
    let kind = match kind {
        "hog" => Kind::Hog,
        "closed" => Kind::Closed { sleep: time(a)?, work: time(b)? },
        "periodic" => Kind::Periodic { period: time(a)?, work: time(b)? },
        _ => bail!("`{line}`: unknown kind `{kind}`; {SHAPE}"),
    };
    if let Kind::Periodic { period: Ns::ZERO, .. } = kind {
        bail!("`{line}`: a period of 0 never lets time pass");
    }
    let nice = nice.parse().ok().and_then(Nice::new);
    Ok(TaskLine {
        name: name.to_owned(),
        kind,
        policy: class.parse().with_context(|| format!("`{line}`"))?,
        nice: nice.with_context(|| format!("`{line}`: nice must be a number from -20 to 19"))?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LINE: &str = r#"{"id":"x","kernel":"6.12.95","knobs":{"base_slice_ns":700000,
        "features":["RUN_TO_PARITY","NO_HRTICK"],"rt_runtime_us":950000,"rt_period_us":1000000,
        "rr_timeslice_ms":100,"HZ":250,"fair_server":{"runtime_ns":50000000,"period_ns":1000000000}},
        "scenario":["task h0 hog 0 0 other 0","task c1 closed 10000 1000 fifo:5 -3"],"duration_us":4000000,
        "first_tick_us":660,"tasks":{"h0":{"share":0.5,"nr_wakeups":1,"wait_mean_us":5.2,
        "run_len_merged_hist_us":[[4000,495]]},"c1":{"share":0.5,"nr_wakeups":1,
        "run_len_merged_hist_us":[]}},
        "switches":[[7.8,"idle","h0","I"],[9.0,"h0","c1","R+"]],"wakeups":[[2.6,"h0"]]}"#;

    fn line() -> String {
        LINE.replace('\n', " ")
    }

    #[test]
    fn a_line_is_read_whole() {
        let record = parse(&line()).unwrap().remove(0);
        assert_eq!(record.tasks[1].policy, Policy::Fifo(5));
        assert_eq!(
            record.tasks[1].kind,
            Kind::Closed { sleep: Ns::from_ms(10), work: Ns::from_ms(1) }
        );
        assert_eq!(record.switches[0].prev, None);
        assert!(record.switches[1].runnable);
        assert_eq!(record.wakeups[0].0, Ns(2600));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (from, to, says) in [
            ("hog 0 0 other 0", "hog 0 0 other", "must be `task NAME"),
            ("hog 0 0 other 0", "dog 0 0 other 0", "unknown kind `dog`"),
            ("other 0", "other 20", "from -20 to 19"),
            ("fifo:5", "fifo:0", "1 to 99"),
            ("\"h0\":{\"share\"", "\"h9\":{\"share\"", "no entry in \"tasks\""),
            ("[7.8,", "[-7.8,", "must be 0 or more"),
            ("[7.8,", "[70.8,", "ascending"),
            ("\"HZ\":250", "\"HZ\":0", "HZ 0"),
            ("\"knobs\"", "\"nobs\"", "knobs"),
        ] {
            let text = format!("{}\n{}", line(), line().replace(from, to));
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains("line 2") && error.contains(says), "{error}");
        }
    }
}
