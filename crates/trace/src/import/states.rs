//! Task states as the kernel's `sched_switch` reports them: letters, and bits whose meaning depends
//! on the kernel's version.
//!
//! | kernels | bits above 0xf (include/linux/sched.h) | preempted |
//! |---|---|---|
//! | 2.6.27 to 3.1 | 0x10 zombie, 0x20 dead, 0x40 dead, 0x80 wakekill, 0x100 waking | not reported |
//! | 3.2 to 3.8 | the same | 0x200 (TASK_STATE_MAX) |
//! | 3.9 to 4.1 | and 0x200 parked; from 3.15 on 0x10 is dead and 0x20 zombie | 0x400 |
//! | 4.2 to 4.7 | and 0x400 noload (an idle kernel thread is 0x402) | 0x800 |
//! | 4.8 to 4.13 | and 0x800 new | 0x1000 |
//! | 4.14 and later | 0x10 dead, 0x20 zombie, 0x40 parked, 0x80 idle | 0x100 |
//!
//! Bits 1, 2, 4 and 8 are interruptible, uninterruptible, stopped and traced in all of them.

use schedlab_model::PrevState;
use std::fmt;
use std::str::FromStr;

/// Version of the recorded kernel: major and minor number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// The first version whose bits are those of today.
    const TODAY: KernelVersion = KernelVersion(4, 14);
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl FromStr for KernelVersion {
    type Err = String;

    /// Reads `4.9`, or a whole release such as `4.9.76-android`.
    fn from_str(text: &str) -> Result<KernelVersion, String> {
        let mut numbers = text.trim().split(['.', '-', '+', '_']).map(|part| part.parse().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) if major >= 2 => Ok(KernelVersion(major, minor)),
            _ => Err(format!(
                "`{text}` is not a kernel release: write it as `uname -r` prints it, such as 4.9.76"
            )),
        }
    }
}

/// Returns the state that these bits mean in a kernel of this version; without a version, in
/// today's.
pub(super) fn from_bits(bits: u64, kernel: Option<KernelVersion>) -> PrevState {
    let kernel = kernel.unwrap_or(KernelVersion::TODAY);
    let preempted = match kernel {
        _ if kernel >= KernelVersion::TODAY => 0x100,
        _ if kernel >= KernelVersion(4, 8) => 0x1000,
        _ if kernel >= KernelVersion(4, 2) => 0x800,
        _ if kernel >= KernelVersion(3, 9) => 0x400,
        _ if kernel >= KernelVersion(3, 2) => 0x200,
        _ => 0,
    };
    let today = kernel >= KernelVersion::TODAY;
    let dead = if today { 0x30 } else { 0x70 };
    let idle = match kernel {
        _ if today => 0x80 | 0x40,
        _ if kernel >= KernelVersion(4, 2) => 0x400 | 0x200,
        _ if kernel >= KernelVersion(3, 9) => 0x200,
        _ => 0,
    };
    match bits {
        0 => PrevState::Runnable,
        bits if bits & preempted != 0 => PrevState::RunnableInKernel,
        bits if bits & dead != 0 => PrevState::Dead,
        // An idle kernel thread waits for work, not for a device, although its state is
        // uninterruptible.
        bits if bits & idle != 0 => PrevState::Sleeping,
        bits if bits & 0x2 != 0 => PrevState::DiskSleep,
        bits if bits & 0x1 != 0 => PrevState::Sleeping,
        bits if bits & 0xc != 0 => PrevState::Stopped,
        _ => PrevState::Unknown,
    }
}

/// Whether the meaning of these bits depends on the kernel's version.
pub(super) const fn depends_on_version(bits: u64) -> bool {
    bits & !0xf & !0x30 != 0
}

/// Returns the state of `prev_state=`: the kernel's letters, several joined by `|`, `+` for
/// preempted; or its bits, decimal or with `0x`. The second value tells whether they were bits that
/// depend on the kernel's version.
pub(super) fn from_text(text: &str, kernel: Option<KernelVersion>) -> (PrevState, bool) {
    let text = text.trim();
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    if let Some(bits) = number {
        return (from_bits(bits, kernel), depends_on_version(bits));
    }
    // Before 4.14 an idle kernel thread is `D|N`.
    let noload = text.contains('N');
    // What babeltrace 2 prints: the names of LTTng's enumeration.
    if text.starts_with("TASK_") || text.starts_with("EXIT_") {
        return (named(text), false);
    }
    let state = match text.as_bytes().first() {
        Some(b'R') if text.contains('+') => PrevState::RunnableInKernel,
        Some(b'R') => PrevState::Runnable,
        Some(b'D') if noload => PrevState::Sleeping,
        Some(b'S' | b'I' | b'P') => PrevState::Sleeping,
        Some(b'D' | b'K' | b'W') => PrevState::DiskSleep,
        Some(b'T' | b't') => PrevState::Stopped,
        Some(b'X' | b'Z' | b'x') => PrevState::Dead,
        _ => PrevState::Unknown,
    };
    (state, false)
}

/// Returns the state of an LTTng name, such as `TASK_INTERRUPTIBLE`.
fn named(name: &str) -> PrevState {
    match name {
        "TASK_RUNNING" => PrevState::Runnable,
        "TASK_INTERRUPTIBLE" | "TASK_IDLE" | "TASK_PARKED" => PrevState::Sleeping,
        "TASK_UNINTERRUPTIBLE" => PrevState::DiskSleep,
        "TASK_STOPPED" | "TASK_TRACED" => PrevState::Stopped,
        "EXIT_DEAD" | "EXIT_ZOMBIE" | "TASK_DEAD" => PrevState::Dead,
        _ => PrevState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_every_age() {
        use PrevState::{Dead, DiskSleep, Runnable, RunnableInKernel, Sleeping, Stopped, Unknown};
        for (version, bits, expected) in [
            ("6.12.3", 0, Runnable),
            ("6.12.3", 0x100, RunnableInKernel),
            ("6.12.3", 0x80, Sleeping),
            ("6.12.3", 0x40, Sleeping),
            ("6.12.3", 0x10, Dead),
            ("4.14", 0x20, Dead),
            ("4.13", 0x1000, RunnableInKernel),
            ("4.9.76", 0x402, Sleeping),
            ("4.9.76", 64, Dead),
            ("4.9.76", 130, DiskSleep),
            ("4.4", 0x800, RunnableInKernel),
            ("4.4", 0x402, Sleeping),
            ("4.1", 0x400, RunnableInKernel),
            ("4.1", 0x200, Sleeping),
            ("3.4", 0x200, RunnableInKernel),
            ("3.0", 0x200, Unknown),
            ("2.6.32", 0x40, Dead),
            ("2.6.32", 4, Stopped),
        ] {
            let kernel = version.parse().unwrap();
            assert_eq!(from_bits(bits, Some(kernel)), expected, "{version} {bits:#x}");
        }
        assert_eq!(from_bits(0x100, None), RunnableInKernel);
        assert!(depends_on_version(0x40) && !depends_on_version(1) && !depends_on_version(0x20));
    }

    #[test]
    fn letters_and_names() {
        use PrevState::{Dead, DiskSleep, RunnableInKernel, Sleeping};
        for (text, expected) in [
            ("R+", RunnableInKernel),
            ("S", Sleeping),
            ("D|K", DiskSleep),
            ("D|N", Sleeping),
            ("x", Dead),
            ("t|K", PrevState::Stopped),
            ("1", Sleeping),
            ("0x2", DiskSleep),
            ("TASK_INTERRUPTIBLE", Sleeping),
            ("TASK_UNINTERRUPTIBLE", DiskSleep),
        ] {
            assert_eq!(from_text(text, None).0, expected, "{text}");
        }
        assert!("uname".parse::<KernelVersion>().is_err() && "-".parse::<KernelVersion>().is_err());
    }
}
