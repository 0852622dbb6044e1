//! `cargo xtask guest --pairs`: servers of Debian beside batch work in guests, recorded before and
//! after each change under the virtual clock, where nothing else runs and each recording repeats
//! bit by bit. What comes back is a file of pairs (`cargo xtask pairs`).

use super::apt;
use super::cpio::Archive;
use super::image;
use super::kernels::natural;
use super::machine::{self, Clock, Machine};
use super::options::Pairs;
use super::store::Store;
use super::{Laboratory, transcript};
use crate::pairs::{self, Pair, PairFile};
use anyhow::{Context, Result, ensure};
use schedlab_study::compare::clients::client_count;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The suite whose servers are taken.
const SUITE: &str = "trixie";
/// What no server reads at run time.
const UNREAD: [&str; 7] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/info",
    "usr/include",
    "usr/lib/jvm/java-21-openjdk-amd64/jmods",
];
/// What comes with a distribution's root, and no package of a server brings.
const ROOT_LINKS: [(&str, &str); 4] =
    [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")];
/// A boot with ten recordings of some three seconds each; a second under the virtual clock takes
/// one to ten of the host's.
const LIMIT: Duration = Duration::from_secs(7200);

/// A server, or what else is to be kept from waiting.
pub(super) struct Server {
    /// Its case in `guest-lab/guest/pairs/pair.sh`.
    pub(super) name: &'static str,
    /// Debian's packages: the server, and its client.
    packages: &'static [&'static str],
    /// What the kernel calls it.
    task: &'static str,
    /// Nothing was changed because of its pairs: they are looked at for the final table only.
    unseen: bool,
    /// Its tasks are there before the load begins, so that they can be given a policy. Those of a
    /// build are not.
    stays: bool,
}

const fn server(
    name: &'static str,
    packages: &'static [&'static str],
    task: &'static str,
) -> Server {
    Server { name, packages, task, unseen: false, stays: true }
}

/// One whose pairs were never looked at.
const fn unseen(
    name: &'static str,
    packages: &'static [&'static str],
    task: &'static str,
) -> Server {
    Server { unseen: true, ..server(name, packages, task) }
}

/// The servers. Those whose pairs are `unseen` were chosen before any recording was made.
pub(super) const SERVERS: &[Server] = &[
    server("redis", &["redis-server", "redis-tools"], "redis-server"),
    server("nginx", &["nginx-light", "wrk"], "nginx"),
    server("caddy", &["caddy", "wrk"], "caddy"),
    server("python", &["python3", "wrk"], "python3"),
    unseen("node", &["nodejs", "wrk"], "node"),
    server("postgres", &["postgresql-17"], "postgres"),
    unseen("memcached", &["memcached", "libmemcached-tools"], "mc-worker"),
    server("apache", &["apache2-bin", "wrk"], "apache2"),
    server("java", &["openjdk-21-jdk-headless", "wrk"], "ForkJoinPool-1-"),
    // Two servers, one behind the other.
    server("haproxy", &["haproxy", "nginx-light", "wrk"], "haproxy"),
    // A thread for each connection; a client of its own kind.
    server(
        "mariadb",
        &["mariadb-server-core", "mariadb-client-core", "sysbench"],
        "one_connection",
    ),
    // Requests without connections: UDP.
    unseen("unbound", &["unbound", "dnsperf"], "unbound"),
    // All from here on were named on 2026-11-29, before their first recording, to judge the replay
    // by messages. It was repaired with those that are not `unseen`.
    server("lighttpd", &["lighttpd", "wrk"], "lighttpd"),
    // A new connection for each request.
    unseen("php", &["php8.4-cli", "wrk"], "php8.4"),
    // Threads that take turns at one lock of their interpreter.
    server("ruby", &["ruby", "wrk"], "answer"),
    // Processes that wait at one socket of datagrams.
    server("nsd", &["nsd", "dnsperf"], "nsd"),
    // Processes that wait at one listening socket.
    server("gunicorn", &["gunicorn", "wrk"], "gunicorn"),
    // A proxy before processes that serve one connection each.
    unseen("pgbouncer", &["postgresql-17", "pgbouncer"], "pgbouncer"),
    Server { stays: false, ..server("build", &["gcc", "make"], "cc1") },
    server("audio", &[], "audio"),
];

/// One change: the recording it starts from, its name, and how `compare` says it (`{server}`: the
/// server's name).
struct Change {
    from: &'static str,
    name: &'static str,
    variant: &'static str,
    /// The first kernel that has it; empty: all have.
    since: &'static str,
}

const fn change(from: &'static str, name: &'static str, variant: &'static str) -> Change {
    Change { from, name, variant, since: "" }
}

const CHANGES: &[Change] = &[
    change("base", "same", ""),
    change("base", "idle", "batch policy=idle"),
    change("base", "batch", "batch policy=batch"),
    change("base", "nice", "batch nice=10"),
    change("base", "fifo", "{server} policy=fifo:1"),
    change("base", "srvnice", "{server} nice=-10"),
    change("base", "aff", "batch cpus=0"),
    change("base", "pinned", "{server} cpus=0"),
    change("alone", "alone-pinned", "{server} cpus=0"),
    // `sched_setattr` reads a fair task's slice since then (kernel/sched/syscalls.c).
    Change { since: "6.12", ..change("base", "slice", "batch slice=10ms") },
    change("groups", "weight", "/batch cpu.weight=25"),
    change("groups", "max", "/batch cpu.max=20ms/100ms"),
    // And from a change back.
    change("idle", "base", "batch policy=other"),
    change("nice", "base", "batch nice=0"),
    change("max", "groups", "/batch cpu.max=max"),
];

/// What changes where tasks may run: on one CPU there is nothing to change.
const AFFINITIES: [&str; 3] = ["aff", "pinned", "alone-pinned"];

/// The sizes of machines.
const SIZES: [u32; 4] = [1, 2, 4, 8];
/// Those that are recorded unless one is asked for.
const USUAL_SIZES: [u32; 2] = [1, 4];
/// How long the load of a recording lasts, in seconds, and what the name of its folder ends with.
const LENGTHS: [(u32, &str); 2] = [(3, ""), (20, "-20s")];
/// What the name of a pair and of its folder end with where cores have several hardware threads.
const THREADS: [(&str, &str); 2] = [("", ""), (" of 2 a core", "-smt")];

/// Records what is asked for, kernel by kernel, and writes `pairs.toml` beside the recordings: how
/// many boots were not good.
pub(super) fn record(
    laboratory: &Laboratory,
    kernels: &[super::Kernel],
    asked: &Pairs,
) -> Result<usize> {
    let wanted = |server: &&Server| {
        asked.servers.is_empty() || asked.servers.iter().any(|name| name == server.name)
    };
    let folder = crate::root().join("target/guest/pairs");
    let mut bad = 0;
    for server in SERVERS.iter().filter(wanted) {
        let root = root(&laboratory.store, server)?;
        for kernel in kernels {
            let sizes = asked.cpus.map_or(USUAL_SIZES.to_vec(), |only| vec![only]);
            for cpus in sizes {
                let settings = settings(server, cpus, &kernel.name, &asked.changes);
                let length = if asked.long { LENGTHS[1] } else { LENGTHS[0] };
                let threads = THREADS[usize::from(asked.threads > 1)].1;
                let name = format!("{}-{cpus}{}{threads}", server.name, length.1);
                let into = folder.join(&kernel.name).join(name);
                let recorded = Recorded {
                    server,
                    settings: &settings,
                    seconds: length.0,
                    machine: Machine {
                        cpus,
                        threads: asked.threads,
                        smt_yield: asked.smt_yield,
                        memory_mib: 2048,
                        ..Machine::usual(asked.clock)
                    },
                };
                // One boot that fails leaves the other servers' pairs as good as they are.
                let good =
                    boot(laboratory, kernel, &recorded, &root, &into).unwrap_or_else(|error| {
                        println!("== {}: {error:#}", into.display());
                        false
                    });
                bad += usize::from(!good);
                write(&folder)?;
            }
        }
    }
    Ok(bad)
}

/// What one boot records.
struct Recorded<'a> {
    server: &'a Server,
    settings: &'a [&'static str],
    /// How long the load of a setting lasts.
    seconds: u32,
    machine: Machine,
}

/// One boot with these settings of one server; whether everything was recorded.
fn boot(
    laboratory: &Laboratory,
    kernel: &super::Kernel,
    Recorded { server, settings, seconds, machine }: &Recorded<'_>,
    root: &[u8],
    into: &Path,
) -> Result<bool> {
    let settings = settings.join(" ");
    let script = std::fs::read_to_string(crate::root().join("guest-lab/guest/pairs/pair.sh"))?;
    let archive = image::script(&format!(
        "server={} cpus={} seconds={seconds} beside={} settings='{settings}'\n{script}",
        server.name,
        machine.cpus,
        if machine.clock == Clock::Lockstep { "yes" } else { "no" },
    ));
    if into.exists() {
        std::fs::remove_dir_all(into)?;
    }
    let parts = [laboratory.base.as_slice(), root, &archive];
    let boot = machine::boot(&laboratory.emulator, kernel, machine, &parts, into, LIMIT)?;
    let told = transcript::read(&boot.console);
    let verdicts = told.tests.iter().flat_map(|test| &test.verdicts);
    let bad: Vec<&str> =
        verdicts.filter(|verdict| !verdict.good).map(|verdict| verdict.text.as_str()).collect();
    // What the script wrote lies in a folder with its name.
    for entry in std::fs::read_dir(into.join("script")).context("the guest sent no files")? {
        let entry = entry?;
        std::fs::rename(entry.path(), into.join(entry.file_name()))?;
    }
    let (name, seconds) = (into.display(), boot.time.as_secs_f64());
    println!(
        "== {name}: {seconds:.0} s, {}",
        if bad.is_empty() { "all recorded" } else { "FAULTS" }
    );
    bad.iter().for_each(|text| println!("     FAULT {text}"));
    Ok(bad.is_empty() && told.over)
}

/// What is recorded of a server on a machine of so many CPUs, under this kernel: on one CPU there
/// is no affinity to change. `asked`: only these changes; none: all.
fn settings(server: &Server, cpus: u32, kernel: &str, asked: &[String]) -> Vec<&'static str> {
    let possible = |change: &&Change| {
        (asked.is_empty() || asked.iter().any(|name| name == change.name))
            && (cpus > 1 || !AFFINITIES.contains(&change.name))
            && (server.stays || !change.variant.starts_with("{server}"))
            && natural(kernel, change.since).is_ge()
    };
    let mut names = vec!["base"];
    let chosen = CHANGES.iter().filter(possible);
    names.extend(chosen.flat_map(|change| [change.from, change.name]));
    let mut once: Vec<&str> = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}

/// The packages of a server, unpacked below `srv`.
fn root(store: &Store, server: &Server) -> Result<Vec<u8>> {
    if server.packages.is_empty() {
        let mut archive = Archive::default();
        ["srv", "srv/etc"].iter().for_each(|folder| archive.folder(folder));
        return Ok(archive.finish());
    }
    let name = format!("servers/{}", server.name);
    let root = store.folder(&name)?;
    for (link, target) in ROOT_LINKS {
        if root.join(link).symlink_metadata().is_err() {
            std::fs::create_dir_all(root.join(target))?;
            std::os::unix::fs::symlink(target, root.join(link))?;
        }
    }
    apt::unpacked(store, &name, server.name, &[SUITE], server.packages)?;
    let mut archive = Archive::default();
    archive.folder("srv");
    add(&mut archive, &root, &root, "srv")?;
    Ok(archive.finish())
}

/// Adds what is in a folder, in the order of the names.
fn add(archive: &mut Archive, root: &Path, folder: &Path, under: &str) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        let inside = path.strip_prefix(root)?;
        if UNREAD.iter().any(|unread| inside.starts_with(unread)) {
            continue;
        }
        let (name, kind) =
            (format!("{under}/{}", inside.display()), path.symlink_metadata()?.file_type());
        if kind.is_symlink() {
            archive.link(&name, &std::fs::read_link(&path)?.display().to_string());
        } else if kind.is_dir() {
            archive.folder(&name);
            add(archive, root, &path, under)?;
        } else if kind.is_file() {
            archive.file(&name, &std::fs::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    Ok(())
}

/// A number of CPUs, a length, and the words for the threads of a core.
type Shape = (u32, (u32, &'static str), (&'static str, &'static str));

/// Every shape that has a folder of its own.
fn shapes() -> impl Iterator<Item = Shape> {
    let lengths = |cpus| LENGTHS.map(|length| (cpus, length));
    let threads = |(cpus, length)| THREADS.map(|threads| (cpus, length, threads));
    SIZES.into_iter().flat_map(lengths).flat_map(threads)
}

/// Writes `pairs.toml` of all recordings that are there: every change under each kernel, and the
/// base of each kernel predicted for each other one.
fn write(folder: &Path) -> Result<()> {
    let mut file = PairFile {
        about: "cargo xtask guest --pairs: guests under the virtual clock, docs/guests.md"
            .to_owned(),
        pairs: Vec::new(),
    };
    let mut kernels: Vec<String> = names(folder)?;
    kernels.retain(|name| folder.join(name).is_dir());
    for kernel in &kernels {
        for server in SERVERS {
            for (cpus, (seconds, end), (threads, last)) in shapes() {
                let place = format!("{kernel}/{}-{cpus}{end}{last}", server.name);
                let title = format!(
                    "{kernel} {} {cpus} CPU{}{threads}{}",
                    server.name,
                    if cpus > 1 { "s" } else { "" },
                    if end.is_empty() { String::new() } else { format!(" {seconds} s") }
                );
                for change in CHANGES {
                    let variant = change.variant.replace("{server}", server.task);
                    let came = format!("{place}/{}", change.name);
                    let forth = matches!(change.from, "base" | "groups" | "alone");
                    let back = if forth { "" } else { "back from " };
                    let what = if back.is_empty() { change.name } else { change.from };
                    let title = format!("{title}, {back}{what}");
                    file.pairs.extend(pair(
                        folder,
                        title,
                        &format!("{place}/{}", change.from),
                        &came,
                        variant,
                        server,
                    )?);
                }
                for other in kernels.iter().filter(|other| *other != kernel) {
                    let came = format!("{other}/{}-{cpus}{end}{last}/base", server.name);
                    let title = format!("{title}, to {other}");
                    let pair = pair(
                        folder,
                        title,
                        &format!("{place}/base"),
                        &came,
                        String::new(),
                        server,
                    )?;
                    file.pairs.extend(
                        pair.map(|pair| Pair { scheduler: format!("linux-{other}"), ..pair }),
                    );
                }
            }
        }
    }
    let text = toml::to_string(&file)?;
    std::fs::write(folder.join("pairs.toml"), text)?;
    Ok(())
}

/// One pair; `None`: one of its recordings is not there.
fn pair(
    folder: &Path,
    name: String,
    base: &str,
    came: &str,
    change: String,
    server: &Server,
) -> Result<Option<Pair>> {
    let file = |of: &str, end: &str| folder.join(format!("{of}.{end}"));
    if !file(base, "slt").exists() || !file(came, "slt").exists() {
        return Ok(None);
    }
    let count = |of: &str| {
        let text = std::fs::read_to_string(file(of, "client")).ok()?;
        client_count(&text).ok().map(|counted| counted.per_s)
    };
    let counted = count(base).zip(count(came));
    Ok(Some(Pair {
        name,
        base: format!("{base}.slt").into(),
        change,
        scheduler: String::new(),
        came: None,
        figures: pairs::figures(&file(came, "slt"))?,
        client_log: counted.map(|_| format!("{base}.client").into()),
        requests_per_s: counted.map(|(_, came)| came),
        classes: Vec::new(),
        unseen: server.unseen,
        serve: String::new(),
    }))
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Refuses names that are no server's, and sizes that have no recordings.
pub(super) fn check(asked: &Pairs) -> Result<()> {
    for name in &asked.servers {
        ensure!(
            SERVERS.iter().any(|server| server.name == name),
            "no server `{name}`: there are {}",
            SERVERS.iter().map(|server| server.name).collect::<Vec<_>>().join(", ")
        );
    }
    for name in &asked.changes {
        ensure!(
            CHANGES.iter().any(|change| change.name == name),
            "no change `{name}`: there are {}",
            CHANGES.iter().map(|change| change.name).collect::<Vec<_>>().join(", ")
        );
    }
    let sizes = SIZES.map(|size| size.to_string()).join(", ");
    ensure!(
        asked.cpus.is_none_or(|cpus| SIZES.contains(&cpus)),
        "--pairs records machines of {sizes} CPUs"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_a_case_in_the_script_and_every_setting_a_change() {
        let script =
            std::fs::read_to_string(crate::root().join("guest-lab/guest/pairs/pair.sh")).unwrap();
        for server in SERVERS {
            assert!(script.contains(&format!("    {})\n", server.name)), "{}", server.name);
            assert!(script.contains(&format!("        name={}\n", server.task)), "{}", server.name);
        }
        let settings = |name: &str, cpus, kernel: &str| {
            settings(SERVERS.iter().find(|of| of.name == name).unwrap(), cpus, kernel, &[])
        };
        for setting in
            settings("redis", 4, "7.2").into_iter().filter(|name| !["base", "same"].contains(name))
        {
            assert!(
                script.contains(&format!("{setting})")) || script.contains(&format!("{setting} |")),
                "{setting}"
            );
        }
        for (server, cpus, kernel, change, possible) in [
            ("redis", 1, "6.1", "aff", false),
            ("redis", 4, "6.1", "aff", true),
            ("redis", 1, "6.1", "fifo", true),
            ("build", 1, "6.1", "fifo", false),
            ("redis", 1, "6.1", "slice", false),
            ("redis", 1, "6.12-rt", "slice", true),
            ("redis", 1, "7.2", "slice", true),
        ] {
            assert_eq!(
                settings(server, cpus, kernel).contains(&change),
                possible,
                "{server} {cpus} {kernel} {change}"
            );
        }
        let asked = ["idle".to_owned(), "weight".to_owned()];
        assert_eq!(
            super::settings(&SERVERS[0], 1, "6.1", &asked),
            ["base", "idle", "groups", "weight"]
        );
        let tomcat = Pairs {
            servers: vec!["tomcat".to_owned()],
            changes: Vec::new(),
            cpus: None,
            long: false,
            clock: Clock::Virtual,
            threads: 1,
            smt_yield: 1000,
        };
        assert!(check(&tomcat).unwrap_err().to_string().contains("redis, nginx"));
    }
}
