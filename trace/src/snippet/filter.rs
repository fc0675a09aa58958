//! Filters in stubs: tests of registers.

use alloc::vec::Vec;

use aarch64_kprobes::insn::encode::compute::{self, Binary, Branch, Condition};
use aarch64_kprobes::probe::{Step, StepLabel};

use super::{NoCode, OTHER, SPARE, Steps, ZERO};
use crate::filter::{ACCEPT, AcceptedRange, NextTest, RegisterQuestion, Test};

/// The answer to a question, at compile time or at run time.
enum Answer {
    Known(bool),
    /// The first branch is taken if the answer is yes; the second is its inverse.
    If(Branch, Branch),
}

impl Steps {
    /// Evaluates the tests. A hit that they accept continues after these steps; any other goes to the end.
    pub(super) fn tests(&mut self, tests: &[Test<RegisterQuestion>]) -> Result<(), NoCode> {
        let labels: Vec<StepLabel> = fallible::collect_results(tests.iter().map(|_| self.list.label()))?;
        let accepted = self.list.label()?;
        for ((number, test), &label) in tests.iter().enumerate().zip(&labels) {
            self.list.place(label);
            let next = if number + 1 == tests.len() { ACCEPT } else { number as NextTest + 1 };
            let yes = self.question(&test.question)?;
            let ways = match yes {
                Answer::Known(answer) => [Some((Branch::Always, if answer { test.yes } else { test.no })), None],
                Answer::If(branch, _) if test.no == next => [Some((branch, test.yes)), None],
                Answer::If(_, inverse) if test.yes == next => [Some((inverse, test.no)), None],
                Answer::If(branch, _) => [Some((branch, test.yes)), Some((Branch::Always, test.no))],
            };
            for (branch, to) in ways.into_iter().flatten() {
                if to != next || !matches!(branch, Branch::Always) {
                    let label = if to == ACCEPT { Some(&accepted) } else { labels.get(usize::from(to)) };
                    self.list.branch(branch, *label.unwrap_or(&self.end))?;
                }
            }
        }
        self.list.place(accepted);
        Ok(())
    }

    /// Evaluates a question.
    fn question(&mut self, RegisterQuestion { part, range }: &RegisterQuestion) -> Result<Answer, NoCode> {
        let mut number = self.part(*part, SPARE)?;
        let AcceptedRange { mask, low, span } = *range;
        if mask == 0 {
            return Ok(Answer::Known(range.has(0)));
        }
        if mask != u64::MAX {
            self.push(Step::Number(OTHER, mask))?;
            self.instructions([compute::compute(Binary::And, SPARE, number, OTHER)])?;
            number = SPARE;
        }
        let (least, most) = (low, low.wrapping_add(span));
        const FIRST: u64 = 1 << 63;
        let (with, condition) = match (least, most) {
            _ if span == u64::MAX => return Ok(Answer::Known(true)),
            (0, 0) => return Ok(Answer::If(Branch::Zero(number), Branch::NotZero(number))),
            (1, u64::MAX) => return Ok(Answer::If(Branch::NotZero(number), Branch::Zero(number))),
            _ if least == most => (least, Condition::Eq),
            _ if span == u64::MAX - 1 => (most.wrapping_add(1), Condition::Ne),
            (0, most) => (most, Condition::Ls),
            (least, u64::MAX) => (least, Condition::Hs),
            (FIRST, most) => (most, Condition::Le),
            (least, most) if most == FIRST - 1 => (least, Condition::Ge),
            (least, _) => {
                self.push(Step::Number(OTHER, least))?;
                self.instructions([compute::compute(Binary::Subtract, SPARE, number, OTHER)])?;
                number = SPARE;
                (span, Condition::Ls)
            }
        };
        self.compare(number, with)?;
        Ok(Answer::If(Branch::If(condition), Branch::If(condition.inverse())))
    }

    fn compare(&mut self, number: u8, with: u64) -> Result<(), NoCode> {
        match u16::try_from(with) {
            Ok(small @ 0..=0xfff) => self.instructions([compute::compare(number, small)]),
            _ => {
                self.push(Step::Number(OTHER, with))?;
                self.instructions([compute::compute(Binary::SubtractFlags, ZERO, number, OTHER)])
            }
        }
    }
}
