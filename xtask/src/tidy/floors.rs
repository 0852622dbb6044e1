//! The floors of ARCHITECTURE.md: which crate may use which. Arrows go down only.

use crate::finding::Finding;
use crate::tree::{Metadata, Package, relative};
use std::path::Path;

/// What one crate may use, apart from dev-dependencies (tests and benches may look further).
pub(super) struct Floor {
    /// Package name.
    pub(super) name: &'static str,
    /// Crates of this workspace.
    pub(super) own: &'static [&'static str],
    /// Crates from outside; `None` = any that the workspace manifest gives a reason for.
    pub(super) external: Option<&'static [&'static str]>,
    /// No clock, thread, file, hash order or floating-point time.
    pub(super) pure: bool,
    /// The one crate with `unsafe`.
    pub(super) may_be_unsafe: bool,
}

/// What a prediction is made of. None of these touches the machine.
const PREDICTING: &[&str] = &[
    "schedlab-files",
    "schedlab-model",
    "schedlab-stats",
    "schedlab-scheduler",
    "schedlab-trace",
    "schedlab-replay",
    "schedlab-sim",
    "schedlab-report",
];

const BELOW_LAB: &[&str] = &[
    "schedlab-files",
    "schedlab-http",
    "schedlab-study",
    "schedlab-model",
    "schedlab-stats",
    "schedlab-scheduler",
    "schedlab-trace",
    "schedlab-sim",
    "schedlab-host",
    "schedlab-live",
    "schedlab-ext",
    "schedlab-measure",
    "schedlab-report",
];

const LAB_AND_BELOW: &[&str] = &[
    "schedlab-files",
    "schedlab-lab",
    "schedlab-tables",
    "schedlab-ui",
    "schedlab-study",
    "schedlab-model",
    "schedlab-stats",
    "schedlab-scheduler",
    "schedlab-trace",
    "schedlab-sim",
    "schedlab-host",
    "schedlab-live",
    "schedlab-ext",
    "schedlab-measure",
    "schedlab-report",
];

/// What the chores use: everything.
const WITH_GUESTS: &[&str] = &[
    "guest-lab",
    "schedlab-files",
    "schedlab-lab",
    "schedlab-tables",
    "schedlab-study",
    "schedlab-model",
    "schedlab-stats",
    "schedlab-scheduler",
    "schedlab-trace",
    "schedlab-sim",
    "schedlab-host",
    "schedlab-live",
    "schedlab-ext",
    "schedlab-measure",
    "schedlab-report",
];

const MEASURING: &[&str] = &[
    "schedlab-files",
    "schedlab-model",
    "schedlab-stats",
    "schedlab-scheduler",
    "schedlab-host",
    "schedlab-trace",
];

const fn floor(name: &'static str, own: &'static [&'static str]) -> Floor {
    Floor { name, own, external: None, pure: false, may_be_unsafe: false }
}

const fn pure(
    name: &'static str,
    own: &'static [&'static str],
    external: &'static [&'static str],
) -> Floor {
    Floor { name, own, external: Some(external), pure: true, may_be_unsafe: false }
}

/// The table. A new crate needs a line here, which is the moment to think about where it belongs.
pub(super) const FLOORS: &[Floor] = &[
    Floor { external: Some(&["rustix", "tempfile", "thiserror"]), ..floor("schedlab-files", &[]) },
    pure("schedlab-model", &[], &["schemars", "serde", "strsim", "thiserror"]),
    Floor {
        external: Some(&["rand_core", "rand_pcg", "schemars", "serde", "statrs"]),
        ..floor("schedlab-stats", &[])
    },
    pure("schedlab-bpf", &[], &["thiserror"]),
    pure("schedlab-scheduler", &["schedlab-bpf", "schedlab-model"], &["thiserror"]),
    Floor {
        external: Some(&[
            "schemars",
            "serde",
            "serde_json",
            "thiserror",
            "zstd",
            "crc32fast",
            "blake3",
            "flate2",
            "memchr",
        ]),
        ..floor("schedlab-trace", &["schedlab-files", "schedlab-model", "schedlab-stats"])
    },
    pure(
        "schedlab-sim",
        &["schedlab-model", "schedlab-scheduler"],
        &["thiserror", "hdrhistogram", "serde", "rand_core", "rand_pcg", "libm"],
    ),
    Floor {
        external: Some(&[
            "rustix",
            "libc",
            "aya",
            "aya-obj",
            "perf-event-open-sys",
            "foldhash",
            "schemars",
            "thiserror",
            "serde",
            "serde_json",
        ]),
        may_be_unsafe: true,
        ..floor("schedlab-host", &["schedlab-model"])
    },
    Floor {
        external: Some(&[]),
        ..floor("schedlab-replay", &["schedlab-model", "schedlab-trace"])
    },
    // For tests only: no crate may depend on it but as a dev-dependency.
    floor("schedlab-testing", &[]),
    floor("schedlab-live", MEASURING),
    floor("schedlab-measure", MEASURING),
    floor(
        "schedlab-ext",
        &["schedlab-model", "schedlab-scheduler", "schedlab-host", "schedlab-live"],
    ),
    floor("schedlab-report", &["schedlab-model", "schedlab-stats", "schedlab-trace"]),
    floor("schedlab-study", PREDICTING),
    Floor {
        external: Some(&["arrow-array", "arrow-schema", "parquet", "thiserror"]),
        ..floor("schedlab-tables", &["schedlab-study", "schedlab-trace"])
    },
    Floor {
        external: Some(&["hyper", "hyper-util", "tokio"]),
        ..floor("schedlab-http", &["schedlab-files"])
    },
    // The workbench: it predicts and shows, and touches no machine.
    Floor {
        external: Some(&["rustix", "serde", "serde_json", "thiserror"]),
        ..floor(
            "schedlab-ui",
            &[
                "schedlab-files",
                "schedlab-http",
                "schedlab-model",
                "schedlab-report",
                "schedlab-scheduler",
                "schedlab-study",
                "schedlab-trace",
            ],
        )
    },
    floor("schedlab-lab", BELOW_LAB),
    floor("schedlab-cli", LAB_AND_BELOW),
    // The Python module: python/native.
    floor(
        "schedlab-python",
        &[
            "schedlab-files",
            "schedlab-tables",
            "schedlab-study",
            "schedlab-trace",
            "schedlab-scheduler",
            "schedlab-model",
        ],
    ),
    // Boots guests and asks what schedlab says of them.
    floor(
        "guest-lab",
        &[
            "schedlab-files",
            "schedlab-study",
            "schedlab-trace",
            "schedlab-sim",
            "schedlab-scheduler",
            "schedlab-stats",
            "schedlab-host",
            "schedlab-model",
        ],
    ),
    floor("xtask", WITH_GUESTS),
];

/// The floor of the crate whose files lie in `crates/<folder>` (or `xtask`, `guest-lab`).
pub(super) fn of_file(file: &str) -> Option<&'static Floor> {
    let folder = match file.strip_prefix("crates/") {
        Some(rest) => rest.split('/').next()?,
        None if file.starts_with("python/native/") => return find("schedlab-python"),
        None => {
            let beside = ["guest-lab", "xtask"].into_iter();
            return beside.filter(|name| file.starts_with(&format!("{name}/"))).find_map(find);
        }
    };
    find(&format!("schedlab-{folder}"))
}

fn find(name: &str) -> Option<&'static Floor> {
    FLOORS.iter().find(|floor| floor.name == name)
}

/// Every dependency that goes up or sideways.
pub(super) fn check(root: &Path, metadata: &Metadata, findings: &mut Vec<Finding>) {
    for package in &metadata.packages {
        let manifest = relative(root, &package.manifest_path);
        match find(&package.name) {
            Some(floor) => check_package(package, floor, &manifest, findings),
            None => findings.push(Finding::new(
                &manifest,
                0,
                format!(
                    "crate {} is on no floor: add it to FLOORS in xtask/src/tidy/floors.rs and to \
                     ARCHITECTURE.md",
                    package.name
                ),
            )),
        }
    }
}

fn check_package(package: &Package, floor: &Floor, manifest: &str, findings: &mut Vec<Finding>) {
    for dependency in package.dependencies.iter().filter(|d| d.kind.is_none()) {
        let name = dependency.name.as_str();
        let own = name.starts_with("schedlab") || name == "guest-lab";
        let allowed = match floor.external {
            _ if own => floor.own.contains(&name),
            Some(external) => external.contains(&name),
            None => true,
        };
        if !allowed {
            let may: Vec<&str> =
                if own { floor.own.to_vec() } else { floor.external.unwrap_or_default().to_vec() };
            findings.push(Finding::new(
                manifest,
                0,
                format!(
                    "{} may not depend on {name}; its floor allows: {} (FLOORS in \
                     xtask/src/tidy/floors.rs, reasons in ARCHITECTURE.md)",
                    package.name,
                    if may.is_empty() { "nothing".to_owned() } else { may.join(", ") }
                ),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Dependency;

    fn package(name: &str, uses: &[(&str, Option<&str>)]) -> Metadata {
        let dependencies = uses
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).to_owned(),
                kind: kind.map(str::to_owned),
            })
            .collect();
        let package = Package {
            name: name.to_owned(),
            license: None,
            manifest_path: "/w/crates/x/Cargo.toml".into(),
            dependencies,
            targets: Vec::new(),
        };
        Metadata { packages: vec![package] }
    }

    fn found(name: &str, uses: &[(&str, Option<&str>)]) -> usize {
        let mut findings = Vec::new();
        check(Path::new("/w"), &package(name, uses), &mut findings);
        findings.len()
    }

    #[test]
    fn arrows_go_down_only() {
        assert_eq!(
            found("schedlab-sim", &[("schedlab-scheduler", None), ("schedlab-model", None)]),
            0
        );
        assert_eq!(found("schedlab-sim", &[("schedlab-trace", None)]), 1);
        assert_eq!(found("schedlab-host", &[("schedlab-scheduler", None)]), 1);
        assert_eq!(found("schedlab-model", &[("rand", None), ("serde", None)]), 1);
    }

    #[test]
    fn tests_may_look_further_and_new_crates_need_a_floor() {
        assert_eq!(found("schedlab-model", &[("proptest", Some("dev"))]), 0);
        assert_eq!(found("schedlab-novel", &[]), 1);
    }
}
