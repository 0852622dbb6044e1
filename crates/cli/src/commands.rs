//! One module for each command.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod colocate;
pub(crate) mod compare;
pub(crate) mod confirm;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod guardian;
pub(crate) mod import;
pub(crate) mod latency;
pub(crate) mod list;
pub(crate) mod part;
pub(crate) mod published;
pub(crate) mod record;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod stress;
pub(crate) mod top;
pub(crate) mod watch;

use anyhow::{Context as _, bail};
use schedlab_host::StopSignal;
use schedlab_model::Ns;

/// Ctrl-C ends what is done, and puts back what was changed.
pub(crate) fn stop_signal() -> anyhow::Result<StopSignal> {
    StopSignal::install().context("taking over Ctrl-C")
}

/// Refuses rounds of live commands that are too short to say anything.
pub(crate) fn long_enough(option: &str, round: Ns) -> anyhow::Result<()> {
    if round < Ns::from_ms(100) {
        bail!("{option} {round}: a round has 100 ms at least");
    }
    Ok(())
}
