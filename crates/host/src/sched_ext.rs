//! The kernel's sched_ext class, as its files tell: whether schedulers can be loaded here, and
//! which one is.

use crate::capabilities::{Capabilities, Caps};
use schedlab_model::SchedExt;
use std::fs;
use std::path::Path;

/// What the class of this kernel is at. `None`: it has no sched_ext.
pub fn here() -> Option<SchedExt> {
    state(Path::new("/sys"))
}

/// Reads `kernel/sched_ext` below `sysfs`. `None`: there is no such folder.
fn state(sysfs: &Path) -> Option<SchedExt> {
    let folder = sysfs.join("kernel/sched_ext");
    let text = |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
    Some(SchedExt {
        state: text("state")?,
        ops: text("root/ops").filter(|name| !name.is_empty()),
        enable_seq: text("enable_seq").and_then(|number| number.parse().ok()),
        switch_all: text("switch_all").map(|flag| flag == "1"),
    })
}

/// Why no scheduler can be loaded into a kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    /// Before Linux 6.12.
    #[error("Linux {0} has no sched_ext; it came with 6.12")]
    TooOld(String),
    /// The option is off.
    #[error("Linux {0} was built without sched_ext (CONFIG_SCHED_CLASS_EXT)")]
    NotBuilt(String),
    /// Programs are fitted to a kernel by its type information.
    #[error(
        "Linux {0} has sched_ext but no type information (/sys/kernel/btf/vmlinux, \
         CONFIG_DEBUG_INFO_BTF)"
    )]
    NoBtf(String),
    /// Lockdown keeps BPF programs from kernel memory.
    #[error("kernel lockdown ({0}) forbids BPF programs that read kernel memory")]
    Lockdown(String),
    /// Loading needs the right to.
    #[error("loading a scheduler needs root (CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN)")]
    NoRight,
}

/// Returns what the class is at, where this process can load a scheduler into it.
///
/// # Errors
/// The first reason why it cannot.
pub fn usable(found: &Capabilities) -> Result<&SchedExt, Unusable> {
    let lockdown = found.surroundings.lockdown.as_deref();
    judge(&found.machine.kernel, found.sched_ext_state.as_ref(), found.btf, lockdown, &found.caps)
}

/// As [`usable`], and looks at nothing else: a whole probe takes a slow machine seconds.
///
/// # Errors
/// As [`usable`].
pub fn usable_here() -> Result<SchedExt, Unusable> {
    let (kernel, lockdown) = (crate::machine::machine().kernel, crate::surroundings::lockdown());
    let (state, caps) = (here(), crate::capabilities::Caps::own());
    judge(&kernel, state.as_ref(), crate::capabilities::has_btf(), lockdown.as_deref(), &caps)
        .cloned()
}

fn judge<'s>(
    kernel: &str,
    state: Option<&'s SchedExt>,
    btf: bool,
    lockdown: Option<&str>,
    caps: &Caps,
) -> Result<&'s SchedExt, Unusable> {
    let named = || kernel.to_owned();
    let Some(state) = state else {
        let old = release(kernel).is_some_and(|release| release < (6, 12));
        return Err(if old { Unusable::TooOld(named()) } else { Unusable::NotBuilt(named()) });
    };
    if !btf {
        return Err(Unusable::NoBtf(named()));
    }
    // `integrity` keeps programs from writing, not from reading (security/security.c:
    // LOCKDOWN_BPF_READ_KERNEL is behind LOCKDOWN_CONFIDENTIALITY's beginning, Linux 6.12).
    if let Some(mode) = lockdown.filter(|mode| *mode == "confidentiality") {
        return Err(Unusable::Lockdown(mode.to_owned()));
    }
    if !(caps.bpf && caps.perfmon && caps.sys_admin) {
        return Err(Unusable::NoRight);
    }
    Ok(state)
}

/// `6.12.95+deb13` → (6, 12).
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Level, facts};
    use std::path::PathBuf;

    /// A sysfs of our own.
    struct Sysfs(PathBuf);

    impl Sysfs {
        fn new(name: &str, files: &[(&str, &str)]) -> Sysfs {
            let root = schedlab_testing::temp_dir()
                .join(format!("schedlab-sysfs-{name}-{}", std::process::id()));
            let folder = root.join("kernel/sched_ext");
            fs::create_dir_all(folder.join("root")).expect("writable");
            for (name, text) in files {
                fs::write(folder.join(name), text).expect("writable");
            }
            Sysfs(root)
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_files_of_an_active_scheduler_are_read() {
        let files = [
            ("state", "enabled\n"),
            ("switch_all", "1\n"),
            ("enable_seq", "3\n"),
            ("root/ops", "lavd_1.0\n"),
        ];
        let sysfs = Sysfs::new("active", &files);
        let found = state(&sysfs.0).expect("it is there");
        assert_eq!(found.scheduler(), Some("lavd_1.0"));
        assert_eq!((found.enable_seq, found.switch_all), (Some(3), Some(true)));
    }

    #[test]
    fn a_kernel_without_the_folder_has_none() {
        assert_eq!(state(Path::new("/nowhere")), None);
        let idle = Sysfs::new(
            "idle",
            &[("state", "disabled\n"), ("switch_all", "0\n"), ("enable_seq", "0\n")],
        );
        let found = state(&idle.0).expect("it is there");
        assert_eq!((found.scheduler(), found.switch_all), (None, Some(false)));
    }

    /// A machine on which everything is as a sched_ext scheduler needs it.
    fn fit(sysfs: &Path) -> Capabilities {
        let mut found = crate::probe();
        found.machine.kernel = "7.2.13".to_owned();
        found.sched_ext_state = state(sysfs);
        found.btf = true;
        found.surroundings.lockdown = Some("integrity".to_owned());
        (found.caps.bpf, found.caps.perfmon, found.caps.sys_admin) = (true, true, true);
        found
    }

    #[test]
    fn every_reason_is_named() {
        let sysfs = Sysfs::new("reasons", &[("state", "disabled\n")]);
        let with = |change: &dyn Fn(&mut Capabilities)| {
            let mut found = fit(&sysfs.0);
            change(&mut found);
            usable(&found).cloned().map_err(|why| why.to_string())
        };
        assert!(with(&|_| ()).is_ok());
        for (change, words) in [
            (
                (&|found: &mut Capabilities| found.sched_ext_state = None)
                    as &dyn Fn(&mut Capabilities),
                "CONFIG_SCHED_CLASS_EXT",
            ),
            (
                &|found: &mut Capabilities| {
                    found.sched_ext_state = None;
                    found.machine.kernel = "6.1.0-33-amd64".to_owned();
                },
                "came with 6.12",
            ),
            (&|found: &mut Capabilities| found.btf = false, "CONFIG_DEBUG_INFO_BTF"),
            (
                &|found: &mut Capabilities| {
                    found.surroundings.lockdown = Some("confidentiality".to_owned())
                },
                "lockdown",
            ),
            (&|found: &mut Capabilities| found.caps.bpf = false, "needs root"),
        ] {
            let why = with(change).expect_err(words);
            assert!(why.contains(words), "{words}: {why}");
        }
    }

    #[test]
    fn doctor_says_which_scheduler_is_active() {
        let line = |files: &[(&str, &str)]| {
            let sysfs = Sysfs::new(&format!("doctor{}", files.len()), files);
            let facts = facts(&fit(&sysfs.0));
            let fact = facts
                .into_iter()
                .find(|fact| fact.what == "sched_ext")
                .expect("there is such a line");
            (fact.state, fact.level)
        };
        assert_eq!(
            line(&[("state", "disabled\n")]),
            ("yes (7.2.13), active: none".to_owned(), Level::Good)
        );
        let busy = line(&[("state", "enabled\n"), ("root/ops", "simple\n")]);
        assert_eq!(busy, ("yes (7.2.13), active: simple".to_owned(), Level::Note));
        let none = line(&[]);
        assert!(none.0.starts_with("no: Linux 7.2.13 was built without"), "{none:?}");
    }
}
