//! The results of computations and comparisons.

use crate::ir::{Arithmetic, Comparison};

impl Arithmetic {
    /// Returns the result.
    //
    // Not inlined, so that the image has one jump table in a function of its own, whose end the audit can determine.
    #[inline(never)]
    #[must_use]
    pub fn apply(self, left: u64, right: u64) -> u64 {
        let (signed, by) = (left.cast_signed(), right.cast_signed());
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide => left.checked_div(right).unwrap_or(0),
            // Not `wrapping_div` and `wrapping_rem`: they contain a panic that is removed only at some levels of
            // optimization.
            Self::DivideSigned if right == 0 => 0,
            Self::DivideSigned => signed.checked_div(by).unwrap_or(signed).cast_unsigned(),
            Self::Remainder => left.checked_rem(right).unwrap_or(left),
            Self::RemainderSigned if right == 0 => left,
            Self::RemainderSigned => signed.checked_rem(by).unwrap_or(0).cast_unsigned(),
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::Left => left.wrapping_shl(right as u32),
            Self::Right => left.wrapping_shr(right as u32),
            Self::RightSigned => signed.wrapping_shr(right as u32).cast_unsigned(),
        }
    }
}

impl Comparison {
    /// Returns whether the comparison holds.
    //
    // Not inlined, for the same reason as `Arithmetic::apply`.
    #[inline(never)]
    #[must_use]
    pub fn holds(self, left: u64, right: u64) -> bool {
        let signed = (left.cast_signed(), right.cast_signed());
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Below => left < right,
            Self::BelowEqual => left <= right,
            Self::Above => left > right,
            Self::AboveEqual => left >= right,
            Self::Less => signed.0 < signed.1,
            Self::LessEqual => signed.0 <= signed.1,
            Self::Greater => signed.0 > signed.1,
            Self::GreaterEqual => signed.0 >= signed.1,
        }
    }
}

/// Returns `value` truncated to its lower `bits`, fewer than 64, and extended to 64 bits again.
#[inline]
#[must_use]
pub fn extend(value: u64, bits: u8, signed: bool) -> u64 {
    let away = 64_u32.saturating_sub(bits.into()).min(63);
    let high = value << away;
    if signed { (high.cast_signed() >> away).cast_unsigned() } else { high >> away }
}
