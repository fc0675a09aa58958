//! Which instructions use the registers for floating point and vectors.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Operand};

use crate::insn::is_floating;

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
    // All upper halves, with lower halves in which every field takes several values. In Miri, one in 499.
    let apart = if cfg!(miri) { 499 } else { 1 };
    for upper in (0..=u32::from(u16::MAX)).step_by(apart) {
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
    let is_enough = floating > 10_000 / apart && others > 100_000 / apart;
    assert!(is_enough, "{floating} with, {others} without floating-point registers");
}
