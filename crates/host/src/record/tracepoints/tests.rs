//! The decoder against records made by hand, in the layout of Linux 6.18.

use super::*;

const COMMON: &str = "field:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
field:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
field:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
const PRINT: &str = r#"print fmt: "%s", __print_flags(x, "|", { 0x00000001, "S" }, { 0x00000002, "D" },
 { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, { 0x00000020, "Z" }, { 0x00000040, "P" },
 { 0x00000080, "I" })"#;

fn point(id: u64, fields: &str) -> Tracepoint {
    let print = PRINT.replace('\n', "");
    Tracepoint::parse(&format!("ID: {id}\n{COMMON}{fields}{print}\n")).unwrap()
}

const SWITCH: usize = 0;
const WAKING: usize = 1;
const SOFTIRQ: usize = 2;
const IRQ_EXIT: usize = 3;
const KSOFTIRQD: u32 = 20;

/// A decoder whose events have the perf ids 100 + index, on a kernel whose tracing holds one level.
fn decoder() -> Decoder {
    let switch = point(
        1,
        "field:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
field:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
field:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
field:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
field:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
field:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n",
    );
    let waking = point(
        2,
        "field:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
field:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n",
    );
    let marker = point(3, "");
    let common = common(&marker).unwrap();
    let waking_layout = Layout::Waking {
        common,
        tid: waking.field("pid").unwrap(),
        comm: waking.field("comm").unwrap(),
    };
    let points = Tracepoints {
        points: vec![
            (1, switch_layout(&switch).unwrap()),
            (2, waking_layout),
            (3, Layout::Softirq { common }),
            (4, Layout::IrqExit { common }),
        ],
        states: StateBits::parse(&switch.print),
        own_levels: 1,
        softirq_threads: vec![KSOFTIRQD],
        wake_rule: "test",
        idle_seen: CpuSet::ALL,
        take_switches: false,
    };
    Decoder::new(points, (0..4).map(|index| (100 + index as u64, index)).collect())
}

fn raw(flags: u8, levels: u8, pid: u32) -> Vec<u8> {
    let mut raw = vec![0; 64];
    raw[2] = flags;
    raw[3] = levels;
    raw[4..8].copy_from_slice(&pid.to_ne_bytes());
    raw
}

fn sample(decoder: &mut Decoder, at: u64, index: usize, raw: &[u8]) -> Option<RawKind> {
    let mut body = Vec::new();
    body.extend((100 + index as u64).to_ne_bytes());
    body.extend(at.to_ne_bytes());
    body.extend((raw.len() as u32).to_ne_bytes());
    body.extend(raw);
    let event = decoder.record(Record { kind: abi::PERF_RECORD_SAMPLE, misc: 0, body: &body })?;
    assert_eq!(event.at, at);
    Some(event.kind)
}

fn wake(decoder: &mut Decoder, at: u64, flags: i64, current: u32) -> Context {
    let mut raw = raw(flags as u8, 3, current);
    raw[24..28].copy_from_slice(&7u32.to_ne_bytes());
    match sample(decoder, at, WAKING, &raw) {
        Some(RawKind::Wake { tid: 7, context, .. }) => context,
        other => panic!("{other:?}"),
    }
}

fn switch(decoder: &mut Decoder, at: u64, prev: u32, state: u64, next: u32) -> PrevState {
    let mut raw = raw(0, 2, prev);
    raw[24..28].copy_from_slice(&prev.to_ne_bytes());
    raw[32..40].copy_from_slice(&state.to_ne_bytes());
    raw[56..60].copy_from_slice(&next.to_ne_bytes());
    match sample(decoder, at, SWITCH, &raw) {
        Some(RawKind::Switch { prev: p, next: n, prev_state, .. }) if (p, n) == (prev, next) => {
            prev_state
        }
        other => panic!("{other:?}"),
    }
}

/// The context of a wakeup in a softirq that began at 10 us with `levels` while `current` ran.
fn softirq(prepare: impl FnOnce(&mut Decoder), levels: u8, current: u32) -> Context {
    let mut decoder = decoder();
    prepare(&mut decoder);
    assert_eq!(sample(&mut decoder, 10_000, SOFTIRQ, &raw(0, levels, current)), None);
    wake(&mut decoder, 10_500, FLAG_SOFTIRQ, current)
}

fn irq_exit(at: u64, levels: u8) -> impl FnOnce(&mut Decoder) {
    move |decoder| assert_eq!(sample(decoder, at, IRQ_EXIT, &raw(8, levels, 5)), None)
}

#[test]
fn a_softirq_inside_a_system_call_names_its_task() {
    assert_eq!(softirq(|_| (), 2, 5), Context::Inline(5));
    // The last interrupt was long ago.
    assert_eq!(softirq(irq_exit(1_000, 1), 2, 5), Context::Inline(5));
    // An interrupt has just hit user space, where nothing is held; the level was taken since.
    assert_eq!(softirq(irq_exit(9_500, 1), 2, 5), Context::Inline(5));
}

#[test]
fn a_softirq_at_the_exit_of_an_interrupt_is_the_outside() {
    assert_eq!(
        softirq(|_| (), 1, 5),
        Context::SoftIrq,
        "nothing was held: user space was interrupted"
    );
    assert_eq!(
        softirq(irq_exit(9_500, 2), 2, 5),
        Context::SoftIrq,
        "a kernel section was interrupted"
    );
    assert_eq!(softirq(|_| (), 2, 0), Context::SoftIrq, "the idle task");
    assert_eq!(softirq(|_| (), 2, KSOFTIRQD), Context::SoftIrq);
}

#[test]
fn what_happens_after_an_interrupt_cuts_the_tie() {
    let switched = |decoder: &mut Decoder| {
        irq_exit(9_000, 2)(decoder);
        switch(decoder, 9_500, 0, 0, 5);
    };
    assert_eq!(softirq(switched, 2, 5), Context::Inline(5));
}

#[test]
fn tasks_and_interrupts_wake_in_their_own_name() {
    let mut decoder = decoder();
    assert_eq!(wake(&mut decoder, 1, 0, 5), Context::Task(5));
    assert_eq!(wake(&mut decoder, 2, FLAG_HARDIRQ, 5), Context::HardIrq);
    assert_eq!(wake(&mut decoder, 3, FLAG_HARDIRQ | FLAG_SOFTIRQ, 5), Context::HardIrq);
    assert_eq!(
        wake(&mut decoder, 4, 0, 0),
        Context::HardIrq,
        "the idle task has no will of its own"
    );
    assert_eq!(
        wake(&mut decoder, 5, FLAG_SOFTIRQ, 5),
        Context::Unknown,
        "the softirq's entry was not seen"
    );
}

#[test]
fn after_a_loss_the_context_is_unknown() {
    let mut decoder = decoder();
    sample(&mut decoder, 1, SOFTIRQ, &raw(0, 2, 5));
    assert_eq!(wake(&mut decoder, 2, FLAG_SOFTIRQ, 5), Context::Inline(5));
    let mut body = Vec::new();
    body.extend(100u64.to_ne_bytes());
    body.extend(42u64.to_ne_bytes());
    let lost =
        decoder.record(Record { kind: abi::PERF_RECORD_LOST, misc: 0, body: &body }).unwrap();
    assert_eq!(lost.kind, RawKind::Lost { count: 42 });
    assert_eq!(wake(&mut decoder, 3, FLAG_SOFTIRQ, 5), Context::Unknown);
}

#[test]
fn states_are_read_from_the_print_format() {
    let mut decoder = decoder();
    for (bits, state) in [
        (0, PrevState::Runnable),
        (0x100, PrevState::RunnableInKernel),
        (1, PrevState::Sleeping),
        (2, PrevState::DiskSleep),
        (4, PrevState::Stopped),
        (0x10, PrevState::Dead),
        (0x20, PrevState::Dead),
        (0x80, PrevState::Sleeping),
    ] {
        assert_eq!(switch(&mut decoder, bits, 5, bits, 6), state, "{bits:#x}");
    }
}

#[test]
fn an_in_record_fills_in_for_a_task_that_leaves_no_trace() {
    let mut decoder = decoder();
    switch(&mut decoder, 10, 5, 1, 0);
    let in_record = |decoder: &mut Decoder, from: u32, to: u32| {
        let mut body = Vec::new();
        [from, from, to, to].iter().for_each(|n| body.extend(n.to_ne_bytes()));
        body.extend(20u64.to_ne_bytes());
        body.extend(1u64.to_ne_bytes());
        decoder.record(Record { kind: abi::PERF_RECORD_SWITCH_CPU_WIDE, misc: 0, body: &body })
    };
    // 0 -> 5 was not reported by the tracepoint.
    let filled = in_record(&mut decoder, 0, 5).unwrap();
    assert!(
        matches!(filled, RawEvent { at: 20, kind: RawKind::Switch { prev: 0, next: 5, .. } }),
        "{filled:?}"
    );
    assert_eq!(in_record(&mut decoder, 0, 5), None, "it is known now");
    switch(&mut decoder, 30, 5, 0, 6);
    assert_eq!(in_record(&mut decoder, 5, 6), None, "the tracepoint has told");
    switch(&mut decoder, 40, 6, 0x10, 7);
    assert_eq!(
        in_record(&mut decoder, 0, 0),
        None,
        "7 is nearly gone: it has lost its number, and runs"
    );
    assert_eq!(in_record(&mut decoder, 0, u32::MAX), None, "the same");
}

#[test]
fn short_or_strange_records_are_ignored() {
    let mut decoder = decoder();
    for length in 0..40 {
        let body = vec![0xff; length];
        for kind in
            [abi::PERF_RECORD_SAMPLE, abi::PERF_RECORD_LOST, abi::PERF_RECORD_SWITCH_CPU_WIDE, 77]
        {
            let _ = decoder.record(Record { kind, misc: 0, body: &body });
        }
        assert_eq!(sample(&mut decoder, 1, WAKING, &raw(0, 0, 5)[..length.min(27)]), None);
    }
}
