//! Finds the instructions that leave a function: every RET, and every branch out of it, which is a tail call. A pure
//! computation.
//!
//! A function is left as often as it is entered, even if it is recursive or makes tail calls. A probe on each of these
//! instructions therefore sees every return, at any depth, without any record of the call.

use core::ops::Range;

use aarch64_kprobes::insn::{self, Control, Indirect, Op, Verdict};

/// The condition under which an instruction leaves its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The instruction always leaves the function.
    Always,
    /// The instruction leaves the function, or passes into or out of an inlined copy, if the condition of this branch
    /// holds.
    Conditional(Op),
    /// The instruction passes into or out of an inlined copy if the condition of this branch does not hold.
    Unless(Op),
    /// The instruction leaves the function if the register holds an address outside of it, as in a tail call through a
    /// pointer. Otherwise it is a jump by a table.
    Register(u8),
}

/// Returns how the instruction `word` at the virtual address `address` leaves `function`; `None` if it does not.
#[must_use]
pub fn exit_at(address: usize, word: u32, function: &Range<usize>) -> Option<Exit> {
    let leads_out = |offset: i32| !function.contains(&address.wrapping_add_signed(offset as isize));
    let verdict = insn::classify(word);
    match (Control::after(word, verdict), verdict) {
        (Control::Jump(offset) | Control::Either(offset), _) if !leads_out(offset) => None,
        (Control::Either(_), Verdict::Simulate(op)) => Some(Exit::Conditional(op)),
        // A branch that is refused is an exit, too: the probe on it is refused, with the reason.
        (Control::Jump(_) | Control::Either(_), _) => Some(Exit::Always),
        (Control::Register { kind: Indirect::Jump, rn }, Verdict::Simulate(Op::BranchRegister { .. })) => {
            Some(Exit::Register(rn))
        }
        (Control::Register { kind: Indirect::Jump | Indirect::Return, .. }, _) => Some(Exit::Always),
        (Control::Next | Control::Call(_) | Control::Register { kind: Indirect::Call, .. }, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use aarch64_kprobes::exception::TrapFrame;

    use super::*;

    const FUNCTION: Range<usize> = 0x1000..0x1100;

    fn exit(word: u32) -> Option<Exit> {
        exit_at(0x1010, word, &FUNCTION)
    }

    #[test]
    fn a_function_is_left_by_returns_and_branches_out_of_it() {
        assert_eq!(exit(0xd65f_03c0), Some(Exit::Always), "ret");
        assert_eq!(exit(0xd65f_0bff), Some(Exit::Always), "retaa");
        assert_eq!(exit(0x1400_0001), None, "b to the next");
        assert_eq!(exit(0x1400_0040), Some(Exit::Always), "b far");
        assert_eq!(exit(0x17ff_fffc), None, "b to the first instruction");
        assert_eq!(exit(0x17ff_fffb), Some(Exit::Always), "b to what is before it");
        assert_eq!(exit(0x9400_0040), None, "bl");
        assert_eq!(exit(0xd61f_0200), Some(Exit::Register(16)), "br x16");
        assert_eq!(exit(0xd63f_0200), None, "blr x16");
        assert_eq!(exit(0xd503_201f), None, "nop");
        assert_eq!(exit(0x7401_0800), Some(Exit::Always), "cbgt w0, w1, far");
        assert_eq!(exit(0x7401_0020), None, "cbgt w0, w1, to the next");
        assert_eq!(exit(0x5500_001f), Some(Exit::Always), "retaasppc");
    }

    #[test]
    fn a_conditional_branch_leaves_it_if_it_is_taken() {
        let taken = |word: u32, frame: &TrapFrame| exit(word).map(|exit| exit.is_taken(frame, &(0x1000..0x1100)));
        let mut frame = TrapFrame::ZERO;
        frame.x[3] = 1 << 32;
        assert_eq!(taken(0xb400_0803, &frame), Some(false), "cbz x3");
        assert_eq!(taken(0x3400_0803, &frame), Some(true), "cbz w3");
        assert_eq!(taken(0xb500_0803, &frame), Some(true), "cbnz x3");
        assert_eq!(taken(0xb600_0803, &frame), Some(false), "tbz x3, #32");
        assert_eq!(taken(0xb708_0803, &frame), Some(false), "tbnz x3, #33");
        assert_eq!(taken(0x5400_0800, &frame), Some(false), "b.eq");
        frame.pstate = 1 << 30;
        assert_eq!(taken(0x5400_0800, &frame), Some(true), "b.eq with Z set");
        assert_eq!(taken(0x5400_0020, &frame), None, "b.eq to the next");
        for (word, leaves) in [(0x5400_0800, true), (0x5400_0801, false), (0xb400_0803, false), (0x3400_0803, true)] {
            let Some(Exit::Conditional(op)) = exit(word) else { panic!("{word:#x} is no conditional branch") };
            assert_eq!(taken(word, &frame), Some(leaves), "{word:#x}");
            assert_eq!(Exit::Unless(op).is_taken(&frame, &(0x1000..0x1100)), !leaves, "{word:#x}, not taken");
        }
    }

    #[test]
    fn a_branch_by_a_register_leaves_it_unless_it_leads_into_it() {
        let mut frame = TrapFrame::ZERO;
        let taken = |frame: &TrapFrame| Exit::Register(16).is_taken(frame, &(0x1000..0x1100));
        for (target, leaves) in [(0xffc, true), (0x1000, false), (0x10fc, false), (0x1100, true)] {
            frame.x[16] = target;
            assert_eq!(taken(&frame), leaves, "{target:#x}");
        }
    }
}
