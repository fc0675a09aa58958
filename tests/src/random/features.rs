//! The extensions of this CPU, from its identification registers (Arm ARM, D24.2). An instruction of a missing
//! extension is undefined in any place.

/// The identification registers that announce instructions.
pub struct Features {
    isar0: u64,
    isar1: u64,
    isar2: u64,
    pfr0: u64,
    pfr1: u64,
    mmfr1: u64,
    mmfr2: u64,
    /// The log2 of the number of words that DC ZVA clears; `None` if DC ZVA is prohibited.
    pub zero_block: Option<u32>,
}

macro_rules! id_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reads an identification register, and has no other effect. An unallocated one reads as zero.
        unsafe {
            core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack, preserves_flags));
        }
        value
    }};
}

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $register:ident[$shift:literal] >= $least:literal;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self) -> bool {
                self.$register >> $shift & 15 >= $least
            }
        )*
    };
}

impl Features {
    /// Reads the registers of this CPU.
    pub fn read() -> Self {
        let zero = id_register!("dczid_el0");
        Self {
            isar0: id_register!("id_aa64isar0_el1"),
            isar1: id_register!("id_aa64isar1_el1"),
            isar2: id_register!("S3_0_C0_C6_2"),
            pfr0: id_register!("id_aa64pfr0_el1"),
            pfr1: id_register!("id_aa64pfr1_el1"),
            mmfr1: id_register!("id_aa64mmfr1_el1"),
            mmfr2: id_register!("S3_0_C0_C7_2"),
            zero_block: (zero & 16 == 0).then_some((zero & 15) as u32),
        }
    }

    features! {
        /// FEAT_CRC32.
        crc = isar0[16] >= 1;
        /// FEAT_LSE.
        atomics = isar0[20] >= 2;
        /// FEAT_FlagM.
        flags = isar0[52] >= 1;
        /// FEAT_FlagM2.
        flag_formats = isar0[52] >= 2;
        /// FEAT_LRCPC.
        acquire_pc = isar1[20] >= 1;
        /// FEAT_LRCPC2.
        acquire_pc_unscaled = isar1[20] >= 2;
        /// FEAT_SB.
        speculation_barrier = isar1[36] >= 1;
        /// FEAT_HBC.
        hinted_branches = isar2[20] >= 1;
        /// FEAT_CSSC.
        short_sequences = isar2[52] >= 1;
        /// FEAT_WFxT.
        wait_timeouts = isar2[0] >= 2;
        /// FEAT_DIT.
        data_independent_timing = pfr0[48] >= 1;
        /// FEAT_SSBS2.
        speculative_store_bypass = pfr1[4] >= 2;
        /// FEAT_MTE.
        tags = pfr1[8] >= 1;
        /// FEAT_PAN.
        privileged_access_never = mmfr1[20] >= 1;
        /// FEAT_LOR.
        limited_ordering = mmfr1[16] >= 1;
        /// FEAT_UAO.
        user_access_override = mmfr2[4] >= 1;
    }

    /// FEAT_PAuth, with any algorithm.
    pub fn pointer_authentication(&self) -> bool {
        self.isar1 >> 4 & 0xff != 0 || self.isar2 >> 12 & 15 != 0
    }

    /// FEAT_PAuth's generic authentication (PACGA), with any algorithm.
    pub fn generic_authentication(&self) -> bool {
        self.isar1 >> 24 & 0xff != 0 || self.isar2 >> 8 & 15 != 0
    }

    /// Returns the bits of PSTATE that have their own registers, as far as the CPU has them: PAN, UAO, DIT and SSBS,
    /// from bit 0 on.
    pub fn processor_state(&self) -> u64 {
        let mut state = 0;
        if self.privileged_access_never() {
            state |= id_register!("S3_0_C4_C2_3") >> 22 & 1;
        }
        if self.user_access_override() {
            state |= (id_register!("S3_0_C4_C2_4") >> 23 & 1) << 1;
        }
        if self.data_independent_timing() {
            state |= (id_register!("S3_3_C4_C2_5") >> 24 & 1) << 2;
        }
        if self.speculative_store_bypass() {
            state |= (id_register!("S3_3_C4_C2_6") >> 12 & 1) << 3;
        }
        state
    }
}
