//! A comparison as a page ([`schedlab_report`]): the verdict, what changes, distributions,
//! schedules, how far to trust it, and where every number comes from.

mod provenance;
pub(crate) mod recording;
mod sweep;

pub use provenance::Origin;
pub use recording::of_recording;

use crate::change::{Change, Judgement};
use crate::compare::page_name;
use crate::deploy::Format;
use crate::gate::GateOutcome;
use crate::headline::Figure;
use crate::measurements::Kind;
use crate::metric::{Metric, Unit};
use crate::order;
use crate::result::{Detail, Prediction, Replayed, Row, Study};
use crate::scan::Scan;
use crate::serve::Guess;
use crate::view::{self, TASK_COLUMNS, heading, spaced};
use schedlab_model::Ns;
use schedlab_model::text::shown;
use schedlab_report::{Cell, Choice, Code, Column, Ladders, Page, Section, Table, Tone};

/// The page of a comparison. Distributions and schedules are on it when the study was made with
/// [`Options::detail`](crate::compare::Options::detail); the rows of `scans` are curves, too.
pub fn of_study(study: &Study, scans: &[Scan], origin: &Origin) -> Page {
    let mut page = Page::new(title(study));
    page.subtitle(subtitle(study));
    let arrows = |text: &str| text.replace(" -> ", "\u{a0}→\u{a0}").replace(" ± ", "\u{a0}±\u{a0}");
    page.verdict(arrows(&study.verdict.outcome), arrows(&study.verdict.certainty));
    if !study.trusted() {
        page.distrust();
    }
    if let Some(detail) = &study.detail {
        page.waits(title_of_waits(study, detail), detail.longest.clone());
    }
    let (main, hidden) = view::by_importance(study);
    let lines = order::equal(study, &main);
    page.push(deploy(study));
    if let Some(detail) = &study.detail {
        ladder(&mut page, study, detail);
    }
    if study.rows.len() > 1 || study.self_replay.is_none() {
        let (first, rest) = main.split_at(main.len().min(FIRST_SUBJECTS));
        page.push(sweep::section(study, scans));
        page.push(changes(study, first, &lines));
        page.push(other_tasks(study, (rest, hidden), &main, &lines));
    }
    if let Some(detail) = &study.detail {
        distributions(&mut page, detail);
        schedules(&mut page, study, detail);
        delays(&mut page, study, detail);
    }
    let trust = trust(study, &main);
    page.push(if study.trusted() && study.holds() { trust.folded() } else { trust });
    page.push(provenance::section(study, origin).folded());
    page.footer(origin.footer(&study.version));
    page
}

/// Returns of which run and server the waits below the verdict are.
fn title_of_waits(study: &Study, detail: &Detail) -> String {
    let served = study.served.as_ref().map(|served| served.asked.as_str());
    let server = served.or(study.guess.as_ref().map(|guess| guess.name.as_str()));
    let server = server.filter(|_| detail.longest_of_server);
    let of = server.map_or_else(String::new, |name| format!(" of {}", shown(name)));
    let run = detail.longest.first().and_then(|wait| detail.lanes.runs.get(wait.run));
    let run = run.map_or_else(String::new, |run| format!(", {}", run.name));
    format!("The longest waits{of}{run}")
}

/// Returns the lines that make the recommended setting without schedlab; without one the section
/// has no parts.
fn deploy(study: &Study) -> Section {
    let mut section = Section::new("Set it without schedlab");
    let Some(deployment) = study.recommended() else { return section };
    for format in Format::ALL {
        if let Some(text) = deployment.text(format) {
            section.push(Code { title: format.name().to_owned(), text: text.to_owned() });
        }
    }
    if !section.is_empty() && !deployment.caveats.is_empty() {
        section.push(schedlab_report::Part::List(deployment.caveats.clone()));
    }
    section
}

fn title(study: &Study) -> String {
    if study.input.title.is_empty() { study.input.name.clone() } else { study.input.title.clone() }
}

fn subtitle(study: &Study) -> String {
    let input = &study.input;
    let cpus = if input.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", input.cpus) };
    let name = if input.title.is_empty() { String::new() } else { format!("{} · ", input.name) };
    let seeds = match study.seeds.len() {
        1 => "1 seed".to_owned(),
        seeds => format!("{seeds} seeds"),
    };
    format!(
        "{name}{cpus} · HZ={} · {} each{} · {seeds}{}",
        input.hz,
        spaced(Ns(study.duration_ns).to_string()),
        input.part(),
        guessed(study.guess.as_ref())
    )
}

/// Returns what a subtitle says of the server that is guessed.
fn guessed(guess: Option<&Guess>) -> String {
    guess.map_or_else(String::new, |guess| format!(" · serve: {}", shown(&guess.sentence())))
}

fn show(metric: Metric, value: f64) -> String {
    spaced(metric.show(value))
}

fn tone(change: &Change) -> Tone {
    match change.judgement {
        Judgement::Better => Tone::Good,
        Judgement::Worse => Tone::Bad,
        _ => Tone::Dim,
    }
}

/// The change in words, so that nothing hangs on a colour.
fn change(metric: Metric, change: &Change, alone: bool) -> String {
    let text = view::change(metric, change, alone).replace('-', "−").replace('±', " ± ");
    match change.judgement {
        Judgement::Same => "same".to_owned(),
        Judgement::CannotTell => "cannot tell".to_owned(),
        _ if text.is_empty() => String::new(),
        Judgement::Better => format!("{text}, better"),
        Judgement::Worse => format!("{text}, worse"),
        Judgement::Different => text,
    }
}

/// Subjects whose tables are not folded: what clients see, and what changes most.
const FIRST_SUBJECTS: usize = 2;

/// The percentiles of what the page is about first, a line for each run.
fn ladder(page: &mut Page, study: &Study, detail: &Detail) {
    // Of a task the headline may be about waiting or about answers; clients have one distribution.
    let about = |figure: &Figure| {
        let cdf = detail.distributions.iter().find(|cdf| cdf.title == figure.subject)?;
        let is_answer = matches!(figure.metric, Metric::Response(_));
        let measure =
            cdf.measures.iter().find(|measure| measure.name.starts_with("Response") == is_answer);
        Ladders::of_measure(&cdf.title, measure.or(cdf.measures.first())?)
    };
    let of_headline =
        study.headline.iter().filter(|figure| figure.metric.unit() == Unit::Time).find_map(about);
    let found = of_headline.or_else(|| {
        detail
            .distributions
            .iter()
            .find_map(|cdf| Ladders::of_measure(&cdf.title, cdf.measures.first()?))
    });
    let mut section = Section::new("From the median to the maximum").lead(
        "Lower is faster, on a logarithmic axis. The name of each run is at the end of its \
               line. A bar through a point is where that percentile lies with 95 %, by order \
               statistics.",
    );
    found.into_iter().for_each(|ladders| section.push(ladders));
    page.push(section);
}

/// The rows that have a line of their own, and those that share one.
type Lines = (Vec<usize>, Vec<order::Equal>);

fn changes(study: &Study, main: &[(Kind, String)], lines: &Lines) -> Section {
    let lead = if study.rows.len() > 1 {
        "Each row against the first, with the error of the change. “Cannot tell”: the change is \
         smaller than its error. \
         “Same”: equal in every run. CPU share is in parts of one CPU and changes by points."
    } else {
        "Medians over the seeds."
    };
    let lead = match view::about_silent(study) {
        None => lead.to_owned(),
        Some(about) => format!("{lead} {about}"),
    };
    let mut section = Section::new("What changes").lead(lead);
    if !study.verdict.beside.is_empty() {
        section.push(schedlab_report::Part::List(study.verdict.beside.clone()));
    }
    for (kind, name) in main {
        section.push(subject(study, *kind, name, lines));
    }
    let about: Vec<String> =
        lines.1.iter().map(|equal| order::about_equal(study, equal) + ".").collect();
    if !about.is_empty() {
        section.push(schedlab_report::Part::List(about));
    }
    section
}

/// Returns as JSON the tables of what changes that the page shows open: of what the comparison is
/// about, and of what changes most.
pub fn open_tables(study: &Study) -> serde_json::Value {
    let (main, _) = view::by_importance(study);
    let lines = order::equal(study, &main);
    let table = |(kind, name): &(Kind, String)| {
        let Table { caption, columns, rows, .. } = subject(study, *kind, name, &lines);
        serde_json::json!({"caption": caption, "columns": columns, "rows": rows})
    };
    main.iter().take(FIRST_SUBJECTS).map(table).collect()
}

fn other_tasks(
    study: &Study,
    (rest, hidden): (&[(Kind, String)], usize),
    main: &[(Kind, String)],
    lines: &Lines,
) -> Section {
    let mut section = Section::new("The other tasks").folded();
    for (kind, name) in rest {
        section.push(subject(study, *kind, name, lines));
    }
    if hidden > 0 {
        let base = study.rows.first().map(|row| row.subjects.as_slice()).unwrap_or_default();
        let rest = base
            .iter()
            .filter(|s| view::is_task(s.kind) && !main.contains(&(s.kind, s.name.clone())));
        section.push(others(study, rest.map(|s| (s.kind, s.name.as_str())).collect(), hidden));
    }
    section
}

fn named(kind: Kind, name: &str, tasks: usize) -> String {
    match kind {
        Kind::Source => format!("{name}: what its clients see"),
        Kind::Channel => format!("{name}: requests that were finished"),
        _ if tasks == 1 => name.to_owned(),
        _ => format!("{name} ({tasks} tasks)"),
    }
}

fn subject(study: &Study, kind: Kind, name: &str, (own, equal): &Lines) -> Table {
    let has = |metric: Metric| {
        study.rows.iter().any(|row| row.find(kind, name).is_some_and(|s| s.cell(metric).is_some()))
    };
    let all = order::columns(study, kind, name).into_iter().map(|(metric, _)| metric);
    let columns: Vec<Metric> = all.filter(|metric| has(*metric)).collect();
    let alone = study.seeds.len() == 1 && study.self_replay.is_none();
    let row = |(index, row): (usize, &Row)| {
        let subject = row.find(kind, name);
        let others = equal.iter().find(|equal| equal.first == index);
        let others = others.map_or(0, |equal| equal.rows.len());
        let head = order::with_equals(&page_name(study, row), others);
        let mut cells = vec![Cell::head(head).swatch(index + 1)];
        cells.extend(columns.iter().map(|&metric| {
            let Some(cell) = subject.and_then(|subject| subject.cell(metric)) else {
                return Cell::text("–");
            };
            let value = Cell::number(show(metric, cell.value.median), cell.value.median);
            match &cell.change {
                Some(of) => value.note(change(metric, of, alone), tone(of)),
                None => value,
            }
        }));
        cells
    };
    let tasks =
        study.rows.first().and_then(|row| row.find(kind, name)).map_or(1, |subject| subject.tasks);
    let heads = columns.iter().map(|metric| Column::number(heading(*metric, kind)));
    Table {
        caption: named(kind, name, tasks),
        columns: std::iter::once(Column::text("run")).chain(heads).collect(),
        // In some runs the subject does not exist.
        rows: study
            .rows
            .iter()
            .enumerate()
            .filter(|(index, row)| own.contains(index) && row.find(kind, name).is_some())
            .map(row)
            .collect(),
        fold: None,
    }
}

/// The classes that use next to nothing, in one table.
fn others(study: &Study, rest: Vec<(Kind, &str)>, hidden: usize) -> Table {
    let metrics = &TASK_COLUMNS[..3];
    let mut rows = Vec::new();
    for (kind, name) in rest {
        for (index, row) in study.rows.iter().enumerate() {
            let Some(subject) = row.find(kind, name) else { continue };
            let mut cells = vec![
                Cell::head(named(kind, name, subject.tasks)),
                Cell::text(page_name(study, row)).swatch(index + 1),
            ];
            cells.extend(metrics.iter().map(|metric| match subject.cell(*metric) {
                Some(cell) => Cell::number(show(*metric, cell.value.median), cell.value.median),
                None => Cell::text("–"),
            }));
            rows.push(cells);
        }
    }
    let heads = metrics.iter().map(|metric| Column::number(metric.heading()));
    Table {
        caption: "Programs that use less than 1 % of a CPU in every run, or that were too many to \
                  show above"
            .to_owned(),
        columns: [Column::text("tasks"), Column::text("run")].into_iter().chain(heads).collect(),
        rows,
        fold: Some(format!("{hidden} more programs")),
    }
}

fn distributions(page: &mut Page, detail: &Detail) {
    let lead = "How large a part of all values took longer than a time; further left is faster, \
                and the lower end is \
                the tail. Both axes are logarithmic.";
    let mut section = Section::new("Distributions").lead(lead).folded();
    for cdf in &detail.distributions {
        section.push(cdf.clone());
    }
    page.push(section);
}

fn schedules(page: &mut Page, study: &Study, detail: &Detail) {
    if detail.lanes.runs.is_empty() {
        return;
    }
    let seed = study.seeds.first().copied().unwrap_or_default();
    let lead = format!(
        "What ran on each CPU; the height of a column is how busy it was. Zoom in far enough and \
         waits appear as lines \
         below a lane, wakeups as arrows from the waker. Simulated runs are those of seed {seed}."
    );
    let mut section = Section::new("Who ran when").lead(lead);
    section.push(detail.lanes.clone());
    page.push(section);
}

fn delays(page: &mut Page, study: &Study, detail: &Detail) {
    let seed = study.seeds.first().copied().unwrap_or_default();
    let mut section = Section::new("Which task delayed which").lead(format!(
        "Every nanosecond in which a task was ready to run and did not is counted for the task \
         that ran on its CPU. \
         Simulated runs are those of seed {seed}."
    ));
    section = section.folded();
    if !detail.blame.is_empty() {
        section.push(Choice { label: "Run".to_owned(), items: detail.blame.clone() });
    }
    detail.worst.iter().for_each(|table| section.push(table.clone()));
    page.push(section);
    let mut section = Section::new("Run-queue length").lead(
        "How many tasks were ready to run and did not, over time. Zero means that no task had to \
         wait.",
    );
    section = section.folded();
    detail.queue.iter().for_each(|queue| section.push(queue.clone()));
    page.push(section);
}

fn trust(study: &Study, main: &[(Kind, String)]) -> Section {
    let mut section = Section::new("How far to trust it");
    if let Some(replay) = &study.self_replay {
        section = section.lead(format!(
            "The recording was played under the scheduler that it was recorded under ({}). What \
             the simulation gets \
             wrong here is one part of the error of every change above. In brackets behind a \
             percentile: the two values between which it \
             lies with 95 %, by order statistics.",
            replay.why
        ));
        section.push(replayed(
            study,
            &replay.subjects,
            main,
            "Recorded, then simulated under the recorded scheduler",
            "simulated",
        ));
        if !replay.distrust.is_empty() {
            section.push(schedlab_report::Part::List(replay.distrust.clone()));
        }
        section.push(schedlab_report::Part::List(view::about_errors(study)));
    }
    for Prediction { variant, scheduler, file, subjects } in &study.predictions {
        let caption = format!(
            "Recorded in {file}, then what was predicted for “{variant}” under {scheduler}"
        );
        section.push(replayed(study, subjects, main, &caption, "predicted"));
    }
    if !study.expectations.is_empty() {
        section.push(expectations(study));
    }
    if !study.gates.is_empty() {
        section.push(gates(study));
    }
    let mut notes = study.notes.clone();
    for row in &study.rows {
        notes.extend(row.notes.iter().map(|note| format!("{}: {note}", page_name(study, row))));
    }
    notes.dedup();
    if !notes.is_empty() {
        section.push(schedlab_report::Part::List(notes));
    }
    section
}

fn replayed(
    study: &Study,
    subjects: &[Replayed],
    main: &[(Kind, String)],
    caption: &str,
    other: &str,
) -> Table {
    let shown =
        subjects.iter().filter(|subject| main.iter().any(|(_, name)| *name == subject.name));
    let row = |subject: &Replayed| {
        let mut cells = vec![Cell::head(named(Kind::Class, &subject.name, subject.tasks))];
        for metric in TASK_COLUMNS {
            cells.push(subject.cell(metric).map_or_else(
                || Cell::text("–"),
                |cell| {
                    let off = match metric.unit() {
                        _ if view::few(study, subject, metric) => " (of too few values)".to_owned(),
                        Unit::Share => format!(" ({:+.1} points)", cell.difference * 100.0),
                        _ if cell.recorded > 0.0 => {
                            format!(" ({:+.0} %)", cell.difference / cell.recorded * 100.0)
                        }
                        _ => String::new(),
                    };
                    let note = format!(
                        "{}{other} {}{}{}",
                        cell.recorded_interval
                            .map_or(String::new(), |of| format!("({}), ", view::interval(&of))),
                        show(metric, cell.simulated),
                        cell.simulated_interval
                            .map_or(String::new(), |of| format!(" ({})", view::interval(&of))),
                        off.replace('-', "−")
                    );
                    Cell::number(show(metric, cell.recorded), cell.recorded).note(note, Tone::Dim)
                },
            ));
        }
        cells
    };
    let heads = TASK_COLUMNS.iter().map(|metric| Column::number(metric.heading()));
    Table {
        caption: caption.to_owned(),
        columns: std::iter::once(Column::text("tasks")).chain(heads).collect(),
        rows: shown.map(row).collect(),
        fold: None,
    }
}

fn gates(study: &Study) -> Table {
    let row = |gated: &crate::result::Gated| {
        let (word, tone) = match gated.outcome {
            GateOutcome::Met => ("failed", Tone::Bad),
            GateOutcome::Not => ("passed", Tone::Good),
            GateOutcome::CannotSay => ("cannot say", Tone::Dim),
        };
        vec![
            Cell::head(&gated.gate),
            Cell::text(format!("{}, {}", gated.scheduler, gated.variant)),
            Cell::text(&gated.subject),
            Cell::text(&gated.got).note(word, tone),
        ]
    };
    Table {
        caption: "Conditions that must not be met (--fail-if)".to_owned(),
        columns: ["gate", "run", "about", "came out"].map(Column::text).to_vec(),
        rows: study.gates.iter().map(row).collect(),
        fold: None,
    }
}

fn expectations(study: &Study) -> Table {
    let failed = study.expectations.iter().filter(|checked| !checked.holds).count();
    let all = study.expectations.len();
    let row = |checked: &crate::result::Checked| {
        let (word, tone) =
            if checked.holds { ("holds", Tone::Good) } else { ("failed", Tone::Bad) };
        vec![
            Cell::head(&checked.expectation),
            Cell::text(format!("{}, {}", checked.scheduler, checked.variant)),
            Cell::text(&checked.subject),
            Cell::text(&checked.got).note(word, tone),
        ]
    };
    Table {
        caption: format!("What the scenario's author expected: {} of {all} hold", all - failed),
        columns: ["expectation", "run", "about", "came out"].map(Column::text).to_vec(),
        rows: study.expectations.iter().map(row).collect(),
        fold: (failed == 0).then(|| format!("All {all} expectations hold")),
    }
}
