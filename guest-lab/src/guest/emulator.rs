//! QEMU and busybox from Debian, with every library that they need, in a folder of their own: they
//! run beside any set of installed packages.

use super::apt;
use super::store::Store;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suite whose QEMU is taken: 10.0, whose virtual clock was found to be reproducible.
const SUITE: &str = "trixie";
const PACKAGES: [&str; 2] = ["qemu-system-x86", "busybox-static"];

/// Where QEMU is, and how to start it.
pub(super) struct Emulator {
    tree: PathBuf,
    /// QEMU itself.
    program: PathBuf,
}

impl Emulator {
    /// Fetches and unpacks what is missing.
    pub(super) fn get(store: &Store) -> Result<Emulator> {
        let tree = apt::unpacked(store, "emulator", "QEMU and busybox", &[SUITE], &PACKAGES)?;
        let program = tree.join("usr/bin/qemu-system-x86_64");
        let emulator = Emulator { tree, program };
        emulator.version().context("QEMU does not start")?;
        Ok(emulator)
    }

    /// The same QEMU, built so that CPUs can run in lockstep.
    pub(super) fn in_lockstep(self, store: &Store) -> Result<Emulator> {
        // "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)"
        let said = self.version()?;
        let version = said.rsplit_once("(Debian ").and_then(|(_, rest)| rest.strip_suffix(')'));
        let version = version.with_context(|| format!("no version of Debian in `{said}`"))?;
        let emulator = Emulator { program: super::lockstep::get(store, SUITE, version)?, ..self };
        emulator.version().context("the QEMU that was built does not start")?;
        Ok(emulator)
    }

    /// What QEMU says about itself.
    pub(super) fn version(&self) -> Result<String> {
        let words = self.command();
        let output = Command::new(&words[0]).args(&words[1..]).arg("--version").output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = text.lines().next().filter(|_| output.status.success());
        first.map(str::to_owned).context(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The words that start QEMU: its own loader with its own libraries.
    pub(super) fn command(&self) -> Vec<String> {
        let at = |path: &str| self.tree.join(path).display().to_string();
        vec![
            at("usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path".to_owned(),
            at("usr/lib/x86_64-linux-gnu"),
            self.program.display().to_string(),
            "-L".to_owned(),
            at("usr/share/qemu"),
            "-L".to_owned(),
            at("usr/share/seabios"),
        ]
    }

    /// The static busybox.
    pub(super) fn busybox(&self) -> PathBuf {
        self.tree.join("usr/bin/busybox")
    }
}

/// The names of the programs that a busybox is.
pub(super) fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox)
        .arg("--list")
        .output()
        .with_context(|| busybox.display().to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
