//! How much of an input a message may quote. A message is read by a person: a file of one line of
//! 60 MB does not become one of 60 MB.

use schedlab_model::text::{QUOTED_MAX, shown, shown_lines};
use std::borrow::Cow;

/// Characters of a line of a message.
const LINE_MAX: usize = 2_000;
/// Lines of a message: the help to an option has some twenty.
const LINES_MAX: usize = 60;

/// Returns a message in which arguments of the command line that have line ends or tabs, such as
/// the names of files, are shown without: they forge no line.
pub(crate) fn on_one_line(
    message: &str,
    arguments: impl Iterator<Item = std::ffi::OsString>,
) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(message);
    for argument in arguments {
        let argument = argument.to_string_lossy();
        if argument.trim().contains(['\n', '\t', '\r']) && text.contains(argument.as_ref()) {
            text = Cow::Owned(text.replace(argument.as_ref(), &shown(&argument)));
        }
    }
    text
}

/// Returns a message as it is shown: what is quoted (between backticks, or a word) has
/// [`QUOTED_MAX`] characters at most, and nothing acts on a terminal.
pub(crate) fn limited(message: &str) -> String {
    let mut lines = message.split('\n');
    let mut text = String::new();
    for (number, line) in lines.by_ref().take(LINES_MAX).enumerate() {
        if number > 0 {
            text.push('\n');
        }
        text += &limited_line(line);
    }
    match lines.count() {
        0 => {}
        more => text += &format!("\n... ({more} lines more)"),
    }
    shown_lines(&text).into_owned()
}

fn limited_line(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            text.push('`');
        }
        // What no second backtick ends is not quoted.
        match index % 2 == 1 && index + 1 < parts.len() {
            true => text += &cut(part, QUOTED_MAX),
            false => part.split_inclusive(char::is_whitespace).for_each(|word| {
                let end = word.trim_end();
                text += &cut(end, QUOTED_MAX);
                text += &word[end.len()..];
            }),
        }
    }
    cut(&text, LINE_MAX)
}

/// Returns the beginning of a text that has more than `max` characters.
fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_two_lines_is_named_in_one() {
        let named = |message: &'static str, argument: &str| {
            on_one_line(message, std::iter::once(argument.into())).into_owned()
        };
        assert_eq!(
            named("a\nb.slt: no such file\nsee x", "a\nb.slt"),
            "a\\nb.slt: no such file\nsee x"
        );
        assert_eq!(
            named("a: no such file\n", "\n"),
            "a: no such file\n",
            "nothing but a line end is no name"
        );
    }

    #[test]
    fn what_is_quoted_is_cut_and_the_rest_stays() {
        let usual = "`yse` is no task: did you mean `yes`? See docs/scenario-format.md\n 3 | name \
                     = `x\n   | ^";
        assert_eq!(limited(usual), usual);
        let long = limited(&format!("`{}` is no task: there are a, b", "x y".repeat(100_000)));
        assert!(
            long.chars().count() < 300
                && long.ends_with("... (300000 bytes)` is no task: there are a, b"),
            "{long}"
        );
        let word = limited(&format!("{}: cannot be read", "\u{1b}".repeat(5_000)));
        assert!(word.chars().count() < 900 && word.ends_with(" bytes) cannot be read"), "{word}");
        let lines = limited(&"a line\n".repeat(1_000));
        assert!(lines.lines().count() == 61 && lines.ends_with("... (941 lines more)"), "{lines}");
        assert!(limited(&"word ".repeat(10_000)).chars().count() < 2_100);
    }
}
