//! What depends on stubs, or on where code lies. On the host no stub is in reach, and no snippet is executed, so the
//! tests make the cells and the entries.

use std::sync::atomic::Ordering::Relaxed;

use fallible::failing::with_memory;

use super::*;
use crate::probe::arena::Cell;
use crate::probe::hit::stub::{DISTANCE, WORDS};
use crate::probe::hit::trampoline;
use crate::probe::tests::computer::{Computer, GO_ON_AT_YIELD, INTERRUPTED, RET, add};
use crate::probe::{CallArguments, CallResult, Kprobe, Kretprobe};

/// A listing would say that it is stepped, and not why.
#[test]
fn an_instruction_whose_slot_is_out_of_reach_is_stepped_for_that_reason() {
    let computer = Computer::new();
    let function = computer.function(0, &[add(1), RET]);
    let _probe = Kprobe::at(function).at_most(Mode::Boosted).register().unwrap();
    let mut registry = REGISTRY.lock();
    let Registry { entries, arena, .. } = &mut *registry;
    let entry = entries.get_mut(function).unwrap();
    entry.address = function.wrapping_add(1 << 30);
    let made = [Mode::Boosted, Mode::Stepped].map(|mode| entry.new_execution(mode, arena).unwrap());
    entry.address = function;
    for (execution, _) in made {
        let Execution::Stepped { slot } = execution else { panic!("{execution:?}") };
        arena.free(Used::new(slot, Cell::Slot, false));
    }
    assert!(matches!(made.map(|(_, reason)| reason), [Some(Fallback::FarSlot(_)), None]));
}

/// A listing would blame another probe at the instruction, or nothing.
#[test]
fn code_without_memory_is_the_reason_for_a_slower_mode() {
    fn see_call(_: &CallArguments) {}
    fn see_result(_: &CallResult) {}
    let computer = Computer::new();
    let [on_function, on_return] = [0, 1].map(|number| computer.function(number, &[add(1), RET]));
    let kprobe = Kprobe::at(on_function).arguments(see_call).register().unwrap();
    let returns = Kretprobe::at(on_return).result(see_result).register().unwrap();
    if let Handlers::Return(return_probe) = &returns.probe.handlers {
        return_probe.set_code(trampoline::result_address());
    }
    for (probe, address, wanted, form, mode) in [
        (kprobe.probe, on_function, Mode::Compiled, Form::Full, Mode::Compiled),
        (returns.probe, on_return, Mode::Optimized, Form::Follow, Mode::Lean),
        // Of a pair.
        (returns.probe, on_return, Mode::Compiled, Form::Full, Mode::Lean),
    ] {
        let mut registry = REGISTRY.lock();
        let entry = registry.entries.get_mut(address).unwrap();
        let before = (entry.execution, entry.wanted, entry.fallback, entry.lean_obstacle);
        let stub = Execution::Optimized { stub: 0, form, cell: Cell::Stub, before: 0 };
        (entry.execution, entry.wanted, entry.fallback, entry.lean_obstacle) = (Some(stub), wanted, None, None);
        let reason = entry.fallback(&probe);
        (entry.execution, entry.wanted, entry.fallback, entry.lean_obstacle) = before;
        let expected = format!("not {mode}, because there was no executable memory for its code");
        assert_eq!(reason.map(|reason| reason.to_string()), Some(expected));
    }
}

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
