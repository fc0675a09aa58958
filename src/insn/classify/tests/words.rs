//! The words. Each is followed by its assembly.

use crate::insn::op::Indirect::{self, Call, Jump, Return};
use crate::insn::op::{Key, Literal, Modifier, Op};
use crate::insn::verdict::Reason::{self, *};

const fn authenticated(kind: Indirect, rn: u8, key: Key, modifier: Modifier) -> Op {
    Op::BranchAuthenticated { kind, rn, key, modifier }
}

#[rustfmt::skip]
pub(super) const SIMULATED: &[(u32, Op)] = &[
    (0x1080_0001, Op::Address { rd: 1, offset: -0x10_0000 }), // adr x1, #-1048576
    (0x707f_ffe2, Op::Address { rd: 2, offset: 0xf_ffff }), // adr x2, #1048575
    (0x9080_0003, Op::AddressOfPage { rd: 3, offset: -0x1_0000_0000 }), // adrp x3, #-4294967296
    (0xf07f_ffff, Op::AddressOfPage { rd: 31, offset: 0xffff_f000 }), // adrp xzr, #4294963200
    (0x1600_0000, Op::Branch { offset: -0x800_0000 }), // b #-134217728
    (0x95ff_ffff, Op::BranchLink { offset: 0x7ff_fffc }), // bl #134217724
    (0x5480_000b, Op::BranchConditional { condition: 0b1011, consistent: false, offset: -0x10_0000 }), // b.lt #-1048576
    (0x547f_fff8, Op::BranchConditional { condition: 0b1000, consistent: true, offset: 0xf_fffc }), // bc.hi #1048572
    (0x3400_0044, Op::CompareBranch { rt: 4, wide: false, nonzero: false, offset: 8 }), // cbz w4, #8
    (0xb5ff_ffe5, Op::CompareBranch { rt: 5, wide: true, nonzero: true, offset: -4 }), // cbnz x5, #-4
    (0x36fc_0006, Op::TestBranch { rt: 6, bit: 31, nonzero: false, offset: -0x8000 }), // tbz w6, #31, #-32768
    (0xb703_ffe7, Op::TestBranch { rt: 7, bit: 32, nonzero: true, offset: 0x7ffc }), // tbnz x7, #32, #32764
    (0xb7f8_003f, Op::TestBranch { rt: 31, bit: 63, nonzero: true, offset: 4 }), // tbnz xzr, #63, #4
    (0xd61f_0200, Op::BranchRegister { kind: Jump, rn: 16 }), // br x16
    (0xd63f_03c0, Op::BranchRegister { kind: Call, rn: 30 }), // blr x30
    (0xd65f_03c0, Op::BranchRegister { kind: Return, rn: 30 }), // ret
    (0xd65f_0020, Op::BranchRegister { kind: Return, rn: 1 }), // ret x1
    (0xd65f_0bff, authenticated(Return, 30, Key::A, Modifier::StackPointer)), // retaa
    (0xd65f_0fff, authenticated(Return, 30, Key::B, Modifier::StackPointer)), // retab
    (0xd71f_081f, authenticated(Jump, 0, Key::A, Modifier::StackPointer)), // braa x0, sp
    (0xd61f_0c1f, authenticated(Jump, 0, Key::B, Modifier::Zero)), // brabz x0
    (0xd63f_081f, authenticated(Call, 0, Key::A, Modifier::Zero)), // blraaz x0
    (0xd73f_0c01, authenticated(Call, 0, Key::B, Modifier::Register(1))), // blrab x0, x1
    (0x1880_0008, Op::LoadLiteral { rt: 8, kind: Literal::Word, offset: -0x10_0000 }), // ldr w8, #-1048576
    (0x587f_ffe9, Op::LoadLiteral { rt: 9, kind: Literal::Doubleword, offset: 0xf_fffc }), // ldr x9, #1048572
    (0x9800_004a, Op::LoadLiteral { rt: 10, kind: Literal::SignedWord, offset: 8 }), // ldrsw x10, #8
    (0xd800_0040, Op::Nop), // prfm pldl1keep, #8
    (0xd503_201f, Op::Nop), // nop
    (0xd503_203f, Op::Nop), // yield
    (0xd503_205f, Op::Nop), // wfe
    (0xd503_20df, Op::Nop), // dgh
    (0xd53b_422b, Op::ReadDaif { rt: 11 }), // mrs x11, daif
    (0xd51b_423e, Op::WriteDaif { rt: 30 }), // msr daif, x30
    (0xd503_42df, Op::SetDaif { mask: 2 }), // msr daifset, #2
    (0xd503_4fff, Op::ClearDaif { mask: 15 }), // msr daifclr, #15
];

#[rustfmt::skip]
pub(super) const REJECTED: &[(u32, Reason)] = &[
    (0xc85f_7c20, LoadExclusive), // ldxr x0, [x1]
    (0x085f_fc20, LoadExclusive), // ldaxrb w0, [x1]
    (0x887f_0440, LoadExclusive), // ldxp w0, w1, [x2]
    (0xc87f_8440, LoadExclusive), // ldaxp x0, x1, [x2]
    (0xc95f_7c20, LoadExclusive), // ldtxr x0, [x1]
    (0xc800_7c41, StoreExclusive), // stxr w0, x1, [x2]
    (0x4800_fc41, StoreExclusive), // stlxrh w0, w1, [x2]
    (0x8820_0861, StoreExclusive), // stxp w0, w1, w2, [x3]
    (0xc820_8861, StoreExclusive), // stlxp w0, x1, x2, [x3]
    (0x8900_7c41, StoreExclusive), // sttxr w0, w1, [x2]
    (0xd400_0001, ExceptionGenerating), // svc #0
    (0xd400_0022, ExceptionGenerating), // hvc #1
    (0xd400_0043, ExceptionGenerating), // smc #2
    (0xd421_0000, ExceptionGenerating), // brk #0x800
    (0xd45e_0000, ExceptionGenerating), // hlt #0xf000
    (0xd4a0_0001, ExceptionGenerating), // dcps1
    (0x0000_0000, PermanentlyUndefined), // udf #0
    (0xd69f_03e0, ExceptionReturn), // eret
    (0xd69f_0fff, ExceptionReturn), // eretab
    (0xd6bf_03e0, ExceptionReturn), // drps
    (0x5500_003f, AuthenticatedAddress), // retaasppc #-4
    (0xf3a0_003f, AuthenticatedAddress), // autibsppc #-4
    (0xdac1_83fe, AuthenticatedAddress), // pacnbiasppc
    (0xd65f_0be3, AuthenticatedAddress), // retaasppcr x3
    (0xd503_24ff, AuthenticatedAddress), // pacm
    (0x1c00_0020, SimdLiteral), // ldr s0, #4
    (0x9c00_0020, SimdLiteral), // ldr q0, #4
    (0xf401_0020, CompareAndBranch), // cbgt x0, x1, #4
    (0x7440_8021, CompareAndBranch), // cbblo w0, w1, #4
    (0x75df_8020, CompareAndBranch), // cbeq w0, #63, #4
    (0xd538_4020, ExceptionState), // mrs x0, elr_el1
    (0xd518_4020, ExceptionState), // msr elr_el1, x0
    (0xd538_4000, ExceptionState), // mrs x0, spsr_el1
    (0xd538_5200, ExceptionState), // mrs x0, esr_el1
    (0xd538_6000, ExceptionState), // mrs x0, far_el1
    (0xd538_5100, ExceptionState), // mrs x0, afsr0_el1
    (0xd518_5120, ExceptionState), // msr afsr1_el1, x0
    (0xd508_779f, ExceptionState), // gcspushx
    (0xd503_221f, ErrorSynchronization), // esb
    (0xd500_40bf, StackSelection), // msr spsel, #0
    (0xd518_4200, StackSelection), // msr spsel, x0
    (0xd501_411f, ExceptionMasks), // msr allint, #1
    (0xd518_4300, ExceptionMasks), // msr allint, x0
    (0xd518_4320, ExceptionMasks), // msr pm, x0
    (0xd518_1000, Translation), // msr sctlr_el1, x0
    (0xd518_14c0, Translation), // msr sctlralias_el1, x0
    (0xd518_14e0, Translation), // msr sctlr2alias_el1, x0
    (0xd518_27c0, Translation), // msr tcralias_el1, x0
    (0xd518_27e0, Translation), // msr tcr2alias_el1, x0
    (0xd518_2080, Translation), // msr irtbru_el1, x0
    (0xd518_20a0, Translation), // msr irtbrp_el1, x0
    (0xd518_20c0, Translation), // msr dpotbr0_el1, x0
    (0xd518_20e0, Translation), // msr dpotbr1_el1, x0
    (0xd518_6800, Translation), // msr prbar_el1, x0
    (0xd518_6820, Translation), // msr prlar_el1, x0
    (0xd518_6fa0, Translation), // msr prlar15_el1, x0
    (0xd518_6120, Translation), // msr prenr_el1, x0
    (0xd518_a2c0, Translation), // msr tttbru_el1, x0
    (0xd518_a2e0, Translation), // msr tttbrp_el1, x0
    (0xd518_2000, Translation), // msr ttbr0_el1, x0
    (0xd518_2020, Translation), // msr ttbr1_el1, x0
    (0xd518_2040, Translation), // msr tcr_el1, x0
    (0xd518_a200, Translation), // msr mair_el1, x0
    (0xd558_2020, Translation), // msrr ttbr1_el1, x0, x1
    (0xd518_c000, HandlerState), // msr vbar_el1, x0
    (0xd518_d080, HandlerState), // msr tpidr_el1, x0
    (0xd510_0240, DebugState), // msr mdscr_el1, x0
    (0xd510_1080, DebugState), // msr oslar_el1, x0
    (0xd510_0080, DebugState), // msr dbgbvr0_el1, x0
    (0xd510_0fe0, DebugState), // msr dbgwcr15_el1, x0
    (0xd508_7640, CacheDiscard), // dc isw, x0
    (0xd508_76c0, CacheDiscard), // dc igdsw, x0
    (0xd51c_1100, HigherLevel), // msr hcr_el2, x0
    (0xd53d_1000, HigherLevel), // mrs x0, sctlr_el12
    (0xd51e_1100, HigherLevel), // msr scr_el3, x0
    (0xd50c_871f, HigherLevel), // tlbi alle2
    (0xd50c_7880, HigherLevel), // at s12e1r, x0
    (0xd54c_8720, HigherLevel), // tlbip vae2, x0, x1
    (0xd55c_2000, HigherLevel), // msrr ttbr0_el2, x0, x1
    (0x1901_0440, MemorySequence), // cpyfp [x0]!, [x1]!, x2!
    (0x1d81_0440, MemorySequence), // cpye [x0]!, [x1]!, x2!
    (0x19c2_4420, MemorySequence), // setm [x0]!, x1!, x2
    (0x1dc2_8420, MemorySequence), // setge [x0]!, x1!, x2
    (0xd523_3060, Transaction), // tstart x0
    (0xd503_307f, Transaction), // tcommit
    (0xd460_0020, Transaction), // tcancel #1
    (0x04a2_0020, Scalable), // add z0.s, z1.s, z2.s
    (0x2518_e3e0, Scalable), // ptrue p0.b
    (0xc008_00ff, Scalable), // zero {za}
    (0xd503_477f, Scalable), // smstart
    (0xd519_f220, ImplementationDefined), // msr s3_1_c15_c2_1, x0
    (0xd538_b000, ImplementationDefined), // mrs x0, s3_0_c11_c0_0
    (0xd508_f01f, ImplementationDefined), // sys #0, c15, c0, #0
    (0xd518_1020, ImplementationDefined), // msr actlr_el1, x0
    (0xd531_00e0, ImplementationDefined), // mrs x0, trcimspec0
    (0xd538_e7e0, UnlistedSystem), // mrs x0, s3_0_c14_c7_7
    (0xd518_e7e0, UnlistedSystem), // msr s3_0_c14_c7_7, x0
    (0xd518_0000, UnlistedSystem), // msr midr_el1, x0
    (0xd518_3200, UnlistedSystem), // msr fgdtp0_el1, x0
    (0xd518_2500, UnlistedSystem), // msr gcscr_el1, x0
    (0xd518_1440, UnlistedSystem), // msr cpacrmask_el1, x0
    (0xd508_001f, UnlistedSystem), // sys #0, c0, c0, #0
    (0xd508_7720, UnlistedSystem), // sys #0, c7, c7, #1, x0
    (0xd508_c100, UnlistedSystem), // gic cddis, x0
    (0xd528_c300, UnlistedSystem), // gicr x0, cdia
    (0xd528_7100, UnlistedSystem), // sysl x0, #0, c7, c1, #0
    (0xd548_8700, UnlistedSystem), // sysp #0, c8, c7, #0, x0, x1
    (0xd55b_4200, UnlistedSystem), // msrr s3_3_c4_c2_0, x0, x1
    (0xd503_22bf, UnknownHint), // hint #21
    (0xd503_2fff, UnknownHint), // hint #127
    (0x6e61_7820, Newer), // f2cvtl2 v0.8h, v1.16b
    (0x0e02_f420, Newer), // fcvtn v0.8b, v1.4s, v2.4s
    (0x6ee2_fc20, Newer), // fscale v0.2d, v1.2d, v2.2d
    (0x2ec2_3c20, Newer), // fscale v0.4h, v1.4h, v2.4h
    (0x4ea2_dc20, Newer), // famax v0.4s, v1.4s, v2.4s
    (0x2ec2_1c20, Newer), // famin v0.4h, v1.4h, v2.4h
    (0x4e42_fc20, Newer), // fdot v0.8h, v1.16b, v2.16b
    (0x0f22_0820, Newer), // fdot v0.2s, v1.8b, v2.4b[3]
    (0x0f42_9820, Newer), // fdot v0.2s, v1.4h, v2.2h[2]
    (0x4fc2_0020, Newer), // fmlalt v0.8h, v1.16b, v2.b[0]
    (0x4e02_c420, Newer), // fmlalltb v0.4s, v1.16b, v2.16b
    (0x2f42_8020, Newer), // fmlallbt v0.4s, v1.16b, v2.b[0]
    (0x4ec2_ec20, Newer), // fmmla v0.8h, v1.8h, v2.8h
    (0x6e82_ec20, Newer), // fmmla v0.4s, v1.16b, v2.16b
    (0x4e82_7020, Newer), // luti2 v0.16b, { v1.16b }, v2[3]
    (0x4ec2_1020, Newer), // luti2 v0.8h, { v1.8h }, v2[1]
    (0x4e42_6020, Newer), // luti4 v0.16b, { v1.16b }, v2[1]
    (0x4e42_1020, Newer), // luti4 v0.8h, { v1.8h, v2.8h }, v2[0]
    (0x1e7a_0020, Newer), // fcvtas s0, d1
    (0x9e36_0020, Newer), // fcvtzs d0, s1
    (0x1e7d_0020, Newer), // ucvtf d0, s1
    (0x1ddf_0041, Newer), // setgop [x1]!, x2!
    (0x1ddf_b041, Newer), // setgoetn [x1]!, x2!
    (0xd942_5820, Newer), // ldap x0, x2, [x1]
    (0xd942_7820, Newer), // ldapp x0, x2, [x1]
    (0xd902_5820, Newer), // stlp x0, x2, [x1]
    (0xd4e0_0000, Newer), // tenter #0
    (0xd6ff_03e0, Newer), // texit
    (0xd580_0020, Newer), // tchangef x0, x1
    (0xd584_0020, Newer), // tchangeb x0, x1
];

#[rustfmt::skip]
pub(super) const UNALLOCATED: &[u32] = &[
    // Reserved: UDF with a bit too many, and groups without instructions.
    0x0001_0000, 0x0200_0000, 0x0600_0000, 0x8200_0000,
    // MOVN with opc 01, MOVZ of a W register shifted by 32, AND with a mask of all ones, UBFM with N other than sf.
    0x3280_0000, 0x52c0_0000, 0x9240_fc00, 0x5340_0000,
    // EXTR of W registers by 32, ADDG of a W register, SMAX with an opcode too high.
    0x1380_8000, 0x1180_0000, 0x91d0_0000,
    // BR with op4, RETAA of another register, ERETAA without its ones, opc 0011.
    0xd61f_0001, 0xd65f_0800, 0xd69f_0be0, 0xd67f_0000,
    // B.cond's neighbour, compare-and-branch with condition 100, SVC without LL, DCPS0.
    0x5560_0000, 0x7480_0000, 0xd400_0000, 0xd4a0_0000,
    // A PSTATE field that does not exist, a barrier without op2, MSRR from an odd register, MRS with op0 0.
    0xd500_40df, 0xd503_301f, 0xd558_2001, 0xd520_0000,
    // ADD with shift 11, ADD with an extension by 5, CCMP without S, MADD with op54.
    0x8bc0_0000, 0x8b20_1400, 0x9a40_0000, 0xbb00_0000,
    // CASP of odd registers, LDR with opc 11, PRFM with writeback, a register offset by a byte.
    0x4821_7c82, 0xf9c0_0000, 0xf880_0400, 0xf860_0800,
    // LD64B of registers from an odd one, ST64B of x24 and seven more.
    0xf83f_d023, 0xf83f_9038,
    // LD1 with post-index register but no post-index, LD2 of one doubleword, literal load with opc 11 and V.
    0x0c41_7000, 0x0c40_8c00, 0xdc00_0000,
    // FADD of ptype 10, FCMP with opcode2, ADD of a doubleword vector, DUP without size, PMULL of words.
    0x1ea2_2820, 0x1e60_2001, 0x0ee2_8420, 0x4e00_0420, 0x0ea2_e020,
];

#[rustfmt::skip]
pub(super) const SLOT: &[u32] = &[
    // Function entries, hardened or not.
    0xd503_233f, // paciasp
    0xd503_237f, // pacibsp
    0xd503_23bf, // autiasp
    0xd503_20ff, // xpaclri
    0xd503_241f, // bti
    0xd503_245f, // bti c
    0xd503_249f, // bti j
    0xd503_24df, // bti jc
    0xa9bf_7bfd, // stp x29, x30, [sp, #-16]!
    0xd101_03ff, // sub sp, sp, #64
    // Hints and barriers with an effect.
    0xd503_207f, // wfi
    0xd503_1003, // wfet x3
    0xd503_1024, // wfit x4
    0xd503_209f, // sev
    0xd503_20bf, // sevl
    0xd503_229f, // csdb
    0xd503_223f, // psb csync
    0xd503_225f, // tsb csync
    0xd503_22df, // clrbhb
    0xd503_251f, // chkfeat x16
    0xd503_3bbf, // dmb ish
    0xd503_3f9f, // dsb sy
    0xd503_3e3f, // dsb synxs
    0xd503_3fdf, // isb
    0xd503_30ff, // sb
    0xd503_309f, // ssbb
    0xd503_3f5f, // clrex
    // System registers and instructions.
    0xd538_4240, // mrs x0, currentel
    0xd538_d080, // mrs x0, tpidr_el1
    0xd538_4200, // mrs x0, spsel
    0xd538_1000, // mrs x0, sctlr_el1
    0xd538_c000, // mrs x0, vbar_el1
    0xd53b_e040, // mrs x0, cntvct_el0
    0xd51b_d040, // msr tpidr_el0, x0
    0xd518_4100, // msr sp_el0, x0
    0xd51b_4200, // msr nzcv, x0
    0xd518_1040, // msr cpacr_el1, x0
    0xd530_0240, // mrs x0, mdscr_el1
    0xd538_4300, // mrs x0, allint
    0xd538_0780, // mrs x0, id_aa64mmfr4_el1
    0xd518_4600, // msr icc_pmr_el1, x0
    0xd538_cc00, // mrs x0, icc_iar1_el1
    0xd518_cc20, // msr icc_eoir1_el1, x0
    0xd518_2100, // msr apiakeylo_el1, x0
    0xd518_d020, // msr contextidr_el1, x0
    0xd51b_e320, // msr cntv_ctl_el0, x0
    0xd51b_9c00, // msr pmcr_el0, x0
    0xd511_0100, // msr trcprgctlr, x0
    0xd500_419f, // msr pan, #1
    0xd500_407f, // msr uao, #0
    0xd503_415f, // msr dit, #1
    0xd503_413f, // msr ssbs, #1
    0xd503_419f, // msr tco, #1
    0xd500_401f, // cfinv
    0xd500_405f, // axflag
    0xd50b_7520, // ic ivau, x0
    0xd50b_7420, // dc zva, x0
    0xd508_7800, // at s1e1r, x0
    0xd508_831f, // tlbi vmalle1is
    0xd508_8720, // tlbi vae1, x0
    0xd508_7620, // dc ivac, x0
    0xd508_7e40, // dc cisw, x0
    0xd50b_7380, // cfp rctx, x0
    0xd548_8720, // tlbip vae1, x0, x1
    0xd578_7400, // mrrs x0, x1, par_el1
    // Data processing.
    0x9100_0420, // add x0, x1, #1
    0x9240_1c20, // and x0, x1, #0xff
    0x72a0_0020, // movk w0, #1, lsl #16
    0xd343_1820, // ubfx x0, x1, #3, #4
    0x93c2_fc20, // extr x0, x1, x2, #63
    0x9181_0420, // addg x0, x1, #16, #1
    0x11c4_0c20, // umax w0, w1, #3
    0x2b02_7c20, // adds w0, w1, w2, lsl #31
    0xcb21_53e0, // sub x0, sp, w1, uxtw #4
    0xba02_0020, // adcs x0, x1, x2
    0xba1f_840f, // rmif x0, #63, #15
    0x3a00_080d, // setf8 w0
    0xfa5f_180f, // ccmp x0, #31, #15, ne
    0x1a82_0420, // csinc w0, w1, w2, eq
    0x9ac2_0820, // udiv x0, x1, x2
    0x9ac2_5c20, // crc32cx w0, w1, x2
    0x9adf_1020, // irg x0, x1
    0x9ac2_3020, // pacga x0, x1, x2
    0xdac0_0c20, // rev x0, x1
    0x5ac0_1820, // ctz w0, w1
    0xdac1_03e0, // pacia x0, sp
    0xdac1_3fe0, // autdzb x0
    0xdac1_43e0, // xpaci x0
    0xdac1_8bfe, // pacia171615
    0xdac1_bffe, // autib171615
    0xdac1_901e, // autiasppcr x0
    0x1b02_0c20, // madd w0, w1, w2, w3
    0x9bc2_7c20, // umulh x0, x1, x2
    // Loads and stores.
    0xc8df_fc20, // ldar x0, [x1]
    0x089f_fc20, // stlrb w0, [x1]
    0xb8bf_c020, // ldapr w0, [x1]
    0x999f_f020, // ldapursw x0, [x1, #-1]
    0xc8a0_7c41, // cas x0, x1, [x2]
    0x08e0_fc41, // casalb w0, w1, [x2]
    0x4820_7c82, // casp x0, x1, x2, x3, [x4]
    0xf8e0_0041, // ldaddal x0, x1, [x2]
    0x3820_8041, // swpb w0, w1, [x2]
    0xf820_303f, // stset x0, [x1]
    0xf83f_d1a0, // ld64b x0, [x13]
    0x1921_1040, // ldclrp x0, x1, [x2]
    0xf97f_fc20, // ldr x0, [x1, #32760]
    0x38df_f420, // ldrsb w0, [x1], #-1
    0xb822_d820, // str w0, [x1, w2, sxtw #2]
    0xf980_0000, // prfm pldl1keep, [x0]
    0xf800_0820, // sttr x0, [x1]
    0x68c1_0440, // ldpsw x0, x1, [x2], #8
    0x2800_0440, // stnp w0, w1, [x2]
    0xf860_0c20, // ldraa x0, [x1, #-4096]!
    0xd920_1420, // stg x0, [x1], #16
    0xd960_0020, // ldg x0, [x1]
    0x4cc1_0000, // ld4 {v0.16b, v1.16b, v2.16b, v3.16b}, [x0], x1
    0x4d00_8400, // st1 {v0.d}[1], [x0]
    0x3dc0_0020, // ldr q0, [x1]
    0xadbf_07e0, // stp q0, q1, [sp, #-32]!
    // Floating point and vectors.
    0x1e62_2820, // fadd d0, d1, d2
    0x1f02_0c20, // fmadd s0, s1, s2, s3
    0x9e78_0020, // fcvtzs x0, d1
    0x1ec2_fc20, // scvtf h0, w1, #1
    0x9eae_0020, // fmov x0, v1.d[1]
    0x1e7e_0020, // fjcvtzs w0, d1
    0x1e60_2008, // fcmp d0, #0.0
    0x1e6e_1000, // fmov d0, #1.0
    0x4ee2_8420, // add v0.2d, v1.2d, v2.2d
    0x0f72_c820, // sqdmulh v0.4h, v1.4h, v2.h[7]
    0x6e82_cc20, // fcmla v0.4s, v1.4s, v2.4s, #90
    0x0e82_9420, // sdot v0.2s, v1.8b, v2.8b
    0x4e18_3c20, // umov x0, v1.d[1]
    0x0e02_0020, // tbl v0.8b, {v1.16b}, v2.8b
    0x6e02_7820, // ext v0.16b, v1.16b, v2.16b, #15
    0x6f00_e420, // movi v0.2d, #0xff
    0x0f0f_a420, // sshll v0.8h, v1.8b, #7
    0x7e70_d820, // faddp d0, v1.2d
    0x4e28_4820, // aese v0.16b, v1.16b
    0x5e02_4020, // sha256h q0, q1, v2.4s
    0xce02_0c20, // eor3 v0.16b, v1.16b, v2.16b, v3.16b
    0x0ee2_e020, // pmull v0.1q, v1.1d, v2.1d
];
