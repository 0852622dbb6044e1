//! Arithmetic, comparisons and byte order, as the instruction set defines them.

/// 64-bit arithmetic; `None`: no such operation.
#[inline]
pub(crate) fn alu64(code: u8, off: i32, a: u64, b: u64) -> Option<u64> {
    let shift = (b & 63) as u32;
    Some(match code {
        0x0 => a.wrapping_add(b),
        0x1 => a.wrapping_sub(b),
        0x2 => a.wrapping_mul(b),
        0x3 if b == 0 => 0,
        0x3 if off == 1 => (a as i64).wrapping_div(b as i64) as u64,
        0x3 => a / b,
        0x4 => a | b,
        0x5 => a & b,
        0x6 => a << shift,
        0x7 => a >> shift,
        0x8 => a.wrapping_neg(),
        0x9 if b == 0 => a,
        0x9 if off == 1 => (a as i64).wrapping_rem(b as i64) as u64,
        0x9 => a % b,
        0xa => a ^ b,
        0xb => match off {
            8 => i64::from(b as i8) as u64,
            16 => i64::from(b as i16) as u64,
            32 => i64::from(b as i32) as u64,
            _ => b,
        },
        0xc => (a as i64 >> shift) as u64,
        _ => return None,
    })
}

/// 32-bit arithmetic: the upper half of the result is 0.
#[inline]
pub(crate) fn alu32(code: u8, off: i32, a: u64, b: u64) -> Option<u64> {
    let (a, b) = (a as u32, b as u32);
    let shift = b & 31;
    Some(u64::from(match code {
        0x0 => a.wrapping_add(b),
        0x1 => a.wrapping_sub(b),
        0x2 => a.wrapping_mul(b),
        0x3 if b == 0 => 0,
        0x3 if off == 1 => (a as i32).wrapping_div(b as i32) as u32,
        0x3 => a / b,
        0x4 => a | b,
        0x5 => a & b,
        0x6 => a << shift,
        0x7 => a >> shift,
        0x8 => a.wrapping_neg(),
        0x9 if b == 0 => a,
        0x9 if off == 1 => (a as i32).wrapping_rem(b as i32) as u32,
        0x9 => a % b,
        0xa => a ^ b,
        0xb => match off {
            8 => i32::from(b as i8) as u32,
            16 => i32::from(b as i16) as u32,
            _ => b,
        },
        0xc => (a as i32 >> shift) as u32,
        _ => return None,
    }))
}

/// Whether a jump is taken.
#[inline]
pub(crate) fn holds(code: u8, wide: bool, a: u64, b: u64) -> bool {
    let (a, b, x, y) = if wide {
        (a, b, a as i64, b as i64)
    } else {
        (u64::from(a as u32), u64::from(b as u32), i64::from(a as i32), i64::from(b as i32))
    };
    match code {
        0x1 => a == b,
        0x2 => a > b,
        0x3 => a >= b,
        0x4 => a & b != 0,
        0x5 => a != b,
        0x6 => x > y,
        0x7 => x >= y,
        0xa => a < b,
        0xb => a <= b,
        0xc => x < y,
        _ => x <= y,
    }
}

/// The lowest `bits` bits, in this order or reversed.
#[inline]
pub(crate) fn order(value: u64, bits: i64, reversed: bool) -> u64 {
    match (bits, reversed) {
        (16, false) => u64::from(value as u16),
        (32, false) => u64::from(value as u32),
        (_, false) => value,
        (16, true) => u64::from((value as u16).swap_bytes()),
        (32, true) => u64::from((value as u32).swap_bytes()),
        (_, true) => value.swap_bytes(),
    }
}

/// What an atomic operation leaves in memory; `None`: no such operation.
#[inline]
pub(crate) fn atomic(code: i64, old: u64, value: u64, compared: u64) -> Option<u64> {
    Some(match code {
        0x00 | 0x01 => old.wrapping_add(value),
        0x40 | 0x41 => old | value,
        0x50 | 0x51 => old & value,
        0xa0 | 0xa1 => old ^ value,
        0xe1 | 0x110 => value,
        0xf1 if old == compared => value,
        0xf1 | 0x100 => old,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers() -> impl Strategy<Value = u64> {
        let edge = [0, 1, 31, 32, 63, 64, 1 << 31, (1 << 31) - 1, 1 << 63, (1 << 63) - 1, u64::MAX];
        prop_oneof![any::<u64>(), prop::sample::select(edge.to_vec())]
    }

    proptest! {
        /// The same operations in wider numbers, so that a wrong width or sign shows.
        #[test]
        fn arithmetic_is_that_of_wide_numbers(a in numbers(), b in numbers()) {
            let wide = |op: fn(u128, u128) -> u128| op(u128::from(a), u128::from(b)) as u64;
            prop_assert_eq!(alu64(0, 0, a, b), Some(wide(|a, b| a + b)));
            prop_assert_eq!(alu64(1, 0, a, b), Some(wide(|a, b| (1 << 64) + a - b)));
            prop_assert_eq!(alu64(2, 0, a, b), Some(wide(u128::wrapping_mul)));
            let divided = |d: i128, off: i32| if b == 0 { 0 } else {
                let s = if off == 1 { i128::from(a as i64) } else { i128::from(a) };
                (s / d) as u64
            };
            let left = |d: i128, off: i32| if b == 0 { a } else {
                let s = if off == 1 { i128::from(a as i64) } else { i128::from(a) };
                (s % d) as u64
            };
            prop_assert_eq!(alu64(3, 0, a, b), Some(divided(i128::from(b), 0)));
            prop_assert_eq!(alu64(3, 1, a, b), Some(divided(i128::from(b as i64), 1)));
            prop_assert_eq!(alu64(9, 0, a, b), Some(left(i128::from(b), 0)));
            prop_assert_eq!(alu64(9, 1, a, b), Some(left(i128::from(b as i64), 1)));
            let shift = b % 64;
            prop_assert_eq!(alu64(6, 0, a, b), Some((u128::from(a) << shift) as u64));
            prop_assert_eq!(alu64(7, 0, a, b), Some((u128::from(a) >> shift) as u64));
            prop_assert_eq!(alu64(0xc, 0, a, b), Some((i128::from(a as i64) >> shift) as u64));
        }

        #[test]
        fn half_width_is_the_wide_result_cut(a in numbers(), b in numbers(), code in 0u8..0xd) {
            let (low_a, low_b) = (u64::from(a as u32), u64::from(b as u32));
            let got = alu32(code, 0, a, b).unwrap();
            prop_assert!(got <= u64::from(u32::MAX));
            let wide = match code {
                6 => low_a << (b & 31),
                7 => low_a >> (b & 31),
                0xc => (i64::from(a as i32) >> (b & 31)) as u64,
                _ => alu64(code, 0, low_a, low_b).unwrap(),
            };
            prop_assert_eq!(got, u64::from(wide as u32));
        }

        #[test]
        fn signed_halves(a in numbers(), b in numbers()) {
            let (x, y) = (i64::from(a as i32), i64::from(b as i32));
            let divided = if y == 0 { 0 } else { (x / y) as u32 };
            let left = if y == 0 { a as u32 } else { (x % y) as u32 };
            prop_assert_eq!(alu32(3, 1, a, b), Some(u64::from(divided)));
            prop_assert_eq!(alu32(9, 1, a, b), Some(u64::from(left)));
        }

        #[test]
        fn a_jump_and_its_opposite(a in numbers(), b in numbers(), wide in any::<bool>()) {
            for (code, opposite) in [(1, 5), (2, 0xb), (3, 0xa), (6, 0xd), (7, 0xc)] {
                prop_assert_ne!(holds(code, wide, a, b), holds(opposite, wide, a, b));
            }
            let narrow = |v: u64| if wide { v } else { u64::from(v as u32) };
            prop_assert_eq!(holds(2, wide, a, b), narrow(a) > narrow(b));
            let signed = |v: u64| if wide { v as i64 } else { i64::from(v as i32) };
            prop_assert_eq!(holds(6, wide, a, b), signed(a) > signed(b));
        }
    }

    #[test]
    fn division_by_zero_and_overflow_have_the_instruction_sets_results() {
        assert_eq!(alu64(3, 0, 7, 0), Some(0));
        assert_eq!(alu64(9, 0, 7, 0), Some(7));
        assert_eq!(alu64(3, 1, 1 << 63, u64::MAX), Some(1 << 63));
        assert_eq!(alu64(9, 1, 1 << 63, u64::MAX), Some(0));
        assert_eq!(alu32(9, 0, u64::MAX, 0), Some(u64::from(u32::MAX)));
        assert_eq!(alu64(0xb, 8, 0, 0x80), Some(0xffff_ffff_ffff_ff80));
        assert_eq!(alu32(0xb, 16, 0, 0x8000), Some(0xffff_8000));
        assert_eq!(order(0x1122_3344_5566_7788, 16, true), 0x8877);
        assert_eq!(order(0x1122_3344_5566_7788, 32, false), 0x5566_7788);
        assert_eq!(atomic(0xf1, 5, 9, 5), Some(9));
        assert_eq!(atomic(0xf1, 5, 9, 6), Some(5));
        assert_eq!(atomic(0x99, 5, 9, 6), None);
    }
}
