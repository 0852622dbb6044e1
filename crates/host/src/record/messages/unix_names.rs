//! The paths of Unix sockets, by inode: `/proc/net/unix`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The list is read again for a new socket, but not more often than this: it may have tens of
/// thousands of lines.
const AGAIN: Duration = Duration::from_millis(500);

/// The paths that were read, and when.
#[derive(Debug, Default)]
pub(super) struct UnixNames {
    paths: HashMap<u32, String>,
    read: Option<Instant>,
}

impl UnixNames {
    /// Returns the path to which the socket with this inode is bound; `None`: to none, or it is not
    /// listed yet.
    pub(super) fn path(&mut self, inode: u32) -> Option<&str> {
        if inode == 0 {
            return None;
        }
        let due = self.read.is_none_or(|read| read.elapsed() > AGAIN);
        if due && !self.paths.contains_key(&inode) {
            let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
            self.paths = paths(&text);
            self.read = Some(Instant::now());
        }
        self.paths.get(&inode).filter(|path| !path.is_empty()).map(String::as_str)
    }
}

/// Every socket of the list, with an empty path where it has none.
fn paths(text: &str) -> HashMap<u32, String> {
    let line = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path
        let mut words = line.split_whitespace().skip(6);
        let inode = words.next()?.parse::<u64>().ok()? as u32;
        Some((inode, words.collect::<Vec<_>>().join(" ")))
    };
    text.lines().skip(1).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_the_paths_of_the_list() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    ffff8881: 00000002 00000000 00010000 0001 01 18432 \
                    /run/postgresql/.s.PGSQL.5432\n\
                    ffff8882: 00000003 00000000 00000000 0001 03 18433\n\
                    ffff8883: 00000002 00000000 00010000 0005 01 18434 @with space in it\n";
        let found = paths(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[&18432], "/run/postgresql/.s.PGSQL.5432");
        assert_eq!((&found[&18433][..], &found[&18434][..]), ("", "@with space in it"));
    }
}
