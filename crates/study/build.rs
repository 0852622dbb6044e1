//! Builds the scenarios of `scenarios/` into the library, so that an installed program knows them.

use std::fmt::Write as _;
use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut code = String::from("const GALLERY: &[(&str, &str)] = &[\n");
    for path in files {
        let name = path.file_stem().expect("has one").to_string_lossy().into_owned();
        let full = std::fs::canonicalize(&path).expect("it was just listed");
        writeln!(code, "    ({name:?}, include_str!({:?})),", full.display().to_string())
            .expect("to a string");
    }
    code += "];\n";
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("gallery.rs"), code)
        .expect("cargo's own folder is writable");
}
