//! Which kernels there are, and the newest package of each version.

use super::apt::{self, Apt};
use super::store::Store;
use anyhow::{Context, Result, bail};
use std::cmp::Ordering;
use std::path::PathBuf;

/// Where Debian has kernels of several generations. What a version's newest patch level is, its
/// lists say.
pub(super) const SUITES: [&str; 8] = [
    "bullseye-security",
    "bookworm",
    "bookworm-security",
    "bookworm-backports",
    "trixie",
    "trixie-security",
    "trixie-backports",
    "sid",
];

/// The generations that `make guests` tests when none is named: before BPF could read task structs
/// (5.10), CFS (6.1), EEVDF (6.12), lazy preemption (7.2), and the PREEMPT_RT builds of the last
/// two.
pub(super) const USUAL: [&str; 6] = ["5.10", "6.1", "6.12", "6.12-rt", "7.2", "7.2-rt"];

/// One kernel to boot.
pub(super) struct Kernel {
    /// As it was asked for, such as `6.12-rt`.
    pub(super) name: String,
    /// As `uname -r` prints it.
    pub(super) release: String,
    /// The file that QEMU boots.
    pub(super) image: PathBuf,
}

/// The kernels of these names, fetched where they are not there yet.
pub(super) fn get(store: &Store, names: &[String]) -> Result<Vec<Kernel>> {
    let apt = Apt::open(&store.folder("apt-kernels")?, &SUITES)
        .context("the lists of Debian's kernels")?;
    let known: Vec<String> = releases(&apt.names("linux-image-")?);
    names.iter().map(|name| one(store, &apt, &known, name)).collect()
}

/// Returns the versions that Debian has of the kernels of these names now, as `uname -r` prints
/// them.
pub(super) fn versions(store: &Store, names: &[String]) -> Result<Vec<String>> {
    let apt = Apt::open(&store.folder("apt-kernels")?, &SUITES)
        .context("the lists of Debian's kernels")?;
    let known: Vec<String> = releases(&apt.names("linux-image-")?);
    names.iter().map(|name| release_of(&known, name).map(str::to_owned)).collect()
}

/// Returns the newest release of a name.
fn release_of<'a>(known: &'a [String], name: &str) -> Result<&'a str> {
    if let Some(release) = newest(known, name) {
        return Ok(release);
    }
    let mut versions: Vec<String> =
        known.iter().filter_map(|release| version_name(release)).collect();
    versions.sort_by(|a, b| natural(a, b));
    versions.dedup();
    bail!("Debian has no kernel {name} now; it has {}", versions.join(", "));
}

fn one(store: &Store, apt: &Apt, known: &[String], name: &str) -> Result<Kernel> {
    let release = release_of(known, name)?;
    let image = store.folder("kernels")?.join(format!("vmlinuz-{release}"));
    if !image.exists() {
        // Since 6.19 the image is in a package of its own, 14 MB instead of a hundred.
        let alone = format!("linux-binary-{release}");
        let package = if apt.names(&alone)?.contains(&alone) {
            alone
        } else {
            format!("linux-image-{release}")
        };
        let file = store.fetching(&package, || apt.download(&package))?;
        let tree = store.folder("unpacked")?;
        apt::unpack(&file, &tree, &["*vmlinuz*"])?;
        let places =
            [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")]
                .map(|p| tree.join(p));
        let found = places.iter().find(|path| path.exists());
        std::fs::copy(
            found.with_context(|| format!("{package} has no vmlinuz where it is expected"))?,
            &image,
        )?;
        std::fs::remove_dir_all(tree)?;
        std::fs::remove_file(file)?;
    }
    Ok(Kernel { name: name.to_owned(), release: release.to_owned(), image })
}

/// The releases among the names of packages: `linux-image-6.12.117+deb12-rt-amd64` has
/// `6.12.117+deb12-rt-amd64`.
fn releases(packages: &[String]) -> Vec<String> {
    let of = |package: &String| {
        let release = package.strip_prefix("linux-image-")?;
        // Names without a patch level are of packages that only name others.
        let whole = release.starts_with(|c: char| c.is_ascii_digit())
            && release.ends_with("-amd64")
            && release.matches('.').count() >= 2;
        (whole && !release.contains("cloud")).then(|| release.to_owned())
    };
    packages.iter().filter_map(of).collect()
}

/// `6.12-rt` of `6.12.117+deb12-rt-amd64`.
pub(super) fn version_name(release: &str) -> Option<String> {
    let mut numbers = release.split(['.', '-', '+']);
    let (major, minor) = (numbers.next()?, numbers.next()?);
    let kind = if release.ends_with("-rt-amd64") { "-rt" } else { "" };
    Some(format!("{major}.{minor}{kind}"))
}

fn newest<'a>(releases: &'a [String], name: &str) -> Option<&'a str> {
    let of_name = releases.iter().filter(|release| version_name(release).as_deref() == Some(name));
    of_name.map(String::as_str).max_by(|a, b| natural(a, b))
}

/// Compares texts with the numbers in them by value.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<(u64, String)> {
        let mut parts = vec![(0u64, String::new())];
        for c in text.chars() {
            let last = parts.last_mut().expect("it begins with one");
            match c.to_digit(10) {
                Some(digit) if last.1.is_empty() => {
                    last.0 = last.0.saturating_mul(10).saturating_add(digit.into())
                }
                Some(digit) => parts.push((digit.into(), String::new())),
                None => last.1.push(c),
            }
        }
        parts
    };
    parts(a).cmp(&parts(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_version_is_found() {
        let packages = [
            "linux-image-6.1-amd64",
            "linux-image-6.1.0-0.deb11.52-amd64",
            "linux-image-6.1.0-56-amd64",
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-56-rt-amd64",
            "linux-image-6.12.95+deb12-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.117+deb13-cloud-amd64",
            "linux-image-6.12.117+deb12-rt-amd64",
            "linux-image-amd64-signed-template",
        ];
        let releases = releases(&packages.map(str::to_owned));
        assert_eq!(newest(&releases, "6.1"), Some("6.1.0-56-amd64"));
        assert_eq!(newest(&releases, "6.1-rt"), Some("6.1.0-56-rt-amd64"));
        assert_eq!(newest(&releases, "6.12"), Some("6.12.117+deb12-amd64"));
        assert_eq!(newest(&releases, "6.12-rt"), Some("6.12.117+deb12-rt-amd64"));
        assert_eq!(newest(&releases, "6.2"), None);
    }
}
