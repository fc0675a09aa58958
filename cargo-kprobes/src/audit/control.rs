//! The control flow within the functions of a program, for code that needs no other part of the audit.

use std::collections::BTreeMap;

use super::{declarations::Declarations, executable::Executable, walk::Returning};

/// Finds the control flow of a function by its virtual address: the instructions that are reached from its entry, each
/// with those in the function that control may go to from it. After a call these are included if the call may return.
/// `None` if no symbol says where the function ends.
pub type Control<'a> = dyn Fn(u64) -> Option<BTreeMap<u64, Vec<u64>>> + 'a;

/// Calls `act` with the [`Control`] of `executable`.
pub fn with_control<T>(executable: &Executable, act: impl FnOnce(&Control<'_>) -> T) -> T {
    let declarations = Declarations::default();
    let returning = Returning::new(executable, &declarations);
    returning.determine_all();
    act(&|entry| Some(returning.read(entry)?.successors))
}
