//! What a user chose in a live view, and the keys that choose it.

use ratatui::crossterm::event::KeyCode;
use schedlab_lab::watch::{TaskWaits, WatchState};
use schedlab_study::view::few_for;

/// The order of the tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sort {
    /// By the 99th percentile of the waits. Tasks with too few waits for it come last.
    #[default]
    P99,
    /// By the longest wait.
    Max,
    /// By the sum of the waits.
    Waited,
    /// By CPU time.
    Cpu,
}

/// The percentile's rank, as [`few_for`] takes it.
const P99: u32 = 99_000;

impl Sort {
    /// Returns the next order.
    const fn next(self) -> Sort {
        match self {
            Sort::P99 => Sort::Max,
            Sort::Max => Sort::Waited,
            Sort::Waited => Sort::Cpu,
            Sort::Cpu => Sort::P99,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Sort::P99 => "p99",
            Sort::Max => "max",
            Sort::Waited => "waited",
            Sort::Cpu => "CPU",
        }
    }

    /// Returns what is compared: greater comes first.
    fn key(self, line: &TaskWaits) -> (bool, u64) {
        match self {
            // The percentile of three waits is the longest of them.
            Sort::P99 => (!few_for(P99, line.waits.count() as f64), line.waits.p99().0),
            Sort::Max => (true, line.waits.max().0),
            Sort::Waited => (true, line.waits.sum().0),
            Sort::Cpu => (true, line.run.0),
        }
    }
}

/// What the user chose.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct View {
    /// Order of tasks.
    pub(crate) sort: Sort,
    /// Whether the display is paused; the recorder goes on.
    pub(crate) paused: bool,
    /// Whether the help is shown.
    pub(crate) help: bool,
    /// Whether colours are used.
    pub(crate) colors: bool,
    /// Only names that contain this are shown.
    pub(crate) find: String,
    /// Whether the keys are letters of `find`.
    pub(crate) typing: bool,
    /// Tasks above the first row.
    pub(crate) skip: usize,
    /// Tasks that could be shown.
    pub(super) tasks: usize,
}

/// What a key asks for beside the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pressed {
    /// Nothing.
    Nothing,
    /// All sums to 0.
    Reset,
    /// The last seconds as a recording.
    Save,
}

/// Rows that a page key moves.
const PAGE: usize = 10;

impl View {
    /// Returns the view at the beginning.
    pub(crate) fn new() -> View {
        View { colors: std::env::var_os("NO_COLOR").is_none(), ..View::default() }
    }

    /// Takes a key.
    pub(crate) fn press(&mut self, key: KeyCode) -> Pressed {
        if self.typing {
            self.letter(key);
            return Pressed::Nothing;
        }
        let last = self.tasks.saturating_sub(1);
        match key {
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => (self.sort, self.skip) = (self.sort.next(), 0),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Down => self.skip = (self.skip + 1).min(last),
            KeyCode::Up => self.skip = self.skip.saturating_sub(1),
            KeyCode::PageDown => self.skip = (self.skip + PAGE).min(last),
            KeyCode::PageUp => self.skip = self.skip.saturating_sub(PAGE),
            KeyCode::Home => self.skip = 0,
            KeyCode::End => self.skip = last,
            KeyCode::Char('r') => return Pressed::Reset,
            KeyCode::Char('w') => return Pressed::Save,
            _ => {}
        }
        Pressed::Nothing
    }

    /// Takes a letter of what is looked for.
    fn letter(&mut self, key: KeyCode) {
        self.skip = 0;
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => (self.typing, self.find) = (false, String::new()),
            KeyCode::Backspace => drop(self.find.pop()),
            KeyCode::Char(letter) => self.find.push(letter),
            _ => {}
        }
    }

    /// Returns what is shown of a state: the tasks that were looked for.
    pub(crate) fn part(&mut self, state: &WatchState) -> WatchState {
        let mut part = state.clone();
        if !self.find.is_empty() {
            part.only(&format!("*{}*", self.find));
        }
        self.tasks = part.lines.values().filter(|line| line.waits.count() > 0).count();
        self.skip = self.skip.min(self.tasks.saturating_sub(1));
        part
    }

    /// Returns the tasks from row `skip` on, `count` at most: the server that is guessed, then by
    /// the order of the view.
    pub(super) fn rows<'a>(
        &self,
        state: &'a WatchState,
        count: usize,
    ) -> Vec<(&'a String, &'a TaskWaits)> {
        let guess = state.guess.as_ref().map(|guess| &guess.name);
        let mut all: Vec<(&String, &TaskWaits)> =
            state.lines.iter().filter(|(_, line)| line.waits.count() > 0).collect();
        let key =
            |(name, line): &(&String, &TaskWaits)| (Some(*name) == guess, self.sort.key(line));
        all.sort_by(|a, b| key(b).cmp(&key(a)).then(a.0.cmp(b.0)));
        all.into_iter().skip(self.skip).take(count).collect()
    }

    /// Returns the last line of the screen: what is typed, what became of the last key, or the
    /// keys.
    pub(super) fn foot(&self, state: &WatchState) -> String {
        match &state.saved {
            _ if self.typing => format!("find: {}_   Enter keeps it, Esc shows all", self.find),
            Some(Ok(file)) => format!("saved: schedlab show {}", file.display()),
            Some(Err(why)) => format!("not saved: {why}"),
            None => {
                let find = if self.find.is_empty() { "find" } else { &self.find };
                format!(
                    "? help  q quit  / {find}  ↑↓ scroll  s sort ({})  w save  p pause  r reset",
                    self.sort.name()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Ns;
    use schedlab_study::serve::Guess;

    fn state(tasks: &[(&str, u64, u64)]) -> WatchState {
        let mut state = WatchState::default();
        for (name, waits, us) in tasks {
            let mut line = TaskWaits::default();
            (0..*waits).for_each(|_| line.waits.add(Ns::from_us(*us)));
            state.lines.insert((*name).to_owned(), line);
        }
        state
    }

    fn names(view: &View, state: &WatchState) -> Vec<String> {
        view.rows(state, 10).into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// A task that waited once, for long, has no 99th percentile.
    #[test]
    fn a_task_that_waited_once_is_not_on_top() {
        let state = state(&[("server", 1_000, 50), ("once", 1, 9_000), ("batch", 1_000, 80)]);
        assert_eq!(names(&View::default(), &state), ["batch", "server", "once"]);
        let max = View { sort: Sort::Max, ..View::default() };
        assert_eq!(names(&max, &state), ["once", "batch", "server"]);
    }

    #[test]
    fn a_guess_comes_first() {
        let mut state = state(&[("server", 1_000, 50), ("batch", 1_000, 80)]);
        state.guess =
            Some(Guess { name: "server".to_owned(), why: "said".to_owned(), programs: Vec::new() });
        assert_eq!(names(&View::default(), &state), ["server", "batch"]);
    }

    #[test]
    fn keys_search_and_scroll() {
        let state = state(&[("redis-server", 900, 50), ("redis-cli", 900, 60), ("batch", 900, 80)]);
        let mut view = View::default();
        view.part(&state);
        assert_eq!(view.press(KeyCode::Down), Pressed::Nothing);
        assert_eq!(names(&view, &state), ["redis-cli", "redis-server"]);
        view.press(KeyCode::Char('/'));
        let typed = |view: &mut View, text: &str| {
            for letter in text.chars() {
                view.press(KeyCode::Char(letter));
            }
        };
        typed(&mut view, "qred");
        assert!(view.part(&state).lines.is_empty(), "q is a letter while one types");
        for _ in 0..4 {
            view.press(KeyCode::Backspace);
        }
        typed(&mut view, "red");
        view.press(KeyCode::Enter);
        let part = view.part(&state);
        assert_eq!(names(&view, &part), ["redis-cli", "redis-server"]);
        view.press(KeyCode::End);
        view.press(KeyCode::PageDown);
        assert_eq!(names(&view, &part), ["redis-server"]);
        assert_eq!(view.press(KeyCode::Char('w')), Pressed::Save);
        assert_eq!(view.press(KeyCode::Char('r')), Pressed::Reset);
    }
}
