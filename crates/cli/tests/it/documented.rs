//! The documents say what the program prints. Each fenced block of a page has a language:
//!
//! * `console`: lines that begin with `$ ` are run, what is below them is compared with what they
//!   print (`SCHEDLAB_DOCS=write`, which `cargo xtask docs` sets, writes it into the page instead).
//!   A comment above the block may say `<!-- run: tolerance 5% -->`, `<!-- run: exit 1 -->`, or why
//!   it is not run: `<!-- recorded: WHERE; WHY -->`.
//! * `sh`: commands without output. What only reads and writes files is run, on shipped recordings
//!   under the names that the page uses; of everything else the options are read.
//! * any other language: not output. A block without a language is an error.

mod page;
mod same;
mod shell;
mod stage;

use super::{Folder, Ran, root, schedlab};
use page::{Block, Marker};
use shell::Invocation;
use stage::{Samples, Stage};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Languages of blocks that are no output.
const SOURCES: [&str; 8] = ["toml", "json", "yaml", "rust", "diff", "python", "c", "make"];

/// Returns every page of the repository but the log of changes, as paths from its root.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "recordings", "oracles", "python", "fuzz"] {
        markdown(&root(), Path::new(folder), &mut found);
    }
    found.retain(|page| page != Path::new("CHANGELOG.md"));
    found.sort();
    assert!(found.len() > 30, "{found:?}");
    found
}

fn markdown(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(root.join(folder)).expect("readable") {
        let entry = entry.expect("readable");
        let path = folder.join(entry.file_name());
        if entry.file_type().expect("readable").is_dir() {
            if folder != Path::new("") {
                markdown(root, &path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// A page after its blocks were run.
struct Checked {
    /// What is wrong, with file and line.
    problems: Vec<String>,
    /// The page as the program would have it.
    text: String,
}

/// Runs the blocks of a page in a folder of its own, one after the other.
fn check(name: &str, text: &str) -> Checked {
    let lines: Vec<&str> = text.lines().collect();
    let blocks = match page::blocks(&lines) {
        Ok(blocks) => blocks,
        Err((line, problem)) => {
            return Checked {
                problems: vec![format!("{name}:{line}: {problem}")],
                text: text.to_owned(),
            };
        }
    };
    let (mut problems, mut written, mut copied) = (Vec::new(), Vec::new(), 0);
    let stage = std::cell::OnceCell::new();
    for block in &blocks {
        let place = format!("{name}:{}", block.line);
        let runs = match kind(block) {
            Ok(runs) => runs,
            Err(problem) => {
                problems.push(format!("{place}: {problem}"));
                continue;
            }
        };
        let Some((tolerance, exit)) = runs else { continue };
        let steps = match page::steps(&lines, block) {
            Ok(steps) => steps,
            Err(problem) => {
                problems.push(format!("{place}: {problem}"));
                continue;
            }
        };
        let last = steps.len() - 1;
        for (number, step) in steps.iter().enumerate() {
            let ran = stage.get_or_init(|| Stage::new(name)).run(&step.command);
            let wanted = if number == last { exit } else { 0 };
            if ran.code != wanted {
                problems.push(format!(
                    "{place}: `{}` ends with exit code {}, not {wanted}; it prints:\n{}",
                    step.command, ran.code, ran.stdout
                ));
            }
            let printed: Vec<&str> = ran.stdout.trim_end().lines().map(str::trim_end).collect();
            let on_page = &lines[step.output.clone()];
            if let Some(difference) = same::difference(on_page, &printed, tolerance) {
                problems.push(format!("{place}: `{}`: {difference}", step.command));
                written.extend(lines[copied..step.output.start].iter().map(ToString::to_string));
                written.extend(printed.iter().map(ToString::to_string));
                copied = step.output.end;
            }
        }
    }
    written.extend(lines[copied..].iter().map(ToString::to_string));
    Checked { problems, text: written.join("\n") + "\n" }
}

/// Returns tolerance and exit code of a block that is to be run, `None` for one that is not, or why
/// the block is wrong.
fn kind(block: &Block) -> Result<Option<(f64, i32)>, String> {
    match (block.language.as_str(), &block.marker) {
        ("console", Marker::Run { tolerance, exit }) => Ok(Some((*tolerance, *exit))),
        ("console" | "text", Marker::Recorded(_)) | ("text", Marker::Drawing) => Ok(None),
        ("text", _) => {
            Err("output without its command: make it a `console` block, or say above it `<!-- \
                 recorded: \
                            WHERE; WHY -->` or `<!-- drawing -->`"
                .to_owned())
        }
        ("", _) => {
            Err("a block without a language: `console` for commands with their output, `sh` for \
             commands, or \
                        the language of what it shows"
                .to_owned())
        }
        ("sh", Marker::Run { .. }) => Ok(None),
        (source, _) if SOURCES.contains(&source) && !block.is_marked => Ok(None),
        (language, _) => Err(format!(
            "a block of language `{language}`, which with this marker has no meaning \
                         here"
        )),
    }
}

#[test]
fn every_block_of_output_is_what_the_program_prints() {
    let pages = pages();
    let write = std::env::var_os("SCHEDLAB_DOCS").is_some_and(|value| value == "write");
    let next = std::sync::atomic::AtomicUsize::new(0);
    let problems = std::sync::Mutex::new(Vec::new());
    // Two pages at a time: the program itself uses all CPUs for its longest work.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(name) =
                    pages.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let text = std::fs::read_to_string(root().join(name)).expect("readable");
                    let mut found = check(&name.display().to_string(), &text);
                    if write && found.text != text {
                        std::fs::write(root().join(name), &found.text).expect("writable");
                        found = check(&name.display().to_string(), &found.text);
                    }
                    problems.lock().expect("no panic").extend(found.problems);
                }
            });
        }
    });
    let problems = problems.into_inner().expect("no panic");
    assert!(
        problems.is_empty(),
        "{} blocks are not what the program prints (`cargo xtask docs` writes them anew):\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// The test above can fail: a word, a number or a line of a guide is changed, and it is found with
/// its place.
#[test]
fn an_edited_block_of_a_guide_is_found() {
    let text = std::fs::read_to_string(root().join("docs/guide/redis.md")).expect("readable");
    let begin = text.find("```console\n$ schedlab show ").expect("the guide shows who waits");
    let end = begin + text[begin + 3..].find("```").expect("closed") + 6;
    let block = &text[begin..end];
    assert_eq!(check("redis.md", block).problems, [""; 0]);
    let row = block
        .lines()
        .find(|line| line.contains("redis-server  sysbench"))
        .expect("it waits for sysbench");
    for edited in [
        row.replace("sysbench", "sysbnech"),
        row.replace("99.97%", "99.79%"),
        format!("{row}\n{row}"),
    ] {
        let checked = check("redis.md", &block.replace(row, &edited));
        assert!(
            checked.problems.len() == 1 && checked.problems[0].starts_with("redis.md:1: "),
            "{:?}",
            checked.problems
        );
        assert_eq!(
            checked.text.trim_end(),
            block.trim_end(),
            "what `cargo xtask docs` would write"
        );
    }
    let unmarked = block.replace("```console", "```");
    assert!(check("redis.md", &unmarked).problems[0].contains("without a language"));
}

/// A command line, and where it is written.
struct Documented {
    place: String,
    invocation: Invocation,
    /// With which code it ends on the sample inputs.
    exit: i32,
}

/// Returns the command lines without output of all pages: those of `sh` blocks, and those of
/// recorded blocks.
fn in_blocks() -> Vec<Documented> {
    let mut all = Vec::new();
    for name in pages() {
        let text = std::fs::read_to_string(root().join(&name)).expect("readable");
        let lines: Vec<&str> = text.lines().collect();
        for block in page::blocks(&lines).unwrap_or_default() {
            let exit = match (block.language.as_str(), &block.marker) {
                ("sh", Marker::Run { exit, .. }) => *exit,
                ("console", Marker::Recorded(_)) => 0,
                _ => continue,
            };
            for (line, command) in page::command_lines(&lines, &block) {
                let recorded = block.language == "console";
                let command = match command.strip_prefix("$ ") {
                    Some(command) => command,
                    None if recorded => continue,
                    None => &command,
                };
                let place = format!("{}:{line}", name.display());
                let found = shell::invocations(command)
                    .into_iter()
                    .map(|one| Invocation { run: one.run && !recorded, ..one });
                all.extend(found.map(|invocation| Documented {
                    place: place.clone(),
                    invocation,
                    exit,
                }));
            }
        }
    }
    all
}

/// Returns the command lines of the examples of `--help`.
fn in_help() -> Vec<Documented> {
    let help = schedlab(&["--help"]).stdout;
    let names = shell::commands_of_help(&help);
    assert!(names.len() > 15, "{names:?}");
    let mut all = Vec::new();
    for name in names.iter().map(String::as_str).filter(|name| *name != "help").chain([""]) {
        let arguments: Vec<&str> =
            [name, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        for command in shell::examples(&schedlab(&arguments).stdout) {
            let place = format!("schedlab {name} --help");
            let found = shell::invocations(&command);
            all.extend(found.into_iter().map(|invocation| Documented {
                place: place.clone(),
                invocation,
                exit: 0,
            }));
        }
    }
    all
}

#[test]
fn every_documented_command_works() {
    let samples = Samples::new();
    let (mut count, mut seen, mut failed) = (0, BTreeSet::new(), Vec::new());
    for one in in_blocks().into_iter().chain(in_help()) {
        if !one.invocation.is_whole() || !seen.insert(one.invocation.words.clone()) {
            continue;
        }
        count += 1;
        let (ran, verdict_is_open) = match one.invocation.run {
            true => samples.run(&one.invocation),
            false => (options_of(&one.invocation), false),
        };
        let wanted = if one.invocation.run { one.exit } else { 0 };
        if ran.code != wanted && !(verdict_is_open && tells_its_verdict(&ran)) {
            failed.push(format!(
                "{}: schedlab {}\n    exit code {}, not {wanted}: {}",
                one.place,
                one.invocation.words.join(" "),
                ran.code,
                if ran.stderr.is_empty() { ran.stdout.trim() } else { ran.stderr.trim() }
            ));
        }
    }
    assert!(count > 100, "only {count} commands were found");
    assert!(
        failed.is_empty(),
        "{} of {count} documented commands fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// Returns true when the program did its work, and says why it ends with 1 or 3.
fn tells_its_verdict(ran: &Ran) -> bool {
    let says = |word: &str| ran.stdout.contains(word) || ran.stderr.contains(word);
    match ran.code {
        1 => says("expectation") || says("gate") || says("FAIL") || says("fail-if"),
        3 => says("trust") || says("tell") || says("CANNOT SAY"),
        _ => false,
    }
}

/// Reads the options of a command that is not run: `--help` ends it, after what is left of it was
/// read.
fn options_of(invocation: &Invocation) -> Ran {
    let own = invocation.words.iter().take_while(|word| *word != "--");
    schedlab(&own.map(String::as_str).chain(["--help"]).collect::<Vec<_>>())
}

/// `` `schedlab COMMAND --option` `` in a sentence: the command and the option exist.
#[test]
fn every_command_that_a_sentence_names_exists() {
    let (mut count, mut failed, mut seen) = (0, Vec::new(), BTreeSet::new());
    for name in pages() {
        let text = std::fs::read_to_string(root().join(&name)).expect("readable");
        let lines: Vec<&str> = text.lines().collect();
        let blocks = page::blocks(&lines).unwrap_or_default();
        for (line, span) in page::spans(&lines, &blocks) {
            for one in shell::invocations(span) {
                if !one.is_whole() || !seen.insert(one.words.clone()) {
                    continue;
                }
                count += 1;
                let ran = options_of(&one);
                // A sentence may name an option without its value.
                if ran.code != 0 && !ran.stderr.contains("a value is required for") {
                    failed.push(format!(
                        "{}:{line}: `{span}`: {}",
                        name.display(),
                        ran.stderr.trim()
                    ));
                }
            }
        }
    }
    assert!(count > 50, "only {count} commands were found");
    assert!(failed.is_empty(), "{} commands do not exist:\n{}", failed.len(), failed.join("\n"));
}

/// A shipped recording may have threads that are bound to each CPU, those of the kernel among them.
#[test]
fn a_global_agent_finds_a_cpu_on_every_shipped_recording() {
    for file in super::files("recordings", "slt") {
        let path = file.display().to_string();
        let variant = "agents: delegation mode=global";
        let ran =
            schedlab(&["compare", &path, "--seeds", "1", "--for", "300ms", "--variant", variant]);
        if ran.stderr.contains("of 1 CPUs: it needs a CPU of the machine, and another") {
            // It cannot, and says why.
            assert_eq!(ran.code, 2, "{path}: {}", ran.stderr);
            continue;
        }
        assert!([0, 3].contains(&ran.code), "{path}: {}", ran.stderr);
        assert!(ran.stdout.contains("agents"), "{path}: {}", ran.stdout);
    }
}

/// One variant that a scheduler does not admit is left out and said; the others are compared.
#[test]
fn a_variant_that_is_not_admitted_does_not_end_the_others() {
    let folder = Folder::new("not-admitted");
    let text = "schedulers = [\"linux-6.18\"]\nduration = \"200ms\"\n[machine]\ncpus = 1\n\
                [[task]]\nname = \"a\"\nprogram = \
                [\"run 1ms\", \"sleep 1ms\"]\n[[task]]\nname = \"b\"\nprogram = \"hog\"\n";
    let path = folder.write("s.toml", text);
    let deadline = "too much: a policy=deadline:99ms/100ms/100ms";
    let ran =
        schedlab(&["compare", &path, "--variant", deadline, "--variant", "idle: b policy=idle"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("left out") && ran.stdout.contains("idle"), "{ran:?}");
}

#[test]
fn limits_of_the_other_system_are_refused() {
    let folder = Folder::new("other-system");
    let text = |scheduler: &str| {
        format!(
            "schedulers = [\"{scheduler}\"]\nduration = \"200ms\"\n[machine]\ncpus = 1\n\
             [[group]]\nname = \"/g\"\n[[task]]\n\
             name = \"a\"\ngroup = \"/g\"\nprogram = \"hog\"\n"
        )
    };
    let (linux, xen) =
        (folder.write("l.toml", text("linux-6.18")), folder.write("x.toml", text("xen-credit2")));
    for (path, setting, advice) in [
        (&linux, "cap=25", "Linux has `cpu.max=QUOTA/PERIOD`"),
        (&linux, "weight=512", "Linux has `cpu.weight=N`"),
        (&xen, "cpu.max=25%", "Xen has `cap=PERCENT`"),
        (&xen, "cpu.idle=on", "Xen has `weight=N`"),
    ] {
        let ran = schedlab(&["compare", path, "--variant", &format!("x: /g {setting}")]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(advice), "{ran:?}");
    }
    for (path, setting) in
        [(&linux, "cpu.max=25%"), (&linux, "cpu.max=25000 100000"), (&xen, "cap=25")]
    {
        let ran = schedlab(&["compare", path, "--variant", &format!("x: /g {setting}")]);
        assert_eq!(ran.code, 0, "{setting}: {ran:?}");
    }
}

#[test]
fn an_hour_is_a_time() {
    let ran = schedlab(&["compare", "recordings/two-yes.slt", "--for", "1h"]);
    assert!(ran.code == 2 && ran.stderr.contains("the recording is only"), "{ran:?}");
}
