//! Shows SYS and SYSL by their common names: TLBI, DC, IC, AT and others (Arm ARM, C5.3 to C5.5).

use core::fmt;

use super::operand::{General, fields, key};

/// Writes the operation `key` with a general register. `result` tells whether it is a SYSL, whose register receives a
/// result.
pub(super) fn write(f: &mut fmt::Formatter<'_>, key: u16, register: u32, result: bool) -> fmt::Result {
    let [_, op1, crn, crm, op2] = fields(key);
    let known = NAMES.iter().find(|&&(known, _)| known == key && !result);
    if let Some(&(_, name)) = known {
        write!(f, "{name}")?;
        return operand(f, name, register);
    }
    if let Some(invalidation) = Invalidation::decode(key).filter(|_| !result) {
        write!(f, "{invalidation}")?;
        return operand(f, invalidation.what, register);
    }
    if result {
        return write!(f, "sysl {}, #{op1}, c{crn}, c{crm}, #{op2}", General(register));
    }
    write!(f, "sys #{op1}, c{crn}, c{crm}, #{op2}")?;
    if register == 31 { Ok(()) } else { write!(f, ", {}", General(register)) }
}

/// Writes the register, unless the operation applies to everything and takes none.
fn operand(f: &mut fmt::Formatter<'_>, name: &str, register: u32) -> fmt::Result {
    let everything = ["all", "vmall", "ic iall"].iter().any(|start| name.starts_with(start));
    if everything && register == 31 { Ok(()) } else { write!(f, ", {}", General(register)) }
}

/// A TLBI: its scope, and its shareability domain.
struct Invalidation {
    /// The name without its prefix and suffixes.
    what: &'static str,
    /// Whether it applies to a range of addresses.
    range: bool,
    /// `is`, `os`, or empty.
    shared: &'static str,
    /// Whether it does not wait for accesses with the XS attribute.
    nxs: bool,
}

impl Invalidation {
    /// Decodes a TLBI. The names are regular (C5.5): CRm gives the shareability and whether it is a range operation,
    /// op1 and op2 the scope.
    fn decode(key: u16) -> Option<Self> {
        let [_, op1, crn, crm, op2] = fields(key);
        let nxs = match crn {
            8 => false,
            9 => true,
            _ => return None,
        };
        let (range, shared) = match crm {
            1 => (false, "os"),
            2 => (true, "is"),
            3 => (false, "is"),
            5 => (true, "os"),
            6 => (true, ""),
            7 => (false, ""),
            _ => return None,
        };
        let what = match (op1, op2, range) {
            (0, 0, false) => "vmalle1",
            (0, 1, _) => "vae1",
            (0, 2, false) => "aside1",
            (0, 3, _) => "vaae1",
            (0, 5, _) => "vale1",
            (0, 7, _) => "vaale1",
            (4, 0, false) => "alle2",
            (4, 1, _) => "vae2",
            (4, 4, false) => "alle1",
            (4, 5, _) => "vale2",
            (4, 6, false) => "vmalls12e1",
            (6, 0, false) => "alle3",
            (6, 1, _) => "vae3",
            (6, 5, _) => "vale3",
            _ => return None,
        };
        Some(Self { what, range, shared, nxs })
    }
}

impl fmt::Display for Invalidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, shared, .. } = self;
        let range = if self.range { "r" } else { "" };
        let nxs = if self.nxs { "nxs" } else { "" };
        write!(f, "tlbi {range}{what}{shared}{nxs}")
    }
}

/// The operations other than TLBI.
static NAMES: [(u16, &str); 36] = [
    (key(1, 0, 7, 1, 0), "ic ialluis"),
    (key(1, 0, 7, 5, 0), "ic iallu"),
    (key(1, 3, 7, 5, 1), "ic ivau"),
    (key(1, 0, 7, 6, 1), "dc ivac"),
    (key(1, 0, 7, 6, 2), "dc isw"),
    (key(1, 0, 7, 6, 3), "dc igvac"),
    (key(1, 0, 7, 10, 2), "dc csw"),
    (key(1, 0, 7, 14, 2), "dc cisw"),
    (key(1, 3, 7, 4, 1), "dc zva"),
    (key(1, 3, 7, 4, 3), "dc gva"),
    (key(1, 3, 7, 4, 4), "dc gzva"),
    (key(1, 3, 7, 10, 1), "dc cvac"),
    (key(1, 3, 7, 11, 1), "dc cvau"),
    (key(1, 3, 7, 12, 1), "dc cvap"),
    (key(1, 3, 7, 13, 1), "dc cvadp"),
    (key(1, 3, 7, 14, 1), "dc civac"),
    (key(1, 0, 7, 8, 0), "at s1e1r"),
    (key(1, 0, 7, 8, 1), "at s1e1w"),
    (key(1, 0, 7, 8, 2), "at s1e0r"),
    (key(1, 0, 7, 8, 3), "at s1e0w"),
    (key(1, 0, 7, 9, 0), "at s1e1rp"),
    (key(1, 0, 7, 9, 1), "at s1e1wp"),
    (key(1, 4, 7, 8, 0), "at s1e2r"),
    (key(1, 4, 7, 8, 1), "at s1e2w"),
    (key(1, 4, 7, 8, 4), "at s12e1r"),
    (key(1, 4, 7, 8, 5), "at s12e1w"),
    (key(1, 4, 7, 8, 6), "at s12e0r"),
    (key(1, 4, 7, 8, 7), "at s12e0w"),
    (key(1, 6, 7, 8, 0), "at s1e3r"),
    (key(1, 3, 7, 3, 4), "cfp rctx"),
    (key(1, 3, 7, 3, 5), "dvp rctx"),
    (key(1, 3, 7, 3, 7), "cpp rctx"),
    (key(1, 4, 8, 0, 1), "tlbi ipas2e1is"),
    (key(1, 4, 8, 0, 5), "tlbi ipas2le1is"),
    (key(1, 4, 8, 4, 1), "tlbi ipas2e1"),
    (key(1, 4, 8, 4, 5), "tlbi ipas2le1"),
];
