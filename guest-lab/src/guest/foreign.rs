//! A sched_ext scheduler that is not schedlab's: one of the kernel's own examples
//! (tools/sched_ext), built from the kernel's source package for the guest of the same version.
//! Nothing of it is kept in the tree.

use super::apt::{self, Apt};
use super::cpio::Archive;
use super::kernels::{self, Kernel};
use super::store::Store;
use super::{image, is_installed};
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The example: it queues every task on CPU 0, which no kernel would do and no reader of a
/// recording can miss. It is one of those that clang 14 builds (scx_simple and scx_qmap need a
/// later one).
const EXAMPLE: &str = "scx_cpu0";
/// What of the source the example's makefile reads: itself, libbpf and bpftool, which it builds
/// first.
pub(super) const READ: [&str; 6] =
    ["tools", "include", "scripts", "arch/x86/include", "kernel/bpf/disasm.[ch]", "Makefile"];
/// What builds it, and the package of Debian that has it.
const BUILDERS: [(&str, &str); 4] =
    [("make", "make"), ("clang", "clang"), ("python3", "python3"), ("xz", "xz-utils")];
const HEADERS: [(&str, &str); 2] = [("gelf.h", "libelf-dev"), ("zlib.h", "zlib1g-dev")];

/// The part of a guest's root with the example, its libraries, and the gate of
/// docs/guide/sched-ext.md.
pub(super) fn archive(store: &Store, kernel: &Kernel) -> Result<Vec<u8>> {
    let program = program(store, kernel)?;
    let mut archive = Archive::default();
    archive.folder("foreign");
    archive.file(&format!("foreign/{EXAMPLE}"), &image::read(&program)?);
    image::libraries(&program, &mut archive)?;
    let gate = root().join("docs/guide/sched-ext-gate.sh");
    archive.file("foreign/sched-ext-gate.sh", &image::read(&gate)?);
    Ok(archive.finish())
}

/// The example's program, built when it is not there yet.
fn program(store: &Store, kernel: &Kernel) -> Result<PathBuf> {
    let folder = store.folder(&format!("foreign/{}", kernel.release))?;
    let program = folder.join(EXAMPLE);
    if program.exists() {
        return Ok(program);
    }
    builders()?;
    let version = kernels::version_name(&kernel.release).context("a kernel without a version")?;
    let version = version.trim_end_matches("-rt");
    let apt = Apt::open(&store.folder("apt-kernels")?, &kernels::SUITES)?;
    let work = folder.join("work");
    let source = format!("linux-source-{version}");
    for package in [source.as_str(), "linux-bpf-dev"] {
        let file = store.fetching(package, || apt.download(package))?;
        apt::unpack(&file, &work, &[])?;
        std::fs::remove_file(file)?;
    }
    unpack(&work, &source, &READ)?;
    let types = work.join("usr/include/x86_64-linux-gnu/linux/bpf/vmlinux.h");
    let at = work.join(&source).join("tools/sched_ext");
    let made = Command::new("make")
        .args(["-j2", &format!("VMLINUX_H={}", types.display()), EXAMPLE])
        .current_dir(&at)
        .stdin(Stdio::null())
        .output()
        .context("make")?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        bail!(
            "{EXAMPLE} of {source} does not build: {}",
            last.into_iter().rev().collect::<Vec<_>>().join("; ")
        );
    }
    std::fs::copy(at.join("build/bin").join(EXAMPLE), &program).context("make left no program")?;
    std::fs::remove_dir_all(work)?;
    Ok(program)
}

/// Refuses a machine without what builds the kernel's examples.
pub(super) fn builders() -> Result<()> {
    let programs = BUILDERS.iter().filter(|(name, _)| !is_installed(name));
    let headers = HEADERS.iter().filter(|(name, _)| !Path::new("/usr/include").join(name).exists());
    let missing: Vec<&str> = programs.chain(headers).map(|(_, package)| *package).collect();
    ensure!(
        missing.is_empty(),
        "the kernel's example cannot be built: apt-get install {}",
        missing.join(" ")
    );
    Ok(())
}

/// Unpacks what is read of the source, which is packed in its package again.
pub(super) fn unpack(work: &Path, source: &str, read: &[&str]) -> Result<()> {
    let packed = work.join(format!("usr/src/{source}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--xz", "--wildcards", "--directory"])
        .arg(work)
        .arg("--file")
        .arg(&packed);
    tar.args(read.iter().map(|path| format!("{source}/{path}")));
    ensure!(tar.status().context("tar")?.success(), "{} cannot be unpacked", packed.display());
    Ok(())
}
