//! Nothing is promised that fails: every command line of the README, of docs/ and of `--help` is run, on shipped recordings under the
//! names that the pages use. What measures or changes the live machine is not run here; that its options are understood is.

use super::{Folder, Ran, root, schedlab};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Commands that only read and write files: they are run as they are written.
const RUN: [&str; 14] = [
    "tune",
    "compare",
    "show",
    "diff",
    "export",
    "import",
    "list",
    "generate",
    "explain",
    "completions",
    "man",
    "doctor",
    "status",
    "published",
];

/// A command line, and where it is written.
struct Documented {
    place: String,
    words: Vec<String>,
}

/// Splits as a shell does: quotes, and a comment after blanks.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, open) = (Some(c), true),
            (None, '#') if word.is_empty() => break,
            (None, c) if c.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (None, c) => word.push(c),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns the command of a line such as `$ sudo schedlab show a.slt | head`, without what is not schedlab's.
fn command(line: &str) -> Option<Vec<String>> {
    let words = words(line);
    let at = words.iter().position(|word| word == "schedlab")?;
    let before = &words[..at];
    if !before.iter().all(|word| ["$", "#", "sudo"].contains(&word.as_str())) {
        return None;
    }
    let own = words[at + 1..].iter().take_while(|word| !["|", ">", "&&", ";", "<"].contains(&word.as_str()));
    let own: Vec<String> = own.cloned().collect();
    (!own.is_empty()).then_some(own)
}

/// Returns the commands of the fenced blocks of a Markdown file.
fn of_markdown(path: &Path) -> Vec<Documented> {
    let text = std::fs::read_to_string(path).expect("readable");
    let (mut found, mut fenced, mut begun) = (Vec::new(), false, String::new());
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            if let Some(goes_on) = line.strip_suffix('\\') {
                begun += goes_on;
                continue;
            }
            let whole = std::mem::take(&mut begun) + line;
            let place = format!("{}:{}", path.display(), number + 1);
            found.extend(command(&whole).map(|words| Documented { place, words }));
        }
    }
    found
}

/// Returns the commands of the examples of `schedlab NAME --help`. A description follows two blanks after the command.
fn of_help(name: &str) -> Vec<Documented> {
    let arguments: Vec<&str> = [name, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
    let help = schedlab(&arguments).stdout;
    let examples = help.split("Examples:\n").nth(1).unwrap_or_default();
    let (mut found, mut begun) = (Vec::new(), String::new());
    for line in examples.lines().take_while(|line| line.starts_with("  ") || line.is_empty()) {
        if let Some(goes_on) = line.strip_suffix('\\') {
            begun += goes_on;
            continue;
        }
        let whole = std::mem::take(&mut begun) + line;
        let whole = whole.trim();
        let cut = whole
            .find("   ")
            .or_else(|| whole.find("  ").filter(|at| !whole[*at..].trim_start().starts_with('-')));
        let place = format!("schedlab {name} --help");
        found.extend(command(&whole[..cut.unwrap_or(whole.len())]).map(|words| Documented { place, words }));
    }
    found
}

fn documented() -> Vec<Documented> {
    let mut all: Vec<Documented> = of_markdown(&root().join("README.md"));
    for folder in ["docs", "docs/guide", "docs/sources", "recordings"] {
        for path in super::files(folder, "md") {
            all.extend(of_markdown(&path));
        }
    }
    let help = schedlab(&["--help"]).stdout;
    let commands = help.split("Commands:\n").nth(1).expect("they are listed");
    let names = commands.lines().take_while(|line| !line.is_empty());
    let names: Vec<&str> = names
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help").chain([""]) {
        all.extend(of_help(name));
    }
    all
}

/// Puts an input under each name that a document uses.
fn inputs(folder: &Folder, words: &[String]) {
    let recording = root().join("recordings/redis-other-other-closed8.slt");
    let place = |name: &str| folder.0.join(name);
    for word in words {
        let name = word.rsplit_once('=').map_or(word.as_str(), |(_, file)| file);
        let plain = !name.starts_with('-') && !name.contains([' ', ':']);
        if plain && name.ends_with(".slt") && !place(name).exists() && !root().join(name).exists() {
            std::fs::create_dir_all(place(name).parent().expect("in the folder")).expect("writable");
            std::fs::copy(&recording, place(name)).expect("writable");
        }
        if plain && ["before/", "after/"].contains(&name) && !place(name).exists() {
            std::fs::create_dir_all(place(name)).expect("writable");
            for number in 1..=3 {
                std::fs::copy(&recording, place(name).join(format!("{number}.slt"))).expect("writable");
            }
        }
    }
}

/// What the pages call files of the reader's own.
fn own_files(folder: &Folder) {
    let hogs = std::fs::read_to_string(root().join("scenarios/two-hogs.toml")).expect("shipped");
    for name in ["my.toml", "mine.toml"] {
        folder.write(name, &hogs);
    }
    let rtapp =
        r#"{"tasks": {"worker": {"loop": 10, "run": 2000, "sleep": 8000}}, "global": {"duration": 1}}"#;
    folder.write("workload.json", rtapp);
    let exported = folder.0.join("perf.txt").display().to_string();
    let ran = schedlab(&["export", "recordings/two-yes.slt", "--perf-script", &exported]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // A trace is known by its content, not by its name: `import` has a test with a real perf.data.
    for name in ["trace.txt", "ftrace.txt", "perf.data"] {
        std::fs::copy(&exported, folder.0.join(name)).expect("writable");
    }
    for name in ["old.json", "new.json"] {
        let out = folder.0.join(name).display().to_string();
        let ran = schedlab(&["compare", "two-hogs", "--for", "1500ms", "--json", "-o", &out]);
        assert!(ran.code < 2, "{ran:?}");
    }
    let page = folder.0.join("systrace.html").display().to_string();
    assert_eq!(schedlab(&["export", "recordings/two-yes.slt", "--systrace", &page]).code, 0);
    folder.write("wrk.txt", "  7000 requests in 3.00s, 1.00MB read\nRequests/sec:   2333.33\n");
    let trace = folder.0.join("trace.pftrace").display().to_string();
    assert_eq!(schedlab(&["export", "recordings/two-yes.slt", "--perfetto", &trace]).code, 0);
    for name in ["scenarios", "recordings"] {
        std::os::unix::fs::symlink(root().join(name), folder.0.join(name)).expect("writable");
    }
}

fn run(folder: &Folder, words: &[String]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(words).current_dir(&folder.0).stdin(Stdio::null()).env("COLUMNS", "100");
    // The numbers are not what this is about.
    if words[0] == "compare" && !words.iter().any(|word| word == "--seeds" || word == "--assert") {
        command.args(["--seeds", "1"]);
    }
    if words[0] == "tune" && !words.iter().any(|word| word == "--trials") {
        command.args(["--trials", "6"]);
    }
    super::ran(&mut command)
}

#[test]
fn every_documented_command_works() {
    let folder = Folder::new("documented");
    own_files(&folder);
    let (mut count, mut seen, mut failed) = (0, BTreeMap::new(), Vec::new());
    for one in documented() {
        let known = seen.insert(one.words.clone(), one.place.clone()).is_some();
        // `...` stands for what the reader puts there.
        let left_open = one.words.iter().any(|word| {
            word.contains("...") || word.contains("NAME-OF") || word == "COMMAND" || word.starts_with('[')
        });
        // The prices of this machine are there after `schedlab calibrate` only.
        let measured = one.words.iter().any(|word| word == "this-machine");
        // Every scenario of the gallery takes minutes; the gallery has tests of its own.
        let whole_gallery = one.words == ["published"];
        if known || left_open || measured || whole_gallery || !RUN.contains(&one.words[0].as_str()) {
            continue;
        }
        inputs(&folder, &one.words);
        let ran = run(&folder, &one.words);
        count += 1;
        if ![0, 1, 3].contains(&ran.code) {
            failed.push(format!(
                "{}: schedlab {}\n    {}",
                one.place,
                one.words.join(" "),
                ran.stderr.trim()
            ));
        }
    }
    assert!(count > 60, "only {count} commands were found");
    assert!(
        failed.is_empty(),
        "{} of {count} documented commands fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// A shipped recording may have threads that are bound to each CPU, those of the kernel among them.
#[test]
fn a_global_agent_finds_a_cpu_on_every_shipped_recording() {
    for file in super::files("recordings", "slt") {
        let path = file.display().to_string();
        let variant = "agents: delegation mode=global";
        let ran = schedlab(&["compare", &path, "--seeds", "1", "--for", "300ms", "--variant", variant]);
        assert!([0, 3].contains(&ran.code), "{path}: {}", ran.stderr);
        assert!(ran.stdout.contains("agents"), "{path}: {}", ran.stdout);
    }
}

/// One variant that a scheduler does not admit is left out and said; the others are compared.
#[test]
fn a_variant_that_is_not_admitted_does_not_end_the_others() {
    let folder = Folder::new("not-admitted");
    let text = "schedulers = [\"linux-6.18\"]\nduration = \"200ms\"\n[machine]\ncpus = 1\n[[task]]\nname = \"a\"\nprogram = \
                [\"run 1ms\", \"sleep 1ms\"]\n[[task]]\nname = \"b\"\nprogram = \"hog\"\n";
    let path = folder.write("s.toml", text);
    let deadline = "too much: a policy=deadline:99ms/100ms/100ms";
    let ran = schedlab(&["compare", &path, "--variant", deadline, "--variant", "idle: b policy=idle"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("left out") && ran.stdout.contains("idle"), "{ran:?}");
}

#[test]
fn limits_of_the_other_system_are_refused() {
    let folder = Folder::new("other-system");
    let text = |scheduler: &str| {
        format!(
            "schedulers = [\"{scheduler}\"]\nduration = \"200ms\"\n[machine]\ncpus = 1\n[[group]]\nname = \"/g\"\n[[task]]\n\
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
    for (path, setting) in [(&linux, "cpu.max=25%"), (&linux, "cpu.max=25000 100000"), (&xen, "cap=25")] {
        let ran = schedlab(&["compare", path, "--variant", &format!("x: /g {setting}")]);
        assert_eq!(ran.code, 0, "{setting}: {ran:?}");
    }
}

#[test]
fn an_hour_is_a_time() {
    let ran = schedlab(&["compare", "recordings/two-yes.slt", "--for", "1h"]);
    assert!(ran.code == 2 && ran.stderr.contains("the recording is only"), "{ran:?}");
}
