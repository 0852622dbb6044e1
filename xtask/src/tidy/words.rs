//! Words that only this project's own history explains, or that a reader of another mother tongue
//! looks up. Neither what the program prints nor comments and documents have them.

use super::source::Parsed;
use crate::finding::Finding;
use proc_macro2::{Delimiter, Literal, TokenStream, TokenTree};

/// This file lists the words, and so has them.
const OWN: &str = "xtask/src/tidy/words.rs";
/// A part of the tree that is about to be replaced; its words go with it.
const REPLACED_SOON: &str = "crates/trace/src/replay";

/// Words in each of their forms, and what to say instead.
const REFUSED: &[(&[&str], &str)] = &[
    (&["nobody"], "say `no task`, `no thread` or `none`"),
    (&["somebody", "whoever", "whomever"], "name the task, the thread, the program or the user"),
    (&["everybody"], "say `all tasks` or `the others`"),
    (&["whom"], "name both: `which task woke which`"),
    (&["ours"], "say `schedlab's` or `of this project`"),
    (&["mend", "mends", "mended", "mending"], "say `repair`"),
    (&["stands"], "say `is`"),
    (&["bears"], "say `has` or `carries`"),
    (&["befits"], "say `fits`"),
    (&["lest"], "say `so that ... not`"),
    (&["ere"], "say `before`"),
    (&["taken for"], "say `counts as` or `is treated as`"),
    (&["as ever"], "say `as usual`"),
];

/// A refused word in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    line: usize,
    word: &'static str,
    advice: &'static str,
}

/// Adds the refused words of one file.
pub(super) fn check(
    file: &str,
    content: &str,
    source: Option<&Parsed>,
    findings: &mut Vec<Finding>,
) {
    if file == OWN || file.starts_with(REPLACED_SOON) {
        return;
    }
    let (printed, comments) = split(file, content, source.map(|source| source.tokens.clone()));
    findings.extend(printed.iter().chain(&comments).map(|found| {
        Finding::new(file, found.line, format!("says `{}`: {}", found.word, found.advice))
    }));
}

/// Returns the words of a file in what is printed, and those in comments and documents.
fn split(file: &str, content: &str, tokens: Option<TokenStream>) -> (Vec<Found>, Vec<Found>) {
    if let Some(tokens) = tokens {
        let tests = file.contains("/tests/") || file.ends_with("/tests.rs");
        let mut seen =
            Seen { docs_are_help: file.starts_with("crates/cli/src/"), ..Seen::default() };
        seen.tokens(tokens, tests);
        return (seen.printed, without(in_text(content, 1), &seen.code));
    }
    if file.ends_with(".md") {
        return (Vec::new(), in_text(content, 1));
    }
    let marks: &[&str] =
        if file.ends_with(".c") || file.ends_with(".h") { &["//", "* "] } else { &["#"] };
    let comment =
        |line: &str| marks.iter().find_map(|mark| Some(line.split_once(mark)?.1.to_owned()));
    let lines: Vec<String> =
        content.lines().map(|line| comment(line).unwrap_or_default()).collect();
    (Vec::new(), in_text(&lines.join("\n"), 1))
}

/// Returns `all` without those that are in `other` too, each once.
fn without(mut all: Vec<Found>, other: &[Found]) -> Vec<Found> {
    for one in other {
        if let Some(at) = all.iter().position(|found| found == one) {
            all.remove(at);
        }
    }
    all
}

/// Returns the refused words of a text whose first line has number `first`.
fn in_text(text: &str, first: usize) -> Vec<Found> {
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for (words, advice) in REFUSED {
            for word in *words {
                let times =
                    line.match_indices(word).filter(|(from, _)| is_whole(&line, *from, word.len()));
                all.extend(times.map(|_| Found { line: first + at, word, advice }));
            }
        }
    }
    all
}

/// Returns whether a match is no part of a longer word or name.
fn is_whole(line: &str, from: usize, length: usize) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    !line[..from].ends_with(of_name) && !line[from + length..].starts_with(of_name)
}

/// What is not a comment in a file of Rust.
#[derive(Default)]
struct Seen {
    /// Doc comments are what clap prints.
    docs_are_help: bool,
    /// Words in texts that are printed.
    printed: Vec<Found>,
    /// Words in code: texts of tests, names.
    code: Vec<Found>,
}

impl Seen {
    fn tokens(&mut self, tokens: TokenStream, test: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        // The item behind `#[cfg(test)]` ends with its braces.
        let mut test_item = false;
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => {
                    let attribute =
                        group.delimiter() == Delimiter::Bracket && is_attribute(&tokens[..at]);
                    match attribute.then(|| group.stream().to_string()) {
                        Some(text) if text.starts_with("doc") => self.docs(group.stream()),
                        Some(text) if text.starts_with("cfg") && text.contains("test") => {
                            test_item = true
                        }
                        _ => self.tokens(group.stream(), test || test_item),
                    }
                    test_item &= group.delimiter() != Delimiter::Brace;
                }
                TokenTree::Literal(literal) => self.literal(literal, test || test_item),
                TokenTree::Ident(name) => {
                    self.code.extend(in_text(&name.to_string(), name.span().start().line));
                }
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn docs(&mut self, tokens: TokenStream) {
        if !self.docs_are_help {
            return;
        }
        for token in tokens {
            if let TokenTree::Literal(literal) = token {
                self.literal(&literal, false);
            }
        }
    }

    fn literal(&mut self, literal: &Literal, test: bool) {
        let found = in_text(&literal.to_string(), literal.span().start().line);
        if !test {
            self.printed.extend(found.iter().cloned());
        }
        self.code.extend(found);
    }
}

/// Returns whether an attribute's brackets follow: of the next item, or of the whole file.
fn is_attribute(before: &[TokenTree]) -> bool {
    let is = |token: &TokenTree, c: char| matches!(token, TokenTree::Punct(punct) if punct.as_char() == c);
    match before {
        [.., hash, mark] if is(mark, '!') => is(hash, '#'),
        [.., hash] => is(hash, '#'),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(file: &str, content: &str) -> (Vec<&'static str>, Vec<&'static str>) {
        let source = file.ends_with(".rs").then(|| Parsed::read(content).unwrap());
        let (printed, comments) = split(file, content, source.map(|source| source.tokens));
        let words = |found: Vec<Found>| found.into_iter().map(|found| found.word).collect();
        (words(printed), words(comments))
    }

    #[test]
    fn what_is_printed_is_told_from_comments_and_code() {
        let text = "//! lest\n// for nobody\nfn ours() { print(\"whom\"); }\n/// It stands.\n\
                    fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \
                    check(\"lest\") }\n}\nfn c() { \"as ever\" }\n";
        assert_eq!(
            words("crates/a/src/b.rs", text),
            (vec!["whom", "as ever"], vec!["lest", "nobody", "stands"])
        );
        assert_eq!(words("crates/a/tests/b.rs", text).0, [""; 0], "tests print nothing");
        let help = "struct Args {\n    /// The task that is mended\n    a: u8,\n}\n";
        assert_eq!(words("crates/cli/src/commands/a.rs", help), (vec!["mended"], vec![]));
        assert_eq!(
            words(concat!("docs/", "a.md"), "Everybody, somebody_else\n"),
            (vec![], vec!["everybody"])
        );
        assert_eq!(words("a.py", "ours = 1  # nobody\n"), (vec![], vec!["nobody"]));
    }

    #[test]
    fn each_form_of_a_word_is_refused_and_longer_words_are_not() {
        for (words, _) in REFUSED {
            for word in *words {
                assert_eq!(in_text(&format!("a {word}, b"), 7).len(), 1, "{word}");
                assert!(in_text(&format!("x{word}y"), 1).is_empty(), "{word}");
            }
        }
        assert!(in_text("recommend standing colours here", 1).is_empty());
    }
}
