//! Any bytes: a recording or a typed error, and whatever opens can be summarised and replayed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use schedlab_trace::{ReadLimits, Recording, analysis::Summary, replay};

fuzz_target!(|bytes: &[u8]| {
    let limits = ReadLimits { events: 1_000_000, block_bytes: 1 << 20, tasks: 10_000 };
    if let Ok(recording) = Recording::read_limited(bytes, limits) {
        let _ = Summary::from_recording(&recording);
        let _ = replay::replay(&recording, &replay::ReplayOptions::default());
    }
});
