//! Ctrl-C and TERM while a command computes: it ends with the answer of what is finished.

use crate::exit::Exit;
use crate::output;
#[cfg(feature = "machine")]
use schedlab_host::StopSignal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// While it lives, the first SIGINT, SIGTERM or SIGHUP raises a flag; the second one ends the
/// program as usual. A build without the machine has no signals: there each of them ends it.
pub(crate) struct Ending {
    #[cfg(feature = "machine")]
    signal: StopSignal,
}

impl Ending {
    /// Takes the signals over.
    pub(crate) fn install() -> anyhow::Result<Ending> {
        Ok(Ending {
            #[cfg(feature = "machine")]
            signal: crate::options::stop_signal()?,
        })
    }

    /// Returns the flag that becomes true when a signal comes.
    pub(crate) fn flag(&self) -> Option<Arc<AtomicBool>> {
        #[cfg(feature = "machine")]
        return Some(self.signal.flag());
        #[cfg(not(feature = "machine"))]
        None
    }
}

/// Says that a command was ended before it had any answer.
pub(crate) fn nothing_yet(first: &str) -> Exit {
    output::warn(&format!("partial: ended before {first} was finished: there is no answer yet\n"));
    Exit::Untrusted
}
