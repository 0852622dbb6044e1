//! Guests of KVM beside each other: what their virtual CPUs lost, and to which.

use crate::common::{bytes, header, switch, wake};
use schedlab_model::{EventSink, GroupId, GroupSpec, Ns, PrevState, TaskId, Waker};
use schedlab_trace::analysis::blame::Culprit;
use schedlab_trace::analysis::steal::Steal;
use schedlab_trace::analysis::{Answer, Label, Scope, Summary};
use schedlab_trace::guests::Guests;
use schedlab_trace::import::{ImportOptions, read};
use schedlab_trace::{GroupInfo, Header, Recording};

const R: PrevState = PrevState::Runnable;
const S: PrevState = PrevState::Sleeping;

/// Tasks 0 and 1 are a virtual CPU and the emulator of the guest `web`, 2 one of `batch`, 3 runs on
/// the host.
fn of_host() -> Header {
    let mut header = header(1, 4);
    let group = |name: &str| GroupInfo {
        spec: GroupSpec {
            name: name.to_owned(),
            parent: (name != "/").then_some(GroupId::ROOT),
            ..GroupSpec::default()
        },
        ..GroupInfo::default()
    };
    header.groups = vec![group("/"), group("/web"), group("/batch")];
    for (task, (pid, group, vcpu)) in
        [(100, 1, true), (100, 1, false), (200, 2, true), (300, 0, false)].into_iter().enumerate()
    {
        let task = &mut header.tasks[task];
        (task.pid, task.group, task.vcpu, task.known) = (pid, GroupId(group), vcpu, true);
    }
    header
}

/// The virtual CPU of `web` waits 30 after an interrupt, 10 after a preemption, 5 for its own
/// emulator; that of `batch` 20 + 60, and from 300 on for ever.
fn beside_each_other() -> Recording {
    let events = [
        switch(0, 0, None, R, Some(2)),
        wake(100, 0, 0, Waker::HardIrq),
        switch(130, 0, Some(2), R, Some(0)),
        switch(150, 0, Some(0), R, Some(2)),
        switch(160, 0, Some(2), R, Some(0)),
        wake(175, 0, 1, Waker::Task(TaskId(0))),
        switch(200, 0, Some(0), R, Some(1)),
        switch(205, 0, Some(1), S, Some(0)),
        switch(210, 0, Some(0), S, Some(3)),
        switch(220, 0, Some(3), S, Some(2)),
        switch(300, 0, Some(2), R, Some(3)),
    ];
    Recording::from_parts(of_host(), events.to_vec(), Ns(400)).unwrap()
}

#[test]
fn what_a_guest_lost_is_laid_to_what_ran() {
    let recording = beside_each_other();
    let guests = Guests::of(&recording.header);
    let found = Steal::from_recording(&recording, &Scope::default(), &guests);
    let of = |name: &str| found.guests.iter().find(|guest| guest.name == name).unwrap();
    let label = |culprit: &Culprit| match culprit {
        Culprit::Line(line) => match &found.keys.labels[*line] {
            Label::Name(name) => name.clone(),
            Label::Task(task) => format!("{task:?}"),
        },
        other => format!("{other:?}"),
    };
    let by = |name: &str| -> Vec<(String, Ns)> {
        of(name).by.iter().map(|(who, time)| (label(who), *time)).collect()
    };
    assert_eq!((of("web").stolen, of("web").vcpus), (Ns(45), 1));
    assert_eq!(by("web"), [("batch".to_owned(), Ns(40)), ("web".to_owned(), Ns(5))]);
    assert_eq!((of("web").ran, of("web").emulated), (Ns(65), Ns(5)));
    // 130-150 and 160-220 behind web (its emulator too) and the host's task, then 300-400.
    assert_eq!(of("batch").stolen, Ns(180));
    assert_eq!(by("batch"), [("t3".to_owned(), Ns(110)), ("web".to_owned(), Ns(70))]);
    assert_eq!(found.guests[0].name, "batch", "that lost the larger part");
}

/// What the kernel adds to a thread's run_delay, and no other task's.
#[test]
fn a_summary_has_the_steal_time_of_virtual_cpus() {
    let recording = beside_each_other();
    let summary = Summary::from_recording(&recording).unwrap();
    let of: Vec<(Ns, u32)> = summary.tasks.iter().map(|task| (task.stolen, task.vcpus)).collect();
    assert_eq!(of, [(Ns(45), 1), (Ns::ZERO, 0), (Ns(180), 1), (Ns::ZERO, 0)]);
    // Window by window it adds up, wherever the cuts are.
    for cut in [110, 140, 155, 215, 350] {
        let mut whole = Summary::new(4, 1, Ns::ZERO).of_vcpus(&recording.header.vcpus());
        let mut sum = [Ns::ZERO; 4];
        let mut add = |tasks: Vec<schedlab_trace::analysis::TaskSummary>| {
            tasks.iter().zip(&mut sum).for_each(|(task, sum)| *sum += task.stolen);
        };
        let (before, after) =
            recording.events.split_at(recording.events.partition_point(|event| event.at < Ns(cut)));
        before.iter().for_each(|event| whole.event(event));
        add(whole.cut(Ns(cut)));
        after.iter().for_each(|event| whole.event(event));
        add(whole.cut(Ns(400)));
        assert_eq!(sum, [Ns(45), Ns::ZERO, Ns(180), Ns::ZERO], "cut at {cut}");
    }
}

#[test]
fn the_answer_of_a_host_is_about_its_guests() {
    let recording = beside_each_other();
    let said = |scope: &Scope| Answer::text(Answer::from_recording(&recording, scope).as_ref());
    let text = said(&Scope::default());
    assert!(
        text.starts_with(
            "Guest batch lost 45.0 % of the time of its 1 vCPU to steal, 61.1 % of it while t3 ran."
        ),
        "{text}"
    );
    let by_name = Scope { by: Some(schedlab_trace::analysis::By::Name), ..Scope::default() };
    assert!(said(&by_name).contains("waited"), "{}", said(&by_name));
}

#[test]
fn a_file_keeps_which_threads_run_virtual_cpus() {
    let recording = beside_each_other();
    let file = bytes(&recording.header, &recording.events, 400);
    let back = Recording::read(&file[..]).unwrap();
    assert_eq!(back.header.vcpus(), [true, false, true, false]);
    // A reader of 1.6 meets a field that it does not know, a recording of 1.6 has none.
    let text = serde_json::to_string(&back.header.tasks[1]).unwrap();
    assert!(!text.contains("vcpu"), "{text}");
}

/// `perf record -a -e sched:sched_switch,sched:sched_waking,kvm:kvm_vcpu_wakeup` beside two guests
/// of QEMU 7.2 (perf 6.1.187 on Linux 6.18), `perf script -F comm,pid,tid,cpu,time,event,trace`.
const PERF: &str = "\
qemu-system-x86 18021/18029 [001] 46968.228173:  sched:sched_switch: prev_comm=qemu-system-x86 prev_pid=18029 prev_prio=120 prev_state=S ==> next_comm=qemu-system-x86 next_pid=18038 next_prio=120
qemu-system-x86 18028/18038 [001] 46968.231307:  sched:sched_waking: comm=qemu-system-x86 pid=18029 prio=120 target_cpu=001
qemu-system-x86 18028/18038 [001] 46968.231320:  sched:sched_switch: prev_comm=qemu-system-x86 prev_pid=18038 prev_prio=120 prev_state=R ==> next_comm=qemu-system-x86 next_pid=18029 next_prio=120
qemu-system-x86 18021/18029 [001] 46968.231327: kvm:kvm_vcpu_wakeup: wait time 3156141 ns, polling valid
qemu-system-x86 18021/18029 [001] 46968.233506:  sched:sched_waking: comm=kvm-pit/18028 pid=18039 prio=120 target_cpu=000
qemu-system-x86 18021/18029 [001] 46968.233933:  sched:sched_switch: prev_comm=qemu-system-x86 prev_pid=18029 prev_prio=120 prev_state=S ==> next_comm=qemu-system-x86 next_pid=18037 next_prio=120
";

#[test]
fn perf_tells_virtual_cpus_by_the_events_of_kvm() {
    let imported = read(PERF.as_bytes(), ImportOptions::default()).unwrap();
    let tasks = &imported.recording.header.tasks;
    let vcpus: Vec<(u32, u32)> =
        tasks.iter().filter(|task| task.vcpu).map(|task| (task.tid, task.pid)).collect();
    assert_eq!(vcpus, [(18029, 18021)], "the others did not show that they are some");
    let without = PERF.replace("kvm:kvm_vcpu_wakeup", "kvm:kvm_apic");
    let imported = read(without.as_bytes(), ImportOptions::default()).unwrap();
    assert!(imported.recording.header.tasks.iter().all(|task| !task.vcpu));
}
