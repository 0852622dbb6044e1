//! The text of `scx_bpf_error` and its like: a format and its arguments as words.

use crate::Memory;

/// Formats as `bpf_bstr_printf` does: `%d`, `%u`, `%x`, `%p`, `%c`, `%s` and their long forms.
pub fn bstr(memory: &Memory, format: u64, data: u64) -> String {
    let text = memory.text(format, 1024);
    let (mut out, mut n, mut letters) = (String::new(), 0, text.chars().peekable());
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut options = String::new();
        let mut conversion = '%';
        for next in letters.by_ref() {
            if "diuxXspc%".contains(next) {
                conversion = next;
                break;
            }
            options.push(next);
        }
        if conversion == '%' {
            out.push('%');
            continue;
        }
        let value = memory.word(data.wrapping_add(8 * n));
        n += 1;
        out += &one(memory, conversion, &options, value);
    }
    out
}

fn one(memory: &Memory, conversion: char, options: &str, value: u64) -> String {
    let long = options.contains('l') || options.contains('z');
    let text = match conversion {
        'd' | 'i' if long => (value as i64).to_string(),
        'd' | 'i' => (value as i32).to_string(),
        'u' if long => value.to_string(),
        'u' => (value as u32).to_string(),
        'x' if long => format!("{value:x}"),
        'x' => format!("{:x}", value as u32),
        'X' => format!("{value:X}"),
        'p' => format!("{value:x}"),
        'c' => char::from(value as u8).to_string(),
        _ => memory.text(value, 256),
    };
    let width: usize = options.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    let width = width.min(64);
    match (options.starts_with('-'), options.starts_with('0')) {
        (true, _) => format!("{text:<width$}"),
        (false, true) => format!("{text:0>width$}"),
        (false, false) => format!("{text:>width$}"),
    }
}
