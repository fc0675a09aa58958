//! Compares the registers with the operands that yaxpeax-arm finds, and with examples.

use kprobes_random::Random;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

use super::*;

/// Returns the general registers that an instruction names.
fn named(instruction: &Instruction) -> Registers {
    let x = |number: u16| Registers::x(number as u8);
    instruction.operands.iter().fold(Registers::NONE, |all, &operand| {
        all | match operand {
            Operand::Register(_, number) | Operand::RegisterOrSP(_, number) | Operand::RegShift(_, _, _, number) => {
                x(number)
            }
            Operand::RegisterPair(_, number) => x(number) | x(number | 1),
            Operand::RegPreIndex(number, ..) | Operand::RegPostIndex(number, _) => x(number),
            Operand::RegRegOffset(base, index, ..) => x(base) | x(index),
            Operand::RegPostIndexReg(base, index) => x(base) | x(index),
            _ => Registers::NONE,
        }
    })
}

/// Returns the general registers that an instruction uses without naming them.
fn implied(opcode: Opcode) -> Registers {
    match opcode {
        Opcode::BL | Opcode::BLR | Opcode::BLRAA | Opcode::BLRAAZ | Opcode::BLRAB | Opcode::BLRABZ => LINK,
        Opcode::RET | Opcode::RETAA | Opcode::RETAB => LINK,
        _ => Registers::NONE,
    }
}

#[test]
fn the_registers_are_those_that_an_independent_decoder_names() {
    let (decoder, mut instruction) = (InstDecoder::default(), Instruction::default());
    let (mut random, mut compared) = (Random::new(0x1234_5678), 0);
    let words = if cfg!(miri) { 2_000 } else { 4_000_000 };
    for _ in 0..words {
        let word = random.next() as u32;
        let access = RegisterAccess::of(word);
        let is_vector = matches!(word >> 25 & 0b111, 0b111) || word >> 25 & 0b111 == 0b110;
        let is_hint = word >> 12 == 0xd5032;
        let bytes = word.to_le_bytes();
        let is_known = decoder.decode_into(&mut instruction, &mut U8Reader::new(&bytes)).is_ok();
        // The decoder drops the highest bit of MSR's register number.
        if access == RegisterAccess::UNKNOWN || !is_known || is_hint || instruction.opcode == Opcode::MSR {
            continue;
        }
        let (named, all) = (named(&instruction), access.reads | access.writes);
        if is_vector {
            // UMOV, SMOV and FMOV write a general register, which `RegisterAccess` does not give.
            let is_move = matches!(instruction.opcode, Opcode::UMOV | Opcode::SMOV | Opcode::FMOV);
            let is_written = is_move || access.writes.is_empty() && word >> 25 & 0b111 == 0b111;
            assert!(is_written || (named - all).is_empty(), "{word:#010x} {instruction}: {all:?}");
            continue;
        }
        assert_eq!(
            named | implied(instruction.opcode) | Registers::FLAGS,
            all | Registers::FLAGS,
            "{word:#010x} {instruction}"
        );
        compared += 1;
    }
    assert!(compared > words / 8, "{compared}");
}

/// Returns the registers that are read and written, in the form `x0 x1 NZCV`.
fn shown(registers: Registers) -> std::string::String {
    let (mut rest, mut text) = (registers, std::string::String::new());
    while !rest.is_empty() {
        text += &std::format!("{} ", rest.first());
        rest = rest - rest.first();
    }
    text.trim_end().into()
}

#[test]
fn what_is_read_is_told_from_what_is_written() {
    for (word, reads, writes) in [
        (0x8b02_0020, "x1 x2", "x0"),                // add x0, x1, x2
        (0xab02_0020, "x1 x2", "x0 NZCV"),           // adds x0, x1, x2
        (0xeb02_003f, "x1 x2", "NZCV"),              // cmp x1, x2
        (0x9100_43ff, "", ""),                       // add sp, sp, #16
        (0xf280_0029, "x9", "x9"),                   // movk x9, #1
        (0xd280_0029, "", "x9"),                     // mov x9, #1
        (0xb340_1d49, "x9 x10", "x9"),               // bfxil x9, x10, #0, #8
        (0x5300_1d49, "x10", "x9"),                  // uxtb w9, w10
        (0xea0a_013f, "x9 x10", "NZCV"),             // tst x9, x10
        (0xaa0a_03e9, "x10", "x9"),                  // mov x9, x10
        (0xfa49_0100, "x8 x9 NZCV", "NZCV"),         // ccmp x8, x9, #0, eq
        (0xfa49_0900, "x8 NZCV", "NZCV"),            // ccmp x8, #9, #0, eq
        (0x9a8a_0129, "x9 x10 NZCV", "x9"),          // csel x9, x9, x10, eq
        (0x9a0b_0149, "x10 x11 NZCV", "x9"),         // adc x9, x10, x11
        (0x9b0b_3149, "x10 x11 x12", "x9"),          // madd x9, x10, x11, x12
        (0xdac1_0149, "x9 x10", "x9"),               // pacia x9, x10
        (0xdac1_8bfe, "x15 x16 x17", "x17"),         // pacia171615
        (0xdac1_bffe, "x15 x16 x17", "x17"),         // autib171615
        (0xdac1_913e, "x9 x30", "x30"),              // autiasppcr x9
        (0xdac0_1149, "x10", "x9"),                  // clz x9, x10
        (0xa9bf_2be9, "x9 x10", ""),                 // stp x9, x10, [sp, #-16]!
        (0xa8c1_2d89, "x12", "x9 x11 x12"),          // ldp x9, x11, [x12], #16
        (0xf85f_8d49, "x10", "x9 x10"),              // ldr x9, [x10, #-8]!
        (0xf81f_8d49, "x9 x10", "x10"),              // str x9, [x10, #-8]!
        (0xf86b_6949, "x10 x11", "x9"),              // ldr x9, [x10, x11]
        (0xf980_0140, "x10", ""),                    // prfm pldl1keep, [x10]
        (0xf829_014b, "x9 x10", "x11"),              // ldadd x9, x11, [x10]
        (0xc8a9_7d4b, "x9 x10 x11", "x9"),           // cas x9, x11, [x10]
        (0x482a_7d8c, "x10 x11 x12 x13", "x10 x11"), // casp x10, x11, x12, x13, [x12]
        (0xc85f_7d49, "x10", "x9"),                  // ldxr x9, [x10]
        (0xc809_7d4b, "x10 x11", "x9"),              // stxr w9, x11, [x10]
        (0xc8df_fd49, "x10", "x9"),                  // ldar x9, [x10]
        (0xc89f_fd49, "x9 x10", ""),                 // stlr x9, [x10]
        (0x5400_0040, "NZCV", ""),                   // b.eq
        (0xb400_0049, "x9", ""),                     // cbz x9
        (0xd63f_0120, "x9", "x30"),                  // blr x9
        (0xd65f_03c0, "x30", ""),                    // ret
        (0xd53b_4209, "NZCV", "x9"),                 // mrs x9, nzcv
        (0xd51b_4209, "x9", "NZCV"),                 // msr nzcv, x9
        (0xd538_d089, "", "x9"),                     // mrs x9, tpidr_el1
        (0xd503_233f, "x30", "x30"),                 // paciasp
        (0xd500_401f, "NZCV", ""),                   // cfinv
        (0x9e66_0009, "x0 NZCV", ""),                // fmov x9, d0
    ] {
        let access = RegisterAccess::of(word);
        assert_eq!((&*shown(access.reads), &*shown(access.writes)), (reads, writes), "{word:#010x}");
    }
    // svc #0; brk #1; udf #0; hint #127; pacm.
    for word in [0xd400_0001, 0xd420_0020, 0, 0xd503_2fff, 0xd503_24ff] {
        assert_eq!(RegisterAccess::of(word), RegisterAccess::UNKNOWN, "{word:#010x}");
    }
}

#[test]
fn movements_of_the_stack_pointer_are_found() {
    use StackPointer::{FromFrame, Moved, Unknown};
    for (word, expected) in [
        (0xd100_83ff, Moved(-32)),     // sub sp, sp, #32
        (0x9140_07ff, Moved(4096)),    // add sp, sp, #1, lsl #12
        (0xa9be_7bfd, Moved(-32)),     // stp x29, x30, [sp, #-32]!
        (0xa8c2_7bfd, Moved(32)),      // ldp x29, x30, [sp], #32
        (0xa900_7bfd, Moved(0)),       // stp x29, x30, [sp]
        (0x2dbf_0be1, Moved(-8)),      // stp s1, s2, [sp, #-8]!
        (0xadbf_0be1, Moved(-32)),     // stp q1, q2, [sp, #-32]!
        (0xedbf_0be1, Moved(-32)),     // sttp q1, q2, [sp, #-32]!
        (0xe8c1_0be1, Moved(16)),      // ldtp x1, x2, [sp], #16
        (0xf81f_0ffe, Moved(-16)),     // str x30, [sp, #-16]!
        (0xf841_07fe, Moved(16)),      // ldr x30, [sp], #16
        (0xf940_07fe, Moved(0)),       // ldr x30, [sp, #8]
        (0x9100_03bf, FromFrame(0)),   // mov sp, x29
        (0xd100_83bf, FromFrame(-32)), // sub sp, x29, #32
        (0x9100_013f, Unknown),        // mov sp, x9
        (0x927c_ed3f, Unknown),        // and sp, x9, #~15
        (0xcb29_63ff, Unknown),        // sub sp, sp, x9
        (0x1100_43ff, Unknown),        // add wsp, wsp, #16
        (0x9a02_203f, Unknown),        // addpt sp, x1, x2
        (0x9ac2_103f, Unknown),        // irg sp, x1, x2
        (0x043f_57ff, Unknown),        // addvl sp, sp, #-1
        (0x047f_57ff, Unknown),        // addpl sp, sp, #-1
        (0x04bf_57ff, Moved(0)),       // rdvl xzr, #-1
        (0xd920_17e1, Unknown),        // stg x1, [sp], #16
        (0xd920_1be1, Moved(0)),       // stg x1, [sp, #16]
        (0x9ac2_083f, Moved(0)),       // udiv xzr, x1, x2
        (0xdac0_103f, Moved(0)),       // clz xzr, x1
        (0x1920_0be1, Moved(0)),       // rcwcas x0, x1, [sp]
        (0xf100_83ff, Moved(0)),       // cmp sp, #32
        (0x9100_03fd, Moved(0)),       // mov x29, sp
        (0xaa0a_03ff, Moved(0)),       // mov xzr, x10
        (0xd65f_03c0, Moved(0)),       // ret
    ] {
        assert_eq!(StackPointer::after(word), expected, "{word:#010x}");
    }
}

#[test]
fn what_an_instruction_may_write_is_no_less_than_it_does() {
    let x = Registers::x;
    for (word, text, expected) in [
        (0x9100_0420, "add x0, x1, #1", x(0)),
        (0x9100_43ff, "add sp, sp, #16", Registers::NONE),
        (0xf100_0420, "subs x0, x1, #1", x(0) | FLAGS),
        (0xba00_042f, "rmif x1, #0, #15", FLAGS),
        (0xf840_8420, "ldr x0, [x1], #8", x(0) | x(1)),
        (0xa9c1_0820, "ldp x0, x2, [x1, #16]!", x(0) | x(1) | x(2)),
        (0xf900_0020, "str x0, [x1]", Registers::NONE),
        (0xfd40_0020, "ldr d0, [x1]", Registers::NONE),
        (0x3cc1_0420, "ldr q0, [x1], #16", x(1)),
        (0x4cdf_7020, "ld1 {v0.16b}, [x1], #16", x(1)),
        (0x9e66_0001, "fmov x1, d0", x(1) | FLAGS),
        (0xc8a2_7c23, "cas x2, x3, [x1]", x(2)),
        (0xf83f_d022, "ld64b x2, [x1]", Registers::ALL),
        (0xd9a0_1420, "st2g x0, [x1], #16", Registers::ALL),
        (0x1920_1020, "ldclrp x0, x0, [x1]", Registers::ALL),
        (0xc9c0_7c20, "cast x0, x0, [x1]", Registers::ALL),
        (0x1d00_0420, "cpyp", Registers::ALL),
        (0xd53b_4220, "mrs x0, daif", x(0)),
        (0xd53b_2401, "mrs x1, rndr", x(1) | FLAGS),
        (0xd51b_4220, "msr daif, x0", FLAGS),
        (0xd518_1000, "msr sctlr_el1, x0", FLAGS),
        (0xd503_3f9f, "dsb sy", Registers::NONE),
        (0xd503_233f, "paciasp", x(30) | FLAGS),
        (0xd503_251f, "chkfeat x16", x(16) | FLAGS),
        (0x5800_0040, "ldr x0, .+8", x(0)),
        (0xffff_ffff, "unallocated", Registers::ALL),
    ] {
        assert_eq!(RegisterAccess::of(word).may_write(word), expected, "{text}");
        assert!((RegisterAccess::of(word).writes - expected).is_empty(), "{text}");
    }
}

/// The words are those of LLVM's assembler.
#[test]
fn what_vector_instructions_write_besides_vectors_is_known() {
    let x9 = Registers::x(9);
    // fmov x9, d0; fmov x9, v0.d[1]; umov w9, v0.s[0]; umov x9, v0.d[1]; smov x9, v0.b[0]; fcvtzs x9, d0;
    // fcvtas w9, s0; fcvtzu x9, d0, #1
    for word in [0x9e66_0009, 0x9eae_0009, 0x0e04_3c09, 0x4e18_3c09, 0x4e01_2c09, 0x9e78_0009, 0x1e24_0009, 0x9e59_fc09]
    {
        assert_eq!(written_by_vector(word), x9, "{word:#010x}");
    }
    // fjcvtzs w9, d0
    assert_eq!(written_by_vector(0x1e7e_0009), x9 | Registers::FLAGS);
    // fcmp d0, d1; fcmpe s0, #0.0; fccmp d0, d1, #0, eq
    for word in [0x1e61_2000, 0x1e20_2018, 0x1e61_0400] {
        assert_eq!(written_by_vector(word), Registers::FLAGS, "{word:#010x}");
    }
    // scvtf d9, x0; fmov d9, x0; fmov v9.d[1], x0; fadd v9.4s, v0.4s, v1.4s; movi v9.2d, #0; mov v9.s[0], w0;
    // dup v9.4s, w0; fcsel d9, d0, d1, eq; add x9, x9, #0
    for word in [
        0x9e62_0009,
        0x9e67_0009,
        0x9eaf_0009,
        0x4e21_d409,
        0x6f00_e409,
        0x4e04_1c09,
        0x4e04_0c09,
        0x1e61_0c09,
        0x9100_0129,
    ] {
        assert_eq!(written_by_vector(word), Registers::NONE, "{word:#010x}");
    }
}
