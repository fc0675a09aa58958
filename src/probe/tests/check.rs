//! Tests of checks that look at the words around an instruction.

use std::sync::OnceLock;

use super::computer::{Computer, FUNCTION, NOP, RET, add, branch_link};
use super::*;
use crate::insn::{Reason, SequenceCallees};
use crate::text;

const PACM: u32 = 0xd503_24ff;
const PACIASP: u32 = 0xd503_233f;

#[test]
fn what_follows_pacm_may_use_its_own_address_and_is_refused() {
    let computer = Computer::new();
    let function = computer.function(1, &[PACM, PACIASP, add(1), PACM, NOP, RET]);
    let refused = |word: usize| match check(function + 4 * word) {
        Err(ProbeError::Instruction { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    };
    let reasons = [0, 1, 2, 3, 4, 5].map(refused);
    let [pacm, after] = [Reason::AuthenticatedAddress, Reason::AfterModifier].map(Some);
    assert_eq!(reasons, [pacm, after, None, pacm, after, None]);
}

#[test]
fn a_literal_is_no_instruction_also_where_its_load_is_probed() {
    let computer = Computer::new();
    // ldr x0, +12; its literal, which looks like two instructions.
    let function = computer.function(2, &[0x5800_0060, add(1), RET, add(2), add(3), NOP]);
    let load = Kprobe::at(function).register().unwrap();
    assert_ne!(text::read(function), 0x5800_0060, "the load is probed");
    for word in [3, 4] {
        let (address, reader) = (function + 4 * word, function);
        assert_eq!(Kprobe::at(address).register().err(), Some(ProbeError::Data { address, reader: Some(reader) }));
    }
    assert!(check(function + 4).is_ok());
    assert!(check(function + 20).is_ok());
    load.unregister();
}

#[test]
fn given_bounds_take_the_place_of_the_kernels() {
    let computer = Computer::new();
    // At the end of one function of the kernel, ldr x0, +8; its literal is in the next.
    let mut words = [NOP; FUNCTION];
    words[FUNCTION - 1] = 0x5800_0040;
    let before = computer.function(3, &words);
    let function = computer.function(4, &[NOP, add(1), add(2), RET]);
    let register = |address: usize, bounds| {
        // SAFETY: there is no load-exclusive, and the range that contains the literal contains its load.
        unsafe { Kprobe::at(address).within(bounds) }.register().map(drop)
    };
    let (literal, end, text) = (function + 4, function + 16, crate::kernel::text());
    assert_eq!(Kprobe::at(literal).register().map(drop), Ok(()), "the load is not in this function of the kernel");
    let refused = ProbeError::Data { address: literal, reader: Some(function - 4) };
    assert_eq!(register(literal, before..end), Err(refused));
    assert_eq!(register(end - 4, before..end), Ok(()));
    // SAFETY: there is no load-exclusive, and the range that contains the literal contains its load.
    let first = unsafe { Kprobe::at(end - 4).within(before..end) };
    let both = Kprobe::register_all([first, Kprobe::at(literal)]).unwrap();
    assert!(both.iter().all(Result::is_ok), "the bounds are for one probe");
    drop(both);
    let address = function + 8;
    for bounds in
        [before..function, before + 2..end, before..end - 1, text.start - 4..end, before..text.end + 4, end..before]
    {
        assert_eq!(register(address, bounds), Err(ProbeError::NoFunction { address }));
    }
    computer.function(3, &[NOP; FUNCTION]);
}

#[test]
fn a_function_that_a_sequence_of_another_calls_is_refused() {
    static CALLEES: OnceLock<SequenceCallees> = OnceLock::new();
    let computer = Computer::new();
    // ldxr x0, [x1]; bl; stxr w2, x0, [x1]
    let caller = computer.function(5, &[NOP, 0xc85f_7c20, branch_link(FUNCTION as i32 - 2), 0xc802_7c20, RET]);
    let called = computer.function(6, &[add(1), NOP, RET]);
    let other = computer.function(7, &[add(1), RET]);
    let callees = CALLEES.get_or_init(|| Checker::new().sequence_callees().unwrap());
    let mut checker = Checker::with_callees(callees);
    for address in [called, called + 4, called + 8] {
        assert_eq!(checker.check(address).err(), Some(ProbeError::Exclusive { address, load: caller + 4 }));
    }
    for address in [other, caller, caller + 16] {
        assert_eq!(checker.check(address).map(|_| ()), Ok(()), "{address:#x}");
    }
    computer.function(5, &[NOP; FUNCTION]);
}
