//! Restricts a program to the hits in one task.

use super::tree::{Expression, ExpressionForm, Operator, Probe, Program};
use crate::error::{Error, Problem};

impl Probe {
    /// Returns whether the clause of the probe runs in a task of the program, and not at a hit.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Begin | Self::End | Self::Interval { .. })
    }
}

impl Program {
    /// Adds to each clause at hits the condition that the hit is in the task with this number. The condition is checked
    /// before the clause's own predicate. Clauses of `BEGIN`, `END` and `interval:` run as before.
    ///
    /// # Errors
    ///
    /// A clause has both kinds of probes, or there is no memory for the conditions. The program is then restricted in
    /// part, and must not run.
    pub fn restrict_to_task(&mut self, task: u64) -> Result<(), Error> {
        for clause in &mut self.clauses {
            let Some(first) = clause.probes.first() else { continue };
            let is_alone = first.node.is_alone();
            if let Some(other) = clause.probes.iter().find(|probe| probe.node.is_alone() != is_alone) {
                return Err(other.span.error(Problem::MixedTask));
            }
            if is_alone {
                continue;
            }
            let node = |form| Expression::new(form, first.span);
            let left = node(ExpressionForm::Builtin(fallible::copy("tid")?))?;
            let right = node(ExpressionForm::Integer(task))?;
            let mut condition = node(ExpressionForm::Binary { operator: Operator::Equal, left, right })?;
            if let Some(predicate) = clause.predicate.take() {
                let (operator, left) = (Operator::And, condition);
                condition = node(ExpressionForm::Binary { operator, left, right: predicate })?;
            }
            clause.predicate = Some(condition);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use crate::error::Problem;
    use crate::syntax::parse;

    #[test]
    fn clauses_at_hits_are_restricted() {
        let text = "BEGIN { @ = 1; } kprobe:f, return:f /arg0 || arg1/ { @++; } insn:f:0x4 { @++; } interval:s:1, END \
                    /@/ { exit(); }";
        let mut program = parse(text).unwrap();
        program.restrict_to_task(7).unwrap();
        let expected = "BEGIN { @ = 1; } kprobe:f, return:f /tid == 7 && (arg0 || arg1)/ { @++; } insn:f:0x4 /tid == \
                        7/ { @++; } interval:s:1, END /@/ { exit(); }";
        assert_eq!(program.to_string(), expected);
    }

    #[test]
    fn a_clause_is_at_hits_or_not() {
        for (text, place) in [("kprobe:f, BEGIN { }", 10..15), ("END { } interval:s:1, kprobe:f { }", 22..30)] {
            let error = parse(text).unwrap().restrict_to_task(7).unwrap_err();
            assert_eq!((error.problem, error.span.start..error.span.end), (Problem::MixedTask, place));
        }
    }
}
