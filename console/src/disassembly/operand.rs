//! The operands of instructions on system registers: which register or operation, and which general register.

use core::fmt;

/// Returns the key of a system register or operation: its fields as in bits 20 to 5 of an instruction.
pub(super) const fn key(op0: u16, op1: u16, crn: u16, crm: u16, op2: u16) -> u16 {
    op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2
}

/// Returns the fields of a key, in the order of the parameters of [`key`].
pub(super) const fn fields(key: u16) -> [u16; 5] {
    [key >> 14, (key >> 11) & 7, (key >> 7) & 15, (key >> 3) & 15, key & 7]
}

/// A 64-bit general register; number 31 is the zero register.
pub(super) struct General(pub u32);

impl fmt::Display for General {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            31 => f.write_str("xzr"),
            number => write!(f, "x{number}"),
        }
    }
}
