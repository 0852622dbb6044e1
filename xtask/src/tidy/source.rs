//! Checks on parsed Rust: length of functions, `unsafe`, and what the pure floors may not name.

use super::floors::{self, Floor};
use crate::finding::Finding;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A function longer than this does more than one thing.
const FUNCTION_LINES_MAX: usize = 70;

/// Names that the pure floors may not contain, in code or in macros. The lint in clippy.toml
/// catches most of them too; this also sees types that are only stored, and whole modules.
const NOT_PURE: &[(&[&str], &str)] = &[
    (&["Instant"], "no clock here: time comes from the caller as `Ns`"),
    (&["SystemTime"], "no clock here: time comes from the caller as `Ns`"),
    (&["std", "thread"], "no threads here: one run is one thread; batches belong to the lab crate"),
    (&["HashMap"], "hash order differs from run to run: use a Vec or a BTreeMap"),
    (&["HashSet"], "hash order differs from run to run: use a Vec or a BTreeSet"),
    (&["RandomState"], "randomness comes from the seeded streams"),
    (&["std", "fs"], "no I/O here: the lab crate reads and writes files"),
    (&["std", "io"], "no I/O here: emit events into an EventSink"),
    (&["std", "net"], "no I/O here"),
    (&["std", "process"], "no processes here"),
    (&["std", "env"], "no environment here: what a run depends on is an argument"),
];

/// The files of the pure floors that may use floating point, with the reason. Never for time: a
/// field, variable or function whose name ends in a unit of time is refused there too.
const FLOAT_FILES: &[(&str, &str)] = &[
    (
        "crates/sim/src/rng.rs",
        "draws of exponential and log-normal lengths, with libm: same bits everywhere",
    ),
    (
        "crates/sim/src/metrics/",
        "shares and the Jain index of a finished run; nothing is decided by them",
    ),
];

/// Endings of names that hold a time.
const TIME_UNITS: &[&str] = &["_ns", "_us", "_ms", "_secs", "_time", "_at"];

/// A source file, parsed once for all checks.
pub(super) struct Parsed {
    pub(super) file: syn::File,
    pub(super) tokens: TokenStream,
}

impl Parsed {
    /// Parses it.
    ///
    /// # Errors
    /// It is no Rust.
    pub(super) fn read(content: &str) -> syn::Result<Parsed> {
        let tokens: TokenStream = content.parse()?;
        Ok(Parsed { file: syn::parse2(tokens.clone())?, tokens })
    }
}

/// Says why a file cannot be parsed.
pub(super) fn unparsed(file: &str, error: &syn::Error) -> Finding {
    Finding::new(file, error.span().start().line, format!("cannot be parsed: {error}"))
}

/// Checks one source file.
pub(super) fn check(file: &str, source: &Parsed, findings: &mut Vec<Finding>) {
    let floor = floors::of_file(file);
    let mut visitor =
        Visitor { file, findings, unsafe_allowed: floor.is_some_and(|f| f.may_be_unsafe) };
    visitor.visit_file(&source.file);
    if file.ends_with("/src/lib.rs")
        && let Some(floor) = floor
    {
        crate_attributes(file, &source.file, floor, findings);
    }
    if floor.is_some_and(|floor| floor.pure) && file.contains("/src/") {
        let mut flat = Vec::new();
        flatten(source.tokens.clone(), &mut flat);
        names(file, &flat, findings);
        let tests = test_lines(&source.file.items);
        flat.retain(|token| !tests.iter().any(|lines| lines.contains(&token.line)));
        floats(file, &flat, findings);
    }
}

struct Visitor<'a> {
    file: &'a str,
    findings: &'a mut Vec<Finding>,
    unsafe_allowed: bool,
}

impl Visitor<'_> {
    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = body.brace_token.span.close().end().line;
        let lines = last - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let text = format!(
                "function `{}` has {lines} lines, more than {FUNCTION_LINES_MAX}: take steps out \
                 of it",
                signature.ident
            );
            self.findings.push(Finding::new(self.file, first, text));
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
    fn visit_expr_unsafe(&mut self, item: &'ast syn::ExprUnsafe) {
        if !self.unsafe_allowed {
            let line = item.unsafe_token.span.start().line;
            let text = "`unsafe` belongs to crates/host only: add a safe function there";
            self.findings.push(Finding::new(self.file, line, text));
        }
        visit::visit_expr_unsafe(self, item);
    }
}

/// Every library says at its top what it never does, so that the compiler holds it to that.
fn crate_attributes(file: &str, parsed: &syn::File, floor: &Floor, findings: &mut Vec<Finding>) {
    let has = |level: &str, lint: &str| {
        parsed.attrs.iter().any(|attribute| {
            attribute.path().is_ident(level)
                && matches!(&attribute.meta, syn::Meta::List(list)
                    if list.tokens.to_string().replace(' ', "").split(',').any(|l| l == lint))
        })
    };
    if !floor.may_be_unsafe && !has("forbid", "unsafe_code") {
        findings.push(Finding::new(file, 1, "lacks `#![forbid(unsafe_code)]`"));
    }
    for lint in ["clippy::disallowed_methods", "clippy::disallowed_types"] {
        if floor.pure && !has("deny", lint) {
            findings.push(Finding::new(
                file,
                1,
                format!("lacks `#![deny({lint})]` (the list: clippy.toml)"),
            ));
        }
    }
}

/// A token worth looking at: a word or a number, with its line and whether `::` is before it.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
    pub(super) after_path: bool,
    after_colon: bool,
}

/// Returns the tokens of a file without its modules for tests.
pub(super) fn product_tokens(source: &Parsed) -> Vec<Token> {
    let mut flat = Vec::new();
    flatten(source.tokens.clone(), &mut flat);
    let tests = test_lines(&source.file.items);
    flat.retain(|token| !tests.iter().any(|lines| lines.contains(&token.line)));
    flat
}

fn flatten(tokens: TokenStream, into: &mut Vec<Token>) {
    let mut colons = 0;
    for token in tokens {
        let (text, span) = match token {
            TokenTree::Group(group) => {
                // `use std::{thread, fs}`: the words inside follow the path before the brace.
                let start = into.len();
                let prefix = if colons == 2 { into.last().map(|t| t.text.clone()) } else { None };
                flatten(group.stream(), into);
                if let Some(prefix) = prefix {
                    expand_group(&prefix, start, into);
                }
                colons = 0;
                continue;
            }
            TokenTree::Punct(punct) => {
                colons = if punct.as_char() == ':' { colons + 1 } else { 0 };
                continue;
            }
            TokenTree::Ident(ident) => (ident.to_string(), ident.span()),
            TokenTree::Literal(literal) => (literal.to_string(), literal.span()),
        };
        let line = span.start().line;
        into.push(Token { text, line, after_path: colons == 2, after_colon: colons == 1 });
        colons = 0;
    }
}

/// Puts `prefix` before every first word of a path in a braced import.
fn expand_group(prefix: &str, start: usize, into: &mut Vec<Token>) {
    let mut at = start;
    while at < into.len() {
        if !into[at].after_path {
            let line = into[at].line;
            into[at].after_path = true;
            into.insert(
                at,
                Token { text: prefix.to_owned(), line, after_path: false, after_colon: false },
            );
            at += 1;
        }
        at += 1;
    }
}

fn names(file: &str, tokens: &[Token], findings: &mut Vec<Finding>) {
    for (at, token) in tokens.iter().enumerate() {
        let rule = NOT_PURE.iter().find(|(path, _)| {
            path.iter().enumerate().all(|(i, word)| {
                tokens.get(at + i).is_some_and(|t| t.text == *word && (i == 0 || t.after_path))
            })
        });
        if let Some((path, why)) = rule {
            findings.push(Finding::new(
                file,
                token.line,
                format!("names `{}`: {why}", path.join("::")),
            ));
        }
    }
}

/// The lines of the modules that are compiled for tests only.
fn test_lines(items: &[syn::Item]) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut found = Vec::new();
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let Some((brace, inner)) = &module.content else { continue };
        if module.attrs.iter().any(is_cfg_test) {
            found.push(brace.span.open().start().line..=brace.span.close().end().line);
        } else {
            found.extend(test_lines(inner));
        }
    }
    found
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    matches!(&attribute.meta, syn::Meta::List(list)
        if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
}

/// Floating point in a pure floor (tests may compute an expected ratio with it): only in the listed
/// files, and there never for a time.
fn floats(file: &str, tokens: &[Token], findings: &mut Vec<Finding>) {
    let listed = FLOAT_FILES.iter().any(|(allowed, _)| file.starts_with(allowed));
    for (at, token) in tokens.iter().enumerate() {
        if token.text != "f32" && token.text != "f64" {
            continue;
        }
        let name = at.checked_sub(1).map(|before| &tokens[before]).filter(|_| token.after_colon);
        let of_time = name.filter(|name| TIME_UNITS.iter().any(|unit| name.text.ends_with(unit)));
        if let Some(name) = of_time {
            let text = format!("`{}` holds a time in floating point: use `Ns`", name.text);
            findings.push(Finding::new(file, token.line, text));
        } else if !listed {
            let text = format!(
                "uses `{}`: times and weights are integers here; a statistic may be one when the \
                 file is \
                 listed with its reason in FLOAT_FILES (xtask/src/tidy/source.rs)",
                token.text
            );
            findings.push(Finding::new(file, token.line, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, content: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(file, &Parsed::read(content).unwrap(), &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn long_functions_are_found_wherever_they_are() {
        let body = "    let _ = 1;\n".repeat(FUNCTION_LINES_MAX - 1);
        let exact = format!("fn f() {{\n{}}}\n", "    let _ = 1;\n".repeat(FUNCTION_LINES_MAX - 2));
        assert_eq!(found("crates/lab/src/a.rs", &exact), [""; 0]);
        for long in [
            format!("fn f() {{\n{body}}}\n"),
            format!("impl S {{\nfn f() {{\n{body}}}\n}}\n"),
            format!("trait T {{\nfn f() {{\n{body}}}\n}}\n"),
            format!("mod tests {{ #[test]\nfn f() {{\n{body}}}\n}}\n"),
        ] {
            assert_eq!(found("crates/lab/src/a.rs", &long).len(), 1, "{long}");
        }
    }

    #[test]
    fn unsafe_is_for_host_only() {
        let code = "fn f() { unsafe { g() } }\n";
        assert_eq!(found("crates/lab/src/a.rs", code).len(), 1);
        assert_eq!(found("crates/host/src/a.rs", code), [""; 0]);
    }

    #[test]
    fn pure_floors_name_no_clock_thread_file_or_hash() {
        for code in [
            "use std::time::Instant;\n",
            "fn f() { let t = std::time::SystemTime::now(); }\n",
            "use std::{fmt, thread};\n",
            "fn f() { assert!(std::fs::read(\"x\").is_ok()); }\n",
            "struct S { a: std::collections::HashMap<u8, u8> }\n",
            "struct S { share: f64 }\n",
            "fn f(x_ns: f64) {}\n",
        ] {
            assert_eq!(found("crates/sim/src/a.rs", code).len(), 1, "{code}");
            assert_eq!(found("crates/lab/src/a.rs", code), [""; 0], "{code}");
            assert_eq!(found("crates/sim/tests/a.rs", code), [""; 0], "{code}");
        }
        let tests = "#[cfg(test)]\nmod tests {\n    fn share() -> f64 { 0.5 }\n}\n";
        assert_eq!(found("crates/sim/src/a.rs", tests), [""; 0]);
        assert_eq!(found("crates/sim/src/metrics/a.rs", "struct S { share: f64 }\n"), [""; 0]);
        assert_eq!(found("crates/sim/src/metrics/a.rs", "struct S { wait_ns: f64 }\n").len(), 1);
        assert_eq!(
            found("crates/sim/src/a.rs", "/// An Instant, a thread.\nuse std::fmt;\n"),
            [""; 0]
        );
    }

    #[test]
    fn libraries_say_what_they_never_do() {
        assert_eq!(found("crates/lab/src/lib.rs", "//! Lab.\n").len(), 1);
        assert_eq!(found("crates/sim/src/lib.rs", "#![forbid(unsafe_code)]\n").len(), 2);
        let all = "#![forbid(unsafe_code)]\n#![deny(clippy::disallowed_methods, \
                   clippy::disallowed_types)]\n";
        assert_eq!(found("crates/sim/src/lib.rs", all), [""; 0]);
    }
}
