//! The arithmetic of code, as in A64. Front ends, the interpreter and compiled code give it the same meaning.
//! `hit::evaluate` computes the results.

/// A computation with two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/` of unsigned values.
    Divide,
    /// `/` of signed values.
    DivideSigned,
    /// `%` of unsigned values.
    Remainder,
    /// `%` of signed values.
    RemainderSigned,
    /// `&`.
    And,
    /// `|`.
    Or,
    /// `^`.
    Xor,
    /// `<<`.
    Left,
    /// `>>` of unsigned values.
    Right,
    /// `>>` of signed values.
    RightSigned,
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`.
    Equal,
    /// `!=`.
    Unequal,
    /// `<` of unsigned values.
    Below,
    /// `<=` of unsigned values.
    BelowEqual,
    /// `>` of unsigned values.
    Above,
    /// `>=` of unsigned values.
    AboveEqual,
    /// `<` of signed values.
    Less,
    /// `<=` of signed values.
    LessEqual,
    /// `>` of signed values.
    Greater,
    /// `>=` of signed values.
    GreaterEqual,
}

impl Comparison {
    /// Returns the comparison that holds exactly when this one does not.
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
