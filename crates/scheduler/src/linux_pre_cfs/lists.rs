//! On which list the tasks of the multi-queue scheduler wait: the patch's rule, or one that tests
//! an explanation.

use crate::{KnobDefault, WordKnob, words};

words! {
    /// On which list a task waits.
    pub(super) enum Lists {
        /// On that of the CPU that is chosen for it.
        Own = "own",
        /// On that of the first CPU.
        First = "first",
    }
}

/// The knob.
pub(super) const LISTS: WordKnob<Lists> = WordKnob {
    name: "lists",
    default: KnobDefault::Is(Lists::Own),
    doc: "first: every task that waits is on the list of the first CPU it may use, and the others \
          steal it from there (not in \
          the patch: a test of what the evaluation's figures would need)",
    source: "schedlab; for table 1 of Taniguchi, Ishikawa, Hiraki, SMP 環境における Linux スケジューラの評価",
};
