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

/// How often values beyond a percentile come, where windows of the recording do not say it.
pub(crate) const RATE_OF_WAITS: Constant = Constant {
    name: "RATE_OF_WAITS",
    value: 2.0,
    doc: "how often a value lies beyond a percentile differs from one recording of a setting to the \
          next by up to this factor, where windows of the recording do not say by how much; fitted \
          to the pairs of recordings/pairs",
};

/// Run-queue latency of event loops in a replay by wakeups, whose activations are no requests: how
/// many requests wait behind each other decides, and the replay has too many of them.
pub(crate) const DRIFT_OF_LOOPS: Constant = Constant {
    name: "DRIFT_OF_LOOPS",
    value: 2.0,
    doc: "a percentile of run-queue latency of event loops, replayed from wakeups, may be shorter by \
          this factor and one (2 standard deviations); a choice, and docs/predictions.md shows how \
          many intervals hold with it",
};

/// The same where it falls.
pub(crate) const REACTION_OF_LOOPS: Constant = Constant {
    name: "REACTION_OF_LOOPS",
    value: 0.5,
    doc: "of a fall of run-queue latency of event loops, replayed from wakeups, this part may not \
          come (of its logarithm); fitted to the pairs of recordings/pairs",
};

/// How the tasks react to more or less CPU time in a replay by messages, in which that follows from
/// which waits for which.
pub(crate) const REACTION_OF_MESSAGES: Constant = Constant {
    name: "REACTION_OF_MESSAGES",
    value: 0.25,
    doc: "of a change, replayed from messages, this part may not come, or as much more; fitted to \
          the pairs of recordings/pairs/messages",
};

/// What is left of the drift of costs in a replay by messages, on a steady machine.
pub(crate) const STEADY_MESSAGES: Constant = Constant {
    name: "STEADY_MESSAGES",
    value: 0.2,
    doc: "on a machine that is as steady as can be so much is left of the drift of costs, replayed \
          from messages, which is the model's own error; fitted to the pairs of \
          recordings/pairs/messages and recordings/pairs/changes, of guests under a virtual clock",
};

/// How well the change of what a request costs is known in a replay by messages.
pub(crate) const COSTS_OF_MESSAGES: Constant = Constant {
    name: "COSTS_OF_MESSAGES",
    value: 0.5,
    doc: "of what a request costs more or less than in the recording, replayed from messages, this \
          part may not come, or as much more; fitted to the pairs of recordings/pairs/changes",
};
