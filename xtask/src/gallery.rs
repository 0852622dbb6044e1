//! `cargo xtask gallery`: the hash of the events of every scenario, which a test compares with what
//! it plays.

use crate::tree;
use anyhow::{Context, Result};
use schedlab_study::compare::{Options, compare_scenario};
use schedlab_study::gallery;
use std::process::ExitCode;

/// `NAME HASH` a line.
const FILE: &str = "crates/cli/tests/gallery-hashes.txt";

pub(crate) fn command() -> Result<ExitCode> {
    let mut text = String::new();
    for (name, _) in gallery::built_in() {
        let scenario = gallery::load(name).with_context(|| (*name).to_owned())??;
        let study = compare_scenario(&scenario, &Options::default(), &|_, _| {})?;
        text += &format!("{name} {}\n", study.events_hash());
    }
    std::fs::write(tree::root().join(FILE), text).context(FILE)?;
    println!("wrote {FILE}");
    Ok(ExitCode::SUCCESS)
}
