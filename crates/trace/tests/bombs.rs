//! Files of some kilobytes that unfold to a gibibyte: each is refused, and the memory that it takes
//! is bounded.
//!
//! The only test of its program, so that the most memory that it ever had is that of these imports.

use schedlab_trace::import::{ImportOptions, read};
use std::io::Read;

const GIB: u64 = 1 << 30;
/// The limit that docs/exchange-formats.md states, with the program itself.
const MEMORY_MIB: u64 = 640;

/// A gibibyte of this, again and again, as zstd.
fn folded(again: &[u8]) -> Vec<u8> {
    let piece = again.repeat((1 << 20) / again.len());
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    for _ in 0..GIB / piece.len() as u64 {
        std::io::copy(&mut piece.as_slice().take(u64::MAX), &mut encoder).unwrap();
    }
    encoder.finish().unwrap()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A field of a protocol buffer.
fn field(number: usize, content: &[u8]) -> Vec<u8> {
    [&varint(number << 3 | 2), &varint(content.len()), content].concat()
}

/// What `perf record -z -o -` writes: the stream in pieces, each a record.
fn perf_data(stream: &[u8]) -> Vec<u8> {
    const COMPRESSED: u32 = 81;
    let path = format!("{}/tests/field/perf-6.1-pipe.data", env!("CARGO_MANIFEST_DIR"));
    let mut file = std::fs::read(path).unwrap();
    for piece in stream.chunks(60_000) {
        file.extend(COMPRESSED.to_le_bytes());
        file.extend([0, 0]);
        file.extend((8 + piece.len() as u16).to_le_bytes());
        file.extend(piece);
    }
    file
}

/// The most memory that this process ever had, in MiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn a_bomb_is_refused_in_bounded_memory() {
    let comment = [b"# ".as_slice(), &[b'x'; 8189], b"\n"].concat();
    let bundle = field(1, &field(1, &[0x08, 0]));
    // A record of 8 bytes that says nothing.
    let record = [99, 0, 0, 0, 0, 0, 8, 0];
    for (what, bomb) in [
        ("text", folded(&comment)),
        ("a Perfetto trace", folded(&bundle)),
        ("packets of a Perfetto trace", field(1, &field(133, &folded(&bundle)))),
        ("zeros in packets", field(1, &field(133, &folded(&[0])))),
        ("records of a perf.data", perf_data(&folded(&record))),
        ("zeros in a perf.data", perf_data(&folded(&[0]))),
    ] {
        assert!(bomb.len() < 2 << 20, "{what}: {} bytes", bomb.len());
        match read(&bomb[..], ImportOptions::default()) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("250 times"), "{what}: {error}");
            }
            // What is no record ends the stream, and that is told.
            Ok(imported) => {
                let notes = imported.summary.notes;
                assert!(
                    what == "zeros in a perf.data"
                        && notes.iter().any(|note| note.contains("cut off")),
                    "{what}"
                );
            }
        }
        let most = most_memory();
        assert!(most < MEMORY_MIB, "{what}: {most} MiB");
    }
}
