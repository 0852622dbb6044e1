//! The pages that the program writes, in a real browser: every width, light and dark. Skips by name
//! where there is no Chromium; with CI=true that is a failure.

use super::{Folder, root, schedlab};
use schedlab_testing::chromium;
use std::process::{Command, Stdio};

/// Opens every fold, waits for the charts, and tells the frame's parent what it found.
const CHECK: &str = include_str!("../../../report/tests/it/check.js");
const WIDTHS: [u32; 5] = [360, 390, 800, 1400, 1920];
const THEMES: [&str; 2] = ["light", "dark"];

/// What each frame told, by width and theme: the attributes of the page's root.
fn looked_at(name: &str, arguments: &[&str]) -> Option<Vec<serde_json::Value>> {
    let Some(browser) = chromium() else {
        super::skip("pages", "no chromium here");
        return None;
    };
    let folder = Folder::new(name);
    let page = folder.0.join("page.html").display().to_string();
    let ran = schedlab(&[arguments, &["--report", &page]].concat());
    assert!(matches!(ran.code, 0 | 1 | 3), "{ran:?}");
    let html = std::fs::read_to_string(&page).unwrap();
    let nonce = html.split("nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
    let script = format!("<script nonce=\"{nonce}\">{CHECK}</script></body>");
    folder.write("page.html", html.replace("</body>", &script));
    let frame = |width: u32, theme: &str| {
        format!(
            "<iframe style=\"width:{width}px;height:900px\" \
             src=\"page.html#width={width}&theme={theme}\"></iframe>"
        )
    };
    let frames: String = WIDTHS
        .iter()
        .flat_map(|width| THEMES.map(|theme| frame(*width, theme)))
        .collect::<Vec<_>>()
        .join("");
    // The document says what all frames found, as JSON.
    let outer = format!(
        "<!doctype html><html><head><script>const all = []; addEventListener('message', (e) => \
         {{ all.push(e.data); \
         document.title = JSON.stringify(all); }})</script></head><body>{frames}</body></html>"
    );
    folder.write("frames.html", outer);
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=60000",
            "--dump-dom",
        ])
        .arg("--window-size=2000,1200")
        .arg(format!("--user-data-dir={}", folder.0.join("profile").display()))
        .arg(format!("file://{}", folder.0.join("frames.html").display()))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let title = dom
        .split("<title>")
        .nth(1)
        .and_then(|rest| rest.split("</title>").next())
        .unwrap_or_default();
    let plain = title
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", "\u{a0}")
        .replace("&amp;", "&");
    let told: Vec<serde_json::Value> = serde_json::from_str(&plain).unwrap_or_default();
    assert_eq!(told.len(), WIDTHS.len() * THEMES.len(), "{arguments:?}: {title}");
    for one in &told {
        assert_eq!(one["checked"], "yes", "{one}");
        assert_eq!(one["errors"], serde_json::Value::Null, "{one}");
        assert_eq!(one["wrong"], "", "{one}");
        let asked = one["asked"].as_str().unwrap();
        assert!(asked.contains(&format!("width={}&", one["width"].as_str().unwrap())), "{one}");
    }
    Some(told)
}

/// The sections in the order of a page, with what is folded.
fn sections(told: &serde_json::Value) -> Vec<&str> {
    told["sections"].as_str().unwrap().split("; ").collect()
}

#[test]
fn a_comparison_begins_with_verdict_deployment_ladder_and_table() {
    let Some(told) = looked_at("page-batch", &["compare", "redis-batch", "--for", "1500ms"]) else {
        return;
    };
    for one in &told {
        let all = sections(one);
        let first = [
            "verdict",
            "Set it without schedlab",
            "From the median to the maximum",
            "What changes",
        ];
        assert_eq!(all[..4], first, "{one}");
        let rest = &all[4..];
        // An expectation of a run that is cut short may fail: then the section on trust is open.
        let open: Vec<&&str> = rest.iter().filter(|title| !title.ends_with(" (folded)")).collect();
        let may_be = ["Who ran when", "How far to trust it"];
        assert!(open.iter().all(|title| may_be.contains(title)), "{open:?}");
        assert!(rest.contains(&"Who ran when"), "{one}");
        assert_eq!((&one["keys"], &one["lines"]), (&"16".into(), &"16".into()), "{one}");
    }
}

#[test]
fn a_recording_begins_with_its_answer_a_ladder_and_its_tasks() {
    let recording = root().join("recordings/redis-other-other-closed8.slt").display().to_string();
    let Some(told) = looked_at("page-recording", &["show", &recording]) else { return };
    for one in &told {
        let all = sections(one);
        assert_eq!(
            all[..4],
            ["verdict", "Who ran when", "From the median to the maximum", "Tasks by name"],
            "{one}"
        );
        assert!(all[4..].iter().all(|title| title.ends_with(" (folded)")), "{one}");
        assert_ne!(one["lines"], "0", "{one}");
    }
}

/// The page is about this machine: real threads, the smallest run that there is.
#[test]
fn a_latency_matrix_is_laid_out_at_every_width() {
    let short =
        ["latency", "--matrix", "--rounds", "1", "--for", "300ms", "--groups", "1", "--no-lock"];
    if schedlab(&short).code == 2 {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "CI runs as root");
        return super::skip(
            "a_latency_matrix_is_laid_out_at_every_width",
            "no real-time policy here",
        );
    }
    let Some(told) = looked_at("page-matrix", &short) else { return };
    for one in &told {
        let all = sections(one);
        assert_eq!(all[0], "verdict", "{one}");
        let place = |title: &str| all.iter().position(|section| section.contains(title));
        let (table, findings) = (place("The table"), place("findings"));
        assert!(
            table.is_some() && table < findings,
            "this machine first, then what was published: {one}"
        );
    }
}

#[test]
fn the_demo_is_laid_out_at_every_width() {
    let recording = root().join("recordings/redis-other-other-closed8.slt").display().to_string();
    let variants = [
        "--variant",
        "batch idle: sysbench policy=idle",
        "--variant",
        "redis fifo: redis-server policy=fifo:1",
    ];
    let arguments =
        [&["compare", &recording, "--for", "1s", "--seeds", "2"][..], &variants].concat();
    let Some(told) = looked_at("page-demo", &arguments) else { return };
    for one in &told {
        assert_eq!(sections(one)[..2], ["verdict", "Set it without schedlab"], "{one}");
    }
}

#[test]
fn published_figures_begin_with_what_is_off_and_keep_three_kinds_apart() {
    let arguments = ["published", "elevation", "xen-bare-caps", "ghost-scaling"];
    let Some(told) = looked_at("page-published", &arguments) else { return };
    for one in &told {
        let all = sections(one);
        let first = [
            "verdict",
            "What is off, and why",
            "Papers, articles and talks",
            "Real code that the project ran",
            "Fitted inputs: no evidence",
            "Checked against the real systems",
        ];
        assert_eq!(all[..6], first, "{one}");
    }
}
