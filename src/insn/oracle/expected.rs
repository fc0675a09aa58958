//! The verdict that follows from yaxpeax-arm's decoding of a word, derived from its operands alone.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand, SizeCode};

use crate::insn::{Indirect, Key, Literal, Modifier, Op, Reason};

/// The meaning of a word, as far as its verdict depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// To be simulated as this instruction.
    Simulate(Op),
    /// To be refused for this reason.
    Reject(Reason),
    /// Accesses a system register, or executes a system operation: the lists of harmless ones decide.
    System,
    /// An instruction of another kind.
    Ordinary,
    /// Not an instruction.
    Invalid,
}

/// The decoder of yaxpeax-arm, with an instruction to decode into.
pub(super) struct Decoder {
    decoder: InstDecoder,
    instruction: Instruction,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self { decoder: InstDecoder::default(), instruction: Instruction::default() }
    }

    pub(super) fn expect(&mut self, word: u32) -> Expected {
        let bytes = word.to_le_bytes();
        let mut reader = U8Reader::new(&bytes);
        match self.decoder.decode_into(&mut self.instruction, &mut reader) {
            Ok(()) => expect(&self.instruction),
            Err(_) => Expected::Invalid,
        }
    }
}

fn expect(instruction: &Instruction) -> Expected {
    use Expected::{Ordinary, Reject, Simulate};
    use Opcode as O;
    let [first, second, third, _] = instruction.operands;
    match instruction.opcode {
        O::Invalid => Expected::Invalid,
        O::ADR => Simulate(Op::Address { rd: register(first), offset: offset(second) }),
        O::ADRP => Simulate(Op::AddressOfPage { rd: register(first), offset: distance(second) }),
        O::B => Simulate(Op::Branch { offset: offset(first) }),
        O::BL => Simulate(Op::BranchLink { offset: offset(first) }),
        O::Bcc(condition) | O::BCcc(condition) => Simulate(Op::BranchConditional {
            condition,
            consistent: matches!(instruction.opcode, O::BCcc(_)),
            offset: offset(first),
        }),
        O::CBZ | O::CBNZ => Simulate(Op::CompareBranch {
            rt: register(first),
            wide: matches!(first, Operand::Register(SizeCode::X, _)),
            nonzero: instruction.opcode == O::CBNZ,
            offset: offset(second),
        }),
        O::TBZ | O::TBNZ => Simulate(Op::TestBranch {
            rt: register(first),
            bit: immediate(second),
            nonzero: instruction.opcode == O::TBNZ,
            offset: offset(third),
        }),
        O::LDR | O::LDRSW | O::PRFM if matches!(second, Operand::PCOffset(_)) => {
            literal(instruction.opcode, first, offset(second))
        }
        O::BR => Simulate(Op::BranchRegister { kind: Indirect::Jump, rn: register(first) }),
        O::BLR => Simulate(Op::BranchRegister { kind: Indirect::Call, rn: register(first) }),
        O::RET => Simulate(Op::BranchRegister { kind: Indirect::Return, rn: register(first) }),
        O::MRS | O::MSR => system_register(first, second),
        O::SYS(_) | O::SYSL(_) => Expected::System,
        // NOP, YIELD, WFE, DGH.
        O::HINT if matches!((first, second), (Operand::ControlReg(0), Operand::Immediate(0 | 1 | 2 | 6))) => {
            Simulate(Op::Nop)
        }
        O::BRAA | O::BRAAZ => authenticated(Indirect::Jump, Key::A, first, second),
        O::BRAB | O::BRABZ => authenticated(Indirect::Jump, Key::B, first, second),
        O::BLRAA | O::BLRAAZ => authenticated(Indirect::Call, Key::A, first, second),
        O::BLRAB | O::BLRABZ => authenticated(Indirect::Call, Key::B, first, second),
        O::RETAA => authenticated(Indirect::Return, Key::A, Operand::Register(SizeCode::X, 30), STACK_POINTER),
        O::RETAB => authenticated(Indirect::Return, Key::B, Operand::Register(SizeCode::X, 30), STACK_POINTER),
        O::RETAASPPC
        | O::RETABSPPC
        | O::RETAASPPCR
        | O::RETABSPPCR
        | O::AUTIASPPC
        | O::AUTIBSPPC
        | O::PACIASPPC
        | O::PACIBSPPC
        | O::PACNBIASPPC
        | O::PACNBIBSPPC
        | O::PACM => Reject(Reason::AuthenticatedAddress),
        O::ERET | O::ERETAA | O::ERETAB | O::DRPS => Reject(Reason::ExceptionReturn),
        O::SVC | O::HVC | O::SMC | O::BRK | O::HLT | O::DCPS1 | O::DCPS2 | O::DCPS3 => {
            Reject(Reason::ExceptionGenerating)
        }
        O::UDF => Reject(Reason::PermanentlyUndefined),
        O::LDXRB | O::LDXRH | O::LDXR | O::LDXP | O::LDAXRB | O::LDAXRH | O::LDAXR | O::LDAXP => {
            Reject(Reason::LoadExclusive)
        }
        O::STXRB | O::STXRH | O::STXR | O::STXP | O::STLXRB | O::STLXRH | O::STLXR | O::STLXP => {
            Reject(Reason::StoreExclusive)
        }
        _ => {
            let relative = instruction.operands.iter().any(|operand| matches!(operand, Operand::PCOffset(_)));
            assert!(!relative, "{instruction} is PC-relative, and has no expectation");
            Ordinary
        }
    }
}

fn literal(opcode: Opcode, destination: Operand, offset: i32) -> Expected {
    let rt = register(destination);
    let kind = match (opcode, destination) {
        (Opcode::PRFM, _) => return Expected::Simulate(Op::Nop),
        (Opcode::LDRSW, _) => Literal::SignedWord,
        (_, Operand::Register(SizeCode::W, _)) => Literal::Word,
        (_, Operand::Register(SizeCode::X, _)) => Literal::Doubleword,
        _ => return Expected::Reject(Reason::SimdLiteral),
    };
    Expected::Simulate(Op::LoadLiteral { rt, kind, offset })
}

/// Returns what an MRS or MSR accesses. MRS has the general register first, MSR the system register, and MSR
/// (immediate) a field of PSTATE.
fn system_register(first: Operand, second: Operand) -> Expected {
    let (register, rt, write) = match (first, second) {
        (Operand::PstateField(0o36), mask) => {
            return Expected::Simulate(Op::SetDaif { mask: immediate(mask) });
        }
        (Operand::PstateField(0o37), mask) => {
            return Expected::Simulate(Op::ClearDaif { mask: immediate(mask) });
        }
        (Operand::PstateField(0o05), _) => return Expected::Reject(Reason::StackSelection),
        // ALLINT and PM.
        (Operand::PstateField(0o10), _) => return Expected::Reject(Reason::ExceptionMasks),
        (Operand::PstateField(_), _) => return Expected::Ordinary,
        (Operand::SystemReg(register), rt) => (register, self::register(rt), true),
        (rt, Operand::SystemReg(register)) => (register, self::register(rt), false),
        operands => panic!("{operands:?} are no operands of MRS or MSR"),
    };
    // o0:op1:CRn:CRm:op2, each register as its digits in S<op0>_<op1>_C<n>_C<m>_<op2>.
    let digits = (2 + (register >> 14 & 1), register >> 11 & 7, register >> 7 & 15, register >> 3 & 15, register & 7);
    let reason = match (digits, write) {
        ((3, 3, 4, 2, 1), true) => return Expected::Simulate(Op::WriteDaif { rt }),
        ((3, 3, 4, 2, 1), false) => return Expected::Simulate(Op::ReadDaif { rt }),
        // SPSR_EL1, ELR_EL1, AFSR0_EL1, AFSR1_EL1, ESR_EL1, FAR_EL1, PFAR_EL1.
        ((3, 0, 4, 0, 0 | 1) | (3, 0, 5, 1, 0 | 1) | (3, 0, 5, 2, 0) | (3, 0, 6, 0, 0 | 5), _) => {
            Reason::ExceptionState
        }
        // SPSel.
        ((3, 0, 4, 2, 0), true) => Reason::StackSelection,
        // ALLINT, PM.
        ((3, 0, 4, 3, 0 | 1), true) => Reason::ExceptionMasks,
        // SCTLR_EL1, SCTLR2_EL1, and by their other names; TTBR0_EL1, TTBR1_EL1, TCR_EL1, TCR2_EL1, and the latter by
        // their other names; PRBAR_EL1, PRLAR_EL1; MAIR, PIR, POR and AMAIR.
        (
            (3, 0, 1, 0, 0 | 3)
            | (3, 0, 1, 4, 6 | 7)
            | (3, 0, 2, 0, 0..=3)
            | (3, 0, 2, 7, 6 | 7)
            | (3, 0, 6, 8, 0 | 1)
            | (3, 0, 10, 2, 0..=4)
            | (3, 0, 10, 3, 0 | 1),
            true,
        ) => Reason::Translation,
        // VBAR_EL1, TPIDR_EL1.
        ((3, 0, 12, 0, 0) | (3, 0, 13, 0, 4), true) => Reason::HandlerState,
        // SVCR.
        ((3, 3, 4, 2, 2), _) => Reason::Scalable,
        ((3, _, 11 | 15, _, _), _) => Reason::ImplementationDefined,
        ((_, 4..=7, _, _, _), _) => Reason::HigherLevel,
        _ => return Expected::System,
    };
    Expected::Reject(reason)
}

/// The modifier of RETAA and RETAB, which have no operand for it.
const STACK_POINTER: Operand = Operand::RegisterOrSP(SizeCode::X, 31);

fn authenticated(kind: Indirect, key: Key, target: Operand, modifier: Operand) -> Expected {
    let modifier = match modifier {
        Operand::Nothing => Modifier::Zero,
        Operand::RegisterOrSP(_, 31) => Modifier::StackPointer,
        Operand::RegisterOrSP(_, number) => Modifier::Register(u8::try_from(number).expect("a register number")),
        _ => panic!("{modifier:?} is no modifier"),
    };
    Expected::Simulate(Op::BranchAuthenticated { kind, rn: register(target), key, modifier })
}

fn register(operand: Operand) -> u8 {
    match operand {
        Operand::Register(_, number) | Operand::SIMDRegister(_, number) | Operand::PrefetchOp(number) => {
            u8::try_from(number).expect("a register number")
        }
        _ => panic!("{operand:?} is no register"),
    }
}

fn immediate(operand: Operand) -> u8 {
    match operand {
        Operand::Imm16(value) => u8::try_from(value).expect("a small immediate"),
        _ => panic!("{operand:?} is no immediate"),
    }
}

fn distance(operand: Operand) -> i64 {
    match operand {
        Operand::PCOffset(offset) => offset,
        _ => panic!("{operand:?} is no offset"),
    }
}

fn offset(operand: Operand) -> i32 {
    i32::try_from(distance(operand)).expect("a 32-bit offset")
}
