//! Constants behind the intervals of predictions that `--explain` prints where one was made with
//! them.

/// A constant, and where it comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Constant {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: f64,
    /// What it says, and its source.
    pub(crate) doc: &'static str,
}

/// How often a wakeup finds its CPU busy: where one wakeup of a hundred waits for a turn of another
/// task, p99 is either that turn or nothing.
pub(crate) const RATE_OF_WAITS: Constant = Constant {
    name: "RATE_OF_WAITS",
    value: 2.0,
    doc: "how often a wakeup finds its CPU busy differs from one recording of a setting to the next \
          by up to this factor; fitted to the pairs of recordings/pairs",
};

/// Percentiles of run-queue latency of event loops, whose activations are no requests: how many
/// requests wait behind each other decides.
pub(crate) const DRIFT_OF_LOOPS: Constant = Constant {
    name: "DRIFT_OF_LOOPS",
    value: 2.0,
    doc: "percentiles of run-queue latency of event loops change from one recording to the next by \
          up to this part of themselves (2 standard deviations); a choice, and \
          docs/predictions.md shows how many intervals hold with it",
};
