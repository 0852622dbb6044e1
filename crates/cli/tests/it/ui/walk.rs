//! The parts of the page beside its sliders, in a real browser: searches, two recordings, messages,
//! lessons, and the machine itself.

use super::super::skip;
use super::browser::{Browser, ERRORS, READY, SEEDS, look};
use super::{REDIS, Server};

const IDLE: &str = "recordings/redis-other-idle-closed8.slt";
const MESSAGES: &str = "recordings/redis-messages.slt";

/// Presses the first thing with this text or name.
fn press(text: &str) -> String {
    format!(
        "(() => {{ const hit = [...document.querySelectorAll('button, [role=button], \
         summary')].find((b) => b.textContent.trim().startsWith('{text}') || \
         b.getAttribute('aria-label')?.startsWith('{text}')); hit.dispatchEvent(new \
         MouseEvent('click', {{ bubbles: true }})); return true; }})()"
    )
}

#[test]
fn a_search_draws_its_curve_and_a_point_is_pinned() {
    let Some(mut browser) = Browser::new("ui-search") else { return };
    let server = Server::new(&[REDIS, "--serve", "redis-server"]);
    let asked = "space=sysbench+nice%3D0%2C10%2C19&space=sysbench+policy%3Dother%2Cidle&to=1s";
    let tab = browser.open(&server.page(&format!("input={REDIS}&serve=redis-server&{asked}")));
    browser.wait(&tab, READY);
    assert_eq!(
        browser.run(&tab, "document.getElementById('goal').value"),
        "redis-server latency p99"
    );
    assert_eq!(browser.run(&tab, "document.getElementById('keep').value"), "sysbench share");
    browser.run(&tab, &press("Search for the best"));
    browser.run(&tab, "document.getElementById('search').click()");
    browser.wait(&tab, "document.querySelectorAll('.curve circle').length > 2");
    browser.wait(&tab, "document.querySelector('[data-search=done]') !== null");
    let command = browser.run(&tab, "document.getElementById('tune-command').textContent");
    let said = "--space 'sysbench nice=0,10,19' --space 'sysbench policy=other,idle'";
    assert!(command.as_str().unwrap().contains(said), "{command}");
    look(&mut browser, &tab, "a search");
    // A point of the curve is reached and pressed by the keyboard, and becomes a pinned variant.
    let focus = "(() => { const dot = document.querySelector('.curve g[role=button]'); \
                 dot.focus(); return document.activeElement === dot; })()";
    assert_eq!(browser.run(&tab, focus), true);
    browser.key(&tab, "Enter", 13);
    browser.wait(&tab, "document.querySelectorAll('[aria-label=Pinned] li').length === 1");
    let pin = browser.run(&tab, "document.querySelector('[aria-label=Pinned] code').textContent");
    browser.wait(&tab, &format!("{SEEDS} >= 1"));
    let row = format!("document.querySelector('.answer').innerText.includes({pin})");
    assert_eq!(browser.run(&tab, &row), true, "{pin}");
    assert_eq!(browser.run(&tab, ERRORS), "");
}

#[test]
fn two_recordings_are_above_each_other() {
    let Some(mut browser) = Browser::new("ui-beside") else { return };
    let server = Server::new(&[REDIS, IDLE]);
    let tab = browser.open(&server.page(&format!("input={REDIS}")));
    browser.wait(&tab, READY);
    let choose = format!(
        "(() => {{ const list = document.querySelector('.second select'); list.value = '{IDLE}'; \
         list.dispatchEvent(new Event('change', {{ bubbles: true }})); return true; }})()"
    );
    browser.run(&tab, &choose);
    browser.wait(&tab, "document.querySelector('#both')?.dataset.ready === 'yes'");
    browser.wait(&tab, "document.querySelector('#diff-table tbody tr') !== null");
    let command = browser.run(&tab, "document.getElementById('diff-command').textContent");
    assert_eq!(command, format!("schedlab diff {REDIS} {IDLE}"));
    // One view moves over both: it has the length of the longer one, and zooms for both.
    let run = browser
        .run(&tab, "document.querySelectorAll('#both .bar button[aria-pressed=true]').length");
    assert_eq!(run, 2);
    browser.run(&tab, "[...document.querySelectorAll('#both .bar button')].find((b) => b.textContent === '+').click()");
    let ends = browser.run(
        &tab,
        "['from', 'to'].map((end) => Number(document.getElementById('both').dataset[end]))",
    );
    assert!(ends[1].as_u64().unwrap() - ends[0].as_u64().unwrap() < 1_600_000_000, "{ends}");
    assert!(browser.run(&tab, "location.hash").as_str().unwrap().contains("with="));
    look(&mut browser, &tab, "two recordings");
    assert_eq!(browser.run(&tab, ERRORS), "");
}

#[test]
fn a_program_of_the_graph_is_pressed() {
    let Some(mut browser) = Browser::new("ui-flow") else { return };
    let server = Server::new(&[MESSAGES]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    browser.wait(&tab, "document.querySelectorAll('.graph .node').length >= 2");
    assert_eq!(browser.run(&tab, "document.querySelectorAll('.request').length"), 2);
    let focus = "(() => { const node = [...document.querySelectorAll('.graph \
                 [role=button]')].find((n) => \
                 n.getAttribute('aria-label').startsWith('redis-benchmark')); node.focus(); \
                 return node.getAttribute('aria-label'); })()";
    let name = browser.run(&tab, focus);
    assert!(name.as_str().unwrap().contains("sends redis-server"), "{name}");
    browser.key(&tab, "Enter", 13);
    browser.wait(&tab, "document.getElementById('target').value === 'redis-benchmark'");
    // A request is the part in view.
    browser.run(&tab, "document.querySelector('.request button').click()");
    browser.wait(&tab, "location.hash.includes('from=')");
    browser.wait(&tab, READY);
    look(&mut browser, &tab, "messages");
    assert_eq!(browser.run(&tab, ERRORS), "");
}

#[test]
fn a_lesson_has_two_sliders_and_scenarios_have_pictures() {
    let Some(mut browser) = Browser::new("ui-course") else { return };
    let server = Server::new(&[]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, "document.querySelectorAll('ol.inputs li').length >= 6");
    browser.wait(&tab, "document.querySelectorAll('.thumb svg rect').length > 20");
    browser.run(&tab, "document.querySelector('ol.inputs button').click()");
    browser.wait(&tab, READY);
    browser.wait(&tab, "document.querySelectorAll('.lesson input[type=range]').length === 2");
    let slide = "(() => { const input = document.querySelector('.lesson input[type=range]'); \
                 input.value = 19; input.dispatchEvent(new Event('input', { bubbles: true })); \
                 return true; })()";
    browser.run(&tab, slide);
    browser.wait(&tab, &format!("{SEEDS} >= 1"));
    // The two rows that were asked about, and none of the scenario's own.
    let rows = "document.querySelectorAll('.answer table.data tbody tr').length";
    assert_eq!(browser.run(&tab, rows), 2);
    let command = browser.run(&tab, "document.getElementById('command').textContent");
    assert!(command.as_str().unwrap().contains("--variant 'yes-2 nice=19' --rows asked"));
    look(&mut browser, &tab, "a lesson");
    assert_eq!(browser.run(&tab, ERRORS), "");
}

#[test]
fn the_machine_is_watched_and_what_was_kept_is_opened() {
    let Some(mut browser) = Browser::new("ui-watched") else { return };
    let Some(server) = Server::try_new(&["--live"]) else {
        return skip("ui-watched", "nothing can be recorded here");
    };
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, "document.getElementById('watch') !== null");
    browser.run(&tab, "document.getElementById('watch').click()");
    browser.wait(&tab, "document.querySelectorAll('#live tbody tr').length > 2");
    look(&mut browser, &tab, "the machine");
    browser.run(&tab, "document.getElementById('keep').click()");
    browser.wait(&tab, READY);
    assert_eq!(browser.run(&tab, ERRORS), "");
}
