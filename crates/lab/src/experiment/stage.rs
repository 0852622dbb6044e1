//! What an experiment runs on: the CPUs, a control group of its own, networks, and the way back.
//!
//! Nothing here outlives the process. Programs die with the thread that started them (`PR_SET_PDEATHSIG`), namespaces and
//! the devices in them with the processes inside, recordings are files without a name, and the control group is in the
//! journal of a [`Keeper`], whose guardian removes it when we cannot. No sysctl is changed.

use super::model::Prices;
use super::{ExperimentError, Network, Options, Which};
use schedlab_host::program::{Program, Running};
use schedlab_host::threads::Scheduling;
use schedlab_host::{MachineFacts, program, program::Network as Net};
use schedlab_live::restore::{OWN_GROUP, Report};
use schedlab_live::{Keeper, KeeperOptions};
use schedlab_model::{CpuId, CpuSet, Nice, Policy};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Above server (1) and client (2), so that the way back is open whatever they do.
const GUARDIAN_PRIORITY: u8 = 3;
/// A program gets so long to come up, or to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one that was asked to end may take.
const FAREWELL: Duration = Duration::from_millis(300);

/// Where an experiment happens.
pub(super) struct Stage<'a> {
    // Dropped in this order: who lives in the group goes before it.
    holders: Vec<Running>,
    keeper: Option<Keeper>,
    group: Option<PathBuf>,
    pub(super) machine: MachineFacts,
    /// What the machine's own work costs in the simulator.
    pub(super) prices: Prices,
    /// Where what is measured runs.
    pub(super) cpu: CpuId,
    /// Where everybody else of ours runs.
    pub(super) others: CpuSet,
    pub(super) notes: Vec<String>,
    pub(super) stop: &'a dyn Fn() -> bool,
    program: PathBuf,
}

/// Policy and nice value for a program.
pub(super) fn scheduling(policy: Policy, nice: i8) -> Scheduling {
    Scheduling { policy, nice: Nice::new(nice).unwrap_or_default(), slice: None, reset_on_fork: false }
}

impl<'a> Stage<'a> {
    pub(super) fn open(
        which: Which,
        options: &Options,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Stage<'a>, ExperimentError> {
        let machine = schedlab_host::machine();
        let allowed =
            schedlab_host::threads::affinity(0).map_or(machine.online, |own| own.and(&machine.online));
        let Some(cpu) = allowed.lowest().filter(|_| allowed.count() > 1) else {
            return Err(ExperimentError::Input(format!(
                "an experiment needs two CPUs, one for what is measured and one for the client and the recorder; this \
                 process may use {allowed}"
            )));
        };
        let prices = Prices::of(options.costs.as_deref(), &machine)?;
        let keeper = Keeper::start(&KeeperOptions {
            run_dir: options.run_dir.clone(),
            purpose: format!("experiment {}", which.name()),
            program: options.program.clone(),
            silence: None,
            priority: Some(GUARDIAN_PRIORITY),
            starve: None,
        })?;
        let mut stage = Stage {
            holders: Vec::new(),
            keeper: Some(keeper),
            group: None,
            cpu,
            others: allowed.without(&CpuSet::single(cpu)),
            notes: Vec::new(),
            stop,
            program: options.program.clone(),
            machine,
            prices,
        };
        stage.describe();
        if options.shield {
            stage.make_group();
        } else {
            stage.notes.push(
                "no control group of its own (--no-shield): foreign work has its full share".to_owned(),
            );
        }
        Ok(stage)
    }

    fn describe(&mut self) {
        let machine = &self.machine;
        let kind = if machine.virtual_machine { ", virtual" } else { "" };
        let text = format!(
            "Linux {} HZ={}, {} CPUs{kind}, {}; measured on CPU {}, client and recorder on {}",
            machine.kernel,
            machine.hz,
            machine.online.count(),
            machine.model,
            self.cpu.0,
            self.others
        );
        self.notes.push(text);
    }

    /// A control group with the greatest weight.
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
                    "all programs in one control group of their own, {path} ({file} {weight}): policies and nice values \
                     count among them, and foreign work hardly disturbs"
                ));
                self.group = Some(group);
            }
            Err(why) => self.notes.push(format!(
                "no control group of their own ({why}): foreign work takes its share, and without one the programs are \
                 in the autogroup of this session"
            )),
        }
    }

    /// Starts a program on the measured CPU.
    pub(super) fn start(&self, words: &[&str], how: Scheduling) -> Result<Running, ExperimentError> {
        self.launch(
            Program { cpus: Some(CpuSet::single(self.cpu)), ..Program::new(words.iter().copied()) },
            how,
        )
    }

    /// Starts `program`, scheduled like this, in our group.
    pub(super) fn launch(&self, program: Program, how: Scheduling) -> Result<Running, ExperimentError> {
        // In a group of its own a real-time thread needs a budget, and is stopped when it is used up.
        let group = self.group.clone().filter(|_| how.policy.is_fair());
        let program = Program { scheduling: Some(how), group, ..program };
        program.start().map_err(|source| ExperimentError::Start { what: program.command.join(" "), source })
    }

    /// The command of `schedlab` itself with these words.
    pub(super) fn own(&self, words: &[String]) -> Program {
        let own = self.program.display().to_string();
        Program::new(std::iter::once(own).chain(words.iter().cloned()))
    }

    /// Networks for server and client.
    pub(super) fn networks(&mut self, network: Network) -> Result<Wires, ExperimentError> {
        let server = self.hold()?;
        self.ip(server, &["link", "set", "lo", "up"])?;
        if network == Network::Loopback {
            self.notes.push("client and server talk over loopback".to_owned());
            return Ok(Wires { server: Net::Of(server), client: Net::Of(server), address: "127.0.0.1" });
        }
        let client = self.hold()?;
        let pid = client.to_string();
        self.ip(
            server,
            &["link", "add", "slserver", "type", "veth", "peer", "name", "slclient", "netns", &pid],
        )?;
        for (who, device, address) in [(server, "slserver", SERVER), (client, "slclient", CLIENT)] {
            self.ip(who, &["addr", "add", &format!("{address}/24"), "dev", device])?;
            self.ip(who, &["link", "set", device, "up"])?;
        }
        self.notes.push(
            "client and server are two hosts: a network namespace each, a pair of virtual Ethernet devices between"
                .to_owned(),
        );
        Ok(Wires { server: Net::Of(server), client: Net::Of(client), address: SERVER })
    }

    /// A process that keeps a new network namespace.
    fn hold(&mut self) -> Result<u32, ExperimentError> {
        let program =
            Program { network: Net::New, cpus: Some(self.others), ..Program::new(["sleep", "infinity"]) };
        let holder = self.launch(program, scheduling(Policy::Other, 0))?;
        let pid = holder.pid();
        self.holders.push(holder);
        Ok(pid)
    }

    fn ip(&self, within: u32, words: &[&str]) -> Result<(), ExperimentError> {
        let ip = program::find("ip").unwrap_or_else(|| PathBuf::from("ip"));
        let command =
            std::iter::once(ip.display().to_string()).chain(words.iter().map(|word| (*word).to_owned()));
        let program = Program { network: Net::Of(within), cpus: Some(self.others), ..Program::new(command) };
        let what = program.command.join(" ");
        let running = self.launch(program, scheduling(Policy::Other, 0))?;
        self.finish(running, &what).map(drop)
    }

    /// Waits for the end of a program and gives what it wrote (up to a pipe's 64 KiB).
    pub(super) fn finish(&self, mut running: Running, what: &str) -> Result<String, ExperimentError> {
        let happened = |happened: String| ExperimentError::Program { what: what.to_owned(), happened };
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
            std::io::Read::read_to_string(out, &mut text).map_err(|error| happened(error.to_string()))?;
        }
        if status.success() { Ok(text) } else { Err(happened(format!("ended with {status}"))) }
    }

    /// Until `ready`, or refuses.
    pub(super) fn wait(&self, what: &str, mut ready: impl FnMut() -> bool) -> Result<(), ExperimentError> {
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

    /// Sleeps, and ends when the user does.
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

    /// Everything back.
    pub(super) fn close(mut self) -> Result<(Vec<String>, Report), ExperimentError> {
        self.holders.drain(..).for_each(|holder| holder.end(FAREWELL));
        let report = self.keeper.take().map_or_else(|| Ok(Report::default()), Keeper::finish)?;
        Ok((std::mem::take(&mut self.notes), report))
    }
}

const SERVER: &str = "10.77.0.1";
const CLIENT: &str = "10.77.0.2";

/// Networks of server and client, and where the client finds the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wires {
    pub(super) server: Net,
    pub(super) client: Net,
    pub(super) address: &'static str,
}

/// The folder in which a control group for CPU time can be made, the file with its weight, and the greatest weight.
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
