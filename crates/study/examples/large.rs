//! Writes a large simulated recording: `large EVENTS FILE`. Eight servers with a client each and
//! four hogs on four CPUs under linux-6.18: wakeups, preemptions and migrations as a busy machine
//! has them.

use schedlab_model::{
    Amount, ChannelId, ChannelSpec, EventSink, Ns, Op, Program, SchedEvent, TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_trace::{Capabilities, Header, TaskInfo, Writer};

/// Passes the first so many events on.
struct First<S> {
    left: u64,
    last: Ns,
    sink: S,
}

impl<S: EventSink> EventSink for First<S> {
    fn event(&mut self, event: &SchedEvent) {
        if self.left > 0 {
            self.left -= 1;
            self.last = event.at;
            self.sink.event(event);
        }
    }
}

fn workload() -> Workload {
    let run = |us: u64| Op::Run(Amount::Fixed(Ns::from_us(us)));
    let mut workload = Workload::default();
    for pair in 0..8u32 {
        let (request, reply) = (ChannelId(2 * pair), ChannelId(2 * pair + 1));
        for (name, initial) in [("request", 1), ("reply", 0)] {
            workload.channels.push(ChannelSpec {
                name: format!("{name}{pair}"),
                initial,
                capacity: None,
            });
        }
        let serve = [
            Op::Receive(request),
            run(20 + u64::from(pair)),
            Op::Send { channel: reply, count: 1 },
        ];
        let ask =
            [Op::Receive(reply), run(7 + u64::from(pair)), Op::Send { channel: request, count: 1 }];
        workload.tasks.push(TaskSpec::new(format!("server{pair}"), Program::forever(serve)));
        workload.tasks.push(TaskSpec::new(format!("client{pair}"), Program::forever(ask)));
    }
    (0..4).for_each(|i| workload.tasks.push(TaskSpec::new(format!("hog{i}"), Program::hog())));
    workload
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [events, path] = &arguments[..] else { panic!("usage: large EVENTS FILE") };
    let events: u64 = events.parse().expect("EVENTS is a number");
    let (machine, workload) = (Machine::flat(4), workload());
    let tasks = workload.tasks.iter().enumerate();
    let header = Header {
        backend: "simulator".to_owned(),
        hz: machine.hz,
        topology: machine.topology.clone(),
        capabilities: Capabilities::simulator(),
        tasks: tasks
            .map(|(i, t)| TaskInfo::unknown(i as u32 + 1, i as u32 + 1, t.name.clone()))
            .collect(),
        ..Header::default()
    };
    let file = std::io::BufWriter::new(std::fs::File::create(path).expect("the file can be made"));
    let writer = Writer::new(file, &header).expect("the header can be written");
    let mut sink = First { left: events, last: Ns::ZERO, sink: writer };
    let scheduler =
        registry::build(&"linux-6.18".parse().expect("it exists"), 4).expect("it can be built");
    // More than enough: this workload makes over 100,000 events a second.
    let options = RunOptions::for_time(Ns(events * 10_000));
    schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut sink).expect("it runs");
    assert_eq!(sink.left, 0, "too few events");
    sink.sink.finish(sink.last).expect("the file can be written");
}
