//! The differences between the verdicts and yaxpeax-arm 0.5, and why the verdicts are right.

use crate::insn::{Reason, Verdict};

/// A class of words on which the two differ in one way.
pub(super) struct Difference {
    /// The words are those that are `value` under `mask`.
    mask: u32,
    value: u32,
    /// Our verdict on them.
    ours: Ours,
    /// How the decoder decodes them, what the manual says, and where.
    pub(super) why: &'static str,
}

/// The kind of a verdict.
enum Ours {
    Slot,
    Simulate,
    Reject(Reason),
}

impl Difference {
    pub(super) fn explains(&self, word: u32, verdict: Verdict) -> bool {
        word & self.mask == self.value
            && match self.ours {
                Ours::Slot => verdict == Verdict::Slot,
                Ours::Simulate => matches!(verdict, Verdict::Simulate(_)),
                Ours::Reject(reason) => verdict == Verdict::Reject(reason),
            }
    }
}

const fn slot(mask: u32, value: u32, why: &'static str) -> Difference {
    let ours = Ours::Slot;
    Difference { mask, value, ours, why }
}

const fn simulate(mask: u32, value: u32, why: &'static str) -> Difference {
    let ours = Ours::Simulate;
    Difference { mask, value, ours, why }
}

const fn reject(reason: Reason, mask: u32, value: u32, why: &'static str) -> Difference {
    let ours = Ours::Reject(reason);
    Difference { mask, value, ours, why }
}

/// In the order of the encoding index.
pub(super) const DIFFERENCES: &[Difference] = &[
    reject(
        Reason::Unallocated,
        0x9e00_0000,
        0x0000_0000,
        "decoded as UDF whatever is in bits 30 to 16; they are zero in it (C4.1.1)",
    ),
    reject(
        Reason::Unallocated,
        0xff80_0000,
        0xf380_0000,
        "decoded as AUTIASPPC with any destination; bits 4 to 0 are ones (C6.2, AUTIASPPC)",
    ),
    reject(
        Reason::CompareAndBranch,
        0x7e00_0000,
        0x7400_0000,
        "not decoded: compare and branch, FEAT_CMPBR (C6.2, CB)",
    ),
    reject(Reason::Transaction, 0xffe0_001f, 0xd460_0000, "not decoded: TCANCEL, FEAT_TME (C6.2)"),
    reject(Reason::Transaction, 0xffff_fee0, 0xd523_3060, "not decoded: TSTART and TTEST, FEAT_TME (C6.2)"),
    reject(Reason::Transaction, 0xffff_ffff, 0xd503_307f, "not decoded: TCOMMIT, FEAT_TME (C6.2)"),
    slot(0xffff_ffc0, 0xd503_1000, "not decoded: WFET and WFIT, FEAT_WFxT (C6.2)"),
    reject(
        Reason::ErrorSynchronization,
        0xffff_ffff,
        0xd503_221f,
        "decoded as a hint: ESB has an effect of its own, which depends on the masks (C6.2, ESB)",
    ),
    reject(Reason::UnknownHint, 0xffff_f01f, 0xd503_201f, "decoded as hints: not allocated (C6.2, HINT)"),
    slot(0xffff_f3ff, 0xd503_323f, "not decoded: DSB nXS, FEAT_XS (C6.2, DSB)"),
    reject(Reason::Unallocated, 0xffff_f0ff, 0xd503_30ff, "decoded as SB with any CRm; it is zero (C6.2, SB)"),
    reject(
        Reason::Scalable,
        0xffff_f0ff,
        0xd503_407f,
        "decoded as MSR to a field of PSTATE: SMSTART and SMSTOP, FEAT_SME (C6.2)",
    ),
    reject(
        Reason::Unallocated,
        0xfff8_f01f,
        0xd500_401f,
        "decoded as MSR to fields of PSTATE that do not exist (C6.2, MSR (immediate))",
    ),
    simulate(
        0xffff_fff0,
        0xd51b_4230,
        "decoded as MSR DAIF from the register whose number is 16 less: Rt is five bits (C6.2, MSR (register))",
    ),
    slot(0xfff8_c000, 0xd548_8000, "not decoded: TLBIP, FEAT_D128 (C6.2, SYSP)"),
    reject(
        Reason::HigherLevel,
        0xfffc_0000,
        0xd54c_0000,
        "not decoded: SYSP with the operations of higher levels, FEAT_D128 (C6.2)",
    ),
    reject(Reason::UnlistedSystem, 0xfff8_0000, 0xd548_0000, "not decoded: SYSP, FEAT_D128 (C6.2)"),
    slot(0xffd0_0000, 0xd550_0000, "not decoded: MSRR and MRRS, FEAT_D128 (C6.2)"),
    reject(
        Reason::Translation,
        0xffff_ffc0,
        0xd558_2000,
        "not decoded: MSRR to TTBR0_EL1 and TTBR1_EL1, FEAT_D128 (C6.2)",
    ),
    reject(
        Reason::HigherLevel,
        0xffd4_0000,
        0xd554_0000,
        "not decoded: MSRR and MRRS with the registers of higher levels, FEAT_D128 (C6.2)",
    ),
    reject(Reason::UnlistedSystem, 0xffd0_0000, 0xd550_0000, "not decoded: MSRR and MRRS, FEAT_D128 (C6.2)"),
    reject(Reason::Newer, 0xfffd_f01f, 0xd4e0_0000, "not decoded: TENTER, FEAT_TEV"),
    reject(Reason::Newer, 0xffff_fbff, 0xd6ff_03e0, "not decoded: TEXIT, FEAT_TEV"),
    reject(Reason::Newer, 0xffe9_f000, 0xd580_0000, "not decoded: TCHANGEF and TCHANGEB, FEAT_TEV"),
    reject(Reason::LoadExclusive, 0xbf60_7c00, 0x8940_7c00, "not decoded: LDTXR and LDATXR, FEAT_LSUI (C6.2)"),
    reject(Reason::StoreExclusive, 0xbf60_7c00, 0x8900_7c00, "not decoded: STTXR and STLTXR, FEAT_LSUI (C6.2)"),
    reject(
        Reason::Unallocated,
        0xffff_0000,
        0xdae1_0000,
        "decoded as PACIASPPC and its kin with bit 21 set; it is clear (C6.2, PACIASPPC)",
    ),
];
