//! Sums of the kernel by CPU as text: the verdict, then a table of the CPUs.

use super::style::{Style, wrap};
use super::table::{Cell, Table};
use schedlab_model::Ns;
use schedlab_study::diff::totals::{Totals, TotalsRow};

/// Returns the text.
pub(crate) fn totals(totals: &Totals, style: &Style) -> String {
    let mut text = style.bold(&wrap(&totals.verdict.outcome, style.width, 0)) + "\n";
    text += &(wrap(&totals.verdict.certainty, style.width, 0) + "\n");
    for interval in &totals.intervals {
        let length = match totals.hz {
            Some(hz) => {
                Ns(interval.jiffies.saturating_mul(1_000_000_000 / u64::from(hz))).to_string()
            }
            None => format!("{} jiffies", interval.jiffies),
        };
        text += &format!("\n{}: {length}\n", interval.name);
        text += &table(&interval.rows).render(style).0;
    }
    for note in &totals.notes {
        text += &format!("{}\n", wrap(note, style.width, 0));
    }
    text
}

fn table(rows: &[TotalsRow]) -> Table {
    let head =
        ["", "ran", "share", "waited", "turns", "wait/turn", "run/turn", "left idle", "woken here"];
    let row = |row: &TotalsRow| {
        let part = |of: u64, all: u64| match all {
            0 => String::new(),
            _ => format!("{:.1}%", of as f64 / all as f64 * 100.0),
        };
        let mean = |ns: Option<u64>| ns.map_or_else(String::new, |ns| Ns(ns).to_string());
        let share = row.share.map_or_else(String::new, |share| format!("{:.1}%", share * 100.0));
        vec![
            Cell::plain(row.name()),
            Cell::plain(Ns(row.run_ns).to_string()),
            Cell::plain(share),
            Cell::plain(Ns(row.wait_ns).to_string()),
            Cell::plain(row.turns.to_string()),
            Cell::plain(mean(row.wait_mean_ns)),
            Cell::plain(mean(row.run_mean_ns)),
            Cell::plain(part(row.left_idle, row.schedules)),
            Cell::plain(part(row.local_wakeups, row.wakeups)),
        ]
    };
    Table {
        head: head.map(String::from).to_vec(),
        rows: rows.iter().map(row).collect(),
        fixed: 1,
        ..Table::default()
    }
}
