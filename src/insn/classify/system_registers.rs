//! The system registers and operations that a copy of an instruction may use, because they are known to be harmless.
//!
//! A register or operation that the tables do not list is refused, with its class as the reason. The tables are in the
//! order of the encoding: op0, op1, CRn, CRm, op2 (C5.3 and D17.2). There are four kinds of harmless writes:
//!
//! - To registers that only EL0 or a later instruction uses, and the engine does not: thread registers, timers, the
//!   keys of pointer authentication, the controls of floating point, the attributes of memory accesses.
//! - To units that watch and do not act: performance and activity monitors, the trace unit, statistical profiling. They
//!   record the engine's instructions too.
//! - To the interrupt controller's CPU interface. An interrupt that a write lets through is taken when PSTATE allows
//!   it.
//! - Operations on caches, TLBs and predictors, which do not depend on the address of the instruction. DC ISW and its
//!   kin are not harmless: they discard what a cache holds, and the probe's handler has just written to it.
//!
//! A read is harmless if no exception writes the register.

use crate::insn::verdict::Reason;

/// op0, op1, CRn, CRm and op2 of a system register; op0 is 1 for an operation.
pub(super) type Name = (u32, u32, u32, u32, u32);

/// Returns why a copy of an instruction cannot read `register`; `None` if it can.
pub(super) const fn read(register: Name) -> Option<Reason> {
    match either(register) {
        None if has_harmless_writes(register) || is_only_read(register) || governs(register).is_some() => None,
        None => Some(Reason::UnlistedSystem),
        reason => reason,
    }
}

/// Returns why a copy of an instruction cannot write `register`; `None` if it can.
pub(super) const fn write(register: Name) -> Option<Reason> {
    match either(register) {
        None if has_harmless_writes(register) => None,
        None => Some(match governs(register) {
            Some(reason) => reason,
            None => Reason::UnlistedSystem,
        }),
        reason => reason,
    }
}

/// Returns why a copy of an instruction can neither read nor write `register`; `None` if it may be able to do one of
/// them.
const fn either(register: Name) -> Option<Reason> {
    Some(match register {
        // Reserved for implementations (D17.3.2), and the trace unit's part of that: TRCIMSPEC0 to TRCIMSPEC7.
        (3, _, _, _, _) if matches!(register.2, 11 | 15) => Reason::ImplementationDefined,
        (2, 1, 0, 0..=7, 7) => Reason::ImplementationDefined,
        // EL2, with the registers of EL1 as EL2 names them; EL3 and secure EL1.
        (_, 4..=7, _, _, _) => Reason::HigherLevel,
        // SPSR_EL1, ELR_EL1; AFSR0_EL1, AFSR1_EL1, ESR_EL1; FAR_EL1, PFAR_EL1.
        (3, 0, 4, 0, 0 | 1) | (3, 0, 5, 1, 0 | 1) | (3, 0, 5, 2, 0) | (3, 0, 6, 0, 0 | 5) => Reason::ExceptionState,
        // SVCR.
        (3, 3, 4, 2, 2) => Reason::Scalable,
        _ => return None,
    })
}

/// Returns why a copy of an instruction cannot write `register`, although it can read it.
const fn governs(register: Name) -> Option<Reason> {
    Some(match register {
        // Debug: OSDTRRX_EL1, MDCCINT_EL1, MDSCR_EL1, OSDTRTX_EL1, MDSELR_EL1, MDSTEPOP_EL1, OSECCR_EL1.
        (2, 0, 0, 0 | 2..=6, 2) | (2, 0, 0, 2, 0)
        // DBGBVR<n>_EL1, DBGBCR<n>_EL1, DBGWVR<n>_EL1, DBGWCR<n>_EL1.
        | (2, 0, 0, _, 4..=7)
        // MDRAR_EL1, OSLAR_EL1, OSLSR_EL1, OSDLR_EL1, DBGPRCR_EL1; DBGCLAIMSET_EL1, DBGCLAIMCLR_EL1, DBGAUTHSTATUS_EL1.
        | (2, 0, 1, 0, 0 | 4) | (2, 0, 1, 1 | 3 | 4, 4) | (2, 0, 7, 8 | 9 | 14, 6)
        // MDCCSR_EL0, DBGDTR_EL0, DBGDTRRX_EL0 and DBGDTRTX_EL0.
        | (2, 3, 0, 1 | 4 | 5, 0) => Reason::DebugState,
        // ACTLR_EL1, whose effect is implementation defined.
        (3, 0, 1, 0, 1) => Reason::ImplementationDefined,
        // SCTLR_EL1, SCTLR2_EL1; SCTLRALIAS_EL1, SCTLR2ALIAS_EL1.
        (3, 0, 1, 0, 0 | 3) | (3, 0, 1, 4, 6 | 7)
        // TTBR0_EL1, TTBR1_EL1, TCR_EL1, TCR2_EL1, IRTBRU_EL1, IRTBRP_EL1, DPOTBR0_EL1, DPOTBR1_EL1.
        | (3, 0, 2, 0, _)
        // TPMIN0_EL1 to TPMAX1_EL1; TCRALIAS_EL1, TCR2ALIAS_EL1.
        | (3, 0, 2, 2, 4..=7) | (3, 0, 2, 7, 6 | 7)
        // The memory protection unit: PRENR_EL1, PRSELR_EL1, PRBAR<n>_EL1, PRLAR<n>_EL1.
        | (3, 0, 6, 1 | 2, 1) | (3, 0, 6, 8..=15, 0 | 1 | 4 | 5)
        // MAIR_EL1, MAIR2_EL1, PIRE0_EL1, PIR_EL1, POR_EL1, S2POR_EL1, TTTBRU_EL1, TTTBRP_EL1; AMAIR_EL1, AMAIR2_EL1.
        | (3, 0, 10, 2, _) | (3, 0, 10, 3, 0 | 1) => Reason::Translation,
        // SPSel.
        (3, 0, 4, 2, 0) => Reason::StackSelection,
        // ALLINT, PM.
        (3, 0, 4, 3, 0 | 1) => Reason::ExceptionMasks,
        // VBAR_EL1, TPIDR_EL1.
        (3, 0, 12, 0, 0) | (3, 0, 13, 0, 4) => Reason::HandlerState,
        _ => return None,
    })
}

/// Returns whether `register` is only read, or its writes are not known to be harmless.
const fn is_only_read(register: Name) -> bool {
    match register {
        // BRBINF<n>_EL1, BRBSRC<n>_EL1, BRBTGT<n>_EL1; BRBIDR0_EL1.
        (2, 1, 8, _, 0..=2 | 4..=6) | (2, 1, 9, 2, 0)
        // MIDR_EL1, MPUIR_EL1, MPIDR_EL1, REVIDR_EL1, and the identification registers: those that are not allocated
        // read as zero.
        | (3, 0, 0, 0, 0 | 4..=6) | (3, 0, 0, 1..=7, _)
        // GCSCR_EL1, GCSPR_EL1, GCSCRE0_EL1; CurrentEL.
        | (3, 0, 2, 5, 0..=2) | (3, 0, 4, 2, 2)
        // ERRIDR_EL1, ERXGSR_EL1; ERXFR_EL1, ERXPFGF_EL1.
        | (3, 0, 5, 3, 0 | 2) | (3, 0, 5, 4, 0 | 4)
        // PMSIDR_EL1, PMBIDR_EL1, TRBIDR_EL1; PMMIR_EL1.
        | (3, 0, 9, 9..=11, 7) | (3, 0, 9, 14, 6)
        // MPAMIDR_EL1, MPAMBWIDR_EL1, TLBIDIDR_EL1, LORID_EL1.
        | (3, 0, 10, 4, 4..=7)
        // RVBAR_EL1, RMR_EL1; ISR_EL1.
        | (3, 0, 12, 0, 1 | 2) | (3, 0, 12, 1, 0)
        // ICC_IAR0_EL1, ICC_HPPIR0_EL1; ICC_NMIAR1_EL1; ICC_RPR_EL1; ICC_IAR1_EL1, ICC_HPPIR1_EL1.
        | (3, 0, 12, 8, 0 | 2) | (3, 0, 12, 9, 5) | (3, 0, 12, 11, 3) | (3, 0, 12, 12, 0 | 2)
        // CCSIDR_EL1, CLIDR_EL1, CCSIDR2_EL1, GMID_EL1, SMIDR_EL1, AIDR_EL1.
        | (3, 1, 0, 0, 0..=2 | 4 | 6 | 7)
        // CTR_EL0, DCZID_EL0; RNDR, RNDRRS; PMCEID0_EL0, PMCEID1_EL0.
        | (3, 3, 0, 0, 1 | 7) | (3, 3, 2, 4, 0 | 1) | (3, 3, 9, 12, 6 | 7)
        // AMCFGR_EL0, AMCGCR_EL0, AMCG1IDR_EL0; AMEVTYPER0<n>_EL0.
        | (3, 3, 13, 2, 1 | 2 | 6) | (3, 3, 13, 6, 0..=3)
        // CNTFRQ_EL0, CNTPCT_EL0, CNTVCT_EL0, CNTPCTSS_EL0, CNTVCTSS_EL0.
        | (3, 3, 14, 0, 0..=2 | 5 | 6) => true,
        _ => false,
    }
}

/// Returns whether a copy of an instruction may write `register`, and also read it.
const fn has_harmless_writes(register: Name) -> bool {
    match register {
        // The trace unit; the branch records BRBCR_EL1, BRBFCR_EL1, BRBTS_EL1; BRBINFINJ_EL1, BRBSRCINJ_EL1,
        // BRBTGTINJ_EL1.
        (2, 1, 0..=7, _, _) | (2, 1, 9, 0 | 1, 0..=2)
        // CPACR_EL1, RGSR_EL1, GCR_EL1; ZCR_EL1, TRFCR_EL1, TRCITECR_EL1, SMPRI_EL1, SMCR_EL1.
        | (3, 0, 1, 0, 2 | 5 | 6) | (3, 0, 1, 2, 0 | 1 | 3 | 4 | 6)
        // APIAKeyLo_EL1 to APDBKeyHi_EL1; APGAKeyLo_EL1, APGAKeyHi_EL1.
        | (3, 0, 2, 1 | 2, 0..=3) | (3, 0, 2, 3, 0 | 1)
        // SP_EL0; PAN, UAO; ICC_PMR_EL1.
        | (3, 0, 4, 1, 0) | (3, 0, 4, 2, 3 | 4) | (3, 0, 4, 6, 0)
        // ERRSELR_EL1; ERXCTLR_EL1, ERXSTATUS_EL1, ERXADDR_EL1, ERXPFGCTL_EL1, ERXPFGCDN_EL1; ERXMISC0_EL1 to
        // ERXMISC3_EL1.
        | (3, 0, 5, 3, 1) | (3, 0, 5, 4, 1..=3 | 5 | 6) | (3, 0, 5, 5, 0..=3)
        // TFSR_EL1, TFSRE0_EL1; PAR_EL1.
        | (3, 0, 5, 6, 0 | 1) | (3, 0, 7, 4, 0)
        // PMSCR_EL1 to PMSLATFR_EL1; PMBLIMITR_EL1, PMBPTR_EL1, PMBSR_EL1; TRBLIMITR_EL1 to TRBTRG_EL1.
        | (3, 0, 9, 9, 0..=6) | (3, 0, 9, 10, 0 | 1 | 3) | (3, 0, 9, 11, 0..=6)
        // PMINTENSET_EL1, PMINTENCLR_EL1; LORSA_EL1, LOREA_EL1, LORN_EL1, LORC_EL1.
        | (3, 0, 9, 14, 1 | 2) | (3, 0, 10, 4, 0..=3)
        // MPAM1_EL1, MPAM0_EL1, MPAMSM_EL1; DISR_EL1.
        | (3, 0, 10, 5, 0 | 1 | 3) | (3, 0, 12, 1, 1)
        // ICC_EOIR0_EL1, ICC_BPR0_EL1, ICC_AP0R0_EL1 to ICC_AP0R3_EL1; ICC_AP1R0_EL1 to ICC_AP1R3_EL1.
        | (3, 0, 12, 8, 1 | 3..=7) | (3, 0, 12, 9, 0..=3)
        // ICC_DIR_EL1, ICC_SGI1R_EL1, ICC_ASGI1R_EL1, ICC_SGI0R_EL1.
        | (3, 0, 12, 11, 1 | 5..=7)
        // ICC_EOIR1_EL1, ICC_BPR1_EL1, ICC_CTLR_EL1, ICC_SRE_EL1, ICC_IGRPEN0_EL1, ICC_IGRPEN1_EL1.
        | (3, 0, 12, 12, 1 | 3..=7)
        // CONTEXTIDR_EL1, RCWSMASK_EL1, ACCDATA_EL1, RCWMASK_EL1, SCXTNUM_EL1; CNTKCTL_EL1; CSSELR_EL1.
        | (3, 0, 13, 0, 1 | 3 | 5..=7) | (3, 0, 14, 1, 0) | (3, 2, 0, 0, 0)
        // GCSPR_EL0; NZCV, DIT, SSBS, TCO; FPCR, FPSR, FPMR.
        | (3, 3, 2, 5, 1) | (3, 3, 4, 2, 0 | 5..=7) | (3, 3, 4, 4, 0..=2)
        // PMICNTR_EL0, PMICFILTR_EL0; PMCR_EL0, PMCNTENSET_EL0, PMCNTENCLR_EL0, PMOVSCLR_EL0, PMSWINC_EL0, PMSELR_EL0.
        | (3, 3, 9, 4 | 6, 0) | (3, 3, 9, 12, 0..=5)
        // PMCCNTR_EL0, PMXEVTYPER_EL0, PMXEVCNTR_EL0, PMZR_EL0; PMUSERENR_EL0, PMOVSSET_EL0; POR_EL0.
        | (3, 3, 9, 13, 0..=2 | 4) | (3, 3, 9, 14, 0 | 3) | (3, 3, 10, 2, 4)
        // TPIDR_EL0, TPIDRRO_EL0, TPIDR2_EL0, SCXTNUM_EL0.
        | (3, 3, 13, 0, 2 | 3 | 5 | 7)
        // AMCR_EL0, AMUSERENR_EL0, AMCNTENCLR0_EL0, AMCNTENSET0_EL0; AMCNTENCLR1_EL0, AMCNTENSET1_EL0.
        | (3, 3, 13, 2, 0 | 3..=5) | (3, 3, 13, 3, 0 | 1)
        // AMEVCNTR0<n>_EL0; AMEVCNTR1<n>_EL0, AMEVTYPER1<n>_EL0.
        | (3, 3, 13, 4, 0..=3) | (3, 3, 13, 12..=15, _)
        // CNTP_TVAL_EL0, CNTP_CTL_EL0, CNTP_CVAL_EL0; CNTV_TVAL_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0.
        | (3, 3, 14, 2 | 3, 0..=2)
        // PMEVCNTR<n>_EL0; PMEVTYPER<n>_EL0 and PMCCFILTR_EL0.
        | (3, 3, 14, 8..=10, _) | (3, 3, 14, 11, 0..=6) | (3, 3, 14, 12..=15, _) => true,
        _ => false,
    }
}

/// Returns why a copy of an instruction cannot execute the operation `operation` of SYS, or of SYSL if it `has_result`;
/// `None` if it can.
pub(super) const fn operate(operation: Name, has_result: bool) -> Option<Reason> {
    Some(match operation {
        // C5.1.3.
        _ if matches!(operation.2, 11 | 15) => Reason::ImplementationDefined,
        (_, 4..=7, _, _, _) => Reason::HigherLevel,
        // GCSPOPM, GCSSS2.
        (_, 3, 7, 7, 1 | 3) if has_result => return None,
        _ if has_result => Reason::UnlistedSystem,
        // GCSPUSHX, GCSPOPCX, GCSPOPX.
        (_, 0, 7, 7, 4..=6) => Reason::ExceptionState,
        // DC ISW, DC IGSW, DC IGDSW.
        (_, 0, 7, 6, 2 | 4 | 6) => Reason::CacheDiscard,
        // IC IALLUIS, IC IALLU; DC IVAC, DC IGVAC, DC IGDVAC.
        (_, 0, 7, 1 | 5, 0) | (_, 0, 7, 6, 1 | 3 | 5)
        // AT S1E1R, S1E1W, S1E0R, S1E0W; AT S1E1RP, S1E1WP, S1E1A.
        | (_, 0, 7, 8, 0..=3) | (_, 0, 7, 9, 0..=2)
        // DC CSW, CGSW, CGDSW; DC CISW, CIGSW, CIGDSW; DC CIVAPS, CIGDVAPS.
        | (_, 0, 7, 10 | 14, 2 | 4 | 6) | (_, 0, 7, 15, 1 | 5)
        // TLBI VMALLE1, VAE1, ASIDE1, VAAE1, VALE1, VAALE1; TLBI RVAE1, RVAAE1, RVALE1, RVAALE1; their nXS forms as
        // well.
        | (_, 0, 8 | 9, 1 | 3 | 7, 0..=3 | 5 | 7) | (_, 0, 8 | 9, 2 | 5 | 6, 1 | 3 | 5 | 7)
        // BRB IALL, BRB INJ; TRCIT; CFP RCTX, DVP RCTX, COSP RCTX, CPP RCTX.
        | (_, 1, 7, 2, 4 | 5) | (_, 3, 7, 2, 7) | (_, 3, 7, 3, 4..=7)
        // DC ZVA, DC GVA, DC GZVA; IC IVAU; GCSPUSHM, GCSSS1.
        | (_, 3, 7, 4, 1 | 3 | 4) | (_, 3, 7, 5, 1) | (_, 3, 7, 7, 0 | 2)
        // DC CVAC, CVAP, CVADP, CIVAC, with their forms for tags; DC CVAU; DC CVAOC, CIVAOC, with theirs.
        | (_, 3, 7, 10 | 12..=14, 1 | 3 | 5) | (_, 3, 7, 11, 1) | (_, 3, 7, 11 | 15, 0 | 7) => return None,
        _ => Reason::UnlistedSystem,
    })
}
