//! Where the commands of the documents run.

use super::super::{Folder, Ran, ran, root, schedlab};
use super::shell::Invocation;
use std::path::Path;
use std::process::{Command, Stdio};

/// A stand-in for cargo: `make demo` builds the program, which the test has built already.
const CARGO: &str = "#!/bin/sh\n[ \"$1 $2 $3 $4\" = 'build --release --package schedlab-cli' ] && \
                     exit 0\necho \"no cargo \
                     here: $*\" >&2\nexit 2\n";

/// A folder that looks like the repository after a build, for the `console` blocks of one page.
pub(super) struct Stage {
    folder: Folder,
}

impl Stage {
    pub(super) fn new(page: &str) -> Stage {
        let folder = Folder::new(&format!("page-{}-{}", page.replace('/', "-"), unique()));
        for name in
            ["scenarios", "recordings", "docs", "oracles", "experiments", "bpf", "Makefile", ".ci"]
        {
            link(&root().join(name), &folder.0.join(name));
        }
        for place in ["bin", "target/release"] {
            std::fs::create_dir_all(folder.0.join(place)).expect("writable");
            link(Path::new(env!("CARGO_BIN_EXE_schedlab")), &folder.0.join(place).join("schedlab"));
        }
        folder.write("bin/cargo", CARGO);
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.0.join("bin/cargo"), executable)
            .expect("its mode can be set");
        Stage { folder }
    }

    /// Runs a command line as a reader's shell does. What it prints, in `stdout`, is that of a
    /// terminal: both streams.
    pub(super) fn run(&self, line: &str) -> Ran {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec 2>&1; {line}")])
            .current_dir(&self.folder.0)
            .stdin(Stdio::null())
            .env("PATH", format!("{}:{path}", self.folder.0.join("bin").display()))
            .env("HOME", &self.folder.0)
            .env("COLUMNS", "100")
            .env("LC_ALL", "C")
            .env("NO_COLOR", "1");
        for name in ["CARGO", "CARGO_TARGET_DIR", "MAKEFLAGS", "MAKELEVEL", "RUST_BACKTRACE"] {
            command.env_remove(name);
        }
        ran(&mut command)
    }
}

/// Two pages of one name may be at work at once.
fn unique() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn link(from: &Path, to: &Path) {
    std::os::unix::fs::symlink(from, to).expect("writable");
}

/// A folder with an input under each name that the documents use for files of the reader's own.
pub(super) struct Samples {
    folder: Folder,
}

impl Samples {
    pub(super) fn new() -> Samples {
        let folder = Folder::new("documented");
        let hogs =
            std::fs::read_to_string(root().join("scenarios/two-hogs.toml")).expect("shipped");
        for name in ["my.toml", "mine.toml"] {
            folder.write(name, &hogs);
        }
        let rtapp = r#"{"tasks": {"worker": {"loop": 10, "run": 2000, "sleep": 8000}}, "global": {"duration": 1}}"#;
        folder.write("workload.json", rtapp);
        folder.write("wrk.txt", "  7000 requests in 3.00s, 1.00MB read\nRequests/sec:   2333.33\n");
        for (option, name) in [
            ("--perf-script", "perf.txt"),
            ("--systrace", "systrace.html"),
            ("--perfetto", "trace.pftrace"),
        ] {
            let file = folder.0.join(name).display().to_string();
            let ran = schedlab(&["export", "recordings/two-yes.slt", option, &file]);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        // An object and a kernel's types, as readers have them.
        for (name, own) in [("mine.bpf.o", "fair.bpf.o"), ("vmlinux", "kernel.bpf.o")] {
            let own = root().join("bpf/sim").join(own);
            std::fs::copy(own, folder.0.join(name)).expect("writable");
        }
        // A host with guests of KVM.
        std::fs::copy(root().join("recordings/guests-equal.slt"), folder.0.join("host.slt"))
            .expect("writable");
        // A trace is known by its content, not by its name: `import` has a test with a real
        // perf.data.
        for name in ["trace.txt", "ftrace.txt", "perf.data"] {
            std::fs::copy(folder.0.join("perf.txt"), folder.0.join(name)).expect("writable");
        }
        for (name, now) in [("schedstat-1.txt", 1), ("schedstat-2.txt", 2)] {
            let sums = format!(
                "version 17\ntimestamp {now}00\ncpu0 0 0 {now}0 {now} {now} {now} {now}000 {now} {now}\n"
            );
            folder.write(name, &sums);
        }
        for name in ["stats-before.txt", "stats-after.txt"] {
            folder.write(
                name,
                "Time elapsed (in jiffies) : 100\nCPU 0\npcount : 10\nrun_delay : 500\n",
            );
        }
        for name in ["old.json", "new.json"] {
            let out = folder.0.join(name).display().to_string();
            let ran = schedlab(&[
                "compare",
                "recordings/two-yes.slt",
                "--seeds",
                "1",
                "--json",
                "-o",
                &out,
            ]);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        for name in ["scenarios", "recordings"] {
            link(&root().join(name), &folder.0.join(name));
        }
        Samples { folder }
    }

    /// Puts a recording under each name that a command uses.
    fn recordings(&self, words: &[String]) {
        let recording = root().join("recordings/redis-other-other-closed8.slt");
        let place = |name: &str| self.folder.0.join(name);
        for word in words {
            let name = word.rsplit_once('=').map_or(word.as_str(), |(_, file)| file);
            let plain = !name.starts_with('-') && !name.contains([' ', ':']);
            if plain
                && name.ends_with(".slt")
                && !place(name).exists()
                && !root().join(name).exists()
            {
                std::fs::create_dir_all(place(name).parent().expect("in the folder"))
                    .expect("writable");
                std::fs::copy(&recording, place(name)).expect("writable");
            }
            if plain && ["before/", "after/", "fleet/"].contains(&name) && !place(name).exists() {
                std::fs::create_dir_all(place(name)).expect("writable");
                for number in 1..=3 {
                    std::fs::copy(&recording, place(name).join(format!("{number}.slt")))
                        .expect("writable");
                }
            }
        }
    }

    /// Runs a command that has no output in the documents: its numbers are not looked at, so it is
    /// made quick. Returns, too, whether a verdict about these numbers may be the other one: with
    /// one seed an expectation fails, and a gate knows the reader's files.
    pub(super) fn run(&self, invocation: &Invocation) -> (Ran, bool) {
        self.recordings(&invocation.words);
        let words = &invocation.words;
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command.args(words).current_dir(&self.folder.0).env("COLUMNS", "100");
        let trace = std::fs::File::open(self.folder.0.join("perf.txt")).expect("readable");
        command.stdin(if invocation.reads_a_pipe { trace.into() } else { Stdio::null() });
        let is = |name: &str| words[0] == name;
        let has = |option: &str| words.iter().any(|word| word == option);
        let few_seeds = is("compare") && !has("--seeds") && !has("--assert");
        let few_trials = is("tune") && !has("--trials");
        if few_seeds {
            command.args(["--seeds", "1"]);
        }
        if few_trials {
            command.args(["--trials", "6"]);
        }
        (ran(&mut command), few_seeds || few_trials || has("--fail-if"))
    }
}
