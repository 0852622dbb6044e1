//! The walk of docs/guide/workbench.md, step by step, in a real browser. With
//! `SCHEDLAB_FILM=FOLDER` each step leaves a picture there: those of docs/workbench are made so.

use super::super::root;
use super::Server;
use super::browser::{Browser, ERRORS, READY, SEEDS, Tab, slide};
use serde_json::json;

/// Quality of a picture, of 100. Chosen: letters can still be read, and eight are 0.5 MB.
const QUALITY: u32 = 55;

/// Takes a picture, where pictures are asked for.
fn picture(browser: &mut Browser, tab: &Tab, step: u32) {
    let Some(folder) = std::env::var_os("SCHEDLAB_FILM") else { return };
    browser.run(tab, "new Promise((then) => setTimeout(() => then(true), 300))");
    // The protocol has the bytes in base64, and a browser reads that.
    let shot = json!({"format": "webp", "quality": QUALITY});
    let shot = browser.call(Some(tab), "Page.captureScreenshot", shot)["data"].clone();
    let bytes = format!("[...Uint8Array.from(atob({shot}), (one) => one.charCodeAt(0))]");
    let bytes: Vec<u8> = serde_json::from_value(browser.run(tab, &bytes)).expect("bytes");
    let path = root().join(folder).join(format!("{step}.webp"));
    std::fs::write(path, bytes).expect("the folder is there");
}

/// Moves to what is shown next, without the way between.
fn to(id: &str) -> String {
    format!("document.getElementById('{id}').scrollIntoView({{ behavior: 'instant' }})")
}

fn press(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('button, summary')].find((one) => \
         one.textContent.trim().startsWith('{text}')).click()"
    )
}

#[test]
fn the_walk_of_the_guide() {
    let Some(mut browser) = Browser::new("ui-film") else { return };
    let server = Server::new(&[]);
    let tab = browser.open(&server.page(""));
    browser.size(&tab, 1280, 900);
    let mut step = 0;
    let mut next = |browser: &mut Browser| {
        step += 1;
        picture(browser, &tab, step);
    };
    browser.wait(&tab, "document.querySelectorAll('.thumb svg').length > 5");
    next(&mut browser);
    // A file is chosen, as one that is dropped.
    let root_node = browser.call(Some(&tab), "DOM.getDocument", json!({}))["root"].clone();
    let picker = json!({"nodeId": root_node["nodeId"], "selector": "input[type=file]"});
    let picker = browser.call(Some(&tab), "DOM.querySelector", picker)["nodeId"].clone();
    let file = root().join("recordings/redis-perf.data").display().to_string();
    let files = json!({"nodeId": picker, "files": [file]});
    browser.call(Some(&tab), "DOM.setFileInputFiles", files);
    browser.wait(&tab, READY);
    browser.wait(
        &tab,
        "document.querySelector('.outcome').textContent.includes('waited 1.84\u{a0}s')",
    );
    next(&mut browser);
    browser.run(&tab, "document.querySelector('.waits li:last-child a').click()");
    browser.wait(
        &tab,
        "(({ from, to }) => to - from < 1e9)(document.getElementById('lanes').dataset)",
    );
    browser.run(&tab, &to("who"));
    next(&mut browser);
    browser.run(&tab, "scrollTo({ top: 0, behavior: 'instant' })");
    browser.run(&tab, &slide("nice", 10));
    browser.wait(&tab, &format!("{SEEDS} >= 1"));
    next(&mut browser);
    browser.wait(&tab, &format!("{SEEDS} >= 5"));
    browser.run(&tab, &to("answer"));
    next(&mut browser);
    browser.run(&tab, &press("Pin it"));
    let policy = "(() => { const list = document.getElementById([...document.querySelectorAll(\
                  '.control label')].find((one) => one.textContent === 'policy').htmlFor); \
                  list.value = 'idle'; list.dispatchEvent(new Event('change', { bubbles: true \
                  })); return true; })()";
    browser.run(&tab, policy);
    let rows = "document.querySelectorAll('.ladder polyline').length === 3";
    browser.wait(&tab, &format!("{rows} && {SEEDS} >= 5"));
    browser.run(&tab, &to("answer"));
    next(&mut browser);
    browser.run(&tab, &to("deploy"));
    let lines = "document.querySelector('[aria-labelledby=deploy] pre').textContent";
    let lines = browser.run(&tab, lines);
    assert!(lines.as_str().unwrap().contains("sysbench"), "{lines}");
    next(&mut browser);
    browser.run(&tab, "[...document.querySelectorAll('summary')].find((one) => one.textContent.startsWith('The command')).click()");
    let command = browser.run(&tab, "document.getElementById('command').textContent");
    let command = command.as_str().unwrap();
    assert!(command.contains("'sysbench nice=10'") && command.contains("policy=idle"), "{command}");
    browser.run(&tab, &to("command"));
    next(&mut browser);
    assert_eq!(browser.run(&tab, ERRORS), "");
}
