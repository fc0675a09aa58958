//! The registers of an exception in words, so that readers of a report need not know the encodings: ESR_EL1
//! ([`Syndrome`]), SPSR_EL1 ([`ProcessorState`]), and the cause as one sentence ([`Cause`]).
//!
//! The crate is apart from the kernel, so that it is tested on the host. Names and encodings of ESR_EL1: Arm ARM,
//! D24.2.40.

#![cfg_attr(not(test), no_std)]

mod cause;
mod pstate;

use core::fmt;

pub use cause::Cause;
pub use pstate::ProcessorState;

/// An exception syndrome: the value of ESR_EL1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u64);

/// What a syndrome tells about an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// The kind of access.
    pub access: Access,
    /// The fault status code (DFSC or IFSC).
    pub status: FaultStatus,
    /// Whether FAR_EL1 holds the address of the access (FnV is 0).
    pub address_valid: bool,
}

/// The access that an abort interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An instruction fetch.
    Execute,
    /// A load.
    Read,
    /// A store.
    Write,
    /// A cache maintenance or address translation instruction.
    Maintenance,
}

/// A fault status code: DFSC of a data abort or IFSC of an instruction abort. Both have the same encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultStatus(u8);

/// The kinds of fault that a sentence about an abort distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The address has no valid translation table entry.
    Translation,
    /// The translation does not permit the access.
    Permission,
    /// The address is not aligned as the access requires.
    Alignment,
    /// Any other fault; the name of its status says which.
    Other,
}

impl Syndrome {
    /// Returns the exception class, bits 31 to 26.
    #[must_use]
    pub const fn class(self) -> u8 {
        (self.0 >> 26 & 0x3f) as u8
    }

    /// Returns the abort, if the exception is a data or instruction abort.
    #[must_use]
    pub const fn abort(self) -> Option<Abort> {
        let access = match self.class() {
            0x20 | 0x21 => Access::Execute,
            0x24 | 0x25 if self.bit(8) => Access::Maintenance,
            0x24 | 0x25 if self.bit(6) => Access::Write,
            0x24 | 0x25 => Access::Read,
            _ => return None,
        };
        let status = FaultStatus((self.0 & 0x3f) as u8);
        // FnV has a meaning for one status only: a synchronous external abort that is not on a table walk.
        Some(Abort { access, status, address_valid: !(status.0 == 0b01_0000 && self.bit(10)) })
    }

    /// Returns whether FAR_EL1 holds an address: for aborts, PC alignment faults and watchpoints (Arm ARM, D24.2.42).
    #[must_use]
    pub const fn has_address(self) -> bool {
        match self.abort() {
            Some(abort) => abort.address_valid,
            None => matches!(self.class(), 0x22 | 0x34 | 0x35),
        }
    }

    /// Returns the name of the exception class.
    #[must_use]
    pub const fn class_name(self) -> &'static str {
        match self.class() {
            0x00 => "undefined instruction",
            0x01 => "trapped WFI or WFE",
            0x03 => "trapped MCR or MRC (coprocessor 15)",
            0x04 => "trapped MCRR or MRRC (coprocessor 15)",
            0x05 => "trapped MCR or MRC (coprocessor 14)",
            0x06 => "trapped LDC or STC",
            0x07 => "trapped SIMD or floating-point instruction",
            0x08 => "trapped VMRS",
            0x09 => "trapped pointer authentication instruction",
            0x0a => "trapped LD64B or ST64B",
            0x0c => "trapped MRRC (coprocessor 14)",
            0x0d => "branch target exception",
            0x0e => "illegal execution state",
            0x11 => "SVC in AArch32 state",
            0x12 => "HVC in AArch32 state",
            0x13 => "SMC in AArch32 state",
            0x14 => "trapped MSRR, MRRS or 128-bit system instruction",
            0x15 => "SVC",
            0x16 => "HVC",
            0x17 => "SMC",
            0x18 => "trapped MSR, MRS or system instruction",
            0x19 => "trapped SVE instruction",
            0x1a => "trapped ERET",
            0x1b => "trapped TSTART",
            0x1c => "pointer authentication failure",
            0x1d => "trapped SME instruction",
            0x1e => "granule protection check",
            0x20 => "instruction abort from a lower exception level",
            0x21 => "instruction abort",
            0x22 => "PC alignment fault",
            0x24 => "data abort from a lower exception level",
            0x25 => "data abort",
            0x26 => "SP alignment fault",
            0x27 => "memory operation exception",
            0x28 => "floating-point exception in AArch32 state",
            0x2c => "floating-point exception",
            0x2d => "guarded control stack exception",
            0x2f => "SError interrupt",
            0x30 => "breakpoint from a lower exception level",
            0x31 => "breakpoint",
            0x32 => "software step from a lower exception level",
            0x33 => "software step",
            0x34 => "watchpoint from a lower exception level",
            0x35 => "watchpoint",
            0x38 => "BKPT in AArch32 state",
            0x3a => "vector catch in AArch32 state",
            0x3c => "breakpoint instruction",
            0x3d => "PMU exception",
            _ => "reserved exception class",
        }
    }

    const fn bit(self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }

    const fn field(self, high: u32, low: u32) -> u64 {
        self.0 >> low & ((1 << (high - low + 1)) - 1)
    }
}

impl FaultStatus {
    /// Returns the kind of fault.
    #[must_use]
    pub const fn kind(self) -> FaultKind {
        match self.0 {
            0x04..=0x07 | 0x2a | 0x2b => FaultKind::Translation,
            0x0c..=0x0f => FaultKind::Permission,
            0x21 => FaultKind::Alignment,
            _ => FaultKind::Other,
        }
    }

    /// Returns the name of the code, and the level of the table walk that it belongs to, if any.
    const fn name(self) -> (&'static str, Option<i8>) {
        let level = Some((self.0 & 0b11) as i8);
        match self.0 {
            0x00..=0x03 => ("address size fault", level),
            0x04..=0x07 => ("translation fault", level),
            0x08..=0x0b => ("access flag fault", level),
            0x0c..=0x0f => ("permission fault", level),
            0x10 => ("synchronous external abort", None),
            0x11 => ("synchronous tag check fault", None),
            0x12 => ("synchronous external abort on a table walk", Some(-2)),
            0x13 => ("synchronous external abort on a table walk", Some(-1)),
            0x14..=0x17 => ("synchronous external abort on a table walk", level),
            0x18 => ("synchronous parity or ECC error", None),
            0x1b => ("synchronous parity or ECC error on a table walk", Some(-1)),
            0x1c..=0x1f => ("synchronous parity or ECC error on a table walk", level),
            0x21 => ("alignment fault", None),
            0x22 => ("granule protection fault on a table walk", Some(-2)),
            0x23 => ("granule protection fault on a table walk", Some(-1)),
            0x24..=0x27 => ("granule protection fault on a table walk", level),
            0x28 => ("granule protection fault", None),
            0x29 => ("address size fault", Some(-1)),
            0x2a => ("translation fault", Some(-2)),
            0x2b => ("translation fault", Some(-1)),
            0x2c => ("address size fault", Some(-2)),
            0x30 => ("TLB conflict abort", None),
            0x31 => ("unsupported atomic hardware update", None),
            0x34 => ("lockdown fault", None),
            0x35 => ("unsupported exclusive or atomic access", None),
            _ => ("reserved fault status", None),
        }
    }
}

impl fmt::Display for FaultStatus {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.name() {
            (name, Some(level)) => write!(f, "{name}, level {level}"),
            (name, None) => f.write_str(name),
        }
    }
}

/// Prints the class and the meaning of its syndrome bits: `data abort: write, permission fault, level 3`.
impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.class_name())?;
        if let Some(abort) = self.abort() {
            let access = match abort.access {
                Access::Execute => "instruction fetch",
                Access::Read => "read",
                Access::Write => "write",
                Access::Maintenance => "cache maintenance or address translation",
            };
            write!(f, ": {access}, {}", abort.status)?;
            if !abort.address_valid {
                f.write_str(", FAR not valid")?;
            }
            if self.bit(9) {
                f.write_str(", external abort type 1")?;
            }
            return Ok(());
        }
        match self.class() {
            0x0d => write!(f, ": BTYPE {}", self.field(1, 0)),
            0x15..=0x17 | 0x3c => write!(f, ": immediate {:#x}", self.field(15, 0)),
            // The register in the form that assemblers accept for any register (Arm ARM, C5.1.2).
            0x18 => write!(
                f,
                ": {} S{}_{}_C{}_C{}_{}",
                if self.bit(0) { "read of" } else { "write of" },
                self.field(21, 20),
                self.field(16, 14),
                self.field(13, 10),
                self.field(4, 1),
                self.field(19, 17),
            ),
            0x1c => write!(
                f,
                ": {} key {}",
                if self.bit(1) { "data" } else { "instruction" },
                if self.bit(0) { 'B' } else { 'A' },
            ),
            0x2f if self.bit(24) => write!(f, ": implementation defined {:#x}", self.field(23, 0)),
            0x2f if self.field(5, 0) == 0x11 => f.write_str(": asynchronous external abort"),
            0x2f => f.write_str(": uncategorized"),
            class if self.class_name() == Self(0x3f << 26).class_name() => write!(f, " {class:#x}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(esr: u64) -> String {
        Syndrome(esr).to_string()
    }

    #[test]
    fn aborts_say_access_status_and_level() {
        assert_eq!(text(0x9600_0004), "data abort: read, translation fault, level 0");
        assert_eq!(text(0x9600_004f), "data abort: write, permission fault, level 3");
        assert_eq!(
            text(0x9600_0147),
            "data abort: cache maintenance or address translation, translation fault, level 3"
        );
        assert_eq!(text(0x8600_000f), "instruction abort: instruction fetch, permission fault, level 3");
        assert_eq!(text(0x9600_0061), "data abort: write, alignment fault");
        assert_eq!(text(0x9200_002b), "data abort from a lower exception level: read, translation fault, level -1");
    }

    #[test]
    fn far_is_invalid_only_where_fnv_means_so() {
        let external = Syndrome(0x9600_0410);
        assert!(!external.has_address());
        assert_eq!(external.to_string(), "data abort: read, synchronous external abort, FAR not valid");
        assert!(Syndrome(0x9600_0010).has_address());
        assert!(Syndrome(0x9600_0404).has_address(), "bit 10 is not FnV in a translation fault");
        assert!(Syndrome(0x8a00_0000).has_address(), "a PC alignment fault writes FAR");
        assert!(!Syndrome(0x9a00_0000).has_address(), "an SP alignment fault does not");
        assert!(!Syndrome(0xf200_0004).has_address());
    }

    #[test]
    fn breakpoints_and_calls_show_their_immediate() {
        assert_eq!(text(0xf200_0004), "breakpoint instruction: immediate 0x4");
        assert_eq!(text(0x5600_1234), "SVC: immediate 0x1234");
    }

    #[test]
    fn other_classes_say_what_their_bits_say() {
        assert_eq!(text(0x0200_0000), "undefined instruction");
        assert_eq!(text(0x3a00_0000), "illegal execution state");
        assert_eq!(text(0x3600_0001), "branch target exception: BTYPE 1");
        assert_eq!(text(0x7200_0003), "pointer authentication failure: data key B");
        assert_eq!(text(0xbe00_0011), "SError interrupt: asynchronous external abort");
        assert_eq!(text(0xbf00_0042), "SError interrupt: implementation defined 0x42");
        assert_eq!(text(0x7200_0001), "pointer authentication failure: instruction key B");
        // MRS x0, SCTLR_EL1, and an MSR whose fields all have different values.
        let system = "trapped MSR, MRS or system instruction";
        assert_eq!(text(0x6200_0000 | 3 << 20 | 1 << 10 | 1), format!("{system}: read of S3_0_C1_C0_0"));
        let esr = 0x6200_0000 | 2 << 20 | 7 << 17 | 5 << 14 | 15 << 10 | 14 << 1;
        assert_eq!(text(esr), format!("{system}: write of S2_5_C15_C14_7"));
        assert_eq!(text(0xfc00_0000), "reserved exception class 0x3f");
    }

    #[test]
    fn every_syndrome_has_words() {
        for class in 0..64 {
            for iss in 0..1 << 13 {
                assert!(!text(class << 26 | 1 << 25 | iss).is_empty());
            }
        }
    }
}
