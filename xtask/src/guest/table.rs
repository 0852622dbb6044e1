//! The table of docs/recording.md: which ways to record work, by kernel and by who asks. Made of what the test `backends` brings back.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The test whose answers these are.
pub(super) const TEST: &str = "backends";
/// The page, and what stands around the table there.
const PAGE: &str = "docs/recording.md";
const BEGIN: &str = "<!-- made by `cargo xtask guest --table` -->\n";
const END: &str = "<!-- end of the table -->\n";

/// Who asks, in the order of the test, with the ways that work for them, by kernel.
#[derive(Default)]
pub(super) struct Table {
    kernels: Vec<String>,
    rows: Vec<String>,
    works: BTreeMap<(String, usize), Vec<String>>,
}

impl Table {
    /// Adds what a kernel answered, lines such as `root|bpf|yes`.
    pub(super) fn add(&mut self, kernel: &str, folder: &Path) -> Result<()> {
        let path = folder.join(TEST).join(TEST).join("table.txt");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        self.kernels.push(kernel.to_owned());
        for line in text.lines() {
            let mut words = line.split('|');
            let (Some(who), Some(way), Some(answer)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            if !self.rows.iter().any(|row| row == who) {
                self.rows.push(who.to_owned());
            }
            let cell = self.works.entry((who.to_owned(), self.kernels.len() - 1)).or_default();
            if answer == "yes" {
                cell.push(way.to_owned());
            }
        }
        Ok(())
    }

    /// The table as Markdown: a row for each who, a column for each kernel.
    fn text(&self) -> String {
        let mut text =
            format!("| | {} |\n|---|{}\n", self.kernels.join(" | "), "---|".repeat(self.kernels.len()));
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
    pub(super) fn write(&self, tree: &Path) -> Result<String> {
        let path = tree.join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
        let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} has no line {BEGIN}"))?;
        let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no line {END}"))?;
        ensure!(!self.rows.is_empty(), "no kernel answered");
        let text = self.text();
        std::fs::write(&path, format!("{before}{BEGIN}{text}{END}{after}"))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_names_the_ways_that_work() {
        let folder = std::env::temp_dir().join(format!("xtask-table-{}", std::process::id()));
        let deep = folder.join(TEST).join(TEST);
        std::fs::create_dir_all(&deep).unwrap();
        let mut table = Table::default();
        let all = "root|bpf|yes\nroot|tracepoints|yes\nroot|switches|yes\nroot|own|yes\nuser|bpf|no: EPERM\nuser|own|yes\n";
        std::fs::write(deep.join("table.txt"), all).unwrap();
        table.add("6.1", &folder).unwrap();
        std::fs::write(deep.join("table.txt"), "root|bpf|no: old\n").unwrap();
        table.add("5.10", &folder).unwrap();
        let text = "| | 6.1 | 5.10 |\n|---|---|---|\n| root | all | none |\n| user | own | not asked |\n";
        assert_eq!(table.text(), text);
        std::fs::create_dir_all(folder.join("docs")).unwrap();
        let page = folder.join(PAGE);
        std::fs::write(&page, format!("a\n{BEGIN}old\n{END}b\n")).unwrap();
        table.write(&folder).unwrap();
        assert_eq!(std::fs::read_to_string(&page).unwrap(), format!("a\n{BEGIN}{text}{END}b\n"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
