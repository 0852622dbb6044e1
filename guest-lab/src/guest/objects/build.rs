//! Objects of sched_ext schedulers for the guests: the kernel's samples (tools/sched_ext of
//! Debian's source package) and some of scx (their crates), compiled by Debian's clang, and the
//! program that loads them there. Nothing of it is kept in the tree.

use crate::guest::apt::{self, Apt};
use crate::guest::kernels::{self, Kernel, natural};
use crate::guest::store::Store;
use crate::guest::{foreign, is_installed};
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The compiler: scx_simple and scx_qmap of 7.2 need a later one than clang 14. It runs with its
/// own libraries, on any distribution.
const CLANG: &str = "clang-22";
const CLANG_SUITES: [&str; 2] = ["bookworm", "bookworm-security"];
/// The crates of schedulers, and of what they include. Newer ones may ask for more than the
/// simulator has: a version is taken on purpose.
const CRATES: [(&str, &str); 4] = [
    ("scx_bpfland", "=1.1.4"),
    ("scx_flash", "=1.1.4"),
    ("scx_beerland", "=1.1.4"),
    ("scx_cargo", "=1.1.4"),
];
/// What is built beside objects: the program that loads them.
pub(super) const LOADER: &str = "scx";

/// A compiler for BPF, and what it includes.
struct Clang {
    tree: PathBuf,
    includes: Vec<PathBuf>,
}

impl Clang {
    fn get(store: &Store) -> Result<Clang> {
        let what = "clang and its libraries";
        let tree = apt::unpacked(store, "clang", what, &CLANG_SUITES, &[CLANG])?;
        Ok(Clang { tree, includes: Vec::new() })
    }

    fn compile(&self, source: &Path, folders: &[PathBuf], object: &Path) -> Result<()> {
        let at = |path: &str| self.tree.join(path);
        let llvm = at("usr/lib/llvm-22");
        let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(at);
        let libraries =
            libraries.into_iter().chain([llvm.join("lib")]).map(|path| path.display().to_string());
        let mut clang = Command::new(at("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
        clang.arg("--library-path").arg(libraries.collect::<Vec<_>>().join(":"));
        clang.arg(llvm.join("bin/clang")).arg("-resource-dir").arg(llvm.join("lib/clang/22"));
        // As the kernel's makefile and scx have them.
        clang.args([
            "-g",
            "-O2",
            "-mcpu=v3",
            "-target",
            "bpf",
            "-mlittle-endian",
            "-D__TARGET_ARCH_x86",
        ]);
        clang.args(["-fms-extensions", "-w"]);
        folders.iter().chain(&self.includes).for_each(|folder| {
            clang.arg("-I").arg(folder);
        });
        for folder in ["usr/include/x86_64-linux-gnu", "usr/include"] {
            clang.arg("-idirafter").arg(at(folder));
        }
        clang.arg("-c").arg(source).arg("-o").arg(object);
        succeed(&mut clang, &format!("clang {}", source.display()))
    }
}

fn succeed(command: &mut Command, what: &str) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| what.to_owned())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let errors = said.lines().filter(|line| line.contains("error") || line.contains("rror:"));
        bail!("{what} failed: {}", errors.take(3).collect::<Vec<_>>().join("; "));
    }
    Ok(())
}

/// The folder with every object for this kernel (`NAME.bpf.o`) and the loader, built when it is not
/// there yet.
pub(super) fn built(store: &Store, kernel: &Kernel) -> Result<PathBuf> {
    let folder = store.folder(&format!("objects/{}", kernel.release))?;
    let done = folder.join("built");
    if !done.exists() {
        foreign::builders()?;
        ensure!(is_installed("cargo"), "cargo is missing: it fetches the crates of schedulers");
        let work = folder.join("work");
        if work.exists() {
            std::fs::remove_dir_all(&work)?;
        }
        build(store, kernel, &folder, &work)?;
        std::fs::remove_dir_all(work)?;
        std::fs::write(done, "")?;
    }
    loader(&folder)?;
    Ok(folder)
}

fn build(store: &Store, kernel: &Kernel, folder: &Path, work: &Path) -> Result<()> {
    let version = kernels::version_name(&kernel.release).context("a kernel without a version")?;
    let version = version.trim_end_matches("-rt").to_owned();
    let apt = Apt::open(&store.folder("apt-kernels")?, &kernels::SUITES)?;
    let source = format!("linux-source-{version}");
    let types = "linux-bpf-dev";
    let of_types = apt.versions(types)?;
    let of_types = of_types.iter().filter(|one| one.starts_with(&format!("{version}.")));
    let newest = of_types.max_by(|a, b| natural(a, b));
    let newest = newest.with_context(|| format!("Debian has no {types} of {version}"))?;
    for (package, wanted) in
        [(source.as_str(), source.clone()), (types, format!("{types}={newest}"))]
    {
        let file = store.fetching(package, || apt.download(&wanted))?;
        apt::unpack(&file, work, &[])?;
        std::fs::remove_file(file)?;
    }
    foreign::unpack(work, &source, &foreign::READ)?;
    let tree = work.join(&source);
    let mut clang = Clang::get(store)?;
    let libbpf = folder.join("libbpf");
    std::fs::create_dir_all(&libbpf)?;
    let mut make = Command::new("make");
    make.arg("-s").arg("-j2").arg("-C").arg(tree.join("tools/lib/bpf"));
    make.arg(format!("OUTPUT={}/", libbpf.display()));
    make.arg(format!("DESTDIR={}", libbpf.display())).args(["prefix=", "all", "install_headers"]);
    succeed(&mut make, "make libbpf")?;
    copy_types(&tree.join("tools/include/uapi"), &libbpf.join("uapi"))?;
    let headers = work.join("usr/include/x86_64-linux-gnu/linux/bpf");
    clang.includes = vec![headers, libbpf.join("include"), tree.join("tools/include/uapi")];
    samples(&clang, &tree, folder)?;
    crates(&clang, work, folder)
}

/// Keeps what the loader includes of the kernel's types.
fn copy_types(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to.join("linux"))?;
    for name in ["linux/bpf.h", "linux/bpf_common.h", "linux/btf.h"] {
        std::fs::copy(from.join(name), to.join(name)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// The kernel's samples that this version has.
fn samples(clang: &Clang, tree: &Path, folder: &Path) -> Result<()> {
    let at = tree.join("tools/sched_ext");
    let includes = ["include", "include/bpf-compat"].map(|name| at.join(name));
    for entry in std::fs::read_dir(&at).context("tools/sched_ext")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".bpf.c") else { continue };
        clang.compile(&path, &includes, &folder.join(format!("{name}.bpf.o")))?;
    }
    Ok(())
}

/// Schedulers of scx: the BPF half of their crates.
fn crates(clang: &Clang, work: &Path, folder: &Path) -> Result<()> {
    let project = work.join("crates");
    std::fs::create_dir_all(project.join("src"))?;
    std::fs::write(project.join("src/lib.rs"), "")?;
    let wanted = CRATES.map(|(name, version)| format!("{name} = \"{version}\"\n")).concat();
    let manifest = format!(
        "[package]\nname = \"fetched\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n\
         [dependencies]\n{wanted}"
    );
    std::fs::write(project.join("Cargo.toml"), manifest)?;
    // `cargo metadata` leaves out crates without a library, which most of these are; fetched they
    // are, into cargo's own folder.
    let mut cargo = Command::new("cargo");
    cargo.args(["fetch", "--quiet"]).current_dir(&project);
    succeed(&mut cargo, "cargo fetch")?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registries = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let at = |name: &str| -> Result<PathBuf> {
        let (_, version) = CRATES.iter().find(|(known, _)| *known == name).context("no crate")?;
        let folder = format!("{name}-{}", version.trim_start_matches('='));
        for registry in std::fs::read_dir(&registries).context("cargo's crates")? {
            let path = registry?.path().join(&folder);
            if path.is_dir() {
                return Ok(path);
            }
        }
        bail!("{folder} was not fetched")
    };
    let headers = at("scx_cargo")?.join("bpf_h");
    let includes = ["", "scx", "bpf-compat"].map(|name| headers.join(name));
    for (name, _) in CRATES.iter().filter(|(name, _)| *name != "scx_cargo") {
        let source = at(name)?.join("src/bpf/main.bpf.c");
        clang.compile(&source, &includes, &folder.join(format!("{name}.bpf.o")))?;
    }
    Ok(())
}

/// Builds the loader anew: its source is in the tree.
fn loader(folder: &Path) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(folder.join(LOADER));
    cc.arg(root().join("guest-lab/guest/scx.c"));
    for include in ["include", "uapi"] {
        cc.arg("-I").arg(folder.join("libbpf").join(include));
    }
    cc.arg(folder.join("libbpf/libbpf.a")).args(["-lelf", "-lz"]);
    succeed(&mut cc, "cc scx.c")
}
