//! What a text names exists: files, sections, chores of `cargo xtask`, targets of make. (Commands
//! of `schedlab` are asked of the program itself, in `crates/cli/tests/it/documented.rs`.)

use crate::finding::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Folders of the repository: a path that begins with one of them is a path in it.
const FOLDERS: [&str; 11] = [
    "crates",
    "docs",
    "guest-lab",
    "xtask",
    "scenarios",
    "recordings",
    "experiments",
    "oracles",
    "bpf",
    "python",
    "fuzz",
];

/// Files that a text may name by the end of their path, such as `compare/trust.rs`.
const BY_THEIR_END: [&str; 2] = [".rs", ".md"];

/// Documents that a reader does not have, put together here so that this file does not name them.
const ELSEWHERE: [&str; 5] = [
    concat!("design", " §"),
    concat!("spec", " §"),
    concat!("spec", "s/"),
    concat!("../", "shared"),
    concat!("/work", "/"),
];

/// The list of the documents.
const LIST: &str = "docs/README.md";

/// Texts that name what was once there.
const OF_THE_PAST: [&str; 2] = ["CHANGELOG.md", "docs/decisions.md"];

/// What can be named.
pub(super) struct Known {
    /// Every file, and every folder above one, as a path from the root.
    paths: BTreeSet<String>,
    /// The anchors of the headings of each Markdown page.
    anchors: BTreeMap<String, BTreeSet<String>>,
    /// The headings themselves.
    headings: BTreeMap<String, Vec<String>>,
    /// Targets of the Makefile.
    targets: BTreeSet<String>,
    /// The chores of `cargo xtask`.
    chores: clap::Command,
}

impl Known {
    /// Reads the headings of all pages and the targets of the Makefile.
    pub(super) fn read(root: &Path, files: &[String]) -> Known {
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let pages = files.iter().filter(|file| file.ends_with(".md"));
        let pages: Vec<(String, String)> = pages.map(|file| (file.clone(), read(file))).collect();
        Known::from_texts(files, &pages, &read("Makefile"))
    }

    fn from_texts(files: &[String], pages: &[(String, String)], makefile: &str) -> Known {
        let above = |file: &String| {
            file.match_indices('/').map(|(at, _)| file[..at].to_owned()).collect::<Vec<String>>()
        };
        let mut paths: BTreeSet<String> = files.iter().flat_map(above).collect();
        paths.extend(files.iter().cloned());
        let (mut anchors, mut headings) = (BTreeMap::new(), BTreeMap::new());
        for (file, text) in pages {
            let of_page = headings_of(text);
            anchors.insert(file.clone(), of_page.iter().map(|heading| anchor(heading)).collect());
            headings.insert(file.clone(), of_page);
        }
        let target =
            |line: &str| Some(line.split_once(':')?.0.to_owned()).filter(|name| is_target(name));
        let targets = makefile.lines().filter_map(target).collect();
        Known { paths, anchors, headings, targets, chores: crate::chores() }
    }

    /// Checks one file.
    pub(super) fn check(&self, file: &str, content: &str, findings: &mut Vec<Finding>) {
        if file == LIST {
            self.list(content, findings);
        }
        if OF_THE_PAST.contains(&file) {
            return;
        }
        let page = file.ends_with(".md");
        for (at, line) in content.lines().enumerate() {
            let mut say = |what: String| findings.push(Finding::new(file, at + 1, what));
            let Some(text) = (if page { Some(line) } else { comment(file, line) }) else {
                self.printed(line, &mut say);
                continue;
            };
            if let Some(name) = ELSEWHERE.iter().find(|name| text.to_lowercase().contains(**name)) {
                say(format!(
                    "names `{name}`, which is not in the repository: cite the source (kernel file \
                     and version, paper and section), or a sheet of docs/sources"
                ));
            }
            if page {
                self.links(file, line, &mut say);
            }
            self.paths(text, &mut say);
            self.sections(text, &mut say);
            if page || text.contains('`') {
                self.chores(text, &mut say);
            }
        }
    }

    /// The list of the documents names each of them.
    fn list(&self, content: &str, findings: &mut Vec<Finding>) {
        for page in
            self.paths.iter().filter(|path| path.starts_with("docs/") && path.ends_with(".md"))
        {
            let name = page.strip_prefix("docs/").unwrap_or(page);
            // Fact sheets have a list of their own.
            let listed = name.starts_with("sources/") || content.contains(&format!("]({name})"));
            if page != LIST && !listed {
                findings.push(Finding::new(LIST, 0, format!("does not list {page}")));
            }
        }
    }

    /// `[text](path#anchor)`.
    fn links(&self, file: &str, line: &str, say: &mut dyn FnMut(String)) {
        for after in line.split("](").skip(1) {
            let target = after.split(')').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, name) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.to_owned() } else { beside(file, path) };
            if !self.paths.contains(path.trim_end_matches('/')) {
                say(format!("links to `{target}`, and there is no {path}"));
            } else if !name.is_empty()
                && !self.anchors.get(&path).is_some_and(|all| all.contains(name))
            {
                say(format!("links to `#{name}`, which is no heading of {path}"));
            }
        }
    }

    /// Pages that a message of the program names.
    fn printed(&self, line: &str, say: &mut dyn FnMut(String)) {
        let pages = words(line)
            .filter_map(plain_path)
            .filter(|word| word.starts_with("docs/") && word.ends_with(".md"));
        for page in pages.filter(|page| !self.has(page)) {
            say(format!("names `{page}`, which does not exist"));
        }
    }

    /// Paths in a sentence: from the root, or the end of one.
    fn paths(&self, text: &str, say: &mut dyn FnMut(String)) {
        for word in words(text) {
            let Some(word) = plain_path(word) else { continue };
            let ours = word.split_once('/').is_some_and(|(first, _)| FOLDERS.contains(&first));
            let by_its_end =
                BY_THEIR_END.iter().any(|end| word.ends_with(end) && word.len() > end.len());
            if ours && !self.has(word) || !ours && by_its_end && !self.ends(word) {
                say(format!("names `{word}`, which does not exist"));
            }
        }
    }

    /// Returns true when the path exists; `*` matches any characters in it.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if !path.contains('*') {
            return self.paths.contains(path);
        }
        let parts: Vec<&str> = path.split('*').collect();
        self.paths.iter().any(|known| fits(known, &parts))
    }

    fn ends(&self, name: &str) -> bool {
        let name = name.trim_start_matches("../");
        let parts: Vec<&str> = name.split('*').collect();
        self.paths.iter().any(|known| {
            let mut starts =
                std::iter::once(0).chain(known.match_indices('/').map(|(at, _)| at + 1));
            // A path from a crate's name leaves out its folder `src`.
            let short = known.replace("/src/", "/");
            let mut short_starts =
                std::iter::once(0).chain(short.match_indices('/').map(|(at, _)| at + 1));
            starts.any(|at| fits(&known[at..], &parts))
                || short_starts.any(|at| fits(&short[at..], &parts))
        })
    }

    /// `linux-facts.md, section 5.1` and `linux-facts.md §5`: the heading begins with that number.
    fn sections(&self, text: &str, say: &mut dyn FnMut(String)) {
        for (at, _) in text.match_indices(".md") {
            let rest = text[at + 3..].trim_start_matches([')', '`', ',', ' ']);
            let Some(rest) = rest.strip_prefix("section ").or_else(|| rest.strip_prefix('§'))
            else {
                continue;
            };
            let number: String =
                rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            let number = number.trim_end_matches('.');
            let begin = text[..at].rfind(|c: char| !is_of_path(c)).map_or(0, |at| at + 1);
            let name = format!("{}.md", &text[begin..at]);
            let name = name.trim_start_matches("../");
            let page = self
                .headings
                .iter()
                .find(|(page, _)| **page == name || page.ends_with(&format!("/{name}")));
            let Some((page, headings)) = page else { continue };
            let fits = |heading: &String| {
                heading.strip_prefix(number).is_some_and(|rest| rest.starts_with(['.', ' ']))
            };
            if !number.is_empty() && !headings.iter().any(fits) {
                say(format!("names section {number} of {page}, which has none"));
            }
        }
    }

    /// `cargo xtask CHORE --option` and `make TARGET` in code spans and blocks.
    fn chores(&self, text: &str, say: &mut dyn FnMut(String)) {
        for after in text.split("cargo xtask ").skip(1) {
            let mut words = after
                .split(['`', '#', '|', ')', ']'])
                .next()
                .unwrap_or_default()
                .split_whitespace();
            let Some(chore) = words.next().map(|word| word.trim_matches(['.', ',', ';', ':']))
            else {
                continue;
            };
            if chore.is_empty()
                || chore == "help"
                || !chore.starts_with(|c: char| c.is_ascii_lowercase())
            {
                continue;
            }
            let Some(known) = self.chores.find_subcommand(chore) else {
                say(format!("names the chore `cargo xtask {chore}`, which does not exist"));
                continue;
            };
            // What comes behind `--` is another program's.
            for option in
                words.take_while(|word| *word != "--").filter(|word| word.starts_with("--"))
            {
                let option = option.trim_end_matches(['.', ',', ';', ':']);
                let name = option.split('=').next().map(|name| name.trim_start_matches('-'));
                if name != Some("help")
                    && !known.get_arguments().any(|known| known.get_long() == name)
                {
                    say(format!("`cargo xtask {chore}` has no option {option}"));
                }
            }
        }
        for span in text.split('`').skip(1).step_by(2) {
            if let Some(target) = span.strip_prefix("make ").filter(|target| is_target(target))
                && !self.targets.contains(target)
            {
                say(format!("names `make {target}`, which the Makefile does not have"));
            }
        }
    }
}

/// Returns the comment of a line of code, `None` for code.
fn comment<'a>(file: &str, line: &'a str) -> Option<&'a str> {
    let line = line.trim_start();
    let marks: &[&str] = match file.rsplit('.').next() {
        Some("rs") => &["//"],
        Some("c" | "h") => &["/*", "*", "//"],
        Some("toml" | "py" | "sh" | "yml") => &["#"],
        _ => return None,
    };
    let mark = marks.iter().find(|mark| line.starts_with(**mark))?;
    Some(line[mark.len()..].trim_start_matches(['/', '!', '#']))
}

fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['/', '.', '-', '_', '*'].contains(&c)
}

/// Cuts a line where no path goes on.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let stops = |c: char| {
        c.is_whitespace()
            || ['`', '(', ')', '[', ']', '"', '\'', ',', ';', '|', '=', '#', '<', '>'].contains(&c)
    };
    text.split(stops).filter(|word| word.contains('.') || word.contains('/'))
}

/// Returns a word as a path, without the end of a sentence; `None` when it is no plain path.
fn plain_path(word: &str) -> Option<&str> {
    let word = word.trim_end_matches(['.', ':', '?', '!']);
    let word = word.strip_prefix("./").unwrap_or(word);
    // `trust.rs:12` names a line.
    let word = word.split(':').next()?;
    let plain = word.chars().all(is_of_path) && !word.contains("...") && !word.starts_with('/');
    // NAME and FILE are the reader's to fill in.
    let filled = word.split(['/', '.', '-', '_']).all(|part| {
        part.len() < 2
            || part.contains(|c: char| !c.is_ascii_uppercase())
            || ["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "LICENSE", "MIT", "APACHE"]
                .contains(&part)
    });
    (plain && filled && !word.is_empty()).then_some(word)
}

fn fits(name: &str, parts: &[&str]) -> bool {
    let [first, rest @ ..] = parts else { return false };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    for (at, part) in rest.iter().enumerate() {
        if at + 1 == rest.len() {
            return left.ends_with(part);
        }
        let Some(found) = left.find(part) else { return false };
        left = &left[found + part.len()..];
    }
    left.is_empty()
}

/// Returns `path` as seen from the root, when it is written in `file`.
fn beside(file: &str, path: &str) -> String {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn headings_of(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut headings = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) {
            headings.push(heading.trim_start_matches('#').trim().to_owned());
        }
    }
    headings
}

/// Returns the anchor that GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn is_target(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(file: &str, text: &str) -> Vec<String> {
        let files = [
            "docs/sources/linux-facts.md",
            "docs/guide/redis.md",
            "crates/sim/src/engine/mod.rs",
            "README.md",
        ];
        let files: Vec<String> = files.map(str::to_owned).into();
        let page = "# Facts\n## 5. Machines\n### 5.1 The paper's table\n```sh\n# no heading\n```\n"
            .to_owned();
        let pages = [(files[0].clone(), page)];
        let known = Known::from_texts(&files, &pages, "test: build  ## Every test\n");
        let mut findings = Vec::new();
        known.check(file, text, &mut findings);
        findings.iter().map(|finding| finding.text.clone()).collect()
    }

    #[test]
    fn what_exists_may_be_named() {
        for text in [
            "[facts](../sources/linux-facts.md#51-the-papers-table), \
             `crates/sim/src/engine/mod.rs`, sim/engine/mod.rs.",
            "docs/sources/linux-facts.md, section 5.1, and \
             [linux-facts.md](../sources/linux-facts.md), section 5.",
            "docs/*/redis.md and `engine/*.rs`; `cargo xtask tidy`, `make test`, `cargo xtask \
             stress --seed 1`",
            "kernel/sched/fair.c, crates/NAME/src, `docs/...`, https://example.org/docs/none.md",
        ] {
            assert_eq!(said("docs/guide/redis.md", text), [""; 0], "{text}");
        }
        assert_eq!(said("a.rs", "let path = \"crates/none.rs\";"), [""; 0], "code is not prose");
    }

    #[test]
    fn what_does_not_exist_is_found() {
        for text in [
            "[facts](sources/linux-facts.md)",
            "[facts](../sources/linux-facts.md#6-none)",
            "see `crates/sim/src/motor.rs`",
            "see compare/motor.rs",
            "docs/*/redis.rs",
            "linux-facts.md, section 6",
            "linux-facts.md §5.2",
            "`cargo xtask dance`",
            "`cargo xtask tidy --twice`",
            "`make dinner`",
            concat!("as the spec", " §3 says"),
        ] {
            assert_eq!(
                said("docs/guide/redis.md", text).len(),
                1,
                "{text}: {:?}",
                said("docs/guide/redis.md", text)
            );
        }
        let none = concat!("docs/", "none.md");
        for (file, text) in
            [("a.rs", "    /// See {}."), ("a.toml", "# {}"), ("a.rs", "print(\"see {}\");")]
        {
            assert_eq!(said(file, &text.replace("{}", none)).len(), 1, "{text}");
        }
        assert_eq!(said(LIST, "[redis](guide/redis.md)"), [""; 0]);
        assert_eq!(said(LIST, "no page"), ["does not list docs/guide/redis.md"]);
    }
}
