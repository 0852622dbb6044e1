//! Any text: a scenario, or an error that names its place.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = schedlab_study::scenario::parse("fuzz", "fuzz.toml", text);
    }
});
