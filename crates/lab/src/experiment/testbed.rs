//! What an experiment runs on: the CPUs, a control group of its own, networks, and the way back.
//!
//! Nothing of it outlives the process. Programs and what they start have a holder that ends them
//! ([`schedlab_host::program`]), namespaces and the devices in them with the processes inside,
//! recordings are files without a name, and the control group is in the journal of a [`Keeper`],
//! whose guardian removes it when this process is killed. No sysctl is changed.

use super::plan::{ExperimentError, ExperimentKind, ExperimentPlan, Network};
use super::prices::Prices;
use schedlab_host::program::{Program, Running};
use schedlab_host::threads::Scheduling;
use schedlab_host::{MachineFacts, program, program::Network as Net};
use schedlab_live::restore::{OWN_GROUP, Report};
use schedlab_live::{Keeper, KeeperOptions};
use schedlab_model::{CpuId, CpuSet, Nice, Policy};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Above server (1) and client (2), so that the guardian can put everything back whatever they do.
const GUARDIAN_PRIORITY: u8 = 3;
/// How long a program has to come up, or to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a program may take to end after it was asked.
const FAREWELL: Duration = Duration::from_millis(300);

/// The testbed of an experiment.
pub(super) struct Testbed<'a> {
    // Dropped in this order: the processes in the group end before it.
    holders: Vec<Running>,
    keeper: Option<Keeper>,
    group: Option<PathBuf>,
    pub(super) machine: MachineFacts,
    /// What the machine's own work costs in the simulator.
    pub(super) prices: Prices,
    /// The CPU of the measured programs.
    pub(super) cpu: CpuId,
    /// The CPUs of client, recorder and schedlab.
    pub(super) others: CpuSet,
    pub(super) notes: Vec<String>,
    pub(super) stop: &'a dyn Fn() -> bool,
    program: PathBuf,
}

/// Returns a policy and a nice value for a program.
pub(super) fn scheduling(policy: Policy, nice: i8) -> Scheduling {
    Scheduling {
        policy,
        nice: Nice::new(nice).unwrap_or_default(),
        slice: None,
        reset_on_fork: false,
        ext: false,
    }
}

impl<'a> Testbed<'a> {
    /// Sets the testbed up.
    pub(super) fn open(
        kind: ExperimentKind,
        plan: &ExperimentPlan,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Testbed<'a>, ExperimentError> {
        let machine = schedlab_host::machine();
        let allowed = schedlab_host::threads::affinity(0)
            .map_or(machine.online, |own| own.and(&machine.online));
        let Some(cpu) = allowed.lowest().filter(|_| allowed.count() > 1) else {
            return Err(ExperimentError::Input(format!(
                "an experiment needs two CPUs, one for the measured programs and one for client \
                 and recorder; this process may \
                 use {allowed}"
            )));
        };
        let prices = Prices::choose(plan.costs.as_deref(), &machine)?;
        let keeper = Keeper::start(&KeeperOptions {
            run_dir: plan.run_dir.clone(),
            purpose: format!("experiment {}", kind.name()),
            program: plan.program.clone(),
            silence: None,
            priority: Some(GUARDIAN_PRIORITY),
            starve: None,
        })?;
        let mut testbed = Testbed {
            holders: Vec::new(),
            keeper: Some(keeper),
            group: None,
            cpu,
            others: allowed.without(&CpuSet::single(cpu)),
            notes: Vec::new(),
            stop,
            program: plan.program.clone(),
            machine,
            prices,
        };
        testbed.describe();
        if plan.shield {
            testbed.make_group();
        } else {
            testbed.notes.push(
                "no control group of its own (--no-shield): other work has its full share"
                    .to_owned(),
            );
        }
        Ok(testbed)
    }

    fn describe(&mut self) {
        let machine = &self.machine;
        let virtual_machine = if machine.virtual_machine { ", virtual" } else { "" };
        let text = format!(
            "Linux {} HZ={}, {} CPUs{virtual_machine}, {}; measured on CPU {}, client and \
             recorder on {}",
            machine.kernel,
            machine.hz,
            machine.online.count(),
            machine.model,
            self.cpu.0,
            self.others
        );
        self.notes.push(text);
    }

    /// Makes a control group with the greatest weight.
    fn make_group(&mut self) {
        let made = controller().ok_or_else(|| "no CPU controller is mounted".to_owned()).and_then(
            |(root, file, weight)| {
                let group = root.join(format!("{OWN_GROUP}{}", std::process::id()));
                let keeper = self.keeper.as_mut().ok_or("no keeper")?;
                keeper.make_group(&group).map_err(|error| error.to_string())?;
                std::fs::write(group.join(file), weight).map_err(|error| error.to_string())?;
                Ok((group, file, weight))
            },
        );
        match made {
            Ok((group, file, weight)) => {
                let path = group.display();
                self.notes.push(format!(
                    "all programs in one control group of their own, {path} ({file} {weight}): \
                     policies and nice values \
                     count among them, and other work gets a small share"
                ));
                self.group = Some(group);
            }
            Err(why) => self.notes.push(format!(
                "no control group of their own ({why}): other work takes its share, and the \
                 programs are in the \
                 autogroup of this session"
            )),
        }
    }

    /// Starts a program on the measured CPU.
    pub(super) fn start(
        &self,
        words: &[&str],
        how: Scheduling,
    ) -> Result<Running, ExperimentError> {
        self.launch(
            Program { cpus: Some(CpuSet::single(self.cpu)), ..Program::new(words.iter().copied()) },
            how,
        )
    }

    /// Starts `program`, scheduled like this, in the control group of the testbed.
    pub(super) fn launch(
        &self,
        program: Program,
        how: Scheduling,
    ) -> Result<Running, ExperimentError> {
        // In a group of its own a real-time thread needs a budget (RT_GROUP_SCHED), and is stopped
        // when it is used up.
        let group = self.group.clone().filter(|_| how.policy.is_fair());
        let program = Program { scheduling: Some(how), group, ..program };
        program
            .start()
            .map_err(|source| ExperimentError::Start { what: program.command.join(" "), source })
    }

    /// Returns the command `schedlab` with these arguments.
    pub(super) fn own(&self, words: &[String]) -> Program {
        let own = self.program.display().to_string();
        Program::new(std::iter::once(own).chain(words.iter().cloned()))
    }

    /// Sets up the networks of server and client.
    pub(super) fn networks(&mut self, network: Network) -> Result<Networks, ExperimentError> {
        let server = self.hold_namespace()?;
        self.ip(server, &["link", "set", "lo", "up"])?;
        if network == Network::Loopback {
            self.notes.push("client and server talk over loopback".to_owned());
            return Ok(Networks {
                server: Net::Of(server),
                client: Net::Of(server),
                address: "127.0.0.1",
            });
        }
        let client = self.hold_namespace()?;
        let pid = client.to_string();
        self.ip(
            server,
            &["link", "add", "slserver", "type", "veth", "peer", "name", "slclient", "netns", &pid],
        )?;
        for (holder, device, address) in
            [(server, "slserver", SERVER), (client, "slclient", CLIENT)]
        {
            self.ip(holder, &["addr", "add", &format!("{address}/24"), "dev", device])?;
            self.ip(holder, &["link", "set", device, "up"])?;
        }
        self.notes.push(
            "client and server are two hosts: a network namespace each, a pair of virtual \
             Ethernet devices between"
                .to_owned(),
        );
        Ok(Networks { server: Net::Of(server), client: Net::Of(client), address: SERVER })
    }

    /// Starts a process that holds a new network namespace.
    fn hold_namespace(&mut self) -> Result<u32, ExperimentError> {
        let program = Program {
            network: Net::New,
            cpus: Some(self.others),
            ..Program::new(["sleep", "infinity"])
        };
        let holder = self.launch(program, scheduling(Policy::Other, 0))?;
        let pid = holder.pid();
        self.holders.push(holder);
        Ok(pid)
    }

    fn ip(&self, within: u32, words: &[&str]) -> Result<(), ExperimentError> {
        let ip = program::find("ip").unwrap_or_else(|| PathBuf::from("ip"));
        let command = std::iter::once(ip.display().to_string())
            .chain(words.iter().map(|word| (*word).to_owned()));
        let program =
            Program { network: Net::Of(within), cpus: Some(self.others), ..Program::new(command) };
        let what = program.command.join(" ");
        let running = self.launch(program, scheduling(Policy::Other, 0))?;
        self.finish(running, &what).map(drop)
    }

    /// Waits for the end of a program. Returns what it wrote, up to the 64 KiB of a pipe.
    pub(super) fn finish(
        &self,
        mut running: Running,
        what: &str,
    ) -> Result<String, ExperimentError> {
        let happened =
            |happened: String| ExperimentError::Program { what: what.to_owned(), happened };
        let mut out = running.stdout();
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match running.ended() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => self.pause(Duration::from_millis(2))?,
                Ok(None) => return Err(happened("did not end".to_owned())),
                Err(error) => return Err(happened(format!("cannot be waited for: {error}"))),
            }
        };
        let mut text = String::new();
        if let Some(out) = &mut out {
            std::io::Read::read_to_string(out, &mut text)
                .map_err(|error| happened(error.to_string()))?;
        }
        if status.success() { Ok(text) } else { Err(happened(format!("ended with {status}"))) }
    }

    /// Waits until `ready`; fails after [`PATIENCE`].
    pub(super) fn wait(
        &self,
        what: &str,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), ExperimentError> {
        let until = Instant::now() + PATIENCE;
        while !ready() {
            if Instant::now() > until {
                let happened = "did not come up".to_owned();
                return Err(ExperimentError::Program { what: what.to_owned(), happened });
            }
            self.pause(Duration::from_millis(5))?;
        }
        Ok(())
    }

    /// Sleeps; fails when the user ended the experiment.
    pub(super) fn pause(&self, time: Duration) -> Result<(), ExperimentError> {
        let until = Instant::now() + time;
        loop {
            if (self.stop)() {
                return Err(ExperimentError::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Puts everything back. Returns the notes, and what was given back.
    pub(super) fn close(mut self) -> Result<(Vec<String>, Report), ExperimentError> {
        self.holders.drain(..).for_each(|holder| holder.end(FAREWELL));
        let report = self.keeper.take().map_or_else(|| Ok(Report::default()), Keeper::finish)?;
        Ok((std::mem::take(&mut self.notes), report))
    }
}

const SERVER: &str = "10.77.0.1";
const CLIENT: &str = "10.77.0.2";

/// The networks of server and client, and the address of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Networks {
    pub(super) server: Net,
    pub(super) client: Net,
    pub(super) address: &'static str,
}

/// Returns the folder in which a control group for CPU time can be made, the file of its weight,
/// and the greatest weight.
fn controller() -> Option<(PathBuf, &'static str, &'static str)> {
    let root = Path::new("/sys/fs/cgroup");
    let enabled = std::fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    if enabled.split_whitespace().any(|name| name == "cpu") {
        return Some((root.to_owned(), "cpu.weight", "10000"));
    }
    let first = ["cpu", "cpu,cpuacct", "cpuacct,cpu"].map(|name| root.join(name));
    let found = first.into_iter().find(|folder| folder.join("cpu.shares").exists());
    found.map(|folder| (folder, "cpu.shares", "262144"))
}

/// Returns whether a process listens at `port` in the network of process `pid`: `/proc/PID/net/tcp`
/// has state 0A.
pub(super) fn listens(pid: u32, port: u16) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let here = format!(":{port:04X}");
    text.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| local.ends_with(&here));
        local && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_listener_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port));
        drop(listener);
        assert!(!listens(std::process::id(), port));
    }
}
