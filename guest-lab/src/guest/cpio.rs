//! Archives in the form that the kernel unpacks as its first root (cpio "newc": Linux
//! Documentation/driver-api/early-userspace/buffer-format.rst), the same bytes for the same files.

/// An archive that grows file by file. Folders come before what is in them.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    /// A folder.
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, b"");
    }

    /// A file that every user may read and execute.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, target.as_bytes());
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.files += 1;
        self.header(path, mode, self.files, content.len());
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Magic, then 13 fields of eight hexadecimal digits: inode, mode, user, group, links, time,
    /// size, four device numbers, length of the name with its zero, checksum (unused).
    fn header(&mut self, path: &str, mode: u32, inode: u32, size: usize) {
        let name = path.len() + 1;
        let fields = [inode as usize, mode as usize, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// Headers and contents begin at multiples of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The archive with its end mark.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0, 0);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_say_their_lengths() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/a", b"12345");
        archive.link("bin/b", "a");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 512, 0);
        let (mut at, mut found) = (0, Vec::new());
        while found.last().is_none_or(|(name, _)| name != "TRAILER!!!") {
            assert_eq!((&bytes[at..at + 6], at % 4), (&b"070701"[..], 0));
            let field = |index: usize| {
                let text = &bytes[at + 6 + index * 8..at + 14 + index * 8];
                usize::from_str_radix(std::str::from_utf8(text).unwrap(), 16).unwrap()
            };
            let (size, length) = (field(6), field(11));
            let name = String::from_utf8(bytes[at + 110..at + 109 + length].to_vec()).unwrap();
            let content = (at + 110 + length).next_multiple_of(4);
            found.push((name, bytes[content..content + size].to_vec()));
            at = (content + size).next_multiple_of(4);
        }
        let expected: [(&str, &[u8]); 4] =
            [("bin", b""), ("bin/a", b"12345"), ("bin/b", b"a"), ("TRAILER!!!", b"")];
        let expected: Vec<_> =
            expected.iter().map(|(n, c)| ((*n).to_owned(), c.to_vec())).collect();
        assert_eq!(found, expected);
    }
}
