//! Xen's decision logs: runs each scenario of a `xen-*.jsonl` file on a free machine and compares
//! every decision, value by value.

use super::data;
use anyhow::{Context, Result, bail, ensure};
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuId, CpuSet, Draw, GroupId, GroupSpec, Ns, Op, Program,
    SourceKind, SourceSpec, Start, TaskId, TaskSpec, Topology, Workload,
};
use schedlab_scheduler::{Cx, Pick, Prev, Scheduler, SchedulerSpec, registry};
use schedlab_sim::{Costs, Machine, RunOptions, TickSkew};
use serde::Deserialize;
use std::cell::RefCell;
use std::path::Path;

/// One line of the file.
#[derive(Deserialize)]
struct Record {
    seed: u64,
    scenario: Vec<String>,
    decisions: Vec<Decision>,
}

/// `[time_us, pcpu, from, to, slice_us, value]`.
#[derive(Clone, PartialEq, Deserialize, Debug)]
struct Decision(f64, u32, String, String, f64, Option<i64>);

/// A scenario, understood.
struct Scenario {
    spec: SchedulerSpec,
    machine: Machine,
    workload: Workload,
    names: Vec<String>,
    duration: Ns,
}

/// Whether the file holds decision logs of Xen.
pub(super) fn is_one(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("xen-"))
}

/// Compares every scenario of the file; false on any difference.
pub(super) fn compare(path: &Path, verbose: bool) -> Result<bool> {
    let (mut same, mut all, mut decisions) = (0, 0, 0);
    for (record, got) in outcomes(path)? {
        all += 1;
        decisions += record.decisions.len();
        match first_difference(&record.decisions, &got) {
            None => same += 1,
            Some(at) => print_difference(&record, &got, at, verbose),
        }
    }
    println!("{}: {same} of {all} scenarios identical, {decisions} decisions", path.display());
    Ok(same == all)
}

/// What a file holds, and how much of it is the same here.
pub(super) struct Counted {
    pub(super) scenarios: u64,
    pub(super) decisions: u64,
    /// Decisions up to the first that differs, over all scenarios.
    pub(super) same: u64,
}

/// Counts equal decisions.
pub(super) fn count(path: &Path) -> Result<Counted> {
    let mut counted = Counted { scenarios: 0, decisions: 0, same: 0 };
    for (record, got) in outcomes(path)? {
        counted.scenarios += 1;
        counted.decisions += record.decisions.len() as u64;
        let same = first_difference(&record.decisions, &got).unwrap_or(record.decisions.len());
        counted.same += same as u64;
    }
    Ok(counted)
}

/// Runs each scenario of the file: what Xen decided, and what we do.
fn outcomes(path: &Path) -> Result<Vec<(Record, Vec<Decision>)>> {
    let text = data::read_text(path)?;
    let version = version_of(path)?;
    let one = |(number, line): (usize, &str)| {
        let place = || format!("{}:{}", path.display(), number + 1);
        let record: Record = serde_json::from_str(line).with_context(place)?;
        let scenario = read(&record.scenario, &version).with_context(place)?;
        let got = run(&scenario).with_context(place)?;
        Ok((record, got))
    };
    text.lines().enumerate().map(one).collect()
}

/// `xen-credit2-4.20.0.jsonl` → `4.20`.
fn version_of(path: &Path) -> Result<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let version =
        name.split(".jsonl").next().and_then(|stem| stem.rsplit('-').next()).unwrap_or_default();
    match version.rsplit_once('.') {
        Some((minor, _)) => Ok(minor.to_owned()),
        None => bail!(
            "{}: the name must end in a version, such as xen-credit-4.20.0.jsonl",
            path.display()
        ),
    }
}

fn first_difference(want: &[Decision], got: &[Decision]) -> Option<usize> {
    let same = |a: &Decision, b: &Decision| {
        let time = (a.0 - b.0).abs() < 0.0005;
        let slice = (a.4 - b.4).abs() <= 0.0501 || (a.4 <= 0.0 && b.4 <= 0.0);
        time && slice && a.1 == b.1 && a.2 == b.2 && a.3 == b.3 && a.5 == b.5
    };
    let differs = want.iter().zip(got).position(|(a, b)| !same(a, b));
    differs.or_else(|| (want.len() != got.len()).then_some(want.len().min(got.len())))
}

fn print_difference(record: &Record, got: &[Decision], at: usize, verbose: bool) {
    println!("seed {}: decision {at} of {} differs", record.seed, record.decisions.len());
    if verbose {
        record.scenario.iter().for_each(|line| println!("    {line}"));
        for i in at.saturating_sub(4)..at {
            println!("         {:?}", record.decisions[i]);
        }
    }
    println!("    xen  {:?}", record.decisions.get(at));
    println!("    here {:?}", got.get(at));
}

fn read(lines: &[String], version: &str) -> Result<Scenario> {
    let mut reader = Reader {
        spec: SchedulerSpec {
            knobs: vec![("version".to_owned(), version.to_owned())],
            ..SchedulerSpec::named("")
        },
        cpus: 1,
        sockets: 1,
        threads: 1,
        duration: Ns::ZERO,
        workload: Workload::default(),
        names: Vec::new(),
    };
    reader.workload.groups.push(GroupSpec { name: "/".to_owned(), ..GroupSpec::default() });
    for line in lines {
        reader.line(line).with_context(|| format!("scenario line `{line}`"))?;
    }
    let cores = reader.cpus / reader.sockets / reader.threads;
    ensure!(
        cores * reader.sockets * reader.threads == reader.cpus,
        "CPUs do not fill the sockets evenly"
    );
    let topology = Topology::regular(reader.sockets, 1, cores, reader.threads);
    let costs = Costs { timer_late_ns: Ns(1), ..Costs::default() };
    Ok(Scenario {
        spec: reader.spec,
        machine: Machine { topology, hz: 100, ticks: TickSkew::Aligned, costs, ..Machine::flat(1) },
        workload: reader.workload,
        names: reader.names,
        duration: reader.duration,
    })
}

struct Reader {
    spec: SchedulerSpec,
    cpus: usize,
    sockets: usize,
    threads: usize,
    duration: Ns,
    workload: Workload,
    names: Vec<String>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |i: usize| words.get(i).copied().context("too short");
        let number = |i: usize| word(i).and_then(|w| w.parse::<u64>().context("not a number"));
        let mut knob = |name: &str, value: String| self.spec.knobs.push((name.to_owned(), value));
        match word(0)? {
            "sched" => self.spec.name = format!("xen-{}", word(1)?),
            "cpus" => self.cpus = number(1)? as usize,
            "sockets" => self.sockets = number(1)? as usize,
            "threads" => self.threads = number(1)? as usize,
            "dur_ms" => self.duration = Ns::from_ms(number(1)?),
            "trace" => {}
            "tslice_ms" => knob("tslice", format!("{}ms", number(1)?)),
            "ratelimit_us" => knob("ratelimit", format!("{}us", number(1)?)),
            "migdelay_us" => knob("migration_delay", format!("{}us", number(1)?)),
            "runqueue" => knob("credit2_runqueue", word(1)?.to_owned()),
            "dom" => {
                let (weight, cap) = (number(2)? as u32, number(3)? as u32);
                let group = self.group(number(1)? as usize);
                (group.weight, group.cap_percent) = (Some(weight), cap);
            }
            "vcpu" => self.vcpu(&words)?,
            other => bail!("unknown key `{other}`"),
        }
        Ok(())
    }

    /// The group of a domain; group numbers are domain numbers.
    fn group(&mut self, domain: usize) -> &mut GroupSpec {
        while self.workload.groups.len() <= domain {
            let name = format!("/d{}", self.workload.groups.len());
            self.workload.groups.push(GroupSpec {
                name,
                parent: Some(GroupId::ROOT),
                ..GroupSpec::default()
            });
        }
        &mut self.workload.groups[domain]
    }

    fn vcpu(&mut self, words: &[&str]) -> Result<()> {
        ensure!(words.len() >= 6, "a vcpu line has six words or more");
        let domain: usize = words[1].parse()?;
        let number = |i: usize| -> Result<Ns> { Ok(Ns::from_us(words[i].parse()?)) };
        let (a, b, start) = (number(3)?, number(4)?, number(5)?);
        self.group(domain);
        let program = match words[2] {
            "hog" => Program::hog(),
            "periodic" => self.arrivals(a, b, start),
            "closed" => Program::closed(b, a),
            "yield" => Program::forever([Op::Run(Amount::Fixed(b)), Op::Yield]),
            other => bail!("unknown kind of vcpu `{other}`"),
        };
        let index = self.workload.tasks.iter().filter(|task| task.group.index() == domain).count();
        let name = format!("d{domain}v{index}");
        let mut task = TaskSpec::new(name.clone(), program);
        task.group = GroupId::from(domain);
        task.start = Start::AsleepUntil(start);
        for word in &words[6..] {
            match word.split_once('=') {
                Some(("pin", mask)) => task.affinity = mask_of(mask)?,
                Some(("soft", mask)) => task.soft_affinity = mask_of(mask)?,
                _ => bail!("unknown option `{word}`"),
            }
        }
        self.names.push(name);
        self.workload.tasks.push(task);
        Ok(())
    }
}

impl Reader {
    /// Jobs arrive on a timer of their own, whatever the vCPU does meanwhile.
    fn arrivals(&mut self, period: Ns, work: Ns, first: Ns) -> Program {
        let channel = ChannelId::from(self.workload.channels.len());
        self.workload.channels.push(ChannelSpec::default());
        let jobs = (self.duration.0.saturating_sub(first.0) / period.0) + 1;
        self.workload.sources.push(SourceSpec {
            name: format!("jobs of {channel}"),
            into: channel,
            kind: SourceKind::Recorded { at: (0..jobs).map(|job| first + period * job).collect() },
            one_way: Draw::Fixed(Ns::ZERO),
        });
        Program::forever([Op::Receive(channel), Op::Run(Amount::Fixed(work))])
    }
}

fn mask_of(text: &str) -> Result<CpuSet> {
    let mask: u64 = text.parse().with_context(|| format!("mask `{text}`"))?;
    Ok((0..64).filter(|bit| mask >> bit & 1 == 1).map(CpuId).collect())
}

fn run(scenario: &Scenario) -> Result<Vec<Decision>> {
    let cpus = scenario.machine.topology.cpus();
    let logged = Logged {
        inner: registry::build(&scenario.spec, cpus)?,
        names: scenario.names.clone(),
        log: RefCell::new(Vec::new()),
    };
    let options = RunOptions::for_time(scenario.duration);
    schedlab_sim::run(&scenario.machine, &scenario.workload, &logged, &options, &mut ())?;
    Ok(logged.log.into_inner())
}

/// A scheduler whose decisions are written down.
struct Logged {
    inner: Box<dyn Scheduler>,
    names: Vec<String>,
    log: RefCell<Vec<Decision>>,
}

impl Logged {
    fn name(&self, task: Option<TaskId>) -> String {
        task.map_or("idle".to_owned(), |task| self.names[task.index()].clone())
    }
}

impl Scheduler for Logged {
    schedlab_scheduler::forward!(
        inner: needs, init, wake, leave, yielded, saved, tick, tick_due, timer, call, changed, resync, explain
    );

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let pick = self.inner.schedule(cx, cpu, prev, why);
        let slice = pick.slice_ns.map_or(-0.0, |ns| ns.0 as f64 / 1e3);
        let value = pick.task.map(|_| pick.note);
        let time = cx.now.0 as f64 / 1e3;
        self.log.borrow_mut().push(Decision(
            time,
            cpu.0,
            self.name(prev),
            self.name(pick.task),
            slice,
            value,
        ));
        pick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identical(file: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracles/xen").join(file);
        let outcomes = outcomes(&path).unwrap();
        assert_eq!(outcomes.len(), 30);
        for (record, got) in outcomes {
            assert_eq!(
                first_difference(&record.decisions, &got),
                None,
                "{file}, seed {}",
                record.seed
            );
        }
    }

    #[test]
    fn credit_4_15_decides_as_xen_did() {
        identical("xen-credit-4.15.0.jsonl.zst");
    }

    #[test]
    fn credit_4_20_decides_as_xen_did() {
        identical("xen-credit-4.20.0.jsonl.zst");
    }

    #[test]
    fn credit2_4_20_decides_as_xen_did() {
        identical("xen-credit2-4.20.0.jsonl.zst");
    }

    #[test]
    fn credit2_4_22_decides_as_xen_did() {
        identical("xen-credit2-4.22.0.jsonl.zst");
    }

    /// The comparison would notice.
    #[test]
    fn another_rate_limit_differs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../oracles/xen/xen-credit2-4.20.0.jsonl.zst");
        let text = data::read_text(&path).unwrap();
        let record: Record = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let mut scenario = read(&record.scenario, "4.20").unwrap();
        scenario.spec.knobs.push(("ratelimit".to_owned(), "2ms".to_owned()));
        let got = run(&scenario).unwrap();
        assert!(first_difference(&record.decisions, &got).is_some());
    }
}
