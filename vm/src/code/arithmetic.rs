//! What code computes with, as A64 does: front ends, the interpreter and compiled code mean the same by it. The results are in
//! `hit::evaluate`.

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
