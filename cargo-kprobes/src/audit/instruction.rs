//! Classifies one instruction for the audit: where control goes from it, whether it touches floating point, and whether
//! it takes part in synchronisation. Pure.
//!
//! The flow of control follows from the engine's own classification, so that there is only one decoder of branches.
//! Section numbers are those of the Arm Architecture Reference Manual, DDI 0487 issue I.a.

use aarch64_kprobes::insn::{Indirect, Op, Reason, Verdict, classify, compare_and_branch_offset};

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
    /// Back to the caller, or to the interrupted code.
    Return,
    /// Into an exception, for this reason.
    Exception(&'static str),
}

/// Returns where control goes from the instruction `word`.
pub fn flow(word: u32) -> Flow {
    match classify(word) {
        Verdict::Simulate(operation) => match operation {
            Op::Branch { offset } => Flow::Jump(offset.into()),
            Op::BranchLink { offset } => Flow::Call(offset.into()),
            Op::BranchRegister { kind, rn } | Op::BranchAuthenticated { kind, rn, .. } => match kind {
                Indirect::Jump => Flow::JumpRegister(rn),
                Indirect::Call => Flow::CallRegister(rn),
                Indirect::Return => Flow::Return,
            },
            other => other.branch_offset().map_or(Flow::Next, |offset| Flow::Condition(offset.into())),
        },
        Verdict::Reject(Reason::CompareAndBranch) => Flow::Condition(compare_and_branch_offset(word).into()),
        Verdict::Reject(Reason::ExceptionReturn) => Flow::Return,
        Verdict::Reject(Reason::AuthenticatedAddress) if returns_authenticated(word) => Flow::Return,
        Verdict::Reject(Reason::ExceptionGenerating) => Flow::Exception("it generates an exception"),
        Verdict::Reject(Reason::PermanentlyUndefined) => Flow::Exception("it is permanently undefined"),
        Verdict::Reject(Reason::Unallocated) if !is_floating(word) => Flow::Exception("it is not a known instruction"),
        Verdict::Slot | Verdict::Reject(_) => Flow::Next,
    }
}

/// Whether the instruction, one of FEAT_PAuth_LR, is RETAASPPC or RETABSPPC, with the offset in the instruction or in a
/// register (C6.2).
fn returns_authenticated(word: u32) -> bool {
    word & 0xffc0_001f == 0x5500_001f || word & 0xffff_fbe0 == 0xd65f_0be0
}

/// Whether the instruction reads or writes the floating-point or vector registers, their status or their control.
///
/// By the encoding index (C4.1): data processing of scalar floating point and SIMD is the group x111 in bits 28 to 25;
/// loads and stores of its registers are those with V, bit 26, set in the group x1x0; SVE and SME are 0010 and, with
/// bit 31, 0000. The others are the system registers: FPCR, FPSR and FPMR (S3_3_C4_C4_0 to 2), SVCR (S3_3_C4_C2_2, also
/// written by MSR with an immediate, that is SMSTART and SMSTOP), and FPEXC32_EL2 (S3_4_C5_C3_0).
pub fn is_floating(word: u32) -> bool {
    let group = word >> 25 & 0b1111;
    if group & 0b0111 == 0b0111 || group & 0b0111 == 0b0110 || group == 0b0010 || group == 0 && word >> 31 == 1 {
        return true;
    }
    // MRS and MSR (register) without L, bit 21, and Rt: op0 to op2 are bits 20 to 5 (C4.1.98).
    let register = |op0: u32, op1: u32, crn: u32, crm: u32, op2: u32| {
        0xd500_0000 | op0 << 19 | op1 << 16 | crn << 12 | crm << 8 | op2 << 5
    };
    let system = word & !(1 << 21) & !0x1f;
    [(3, 3, 4, 4, 0), (3, 3, 4, 4, 1), (3, 3, 4, 4, 2), (3, 3, 4, 2, 2), (3, 4, 5, 3, 0)]
        .into_iter()
        .any(|(op0, op1, crn, crm, op2)| system == register(op0, op1, crn, crm, op2))
        // MSR (immediate) of SVCR: op1 is 3, op2 is 3, CRm selects the switched parts.
        || word & 0xffff_f0ff == 0xd503_407f
}

/// The part that an instruction takes in synchronisation with other CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronization {
    /// A load-exclusive, and whether it has acquire semantics.
    LoadExclusive { acquire: bool },
    /// A store-exclusive, with the register of its status.
    StoreExclusive { status: u8 },
    /// An atomic read-modify-write of FEAT_LSE, and whether it has acquire semantics, or compares.
    Atomic { acquires: bool },
    /// A load-acquire.
    LoadAcquire,
    /// An instruction that a waiting loop executes: YIELD, WFE, WFI and their kin, or ISB.
    Pause,
    /// A data barrier.
    Barrier,
}

/// Returns the part that the instruction `word` takes in synchronisation. `None` if it takes none.
pub fn synchronization(word: u32) -> Option<Synchronization> {
    match classify(word) {
        // C4.1.94, Load/store exclusive: o0, bit 15, is acquire or release; the status is Rs, bits 20 to 16.
        Verdict::Reject(Reason::LoadExclusive) => {
            return Some(Synchronization::LoadExclusive { acquire: word >> 15 & 1 == 1 });
        }
        Verdict::Reject(Reason::StoreExclusive) => {
            return Some(Synchronization::StoreExclusive { status: (word >> 16 & 0x1f) as u8 });
        }
        _ => {}
    }
    // CAS, CASP and their kin compare (C6.2).
    if word & 0x3fa0_7c00 == 0x08a0_7c00 || word & 0xbfa0_7c00 == 0x0820_7c00 {
        return Some(Synchronization::Atomic { acquires: true });
    }
    // Atomic memory operations: A is bit 23. LDAPR is encoded among them (o3 = 1, opc = 100).
    if word & 0x3b20_0c00 == 0x3820_0000 {
        return Some(match word & 0x3fe0_fc00 {
            0x38a0_c000 => Synchronization::LoadAcquire,
            _ => Synchronization::Atomic { acquires: word >> 23 & 1 == 1 },
        });
    }
    // LDAR and LDLAR; LDAPUR and its signed forms.
    if word & 0x3fe0_0000 == 0x08c0_0000 || word & 0x3f20_0c00 == 0x1900_0000 && word >> 22 & 0b11 != 0 {
        return Some(Synchronization::LoadAcquire);
    }
    // YIELD, WFE and WFI; WFET and WFIT; ISB.
    if matches!(word, 0xd503_203f | 0xd503_205f | 0xd503_207f) || word & 0xffff_ffc0 == 0xd503_1000 {
        return Some(Synchronization::Pause);
    }
    match word & 0xffff_f0ff {
        0xd503_30df => Some(Synchronization::Pause),
        0xd503_309f | 0xd503_30bf => Some(Synchronization::Barrier),
        _ => None,
    }
}
