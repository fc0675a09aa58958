//! Determines the part that an instruction takes in synchronization between CPUs, for the audit, which looks for locks.

use super::classify::{bit, classify, field, number};
use super::verdict::{Reason, Verdict};

/// The part that an instruction takes in synchronization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronization {
    /// A load-exclusive.
    LoadExclusive {
        /// Whether it has acquire semantics.
        acquire: bool,
    },
    /// A store-exclusive.
    StoreExclusive {
        /// The number of the register that gets its status.
        status: u8,
    },
    /// An atomic read-modify-write, of FEAT_LSE or a later extension.
    Atomic {
        /// Whether it has acquire semantics, or compares.
        acquires: bool,
    },
    /// A load-acquire.
    LoadAcquire,
    /// An instruction that a waiting loop executes: YIELD, WFE, WFI, WFET, WFIT or ISB.
    Pause,
    /// A data barrier.
    Barrier,
}

/// Returns the part that the instruction `word` takes in synchronization. `None` if it takes none.
#[must_use]
pub const fn synchronization(word: u32) -> Option<Synchronization> {
    match classify(word) {
        // C4.1.88, Load/store exclusive: o0, bit 15, is acquire or release.
        Verdict::Reject(Reason::LoadExclusive) => Some(Synchronization::LoadExclusive { acquire: bit(word, 15) }),
        Verdict::Reject(Reason::StoreExclusive) => Some(Synchronization::StoreExclusive { status: number(word, 16) }),
        Verdict::Reject(_) => None,
        _ => match field(word, 28, 25) {
            0b0100 | 0b1100 => memory(word),
            0b1110 if is_atomic(word) => Some(Synchronization::Atomic { acquires: bit(word, 23) }),
            0b1010 => barrier(word),
            _ => None,
        },
    }
}

/// Returns whether a load or store is an atomic memory operation, or LDAPR.
const fn is_atomic(word: u32) -> bool {
    field(word, 29, 28) == 0b11 && !bit(word, 24) && bit(word, 21) && field(word, 11, 10) == 0
}

/// Loads and stores of general registers (C4.1.88), without exclusives.
const fn memory(word: u32) -> Option<Synchronization> {
    let (load, acquires) = (bit(word, 22), bit(word, 23));
    match (field(word, 29, 28), bit(word, 24), bit(word, 21), field(word, 11, 10)) {
        // CASP, CAS; CASPT, CAST.
        (0b00, _, true, _) | (0b00, true, _, _) => Some(Synchronization::Atomic { acquires: true }),
        // LDAR, LDLAR.
        (0b00, false, false, _) if load => Some(Synchronization::LoadAcquire),
        // LDAPUR and its signed forms.
        (0b01, true, false, 0b00) if load || acquires => Some(Synchronization::LoadAcquire),
        // LDAPR (post-indexed), LDIAPP.
        (0b01, true, false, 0b10) if load => Some(Synchronization::LoadAcquire),
        // Atomic memory operations of 128 bits, and unprivileged. Those with a size of 64 bits or more are tags.
        (0b01, true, true, 0b00 | 0b01) if !bit(word, 31) => Some(Synchronization::Atomic { acquires }),
        // RCWCAS, RCWCASP.
        (0b01, true, true, _) if !bit(word, 31) => Some(Synchronization::Atomic { acquires: true }),
        _ if is_atomic(word) && field(word, 15, 12) == 0b1100 => Some(Synchronization::LoadAcquire),
        _ if is_atomic(word) => Some(Synchronization::Atomic { acquires }),
        _ => None,
    }
}

/// Hints and barriers (C4.1.87).
const fn barrier(word: u32) -> Option<Synchronization> {
    match (field(word, 31, 12), field(word, 11, 8), field(word, 7, 5)) {
        // WFET, WFIT; YIELD, WFE, WFI; ISB.
        (0xd5031, 0, 0 | 1) | (0xd5032, 0, 1..=3) | (0xd5033, _, 6) => Some(Synchronization::Pause),
        // DSB with nXS; DSB, DMB.
        (0xd5033, _, 1 | 4 | 5) => Some(Synchronization::Barrier),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synchronization_is_known() {
        use Synchronization::{Atomic, Barrier, LoadAcquire, LoadExclusive, Pause, StoreExclusive};
        for (word, text, expected) in [
            (0x885f_fd28, "ldaxr w8, [x9]", Some(LoadExclusive { acquire: true })),
            (0xc85f_7d28, "ldxr x8, [x9]", Some(LoadExclusive { acquire: false })),
            (0x085f_fc20, "ldaxrb w0, [x1]", Some(LoadExclusive { acquire: true })),
            (0xc87f_0440, "ldxp x0, x1, [x2]", Some(LoadExclusive { acquire: false })),
            (0xc80a_7d28, "stxr w10, x8, [x9]", Some(StoreExclusive { status: 10 })),
            (0xc800_fc41, "stlxr w0, x1, [x2]", Some(StoreExclusive { status: 0 })),
            (0xc8e0_fc41, "casal x0, x1, [x2]", Some(Atomic { acquires: true })),
            (0x4860_7c82, "caspa x0, x1, x2, x3, [x4]", Some(Atomic { acquires: true })),
            (0xf820_0041, "ldadd x0, x1, [x2]", Some(Atomic { acquires: false })),
            (0xf8a0_0041, "ldadda x0, x1, [x2]", Some(Atomic { acquires: true })),
            (0xf820_003f, "stadd x0, [x1]", Some(Atomic { acquires: false })),
            (0xf8a0_8041, "swpa x0, x1, [x2]", Some(Atomic { acquires: true })),
            (0xc9c0_7c20, "casat x0, x0, [x1]", Some(Atomic { acquires: true })),
            (0x19a0_1041, "ldclrpa x1, x0, [x2]", Some(Atomic { acquires: true })),
            (0x1920_0841, "rcwcas x0, x1, [x2]", Some(Atomic { acquires: true })),
            (0xfca0_0041, "ldfadda d0, d1, [x2]", Some(Atomic { acquires: true })),
            (0xf8bf_c020, "ldapr x0, [x1]", Some(LoadAcquire)),
            (0x88df_fc08, "ldar w8, [x0]", Some(LoadAcquire)),
            (0xc8df_7c20, "ldlar x0, [x1]", Some(LoadAcquire)),
            (0x9940_0020, "ldapur w0, [x1]", Some(LoadAcquire)),
            (0x9980_0020, "ldapursw x0, [x1]", Some(LoadAcquire)),
            (0xd9c0_0820, "ldapr x0, [x1], #8", Some(LoadAcquire)),
            (0xc89f_fc20, "stlr x0, [x1]", None),
            (0x9900_0020, "stlur w0, [x1]", None),
            (0xf940_0020, "ldr x0, [x1]", None),
            (0xa940_0820, "ldp x0, x2, [x1]", None),
            (0xd503_205f, "wfe", Some(Pause)),
            (0xd503_207f, "wfi", Some(Pause)),
            (0xd503_203f, "yield", Some(Pause)),
            (0xd503_1001, "wfet x1", Some(Pause)),
            (0xd503_3fdf, "isb", Some(Pause)),
            (0xd503_39bf, "dmb ishld", Some(Barrier)),
            (0xd503_3f9f, "dsb sy", Some(Barrier)),
            (0xd503_3e3f, "dsb synxs", Some(Barrier)),
            (0xd503_30ff, "sb", None),
            (0xd503_3f5f, "clrex", None),
            (0xd503_201f, "nop", None),
        ] {
            assert_eq!(synchronization(word), expected, "{text}");
        }
    }
}
