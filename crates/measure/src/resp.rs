//! RESP, the protocol of Redis: commands out, replies in, however the bytes are cut.

/// A command as an array of bulk strings.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Bytes that are not RESP, or a kind of reply that no simple command has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the server does not speak RESP: it sent {0:?}; is this a Redis server?")]
pub struct RespError(pub String);

/// Longest line before its end, and longest bulk string, that is accepted.
const LONGEST: usize = 1 << 20;

/// Counts replies in a stream of bytes.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    /// An unfinished line.
    line: Vec<u8>,
    /// Bytes of a bulk string (with its line end) still to come.
    skip: usize,
    /// Error replies so far (`-ERR …`).
    errors: u64,
}

impl Replies {
    /// Takes `bytes` and returns how many replies they completed.
    ///
    /// # Errors
    /// [`RespError`] when they are not RESP; the reader is of no use afterwards.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<usize, RespError> {
        let mut done = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let take = self.skip.min(bytes.len());
                self.skip -= take;
                bytes = &bytes[take..];
                done += usize::from(self.skip == 0);
                continue;
            }
            let end = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |at| at + 1);
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end..];
            if self.line.ends_with(b"\n") {
                done += usize::from(self.line()?);
                self.line.clear();
            } else if self.line.len() > LONGEST {
                return Err(self.error());
            }
        }
        Ok(done)
    }

    /// Error replies so far.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Whether the whole line is a whole reply.
    fn line(&mut self) -> Result<bool, RespError> {
        let Some(text) = self.line.strip_suffix(b"\r\n") else { return Err(self.error()) };
        match text.split_first() {
            Some((b'+' | b':', _)) => Ok(true),
            Some((b'-', _)) => {
                self.errors += 1;
                Ok(true)
            }
            Some((b'$', length)) => {
                let length =
                    std::str::from_utf8(length).ok().and_then(|text| text.parse::<i64>().ok());
                match length {
                    Some(-1) => Ok(true),
                    Some(length) if (0..=LONGEST as i64).contains(&length) => {
                        self.skip = length as usize + 2;
                        Ok(false)
                    }
                    _ => Err(self.error()),
                }
            }
            _ => Err(self.error()),
        }
    }

    fn error(&self) -> RespError {
        let start = &self.line[..self.line.len().min(40)];
        RespError(String::from_utf8_lossy(start).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        assert_eq!(command(&[b"GET", b"key:1"]), b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n");
    }

    #[test]
    fn other_protocols_are_refused() {
        for bytes in [&b"HTTP/1.1 400\r\n"[..], b"*2\r\n", b"$x\r\n", b"$99999999\r\n", b"+OK\n"] {
            assert!(Replies::default().push(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        /// Replies are counted however the network cuts them.
        #[test]
        fn cuts_do_not_matter(kinds in prop::collection::vec(0..5usize, 0..20), cuts in prop::collection::vec(1..9usize, 1..60)) {
            let replies: [&[u8]; 5] = [b"+OK\r\n", b":12\r\n", b"-ERR no\r\n", b"$-1\r\n", b"$4\r\na\r\nb\r\n"];
            let bytes: Vec<u8> = kinds.iter().flat_map(|&kind| replies[kind].to_vec()).collect();
            let mut reader = Replies::default();
            let (mut rest, mut count, mut cuts) = (&bytes[..], 0, cuts.iter().cycle());
            while !rest.is_empty() {
                let cut = rest.len().min(*cuts.next().unwrap());
                count += reader.push(&rest[..cut]).unwrap();
                rest = &rest[cut..];
            }
            prop_assert_eq!(count, kinds.len());
            prop_assert_eq!(reader.errors(), kinds.iter().filter(|&&kind| kind == 2).count() as u64);
        }

        /// No bytes make it panic.
        #[test]
        fn survives_anything(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Replies::default().push(&bytes);
        }
    }
}
