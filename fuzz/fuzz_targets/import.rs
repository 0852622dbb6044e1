//! Any bytes: a recording or an error that names its place. Which reader they reach is told by
//! their first bytes, as in `schedlab import`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use schedlab_trace::import::{ImportOptions, read};
use schedlab_trace::{analysis::Summary, replay};

fuzz_target!(|bytes: &[u8]| {
    for current_is_waker in [false, true] {
        if let Ok(imported) = read(bytes, ImportOptions { current_is_waker, ..ImportOptions::default() }) {
            let _ = Summary::from_recording(&imported.recording);
            let options = replay::ReplayOptions { without_wakes: true, ..Default::default() };
            let _ = replay::replay(&imported.recording, &options);
        }
    }
});
