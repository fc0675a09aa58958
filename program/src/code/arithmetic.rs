//! What code computes with, as A64 does: the checker, the interpreter and compiled code mean the same by it.

/// A computation with two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/` of values without a sign.
    Divide,
    /// `/` of values with a sign.
    DivideSigned,
    /// `%` of values without a sign.
    Remainder,
    /// `%` of values with a sign.
    RemainderSigned,
    /// `&`.
    And,
    /// `|`.
    Or,
    /// `^`.
    Xor,
    /// `<<`.
    Left,
    /// `>>` of values without a sign.
    Right,
    /// `>>` of values with a sign.
    RightSigned,
}

impl Arithmetic {
    /// The result.
    //
    // Not inlined, so that in the image there is one table of jumps in a function, which who follows them can see the end of.
    #[inline(never)]
    #[must_use]
    pub fn apply(self, left: u64, right: u64) -> u64 {
        let (signed, by) = (left.cast_signed(), right.cast_signed());
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide => left.checked_div(right).unwrap_or(0),
            Self::DivideSigned if right == 0 => 0,
            Self::DivideSigned => signed.wrapping_div(by).cast_unsigned(),
            Self::Remainder => left.checked_rem(right).unwrap_or(left),
            Self::RemainderSigned if right == 0 => left,
            Self::RemainderSigned => signed.wrapping_rem(by).cast_unsigned(),
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::Left => left.wrapping_shl(right as u32),
            Self::Right => left.wrapping_shr(right as u32),
            Self::RightSigned => signed.wrapping_shr(right as u32).cast_unsigned(),
        }
    }
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`.
    Equal,
    /// `!=`.
    Unequal,
    /// `<` of values without a sign.
    Below,
    /// `<=` of values without a sign.
    BelowEqual,
    /// `>` of values without a sign.
    Above,
    /// `>=` of values without a sign.
    AboveEqual,
    /// `<` of values with a sign.
    Less,
    /// `<=` of values with a sign.
    LessEqual,
    /// `>` of values with a sign.
    Greater,
    /// `>=` of values with a sign.
    GreaterEqual,
}

impl Comparison {
    /// Whether it holds.
    //
    // Not inlined, as above.
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

    /// The comparison that holds where this one does not.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Equal => Self::Unequal,
            Self::Unequal => Self::Equal,
            Self::Below => Self::AboveEqual,
            Self::BelowEqual => Self::Above,
            Self::Above => Self::BelowEqual,
            Self::AboveEqual => Self::Below,
            Self::Less => Self::GreaterEqual,
            Self::LessEqual => Self::Greater,
            Self::Greater => Self::LessEqual,
            Self::GreaterEqual => Self::Less,
        }
    }
}

/// `value` cut to its lower `bits`, below 64, and extended again.
#[inline]
#[must_use]
pub fn extend(value: u64, bits: u8, signed: bool) -> u64 {
    let away = 64_u32.saturating_sub(bits.into()).min(63);
    let high = value << away;
    if signed { (high.cast_signed() >> away).cast_unsigned() } else { high >> away }
}
