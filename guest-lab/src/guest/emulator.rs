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
}

impl Emulator {
    /// Fetches and unpacks what is missing.
    pub(super) fn get(store: &Store) -> Result<Emulator> {
        let tree = apt::unpacked(store, "emulator", "QEMU and busybox", &[SUITE], &PACKAGES)?;
        let emulator = Emulator { tree };
        emulator.version().context("QEMU does not start")?;
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
            at("usr/bin/qemu-system-x86_64"),
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
