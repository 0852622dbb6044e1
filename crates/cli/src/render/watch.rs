//! The live view: one screen that is complete at 80 × 24 and grows with the terminal.

use super::view::View;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table};
use schedlab_lab::watch::output::by_word;
use schedlab_lab::watch::{TaskWaits, WatchState};
use schedlab_model::Ns;
use schedlab_model::text::between;
use schedlab_trace::analysis::Durations;

/// Decades of the histograms: 1 µs to 1 s, three columns each.
const DECADES: u32 = 6;
/// Columns of a histogram; the last holds all above.
pub(super) const BINS: usize = DECADES as usize * 3 + 1;

/// From this width on the 99th percentiles have their intervals beside them.
const WITH_INTERVALS: u16 = 100;
/// Columns of an interval: `123.4ms..567.8ms`.
const INTERVAL: u16 = 17;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &WatchState, view: &View) {
    let area = frame.area();
    let lower = if area.height >= 20 { 6 + area.height.saturating_sub(24) / 4 } else { 4 };
    let [head, tasks, worst, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Length(lower),
        Constraint::Length(lower),
        Constraint::Length(1),
    ])
    .areas(area);
    let [delays, limits] =
        Layout::horizontal([Constraint::Percentage(58), Constraint::Percentage(42)]).areas(below);
    frame.render_widget(header(state, view), head);
    self::tasks(frame, tasks, state, view);
    self::worst(frame, worst, state, view);
    self::delays(frame, delays, state);
    self::limits(frame, limits, state);
    frame.render_widget(footer(state, view), foot);
    if view.help {
        help(frame, area);
    }
}

pub(super) fn colored(view: &View, color: Color) -> Style {
    if view.colors { Style::new().fg(color) } else { Style::new().add_modifier(Modifier::BOLD) }
}

fn header(state: &WatchState, view: &View) -> Paragraph<'static> {
    let backend =
        state.start.as_ref().map_or("starting", |start| start.capabilities.backend.name());
    let lost = match state.lost {
        0 => Span::raw("lost 0"),
        lost => Span::styled(format!("LOST {lost}"), colored(view, Color::Red)),
    };
    let own = state.part(state.own) * 100.0;
    let mut spans = vec![
        Span::styled("schedlab watch", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {backend}  {}  {} events  ", seconds(state.now), short(state.events))),
        lost,
        Span::raw(format!("  own cost {own:.1}% CPU")),
    ];
    if view.paused {
        spans.push(Span::styled("  PAUSED", colored(view, Color::Yellow)));
    }
    Paragraph::new(Text::from(spans))
}

pub(super) fn footer(state: &WatchState, view: &View) -> Paragraph<'static> {
    Paragraph::new(view.foot(state)).style(Style::new().add_modifier(Modifier::DIM))
}

pub(super) fn block(title: impl Into<String>) -> Block<'static> {
    let block = Block::new()
        .borders(Borders::TOP)
        .title(Span::styled(title.into(), Style::new().add_modifier(Modifier::BOLD)));
    block.border_style(Style::new().add_modifier(Modifier::DIM))
}

fn tasks(frame: &mut Frame<'_>, area: Rect, state: &WatchState, view: &View) {
    let title = match &state.guess {
        Some(guess) => format!("Run-queue latency; serve: {} (guessed: {})", guess.name, guess.why),
        None => {
            let by = row_word(state);
            format!("Run-queue latency by {by} (wakeup or preemption to running)")
        }
    };
    waits(frame, area, state, view, &(title + " "), true);
}

/// Returns what a row is of.
fn row_word(state: &WatchState) -> &'static str {
    state.by.map_or("task", |by| by_word(Some(by)))
}

/// Draws how long the tasks waited, by task; with their shares of the CPUs if `shares`.
pub(super) fn waits(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &WatchState,
    view: &View,
    title: &str,
    shares: bool,
) {
    let right = |text: String| Cell::from(Text::from(text).right_aligned());
    // Intervals are what a narrow screen has no room for.
    let wide = area.width >= WITH_INTERVALS;
    let cells = |name: Cell<'static>,
                 share: String,
                 numbers: [String; 4],
                 interval: String,
                 bars: String| {
        let share = shares.then(|| right(share));
        let numbers = numbers.into_iter().map(right);
        let cells = std::iter::once(name).chain(share).chain(numbers);
        let interval = wide.then(|| right(interval));
        Row::new(cells.chain(interval).chain([Cell::from(bars)]).collect::<Vec<_>>())
    };
    let rows = view.rows(state, area.height.saturating_sub(2) as usize);
    let row = |(name, line): &(&String, &TaskWaits)| {
        let waits = &line.waits;
        let times = [waits.p50(), waits.p99(), waits.max()].map(|ns| ns.to_string());
        let [p50, p99, max] = times;
        let share = format!("{:.1}", state.part(line.run) * 100.0);
        let numbers = [short(waits.count()), p50, p99, max];
        cells(Cell::from((*name).clone()), share, numbers, interval(waits), histogram(line))
    };
    let share = shares.then_some(6);
    let numbers = [if shares { 6 } else { 7 }].into_iter().chain([if shares { 7 } else { 8 }; 3]);
    let columns =
        share.into_iter().chain(numbers).chain(wide.then_some(INTERVAL)).chain([BINS as u16]);
    let columns = columns.map(Constraint::Length);
    let widths = std::iter::once(Constraint::Min(15)).chain(columns);
    // Each mark of the scale is over the column in which its decade begins.
    let names = ["waits", "p50", "p99", "max"].map(str::to_owned);
    let scale = "1us      1ms     1s".to_owned();
    let head = cells(
        Cell::from(row_word(state)),
        "CPU%".to_owned(),
        names,
        "p99 interval".to_owned(),
        scale,
    );
    let table = Table::new(rows.iter().map(row), widths)
        .header(head.style(Style::new().add_modifier(Modifier::DIM)))
        .block(block(title.to_owned()));
    frame.render_widget(table, area);
}

/// Returns between which waits the 99th percentile lies with 95 %, by order statistics.
fn interval(waits: &Durations) -> String {
    match waits.interval(990_000) {
        (None, None) => "too few".to_owned(),
        (low, high) => between(low, high),
    }
}

/// Returns the bars of a histogram over logarithmic bins; the height is the square root of the
/// part, so that tails are visible.
pub(super) fn histogram(line: &TaskWaits) -> String {
    let mut bins = [0u64; BINS];
    for (edge, count) in line.waits.buckets() {
        let decade = ((edge.0.max(1) as f64 / 1_000.0).log10() * 3.0).floor();
        bins[(decade.max(0.0) as usize).min(BINS - 1)] += count;
    }
    let most = bins.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| match count {
        0 => ' ',
        count => {
            let height = ((*count as f64 / most as f64).sqrt() * 8.0).ceil() as usize;
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][height.clamp(1, 8) - 1]
        }
    };
    bins.iter().map(bar).collect()
}

/// Draws the longest waits: those that go on first, in at most half of the rows; then those that
/// ended, the longest first.
pub(super) fn worst(frame: &mut Frame<'_>, area: Rect, state: &WatchState, view: &View) {
    let ongoing = |wait: &schedlab_lab::watch::OngoingWait| {
        let why = match &wait.running {
            Some(name) => format!("waits still; {name} runs"),
            None => "waits still; held back by a limit".to_owned(),
        };
        let why = of_row(state, &wait.row) + &why;
        Row::new([
            Cell::from(Text::from(wait.age.to_string()).right_aligned()),
            Cell::from(format!("{} {}", wait.task.0, wait.task.1)),
            Cell::from(format!("CPU {}", wait.cpu.0)),
            Cell::from(Text::from(seconds(wait.from)).right_aligned()),
            Cell::from(why),
        ])
        .style(colored(view, Color::Yellow))
    };
    let row = |worst: &schedlab_lab::watch::LongWait| {
        let why = match &worst.held {
            Some(limit) => format!("held back by {limit}"),
            None => format!("{} ran {}", worst.culprit.0, worst.culprit.1),
        };
        let why = of_row(state, &worst.row) + &why;
        Row::new([
            Cell::from(Text::from(worst.length.to_string()).right_aligned()),
            Cell::from(format!("{} {}", worst.task.0, worst.task.1)),
            Cell::from(format!("CPU {}", worst.cpu.0)),
            Cell::from(Text::from(seconds(worst.from)).right_aligned()),
            Cell::from(why),
        ])
    };
    let room = area.height.saturating_sub(1) as usize;
    let open =
        state.ongoing.len().min(room.div_ceil(2).max(room.saturating_sub(state.worst.len())));
    let rows = state
        .ongoing
        .iter()
        .take(open)
        .map(ongoing)
        .chain(state.worst.iter().take(room - open).map(row));
    let widths = [
        Constraint::Length(7),
        Constraint::Length(23),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Min(20),
    ];
    frame.render_widget(
        Table::new(rows, widths).block(block("Longest waits, and what ran meanwhile ")),
        area,
    );
}

/// Returns the row in which a task counts, where that is not its name, as the beginning of a line.
fn of_row(state: &WatchState, row: &str) -> String {
    state.by.map_or_else(String::new, |_| format!("{row}: "))
}

pub(super) fn delays(frame: &mut Frame<'_>, area: Rect, state: &WatchState) {
    let mut pairs: Vec<_> = state.delays.iter().collect();
    pairs.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let row = |((waiter, culprit), time): (&(String, String), &Ns)| {
        Row::new([
            Cell::from(Text::from(time.to_string()).right_aligned()),
            Cell::from(culprit.clone()),
            Cell::from("delayed"),
            Cell::from(waiter.clone()),
        ])
    };
    let rows = pairs.into_iter().take(area.height.saturating_sub(1) as usize).map(row);
    let widths =
        [Constraint::Length(7), Constraint::Min(8), Constraint::Length(7), Constraint::Min(8)];
    frame.render_widget(
        Table::new(rows, widths)
            .block(block(format!("Delays: running {0}, waiting {0} ", row_word(state)))),
        area,
    );
}

fn limits(frame: &mut Frame<'_>, area: Rect, state: &WatchState) {
    let mut all: Vec<_> = state.throttled.iter().collect();
    all.sort_by(|a, b| b.1.1.cmp(&a.1.1).then(a.0.cmp(b.0)));
    let line = |((task, limit), (times, time)): (&(String, String), &(u64, Ns))| {
        Text::from(format!("{task}: {time} in {times}, {limit}"))
    };
    let mut lines: Vec<Text<'_>> =
        all.into_iter().take(area.height.saturating_sub(1) as usize).map(line).collect();
    if lines.is_empty() {
        lines.push(Text::from("none seen").style(Style::new().add_modifier(Modifier::DIM)));
    }
    frame.render_widget(Paragraph::new(lines).block(block("Throttled by limits ")), area);
}

pub(super) fn help(frame: &mut Frame<'_>, area: Rect) {
    let text = [
        "q, Esc, Ctrl-C  quit (a summary stays on the terminal)",
        "p, Space        pause the display; the recorder goes on",
        "s               sort: p99 (few waits last), max, waited, CPU",
        "/               find: show only the names that contain a text",
        "Up, Down, PgUp, PgDn, Home, End   scroll the tasks",
        "w               write the last 10 s as a recording, in this folder",
        "r               reset: count from now on",
        "?, h            this help",
        "",
        "A wait counts when it ends: from the wakeup (or the loss of the",
        "CPU) to running; `waits still`: it goes on, with its age. Bars:",
        "how waits are distributed, 1 us to 1 s, three columns a decade,",
        "height by the square root. From 100 columns on p99 has its 95 %",
        "interval, by order statistics (>: too few waits for its end).",
        "Own cost: CPU time of this program, as the recorder sees it.",
    ];
    let (width, height) = (68.min(area.width), (text.len() as u16 + 2).min(area.height));
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    let lines: Vec<Text<'_>> = text.into_iter().map(Text::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), place);
}

pub(super) fn seconds(at: Ns) -> String {
    format!("{:.1}s", at.0 as f64 / 1e9)
}

/// Returns a short form of a number: 1234567 is 1.2M.
pub(super) fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// Returns a line for each of the `count` tasks that waited longest.
pub(super) fn worst_lines(state: &WatchState, count: usize) -> String {
    let line = |(name, line): (&String, &TaskWaits)| {
        let waits = &line.waits;
        let (count, p50, p99, max) = (waits.count(), waits.p50(), waits.p99(), waits.max());
        format!(
            "{name}: {count} waits, p50 {p50}, p99 {p99} (95 %: {}), max {max}\n",
            interval(waits)
        )
    };
    View::default().rows(state, count).into_iter().map(line).collect()
}

/// Returns the summary that stays on the terminal at the end.
pub(crate) fn summary(state: &WatchState) -> String {
    let mut text = format!(
        "watched {} from {}: {} events, {} lost, own cost {:.1}% of a CPU\n",
        seconds(state.window()),
        seconds(state.since),
        state.events,
        state.lost,
        state.part(state.own) * 100.0
    );
    if let Some(guess) = &state.guess {
        text += &format!("serve: {}\n", guess.sentence());
    }
    text += &worst_lines(state, 5);
    for wait in state.ongoing.iter().take(3) {
        let (task, tid) = &wait.task;
        let why = wait
            .running
            .as_ref()
            .map_or("a limit holds it back".to_owned(), |name| format!("{name} runs"));
        text +=
            &format!("waits still, for {}: {task} {tid} on CPU {}; {why}\n", wait.age, wait.cpu.0);
    }
    for worst in state.worst.iter().take(3) {
        let (task, tid) = &worst.task;
        let (culprit, time) = &worst.culprit;
        text += &format!(
            "waited {}: {task} {tid} on CPU {}; {culprit} ran {time}\n",
            worst.length, worst.cpu.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::view::Sort;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use schedlab_lab::watch::{WatchFilter, WatchOptions, replayed};
    use schedlab_trace::Recording;

    fn screen(width: u16, height: u16, state: &WatchState, view: &View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn recorded() -> WatchState {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/redis-other-other-closed8.slt");
        replayed(&Recording::open(path).unwrap(), WatchOptions::new(WatchFilter::All))
    }

    #[test]
    fn everything_is_on_a_screen_of_80_by_24() {
        let lines = screen(80, 24, &recorded(), &View::default());
        let text = lines.join("\n");
        for part in [
            "lost 0",
            "own cost",
            "Run-queue latency",
            "Longest waits",
            "Delays: running",
            "Throttled",
            "? help",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(lines[23].contains("q quit"), "{text}");
        assert!(text.contains("sysbench") && text.contains("delayed"), "{text}");
        assert!(text.contains('█'), "no histogram:\n{text}");
    }

    #[test]
    fn a_wide_screen_has_intervals() {
        let state = recorded();
        let narrow = screen(80, 24, &state, &View::default()).join("\n");
        assert!(!narrow.contains("interval"), "{narrow}");
        let lines = screen(100, 24, &state, &View::default());
        assert!(lines[2].contains("p99 interval"), "{lines:#?}");
        let (low, high) = state.lines["redis-server"].waits.interval(990_000);
        let both = format!("{}..{}", low.unwrap(), high.unwrap());
        assert!(
            lines.iter().any(|line| line.contains("redis-server") && line.contains(&both)),
            "{lines:#?}"
        );
        assert!(summary(&state).contains(&format!("(95 %: {both})")), "{}", summary(&state));
    }

    #[test]
    fn a_wait_that_goes_on_stands_first_and_leaves_room_for_the_others() {
        let mut state = recorded();
        let wait = |number: u64| schedlab_lab::watch::OngoingWait {
            task: (format!("starved-{number}"), 77),
            row: format!("starved-{number}"),
            from: Ns::from_ms(100),
            age: Ns::from_ms(4_200 - number),
            cpu: schedlab_model::CpuId(1),
            running: Some("hog".to_owned()),
        };
        state.ongoing = (0..9).map(wait).collect();
        let lines = screen(80, 24, &state, &View::default());
        let title = lines.iter().position(|line| line.contains("Longest waits")).unwrap();
        assert!(lines[title + 1].contains("starved-0 77"), "{lines:#?}");
        assert!(lines[title + 1].contains("waits still; hog runs"), "{lines:#?}");
        assert!(lines[title + 4].contains(" ran "), "those that ended: {lines:#?}");
        assert!(summary(&state).contains("waits still, for 4.2"), "{}", summary(&state));
        state.worst.clear();
        let lines = screen(80, 24, &state, &View::default());
        assert!(lines[title + 5].contains("starved-4"), "{lines:#?}");
    }

    #[test]
    fn rows_are_of_what_the_user_chose() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/redis-other-other-closed8.slt");
        let by = schedlab_trace::analysis::By::Cgroup;
        let options = WatchOptions { by, ..WatchOptions::new(WatchFilter::All) };
        let state = replayed(&Recording::open(path).unwrap(), options);
        let lines = screen(80, 24, &state, &View::default());
        assert!(lines[1].contains("Run-queue latency by cgroup"), "{lines:#?}");
        assert!(lines[2].starts_with("cgroup"), "{lines:#?}");
        let title = lines.iter().position(|line| line.contains("Longest waits")).unwrap();
        assert!(lines[title + 1].contains("CPU ") && lines[title + 1].contains("/"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("Delays: running cgroup")), "{lines:#?}");
    }

    #[test]
    fn a_guess_is_said() {
        let mut state = recorded();
        let why = "most others wait for it".to_owned();
        let name = "redis-server".to_owned();
        state.guess = Some(schedlab_study::serve::Guess { name, why, programs: Vec::new() });
        let lines = screen(80, 24, &state, &View::default());
        let said = "serve: redis-server (guessed: most others wait for it)";
        assert!(lines[1].contains(said), "{lines:#?}");
        assert!(lines[3].contains("redis-server"), "{lines:#?}");
        assert!(summary(&state).contains("name another by --serve"), "{}", summary(&state));
    }

    #[test]
    fn any_size_is_drawn_without_a_panic() {
        let state = recorded();
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
            for help in [false, true] {
                screen(width, height, &state, &View { help, ..View::default() });
            }
        }
    }

    #[test]
    fn pause_sort_and_loss_are_visible() {
        let mut state = recorded();
        state.lost = 12;
        let view = View { paused: true, sort: Sort::Cpu, ..View::default() };
        let text = screen(100, 30, &state, &view).join("\n");
        assert!(
            text.contains("LOST 12") && text.contains("PAUSED") && text.contains("sort (CPU)"),
            "{text}"
        );
        let first = view.rows(&state, 1)[0].0;
        assert!(["redis-server", "sysbench"].contains(&first.as_str()), "{first}");
    }
}
