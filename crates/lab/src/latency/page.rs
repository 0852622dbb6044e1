//! The table of `latency --matrix` and `latency merge` as a page.

use super::article;
use super::findings::Truth;
use super::matrix::{Cell as Measured, Load, Matrix, MatrixRow};
use super::merge::{Difference, differences};
use schedlab_model::Ns;
use schedlab_report::{Cdf, Cell, Column, Curve, Facts, Measure, Page, Part, Section, Table, Tone};
use schedlab_stats::OrderInterval;
use schedlab_study::page::Origin;
use schedlab_study::view::spaced;

/// The page of a result.
pub fn of_matrix(matrix: &Matrix, origin: &Origin) -> Page {
    let several = matrix.systems.len() > 1;
    let mut page = Page::new(if several { "Wakeup latency, side by side" } else { "Wakeup latency" });
    let names: Vec<&str> = matrix.systems.iter().map(|system| system.name.as_str()).collect();
    page.subtitle(names.join(" · "));
    let (outcome, certainty) = verdict(matrix);
    page.verdict(outcome, certainty);
    if matrix.stopped {
        page.distrust();
    }
    page.push(table(matrix));
    if several {
        page.push(side_by_side(matrix));
    }
    if !matrix.findings().is_empty() {
        page.push(findings(matrix));
    }
    page.push(distributions(matrix));
    let mut trust = Section::new("How far to trust it");
    let doubts = matrix.doubts();
    if !doubts.is_empty() {
        trust.push(Part::List(doubts));
    }
    page.push(trust);
    page.push(provenance(matrix, origin));
    page.footer(format!(
        "Made by schedlab ({}). This file needs no network and no other file.",
        origin.commit
    ));
    page
}

/// What came out, and how sure it is.
fn verdict(matrix: &Matrix) -> (String, String) {
    let found = matrix.findings();
    let count = |truth| found.iter().filter(|finding| finding.truth == truth).count();
    let told = differences(matrix).iter().filter(|one| one.told()).count();
    let outcome = if found.is_empty() {
        format!("{told} of {} differences can be told from noise.", differences(matrix).len())
    } else {
        outcome_of(count(Truth::Holds), count(Truth::DoesNot), count(Truth::CannotTell))
    };
    let rounds = matrix.cells.iter().map(|cell| cell.rounds.len()).min().unwrap_or(0);
    let certainty = format!(
        "Medians over at least {rounds} rounds, with intervals that hold the true median as surely as the table says; \
         a maximum is of all rounds and grows with the length of a run."
    );
    (outcome, certainty)
}

/// The article's findings in one sentence; what did not occur is not mentioned.
fn outcome_of(holds: usize, does_not: usize, open: usize) -> String {
    let part = |count: usize, one: &str, more: &str| {
        (count > 0).then(|| format!("{count} {}", if count == 1 { one } else { more }))
    };
    let parts = [
        part(holds, "holds here", "hold here"),
        part(does_not, "does not", "do not"),
        part(open, "cannot be told here", "cannot be told here"),
    ];
    format!("Of the article's findings {}.", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn time(ns: f64) -> String {
    spaced(Ns(ns.max(0.0) as u64).to_string())
}

fn estimate(of: &OrderInterval) -> Cell {
    Cell::number(time(of.median), of.median).note(format!("{} … {}", time(of.low), time(of.high)), Tone::Dim)
}

/// Rows in the order of the table: by load, then policy, then system.
fn ordered(matrix: &Matrix) -> Vec<MatrixRow> {
    let mut rows = matrix.rows();
    let place = |row: &MatrixRow| matrix.systems.iter().position(|system| system.name == row.system);
    rows.sort_by_key(|row| {
        (row.load, row.policy.to_string().starts_with("fifo"), row.policy.to_string(), place(row))
    });
    rows
}

fn style(matrix: &Matrix, row: &Measured) -> usize {
    matrix
        .cells
        .iter()
        .filter(|cell| cell.load == row.load)
        .position(|cell| (&cell.system, cell.policy) == (&row.system, row.policy))
        .map_or(1, |place| place + 1)
}

fn table(matrix: &Matrix) -> Section {
    let rows = ordered(matrix);
    let confidence = rows.iter().map(|row| row.p50_ns.confidence).fold(1.0, f64::min);
    let mut section = Section::new("The table").lead(
        "How late a thread ran after its timer expired. The article's column is the maximum that it gives for the same kind of \
         kernel, load and policy, on its own machine: compare magnitudes.",
    );
    // One system stands in the subtitle.
    let several = matrix.systems.len() > 1;
    let cells = |row: &MatrixRow| {
        let dash = || Cell::text("–");
        let mut cells = vec![Cell::head(row.load.words()), Cell::text(row.policy.to_string())];
        cells.extend(several.then(|| Cell::text(&row.system)));
        cells.extend([
            estimate(&row.p50_ns),
            estimate(&row.p99_ns),
            row.p999_ns.map_or_else(dash, |ns| Cell::number(time(ns as f64), ns as f64)),
            estimate(&row.max_ns),
            Cell::number(time(row.worst_ns as f64), row.worst_ns as f64),
            row.article_max_ns.map_or_else(dash, |ns| Cell::number(time(ns.0 as f64), ns.0 as f64)),
            estimate(&row.mean_ns),
            Cell::number(row.count.to_string(), row.count as f64),
        ]);
        cells
    };
    let numbers = ["p50", "p99", "p99.9", "max of a round", "max of all", "article", "mean", "samples"];
    section.push(Table {
        caption: format!(
            "Medians over the rounds; below each the interval that holds the true median with {:.0} % or more",
            (confidence * 100.0).floor()
        ),
        columns: ["load", "policy", "system"]
            .into_iter()
            .take(if several { 3 } else { 2 })
            .map(Column::text)
            .chain(numbers.map(Column::number))
            .collect(),
        rows: rows.iter().map(cells).collect(),
        fold: None,
    });
    section.push(article_table());
    section
}

/// The reference data as they are.
fn article_table() -> Table {
    let row = |row: &article::ArticleRow| {
        let kernel = if row.realtime { "4.19 PREEMPT_RT" } else { "4.19 voluntary" };
        let policy = if row.fifo { "fifo:49" } else { "other" };
        let max = row.max_ns.0 as f64;
        vec![
            Cell::head(kernel),
            Cell::text(row.load.words()),
            Cell::text(policy),
            Cell::number(time(max), max),
        ]
    };
    Table {
        caption: "Two CPUs, cyclictest at 1000 and 1500 µs, 30 000 loops; the load is hackbench".to_owned(),
        columns: ["kernel", "load", "policy"]
            .map(Column::text)
            .into_iter()
            .chain([Column::number("max")])
            .collect(),
        rows: article::ROWS.iter().map(row).collect(),
        fold: Some("The article's eight rows".to_owned()),
    }
}

fn side_by_side(matrix: &Matrix) -> Section {
    let all = differences(matrix);
    let base = matrix.systems.first().map(|system| system.name.as_str()).unwrap_or_default();
    let mut section = Section::new("Side by side").lead(format!(
        "Every row against that of {base}, over pairs of rounds. “Cannot tell”: the interval of the difference holds 0, or \
         there are fewer than five rounds."
    ));
    let row = |one: &Difference| {
        let (ratio, difference) = (&one.ratio, &one.difference_ns);
        let (word, tone) = match (one.told(), difference.median < 0.0) {
            (false, _) => ("cannot tell", Tone::Dim),
            (true, true) => ("shorter", Tone::Good),
            (true, false) => ("longer", Tone::Bad),
        };
        let signed = |ns: f64| format!("{}{}", if ns < 0.0 { "−" } else { "+" }, time(ns.abs()));
        vec![
            Cell::head(format!("{}, {}", one.load.words(), one.policy)),
            Cell::text(&one.system),
            Cell::text(one.rung),
            Cell::number(format!("{:.3}", ratio.median), ratio.median)
                .note(format!("{:.3} … {:.3}", ratio.low, ratio.high), Tone::Dim),
            Cell::number(signed(difference.median), difference.median)
                .note(format!("{} … {}", signed(difference.low), signed(difference.high)), Tone::Dim),
            Cell::text("").note(word, tone),
        ]
    };
    if !all.is_empty() {
        section.push(Table {
            caption: format!("Ratio to {base} and difference from it"),
            columns: vec![
                Column::text("row"),
                Column::text("system"),
                Column::text("rung"),
                Column::number("ratio"),
                Column::number("difference"),
                Column::text("verdict"),
            ],
            rows: all.iter().map(row).collect(),
            fold: None,
        });
    }
    section
}

fn findings(matrix: &Matrix) -> Section {
    let mut section = Section::new("The article's findings").lead(
        "Checked on the first standard and the first PREEMPT_RT kernel of the table. A maximum below a limit counts only \
         with as many expiries as the article had.",
    );
    let row = |finding: &super::Finding| {
        let tone = match finding.truth {
            Truth::Holds => Tone::Good,
            Truth::DoesNot => Tone::Bad,
            Truth::CannotTell => Tone::Dim,
        };
        vec![
            Cell::head(finding.says),
            Cell::text("").note(finding.truth.words(), tone),
            Cell::text(finding.because.clone()),
        ]
    };
    section.push(Table {
        caption: "The four findings".to_owned(),
        columns: ["the article says", "here", "why"].map(Column::text).to_vec(),
        rows: matrix.findings().iter().map(row).collect(),
        fold: None,
    });
    section
}

fn distributions(matrix: &Matrix) -> Section {
    let mut section = Section::new("Distributions").lead(
        "How large a part of all expiries was later than a time; further left is better, and the lower end is the tail. Both \
         axes are logarithmic.",
    );
    let several = matrix.systems.len() > 1;
    let curve = |cell: &Measured| {
        let name = match several {
            true => format!("{} · {}", cell.policy, cell.system),
            false => cell.policy.to_string(),
        };
        let buckets: Vec<(Ns, u64)> = cell.all().buckets().into_iter().map(|(ns, n)| (Ns(ns), n)).collect();
        Curve::of_buckets(&name, style(matrix, cell), &buckets)
    };
    let measure = |load: Load| Measure {
        name: load.words().to_owned(),
        about: "From the expiry of the timer until the thread has read the clock".to_owned(),
        curves: matrix.cells.iter().filter(|cell| cell.load == load).filter_map(curve).collect(),
    };
    let measures = [Load::Idle, Load::Loaded, Load::Unstated].map(measure);
    let measures: Vec<Measure> = measures.into_iter().filter(|measure| !measure.curves.is_empty()).collect();
    if !measures.is_empty() {
        section.push(Cdf { title: "Wakeup latency".to_owned(), measures });
    }
    section
}

fn provenance(matrix: &Matrix, origin: &Origin) -> Section {
    let mut section = Section::new("Where the numbers come from");
    let mut facts = Facts::default();
    facts.add("command", &origin.command);
    facts.add("program", format!("schedlab, commit {}", origin.commit));
    facts.add("page made on", &origin.made_on);
    for system in &matrix.systems {
        let kind = match system.virtual_machine {
            Some(true) => ", virtual machine",
            Some(false) => ", no virtual machine",
            None => "",
        };
        facts.add(&system.name, format!("{}{kind}; measured by {}", system.kernel, system.tool));
    }
    if let Some(request) = &matrix.request {
        let list = |items: Vec<String>| items.join(", ");
        facts.add("CPUs", list(request.cpus.iter().map(|cpu| cpu.0.to_string()).collect()));
        facts.add(
            "intervals",
            format!("{} and {} more for each further thread", request.interval, request.distance),
        );
        facts.add(
            "rounds",
            format!(
                "{} of {} a row, rows in random order (seed {})",
                request.rounds, request.each, request.seed
            ),
        );
        facts.add(
            "load",
            format!(
                "{} groups of 20 senders and 20 receivers, threads, socket pairs, messages of 100 bytes (hackbench -T -g {})",
                request.groups, request.groups
            ),
        );
        facts.add(
            "timer slack",
            request.slack.map_or("as inherited, usually 50 µs".to_owned(), |slack| slack.to_string()),
        );
        facts.add(
            "idle states",
            request
                .dma_latency_us
                .map_or("as they are".to_owned(), |us| format!("/dev/cpu_dma_latency held at {us} µs")),
        );
    }
    facts.add(
        "the article",
        "cyclictest on Linux 4.19, standard and PREEMPT_RT, two CPUs; its maxima as shipped with schedlab",
    );
    section.push(facts);
    section
}

#[cfg(test)]
mod tests {
    use super::outcome_of;

    #[test]
    fn the_verdict_is_a_sentence() {
        assert_eq!(outcome_of(1, 0, 3), "Of the article's findings 1 holds here, 3 cannot be told here.");
        assert_eq!(
            outcome_of(2, 1, 1),
            "Of the article's findings 2 hold here, 1 does not, 1 cannot be told here."
        );
    }
}
