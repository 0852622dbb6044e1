//! The command line of `cargo xtask stress`.

use super::planted;
use anyhow::{Context, Result};
use schedlab_model::Ns;
use schedlab_scheduler::registry;
use std::path::PathBuf;
use std::time::Duration;

/// Runs random machines, workloads, schedulers and agents under every assertion of the engine; what
/// fails is made small and kept in target/stress, as a scenario for
/// `schedlab compare FILE --assert`
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StressArgs {
    /// Begin with this case; a failure names the case that repeats it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Run so many cases, however long they take
    #[arg(long, value_name = "N")]
    pub(super) runs: Option<u64>,
    /// Begin cases for this long
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(super) time: Duration,
    /// Only this scheduler
    #[arg(long, value_name = "SCHEDULER", value_parser = scheduler)]
    pub(super) scheduler: Option<String>,
    /// Most CPU time of a case
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(super) case: Duration,
    /// Most time for making a failure small
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(super) shrink: Duration,
    /// Most trials for that
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pub(super) trials: u64,
    /// Go on after a failure
    #[arg(long)]
    pub(super) keep_going: bool,
    /// A fault in a copy of each scheduler, which must be found: forgets, anywhere, tickless,
    /// unsteady, spins, panics, overflows
    #[arg(long, value_name = "FAULT", default_value = "none", value_parser = plant)]
    pub(super) plant: String,
    /// This scenario instead of random ones
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Keep what fails here
    #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/stress"), hide_default_value = true)]
    pub(super) folder: PathBuf,
    /// The planted fault, for the chore itself
    #[arg(long, hide = true)]
    pub(super) worker: Option<String>,
}

fn scheduler(text: &str) -> Result<String> {
    Ok(registry::find(text)?.name.to_owned())
}

fn plant(text: &str) -> Result<String> {
    planted::find(text)?;
    Ok(text.to_owned())
}

impl StressArgs {
    /// Returns whether another case is begun.
    pub(super) fn goes_on(&self, done: u64, passed: Duration) -> bool {
        self.runs.map_or(passed < self.time, |runs| done < runs)
    }

    /// Says that a fault is planted.
    pub(super) fn planted(&self) -> String {
        match self.plant.as_str() {
            "none" => String::new(),
            plant => format!(", with a fault planted: {plant}"),
        }
    }
}

/// A time such as 10s, 5m or 1h.
pub(crate) fn time(value: &str) -> Result<Duration> {
    for (unit, seconds) in [("h", 3_600), ("m", 60)] {
        if let Some(count) = value.strip_suffix(unit).and_then(|count| count.parse::<u32>().ok()) {
            return Ok(Duration::from_secs(seconds * u64::from(count)));
        }
    }
    let time: Ns =
        value.parse().with_context(|| format!("{value}: a time such as 10s, 5m or 1h"))?;
    Ok(Duration::from_nanos(time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let parse = crate::parsed::<StressArgs>;
        let options = parse("--seed 5 --for 10m --keep-going --plant forgets --case 2s").unwrap();
        assert_eq!((options.seed, options.time), (5, Duration::from_secs(600)));
        assert!(options.keep_going && options.planted().contains("forgets"));
        assert_eq!(options.case, Duration::from_secs(2));
        let runs = parse("--runs 3").unwrap();
        assert!(runs.goes_on(2, Duration::MAX) && !runs.goes_on(3, Duration::ZERO));
        assert!(parse("--sead 5").unwrap_err().to_string().contains("--seed"));
        assert!(parse("--seed").unwrap_err().to_string().contains("a value is required"));
        assert!(parse("--plant everything").unwrap_err().to_string().contains("forgets"));
        for wrong in ["--for ten", "--scheduler linux-9", "--seed x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
