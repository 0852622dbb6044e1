//! Deploy lines in a real POSIX shell (dash), with stubs for the tools: whatever a task or a
//! control group is named, the shell runs the printed commands and nothing else, and the name is
//! one argument behind `--`.

use proptest::prelude::*;
use schedlab_model::{CpuSet, Nice, Ns, Policy};
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::deploy::{Deployment, Named};
use schedlab_study::variant::{Clause, GroupSetting, Setting, TaskSetting, Variant};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What writes down its name, the number of its arguments, and them. `PWN` is what hostile names
/// try to run.
const STUB: &str = "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" $# \"$@\" >> \"$LOG\"\n\
                    [ \"${0##*/}\" = pgrep ] && echo 41 42\n:\n";
const STUBS: [&str; 9] =
    ["chrt", "taskset", "pgrep", "renice", "nice", "ls", "mkdir", "sysctl", "PWN"];

/// A folder with the stubs, removed at the end.
struct Shell(PathBuf);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One command that ran: its name, then its arguments.
type Ran = Vec<String>;

impl Shell {
    fn new(name: &str) -> Shell {
        let folder = schedlab_testing::temp_dir()
            .join(format!("schedlab-deploy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("bin")).unwrap();
        for stub in STUBS {
            executable(&folder.join("bin").join(stub), STUB);
        }
        Shell(folder)
    }

    /// Runs `script` in an empty folder; returns what ran, what it said, and the files that it made
    /// there. Its `/sys` is a folder.
    fn run(&self, script: &str) -> (Vec<Ran>, String, Vec<String>) {
        let here = self.0.join("here");
        let log = self.0.join("log");
        let _ = fs::remove_dir_all(&here);
        fs::create_dir_all(&here).unwrap();
        fs::write(&log, "").unwrap();
        let script = script.replace("/sys/fs/cgroup", &self.0.join("cgroup").display().to_string());
        // By its path: a name would be looked for among the stubs.
        let out = Command::new("/bin/dash")
            .args(["-c", &script])
            .env_clear()
            .env("PATH", self.0.join("bin"))
            .env("LOG", &log)
            .current_dir(&here)
            .output()
            .expect("dash(1)");
        let made = fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().file_name());
        let made = made.map(|name| name.to_string_lossy().into_owned()).collect();
        (records(&fs::read(&log).unwrap()), String::from_utf8_lossy(&out.stderr).into_owned(), made)
    }
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn records(log: &[u8]) -> Vec<Ran> {
    let mut words =
        log.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut all = Vec::new();
    while let Some(name) = words.next().filter(|name| !name.is_empty()) {
        let count: usize = words.next().unwrap().parse().unwrap();
        all.push(std::iter::once(name).chain(words.by_ref().take(count)).collect());
    }
    all
}

fn deployment(target: &str, settings: Vec<Setting>) -> Deployment {
    deployment_of(target, settings, Named::Processes)
}

fn deployment_of(target: &str, settings: Vec<Setting>, named: Named) -> Deployment {
    let clauses = vec![Clause { target: target.to_owned(), settings }];
    let variant = Variant { name: "v".to_owned(), schedulers: Vec::new(), clauses };
    let linux = SchedulerSpec::named("linux-6.18");
    Deployment::from_variant(&variant, &linux, &linux, &|_| named)
}

fn of_task() -> Vec<Setting> {
    let all = [
        TaskSetting::Policy(Policy::Idle),
        TaskSetting::Nice(Nice::new(5).unwrap()),
        TaskSetting::Cpus("0-1".parse::<CpuSet>().unwrap()),
        TaskSetting::Slice(Ns::from_ms(1)),
    ];
    all.into_iter().map(Setting::Task).collect()
}

/// The lines that a user pastes: also those behind `# at the start: `.
fn pasted(shell: &str) -> String {
    shell.replace("# at the start: ", "")
}

/// Names that a shell, pgrep or getopt could take for something else.
fn hostile_name() -> impl Strategy<Value = String> {
    let pieces = [
        "'", "\"", "\\", "$(PWN)", "`PWN`", ";PWN;", "|PWN", "&PWN&", ">PWN", "<", " ", "#", "-",
        "-u0", "--", "*", "?", "[", "]", "a", "redis", "~", "!", "{", "}", "=", "(", ")", "^", "$",
        ".", "+", "é", "\n", "\t", "\r", "\u{1b}", "\u{202e}", "/", "..", "0", "%s", "||PWN #",
        "\nPWN\n",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 1..6)
        .prop_map(|pieces| pieces.concat())
}

/// Nothing but the stubs of the printed commands ran, and nothing was written here.
fn only_what_is_printed(name: &str, ran: &[Ran], made: &[String]) {
    assert!(made.is_empty(), "{name:?} made {made:?}");
    assert!(ran.iter().all(|ran| ran[0] != "PWN"), "{name:?} ran {ran:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_task_may_be_named_anything(name in hostile_name()) {
        prop_assume!(!name.starts_with('/'));
        let shell = Shell::new("task");
        let deployment = deployment(&name, of_task());
        let (ran, said, made) = shell.run(&pasted(&deployment.shell));
        only_what_is_printed(&name, &ran, &made);
        prop_assert_eq!(said, "", "{:?}", deployment.shell);
        if deployment.shell.is_empty() {
            let refused = |why: &String| why.starts_with("No command is given: ");
            prop_assert!(deployment.caveats.iter().all(refused) && !deployment.caveats.is_empty());
            prop_assert!(name.contains(|c: char| c.is_control() || c == '\u{202e}' || c == '\\'), "{:?}", name);
            return Ok(());
        }
        for command in &ran {
            match command[0].as_str() {
                "pgrep" => {
                    prop_assert_eq!(&command[1..3], ["-x", "--"]);
                    prop_assert_eq!(command.len(), 4, "one pattern: {:?}", command);
                }
                // At the start: the program is one word.
                "chrt" | "taskset" | "nice" if command.contains(&"--".to_owned()) => {
                    let program = command.last().unwrap();
                    prop_assert!(*program == name || program == "COMMAND", "{:?}", command);
                }
                "chrt" | "taskset" => prop_assert!(["41", "42"].contains(&command.last().unwrap().as_str())),
                "renice" | "ls" | "nice" => {}
                other => prop_assert!(false, "{} ran: {:?}", other, ran),
            }
        }
        prop_assert_eq!(ran.iter().filter(|ran| ran[0] == "pgrep").count(), 4);
    }

    #[test]
    fn a_control_group_may_be_named_anything(name in hostile_name()) {
        let path = format!("/{}", name.replace('/', ""));
        let shell = Shell::new("group");
        let folder = shell.0.join("cgroup");
        // Where the name is a path that commands may use, the group is there.
        let made_group = fs::create_dir_all(format!("{}{path}", folder.display())).is_ok();
        let settings = vec![Setting::Group(GroupSetting::Shares(512)), Setting::Group(GroupSetting::Idle(true))];
        let deployment = deployment(&path, settings);
        let (ran, said, made) = shell.run(&deployment.shell);
        only_what_is_printed(&path, &ran, &made);
        prop_assert_eq!(said, "", "{:?}", deployment.shell);
        let written = fs::read_to_string(format!("{}{path}/cpu.weight", folder.display()));
        match deployment.shell.is_empty() {
            true => prop_assert!(written.is_err() && deployment.caveats[0].starts_with("No \
                command is given: ")),
            false => prop_assert_eq!(written.ok(), made_group.then(|| "50\n".to_owned()), "{:?}", deployment.shell),
        }
    }
}

#[test]
fn what_no_command_can_name_is_refused_by_name() {
    for (target, reason) in [
        ("/a\t'||>PWN #", r"`/a\t'||>PWN #` has control characters"),
        ("a\nb", r"`a\nb` has control characters"),
        ("a\u{202e}b", r"`a\u{202e}b` has control characters"),
        ("/../../etc", "`/../../etc` is no path of a control group"),
        (r"a\x1b", r"the backslash in `a\x1b`"),
    ] {
        let settings = match target.starts_with('/') {
            true => vec![Setting::Group(GroupSetting::Idle(true))],
            false => of_task(),
        };
        let deployment = deployment(target, settings);
        assert_eq!(deployment.formats(), [""; 0], "{target:?}: {deployment:?}");
        assert!(deployment.caveats[0].contains(reason), "{target:?}: {:?}", deployment.caveats);
        assert!(!deployment.what.contains(['\n', '\t', '\u{202e}']), "{:?}", deployment.what);
    }
    let moved = vec![Setting::Task(TaskSetting::Group("/../x".to_owned()))];
    assert!(deployment("redis", moved).caveats[0].contains("no path of a control group"));
}

/// The tools themselves end their options at `--` there: a program named `-u0` is started, and no
/// process is matched by user.
#[test]
fn the_real_tools_take_a_name_that_begins_with_a_dash() {
    let shell = Shell::new("real");
    let bin = shell.0.join("real");
    fs::create_dir_all(&bin).unwrap();
    executable(&bin.join("-u0"), "#!/bin/sh\necho started >> \"$LOG\"\n");
    let deployment = deployment("-u0", of_task());
    // chrt of util-linux before 2.42 sets no slices.
    let lines = pasted(&deployment.shell);
    let lines =
        lines.lines().filter(|line| line.contains(" -- ") && !line.contains("--sched-runtime"));
    let lines: Vec<&str> = lines.filter(|line| !line.contains("pgrep")).collect();
    assert_eq!(lines.len(), 3, "{}", deployment.shell);
    let log = shell.0.join("started");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut run = Command::new("dash");
    let out =
        run.args(["-c", &lines.join("\n")]).env("PATH", path).env("LOG", &log).output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    assert_eq!(fs::read_to_string(&log).unwrap(), "started\n".repeat(3));
    let matched = Command::new("dash").args(["-c", "pgrep -x -- -u0"]).output().unwrap();
    assert!(matched.stdout.is_empty(), "{matched:?}");
}

/// A stranger may name a thread `1`: it is not the process 1.
#[test]
fn a_number_that_is_a_name_is_no_process_id() {
    let idle = || vec![Setting::Task(TaskSetting::Policy(Policy::Idle))];
    assert!(deployment("1", idle()).shell.starts_with("for pid in $(pgrep -x -- 1);"), "named so");
    let of_setting = Deployment::of_setting("1 policy=idle");
    assert!(
        of_setting.shell.starts_with("chrt --idle --all-tasks --pid 0 1\n"),
        "{}",
        of_setting.shell
    );
}

#[test]
fn pgrep_is_asked_for_what_the_kernel_keeps_of_a_name() {
    for (target, pattern) in [
        ("redis-server", "redis-server"),
        ("a.b.c.d.e.f.g.h.i", r"'a\.b\.c\.d\.e\.f\.g\.h'"),
        ("worker-*", "'worker-.*'"),
        ("s[1-8]", "'s[1-8]'"),
        ("s[!1]?", "'s[^1].'"),
        ("a[b", r"'a\[b'"),
    ] {
        let shell =
            deployment(target, vec![Setting::Task(TaskSetting::Policy(Policy::Idle))]).shell;
        assert!(shell.contains(&format!("$(pgrep -x -- {pattern})")), "{target}: {shell}");
    }
}

/// What names threads alone sets these, and not the others of their process: tried on a thread of
/// this test.
#[test]
fn threads_are_set_one_by_one() {
    let name = format!("sl-{:x}", std::process::id());
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let body = move || {
        tell.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
        wait.recv().ok();
    };
    let thread = std::thread::Builder::new().name(name.clone()).spawn(body).unwrap();
    let place = Path::new("/proc").join(told.recv().unwrap());
    let idle = vec![Setting::Task(TaskSetting::Policy(Policy::Idle))];
    let deployment = deployment_of(&name, idle, Named::Threads);
    let line = deployment.shell.lines().next().unwrap();
    assert_eq!(
        line,
        format!("for tid in $(pgrep -w -x -- {name}); do chrt --idle --pid 0 $tid; done")
    );
    assert!(deployment.caveats.iter().any(|caveat| caveat.contains("names threads")));
    let policy = |place: &Path| {
        let stat = fs::read_to_string(place.join("stat")).unwrap();
        // Field 41; the second is the name in brackets, behind which the third begins.
        stat.rsplit(')').next().unwrap().split_whitespace().nth(38).unwrap().to_owned()
    };
    let out = Command::new("dash").args(["-c", line]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    assert_eq!((&policy(&place)[..], &policy(Path::new("/proc/thread-self"))[..]), ("5", "0"));
    drop(go);
    thread.join().unwrap();
}
