//! Pages of a part of a recording, of some of its tasks, and of the values of a setting.

use super::{Folder, Ran, schedlab};

/// Two tasks on one CPU: `srv` waits from 1 ms to 16.2 ms and from 17 ms to 18 ms, behind `hog`.
const PERF: &str = "\
 hog 10/10 [000] 100.000000000: sched:sched_switch: prev_comm=idle prev_pid=0 prev_prio=120 \
 prev_state=R ==> next_comm=hog next_pid=10 next_prio=120
 <idle> 0/0 [000] 100.001000000: sched:sched_waking: comm=srv pid=11 prio=120 target_cpu=000
 hog 10/10 [000] 100.016200000: sched:sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 \
 prev_state=R ==> next_comm=srv next_pid=11 next_prio=120
 srv 11/11 [000] 100.016800000: sched:sched_switch: prev_comm=srv prev_pid=11 prev_prio=120 \
 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120
 hog 10/10 [000] 100.017000000: sched:sched_waking: comm=srv pid=11 prio=120 target_cpu=000
 hog 10/10 [000] 100.018000000: sched:sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 \
 prev_state=R ==> next_comm=srv next_pid=11 next_prio=120
 srv 11/11 [000] 100.018500000: sched:sched_switch: prev_comm=srv prev_pid=11 prev_prio=120 \
 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120
";

/// `show` of the recording with these arguments, and the page.
fn page(folder: &Folder, arguments: &[&str]) -> (Ran, String) {
    let text = folder.write("perf.txt", PERF);
    let file = folder.0.join("page.html").display().to_string();
    let ran = schedlab(&[&["show", &text, "--report", &file][..], arguments].concat());
    let html = std::fs::read_to_string(&file).unwrap_or_default();
    (ran, html.replace('\u{a0}', " "))
}

#[test]
fn a_page_of_a_task_has_its_numbers_and_waits_only() {
    let folder = Folder::new("page-task");
    let (ran, html) = page(&folder, &["--task", "srv", "--around", "worst"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(html.contains("· only srv"), "what it is of");
    let link = "data-run=\"0\" data-cpu=\"0\" data-from=\"1000000\" data-to=\"16200000\"";
    assert!(html.contains(link) && html.contains(">srv[11] waited 15.2 ms</a>"), "its wait");
    assert!(html.contains("meanwhile: hog[10] 15.2 ms"), "and what ran meanwhile");
    assert!(html.contains("<th scope=row>srv</th>"), "its row");
    assert!(!html.contains("<th scope=row>hog"), "no row of another task");
    let (ran, html) = page(&folder, &[]);
    assert!(ran.code == 0 && html.contains("<th scope=row>hog"), "{ran:?}");
}

/// Waits of other tasks are not among those of the server, which has a lane of its own.
#[test]
fn a_page_for_a_server_has_its_waits_only() {
    let folder = Folder::new("page-server");
    let (ran, html) = page(&folder, &["--serve", "srv"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(html.contains("The longest waits of srv</h2>"), "whose waits");
    assert_eq!(html.matches("data-run=").count(), 2, "both of them and no other");
    assert!(!html.contains("\"own\":[]"), "its lane");
    let (ran, html) = page(&folder, &["--serve", "hog"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(html.contains("The longest waits of hog</h2>"), "it was preempted");
}

#[test]
fn a_page_of_a_part_says_which() {
    let folder = Folder::new("page-part");
    let (ran, html) = page(&folder, &["--task", "srv", "--from", "16.9ms", "--to", "18.2ms"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(html.contains("1.30 ms from 16.9 ms on · only srv"), "the part");
    assert!(html.contains("srv[11] waited 1.00 ms") && !html.contains("waited 15.2"), "its wait");
}

/// The part around a moment is that of the text, too.
#[test]
fn around_takes_moments_and_waits_and_refuses_what_is_not_there() {
    let folder = Folder::new("page-around");
    let text = folder.write("perf.txt", PERF);
    let ran = schedlab(&["show", &text, "--worst", "2", "--task", "srv", "--around", "worst:2"]);
    assert!(ran.code == 0 && ran.stdout.contains("waited 1.000 ms"), "{ran:?}");
    for (arguments, said) in [
        (["--around", "5s"], "the recording is only"),
        (["--around", "worst:99"], "waits for a CPU"),
        (["--around", "best"], "give a time since the start"),
    ] {
        let ran = schedlab(&[&["show", &text][..], &arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(said), "{arguments:?}: {ran:?}");
    }
    let (ran, html) = page(&folder, &["--around", "worst", "--from", "1ms"]);
    assert!(ran.code == 2 && html.is_empty(), "{ran:?}");
    let (ran, html) = page(&folder, &["--cpu", "0"]);
    assert!(ran.code == 2 && html.is_empty(), "{ran:?}");
}

#[test]
fn a_scan_is_a_curve_on_the_page() {
    let folder = Folder::new("page-scan");
    let file = folder.0.join("page.html").display().to_string();
    let scan = ["--scan", "yes-1 nice=0,5", "--for", "1500ms", "--seeds", "1", "--report", &file];
    let ran = schedlab(&[&["compare", "two-hogs"][..], &scan].concat());
    assert!(matches!(ran.code, 0 | 1), "{ran:?}");
    let html = std::fs::read_to_string(&file).unwrap();
    assert!(html.contains("data-widget=\"sweep\"") && html.contains("max=\"1\""));
    assert!(html.contains("\"what\":\"yes-1 nice\",\"values\":[\"0\",\"5\"]"));
    let plain = schedlab(&["compare", "two-hogs", "--for", "1500ms", "--report", &file]);
    assert!(matches!(plain.code, 0 | 1), "{plain:?}");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("data-widget=\"sweep\""));
}
