//! `schedlab tune`

use super::compare::request::{ReplayAndTypes, RequestArgs, ServeAndPart};
use crate::ending::{Ending, nothing_yet};
use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Progress;
use crate::render;
use crate::stdin;
use anyhow::{Context as _, anyhow, bail};
use schedlab_model::Ns;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::compare::{RecordedInput, ReplayFrom, modelled_by};
use schedlab_study::deploy::Format;
use schedlab_study::gallery::{self, Found};
use schedlab_study::input::Input;
use schedlab_study::together::Together;
use schedlab_study::tune::{Aim, Best, Dimension, HeldOut, TuneOptions, Tuned, tune};
use schedlab_trace::import::Purpose;
use std::path::{Path, PathBuf};

/// `schedlab tune`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab tune redis.slt --goal 'redis-server share' --space 'sysbench policy=other,batch,idle' \\
                          --keep 'sysbench share' --space 'sysbench nice=0..19'
  schedlab tune redis-batch --goal 'clients response p99 < 1ms' --space 'sysbench nice=0,10,19' \\
                            --keep 'sysbench share' --space 'sysbench policy=other,batch,idle'
  schedlab tune redis.slt --goal 'redis-server share' --space 'base_slice_ns=0.3ms..30ms'
  schedlab tune redis.slt --goal 'redis-server share' --space 'scheduler=linux-6.1,linux-7.2'
  schedlab tune redis.slt --goal 'redis-server share' --space 'sysbench nice=0,19' \\
                          --space 'sysbench group=/batch ; /batch cpu.max=10%,30%,90%'
  schedlab tune redis.slt --goal 'redis-server share' --space 'sysbench nice=0,10,19' \\
                          --validate other.slt
  schedlab tune redis.slt --goal 'redis-server share' --space 'sysbench nice=0,19' --deploy shell
  schedlab tune redis.slt --goal 'redis-server share' --space 'sysbench nice=0,19' --from 1s --to 3s

A goal is 'SUBJECT METRIC' or 'SUBJECT METRIC OP VALUE': the number that is to become better, and \
the bound within which it is good \
enough. --keep names what is not to become worse; with a bound ('sysbench share > 30%') a setting \
beyond it is no answer.

A dimension (--space) is 'TARGET KEY=LOW..HIGH' or 'TARGET KEY=V1,V2' with the targets and keys \
of `compare --variant`, \
'KNOB=LOW..HIGH' for a knob of the scheduler (an option of a sched_ext object), KNOB alone for all \
values that it allows, or 'scheduler=S1,S2'. Up to three. Before a ';' stand settings that every value has, such as \
the group of a limit.

Every combination is tried where --trials allows that, else settings that fill the space evenly. \
Those that no other is better than \
go on to more seeds; the answer comes from seeds that the search has not seen. A gain smaller \
than its error is no gain.

Ctrl-C or TERM ends the search with the answer of what is finished, marked partial. \
Exit codes: 0 done, 2 bad input, 3 the simulation does not reproduce the recording, or the search \
was ended early.")]
pub(crate) struct TuneArgs {
    /// Search this recording (.slt), scenario (.toml), or scenario of the gallery by name
    /// (`schedlab list scenarios`)
    input: String,
    /// Make this number better: 'redis-server latency p99', or bring it within a bound:
    /// 'redis-server latency p99 < 1ms'
    #[arg(long, value_name = "GOAL")]
    goal: String,
    /// Show what it costs in this number: 'sysbench share', or stay within a bound: 'sysbench share
    /// > 30%' (may be given several times)
    #[arg(long, visible_alias = "cost", value_name = "GOAL")]
    keep: Vec<String>,
    /// Search these values: 'sysbench nice=0..19', 'base_slice_ns=0.3ms..30ms' (may be given up to
    /// three times)
    #[arg(long, value_name = "SETTING=VALUES", required = true)]
    space: Vec<String>,
    /// Run each of the last settings with this many seeds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Try this many settings at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=5000))]
    trials: u64,
    /// Begin with this seed, of the sample and of the runs [default: 1, or what the scenario says]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulate this long, such as 2s; of a recording its first 2s are read, as if it had ended
    /// there [default: the whole recording, or what the scenario says]
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<Ns>,
    /// Begin with this scheduler, and change its knobs [default: the first of the scenario, or by
    /// the recorded kernel's version]
    #[arg(short, long, value_name = "SCHEDULER")]
    scheduler: Option<SchedulerSpec>,
    #[command(flatten)]
    replay: RequestArgs<ReplayAndTypes>,
    #[command(flatten)]
    request: RequestArgs<ServeAndPart>,
    /// Check the result on this recording, which the search does not use (may be given several
    /// times)
    #[arg(long, value_name = "FILE")]
    validate: Vec<PathBuf>,
    /// Use this many worker threads; 0 = one per CPU. The result does not depend on it
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Print only what sets the recommended setting without schedlab: shell, systemd, kubernetes,
    /// or xl for Xen
    #[arg(long, value_name = "FORMAT", value_parser = Format::ALL.map(Format::name), conflicts_with_all = ["json", "format"])]
    deploy: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let options = options(args)?;
    let from = args.replay.replay();
    let progress = Progress::with_verb(&format!("reading {}", args.input));
    let found = gallery::find(&stdin::given(&args.input)?)?;
    let mut request = (*args.request.0).clone();
    request.options.duration = args.duration;
    if let Some((option, why)) = request.without_meaning(&found, &args.input) {
        bail!("--{} {why}", option.flag);
    }
    read_objects(args, &found)?;
    let input = Input::read(found, from, &request.window(), Purpose::Replay)?;
    let held_out: Vec<RecordedInput> = args
        .validate
        .iter()
        .map(|path| held_out(path, from.unwrap_or_default(), request.window().by))
        .collect::<anyhow::Result<_>>()?;
    let (chosen, said) = args.scheduler.as_ref().map(modelled_by).unzip();
    let held_out: Vec<HeldOut<'_>> =
        args.validate.iter().map(|path| path.display().to_string()).zip(&held_out).collect();
    drop(progress);
    let ending = Ending::install()?;
    let options = TuneOptions { stop: ending.flag(), keep_finished: true, ..options };
    let progress = Progress::with_answer("searching");
    let searched = tune(input.target(chosen.as_ref()), &options, &held_out, &|step| {
        progress.set(step.done, step.all);
        step.best.iter().for_each(|best| progress.so_far(&said_of(best)));
    });
    drop((progress, ending));
    let mut tuned = match searched {
        Err(StudyError::Stopped) => return Ok(nothing_yet("the first setting")),
        searched => searched?,
    };
    tuned.notes.extend(said.flatten());
    tuned.input.name = stdin::named(&tuned.input.name);
    let text = match &args.deploy {
        Some(name) => deployed(&tuned, name)?,
        None => args.format.print(
            args.output.as_deref(),
            || Ok(&tuned),
            |style| render::tune(&tuned, style),
        )?,
    };
    output::write(args.output.as_deref(), &text)?;
    Ok(if tuned.trusted && tuned.partial.is_none() { Exit::Done } else { Exit::Untrusted })
}

/// Reads the schedulers in BPF that are searched.
fn read_objects(args: &TuneArgs, found: &Found) -> anyhow::Result<()> {
    let of_scenario = match found {
        Found::Scenario(scenario) if args.scheduler.is_none() => scenario.schedulers.first(),
        _ => None,
    };
    let searched: Vec<SchedulerSpec> =
        args.space.iter().flat_map(|text| Dimension::schedulers(text)).collect();
    let all = args.scheduler.iter().chain(of_scenario).chain(&searched);
    Ok(args.replay.0.read_schedulers(all)?)
}

/// Returns the best setting so far in a line.
fn said_of(best: &Best) -> String {
    format!("{} gives {} (unchanged: {})", best.setting, best.value, best.unchanged)
}

fn options(args: &TuneArgs) -> anyhow::Result<TuneOptions> {
    let aim =
        |option: &str, text: &str| Aim::parse(text).map_err(|error| anyhow!("{option} {error}"));
    Ok(TuneOptions {
        goal: aim("--goal", &args.goal)?,
        keep: args.keep.iter().map(|text| aim("--keep", text)).collect::<anyhow::Result<_>>()?,
        space: args.space.clone(),
        seeds: args.seeds,
        trials: args.trials as usize,
        seed: args.seed,
        duration: args.duration,
        jobs: args.jobs,
        serve: args.request.serve().map(str::to_owned),
        stop: None,
        keep_finished: false,
    })
}

fn held_out(path: &Path, from: ReplayFrom, by: Together) -> anyhow::Result<RecordedInput> {
    RecordedInput::open_by(path, from, by).with_context(|| "--validate".to_owned())
}

fn deployed(tuned: &Tuned, name: &str) -> anyhow::Result<String> {
    let format = Format::ALL.into_iter().find(|format| format.name() == name);
    let format = format.context("--deploy: unknown format")?;
    let deployment = tuned.recommended.and_then(|place| tuned.settings[place].deploy.as_ref());
    render::deploy::file(deployment, format).map_err(|why| anyhow!("--deploy {name}: {why}"))
}
