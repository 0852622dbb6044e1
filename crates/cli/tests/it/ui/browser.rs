//! The workbench in a real browser, which is driven over its own protocol (the Chrome DevTools
//! Protocol, through a pipe). Skips by name where there is no Chromium; with CI=true that is a
//! failure.

use super::super::{Folder, skip};
use super::{REDIS, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A browser that ends with its value.
pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    asked: u64,
    _profile: Folder,
}

/// A tab of a browser, by its session.
pub(super) struct Tab(String);

impl Browser {
    pub(super) fn new(test: &str) -> Option<Browser> {
        let Some(program) = schedlab_testing::chromium() else {
            skip(test, "no chromium here");
            return None;
        };
        let profile = Folder::new(test);
        // The protocol is spoken over the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        Some(Browser { child, to, from, asked: 0, _profile: profile })
    }

    pub(super) fn call(&mut self, tab: Option<&Tab>, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut call = json!({"id": self.asked, "method": method, "params": params});
        if let Some(Tab(session)) = tab {
            call["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{call}\0").as_bytes()).expect("the browser listens");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("the browser answers");
            assert_eq!(bytes.pop(), Some(0), "the browser ended during {method}");
            let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
            if answer["id"] == json!(self.asked) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    pub(super) fn open(&mut self, url: &str) -> Tab {
        let target = self.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call(None, "Target.attachToTarget", attach)["sessionId"].clone();
        let tab = Tab(session.as_str().expect("a session").to_owned());
        self.size(&tab, 1400, 1000);
        self.call(Some(&tab), "Page.navigate", json!({ "url": url }));
        tab
    }

    pub(super) fn size(&mut self, tab: &Tab, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call(Some(tab), "Emulation.setDeviceMetricsOverride", size);
    }

    pub(super) fn dark(&mut self, tab: &Tab, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call(Some(tab), "Emulation.setEmulatedMedia", media);
    }

    pub(super) fn run(&mut self, tab: &Tab, script: &str) -> Value {
        let what = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let ran = self.call(Some(tab), "Runtime.evaluate", what);
        assert!(ran["exceptionDetails"].is_null(), "{script}: {ran}");
        ran["result"]["value"].clone()
    }

    /// Waits until the script says true.
    #[track_caller]
    pub(super) fn wait(&mut self, tab: &Tab, script: &str) {
        let began = Instant::now();
        while self.run(tab, script) != json!(true) {
            let text = "document.body.innerText.slice(0, 2000)";
            assert!(
                began.elapsed() < Duration::from_secs(300),
                "never: {script}; the page: {}",
                self.run(tab, text)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the bytes that the scripts of a page hold, after what is not needed is gone.
    pub(super) fn heap(&mut self, tab: &Tab) -> u64 {
        // What one collection frees may hold what the next one frees.
        for _ in 0..2 {
            self.call(Some(tab), "HeapProfiler.collectGarbage", json!({}));
        }
        let used = self.call(Some(tab), "Runtime.getHeapUsage", json!({}))["usedSize"].clone();
        used.as_f64().expect("a number") as u64
    }

    pub(super) fn key(&mut self, tab: &Tab, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let press =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.call(Some(tab), "Input.dispatchKeyEvent", press);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) const READY: &str = "document.querySelector('.bench')?.dataset.ready === 'yes' && \
                     document.querySelector('#lanes')?.dataset.ready === 'yes'";
pub(super) const SEEDS: &str = "Number(document.getElementById('stage')?.dataset.seeds ?? 0)";
pub(super) const ERRORS: &str = "document.documentElement.dataset.errors ?? ''";

/// Moves the slider of a setting as a person does: a value, and the event of it.
pub(super) fn slide(key: &str, value: i32) -> String {
    format!(
        "(() => {{ const label = [...document.querySelectorAll('.control label')].find((l) => \
         l.textContent === '{key}'); const input = document.getElementById(label.htmlFor); \
         input.value = {value}; input.dispatchEvent(new Event('input', {{ bubbles: true }})); \
         return true; }})()"
    )
}

#[test]
fn a_slider_moves_the_answer() {
    let Some(mut browser) = Browser::new("ui-slider") else { return };
    let server = Server::new(&[REDIS, "--serve", "redis-server"]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    // The token is not in the address any more, and a reload needs it no more.
    let address = browser.run(&tab, "location.href");
    assert!(!address.as_str().unwrap().contains(&server.token), "{address}");
    // What ran while the server waited is what is changed first.
    assert_eq!(browser.run(&tab, "document.getElementById('target').value"), "sysbench");
    browser.run(&tab, &slide("nice", 10));
    browser.wait(&tab, &format!("{SEEDS} >= 1"));
    let outcome = "document.querySelector('.answer .outcome').textContent";
    let first = browser.run(&tab, outcome);
    assert!(first.as_str().unwrap().contains("nice 10"), "{first}");
    // More seeds follow while one looks.
    browser.wait(&tab, &format!("{SEEDS} >= 5"));
    let command = browser.run(&tab, "document.getElementById('command').textContent");
    let said = "--variant 'sysbench nice=10' --serve redis-server --seeds";
    assert!(command.as_str().unwrap().contains(said), "{command}");
    assert_eq!(browser.run(&tab, "document.querySelectorAll('.ladder polyline').length"), 2);
    assert!(browser.run(&tab, "document.querySelectorAll('.ladder .band').length > 0") == true);
    // All of it is in the address: another tab with it asks the same.
    let state = browser.run(&tab, "location.hash.slice(1)");
    let other = browser.open(&server.page(state.as_str().unwrap()));
    browser.wait(&other, &format!("{SEEDS} >= 1"));
    assert!(browser.run(&other, outcome).as_str().unwrap().contains("nice 10"));
    // A pinned variant stays beside the next one.
    let pin = "[...document.querySelectorAll('.panel button')].find((b) => \
               b.textContent.startsWith('Pin')).click()";
    browser.run(&tab, pin);
    browser.wait(&tab, "document.querySelectorAll('.pins[aria-label=Pinned] li').length === 1");
    browser.run(&tab, &slide("nice", 19));
    browser.wait(&tab, "document.querySelectorAll('.ladder polyline').length === 3");
    for tab in [&tab, &other] {
        assert_eq!(browser.run(tab, ERRORS), "");
    }
}

/// By how many bytes the scripts may hold more after 200 changes: chosen, 10 kB for each. In one
/// run of Chromium 156 they held 0.18 MB more than the 2.7 MB before.
const GROWTH: u64 = 2 << 20;

/// Two hundred changes: each ends the question before, the last one is answered, and what was drawn
/// for the others is forgotten.
#[test]
fn two_hundred_changes_end_in_one_answer() {
    let Some(mut browser) = Browser::new("ui-changes") else { return };
    let server = Server::new(&[REDIS]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    browser.run(&tab, &slide("nice", 1));
    browser.wait(&tab, &format!("{SEEDS} >= 1"));
    let nodes = "document.querySelectorAll('*').length";
    let before = browser.run(&tab, nodes).as_u64().unwrap();
    browser.wait(&tab, &format!("{SEEDS} >= 20"));
    let heap = browser.heap(&tab);
    for change in 0..200 {
        browser.run(&tab, &slide("nice", 1 + change % 19));
        if change % 20 == 0 {
            // Long enough for the question to be on its way.
            browser
                .wait(&tab, "!/^With/.test(document.getElementById('stage').textContent) || true");
            browser.run(&tab, "new Promise((then) => setTimeout(() => then(true), 150))");
        }
    }
    browser
        .wait(&tab, "document.querySelector('.answer .outcome').textContent.includes('nice 10')");
    browser.wait(&tab, &format!("{SEEDS} >= 20"));
    assert_eq!(browser.run(&tab, ERRORS), "");
    let grown = browser.heap(&tab).saturating_sub(heap);
    assert!(grown < GROWTH, "the scripts hold {grown} bytes more than the {heap} before");
    let after = browser.run(&tab, nodes).as_u64().unwrap();
    assert!(after < before + before / 5, "{before} elements, then {after}");
    // The lanes' legend and canvas, and one ladder.
    let count = "Number(document.documentElement.dataset.redrawn)";
    let redrawn = browser.run(&tab, count).as_u64().unwrap();
    assert!(redrawn < 30, "{redrawn} things are drawn again");
}

/// Every control has a name, text can be read, nothing is wider than the window: in light and dark,
/// wide and narrow, of an answer and of the list of inputs.
const LOOK: &str = include_str!("look.js");

/// Holds a view to [`LOOK`].
pub(super) fn look(browser: &mut Browser, tab: &Tab, view: &str) {
    for dark in [false, true] {
        browser.dark(tab, dark);
        for (width, height) in [(360, 740), (800, 900), (1400, 1000)] {
            browser.size(tab, width, height);
            browser.run(tab, "new Promise((then) => setTimeout(() => then(true), 100))");
            let wrong = browser.run(tab, LOOK);
            assert_eq!(wrong, json!([]), "{view}, dark {dark}, {width}");
        }
    }
}

#[test]
fn every_view_can_be_read_and_reached() {
    let Some(mut browser) = Browser::new("ui-look") else { return };
    let server = Server::new(&[REDIS]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    browser.run(&tab, &slide("nice", 10));
    browser.wait(&tab, &format!("{SEEDS} >= 1"));
    let start = browser.open(&server.page("input="));
    browser.wait(&start, "document.querySelector('.bench, .inputs') !== null");
    browser.run(&start, "document.querySelector('header nav button')?.click()");
    browser.wait(&start, "document.querySelectorAll('.inputs li').length > 20");
    for (view, tab) in [("an answer", &tab), ("the inputs", &start)] {
        look(&mut browser, tab, view);
    }
}

#[test]
fn the_keyboard_is_enough() {
    let Some(mut browser) = Browser::new("ui-keys") else { return };
    let server = Server::new(&[REDIS]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    // Tab comes to the slider, and an arrow moves it.
    let on = "document.activeElement.labels?.[0]?.textContent === 'nice'";
    for _ in 0..40 {
        if browser.run(&tab, on) == json!(true) {
            break;
        }
        browser.key(&tab, "Tab", 9);
    }
    assert_eq!(browser.run(&tab, on), true);
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.run(&tab, outline), "solid");
    browser.key(&tab, "ArrowRight", 39);
    browser.wait(&tab, "location.hash.includes('nice')");
    browser.wait(&tab, &format!("{SEEDS} >= 1"));
    assert_eq!(browser.run(&tab, ERRORS), "");
}

/// Names of strangers stay text, and a file that is no recording is said.
#[test]
fn names_of_strangers_stay_text() {
    let Some(mut browser) = Browser::new("ui-names") else { return };
    let folder = Folder::new("ui-names-files");
    let evil = "<img src=x onerror=document.title=1>";
    let toml = format!(
        "title = \"{evil}\"\nschedulers = [\"linux-6.18\"]\nduration = \"200ms\"\n[machine]\ncpus = \
         1\n[[task]]\nname = \"{evil}\"\nprogram = \"hog\"\n[[task]]\nname = \"b\"\nprogram = [\"run \
         1ms\", \"sleep 1ms\"]\n"
    );
    let path = folder.write(&format!("{}.toml", evil.replace('/', "")), toml);
    let server = Server::new(&[&path]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    assert_eq!(browser.run(&tab, "document.querySelectorAll('img').length"), 0);
    assert!(browser.run(&tab, "document.body.innerText").as_str().unwrap().contains(evil));
    browser.run(&tab, &slide("nice", 10));
    browser.wait(&tab, &format!("{SEEDS} >= 1 || document.querySelector('.warn') !== null"));
    assert_eq!(browser.run(&tab, "document.querySelectorAll('img').length"), 0);
    assert_eq!(browser.run(&tab, ERRORS), "");
    // A file is dropped as the picker hands it on.
    browser.run(&tab, "document.querySelector('header nav button').click()");
    browser.wait(&tab, "document.querySelector('input[type=file]') !== null");
    let drop = "(() => { const data = new DataTransfer(); data.items.add(new File(['nothing'], \
                '<b>x.slt')); document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { \
                dataTransfer: data, bubbles: true, cancelable: true })); return true; })()";
    browser.run(&tab, drop);
    browser
        .wait(&tab, "document.querySelector('.drop .status').textContent.startsWith('<b>x.slt: ')");
}

/// Another page cannot read the workbench, and does not get its token.
#[test]
fn another_site_gets_nothing() {
    let Some(mut browser) = Browser::new("ui-sites") else { return };
    let (server, other) = (Server::new(&[REDIS]), Server::new(&[]));
    // A page of another port, which is another origin of the same machine.
    let tab = browser.open(&format!("http://127.0.0.1:{}/", other.port));
    browser.wait(&tab, "document.readyState === 'complete'");
    let try_it = format!(
        "fetch('http://127.0.0.1:{}/api/1/inputs', {{ headers: {{ Authorization: 'Bearer {}' }} \
         }}).then((answer) => answer.status, () => 'refused')",
        server.port, server.token
    );
    assert_eq!(browser.run(&tab, &try_it), "refused");
}
