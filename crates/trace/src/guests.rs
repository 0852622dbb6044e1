//! Guests of KVM in a recording of their host: which threads are one guest's, and what it is
//! called.
//!
//! A guest is a process with a thread that runs a virtual CPU ([`TaskInfo::vcpu`]), with all other
//! threads of that process (the emulator's main loop, its I/O threads) and the kernel threads that
//! work for it alone: `vhost-PID` (drivers/vhost/vhost.c, vhost_worker_create; up to Linux 6.3 a
//! thread of the kernel, later one of the process) and `kvm-pit/PID` (arch/x86/kvm/i8254.c,
//! kvm_create_pit).

use crate::{Header, TaskInfo, owner};
use schedlab_model::TaskId;
use schedlab_model::text::is_in_group;
use std::collections::BTreeMap;

/// One guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guest {
    /// Its name; no other guest of the recording has it.
    pub name: String,
    /// The process that runs it.
    pub process: u32,
    /// Its virtual CPUs, as far as the recorder found the threads that run them.
    pub vcpus: Vec<TaskId>,
    /// The path of the control group that has no other tasks than the guest's; `None`: there is
    /// none.
    pub group: Option<String>,
}

/// The guests of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guests {
    list: Vec<Guest>,
    /// By [`TaskId`]: the place of its guest.
    of: Vec<Option<usize>>,
}

/// What kernel threads that work for one process alone are called before its id.
const FOR_ONE: [&str; 2] = ["vhost-", "kvm-pit/"];

impl Guests {
    /// Finds the guests of a recording, in the order of their first virtual CPUs.
    pub fn of(header: &Header) -> Guests {
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        let mut list: Vec<Guest> = Vec::new();
        for (index, task) in header.tasks.iter().enumerate().filter(|(_, task)| task.vcpu) {
            let place = *places.entry(task.pid).or_insert(list.len());
            if place == list.len() {
                let (process, vcpus) = (task.pid, Vec::new());
                list.push(Guest { name: String::new(), process, vcpus, group: None });
            }
            list[place].vcpus.push(TaskId::from(index));
        }
        let of = |task: &TaskInfo| places.get(&process(task)).copied();
        let of: Vec<Option<usize>> = match list.is_empty() {
            true => Vec::new(),
            false => header.tasks.iter().map(of).collect(),
        };
        let mut guests = Guests { list, of };
        for place in 0..guests.list.len() {
            guests.list[place].group = guests.own_group(header, place);
        }
        guests.call(header);
        guests
    }

    /// Returns them.
    pub fn list(&self) -> &[Guest] {
        &self.list
    }

    /// Whether the recording has none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the guest of a task.
    pub fn of_task(&self, task: TaskId) -> Option<&Guest> {
        self.list.get((*self.of.get(task.index())?)?)
    }

    /// Returns the tasks of a guest of this list, ascending.
    pub fn tasks(&self, place: usize) -> impl Iterator<Item = TaskId> {
        let own = self.of.iter().enumerate().filter(move |(_, of)| **of == Some(place));
        own.map(|(task, _)| TaskId::from(task))
    }

    /// Returns the outermost group up to the guest's unit of systemd that has no other tasks; where
    /// it has no unit, the innermost one that has all its tasks. Weights of the groups inside say
    /// nothing against other guests.
    fn own_group(&self, header: &Header, place: usize) -> Option<String> {
        let path = |task: &TaskInfo| {
            let group = header.groups.get(task.group.index()).map(|info| &info.spec)?;
            (!group.autogroup).then_some(group.name.as_str())
        };
        let is_user = |task: &TaskInfo| !task.kernel && task.known;
        let tasks = || header.tasks.iter().zip(&self.of).filter(|(task, _)| is_user(task));
        let mut common: Option<&str> = None;
        for (task, _) in tasks().filter(|(_, of)| **of == Some(place)) {
            let path = path(task)?;
            common = Some(common.map_or(path, |before| common_path(before, path)));
        }
        let common = common.filter(|path| path.len() > 1)?;
        let unit = owner::unit(common).and_then(|unit| {
            let end = common.find(unit)? + unit.len();
            common.get(..end)
        });
        let is_own = |group: &&str| {
            let inside = |task: &TaskInfo| path(task).is_some_and(|path| is_in_group(path, group));
            tasks().all(|(task, of)| *of == Some(place) || !inside(task))
        };
        unit.into_iter().chain([common]).find(is_own).map(str::to_owned)
    }

    /// Names the guests: by the machine that systemd-machined or libvirt registered, else by the
    /// group that is theirs alone, else by the process. Names that two would have, or that a
    /// program has, are told apart by the processes' ids.
    fn call(&mut self, header: &Header) {
        let leader = |pid: u32| header.tasks.iter().find(|task| task.tid == pid);
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let others = header.tasks.iter().zip(&self.of);
        for (task, _) in others.filter(|(task, of)| of.is_none() && !task.kernel) {
            known.insert(task.comm.clone(), 1);
        }
        for guest in &mut self.list {
            let vcpu = guest.vcpus.first().and_then(|task| header.tasks.get(task.index()));
            let group = vcpu.and_then(|task| header.groups.get(task.group.index()));
            let machine = group.and_then(|info| owner::container(&info.spec.name));
            let machine = machine.filter(|one| one.runtime == "machine");
            let own = guest.group.as_deref().and_then(|path| path.rsplit('/').next());
            let comm = || leader(guest.process).or(vcpu).map_or("?", |task| task.comm.as_str());
            guest.name = match (machine, own) {
                (Some(machine), _) => of_machine(machine.id),
                (None, Some(own)) => own.strip_suffix(".scope").unwrap_or(own).to_owned(),
                (None, None) => with_id(comm(), guest.process),
            };
            *known.entry(guest.name.clone()).or_default() += 1;
        }
        for guest in self.list.iter_mut().filter(|guest| known[&guest.name] > 1) {
            guest.name = with_id(&guest.name, guest.process);
        }
    }
}

/// Returns a name with the id of the process behind it.
fn with_id(name: &str, process: u32) -> String {
    let id = format!("({process})");
    if name.ends_with(&id) { name.to_owned() } else { format!("{name} {id}") }
}

/// The process for which a task works.
fn process(task: &TaskInfo) -> u32 {
    let of_kernel = || FOR_ONE.iter().find_map(|name| task.comm.strip_prefix(name)?.parse().ok());
    if task.kernel { of_kernel().unwrap_or(task.pid) } else { task.pid }
}

/// Returns the path that two paths begin with.
fn common_path<'a>(one: &'a str, other: &str) -> &'a str {
    let mut end = 0;
    for (mine, theirs) in one.split('/').zip(other.split('/')) {
        if mine != theirs {
            break;
        }
        end += mine.len() + 1;
    }
    &one[..end.saturating_sub(1).min(one.len())]
}

/// Returns a guest's name from that of its machine: systemd writes `-` as `\x2d` in the name of a
/// scope (systemd.unit(5)), and libvirt puts driver and number before the name
/// (src/hypervisor/domain_driver.c, virDomainDriverGenerateMachineName: `qemu-1-web`).
fn of_machine(escaped: &str) -> String {
    // A recorded name is kept escaped, so that the backslash is written twice.
    let name = escaped.replace("\\\\", "\\").replace("\\x2d", "-");
    let mut parts = name.splitn(3, '-');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(number), Some(rest))
            if !rest.is_empty()
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            rest.to_owned()
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupInfo;
    use schedlab_model::{GroupId, GroupSpec};

    fn header(groups: &[&str], tasks: &[(u32, u32, &str, u32, bool)]) -> Header {
        let group = |name: &&str| GroupInfo {
            spec: GroupSpec { name: (*name).to_owned(), ..GroupSpec::default() },
            ..GroupInfo::default()
        };
        let task = |&(tid, pid, comm, group, vcpu): &(u32, u32, &str, u32, bool)| TaskInfo {
            group: GroupId(group),
            vcpu,
            known: true,
            kernel: comm.starts_with("kvm-pit") || comm.starts_with("kworker"),
            ..TaskInfo::unknown(tid, pid, comm)
        };
        Header {
            groups: groups.iter().map(group).collect(),
            tasks: tasks.iter().map(task).collect(),
            ..Header::default()
        }
    }

    fn names(guests: &Guests) -> Vec<&str> {
        guests.list().iter().map(|guest| guest.name.as_str()).collect()
    }

    #[test]
    fn libvirts_guests_have_their_names_and_groups() {
        let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb-2.scope";
        let inner = |part: &str| format!("{scope}/libvirt/{part}");
        let (vcpu, emulator) = (inner("vcpu0"), inner("emulator"));
        let header = header(
            &[
                "/",
                &vcpu,
                &emulator,
                "/machine.slice/machine-qemu\\x2d2\\x2ddb.scope/libvirt/vcpu0",
            ],
            &[
                (10, 10, "qemu-system-x86", 2, false),
                (11, 10, "CPU 0/KVM", 1, true),
                (12, 12, "kvm-pit/10", 0, false),
                (13, 10, "vhost-10", 2, false),
                (20, 20, "qemu-system-x86", 3, false),
                (21, 20, "CPU 0/KVM", 3, true),
                (30, 30, "sshd", 0, false),
                (31, 31, "kworker/0:1", 0, false),
            ],
        );
        let guests = Guests::of(&header);
        assert_eq!(names(&guests), ["web-2", "db"]);
        assert_eq!(guests.list()[0].group.as_deref(), Some(scope));
        let of: Vec<usize> = guests.tasks(0).map(TaskId::index).collect();
        assert_eq!(of, [0, 1, 2, 3], "the emulator and what the kernel does for it are its own");
        assert_eq!(guests.of_task(TaskId(6)), None);
        assert_eq!(guests.of_task(TaskId(7)), None);
    }

    #[test]
    fn a_guest_without_a_group_of_its_own_is_called_as_its_process() {
        let header = header(
            &["/", "/lab", "/user.slice/session-3.scope"],
            &[
                (10, 10, "qemu", 2, false),
                (11, 10, "qemu", 2, true),
                (20, 20, "qemu", 2, false),
                (21, 20, "qemu", 2, true),
                (30, 30, "firecracker", 1, false),
                (31, 30, "fc_vcpu 0", 1, true),
                (40, 40, "crosvm", 0, true),
            ],
        );
        let guests = Guests::of(&header);
        assert_eq!(names(&guests), ["qemu (10)", "qemu (20)", "lab", "crosvm (40)"]);
        let groups: Vec<Option<&str>> =
            guests.list().iter().map(|guest| guest.group.as_deref()).collect();
        assert_eq!(groups, [None, None, Some("/lab"), None]);
    }

    #[test]
    fn guests_of_one_name_are_told_apart() {
        let header = header(
            &["/", "/a/100.scope", "/b/100.scope"],
            &[(10, 10, "kvm", 1, true), (20, 20, "kvm", 2, true)],
        );
        assert_eq!(names(&Guests::of(&header)), ["100 (10)", "100 (20)"]);
        let other = [(10, 10, "kvm", 1, true), (20, 20, "nginx", 0, false)];
        let header = self::header(&["/", "/nginx"], &other);
        assert_eq!(names(&Guests::of(&header)), ["nginx (10)"], "a program is called so");
    }

    #[test]
    fn no_vcpu_no_guest() {
        let header = header(&["/"], &[(10, 10, "qemu", 0, false)]);
        assert!(Guests::of(&header).is_empty() && Guests::of(&header).of_task(TaskId(0)).is_none());
    }

    #[test]
    fn machines_of_other_programs_keep_their_names() {
        assert_eq!(of_machine("qemu\\x2d12\\x2dweb\\x2d1"), "web-1");
        assert_eq!(of_machine("debian\\x2d12"), "debian-12");
        assert_eq!(of_machine("trixie"), "trixie");
    }
}
