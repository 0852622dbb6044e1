//! The tables of docs/recording.md: which ways to record work, by kernel and by who asks, and what
//! messages cost, by kernel. Made of what a test of each brings back, which is kept in the tree, a
//! file for each kernel: asking one kernel anew leaves the others' columns as they are.

use super::kernels::Kernel;
use super::messages;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// One of the tables.
struct Kind {
    /// The test whose answers it has.
    test: &'static str,
    /// The kernels that it asks; empty: all.
    kernels: &'static [&'static str],
    /// What each kernel answered last: `KERNEL.txt`, the release in the first line, then lines such
    /// as `root|bpf|yes`, or `row|what the cell says`.
    answers: &'static str,
    /// What is before the table on its page.
    begin: &'static str,
}

const WAYS: Kind = Kind {
    test: "backends",
    kernels: &[],
    answers: "guest-lab/guest/answers",
    begin: "<!-- made by `cargo xtask guest --table` -->\n",
};

const MESSAGES: Kind = Kind {
    test: "messages",
    kernels: messages::KERNELS,
    answers: "guest-lab/guest/answers-messages",
    begin: "<!-- made by `cargo xtask guest --table`, too -->\n",
};

const ALL: [Kind; 2] = [WAYS, MESSAGES];

/// Returns the tests whose answers these are.
pub(super) fn tests() -> impl Iterator<Item = String> {
    ALL.into_iter().map(|kind| kind.test.to_owned())
}

/// The page, and what is behind a table there.
const PAGE: &str = "docs/recording.md";
const END: &str = "<!-- end of the table -->\n";

/// Keeps what a kernel answered in this run (`folder`: that of its boots), in place of what it
/// answered before.
fn keep(kind: &Kind, tree: &Path, kernel: &str, release: &str, folder: &Path) -> Result<()> {
    let path = folder.join(kind.test).join(kind.test).join("table.txt");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    ensure!(!text.is_empty(), "{kernel} answered nothing: {} is empty", path.display());
    let answers = tree.join(kind.answers);
    std::fs::create_dir_all(&answers).with_context(|| kind.answers.to_owned())?;
    let file = answers.join(format!("{kernel}.txt"));
    std::fs::write(&file, format!("{release}\n{text}")).with_context(|| file.display().to_string())
}

/// Keeps what these kernels answered in their boots under `runs`, writes the page anew, and prints
/// its tables. Returns how many answered nothing: those have the columns that they had.
pub(super) fn renew(tree: &Path, kernels: &[Kernel], runs: &Path) -> Result<usize> {
    let mut bad = 0;
    for kind in ALL {
        let asked = |kernel: &&Kernel| {
            kind.kernels.is_empty() || kind.kernels.contains(&kernel.name.as_str())
        };
        for kernel in kernels.iter().filter(asked) {
            let folder = runs.join(&kernel.release);
            if let Err(error) = keep(&kind, tree, &kernel.name, &kernel.release, &folder) {
                println!("   FAULT {error:#}");
                bad += 1;
            }
        }
        println!("{}", Table::kept(&kind, tree)?.write(&kind, tree)?);
    }
    Ok(bad)
}

/// Returns what orders kernels: by version, PREEMPT_RT after the standard kernel.
fn order(kernel: &str) -> (Vec<u32>, bool) {
    let (version, realtime) =
        kernel.strip_suffix("-rt").map_or((kernel, false), |version| (version, true));
    (version.split('.').map(|part| part.parse().unwrap_or(u32::MAX)).collect(), realtime)
}

/// Who asks, in the order of the test, with the ways that work for them, by kernel.
#[derive(Default)]
struct Table {
    kernels: Vec<String>,
    rows: Vec<String>,
    works: BTreeMap<(String, usize), Vec<String>>,
}

impl Table {
    /// Reads what is kept of all kernels.
    fn kept(kind: &Kind, tree: &Path) -> Result<Table> {
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(tree.join(kind.answers)).context(kind.answers)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".txt").map(str::to_owned));
        }
        names.sort_by_key(|name| order(name));
        let mut table = Table::default();
        for name in names {
            let file = format!("{}/{name}.txt", kind.answers);
            let text = std::fs::read_to_string(tree.join(&file)).context(file)?;
            table.add(&name, text.split_once('\n').map_or("", |(_, answers)| answers));
        }
        Ok(table)
    }

    /// Adds what a kernel answered, lines such as `root|bpf|yes`.
    fn add(&mut self, kernel: &str, text: &str) {
        self.kernels.push(kernel.to_owned());
        for line in text.lines() {
            let mut words = line.split('|');
            let (Some(who), Some(way)) = (words.next(), words.next()) else { continue };
            if !self.rows.iter().any(|row| row == who) {
                self.rows.push(who.to_owned());
            }
            let cell = self.works.entry((who.to_owned(), self.kernels.len() - 1)).or_default();
            if words.next().is_none_or(|answer| answer == "yes") {
                cell.push(way.to_owned());
            }
        }
    }

    /// The table as Markdown: a row for each who, a column for each kernel.
    fn text(&self) -> String {
        let mut text = format!(
            "| | {} |\n|---|{}\n",
            self.kernels.join(" | "),
            "---|".repeat(self.kernels.len())
        );
        for row in &self.rows {
            let _ = write!(text, "| {row} |");
            for kernel in 0..self.kernels.len() {
                let cell = self.works.get(&(row.clone(), kernel)).map(Vec::as_slice);
                let words = match cell {
                    None => "not asked".to_owned(),
                    Some([]) => "none".to_owned(),
                    Some(ways) if ways.len() == 4 => "all".to_owned(),
                    Some(ways) => ways.join(", "),
                };
                let _ = write!(text, " {words} |");
            }
            text.push('\n');
        }
        text
    }

    /// Puts the table into its page, and returns it.
    fn write(&self, kind: &Kind, tree: &Path) -> Result<String> {
        let path = tree.join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
        let (before, rest) =
            page.split_once(kind.begin).with_context(|| format!("{PAGE} has no {}", kind.begin))?;
        let (_, after) =
            rest.split_once(END).with_context(|| format!("{PAGE} has no line {END}"))?;
        ensure!(!self.rows.is_empty(), "no kernel answered");
        let text = self.text();
        std::fs::write(&path, format!("{before}{}{text}{END}{after}", kind.begin))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_names_the_ways_that_work_and_a_kernel_that_is_asked_anew_has_its_column_anew() {
        let tree = schedlab_testing::temp_dir().join(format!("xtask-table-{}", std::process::id()));
        let run = tree.join("run");
        let deep = run.join(WAYS.test).join(WAYS.test);
        std::fs::create_dir_all(&deep).unwrap();
        let answers = |kernel: &str, text: &str| {
            std::fs::write(deep.join("table.txt"), text).unwrap();
            keep(&WAYS, &tree, kernel, "a release", &run)
        };
        let all = "root|bpf|yes\nroot|tracepoints|yes\nroot|switches|yes\nroot|own|yes\n\
                   user|bpf|no: EPERM\nuser|own|yes\n";
        answers("6.12-rt", "root|own|yes\n").unwrap();
        answers("6.12", all).unwrap();
        answers("6.1", "root|bpf|no: old\n").unwrap();
        assert!(answers("7.2", "").unwrap_err().to_string().contains("7.2 answered nothing"));
        let text = |rt: &str| {
            format!(
                "| | 6.1 | 6.12 | 6.12-rt |\n|---|---|---|---|\n| root | none | all | {rt} |\n\
                 | user | not asked | own | not asked |\n"
            )
        };
        assert_eq!(Table::kept(&WAYS, &tree).unwrap().text(), text("own"));
        answers("6.12-rt", "root|switches|yes\nroot|own|yes\n").unwrap();
        std::fs::create_dir_all(tree.join("docs")).unwrap();
        let (page, begin) = (tree.join(PAGE), WAYS.begin);
        std::fs::write(&page, format!("a\n{begin}old\n{END}b\n")).unwrap();
        Table::kept(&WAYS, &tree).unwrap().write(&WAYS, &tree).unwrap();
        let now = std::fs::read_to_string(&page).unwrap();
        assert_eq!(now, format!("a\n{begin}{}{END}b\n", text("switches, own")));
        std::fs::remove_dir_all(&tree).unwrap();
    }

    #[test]
    fn the_page_says_what_the_kernels_answered() {
        let tree = crate::root();
        let page = std::fs::read_to_string(tree.join(PAGE)).unwrap();
        for kind in ALL {
            let table = Table::kept(&kind, &tree).unwrap().text();
            assert!(
                page.contains(&format!("{}{table}{END}", kind.begin)),
                "{PAGE} does not say what {} holds; `cargo xtask guest --table` writes both:\n\
                 {table}",
                kind.answers
            );
        }
    }

    #[test]
    fn a_cell_may_hold_what_was_measured() {
        let mut table = Table::default();
        table.add("6.12", "a message|3.2 us\nits sends|none\n");
        table.add("7.2", "a message|2.9 us\n");
        let text = "| | 6.12 | 7.2 |\n|---|---|---|\n| a message | 3.2 us | 2.9 us |\n\
                    | its sends | none | not asked |\n";
        assert_eq!(table.text(), text);
    }
}
