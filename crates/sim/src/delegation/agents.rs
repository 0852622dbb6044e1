//! The agents: what each does, one step after the other, and how long that takes.

use super::agent_view::AgentView;
use super::kernel::{Kernel, Message, Order, What};
use super::{AgentMetrics, DelegationCosts, Mode};
use crate::engine::{Engine, Step};
use schedlab_model::{CpuId, EventSink, Ns};
use std::collections::VecDeque;

/// Transactions may fail so often in one instant before agents wait a little.
const RETRIES: u32 = 100;
/// How long they wait then, ns.
const RETRY: u64 = 1_000;

/// What an agent does.
#[derive(Debug)]
enum Doing {
    /// A sleeping agent: nothing. A spinning one: it polls.
    Nothing,
    /// It is being woken and switched in.
    Wakes,
    Reads(Message),
    Calls(CpuId, u64),
    Commits(Vec<Order>),
    /// Nothing changed: back to the task that ran.
    Returns,
}

#[derive(Debug)]
struct Agent {
    cpu: usize,
    queue: VecDeque<Message>,
    doing: Doing,
    began: u64,
    until: u64,
    /// It is switched in (a spinning one always is).
    awake: bool,
    /// Another agent pings it: it wakes then.
    pinged: Option<u64>,
    /// Time that an earlier step turned out to have taken.
    owes: u64,
    counted: AgentMetrics,
}

/// All agents of an enclave.
pub(super) struct Agents<'a> {
    mode: Mode,
    costs: DelegationCosts,
    group: usize,
    agents: Vec<Agent>,
    /// The agent of each CPU of the machine.
    of_cpu: Vec<usize>,
    /// The other threads of the core of each agent.
    siblings: Vec<Vec<usize>>,
    /// Interrupts on their way: when and where.
    flights: VecDeque<(u64, usize)>,
    pub(super) view: AgentView<'a>,
    pub(super) stopped: bool,
    /// Transactions that failed in one instant, or right after the wait for that: when last, and
    /// how many.
    failures: (u64, u32),
    /// Since when the CPU time of spinning agents is not counted yet.
    spun_from: u64,
}

impl<'a> Agents<'a> {
    pub(super) fn new(
        mode: Mode,
        costs: DelegationCosts,
        group: u32,
        topology: &schedlab_model::Topology,
        view: AgentView<'a>,
    ) -> Agents<'a> {
        let cpus = topology.cpus();
        let own: Vec<usize> = match mode {
            Mode::PerCpu => (0..cpus).collect(),
            Mode::Global(cpu) => vec![cpu.index()],
        };
        let agent = |&cpu: &usize| Agent {
            cpu,
            queue: VecDeque::new(),
            doing: Doing::Nothing,
            began: 0,
            until: u64::MAX,
            awake: matches!(mode, Mode::Global(_)),
            pinged: None,
            owes: 0,
            counted: AgentMetrics {
                cpu: CpuId(cpu as u32),
                cpu_ns: Ns::ZERO,
                busy_ns: Ns::ZERO,
                activations: 0,
            },
        };
        let places = topology.places();
        let sibling = |&cpu: &usize| {
            (0..cpus)
                .filter(|other| *other != cpu && places[*other].core == places[cpu].core)
                .collect()
        };
        Agents {
            mode,
            costs,
            group: group.max(1) as usize,
            of_cpu: match mode {
                Mode::PerCpu => (0..cpus).collect(),
                Mode::Global(_) => vec![0; cpus],
            },
            siblings: own.iter().map(sibling).collect(),
            agents: own.iter().map(agent).collect(),
            flights: VecDeque::new(),
            view,
            stopped: false,
            failures: (0, 0),
            spun_from: 0,
        }
    }

    fn spins(&self) -> bool {
        matches!(self.mode, Mode::Global(_))
    }

    /// Returns when the next thing of the agents happens.
    pub(super) fn next_at(&self, now: u64) -> u64 {
        if self.stopped {
            return u64::MAX;
        }
        let own = |agent: &Agent| {
            let unread = agent.queue.front().filter(|message| !self.view.holds_up(message));
            let reads = unread.map_or(u64::MAX, |message| message.visible.max(now));
            let idle = if matches!(agent.doing, Doing::Nothing) { reads } else { agent.until };
            idle.min(agent.pinged.filter(|_| !agent.awake).unwrap_or(u64::MAX))
        };
        let agents = self.agents.iter().map(own).min().unwrap_or(u64::MAX);
        let flight = self.flights.front().map_or(u64::MAX, |(at, _)| *at);
        agents.min(flight).min(self.view.next_at())
    }

    /// The agents stop for good.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.agents.iter_mut().for_each(|agent| agent.queue.clear());
        self.flights.clear();
    }

    /// Puts new messages into the queues.
    pub(super) fn deliver(&mut self, messages: &mut Vec<Message>) {
        for message in messages.drain(..).filter(|_| !self.stopped) {
            self.agents[self.of_cpu[message.home.index()]].queue.push_back(message);
        }
    }

    /// Returns whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        let rests = |agent: &Agent| matches!(agent.doing, Doing::Nothing) && agent.queue.is_empty();
        self.agents.iter().all(rests) && self.flights.is_empty() && self.view.is_quiet()
    }

    /// Moves what was counted up to `now` into the metrics.
    pub(super) fn settle(&mut self, now: u64, into: &mut Vec<AgentMetrics>) {
        let spun = now - std::mem::replace(&mut self.spun_from, now);
        let spins = self.spins();
        for agent in &mut self.agents {
            if spins && !self.stopped {
                agent.counted.cpu_ns += Ns(spun);
            }
        }
        if into.is_empty() {
            into.extend(self.agents.iter().map(|agent| AgentMetrics {
                cpu_ns: Ns::ZERO,
                busy_ns: Ns::ZERO,
                activations: 0,
                ..agent.counted.clone()
            }));
        }
        for (agent, into) in self.agents.iter_mut().zip(into) {
            into.cpu_ns += std::mem::take(&mut agent.counted.cpu_ns);
            into.busy_ns += std::mem::take(&mut agent.counted.busy_ns);
            into.activations += std::mem::take(&mut agent.counted.activations);
        }
    }
}

/// What happens, with the engine.
impl<'a> Agents<'a> {
    /// Serves one thing that is due now; returns whether there was one.
    pub(super) fn step<S: EventSink>(
        &mut self,
        engine: &mut Engine<'_, S, false>,
        kernel: &Kernel<'_>,
    ) -> Step<bool> {
        let now = engine.time();
        if self.stopped {
            return Ok(false);
        }
        if let Some((_, cpu)) = self.flights.pop_front_if(|(at, _)| *at <= now) {
            engine.ask_cpu(cpu);
            return Ok(true);
        }
        if let Some((at, alarm, cpu)) = self.view.take_due(now) {
            let cpu = self.view.outer(cpu);
            let agent = &mut self.agents[self.of_cpu[cpu.index()]];
            agent.queue.push_back(Message {
                posted: at,
                visible: now,
                cpu,
                home: cpu,
                what: What::Alarm(alarm),
            });
            return Ok(true);
        }
        for a in 0..self.agents.len() {
            if !matches!(self.agents[a].doing, Doing::Nothing) && self.agents[a].until <= now {
                self.finish(a, engine, kernel)?;
                self.ping_others(a, now);
                return Ok(true);
            }
        }
        for a in 0..self.agents.len() {
            if matches!(self.agents[a].doing, Doing::Nothing) && self.begin(a, engine)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn reads_now(&self, a: usize, now: u64) -> bool {
        let front = self.agents[a].queue.front();
        front.is_some_and(|message| message.visible <= now && !self.view.holds_up(message))
    }

    /// Begins the next thing that agent `a` does; false: there is none.
    fn begin<S: EventSink>(&mut self, a: usize, engine: &mut Engine<'_, S, false>) -> Step<bool> {
        let now = engine.time();
        let cpu = self.agents[a].cpu;
        if !self.agents[a].awake {
            let pinged = self.agents[a].pinged.is_some_and(|at| at <= now);
            if pinged || self.reads_now(a, now) {
                self.wake(a, engine);
                return Ok(true);
            }
            return Ok(false);
        }
        if self.reads_now(a, now)
            && let Some(message) = self.agents[a].queue.pop_front()
        {
            let cost = self.costs.msg_consume_ns.0;
            self.start(a, engine, Doing::Reads(message), cost);
            return Ok(true);
        }
        let own = (!self.spins()).then_some(cpu);
        if let Some((on, cookie)) = self.view.take_call(own) {
            self.start(a, engine, Doing::Calls(on, cookie), 0);
            return Ok(true);
        }
        if let Some(orders) = self.decide(own, engine)? {
            let cost = self.commit_cost(a, &orders, engine);
            self.start(a, engine, Doing::Commits(orders), cost);
            return Ok(true);
        }
        if self.spins() {
            return Ok(false);
        }
        self.start(a, engine, Doing::Returns, self.costs.ctx_switch_ns.0);
        Ok(true)
    }

    /// Returns decisions for the CPUs that need one, up to a group; `None`: no CPU has to do
    /// anything else.
    fn decide<S: EventSink>(
        &mut self,
        own: Option<usize>,
        engine: &mut Engine<'_, S, false>,
    ) -> Step<Option<Vec<Order>>> {
        let now = engine.time();
        let mut orders: Vec<Order> = Vec::new();
        while orders.len() < self.group {
            let Some(cpu) = self.view.next_ask(own) else { break };
            // A CPU has one transaction at a time. Deciding for it again waits for the commit:
            // otherwise tasks that the scheduler lets change places would be decided for again and
            // again, and no time would pass.
            let outer = self.view.outer(cpu);
            if orders.iter().any(|order| order.cpu == outer) {
                break;
            }
            self.view.take_ask(cpu);
            orders.extend(self.view.decide(now, cpu, |task| engine.run_time(task))?);
        }
        Ok((!orders.is_empty()).then_some(orders))
    }

    fn commit_cost<S: EventSink>(
        &self,
        a: usize,
        orders: &[Order],
        engine: &Engine<'_, S, false>,
    ) -> u64 {
        let costs = &self.costs;
        if !self.spins() {
            return (costs.syscall_ns + costs.txn_local_ns).0;
        }
        let places = engine.topology().places();
        let node = places[self.agents[a].cpu].node;
        let far =
            orders.iter().filter(|order| places[order.cpu.index()].node != node).count() as u64;
        let each = costs.txn_remote_ns * orders.len() as u64 + costs.txn_node_ns * far;
        (costs.syscall_ns + costs.ipi_send_ns + each).0
    }

    /// A sleeping agent is woken and takes its CPU from the task there.
    fn wake<S: EventSink>(&mut self, a: usize, engine: &mut Engine<'_, S, false>) {
        let cpu = self.agents[a].cpu;
        let waits = engine.free_at(cpu) - engine.time();
        let costs = &self.costs;
        let mut cost = costs.agent_wake_ns + costs.ctx_switch_ns;
        if engine.occupant(cpu).is_some() {
            // The message that its task was preempted: written and read at once.
            cost += costs.msg_produce_ns + costs.msg_consume_ns;
        }
        let agent = &mut self.agents[a];
        (agent.awake, agent.pinged) = (true, None);
        agent.counted.activations += 1;
        self.start(a, engine, Doing::Wakes, cost.0);
        self.agents[a].until += waits;
    }

    fn start<S: EventSink>(
        &mut self,
        a: usize,
        engine: &mut Engine<'_, S, false>,
        doing: Doing,
        cost: u64,
    ) {
        let shared = self.siblings[a].iter().any(|cpu| engine.occupant(*cpu).is_some());
        let agent = &mut self.agents[a];
        let mut cost = cost + std::mem::take(&mut agent.owes);
        if shared {
            cost += cost * self.costs.smt_ns.0 / 1_000;
        }
        agent.doing = doing;
        agent.began = engine.time();
        agent.until = agent.began + cost;
        agent.counted.busy_ns += Ns(cost);
        if matches!(self.mode, Mode::PerCpu) {
            agent.counted.cpu_ns += Ns(cost);
            engine.occupy(agent.cpu, cost);
        }
    }

    fn finish<S: EventSink>(
        &mut self,
        a: usize,
        engine: &mut Engine<'_, S, false>,
        kernel: &Kernel<'_>,
    ) -> Step {
        let now = engine.time();
        let agent = &mut self.agents[a];
        let began = agent.began;
        agent.until = u64::MAX;
        match std::mem::replace(&mut agent.doing, Doing::Nothing) {
            Doing::Nothing | Doing::Wakes => {}
            Doing::Reads(message) => {
                self.view.read(now, &message)?;
                let told = !matches!(message.what, What::Alarm(_));
                kernel.measure(|metrics| {
                    metrics.messages += 1;
                    if told {
                        metrics.delivery.record(Ns(now - message.posted));
                    }
                });
            }
            Doing::Calls(cpu, cookie) => self.view.run_call(now, (cpu, cookie))?,
            Doing::Commits(orders) => self.commit(a, began, &orders, engine, kernel),
            Doing::Returns => self.rest(a, engine),
        }
        let (calls, work) = self.view.take_work();
        self.agents[a].owes +=
            self.costs.policy_call_ns.0 * calls + self.costs.policy_work_ns.0 * work;
        for (task, throttled) in self.view.take_throttles() {
            engine.set_throttled(task, throttled)?;
        }
        Ok(())
    }

    fn commit<S: EventSink>(
        &mut self,
        a: usize,
        began: u64,
        orders: &[Order],
        engine: &mut Engine<'_, S, false>,
        kernel: &Kernel<'_>,
    ) {
        let (now, local) = (engine.time(), !self.spins());
        // Messages about other CPUs' tasks do not invalidate what an agent knows of its own CPU,
        // but ghOSt's barrier does not ask which task a message is about.
        let unread =
            local && self.agents[a].queue.front().is_some_and(|message| message.visible <= now);
        let cx = engine.context(self.agents[a].cpu);
        let results = kernel.commit(&cx, orders, local, began, unread);
        for (order, result) in orders.iter().zip(results) {
            match result {
                Err(why) => {
                    self.view.failed(order, why);
                    self.agents[a].owes += self.patience(now);
                }
                Ok(()) => {
                    self.view.committed(order);
                    if !local {
                        self.flights
                            .push_back((now + self.costs.ipi_flight_ns.0, order.cpu.index()));
                    } else {
                        self.rest(a, engine);
                        engine.ask_cpu(order.cpu.index());
                    }
                }
            }
        }
    }

    /// Returns how long an agent waits before it tries again what failed. Only agents whose work
    /// costs nothing wait: without it they would try for ever in one instant, while the task that
    /// they want is in the kernel on a CPU that it cannot leave yet. What fails right after such a
    /// wait counts on: a task that stays in the kernel for milliseconds is asked for once in a
    /// microsecond, not a hundred times.
    fn patience(&mut self, now: u64) -> u64 {
        let (at, count) = &mut self.failures;
        let goes_on = *at == now || *count > RETRIES && now <= *at + RETRY;
        *count = if goes_on { count.saturating_add(1) } else { 1 };
        *at = now;
        if *count > RETRIES { RETRY } else { 0 }
    }

    /// The agent goes to sleep.
    fn rest<S: EventSink>(&mut self, a: usize, engine: &mut Engine<'_, S, false>) {
        self.agents[a].awake = false;
        engine.vacate(self.agents[a].cpu);
    }

    /// Pings the sleeping agents of CPUs that agent `a` made decide.
    fn ping_others(&mut self, a: usize, now: u64) {
        if self.spins() {
            return;
        }
        let costs = &self.costs;
        let send = (costs.syscall_ns + costs.ipi_send_ns).0;
        for cpu in self.view.asks().collect::<Vec<_>>() {
            let other = self.of_cpu[self.view.outer(cpu).index()];
            let agent = &mut self.agents[other];
            if other == a && agent.awake || agent.pinged.is_some() {
                continue;
            }
            if other == a {
                agent.pinged = Some(now);
            } else {
                agent.pinged = Some(now + send + costs.ipi_flight_ns.0);
                if !agent.awake {
                    self.agents[a].owes += send;
                }
            }
        }
    }
}
