//! What giving back needs, held from the beginning: descriptors that are free when no other is, and
//! limits that are as high as they may be.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;

/// Giving back holds one descriptor open at a time, a walk through a folder two.
const DESCRIPTORS: usize = 4;

/// Descriptors that are closed when the others are needed.
#[derive(Debug)]
pub(crate) struct Reserve(Vec<File>);

impl Reserve {
    /// Opens them.
    ///
    /// # Errors
    /// When no descriptor is left: then nothing may be changed.
    pub(crate) fn hold() -> std::io::Result<Reserve> {
        (0..DESCRIPTORS).map(|_| File::open("/dev/null")).collect::<Result<_, _>>().map(Reserve)
    }

    /// Frees them.
    pub(crate) fn release(&mut self) {
        self.0.clear();
    }
}

const HINDER: [Resource; 6] = [
    Resource::Nofile,
    Resource::As,
    Resource::Data,
    Resource::Cpu,
    Resource::Fsize,
    Resource::Rttime,
];

/// Raises limits as far as any process may: files, memory, CPU time, sizes.
pub(crate) fn raise_limits() {
    for which in HINDER {
        let Rlimit { maximum, .. } = getrlimit(which);
        let _ = setrlimit(which, Rlimit { current: maximum, maximum });
    }
}

/// Lifts the limits that were set for the program that is guarded, and would end or hinder its
/// guardian. Only root can; else they are raised.
pub(crate) fn lift_limits() {
    raise_limits();
    for which in HINDER {
        // The number of files has a bound for root, too (fs.nr_open).
        if !matches!(which, Resource::Nofile) {
            let _ = setrlimit(which, Rlimit { current: None, maximum: None });
        }
    }
}
