//! Where control goes from an instruction, which follows from the engine's own classification. Pure.

use aarch64_kprobes::insn::{Control, Indirect, Reason, Verdict, classify, is_floating};

/// The number of the link register.
pub const LINK: u8 = 30;

/// Where control goes from an instruction. Distances are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// Always to the instruction at this distance.
    Jump(i64),
    /// To the next instruction, or to that at this distance.
    Condition(i64),
    /// To the function at this distance, and back.
    Call(i64),
    /// To the address in this register.
    JumpRegister(u8),
    /// To the function whose address is in this register, and back.
    CallRegister(u8),
    /// Back to the caller, by the link register, or to the interrupted code.
    Return,
    /// Into an exception, for this reason.
    Exception(&'static str),
}

/// Returns where control goes from the instruction `word`.
pub fn flow(word: u32) -> Flow {
    let verdict = classify(word);
    match verdict {
        Verdict::Reject(Reason::ExceptionReturn) => return Flow::Return,
        Verdict::Reject(Reason::ExceptionGenerating) => return Flow::Exception("it generates an exception"),
        Verdict::Reject(Reason::PermanentlyUndefined) => return Flow::Exception("it is permanently undefined"),
        Verdict::Reject(Reason::Unallocated) if !is_floating(word) => {
            return Flow::Exception("it is not a known instruction");
        }
        _ => {}
    }
    match Control::after(word, verdict) {
        Control::Next => Flow::Next,
        Control::Jump(offset) => Flow::Jump(offset.into()),
        Control::Either(offset) => Flow::Condition(offset.into()),
        Control::Call(offset) => Flow::Call(offset.into()),
        Control::Register { kind: Indirect::Call, rn } => Flow::CallRegister(rn),
        Control::Register { kind: Indirect::Return, rn: LINK } => Flow::Return,
        Control::Register { kind: Indirect::Jump | Indirect::Return, rn } => Flow::JumpRegister(rn),
    }
}
