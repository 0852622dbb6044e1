//! The machine while it works (`schedlab ui --live`). This crate does not touch the machine: what
//! watches it is given by the program that starts the workbench.

use crate::questions::{Tell, tell_failure};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Time between two states, and between two looks at whether to end.
const STATE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);

/// What watches the machine.
pub trait Live: Send + Sync {
    /// Returns what the scheduler did until now: `schedlab-watch/1`, as JSON.
    ///
    /// # Errors
    /// Why there is no more of it.
    fn state(&self) -> Result<String, String>;

    /// Keeps the last seconds: the name of a recording of them, and its file, which has no name on
    /// the disk any more.
    ///
    /// # Errors
    /// Why there is none.
    fn keep(&self) -> Result<(String, File), String>;
}

/// Says the state every second, until the flag is set.
pub(crate) fn tell_states(live: &dyn Live, stop: &AtomicBool, tell: Tell<'_>) {
    while !stop.load(Relaxed) {
        match live.state() {
            Ok(state) => tell("state", state),
            Err(why) => return tell_failure(tell, &(503, why)),
        }
        let mut waited = Duration::ZERO;
        while waited < STATE && !stop.load(Relaxed) {
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Ends;

    impl Live for Ends {
        fn state(&self) -> Result<String, String> {
            Err("the recorder ended".to_owned())
        }

        fn keep(&self) -> Result<(String, File), String> {
            Err("nothing is kept".to_owned())
        }
    }

    #[test]
    fn a_recorder_that_ended_is_said_once() {
        let said = Mutex::new(Vec::new());
        let tell = |name: &'static str, data: String| said.lock().unwrap().push((name, data));
        tell_states(&Ends, &AtomicBool::new(false), &tell);
        let said = said.into_inner().unwrap();
        assert_eq!(said.len(), 1);
        assert!(said[0].0 == "failed" && said[0].1.contains("the recorder ended"), "{said:?}");
    }
}
