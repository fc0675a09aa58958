//! The variables of a function: arguments and locals, with the instructions at which each has a place.

use std::collections::BTreeSet;
use std::ops::Range;

use kprobes_types::write::{InlinedCopy, Variable};

use super::super::debug::Index;
use super::copies::{self, InlinedFunctions};
use super::function_variables::FunctionVariables;
use super::layout::Layouts;

/// Returns the variables of the function whose instructions are at the virtual addresses `within`, and the inlined
/// copies in it. Variables of a block come after those of the blocks around it, and copies after those that contain
/// them. `prologues` has the addresses at which prologues end.
pub fn of(
    layouts: &mut Layouts<'_>,
    function: Index,
    within: &Range<u64>,
    prologues: &BTreeSet<u64>,
    inlined: &mut InlinedFunctions,
) -> (Vec<Variable>, Vec<InlinedCopy>) {
    let frame = layouts.entries[function].frame;
    let prologue_end = prologues.range(within.clone()).next().copied();
    let mut function_variables = FunctionVariables { within, prologue_end, frame, found: Vec::new() };
    for parameter in layouts.entries.parameters(function) {
        function_variables.add(layouts, parameter, true, &[]);
    }
    function_variables.add_block(layouts, function, &[]);
    let copies = copies::of(layouts, function, &function_variables, inlined);
    let mut found = function_variables.found;
    // A scope tells apart variables of one name. A variable has no place outside of it.
    let is_same = |one: &Variable, other: &Variable| (&one.name, one.is_argument) == (&other.name, other.is_argument);
    let are_alone: Vec<bool> =
        found.iter().map(|one| found.iter().filter(|other| is_same(one, other)).count() == 1).collect();
    found.iter_mut().zip(are_alone).filter(|(_, is_alone)| *is_alone).for_each(|(one, _)| one.scope.clear());
    (found, copies)
}
