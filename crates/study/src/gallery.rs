//! The gallery: the scenarios of `scenarios/`, which are also built into the program, so that an
//! installed `schedlab` knows them.

use crate::StudyError;
use crate::scenario::{self, Scenario, ScenarioError};
use schedlab_model::text::nearest;
use schedlab_trace::import::formats::{self, Elsewhere, HEAD};
use std::io::Read;
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/gallery.rs"));

/// What `schedlab compare` is given.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// A scenario.
    Scenario(Box<Scenario>),
    /// A file that is not a scenario: a recording, or something foreign.
    Recording(PathBuf),
}

/// Names and texts of the built-in scenarios, by name.
pub fn built_in() -> &'static [(&'static str, &'static str)] {
    GALLERY
}

/// Reads a built-in scenario.
pub fn load(name: &str) -> Option<Result<Scenario, ScenarioError>> {
    let (name, text) = GALLERY.iter().find(|(known, _)| *known == name)?;
    Some(scenario::parse(name, &format!("scenarios/{name}.toml"), text))
}

/// Whether a file is an rt-app workload, by its first bytes.
pub fn is_rtapp(path: &Path) -> bool {
    kind(path) == Some(Elsewhere::RtApp)
}

/// What a file is by its first bytes, if it is no trace. A pipe can be read once: nothing is taken
/// from it here.
fn kind(path: &Path) -> Option<Elsewhere> {
    if !path.is_file() {
        return None;
    }
    let mut head = Vec::new();
    let read =
        schedlab_files::open(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
    read.ok().and_then(|_| formats::recognise(&head).elsewhere())
}

/// Finds what a user means: a file, else `scenarios/NAME.toml` below the current directory, else a
/// built-in scenario.
pub fn find(input: &str) -> Result<Found, StudyError> {
    let path = Path::new(input);
    if path.is_dir() {
        return Err(StudyError::Directory(format!(
            "{input} is a directory: name a recording (.slt) or a scenario (.toml) in it"
        )));
    }
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    if is_toml && path.exists() {
        return Ok(Found::Scenario(Box::new(scenario::load(path)?)));
    }
    match kind(path) {
        Some(Elsewhere::RtApp) => {
            return Ok(Found::Scenario(Box::new(crate::rtapp::load(path)?.scenario)));
        }
        Some(Elsewhere::Scenario) => return Ok(Found::Scenario(Box::new(scenario::load(path)?))),
        _ => {}
    }
    if path.exists() {
        return Ok(Found::Recording(path.to_owned()));
    }
    let plain = !input.contains(['/', '.']);
    let local = Path::new("scenarios").join(format!("{input}.toml"));
    if plain && local.is_file() {
        return Ok(Found::Scenario(Box::new(scenario::load(&local)?)));
    }
    if let Some(scenario) = load(input) {
        return Ok(Found::Scenario(Box::new(scenario?)));
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let hint = match nearest(&stem, GALLERY.iter().map(|(name, _)| *name)) {
        Some(right) => format!("did you mean the scenario `{right}`? "),
        None => String::new(),
    };
    let missing = if plain { StudyError::NoSuchInput } else { StudyError::NoSuchFile };
    Err(missing(format!(
        "{input}: no such file, and no scenario of that name; {hint}`schedlab list scenarios` \
         shows the gallery, \
         `schedlab record -o FILE.slt` makes a recording"
    )))
}
