//! The instructions that are executed on the trap frame, decoded.
//!
//! They are decoded once, when the probe is registered, and kept with it: the breakpoint's handler then has
//! nothing left to look up.

/// How a literal load extends the word that it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal {
    /// 32 bits, zero-extended: `ldr wt, label`.
    Word,
    /// 32 bits, sign-extended to 64: `ldrsw xt, label`.
    SignedWord,
    /// 64 bits: `ldr xt, label`.
    Doubleword,
}

impl Literal {
    /// Returns the size of the load in bytes.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::Word | Self::SignedWord => 4,
            Self::Doubleword => 8,
        }
    }
}

/// The kind of an indirect branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indirect {
    /// A jump: BR and its authenticating forms.
    Jump,
    /// A call: BLR and its authenticating forms. x30 gets the return address.
    Call,
    /// A return: RET and its authenticating forms.
    Return,
}

/// A key of pointer authentication, for addresses of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// APIAKey_EL1.
    A,
    /// APIBKey_EL1.
    B,
}

/// The modifier that a pointer is authenticated with, besides the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modifier {
    /// Zero: BRAAZ and its kin.
    Zero,
    /// The stack pointer.
    StackPointer,
    /// A general register.
    Register(u8),
}

/// An instruction that is executed on the saved registers.
///
/// Offsets are in bytes from the instruction; register number 31 is the zero register. The masks of DAIF are in
/// the order of their instruction's immediate: D is bit 3, F is bit 0.
// The discriminant is 32 bits wide, so that the fields after it are moved word by word; after a byte they would be
// moved by memcpy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the fields are the operands of the instruction that each variant names")]
pub enum Op {
    /// NOP, YIELD, DGH, WFE; PRFM (literal): only advances to the next instruction.
    Nop,
    /// ADR.
    Address { rd: u8, offset: i32 },
    /// ADRP. `offset` is a multiple of 4096, from the page of the instruction.
    AddressOfPage { rd: u8, offset: i64 },
    /// B.
    Branch { offset: i32 },
    /// BL.
    BranchLink { offset: i32 },
    /// B.cond, and BC.cond (FEAT_HBC) if `consistent`. `condition` is the four-bit condition of the encoding.
    BranchConditional { condition: u8, consistent: bool, offset: i32 },
    /// CBZ and CBNZ: branches if `rt` is zero; or, if `nonzero`, if it is not. Unless `wide`, only its lower half
    /// counts.
    CompareBranch { rt: u8, wide: bool, nonzero: bool, offset: i32 },
    /// TBZ and TBNZ: branches if bit `bit` of `rt` is zero; or, if `nonzero`, if it is one.
    TestBranch { rt: u8, bit: u8, nonzero: bool, offset: i32 },
    /// BR, BLR and RET.
    BranchRegister { kind: Indirect, rn: u8 },
    /// BRAA, BLRAA, RETAA and their kin: authenticates the target first.
    BranchAuthenticated { kind: Indirect, rn: u8, key: Key, modifier: Modifier },
    /// LDR and LDRSW (literal).
    LoadLiteral { rt: u8, kind: Literal, offset: i32 },
    /// MRS of DAIF.
    ReadDaif { rt: u8 },
    /// MSR of DAIF from a register.
    WriteDaif { rt: u8 },
    /// MSR DAIFSet.
    SetDaif { mask: u8 },
    /// MSR DAIFClr.
    ClearDaif { mask: u8 },
}

const _: () = assert!(size_of::<Op>() <= 16);
