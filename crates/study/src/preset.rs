//! The cost preset of this machine: reads the file that `schedlab calibrate` writes
//! (`docs/calibration.md`) and gives the simulator's prices.

use schedlab_model::text::nearest;
use schedlab_model::{FULL_SPEED, LEAST_SMT_YIELD, Ns};
use schedlab_sim::Costs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name by which scenarios and commands ask for it.
pub const THIS_MACHINE: &str = "this-machine";
/// Version of the file and of the JSON.
pub const SCHEMA: &str = "schedlab-calibration/1";
/// The largest calibration that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Why there is no such cost preset, or why it cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PresetError(String);

/// A calibration as it is kept.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Preset {
    /// [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Medians of what was measured: nanoseconds, and a count (`hot_lines`).
    pub costs: BTreeMap<String, f64>,
    /// Prices of the simulator, nanoseconds, as they follow from `costs`.
    pub simulator: BTreeMap<String, u64>,
    /// How sure each of `costs` is.
    #[serde(default)]
    pub spread: BTreeMap<String, Sure>,
    /// What could not be measured here, and why.
    #[serde(default)]
    pub lacks: BTreeMap<String, String>,
}

/// Where a calibration comes from.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Provenance {
    /// Release and version of the kernel.
    pub kernel: String,
    /// The CPU's name for itself.
    pub cpu: String,
    /// CPUs on line.
    pub cpus: usize,
    /// Ticks a second.
    pub hz: u32,
    /// It runs under a hypervisor.
    pub virtual_machine: bool,
    /// When, UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Version of schedlab.
    pub schedlab: String,
    /// Part of the measured CPUs' time that other programs had, 0 to 1.
    pub foreign: f64,
    /// How long it took, seconds.
    pub seconds: f64,
}

/// How sure a median is.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Sure {
    /// 95 % interval of the median over rounds.
    pub low_ns: f64,
    /// See `low_ns`.
    pub high_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Samples.
    pub count: u64,
    /// Rounds.
    pub rounds: u32,
}

impl Preset {
    /// Prices for a run.
    pub fn prices(&self) -> Costs {
        let mut costs = Costs::default();
        for (name, ns) in &self.simulator {
            // Knobs that this version does not know any more are left out when the file is read.
            costs.set(name, Ns(*ns));
        }
        costs.hot_lines = self.costs.get("hot_lines").map_or(0, |lines| *lines as u32);
        costs
    }

    /// Returns at what part of its speed a hardware thread runs beside a busy one of its core, in
    /// thousandths; `None`: it was not measured.
    pub fn smt_yield(&self) -> Option<u16> {
        let of = |name: &str| self.costs.get(name).copied().filter(|ns| *ns > 0.0);
        let part = of("loop_alone_ns")? / of("loop_beside_ns")?;
        Some((part * 1e3).round().clamp(f64::from(LEAST_SMT_YIELD), f64::from(FULL_SPEED)) as u16)
    }

    /// Reads a file that `schedlab calibrate` wrote.
    ///
    /// # Errors
    /// The file cannot be read, or is none of these; the message says what to do.
    pub fn read(path: &Path) -> Result<Preset, PresetError> {
        let again = "run `schedlab calibrate` to make a new one";
        let refuse = |why: String| PresetError(format!("{}: {why}; {again}", path.display()));
        let text = schedlab_files::read_to_string(path, MAX_BYTES).map_err(|error| match error
            .kind()
        {
            std::io::ErrorKind::NotFound => PresetError(format!(
                "there is no cost preset \"{THIS_MACHINE}\" yet ({} does not exist): run \
                 `schedlab calibrate`, which \
                 measures this machine in some seconds",
                path.display()
            )),
            _ => refuse(error.to_string()),
        })?;
        let preset: Preset = toml::from_str(&text)
            .map_err(|error| refuse(format!("not a calibration: {}", error.message())))?;
        if preset.schema != SCHEMA {
            return Err(refuse(format!(
                "schema {:?}, this schedlab reads {SCHEMA:?}",
                preset.schema
            )));
        }
        let longest = 1_000_000_000;
        if let Some((name, _)) = preset.simulator.iter().find(|(_, ns)| **ns > longest) {
            return Err(refuse(format!("{name} is longer than 1 s")));
        }
        if let Some((name, _)) =
            preset.costs.iter().find(|(_, cost)| !cost.is_finite() || **cost < 0.0)
        {
            return Err(refuse(format!("{name} is not a cost")));
        }
        Ok(preset)
    }
}

/// Where the file lies unless told otherwise: `$XDG_DATA_HOME/schedlab/this-machine.toml`, by
/// default below `~/.local/share`. `None`: there is no home.
pub fn path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let data = data.or_else(|| Some(set("HOME")?.join(".local/share")))?;
    Some(data.join("schedlab").join("this-machine.toml"))
}

/// The calibration of this machine.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn this_machine() -> Result<Preset, PresetError> {
    let path = path().ok_or_else(|| {
        PresetError(format!(
            "the cost preset \"{THIS_MACHINE}\" has no place: set HOME or XDG_DATA_HOME"
        ))
    })?;
    Preset::read(&path)
}

/// The calibration of this machine, if one is kept.
///
/// # Errors
/// There is one that cannot be read: it is not passed over in silence.
pub fn kept() -> Result<Option<Preset>, PresetError> {
    path().filter(|path| path.exists()).map(|path| Preset::read(&path)).transpose()
}

/// The speed of a hardware thread beside a busy one that comes with a cost preset: a calibration
/// may have measured it.
///
/// # Errors
/// As for [`costs`].
pub fn smt_yield(name: &str) -> Result<Option<u16>, PresetError> {
    if name == THIS_MACHINE { Ok(this_machine()?.smt_yield()) } else { Ok(None) }
}

/// The cost preset of any name, `this-machine` too.
///
/// # Errors
/// No such preset, or no calibration.
pub fn costs(name: &str) -> Result<Costs, PresetError> {
    if name == THIS_MACHINE {
        return Ok(this_machine()?.prices());
    }
    Costs::preset(name).ok_or_else(|| {
        let known = || Costs::presets().chain([THIS_MACHINE]);
        let hint = nearest(name, known())
            .map_or(String::new(), |right| format!(" (did you mean \"{right}\"?)"));
        let all: Vec<&str> = known().collect();
        PresetError(format!(
            "there is no cost preset \"{name}\"{hint}: use one of {}",
            all.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_preset_is_told_the_others() {
        let message = costs("this-machin").unwrap_err().to_string();
        assert!(
            message.contains("(did you mean \"this-machine\"?): use one of free, ")
                && message.contains("modern-vm"),
            "{message}"
        );
    }
}
