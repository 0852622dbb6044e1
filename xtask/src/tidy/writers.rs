//! `cargo xtask writers`: every place where the product writes, with what protects it; and the
//! check that no other appears.
//!
//! What a user names is written by `crates/files` only. The other places write files of the kernel,
//! or remove files in the run folder.

use super::source::{self, Parsed, Token};
use crate::finding::Finding;
use crate::tree;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The one crate that opens, creates and renames what a user names.
const MODULE: &str = "crates/files/src/";

/// What the functions of [`MODULE`] do against links, planted files and lost data.
const PROTECTED: &[(&[&str], &str)] = &[
    (
        &["NewFile", "create"],
        "a file with a random name, O_EXCL|O_NOFOLLOW, beside its place in a folder held open; \
         renamed when whole; never over an input",
    ),
    (
        &["NewFile", "growing"],
        "O_EXCL|O_NOFOLLOW at its place where nothing is; else as NewFile::create",
    ),
    (&["NewFile", "fresh"], "as NewFile::create; renamed only where nothing is (RENAME_NOREPLACE)"),
    (&["schedlab_files", "create_new"], "O_EXCL|O_NOFOLLOW, mode 0600, in a folder held open"),
    (
        &["schedlab_files", "create_again"],
        "a file with a random name, O_EXCL|O_NOFOLLOW, mode 0600, in a folder held open; renamed \
         when it is on the disk",
    ),
    (&["schedlab_files", "make_folder"], "mkdirat step by step; links as for files"),
    (&["schedlab_files", "remove_folder"], "an empty folder that this run made"),
    (
        &["schedlab_files", "remove_if"],
        "only if it still is the file that this run made (device, inode, birth)",
    ),
    (&["schedlab_files", "spare_folders"], "folders with a random name"),
    (
        &["schedlab_files", "unnamed"],
        "O_TMPFILE, or O_EXCL with a random name that is removed at once",
    ),
    (&["TempDir", "with_prefix"], "a folder with a random name"),
    (&["Folder", "trusted"], "mode 0700; refused where another user can exchange a folder above"),
    (&["memfd_create"], "memory, without a name"),
];

/// What writes, wherever it is named.
const WRITES: &[&[&str]] = &[
    &["fs", "write"],
    &["fs", "rename"],
    &["fs", "copy"],
    &["fs", "hard_link"],
    &["fs", "create_dir"],
    &["fs", "create_dir_all"],
    &["fs", "remove_file"],
    &["fs", "remove_dir"],
    &["fs", "remove_dir_all"],
    &["fs", "set_permissions"],
    &["fs", "symlink"],
    &["File", "create"],
    &["File", "create_new"],
    &["File", "options"],
    &["OpenOptions", "new"],
    &["DirBuilder", "new"],
    &["OFlags", "WRONLY"],
    &["OFlags", "RDWR"],
    &["OFlags", "CREATE"],
    &["libc", "open"],
    &["libc", "creat"],
    &["env", "temp_dir"],
    &["set_len"],
    &["ftruncate"],
    &["mkdirat"],
    &["mkdir"],
    &["mknodat"],
    &["renameat"],
    &["renameat_with"],
    &["linkat"],
    &["symlinkat"],
    &["unlinkat"],
    &["fchmod"],
    &["fchown"],
    &["chown"],
    &["lchown"],
];

/// A place that writes: by which function, how often, and what.
struct WriteSite {
    file: &'static str,
    call: &'static str,
    count: usize,
    what: &'static str,
    /// Why it is safe without [`MODULE`]; empty for the functions of [`PROTECTED`].
    why: &'static str,
}

const fn place(
    file: &'static str,
    call: &'static str,
    count: usize,
    what: &'static str,
) -> WriteSite {
    WriteSite { file, call, count, what, why: "" }
}

const fn own_folder(
    file: &'static str,
    call: &'static str,
    count: usize,
    what: &'static str,
) -> WriteSite {
    WriteSite { file, call, count, what, why: "in a folder that only this user can enter" }
}

const fn kernel(
    file: &'static str,
    call: &'static str,
    count: usize,
    what: &'static str,
) -> WriteSite {
    WriteSite {
        file,
        call,
        count,
        what,
        why: "a file of the kernel, in a file system in which no user makes entries",
    }
}

/// The run folder can be written and exchanged by no other user (`Folder::trusted`).
const fn run_dir(
    file: &'static str,
    call: &'static str,
    count: usize,
    what: &'static str,
) -> WriteSite {
    WriteSite {
        file,
        call,
        count,
        what,
        why: "in the run folder, which no other user can write or exchange",
    }
}

const fn memory(
    file: &'static str,
    call: &'static str,
    count: usize,
    what: &'static str,
) -> WriteSite {
    WriteSite {
        file,
        call,
        count,
        what,
        why: "memory without a name, reached by the descriptor of this process",
    }
}

/// A claim is a link in a folder of the user who makes it.
const fn claims(call: &'static str, count: usize, what: &'static str) -> WriteSite {
    let why = "in a folder of this user that no other can write, which is checked; made in one \
               step that fails when it exists";
    WriteSite { file: "crates/live/src/claims.rs", call, count, what, why }
}

/// Every place.
const PLACES: &[WriteSite] = &[
    place(
        "crates/ui/src/inputs.rs",
        "schedlab_files::unnamed",
        1,
        "what is dropped on the page of the workbench",
    ),
    place(
        "crates/lab/src/record/flight_recorder.rs",
        "NewFile::fresh",
        1,
        "the ring: an incident, or what did not fit at its place",
    ),
    place(
        "crates/lab/src/record/snapshot.rs",
        "schedlab_files::spare_folders",
        1,
        "the folder of a ring that did not fit at its place",
    ),
    place(
        "crates/lab/src/flight/folder.rs",
        "schedlab_files::make_folder",
        1,
        "the folder of incidents",
    ),
    place(
        "crates/lab/src/flight/folder.rs",
        "schedlab_files::remove_if",
        1,
        "incidents that are too old for max-total",
    ),
    place(
        "crates/lab/src/flight/metrics.rs",
        "schedlab_files::remove_if",
        1,
        "a socket that a killed recorder left",
    ),
    place(
        "crates/cli/src/commands/record/incidents.rs",
        "schedlab_files::remove_if",
        1,
        "incidents of this run that are too old",
    ),
    place(
        "crates/cli/src/output.rs",
        "NewFile::create",
        2,
        "results, pages, logs: every -o, --report and --log",
    ),
    place(
        "crates/cli/src/stdin.rs",
        "schedlab_files::unnamed",
        1,
        "standard input, to be read twice",
    ),
    place("crates/cli/src/commands/import.rs", "NewFile::create", 1, "an imported recording"),
    place(
        "crates/cli/src/commands/man.rs",
        "schedlab_files::make_folder",
        1,
        "the folder of manual pages",
    ),
    place(
        "crates/cli/src/commands/calibrate.rs",
        "schedlab_files::make_folder",
        1,
        "the folder of the preset this-machine",
    ),
    place("crates/trace/src/export.rs", "NewFile::create", 2, "exports"),
    place(
        "crates/trace/src/export.rs",
        "schedlab_files::make_folder",
        1,
        "the folder of an export",
    ),
    place(
        "crates/trace/src/export.rs",
        "schedlab_files::remove_folder",
        1,
        "the folder of an export that failed",
    ),
    place(
        "crates/trace/src/writer.rs",
        "NewFile::create",
        1,
        "a recording that is whole in memory",
    ),
    place("python/native/src/study.rs", "NewFile::create", 1, "the page of a comparison"),
    place("crates/lab/src/record.rs", "NewFile::growing", 1, "a recording while it is made"),
    place(
        "crates/lab/src/record/flight_recorder.rs",
        "NewFile::create",
        1,
        "the ring of the flight recorder",
    ),
    place(
        "crates/lab/src/experiment/measurement.rs",
        "memfd_create",
        2,
        "the recording of an experiment",
    ),
    place(
        "crates/cli/src/commands/ui/live.rs",
        "schedlab_files::spare_folders",
        1,
        "the folder of what the workbench keeps of the machine",
    ),
    own_folder(
        "crates/cli/src/commands/ui/live.rs",
        "fs::remove_file",
        1,
        "a recording in that folder, which has no name as soon as it is open",
    ),
    own_folder(
        "crates/ui/src/socket.rs",
        "fs::remove_file",
        1,
        "the workbench's socket, in a folder of this user alone",
    ),
    place("crates/http/src/server.rs", "schedlab_files::remove_if", 1, "the socket that it made"),
    place("crates/host/src/record/bpf/made_up.rs", "memfd_create", 2, "rings for a bench"),
    memory("crates/host/src/record/bpf/made_up.rs", "ftruncate", 2, "the room of these rings"),
    place("crates/lab/src/confirm/round.rs", "memfd_create", 2, "the recordings of rounds"),
    run_dir("crates/lab/src/colocate/trial.rs", "fs::remove_file", 1, "the recording of a trial"),
    kernel("crates/lab/src/colocate/awake.rs", "OpenOptions::new", 1, "/dev/cpu_dma_latency"),
    kernel(
        "crates/lab/src/experiment/testbed.rs",
        "fs::write",
        1,
        "weights of the experiment's control group",
    ),
    kernel(
        "crates/host/src/program.rs",
        "OpenOptions::new",
        1,
        "cgroup.procs of the group that a program starts in",
    ),
    kernel(
        "crates/host/src/sys/hold.rs",
        "libc::open",
        1,
        "nothing: it reads /proc about its children",
    ),
    kernel("crates/measure/src/latency.rs", "OpenOptions::new", 1, "/dev/cpu_dma_latency"),
    place("crates/live/src/journal.rs", "schedlab_files::create_new", 1, "the journal"),
    place(
        "crates/live/src/journal.rs",
        "schedlab_files::create_again",
        1,
        "the journal without what says nothing any more",
    ),
    place("crates/live/src/run_dir.rs", "Folder::trusted", 1, "the run folder"),
    place("crates/live/src/status_file.rs", "NewFile::create", 1, "the status of a driver"),
    run_dir(
        "crates/live/src/status_file.rs",
        "fs::remove_file",
        2,
        "the status of a driver that is gone",
    ),
    place("crates/live/src/detach.rs", "NewFile::create", 1, "a request to give one process back"),
    run_dir(
        "crates/live/src/detach.rs",
        "fs::remove_file",
        3,
        "requests that are answered or withdrawn",
    ),
    run_dir(
        "crates/live/src/journal.rs",
        "fs::remove_file",
        1,
        "a journal whose first line could not be written",
    ),
    run_dir(
        "crates/live/src/journal.rs",
        "set_len",
        1,
        "the journal without a line that could not be written whole",
    ),
    place(
        "crates/live/src/memory.rs",
        "memfd_create",
        2,
        "the journal's lines for owner and guardians",
    ),
    memory(
        "crates/live/src/memory.rs",
        "OpenOptions::new",
        1,
        "the same memory, by its descriptor",
    ),
    memory(
        "crates/live/src/memory.rs",
        "set_len",
        1,
        "the same without a line that could not be written whole",
    ),
    claims("DirBuilder::new", 1, "the folder of claims"),
    claims("fs::set_permissions", 1, "the folder of claims that was just made"),
    claims("fs::symlink", 1, "a claim"),
    claims("fs::remove_file", 4, "claims that are given up or count no more"),
    run_dir(
        "crates/live/src/keeper.rs",
        "fs::remove_file",
        1,
        "a journal under which nothing was changed",
    ),
    kernel(
        "crates/live/src/keeper.rs",
        "fs::write",
        1,
        "a knob of a control group, journalled before",
    ),
    kernel("crates/live/src/keeper.rs", "fs::create_dir", 1, "a control group, journalled before"),
    kernel("crates/live/src/guardian.rs", "fs::write", 1, "oom_score_adj of the guardian itself"),
    run_dir(
        "crates/live/src/restore.rs",
        "fs::remove_file",
        2,
        "a journal whose changes are all given back, and what its owner had begun to write in its \
         place",
    ),
    kernel(
        "crates/live/src/restore/groups.rs",
        "fs::remove_dir",
        1,
        "a control group that schedlab made",
    ),
    kernel(
        "crates/live/src/restore/groups.rs",
        "fs::write",
        2,
        "cgroup.kill, and a knob of a control group as the journal has it",
    ),
    kernel("crates/host/src/threads.rs", "fs::write", 1, "the timer slack of a thread"),
];

/// Prints the table.
pub(crate) fn command() -> Result<ExitCode> {
    let root = tree::root();
    let mut lines = BTreeMap::new();
    for file in tree::files(&root)?.iter().filter(|file| is_product(file)) {
        let source =
            Parsed::read(&std::fs::read_to_string(root.join(file))?).context(file.clone())?;
        lines.append(&mut found(file, &source));
    }
    println!("place | what it writes | how it is protected\n--- | --- | ---");
    for place in PLACES {
        let at =
            lines.get(&(place.file.to_owned(), place.call.to_owned())).cloned().unwrap_or_default();
        let at: Vec<String> = at.iter().map(ToString::to_string).collect();
        println!(
            "{}:{} `{}` | {} | {}",
            place.file,
            at.join(","),
            place.call,
            place.what,
            why(place)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn why(place: &WriteSite) -> &'static str {
    let protection = PROTECTED.iter().find(|(call, _)| call.join("::") == place.call);
    protection.map_or(place.why, |(_, why)| why)
}

/// Whether a file is compiled into what users run.
fn is_product(file: &str) -> bool {
    let source = file.starts_with("crates/") && file.contains("/src/")
        || file.starts_with("python/native/src/");
    let test = file.ends_with("/tests.rs")
        || file.contains("/tests/")
        || file.starts_with("crates/testing/");
    source && file.ends_with(".rs") && !test && !file.starts_with(MODULE)
}

/// Returns the lines where each call that writes is named in a file, by file and call. Modules for
/// tests do not count.
fn found(file: &str, source: &Parsed) -> BTreeMap<(String, String), Vec<usize>> {
    let mut found: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let tokens = source::product_tokens(source);
    let calls = || WRITES.iter().copied().chain(PROTECTED.iter().map(|(call, _)| *call));
    for at in 0..tokens.len() {
        for call in calls().filter(|call| is_at(&tokens, at, call)) {
            found.entry((file.to_owned(), call.join("::"))).or_default().push(tokens[at].line);
        }
    }
    found
}

fn is_at(tokens: &[Token], at: usize, call: &[&str]) -> bool {
    call.iter().enumerate().all(|(i, word)| {
        tokens.get(at + i).is_some_and(|token| token.text == *word && (i == 0 || token.after_path))
    })
}

/// Every place that is not listed, and every listed one that is not there.
pub(super) fn check(sources: &BTreeMap<String, Parsed>, findings: &mut Vec<Finding>) {
    let mut all = BTreeMap::new();
    for (file, source) in sources.iter().filter(|(file, _)| is_product(file)) {
        all.append(&mut found(file, source));
    }
    for ((file, call), lines) in &all {
        let listed = PLACES.iter().find(|place| place.file == file && place.call == call);
        let count = listed.map_or(0, |place| place.count);
        if lines.len() > count {
            let text = format!(
                "writes by `{call}`, {} times where PLACES (xtask/src/tidy/writers.rs) lists \
                 {count}: write through crates/files, and \
                 list what is written; what only writes a file of the kernel is listed with that \
                 reason",
                lines.len()
            );
            findings.push(Finding::new(file, lines[lines.len() - 1], text));
        }
    }
    for place in PLACES {
        let there = all.get(&(place.file.to_owned(), place.call.to_owned())).map_or(0, Vec::len);
        if there < place.count {
            let text = format!(
                "PLACES lists `{}` {} times, and it is there {there} times",
                place.call, place.count
            );
            findings.push(Finding::new(place.file, 0, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_findings(file: &str, code: &str) -> usize {
        let mut findings = Vec::new();
        let source = Parsed::read(code).unwrap();
        check(&BTreeMap::from([(file.to_owned(), source)]), &mut findings);
        findings.iter().filter(|finding| finding.file == file && finding.line > 0).count()
    }

    #[test]
    fn a_new_writer_outside_the_module_is_found() {
        for code in [
            "fn f() { std::fs::write(a, b); }\n",
            "use std::fs;\nfn f() { fs::rename(a, b); }\n",
            "use std::fs::{self, rename};\nfn f() { rename(a, b); }\n",
            "fn f() { std::fs::File::create(a); }\n",
            "fn f() { std::fs::OpenOptions::new(); }\n",
            "fn f() { rustix::fs::openat(a, b, OFlags::RDWR, m); }\n",
            "fn f() { let x = std::env::temp_dir(); }\n",
            "fn f() { file.set_len(0); }\n",
            "fn f() { schedlab_files::NewFile::create(a); }\n",
        ] {
            assert!(new_findings("crates/lab/src/new.rs", code) > 0, "{code}");
            for allowed in
                ["crates/files/src/new.rs", "crates/lab/tests/new.rs", "xtask/src/new.rs"]
            {
                assert_eq!(new_findings(allowed, code), 0, "{allowed}: {code}");
            }
            let test = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
            assert_eq!(new_findings("crates/lab/src/new.rs", &test), 0, "{code}");
        }
        assert_eq!(
            new_findings(
                "crates/lab/src/new.rs",
                "fn f() { std::fs::read(a); std::fs::File::open(b); }\n"
            ),
            0
        );
        // One more in a file that is listed.
        let twice = "fn f() { fs::remove_file(a); fs::remove_file(b); }\n";
        assert_eq!(new_findings("crates/lab/src/colocate/trial.rs", twice), 1);
    }

    #[test]
    fn every_place_says_what_protects_it() {
        for place in PLACES {
            assert!(
                !place.what.is_empty() && !why(place).is_empty(),
                "{}: {}",
                place.file,
                place.call
            );
        }
    }
}
