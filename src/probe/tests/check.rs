//! Tests of checks that look at the words around an instruction.

use super::computer::{Computer, NOP, RET, add};
use super::*;
use crate::insn::Reason;
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
