//! Guests of KVM as targets: `guest web cpu.weight=400 cpu.max=50ms/100ms cpus=0-1` sets the
//! control group that is the guest's alone, all its threads together: virtual CPUs, emulator and
//! what the kernel does for it in the process. A guest without such a group gets one, in the group
//! in which it is.

use super::Subject;
use super::{Clause, Setting, TaskSetting, Variant, VariantError};
use schedlab_model::text::glob;
use schedlab_trace::guests::{Guest, Guests};
use std::collections::BTreeSet;

/// With what a target begins that is a guest.
pub(crate) const TARGET: &str = "guest ";
/// What the group of a guest is called that had none, before its name.
const NEW_GROUP: &str = "guest-";

impl Variant {
    /// Returns the variant with the control groups of guests in place of the guests.
    pub(crate) fn with_guests(&self, subject: &Subject<'_>) -> Result<Variant, VariantError> {
        let mut clauses = Vec::new();
        for clause in &self.clauses {
            match clause.target.strip_prefix(TARGET) {
                Some(name) => clauses.extend(of_guests(name.trim(), clause, subject)?),
                None => clauses.push(clause.clone()),
            }
        }
        Ok(Variant { clauses, ..self.clone() })
    }
}

impl Subject<'_> {
    /// Returns for each task whether it runs a virtual CPU of a recorded host.
    pub(crate) fn vcpus(&self) -> Vec<bool> {
        let mut vcpus = vec![false; self.workload.tasks.len()];
        let all = self.guests.into_iter().flat_map(Guests::list).flat_map(|guest| &guest.vcpus);
        for task in all {
            vcpus.get_mut(task.index()).into_iter().for_each(|is_one| *is_one = true);
        }
        vcpus
    }
}

/// Returns the clauses about control groups in place of one about guests.
fn of_guests(
    name: &str,
    clause: &Clause,
    subject: &Subject<'_>,
) -> Result<Vec<Clause>, VariantError> {
    let all = subject.guests.map_or(&[][..], |guests| guests.list());
    let is_meant =
        |guest: &Guest| glob(name, &guest.name) || name.parse::<u32>() == Ok(guest.process);
    let mut clauses = Vec::new();
    for place in (0..all.len()).filter(|place| is_meant(&all[*place])) {
        let settings = clause.settings.clone();
        match &all[place].group {
            Some(path) => clauses.push(Clause { target: path.clone(), settings }),
            None => clauses.extend(with_group(place, &all[place], settings, subject)),
        }
    }
    match clauses.is_empty() {
        false => Ok(clauses),
        true => Err(VariantError::Value(unknown(name, all))),
    }
}

/// Puts the threads of a guest into a group of their own, which has these settings.
fn with_group(
    place: usize,
    guest: &Guest,
    settings: Vec<Setting>,
    subject: &Subject<'_>,
) -> Vec<Clause> {
    let workload = subject.workload;
    let parent = guest.vcpus.first().and_then(|task| workload.tasks.get(task.index()));
    let parent = parent.and_then(|task| workload.groups.get(task.group.index()));
    let parent = parent.filter(|group| !group.autogroup).map_or("", |group| group.name.as_str());
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    let name: String = guest.name.chars().map(plain).collect();
    let path = format!("{}/{NEW_GROUP}{}", parent.trim_end_matches('/'), name.trim_matches('-'));
    let own = subject.guests.into_iter().flat_map(|guests| guests.tasks(place));
    let is_kernel = |task: usize| subject.kernel_threads.get(task).copied().unwrap_or_default();
    let ids: BTreeSet<u32> = own
        .filter(|task| !is_kernel(task.index()))
        .filter_map(|task| subject.threads.get(task.index()).map(|thread| thread.tid))
        .collect();
    let moved = |id: u32| Clause {
        target: id.to_string(),
        settings: vec![Setting::Task(TaskSetting::Group(path.clone()))],
    };
    let set = Clause { target: path.clone(), settings };
    ids.into_iter().map(moved).chain([set]).collect()
}

fn unknown(name: &str, all: &[Guest]) -> String {
    if all.is_empty() {
        return format!(
            "there is no guest `{name}` here: no thread is known to run a virtual CPU of KVM \
             (`schedlab record` on the host finds them since format 1.7)"
        );
    }
    let names: Vec<&str> = all.iter().map(|guest| guest.name.as_str()).collect();
    format!("there is no guest `{name}` here; guests are: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delegation::DelegationSpec;
    use crate::scenario::SmtYield;
    use schedlab_model::{GroupId, GroupSpec, Program, TaskSpec, Workload};
    use schedlab_trace::{GroupInfo, Header, TaskInfo};

    /// Two guests, the second without a group of its own.
    fn applied(text: &str) -> Result<(Workload, Variant), VariantError> {
        let paths = ["/", "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope", "/lab"];
        let specs = paths.map(|name| GroupSpec {
            name: name.to_owned(),
            parent: (name != "/").then_some(GroupId::ROOT),
            ..GroupSpec::default()
        });
        let threads = [
            (10, 10, 1, false),
            (11, 10, 1, true),
            (20, 20, 2, false),
            (21, 20, 2, true),
            (30, 30, 2, false),
        ];
        let task = |(tid, pid, group, vcpu): (u32, u32, u32, bool)| TaskInfo {
            group: GroupId(group),
            vcpu,
            known: true,
            ..TaskInfo::unknown(tid, pid, format!("t{tid}"))
        };
        let header = Header {
            groups: specs.iter().cloned().map(GroupInfo::from).collect(),
            tasks: threads.into_iter().map(task).collect(),
            ..Header::default()
        };
        let classes: Vec<String> = header.tasks.iter().map(|task| task.comm.clone()).collect();
        let spec = |task: &TaskInfo| TaskSpec {
            group: task.group,
            ..TaskSpec::new(task.comm.clone(), Program::hog())
        };
        let workload = Workload {
            tasks: header.tasks.iter().map(spec).collect(),
            groups: specs.to_vec(),
            ..Workload::default()
        };
        let guests = Guests::of(&header);
        let subject = Subject {
            workload: &workload,
            classes: &classes,
            threads: &header.tasks,
            cpus: 2,
            vms: &[],
            delegation: &DelegationSpec::default(),
            kernel: None,
            roles: Default::default(),
            smt_yield: SmtYield::OneThread,
            kernel_threads: &[false; 5],
            guests: Some(&guests),
        };
        let variant = Variant::parse(text)?.with_guests(&subject)?;
        Ok((variant.apply(&subject)?.workload, variant))
    }

    #[test]
    fn a_guest_is_its_control_group() {
        let (workload, variant) =
            applied("x: guest web cpu.weight=400 cpu.max=50ms/100ms").unwrap();
        assert_eq!(variant.clauses[0].target, "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope");
        assert_eq!(workload.groups[1].weight, Some(4096));
        assert!(workload.groups[1].bandwidth.is_some() && workload.groups[2].weight.is_none());
    }

    #[test]
    fn a_guest_without_a_group_gets_one_where_it_is() {
        for name in ["\"guest t20 (20)\"", "guest 20"] {
            let (workload, _) = applied(&format!("x: {name} cpu.weight=50")).unwrap();
            let new = workload.groups.iter().position(|group| group.name == "/lab/guest-t20--20");
            let new = GroupId::from(new.expect("made"));
            let groups: Vec<GroupId> = workload.tasks.iter().map(|task| task.group).collect();
            assert_eq!(groups, [GroupId(1), GroupId(1), new, new, GroupId(2)], "{name}");
            assert_eq!(workload.groups[new.index()].parent, Some(GroupId(2)));
            assert_eq!(workload.groups[new.index()].weight, Some(512));
        }
    }

    #[test]
    fn refusals_teach() {
        let error = applied("x: guest db cpu.weight=50").unwrap_err().to_string();
        assert!(error.contains("guests are: web, t20 (20)"), "{error}");
        let error = applied("x: guest web nice=5").unwrap_err().to_string();
        assert!(error.contains("has no setting `nice`"), "{error}");
        let error = applied("x: guest web cap=50").unwrap_err().to_string();
        assert!(error.contains("has no setting `cap`"), "{error}");
        assert_eq!(
            Variant::parse("x: guest nice=5").unwrap().clauses[0].target,
            "guest",
            "a task may be called so"
        );
    }
}
