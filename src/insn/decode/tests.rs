//! Compares the operands with those that yaxpeax-arm finds, and with what the encoders were given.

use std::vec::Vec;

use kprobes_random::Random;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{self, InstDecoder, Opcode, Operand, ShiftStyle};

use super::*;
use crate::insn::encode::{self, compute};
use crate::insn::op::Literal;

/// The number of the stack pointer here, where 31 is the zero register.
const STACK: u8 = 32;

/// Returns the opcodes of an instruction in the decoder's names, its registers in the order of the text, and its
/// numbers, if all of them are decoded.
fn expected(instruction: Instruction) -> (Vec<Opcode>, Vec<u8>, Option<Vec<i64>>) {
    use Instruction as I;
    let loads = |size: LoadSize| match (size.bytes, size.signed) {
        (1, false) => Opcode::LDRB,
        (2, false) => Opcode::LDRH,
        (_, false) => Opcode::LDR,
        (1, true) => Opcode::LDRSB,
        (2, true) => Opcode::LDRSH,
        (_, true) => Opcode::LDRSW,
    };
    let sp = |number: u8| if number == 31 { STACK } else { number };
    let (opcodes, registers, numbers): (&[Opcode], &[u8], Option<&[i64]>) = match instruction {
        I::AddImmediate { rd, rn, addend } => (&[Opcode::ADD, Opcode::SUB], &[sp(rd), sp(rn)], Some(&[addend.abs()])),
        I::CompareImmediate { rn } => (&[Opcode::SUBS], &[31, sp(rn)], None),
        I::Align { rd, rn, alignment } => {
            (&[Opcode::AND], &[sp(rd), rn], Some(&[(alignment.wrapping_neg()).cast_signed()]))
        }
        // MOVZ leaves at least three halves 0.
        I::MoveWide { rd, value } if [0, 16, 32, 48].iter().any(|left| value & !(0xffff << left) == 0) => {
            (&[Opcode::MOVZ], &[rd], Some(&[value.cast_signed()]))
        }
        I::MoveWide { rd, value } => (&[Opcode::MOVN], &[rd], Some(&[(!value).cast_signed()])),
        I::MoveKeep { rd, value, .. } => (&[Opcode::MOVK], &[rd], Some(&[value.cast_signed()])),
        I::ShiftRight { rd, rn, signed, right } => {
            (if signed { &[Opcode::SBFM] } else { &[Opcode::UBFM] }, &[rd, rn], Some(&[right.into(), 63]))
        }
        I::Extract { rd, rn } => (&[Opcode::UBFM, Opcode::SBFM], &[rd, rn], None),
        I::Binary { how, rd, rn, rm, shift } => {
            let opcode = match how {
                Binary::Add => Opcode::ADD,
                Binary::Subtract => Opcode::SUB,
                Binary::SubtractFlags => Opcode::SUBS,
                Binary::And => Opcode::AND,
                Binary::Or => Opcode::ORR,
                Binary::Xor => Opcode::EOR,
                Binary::MultiplyHigh => Opcode::UMULH,
                Binary::Divide => Opcode::UDIV,
                Binary::DivideSigned => Opcode::SDIV,
                Binary::Left => Opcode::LSLV,
                Binary::Right => Opcode::LSRV,
                Binary::RightSigned => Opcode::ASRV,
                Binary::Multiply | Binary::SubtractCarry => panic!("{how:?} is not decoded"),
            };
            let left = if let Shift::Left(left) = shift { i64::from(left) } else { -1 };
            // The others have no shift.
            let is_shifted = (opcode == Opcode::AND || opcode == Opcode::ORR || opcode == Opcode::EOR)
                || (opcode == Opcode::ADD || opcode == Opcode::SUB || opcode == Opcode::SUBS);
            return (Vec::from([opcode]), Vec::from([rd, rn, rm]), is_shifted.then(|| Vec::from([left])));
        }
        I::MultiplyAdd { rd, rn, rm, ra, subtracts: false } => (&[Opcode::MADD], &[rd, rn, rm, ra], None),
        I::MultiplyAdd { rd, rn, rm, ra, subtracts: true } => (&[Opcode::MSUB], &[rd, rn, rm, ra], None),
        I::LeadingZeros { rd, rn } => (&[Opcode::CLZ], &[rd, rn], None),
        I::Select { rd, rn, rm, increments: false, .. } => (&[Opcode::CSEL], &[rd, rn, rm], None),
        I::Select { rd, rn, rm, increments: true, .. } => (&[Opcode::CSINC], &[rd, rn, rm], None),
        I::CompareIf { rn, rm } => (&[Opcode::CCMP], &[rn, rm], None),
        I::Load { rt, rn, offset, size } => (&[loads(size)], &[rt, sp(rn)], Some(&[offset.cast_signed()])),
        I::LoadIndexed { rt, rn, size } => (&[loads(size)], &[rt, sp(rn)], None),
        I::Store { rt, rn, offset } => (&[Opcode::STR], &[rt, sp(rn)], Some(&[offset.cast_signed()])),
        I::LoadPair { rt, rt2, rn, offset } => (&[Opcode::LDP], &[rt, rt2, sp(rn)], Some(&[offset])),
        I::StorePair { rt, rt2, rn, offset } => (&[Opcode::STP], &[rt, rt2, sp(rn)], Some(&[offset])),
        I::LoadExclusive { rt, rn } => (&[Opcode::LDAXR], &[rt, sp(rn)], None),
        I::StoreExclusive { rs, rt, rn } => (&[Opcode::STXR], &[rs, rt, sp(rn)], None),
        I::StoreRelease { rt, rn } => (&[Opcode::STLR], &[rt, sp(rn)], None),
    };
    (opcodes.to_vec(), registers.to_vec(), numbers.map(<[i64]>::to_vec))
}

/// Returns the same of an instruction of the decoder.
fn found(instruction: &a64::Instruction) -> (Vec<u8>, Vec<i64>) {
    let sp = |number: u16| if number == 31 { STACK } else { number as u8 };
    let (mut registers, mut numbers) = (Vec::new(), Vec::new());
    for operand in instruction.operands {
        match operand {
            Operand::Register(_, number) => registers.push(number as u8),
            Operand::RegisterOrSP(_, number) => registers.push(sp(number)),
            Operand::RegShift(style, amount, _, number) => {
                registers.push(number as u8);
                numbers.push(if style == ShiftStyle::LSL { i64::from(amount) } else { -1 });
            }
            Operand::RegPreIndex(number, offset, false) => {
                registers.push(sp(number));
                numbers.push(offset.into());
            }
            Operand::RegRegOffset(base, ..) => registers.push(sp(base)),
            Operand::Immediate(number) => numbers.push(number.into()),
            Operand::Imm64(number) => numbers.push(number.cast_signed()),
            Operand::ImmShift(number, left) => numbers.push((u64::from(number) << left).cast_signed()),
            _ => {}
        }
    }
    (registers, numbers)
}

/// Checks what is decoded of `word`, if anything is. Returns whether it is.
fn compare(word: u32, decoder: InstDecoder) -> bool {
    let Some(instruction) = Instruction::decode(word) else { return false };
    let other = decoder.decode(&mut U8Reader::new(&word.to_le_bytes())).expect("an allocated word");
    let (opcodes, registers, numbers) = expected(instruction);
    let (other_registers, other_numbers) = found(&other);
    assert!(opcodes.contains(&other.opcode), "{word:#010x} {other}: {instruction:?}");
    if let Instruction::MoveKeep { mask, .. } = instruction {
        assert_eq!(mask, 0xffff << ((word >> 21 & 3) * 16), "{word:#010x} {other}");
    }
    assert_eq!(registers, other_registers, "{word:#010x} {other}: {instruction:?}");
    let is_same = numbers.is_none_or(|numbers| numbers == other_numbers);
    assert!(is_same, "{word:#010x} {other}: {instruction:?}, not {other_numbers:?}");
    true
}

#[test]
fn the_operands_are_those_that_an_independent_decoder_finds() {
    let mut random = Random::new(0x0dec_0de5);
    let words = if cfg!(miri) { 5_000 } else { 4_000_000 };
    let decoded = (0..words).filter(|_| compare(random.next() as u32, InstDecoder::default())).count();
    assert!(decoded > words / 50, "{decoded} of {words}");
}

#[test]
fn what_is_encoded_is_decoded() {
    use Instruction as I;
    let mut random = Random::new(0x0e5c_0de5);
    for _ in 0..if cfg!(miri) { 10 } else { 2_000 } {
        let bits = random.next();
        let [a, b, c, d] = [0, 5, 10, 15].map(|low| (bits >> low & 31) as u8);
        let (immediate, left) = ((bits >> 20 & 0xfff) as u16, (bits >> 32 & 63) as u8);
        let (pair, is_signed) = ((bits >> 38 & 0x7f) as i16 * 8 - 512, bits >> 45 & 1 == 1);
        let binary = |how, shift| I::Binary { how, rd: a, rn: b, rm: c, shift };
        let loaded = |bytes, signed| LoadSize { bytes, signed };
        let mut moves = Vec::new();
        encode::constant(a, random.next(), |word| moves.push(word));
        for word in moves {
            let is_move =
                matches!(Instruction::decode(word), Some(I::MoveWide { rd, .. } | I::MoveKeep { rd, .. }) if rd == a);
            assert!(is_move && compare(word, InstDecoder::default()), "{word:#010x}");
        }
        let bytes = 1 << (left & 3);
        let offset = immediate * u16::from(bytes);
        let (condition, far) = (compute::Condition::Hi, immediate & 0x7ff);
        let addend = i64::from(immediate);
        for (word, expected) in [
            (encode::add(a, b, immediate), I::AddImmediate { rd: a, rn: b, addend }),
            (encode::add(a, b, immediate) | 1 << 22, I::AddImmediate { rd: a, rn: b, addend: addend << 12 }),
            (encode::subtract(a, b, immediate), I::AddImmediate { rd: a, rn: b, addend: -addend }),
            (compute::compare(b, immediate), I::CompareImmediate { rn: b }),
            (0x927c_ec00 | u32::from(b) << 5 | u32::from(a), I::Align { rd: a, rn: b, alignment: 16 }),
            (compute::shift_right(a, b, left), I::ShiftRight { rd: a, rn: b, signed: false, right: left }),
            (compute::extract(true, a, b, left, 64 - left), I::ShiftRight { rd: a, rn: b, signed: true, right: left }),
            (compute::extend(is_signed, a, b, 1 + left % 63), I::Extract { rd: a, rn: b }),
            (compute::add_shifted(a, b, c, left), binary(Binary::Add, Shift::Left(left))),
            (compute::or_shifted(a, b, c, left), binary(Binary::Or, Shift::Left(left))),
            (compute::xor_shifted(a, b, c, left), binary(Binary::Xor, Shift::Other)),
            (compute::multiply_add(a, b, c, d), I::MultiplyAdd { rd: a, rn: b, rm: c, ra: d, subtracts: false }),
            (compute::multiply_subtract(a, b, c, d), I::MultiplyAdd { rd: a, rn: b, rm: c, ra: d, subtracts: true }),
            (compute::leading_zeros(a, b), I::LeadingZeros { rd: a, rn: b }),
            (
                compute::select(condition, a, b, c),
                I::Select { rd: a, rn: b, rm: c, condition: condition as u8, increments: false },
            ),
            (
                compute::set_if(condition, a),
                I::Select { rd: a, rn: 31, rm: 31, condition: condition.inverse() as u8, increments: true },
            ),
            (compute::compare_if(condition, b, c), I::CompareIf { rn: b, rm: c }),
            (
                encode::load_bytes(bytes, a, b, offset),
                I::Load { rt: a, rn: b, offset: offset.into(), size: loaded(bytes, false) },
            ),
            (
                encode::load(Literal::SignedWord, a, b, 4 * far),
                I::Load { rt: a, rn: b, offset: 4 * u64::from(far), size: loaded(4, true) },
            ),
            (encode::load_bytes_at(bytes, a, b, c), I::LoadIndexed { rt: a, rn: b, size: loaded(bytes, false) }),
            (encode::store(a, b, 8 * far), I::Store { rt: a, rn: b, offset: 8 * u64::from(far) }),
            (encode::load_pair(a, d, b, pair), I::LoadPair { rt: a, rt2: d, rn: b, offset: pair.into() }),
            (encode::store_pair(a, d, b, pair), I::StorePair { rt: a, rt2: d, rn: b, offset: pair.into() }),
            (compute::load_exclusive(a, b), I::LoadExclusive { rt: a, rn: b }),
            (compute::store_exclusive(c, a, b), I::StoreExclusive { rs: c, rt: a, rn: b }),
            (compute::store_release(a, b), I::StoreRelease { rt: a, rn: b }),
        ] {
            assert_eq!(Instruction::decode(word), Some(expected), "{word:#010x}");
            assert!(compare(word, InstDecoder::default()));
        }
        for how in [
            Binary::Subtract,
            Binary::SubtractFlags,
            Binary::And,
            Binary::MultiplyHigh,
            Binary::Divide,
            Binary::DivideSigned,
            Binary::Left,
            Binary::Right,
            Binary::RightSigned,
        ] {
            let word = compute::compute(how, a, b, c);
            assert_eq!(Instruction::decode(word), Some(binary(how, Shift::Left(0))), "{word:#010x}");
            assert!(compare(word, InstDecoder::default()));
        }
    }
}

#[test]
fn what_is_like_these_is_unknown() {
    for (word, text) in [
        (0x1100_0420, "add w0, w1, #1"),
        (0xb100_0420, "adds x0, x1, #1"),
        (0xf100_0420, "subs x0, x1, #1"),
        (0xab02_0020, "adds x0, x1, x2"),
        (0x8b22_6020, "add x0, x1, x2"),
        (0x8a22_0020, "bic x0, x1, x2"),
        (0xea02_0020, "ands x0, x1, x2"),
        (0x9240_1c20, "and x0, x1, #0xff"),
        (0xb340_1c20, "bfxil x0, x1, #0, #8"),
        (0xda02_0020, "sbc x0, x1, x2"),
        (0xda82_0020, "csinv x0, x1, x2, eq"),
        (0xfa42_0021, "ccmp x1, x2, #1, eq"),
        (0xfa42_0820, "ccmp x1, #2, #0, eq"),
        (0x9b22_0c20, "smaddl x0, w1, w2, x3"),
        (0x9ac2_4c20, "crc32x w0, w1, x2"),
        (0xf980_0020, "prfm pldl1keep, [x1]"),
        (0xb900_0020, "str w0, [x1]"),
        (0xf822_6820, "str x0, [x1, x2]"),
        (0xfd40_0020, "ldr d0, [x1]"),
        (0xf840_8420, "ldr x0, [x1], #8"),
        (0x2940_0820, "ldp w0, w2, [x1]"),
        (0xa9c1_0820, "ldp x0, x2, [x1, #16]!"),
        (0xc85f_7c20, "ldxr x0, [x1]"),
        (0xc800_fc41, "stlxr w0, x1, [x2]"),
        (0xc8df_fc20, "ldar x0, [x1]"),
        (0xd503_201f, "nop"),
        (0x1400_0001, "b .+4"),
        (0x5800_0040, "ldr x0, .+8"),
        (0, "udf #0"),
    ] {
        assert_eq!(Instruction::decode(word), None, "{text}");
    }
}
