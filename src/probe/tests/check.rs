//! What the words around an instruction mean for a probe on it.

use super::computer::{Computer, NOP, RET, add};
use super::*;
use crate::insn::Reason;

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
