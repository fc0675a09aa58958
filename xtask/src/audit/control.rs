//! Where control goes within the functions of a program, for who asks nothing else of it.

use std::collections::BTreeMap;

use super::{declarations::Declarations, program::Program, walk::Returning};

/// What finds out of a function, by its virtual address, the instructions that are reached from its entry, each with those in the
/// function that control may go to from it: behind a call, if it may come back. None if no symbol says where it ends.
pub type Control<'a> = dyn Fn(u64) -> Option<BTreeMap<u64, Vec<u64>>> + 'a;

/// Calls `act` with what finds it out for the functions of `program`.
pub fn with_control<T>(program: &Program, act: impl FnOnce(&Control<'_>) -> T) -> T {
    let declarations = Declarations::default();
    let returning = Returning::new(program, &declarations);
    returning.ask_for_all();
    act(&|entry| Some(returning.read(entry)?.successors))
}
