//! A font for pictures: every character is the same box, so that a page is laid out alike on every
//! machine, whichever fonts are there. Its tables: the OpenType specification, version 1.9.

/// Units of an em, and of these the width of a character and the corners of its box.
const EM: u16 = 1000;
const WIDE: u16 = 520;
const BOX: [i16; 4] = [60, 0, 440, 480];
const ASCENT: i16 = 950;
const DESCENT: i16 = -250;

/// Numbers as a table has them: the highest byte first.
#[derive(Default)]
struct Table(Vec<u8>);

impl Table {
    fn words(mut self, words: &[i32]) -> Table {
        words.iter().for_each(|word| self.0.extend((*word as u16).to_be_bytes()));
        self
    }

    fn longs(mut self, longs: &[u32]) -> Table {
        longs.iter().for_each(|long| self.0.extend(long.to_be_bytes()));
        self
    }

    fn sum(&self) -> u32 {
        let words = self.0.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_be_bytes(word)
        });
        words.fold(0, u32::wrapping_add)
    }
}

fn table() -> Table {
    Table::default()
}

/// The outline of a box (simple glyph: one contour of four points on the curve).
fn outline() -> Table {
    let [x0, y0, x1, y1] = BOX.map(i32::from);
    let mut glyph = table().words(&[1, x0, y0, x1, y1, 3, 0]);
    glyph.0.extend([1; 4]);
    glyph.words(&[x0, 0, x1 - x0, 0, y0, y1 - y0, 0, y0 - y1])
}

/// Characters: none is drawn for spaces, the box for all others. Format 13 has one glyph for many.
fn characters() -> Table {
    let groups: [[u32; 3]; 5] = [
        [0x20, 0x20, 1],
        [0x21, 0x9f, 2],
        [0xa0, 0xa0, 1],
        [0xa1, 0xd7ff, 2],
        [0xe000, 0x10_ffff, 2],
    ];
    let length = 16 + 12 * groups.len() as u32;
    let head = table().words(&[0, 1, 3, 10]).longs(&[12]).words(&[13, 0]);
    let head = head.longs(&[length, 0, groups.len() as u32]);
    groups.iter().fold(head, |all, group| all.longs(group))
}

fn name() -> Table {
    let text: Vec<u8> = "Boxes".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let long = text.len() as i32;
    let names = [1, 2, 4, 6];
    let mut all = table().words(&[0, names.len() as i32, 6 + 12 * names.len() as i32]);
    for id in names {
        all = all.words(&[3, 1, 0x409, id, long, 0]);
    }
    all.0.extend(text);
    all
}

/// Returns the bytes of the font.
pub(super) fn boxes() -> Vec<u8> {
    let (em, wide) = (i32::from(EM), i32::from(WIDE));
    let (up, down) = (i32::from(ASCENT), i32::from(DESCENT));
    let [x0, y0, x1, y1] = BOX.map(i32::from);
    let glyph = outline();
    // Two glyphs are empty: the one that is missing, and the space.
    let padded = glyph.0.len().next_multiple_of(4) as u32;
    let head = table().longs(&[0x1_0000, 0x1_0000, 0, 0x5f0f_3cf5]).words(&[0, em]);
    let head = head.longs(&[0; 4]).words(&[x0, y0, x1, y1, 0, 8, 2, 1, 0]);
    let hhea = table().words(&[1, 0, up, down, 0, wide, 0, 0, x1, 1, 0, 0, 0, 0, 0, 0, 0, 3]);
    let maxp = table().longs(&[0x1_0000]).words(&[3, 4, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    let os2 = table().words(&[4, wide, 400, 5, 0]).words(&[0; 10]).words(&[0]);
    let os2 = os2.words(&[0; 5]).longs(&[1, 0, 0, 0, 0]).words(&[0x40, 0x20, 0xffff]);
    let os2 = os2.words(&[up, down, 0, up, -down]).longs(&[1, 0]).words(&[480, 480, 0, 0x20, 1]);
    let post = table().longs(&[0x3_0000, 0]).words(&[-100, 50]).longs(&[1, 0, 0, 0, 0]);
    let mut glyf = glyph;
    glyf.0.resize(padded as usize, 0);
    let loca = table().longs(&[0, 0, 0, padded]);
    let hmtx = table().words(&[wide, 0, wide, 0, wide, x0]);
    let mut tables: Vec<(&[u8; 4], Table)> = vec![
        (b"OS/2", os2),
        (b"cmap", characters()),
        (b"glyf", glyf),
        (b"head", head),
        (b"hhea", hhea),
        (b"hmtx", hmtx),
        (b"loca", loca),
        (b"maxp", maxp),
        (b"name", name()),
        (b"post", post),
    ];
    // The directory: 16 bytes a table, behind 12 of its own.
    let count = tables.len() as u16;
    let largest = 1u16 << count.ilog2();
    let search = [count, largest * 16, count.ilog2() as u16, (count - largest) * 16];
    let mut font = table().longs(&[0x1_0000]).words(&search.map(i32::from));
    let mut at = 12 + 16 * u32::from(count);
    for (tag, table) in &mut tables {
        font.0.extend(*tag);
        font = font.longs(&[table.sum(), at, table.0.len() as u32]);
        table.0.resize(table.0.len().next_multiple_of(4), 0);
        at += table.0.len() as u32;
    }
    tables.into_iter().for_each(|(_, table)| font.0.extend(table.0));
    font.0
}
