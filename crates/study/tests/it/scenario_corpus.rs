//! No text makes the scenario parser panic: the gallery and `fuzz/corpus/scenario`, whole, cut off
//! and with flipped bits. What is refused is refused with words.

use schedlab_study::scenario::parse;
use std::path::Path;

fn texts(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        (path.display().to_string(), std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

fn try_parse(file: &str, text: &str) -> bool {
    match parse("corpus", file, text) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{file}");
            false
        }
    }
}

#[test]
fn damaged_scenarios_never_panic() {
    let gallery = texts("scenarios");
    assert!(gallery.len() >= 3);
    for (file, text) in gallery.iter().chain(&texts("fuzz/corpus/scenario")) {
        let whole = try_parse(file, text);
        // One of the corpus is well-formed: it took too long.
        let good = file.contains("/scenarios/") || file.ends_with("/many-off.toml");
        assert_eq!(whole, good, "{file}");
        for at in (0..text.len()).step_by(1 + text.len() / 150) {
            if text.is_char_boundary(at) {
                try_parse(file, &text[..at]);
            }
            for bit in [0, 3, 6] {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                if let Ok(text) = String::from_utf8(bytes) {
                    try_parse(file, &text);
                }
            }
        }
    }
}
