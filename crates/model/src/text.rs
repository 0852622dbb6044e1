//! Small readings of text that every part of schedlab needs: the nearest known word, patterns,
//! dates, sizes, decimals, and names as they are shown, as messages quote them and as shells read
//! them.

use std::borrow::Cow;

/// Returns the candidate with the smallest edit distance to `name`, if it is near enough to be a
/// typing error.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    candidates
        // Swapping two neighbours counts as one slip: `taks` for `task`.
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .min()
        .filter(|(d, candidate)| *d <= candidate.len().max(3) / 3)
        .map(|(_, candidate)| candidate.to_owned())
}

/// Returns the two ends of an interval as tables have them: `1.20ms..1.31ms`, `>1.20ms` where
/// nothing is known above, `<1.31ms` where nothing is known below, and one value where both ends
/// read the same.
pub fn between(low: Option<crate::Ns>, high: Option<crate::Ns>) -> String {
    let (low, high) = (low.map(|low| low.to_string()), high.map(|high| high.to_string()));
    match (low, high) {
        (Some(low), Some(high)) if low == high => low,
        (Some(low), Some(high)) => format!("{low}..{high}"),
        (Some(low), None) => format!(">{low}"),
        (None, Some(high)) => format!("<{high}"),
        (None, None) => String::new(),
    }
}

/// Returns whether a control group is the one at `path`, or below it. A `/` at the end of `path`
/// has no meaning.
pub fn is_in_group(group: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    group.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A part of a [`glob`] pattern.
enum GlobPart {
    /// `*`
    Any,
    /// `?`
    One,
    Letter(char),
    /// `[1-8x]`, or `[!1-8x]` with `true`: one character of (or outside) these ranges.
    Class(bool, Vec<(char, char)>),
}

impl GlobPart {
    fn takes(&self, letter: char) -> bool {
        match self {
            GlobPart::Any => false,
            GlobPart::One => true,
            GlobPart::Letter(own) => *own == letter,
            GlobPart::Class(except, ranges) => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&letter)) != *except
            }
        }
    }

    /// The parts of a pattern. A bracket that nothing closes is itself a letter, as in fnmatch(3).
    fn parse(pattern: &str) -> Vec<GlobPart> {
        let letters: Vec<char> = pattern.chars().collect();
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(&letter) = letters.get(at) {
            let class = (letter == '[').then(|| GlobPart::class(&letters[at + 1..])).flatten();
            let (part, length) = match (letter, class) {
                (_, Some((class, length))) => (class, length + 1),
                ('*', _) => (GlobPart::Any, 1),
                ('?', _) => (GlobPart::One, 1),
                (letter, _) => (GlobPart::Letter(letter), 1),
            };
            parts.push(part);
            at += length;
        }
        parts
    }

    /// A class and how many letters it has, with its closing bracket.
    fn class(letters: &[char]) -> Option<(GlobPart, usize)> {
        let except = matches!(letters.first(), Some('!' | '^'));
        let begin = usize::from(except);
        // A bracket that comes first is one of the letters.
        let end = begin + 1 + letters.get(begin + 1..)?.iter().position(|letter| *letter == ']')?;
        let (mut ranges, mut at) = (Vec::new(), begin);
        while at < end {
            let to = if at + 2 < end && letters[at + 1] == '-' { at + 2 } else { at };
            ranges.push((letters[at], letters[to]));
            at = to + 1;
        }
        Some((GlobPart::Class(except, ranges), end + 1))
    }
}

/// Returns whether `name` matches `pattern`, in which `*` matches any text, `?` any one character,
/// and `[1-8x]` one of these (`[!1-8x]`: one that is none of these).
pub fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<GlobPart>, Vec<char>) =
        (GlobPart::parse(pattern), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if matches!(pattern.get(p), Some(GlobPart::Any)) {
            retry = Some((p, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|part| part.takes(name[n])) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((star, from)) = retry {
            // The star takes one character more.
            retry = Some((star, from + 1));
            (p, n) = (star + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|part| matches!(part, GlobPart::Any))
}

/// Returns the moment as `2026-11-21T11:45:03.000000001Z`; see [`iso8601`].
pub fn iso8601_ns(unix_ns: u64) -> String {
    let whole = iso8601(unix_ns);
    format!("{}.{:09}Z", whole.trim_end_matches('Z'), unix_ns % 1_000_000_000)
}

/// Returns the date as `2026-11-21T11:45:03Z`, of nanoseconds since 1970, in the proleptic
/// Gregorian calendar.
pub fn iso8601(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let length = |year| if leap(year) { 366 } else { 365 };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

/// Whether `c` changes what a terminal, a page or an editor shows around it: control characters
/// (C0, DEL, C1), separators of lines and paragraphs, and what Unicode (TR 9, table 1) reverses or
/// hides text with.
pub const fn is_hostile(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns a name as it is shown and kept: what [`is_hostile`] is written as an escape (`\x1b`,
/// `\n`, `\u{202e}`). Threads, control groups, programs and files may be named anything, and a name
/// is data wherever it is printed.
pub fn shown(name: &str) -> Cow<'_, str> {
    if !name.contains(is_hostile) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 8);
    name.chars().for_each(|c| push_shown(&mut text, c));
    Cow::Owned(text)
}

/// Returns a message of several lines as it is shown: as [`shown`], but lines stay lines.
pub fn shown_lines(message: &str) -> Cow<'_, str> {
    if !message.contains(|c| is_hostile(c) && c != '\n') {
        return Cow::Borrowed(message);
    }
    let mut text = String::with_capacity(message.len() + 8);
    for c in message.chars() {
        if c == '\n' { text.push(c) } else { push_shown(&mut text, c) }
    }
    Cow::Owned(text)
}

fn push_shown(text: &mut String, c: char) {
    match c {
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        c if !is_hostile(c) => text.push(c),
        c if c.is_ascii() => text.push_str(&format!("\\x{:02x}", c as u32)),
        c => text.push_str(&format!("\\u{{{:x}}}", c as u32)),
    }
}

/// Returns a text as one word of a POSIX shell's command line: as it is where no shell changes it,
/// else in single quotes. What [`is_hostile`] is written as an escape ([`shown`]), so that a line
/// stays one line; a shell then reads the escape, not the character.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@%+=".contains(c);
    // zsh replaces `=NAME` by the path of a program.
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", shown(text).replace('\'', r"'\''")))
}

/// Characters of a foreign text that a message quotes at most: it shows which text is meant, and a
/// file of one line of 60 MB does not become a message of 60 MB.
pub const QUOTED_MAX: usize = 200;

/// Returns a text of a file or of the command line as a message quotes it: as it is [`shown`], and
/// at most [`QUOTED_MAX`] characters of it.
pub fn quoted(text: &str) -> Cow<'_, str> {
    let cut = |text: &str| {
        text.char_indices()
            .nth(QUOTED_MAX)
            .map(|(end, _)| format!("{}... ({} bytes)", &text[..end], text.len()))
    };
    match cut(text) {
        // What is cut off is not escaped first: it may be long.
        Some(short) => Cow::Owned(shown(&short).into_owned()),
        None => shown(text),
    }
}

/// Returns a field of a CSV table: quoted where RFC 4180 wants it. A text that a spreadsheet would
/// run as a formula (it begins with `=`, `+`, `-`, `@`) gets an apostrophe before it, which
/// spreadsheets hide.
pub fn csv_field(text: &str) -> String {
    let text = shown(text);
    let text =
        if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.into_owned() };
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Returns a cell of a Markdown table: what Markdown or HTML would read as markup is escaped.
pub fn markdown_cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in shown(text).chars() {
        match c {
            '&' => cell.push_str("&amp;"),
            '<' => cell.push_str("&lt;"),
            '>' => cell.push_str("&gt;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' => cell.extend(['\\', c]),
            c => cell.push(c),
        }
    }
    cell
}

/// Returns a number of bytes: `500M` is 524,288,000. Units are K, M, G and T, powers of 1024, with
/// or without `B` or `iB`; `None` when `text` is not such a number or is larger than 2^64 - 1
/// bytes.
pub fn bytes(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[number.len()..]
        .to_ascii_lowercase()
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Returns `value` / 10^`digits` without trailing zeros.
pub fn decimal(value: u64, digits: u32) -> String {
    let unit = 10_u64.pow(digits);
    let part = format!("{:0width$}", value % unit, width = digits as usize);
    let part = part.trim_end_matches('0');
    if part.is_empty() { (value / unit).to_string() } else { format!("{}.{part}", value / unit) }
}

/// Returns a decimal number times 10^`digits`, exactly; `None` when it is not one or is finer than
/// that.
pub fn scaled(text: &str, digits: usize) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if text.is_empty() || whole.is_empty() && part.is_empty() || part.len() > digits {
        return None;
    }
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    format!("{whole}{part:0<digits$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_paths() {
        assert!(is_in_group("/a/b", "/a") && is_in_group("/a", "/a"));
        assert!(is_in_group("/a", "/a/") && is_in_group("/a/b", "/a/") && is_in_group("/a", "/"));
        assert!(!is_in_group("/ab", "/a") && !is_in_group("/", "/a"));
    }

    #[test]
    fn the_nearest_word_is_found() {
        let words = ["task", "yes", "duration"];
        let near = |name: &str| nearest(name, words.into_iter());
        assert_eq!(near("taks").as_deref(), Some("task"));
        assert_eq!(near("yse").as_deref(), Some("yes"));
        assert_eq!(near("dration").as_deref(), Some("duration"));
        assert_eq!(near("elephant"), None);
    }

    #[test]
    fn a_name_is_data() {
        assert_eq!(shown("redis-server"), "redis-server");
        assert_eq!(shown("日本 (x)\\"), "日本 (x)\\");
        assert_eq!(shown("\u{1b}[31m\n\u{9b}2J\u{202e}"), r"\x1b[31m\n\u{9b}2J\u{202e}");
        assert_eq!(shown(&shown("\u{1b}\t")), r"\x1b\t", "once is enough");
        assert_eq!(shown_lines("a\n\u{1b}b"), "a\n\\x1bb");
    }

    #[test]
    fn a_word_of_a_shell_is_one_word() {
        for (text, word) in [
            ("/a/b-1.slt", "/a/b-1.slt"),
            ("--set=a,b", "--set=a,b"),
            ("=ls", "'=ls'"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(x)`y`", "'$(x)`y`'"),
            ("a\n\u{1b}", r"'a\n\x1b'"),
            ("~", "'~'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn a_message_quotes_the_beginning_of_a_long_text() {
        assert_eq!(quoted("redis\n"), "redis\\n");
        let long = "\u{1b}é".repeat(50_000);
        let text = quoted(&long);
        assert_eq!(text.chars().count(), 100 * 5 + "... (150000 bytes)".len(), "{text}");
        assert!(text.starts_with(r"\x1bé") && text.ends_with("... (150000 bytes)"), "{text}");
        assert_eq!(quoted(&"x".repeat(QUOTED_MAX)), "x".repeat(QUOTED_MAX));
    }

    #[test]
    fn no_cell_of_a_table_is_a_formula_or_markup() {
        let cells =
            [("yes", "yes"), ("=1+2", "'=1+2"), ("@a,b", "\"'@a,b\""), ("a\"\n", "\"a\"\"\\n\"")];
        for (name, cell) in cells {
            assert_eq!(csv_field(name), cell);
        }
        assert_eq!(markdown_cell("a|b<i>\u{7}"), r"a\|b&lt;i&gt;\\x07");
    }

    #[test]
    fn globs() {
        for (pattern, name, expected) in [
            ("yes", "yes", true),
            ("yes-*", "yes-12", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("y?s", "yes", true),
            ("yes", "yes-1", false),
            ("s[1-8]", "s8", true),
            ("s[1-8]", "s9", false),
            ("s[1-8]", "s[1-8]", false),
            ("*[!a-cx]", "worker-d", true),
            ("*[!a-cx]", "worker-x", false),
            ("kworker/[]0]*", "kworker/0:1", true),
            ("a[", "a[", true),
            ("[]", "[]", true),
        ] {
            assert_eq!(glob(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso8601(1_709_210_096_000_000_000), "2024-02-29T12:34:56Z");
        assert_eq!(iso8601(1_735_689_599_000_000_000), "2024-12-31T23:59:59Z");
        assert_eq!(iso8601_ns(1_000_000_007), "1970-01-01T00:00:01.000000007Z");
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, expected) in [
            ("500M", Some(524_288_000)),
            ("1KiB", Some(1024)),
            ("2gb", Some(2 << 30)),
            ("7", Some(7)),
            ("M", None),
            ("5X", None),
            ("99999999999T", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(scaled("1.25", 3), Some(1250));
        assert_eq!(scaled("1.2504", 3), None);
        assert_eq!((decimal(1250, 3), decimal(4000, 3)), ("1.25".to_owned(), "4".to_owned()));
    }
}
