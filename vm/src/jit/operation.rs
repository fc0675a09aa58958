//! Computations, comparisons and constants of the checked form, in terms of A64 instructions.

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Condition};

use super::ZERO;
use crate::ir::{Arithmetic, Comparison};

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
pub(super) fn immediate(constant: u64) -> Option<u16> {
    if constant < 4096 { Some(constant as u16) } else { None }
}

/// Returns the instruction that computes with the register `left` and a constant, into `target`; `None` if there is
/// none.
pub(super) fn with_constant(how: Arithmetic, target: u8, left: u8, constant: u64) -> Option<u32> {
    match how {
        // In these two, register 31 is the stack pointer.
        Arithmetic::Add if left != ZERO => Some(encode::add(target, left, immediate(constant)?)),
        Arithmetic::Subtract if left != ZERO => Some(encode::subtract(target, left, immediate(constant)?)),
        Arithmetic::Left => Some(a64::shift_left(target, left, (constant & 63) as u8)),
        Arithmetic::Right => Some(a64::shift_right(target, left, (constant & 63) as u8)),
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
