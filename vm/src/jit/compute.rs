//! Computations and comparisons of numbers and strings, and branches on them.

use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch, Condition};

use super::emit::Emitter;
use super::operation::{binary, condition, immediate, is_remainder, with_constant};
use super::{LEFT, ONE, OTHER, RIGHT, ZERO};
use crate::ir::{Arithmetic, Comparison, Operand, Word};

impl Emitter<'_> {
    /// Sets the flags by comparing `left` with `right`.
    pub fn compare(&mut self, number: usize, left: Operand, right: Operand) {
        let left = self.operand(number, left, LEFT);
        match right.constant().and_then(immediate) {
            Some(value) if left != ZERO => self.assembler.push(a64::compare(left, value)),
            _ => {
                let right = self.operand(number, right, RIGHT);
                self.assembler.push(a64::compute(Binary::SubtractFlags, ZERO, left, right));
            }
        }
    }

    pub fn branch(&mut self, number: usize, how: Comparison, left: Operand, right: Operand, target: usize) {
        let branch = match (how, right) {
            (Comparison::Equal, Operand::Constant(0)) => Branch::Zero(self.operand(number, left, LEFT)),
            (Comparison::Unequal, Operand::Constant(0)) => Branch::NotZero(self.operand(number, left, LEFT)),
            _ => {
                self.compare(number, left, right);
                Branch::If(condition(how))
            }
        };
        self.branch_to_op(branch, target);
    }

    /// Computes with two operands of op `number`, into `target`.
    pub fn arithmetic(&mut self, number: usize, target: u8, how: Arithmetic, left: Operand, right: Operand) {
        let one = self.operand(number, left, LEFT);
        if let Some(word) = right.constant().and_then(|value| with_constant(how, target, one, value)) {
            return self.assembler.push(word);
        }
        let other = self.operand(number, right, RIGHT);
        self.registers(target, how, one, other);
    }

    /// Computes with two registers, into `target`.
    pub fn registers(&mut self, target: u8, how: Arithmetic, left: u8, right: u8) {
        let binary = binary(how);
        if is_remainder(how) {
            self.assembler.push(a64::compute(binary, OTHER, left, right));
            self.assembler.push(a64::multiply_subtract(target, OTHER, right, left));
        } else {
            self.assembler.push(a64::compute(binary, target, left, right));
        }
    }

    /// Compares the first `bytes` bytes of two strings: all words except the last completely, and the remaining bytes
    /// of the last. The result is 0 if they are equal.
    pub fn differ(&mut self, number: usize, to: Word, left: Word, right: Word, bytes: u8) {
        let words = bytes.div_ceil(8);
        for word in 0..words {
            let left = self.word(number, Word(left.0.wrapping_add(word)), LEFT);
            let right = self.word(number, Word(right.0.wrapping_add(word)), RIGHT);
            let result = if word == 0 { OTHER } else { ONE };
            self.assembler.push(a64::compute(Binary::Xor, result, left, right));
            let rest = bytes - 8 * word;
            if rest < 8 {
                self.assembler.push(a64::shift_left(result, result, 64 - 8 * rest));
            }
            if word > 0 {
                self.assembler.push(a64::compute(Binary::Or, OTHER, OTHER, ONE));
            }
        }
        let target = self.target(number, to);
        if words == 0 {
            self.assembler.constant(target, 0);
        } else {
            self.assembler.push(a64::compare(OTHER, 0));
            self.assembler.push(a64::set_if(Condition::Ne, target));
        }
        self.keep(number, to);
    }
}
