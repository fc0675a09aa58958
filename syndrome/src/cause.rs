//! The cause of an exception as one sentence, with which the machine stops.

use core::fmt;

use super::{Abort, Access, FaultKind, Syndrome};

/// The end, exclusive, of the addresses that a report takes for a null pointer plus an offset.
const NULL_POINTERS: u64 = 4096;

/// A synchronous exception or an SError, as the registers describe it.
#[derive(Clone, Copy, Debug)]
pub struct Cause {
    /// ESR_EL1.
    pub syndrome: Syndrome,
    /// FAR_EL1: a virtual address, if the syndrome says that the register holds one.
    pub far: u64,
}

/// Prints, for example, `write to read-only memory at 0xffffffc000001000 by`. A place in the code follows in the
/// sentence.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Some(Abort { access, status, address_valid }) = self.syndrome.abort() else {
            return write!(f, "{} at", self.syndrome);
        };
        let access_words = match access {
            Access::Execute => "attempt to execute",
            Access::Read => "read from",
            Access::Write => "write to",
            Access::Maintenance => "maintenance of",
        };
        match (status.kind(), access) {
            (FaultKind::Translation, _) => write!(f, "{access_words} unmapped memory")?,
            (FaultKind::Permission, Access::Execute) => write!(f, "{access_words} memory that is not executable")?,
            (FaultKind::Permission, Access::Write) => write!(f, "{access_words} read-only memory")?,
            (FaultKind::Permission, _) => write!(f, "{access_words} memory that is not readable")?,
            (FaultKind::Alignment, _) => write!(f, "unaligned {access_words} memory")?,
            (FaultKind::Other, _) => write!(f, "{status}, {access_words} memory")?,
        }
        if address_valid {
            write!(f, " at {:#018x}", self.far)?;
            if self.far < NULL_POINTERS {
                f.write_str(" (a null pointer)")?;
            }
        }
        f.write_str(" by")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(esr: u64, far: u64) -> String {
        Cause { syndrome: Syndrome(esr), far }.to_string()
    }

    #[test]
    fn aborts_are_sentences() {
        assert_eq!(text(0x9600_0004, 8), "read from unmapped memory at 0x0000000000000008 (a null pointer) by");
        assert_eq!(text(0x9600_004f, 0xffff_ffc0_0000_1000), "write to read-only memory at 0xffffffc000001000 by",);
        assert_eq!(
            text(0x8600_000f, 0xffff_ffc0_0010_0000),
            "attempt to execute memory that is not executable at 0xffffffc000100000 by",
        );
        assert_eq!(text(0x9600_0061, 0x4001), "unaligned write to memory at 0x0000000000004001 by");
        assert_eq!(text(0x9600_0410, 0), "synchronous external abort, read from memory by");
    }

    #[test]
    fn other_exceptions_are_named() {
        assert_eq!(text(0xf200_0123, 0), "breakpoint instruction: immediate 0x123 at");
        assert_eq!(text(0x0200_0000, 0), "undefined instruction at");
    }
}
