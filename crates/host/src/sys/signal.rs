//! Ctrl-C and friends as a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{io, mem};

/// Made before the first handler is installed, and never again: a handler only reads it.
static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// While it lives, SIGINT, SIGTERM and SIGHUP do not end the process but are remembered, so that a
/// recording can be closed properly. The second one ends the process as usual. The old behaviour
/// comes back on drop.
#[derive(Debug)]
pub struct StopSignal {
    previous: Vec<Action>,
}

struct Action(libc::c_int, libc::sigaction);

impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "signal {}", self.0)
    }
}

extern "C" fn remember(_: libc::c_int) {
    if let Some(requested) = REQUESTED.get() {
        requested.store(true, Ordering::Relaxed);
    }
}

impl StopSignal {
    /// Takes the signals over.
    ///
    /// # Errors
    /// What `sigaction(2)` answers.
    pub fn install() -> io::Result<StopSignal> {
        REQUESTED.get_or_init(Arc::default).store(false, Ordering::Relaxed);
        let mut guard = StopSignal { previous: Vec::new() };
        for signal in SIGNALS {
            // SAFETY: all-zero is a valid sigaction (default action, empty mask, no flags).
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = remember as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            // SAFETY: as above.
            let mut old: libc::sigaction = unsafe { mem::zeroed() };
            // SAFETY: both structures are initialised and live over the call; the handler only
            // loads and stores atomics, which is allowed in a signal handler.
            if unsafe { libc::sigaction(signal, &action, &mut old) } != 0 {
                return Err(io::Error::last_os_error());
            }
            guard.previous.push(Action(signal, old));
        }
        Ok(guard)
    }

    /// Whether a signal has come.
    pub fn requested(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }

    /// Returns the flag that becomes true when a signal comes.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(REQUESTED.get_or_init(Arc::default))
    }
}

impl Drop for StopSignal {
    fn drop(&mut self) {
        for Action(signal, old) in &self.previous {
            // SAFETY: `old` is what sigaction gave us for this signal.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}
