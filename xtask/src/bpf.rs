//! `cargo xtask bpf`: builds the BPF objects from their sources and compares them with those that
//! are checked in.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, ExitCode};

/// The recorder, the scheduler of the sched_ext driver, and what tests of the simulator run under a
/// made-up kernel: source and object of each.
const PROGRAMS: [(&str, &str); 10] = [
    ("bpf/sched.bpf.c", "bpf/sched.bpf.o"),
    ("bpf/ext.bpf.c", "bpf/ext.bpf.o"),
    ("bpf/sim/kernel.bpf.c", "bpf/sim/kernel.bpf.o"),
    ("bpf/sim/fair.bpf.c", "bpf/sim/fair.bpf.o"),
    ("bpf/sim/central.bpf.c", "bpf/sim/central.bpf.o"),
    ("bpf/sim/trace.bpf.c", "bpf/sim/trace.bpf.o"),
    ("bpf/sim/faults.bpf.c", "bpf/sim/faults.bpf.o"),
    ("bpf/sim/missing.bpf.c", "bpf/sim/missing.bpf.o"),
    ("bpf/sim/log.bpf.c", "bpf/sim/log.bpf.o"),
    ("bpf/sim/release.bpf.c", "bpf/sim/release.bpf.o"),
];

/// Builds, compares, and with `--write` replaces the objects.
pub(crate) fn command(write: bool) -> Result<ExitCode> {
    let mut good = true;
    for (source, object) in PROGRAMS {
        good &= compare(&crate::tree::root(), source, object, write)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares one object, or writes it. False: it is not what its source gives.
fn compare(root: &Path, source: &str, object: &str, write: bool) -> Result<bool> {
    let built = build(root, source)?;
    let path = root.join(object);
    let kept = std::fs::read(&path).unwrap_or_default();
    let code = |bytes: &[u8]| sections(bytes).context("it is no ELF object");
    if kept == built {
        println!("{object} is what {source} gives, byte for byte ({} bytes)", built.len());
        return Ok(true);
    }
    if write {
        std::fs::write(&path, &built).with_context(|| format!("writing {object}"))?;
        println!("{object} written: {} bytes, {} before", built.len(), kept.len());
        return Ok(true);
    }
    // Another version of clang may order its type information differently; what the kernel runs
    // must be equal.
    if !kept.is_empty() && code(&kept)? == code(&built)? {
        println!(
            "{object} has the same programs and maps as {source} gives; its type information \
             differs ({})",
            version()
        );
        return Ok(true);
    }
    println!(
        "{object} is not what {source} gives with {}: run `cargo xtask bpf --write` and check it \
         in (it was built \
         with Debian clang 14.0.6)",
        version()
    );
    Ok(false)
}

fn version() -> String {
    let out = Command::new("clang").arg("--version").output();
    let text = out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("clang").to_owned()
}

fn build(root: &Path, source: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let (whole, stripped) = (folder.path().join("whole.o"), folder.path().join("stripped.o"));
    let target = [
        "-target",
        "bpf",
        "-mcpu=v3",
        "-g",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
    ];
    // Names of source files are kept as they are from the root: an object does not tell where it
    // was built.
    let here = "-fdebug-compilation-dir=.";
    let mut clang = Command::new("clang");
    // Relative names, so that the debug information does not depend on where the tree lies.
    clang.current_dir(root).args(target).arg(here).args(["-c", source, "-o"]).arg(&whole);
    run(&mut clang, "clang", "apt-get install clang libbpf-dev")?;
    let mut strip = Command::new("llvm-strip");
    strip.arg("-g").arg(&whole).arg("-o").arg(&stripped);
    run(&mut strip, "llvm-strip", "apt-get install llvm")?;
    Ok(std::fs::read(&stripped)?)
}

fn run(command: &mut Command, name: &str, how: &str) -> Result<()> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            bail!("{name} failed ({status}); the BPF programs need <bpf/bpf_helpers.h> ({how})")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "{name} is missing: it builds the BPF object ({how}). Nothing else of schedlab \
                 needs it"
            )
        }
        Err(error) => Err(error).context(name.to_owned()),
    }
}

/// Name and content of the sections that the kernel runs or that describe maps (little-endian ELF
/// of 64 bits).
fn sections(elf: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let number = |at: usize, bytes: usize| {
        let part = elf.get(at..at + bytes)?;
        Some(part.iter().rev().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte)))
    };
    if elf.get(..4)? != b"\x7fELF" {
        return None;
    }
    let (table, size, count, names) =
        (number(40, 8)?, number(58, 2)?, number(60, 2)?, number(62, 2)?);
    let header = |index: usize| {
        let at = table + index * size;
        Some((number(at, 4)?, number(at + 24, 8)?, number(at + 32, 8)?))
    };
    let (_, strings, _) = header(names)?;
    let mut found = Vec::new();
    for index in 1..count {
        let (name, offset, length) = header(index)?;
        let name = elf.get(strings + name..)?.split(|&byte| byte == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        let kept = [".text", "syscall", ".struct_ops.link", ".maps", ".rodata", "license"];
        let program = ["tp_btf/", "struct_ops"].iter().any(|kind| name.starts_with(kind));
        if program || kept.contains(&name.as_str()) {
            found.push((name, elf.get(offset..offset + length).unwrap_or_default().to_vec()));
        }
    }
    found.sort();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With clang: the object is what the source gives. Without: said by name; in CI it must be
    /// there.
    #[test]
    #[allow(clippy::print_stderr)]
    fn the_objects_are_those_of_their_sources() {
        let root = crate::tree::root();
        let programs = [
            ("tp_btf/sched_switch", 100),
            ("struct_ops/ext_enqueue", 100),
            (".text", 100),
            ("struct_ops/fair_enqueue", 100),
            ("struct_ops/central_init", 100),
            ("struct_ops/trace_enqueue", 100),
            ("struct_ops/faults_enqueue", 100),
            ("struct_ops/missing_dispatch", 16),
            ("struct_ops/log_enqueue", 100),
            ("struct_ops/release_enqueue", 16),
        ];
        assert_eq!(programs.len(), PROGRAMS.len());
        for ((source, object), (program, bytes)) in PROGRAMS.into_iter().zip(programs) {
            let kept = std::fs::read(root.join(object)).unwrap();
            let has = |(name, code): &(String, Vec<u8>)| name == program && code.len() >= bytes;
            assert!(sections(&kept).unwrap().iter().any(has), "{object} has no {program}");
            match build(&root, source) {
                Ok(built) => {
                    assert_eq!(sections(&kept), sections(&built), "run `cargo xtask bpf --write`")
                }
                Err(error) => {
                    assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "{error}");
                    eprintln!("SKIPPED the_objects_are_those_of_their_sources, {source}: {error}");
                }
            }
        }
    }
}
