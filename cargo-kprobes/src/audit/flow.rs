//! Where control goes from an instruction, which follows from the engine's own classification. Pure.

use aarch64_kprobes::insn::{
    Indirect, Op, Reason, Verdict, branch_offset, classify, is_floating, returns_authenticated,
};

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
        Verdict::Simulate(Op::Branch { offset }) => Flow::Jump(offset.into()),
        Verdict::Simulate(Op::BranchLink { offset }) => Flow::Call(offset.into()),
        Verdict::Simulate(Op::BranchRegister { kind, rn } | Op::BranchAuthenticated { kind, rn, .. }) => match kind {
            Indirect::Call => Flow::CallRegister(rn),
            Indirect::Return if rn == LINK => Flow::Return,
            Indirect::Jump | Indirect::Return => Flow::JumpRegister(rn),
        },
        Verdict::Reject(Reason::ExceptionReturn) => Flow::Return,
        Verdict::Reject(Reason::AuthenticatedAddress) if returns_authenticated(word) => Flow::Return,
        Verdict::Reject(Reason::ExceptionGenerating) => Flow::Exception("it generates an exception"),
        Verdict::Reject(Reason::PermanentlyUndefined) => Flow::Exception("it is permanently undefined"),
        Verdict::Reject(Reason::Unallocated) if !is_floating(word) => Flow::Exception("it is not a known instruction"),
        _ => branch_offset(word, verdict).map_or(Flow::Next, |offset| Flow::Condition(offset.into())),
    }
}
