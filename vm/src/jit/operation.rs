//! Computations, comparisons and operands of the checked form, in terms of A64 instructions.

use aarch64_kprobes::insn::encode::compute::{Binary, Condition};

use crate::ir::{Arithmetic, Comparison, Operand};

/// A step of code that handlers and snippets have in common.
pub(super) enum CommonStep {
    /// An instruction.
    Word(u32),
    /// Load this number into this register.
    Number(u8, u64),
}

/// Returns the condition of a comparison of two registers, the left with the right.
pub(super) fn condition(how: Comparison) -> Condition {
    match how {
        Comparison::Equal => Condition::Eq,
        Comparison::Unequal => Condition::Ne,
        Comparison::Below => Condition::Lo,
        Comparison::BelowEqual => Condition::Ls,
        Comparison::Above => Condition::Hi,
        Comparison::AboveEqual => Condition::Hs,
        Comparison::Less => Condition::Lt,
        Comparison::LessEqual => Condition::Le,
        Comparison::Greater => Condition::Gt,
        Comparison::GreaterEqual => Condition::Ge,
    }
}

/// Returns a constant as an immediate of an instruction; `None` if it does not fit.
pub(super) fn immediate(operand: Operand) -> Option<u16> {
    match operand {
        Operand::Constant(value @ 0..4096) => Some(value as u16),
        _ => None,
    }
}

/// Returns the instruction of a computation; for a remainder, that of the quotient.
pub(super) fn binary(how: Arithmetic) -> Binary {
    match how {
        Arithmetic::Add => Binary::Add,
        Arithmetic::Subtract => Binary::Subtract,
        Arithmetic::Multiply => Binary::Multiply,
        Arithmetic::Divide | Arithmetic::Remainder => Binary::Divide,
        Arithmetic::DivideSigned | Arithmetic::RemainderSigned => Binary::DivideSigned,
        Arithmetic::And => Binary::And,
        Arithmetic::Or => Binary::Or,
        Arithmetic::Xor => Binary::Xor,
        Arithmetic::Left => Binary::Left,
        Arithmetic::Right => Binary::Right,
        Arithmetic::RightSigned => Binary::RightSigned,
    }
}

pub(super) fn is_remainder(how: Arithmetic) -> bool {
    matches!(how, Arithmetic::Remainder | Arithmetic::RemainderSigned)
}
