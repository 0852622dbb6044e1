//! `cargo xtask dist`: what a person installs, in one folder: the static program, a `.deb`, an
//! archive, a list of what is in it (SBOM) and checksums. The same commit gives the same bytes.

use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The one kind of machine that is built for. A second one needs its standard library
/// (`rustup target add`) and a C compiler for zstd and libbpf.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Where all of it is written. The list of files in crates/cli/Cargo.toml names it, too.
const OUT: &str = "target/dist";

/// Recordings with which `make demo` works; the packages bring them as examples.
const EXAMPLES: [&str; 3] = [
    "recordings/redis-other-other-closed8.slt",
    "recordings/redis-other-idle-closed8.slt",
    "recordings/redis-fifo-other-closed8.slt",
];

/// What belongs to the flight recorder, and where it goes.
const SERVICE: [(&str, &str); 8] = [
    ("contrib/systemd/schedlab-flight.service", "lib/systemd/system/schedlab-flight.service"),
    ("crates/lab/src/flight/example.toml", "share/doc/schedlab/examples/flight.toml"),
    ("contrib/flight/alertmanager.sh", "share/doc/schedlab/examples/alertmanager.sh"),
    ("contrib/flight/otlp.py", "share/doc/schedlab/examples/otlp.py"),
    ("contrib/k8s/flight.yaml", "share/doc/schedlab/examples/kubernetes.yaml"),
    ("contrib/prometheus/schedlab.rules.yml", "share/doc/schedlab/examples/schedlab.rules.yml"),
    ("contrib/prometheus/scrape.yml", "share/doc/schedlab/examples/scrape.yml"),
    ("contrib/grafana/schedlab.json", "share/doc/schedlab/examples/grafana.json"),
];

/// Folder and file of a shell's completions below `usr/share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/schedlab"),
    ("zsh", "zsh/vendor-completions/_schedlab"),
    ("fish", "fish/vendor_completions.d/schedlab.fish"),
];

/// Programs of cargo's that a chore calls, and what brings them.
const TOOLS: [(&str, &str); 2] = [("deb", "cargo-deb"), ("cyclonedx", "cargo-cyclonedx")];

/// Builds what a person installs: a static program, a .deb, an archive, an SBOM, checksums
#[derive(clap::Args)]
pub(crate) struct DistArgs {
    /// Install each into an empty root, run it there, remove it, and look for what is left (root)
    #[arg(long)]
    check: bool,
    /// Build a second time, in a clone of the commit in another folder, and compare every byte
    #[arg(long)]
    twice: bool,
}

pub(crate) fn command(args: &DistArgs) -> Result<ExitCode> {
    let root = tree::root();
    for (name, package) in TOOLS {
        let found = Command::new("cargo").args([name, "--version"]).output()?.status.success();
        ensure!(found, "`cargo {name}` is missing: cargo install --locked {package}");
    }
    ensure!(
        !args.twice || is_clean(&root)?,
        "--twice: commit first; a clone has what is committed"
    );
    let made = make(root.clone())?;
    if args.check {
        check::empty_root(&made.program, &root)?;
        check::unpacked(&made.archive)?;
        check::installed(&made.deb)?;
    }
    if args.twice {
        twice(&root, &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What one build made.
struct Made {
    program: PathBuf,
    archive: PathBuf,
    deb: PathBuf,
    /// The names and checksums of all that a person installs.
    sums: String,
}

/// Builds everything in a checkout.
fn make(root: PathBuf) -> Result<Made> {
    let out = root.join(OUT);
    let _ = std::fs::remove_dir_all(&out);
    let stage = out.join("stage");
    std::fs::create_dir_all(&stage)?;
    let dist = Dist { epoch: commit_time(&root)?, root, out };
    let program = dist.build()?;
    dist.stage(&program, &stage)?;
    let version = env!("CARGO_PKG_VERSION");
    let archive = archive_name(version);
    dist.archive(&stage, &archive)?;
    let deb = format!("schedlab_{version}_amd64.deb");
    dist.deb(&deb)?;
    let bare = format!("schedlab-{version}-{TARGET}");
    std::fs::copy(&program, dist.out.join(&bare))?;
    let sbom = format!("schedlab-{version}.cdx.json");
    dist.sbom(&sbom)?;
    dist.sums(&[&bare, &archive, &deb, &sbom])?;
    let sums = std::fs::read_to_string(dist.out.join("SHA256SUMS"))?;
    Ok(Made { program, archive: dist.out.join(archive), deb: dist.out.join(deb), sums })
}

/// Returns the name of the archive, which `[package.metadata.binstall]` of crates/cli/Cargo.toml
/// has, too.
fn archive_name(version: &str) -> String {
    format!("schedlab-{version}-{TARGET}.tar.gz")
}

fn is_clean(root: &Path) -> Result<bool> {
    let status = Command::new("git").args(["status", "--porcelain"]).current_dir(root).output()?;
    Ok(status.status.success() && status.stdout.is_empty())
}

/// Builds the commit again, in a clone whose folder has another name and length, and compares.
fn twice(root: &Path, first: &Made) -> Result<()> {
    let other = tempfile::tempdir()?;
    let clone = other.path().join("a-folder-with-another-name");
    run(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root).arg(&clone))?;
    let second = make(clone)?;
    for (one, two) in first.sums.lines().zip(second.sums.lines()) {
        println!("{} {}", if one == two { "same bytes" } else { "DIFFERS   " }, one);
    }
    ensure!(first.sums == second.sums, "two builds of one commit differ:\n{}", second.sums);
    println!("two builds of one commit, in two folders: the same bytes");
    Ok(())
}

/// Returns the time of the commit that is built, in seconds: files of the packages have it.
fn commit_time(root: &Path) -> Result<String> {
    let shown = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    let time = String::from_utf8(shown.context("git")?.stdout)?.trim().to_owned();
    ensure!(!time.is_empty(), "{}: no commit, so files would have no time", root.display());
    Ok(time)
}

/// One build.
struct Dist {
    root: PathBuf,
    out: PathBuf,
    epoch: String,
}

impl Dist {
    fn command(&self, program: &str, arguments: &[&dyn AsRef<OsStr>]) -> Result<()> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root).env("SOURCE_DATE_EPOCH", &self.epoch);
        run(&mut command)
    }

    /// Builds the program with the C library inside, and without the names of folders of this
    /// machine. `--target`, or cargo would build its macros, which are libraries, so as well.
    fn build(&self) -> Result<PathBuf> {
        let home = std::env::var("CARGO_HOME")
            .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))?;
        let target = self.root.join("target");
        let flags = [
            "-Ctarget-feature=+crt-static".to_owned(),
            format!("--remap-path-prefix={home}=/cargo"),
            format!("--remap-path-prefix={}=/schedlab", self.root.display()),
        ];
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--release", "--locked", "--package", "schedlab-cli"])
            .args(["--features", "sched-ext", "--target", TARGET])
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env("CARGO_TARGET_DIR", &target)
            .env("SOURCE_DATE_EPOCH", &self.epoch)
            .current_dir(&self.root);
        run(&mut cargo)?;
        let program = target.join(TARGET).join("release/schedlab");
        let headers = Command::new("readelf").arg("-lW").arg(&program).output()?;
        ensure!(
            !String::from_utf8_lossy(&headers.stdout).contains("INTERP"),
            "{}: it asks for the system's loader, so it is not static",
            program.display()
        );
        Ok(program)
    }

    /// Lays out what packages hold, as below `/usr`.
    fn stage(&self, program: &Path, stage: &Path) -> Result<()> {
        let share = stage.join("share");
        let documents = share.join("doc/schedlab");
        let examples = documents.join("examples");
        for folder in [&stage.join("bin"), &share.join("man/man1"), &examples] {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::copy(program, stage.join("bin/schedlab"))?;
        run(Command::new(program).args(["man", "--all"]).arg(share.join("man/man1")))?;
        for (shell, file) in COMPLETIONS {
            let file = share.join(file);
            std::fs::create_dir_all(file.parent().context("it is below share")?)?;
            let made = Command::new(program).args(["completions", shell]).output()?;
            ensure!(made.status.success(), "schedlab completions {shell} failed");
            std::fs::write(file, made.stdout)?;
        }
        for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            std::fs::copy(self.root.join(file), documents.join(file)).context(file)?;
        }
        for (from, to) in SERVICE {
            let to = stage.join(to);
            std::fs::create_dir_all(to.parent().context("it is below the stage")?)?;
            std::fs::copy(self.root.join(from), to).context(from)?;
        }
        for file in EXAMPLES {
            let name = Path::new(file).file_name().context(file)?;
            std::fs::copy(self.root.join(file), examples.join(name)).context(file)?;
        }
        Ok(())
    }

    /// Packs the folder; order, owners and times are those of the commit.
    fn archive(&self, stage: &Path, name: &str) -> Result<()> {
        let file = self.out.join(name);
        self.command(
            "tar",
            &[
                &"--sort=name",
                &"--owner=0",
                &"--group=0",
                &"--numeric-owner",
                &"--mode=go=rX,u+rw",
                &format!("--mtime=@{}", self.epoch),
                &"--use-compress-program=gzip -n9",
                &"--transform=s,^\\.,schedlab,",
                &"-cf",
                &file,
                &"-C",
                &stage,
                &".",
            ],
        )
    }

    /// Makes the `.deb` of what is staged (`[package.metadata.deb]` of crates/cli/Cargo.toml).
    fn deb(&self, name: &str) -> Result<()> {
        let file = self.out.join(name);
        self.command(
            "cargo",
            &[
                &"deb",
                &"--quiet",
                &"--no-build",
                &"--no-strip",
                &"--package=schedlab-cli",
                &"--target",
                &TARGET,
                &"--deb-revision=",
                &"--output",
                &file,
            ],
        )
    }

    /// Lists every crate that is in the program, with version, licence and checksum (CycloneDX).
    fn sbom(&self, name: &str) -> Result<()> {
        let stem = "schedlab-sbom";
        let manifest = self.root.join("crates/cli/Cargo.toml");
        self.command(
            "cargo",
            &[
                &"cyclonedx",
                &"--quiet",
                &"--manifest-path",
                &manifest,
                &"--features=sched-ext",
                &"--format=json",
                &"--target",
                &TARGET,
                &"--override-filename",
                &stem,
            ],
        )?;
        // It writes beside every manifest of the workspace.
        let mut own = None;
        for package in tree::metadata(&self.root)?.packages {
            let file = package.manifest_path.with_file_name(format!("{stem}.json"));
            if let Ok(text) = std::fs::read_to_string(&file) {
                std::fs::remove_file(&file)?;
                own = own.or(file.starts_with(self.root.join("crates/cli")).then_some(text));
            }
        }
        let own = own.context("cargo cyclonedx wrote no file")?;
        std::fs::write(self.out.join(name), elsewhere(&own, &self.root))?;
        Ok(())
    }

    fn sums(&self, files: &[&str]) -> Result<()> {
        let sums = Command::new("sha256sum").args(files).current_dir(&self.out).output()?;
        ensure!(sums.status.success(), "sha256sum failed");
        std::fs::write(self.out.join("SHA256SUMS"), &sums.stdout)?;
        for file in files {
            let bytes = std::fs::metadata(self.out.join(file))?.len();
            println!("{:>6.1} MB  {}", bytes as f64 / 1e6, self.out.join(file).display());
        }
        Ok(())
    }
}

/// Returns the list with the folder of the program's sources in place of this machine's: two builds
/// give the same bytes.
fn elsewhere(list: &str, root: &Path) -> String {
    list.replace(&format!("file://{}", root.display()), "file:///schedlab")
}

fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| shown.clone())?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// What was built is tried where nothing else is.
mod check {
    use super::{EXAMPLES, run};
    use anyhow::{Context, Result, ensure};
    use std::path::Path;
    use std::process::Command;

    /// Runs the demo's question in a root that has the program and a recording, and nothing else:
    /// no loader, no C library, no /proc.
    pub(super) fn empty_root(program: &Path, tree: &Path) -> Result<()> {
        let root = tempfile::tempdir()?;
        std::fs::copy(program, root.path().join("schedlab"))?;
        std::fs::copy(tree.join(EXAMPLES[0]), root.path().join("redis.slt"))?;
        let answer = first_line(root.path(), "/schedlab", "/redis.slt")?;
        println!("in an empty root: {answer}");
        Ok(())
    }

    /// Unpacks the archive below `/usr/local` of an empty root and runs it there, with the example
    /// that it brings.
    pub(super) fn unpacked(archive: &Path) -> Result<()> {
        let root = tempfile::tempdir()?;
        let local = root.path().join("usr/local");
        std::fs::create_dir_all(&local)?;
        let options = ["--strip-components=1", "--no-same-owner", "-xzf"];
        run(Command::new("tar").args(options).arg(archive).arg("-C").arg(&local))?;
        let example = format!("/usr/local/share/doc/schedlab/examples/{}", example()?);
        let answer = first_line(root.path(), "/usr/local/bin/schedlab", &example)?;
        println!("unpacked by tar: {answer}");
        Ok(())
    }

    /// Returns the name of the recording that is asked about.
    fn example() -> Result<String> {
        Ok(Path::new(EXAMPLES[0]).file_name().context("a file")?.display().to_string())
    }

    /// Installs the package into an empty root, runs it, removes it, and looks for what is left.
    pub(super) fn installed(deb: &Path) -> Result<()> {
        let root = tempfile::tempdir()?;
        let admin = root.path().join("var/lib/dpkg");
        for folder in ["info", "updates", "triggers"] {
            std::fs::create_dir_all(admin.join(folder))?;
        }
        for file in ["status", "available"] {
            std::fs::write(admin.join(file), "")?;
        }
        let dpkg = |arguments: &[&str]| {
            let mut dpkg = Command::new("dpkg");
            dpkg.arg(format!("--root={}", root.path().display())).arg("--log=/dev/null");
            dpkg.args(arguments).stdout(std::process::Stdio::null());
            run(&mut dpkg)
        };
        dpkg(&["--install", &deb.display().to_string()])?;
        let example = format!("/usr/share/doc/schedlab/examples/{}", example()?);
        let answer = first_line(root.path(), "/usr/bin/schedlab", &example)?;
        println!("installed by dpkg: {answer}");
        dpkg(&["--purge", "schedlab"])?;
        let left = Command::new("find")
            .arg(root.path())
            .args(["-type", "f", "-not", "-path", "*/var/lib/dpkg/*"])
            .output()?;
        let left = String::from_utf8_lossy(&left.stdout).into_owned();
        ensure!(left.is_empty(), "left behind after --purge:\n{left}");
        println!("removed: no file is left");
        Ok(())
    }

    /// Returns the first line of a comparison that the program makes below `root`.
    fn first_line(root: &Path, program: &str, recording: &str) -> Result<String> {
        let compared = Command::new("chroot")
            .arg(root)
            .args([program, "compare", "--brief", "--seeds", "1", recording])
            .args(["--variant", "batch idle: sysbench policy=idle"])
            .output()
            .context("chroot(8), which needs root")?;
        let (out, err) = (&compared.stdout, &compared.stderr);
        let text = String::from_utf8_lossy(out);
        ensure!(
            compared.status.success(),
            "{program} below {}: {}\n{}",
            root.display(),
            compared.status,
            String::from_utf8_lossy(err)
        );
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_crates_names_no_folder_of_the_machine() {
        let list =
            r#"{"bom-ref": "path+file:///home/x/s/crates/cli#schedlab-cli@0.1.0 bin-target-0"}"#;
        let same = list.replace("/home/x/s/", "/tmp/.tmpA/another/");
        let made = elsewhere(list, Path::new("/home/x/s"));
        assert_eq!(made, elsewhere(&same, Path::new("/tmp/.tmpA/another")));
        assert!(made.contains("file:///schedlab/crates/cli#"), "{made}");
    }

    /// `cargo binstall schedlab-cli` must find the archive that is made, and the program in it.
    #[test]
    fn binstall_finds_what_is_made() {
        let manifest = std::fs::read_to_string(tree::root().join("crates/cli/Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let of = &manifest["package"]["metadata"]["binstall"];
        let filled = |text: &toml::Value| {
            let text = text.as_str().unwrap().to_owned();
            let values = [("version", "9.8.7"), ("target", TARGET), ("bin", "schedlab")];
            let values = values.into_iter().chain([("binary-ext", ""), ("repo", "REPO")]);
            values.fold(text, |text, (key, value)| text.replace(&format!("{{ {key} }}"), value))
        };
        let url = filled(&of["pkg-url"]);
        assert_eq!(url.rsplit('/').next(), Some(archive_name("9.8.7").as_str()));
        // `archive` puts the stage below this folder.
        assert_eq!(filled(&of["bin-dir"]), "schedlab/bin/schedlab");
        let musl = &of["overrides"]["x86_64-unknown-linux-musl"]["pkg-url"];
        assert_eq!(filled(musl), url, "the static program is for musl, too");
    }
}
