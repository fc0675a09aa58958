//! Shows hints, CLREX, accesses to PSTATE, and instructions on system registers by name (Arm ARM, C4.1.87 and C5).

use core::fmt;

use super::operand::{General, fields};
use super::{operation, register};

/// An instruction whose upper bits are 1101_0101_00.
pub(super) enum Instruction {
    /// CLREX, with the operand that assembly language omits.
    ClearExclusive,
    /// A HINT, with its number.
    Hint(u32),
    /// MSR (immediate), with the field of PSTATE and the value.
    WriteState(&'static str, u32),
    /// SYS or SYSL, with the operation and the general register.
    Operation { key: u16, register: u32, result: bool },
    /// MSR or MRS, with the system register and the general register.
    Move { key: u16, register: u32, read: bool },
}

impl Instruction {
    /// Decodes an instruction; `None` if it is not one of these.
    pub fn decode(word: u32) -> Option<Self> {
        if word >> 22 != 0b11_0101_0100 {
            return None;
        }
        let (key, register) = ((word >> 5) as u16, word & 31);
        let [op0, op1, crn, crm, op2] = fields(key);
        let read = word & 1 << 21 != 0;
        match (op0, read) {
            (0, false) if (op1, crn, crm, op2, register) == (3, 3, 15, 2, 31) => Some(Self::ClearExclusive),
            (0, false) if (op1, crn, register) == (3, 2, 31) => Some(Self::Hint((word >> 5) & 0x7f)),
            (0, false) if (crn, register) == (4, 31) => {
                Some(Self::WriteState(state_field(op1, crm, op2)?, u32::from(crm)))
            }
            (1, _) => Some(Self::Operation { key, register, result: read }),
            (2 | 3, _) => Some(Self::Move { key, register, read }),
            _ => None,
        }
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ClearExclusive => f.write_str("clrex"),
            Self::Hint(number) => match hint(number) {
                Some(name) => f.write_str(name),
                None => write!(f, "hint #{number:#x}"),
            },
            Self::WriteState(field, value) => write!(f, "msr {field}, #{value}"),
            Self::Operation { key, register, result } => operation::write(f, key, register, result),
            Self::Move { key: register::TRANSMIT, register, read: true } => {
                write!(f, "mrs {}, dbgdtrrx_el0", General(register))
            }
            Self::Move { key, register, read: true } => write!(f, "mrs {}, {}", General(register), Special(key)),
            Self::Move { key, register, read: false } => write!(f, "msr {}, {}", Special(key), General(register)),
        }
    }
}

/// A system register. Without a known name, it is shown by its fields in the syntax of assemblers (C1.2.8).
struct Special(u16);

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = register::name(self.0) {
            return f.write_str(name);
        }
        let [op0, op1, crn, crm, op2] = fields(self.0);
        write!(f, "s{op0}_{op1}_c{crn}_c{crm}_{op2}")
    }
}

/// Returns the field of PSTATE that an MSR (immediate) names (C6.2).
fn state_field(op1: u16, crm: u16, op2: u16) -> Option<&'static str> {
    Some(match (op1, op2) {
        (0, 3) => "uao",
        (0, 4) => "pan",
        (0, 5) => "spsel",
        // The lowest bit of CRm is the value, and the other bits are part of the name.
        (1, 0) if crm < 2 => "allint",
        (3, 1) => "ssbs",
        (3, 2) => "dit",
        (3, 4) => "tco",
        (3, 6) => "daifset",
        (3, 7) => "daifclr",
        _ => return None,
    })
}

/// Returns the name of the hint with this number (C6.2, HINT).
fn hint(number: u32) -> Option<&'static str> {
    Some(match number {
        0 => "nop",
        1 => "yield",
        2 => "wfe",
        3 => "wfi",
        4 => "sev",
        5 => "sevl",
        6 => "dgh",
        7 => "xpaclri",
        8 => "pacia1716",
        10 => "pacib1716",
        12 => "autia1716",
        14 => "autib1716",
        16 => "esb",
        17 => "psb csync",
        18 => "tsb csync",
        19 => "gcsb dsync",
        20 => "csdb",
        22 => "clrbhb",
        24 => "paciaz",
        25 => "paciasp",
        26 => "pacibz",
        27 => "pacibsp",
        28 => "autiaz",
        29 => "autiasp",
        30 => "autibz",
        31 => "autibsp",
        32 => "bti",
        34 => "bti c",
        36 => "bti j",
        38 => "bti jc",
        39 => "pacm",
        40 => "chkfeat x16",
        48 => "stshh keep",
        49 => "stshh strm",
        _ => return None,
    })
}
