//! The page of `latency --matrix` in a real browser. Skips by name where there is no Chromium; with
//! CI=true that is a failure.
#![allow(clippy::print_stderr)]

use schedlab_lab::latency::{
    Cell, Load, MATRIX_SCHEMA, Matrix, Quantity, Round, System, of_matrix,
};
use schedlab_measure::Samples;
use schedlab_model::{Ns, Policy};
use schedlab_study::page::Origin;
use schedlab_testing::chromium;
use std::process::Command;

fn samples(usual_us: u64, worst_us: u64) -> Samples {
    let mut samples = Samples::default();
    (0..6_000u64).for_each(|i| samples.add(usual_us * 1000 + i * i % 7919 * usual_us / 10));
    samples.add(worst_us * 1000);
    samples
}

/// Two systems, four rows each, the published maxima.
fn matrix() -> Matrix {
    let system = |name: &str, realtime| System {
        name: name.to_owned(),
        kernel: format!("4.19 {}", if realtime { "PREEMPT_RT" } else { "" }),
        realtime,
        virtual_machine: Some(false),
        emulated: false,
        tool: "<b>hostile</b>".to_owned(),
        quantity: Quantity::Wakeup,
        notes: vec!["<b>hostile</b>".to_owned()],
    };
    let systems = vec![system("standard", false), system("rt", true)];
    let mut cells = Vec::new();
    for (name, maxima) in
        [("standard", [9_602, 369, 101_095, 446]), ("rt", [7_399, 75, 150_414, 41])]
    {
        let rows = [(Load::Idle, Policy::Other), (Load::Idle, Policy::Fifo(49))];
        let rows = rows
            .into_iter()
            .chain([(Load::Loaded, Policy::Other), (Load::Loaded, Policy::Fifo(49))]);
        for ((load, policy), max) in rows.zip(maxima) {
            let usual = if policy == Policy::Other { 55 } else { 5 };
            let round = || Round {
                elapsed: Ns::from_s(6),
                samples: samples(usual, max),
                uncorrected: None,
                missed: 0,
                steal: 0.0,
                foreign: None,
            };
            cells.push(Cell {
                system: name.to_owned(),
                load,
                policy,
                rounds: (0..5).map(|_| round()).collect(),
            });
        }
    }
    Matrix { schema: MATRIX_SCHEMA.to_owned(), request: None, systems, cells, stopped: false }
}

/// Times of an emulator beside published ones must not count as those of a kernel.
#[test]
fn emulated_cpus_are_named_in_the_doubts_and_beside_the_system() {
    let mut emulated = matrix();
    emulated.systems[1].emulated = true;
    let doubts = emulated.doubts();
    assert!(
        doubts[0].starts_with("rt: its CPUs are emulated") && doubts[0].contains("mean little"),
        "{doubts:?}"
    );
    let html = of_matrix(&emulated, &Origin::default()).render().unwrap();
    assert_eq!(html.matches("CPUs emulated by QEMU (TCG)").count(), 1);
    // A file of before says nothing of it.
    let mut value = serde_json::to_value(&emulated).unwrap();
    value["systems"][1].as_object_mut().unwrap().remove("emulated");
    assert!(!serde_json::from_value::<Matrix>(value).unwrap().systems[1].emulated);
}

#[test]
fn a_browser_shows_table_findings_and_a_curve_for_every_row() {
    let html = of_matrix(&matrix(), &Origin::default()).render().unwrap();
    assert!(!html.contains("<b>hostile"));
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-latency-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("page.html");
    std::fs::write(&file, html).unwrap();
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let address = format!("file://{}", file.display());
    let Some(browser) = chromium() else {
        eprintln!("SKIPPED: no chromium here");
        return;
    };
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]);
    let output = command.args([profile.as_str(), "--dump-dom", address.as_str()]).output().unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let head = &dom[..dom.len().min(400)];
    assert!(head.contains("data-ready=\"yes\"") && !head.contains("data-errors"), "{head}");
    assert_eq!(dom.matches("data-widget=\"cdf\"").count(), 1);
    // Of the page and of the chart.
    assert_eq!(dom.matches("data-ready=\"yes\"").count(), 2);
    let body = |caption: &str| {
        let from = dom.find(caption).unwrap_or_else(|| panic!("no table {caption}"));
        let table = &dom[from..from + dom[from..].find("</table>").unwrap()];
        table[table.find("<tbody>").unwrap()..].to_owned()
    };
    assert_eq!(body("Medians over the rounds").matches("<tr>").count(), 8);
    assert_eq!(body("Ratio to standard").matches("<tr>").count(), 4 * 3);
    let findings = body("The four findings");
    assert_eq!(findings.matches("<tr>").count(), 4);
    assert_eq!(findings.matches(">true<").count(), 4, "{findings}");
    // One curve a row, by load.
    assert_eq!(body("Wakeup latency: idle").matches("<tr>").count(), 4);
    assert_eq!(body("Wakeup latency: loaded").matches("<tr>").count(), 4);
    assert!(
        dom.contains("101&nbsp;ms") && dom.contains("Of the four published findings 4 hold here.")
    );
    std::fs::remove_dir_all(folder).unwrap();
}
