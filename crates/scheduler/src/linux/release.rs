//! Releases of Linux, and which preset models each.

use std::fmt;
use std::str::FromStr;

/// A release of the Linux kernel, such as 2.6.24 or 6.18.0. Older ones are smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRelease {
    /// 8 bits of the major number, 8 of the minor one, 16 of the patch level: one comparison decides.
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
    "`{0}` does not begin with a kernel release, MAJOR.MINOR or MAJOR.MINOR.PATCH, as `uname -r` prints it"
)]
pub struct KernelReleaseError(String);

impl FromStr for KernelRelease {
    type Err = KernelReleaseError;

    /// Reads what `uname -r` prints: `6.18.44+`, `6.2.0-39-generic`, `6.8-rc1`.
    fn from_str(text: &str) -> Result<KernelRelease, KernelReleaseError> {
        let error = || KernelReleaseError(text.to_owned());
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|digits| digits.parse::<u16>().ok());
        let small = |number: Option<u16>| number.and_then(|n| u8::try_from(n).ok()).ok_or_else(error);
        let (major, minor) = (small(number())?, small(number())?);
        Ok(KernelRelease::new(major, minor, number().unwrap_or(0)))
    }
}

/// The kernels from a release on (up to that of the next row), and the preset that models them best.
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
    row(0, 0, "linux-6.1", "older than 5.15; linux-6.1 is the nearest model"),
    row(5, 15, "linux-6.1", "CFS"),
    row(6, 6, "linux-6.12", "early EEVDF; linux-6.12 is the nearest model"),
    row(6, 12, "linux-6.12", "EEVDF with delayed dequeue"),
    row(6, 17, "linux-6.18", "EEVDF with the slice protection of 6.17 and later"),
    row(7, 0, "linux-7.2", "not modelled by itself; linux-7.2 is the nearest"),
    row(7, 2, "linux-7.2", "EEVDF with HRTICK"),
    row(7, 3, "linux-7.2", "not modelled by itself; linux-7.2 is the nearest"),
];

const fn row(major: u8, minor: u8, preset: &'static str, why: &'static str) -> ModelledBy {
    ModelledBy { from: KernelRelease::new(major, minor, 0), preset, why }
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
            "2.4.37", "2.6.9", "2.6.24", "3.0", "3.0.27", "4.14", "5.9", "5.15", "6.1.192", "6.2", "6.12",
            "7.2",
        ];
        assert!(all.map(release).is_sorted());
        assert!(release("6.17").since(6, 17, 0) && !release("6.16.12").since(6, 17, 0));
    }

    #[test]
    fn every_kernel_has_a_preset_of_the_registry() {
        assert!(MODELS.is_sorted_by_key(|row| row.from));
        for row in MODELS {
            assert!(crate::registry::find(row.preset).is_ok(), "{}", row.preset);
        }
        for (kernel, preset) in [
            ("2.4.18", "linux-6.1"),
            ("5.14.21", "linux-6.1"),
            ("6.5.13", "linux-6.1"),
            ("6.11.11", "linux-6.12"),
            ("6.16.1", "linux-6.12"),
            ("6.17", "linux-6.18"),
            ("6.19.3", "linux-6.18"),
            ("7.1", "linux-7.2"),
            ("9.0", "linux-7.2"),
        ] {
            assert_eq!(preset_of(release(kernel)).preset, preset, "{kernel}");
        }
    }
}
