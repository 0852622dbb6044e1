//! The page in a real browser: what the scripts make of it, and what one sees. Skips by name where there is no
//! Chromium; with CI=true that is a failure.
#![allow(clippy::print_stderr)]

use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_report::*;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const HOSTILE: &str =
    "</script><script>document.title='owned'</script>\"><img src=x onerror=document.title='owned'>";

fn browser() -> Option<&'static str> {
    let works = |name: &&str| {
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works);
    if found.is_none() {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "CI installs chromium (.ci/run)");
        eprintln!("SKIPPED: no chromium here");
    }
    found
}

/// 2 CPUs, 3 tasks, 400 switches; task 1 wakes task 2 each time.
fn lanes(tasks: [&str; 3]) -> Lanes {
    let run = |name: &str, style: usize, pace: u64| {
        let mut recorder = LaneRecorder::new(2, Ns::ZERO, 100_000);
        let mut on = [None; 2];
        for step in 0..400u64 {
            let (at, cpu) = (Ns(step * pace), (step % 2) as usize);
            let next = [None, Some(TaskId(0)), Some(TaskId(1)), Some(TaskId(2))][(step as usize * 7 / 3) % 4];
            if next == Some(TaskId(2)) {
                let kind = EventKind::Wake { task: TaskId(2), waker: Waker::Task(TaskId(1)) };
                recorder.event(&SchedEvent { at, cpu: CpuId(cpu as u32), kind });
            }
            let kind = EventKind::Switch { prev: on[cpu], prev_state: PrevState::Sleeping, next };
            recorder.event(&SchedEvent { at: at + Ns(5_000), cpu: CpuId(cpu as u32), kind });
            on[cpu] = next;
        }
        recorder.finish(name, style, Ns(400 * pace))
    };
    let task = |name: &str| LaneTask { name: name.to_owned(), class: name.to_owned() };
    Lanes {
        tasks: tasks.map(task).to_vec(),
        runs: vec![run("recorded", 0, 40_000), run(tasks[0], 1, 30_000)],
    }
}

/// A page with every kind of part, all text of which is `text`.
fn page(text: &str) -> Page {
    let owned = || text.to_owned();
    let buckets = |scale: u64| (1..300).map(|i| (Ns(i * i * scale), 3_000 / i)).collect::<Vec<_>>();
    let curve = |style: usize, scale| Curve::of_buckets(text, style, &buckets(scale)).unwrap();
    let measure = |name: &str| Measure {
        name: name.to_owned(),
        about: owned(),
        curves: vec![curve(0, 100), curve(1, 120), curve(2, 900)],
    };
    let mut page = Page::new(text);
    page.subtitle(text);
    page.verdict(text, text);
    page.footer(text);
    let mut section = Section::new(text).lead(text);
    section.push(Part::Text(owned()));
    section.push(Part::List(vec![owned(), owned()]));
    section.push(Table {
        caption: owned(),
        columns: vec![Column::text(text), Column::number("number")],
        rows: [3.0, 1.0, 2.0]
            .map(|n| vec![Cell::head(text).swatch(2), Cell::number(format!("{n}"), n).note(text, Tone::Good)])
            .to_vec(),
        fold: None,
    });
    section.push(Matrix {
        caption: owned(),
        rows_are: owned(),
        columns_are: owned(),
        rows: vec![owned(), owned()],
        columns: vec![owned(), owned()],
        times: vec![vec![Ns(5), Ns(5_000_000)], vec![Ns(0), Ns(70_000)]],
    });
    let mut facts = Facts::default();
    facts.add(text, text);
    section.push(facts);
    page.push(section);
    let mut charts = Section::new("Charts");
    charts.push(Cdf { title: owned(), measures: vec![measure(text), measure("Response")] });
    charts.push(Series {
        title: owned(),
        unit: owned(),
        about: owned(),
        from_ns: Ns(0),
        step_ns: Ns::from_ms(1),
        traces: vec![Trace { name: owned(), style: 1, values: (0..100).map(|i| f64::from(i % 7)).collect() }],
    });
    charts.push(lanes([text, "client", "server"]));
    page.push(charts);
    page
}

fn file(name: &str, html: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("schedlab-page-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("page.html");
    std::fs::write(&file, html).unwrap();
    file
}

fn run(browser: &str, file: &std::path::Path, hash: &str, arguments: &[&str]) -> String {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=20000",
        ])
        .arg(format!("--user-data-dir={}", file.with_file_name("profile").display()))
        .args(arguments)
        .arg(format!("file://{}#{hash}", file.display()))
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_widget_starts_and_hostile_text_stays_text() {
    let Some(browser) = browser() else { return };
    let file = file("dom", &page(HOSTILE).render().unwrap());
    let dom = run(browser, &file, "", &["--dump-dom"]);
    let head = &dom[..dom.len().min(400)];
    assert!(head.contains("data-ready=\"yes\""), "{head}");
    assert!(!head.contains("data-errors"), "{head}");
    assert_eq!(dom.matches("data-widget=").count(), 3);
    assert_eq!(dom.matches("data-ready=\"yes\"").count(), 4, "the page and its three widgets");
    // 2 runs of 2 CPUs with 200 switches each and what was before the first.
    assert!(dom.contains("data-spans=\"804\""), "lanes are unpacked");
    assert!(!dom.contains("<title>owned"), "foreign script ran");
    assert!(!dom.contains("<img"), "foreign markup became an element");
    // For keyboard and screen reader: lanes can be focused and named, sorting is a button.
    assert!(dom.contains("role=\"application\"") && dom.contains("aria-live=\"polite\""));
    assert!(dom.contains("<th scope=\"col\" class=\"n\"><button type=\"button\">"));
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

/// Colours of a screenshot, as width and rows of pixels.
fn pixels(path: &std::path::Path) -> (usize, Vec<[u8; 3]>) {
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let step = info.line_size / info.width as usize;
    (info.width as usize, bytes.chunks(step).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
}

#[test]
fn screenshots_show_charts_in_light_dark_and_narrow() {
    let Some(browser) = browser() else { return };
    let file = file("shot", &page("redis-server").render().unwrap());
    let shot = file.with_file_name("shot.png");
    let mut papers = Vec::new();
    for (hash, size) in
        [("theme=light", "1200,2600"), ("theme=dark", "1200,2600"), ("theme=light", "400,3600")]
    {
        let (picture, window) = (format!("--screenshot={}", shot.display()), format!("--window-size={size}"));
        run(browser, &file, hash, &[&picture, &window]);
        let (width, all) = pixels(&shot);
        let count = |what: &dyn Fn(&[u8; 3]) -> bool| all.iter().filter(|pixel| what(pixel)).count();
        papers.push(all[width * 900]);
        // Lanes and curves: thousands of pixels that are no grey.
        let vivid = count(&|p| p.iter().max().unwrap() - p.iter().min().unwrap() > 60);
        assert!(vivid > 5_000, "{hash} {size}: only {vivid} coloured pixels");
        // Every horizontal fifth of the upper part holds something besides the background.
        let part = all.len() / 10;
        for (index, band) in all.chunks(part).take(5).enumerate() {
            let colours: std::collections::BTreeSet<&[u8; 3]> = band.iter().collect();
            assert!(colours.len() > 8, "{hash} {size}: band {index} is blank");
        }
        std::fs::remove_file(&shot).unwrap();
    }
    let light = |paper: [u8; 3]| paper.iter().map(|c| u32::from(*c)).sum::<u32>() > 600;
    assert_eq!(papers.into_iter().map(light).collect::<Vec<_>>(), [true, false, true]);
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}
