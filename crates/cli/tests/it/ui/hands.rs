//! What a mouse does in the lanes, and what a user asks of every page: less motion.

use super::browser::{Browser, ERRORS, READY, Tab};
use super::{REDIS, Server};
use serde_json::{Value, json};

/// The middle of the lanes' picture: left, top, width.
const PLACE: &str = "(() => { const all = [...document.querySelectorAll('canvas')]; const lanes = \
                     all.sort((a, b) => b.height - a.height)[0]; lanes.scrollIntoView({ block: \
                     'center', behavior: 'instant' }); const box = lanes.getBoundingClientRect(); \
                     return [box.x, box.y + box.height / 2, box.width]; })()";
const VIEW: &str =
    "(({ from, to }) => [Number(from), Number(to)])(document.getElementById('lanes').dataset)";

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Presses at one part of the picture and lets go at another.
fn drag(browser: &mut Browser, tab: &Tab, parts: [f64; 2], modifiers: u32) {
    let place = numbers(&browser.run(tab, PLACE));
    let [x0, y, width] = place[..] else { panic!("three numbers") };
    let mut mouse = |kind: &str, part: f64| {
        let held = u32::from(kind != "mouseReleased");
        let event = json!({"type": kind, "x": x0 + width * part, "y": y, "button": "left",
                           "buttons": held, "clickCount": 1, "modifiers": modifiers});
        browser.call(Some(tab), "Input.dispatchMouseEvent", event);
    };
    mouse("mousePressed", parts[0]);
    mouse("mouseMoved", f64::midpoint(parts[0], parts[1]));
    mouse("mouseMoved", parts[1]);
    mouse("mouseReleased", parts[1]);
}

/// With Shift a drag chooses a part: the numbers below the lanes are then of that part. Without, it
/// moves.
#[test]
fn a_drag_with_shift_chooses_a_part_of_the_lanes() {
    let Some(mut browser) = Browser::new("ui-hands") else { return };
    let server = Server::new(&[REDIS]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    let whole = numbers(&browser.run(&tab, VIEW));
    let table = "document.body.innerText.match(/In view: ([^ ]+) (\\S+) from/)?.slice(1).join(' ')";
    let before = browser.run(&tab, table);
    drag(&mut browser, &tab, [0.5, 0.6], 8);
    let narrower = format!("(([from, to]) => to - from < {})({VIEW})", whole[1] / 5.0);
    browser.wait(&tab, &narrower);
    browser.wait(&tab, &format!("{table} !== {before}"));
    let part = numbers(&browser.run(&tab, VIEW));
    drag(&mut browser, &tab, [0.6, 0.4], 0);
    browser.wait(&tab, &format!("{VIEW}[0] > {}", part[0]));
    let moved = numbers(&browser.run(&tab, VIEW));
    let (wide, was) = (moved[1] - moved[0], part[1] - part[0]);
    assert!((wide - was).abs() <= 2.0, "as much is in view: {part:?}, {moved:?}");
    assert_eq!(browser.run(&tab, ERRORS), "");
}

/// A user whose system asks for less motion sees none, neither while scrolling nor while something
/// changes.
#[test]
fn less_motion_is_none() {
    let Some(mut browser) = Browser::new("ui-motion") else { return };
    let server = Server::new(&[REDIS]);
    let tab = browser.open(&server.page(""));
    let moves = "[...document.querySelectorAll('*')].filter((one) => { const style = \
                 getComputedStyle(one); return style.scrollBehavior !== 'auto' || style\
                 .animationName !== 'none' || style.transitionDuration.split(', ').some((time) => \
                 parseFloat(time) > 0); }).length";
    for (asked, is_still) in [("reduce", true), ("no-preference", false)] {
        let features = json!([{"name": "prefers-reduced-motion", "value": asked}]);
        browser.call(Some(&tab), "Emulation.setEmulatedMedia", json!({ "features": features }));
        browser.wait(&tab, READY);
        let count = browser.run(&tab, moves).as_u64().unwrap();
        assert_eq!(count == 0, is_still, "{asked}: {count}");
    }
}
