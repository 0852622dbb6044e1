//! The first root of a guest: busybox, the program under test with its libraries, the loads, the
//! scripts.

use super::catalogue::Test;
use super::cpio::Archive;
use super::emulator::applets;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that are built for the guests, static.
const BUILT: [&str; 2] = ["load", "task"];

const FOLDERS: [&str; 14] = [
    "bin", "dev", "etc", "lib", "lib64", "out", "proc", "root", "run", "sbin", "sys", "tests",
    "tmp", "var",
];

/// The part that all guests share.
pub(super) fn base(tree: &Path, busybox: &Path, program: &Path, work: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    FOLDERS.iter().for_each(|folder| archive.folder(folder));
    archive.file("init", &read(&tree.join("guest-lab/guest/init.sh"))?);
    archive.file("lib.sh", &read(&tree.join("guest-lab/guest/lib.sh"))?);
    archive.file("bin/busybox", &read(busybox)?);
    for applet in applets(busybox)?.iter().filter(|name| *name != "busybox") {
        archive.link(&format!("bin/{applet}"), "/bin/busybox");
    }
    for name in BUILT {
        archive.file(&format!("bin/{name}"), &read(&compile(tree, name, work)?)?);
    }
    archive.file("bin/schedlab", &read(&stripped(program, work)?)?);
    libraries(program, &mut archive)?;
    Ok(archive.finish())
}

/// The part with the tests of one boot.
pub(super) fn tests(tree: &Path, tests: &[&Test]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    let mut list = String::new();
    for test in tests {
        let _ = writeln!(list, "{} {}", test.name, test.limit_s);
        archive.file(&format!("tests/{}.sh", test.name), test.script(tree)?.as_bytes());
    }
    archive.file("tests/list", list.as_bytes());
    Ok(archive.finish())
}

/// The part with one script in place of tests.
pub(super) fn script(text: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.file("tests/script.sh", text.as_bytes());
    archive.file("tests/list", b"script 3000\n");
    archive.finish()
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn compile(tree: &Path, name: &str, work: &Path) -> Result<PathBuf> {
    let (source, built) = (tree.join(format!("guest-lab/guest/{name}.c")), work.join(name));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o"]).arg(&built).arg(&source);
    succeed(&mut compiler, "cc", "apt-get install gcc libc6-dev")?;
    Ok(built)
}

/// The program without what only a debugger reads: a guest unpacks it into memory.
fn stripped(program: &Path, work: &Path) -> Result<PathBuf> {
    let to = work.join("schedlab");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&to).arg(program);
    succeed(&mut strip, "strip", "apt-get install binutils")?;
    Ok(to)
}

fn succeed(command: &mut Command, name: &str, how: &str) -> Result<()> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("{name} failed ({status})"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{name} is missing: it builds what guests run ({how})")
        }
        Err(error) => Err(error).context(name.to_owned()),
    }
}

/// Puts the shared libraries of the program where it will look for them.
pub(super) fn libraries(program: &Path, archive: &mut Archive) -> Result<()> {
    let output = Command::new("ldd").arg(program).output().context("ldd")?;
    ensure!(
        output.status.success(),
        "ldd {}: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let mut made: BTreeSet<String> = FOLDERS.iter().map(|&folder| folder.to_owned()).collect();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)`, or the loader's path alone.
        let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) else {
            continue;
        };
        let inside = path.trim_start_matches('/');
        for (at, _) in inside.match_indices('/') {
            if made.insert(inside[..at].to_owned()) {
                archive.folder(&inside[..at]);
            }
        }
        archive.file(inside, &read(Path::new(path))?);
    }
    Ok(())
}
