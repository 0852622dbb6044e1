//! The command line: the list of the commands. The arguments of each are beside its code, in
//! `commands/NAME.rs`.

use crate::commands;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Would another scheduler serve this workload better? Record a real machine, or write a scenario,
/// and compare.
#[derive(Debug, Parser)]
#[command(
    name = "schedlab",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  schedlab compare two-hogs                              a scenario of the gallery
  schedlab record -o redis.slt --for 5s --all            what this machine does now
  schedlab compare redis.slt --variant 'batch idle: sysbench policy=idle'
  schedlab show redis.slt --worst 10                     the longest waits, and what ran meanwhile
  schedlab doctor                                        what can be recorded here

Exit codes: 0 done, 1 an expectation failed, 2 bad input or not possible here, 3 not to be trusted."
)]
pub(crate) struct Args {
    /// Use colours: on a terminal, always, or never (as with NO_COLOR)
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) color: ColorWhen,
    /// The command and its arguments.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The first page of help: what a person wants, and the commands for it.
const GROUPS: [(&str, &[&str]); 6] = [
    ("See what happens", &["record", "show", "watch", "flight", "diff", "explain", "doctor"]),
    ("Predict", &["compare", "ui", "tune", "ci", "list", "bpf"]),
    ("Measure this machine", &["latency", "stress", "calibrate", "bench", "experiment"]),
    ("Run live", &["colocate", "run", "attach", "confirm", "top", "verify"]),
    ("Give back", &["status", "detach", "restore"]),
    ("Files of other tools", &["import", "export"]),
];
/// Commands that the first page only names.
const OTHERS: [&str; 4] = ["generate", "published", "man", "completions"];

/// Returns the command line, whose help has the commands in groups.
pub(crate) fn command() -> clap::Command {
    let command = Args::command();
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS {
        let here: Vec<&clap::Command> =
            names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        // A build without the machine has no commands of some groups.
        if !here.is_empty() {
            let _ = writeln!(text, "\n{header}{title}:{header:#}");
        }
        for one in here {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{:<11}{literal:#} {about}", one.get_name());
        }
    }
    let others: Vec<&str> =
        OTHERS.into_iter().filter(|name| command.find_subcommand(name).is_some()).collect();
    let _ = write!(text, "\nOthers: {} (schedlab COMMAND --help)\n", others.join(", "));
    text += "\n{options}{after-help}";
    command
        .help_template(
            text.replace("{options}", &format!("{header}Options:{header:#}\n{{options}}")),
        )
        .long_version(THIS_BUILD.as_str())
}

/// What `--version` prints behind the name: what a report of a fault needs.
static THIS_BUILD: LazyLock<String> = LazyLock::new(this_build);

fn this_build() -> String {
    let libc = if cfg!(target_feature = "crt-static") {
        "in the program, which needs no library of the system"
    } else {
        "of the system"
    };
    let text = format!(
        "{}\ncommit: {}\nfeatures: {}\nC library: {libc}",
        env!("CARGO_PKG_VERSION"),
        env!("SCHEDLAB_COMMIT"),
        env!("SCHEDLAB_FEATURES"),
    );
    #[cfg(feature = "machine")]
    let text = format!("{text}\nkernels: {}", schedlab_host::privileges::RECORDING_NEEDS);
    text
}

impl Args {
    /// Reads the arguments of this process.
    pub(crate) fn read() -> Result<Args, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// When output has colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Also into a pipe or a file
    Always,
    /// Not at all
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[cfg(feature = "machine")]
    /// Record what the scheduler of this machine does
    Record(commands::record::RecordArgs),
    /// Analyse a recording, or the events of a simulated scenario
    Show(commands::show::ShowArgs),
    #[cfg(feature = "machine")]
    /// Keep the last seconds in memory as a service, record incidents by rules, serve metrics
    Flight(commands::flight::FlightArgs),
    #[cfg(feature = "machine")]
    /// Watch the scheduler live: latencies, the longest waits, which tasks delay which
    Watch(commands::watch::WatchArgs),
    /// Compare two recordings, or two results, task by task and cgroup by cgroup
    Diff(commands::diff::DiffArgs),
    /// Write a random scenario
    Generate(commands::generate::GenerateArgs),
    /// Turn a trace (perf, Perfetto, ftrace, LTTng) into a recording, rt-app into a scenario
    Import(commands::import::ImportArgs),
    /// Write a recording for other tools: Perfetto, ftrace, perf script, CSV
    Export(commands::export::ExportArgs),
    /// Play a recording or a scenario under other schedulers and settings
    Compare(commands::compare::CompareArgs),
    #[cfg(feature = "ui")]
    /// Open a workbench in the browser: drag a setting, see the percentiles move
    Ui(commands::ui::UiArgs),
    /// Hold a scheduler to gates over a folder of recordings and scenarios, for CI
    #[command(subcommand)]
    Ci(commands::ci::CiCommand),
    /// Search settings for the one that serves a goal best, and say how sure that is
    Tune(commands::tune::TuneArgs),
    /// Print every published figure of the gallery's scenarios beside the simulated one, and why
    /// they differ
    Published(commands::published::PublishedArgs),
    /// Look into a sched_ext object (.bpf.o): what it calls, and what can be set
    #[command(subcommand)]
    Bpf(commands::bpf::BpfCommand),
    /// List the schedulers or the scenarios
    List(commands::list::ListArgs),
    #[cfg(feature = "machine")]
    /// Measure the cost of a scheduling decision, in the model or under real locks
    Bench(commands::bench::BenchArgs),
    #[cfg(feature = "machine")]
    /// Measure how late threads wake: the ladder up to the maximum, and a verdict
    Latency(commands::latency::LatencyArgs),
    #[cfg(feature = "machine")]
    /// Load this machine: pairs as hackbench has them, CPU hogs, memory streams
    Stress(commands::stress::StressArgs),
    #[cfg(feature = "machine")]
    /// Measure what this machine's own work costs, and keep it as a cost preset
    Calibrate(commands::calibrate::CalibrateArgs),
    #[cfg(feature = "machine")]
    /// Repeat published experiments with the real programs: published, here, simulated
    Experiment(commands::experiment::ExperimentArgs),
    /// Explain a word of the tables and verdicts
    Explain(commands::explain::ExplainArgs),
    #[cfg(feature = "machine")]
    /// Print the completions of a shell
    Completions(commands::completions::CompletionsArgs),
    #[cfg(feature = "machine")]
    /// Print or write manual pages
    Man(commands::man::ManArgs),
    #[cfg(feature = "machine")]
    /// Say what this kernel and these permissions allow
    Doctor(commands::doctor::DoctorArgs),
    #[cfg(feature = "machine")]
    /// Find the mildest setting under which a server beside batch work meets its goal
    Colocate(commands::colocate::ColocateArgs),
    #[cfg(feature = "machine")]
    /// Run a command under a schedlab scheduler, on real CPUs
    Run(commands::run::RunArgs),
    #[cfg(feature = "machine")]
    /// Put running processes under a schedlab scheduler
    Attach(commands::attach::AttachArgs),
    #[cfg(feature = "machine")]
    /// Check that the log of a live run gives the same decisions again
    Verify(commands::verify::VerifyArgs),
    #[cfg(feature = "machine")]
    /// Run the variants of `compare` on the real threads: predicted beside live
    Confirm(commands::confirm::ConfirmArgs),
    #[cfg(feature = "machine")]
    /// Watch a managed machine: latencies, delays, what agents cost and what they gain
    Top(commands::top::TopArgs),
    #[cfg(feature = "machine")]
    /// Show which running threads schedlab manages now
    Status(commands::status::StatusArgs),
    #[cfg(feature = "machine")]
    /// Give back everything that schedlab manages
    Detach(commands::detach::DetachArgs),
    #[cfg(feature = "machine")]
    /// Give back what a crashed schedlab left behind
    Restore(commands::restore::RestoreArgs),
    #[cfg(feature = "machine")]
    /// (Runs one process of an experiment; schedlab starts it itself)
    #[command(hide = true)]
    Helper(commands::helper::HelperArgs),
    #[cfg(feature = "machine")]
    /// (Gives threads back when their owner dies; schedlab starts it itself)
    #[command(hide = true)]
    Guardian(commands::guardian::GuardianArgs),
    /// (A command of another build)
    #[cfg(not(feature = "machine"))]
    #[command(external_subcommand)]
    Missing(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As wide as help is at most.
    const WIDTH: usize = 100;

    /// Refuses help texts that are wrapped twice, which leaves single words on lines: a paragraph
    /// is one line for clap to wrap, and the line of an example fits.
    fn check(command: &clap::Command, path: &str) {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
            assert!(
                !line.starts_with(' ') || line.chars().count() <= WIDTH,
                "{path}: too wide: {line}"
            );
            let goes_on = !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            let hard = goes_on && !next.is_empty() && !next.starts_with(' ');
            assert!(!hard, "{path}: end the line with a backslash, so that clap wraps it: {line}");
        }
        command
            .get_subcommands()
            .for_each(|inner| check(inner, &format!("{path} {}", inner.get_name())));
    }

    /// Commands whose output is a document or a log, and no result.
    const DOCUMENTS: [&str; 7] =
        ["generate", "completions", "man", "flight", "ui", "bpf inspect", "bpf snapshot"];

    fn without_format(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        let inner = command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help" && !inner.is_hide_set());
        let mut leaf = true;
        for inner in inner {
            leaf = false;
            without_format(inner, &format!("{path} {}", inner.get_name()), found);
        }
        let has = |name: &str| command.get_arguments().any(|argument| argument.get_id() == name);
        if leaf && !(has("format") && has("json")) {
            found.push(path.trim().to_owned());
        }
    }

    #[test]
    fn every_result_can_have_every_format() {
        let mut found = Vec::new();
        without_format(&Args::command(), "", &mut found);
        found.retain(|path| !DOCUMENTS.contains(&path.as_str()));
        assert!(found.is_empty(), "without --format: {found:?}");
    }

    #[test]
    fn help_is_wrapped_once() {
        check(&command(), "schedlab");
    }

    /// Each command is in one place of the first page, and its line fits.
    #[test]
    #[cfg(feature = "machine")]
    fn every_command_is_on_the_first_page() {
        let command = command();
        let mut listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| *names).copied().chain(OTHERS).collect();
        let mut known: Vec<&str> = command
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
        let help = command.clone().render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(help.contains("\nPredict:\n  compare     Play a recording"), "{help}");
        assert!(
            !help.contains("  generate ") && help.contains("Others: generate, published"),
            "{help}"
        );
    }
}
