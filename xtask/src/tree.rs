//! The files of the tree and what cargo knows about its crates.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace that cargo runs this for; of the one that it was built in when cargo
/// does not run it. A `target` copied into another checkout must not look at the checkout that it
/// comes from.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().expect("xtask lies in the workspace").to_owned()
}

/// Every file that git tracks or would track, as a path from `root`, sorted. Without git (a source
/// archive) every file outside `target` and hidden folders.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let mut files: Vec<String> = match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect()
        }
        _ => walk(root, "")?,
    };
    files.retain(|file| root.join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

fn walk(root: &Path, below: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "target" || name.starts_with('.') {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            files.extend(walk(root, &path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// `cargo metadata` of the workspace, without the dependencies' own trees.
#[derive(Deserialize, Debug)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// One crate of the workspace.
#[derive(Deserialize, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// A dependency as its manifest states it.
#[derive(Deserialize, Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

/// A library, binary, test, bench or example.
#[derive(Deserialize, Debug)]
pub(crate) struct Target {
    pub(crate) src_path: PathBuf,
}

/// Asks cargo about the crates of the workspace at `root`.
pub(crate) fn metadata(root: &Path) -> Result<Metadata> {
    ask(root, &["--no-deps"])
}

/// The crates of the workspace and everything that they are built from on Linux.
pub(crate) fn everything(root: &Path) -> Result<Metadata> {
    ask(root, &["--filter-platform", "x86_64-unknown-linux-gnu"])
}

fn ask(root: &Path, args: &[&str]) -> Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(args)
        .current_dir(root)
        .output()
        .context("cargo metadata does not start")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata gave something unexpected")
}

/// `path` as a path from `root`, with `/`.
pub(crate) fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}
