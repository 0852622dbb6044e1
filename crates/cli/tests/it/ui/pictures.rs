//! What the page looks like, against small pictures that are checked in and were looked at. They
//! are compared as 64 × 46 cells, so that another font changes little.
//!
//! To make them again after a change that is meant: `SCHEDLAB_RENEW=1 cargo nextest run --workspace
//! -E 'test(pages_look_as_they_did)'`; then look at them in `crates/cli/tests/it/ui/pictures`.

use super::super::root;
use super::browser::{Browser, ERRORS, READY, SEEDS, Tab, slide};
use super::{REDIS, Server};
use serde_json::json;

/// Mean difference of a cell's colours, of 255, from which on a page looks different.
const MOST: f64 = 6.0;

/// Compares two pictures: the difference, and a small picture of the second.
const COMPARE: &str = include_str!("pictures.js");

/// Returns how far what is in the window is from the picture of this name, which is made again
/// where that is asked for. `desk`: a tab that compares.
fn apart(browser: &mut Browser, (tab, desk): (&Tab, &Tab), name: &str, renew: bool) -> f64 {
    // What moves has come to rest.
    browser.run(tab, "new Promise((then) => setTimeout(() => then(true), 300))");
    let path = root().join(format!("crates/cli/tests/it/ui/pictures/{name}.jpg"));
    let known = json!(std::fs::read(&path).unwrap_or_default());
    let now = browser.call(Some(tab), "Page.captureScreenshot", json!({"format": "png"}));
    let found = browser.run(desk, &format!("({COMPARE})({known}, {})", now["data"]));
    if renew {
        let small: Vec<u8> = serde_json::from_value(found[1].clone()).expect("bytes");
        std::fs::write(&path, small).expect("the picture is written");
        return 0.0;
    }
    found[0].as_f64().unwrap_or_else(|| panic!("{}: there is no picture", path.display()))
}

#[test]
fn pages_look_as_they_did() {
    let Some(mut browser) = Browser::new("ui-pictures") else { return };
    let renew = std::env::var_os("SCHEDLAB_RENEW").is_some();
    let server = Server::new(&[REDIS, "--serve", "redis-server"]);
    let desk = browser.open("about:blank");
    let tab = browser.open(&server.page(""));
    browser.size(&tab, 1280, 900);
    browser.wait(&tab, READY);
    browser.run(&tab, &slide("nice", 10));
    browser.wait(&tab, &format!("{SEEDS} >= 20"));
    browser.run(&tab, "document.activeElement?.blur()");
    let tabs = (&tab, &desk);
    for (name, dark, width, height) in
        [("light", false, 1280, 900), ("dark", true, 1280, 900), ("narrow", false, 360, 740)]
    {
        browser.dark(&tab, dark);
        browser.size(&tab, width, height);
        browser.run(&tab, "scrollTo(0, 0)");
        let far = apart(&mut browser, tabs, name, renew);
        assert!(far < MOST, "{name}: {far:.1} of 255 from the picture that is checked in");
    }
    // Another font is no other page; a page without its style, or of the other colours, is.
    browser.size(&tab, 1280, 900);
    let style = |text: &str| {
        format!(
            "(() => {{ const sheet = new CSSStyleSheet(); sheet.replaceSync('{text}'); \
             document.adoptedStyleSheets = [sheet]; scrollTo(0, 0); return true; }})()"
        )
    };
    for (text, is_far) in [
        ("* { font-family: serif !important }", false),
        (".side { display: none !important }", true),
        ("html { filter: invert(1) }", true),
    ] {
        browser.run(&tab, &style(text));
        let far = apart(&mut browser, tabs, "light", false);
        assert_eq!(far >= MOST, is_far, "{text}: {far:.1} of 255");
    }
    assert_eq!(browser.run(&tab, ERRORS), "");
}
