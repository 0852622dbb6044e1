//! The command line of `cargo xtask stress`.

use super::planted;
use anyhow::{Context, Result, bail};
use schedlab_model::Ns;
use schedlab_scheduler::registry;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the command line asks for.
#[derive(Debug)]
pub(super) struct Options {
    /// First case.
    pub(super) seed: u64,
    /// Most cases.
    pub(super) runs: u64,
    /// For how long cases are begun.
    pub(super) time: Duration,
    /// Only this one.
    pub(super) scheduler: Option<String>,
    /// Most CPU time of a case.
    pub(super) case: Duration,
    /// Most time for making a scenario smaller.
    pub(super) shrink: Duration,
    /// Most trials for that.
    pub(super) trials: u64,
    /// On after a failure.
    pub(super) keep_going: bool,
    /// The planted fault, or `none`.
    pub(super) plant: String,
    /// This scenario instead of random ones.
    pub(super) file: Option<PathBuf>,
    /// Where scenarios that fail are kept.
    pub(super) folder: PathBuf,
}

impl Options {
    /// Says that a fault is planted.
    pub(super) fn planted(&self) -> String {
        match self.plant.as_str() {
            "none" => String::new(),
            plant => format!(", with a fault planted: {plant}"),
        }
    }
}

const KNOWN: &str = "--seed N, --for 10m, --runs N, --scheduler S, --keep-going, --case 60s, --shrink 60s, --trials N, \
                     --plant FAULT, --file FILE, --folder FOLDER";

pub(super) fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        seed: 1,
        runs: u64::MAX,
        time: Duration::from_secs(10),
        scheduler: None,
        case: Duration::from_secs(60),
        shrink: Duration::from_secs(60),
        trials: u64::MAX,
        keep_going: false,
        plant: "none".to_owned(),
        file: None,
        folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/stress"),
    };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        if name == "--keep-going" {
            options.keep_going = true;
            continue;
        }
        let value = args.next().with_context(|| format!("{name} needs a value; stress has {KNOWN}"))?;
        let number = || value.parse().with_context(|| format!("{name} {value}: a whole number"));
        match name.as_str() {
            "--seed" => options.seed = number()?,
            "--runs" => {
                options.runs = number()?;
                options.time = Duration::MAX;
            }
            "--trials" => options.trials = number()?,
            "--for" => options.time = time(value)?,
            "--case" => options.case = time(value)?,
            "--shrink" => options.shrink = time(value)?,
            "--scheduler" => {
                registry::find(value)?;
                options.scheduler = Some(value.clone());
            }
            "--plant" => {
                planted::find(value)?;
                options.plant.clone_from(value);
            }
            "--file" => options.file = Some(PathBuf::from(value)),
            "--folder" => options.folder = PathBuf::from(value),
            other => bail!("stress has no option `{other}`: it has {KNOWN}"),
        }
    }
    Ok(options)
}

/// A time such as 10s, 5m or 1h.
pub(crate) fn time(value: &str) -> Result<Duration> {
    for (unit, seconds) in [("h", 3_600), ("m", 60)] {
        if let Some(count) = value.strip_suffix(unit).and_then(|count| count.parse::<u32>().ok()) {
            return Ok(Duration::from_secs(seconds * u64::from(count)));
        }
    }
    let time: Ns = value.parse().with_context(|| format!("{value}: a time such as 10s, 5m or 1h"))?;
    Ok(Duration::from_nanos(time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let parse = |text: &str| parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let options = parse("--seed 5 --for 10m --keep-going --plant forgets --case 2s").unwrap();
        assert_eq!((options.seed, options.time), (5, Duration::from_secs(600)));
        assert!(options.keep_going && options.planted().contains("forgets"));
        assert_eq!(options.case, Duration::from_secs(2));
        assert_eq!(parse("--runs 3").unwrap().runs, 3);
        assert!(parse("--sead 5").unwrap_err().to_string().contains("--seed N"));
        assert!(parse("--seed").unwrap_err().to_string().contains("needs a value"));
        assert!(parse("--plant everything").unwrap_err().to_string().contains("forgets"));
        for wrong in ["--for ten", "--scheduler linux-9", "--seed x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
