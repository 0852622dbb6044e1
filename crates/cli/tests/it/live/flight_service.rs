//! `schedlab flight` as systemd's unit runs it: a user without rights but CAP_BPF and CAP_PERFMON.

use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The user without rights (Debian).
const USER: u32 = 65534;

/// CAP_PERFMON and CAP_BPF (include/uapi/linux/capability.h, Linux 6.12).
const RECORD: u64 = 1 << 38 | 1 << 39;

/// Blocked for 200 ms again and again, however busy the machine is.
const SLEEPER: &str = "while :; do sleep 0.2; done";

pub(super) struct Service {
    folder: Folder,
    process: Child,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Service {
    /// Starts it with these rules; `None`: there is no setpriv(1).
    pub(super) fn start(rules: &str) -> Option<Service> {
        let folder = Folder::new("live-flight");
        let path = |name: &str| folder.0.join(name);
        // The user cannot look into the folder of the build.
        let program = path("schedlab");
        fs::copy(env!("CARGO_BIN_EXE_schedlab"), &program).unwrap();
        fs::set_permissions(&folder.0, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(path("out")).unwrap();
        chown(path("out"), Some(USER), Some(USER)).unwrap();
        Service::write(&folder, rules);
        let log = File::create(path("log")).unwrap();
        let process = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"])
            .args(["--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon"])
            .args(["--bounding-set=-all,+bpf,+perfmon"])
            .arg(&program)
            .args(["flight", "--for", "10m"])
            .arg(path("flight.toml"))
            .current_dir("/")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        Some(Service { folder, process: process.ok()? })
    }

    /// Writes the file with the rules.
    fn write(folder: &Folder, rules: &str) {
        let out = folder.0.join("out").display().to_string();
        fs::write(folder.0.join("flight.toml"), rules.replace("OUT", &out)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("log")).unwrap();
        // The last line may be half written.
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for a line about this, and returns it.
    pub(super) fn line(&mut self, event: &str) -> Value {
        let mut found = None;
        wait_until(event, || {
            found = self.lines().into_iter().find(|line| line["event"] == event);
            let ended = self.process.try_wait().unwrap();
            assert!(found.is_some() || ended.is_none(), "{ended:?} {:?}", self.lines());
            found.is_some()
        });
        found.unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(super) fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.path("out/metrics")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Returns the capabilities of each thread.
    fn capabilities(&self) -> Vec<u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let permitted = |status: String| {
            let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        let read = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
        threads.filter_map(|thread| permitted(read(thread.ok()?)?)).collect()
    }

    pub(super) fn recording(&self, end: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(self.path("out")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.to_string_lossy().ends_with(end))
    }
}

/// What the kernel cannot decide is decided here, and that is said.
#[test]
fn a_flight_recorder_says_when_each_event_comes_to_it() {
    let name = "a_flight_recorder_says_when_each_event_comes_to_it";
    let Some(_turn) = turn(name) else { return };
    let sleeper = Children::start(SLEEPER);
    let rules = format!(
        "folder = 'OUT'\nring = '2s'\nafter = '100ms'\nmessages = 'auto'\n[[rule]]\n\
         name = 'blocks'\nwhen = '{} block > 100ms'\n",
        sleeper.pid()
    );
    let Some(mut service) = Service::start(&rules) else { return crate::skip(name, "no setpriv") };
    let started = service.line("started");
    let message = started["message"].as_str().unwrap();
    assert!(message.contains("because the file asks for messages"), "{message}");
    assert_eq!(service.line("written")["incident"]["did"], "blocked");
    service.signal(Signal::TERM);
    assert_eq!(service.process.wait().unwrap().code(), Some(0), "{:?}", service.lines());
}

/// A stretch that has no end is found, too.
#[test]
fn a_flight_recorder_finds_a_block_that_lasts() {
    let name = "a_flight_recorder_finds_a_block_that_lasts";
    let Some(_turn) = turn(name) else { return };
    let sleeper = Children::start("exec sleep 600");
    let rules = format!(
        "folder = 'OUT'\nring = '5s'\nafter = '100ms'\n[[rule]]\nname = 'lasts'\n\
         when = '{} block > 500ms'\nat-most = '9/1h'\n",
        sleeper.pid()
    );
    let Some(mut service) = Service::start(&rules) else { return crate::skip(name, "no setpriv") };
    service.line("started");
    // It blocked before the recorder was there: stopped and let go, it does so again.
    for signal in [Signal::STOP, Signal::CONT] {
        kill_process(Pid::from_child(&sleeper.0[0]), signal).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let incident = service.line("incident");
    assert_eq!(incident["incident"]["did"], "blocked", "{incident}");
    assert_eq!(incident["incident"]["length_ns"], Value::Null, "{incident}");
    service.line("written");
    let found = || service.lines().iter().filter(|line| line["event"] == "incident").count();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(found(), 1, "once");
    service.signal(Signal::TERM);
    assert_eq!(service.process.wait().unwrap().code(), Some(0), "{:?}", service.lines());
}

#[test]
fn a_flight_recorder_without_rights_catches_writes_tells_and_reloads() {
    let name = "a_flight_recorder_without_rights_catches_writes_tells_and_reloads";
    let Some(_turn) = turn(name) else { return };
    let sleeper = Children::start(SLEEPER);
    let rules = format!(
        "folder = 'OUT'\nring = '2s'\nafter = '100ms'\nmetrics = 'unix:OUT/metrics'\n\
         by = 'command'\n[[rule]]\nname = 'blocks'\nwhen = '{} block > 100ms'\n\
         at-most = '1/1h'\nrun = ['sh', '-c', 'cat > OUT/told; echo $SCHEDLAB_FILE >> OUT/told']\n",
        sleeper.pid()
    );
    let Some(mut service) = Service::start(&rules) else { return crate::skip(name, "no setpriv") };
    let started = service.line("started");
    let message = started["message"].as_str().unwrap();
    assert!(message.contains("by bpf") && message.contains("the kernel sums up"), "{message}");

    let written = service.line("written");
    let file = written["file"].as_str().unwrap().to_owned();
    assert!(file.ends_with("-blocks.slt") && written["rule"] == "blocks", "{written}");
    assert_eq!(written["incident"]["did"], "blocked");
    wait_until("the program ran", || {
        let told = fs::read_to_string(service.path("out/told")).unwrap_or_default();
        told.contains("\"did\":\"blocked\"") && told.trim_end().ends_with(&file)
    });
    let suppressed = service.line("suppressed");
    assert!(suppressed["message"].as_str().unwrap().contains("at most 1 in"), "{suppressed}");

    service.signal(Signal::USR1);
    wait_until("the ring is written", || service.recording("-asked.slt").is_some());

    Service::write(&service.folder, "rule = 7");
    service.signal(Signal::HUP);
    let wrong = service.line("not-reloaded");
    assert!(wrong["message"].as_str().unwrap().contains("line 1"), "{wrong}");
    Service::write(&service.folder, &rules);
    service.signal(Signal::HUP);
    service.line("reloaded");

    for begin in [
        "schedlab_incidents_total{rule=\"blocks\"}",
        "schedlab_run_seconds_total{command=\"",
        "schedlab_wait_seconds_bucket{le=\"",
    ] {
        // The kernel's sums are read once a second.
        let told = || service.metrics().lines().any(|line| line.starts_with(begin));
        wait_until(begin, told);
    }
    let held = service.capabilities();
    assert!(held.len() >= 3 && held.iter().all(|held| held & !RECORD == 0), "{held:x?}");

    service.signal(Signal::TERM);
    assert_eq!(service.process.wait().unwrap().code(), Some(0), "{:?}", service.lines());
    service.line("stopped");
    let shown = schedlab(&service.folder, &["show", &file]);
    assert!(shown.stdout.contains("sh[") && shown.stdout.contains("blocked"), "{shown:?}");
}
