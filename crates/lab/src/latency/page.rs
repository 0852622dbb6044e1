//! The table of `latency --matrix` and `latency merge` as a page, and in sentences.

use super::findings::{Finding, Truth, findings};
use super::load::Load;
use super::matrix::{Cell as Measured, Matrix, MatrixRow};
use super::merge::{Difference, differences};
use super::published::{MAXIMA, PublishedMaximum};
use schedlab_model::{Ns, Policy};
use schedlab_report::{Cdf, Cell, Column, Curve, Facts, Measure, Page, Part, Section, Table, Tone};
use schedlab_stats::OrderInterval;
use schedlab_study::page::Origin;
use schedlab_study::view::spaced;

/// Returns the page of a result.
pub fn of_matrix(matrix: &Matrix, origin: &Origin) -> Page {
    let several = matrix.systems.len() > 1;
    let mut page =
        Page::new(if several { "Wakeup latency, side by side" } else { "Wakeup latency" });
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
    let found = findings(matrix);
    if !found.is_empty() {
        page.push(published_findings(&found));
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

/// Returns the outcome, and how sure it is.
fn verdict(matrix: &Matrix) -> (String, String) {
    let rounds = matrix.cells.iter().map(|cell| cell.rounds.len()).min().unwrap_or(0);
    let certainty = format!(
        "Medians over at least {rounds} rounds, with intervals that hold the true median as \
         surely as the table says; \
         a maximum is of all rounds and grows with the length of a run."
    );
    (summary(matrix), certainty)
}

/// Returns what the table says, in sentences: of the first system, then of the published findings;
/// where no row says what ran beside it, of the differences between the systems.
pub fn summary(matrix: &Matrix) -> String {
    let found = findings(matrix);
    if found.is_empty() {
        let all = differences(matrix);
        let told = all.iter().filter(|one| one.told()).count();
        return format!("{told} of {} differences can be told from noise.", all.len());
    }
    let rows: Vec<MatrixRow> = match matrix.systems.first() {
        Some(first) => matrix.rows().into_iter().filter(|row| row.system == first.name).collect(),
        None => Vec::new(),
    };
    let mut sentences: Vec<String> =
        [fifo_sentence(&rows), other_sentence(&rows)].into_iter().flatten().collect();
    let count = |truth| found.iter().filter(|finding| finding.truth == truth).count();
    sentences.push(findings_sentence(
        count(Truth::Holds),
        count(Truth::DoesNot),
        count(Truth::CannotTell),
    ));
    sentences.join(" ")
}

/// `SCHED_FIFO wakes within 85us in 99 of 100 cases, idle or loaded.`
fn fifo_sentence(rows: &[MatrixRow]) -> Option<String> {
    let fifo = |row: &&MatrixRow| matches!(row.policy, Policy::Fifo(_)) && row.count > 0;
    let worst = rows.iter().filter(fifo).map(|row| row.p99_ns.median).reduce(f64::max)?;
    let loads: Vec<&str> = rows.iter().filter(fifo).map(|row| row.load.as_str()).collect();
    Some(format!(
        "SCHED_FIFO wakes within {} in 99 of 100 cases, {}.",
        Ns(worst as u64),
        loads.join(" or ")
    ))
}

/// `SCHED_OTHER is up to 61ms late, loaded.`
fn other_sentence(rows: &[MatrixRow]) -> Option<String> {
    let other = rows.iter().filter(|row| row.policy == Policy::Other && row.count > 0);
    let worst = other.max_by_key(|row| row.worst_ns)?;
    Some(format!("SCHED_OTHER is up to {} late, {}.", Ns(worst.worst_ns), worst.load.as_str()))
}

/// `Of the four published findings 2 hold here and 2 cannot be judged here.`
fn findings_sentence(holds: usize, does_not: usize, open: usize) -> String {
    let part = |count: usize, one: &str, more: &str| {
        (count > 0).then(|| format!("{count} {}", if count == 1 { one } else { more }))
    };
    let parts = [
        part(holds, "holds here", "hold here"),
        part(does_not, "does not", "do not"),
        part(open, "cannot be judged here", "cannot be judged here"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("Of the four published findings {}.", parts.join(", "))
}

fn time(ns: f64) -> String {
    spaced(Ns(ns.max(0.0) as u64).to_string())
}

fn estimate(of: &OrderInterval) -> Cell {
    Cell::number(time(of.median), of.median)
        .note(format!("{} … {}", time(of.low), time(of.high)), Tone::Dim)
}

/// Rows in the order of the table: by load, then policy, then system.
fn ordered(matrix: &Matrix) -> Vec<MatrixRow> {
    let mut rows = matrix.rows();
    let place =
        |row: &MatrixRow| matrix.systems.iter().position(|system| system.name == row.system);
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
        "How late a thread ran after its timer expired. The column `published` is the maximum of \
         cyclictest that was published for \
         the same kind of kernel, load and policy, on another machine: compare magnitudes.",
    );
    // The name of a single system is in the subtitle.
    let several = matrix.systems.len() > 1;
    let cells = |row: &MatrixRow| {
        let dash = || Cell::text("–");
        let mut cells = vec![Cell::head(row.load.as_str()), Cell::text(row.policy.to_string())];
        cells.extend(several.then(|| Cell::text(&row.system)));
        cells.extend([
            estimate(&row.p50_ns),
            estimate(&row.p99_ns),
            row.p999_ns.map_or_else(dash, |ns| {
                let [low, high] = row
                    .p999_interval_ns
                    .map(|end| end.map_or("?".to_owned(), |ns| time(ns as f64)));
                Cell::number(time(ns as f64), ns as f64).note(format!("{low} … {high}"), Tone::Dim)
            }),
            estimate(&row.max_ns),
            Cell::number(time(row.worst_ns as f64), row.worst_ns as f64),
            row.published_max_ns
                .map_or_else(dash, |ns| Cell::number(time(ns.0 as f64), ns.0 as f64)),
            estimate(&row.mean_ns),
            Cell::number(row.count.to_string(), row.count as f64),
        ]);
        cells
    };
    let numbers =
        ["p50", "p99", "p99.9", "max of a round", "max of all", "published", "mean", "samples"];
    section.push(Table {
        caption: format!(
            "Medians over the rounds; below each the interval that holds the true median with \
             {:.0} % or more. p99.9 is of all rounds \
             together; below it the two samples between which it lies with 95 %",
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
    section.push(published_table());
    section
}

/// Returns the published maxima.
fn published_table() -> Table {
    let row = |row: &PublishedMaximum| {
        let kernel = if row.realtime { "4.19 PREEMPT_RT" } else { "4.19 voluntary" };
        let policy = if row.fifo { "fifo:49" } else { "other" };
        let max = row.max_ns.0 as f64;
        vec![
            Cell::head(kernel),
            Cell::text(row.load.as_str()),
            Cell::text(policy),
            Cell::number(time(max), max),
        ]
    };
    Table {
        caption: "Two CPUs, cyclictest at 1000 and 1500 µs, 30 000 loops; the load is hackbench"
            .to_owned(),
        columns: ["kernel", "load", "policy"]
            .map(Column::text)
            .into_iter()
            .chain([Column::number("max")])
            .collect(),
        rows: MAXIMA.iter().map(row).collect(),
        fold: Some("The published maxima".to_owned()),
    }
}

fn side_by_side(matrix: &Matrix) -> Section {
    let all = differences(matrix);
    let base = matrix.systems.first().map(|system| system.name.as_str()).unwrap_or_default();
    let mut section = Section::new("Side by side").lead(format!(
        "Every row against that of {base}, over pairs of rounds. “Cannot tell”: the interval of \
         the difference holds 0, or \
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
            Cell::head(format!("{}, {}", one.load.as_str(), one.policy)),
            Cell::text(&one.system),
            Cell::text(one.rung),
            Cell::number(format!("{:.3}", ratio.median), ratio.median)
                .note(format!("{:.3} … {:.3}", ratio.low, ratio.high), Tone::Dim),
            Cell::number(signed(difference.median), difference.median).note(
                format!("{} … {}", signed(difference.low), signed(difference.high)),
                Tone::Dim,
            ),
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

fn published_findings(found: &[Finding]) -> Section {
    let mut section = Section::new("The published findings").lead(
        "Checked on the first standard and the first PREEMPT_RT kernel of the table. A maximum \
         below a limit counts only \
         with as many expiries as the published measurement had (30,000).",
    );
    let row = |finding: &Finding| {
        let tone = match finding.truth {
            Truth::Holds => Tone::Good,
            Truth::DoesNot => Tone::Bad,
            Truth::CannotTell => Tone::Dim,
        };
        vec![
            Cell::head(finding.says),
            Cell::text("").note(finding.truth.as_str(), tone),
            Cell::text(finding.because.clone()),
        ]
    };
    section.push(Table {
        caption: "The four findings".to_owned(),
        columns: ["published", "here", "why"].map(Column::text).to_vec(),
        rows: found.iter().map(row).collect(),
        fold: None,
    });
    section
}

fn distributions(matrix: &Matrix) -> Section {
    let mut section = Section::new("Distributions").lead(
        "How large a part of all expiries was later than a time; further left is better, and the \
         lower end is the tail. Both \
         axes are logarithmic.",
    );
    let several = matrix.systems.len() > 1;
    let curve = |cell: &Measured| {
        let name = match several {
            true => format!("{} · {}", cell.policy, cell.system),
            false => cell.policy.to_string(),
        };
        let buckets: Vec<(Ns, u64)> =
            cell.all().buckets().into_iter().map(|(ns, n)| (Ns(ns), n)).collect();
        Curve::of_buckets(&name, style(matrix, cell), &buckets)
    };
    let measure = |load: Load| Measure {
        name: load.as_str().to_owned(),
        about: "From the expiry of the timer until the thread has read the clock".to_owned(),
        curves: matrix.cells.iter().filter(|cell| cell.load == load).filter_map(curve).collect(),
    };
    let measures = [Load::Idle, Load::Loaded, Load::Unstated].map(measure);
    let measures: Vec<Measure> =
        measures.into_iter().filter(|measure| !measure.curves.is_empty()).collect();
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
            _ if system.emulated => ", CPUs emulated by QEMU (TCG): absolute times mean little",
            Some(true) => ", virtual machine",
            Some(false) => ", no virtual machine",
            None => "",
        };
        facts.add(
            &system.name,
            format!("{}{kind}; measured by {}", system.kernel_name(), system.tool),
        );
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
                "{} groups of 20 senders and 20 receivers, threads, socket pairs, messages of 100 \
                 bytes (hackbench -T -g {})",
                request.groups, request.groups
            ),
        );
        facts.add(
            "timer slack",
            request
                .slack
                .map_or("as inherited, usually 50 µs".to_owned(), |slack| slack.to_string()),
        );
        facts.add(
            "idle states",
            request.dma_latency_us.map_or("as they are".to_owned(), |us| {
                format!("/dev/cpu_dma_latency held at {us} µs")
            }),
        );
    }
    facts.add(
        "published",
        "cyclictest on Linux 4.19, standard and PREEMPT_RT, two CPUs (docs/sources/experiments.md \
         of schedlab)",
    );
    section.push(facts);
    section
}

#[cfg(test)]
mod tests {
    use super::findings_sentence;

    #[test]
    fn the_verdict_is_a_sentence() {
        assert_eq!(
            findings_sentence(1, 0, 3),
            "Of the four published findings 1 holds here, 3 cannot be judged here."
        );
        assert_eq!(
            findings_sentence(2, 1, 1),
            "Of the four published findings 2 hold here, 1 does not, 1 cannot be judged here."
        );
    }
}
