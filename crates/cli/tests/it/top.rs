//! `top` in a terminal, beside a driver of its own. Needs root; touches only threads that the test
//! starts.

use super::live::{command, turn};
use super::terminal::Terminal;
use super::{Folder, skip};
use rustix::process::Signal;
use std::process::{Child, Command, Stdio};

/// A driver, and a shell that mostly sleeps and that it manages.
struct Driver(Child, Child);

impl Driver {
    fn start(folder: &Folder) -> Driver {
        let target =
            Command::new("sh").args(["-c", "while :; do sleep 0.01; done"]).spawn().expect("sh(1)");
        let arguments = ["attach", "--scheduler", "rr", "--pid", &target.id().to_string()];
        let mut command = command(folder, &arguments);
        let child = command.stdout(Stdio::null()).spawn().expect("the program can be started");
        let driver = Driver(child, target);
        // It publishes once it manages.
        for _ in 0..6_000 {
            let listed = std::fs::read_dir(folder.0.join("run")).into_iter().flatten().flatten();
            let names: Vec<_> =
                listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            if names.iter().any(|name| !name.ends_with(".journal")) {
                return driver;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the driver never published");
    }

    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.0.id() as i32).expect("a process");
        rustix::process::kill_process(pid, signal).expect("a child of this test");
    }

    /// Until everything is given back and nothing of it is left to count as the next one.
    fn end(mut self, folder: &Folder) {
        self.signal(Signal::INT);
        self.0.wait().expect("a child of this test");
        let left = || std::fs::read_dir(folder.0.join("run")).into_iter().flatten().count();
        for _ in 0..6_000 {
            if left() == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the journal stays");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Its guardian gives everything back.
        for child in [&mut self.0, &mut self.1] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How `top` is left.
#[derive(Clone, Copy, Debug)]
enum Exit {
    Key(&'static str),
    Signal(Signal),
    /// Management ends, so there is nothing to show.
    Ended,
    /// The driver is killed.
    Killed,
}

#[test]
fn the_terminal_is_whole_however_top_is_left() {
    let test = "the_terminal_is_whole_however_top_is_left";
    let Some(_turn) = turn(test) else { return };
    let folder = Folder::new("top-terminal");
    let run = folder.0.join("run");
    let ways = [
        Exit::Key("q"),
        Exit::Key("\u{3}"),
        Exit::Signal(Signal::TERM),
        Exit::Signal(Signal::INT),
        Exit::Signal(Signal::HUP),
        Exit::Ended,
        Exit::Killed,
    ];
    for exit in ways {
        let driver = Driver::start(&folder);
        let environment = [("SCHEDLAB_RUN_DIR", run.as_path())];
        let Some(mut terminal) = Terminal::run(&folder.0.join("terminal"), "top", &environment)
        else {
            skip(test, "script(1) is missing");
            return;
        };
        assert!(terminal.shows("Waits of managed threads"), "{exit:?}: {:?}", terminal.text());
        match exit {
            Exit::Key(key) => terminal.press(key),
            Exit::Signal(signal) => terminal.signal(signal),
            Exit::Ended => driver.signal(Signal::INT),
            Exit::Killed => driver.signal(Signal::KILL),
        }
        let text = terminal.left_whole(0);
        assert!(text.contains("decisions"), "{exit:?}: {text:?}");
        driver.end(&folder);
    }
}
