//! Mutations of recordings: the container is taken apart after `docs/recording-format.md`, the
//! content of a block is changed, and the checksums are made right again, so that what lies behind
//! them is reached.

use super::mutate::{bytes, json};
use crate::stress::Dice;

const FILE_HEADER: usize = 16;
const HEADER: usize = 44;
const RECORD: usize = 24;
/// Kinds of blocks of facts (by CPU, and by time as before 1.6), and bytes of their records.
const FACTS: u32 = 0x8000_0007;
const FACTS_BY_TIME: u32 = 0x8000_0006;
const FACT: usize = 36;

struct Block {
    header: [u8; HEADER],
    raw: Vec<u8>,
}

fn word(header: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn blocks(input: &[u8]) -> Option<Vec<Block>> {
    let (mut all, mut rest) = (Vec::new(), input.get(FILE_HEADER..)?);
    while !rest.is_empty() {
        let header: [u8; HEADER] = rest.get(..HEADER)?.try_into().ok()?;
        let stored = rest.get(HEADER..HEADER.checked_add(word(&header, 8) as usize)?)?;
        let raw = zstd::bulk::decompress(stored, 4 << 20).ok()?;
        all.push(Block { header, raw });
        rest = &rest[HEADER + stored.len()..];
    }
    Some(all)
}

fn put(out: &mut Vec<u8>, block: &Block) -> Option<()> {
    let stored = zstd::bulk::compress(&block.raw, 1).ok()?;
    let mut header = block.header;
    let mut set = |at: usize, value: u32| header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    set(8, stored.len() as u32);
    set(12, block.raw.len() as u32);
    set(20, crc32fast::hash(&stored));
    let check = crc32fast::hash(&header[..HEADER - 4]);
    header[HEADER - 4..].copy_from_slice(&check.to_le_bytes());
    out.extend(header);
    out.extend(stored);
    Some(())
}

/// `None` when the input is not whole.
pub(super) fn mutate(dice: &mut Dice, input: &[u8]) -> Option<Vec<u8>> {
    let mut all = blocks(input)?;
    if all.is_empty() {
        return None;
    }
    let at = dice.below(all.len());
    match dice.below(8) {
        0 => {
            let to = dice.below(all.len());
            all.swap(at, to);
        }
        1 => drop(all.remove(at)),
        2 => {
            let again = Block { header: all[at].header, raw: all[at].raw.clone() };
            all.insert(at, again);
        }
        3 => {
            // Times, kind or count of a block.
            let field = *dice.pick(&[4_usize, 16, 24, 32]);
            let kinds = [0_u32, 1, 2, 3, 4, 6, 0x8000_0005, FACTS_BY_TIME, FACTS, u32::MAX];
            let value = *dice.pick(&kinds);
            all[at].header[field..field + 4].copy_from_slice(&value.to_le_bytes());
        }
        _ => {
            let block = &mut all[at];
            match word(&block.header, 4) {
                2 => records(dice, &mut block.raw, RECORD, &EVENT_FIELDS),
                FACTS | FACTS_BY_TIME => records(dice, &mut block.raw, FACT, &FACT_FIELDS),
                1 | 3 | 4 => block.raw = json(dice, &block.raw)?,
                _ => block.raw = bytes(dice, std::mem::take(&mut block.raw), &[]),
            }
        }
    }
    let mut out = input[..FILE_HEADER].to_vec();
    all.iter().try_for_each(|block| put(&mut out, block))?;
    Some(out)
}

/// First byte and width of the fields of a record of events, and of facts.
const EVENT_FIELDS: [(usize, usize); 8] =
    [(0, 8), (4, 4), (8, 1), (9, 1), (10, 2), (12, 4), (16, 4), (20, 4)];
const FACT_FIELDS: [(usize, usize); 9] =
    [(0, 8), (8, 1), (9, 1), (10, 2), (12, 4), (16, 4), (20, 4), (24, 8), (32, 4)];

/// Some fields of some records; they stand column by column.
fn records(dice: &mut Dice, raw: &mut [u8], record: usize, fields: &[(usize, usize)]) {
    let rows = raw.len() / record;
    if rows == 0 {
        return;
    }
    for _ in 0..1 + dice.below(4) {
        let row = dice.below(rows);
        let (column, width) = *dice.pick(fields);
        let small = dice.next() % 20;
        let value = *dice.pick(&[
            small,
            small,
            small,
            0,
            u64::from(u32::MAX),
            u64::MAX,
            1 << 40,
            u64::MAX - 5,
        ]);
        for (i, byte) in value.to_le_bytes().iter().take(width).enumerate() {
            raw[(column + i) * rows + row] = *byte;
        }
    }
}
