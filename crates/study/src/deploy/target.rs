//! What a setting changes, as commands name it. Names are of strangers: threads and control groups
//! may be named anything.

use super::{BATCH, Named, SERVER};
use crate::variant::OF_POD;
use schedlab_model::text::{is_hostile, quoted, shell_word, shown};
use std::fmt;

/// Bytes that the kernel keeps of a thread's name (TASK_COMM_LEN - 1, include/linux/sched.h, 6.18).
const COMM_MAX: usize = 15;
/// Characters that a label of a container may have (RFC 1123, Kubernetes: names of containers).
const LABEL_MAX: usize = 63;

/// The name of what changes: a program, a glob, a process id, a control group, or a word in
/// capitals that the reader replaces.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) name: &'a str,
    is_pid: bool,
    is_threads: bool,
}

impl<'a> Target<'a> {
    /// Returns the target that a clause names. A number is a process id unless something has it for
    /// a name (`named`).
    pub(super) fn new(name: &'a str, named: &dyn Fn(&str) -> Named) -> Target<'a> {
        let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let named = named(name);
        Target {
            name,
            is_pid: number && named == Named::Nothing,
            is_threads: named == Named::Threads,
        }
    }

    /// Returns the control group of a path.
    pub(super) fn group(name: &'a str) -> Target<'a> {
        Target { name, is_pid: false, is_threads: false }
    }

    /// Returns why no command may name it; `None`: commands may.
    pub(super) fn refused(self) -> Option<String> {
        let name = quoted(self.name);
        if self.name.contains(is_hostile) {
            return Some(format!(
                "No command is given: `{name}` has control characters. Name the processes by \
                 their ids instead."
            ));
        }
        if self.name.starts_with('/') {
            let outside = self.name.split('/').any(|part| matches!(part, "." | ".."));
            return outside
                .then(|| format!("No command is given: `{name}` is no path of a control group."));
        }
        // A recorded name is kept escaped.
        self.name.contains('\\').then(|| {
            format!(
                "No command is given: the backslash in `{name}` is a backslash or the escape of \
                 another character. Name the \
                 processes by their ids instead."
            )
        })
    }

    /// Returns the number of the session whose autogroup this is, as the kernel names it
    /// (`/proc/PID/autogroup`): it is a group, but has no folder among the control groups.
    pub(super) fn session(self) -> Option<u64> {
        self.name.strip_prefix("/autogroup-")?.parse().ok()
    }

    /// Returns the ids of its processes, or of its threads, as a word of a shell command line.
    pub(super) fn pids(self) -> String {
        match self.is_placeholder() {
            true => format!("{}_PID", self.name),
            false if self.is_pid => self.name.to_owned(),
            // Without -w only names of processes are looked at.
            false => {
                let threads = if self.is_threads { "-w " } else { "" };
                format!("$(pgrep {threads}-x -- {})", shell_word(&self.pattern()))
            }
        }
    }

    /// Whether it names threads, and not the processes that have them.
    pub(super) fn is_threads(self) -> bool {
        self.is_threads
    }

    /// Whether it is one process.
    pub(super) fn is_one(self) -> bool {
        self.is_placeholder() || self.is_pid
    }

    /// Returns the command to start it with, as a word of a shell command line.
    pub(super) fn command(self) -> String {
        match self.is_placeholder() || self.is_pid || self.name.contains(['*', '?', '[']) {
            true => "COMMAND".to_owned(),
            false => shell_word(self.name).into_owned(),
        }
    }

    /// Returns a name for a unit or a file.
    pub(super) fn plain(self) -> String {
        let kept =
            |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') { c } else { '-' };
        let name: String = self.name.chars().map(kept).collect();
        match name.trim_matches('-') {
            name if self.is_pid || name.trim_matches('.').is_empty() => "UNIT".to_owned(),
            name => name.to_owned(),
        }
    }

    /// Returns the name of a container, which of a pod's uid is not known.
    pub(super) fn container(self) -> String {
        match self.name.strip_prefix(OF_POD).map(|name| Target { name, ..self }) {
            None => self.label(),
            Some(of) if of.name.len() >= 8 && of.name.bytes().all(is_of_uid) => {
                "CONTAINER".to_owned()
            }
            Some(of) => of.label(),
        }
    }

    /// Returns a name for a container: an RFC 1123 label.
    pub(super) fn label(self) -> String {
        let label = self.plain().to_lowercase().replace(['_', '.'], "-");
        label.chars().take(LABEL_MAX).collect::<String>().trim_matches('-').to_owned()
    }

    /// Whether it is a word in capitals.
    pub(super) fn is_placeholder(self) -> bool {
        matches!(self.name.trim_start_matches('/'), SERVER | BATCH)
    }

    /// Returns the extended regular expression of pgrep for its name, of which the kernel keeps the
    /// first bytes.
    fn pattern(self) -> String {
        let is_glob = self.name.contains(['*', '?', '[']);
        let end = if is_glob { self.name.len() } else { self.name.floor_char_boundary(COMM_MAX) };
        let (mut pattern, mut rest) = (String::new(), &self.name[..end]);
        while let Some(c) = rest.chars().next() {
            let class = class(rest);
            match c {
                _ if class.is_some() => {
                    pattern += &class.unwrap_or_default().replacen("[!", "[^", 1)
                }
                '*' => pattern += ".*",
                '?' => pattern.push('.'),
                '.' | '+' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' | '|' | '\\' => {
                    pattern.extend(['\\', c])
                }
                c => pattern.push(c),
            }
            rest = &rest[class.map_or(c.len_utf8(), str::len)..];
        }
        pattern
    }
}

/// Whether a uid may have this byte.
fn is_of_uid(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

/// Returns the class of characters (`[1-8x]`) that a glob begins with.
fn class(glob: &str) -> Option<&str> {
    let inner = glob.strip_prefix('[')?;
    let begin = usize::from(inner.starts_with(['!', '^']));
    // A bracket that is first is one of the letters.
    let first = inner[begin..].chars().next()?.len_utf8();
    let end = begin + first + inner[begin + first..].find(']')?;
    Some(&glob[..end + 2])
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.name))
    }
}
