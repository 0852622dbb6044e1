//! The live view of a managed machine: complete at 80 × 24.

use super::view::View;
use super::watch::{
    block, colored, delays, footer, help, seconds, short, waits, worst, worst_lines,
};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use schedlab_lab::top::{Gain, Snapshot};
use schedlab_lab::watch::WatchState;
use schedlab_model::Ns;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot, state: &WatchState, view: &View) {
    let [head, counts, tasks, gains, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Min(4),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(45), Constraint::Percentage(55)]).areas(below);
    frame.render_widget(header(snapshot, state, view), head);
    frame.render_widget(numbers(snapshot, view), counts);
    // The table of gains has the shares.
    let title = "Waits of managed threads (wakeup or preemption to running) ";
    waits(frame, tasks, state, view, title, false);
    self::gains(frame, gains, snapshot);
    delays(frame, left, state);
    worst(frame, right, state, view);
    frame.render_widget(footer(state, view), foot);
    if view.help {
        help(frame, frame.area());
    }
}

fn header(snapshot: &Snapshot, state: &WatchState, view: &View) -> Paragraph<'static> {
    let backend =
        state.start.as_ref().map_or("starting", |start| start.capabilities.backend.name());
    let mut spans = vec![
        Span::styled("schedlab top", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            "  {} on CPU {} for {}  (process {})  {backend}",
            snapshot.scheduler,
            snapshot.cpus,
            seconds(snapshot.elapsed),
            snapshot.owner
        )),
    ];
    if state.lost > 0 {
        spans.push(Span::styled(format!("  LOST {}", state.lost), colored(view, Color::Red)));
    }
    if view.paused {
        spans.push(Span::styled("  PAUSED", colored(view, Color::Yellow)));
    }
    Paragraph::new(Text::from(spans))
}

fn numbers(snapshot: &Snapshot, view: &View) -> Paragraph<'static> {
    let counts = &snapshot.counts;
    let first = match &snapshot.rates {
        None => vec![Span::raw("counting ...")],
        Some(rates) => vec![
            Span::raw(format!(
                "each s: {:.0} decisions, {:.0} switches, {:.0} wakeups, ",
                rates.decisions, rates.switches, rates.wakeups
            )),
            Span::styled(
                format!("{:.1} stale; ", rates.stale),
                attention(view, rates.stale >= 1.0),
            ),
            Span::styled(
                format!("agents {:.1} %", 100.0 * rates.agents),
                attention(view, rates.agents >= 0.1),
            ),
        ],
    };
    let second = format!(
        "all: {} decisions, {} stale, {} found late, {} given back, {} changed, {} windows",
        short(counts.decisions),
        short(counts.stale),
        short(counts.wakeups_found),
        counts.starved,
        counts.changed_by_others,
        short(counts.yield_windows)
    );
    Paragraph::new(vec![Text::from(first), Text::from(second)])
}

fn attention(view: &View, needed: bool) -> Style {
    if needed { colored(view, Color::Yellow) } else { Style::new() }
}

fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Text::from(text.into()).right_aligned())
}

fn dim_head(cells: Vec<Cell<'static>>) -> Row<'static> {
    Row::new(cells).style(Style::new().add_modifier(Modifier::DIM))
}

fn gains(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let mut all: Vec<&Gain> = snapshot.gains.iter().collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.name.cmp(&b.name)));
    let time = |time: Option<Ns>| time.map_or_else(|| "-".to_owned(), |time| time.to_string());
    let row = |gain: &&Gain| {
        Row::new([
            Cell::from(gain.name.clone()),
            right(gain.threads.to_string()),
            right(format!("{:.1}", 100.0 * gain.share)),
            right(time(gain.before)),
            right(time(gain.now)),
            right(factor(gain)),
        ])
    };
    let rows = all.iter().take(area.height.saturating_sub(2) as usize).map(row);
    let widths = [
        Constraint::Min(15),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(8),
    ];
    let agents = snapshot
        .rates
        .map_or_else(|| "-".to_owned(), |rates| format!("{:.1} %", 100.0 * rates.agents));
    let head = dim_head(vec![
        Cell::from("task"),
        right("threads"),
        right("CPU%"),
        right("wait before"),
        right("wait now"),
        right("now/bef."),
    ]);
    let title = format!(
        "Gain: mean wait before a turn, as the kernel counts it; agents take {agents} of a CPU "
    );
    frame.render_widget(Table::new(rows, widths).header(head).block(block(title)), area);
}

fn factor(gain: &Gain) -> String {
    match (gain.before, gain.now) {
        (Some(before), Some(now)) if before > Ns::ZERO => {
            format!("x{:.2}", now.0 as f64 / before.0 as f64)
        }
        _ => "-".to_owned(),
    }
}

/// Returns the same as lines, for `--once` and for the summary that stays on the terminal.
pub(crate) fn text(snapshot: &Snapshot, state: &WatchState) -> String {
    let counts = &snapshot.counts;
    let mut text = format!(
        "{} on CPU {} for {} (process {}): {} decisions, {} stale, {} given back\n",
        snapshot.scheduler,
        snapshot.cpus,
        seconds(snapshot.elapsed),
        snapshot.owner,
        counts.decisions,
        counts.stale,
        counts.starved
    );
    if let Some(rates) = &snapshot.rates {
        text += &format!(
            "last second: {:.0} decisions, {:.0} switches, {:.0} wakeups, {:.1} stale; agents \
             {:.1} % of a CPU\n",
            rates.decisions,
            rates.switches,
            rates.wakeups,
            rates.stale,
            100.0 * rates.agents
        );
    }
    text += &worst_lines(state, 10);
    for gain in &snapshot.gains {
        let time =
            |time: Option<Ns>| time.map_or_else(|| "no turns".to_owned(), |time| time.to_string());
        text += &format!(
            "{}: mean wait before a turn {} before, {} now; {:.1} % of the CPU\n",
            gain.name,
            time(gain.before),
            time(gain.now),
            100.0 * gain.share
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use schedlab_lab::top::{Rates, SCHEMA};
    use schedlab_lab::watch::{WatchFilter, WatchOptions, replayed};
    use schedlab_live::driver::Counts;
    use schedlab_model::CpuSet;
    use schedlab_trace::Recording;

    fn snapshot() -> Snapshot {
        let gain = |name: &str, before| Gain {
            name: name.to_owned(),
            threads: 1,
            before,
            now: Some(Ns::from_us(12)),
            share: 0.25,
        };
        Snapshot {
            schema: SCHEMA,
            owner: 4711,
            scheduler: "layers".to_owned(),
            cpus: CpuSet::first(1),
            cpu: 0,
            elapsed: Ns::from_s(12),
            counts: Counts { decisions: 123_456, stale: 7, yield_windows: 3, ..Counts::default() },
            rates: Some(Rates {
                decisions: 9_876.0,
                switches: 5_000.0,
                wakeups: 4_000.0,
                stale: 2.0,
                agents: 0.034,
            }),
            gains: vec![gain("redis-server", Some(Ns::from_us(48))), gain("sysbench", None)],
        }
    }

    fn screen(width: u16, height: u16) -> Vec<String> {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/redis-other-other-closed8.slt");
        let state = replayed(&Recording::open(path).unwrap(), WatchOptions::new(WatchFilter::All));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &snapshot(), &state, &View::default())).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn everything_is_on_a_screen_of_80_by_24() {
        let text = screen(80, 24).join("\n");
        for part in [
            "layers on CPU 0",
            "9876 decisions,",
            "2.0 stale;",
            "agents 3.4 %",
            " windows",
            "Waits of managed threads",
            "x0.25",
            "agents take 3.4 %",
            "Delays: running",
            "Longest waits",
            "q quit",
            "sysbench",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(text.contains('█'), "no histogram:\n{text}");
    }

    #[test]
    fn any_size_is_drawn_without_a_panic() {
        for (width, height) in [(1, 1), (10, 3), (40, 10), (300, 100)] {
            screen(width, height);
        }
    }
}
