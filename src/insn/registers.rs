//! Determines which registers and flags an instruction reads and writes.
//!
//! The answer errs on one side. An instruction reads at most the registers that are given here, and it writes at least
//! those that are given, in full and on every execution. So a register that is written before it is read on all paths,
//! by this answer, is dead. An instruction that is not an ordinary one reads everything: nothing is known about it.
//!
//! Vectors are left out, and so is the stack pointer, except for [`StackPointer`], which tells how it moves.

use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};

use super::classify::{bit, classify, field, number, signed};
use super::op::{Indirect, Modifier, Op};
use super::verdict::{Reason, Verdict};

/// A set of the general registers x0 to x30 and the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers(u32);

impl Registers {
    /// No register.
    pub const NONE: Self = Self(0);
    /// All registers, and the flags.
    pub const ALL: Self = Self(u32::MAX);
    /// N, Z, C and V of PSTATE.
    pub const FLAGS: Self = Self(1 << 31);

    /// The register `xN`; the empty set for 31, the zero register or the stack pointer.
    #[must_use]
    pub const fn x(number: u8) -> Self {
        Self((1 << (number & 31)) & !Self::FLAGS.0)
    }

    /// The registers from `xFIRST` to `xLAST`.
    #[must_use]
    pub const fn from_to(first: u8, last: u8) -> Self {
        Self((Self::x(last).0 << 1).wrapping_sub(Self::x(first).0))
    }

    /// Returns the set as bits: bit N is `xN`, and bit 31 the flags.
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set with these [`bits`](Self::bits).
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a register is in both sets.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns a number in which the scratch registers count, for tables.
    pub(super) const fn hash(self) -> usize {
        (self.0 >> 9 ^ self.0 >> 31) as usize
    }

    /// Returns the register with the lowest number, as a set; the flags come last.
    #[must_use]
    pub const fn first(self) -> Self {
        Self(self.0 & self.0.wrapping_neg())
    }
}

impl BitAnd for Registers {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Registers {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl Sub for Registers {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Registers {
    /// Writes the name of the register with the lowest number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.trailing_zeros() {
            31 => f.write_str("NZCV"),
            number => write!(f, "x{number}"),
        }
    }
}

/// The registers that an instruction reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterAccess {
    /// All registers that it may read.
    pub reads: Registers,
    /// The registers that it writes in full.
    pub writes: Registers,
}

impl RegisterAccess {
    const NONE: Self = Self { reads: Registers::NONE, writes: Registers::NONE };
    const UNKNOWN: Self = Self { reads: Registers::ALL, writes: Registers::NONE };

    /// Returns the registers that the instruction `word` reads and writes.
    #[must_use]
    pub const fn of(word: u32) -> Self {
        Self::under(classify(word), word)
    }

    /// Returns the registers that the instruction `word` reads and writes, if the verdict on it is known.
    pub(crate) const fn under(verdict: Verdict, word: u32) -> Self {
        match verdict {
            Verdict::Simulate(op) => simulated(op),
            Verdict::Reject(Reason::LoadExclusive | Reason::StoreExclusive) => exclusive(word),
            Verdict::Reject(Reason::SimdLiteral) => Self::NONE,
            Verdict::Reject(Reason::UnknownHint) => Self::UNKNOWN,
            Verdict::Reject(_) if field(word, 31, 24) != 0xd5 => Self::UNKNOWN,
            _ => match field(word, 28, 25) {
                0b1000 | 0b1001 => immediate(word),
                0b1010 | 0b1011 => system(word),
                0b0101 | 0b1101 => register(word),
                0b0111 | 0b1111 => vector(word),
                _ => memory(word),
            },
        }
    }

    /// Returns the registers that the instruction may write, also those that it writes in part, or not on every
    /// execution. All registers, if nothing is known about it. `word` is the instruction.
    #[must_use]
    pub const fn may_write(self, word: u32) -> Registers {
        let writes = match field(word, 28, 25) {
            0b1000 | 0b1001 | 0b0101 => self.writes,
            // Not RMIF, SETF8 and SETF16, which change some of the flags.
            0b1101 if field(word, 24, 21) == 0b0000 && !matches!(field(word, 15, 10), 0 | 0b001000..=0b001111) => {
                self.writes.with(FLAGS)
            }
            0b1101 => self.writes,
            0b1010 | 0b1011 => may_write_in_system(word, self.writes),
            // FMOV and conversions write a general register, and comparisons the flags.
            0b0111 | 0b1111 => at(word, 0).with(FLAGS),
            // Structures of vectors move the address in their base.
            0b0110 if field(word, 29, 28) == 0b00 => at(word, 5),
            0b0110 | 0b1110 => self.writes,
            // Not the loads and stores of tags, and not atomics of two registers.
            _ if field(word, 29, 28) == 0b01 && bit(word, 24) && (bit(word, 21) || field(word, 11, 10) != 0) => {
                Registers::ALL
            }
            // Not LD64B and its kin.
            _ if field(word, 29, 28) == 0b11 && !bit(word, 24) && bit(word, 21) && field(word, 11, 10) == 0 => {
                match field(word, 15, 12) {
                    0b0000..=0b1000 | 0b1100 => self.writes,
                    _ => Registers::ALL,
                }
            }
            _ => self.writes,
        };
        if matches!(self, Self::UNKNOWN) { Registers::ALL } else { writes }
    }

    /// Returns the registers in which the instruction may leave a result: those that it writes, also in part, or not on
    /// every execution. All registers, if nothing is known about it. `word` is the instruction.
    ///
    /// Of system instructions and those on vectors, [`may_write`](Self::may_write) gives some registers that they do
    /// not write.
    pub(super) const fn may_leave(self, word: u32) -> Registers {
        match field(word, 28, 25) {
            _ if matches!(self, Self::UNKNOWN) => Registers::ALL,
            0b0111 | 0b1111 => self.writes.with(written_by_vector(word)),
            0b1010 | 0b1011 => self.writes.with(written_by_system(word)),
            _ => self.may_write(word),
        }
    }

    const fn reads(mut self, registers: Registers) -> Self {
        self.reads = self.reads.with(registers);
        self
    }

    const fn writes(mut self, registers: Registers) -> Self {
        self.writes = self.writes.with(registers);
        self
    }

    const fn flags_if(self, sets: bool) -> Self {
        if sets { self.writes(Registers::FLAGS) } else { self }
    }
}

const FLAGS: Registers = Registers::FLAGS;
const LINK: Registers = Registers::x(30);

/// Returns the register whose number begins at bit `low`.
const fn at(word: u32, low: u32) -> Registers {
    Registers::x(number(word, low))
}

const fn simulated(op: Op) -> RegisterAccess {
    const NONE: RegisterAccess = RegisterAccess::NONE;
    match op {
        Op::Nop | Op::Branch { .. } | Op::SetDaif { .. } | Op::ClearDaif { .. } => NONE,
        Op::Address { rd, .. } | Op::AddressOfPage { rd, .. } => NONE.writes(Registers::x(rd)),
        Op::LoadLiteral { rt, .. } | Op::ReadDaif { rt } => NONE.writes(Registers::x(rt)),
        Op::WriteDaif { rt } | Op::CompareBranch { rt, .. } | Op::TestBranch { rt, .. } => NONE.reads(Registers::x(rt)),
        Op::BranchLink { .. } => NONE.writes(LINK),
        Op::BranchConditional { .. } => NONE.reads(FLAGS),
        Op::BranchRegister { kind, rn } => indirect(kind, Registers::x(rn)),
        Op::BranchAuthenticated { kind, rn, modifier: Modifier::Register(other), .. } => {
            indirect(kind, Registers::x(rn).with(Registers::x(other)))
        }
        Op::BranchAuthenticated { kind, rn, .. } => indirect(kind, Registers::x(rn)),
    }
}

const fn indirect(kind: Indirect, target: Registers) -> RegisterAccess {
    let branch = RegisterAccess::NONE.reads(target);
    if matches!(kind, Indirect::Call) { branch.writes(LINK) } else { branch }
}

/// Data processing (immediate), without the instructions that read the program counter (C4.1.86).
const fn immediate(word: u32) -> RegisterAccess {
    let (rd, rn) = (at(word, 0), at(word, 5));
    let access = RegisterAccess::NONE.writes(rd);
    // BFM, MOVK.
    let keeps = if field(word, 30, 29) == 0b01 { rd } else { Registers::NONE };
    match field(word, 25, 23) {
        0b010 => access.reads(rn).flags_if(bit(word, 29)),
        0b011 => access.reads(rn),
        0b100 => access.reads(rn).flags_if(field(word, 30, 29) == 0b11),
        0b101 if field(word, 30, 29) == 0b11 => access.reads(rd),
        0b101 => access,
        0b110 => access.reads(rn.with(keeps)),
        _ => access.reads(rn.with(at(word, 16))),
    }
}

/// System instructions (C4.1.87).
const fn system(word: u32) -> RegisterAccess {
    /// op0 to op2 of NZCV. The lowest bit of op0 is that of the group.
    const NZCV: u32 = 0b101_1010_0001_0000;
    let rt = at(word, 0);
    let flags = if field(word, 19, 5) == NZCV { FLAGS } else { Registers::NONE };
    match field(word, 23, 19) {
        0b00000 => match field(word, 15, 12) {
            // WFET, WFIT.
            1 => RegisterAccess::NONE.reads(rt),
            2 => hint(field(word, 11, 5)),
            // CFINV, XAFLAG, AXFLAG.
            4 if field(word, 18, 16) == 0 && field(word, 7, 5) <= 2 => RegisterAccess::NONE.reads(FLAGS),
            _ => RegisterAccess::NONE,
        },
        // SYS, MSR.
        0b00001..=0b00011 => RegisterAccess::NONE.reads(rt).writes(flags),
        // SYSL, MRS.
        0b00101..=0b00111 => RegisterAccess::NONE.reads(flags).writes(rt),
        _ => RegisterAccess::UNKNOWN,
    }
}

/// Returns the registers that a branch, or an instruction of the group of system instructions, may write, given those
/// that it does.
const fn may_write_in_system(word: u32, writes: Registers) -> Registers {
    match field(word, 31, 20) {
        // Barriers.
        0xd50 if word & 0xffff_f01f == 0xd503_301f => writes,
        0xd53 if !is_random(word) => writes,
        // CHKFEAT.
        0xd50 if word == 0xd503_251f => writes.with(Registers::x(16)).with(FLAGS),
        0xd50 | 0xd51 => writes.with(FLAGS),
        0xd52..=0xd5f => writes.with(at(word, 0)).with(FLAGS),
        _ => writes,
    }
}

/// Returns whether the word is MRS of RNDR or RNDRRS, which changes the flags (C5.2).
const fn is_random(word: u32) -> bool {
    matches!(word & !0x1f, 0xd53b_2400 | 0xd53b_2420)
}

/// Returns what a system instruction writes besides the registers that [`RegisterAccess`] gives, which it writes in
/// full (C6.2).
const fn written_by_system(word: u32) -> Registers {
    match word {
        // CHKFEAT.
        0xd503_251f => Registers::x(16),
        // CFINV, XAFLAG, AXFLAG.
        0xd500_401f | 0xd500_403f | 0xd500_405f => FLAGS,
        _ if is_random(word) => FLAGS,
        _ => Registers::NONE,
    }
}

/// Hints, by CRm:op2.
const fn hint(number: u32) -> RegisterAccess {
    match number {
        // XPACLRI; PACIAZ to AUTIBSP.
        7 | 24..=31 => RegisterAccess::NONE.reads(LINK).writes(LINK),
        // PACIA1716, PACIB1716, AUTIA1716, AUTIB1716.
        8 | 10 | 12 | 14 => RegisterAccess::NONE.reads(Registers::from_to(16, 17)).writes(Registers::x(17)),
        // PACM: the next instruction may read x16, which its own word does not name.
        39 => RegisterAccess::UNKNOWN,
        // CHKFEAT.
        40 => RegisterAccess::NONE.reads(Registers::x(16)),
        _ => RegisterAccess::NONE,
    }
}

/// Data processing (register) (C4.1.89).
const fn register(word: u32) -> RegisterAccess {
    let (rd, rn, rm) = (at(word, 0), at(word, 5), at(word, 16));
    let access = RegisterAccess::NONE.reads(rn.with(rm)).writes(rd);
    let sets = bit(word, 29);
    if !bit(word, 28) {
        // Logical (shifted register) has ANDS and BICS with opc 11; add and subtract have a bit for it.
        return access.flags_if(sets && (bit(word, 24) || bit(word, 30)));
    }
    match field(word, 24, 21) {
        0b0000 => match field(word, 15, 10) {
            // With carry.
            0 => access.reads(FLAGS).flags_if(sets),
            // Checked pointer.
            0b001000..=0b001111 => access,
            // RMIF, SETF8, SETF16: some of the flags.
            _ => RegisterAccess::NONE.reads(rn.with(FLAGS)),
        },
        // Conditional compare: with a register, or an immediate in its place.
        0b0010 if bit(word, 11) => RegisterAccess::NONE.reads(rn.with(FLAGS)).writes(FLAGS),
        0b0010 => RegisterAccess::NONE.reads(rn.with(rm).with(FLAGS)).writes(FLAGS),
        0b0100 => access.reads(FLAGS),
        // PACIA171615, PACIB171615, AUTIA171615, AUTIB171615.
        0b0110 if matches!(word, 0xdac1_8bfe | 0xdac1_8ffe | 0xdac1_bbfe | 0xdac1_bffe) => {
            RegisterAccess::NONE.reads(Registers::from_to(15, 17)).writes(Registers::x(17))
        }
        // One source. PACIA and its kin also read their destination.
        0b0110 if bit(word, 30) && !sets => {
            let signs = if field(word, 20, 16) == 1 { rd } else { Registers::NONE };
            RegisterAccess::NONE.reads(rn.with(signs)).writes(rd)
        }
        0b0110 => access.flags_if(sets),
        // SMULH, UMULH; the others with three sources add.
        0b1010 | 0b1110 => access,
        _ => access.reads(at(word, 10)),
    }
}

/// Floating point and vectors: a general register, if there is one, is in the place of the first operand (C4.1.90).
const fn vector(word: u32) -> RegisterAccess {
    RegisterAccess::NONE.reads(at(word, 5).with(FLAGS))
}

/// Returns what an instruction on floating-point numbers or vectors writes besides these, which [`RegisterAccess`] does
/// not give: the general register of conversions to integers, FMOV, SMOV and UMOV, and the flags of comparisons and
/// FJCVTZS (C4.1.96). Nothing for other instructions.
const fn written_by_vector(word: u32) -> Registers {
    match word {
        // Not SCVTF, UCVTF and FMOV from a general register.
        _ if word & 0x7f20_fc00 == 0x1e20_0000 && !matches!(field(word, 18, 16), 0b010 | 0b011 | 0b111) => {
            let is_javascript = field(word, 20, 16) == 0b11_110;
            if is_javascript { at(word, 0).with(FLAGS) } else { at(word, 0) }
        }
        // FCVTZS and FCVTZU to fixed-point numbers.
        _ if word & 0x7f20_0000 == 0x1e00_0000 && matches!(field(word, 18, 16), 0b000 | 0b001) => at(word, 0),
        // SMOV and UMOV.
        _ if matches!(word & 0xbfe0_fc00, 0x0e00_2c00 | 0x0e00_3c00) => at(word, 0),
        // FCMP, FCMPE; FCCMP, FCCMPE.
        _ if word & 0xff20_fc07 == 0x1e20_2000 || word & 0xff20_0c00 == 0x1e20_0400 => FLAGS,
        _ => Registers::NONE,
    }
}

const fn exclusive(word: u32) -> RegisterAccess {
    let second = if bit(word, 21) { at(word, 10) } else { Registers::NONE };
    let (data, base) = (at(word, 0).with(second), at(word, 5));
    if bit(word, 22) {
        RegisterAccess::NONE.reads(base).writes(data)
    } else {
        RegisterAccess::NONE.reads(base.with(data)).writes(at(word, 16))
    }
}

/// Loads and stores, without exclusives and literals (C4.1.88).
const fn memory(word: u32) -> RegisterAccess {
    let is_vector = bit(word, 26);
    let access = RegisterAccess::NONE.reads(at(word, 5));
    match (field(word, 29, 28), bit(word, 24)) {
        (0b00, _) if is_vector => access.reads(at(word, 16)),
        (0b00, false) => ordered(word),
        (0b01, true) if is_vector => access,
        // LDAPUR, STLUR.
        (0b01, true) if !bit(word, 21) && field(word, 11, 10) == 0 => transfer(word, access),
        (0b10, _) => {
            let access = write_back(word, access, bit(word, 23));
            let both = at(word, 0).with(at(word, 10));
            match (is_vector, bit(word, 22)) {
                (true, _) => access,
                (false, true) => access.writes(both),
                (false, false) => access.reads(both),
            }
        }
        (0b11, true) => transfer(word, access),
        (0b11, false) => match (bit(word, 21), field(word, 11, 10)) {
            // Immediate, post-indexed and pre-indexed by bit 10.
            (false, form) => write_back(word, transfer(word, access), form & 1 != 0),
            (true, 0b00) => atomic(word, access),
            (true, 0b10) => transfer(word, access.reads(at(word, 16))),
            // LDRAA, LDRAB, pre-indexed by bit 11.
            (true, form) => write_back(word, access.writes(at(word, 0)), form & 2 != 0),
        },
        _ => RegisterAccess::UNKNOWN,
    }
}

const fn write_back(word: u32, access: RegisterAccess, is_indexed: bool) -> RegisterAccess {
    if is_indexed { access.writes(at(word, 5)) } else { access }
}

/// Adds the data register of a single load or store. A vector load or store, or a prefetch, has none.
const fn transfer(word: u32, access: RegisterAccess) -> RegisterAccess {
    let rt = at(word, 0);
    match (field(word, 31, 30), field(word, 23, 22)) {
        _ if bit(word, 26) => access,
        (0b11, 0b10) => access,
        (_, 0b00) => access.reads(rt),
        _ => access.writes(rt),
    }
}

/// LDAR, STLR and their kin, CAS and CASP.
const fn ordered(word: u32) -> RegisterAccess {
    let (rt, rn, rs) = (number(word, 0), at(word, 5), number(word, 16));
    match (bit(word, 23), bit(word, 21)) {
        (true, false) if bit(word, 22) => RegisterAccess::NONE.reads(rn).writes(Registers::x(rt)),
        (true, false) => RegisterAccess::NONE.reads(rn.with(Registers::x(rt))),
        (true, true) => {
            RegisterAccess::NONE.reads(rn.with(Registers::x(rt)).with(Registers::x(rs))).writes(Registers::x(rs))
        }
        _ => {
            let (new, old) = (Registers::x(rt).with(Registers::x(rt | 1)), Registers::x(rs).with(Registers::x(rs | 1)));
            RegisterAccess::NONE.reads(rn.with(new).with(old)).writes(old)
        }
    }
}

/// Atomic memory operations.
const fn atomic(word: u32, access: RegisterAccess) -> RegisterAccess {
    match field(word, 15, 12) {
        _ if bit(word, 26) => access,
        0b0000..=0b1000 => access.reads(at(word, 16)).writes(at(word, 0)),
        // LDAPR.
        0b1100 => access.writes(at(word, 0)),
        _ => RegisterAccess::UNKNOWN,
    }
}

/// How an instruction moves the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackPointer {
    /// By this many bytes: 0 for most instructions.
    Moved(i64),
    /// To this many bytes above the frame pointer x29.
    FromFrame(i64),
    /// To a place that the instruction does not show.
    Unknown,
}

impl StackPointer {
    /// Returns how the instruction `word` moves the stack pointer.
    #[must_use]
    pub const fn after(word: u32) -> Self {
        let (rd, rn) = (number(word, 0), number(word, 5));
        match field(word, 28, 25) {
            0b1000 | 0b1001 => match field(word, 25, 23) {
                0b010 if rd == 31 && !bit(word, 29) && !bit(word, 31) => Self::Unknown,
                0b010 if rd == 31 && !bit(word, 29) => {
                    let immediate = (field(word, 21, 10) as i64) << (12 * field(word, 22, 22));
                    let distance = if bit(word, 30) { -immediate } else { immediate };
                    match rn {
                        31 => Self::Moved(distance),
                        29 => Self::FromFrame(distance),
                        _ => Self::Unknown,
                    }
                }
                // Logical (immediate) but ANDS; ADDG and SUBG.
                0b100 if rd == 31 && field(word, 30, 29) != 0b11 => Self::Unknown,
                0b011 if rd == 31 && !bit(word, 22) => Self::Unknown,
                _ => Self::Moved(0),
            },
            // Add and subtract (extended register), and (checked pointer); IRG.
            0b0101 if rd == 31 && !bit(word, 28) && bit(word, 24) && bit(word, 21) && !bit(word, 29) => Self::Unknown,
            0b1101 if rd == 31 && !bit(word, 29) => match (field(word, 24, 21), field(word, 15, 10)) {
                (0b0000, 0b00_1000..=0b00_1111) => Self::Unknown,
                (0b0110, 0b00_0100) if !bit(word, 30) => Self::Unknown,
                _ => Self::Moved(0),
            },
            // ADDVL, ADDPL; ADDSVL, ADDSPL.
            0b0010 if rd == 31 && word & 0xffa0_f000 == 0x0420_5000 => Self::Unknown,
            0b0100 | 0b0110 | 0b1100 | 0b1110 if rn == 31 => match (field(word, 29, 28), bit(word, 24)) {
                // Pairs: the scale is that of the register.
                (0b10, _) if bit(word, 23) => {
                    let scale = match (bit(word, 26), field(word, 31, 30)) {
                        // STTP and LDTP of FEAT_LSUI have 128 bits.
                        (true, 0b11) => 4,
                        (true, size) => 2 + size,
                        (false, 0b00) => 2,
                        // STGP; LDPSW.
                        (false, 0b01) => {
                            if bit(word, 22) {
                                2
                            } else {
                                4
                            }
                        }
                        (false, _) => 3,
                    };
                    Self::Moved((signed(word, 21, 15) as i64) << scale)
                }
                (0b11, false) if !bit(word, 21) && bit(word, 10) => Self::Moved(signed(word, 20, 12) as i64),
                (0b11, false) if bit(word, 21) && field(word, 11, 10) == 0b11 => Self::Unknown,
                // Structures with post-index; tags, but for their signed offset; those of FEAT_LRCPC3 with an index.
                (0b00, _) if bit(word, 26) && bit(word, 23) => Self::Unknown,
                (0b01, true) if field(word, 31, 30) == 0b11 && bit(word, 21) && !bit(word, 10) => Self::Moved(0),
                (0b01, true) if !bit(word, 31) && bit(word, 21) => Self::Moved(0),
                (0b01, true) if bit(word, 26) && field(word, 11, 10) == 0b10 => Self::Moved(0),
                (0b01, true) if field(word, 11, 10) != 0 => Self::Unknown,
                _ => Self::Moved(0),
            },
            _ => Self::Moved(0),
        }
    }
}

#[cfg(test)]
mod tests;
