//! Predicted beside live.

use super::style::{Style, wrap};
use super::table::{Cell, Look, Table};
use schedlab_lab::confirm::{Confirmed, MetricAnswer, SettingAnswer, SettingKind};
use schedlab_stats::{Estimate, range_confidence};
use schedlab_study::error_parts::ErrorBar;
use schedlab_study::metric::{Metric, Unit};
use schedlab_study::view::ratio;

/// The order in which columns get room: what is claimed comes last.
const RANKS: [u8; 8] = [0, 0, 1, 6, 2, 3, 4, 5];

/// Returns the result as text.
pub(crate) fn confirm(found: &Confirmed, style: &Style) -> String {
    let mut text = answer(found, style);
    text += &format!(
        "{}: {} rounds of {} each, on CPU {}, kernel {}\npredicted from {} ({}) by {}\n\n",
        style.bold(&found.command.join(" ")),
        found.rounds,
        schedlab_model::Ns(found.round_ns),
        found.cpus,
        found.kernel,
        found.base,
        found.replay,
        found.simulated_as
    );
    driver_costs(&mut text, found);
    let head = [
        "",
        "task",
        "",
        "predicted",
        "claimed",
        "live",
        "error",
        "change predicted",
        "change live",
    ];
    for setting in &found.settings {
        text += &(title(setting, style) + "\n");
        let rows: Vec<Vec<Cell>> = setting
            .tasks
            .iter()
            .flat_map(|task| task.cells.iter().map(|cell| row(&task.name, cell)))
            .collect();
        if rows.is_empty() {
            text += "  no task of the command is in both\n\n";
            continue;
        }
        let table = Table {
            head: head[1..].iter().map(|text| (*text).to_owned()).collect(),
            rows,
            fixed: 2,
            ranks: RANKS.to_vec(),
            ..Table::default()
        };
        text += &(table.render(style).0 + "\n");
    }
    let sure = 100.0 * range_confidence(found.rounds);
    let note = format!(
        "Claimed: the interval that compare states for the prediction, and the largest part of \
         its error. In brackets: the range over seeds (predicted) and over rounds (live; it holds \
         the true median with {sure:.0} %). \
         Error: predicted minus live, of the medians, from twice or half on as a factor; `apart` \
         where the ranges do not overlap. \
         Under a \
         scheduler, predicted shares contain the time in which its agent answers a wakeup (the \
         task is stopped for it)."
    );
    text += &(style.dim(&wrap(&note, style.width, 0)) + "\n");
    if !found.trusted {
        text += &(style.bad("The simulator does not repeat the base recording well enough: ")
            + &found.distrust.join("; ")
            + "\n");
    }
    text
}

/// Returns what it comes to, and what of it is open.
fn answer(found: &Confirmed, style: &Style) -> String {
    let verdict = found.verdict.iter().map(|line| style.bold(&wrap(line, style.width, 0)) + "\n");
    let mut text: String = verdict.collect();
    if found.partial {
        text += &format!(
            "{}: ended early, after {} rounds of each setting\n",
            style.bad("partial"),
            found.rounds
        );
    }
    if let Some(guess) = &found.guess {
        let serve = format!("serve: {}", guess.sentence());
        text += &(style.dim(&wrap(&serve, style.width, 0)) + "\n");
    }
    text
}

/// Says with which costs of an agent the schedulers were predicted.
fn driver_costs(text: &mut String, found: &Confirmed) {
    for (driver, name) in [(found.driver, "driver"), (found.driver_sched_ext, "sched_ext driver")] {
        let Some(driver) = driver else { continue };
        let timers = match driver.calibrated {
            true => format!(", its timers {} late", schedlab_model::Ns(driver.timer_late_ns)),
            false => {
                " (no calibration here: `schedlab calibrate` measures how late its timers are)"
                    .to_owned()
            }
        };
        text.truncate(text.trim_end().len());
        *text += &format!(
            "\nschedulers are predicted behind an agent with the {name}'s costs on this machine: \
             {} from a block to the next task, \
             {} for a wakeup{timers}\n\n",
            schedlab_model::Ns(driver.block_to_next_ns),
            schedlab_model::Ns(driver.wakeup_ns),
        );
    }
}

fn title(setting: &SettingAnswer, style: &Style) -> String {
    let how = match setting.how {
        SettingKind::Default => "as the host has it".to_owned(),
        SettingKind::Soft => "set on the threads".to_owned(),
        SettingKind::Elevation | SettingKind::SchedExt => {
            let by = if setting.how == SettingKind::SchedExt { " --driver sched-ext" } else { "" };
            let agents = setting.agents.map_or_else(String::new, |agents| {
                format!("; agents used {:.1} % of the CPU", 100.0 * agents.median)
            });
            let back = match setting.given_back {
                0 => String::new(),
                count => format!("; {count} threads were given back before the end"),
            };
            let again = match setting.repeated {
                0 => String::new(),
                count => format!(
                    "; begun again {count} times, because the driver had been killed (by its \
                     guardian?)"
                ),
            };
            format!("by schedlab run{by}{agents}{back}{again}")
        }
    };
    // Below a thousandth others are the kernel's own threads.
    let others = setting.others.filter(|others| others.median >= 0.001);
    let others = others.map_or_else(String::new, |others| {
        format!("; others took {}", range(Metric::Share, others))
    });
    format!("{} ({how}{others})", style.bold(&setting.name))
}

fn row(name: &str, cell: &MetricAnswer) -> Vec<Cell> {
    let metric = cell.metric;
    let (before, after) = cell.change.map_or_else(Default::default, |(predicted, live)| {
        (change(metric, predicted), change(metric, live))
    });
    vec![
        Cell::plain(name),
        Cell::plain(metric.to_string()),
        Cell::plain(range(metric, cell.predicted)),
        Cell::plain(cell.error_bar.map_or_else(String::new, |bar| claimed(metric, &bar))),
        Cell::plain(range(metric, cell.live)),
        Cell {
            value: error(cell),
            change: if cell.overlap { String::new() } else { "apart".to_owned() },
            look: Look::Bad,
        },
        Cell::plain(before),
        Cell::plain(after),
    ]
}

fn range(metric: Metric, value: Estimate) -> String {
    format!(
        "{} [{} .. {}]",
        metric.show(value.median),
        metric.show(value.low),
        metric.show(value.high)
    )
}

/// Returns the interval of a prediction with the largest part of its error:
/// `78.2% .. 100.0% (reaction)`.
fn claimed(metric: Metric, bar: &ErrorBar) -> String {
    let part = bar.largest.map_or_else(String::new, |part| format!(" ({})", part.def().name));
    format!("{} .. {}{part}", metric.show(bar.low), metric.show(bar.high))
}

fn error(cell: &MetricAnswer) -> String {
    match (cell.metric.unit(), cell.relative) {
        (Unit::Share, _) => format!("{:+.1} points", 100.0 * cell.error),
        // Twice as much is a factor.
        (_, Some(relative)) if !(-0.5..1.0).contains(&relative) => {
            format!("{} times", ratio(1.0 + relative))
        }
        (_, Some(relative)) => format!("{:+.0} %", 100.0 * relative),
        (_, None) => cell.metric.show(cell.error),
    }
}

/// Returns the change: of shares a difference, else a ratio.
fn change(metric: Metric, value: f64) -> String {
    match metric.unit() {
        Unit::Share => format!("{:+.1} points", 100.0 * value),
        _ => format!("x {}", ratio(value)),
    }
}
