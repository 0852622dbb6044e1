//! `docs/facts.md` names tests that exist.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut String) {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *found += &std::fs::read_to_string(&path).unwrap();
        }
    }
}

#[test]
fn facts_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join("docs/facts.md")).unwrap();
    let mut code = String::new();
    for folder in ["crates/scheduler/src", "crates/sim/tests", "crates/study/tests"] {
        sources(&root.join(folder), &mut code);
    }
    let rows =
        text.split("## Not held").next().unwrap().lines().filter(|line| line.starts_with("| "));
    let mut seen = 0;
    for row in rows {
        for name in row.split('`').skip(1).step_by(2).filter(|name| name.contains('_')) {
            assert!(
                code.contains(&format!("fn {name}(")),
                "docs/facts.md names `{name}`, which does not exist"
            );
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}
