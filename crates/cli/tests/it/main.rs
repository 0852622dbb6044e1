//! The built binary, as a user meets it.

mod answers;
mod bad_input;
mod bench;
mod bpf;
mod brief;
mod calibrate;
mod ci;
mod colocate;
mod deploy;
mod documented;
mod effect;
mod ended;
mod error_parts;
mod experiment;
mod export;
mod fleet;
mod flight;
mod formats;
mod gallery;
mod gates;
mod generate;
mod guests;
mod hostile;
mod import;
mod incident;
mod kernel_rules;
mod killed;
mod latency;
mod latency_stall;
mod least_privilege;
mod live;
mod live_pitfalls;
mod live_slices;
mod long_work;
mod output;
mod page_part;
mod pages;
mod questions;
mod record_ends;
mod recordings;
mod report;
mod sched_ext_gate;
mod schema;
mod serve;
mod show;
mod stress;
mod terminal;
mod top;
mod totals;
mod tune;
#[cfg(feature = "ui")]
mod ui;
mod watch;
mod way_back;
mod writes;
mod xen;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run of the program gave.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs `schedlab` in the repository's root; panics only when it was killed by a signal.
fn schedlab<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .env("COLUMNS", "120")
        .env_remove("NO_COLOR")
        .env_remove("RUST_BACKTRACE");
    ran(&mut command)
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("the program can be started");
    let text = |bytes: Vec<u8>| match bytes.starts_with(b"PAR1") {
        // A Parquet file on standard output is the one output that is no text.
        true => "a Parquet file\n".to_owned(),
        false => String::from_utf8(bytes).expect("output is UTF-8"),
    };
    let code = output.status.code().expect("it was not killed");
    let ran = Ran { code, stdout: text(output.stdout), stderr: text(output.stderr) };
    schedlab_testing::always(!ran.stderr.contains("panicked"), || format!("{ran:?}"));
    ran
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is there")
}

/// The files of a folder with this ending, sorted.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == extension));
    files.sort();
    assert!(!files.is_empty(), "no .{extension} in {folder}");
    files
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            schedlab_testing::temp_dir().join(format!("schedlab-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Folder(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("the temporary folder is writable");
        path.display().to_string()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("readable");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A test that cannot run here says its name.
#[allow(clippy::print_stderr)] // that is the point
fn skip(test: &str, why: &str) {
    eprintln!("skipped: {test} ({why})");
}
