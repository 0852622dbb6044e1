//! What a trace is wrapped in: gzip, zstd, UTF-16 and byte-order marks are taken off before
//! anything is recognised.

use super::formats::HEAD;
use crate::TraceError;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

/// Most bytes that a wrapped trace may unfold to: more counts as a decompression bomb.
pub const UNFOLDED_MAX: u64 = 64 << 30;
/// So many bytes are unfolded whatever they come from.
const UNFOLDED_FREE: u64 = 256 << 20;
/// Beyond those, at most so many from each byte of the file: traces unfold to 10 to 50 times their
/// size, gzip can reach 1,032.
const UNFOLDED_RATIO: u64 = 250;
/// Wrappings inside each other that are taken off (`trace.txt.gz.zst`).
const DEPTH: usize = 3;
/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Whether so many bytes that came out of `taken` compressed ones are more than a trace can have:
/// 256 MiB, and 250 times as many.
pub(super) const fn is_bomb(unfolded: u64, taken: u64) -> bool {
    unfolded > UNFOLDED_FREE && unfolded / UNFOLDED_RATIO > taken
}

/// Most bytes that may come out of `taken` compressed ones.
pub(super) const fn unfolded_max(taken: u64) -> u64 {
    let most = taken.saturating_add(1).saturating_mul(UNFOLDED_RATIO);
    if most > UNFOLDED_FREE { most } else { UNFOLDED_FREE }
}

/// What is said of a bomb.
pub(super) fn bomb(unfolded: u64, taken: u64) -> String {
    format!(
        "its first {taken} bytes unfold to more than {unfolded} bytes, {UNFOLDED_RATIO} times as \
         many: no trace does"
    )
}

/// Takes every wrapping off `input`.
///
/// # Errors
/// It cannot be read.
pub(super) fn unwrap<'i>(
    input: Box<dyn BufRead + 'i>,
) -> Result<Box<dyn BufRead + 'i>, TraceError> {
    let mut input = with_head(input)?;
    for _ in 0..DEPTH {
        let head = peek(&mut input)?;
        let atrace = is_atrace(&mut input)?;
        let unmarked = unmarked_utf16(&mut input)?;
        let taken = Rc::new(Cell::new(0));
        let counted = Counted { inner: input, taken: Rc::clone(&taken) };
        let buffered = |reader: Box<dyn Read + 'i>| {
            let bounded = Bounded { inner: reader, unfolded: 0, taken };
            Box::new(BufReader::with_capacity(CHUNK, bounded)) as Box<dyn BufRead + 'i>
        };
        input = match head {
            [0x1f, 0x8b, 0x08, ..] => {
                buffered(Box::new(flate2::bufread::MultiGzDecoder::new(counted)))
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = zstd::stream::read::Decoder::with_buffer(counted);
                buffered(Box::new(
                    decoder.map_err(|source| TraceError::Io { doing: "read", source })?,
                ))
            }
            [0xff, 0xfe, ..] => buffered(Box::new(Utf16::new(counted, false))),
            [0xfe, 0xff, ..] => buffered(Box::new(Utf16::new(counted, true))),
            [0xef, 0xbb, 0xbf, ..] => {
                let mut input = counted.inner;
                input.consume(3);
                return Ok(input);
            }
            [b'T', b'R', b'A', b'C'] if atrace => {
                let mut counted = counted;
                counted.consume(ATRACE.len());
                buffered(Box::new(flate2::bufread::ZlibDecoder::new(counted)))
            }
            _ => match unmarked {
                Some(big) => buffered(Box::new(Utf16::new(counted, big))),
                None => return Ok(counted.inner),
            },
        };
        input = with_head(input)?;
    }
    Ok(input)
}

/// The same bytes, the first of which come at once: a pipe gives them in pieces of any length.
fn with_head<'i>(mut input: Box<dyn BufRead + 'i>) -> Result<Box<dyn BufRead + 'i>, TraceError> {
    let there = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
    if there.len() >= HEAD {
        return Ok(input);
    }
    let mut head = Vec::with_capacity(HEAD);
    let read = Read::take(&mut input, HEAD as u64).read_to_end(&mut head);
    read.map_err(|source| TraceError::Io { doing: "read", source })?;
    Ok(Box::new(io::Cursor::new(head).chain(input)))
}

/// What `atrace -z` writes before its compressed text.
const ATRACE: &[u8] = b"TRACE:\n";

/// Whether the text of `atrace` that begins here is compressed: a zlib header has the method 8 and
/// is a multiple of 31.
fn is_atrace(input: &mut dyn BufRead) -> Result<bool, TraceError> {
    let head = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
    let zlib = |head: &[u8]| match *head {
        [method, flags, ..] => {
            method & 0x0f == 8 && (u32::from(method) << 8 | u32::from(flags)).is_multiple_of(31)
        }
        _ => false,
    };
    Ok(head.strip_prefix(ATRACE).is_some_and(zlib))
}

/// Pairs of bytes by which UTF-16 without a byte-order mark is recognised.
const PAIRS: usize = 32;

/// Whether a text is UTF-16 although no byte-order mark says so, and whether its high bytes come
/// first: its first characters are ASCII, each with a zero beside it.
fn unmarked_utf16(input: &mut dyn BufRead) -> Result<Option<bool>, TraceError> {
    let head = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
    let pairs = &head[..head.len().min(2 * PAIRS)];
    let is_text = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    let all = |high: usize| {
        pairs.len() >= 8
            && pairs.chunks_exact(2).all(|pair| pair[high] == 0 && is_text(pair[1 - high]))
    };
    Ok(if all(1) { Some(false) } else { all(0).then_some(true) })
}

/// The first 4 bytes, without taking them; zeros where there are fewer.
fn peek(input: &mut dyn BufRead) -> Result<[u8; 4], TraceError> {
    let found = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
    let mut head = [0; 4];
    let length = found.len().min(4);
    head[..length].copy_from_slice(&found[..length]);
    Ok(head)
}

/// Counts what is taken.
struct Counted<R> {
    inner: R,
    taken: Rc<Cell<u64>>,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.taken.set(self.taken.get() + read as u64);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.taken.set(self.taken.get() + count as u64);
        self.inner.consume(count);
    }
}

/// Ends with an error when more bytes come out than a trace can have.
struct Bounded<R> {
    inner: R,
    unfolded: u64,
    /// Bytes that went in.
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.unfolded += read as u64;
        if self.unfolded > UNFOLDED_MAX {
            return Err(io::Error::other(format!(
                "it unfolds to more than {UNFOLDED_MAX} bytes; a trace is smaller"
            )));
        }
        let taken = self.taken.get();
        if is_bomb(self.unfolded, taken) {
            return Err(io::Error::other(bomb(self.unfolded, taken)));
        }
        Ok(read)
    }
}

/// UTF-16 as UTF-8, without its byte-order mark. What is no UTF-16 is replaced.
struct Utf16<R> {
    inner: R,
    big: bool,
    ready: Vec<u8>,
    begun: bool,
}

impl<R> Utf16<R> {
    fn new(inner: R, big: bool) -> Utf16<R> {
        Utf16 { inner, big, ready: Vec::new(), begun: false }
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() {
            let mut raw = Vec::with_capacity(CHUNK);
            // An even number of bytes, and not half of a pair.
            self.inner.by_ref().take(CHUNK as u64).read_to_end(&mut raw)?;
            if raw.is_empty() {
                return Ok(0);
            }
            let unit = |pair: &[u8]| match self.big {
                true => u16::from_be_bytes([pair[0], pair[1]]),
                false => u16::from_le_bytes([pair[0], pair[1]]),
            };
            let mut units: Vec<u16> = raw.chunks_exact(2).map(unit).collect();
            if units.last().is_some_and(|last| (0xd800..0xdc00).contains(last)) {
                let mut rest = Vec::new();
                self.inner.by_ref().take(2).read_to_end(&mut rest)?;
                units.extend(rest.chunks_exact(2).map(unit));
            }
            if !self.begun {
                self.begun = true;
                if units.first() == Some(&0xfeff) {
                    units.remove(0);
                }
            }
            let text: String = char::decode_utf16(units)
                .map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect();
            self.ready = text.into_bytes();
        }
        let count = self.ready.len().min(out.len());
        out[..count].copy_from_slice(&self.ready[..count]);
        self.ready.drain(..count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn unwrapped(bytes: &[u8]) -> String {
        let mut text = String::new();
        unwrap(Box::new(bytes)).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn every_wrapping_is_taken_off() {
        let plain = "cpus=2\n          <...>-1     [001] 1.4: x: y\nhög-200 [001] 1.5: x: y\n";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(plain.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = zstd::bulk::compress(plain.as_bytes(), 3).unwrap();
        let mut atrace =
            flate2::write::ZlibEncoder::new(ATRACE.to_vec(), flate2::Compression::default());
        atrace.write_all(plain.as_bytes()).unwrap();
        let atrace = atrace.finish().unwrap();
        let both = zstd::bulk::compress(&gzip, 3).unwrap();
        let utf16 = |mark: &str, big: bool| -> Vec<u8> {
            let text = mark.to_owned() + plain;
            let units = text.encode_utf16();
            units
                .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
                .collect()
        };
        let marked = [&[0xef, 0xbb, 0xbf], plain.as_bytes()].concat();
        let with = |big| utf16("\u{feff}", big);
        let without = |big| utf16("", big);
        for bytes in [
            plain.as_bytes(),
            &gzip,
            &atrace,
            &zstd,
            &both,
            &with(true),
            &with(false),
            &without(true),
            &without(false),
            &marked,
        ] {
            assert_eq!(unwrapped(bytes), plain, "{:?}", &bytes[..4]);
        }
        assert_eq!(unwrapped(b""), "");
        assert_eq!(unwrapped(b"TRACE:\n# tracer: nop\n"), "TRACE:\n# tracer: nop\n");
    }

    #[test]
    fn a_pipe_may_give_its_bytes_one_by_one() {
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                let [first, rest @ ..] = self.0 else { return Ok(0) };
                out[0] = *first;
                self.0 = rest;
                Ok(1)
            }
        }
        let plain = "cpus=2\nhog-200 [001] 1.5: x: y\n";
        let zstd = zstd::bulk::compress(plain.as_bytes(), 3).unwrap();
        for bytes in [plain.as_bytes(), &zstd] {
            let mut input = unwrap(Box::new(BufReader::with_capacity(CHUNK, Slow(bytes)))).unwrap();
            assert_eq!(input.fill_buf().unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn a_bomb_ends_with_an_error() {
        let mut bounded =
            Bounded { inner: io::repeat(0), unfolded: 0, taken: Rc::new(Cell::new(1000)) };
        assert!(io::copy(&mut bounded, &mut io::sink()).is_err());
        assert_eq!(bounded.unfolded.div_ceil(1 << 20), UNFOLDED_FREE.div_ceil(1 << 20) + 1);
        // What came from enough bytes is read on.
        let inner = io::repeat(0).take(2 * UNFOLDED_FREE);
        let mut bounded =
            Bounded { inner, unfolded: 0, taken: Rc::new(Cell::new(UNFOLDED_FREE / 100)) };
        assert_eq!(io::copy(&mut bounded, &mut io::sink()).unwrap(), 2 * UNFOLDED_FREE);
    }
}
