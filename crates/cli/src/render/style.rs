//! How text is printed: as wide as the terminal, colours only on one.

use crate::args::ColorWhen;
use crate::format::BOLD;
use std::io::IsTerminal;
use std::sync::OnceLock;
use unicode_width::UnicodeWidthStr;

/// Width of the output where the terminal does not say its own.
const DEFAULT_WIDTH: usize = 120;

/// Narrower terminals get lines of this width.
const NARROWEST: usize = 32;

/// What --color says.
static COLOR: OnceLock<ColorWhen> = OnceLock::new();

/// Sets whether all output of this process has colours.
pub(crate) fn use_colors(when: ColorWhen) {
    // Called once, before anything is printed.
    let _ = COLOR.set(when);
}

/// Width and colours of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Columns.
    pub(crate) width: usize,
    pub(super) colors: bool,
    /// Text for [`paragraphs`](crate::format::paragraphs).
    pub(super) markdown: bool,
}

impl Style {
    /// Returns the style of standard output: colours on a terminal only, and never with NO_COLOR.
    pub(crate) fn of_stdout() -> Style {
        let terminal = std::io::stdout().is_terminal();
        let chosen = COLOR.get().copied().unwrap_or(ColorWhen::Auto);
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let measured = if terminal {
            terminal_size::terminal_size().map(|(w, _)| usize::from(w.0))
        } else {
            None
        };
        let width = asked.or(measured).unwrap_or(DEFAULT_WIDTH).clamp(NARROWEST, 400);
        let colors = match chosen {
            ColorWhen::Auto => terminal && !forbidden && !dumb,
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        };
        Style { width, colors, markdown: false }
    }

    /// Returns the style of files.
    pub(crate) const fn plain() -> Style {
        Style { width: DEFAULT_WIDTH, colors: false, markdown: false }
    }

    /// Returns the style of what becomes Markdown: its lines are broken where it is read.
    pub(crate) const fn markdown() -> Style {
        Style { width: usize::MAX / 2, colors: false, markdown: true }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colors { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
    pub(crate) fn bold(&self, text: &str) -> String {
        let [on, off] = BOLD;
        if self.markdown && !text.is_empty() {
            format!("{on}{text}{off}")
        } else {
            self.paint("1", text)
        }
    }
    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }
    pub(crate) fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }
    pub(crate) fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }
}

/// Returns `text` in lines of at most `width` columns, each indented.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if line.is_empty() {
            line.push_str(word);
        } else if indent + line.width() + 1 + word.width() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    let indented: Vec<String> = lines.iter().map(|line| format!("{:indent$}{line}", "")).collect();
    indented.join("\n")
}

/// Returns a line about an answer that is not that of all that was asked for.
pub(crate) fn partial_line(says: &str, style: &Style) -> String {
    let text = wrap(&format!("partial: {says}"), style.width, 0);
    format!("{}\n", text.replacen("partial", &style.bad("partial"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_the_width() {
        assert_eq!(wrap("a bb ccc", 6, 1), " a bb\n ccc");
    }
}
