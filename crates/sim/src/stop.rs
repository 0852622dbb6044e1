//! A run that its caller may end: a flag that the engine looks at between instants. It changes
//! nothing of a run that is not ended.

use crate::{RunOptions, SimError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many instants pass between two looks: some tens of microseconds.
const LOOK: u32 = 1024;

/// A flag that ends a run when it becomes true.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns the end of a run when `flag` becomes true.
    pub fn when(flag: Arc<AtomicBool>) -> Stop {
        Stop(flag)
    }
}

impl PartialEq for Stop {
    /// Whether it is the same flag.
    fn eq(&self, other: &Stop) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Stop {}

/// Counts the instants of one run.
pub(crate) struct Watch<'a> {
    stop: Option<&'a Stop>,
    left: u32,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(options: &'a RunOptions) -> Watch<'a> {
        Watch { stop: options.stop.as_ref(), left: 1 }
    }

    /// An instant begins.
    #[inline(always)]
    pub(crate) fn instant(&mut self) -> Result<(), Box<SimError>> {
        self.left -= 1;
        if self.left == 0 { self.look() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self) -> Result<(), Box<SimError>> {
        self.left = LOOK;
        match self.stop {
            Some(Stop(flag)) if flag.load(Ordering::Relaxed) => Err(Box::new(SimError::Stopped)),
            _ => Ok(()),
        }
    }
}
