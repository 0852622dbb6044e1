//! A folder of recordings and scenarios, each played under two schedulers and held to the same
//! gates: what a change of a scheduler is judged by before it lands.

use crate::StudyError;
use crate::compare::RowGate;
use crate::compare::request::CompareRequest;
use crate::gallery;
use crate::result::{Gated, Study};
use schedlab_scheduler::SchedulerSpec;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-ci/1";

/// What files of a folder are taken: recordings and scenarios.
const ENDS: [&str; 2] = ["slt", "toml"];

/// The JSON of `ci run`: what came of each file.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct CorpusResult {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The scheduler that is judged, with its knobs.
    pub scheduler: String,
    /// The scheduler that changes are counted from.
    pub against: String,
    /// The gates, as given.
    pub gates: Vec<String>,
    /// The files, by name.
    pub files: Vec<CorpusFile>,
}

/// What came of one file.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct CorpusFile {
    /// Its path below the folder.
    pub file: String,
    /// What came of all its gates together.
    pub outcome: FileOutcome,
    /// One entry for each gate and each of its subjects in this file.
    pub gates: Vec<Gated>,
    /// The verdict of the comparison; why there is none.
    pub message: String,
}

/// What came of the gates of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileOutcome {
    /// No condition is met.
    Passed,
    /// A condition is met.
    Failed,
    /// The data cannot carry a gate, or the recording does not replay well enough.
    CannotSay,
    /// No gate is about anything in it.
    NotCovered,
    /// It could not be read or compared.
    Error,
}

impl FileOutcome {
    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            FileOutcome::Passed => "passed",
            FileOutcome::Failed => "failed",
            FileOutcome::CannotSay => "cannot say",
            FileOutcome::NotCovered => "not covered",
            FileOutcome::Error => "error",
        }
    }

    fn of(study: &Study) -> FileOutcome {
        if study.failed() {
            FileOutcome::Failed
        } else if study.gates.is_empty() {
            FileOutcome::NotCovered
        } else if study.cannot_say() {
            FileOutcome::CannotSay
        } else {
            FileOutcome::Passed
        }
    }
}

impl CorpusResult {
    /// Returns how many files came out so.
    pub fn count(&self, outcome: FileOutcome) -> usize {
        self.files.iter().filter(|file| file.outcome == outcome).count()
    }
}

/// The schedulers, and the conditions that must not be met.
pub struct CorpusRequest {
    /// The scheduler that is judged.
    pub scheduler: SchedulerSpec,
    /// The scheduler that changes are counted from.
    pub against: SchedulerSpec,
    /// The conditions; those that name no row are about `scheduler`.
    pub gates: Vec<RowGate>,
    /// Seeds, length, threads.
    pub compare: CompareRequest,
}

/// Returns the recordings and scenarios below a folder, by name.
///
/// # Errors
/// It cannot be read, or has none.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, StudyError> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let failed =
            |error: std::io::Error| StudyError::Option(format!("{}: {error}", next.display()));
        for entry in std::fs::read_dir(&next).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Links are not followed: they may lead in a circle.
            let kind = entry.file_type().map_err(failed)?;
            let path = entry.path();
            let end = path.extension().and_then(|end| end.to_str());
            if kind.is_dir() {
                folders.push(path);
            } else if end.is_some_and(|end| ENDS.contains(&end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(StudyError::Option(format!(
            "{}: there is no recording (.slt) and no scenario (.toml) in it",
            folder.display()
        ))),
        false => Ok(found),
    }
}

/// Compares every file of a folder. `progress` is told how many are done.
///
/// # Errors
/// Both schedulers are the same, the folder cannot be read, or a gate is about nothing in any of
/// its files. A file that cannot be read or compared is an entry of the result.
pub fn run(
    folder: &Path,
    request: &CorpusRequest,
    progress: &dyn Fn(usize, usize),
) -> Result<CorpusResult, StudyError> {
    let CorpusRequest { scheduler, against, gates, compare } = request;
    let mut compare = compare.clone();
    compare.options.schedulers = vec![against.clone(), scheduler.clone()];
    compare.options.gates_where_found = true;
    let (own, theirs) = (scheduler.to_string(), against.to_string());
    if own == theirs {
        return Err(StudyError::Option(format!(
            "--scheduler and --against are both {own}: nothing would be compared"
        )));
    }
    let of_rows = |gate: &RowGate| gate.clone().about(&own, &theirs);
    compare.options.gates = gates.iter().map(of_rows).collect();
    let paths = files(folder)?;
    let mut all = Vec::new();
    for (done, path) in paths.iter().enumerate() {
        progress(done, paths.len());
        all.push(one(folder, path, &compare));
    }
    progress(paths.len(), paths.len());
    for gate in gates {
        let text = gate.to_string();
        let used = all.iter().any(|file| file.gates.iter().any(|gated| gated.gate == text));
        if !used && all.iter().all(|file| file.outcome != FileOutcome::Error) {
            return Err(StudyError::Option(format!(
                "--fail-if '{text}': no file of {} has what it is about",
                folder.display()
            )));
        }
    }
    Ok(CorpusResult {
        schema: SCHEMA,
        scheduler: own,
        against: theirs,
        gates: gates.iter().map(ToString::to_string).collect(),
        files: all,
    })
}

fn one(folder: &Path, path: &Path, compare: &CompareRequest) -> CorpusFile {
    let compared = path
        .to_str()
        .ok_or_else(|| StudyError::Option("its name is not UTF-8".to_owned()))
        .and_then(gallery::find)
        .and_then(|found| compare.read(found))
        .and_then(|input| compare.compare(&input, &|_, _| {}));
    let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
    match compared {
        Ok(study) => CorpusFile {
            file: name,
            outcome: FileOutcome::of(&study),
            message: format!("{} {}", study.verdict.outcome, study.verdict.certainty),
            gates: study.gates,
        },
        Err(error) => CorpusFile {
            file: name,
            outcome: FileOutcome::Error,
            gates: Vec::new(),
            message: error.to_string(),
        },
    }
}
