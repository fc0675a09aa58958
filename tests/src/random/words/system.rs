//! System instructions (C4.1.87) that have the same effect whenever they are executed, and do no harm.

use super::{Class, Need, field};

pub(super) const CLASSES: &[Class] = &[
    Class::plain("MRS NZCV", 0xd53b_4200, 0x1f),
    Class::plain("MSR NZCV", 0xd51b_4200, 0x1f),
    Class::plain("CFINV", 0xd500_401f, 0).only_if(|features| features.flags()),
    Class::plain("XAFLAG", 0xd500_403f, 0).only_if(|features| features.flag_formats()),
    Class::plain("AXFLAG", 0xd500_405f, 0).only_if(|features| features.flag_formats()),
    Class::plain("MSR PAN (immediate)", 0xd500_409f, 0x100).only_if(|features| features.privileged_access_never()),
    Class::plain("MSR PAN", 0xd518_4260, 0x1f).only_if(|features| features.privileged_access_never()),
    Class::plain("MRS PAN", 0xd538_4260, 0x1f).only_if(|features| features.privileged_access_never()),
    Class::plain("MSR UAO (immediate)", 0xd500_407f, 0x100).only_if(|features| features.user_access_override()),
    Class::plain("MSR UAO", 0xd518_4280, 0x1f).only_if(|features| features.user_access_override()),
    Class::plain("MSR DIT (immediate)", 0xd503_405f, 0x100).only_if(|features| features.data_independent_timing()),
    Class::plain("MSR DIT", 0xd51b_42a0, 0x1f).only_if(|features| features.data_independent_timing()),
    Class::plain("MSR SSBS (immediate)", 0xd503_403f, 0x100).only_if(|features| features.speculative_store_bypass()),
    Class::plain("MSR SSBS", 0xd51b_42c0, 0x1f).only_if(|features| features.speculative_store_bypass()),
    // CRn 0, CRm 4 to 7: unallocated registers in this range read as zero (D17.3.1).
    Class::plain("MRS of identification registers", 0xd538_0400, 0x3ff),
    Class::plain("MRS of control registers", 0, 0x1f).filled(|context, word| {
        // CurrentEL, SPSel, MIDR_EL1, MPIDR_EL1, CTR_EL0, DCZID_EL0, CNTFRQ_EL0, SCTLR_EL1, TCR_EL1, TTBR1_EL1,
        // MAIR_EL1, VBAR_EL1, TPIDR_EL1.
        const READS: [u32; 13] = [
            0xd538_4240,
            0xd538_4200,
            0xd538_0000,
            0xd538_00a0,
            0xd53b_0020,
            0xd53b_00e0,
            0xd53b_e000,
            0xd538_1000,
            0xd538_2040,
            0xd538_2020,
            0xd538_a200,
            0xd538_c000,
            0xd538_d080,
        ];
        Some((word | READS[context.sequence.below(13) as usize], Need::Nothing))
    }),
    // CLREX, DSB, DMB, ISB.
    Class::plain("barriers", 0xd503_301f, 0xfe0)
        .filled(|_, word| matches!(field(word, 7, 5), 2 | 4..=6).then_some((word, Need::Nothing))),
    Class::plain("SB", 0xd503_30ff, 0).only_if(|features| features.speculation_barrier()),
    // As for WFE, the exception return that enters the word sets the event register, so WFET does not wait.
    Class::plain("WFET", 0xd503_1000, 0x1f).only_if(|features| features.wait_timeouts()),
    // SEV, SEVL; XPACLRI, PACIA1716 to AUTIB1716; PSB, TSB, GCSB, CSDB, CLRBHB; PACIAZ to AUTIBSP; BTI.
    Class::plain("hints", 0xd503_201f, 0xfe0).filled(|_, word| {
        let is_one = matches!(field(word, 11, 5), 4 | 5 | 7 | 8 | 10 | 12 | 14 | 17..=20 | 22 | 24..=32 | 34 | 36 | 38);
        is_one.then_some((word, Need::Nothing))
    }),
];
