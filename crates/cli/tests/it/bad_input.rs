//! Bad input: one message that teaches, exit code 2, nothing half-written, no panic.

use super::{Folder, Ran, ran, root, schedlab};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Refused with one message that contains `part`.
fn refused(ran: &Ran, part: &str) {
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.is_empty(), "{ran:?}");
    assert!(ran.stderr.contains(part), "wanted {part:?}: {ran:?}");
    assert_eq!(ran.stderr.matches("error:").count(), 1, "one message: {ran:?}");
}

const SCENARIO: &str = "schedulers = [\"linux-6.18\"]\nduration = \"100ms\"\n[machine]\ncpus = 2\n\
                        [[task]]\nname = \"yes\"\nprogram = \"hog\"\n";

#[test]
fn scenarios() {
    let folder = Folder::new("scenarios");
    let task = "[[task]]\nname = \"a\"\n";
    let cases = [
        (
            "wrong unit",
            SCENARIO.replace("100ms", "100 furlongs"),
            ":2:12: duration: `100 furlongs`",
        ),
        ("no unit", SCENARIO.replace("\"100ms\"", "100"), "write \"100ms\""),
        ("negative time", SCENARIO.replace("100ms", "-100ms"), "is negative"),
        ("unknown key", SCENARIO.replace("duration", "durration"), "did you mean `duration`?"),
        (
            "absent CPU",
            format!("{SCENARIO}cpus = \"2\"\n"),
            "CPU 2 does not exist: the machine has CPUs 0-1",
        ),
        ("endless", SCENARIO.replace("duration = \"100ms\"\n", ""), "this workload never ends"),
        (
            "unknown scheduler",
            SCENARIO.replace("linux-6.18", "linux6.18"),
            "did you mean `linux-6.18`?",
        ),
        (
            "unknown knob",
            SCENARIO.replace("linux-6.18", "linux-6.18:base_slise_ns=3ms"),
            "did you mean `base_slice_ns`?",
        ),
        (
            "cyclic wait",
            format!(
                "channels = [\"x\", \"y\"]\n{SCENARIO}{task}program = [\"receive x\", \"send \
                 y\"]\n\
                 [[task]]\nname = \"b\"\nprogram = [\"receive y\", \"send x\"]\n"
            ),
            "cyclic wait: `a` waits for channel `x`",
        ),
        ("not TOML", "this is not TOML".to_owned(), "not valid TOML"),
        ("empty", String::new(), "needs `machine`"),
    ];
    for (name, text, part) in cases {
        let path = folder.write("s.toml", text);
        let ran = schedlab(&["compare", &path]);
        refused(&ran, part);
        assert!(ran.stderr.contains(&path), "{name}: the file is named: {ran:?}");
    }
    let path = folder.write("s.toml", [0xff, 0xfe, 0x00]);
    refused(&schedlab(&["compare", &path]), "is not a text file");
    let path = folder.write("s.toml", vec![b'#'; 65 << 20]);
    refused(&schedlab(&["compare", &path]), "more than the 67108864 bytes that are read");
}

/// What real machines have and no scheduler here models is refused by name, not ignored.
#[test]
fn what_is_not_modelled() {
    let folder = Folder::new("not-modelled");
    let group = "[[group]]\nname = \"/a\"\n";
    let machine = |key: &str| SCENARIO.replace("cpus = 2\n", &format!("cpus = 2\n{key}\n"));
    let cases = [
        (format!("{SCENARIO}uclamp = 20\n"), "(uclamp) are not modelled"),
        (format!("{SCENARIO}cookie = 1\n"), "core scheduling"),
        (format!("{SCENARIO}{group}cpu.uclamp.max = 20\n"), "(uclamp) are not modelled"),
        (machine("capacity = [512, 1024]"), "(big.LITTLE) are not modelled"),
        (machine("core_sched = true"), "core scheduling"),
        (machine("isolcpus = \"0-1\""), "leaves no CPU"),
        (machine("isolcpus = \"2\""), "CPU 2 does not exist"),
        (machine("nohz_full = \"0-1\""), "leaves no CPU for the kernel's own work"),
        (machine("irqaffinity = \"1\""), "where the kernel does its own work"),
        (format!("{SCENARIO}{group}partition = \"isolated\"\n"), "needs `cpus`"),
        (machine("smt_yield = 0.6"), "`smt_yield` needs cores with several threads"),
        (machine("smt_yield = 2"), "must be a number from 0.1 to 1"),
        (format!("{SCENARIO}cpus = \"0\"\nbegins = \"1\"\n"), "`begins` names CPU 1"),
        (format!("{SCENARIO}begins = []\n"), "must name at least one CPU"),
    ];
    for (text, part) in cases {
        let path = folder.write("s.toml", text);
        let ran = schedlab(&["compare", &path]);
        refused(&ran, part);
        assert!(ran.stderr.contains(&path), "the file is named: {ran:?}");
    }
    let path = folder.write("s.toml", SCENARIO);
    for (variant, part) in [
        ("yes uclamp.min=20", "(uclamp) are not modelled"),
        ("/a cpu.uclamp.max=20", "(uclamp) are not modelled"),
        ("machine capacity=512", "(big.LITTLE) are not modelled"),
        ("yes cookie=1", "core scheduling"),
        ("machine smt_yield=0.7", "`smt_yield` needs cores with several threads"),
        ("machine smt_yield=1.1", "must be a number from 0.1 to 1"),
        ("machine smt_yield=NaN", "must be a number from 0.1 to 1"),
    ] {
        refused(&schedlab(&["compare", &path, "--variant", variant]), part);
    }
}

/// `smt_yield` slows tasks only: what agents and hypervisors do is not theirs.
#[test]
fn slow_siblings_beside_agents() {
    let folder = Folder::new("smt-agents");
    let slow = "cores = 1\nthreads = 2\nsmt_yield = 0.6";
    let text = SCENARIO.replace("cpus = 2", slow).replace("linux-6.18", "fifo-per-cpu");
    let text = text + "[delegation]\nmode = \"per-cpu\"\n";
    let path = folder.write("s.toml", text);
    refused(&schedlab(&["compare", &path]), "smt_yield and delegation do not go together");
}

#[test]
fn options_of_compare() {
    let folder = Folder::new("options");
    let text = SCENARIO
        .replace("cpus = 2", "cpus = 1")
        .replace("name = \"yes\"", "name = \"yes\"\ncount = 2");
    let path = folder.write("yes.toml", format!("warmup = \"50ms\"\n{text}"));
    for (options, part) in [
        (&["--scheduler", "linux6.18"][..], "did you mean `linux-6.18`?"),
        (&["--scheduler", "linux-6.18:base_slice_ns=fast"], "must be a time from"),
        (&["--scheduler", "linux-6.18:fast"], "name=value"),
        (&["--variant", "x: yse-1 policy=idle"], "did you mean `yes-1`?"),
        (&["--variant", "x: yes polcy=idle"], "did you mean `policy`?"),
        (&["--variant", "x: yes policy=fifo:100"], "number from 1 to 99"),
        (&["--variant", "x: yes cpus=1"], "CPU 1 does not exist: the machine has only CPU 0"),
        (&["--variant", "x: /batch cpu.max=10ms/100ms"], "no task, group or source `/batch`"),
        (&["--variant", "x: scheduler no_such_knob=1"], "a knob `no_such_knob`"),
        (&["--variant", "x: yes-1 nice=5", "--variant", "x: yes-2 nice=5"], "two variants `x`"),
        (&["--for", "-3s"], "negative"),
        (&["--for", "3"], "a number and a unit"),
        (&["--for", "50ms"], "longer than the warm-up"),
        (&["--seeds", "0"], "must be 1 to 1000"),
        (&["--check", "idle"], "write 'VARIANT=FILE'"),
        (&["--fail-if", "yes share"], "--fail-if"),
        (&["--recorded-under", "linux-6.1"], "only for recordings"),
    ] {
        refused(&schedlab(&[&["compare", path.as_str()], options].concat()), part);
    }
}

#[test]
fn inputs_that_are_not_there() {
    refused(&schedlab(&["compare", "two-hgos"]), "did you mean the scenario `two-hogs`?");
    refused(&schedlab(&["compare", "no/such/file.slt"]), "no such file");
    for (command, said) in [
        (
            &["diff", "gone.slt", "gone.slt"][..],
            "gone.slt: No such file or folder; diff takes two recordings, two folders of them, two \
             results of `compare --json`, or two states of /proc/schedstat",
        ),
        (&["export", "gone.slt", "--csv", "nowhere"], "gone.slt: No such file"),
    ] {
        let ran = schedlab(command);
        refused(&ran, said);
        assert_eq!(ran.stderr.matches("gone.slt").count(), 1, "named once: {ran:?}");
    }
    refused(&schedlab(&["compare", "scenarios"]), "nothing would be compared");
    let variant = ["compare", "scenarios", "--variant", "a: x policy=idle"];
    refused(&schedlab(&variant), "there is no recording (.slt) in it");
    refused(&schedlab(&["import", "no/such/file", "-o", "/dev/null/x.slt"]), "cannot be written");
}

#[test]
fn foreign_and_empty_recordings() {
    let folder = Folder::new("foreign");
    for (content, part) in [
        (&b""[..], "the recording is empty"),
        (b"PERFILE2\0\0\0\0\0\0\0\0", "this perf.data is damaged"),
        (b"\x7fELF\x02\x01\x01", "this is a program or core dump (ELF)"),
        (&[0; 4096], "none of the binary traces that are known"),
    ] {
        let path = folder.write("x.slt", content);
        let ran = schedlab(&["compare", &path]);
        refused(&ran, part);
        assert!(ran.stderr.contains(&path), "{ran:?}");
    }
}

/// A recording that was cut off opens up to its last whole block; inside the header nothing can be
/// used.
#[test]
fn recordings_cut_off_anywhere() {
    let folder = Folder::new("cut");
    let whole = std::fs::read(root().join("recordings/two-yes.slt")).expect("shipped");
    let mut opened = 0;
    for part in 0..24 {
        let at = whole.len() * part / 24;
        let path = folder.write("x.slt", &whole[..at]);
        let ran = schedlab(&["compare", &path, "--seeds", "1"]);
        match ran.code {
            2 => assert!(ran.stderr.starts_with("error: "), "{ran:?}"),
            0 | 3 => {
                opened += 1;
                assert!(ran.stdout.contains("cut off"), "it says so: {ran:?}");
            }
            _ => panic!("{ran:?}"),
        }
    }
    // The header alone is not a recording to compare.
    let header = folder.write("header.slt", &whole[..3000]);
    refused(
        &schedlab(&["compare", &header]),
        "holds no events: it is cut off before its first whole block",
    );
    let whole = folder.write("whole.slt", &whole);
    assert!(!schedlab(&["compare", &whole, "--seeds", "1"]).stdout.contains("cut off"));
    assert!(opened > 0, "no cut recording could be opened");
}

/// A flipped bit is found by a checksum; it never ends in a panic or in silence.
#[test]
fn recordings_with_flipped_bits() {
    let folder = Folder::new("flipped");
    let whole = std::fs::read(root().join("recordings/two-yes.slt")).expect("shipped");
    let good = schedlab(&["compare", "recordings/two-yes.slt", "--seeds", "1", "--json"]);
    assert_eq!(good.code, 0, "{good:?}");
    for step in 0..60 {
        let mut bytes = whole.clone();
        let at = bytes.len() * step / 60;
        bytes[at] ^= 1 << (step % 8);
        let path = folder.write("two-yes.slt", &bytes);
        let ran = schedlab(&["compare", &path, "--seeds", "1", "--json"]);
        match ran.code {
            2 => assert_eq!(ran.stderr.matches("\"error\":").count(), 1, "{ran:?}"),
            code => panic!("bit flipped at {at}: exit {code}: {}", ran.stderr),
        }
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = Folder::new("unwritable");
    let inside = folder.0.display().to_string();
    let absent = format!("{inside}/no/such/folder/x.json");
    for options in [
        &["compare", "two-hogs", "--json", "-o", &absent][..],
        &["compare", "two-hogs", "-o", &inside],
        &["record", "--for", "1ms", "--all", "-o", &absent],
        &["record", "-o", &inside, "--", "true"],
        &["import", "-", "-o", &absent],
    ] {
        let ran = schedlab(options);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(
            ran.stderr.contains("cannot be written") || ran.stderr.contains("is a directory"),
            "{ran:?}"
        );
    }
    assert!(folder.names().is_empty(), "something was left behind: {:?}", folder.names());
}

/// What fails on the way leaves an existing file as it was.
#[test]
fn nothing_is_half_written() {
    let folder = Folder::new("half");
    let old = folder.write("old.slt", "precious");
    let text = folder.write("perf.txt", "this is not the output of perf script\n");
    let ran = schedlab(&["import", &text, "-o", &old]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let ran = schedlab(&["compare", "two-hogs", "--scheduler", "nobody", "-o", &old]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(std::fs::read_to_string(&old).expect("still there"), "precious");
    assert_eq!(folder.names(), ["old.slt", "perf.txt"]);
}

#[test]
fn record_says_what_it_needs() {
    let folder = Folder::new("record");
    let out = folder.0.join("x.slt").display().to_string();
    refused(&schedlab(&["record", "-o", &out]), "say what to record");
    refused(&schedlab(&["record", "-o", &out, "--for", "0s", "--all"]), "longer than 0");
    refused(
        &schedlab(&["record", "-o", &out, "--all", "--recorder-cpu", "9999"]),
        "this machine has the CPUs",
    );
    refused(
        &schedlab(&["record", "-o", &out, "--all", "--backend", "magic"]),
        "use bpf, tracepoints, switches",
    );
    refused(
        &schedlab(&["record", "-o", &out, "--for", "1s", "--pid", "4194304"]),
        "no process 4194304",
    );
    let own = ["record", "-o", &out, "--all", "--backend", "own", "--", "true"];
    refused(&schedlab(&own), "--all asks for every task");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

/// As a user without rights: refused by name, with what would help, or (where the kernel allows it)
/// recorded.
#[test]
fn missing_permission() {
    let folder = Folder::new("permission");
    let program = folder.0.join("schedlab");
    std::fs::copy(env!("CARGO_BIN_EXE_schedlab"), &program).expect("copied");
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("own file");
    };
    open(&folder.0, 0o777);
    open(&program, 0o755);
    let out = folder.0.join("x.slt");
    let mut command = Command::new(&program);
    command.args(["record", "--for", "10ms", "--all", "--backend", "tracepoints", "-o"]).arg(&out);
    command.current_dir(&folder.0);
    // Only root can become another user; other users have no rights to lose.
    let root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if root {
        command.uid(65_534).gid(65_534);
    }
    // Another test that forks just now may hold the copy open for writing.
    let busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
    while command.status().is_err_and(|error| busy(&error)) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ran = ran(&mut command);
    if root || ran.code != 0 {
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("schedlab doctor"), "it says where to look: {ran:?}");
        assert_eq!(folder.names(), ["schedlab"], "nothing was written");
    }
}

#[test]
fn clap_refuses_with_the_same_code() {
    for arguments in [&["compair"][..], &["compare"], &["list", "kernels"], &[]] {
        assert_eq!(schedlab(arguments).code, 2, "{arguments:?}");
    }
}
