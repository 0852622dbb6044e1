//! Where published figures come from, and what was checked against recordings of the real systems.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// A paper, an article, a talk, or code that was run.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// As `published_in` names it.
    pub id: String,
    /// What its figures are.
    pub kind: SourceKind,
    /// Authors, title, venue and year, or what of them is not known.
    pub title: String,
    /// The machine, and what is known of the conditions.
    pub about: String,
    /// Published figures that are in no scenario, and why.
    #[serde(default)]
    pub lost: Vec<String>,
}

/// What the figures of a source are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Figures of a machine that this project never had.
    Paper,
    /// Figures of the real scheduler's code, which this project ran.
    RealCode,
}

/// A comparison with recordings of a real system (`oracles/`).
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The real system.
    pub system: String,
    /// What is compared.
    pub compared: String,
    /// How many of them are equal, or inside the tolerance.
    pub inside: u64,
    /// Of how many.
    pub all: u64,
    /// What these are: `decisions`, `scenarios`.
    pub unit: String,
    /// In how many scenarios or recordings.
    pub scenarios: u64,
    /// What repeats it.
    pub command: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: Vec<Source>,
}

/// Every source, in the order of the file.
pub fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    // The file is a part of the program; a test reads it.
    SOURCES.get_or_init(|| {
        toml::from_str(include_str!("sources.toml")).map_or(Vec::new(), |file: File| file.source)
    })
}

/// What was checked, in the order of the file, which `cargo xtask checked` makes.
pub fn checks() -> &'static [Check] {
    static CHECKS: OnceLock<Vec<Check>> = OnceLock::new();
    CHECKS.get_or_init(|| {
        serde_json::from_str(include_str!("../../../../oracles/checked.json")).unwrap_or_default()
    })
}

/// The source of this name.
pub(super) fn find(id: &str) -> Option<&'static Source> {
    sources().iter().find(|source| source.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_of_the_program_are_read() {
        let ids: std::collections::BTreeSet<&str> =
            sources().iter().map(|one| one.id.as_str()).collect();
        assert!(ids.len() == sources().len() && ids.contains("smp-paper"), "{ids:?}");
        for source in sources().iter().filter(|source| source.kind == SourceKind::Paper) {
            let has_year = source.title.contains(" 20") || source.title.contains("not known");
            assert!(source.title.len() > 40 && has_year, "a reader cannot find {:?}", source.title);
        }
        assert!(checks().len() >= 10 && checks().iter().all(|check| check.inside <= check.all));
    }
}
