//! Any text: a recording or an error that names its line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use schedlab_trace::import::{ImportOptions, perf_script};
use schedlab_trace::{analysis::Summary, replay};

fuzz_target!(|bytes: &[u8]| {
    for current_is_waker in [false, true] {
        if let Ok(imported) = perf_script(bytes, ImportOptions { current_is_waker }) {
            let _ = Summary::of(&imported.recording);
            let options = replay::ReplayOptions { without_wakes: true, ..Default::default() };
            let _ = replay::replay(&imported.recording, &options);
        }
    }
});
