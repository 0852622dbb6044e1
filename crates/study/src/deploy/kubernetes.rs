//! Fragments of a Kubernetes manifest. A container's policy and nice value have no field: its
//! command is wrapped.

use super::{Changes, Target};
use crate::kubernetes::{limit_of_quota, quantity};
use crate::variant::{GroupSetting, PodSetting, Setting, TaskSetting};
use schedlab_model::Policy;

/// What a container needs.
#[derive(Default)]
struct Container {
    comments: Vec<String>,
    wrap: Vec<String>,
    capability: bool,
    request: Option<String>,
    limit: Option<String>,
}

/// Returns one fragment with a container for each target; empty when Kubernetes has no field and no
/// way round.
pub(super) fn text(changes: &Changes<'_>) -> String {
    if changes.xen() {
        return String::new();
    }
    let mut all: Vec<(Target<'_>, Container)> = Vec::new();
    for step in &changes.steps {
        let mut container = Container::default();
        if step.target.session().is_some() || !add(&mut container, step.setting) {
            continue;
        }
        match all.iter_mut().find(|(target, _)| target.name == step.target.name) {
            Some((_, known)) => known.merge(container),
            None => all.push((step.target, container)),
        }
    }
    if all.is_empty() {
        return String::new();
    }
    let mut text = "spec:\n  containers:".to_owned();
    for (target, container) in &all {
        text += &container.yaml(*target);
    }
    text
}

/// Adds a setting; `false`: there is nothing for it.
fn add(container: &mut Container, setting: &Setting) -> bool {
    let mut wrap =
        |words: &[&str]| container.wrap.extend(words.iter().map(|word| (*word).to_owned()));
    match setting {
        Setting::Task(TaskSetting::Policy(policy)) => {
            let (flags, priority) = super::shell::chrt(*policy);
            let priority = priority.to_string();
            let words: Vec<&str> =
                ["chrt"].into_iter().chain(flags.split(' ')).chain([priority.as_str()]).collect();
            wrap(&words);
            container.capability =
                policy.is_realtime() || matches!(policy, Policy::Deadline { .. });
            container.comments.push("no field sets a policy: chrt starts the program".to_owned());
        }
        Setting::Task(TaskSetting::Nice(nice)) => {
            wrap(&["nice", "-n", &nice.to_string()]);
            container.capability = nice.to_string().starts_with('-');
            container
                .comments
                .push("no field sets a nice value: nice starts the program".to_owned());
        }
        Setting::Task(TaskSetting::Slice(slice)) => {
            wrap(&["chrt", "--other", "--sched-runtime", &slice.0.to_string(), "0"]);
            container.comments.push(
                "no field sets a slice: chrt (util-linux 2.42) starts the program".to_owned(),
            );
        }
        Setting::Task(TaskSetting::Cpus(cpus)) => {
            let count = cpus.iter().count();
            container.comments.push(format!(
                "no field names CPUs: with kubelet --cpu-manager-policy=static these {count} are \
                 its own"
            ));
            container.request = Some(format!("\"{count}\""));
            container.limit = container.request.clone();
        }
        Setting::Group(GroupSetting::Max(Some(max))) => {
            container.comments.push(
                "its period is 100 ms (kubelet --cpu-cfs-quota-period changes it)".to_owned(),
            );
            container.limit = Some(format!("{}m", limit_of_quota(max)));
        }
        Setting::Group(GroupSetting::Max(None)) => {
            container.comments.push("no resources.limits.cpu; keep the request".to_owned());
        }
        Setting::Group(GroupSetting::Shares(shares)) => {
            container.request = Some(format!("{}m", (u64::from(*shares) * 1000 + 512) / 1024));
        }
        Setting::Group(GroupSetting::Idle(true)) => {
            container.comments.push(
                "no field sets cpu.idle; no CPU request (cpu.weight 1) is nearest".to_owned(),
            );
        }
        Setting::Pod(PodSetting::Requests(0)) => {
            container.comments.push("no resources.requests.cpu".to_owned());
        }
        Setting::Pod(PodSetting::Requests(milli)) => {
            container.request = Some(quoted(&quantity(*milli)));
        }
        Setting::Pod(PodSetting::Limits(None)) => {
            container.comments.push("no resources.limits.cpu".to_owned());
        }
        Setting::Pod(PodSetting::Limits(Some(milli))) => {
            container.limit = Some(quoted(&quantity(*milli)));
        }
        _ => return false,
    }
    true
}

/// Returns a quantity as a YAML text: a bare number would be one, which `kubectl` takes, too, but
/// other tools do not.
fn quoted(quantity: &str) -> String {
    format!("\"{quantity}\"")
}

impl Container {
    fn merge(&mut self, other: Container) {
        self.comments.extend(other.comments);
        self.wrap.extend(other.wrap);
        self.capability |= other.capability;
        self.request = other.request.or(self.request.take());
        self.limit = other.limit.or(self.limit.take());
    }

    fn yaml(&self, target: Target<'_>) -> String {
        let mut text = format!("\n  - name: {}", target.container());
        for comment in &self.comments {
            text += &format!("\n    # {comment}");
        }
        if !self.wrap.is_empty() {
            let words: Vec<String> = self.wrap.iter().map(|word| format!("\"{word}\"")).collect();
            text += &format!("\n    command: [{}, PROGRAM, ARGUMENTS]", words.join(", "));
        }
        if self.capability {
            text += "\n    securityContext: {capabilities: {add: [\"SYS_NICE\"]}}";
        }
        let resource = |what: &str, value: &Option<String>| {
            value
                .as_ref()
                .map(|value| format!("\n      {what}: {{cpu: {value}}}"))
                .unwrap_or_default()
        };
        let resources = resource("requests", &self.request) + &resource("limits", &self.limit);
        if !resources.is_empty() {
            text += &format!("\n    resources:{resources}");
        }
        text
    }
}
