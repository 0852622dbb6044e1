//! The tables of docs/predictions.md, made of the pairs that ship.

use super::{Held, Judged, PairResult, Summary, Told, rows};
use anyhow::{Context, Result};
use schedlab_study::compare::ReplayFrom;
use schedlab_study::metric::Metric;
use std::fmt::Write;

/// The page.
pub const PAGE: &str = "docs/predictions.md";
/// Where each table begins, and the folder that it is made of.
pub const TABLES: [(&str, &str); 7] = [
    ("<!-- made by `cargo xtask pairs --write` from recordings/pairs -->\n", "recordings/pairs"),
    (
        "<!-- made by `cargo xtask pairs --write` from recordings/pairs/guest -->\n",
        "recordings/pairs/guest",
    ),
    (
        "<!-- made by `cargo xtask pairs --write` from recordings/pairs/busy -->\n",
        "recordings/pairs/busy",
    ),
    (
        "<!-- made by `cargo xtask pairs --write` from recordings/pairs/changes -->\n",
        "recordings/pairs/changes",
    ),
    (
        "<!-- made by `cargo xtask pairs --write` from recordings/pairs/messages, by default -->\n",
        "recordings/pairs/messages",
    ),
    (
        "<!-- made by `cargo xtask pairs --write` from recordings/pairs/cpus -->\n",
        "recordings/pairs/cpus",
    ),
    (
        "<!-- made by `cargo xtask pairs --write` from recordings/pairs/smt -->\n",
        "recordings/pairs/smt",
    ),
];
/// Where the tables of large changes and of levels begin, which are made of what is below the
/// others.
pub const TOLD: &str = "<!-- made by `cargo xtask pairs --write` from the tables below -->\n";
/// Where the table of both replays begins, and the folder that it is made of.
pub const BESIDE: (&str, &str) = (
    "<!-- made by `cargo xtask pairs --write` from recordings/pairs/messages -->\n",
    "recordings/pairs/messages",
);
const END: &str = "<!-- end of what is made -->\n";

/// Returns what the page has in place of a table now.
///
/// # Errors
/// The lines around it are missing.
pub fn table_of<'a>(page: &'a str, begin: &str) -> Result<&'a str> {
    let (_, rest) =
        page.split_once(begin).with_context(|| format!("{PAGE} lacks the line {begin}"))?;
    let at = rest.find(END).with_context(|| format!("{PAGE} lacks the line {END}"))?;
    Ok(&rest[..at])
}

/// Returns the page with this table in place of the one that it has.
///
/// # Errors
/// The lines around it are missing.
pub fn with_table(page: &str, begin: &str, table: &str) -> Result<String> {
    let old = table_of(page, begin)?;
    Ok(page.replacen(&format!("{begin}{old}"), &format!("{begin}{table}"), 1))
}

/// Returns the table of a folder: a line for each figure where the machine was a live one, a line
/// for each server of guests, and one for each number of CPUs where those are several.
pub fn table(begin: &str, results: &[PairResult]) -> String {
    match TABLES.iter().position(|(of, _)| *of == begin) {
        Some(0 | 2 | 6) => each(results),
        Some(5) => super::cpus::by_cpus(results) + &by_server(results),
        _ => by_server(results),
    }
}

/// Returns the tables of large changes, and of how often intervals of each level hold, from the
/// sentences below the tables of a page.
///
/// # Errors
/// The lines around a table are missing.
pub fn told(page: &str) -> Result<String> {
    let mut text =
        "\n| pairs | shares that changed by more than 10 points: told, wrong | rates, by \
                    more than a fifth | p99 of times, by more than half |\n|---|---|---|---|\n"
            .to_owned();
    for (begin, folder) in TABLES {
        let told = Told::of_table(table_of(page, begin)?);
        let _ = writeln!(text, "| {folder} |{}", told.map(Told::cell).concat());
    }
    let _ = writeln!(text, "| all |{}", told_of_all(page)?.map(Told::cell).concat());
    text += "\n| pairs | figures | inside of 50 % | of 80 % | of 90 % | of 95 % | of 99 % \
             |\n|---|---|---|---|---|---|---|\n";
    let mut all = Held::default();
    for (begin, folder) in TABLES {
        let held = Held::of_table(table_of(page, begin)?);
        let _ = writeln!(text, "| {folder} |{}", held.cells());
        all.add(held);
    }
    let _ = writeln!(text, "| all |{}\n", all.cells());
    Ok(text)
}

/// Returns the large changes of all tables together: shares, rates, times.
///
/// # Errors
/// The lines around a table are missing.
pub fn told_of_all(page: &str) -> Result<[Told; 3]> {
    let mut sums = [Told::default(); 3];
    for (begin, _) in TABLES {
        let told = Told::of_table(table_of(page, begin)?);
        sums.iter_mut().zip(told).for_each(|(sum, told)| sum.add(told));
    }
    Ok(sums)
}

/// Returns the table of [`BESIDE`]: the pairs of its folder by each replay, a line for each server.
///
/// # Errors
/// What cannot be read or predicted.
pub fn beside(jobs: usize) -> Result<String> {
    let folder = crate::root().join(BESIDE.1);
    let of = |from| Ok((from, super::judge_all_from(&folder, from, jobs, |_| true)?));
    Ok(super::beside::by_server(&ReplayFrom::ALL.map(of).into_iter().collect::<Result<Vec<_>>>()?))
}

/// Returns shares, clients' counts and what is outside of its interval, and a summary.
fn each(results: &[PairResult]) -> String {
    let told = |row: &Judged<'_>| {
        let counted = row.figure.class == schedlab_study::compare::CLIENT_LOG;
        row.figure.metric == Metric::Share || counted || !row.figure.holds()
    };
    let mut text = format!("\n{}", super::HEAD);
    for row in rows(results).filter(told) {
        let _ = writeln!(text, "{row}");
    }
    text.push('\n');
    for line in Summary::from_results(results).to_string().lines() {
        let _ = writeln!(text, "* {line}");
    }
    text
}

/// Returns a line for each kernel and server.
pub(super) fn by_server(results: &[PairResult]) -> String {
    let servers = super::servers(results);
    let mut text = "\n| kernel, server, CPUs | pairs | trusted | inside their interval | certain \
                    claims, wrong | median error: share | \
                    client's count | p99 of latency |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (server, results) in
        servers.iter().map(|(server, of)| (*server, &of[..])).chain([("all", results)])
    {
        let summary = Summary::from_results(results);
        let error = |metric: Metric, unit: &str| {
            let error = summary.errors.get(&metric);
            error.map_or_else(String::new, |error| format!("{:.1} {unit}", error * 100.0))
        };
        let unseen = results.iter().all(|result| result.unseen);
        let _ = writeln!(
            text,
            "| {server}{} | {} | {} | {} of {} | {}, {} | {} | {} | {} |",
            if unseen { ", **unseen**" } else { "" },
            summary.pairs.0,
            summary.pairs.1,
            summary.held.1,
            summary.held.0,
            summary.claims.0,
            summary.claims.1,
            error(Metric::Share, "points"),
            error(Metric::Throughput, "%"),
            error(super::COMPARED[2], "%"),
        );
    }
    text + "\n" + &sentences(results)
}

/// Returns how many large changes were told, and how often intervals of each level hold.
pub(super) fn sentences(results: &[PairResult]) -> String {
    let summary = Summary::from_results(results);
    let lines = summary.large_changes().chain([summary.calibration()]);
    lines.map(|line| format!("* {line}\n")).collect::<String>() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_replaced_between_its_lines() {
        let [(first, _), (second, _), ..] = TABLES;
        let page = format!("a\n{first}old\n{END}b\n{second}{END}c\n");
        let page = with_table(&page, first, "new\n").unwrap();
        assert_eq!(table_of(&page, first).unwrap(), "new\n");
        assert_eq!(page, format!("a\n{first}new\n{END}b\n{second}{END}c\n"));
        assert!(with_table("a", first, "b").is_err());
    }

    #[test]
    fn large_changes_are_added_up_from_what_stands_below_the_tables() {
        let sentences = |came: usize| {
            format!(
                "| a |\n\n* Shares that changed by more than 10 points: {came}, of them told: 2, in \
                 the wrong direction: 0.\n* Times (p99) that changed by more than half: 9, of them \
                 told: 5, in the wrong direction: 1.\n"
            )
        };
        let page: String = TABLES
            .iter()
            .enumerate()
            .map(|(number, (begin, _))| format!("{begin}{}{END}", sentences(number + 2)))
            .collect();
        let told = told(&page).unwrap();
        assert!(
            told.contains("| recordings/pairs | 2 of 2, 0 | 0 of 0, 0 | 5 of 9, 1 |"),
            "{told}"
        );
        assert!(told.contains("| all | 14 of 35, 0 | 0 of 0, 0 | 35 of 63, 7 |"), "{told}");
    }
}
