//! Releases of Linux, and which preset models each.

use std::fmt;
use std::str::FromStr;

/// A release of the Linux kernel, such as 2.6.24 or 6.18.0. Older ones are smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRelease {
    /// 8 bits of the major number, 8 of the minor one, 16 of the patch level: one comparison
    /// decides.
    packed: u32,
}

impl KernelRelease {
    /// Returns release `major.minor.patch`.
    pub const fn new(major: u8, minor: u8, patch: u16) -> KernelRelease {
        KernelRelease { packed: (major as u32) << 24 | (minor as u32) << 16 | patch as u32 }
    }
    /// Returns the first number.
    pub const fn major(self) -> u8 {
        (self.packed >> 24) as u8
    }
    /// Returns the second number.
    pub const fn minor(self) -> u8 {
        (self.packed >> 16) as u8
    }
    /// Returns the third number; 0 when there is none, as in 6.18.
    pub const fn patch(self) -> u16 {
        self.packed as u16
    }
    /// Returns whether the tunables of its fair class are files of debugfs (5.13); before, sysctls.
    pub const fn has_debugfs_tunables(self) -> bool {
        self.since(5, 13, 0)
    }
    /// Returns whether its fair class picks by EEVDF (6.6); before, by CFS.
    pub const fn has_eevdf(self) -> bool {
        self.since(6, 6, 0)
    }
    /// Returns whether a fair server gives starved fair tasks their time
    /// (`kernel/sched/deadline.c`, 6.12); before, RT throttling does.
    pub const fn has_fair_server(self) -> bool {
        self.since(6, 12, 0)
    }
    /// Returns whether this is `major.minor.patch` or a later release.
    #[inline]
    pub(super) const fn since(self, major: u8, minor: u8, patch: u16) -> bool {
        self.packed >= KernelRelease::new(major, minor, patch).packed
    }
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())?;
        if self.major() < 3 || self.patch() > 0 { write!(f, ".{}", self.patch()) } else { Ok(()) }
    }
}

impl fmt::Debug for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is no release.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` does not begin with a kernel release, MAJOR.MINOR or MAJOR.MINOR.PATCH, as `uname -r` \
     prints it"
)]
pub struct KernelReleaseError(String);

impl FromStr for KernelRelease {
    type Err = KernelReleaseError;

    /// Reads what `uname -r` prints: `6.18.44+`, `6.2.0-39-generic`, `6.8-rc1`.
    fn from_str(text: &str) -> Result<KernelRelease, KernelReleaseError> {
        let error = || KernelReleaseError(text.to_owned());
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|digits| digits.parse::<u16>().ok());
        let small =
            |number: Option<u16>| number.and_then(|n| u8::try_from(n).ok()).ok_or_else(error);
        let (major, minor) = (small(number())?, small(number())?);
        Ok(KernelRelease::new(major, minor, number().unwrap_or(0)))
    }
}

/// The kernels from a release on (up to that of the next row), and the preset that models them
/// best.
#[derive(Clone, Copy, Debug)]
pub struct ModelledBy {
    /// The first of these kernels.
    pub from: KernelRelease,
    /// The name of the preset.
    pub preset: &'static str,
    /// What it models of them, or that it is only the nearest.
    pub why: &'static str,
}

/// Presets by kernel, oldest first. The first row has no lower end.
const MODELS: &[ModelledBy] = &[
    row((0, 0, 0), "linux-2.4", "older than 2.4; linux-2.4 is the nearest model"),
    row((2, 4, 0), "linux-2.4", "goodness of all runnable tasks"),
    row((2, 5, 0), "linux-2.6.0", "development of 2.6; linux-2.6.0 is the nearest model"),
    row((2, 6, 0), "linux-2.6.0", "O(1), early constants"),
    row((2, 6, 8), "linux-2.6.22", "O(1), with the constants that it had up to 2.6.22"),
    row(
        (2, 6, 23),
        "linux-2.6.24",
        "the first CFS, not by vruntime; linux-2.6.24 is the nearest model",
    ),
    row((2, 6, 24), "linux-2.6.24", "CFS by vruntime"),
    row((2, 6, 28), "linux-2.6.32", "not modelled by itself; linux-2.6.32 is the nearest"),
    row((2, 6, 32), "linux-2.6.32", "CFS with gentle sleepers"),
    row((2, 6, 33), "linux-2.6.32", "not modelled by itself; linux-2.6.32 is the nearest"),
    row((2, 6, 37), "linux-3.0", "CFS with latency 6 ms"),
    row((3, 2, 0), "linux-3.10", "CFS with limits whose slices expire"),
    row((3, 16, 0), "linux-4.9", "CFS with limits"),
    row((4, 18, 0), "linux-4.19", "CFS with limits whose slices expire"),
    row((5, 4, 0), "linux-5.10", "CFS with limits"),
    row((5, 13, 0), "linux-6.1", "not modelled by itself; linux-6.1 is the nearest"),
    row((5, 15, 0), "linux-6.1", "CFS"),
    row((6, 6, 0), "linux-6.6", "the first EEVDF"),
    row((6, 12, 0), "linux-6.12", "EEVDF with delayed dequeue"),
    row((6, 17, 0), "linux-6.18", "EEVDF with the slice protection of 6.17 and later"),
    row((6, 19, 0), "linux-6.18", "not modelled by itself; linux-6.18 is the nearest"),
    row((7, 0, 0), "linux-7.2", "not modelled by itself; linux-7.2 is the nearest"),
    row((7, 2, 0), "linux-7.2", "EEVDF with HRTICK"),
    row((7, 3, 0), "linux-7.2", "not modelled by itself; linux-7.2 is the nearest"),
];

const fn row(from: (u8, u8, u16), preset: &'static str, why: &'static str) -> ModelledBy {
    ModelledBy { from: KernelRelease::new(from.0, from.1, from.2), preset, why }
}

/// Returns the preset that models a kernel best, for recordings that do not name their scheduler.
pub fn preset_of(release: KernelRelease) -> &'static ModelledBy {
    &MODELS[MODELS.partition_point(|row| row.from <= release).saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(text: &str) -> KernelRelease {
        text.parse().expect("a release")
    }

    #[test]
    fn releases_are_read_as_uname_prints_them() {
        for (text, shown) in [
            ("6.18.44+", "6.18.44"),
            ("6.2.0-39-generic", "6.2"),
            ("6.8-rc1", "6.8"),
            ("2.6.24", "2.6.24"),
            ("3.0.27", "3.0.27"),
        ] {
            assert_eq!(release(text).to_string(), shown);
        }
        for wrong in ["", "unknown", "6", "v6.1", "300.1", "6.x"] {
            let error = wrong.parse::<KernelRelease>().unwrap_err().to_string();
            assert!(error.contains("uname -r"), "{wrong}: {error}");
        }
    }

    #[test]
    fn releases_are_ordered_by_age() {
        let all = [
            "2.4.37", "2.6.9", "2.6.24", "3.0", "3.0.27", "4.14", "5.9", "5.15", "6.1.192", "6.2",
            "6.12", "7.2",
        ];
        assert!(all.map(release).is_sorted());
        assert!(release("6.17").since(6, 17, 0) && !release("6.16.12").since(6, 17, 0));
    }

    #[test]
    fn every_kernel_from_2_4_to_7_2_has_its_preset() {
        assert!(MODELS.is_sorted_by_key(|row| row.from));
        for row in MODELS {
            assert!(crate::registry::find(row.preset).is_ok(), "{}", row.preset);
        }
        let minors =
            |major: u8, from: u8, to: u8| (from..=to).map(move |minor| format!("{major}.{minor}"));
        let of_2_6 = (0..=39).map(|patch| format!("2.6.{patch}"));
        let all = ["2.4.0".to_owned(), "2.4.37".to_owned()].into_iter().chain(of_2_6);
        let later = [(3, 19), (4, 20), (5, 19), (6, 19), (7, 2)];
        let all = all.chain(later.into_iter().flat_map(|(major, last)| minors(major, 0, last)));
        let mut spans: Vec<(String, String, &str)> = Vec::new();
        for kernel in all {
            let preset = preset_of(release(&kernel)).preset;
            match spans.last_mut().filter(|span| span.2 == preset) {
                Some(span) => span.1 = kernel,
                None => spans.push((kernel.clone(), kernel, preset)),
            }
        }
        let spans: Vec<_> =
            spans.iter().map(|(from, to, preset)| (from.as_str(), to.as_str(), *preset)).collect();
        let expected = [
            ("2.4.0", "2.4.37", "linux-2.4"),
            ("2.6.0", "2.6.7", "linux-2.6.0"),
            ("2.6.8", "2.6.22", "linux-2.6.22"),
            ("2.6.23", "2.6.27", "linux-2.6.24"),
            ("2.6.28", "2.6.36", "linux-2.6.32"),
            ("2.6.37", "3.1", "linux-3.0"),
            ("3.2", "3.15", "linux-3.10"),
            ("3.16", "4.17", "linux-4.9"),
            ("4.18", "5.3", "linux-4.19"),
            ("5.4", "5.12", "linux-5.10"),
            ("5.13", "6.5", "linux-6.1"),
            ("6.6", "6.11", "linux-6.6"),
            ("6.12", "6.16", "linux-6.12"),
            ("6.17", "6.19", "linux-6.18"),
            ("7.0", "7.2", "linux-7.2"),
        ];
        assert_eq!(spans, expected);
        for (kernel, preset) in [
            ("5.10.262", "linux-5.10"),
            ("6.11.11", "linux-6.6"),
            ("6.12.118+deb13-rt-amd64", "linux-6.12"),
            ("9.0", "linux-7.2"),
        ] {
            assert_eq!(preset_of(release(kernel)).preset, preset, "{kernel}");
        }
    }
}
