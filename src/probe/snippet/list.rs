//! Lists of steps: puts steps together before it is known where their branches lead.

use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::{Snippet, Step};
use crate::insn::encode;
use crate::insn::encode::compute::{self, Binary, Branch};

/// Steps of a snippet, in the order in which they are added. Branches lead to labels, which may be placed later.
#[derive(Debug, Default)]
pub struct StepList {
    steps: Vec<Step>,
    /// The branches that lead to labels: their numbers among the steps, and the labels.
    branches: Vec<(usize, StepLabel)>,
    /// The number of the step that each label stands for, once it is placed.
    labels: Vec<Option<usize>>,
}

/// A place in a [`StepList`]. A label that is never placed stands for the end of the snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLabel(usize);

impl StepList {
    /// Makes a list without steps.
    #[must_use]
    pub const fn new() -> Self {
        Self { steps: Vec::new(), branches: Vec::new(), labels: Vec::new() }
    }

    /// Returns the number of the step that is added next.
    #[must_use]
    pub const fn next_number(&self) -> usize {
        self.steps.len()
    }

    /// Adds a step.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for it.
    pub fn push(&mut self, step: Step) -> Result<(), OutOfMemory> {
        fallible::push(&mut self.steps, step)
    }

    /// Makes a label, not yet placed.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for it.
    pub fn label(&mut self) -> Result<StepLabel, OutOfMemory> {
        let label = StepLabel(self.labels.len());
        fallible::push(&mut self.labels, None)?;
        Ok(label)
    }

    /// Places a label of this list before the step that is added next.
    pub fn place(&mut self, label: StepLabel) {
        let here = self.next_number();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    /// Adds a branch to a label of this list.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for it.
    pub fn branch(&mut self, branch: Branch, to: StepLabel) -> Result<(), OutOfMemory> {
        let number = self.next_number();
        fallible::push(&mut self.branches, (number, to))?;
        self.push(Step::Branch(branch, 0))
    }

    /// Adds a branch to a new label, and returns that.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for it.
    pub fn branch_ahead(&mut self, branch: Branch) -> Result<StepLabel, OutOfMemory> {
        let ahead = self.label()?;
        self.branch(branch, ahead)?;
        Ok(ahead)
    }

    /// Adds 1 to the word whose distance from the state of the CPU is in the register `distance`. Changes that register
    /// and `spare`, another one. Not for snippets [of returns](Snippet::of_returns), where no register holds 1.
    /// `atomics` is what [`Snippet::has_atomics`] returns on the machine.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the steps.
    pub fn count(&mut self, distance: u8, spare: u8, atomics: bool) -> Result<(), OutOfMemory> {
        if atomics {
            self.push(Step::Instruction(compute::compute(Binary::Add, distance, Snippet::CPU, distance)))?;
            return self.push(Step::Instruction(encode::add_to(Snippet::ONE, distance)));
        }
        self.push(Step::Instruction(encode::load_at(spare, Snippet::CPU, distance)))?;
        self.push(Step::Instruction(encode::add(spare, spare, 1)))?;
        self.push(Step::Instruction(encode::store_at(spare, Snippet::CPU, distance)))
    }

    /// Returns the steps, with the targets of all branches.
    #[must_use]
    pub fn finish(mut self) -> Vec<Step> {
        let end = self.next_number();
        for (number, StepLabel(label)) in self.branches {
            let place = self.labels.get(label).copied().flatten().unwrap_or(end);
            if let Some(Step::Branch(_, target)) = self.steps.get_mut(number) {
                *target = place;
            }
        }
        self.steps
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn branches_lead_to_their_labels() {
        let mut list = StepList::new();
        let behind = list.label().unwrap();
        list.branch(Branch::Always, behind).unwrap();
        let end = list.branch_ahead(Branch::Zero(0)).unwrap();
        list.place(behind);
        list.push(Step::Mask).unwrap();
        list.branch(Branch::NotZero(0), behind).unwrap();
        list.branch(Branch::NotZero(1), end).unwrap();
        let expected = [
            Step::Branch(Branch::Always, 2),
            Step::Branch(Branch::Zero(0), 5),
            Step::Mask,
            Step::Branch(Branch::NotZero(0), 2),
            Step::Branch(Branch::NotZero(1), 5),
        ];
        assert_eq!(list.finish(), expected, "a label that is not placed is the end");
    }
}
