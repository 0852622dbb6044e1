//! `schedlab bench runqueue`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::{numbers, stop_signal};
use crate::output;
use crate::progress::Progress;
use anyhow::bail;
use schedlab_lab::runqueue::{
    self as lab, Claim, ModelOptions, PAPER_INTERVAL_US, RunqueueResult, TABLE_1,
};
use schedlab_measure::calibrate::cold_bytes;
use schedlab_measure::runqueue::{MOST_TASKS, RunqueueRequest, RunqueueRow, Stride, runqueue};
use schedlab_model::{Ns, Policy};
use schedlab_study::decision_cost;
use std::fmt::Write as _;

/// `schedlab bench runqueue`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab bench runqueue                           2 to 4096 tasks, 1 thread to one a CPU, 3 locks
  schedlab bench runqueue --tasks 1024 --threads 1..2 --lock tas --for 5s
  schedlab bench runqueue --tasks 64,1024 --cold --stride 64    also with cold caches
  schedlab bench runqueue --scheduler linux-2.4 --affinity change --json

The same scheduler code as in the simulator, called by pinned threads; the cycle counter is read \
around schedule(). A cost is \
the mean of a round, the value the median of the rounds, the interval a bootstrap over rounds. \
`sum` is what a decision \
costs all threads together, with ticks and switches. Printed beside it: the cost in the \
simulator's model.")]
pub(crate) struct Runqueue {
    /// Use these numbers of tasks: a list such as 2,64,1024, or powers of two from A to B: A..B
    #[arg(long, value_name = "LIST", default_value = "2..4096")]
    tasks: String,
    /// Use these numbers of threads, each of which decides for a CPU of its own [default: 1 up to
    /// the number of CPUs]
    #[arg(long, value_name = "LIST")]
    threads: Option<String>,
    /// Use these locks: tas, ticket, mcs
    #[arg(long, value_name = "LIST", default_value = "tas,ticket,mcs")]
    lock: String,
    /// Lay task records this many bytes apart: 64, 8192
    #[arg(long, value_name = "LIST", default_value = "64,8192")]
    stride: String,
    /// Also decide after reading twice the last-level cache (milliseconds to a second each)
    #[arg(long)]
    cold: bool,
    /// Use this affinity variant of the SMP paper: default, stay or change (may be given several
    /// times)
    #[arg(long, value_name = "NAME", default_value = "default")]
    affinity: Vec<String>,
    /// Measure this scheduler (may be given several times) [default: linux-2.4, linux-2.4-mq,
    /// linux-2.4-o1, linux-2.6.22]
    #[arg(short, long = "scheduler", value_name = "SCHEDULER")]
    schedulers: Vec<String>,
    /// Measure every combination this many times, 3 or more
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Decide for about this long in all; preparation and cold decisions take more time
    #[arg(long = "for", value_name = "TIME", default_value = "20s", allow_hyphen_values = true)]
    duration: Ns,
    /// Run the threads under this policy: other, or fifo:N so that fair tasks do not preempt the
    /// holder of a lock
    #[arg(long, value_name = "POLICY", default_value = "other")]
    policy: Policy,
    /// Allow more threads than CPUs, although they spin
    #[arg(long)]
    oversubscribe: bool,
    /// Use this cost preset in the model [default: this-machine if there is a calibration, else
    /// modern]
    #[arg(long, value_name = "PRESET")]
    costs: Option<String>,
    /// Seed the order of rounds and tasks
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn run(args: &Runqueue) -> anyhow::Result<Exit> {
    let request = request(args)?;
    let costs = lab::model_costs(args.costs.as_deref())?;
    let signal = stop_signal()?;
    let progress = Progress::with_verb("deciding");
    let report =
        runqueue(&request, &mut |done, all| progress.set(done, all), &|| signal.requested())?;
    drop(progress);
    let progress = Progress::new();
    let options = ModelOptions { costs, jobs: 0 };
    let result = lab::explain(report, &options, &|done, all| progress.set(done, all))?;
    drop(progress);
    let text = args.format.print(None, || Ok(&result), |_| render(&result))?;
    output::write(None, &text)?;
    Ok(Exit::Done)
}

fn request(args: &Runqueue) -> anyhow::Result<RunqueueRequest> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let every: Vec<String> = (1..=cpus).map(|cpus| cpus.to_string()).collect();
    let threads = args.threads.clone().unwrap_or_else(|| every.join(","));
    let known = schedlab_measure::runqueue::SCHEDULERS;
    let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    let schedulers = if args.schedulers.is_empty() { &known[..] } else { &args.schedulers };
    let mut contenders = Vec::new();
    for scheduler in schedulers {
        for variant in &args.affinity {
            contenders.push(lab::contender(scheduler, variant)?);
        }
    }
    let mut strides = Vec::new();
    for stride in args.stride.split(',') {
        strides.push(match stride.trim() {
            "64" => Stride::Line,
            "8192" => Stride::Far,
            other => bail!("--stride {other}: there are 64 and 8192"),
        });
    }
    if !matches!(args.policy, Policy::Other | Policy::Fifo(_)) {
        bail!("--policy {}: the deciding threads may be other or fifo:N", args.policy);
    }
    Ok(RunqueueRequest {
        contenders,
        tasks: numbers("--tasks", &args.tasks, MOST_TASKS)?,
        threads: numbers("--threads", &threads, 512)?.into_iter().map(|n| n as usize).collect(),
        locks: args.lock.split(',').map(|name| lab::lock(name.trim())).collect::<Result<_, _>>()?,
        strides,
        cold: args.cold.then(cold_bytes),
        rounds: args.rounds,
        duration: args.duration,
        oversubscribe: args.oversubscribe,
        policy: args.policy,
        seed: args.seed,
    })
}

fn render(result: &RunqueueResult) -> String {
    let report = &result.report;
    let mut text = answer(result);
    let cold = match report.cold_bytes {
        0 => String::new(),
        bytes => format!("; a cold decision comes after reading {} MiB", bytes >> 20),
    };
    let _ = writeln!(
        text,
        "{}, {}; CPUs {}; {:.0} cycles a us, two reads {:.0} ns apart (subtracted){cold}\n\n\
         Figures 4 and 5: cost of one schedule() against tasks, ns (interval of the mean call; \
         waiting and holding of locks are \
         measured\nin passes of their own)",
        result.cpu, result.kernel, report.cpus, report.cycles_per_us, report.clock_ns,
    );
    let _ = writeln!(
        text,
        "  {:13} {:8} {:6} {:>6} {:4} {:>7} {:>5}  {:>10} {:>21} {:>9} {:>9} {:>9} {:>9} {:>8} \
         {:>10}",
        "scheduler",
        "affinity",
        "lock",
        "stride",
        "",
        "threads",
        "tasks",
        "cost",
        "interval",
        "p50",
        "(wait)",
        "(hold)",
        "sum",
        "(looked)",
        "model"
    );
    for row in &report.rows {
        line(&mut text, result, row);
    }
    table_1(&mut text, result);
    claims(&mut text, &result.claims);
    let disturbed: u32 = report.rows.iter().map(|row| row.disturbed).sum();
    if disturbed > 0 {
        let _ = writeln!(
            text,
            "\n{disturbed} rounds were disturbed: a thread was preempted although the round was \
             repeated. They count only where fewer \
             than three others are left."
        );
    }
    let _ = writeln!(
        text,
        "\nmodel: prices of `{}`, without waiting for locks: modelled CPUs compute between \
         decisions, these threads do not. \
         Its records\nlie side by side; linux-2.6.22 is not in it.",
        result.model_costs
    );
    text
}

/// Writes which of the paper's claims hold here.
fn claims(text: &mut String, claims: &[Claim]) {
    text.push_str("\nClaims:\n");
    for Claim { claim, value, low, high, holds } in claims {
        let verdict = match holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "cannot tell",
        };
        let _ = writeln!(text, "  {verdict:11}  {claim}: {value:.2} ({low:.2} to {high:.2})");
    }
    if claims.is_empty() {
        text.push_str(
            "  none: claims need linux-2.4 with 1024 tasks, or with one and with two threads\n",
        );
    }
}

/// What a decision costs where there are most tasks and threads, under the cheapest and the dearest
/// scheduler, and what became of the claims.
fn answer(result: &RunqueueResult) -> String {
    let rows = &result.report.rows;
    let Some(largest) = rows.iter().max_by_key(|row| (row.tasks, row.threads)) else {
        return String::new();
    };
    let key = |row: &RunqueueRow| (row.tasks, row.threads, row.lock.name(), row.stride, row.cold);
    let by_cost =
        |a: &&RunqueueRow, b: &&RunqueueRow| a.cost.median_ns.total_cmp(&b.cost.median_ns);
    let here = || rows.iter().filter(|row| key(row) == key(largest));
    let (Some(least), Some(most)) = (here().min_by(by_cost), here().max_by(by_cost)) else {
        return String::new();
    };
    let cost = |row: &RunqueueRow| {
        format!(
            "{:.0} ns ({:.0} to {:.0}) under {}",
            row.cost.median_ns, row.cost.low_ns, row.cost.high_ns, row.scheduler
        )
    };
    let plural = if largest.threads == 1 { "" } else { "s" };
    let place =
        format!("With {} tasks and {} deciding thread{plural}", largest.tasks, largest.threads);
    let dearest = if here().count() > 1 { format!(" and {}", cost(most)) } else { String::new() };
    let count =
        |wanted: Option<bool>| result.claims.iter().filter(|claim| claim.holds == wanted).count();
    format!(
        "{place} a decision costs {}{dearest}, lock {}. Of the claims about linux-2.4 {} hold \
         here, {} do not, {} cannot be told.\n\n",
        cost(least),
        largest.lock.name(),
        count(Some(true)),
        count(Some(false)),
        count(None),
    )
}

fn line(text: &mut String, result: &RunqueueResult, row: &RunqueueRow) {
    let model =
        result.modelled(row).map_or("-".to_owned(), |model| format!("{:.0}", model.cost_ns));
    let _ = writeln!(
        text,
        "  {:13} {:8} {:6} {:>6} {:4} {:>7} {:>5}  {:>10.1} {:>21} {:>9.1} {:>9.1} {:>9.1} \
         {:>9.1} {:>8.1} {:>10}{}",
        row.scheduler,
        row.variant,
        row.lock.name(),
        row.stride,
        if row.cold { "cold" } else { "hot" },
        row.threads,
        row.tasks,
        row.cost.median_ns,
        format!("{:.1} to {:.1}", row.cost.low_ns, row.cost.high_ns),
        row.call_p50_ns,
        row.wait.median_ns,
        row.hold.median_ns,
        row.sum.median_ns,
        row.looked,
        model,
        if row.disturbed > 0 { format!("  ({} disturbed)", row.disturbed) } else { String::new() }
    );
}

/// Writes the share of Table 1 of the SMP paper for 1024 tasks: here, in the model, and in the
/// paper (a machine of 2002).
fn table_1(text: &mut String, result: &RunqueueResult) {
    let mut head = "\nTable 1: cost of one schedule() / 100 ms at 1024 tasks (the paper's \
                    definition; its CPUs are of 2002)\n";
    for row in
        result.report.rows.iter().filter(|row| row.tasks == TABLE_1 && row.variant == "default")
    {
        let share = |us: f64| us / PAPER_INTERVAL_US * 100.0;
        let paper = decision_cost::paper_us(&row.scheduler, row.threads)
            .map_or("-".to_owned(), |us| format!("{:.4} %", share(us)));
        let model = result
            .modelled(row)
            .map_or("-".to_owned(), |model| format!("{:.5} %", share(model.cost_ns / 1e3)));
        let _ = writeln!(
            text,
            "{head}  {:13} {:6} {:>5} {:4} {} thread{}   here {:.5} %   model {model:>9}   paper \
             {paper}",
            row.scheduler,
            row.lock.name(),
            row.stride,
            if row.cold { "cold" } else { "hot" },
            row.threads,
            if row.threads == 1 { " " } else { "s" },
            share(row.cost.median_ns / 1e3)
        );
        head = "";
    }
}
