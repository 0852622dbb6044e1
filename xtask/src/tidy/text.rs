//! Checks on plain text: length of files, trailing blanks, words that mean "not done".

use crate::finding::Finding;

/// A file longer than this is often two ideas. It is a smell and not a law: see [`LONG_FILES`].
const LINES_MAX: usize = 600;

/// Comments have lines of at most so many columns; code is what `cargo fmt` makes of it.
const COLUMNS_MAX: usize = 100;

/// Files that may be longer, each with the reason why it is one idea all the same (a cohesive
/// table, say).
const LONG_FILES: &[(&str, &str)] = &[];

/// Words that mean "not done", put together here so that this file does not contain them.
const UNFINISHED: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "finish it, or say in CHANGELOG.md or the issue what is missing"),
    (concat!("FIX", "ME"), "repair it"),
    (concat!("XX", "X"), "repair it"),
    (concat!("allow(dead", "_code)"), "remove the code, or use it"),
    (concat!("#[ig", "nore"), "a test that does not run is no test"),
    (concat!("unimpl", "emented!("), "implement it or return an error that says what is missing"),
];

/// Returns whether the file is text of this project: data, recordings, licences and lock files are
/// left alone.
pub(super) fn is_checked(file: &str) -> bool {
    const TEXT: &[&str] = &[".rs", ".toml", ".md", ".sh", ".py", ".yml", ".c", ".h", ".svg"];
    let named = ["Makefile", ".ci/run", ".gitignore"].contains(&file);
    named || TEXT.iter().any(|end| file.ends_with(end))
}

/// Checks one file.
pub(super) fn check(file: &str, content: &str, findings: &mut Vec<Finding>) {
    let code = file.ends_with(".rs");
    let lines = content.lines().count();
    if code && lines > LINES_MAX && !LONG_FILES.iter().any(|(long, _)| *long == file) {
        let text = format!(
            "has {lines} lines, more than {LINES_MAX}: split it by subject, or give its reason in \
             LONG_FILES \
             (xtask/src/tidy/text.rs)"
        );
        findings.push(Finding::new(file, LINES_MAX + 1, text));
    }
    if !content.is_empty() && !content.ends_with('\n') {
        findings.push(Finding::new(file, lines, "does not end with a newline"));
    }
    if code {
        let text = "an example that no test compiles: make it a file under `examples`, or name \
                    another language";
        findings.extend(examples(content).map(|line| Finding::new(file, line, text)));
    }
    for (at, line) in content.lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(file, at + 1, "ends in blanks"));
        }
        if code && is_wide_comment(line) {
            let text = format!("a comment of more than {COLUMNS_MAX} columns: go on in a new line");
            findings.push(Finding::new(file, at + 1, text));
        }
        if code
            && let Some((word, advice)) =
                unfinished(line).filter(|(word, _)| !is_shared(file, word))
        {
            findings.push(Finding::new(file, at + 1, format!("contains `{word}`: {advice}")));
        }
    }
}

/// Returns whether a line is a comment that could be broken. A row of a table cannot, nor can what
/// is between backquotes.
fn is_wide_comment(line: &str) -> bool {
    let comment = line.trim_start();
    comment.starts_with("//")
        && line.chars().count() > COLUMNS_MAX
        && !comment.trim_start_matches(['/', '!', ' ']).starts_with(['|', '`', '['])
}

/// Returns the lines at which a comment begins an example in Rust (rustdoc's default language).
fn examples(content: &str) -> impl Iterator<Item = usize> {
    let fences = content.lines().enumerate().filter_map(|(at, line)| {
        let comment = line.trim_start();
        let comment = comment.strip_prefix("//!").or_else(|| comment.strip_prefix("///"))?;
        Some((at + 1, comment.trim().strip_prefix("```")?))
    });
    let openings = fences.step_by(2);
    openings
        .filter(|(_, language)| matches!(*language, "" | "rust" | "no_run" | "should_panic"))
        .map(|(line, _)| line)
}

/// Every test binary of a crate compiles `tests/common` for itself and uses a part of it.
fn is_shared(file: &str, word: &str) -> bool {
    file.contains("/tests/common/") && word.ends_with("(dead_code)")
}

fn unfinished(line: &str) -> Option<(&'static str, &'static str)> {
    UNFINISHED.iter().copied().find(|(word, _)| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !(part_of_word(before) || word.ends_with(char::is_alphanumeric) && part_of_word(after))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, content: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(file, content, &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_blanks_and_long_files() {
        assert_eq!(lines("a.md", "one \ntwo\n"), [1]);
        assert_eq!(lines("a.md", "one"), [1]);
        assert_eq!(lines("a.rs", &"//\n".repeat(LINES_MAX)), [0usize; 0]);
        assert_eq!(lines("a.rs", &"//\n".repeat(LINES_MAX + 1)), [LINES_MAX + 1]);
    }

    #[test]
    fn finds_wide_comments() {
        let wide = "word ".repeat(COLUMNS_MAX / 5);
        assert_eq!(lines("a.rs", &format!("// {wide}x\n")), [1]);
        assert_eq!(lines("a.rs", &format!("// {}\n", &wide[5..].trim_end())), [0usize; 0]);
        assert_eq!(lines("a.rs", &format!("// | {wide}|\n")), [0usize; 0]);
        assert_eq!(lines("a.rs", &format!("let a = \"{wide}\";\n")), [0usize; 0]);
    }

    #[test]
    fn finds_examples_in_comments() {
        assert_eq!(lines("a.rs", "//! ```text\n//! a -> b\n//! ```\n"), [0usize; 0]);
        assert_eq!(lines("a.rs", "//! ```toml\n//! ```\n\n/// ```\n/// f();\n/// ```\n"), [4]);
    }

    #[test]
    fn finds_unfinished_work_in_code() {
        for (word, _) in UNFINISHED {
            assert_eq!(lines("a.rs", &format!("let a = 1; // {word} x\n")), [1], "{word}");
            assert_eq!(lines("a.md", &format!("{word}\n")), [0usize; 0], "prose may name it");
        }
        let shared = concat!("#![allow(dead", "_code)]\n");
        assert_eq!(lines("crates/a/tests/common/mod.rs", shared), [0usize; 0]);
        assert_eq!(lines("crates/a/src/common/mod.rs", shared), [1]);
        assert_eq!(lines("a.rs", concat!("const XX", "XY: u8 = 0;\n")), [0usize; 0]);
    }
}
