//! What the parts of the page look like, against small pictures that are checked in and were
//! looked at: a dot of one is the mean colour of 16 × 16 pixels. Every character is the same box
//! ([`super::font`]), so that fonts of the machine count for nothing.
//!
//! `CONTRIBUTING.md` says how they are made again after a change that is meant.

use super::super::root;
use super::browser::{Browser, ERRORS, READY, SEEDS, Tab, slide};
use super::font::boxes;
use super::{REDIS, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Share of a part's cells that differ at most. Chosen: shifts of a pixel and other default fonts
/// change none, and the smallest fault that is planted below changes 1.5 %.
const MOST: f64 = 0.005;
/// Where the pictures are.
const FOLDER: &str = "crates/cli/tests/it/ui/pictures";
const COMPARE: &str = include_str!("pictures.js");

/// Parts of the page, by what finds them.
const PARTS: [(&str, &str); 8] = [
    ("header", "header"),
    ("first", ".first"),
    ("side", ".side"),
    ("answer", "section.answer"),
    ("deploy", "section[aria-labelledby=deploy]"),
    ("lanes", "section[aria-labelledby=who]"),
    ("programs", "section[aria-labelledby=programs]"),
    ("all", "html"),
];

/// How a page is looked at: its name, width, and whether it is dark.
type View = (&'static str, u32, bool);
const VIEWS: [View; 3] = [("light", 1280, false), ("dark", 1280, true), ("narrow", 360, false)];

/// A page, and what it is compared with.
struct Pictures {
    browser: Browser,
    tab: Tab,
    /// A tab that compares.
    desk: Tab,
}

impl Pictures {
    /// Opens the page with an answer on it, without what differs between machines.
    fn new(server: &Server) -> Option<Pictures> {
        let mut browser = Browser::new("ui-pictures")?;
        let desk = browser.open("about:blank");
        let tab = browser.open(&server.page(&format!("input={REDIS}&serve=redis-server&to=1s")));
        browser.size(&tab, 1280, 900);
        browser.wait(&tab, READY);
        let pin = format!(
            "(async () => {{ const font = await new FontFace('boxes', new \
             Uint8Array({:?})).load(); document.fonts.add(font); const sheet = new \
             CSSStyleSheet(); sheet.replaceSync(':root {{ --sans: boxes !important; --mono: boxes \
             !important }} * {{ font-family: boxes !important; transition: none !important; \
             caret-color: transparent !important }} .panel {{ position: static !important; \
             max-height: none !important }}'); document.adoptedStyleSheets = [sheet]; return \
             document.fonts.check('12px boxes'); }})()",
            boxes()
        );
        assert_eq!(browser.run(&tab, &pin), true);
        browser.run(&tab, &slide("nice", 10));
        browser.wait(&tab, &format!("{SEEDS} >= 20"));
        browser.run(&tab, "document.activeElement?.blur()");
        Some(Pictures { browser, tab, desk })
    }

    fn path(view: &str, part: &str) -> PathBuf {
        root().join(FOLDER).join(format!("{view}-{part}.png"))
    }

    /// Compares the parts with their pictures.
    fn compare(&mut self, view: &str) -> Vec<Value> {
        let Pictures { browser, tab, desk } = self;
        browser.run(tab, "scrollTo({ top: 0, behavior: 'instant' })");
        // The next picture of the screen but one has everything.
        let drawn = "new Promise((then) => setTimeout(() => requestAnimationFrame(() => \
                     requestAnimationFrame(() => then(true))), 150))";
        browser.run(tab, drawn);
        let boxes = format!(
            "{}.map(([name, of]) => {{ const found = document.querySelector(of); if (!found) \
             return {{ name, box: null }}; const {{ x, y, width, height }} = \
             found.getBoundingClientRect(); return {{ name, box: [x + scrollX, y + scrollY, \
             width, height].map(Math.round) }}; }})",
            json!(PARTS)
        );
        let parts = browser.run(tab, &boxes);
        for part in parts.as_array().unwrap() {
            assert!(!part["box"].is_null(), "{view}: {} is not there", part["name"]);
        }
        let size = browser.run(tab, "[innerWidth, document.documentElement.scrollHeight]");
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let shot = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let shot = browser.call(Some(tab), "Page.captureScreenshot", shot)["data"].clone();
        let known: BTreeMap<&str, String> = PARTS
            .iter()
            .filter_map(|(part, _)| Some((*part, std::fs::read(Self::path(view, part)).ok()?)))
            .map(|(part, bytes)| (part, base64(&bytes)))
            .collect();
        let found = browser.run(desk, &format!("({COMPARE})({shot}, {parts}, {})", json!(known)));
        found.as_array().expect("a list").clone()
    }

    /// Returns what differs by more than is allowed.
    fn wrong(&mut self, view: &str) -> Vec<String> {
        let all = self.compare(view);
        let told = |one: &Value| {
            let share = one["share"].as_f64().unwrap_or(1.0);
            let text = format!("{}: {:.1} % of its cells", one["name"], share * 100.0);
            (share > MOST).then_some(text)
        };
        all.iter().filter_map(told).collect()
    }

    fn look(&mut self, (_, width, dark): View) {
        self.browser.size(&self.tab, width, 900);
        self.browser.dark(&self.tab, dark);
    }

    /// Makes the pictures.
    fn renew(&mut self) {
        std::fs::create_dir_all(root().join(FOLDER)).expect("a folder");
        for view in VIEWS {
            self.look(view);
            for part in self.compare(view.0) {
                let script = format!("[...atob({})].map((one) => one.charCodeAt(0))", part["png"]);
                let bytes = self.browser.run(&self.desk, &script);
                let bytes: Vec<u8> = serde_json::from_value(bytes).expect("bytes");
                let path = Self::path(view.0, part["name"].as_str().expect("a name"));
                std::fs::write(path, bytes).expect("the folder is there");
            }
        }
    }
}

/// Returns bytes as a browser reads them (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let held = chunk.iter().fold(0u32, |held, byte| held << 8 | u32::from(*byte));
        let held = held << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(held >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Changes that are none: the page is where it was a pixel before, and the machine has other fonts.
const ALIKE: [&str; 2] = [
    "document.body.style.paddingTop = '1px'",
    "document.body.style.cssText = 'margin-left: 1px; margin-right: -1px'",
];

/// Faults: the part in which each shows, and the rule that plants it, whatever is drawn again
/// meanwhile.
const FAULTS: [(&str, &str); 5] = [
    ("side", ".panel { visibility: hidden !important }"),
    ("answer", ".ladder { visibility: hidden !important }"),
    ("answer", ".ladder polyline { visibility: hidden !important }"),
    ("lanes", "#lanes .stage canvas { visibility: hidden !important }"),
    (
        "programs",
        "#programs ~ .scroll tr > :nth-child(2) { min-width: 40rem !important; width: 40rem \
         !important }",
    ),
];

#[test]
fn the_page_looks_as_it_did() {
    let server = Server::new(&[REDIS, "--serve", "redis-server"]);
    let Some(mut page) = Pictures::new(&server) else { return };
    if std::env::var_os("SCHEDLAB_RENEW").is_some() {
        page.renew();
    }
    for view in VIEWS {
        page.look(view);
        assert_eq!(page.wrong(view.0), [""; 0], "{}: see CONTRIBUTING.md", view.0);
    }
    // The colours are told apart, in both directions.
    page.look(VIEWS[1]);
    let dark = page.wrong("light");
    assert_eq!(dark.len(), PARTS.len(), "a dark page for a light one: {dark:?}");
    page.look(VIEWS[0]);
    let fonts = json!({"fontFamilies": {
        "standard": "DejaVu Serif", "sansSerif": "DejaVu Serif", "serif": "DejaVu Sans Mono",
        "fixed": "DejaVu Sans"
    }});
    page.browser.call(Some(&page.tab), "Page.setFontFamilies", fonts);
    for change in ALIKE {
        page.browser.run(&page.tab, change);
        assert_eq!(page.wrong("light"), [""; 0], "{change}");
    }
    page.browser.run(&page.tab, "document.body.style.cssText = ''");
    for (part, fault) in FAULTS {
        let plant = format!(
            "(() => {{ const sheet = new CSSStyleSheet(); sheet.replaceSync({}); \
             document.adoptedStyleSheets.push(sheet); return true; }})()",
            json!(fault)
        );
        page.browser.run(&page.tab, &plant);
        let wrong = page.wrong("light");
        let is_told = wrong.iter().any(|text| text.contains(&format!("\"{part}\"")));
        assert!(is_told, "nothing is seen of {fault}: {wrong:?}");
        page.browser.run(&page.tab, "document.adoptedStyleSheets.pop() && true");
    }
    assert_eq!(page.browser.run(&page.tab, ERRORS), "");
}
