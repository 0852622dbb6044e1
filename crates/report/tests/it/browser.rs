//! The page in a real browser: what the scripts make of it, and what one sees. Skips by name where
//! there is no Chromium; with CI=true that is a failure.
#![allow(clippy::print_stderr)]

use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_report::*;
use schedlab_testing::chromium;
use std::path::PathBuf;
use std::process::Command;

const HOSTILE: &str =
    "</script><script>document.title='owned'</script>\"><img src=x onerror=document.title='owned'>";

pub(crate) fn browser() -> Option<&'static str> {
    let found = chromium();
    if found.is_none() {
        eprintln!("SKIPPED: no chromium here");
    }
    found
}

/// 2 CPUs, 3 tasks, 400 switches; task 1 wakes task 2 each time.
pub(crate) fn lanes(tasks: [&str; 3]) -> Lanes {
    let run = |name: &str, style: usize, pace: u64| {
        let mut recorder = LaneRecorder::new(2, Ns::ZERO, 100_000);
        let mut on = [None; 2];
        for step in 0..400u64 {
            let (at, cpu) = (Ns(step * pace), (step % 2) as usize);
            let next = [None, Some(TaskId(0)), Some(TaskId(1)), Some(TaskId(2))]
                [(step as usize * 7 / 3) % 4];
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
        own: vec![TaskId(2)],
    }
}

/// A page with every kind of part, all text of which is `text`.
pub(crate) fn page(text: &str) -> Page {
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
    page.waits(text, vec![wait(text)]);
    page.footer(text);
    let mut section = Section::new(text).lead(text);
    section.push(Part::Text(owned()));
    section.push(Part::List(vec![owned(), owned()]));
    section.push(Table {
        caption: owned(),
        columns: vec![Column::text(text), Column::number("number")],
        rows: [3.0, 1.0, 2.0]
            .map(|n| {
                vec![
                    Cell::head(text).swatch(2),
                    Cell::number(format!("{n}"), n).note(text, Tone::Good),
                ]
            })
            .to_vec(),
        fold: None,
    });
    let matrix = || Matrix {
        caption: owned(),
        rows_are: owned(),
        columns_are: owned(),
        rows: vec![owned(), owned()],
        columns: vec![owned(), owned()],
        times: vec![vec![Ns(5), Ns(5_000_000)], vec![Ns(0), Ns(70_000)]],
    };
    section.push(matrix());
    section.push(Choice { label: owned(), items: vec![(owned(), matrix()), (owned(), matrix())] });
    section.push(Code { title: owned(), text: owned() });
    let mut facts = Facts::default();
    facts.add(text, text);
    section.push(facts);
    page.push(section);
    let mut ladder = Section::new("Ladder");
    ladder.push(Ladders::of_measure(text, &measure(text)).unwrap());
    page.push(ladder);
    let mut charts = Section::new("Charts");
    charts.push(Cdf { title: owned(), measures: vec![measure(text), measure("Response")] });
    charts.push(Series {
        title: owned(),
        unit: owned(),
        about: owned(),
        from_ns: Ns(0),
        step_ns: Ns::from_ms(1),
        traces: vec![Trace {
            name: owned(),
            style: 1,
            values: (0..100).map(|i| f64::from(i % 7)).collect(),
        }],
    });
    charts.push(lanes([text, "client", "server"]));
    charts.push(sweep(text));
    page.push(charts);
    page
}

/// A wait of the lanes.
fn wait(text: &str) -> LaneWait {
    let (head, text) = (text.to_owned(), text.to_owned());
    LaneWait { run: 0, cpu: CpuId(0), from: Ns::from_us(10), to: Ns::from_us(90), head, text }
}

/// Four values of a setting, of which the last has no number.
pub(crate) fn sweep(name: &str) -> Sweep {
    let text = ["2.00 ms", "1.00 ms (−50 %, better)", "500 µs", "no value"].map(str::to_owned);
    Sweep {
        title: name.to_owned(),
        what: name.to_owned(),
        values: ["0", "5", "10", name].map(str::to_owned).to_vec(),
        lines: vec![SweepLine {
            name: name.to_owned(),
            scale: SweepScale::Time,
            at: vec![Some(2e6), Some(1e6), Some(5e5), None],
            between: vec![Some([1e6, 3e6]), Some([8e5, 2e6]), None, None],
            text: text.to_vec(),
        }],
    }
}

pub(crate) fn file(name: &str, html: &str) -> PathBuf {
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-page-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("page.html");
    std::fs::write(&file, html).unwrap();
    file
}

pub(crate) fn run(browser: &str, file: &std::path::Path, hash: &str, arguments: &[&str]) -> String {
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
    assert_eq!(dom.matches("data-widget=").count(), 6);
    assert_eq!(dom.matches("data-ready=\"yes\"").count(), 7, "the page and its six widgets");
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
        let (picture, window) =
            (format!("--screenshot={}", shot.display()), format!("--window-size={size}"));
        run(browser, &file, hash, &[&picture, &window]);
        let (width, all) = pixels(&shot);
        let count =
            |what: &dyn Fn(&[u8; 3]) -> bool| all.iter().filter(|pixel| what(pixel)).count();
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

/// Sixteen runs, wide tables, a folded section, CPUs on which nothing ran.
fn large() -> Page {
    let buckets = |scale: u64| (1..300).map(|i| (Ns(i * i * scale), 3_000 / i)).collect::<Vec<_>>();
    let curves = (0..16).map(|run| {
        Curve::of_buckets(&name_of_run(run), run + 1, &buckets(100 + 40 * run as u64)).unwrap()
    });
    let measure = Measure {
        name: "response time".to_owned(),
        about: "From the request to the answer.".to_owned(),
        curves: curves.collect(),
    };
    let mut page = Page::new("Redis beside a batch job");
    page.subtitle("redis-batch · 4 CPUs · HZ=250 · 10 s each · 5 seeds");
    page.verdict(
        "Run sysbench as SCHED_IDLE: clients' p99 falls from 9.70\u{a0}ms to 164\u{a0}µs, and \
         sysbench keeps 61 % of its CPU.",
        "Over 5 seeds, the range holds the median with 94 % confidence.",
    );
    let mut deploy = Section::new("Deploy it");
    deploy.push(Code {
        title: "now".to_owned(),
        text: "chrt --idle --all-tasks --pid 0 $(pidof sysbench)".to_owned(),
    });
    page.push(deploy);
    let mut ladder = Section::new("From the median to the maximum");
    ladder.push(Ladders::of_measure("clients", &measure).unwrap());
    page.push(ladder);
    let mut changes = Section::new("What changes");
    changes.push(wide_table());
    page.push(changes);
    let mut rest = Section::new("Distributions").folded();
    rest.push(Cdf { title: "clients".to_owned(), measures: vec![measure.clone()] });
    rest.push(Cdf { title: "sysbench".to_owned(), measures: vec![measure] });
    rest.push(wide_table());
    page.push(rest);
    let mut curve = Section::new("Over the values");
    curve.push(sweep("a task with a rather long name nice"));
    page.push(curve);
    let mut lanes = self::lanes(["redis-server", "client", "sysbench"]);
    lanes.runs = vec![with_idle_cpus()];
    let mut who = Section::new("Who ran when");
    who.push(lanes);
    page.push(who);
    page
}

/// Names a run: some names are long.
fn name_of_run(run: usize) -> String {
    match run % 3 {
        0 => format!("linux-6.18, batch idle {run}"),
        1 => format!("xen-credit2, a rather long name of a variant {run}"),
        _ => format!("run {run}"),
    }
}

/// A table of sixteen runs that is wider than a page.
fn wide_table() -> Table {
    let heads = [
        "requests/s",
        "response p50",
        "p95",
        "p99",
        "p99.5",
        "p99.9",
        "max",
        "CPU share",
        "switches/s",
        "wait p99",
    ];
    let row = |run: usize| {
        let cells = (0..heads.len()).map(|at| {
            Cell::number(format!("{}.{at}\u{a0}ms", 1000 + run), at as f64)
                .note("−98 % ± 3 %, better", Tone::Good)
        });
        std::iter::once(Cell::head(name_of_run(run)).swatch(run + 1)).chain(cells).collect()
    };
    Table {
        caption: "clients: what they see".to_owned(),
        columns: std::iter::once(Column::text("run")).chain(heads.map(Column::number)).collect(),
        rows: (0..16).map(row).collect(),
        fold: None,
    }
}

/// Sixteen CPUs, tasks on two of them.
fn with_idle_cpus() -> LaneRun {
    let mut recorder = LaneRecorder::new(16, Ns::ZERO, 1_000).idle_at_first();
    let mut on = [None; 2];
    for step in 0..100u64 {
        let cpu = (step % 2) as usize;
        let next = Some(TaskId((step % 3) as u32)).filter(|_| step % 5 > 0);
        let kind = EventKind::Switch { prev: on[cpu], prev_state: PrevState::Sleeping, next };
        recorder.event(&SchedEvent { at: Ns(step * 40_000), cpu: CpuId(cpu as u32), kind });
        on[cpu] = next;
    }
    recorder.finish("recorded", 0, Ns(4_000_000))
}

/// Opens every fold, waits for the charts, and writes what is wrong into the document.
const CHECK: &str = include_str!("check.js");

/// The attribute of the document's root that a check left there.
pub(crate) fn attribute<'a>(dom: &'a str, name: &str) -> &'a str {
    let head = &dom[..dom.find("<head").unwrap_or(dom.len())];
    head.split(&format!("data-{name}=\""))
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_default()
}

#[test]
fn nothing_is_wider_than_its_box_and_no_two_keys_look_alike() {
    let Some(browser) = browser() else { return };
    let html = with_script(&large(), CHECK);
    let file = file("sizes", &html);
    for (width, height) in [(360, 740), (390, 844), (800, 900), (1400, 1000), (1920, 1080)] {
        for theme in ["light", "dark"] {
            // A window is not narrower than 500 pixels; a frame is. It tells what it found.
            let frame = format!(
                "<!doctype html><html><head><script>addEventListener('message', (e) => \
                 Object.assign(document.documentElement.dataset, \
                 e.data))</script></head><body><iframe \
                 style=\"width:{width}px;height:{height}px\" \
                 src=\"page.html#theme={theme}\"></iframe></body></html>"
            );
            let outer = file.with_file_name("frame.html");
            std::fs::write(&outer, frame).unwrap();
            let dom = run(browser, &outer, "", &["--dump-dom", "--window-size=2000,1200"]);
            let head = &dom[..dom.len().min(600)];
            assert_eq!(attribute(&dom, "checked"), "yes", "{width} {theme}: {head}");
            assert_eq!(attribute(&dom, "errors"), "", "{width} {theme}");
            assert_eq!(attribute(&dom, "wrong"), "", "{width} {theme}");
            assert_eq!(attribute(&dom, "keys"), "16", "{width} {theme}");
            assert_eq!(attribute(&dom, "lines"), "16", "{width} {theme}");
            assert_eq!(attribute(&dom, "unused"), "14 of 16 CPUs ran no task and are not drawn.");
            assert_eq!(attribute(&dom, "width"), width.to_string());
        }
    }
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

/// The page with one more script, which its policy lets run.
pub(crate) fn with_script(page: &Page, script: &str) -> String {
    let html = page.render().unwrap();
    let nonce = html.split("nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
    html.replace("</body>", &format!("<script nonce=\"{nonce}\">{script}</script></body>"))
}
