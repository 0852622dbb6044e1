//! What is fuzzed: each parser with what a program does with what it accepted. A target answers
//! with a line; it must never panic, hang, or take memory without bound.

use super::mutate::Shape;
use anyhow::{Result, bail};
use schedlab_lab::record::StopConditions;
use schedlab_model::{CpuSet, GroupSpec, Ns, Policy, Program, TaskSpec, Workload};
use schedlab_scheduler::sched_ext::{self, Btf};
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_study::compare::RowGate;
use schedlab_study::gate::Gate;
use schedlab_study::variant::{Subject, Variant};
use schedlab_trace::analysis::show::{self, Cell, Output, Table};
use schedlab_trace::analysis::timehist::{Listing, Row};
use schedlab_trace::analysis::{Scope, Summary};
use schedlab_trace::import::formats::{self, Content};
use schedlab_trace::import::{ImportOptions, read};
use schedlab_trace::replay::{DemandChange, ReplayOptions, replay};
use schedlab_trace::schedstat::SchedStat;
use schedlab_trace::{Blocks, ReadLimits, Recording, export};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// One parser.
pub(super) struct Target {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// What its inputs are made of.
    pub(super) shape: Shape,
    /// Tries an input; the answer in a line.
    pub(super) run: fn(&[u8]) -> String,
}

const SCENARIO: &[&str] = &[
    "[[task]]",
    "[[group]]",
    "[[source]]",
    "[machine]",
    "[[variant]]",
    "[[expect]]",
    "program",
    "hog",
    "policy",
    "fifo:1",
    "deadline",
    "cpus",
    "\"1ms\"",
    "[]",
    "{}",
    "=",
    "affinity",
    "count",
    "run",
    "sleep",
    "send",
    "receive",
];
const TRACE: &[&str] = &[
    "sched_switch:",
    "sched_waking:",
    "sched_wakeup_new:",
    "sched_process_exit:",
    "prev_pid=",
    "next_pid=",
    "==>",
    "prev_state=R+",
    "[001]",
    "[999]",
    "comm=",
    "pid=",
    "target_cpu=",
    "<idle>-0",
    "irq_handler_entry:",
    "LOST",
];
const EXPRESSION: &[&str] = &[
    "policy=",
    "idle",
    "fifo:",
    "nice=",
    "cpus=",
    "0-3",
    "cpu.max=",
    "50ms/100ms",
    "max",
    "demand=x",
    "off",
    ";",
    ":",
    "latency",
    "p99",
    "p99.9",
    "wait",
    "share",
    ">",
    "<=",
    "+20%",
    "1.5x",
    "against",
    "group=/a",
    "slice=",
    "*",
    "rate=",
    "linux-6.18",
    "xen-credit",
    "base_slice_ns=",
    ",",
    "/",
    "ns",
    "us",
    "300/s",
    "run",
    "ran",
];

const RTAPP: &[&str] = &[
    "\"tasks\"",
    "\"phases\"",
    "\"loop\"",
    "\"run\"",
    "\"sleep\"",
    "\"timer\"",
    "\"period\"",
    "\"wait\"",
    "\"ref\"",
    "\"signal\"",
    "\"barrier\"",
    "\"fork\"",
    "\"instance\"",
    "\"cpus\"",
    "\"taskgroup\"",
    "\"policy\"",
    "SCHED_FIFO",
    "-1",
    "1000",
    "{",
    "}",
    "[0]",
    ":",
    ",",
    "/*",
];

const HISTOGRAM: &[&str] = &[
    "# RTLA timerlat histogram\n",
    "# RTLA osnoise histogram\n",
    "# Time unit is nanoseconds (ns)\n",
    "# Duration: ",
    "Index",
    "IRQ-000",
    "Usr-001",
    "over:",
    "count:",
    "max:",
    "ALL:",
    "# Histogram\n",
    "# Min Latencies:",
    "# Max Latencies:",
    "# Histogram Overflows:",
    "policy: rr:",
    "T: 0 ( 7) P:80",
    "18446744073709551615",
    "000008 ",
    " -",
    "\t",
    "\n",
];

const SCHEDSTAT: &[&str] = &[
    "version 17\n",
    "timestamp 4299010020\n",
    "cpu0 0 0 1 1 1 1 1 1 1\n",
    "domain0 MC 0f 1 2\n",
    "Time elapsed (in jiffies) : ",
    "CPU 1\n",
    "CPU <ALL CPUS SUMMARY>\n",
    "sched_count : ",
    "rq_cpu_time : ",
    "pcount : ",
    "18446744073709551615",
    " :",
    "\n",
];

/// Every target: those of the traces come from the registry of formats.
pub(super) static ALL: LazyLock<Vec<Target>> = LazyLock::new(|| {
    let traces = formats::all().filter(|format| format.is_trace()).map(|format| {
        let shape = match format.content {
            Content::Text => Shape::Text(TRACE),
            Content::Json => Shape::Json,
            Content::Protobuf => Shape::Proto,
            Content::Binary => Shape::Bytes,
        };
        Target { name: format.name, shape, run: import }
    });
    traces.chain(OTHERS).collect()
});

/// What is no trace.
const OTHERS: [Target; 14] = [
    // What a trace may be wrapped in: gzip, zstd, UTF-16, `atrace -z`.
    Target { name: "wrapped", shape: Shape::Bytes, run: import },
    Target { name: "recording", shape: Shape::Recording, run: recording },
    Target { name: "scenario", shape: Shape::Text(SCENARIO), run: scenario },
    Target { name: "rtapp", shape: Shape::Text(RTAPP), run: rtapp },
    Target { name: "variant", shape: Shape::Text(EXPRESSION), run: variant },
    Target { name: "scheduler", shape: Shape::Text(EXPRESSION), run: scheduler },
    Target { name: "expression", shape: Shape::Text(EXPRESSION), run: expression },
    Target { name: "journal", shape: Shape::JsonLines, run: journal },
    Target { name: "result", shape: Shape::Json, run: result },
    Target { name: "latency", shape: Shape::Json, run: latency },
    Target { name: "histogram", shape: Shape::Text(HISTOGRAM), run: histogram },
    Target { name: "schedstat", shape: Shape::Text(SCHEDSTAT), run: schedstat },
    Target { name: "calls", shape: Shape::JsonLines, run: calls },
    Target { name: "bpf", shape: Shape::Bytes, run: bpf },
];

/// Their names.
pub(super) fn names() -> String {
    ALL.iter().map(|target| target.name).collect::<Vec<_>>().join(", ")
}

/// The target of this name.
pub(super) fn find(name: &str) -> Result<&'static Target> {
    match ALL.iter().find(|target| target.name == name) {
        Some(target) => Ok(target),
        None => bail!("there is no target `{name}`: there are {}", names()),
    }
}

/// How an answer begins that a parser gives to what it does not take.
pub(super) const REFUSED: &str = "refused";

fn said<T>(what: Result<T, impl Display>, ok: impl FnOnce(T) -> String) -> String {
    match what {
        Ok(value) => ok(value),
        Err(error) => format!("{REFUSED}: {error}"),
    }
}

/// An analysis writes here.
#[derive(Default)]
struct Sink {
    rows: u64,
}

impl Output for Sink {
    fn table(&mut self, _: &Table) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        self.rows += 1;
        // What is printed is formatted.
        std::hint::black_box(format!("{cells:?}"));
        Ok(())
    }

    fn note(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

/// Everything that a program does with a recording.
fn used(recording: &Recording) -> String {
    let _ = Summary::from_recording(recording);
    let mut answer = format!("{:.0}", (recording.events.len() as f64).log2());
    let scope = Scope::default();
    for entry in show::ALL.iter().filter(|entry| entry.check(&recording.header).is_ok()) {
        let mut sink = Sink::default();
        let _ = entry.run(recording, &scope, &mut sink);
        answer += if sink.rows > 0 { "x" } else { "-" };
    }
    for without_wakes in [false, true] {
        answer += &said(
            replay(recording, &ReplayOptions { without_wakes, ..ReplayOptions::default() }),
            |replay| {
                let mut kind = format!("{:.0}", (replay.workload.channels.len() as f64).log2());
                for task in replay.workload.tasks.iter().take(4) {
                    kind += if task.program.ops.len() > 3 { "+" } else { "." };
                }
                kind
            },
        );
    }
    let mut out = io::sink();
    let _ = export::ftrace(recording, &mut out);
    let _ = export::perf_script(recording, &mut out);
    let _ = export::perfetto(recording, &mut out);
    answer
}

fn recording(input: &[u8]) -> String {
    let limits = ReadLimits { events: 200_000, block_bytes: 4 << 20, tasks: 5_000 };
    // In whatever order its blocks are.
    let listed = [true, false].map(|in_order| listed(input, limits, in_order));
    said(Recording::read_limited(input, limits), |recording| {
        format!("{listed:?} {}", used(&recording))
    })
}

/// How many rows the listing of `input` has that is made while it is read; `None`: it cannot be
/// listed.
fn listed(input: &[u8], limits: ReadLimits, in_order: bool) -> Option<usize> {
    let mut rows: Vec<Row> = Vec::new();
    let listed =
        Listing::new(&mut rows, in_order).together(5).all(|| Blocks::new(input, limits), limits);
    listed.ok().map(|_| rows.len())
}

fn import(input: &[u8]) -> String {
    let of = |strict: bool| {
        let options =
            ImportOptions { current_is_waker: strict, strict, ..ImportOptions::default() };
        said(read(input, options), |imported| {
            format!("{} {}", imported.summary.odd.count.min(2), used(&imported.recording))
        })
    };
    of(false) + &of(true)
}

fn schedstat(input: &[u8]) -> String {
    said(SchedStat::read(text(input)), |read| {
        let between = read.since(&read).map(|between| between.machine());
        format!("{:?} {} {}", read.holds, read.cpus.len().min(3), between.is_ok())
    })
}

fn text(input: &[u8]) -> &str {
    match std::str::from_utf8(input) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&input[..error.valid_up_to()]).unwrap_or_default(),
    }
}

fn scenario(input: &[u8]) -> String {
    said(schedlab_study::scenario::parse("fuzz", "fuzz.toml", text(input)), |scenario| {
        let checked = scenario.workload.check(scenario.machine.topology.cpus());
        format!("{} {checked:?}", scenario.variants.len())
    })
}

fn rtapp(input: &[u8]) -> String {
    said(schedlab_study::rtapp::parse("fuzz", "fuzz.json", text(input), 2), |imported| {
        // What is written down must be what runs.
        let again = schedlab_study::scenario::parse("fuzz", "fuzz.toml", &imported.toml)
            .expect("it is a scenario");
        format!("{} {}", again.workload.tasks.len(), imported.notes.len())
    })
}

/// The kernel of the objects that are fuzzed.
static KERNEL: LazyLock<Arc<Btf>> = LazyLock::new(|| {
    let file = include_bytes!("../../../bpf/sim/kernel.bpf.o");
    Arc::new(Btf::of_file(file).expect("a kernel's types"))
});

/// An object is looked into, and one that could run does.
fn bpf(input: &[u8]) -> String {
    let _ = Btf::of_file(input);
    said(sched_ext::inspect("fuzz", input, Some(&KERNEL)), |found| {
        if sched_ext::provide("fuzz", input, &KERNEL).is_err() {
            return format!("{} refused", found.callbacks.len());
        }
        let Ok(scheduler) = registry::build(&SchedulerSpec::named("bpf:fuzz"), 2) else {
            return "not built".to_owned();
        };
        let hog = |name: &str| TaskSpec::new(name, Program::hog());
        let workload =
            Workload { tasks: vec![hog("a"), hog("b"), hog("c")], ..Workload::default() };
        let machine = schedlab_sim::Machine::flat(2);
        let options = schedlab_sim::RunOptions::for_time(Ns::from_ms(50));
        let ran = schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut ());
        format!("{} {}", found.callbacks.len(), ran.is_ok())
    })
}

fn variant(input: &[u8]) -> String {
    let hog = |name: &str| TaskSpec::new(name, Program::hog());
    let group =
        |name: &str, parent| GroupSpec { name: name.to_owned(), parent, ..GroupSpec::default() };
    let root = schedlab_model::GroupId::ROOT;
    let workload = Workload {
        tasks: vec![hog("redis-server"), hog("sysbench"), hog("worker-1")],
        groups: vec![group("/", None), group("/batch", Some(root))],
        ..Workload::default()
    };
    let classes: Vec<String> = workload.tasks.iter().map(|task| task.name.clone()).collect();
    let delegation = &schedlab_study::delegation::DelegationSpec::default();
    let (workload, classes) = (&workload, &classes);
    let subject = Subject {
        roles: Default::default(),
        smt_yield: schedlab_study::scenario::SmtYield::OneThread,
        workload,
        classes,
        threads: &[],
        cpus: 4,
        vms: &[],
        delegation,
        kernel: None,
        kernel_threads: &[],
        guests: None,
    };
    said(Variant::parse(text(input)), |variant| {
        said(variant.apply(&subject), |applied| format!("{:?}", applied.workload.check(4).is_ok()))
    })
}

fn scheduler(input: &[u8]) -> String {
    said(text(input).parse::<SchedulerSpec>(), |spec| {
        said(registry::build(&spec, 4), |_| spec.name.clone())
    })
}

fn expression(input: &[u8]) -> String {
    let all = text(input);
    let mut answer = String::new();
    for line in all.lines().take(8) {
        answer += &said(Gate::parse(line), |gate| format!("{:?}", gate.op));
        answer +=
            &said(Gate::parse_with(line, Some("latency")), |gate| format!("{:?}", gate.metric));
        answer += &said(RowGate::parse(line), |gate| format!("{}", gate.row.is_some()));
        answer += &said(line.parse::<StopConditions>(), |_| "until".to_owned());
        answer += &said(line.parse::<DemandChange>(), |_| "demand".to_owned());
        answer += &said(line.parse::<Ns>(), |ns| format!("{ns}").len().to_string());
        answer += &said(line.parse::<CpuSet>(), |set| format!("{set}").len().to_string());
        answer += &said(line.parse::<Policy>(), |policy| policy.to_string());
        answer += &said(line.parse::<schedlab_live::actuators::Actuator>(), |actuator| {
            actuator.to_string()
        });
    }
    answer
}

fn journal(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    said(schedlab_live::journal::Record::parse(Path::new("fuzz.journal"), &text), |record| {
        record
            .map_or_else(|| "none".to_owned(), |record| format!("{}", record.entries.len().min(5)))
    })
}

fn result(input: &[u8]) -> String {
    said(schedlab_study::diff::study::parse(input), |study| {
        format!("{} {} {}", study.holds(), study.trusted(), study.rows.len().min(3))
    })
}

fn latency(input: &[u8]) -> String {
    said(serde_json::from_slice::<schedlab_measure::LatencyReport>(input), |_| "report".to_owned())
}

fn histogram(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let policy = Some(schedlab_model::Policy::Fifo(80));
    said(schedlab_lab::latency::parse(&text, "fuzz", policy), |matrix| {
        let output = schedlab_lab::latency::MatrixOutput::new(&matrix);
        format!("{} {}", output.rows.len().min(3), output.doubts.len().min(8))
    })
}

fn calls(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    said(schedlab_live::verify::verify(&text), |verdict| {
        format!("{} {}", verdict.differs.is_some(), verdict.decisions.min(3))
    })
}
