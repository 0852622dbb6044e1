//! The test programs of the workspace, built as `cargo test --workspace` builds them, and run one
//! by one: `cargo test -p CRATE` would build the dependencies again with fewer features.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Programs by the crate's name and the kind of the target: `lib` or `test`; `program`: what is
/// tested itself.
pub(crate) struct Built(BTreeMap<(String, String), Program>);

struct Program {
    path: PathBuf,
    /// Where cargo runs it: the folder of its crate.
    folder: PathBuf,
}

impl Built {
    /// Builds all test programs.
    pub(crate) fn all() -> Result<Built> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
        let output = cargo.stderr(Stdio::inherit()).output().context("cargo cannot be started")?;
        if !output.status.success() {
            bail!("the tests cannot be built ({})", output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(Built(text.lines().filter_map(program).collect()))
    }

    fn find(&self, package: &str, kind: &str) -> Result<&Program> {
        let key = (package.to_owned(), kind.to_owned());
        self.0.get(&key).with_context(|| format!("{package} has no {kind}"))
    }

    /// Returns the program of a crate.
    pub(crate) fn program(&self, package: &str) -> Result<Command> {
        Ok(Command::new(&self.find(package, "program")?.path))
    }

    /// Returns the command that runs one test of a crate, by its whole name.
    pub(crate) fn test(&self, package: &str, kind: &str, test: &str) -> Result<Command> {
        let program = self.find(package, kind)?;
        let listed = Command::new(&program.path).args([test, "--exact", "--list"]).output()?;
        if !String::from_utf8_lossy(&listed.stdout).contains(&format!("{test}: test")) {
            bail!("{package} has no test {test}");
        }
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
        command.args([test, "--exact", "--nocapture"]);
        Ok(command)
    }
}

/// What a line of cargo says about a test program.
fn program(line: &str) -> Option<((String, String), Program)> {
    let said: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = PathBuf::from(said["executable"].as_str()?);
    let kind = said["target"]["kind"][0].as_str()?;
    let manifest = PathBuf::from(said["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    let kind = if said["profile"]["test"].as_bool()? { kind } else { "program" };
    // A crate may have other test programs beside the one of its integration tests.
    if kind == "test" && said["target"]["name"] != "it" {
        return None;
    }
    let package = said["package_id"].as_str()?.split('#').next_back()?.split('@').next()?;
    // Of a crate whose folder has its name the id has the version alone.
    let package = match package.starts_with(|first: char| first.is_ascii_digit()) {
        true => folder.file_name()?.to_str()?,
        false => package,
    };
    Some(((package.to_owned(), kind.to_owned()), Program { path, folder }))
}
