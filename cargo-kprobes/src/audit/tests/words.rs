//! The classification of single instructions.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Operand};

use crate::audit::instruction::{Flow, Synchronization, flow, is_floating, synchronization};

#[test]
fn floating_point_is_known() {
    for (word, text) in [
        (0x9e67_0000, "fmov d0, x0"),
        (0x1e23_2841, "fadd s1, s2, s3"),
        (0xfd40_0000, "ldr d0, [x0]"),
        (0x9c00_0040, "ldr q0, .+8"),
        (0xadbf_07e0, "stp q0, q1, [sp, #-32]!"),
        (0x2c40_0400, "ldnp s0, s1, [x0]"),
        (0x3c61_6800, "ldr b0, [x0, x1]"),
        (0x4cdf_7000, "ld1 {v0.16b}, [x0], #16"),
        (0x6f00_e400, "movi v0.2d, #0"),
        (0x4e04_0c20, "dup v0.4s, w1"),
        (0x0e03_3c00, "umov w0, v0.b[1]"),
        (0x9e78_0000, "fcvtzs x0, d0"),
        (0x4e28_4820, "aese v0.16b, v1.16b"),
        (0x2518_e3e0, "ptrue p0.b"),
        (0x04bf_5020, "rdvl x0, #1"),
        (0xd53b_4400, "mrs x0, fpcr"),
        (0xd51b_4421, "msr fpsr, x1"),
        (0xd503_477f, "smstart"),
        (0xd503_427f, "smstop sm"),
    ] {
        assert!(is_floating(word), "{text}");
    }
    for (word, text) in [
        (0xf9800000, "prfm pldl1keep, [x0]"),
        (0xd538_1040, "mrs x0, cpacr_el1"),
        (0x1ac2_4020, "crc32b w0, w1, w2"),
        (0xf940_0020, "ldr x0, [x1]"),
        (0xa9be_7bfd, "stp x29, x30, [sp, #-32]!"),
        (0x9100_03fd, "mov x29, sp"),
        (0xd503_4fdf, "msr daifset, #15"),
        (0xd503_201f, "nop"),
        (0xc8e0_fc41, "casal x0, x1, [x2]"),
        (0, "udf #0"),
    ] {
        assert!(!is_floating(word), "{text}");
    }
}

/// An independent decoder names the registers of most words.
#[test]
fn floating_point_is_what_another_decoder_says() {
    let decoder = InstDecoder::default();
    let mut instruction = Instruction::default();
    let (mut floating, mut others) = (0, 0);
    // All upper halves, with lower halves in which every field takes several values.
    for upper in 0..=u32::from(u16::MAX) {
        for lower in [0x0000, 0x0420, 0x0c41, 0x1062, 0x2083, 0x48a4, 0x5800, 0x7c1f, 0x8420, 0xa462, 0xd883, 0xfc20] {
            let word = upper << 16 | lower;
            if decoder.decode_into(&mut instruction, &mut U8Reader::new(&word.to_le_bytes())).is_err() {
                continue;
            }
            let named = instruction.operands.iter().any(|operand| {
                matches!(
                    operand,
                    Operand::SIMDRegister(..)
                        | Operand::SIMDRegisterElements(..)
                        | Operand::SIMDRegisterElementsLane(..)
                        | Operand::SIMDRegisterElementsMultipleLane(..)
                        | Operand::SIMDRegisterGroup(..)
                        | Operand::SIMDRegisterGroupLane(..)
                )
            });
            if named {
                floating += 1;
                assert!(is_floating(word), "{word:#010x} {instruction}");
            } else if !is_floating(word) {
                others += 1;
            }
        }
    }
    assert!(floating > 10_000 && others > 100_000, "{floating} with, {others} without floating-point registers");
}

#[test]
fn control_goes_where_the_instruction_says() {
    for (word, expected) in [
        (0x1400_0002, Flow::Jump(8)),
        (0x17ff_ffff, Flow::Jump(-4)),
        (0x9400_0001, Flow::Call(4)),
        (0x5400_0041, Flow::Condition(8)),
        (0xb4ff_ffe0, Flow::Condition(-4)),
        (0x35ff_ffa8, Flow::Condition(-12)),
        (0x3608_0040, Flow::Condition(8)),
        // CBGT x0, x1 of FEAT_CMPBR.
        (0xf401_0040, Flow::Condition(8)),
        (0xd61f_0200, Flow::JumpRegister(16)),
        (0xd63f_0100, Flow::CallRegister(8)),
        // BLRAA x8, x9.
        (0xd73f_0909, Flow::CallRegister(8)),
        (0xd65f_03c0, Flow::Return),
        // RETAA, ERET, RETAASPPC.
        (0xd65f_0bff, Flow::Return),
        (0xd69f_03e0, Flow::Return),
        (0x5500_003f, Flow::Return),
        (0xd503_201f, Flow::Next),
        (0x885f_fd28, Flow::Next),
        (0x9e67_0000, Flow::Next),
    ] {
        assert_eq!(flow(word), expected, "{word:#010x}");
    }
    for (word, text) in [(0xd420_0020, "brk #1"), (0xd400_0002, "hvc #0"), (0, "udf #0"), (0xffff_ffff, "unallocated")]
    {
        assert!(matches!(flow(word), Flow::Exception(_)) || is_floating(word), "{text}");
    }
    assert!(matches!(flow(0xd420_0020), Flow::Exception(_)));
}

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
        (0xf8bf_c020, "ldapr x0, [x1]", Some(LoadAcquire)),
        (0x88df_fc08, "ldar w8, [x0]", Some(LoadAcquire)),
        (0xc8df_7c20, "ldlar x0, [x1]", Some(LoadAcquire)),
        (0x9940_0020, "ldapur w0, [x1]", Some(LoadAcquire)),
        (0xc89f_fc20, "stlr x0, [x1]", None),
        (0xf940_0020, "ldr x0, [x1]", None),
        (0xd503_205f, "wfe", Some(Pause)),
        (0xd503_207f, "wfi", Some(Pause)),
        (0xd503_203f, "yield", Some(Pause)),
        (0xd503_3fdf, "isb", Some(Pause)),
        (0xd503_39bf, "dmb ishld", Some(Barrier)),
        (0xd503_3f9f, "dsb sy", Some(Barrier)),
        (0xd503_30ff, "sb", None),
        (0xd503_201f, "nop", None),
    ] {
        assert_eq!(synchronization(word), expected, "{text}");
    }
}
