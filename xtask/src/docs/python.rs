//! The keywords of Python's `compare`, made from the options of `schedlab compare`.

use anyhow::{Context, Result};
use schedlab_study::compare::request::{CompareOption, OPTIONS, Shape};
use std::fmt::Write;

/// The lines around the keywords, and around their meaning in the docstring.
const KEYWORDS: [&str; 2] = [
    "    # Made by `cargo xtask docs` from OPTIONS (crates/study/src/compare/request.rs).\n",
    "    # End of what is made.\n",
];
const MEANING: [&str; 2] =
    ["    The options are those of the command:\n", "    Ctrl-C ends it at once."];
/// As wide as the package's lines may be (python/pyproject.toml).
const WIDTH: usize = 100;

/// Returns the file with the keywords and their meaning as they are declared now.
pub(super) fn compare(file: &str) -> Result<String> {
    let keywords: String = OPTIONS.iter().map(keyword).collect();
    let meaning: String = OPTIONS.iter().map(meaning).collect();
    let file = between(file, KEYWORDS, &keywords)?;
    between(&file, MEANING, &format!("\n{meaning}\n"))
}

fn between(file: &str, [begin, end]: [&str; 2], made: &str) -> Result<String> {
    let lacks = |line: &str| format!("the line around what is made is missing: {line}");
    let (before, rest) = file.split_once(begin).with_context(|| lacks(begin))?;
    let at = rest.find(end).with_context(|| lacks(end))?;
    Ok(format!("{before}{begin}{made}{}", &rest[at..]))
}

fn keyword(option: &CompareOption) -> String {
    let kind = match option.shape {
        Shape::Texts => "str | Iterable[str] = ()",
        Shape::Named(_) => "Mapping[str, str | PathLike[str]] | None = None",
        Shape::Text => "str | PathLike[str] | None = None",
        Shape::Number => "int | None = None",
        Shape::Time => "int | str | None = None",
    };
    format!("    {}: {kind},\n", option.name)
}

/// Returns the item of an option, wrapped.
fn meaning(option: &CompareOption) -> String {
    let mut text = format!("    * ``{}``:", option.name);
    let mut column = text.chars().count();
    for word in option.help.replace('`', "``").split_whitespace() {
        let length = word.chars().count() + 1;
        if column + length > WIDTH {
            text += "\n     ";
            column = 5;
        }
        let _ = write!(text, " {word}");
        column += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_and_meaning_are_made_anew() {
        let [[begin, end], [first, last]] = [KEYWORDS, MEANING];
        let file = format!(
            "def compare(\n{begin}    stale: int,\n{end}) -> Study:\n{first}stale\n{last} More.\n"
        );
        let made = compare(&file).unwrap();
        assert!(
            made.contains("    seeds: int | None = None,\n") && !made.contains("stale"),
            "{made}"
        );
        assert!(made.contains("    * ``costs``: Use this cost preset"), "{made}");
        assert!(made.lines().all(|line| line.chars().count() <= WIDTH), "{made}");
        assert_eq!(compare(&made).unwrap(), made, "it stays as it is");
        assert!(compare("def compare(").unwrap_err().to_string().contains("is missing"));
    }
}
