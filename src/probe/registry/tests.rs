//! Tasks that were interrupted in a snippet. On the host no snippet is executed, so the test makes the cell.

use std::sync::atomic::Ordering::Relaxed;

use fallible::failing::with_memory;

use super::*;
use crate::probe::Kprobe;
use crate::probe::arena::Cell;
use crate::probe::hit::stub::{DISTANCE, Form, WORDS};
use crate::probe::tests::computer::{Computer, GO_ON_AT_YIELD, INTERRUPTED, RET, add};

/// A task may be in a snippet that a failed change has armed meanwhile.
#[test]
fn a_change_that_fails_leaves_no_task_in_a_snippet() {
    let computer = Computer::new();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kprobe::at(function).disabled().register().unwrap();
    let stubs = memory().stubs;
    let cell = {
        let mut registry = REGISTRY.lock();
        let cell = registry.arena.allocate(Cell::Snippet, false).unwrap();
        let fill = |words: &mut [u32]| {
            let first = words.len() - WORDS;
            let stub = cell + 4 * first;
            words[first] = Form::Full.opening();
            words[first + DISTANCE] = function.wrapping_sub(stub) as u32;
            Ok::<(), ()>(())
        };
        registry.arena.fill_snippet(Cell::Snippet, cell, fill).unwrap();
        registry.arena.write();
        registry.occupied.push(Used::new(cell, Cell::Snippet, false));
        cell
    };
    INTERRUPTED.lock().unwrap().push(cell);
    GO_ON_AT_YIELD.store(true, Relaxed);
    // Enough for the two lists of the caller, and not for the change.
    let result = with_memory(2, || probe.enable());
    GO_ON_AT_YIELD.store(false, Relaxed);
    let left = core::mem::take(&mut *INTERRUPTED.lock().unwrap());
    assert_eq!(result, Err(ProbeError::OutOfMemory { address: function }));
    assert!(left.is_empty(), "the task is still in the snippet");
    assert_eq!((probe.is_enabled(), memory().stubs), (false, stubs));
}
