//! Where the numbers of a page come from.

use crate::result::{InputKind, Study};
use schedlab_model::Ns;
use schedlab_report::{Facts, Section, Table};
use schedlab_trace::Header;

/// What the program knows about its own run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Origin {
    /// The command line, quoted for a shell.
    pub command: String,
    /// Commit that the program was built from, or `unknown`.
    pub commit: String,
    /// The machine on which the page was made.
    pub made_on: String,
    /// Header and size of the recording.
    pub recording: Option<(Header, u64)>,
}

impl Origin {
    /// Returns the last line of a page that was made by this version of the program.
    pub fn footer(&self, version: &str) -> String {
        format!(
            "Made by schedlab {version} ({}). This file needs no network and no other file.",
            self.commit
        )
    }
}

pub(super) fn section(study: &Study, origin: &Origin) -> Section {
    let mut section = Section::new("Where the numbers come from")
        .lead("The same command with the same file gives the same numbers, on any machine.");
    section.push(facts(study, origin));
    section.push(method(study));
    if !study.costs.is_empty() {
        section.push(costs(study));
    }
    section.push(hashes(study));
    section
}

fn facts(study: &Study, origin: &Origin) -> Facts {
    let mut facts = Facts::default();
    facts.add("command", &origin.command);
    facts.add("program", format!("schedlab {}, commit {}", study.version, origin.commit));
    facts.add("made on", &origin.made_on);
    let kind = match study.input.kind {
        InputKind::Scenario => "scenario",
        InputKind::Recording => "recording",
    };
    facts.add(kind, &study.input.name);
    recording(&mut facts, origin);
    if let Some(replay) = &study.self_replay {
        facts.add("simulated as", &replay.scheduler);
        facts.add("kernel settings without a model", replay.left_out.join(", "));
        facts.add("assumed", &replay.assumptions);
    }
    let seeds = study.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    facts.add("seeds", seeds);
    facts.add("length of each run", Ns(study.duration_ns).to_string());
    let warmup = Ns(study.warmup_ns);
    facts.add(
        "not counted at the beginning",
        if warmup > Ns::ZERO { warmup.to_string() } else { String::new() },
    );
    facts
}

/// What the header of a recording says about itself.
pub(super) fn recording(facts: &mut Facts, origin: &Origin) {
    if let Some((header, bytes)) = &origin.recording {
        facts.add("size", format!("{bytes} bytes"));
        facts.add("recorded", &header.date);
        facts.add("recorded by", format!("{}, {}", header.program, header.backend));
        facts.add("recorded command", header.command.join(" "));
        facts.add("kernel", format!("{} {}", header.kernel, header.kernel_build));
        facts.add("machine", &header.machine);
        facts.add("clock", &header.clock);
        facts.add("boot", &header.boot_id);
        let cost = header.recorder_ns_per_switch;
        facts.add(
            "recorder's cost",
            cost.map_or(String::new(), |ns| format!("{} a switch", Ns(ns))),
        );
        facts.add("seen", header.capabilities.0.iter().cloned().collect::<Vec<_>>().join(", "));
    }
}

fn method(study: &Study) -> schedlab_report::Part {
    let mut list = vec![
        "A value in a table is the median over the seeds. A change is that of each seed against \
         itself, then the \
         median."
            .to_owned(),
        "The error of a change is half of its range over the seeds; a change that is not larger \
         than its error is \
         called “cannot tell”."
            .to_owned(),
    ];
    if study.self_replay.is_some() {
        list.push(
            "For a recording the error of the method is added: how far the simulation under the \
             recorded scheduler \
             misses the same metric of the same tasks; shares in points, the rest as a part of \
             the larger value."
                .to_owned(),
        );
        list.push(
            "From the recording come demand (CPU time of each activation), arrivals from outside \
             and dependencies \
             (which task wakes which). Where a task ran and how long it waited does not: that is \
             what the recorded scheduler \
             did."
                .to_owned(),
        );
    }
    list.push(
        "Distributions are kept in buckets narrower than 1 % of their value; curves are \
               thinned for drawing, their tables are not."
            .to_owned(),
    );
    schedlab_report::Part::List(list)
}

fn costs(study: &Study) -> Table {
    use schedlab_report::{Cell, Column};
    let doc = |name: &str| {
        schedlab_sim::Costs::knobs()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, doc)| doc)
            .to_owned()
    };
    let row = |(name, ns): &(String, u64)| {
        vec![
            Cell::head(name),
            Cell::number(crate::view::spaced(Ns(*ns).to_string()), *ns as f64),
            Cell::text(doc(name)),
        ]
    };
    let fitted =
        if study.self_replay.is_some() { "fitted to this recording" } else { "from the scenario" };
    Table {
        caption: format!("Costs of the machine, {fitted}"),
        columns: vec![Column::text("cost"), Column::number("time"), Column::text("what it is")],
        rows: study.costs.iter().map(row).collect(),
        fold: None,
    }
}

fn hashes(study: &Study) -> Table {
    use schedlab_report::{Cell, Column};
    let row = |row: &crate::result::Row| {
        vec![
            Cell::head(super::page_name(study, row)),
            Cell::text(&row.scheduler),
            Cell::text(row.event_hashes.join(" ")),
        ]
    };
    Table {
        caption: "Hash of the stream of events of each seed: equal hashes, equal runs".to_owned(),
        columns: ["run", "scheduler", "hashes"].map(Column::text).to_vec(),
        rows: study.rows.iter().map(row).collect(),
        fold: Some("Hashes of the runs".to_owned()),
    }
}
