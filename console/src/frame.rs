//! Where the frame of a function is at each of its instructions: whether the frame pointer is the function's own, and
//! how far the stack pointer is from its value at the entry. A pure computation on the instructions.
//!
//! Nothing is guessed. There is no frame where paths disagree, where no followed path leads, and after an instruction
//! that sets the stack pointer from a register other than x29. Jumps to an address in a register are not followed.

use alloc::vec::Vec;

use aarch64_kprobes::insn::{
    Control, Indirect, Instruction, Reason, RegisterAccess, Registers, StackPointer, Verdict, brk, classify,
};
use fallible::OutOfMemory;

/// x29, the frame pointer (AAPCS64, section 6.4.6).
const FRAME_POINTER: Registers = Registers::x(29);

/// The heights before an instruction, in bytes, from the stack pointer at the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heights {
    /// The height of the stack pointer.
    stack: i64,
    /// The height of the frame pointer; `None` if x29 is the caller's frame pointer, or has another value.
    frame: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// No path has led to the instruction.
    Nothing,
    /// All paths so far agree.
    Heights(Heights),
    /// Paths disagree, or the stack pointer was set from another register than x29.
    Conflict,
}

/// The frame of a function at each of its instructions.
#[derive(Debug)]
pub(crate) struct Frames {
    known: Vec<Known>,
    /// The lowest height of the stack pointer.
    lowest: i64,
}

impl Frames {
    /// Follows the paths through a function of `length` instructions, of which `word` returns each by its index.
    ///
    /// # Errors
    ///
    /// There is no memory for the heights.
    pub(crate) fn of(length: usize, word: impl Fn(usize) -> u32) -> Result<Self, OutOfMemory> {
        let known = fallible::collect((0..length).map(|_| Known::Nothing))?;
        let mut frames = Self { known, lowest: 0 };
        let mut pending = Vec::new();
        frames.lead(0, Known::Heights(Heights { stack: 0, frame: None }), &mut pending)?;
        while let Some(at) = pending.pop() {
            let word = word(at);
            let verdict = classify(word);
            let after = frames.known.get(at).map_or(Known::Nothing, |&before| after(word, before));
            let control = Control::after(word, verdict);
            if let Some(offset) = control.branch_offset() {
                let target = at.wrapping_add_signed(offset as isize / 4);
                frames.lead(target, after, &mut pending)?;
            }
            let leaves = match control {
                Control::Jump(_) => true,
                Control::Register { kind, .. } => kind != Indirect::Call,
                Control::Next | Control::Either(_) | Control::Call(_) => is_trap(word, verdict),
            };
            if !leaves {
                frames.lead(at + 1, after, &mut pending)?;
            }
        }
        let heights = frames.known.iter().filter_map(|known| match known {
            Known::Heights(heights) => Some(heights.stack),
            _ => None,
        });
        frames.lowest = heights.min().unwrap_or(0);
        Ok(frames)
    }

    /// Adds a path that leads to instruction `at` with this state. If that changes the state there, `at` is pending
    /// again.
    fn lead(&mut self, at: usize, state: Known, pending: &mut Vec<usize>) -> Result<(), OutOfMemory> {
        let Some(known) = self.known.get_mut(at) else { return Ok(()) };
        let joined = match (*known, state) {
            (Known::Nothing, state) => state,
            (known, state) if known == state => known,
            _ => Known::Conflict,
        };
        if *known != joined {
            *known = joined;
            fallible::push(pending, at)?;
        }
        Ok(())
    }

    /// Returns whether x29 is the function's own frame pointer at instruction `at`.
    pub(crate) fn has_pointer(&self, at: usize) -> bool {
        matches!(self.known.get(at), Some(Known::Heights(Heights { frame: Some(_), .. })))
    }

    /// Returns whether the stack pointer is at the lower end of the frame at instruction `at`.
    pub(crate) fn has_stack(&self, at: usize) -> bool {
        matches!(self.known.get(at), Some(Known::Heights(heights)) if heights.stack == self.lowest && self.lowest < 0)
    }
}

/// Returns the state after the instruction `word`.
fn after(word: u32, before: Known) -> Known {
    let Known::Heights(Heights { stack, frame }) = before else { return before };
    let stack_after = match StackPointer::after(word) {
        StackPointer::Moved(distance) => stack + distance,
        StackPointer::FromFrame(distance) => match frame {
            Some(frame) => frame + distance,
            None => return Known::Conflict,
        },
        StackPointer::Unknown => return Known::Conflict,
    };
    let frame = if let Some(Instruction::AddImmediate { rd: 29, rn: 31, addend }) = Instruction::decode(word) {
        Some(stack + addend)
    } else {
        frame.filter(|_| !RegisterAccess::of(word).writes.intersects(FRAME_POINTER))
    };
    Known::Heights(Heights { stack: stack_after, frame })
}

/// Returns whether the instruction is BRK or UDF, which the compiler writes where nothing returns (Arm ARM, C6.2.41 and
/// C6.2.441).
fn is_trap(word: u32, verdict: Verdict) -> bool {
    word == brk((word >> 5) as u16) || verdict == Verdict::Reject(Reason::PermanentlyUndefined)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STP: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
    const SET: u32 = 0x9100_03fd; // mov x29, sp
    const SUB: u32 = 0xd100_83ff; // sub sp, sp, #32
    const ADD: u32 = 0x9100_83ff; // add sp, sp, #32
    const LDP: u32 = 0xa8c2_7bfd; // ldp x29, x30, [sp], #32
    const RET: u32 = 0xd65f_03c0;
    const BR: u32 = 0xd61f_0060; // br x3
    const BL: u32 = 0x9400_0100;
    const NOP: u32 = 0xd503_201f;
    const CBZ: u32 = 0xb400_0080; // cbz x0, +4 words

    /// For each instruction: `f` if the frame pointer is there, `s` the stack pointer, `b` both.
    fn answers(words: &[u32]) -> String {
        let frames = Frames::of(words.len(), |number| words[number]).unwrap();
        let answer = |at| match (frames.has_pointer(at), frames.has_stack(at)) {
            (true, true) => 'b',
            (true, false) => 'f',
            (false, true) => 's',
            (false, false) => '.',
        };
        (0..words.len()).map(answer).collect()
    }

    #[test]
    fn the_frame_is_there_from_the_prologue_to_the_epilogue() {
        assert_eq!(answers(&[STP, SET, NOP, BL, LDP, RET]), ".sbbb.");
        // The stack pointer moves on after the frame pointer is set, and back before it is loaded.
        assert_eq!(answers(&[STP, SET, SUB, NOP, ADD, LDP, RET]), "..fbbf.");
        // A leaf without a frame record.
        assert_eq!(answers(&[SUB, NOP, ADD, RET]), ".ss.");
        assert_eq!(answers(&[NOP, RET]), "..");
    }

    #[test]
    fn a_tail_call_through_a_register_has_no_frame() {
        assert_eq!(answers(&[STP, SET, LDP, NOP, BR]), ".sb..");
        assert_eq!(answers(&[STP, SET, LDP, CBZ, NOP, RET, NOP, RET]), ".sb.....");
    }

    #[test]
    fn blocks_without_a_frame_are_known_by_the_branches_to_them() {
        // A branch past the frame, to the code after its return.
        assert_eq!(answers(&[0xb400_00c0, STP, SET, NOP, LDP, RET, NOP, RET]), "..sbb...");
        // The code after a call that never returns is reached by a branch from before the frame.
        assert_eq!(answers(&[0xb400_00a0, STP, SET, NOP, BL, NOP, RET]), "..sbb..");
        // Nothing is known about code that only a jump table leads to.
        assert_eq!(answers(&[STP, SET, BR, NOP, LDP, RET]), ".sb...");
    }

    #[test]
    fn a_stack_pointer_from_another_register_is_unknown() {
        assert_eq!(answers(&[STP, SET, 0x9100_013f, NOP, RET]), ".sb..", "mov sp, x9");
        // mov sp, x29
        assert_eq!(answers(&[STP, SET, SUB, NOP, 0x9100_03bf, LDP, RET]), "..fbbf.");
    }
}
