//! Objects of sched_ext schedulers for the guests: the kernel's samples (tools/sched_ext of
//! Debian's source package) and some of scx (their crates), compiled by Debian's clang, and the
//! program that loads them there. Nothing of it is kept in the tree.

use crate::guest::apt::{self, Apt};
use crate::guest::kernels::{self, Kernel, natural};
use crate::guest::store::Store;
use crate::guest::{foreign, is_installed};
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The compiler: scx_simple and scx_qmap of 7.2 need a later one than clang 14. It runs with its
/// own libraries, on any distribution.
const CLANG: &str = "clang-22";
const CLANG_SUITES: [&str; 2] = ["bookworm", "bookworm-security"];
/// The crates of schedulers, and of what they include. Newer ones may ask for more than the
/// simulator has: a version is taken on purpose.
const CRATES: [(&str, &str); 10] = [
    ("scx_bpfland", "=1.1.4"),
    ("scx_flash", "=1.1.4"),
    ("scx_beerland", "=1.1.4"),
    ("scx_cosmos", "=1.1.7"),
    ("scx_rusty", "=1.1.4"),
    ("scx_tickless", "=1.1.4"),
    ("scx_p2dq", "=1.1.4"),
    ("scx_layered", "=1.1.4"),
    ("scx_lavd", "=1.1.4"),
    (HEADERS, "=1.1.4"),
];
/// The crate with the headers of all.
const HEADERS: &str = "scx_cargo";
/// Flags of the kernel's makefile (tools/sched_ext/Makefile of 7.2).
const OF_KERNEL: &[&str] = &["-mcpu=v3", "-D__TARGET_ARCH_x86"];
/// Flags of scx (`ClangInfo::determine_base_cflags` and `BpfBuilder::new` of scx_cargo 1.1.4).
const OF_SCX: &[&str] = &[
    "-mcpu=v4",
    "-mllvm",
    "-disable-ldsx",
    "-mllvm",
    "-disable-gotox",
    "-D__TARGET_ARCH_x86",
    "-D__SCX_TARGET_ARCH_x86",
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

    fn compile(
        &self,
        source: &Path,
        folders: &[PathBuf],
        flags: &[&str],
        object: &Path,
    ) -> Result<()> {
        let at = |path: &str| self.tree.join(path);
        let llvm = at("usr/lib/llvm-22");
        let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(at);
        let libraries =
            libraries.into_iter().chain([llvm.join("lib")]).map(|path| path.display().to_string());
        let mut clang = Command::new(at("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
        clang.arg("--library-path").arg(libraries.collect::<Vec<_>>().join(":"));
        clang.arg(llvm.join("bin/clang")).arg("-resource-dir").arg(llvm.join("lib/clang/22"));
        clang.args(["-g", "-O2", "-target", "bpf", "-mlittle-endian"]).args(flags);
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
    // Other crates, or other flags of them: everything is built anew.
    let (done, wanted) = (folder.join("built"), format!("{CRATES:?} {OF_KERNEL:?} {OF_SCX:?}\n"));
    if std::fs::read_to_string(&done).ok().as_deref() != Some(&*wanted) {
        foreign::builders()?;
        ensure!(is_installed("cargo"), "cargo is missing: it fetches the crates of schedulers");
        let work = folder.join("work");
        if work.exists() {
            std::fs::remove_dir_all(&work)?;
        }
        build(store, kernel, &folder, &work)?;
        std::fs::remove_dir_all(work)?;
        std::fs::write(done, wanted)?;
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
    // It links objects, too.
    loader(folder)?;
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
        clang.compile(&path, &includes, OF_KERNEL, &folder.join(format!("{name}.bpf.o")))?;
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
    let headers = at(HEADERS)?.join("bpf_h");
    let includes = ["", "scx", "bpf-compat"].map(|name| headers.join(name));
    for (name, _) in CRATES.iter().filter(|(name, _)| *name != HEADERS) {
        scheduler(clang, (name, &at(name)?), &includes, (work, folder))?;
    }
    Ok(())
}

/// Compiles and links the sources that a crate's build script names, in its order
/// (`BpfBuilder::add_source` keeps them sorted).
fn scheduler(
    clang: &Clang,
    (name, at): (&str, &Path),
    includes: &[PathBuf],
    (work, folder): (&Path, &Path),
) -> Result<()> {
    let script = at.join("build.rs");
    let text = std::fs::read_to_string(&script).with_context(|| script.display().to_string())?;
    let sources: BTreeSet<&str> = sources(&text).collect();
    ensure!(!sources.is_empty(), "{} names no source in BPF", script.display());
    let parts = work.join("objects").join(name);
    std::fs::create_dir_all(&parts)?;
    let mut link = Command::new(folder.join(LOADER));
    let object = folder.join(format!("{name}.bpf.o"));
    link.arg("link").arg(&object);
    for (number, source) in sources.iter().enumerate() {
        let part = parts.join(format!("{number}.o"));
        clang.compile(&at.join(source), includes, OF_SCX, &part)?;
        link.arg(part);
    }
    succeed(&mut link, &format!("linking {name}"))
}

/// The files `*.bpf.c` in a build script.
fn sources(script: &str) -> impl Iterator<Item = &str> {
    let code = script.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split('"')).filter(|text| text.ends_with(".bpf.c"))
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

#[cfg(test)]
mod tests {
    use super::sources;

    #[test]
    fn sources_are_those_of_the_build_script() {
        let script = [
            r#"// "src/old.bpf.c""#,
            r#".enable_intf("src/bpf/intf.h", "bpf_intf.rs")"#,
            r#".enable_skel("src/bpf/main.bpf.c", "bpf")"#,
            r#".add_source("src/bpf/lib/pmu.bpf.c")"#,
        ];
        let script = script.join("\n    ");
        let found: Vec<&str> = sources(&script).collect();
        assert_eq!(found, ["src/bpf/main.bpf.c", "src/bpf/lib/pmu.bpf.c"]);
    }
}
