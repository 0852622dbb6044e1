//! What a service is told by signals.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals as flags: SIGTERM and SIGINT end the recorder (the second one at once), SIGUSR1 writes
/// the ring, SIGHUP reads the file again.
#[derive(Clone, Debug, Default)]
pub struct FlightSignals {
    stop: Arc<AtomicBool>,
    write: Arc<AtomicBool>,
    pub(super) reload: Arc<AtomicBool>,
}

impl FlightSignals {
    /// Takes the signals over, until the process ends.
    ///
    /// # Errors
    /// What `sigaction(2)` answers.
    pub fn install() -> io::Result<FlightSignals> {
        let signals = FlightSignals::default();
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first sets the flag, which the second then finds.
            flag::register_conditional_default(signal, Arc::clone(&signals.stop))?;
            flag::register(signal, Arc::clone(&signals.stop))?;
        }
        flag::register(SIGUSR1, Arc::clone(&signals.write))?;
        flag::register(SIGHUP, Arc::clone(&signals.reload))?;
        Ok(signals)
    }

    pub(super) fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the recorder.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_write(&self) -> bool {
        self.write.swap(false, Ordering::Relaxed)
    }

    pub(super) fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
