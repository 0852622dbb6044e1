//! A full-screen view: drawn a few times a second, with keys, until the user leaves it. The
//! terminal is restored at the end.

use anyhow::Context;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::{Duration, Instant};

/// Time between two drawings.
const FRAME: Duration = Duration::from_millis(250);
/// Time between two checks for keys and signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// The content of the screen.
pub(crate) trait Screen {
    /// Draws everything.
    fn draw(&mut self, frame: &mut Frame<'_>);
    /// Handles a key.
    fn press(&mut self, key: KeyCode);
    /// Returns whether the user types a text, of which q is a letter and which Esc ends.
    fn is_typing(&self) -> bool {
        false
    }
}

/// Shows `screen` until q, Esc, Ctrl-C, or `done`. The terminal is always restored: on every return
/// by `Restore`, after a panic by ratatui's hook.
pub(crate) fn show(screen: &mut dyn Screen, done: &dyn Fn() -> bool) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let _restore = Restore;
    let mut next = Instant::now();
    while !done() {
        if Instant::now() >= next {
            next = Instant::now() + FRAME;
            terminal.draw(|frame| screen.draw(frame)).context("the terminal is gone")?;
        }
        if !event::poll(LOOK).context("the terminal is gone")? {
            continue;
        }
        if let Event::Key(key) = event::read().context("the terminal is gone")? {
            if quits(key, screen.is_typing()) {
                return Ok(());
            }
            if key.kind != KeyEventKind::Release {
                screen.press(key.code);
            }
        }
        // A key or a new size is drawn at once.
        next = Instant::now();
    }
    Ok(())
}

struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        let _ = ratatui::try_restore();
    }
}

fn quits(key: KeyEvent, typing: bool) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Char('c') => control,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => !typing,
            _ => false,
        }
}
