//! Any text: a scenario made of an rt-app workload, or an error that names its place.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(imported) = schedlab_study::rtapp::parse("fuzz", "fuzz.json", text, 2) {
            assert!(schedlab_study::scenario::parse("fuzz", "fuzz.toml", &imported.toml).is_ok());
        }
    }
});
