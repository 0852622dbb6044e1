//! Times on a CPU, and what was done in them.

use crate::siblings::Speed;
use schedlab_model::Ns;

/// A time on a CPU without a break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replay) struct Stretch {
    pub(in crate::replay) from: Ns,
    pub(in crate::replay) to: Ns,
    /// What the task had done before it, all activations together.
    pub(in crate::replay) before: Ns,
    /// At what speed it ran.
    pub(in crate::replay) speed: Speed,
}

impl Stretch {
    /// What it had done in this one until `at`.
    pub(super) fn work(&self, at: Ns) -> Ns {
        self.speed.work(at.min(self.to).saturating_sub(self.from))
    }
}
