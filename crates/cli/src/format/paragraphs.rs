//! What a terminal shows as Markdown: paragraphs between the tables that [`Table`](crate::render)
//! wrote.

/// What [`Style`](crate::render::Style) writes for bold text, which becomes `**`: names hold any
/// other sign.
pub(crate) const BOLD: [char; 2] = ['\u{e000}', '\u{e001}'];
/// What a line of a Markdown table begins with until it is one; no line of a paragraph does.
pub(crate) const TABLE: char = '\u{e002}';

/// Returns the text as Markdown: each line a paragraph, each run of table lines a table.
pub(crate) fn paragraphs(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut in_table = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let row = line.strip_prefix(TABLE);
        if !(out.is_empty() || in_table && row.is_some()) {
            out.push('\n');
        }
        in_table = row.is_some();
        match row {
            Some(row) => out += row,
            None => out += &escaped(line.trim()),
        }
        out.push('\n');
    }
    out
}

/// Returns a line of which Markdown makes no markup, except code between backticks and what is
/// bold.
pub(super) fn escaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len() + 8);
    let balanced = line.matches('`').count().is_multiple_of(2);
    let mut code = false;
    for (at, c) in line.char_indices() {
        code ^= c == '`' && balanced;
        match c {
            _ if BOLD.contains(&c) => text += "**",
            _ if code => text.push(c),
            '<' => text += "&lt;",
            '&' => text += "&amp;",
            '#' | '>' | '+' | '-' if at == 0 => text.extend(['\\', c]),
            '`' if !balanced => text.extend(['\\', c]),
            '*' | '_' | '[' | ']' | '\\' | '|' | '~' => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_paragraphs_and_rows_are_tables() {
        let [on, off] = BOLD;
        let text =
            format!("{on}demo{off}: `a_b` and c_d <x>\n\n  - e\n{TABLE}| a |\n{TABLE}|---|\nend\n");
        let expected = "**demo**: `a_b` and c\\_d &lt;x>\n\n\\- e\n\n| a |\n|---|\n\nend\n";
        assert_eq!(paragraphs(&text), expected);
    }
}
