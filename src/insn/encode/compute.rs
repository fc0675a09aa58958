//! Encodes the instructions of compiled code, which computes in registers, branches forward, and changes memory that
//! other code changes, too.
//!
//! Register numbers are those of the encoding; 31 is the zero register. Registers have 64 bits unless stated otherwise.

use super::redirect;

/// A computation with two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Binary {
    /// `add` (C6.2, ADD (shifted register)).
    Add = 0x8b00_0000,
    /// `sub` (C6.2, SUB (shifted register)).
    Subtract = 0xcb00_0000,
    /// `sbc`: subtracts one more if the carry flag is clear (C6.2, SBC).
    SubtractCarry = 0xda00_0000,
    /// `subs`, which sets the flags (C6.2, SUBS (shifted register)).
    SubtractFlags = 0xeb00_0000,
    /// `and` (C6.2, AND (shifted register)).
    And = 0x8a00_0000,
    /// `orr` (C6.2, ORR (shifted register)).
    Or = 0xaa00_0000,
    /// `eor` (C6.2, EOR (shifted register)).
    Xor = 0xca00_0000,
    /// `mul` (C6.2, MADD with the zero register).
    Multiply = 0x9b00_7c00,
    /// `umulh`: the upper half of the product (C6.2, UMULH).
    MultiplyHigh = 0x9bc0_7c00,
    /// `udiv` (C6.2, UDIV).
    Divide = 0x9ac0_0800,
    /// `sdiv` (C6.2, SDIV).
    DivideSigned = 0x9ac0_0c00,
    /// `lsl` (C6.2, LSLV).
    Left = 0x9ac0_2000,
    /// `lsr` (C6.2, LSRV).
    Right = 0x9ac0_2400,
    /// `asr` (C6.2, ASRV).
    RightSigned = 0x9ac0_2800,
}

/// A condition on the flags (C1.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// Unsigned greater or equal.
    Hs = 2,
    /// Unsigned less.
    Lo = 3,
    /// Unsigned greater.
    Hi = 8,
    /// Unsigned less or equal.
    Ls = 9,
    /// Signed greater or equal.
    Ge = 10,
    /// Signed less.
    Lt = 11,
    /// Signed greater.
    Gt = 12,
    /// Signed less or equal.
    Le = 13,
}

impl Condition {
    /// Returns the condition that holds if and only if this one does not.
    #[must_use]
    pub const fn inverse(self) -> Self {
        match self {
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
            Self::Hs => Self::Lo,
            Self::Lo => Self::Hs,
            Self::Hi => Self::Ls,
            Self::Ls => Self::Hi,
            Self::Ge => Self::Lt,
            Self::Lt => Self::Ge,
            Self::Gt => Self::Le,
            Self::Le => Self::Gt,
        }
    }
}

/// A branch on a condition, encoded with the distance to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// `b`.
    Always,
    /// `b.cond`.
    If(Condition),
    /// `cbz xt`.
    Zero(u8),
    /// `cbnz xt`.
    NotZero(u8),
    /// `cbnz wt`.
    NotZeroWord(u8),
    /// `tbz xt, #bit`, with a bit below 32.
    BitClear(u8, u8),
    /// `ldr xt, label`: not a branch, but encoded like one.
    Literal(u8),
}

impl Branch {
    /// Encodes the branch with a distance of `bytes`, which may be negative (C6.2, B, B.cond, CBZ, CBNZ, TBZ, TBNZ, LDR
    /// (literal)). Returns `None` if it does not reach that far: 32 KiB for TBZ, 128 MiB for B, 1 MiB for the others.
    #[must_use]
    pub const fn word(self, bytes: i64) -> Option<u32> {
        let to = bytes as u64;
        match self {
            Self::Always => redirect::<26>(0x1400_0000, 0, to),
            Self::If(condition) => redirect::<19>(0x5400_0000 | condition as u32, 0, to),
            Self::Zero(rt) => redirect::<19>(0xb400_0000 | rt as u32, 0, to),
            Self::NotZero(rt) => redirect::<19>(0xb500_0000 | rt as u32, 0, to),
            Self::NotZeroWord(rt) => redirect::<19>(0x3500_0000 | rt as u32, 0, to),
            Self::BitClear(rt, bit) => redirect::<14>(0x3600_0000 | (bit as u32 & 31) << 19 | rt as u32, 0, to),
            Self::Literal(rt) => redirect::<19>(0x5800_0000 | rt as u32, 0, to),
        }
    }
}

const fn registers(rd: u8, rn: u8, rm: u8) -> u32 {
    (rm as u32) << 16 | (rn as u32) << 5 | rd as u32
}

/// Encodes the computation `rd` = `rn` op `rm`.
#[must_use]
pub const fn compute(how: Binary, rd: u8, rn: u8, rm: u8) -> u32 {
    how as u32 | registers(rd, rn, rm)
}

/// `add rd, rn, rm, lsl #left`, with a shift below 64 (C6.2, ADD (shifted register)).
#[must_use]
pub const fn add_shifted(rd: u8, rn: u8, rm: u8, left: u8) -> u32 {
    compute(Binary::Add, rd, rn, rm) | (left as u32 & 63) << 10
}

/// `eor rd, rn, rm, lsr #right`, with a shift below 64 (C6.2, EOR (shifted register)).
#[must_use]
pub const fn xor_shifted(rd: u8, rn: u8, rm: u8, right: u8) -> u32 {
    compute(Binary::Xor, rd, rn, rm) | 1 << 22 | (right as u32 & 63) << 10
}

/// `orr rd, rn, rm, lsl #left`, with a shift below 64 (C6.2, ORR (shifted register)).
#[must_use]
pub const fn or_shifted(rd: u8, rn: u8, rm: u8, left: u8) -> u32 {
    compute(Binary::Or, rd, rn, rm) | (left as u32 & 63) << 10
}

/// `mov rd, rm` (C6.2, ORR with the zero register).
#[must_use]
pub const fn copy(rd: u8, rm: u8) -> u32 {
    compute(Binary::Or, rd, 31, rm)
}

/// `madd rd, rn, rm, ra`: adds the product to `ra` (C6.2, MADD).
#[must_use]
pub const fn multiply_add(rd: u8, rn: u8, rm: u8, ra: u8) -> u32 {
    0x9b00_0000 | registers(rd, rn, rm) | (ra as u32) << 10
}

/// `msub rd, rn, rm, ra`: subtracts the product from `ra` (C6.2, MSUB).
#[must_use]
pub const fn multiply_subtract(rd: u8, rn: u8, rm: u8, ra: u8) -> u32 {
    multiply_add(rd, rn, rm, ra) | 1 << 15
}

/// `cmp rn, #immediate`, of 12 bits (C6.2, SUBS (immediate)). 31 is the stack pointer.
#[must_use]
pub const fn compare(rn: u8, immediate: u16) -> u32 {
    0xf100_001f | (immediate as u32 & 0xfff) << 10 | (rn as u32) << 5
}

/// `ccmp rn, rm, #0, condition`: compares if the condition holds; otherwise sets the flags to not equal (C6.2, CCMP
/// (register)).
#[must_use]
pub const fn compare_if(condition: Condition, rn: u8, rm: u8) -> u32 {
    0xfa40_0000 | registers(0, rn, rm) | (condition as u32) << 12
}

/// `csel rd, rn, rm, condition`: `rn` if the condition holds, otherwise `rm` (C6.2, CSEL).
#[must_use]
pub const fn select(condition: Condition, rd: u8, rn: u8, rm: u8) -> u32 {
    0x9a80_0000 | registers(rd, rn, rm) | (condition as u32) << 12
}

/// `cset rd, condition`: 1 if the condition holds, otherwise 0 (C6.2, CSINC with the zero register).
#[must_use]
pub const fn set_if(condition: Condition, rd: u8) -> u32 {
    select(condition.inverse(), rd, 31, 31) | 1 << 10
}

/// `ubfx rd, rn, #0, #bits` or `sbfx`: the lower `bits` bits, from 1 to 64, extended by zeros or by their sign (C6.2,
/// UBFM, SBFM).
#[must_use]
pub const fn extend(signed: bool, rd: u8, rn: u8, bits: u8) -> u32 {
    let word = if signed { 0x9340_0000 } else { 0xd340_0000 };
    word | ((bits as u32 - 1) & 63) << 10 | registers(rd, rn, 0)
}

/// `ubfx rd, rn, #low, #bits` or `sbfx`: `bits` bits from bit `low` on, of 64, extended by zeros or by their sign
/// (C6.2, UBFM, SBFM).
#[must_use]
pub const fn extract(signed: bool, rd: u8, rn: u8, low: u8, bits: u8) -> u32 {
    extend(signed, rd, rn, low.wrapping_add(bits)) | (low as u32 & 63) << 16
}

/// `ubfiz rd, rn, #low, #bits`: the lower `bits` bits, moved to bit `low` of 64, and zeros around them (C6.2,
/// UBFM).
#[must_use]
pub const fn insert_in_zeros(rd: u8, rn: u8, low: u8, bits: u8) -> u32 {
    extend(false, rd, rn, bits) | ((low as u32).wrapping_neg() & 63) << 16
}

/// `bfi rd, rn, #low, #bits`: the lower `bits` bits, moved to bit `low` of the 64 that `rd` has (C6.2, BFM).
#[must_use]
pub const fn insert(rd: u8, rn: u8, low: u8, bits: u8) -> u32 {
    insert_in_zeros(rd, rn, low, bits) ^ 0b11 << 29
}

/// `lsr rd, rn, #right`, with a shift below 64 (C6.2, UBFM).
#[must_use]
pub const fn shift_right(rd: u8, rn: u8, right: u8) -> u32 {
    0xd340_fc00 | (right as u32 & 63) << 16 | registers(rd, rn, 0)
}

/// `lsl rd, rn, #left`, with a shift below 64 (C6.2, UBFM).
#[must_use]
pub const fn shift_left(rd: u8, rn: u8, left: u8) -> u32 {
    let left = left as u32 & 63;
    0xd340_0000 | ((64 - left) & 63) << 16 | (63 - left) << 10 | registers(rd, rn, 0)
}

/// `clz rd, rn` (C6.2, CLZ).
#[must_use]
pub const fn leading_zeros(rd: u8, rn: u8) -> u32 {
    0xdac0_1000 | registers(rd, rn, 0)
}

/// `ldaxr xt, [xn]` (C6.2, LDAXR).
#[must_use]
pub const fn load_exclusive(rt: u8, rn: u8) -> u32 {
    0xc85f_fc00 | registers(rt, rn, 0)
}

/// `stxr ws, xt, [xn]`; sets ws to 0 if it has stored (C6.2, STXR).
#[must_use]
pub const fn store_exclusive(ws: u8, rt: u8, rn: u8) -> u32 {
    0xc800_7c00 | registers(rt, rn, ws)
}

/// `swpa xs, xt, [xn]`: stores xs and loads the previous value into xt, with acquire order (C6.2, SWPA). Needs
/// FEAT_LSE.
#[must_use]
pub const fn swap_acquire(rs: u8, rt: u8, rn: u8) -> u32 {
    0xf8a0_8000 | registers(rt, rn, rs)
}

/// `stlr xt, [xn]` (C6.2, STLR).
#[must_use]
pub const fn store_release(rt: u8, rn: u8) -> u32 {
    0xc89f_fc00 | registers(rt, rn, 0)
}

/// `mrs xt, tpidr_el1` (C6.2, MRS).
#[must_use]
pub const fn read_thread(rt: u8) -> u32 {
    0xd538_d080 | rt as u32
}

/// `mrs xt, cntvct_el0` (C6.2, MRS).
#[must_use]
pub const fn read_counter(rt: u8) -> u32 {
    0xd53b_e040 | rt as u32
}

/// `blr xn` (C6.2, BLR).
#[must_use]
pub const fn call_register(rn: u8) -> u32 {
    0xd63f_0000 | (rn as u32) << 5
}

/// `ret` (C6.2, RET).
pub const RETURN: u32 = 0xd65f_03c0;
