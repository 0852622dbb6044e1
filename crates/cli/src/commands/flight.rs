//! `schedlab flight`

use crate::exit::Exit;
use crate::output;
use anyhow::Context as _;
use schedlab_lab::flight::config::{EXAMPLE, FlightConfig, PLACE};
use schedlab_lab::flight::log::FlightLine;
use schedlab_lab::flight::{FlightSignals, fly};
use schedlab_model::Ns;
use schedlab_model::text::shown;
use schedlab_trace::too_much_lost;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// `schedlab flight`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab flight --example > flight.toml   a file with every key, its default and what it means
  schedlab flight --check flight.toml       whether it can be read, and what it says
  schedlab flight flight.toml               until SIGTERM; a line of JSON on standard error for each
                                            incident (docs/flight.md)
  systemctl enable --now schedlab-flight    the same as a service (contrib/systemd)

Signals: SIGUSR1 writes what is in memory now, SIGHUP reads the file again, SIGTERM ends it and \
keeps the recording that is under way.

Exit codes: 0 it was ended, 2 bad input or not possible here, 3 more than one event in a hundred \
was lost.")]
pub(crate) struct FlightArgs {
    /// The file with the rules
    #[arg(default_value = PLACE)]
    file: PathBuf,
    /// Print a file to begin with, and end
    #[arg(long, conflicts_with = "check")]
    example: bool,
    /// Read the file, say what it means, and end
    #[arg(long)]
    check: bool,
    /// End after this time, such as 10m
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
}

pub(crate) fn run(args: &FlightArgs) -> anyhow::Result<Exit> {
    if args.example {
        output::write(None, EXAMPLE)?;
        return Ok(Exit::Done);
    }
    if args.duration == Some(Ns::ZERO) {
        anyhow::bail!("--for 0: must be longer than 0, such as --for 10m");
    }
    let config = FlightConfig::open(&args.file)?;
    if args.check {
        output::write(None, &meaning(&args.file, &config))?;
        return Ok(Exit::Done);
    }
    let signals = FlightSignals::install().context("taking signals over (sigaction)")?;
    let end = fly(&args.file, config, args.duration, &signals, &log)?;
    Ok(if too_much_lost(end.lost, end.events) { Exit::Untrusted } else { Exit::Done })
}

/// Writes a line of the log; without standard error it is lost.
fn log(line: FlightLine) {
    if let Ok(text) = serde_json::to_string(&line) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// Says what a file means.
fn meaning(file: &Path, config: &FlightConfig) -> String {
    let mut text = format!(
        "{} can be read: {} rules; recordings of the {} before an incident and the {} after it go \
         to {}.\n",
        shown(&file.display().to_string()),
        config.rules.len(),
        config.ring,
        config.after,
        shown(&config.folder.display().to_string())
    );
    for rule in &config.rules {
        let run = rule.run.as_ref().or(config.run.as_ref());
        let then = run.map_or(String::new(), |run| format!(", then {}", shown(&run.join(" "))));
        text += &format!(
            "  {}: {}, at most {} in {}{then}\n",
            rule.name,
            shown(&rule.when.to_string()),
            rule.at_most.count,
            rule.at_most.within
        );
    }
    match &config.metrics {
        Some(address) => {
            let address = shown(&address.to_string()).into_owned();
            text + &format!(
                "Metrics are at {address}, by {}, of {} at most.\n",
                config.by.label(),
                config.series
            )
        }
        None => text + "There are no metrics (metrics = \"127.0.0.1:9920\").\n",
    }
}
