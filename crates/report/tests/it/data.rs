//! The data of a page as the scripts' types have it: one of each is checked in as TypeScript
//! (`ui/src/page/sample.ts`), which `tsc` compares with the types when the scripts are built.

use crate::browser::{lanes, page};
use schedlab_model::Ns;
use schedlab_report::*;
use std::fmt::Write as _;
use std::path::Path;

const KEPT: &str = "../../ui/src/page/sample.ts";
const HEAD: &str = "\
// One of each kind of data as the Rust structs give it: a test of crates/report writes it and
// compares. What does not fit data.ts does not compile.
import type { LadderData, LanesData, Measure, SeriesData, SweepData } from \"./data\";
";

/// The data of each figure of a page, by kind.
fn figures(html: &str) -> Vec<(&str, serde_json::Value)> {
    html.split("data-widget=\"")
        .skip(1)
        .filter_map(|rest| {
            let kind = rest.split('"').next()?;
            let json = rest.split("<script type=\"application/json\">").nth(1)?;
            let json = json.split("</script>").next()?;
            Some((kind, serde_json::from_str(json).ok()?))
        })
        .collect()
}

/// Long lists are cut: one says as much about types as hundreds.
fn short(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(all) => {
            all.truncate(5);
            all.iter_mut().for_each(short);
        }
        serde_json::Value::Object(all) => all.values_mut().for_each(short),
        _ => {}
    }
}

/// A page with all that data may hold.
fn full() -> Page {
    let mut page = page("name");
    let mut recorder = LaneRecorder::new(1, Ns::ZERO, 100).not_before(Ns(5));
    recorder = recorder.focused(Some([Ns(10), Ns(20)])).named(vec!["pCPU 0".to_owned()]);
    let text = "redis waited".to_owned();
    recorder = recorder.caught(Some(LaneIncident { from_ns: Ns(12), to_ns: Ns(15), text }));
    let mut lanes = lanes(["a", "b", "c"]);
    lanes.runs = vec![recorder.finish("recorded", 0, Ns(100))];
    let mut section = Section::new("All of a run");
    section.push(lanes);
    page.push(section);
    page
}

#[test]
fn data_of_a_page_is_what_the_scripts_expect() {
    let html = full().render().unwrap();
    let mut text = HEAD.to_owned();
    let types = [
        ("cdf", "Measure[]"),
        ("series", "SeriesData"),
        ("sweep", "SweepData"),
        ("ladder", "LadderData"),
        ("lanes", "LanesData"),
    ];
    let all = figures(&html);
    for (kind, of) in types {
        for (number, (_, value)) in all.iter().filter(|(found, _)| *found == kind).enumerate() {
            let mut value = value.clone();
            short(&mut value);
            let json = serde_json::to_string_pretty(&value).unwrap();
            writeln!(text, "export const {kind}{number}: {of} = {json};").unwrap();
        }
        assert!(all.iter().any(|(found, _)| *found == kind), "{kind}");
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(KEPT);
    if std::fs::read_to_string(&kept).unwrap_or_default() != text {
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sample.ts");
        std::fs::write(&made, text).unwrap();
        panic!("{KEPT} is not what the structs give: copy {} there", made.display());
    }
}
