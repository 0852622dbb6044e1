//! A private apt: lists and packages of Debian in a folder of their own. The system's package
//! database is neither read nor written, so this works beside any set of installed packages, and
//! unprivileged.

use super::store::Store;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Lists older than this are fetched again.
const LISTS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Where Debian is; the environment names another mirror.
const MIRROR: &str = "http://deb.debian.org";
const MIRROR_NAME: &str = "SCHEDLAB_DEBIAN_MIRROR";

/// The keys with which Debian signs its lists (package debian-archive-keyring).
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One apt with its own suites.
pub(super) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// An apt that knows the packages of these suites ("trixie", "bookworm-security", ...). Fetches
    /// their lists when there are none, or old ones; where that fails and there are some, says so
    /// and takes those.
    pub(super) fn open(folder: &Path, suites: &[&str]) -> Result<Apt> {
        let sources: String = suites.iter().map(|suite| source("deb", suite)).collect();
        Apt::of_sources(folder, &sources)
    }

    /// An apt that knows the packages of a suite and their sources.
    pub(super) fn with_sources(folder: &Path, suite: &str) -> Result<Apt> {
        Apt::of_sources(folder, &(source("deb", suite) + &source("deb-src", suite)))
    }

    fn of_sources(folder: &Path, sources: &str) -> Result<Apt> {
        for program in ["apt-get", "dpkg-deb", "tar"] {
            ensure!(
                super::is_installed(program),
                "{program} is missing: kernels and QEMU come from Debian's packages (a Debian or \
                 Ubuntu machine has it)"
            );
        }
        ensure!(
            Path::new(KEYS).exists(),
            "{KEYS} is missing: apt-get install debian-archive-keyring"
        );
        let apt = Apt { folder: folder.to_owned() };
        for below in ["state/lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(below))
                .with_context(|| folder.display().to_string())?;
        }
        std::fs::write(folder.join("status"), "")?;
        let list = folder.join("sources.list");
        let known = std::fs::read_to_string(&list).is_ok_and(|text| text == sources);
        let stamp = folder.join("updated");
        let age = std::fs::metadata(&stamp).and_then(|meta| meta.modified()).ok();
        let fresh = age.and_then(|at| at.elapsed().ok()).is_some_and(|age| age < LISTS_AGE_MAX);
        if known && fresh {
            return Ok(apt);
        }
        std::fs::write(&list, sources)?;
        let updated = apt.run("apt-get", &["update", "-q"], folder);
        match updated {
            Ok(_) => std::fs::write(stamp, "")?,
            // One suite that has moved to the archive does not make the others useless.
            Err(error) if apt.names("linux-image-").is_ok_and(|names| !names.is_empty()) => {
                eprintln!("note: not every list of packages could be fetched anew: {error:#}");
            }
            Err(error) => return Err(error),
        }
        Ok(apt)
    }

    fn run(&self, program: &str, args: &[&str], within: &Path) -> Result<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let options = [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State={}", at("state")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=3".to_owned(),
            "APT::Sandbox::User=".to_owned(),
            "Debug::NoLocking=1".to_owned(),
        ];
        let output = Command::new(program)
            .args(options.iter().flat_map(|option| ["-o", option]))
            .args(args)
            .current_dir(within)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .with_context(|| program.to_owned())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("E:")).collect();
            bail!("{program} {} failed: {}", args.join(" "), errors.join("; "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The names of all packages that begin so.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let list = self.run("apt-cache", &["pkgnames", prefix], &self.folder)?;
        Ok(list.lines().map(str::to_owned).collect())
    }

    /// The versions that there are of a package.
    pub(super) fn versions(&self, package: &str) -> Result<Vec<String>> {
        let list = self.run("apt-cache", &["madison", package], &self.folder)?;
        let version = |line: &str| line.split('|').nth(1).map(|word| word.trim().to_owned());
        Ok(list.lines().filter_map(version).collect())
    }

    /// Fetches one package, of a version with `NAME=VERSION`: the path of its file.
    pub(super) fn download(&self, package: &str) -> Result<PathBuf> {
        let into = self.folder.join("packages");
        std::fs::create_dir_all(&into)?;
        self.run("apt-get", &["download", "-q", package], &into)?;
        let begins = format!("{}_", package.split('=').next().unwrap_or(package));
        files(&into)?
            .into_iter()
            .find(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begins))
            })
            .with_context(|| format!("apt-get download {package} left no file"))
    }

    /// Fetches the source of a package as its authors made it: the path of its archive.
    pub(super) fn download_source(&self, package: &str, version: &str) -> Result<PathBuf> {
        let into = self.folder.join("sources");
        std::fs::create_dir_all(&into)?;
        let asked = format!("{package}={version}");
        self.run("apt-get", &["source", "-q", "--download-only", &asked], &into)?;
        files(&into)?
            .into_iter()
            .find(|path| path.to_string_lossy().ends_with(".orig.tar.xz"))
            .with_context(|| format!("apt-get source {asked} left no archive"))
    }

    /// Fetches packages with everything that they need: the paths of their files.
    pub(super) fn download_all(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut args = vec!["install", "-q", "-y", "--download-only", "--no-install-recommends"];
        args.extend(packages);
        self.run("apt-get", &args, &self.folder)?;
        let mut debs = files(&self.folder.join("cache/archives"))?;
        debs.retain(|path| path.extension().is_some_and(|end| end == "deb"));
        Ok(debs)
    }
}

/// A line of a list of sources; `kind`: `deb` (packages) or `deb-src` (their sources).
fn source(kind: &str, suite: &str) -> String {
    let mirror = std::env::var(MIRROR_NAME).unwrap_or_else(|_| MIRROR.to_owned());
    let archive = if suite.ends_with("-security") { "debian-security" } else { "debian" };
    // Lists of a mirror that is not updated for a while are as good.
    format!(
        "{kind} [arch=amd64 check-valid-until=no signed-by={KEYS}] {mirror}/{archive} {suite} main\n"
    )
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// The folder `name` of the store with everything that these packages of suites need, fetched and
/// unpacked when it is not there yet.
pub(super) fn unpacked(
    store: &Store,
    name: &str,
    what: &str,
    suites: &[&str],
    packages: &[&str],
) -> Result<PathBuf> {
    let tree = store.folder(name)?;
    let done = tree.join("unpacked");
    if !done.exists() {
        let apt = Apt::open(&store.folder(&format!("apt-{name}"))?, suites)?;
        let packages = store.fetching(what, || apt.download_all(packages))?;
        for package in &packages {
            unpack(package, &tree, &[])?;
        }
        for package in &packages {
            std::fs::remove_file(package)?;
        }
        std::fs::write(done, "")?;
    }
    Ok(tree)
}

/// Unpacks what matches `patterns` (all when there are none) from a package into `folder`.
pub(super) fn unpack(package: &Path, folder: &Path, patterns: &[&str]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut deb = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("dpkg-deb")?;
    let content = deb.stdout.take().context("dpkg-deb has no output")?;
    let mut tar = Command::new("tar");
    // Packages of one tree share folders that are links to others there (/lib is /usr/lib).
    tar.args(["--extract", "--no-same-owner", "--keep-directory-symlink", "--directory"])
        .arg(folder);
    if !patterns.is_empty() {
        tar.arg("--wildcards").args(patterns);
    }
    let unpacked = tar.stdin(content).status().context("tar")?;
    let read = deb.wait()?;
    ensure!(unpacked.success() && read.success(), "{} cannot be unpacked", package.display());
    Ok(())
}
