//! A terminal made by script(1), and whether it is as it was once a program has left it.

use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One program in a terminal of 80 by 24.
pub(crate) struct Terminal {
    script: Child,
    typescript: PathBuf,
    pid: PathBuf,
}

impl Terminal {
    /// Runs `schedlab` with these arguments in one. `None`: there is no script(1).
    pub(crate) fn run(
        folder: &Path,
        arguments: &str,
        environment: &[(&str, &Path)],
    ) -> Option<Terminal> {
        std::fs::create_dir_all(folder).expect("the temporary folder is writable");
        let (typescript, pid) = (folder.join("typescript"), folder.join("pid"));
        // Nothing of a run before.
        let _ = (std::fs::remove_file(&typescript), std::fs::remove_file(&pid));
        let program = env!("CARGO_BIN_EXE_schedlab");
        let inner = format!(
            "stty rows 24 cols 80; before=$(stty -g); sh -c 'echo $$ > {}; exec {program} \
             {arguments}'; code=$?; \
             [ \"$before\" = \"$(stty -g)\" ] && echo WHOLE-$code",
            pid.display()
        );
        let script = Command::new("script")
            .args(["-qefc", &inner])
            .arg(&typescript)
            .current_dir(folder)
            .env("TERM", "xterm")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        match script {
            Ok(script) => Some(Terminal { script, typescript, pid }),
            Err(_) => {
                assert!(std::env::var_os("CI").is_none(), "script(1) must be here");
                None
            }
        }
    }

    /// All that was written to it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.typescript).unwrap_or_default()).into_owned()
    }

    /// Waits until these words are on the screen. False: the program ended without them.
    pub(crate) fn shows(&mut self, words: &str) -> bool {
        while !self.text().contains(words)
            && self.script.try_wait().expect("a child of this test").is_none()
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.text().contains(words)
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        let text = std::fs::read_to_string(&self.pid).expect("it was written first");
        let pid = Pid::from_raw(text.trim().parse().expect("a number")).expect("a process");
        kill_process(pid, signal).expect("it runs");
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        self.script.stdin.as_mut().expect("piped").write_all(key.as_bytes()).expect("it listens");
    }

    /// Waits for the end. All that was written.
    pub(crate) fn ended(mut self) -> String {
        self.script.wait().expect("a child of this test");
        self.text()
    }

    /// Waits for the end. The screen that the program took must be given back, the terminal's
    /// settings be as before, and its exit code this one. All that was written.
    pub(crate) fn left_whole(mut self, code: i32) -> String {
        self.script.wait().expect("a child of this test");
        let text = self.text();
        let (enter, leave) = (text.find("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"));
        assert!(enter.is_some() && leave > enter, "{text:?}");
        assert!(
            text.rfind("\u{1b}[?25h") >= text.rfind("\u{1b}[?25l"),
            "the cursor is hidden: {text:?}"
        );
        assert!(text.contains(&format!("WHOLE-{code}")), "{text:?}");
        text
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ended already, unless a test failed.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
