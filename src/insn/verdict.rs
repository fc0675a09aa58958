//! Verdicts on instructions, and the reasons of refusals, as data and as sentences.

use core::fmt;

use super::op::Op;

/// How one instruction is executed under a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// From an out-of-line copy, which does what the instruction would have done in place.
    Slot,
    /// On the [trap frame](crate::exception::TrapFrame), not by the CPU.
    Simulate(Op),
    /// Not at all: it cannot be probed.
    Reject(Reason),
}

/// Why an instruction cannot be probed. The text of its [`Display`](fmt::Display) continues a sentence that begins with
/// the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// LDXR, LDAXR, LDXP, LDAXP and their narrow and unprivileged forms.
    LoadExclusive,
    /// STXR, STLXR, STXP, STLXP and their narrow and unprivileged forms.
    StoreExclusive,
    /// SVC, HVC, SMC, BRK, HLT, DCPS1 to DCPS3.
    ExceptionGenerating,
    /// UDF: allocated so that it is undefined forever.
    PermanentlyUndefined,
    /// ERET, ERETAA, ERETAB, DRPS.
    ExceptionReturn,
    /// FEAT_PAuth_LR: PACIASPPC, AUTIASPPC, RETAASPPC, PACM and their kin.
    AuthenticatedAddress,
    /// The instruction after PACM (FEAT_PAuth_LR). [`classify`](super::classify) sees only one word and never gives
    /// this reason; [`probe::check`](crate::probe::check) does.
    AfterModifier,
    /// The NOP of a static event, where [`emit!`](crate::emit) stands.
    EventSite,
    /// LDR (literal, SIMD&FP).
    SimdLiteral,
    /// FEAT_CMPBR: CB, CBB and CBH with a condition.
    CompareAndBranch,
    /// Accesses to ELR_EL1, SPSR_EL1, ESR_EL1, FAR_EL1, PFAR_EL1, AFSR0_EL1 and AFSR1_EL1, and the GCS operations that
    /// use the first two.
    ExceptionState,
    /// ESB.
    ErrorSynchronization,
    /// Writes of SPSel.
    StackSelection,
    /// Writes of ALLINT and PM.
    ExceptionMasks,
    /// Writes of SCTLR_EL1, TTBR0_EL1, TTBR1_EL1, TCR_EL1, MAIR_EL1 and the other registers that govern
    /// translation or memory protection, by all their names.
    Translation,
    /// Writes of VBAR_EL1 and TPIDR_EL1.
    HandlerState,
    /// Writes of MDSCR_EL1, breakpoints, watchpoints and the other registers of debug.
    DebugState,
    /// DC ISW, DC IGSW and DC IGDSW.
    CacheDiscard,
    /// Registers and operations of EL2 and EL3.
    HigherLevel,
    /// The memory copy and set instructions of FEAT_MOPS.
    MemorySequence,
    /// The transaction instructions of FEAT_TME.
    Transaction,
    /// SVE and SME.
    Scalable,
    /// System registers and instructions that are IMPLEMENTATION DEFINED.
    ImplementationDefined,
    /// System registers and operations that are not in the list of harmless ones.
    UnlistedSystem,
    /// Hints that are not allocated, and behave as NOP only until they are.
    UnknownHint,
    /// Instructions that later editions of the manual allocate.
    Newer,
    /// Everything else.
    Unallocated,
}

impl Reason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 27] = [
        Self::LoadExclusive,
        Self::StoreExclusive,
        Self::ExceptionGenerating,
        Self::PermanentlyUndefined,
        Self::ExceptionReturn,
        Self::AuthenticatedAddress,
        Self::AfterModifier,
        Self::EventSite,
        Self::SimdLiteral,
        Self::CompareAndBranch,
        Self::ExceptionState,
        Self::ErrorSynchronization,
        Self::StackSelection,
        Self::ExceptionMasks,
        Self::Translation,
        Self::HandlerState,
        Self::DebugState,
        Self::CacheDiscard,
        Self::HigherLevel,
        Self::MemorySequence,
        Self::Transaction,
        Self::Scalable,
        Self::ImplementationDefined,
        Self::UnlistedSystem,
        Self::UnknownHint,
        Self::Newer,
        Self::Unallocated,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoadExclusive => {
                "is a load-exclusive: a breakpoint between it and its store would make the pair fail forever"
            }
            Self::StoreExclusive => {
                "is a store-exclusive: a breakpoint between its load and it would make the pair fail forever"
            }
            Self::ExceptionGenerating => "generates an exception of its own: probe its neighbour or its handler",
            Self::PermanentlyUndefined => "is permanently undefined: it is data, or a trap",
            Self::ExceptionReturn => "returns from an exception, with state that the probe's breakpoint has replaced",
            Self::AuthenticatedAddress => {
                "signs or authenticates with the address of an instruction: probe another instruction of its function"
            }
            Self::AfterModifier => {
                "follows PACM, which may make it sign or authenticate with its own address: probe the instruction after it"
            }
            Self::EventSite => "is where a static event happens: probe the event, by its name",
            Self::SimdLiteral => {
                "loads a floating-point register relative to its address, and those are not in the trap frame"
            }
            Self::CompareAndBranch => "is a branch of the compare-and-branch extension, which is not simulated",
            Self::ExceptionState => "uses exception state that the probe's breakpoint has replaced",
            Self::ErrorSynchronization => {
                "takes pending system errors, which are masked while its out-of-line copy runs"
            }
            Self::StackSelection => "selects the stack pointer that the probe's next exception would use",
            Self::ExceptionMasks => "changes the masks of exceptions that may be taken while its out-of-line copy runs",
            Self::Translation => {
                "changes address translation, and the out-of-line copy may no longer be mapped after it"
            }
            Self::HandlerState => "changes the vectors or the current task under the probe's handler",
            Self::DebugState => "changes which debug exceptions are taken, and its out-of-line copy may take one",
            Self::CacheDiscard => "discards cache lines without writing them back, and the probe's handler has written some",
            Self::HigherLevel => "belongs to a higher exception level, and probed code runs at EL1",
            Self::MemorySequence => "is part of a memory copy or set sequence, which is only restarted in place",
            Self::Transaction => "belongs to a transaction, which a breakpoint would abort",
            Self::Scalable => "is a scalable vector or matrix instruction, which the engine does not decode",
            Self::ImplementationDefined => "is implementation defined: its effect is unknown",
            Self::UnlistedSystem => {
                "uses a system register or operation that is not known to be harmless in an out-of-line copy: it may be \
                 newer than this table"
            }
            Self::UnknownHint => "is an unallocated hint: a newer processor may give it a meaning",
            Self::Newer => "is newer than the engine's table of instructions: its effect is unknown",
            Self::Unallocated => "is not a known instruction: it is data, or newer than the engine's table of instructions",
        })
    }
}
