//! A simulated CPU that executes copies. It uses only yaxpeax-arm's decoding and the manual, and shares nothing with
//! the code under test.

use std::vec::Vec;

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand, SizeCode};

use crate::exception::frame::TrapFrame;
use crate::insn::{Environment, Guard, Key};

/// The syndrome of a read that faults.
const ABORT: u64 = 0x9600_0007;
/// The syndrome of an authentication that fails.
const FAILED: u64 = 0x7200_0000;

/// Everything that an instruction can use besides the registers.
#[derive(Debug)]
pub struct World {
    pub guard: Guard,
    /// The address of the memory; `bytes` is its content.
    pub address: u64,
    pub bytes: Vec<u8>,
}

/// An exception, with the address that it is about.
#[derive(Debug, PartialEq, Eq)]
pub enum Exception {
    Read(u64),
    Authentication,
}

impl World {
    fn read(&self, address: u64, size: usize) -> Option<u64> {
        let start = usize::try_from(address.wrapping_sub(self.address)).ok()?;
        let bytes = self.bytes.get(start..start.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// Authenticates a pointer whose lowest two bits are the signature, and clears them if it succeeds.
    fn authenticated(&self, key_b: bool, pointer: u64, modifier: u64) -> Result<u64, Exception> {
        let signature = modifier.wrapping_add(u64::from(key_b)) & 3;
        if pointer & 3 == signature { Ok(pointer & !3) } else { Err(Exception::Authentication) }
    }

    /// Executes `word` at `frame.pc`.
    pub fn step(&self, word: u32, frame: &mut TrapFrame) -> Result<(), Exception> {
        let bytes = word.to_le_bytes();
        let instruction = InstDecoder::default().decode(&mut U8Reader::new(&bytes)).expect("an instruction");
        let [first, second, third, _] = instruction.operands;
        let pc = frame.pc;
        let mut next = pc.wrapping_add(4);
        let mut btype = 0;
        match instruction.opcode {
            Opcode::MOVZ => write(frame, first, shifted(second)),
            Opcode::MOVN => write(frame, first, !shifted(second)),
            Opcode::MOVK => {
                let Operand::ImmShift(_, shift) = second else { panic!("{instruction}") };
                let rest = read(frame, first) & !(0xffff << shift);
                write(frame, first, rest | shifted(second));
            }
            Opcode::ADR => write(frame, first, displaced(pc, second)),
            Opcode::ADRP => write(frame, first, displaced(pc / 4096 * 4096, second)),
            Opcode::ADD => {
                let Operand::Immediate(immediate) = third else { panic!("{instruction}") };
                write(frame, first, read(frame, second).wrapping_add(u64::from(immediate)));
            }
            Opcode::LDR | Opcode::LDRSW => {
                let address = match second {
                    Operand::PCOffset(_) => displaced(pc, second),
                    Operand::RegPreIndex(base @ 0..=30, offset, false) => {
                        frame.x[usize::from(base)].wrapping_add_signed(i64::from(offset))
                    }
                    _ => panic!("{instruction}"),
                };
                let wide = matches!(first, Operand::Register(SizeCode::X, _)) && instruction.opcode == Opcode::LDR;
                let value = self.read(address, if wide { 8 } else { 4 }).ok_or(Exception::Read(address))?;
                let signed = instruction.opcode == Opcode::LDRSW && value >> 31 == 1;
                write(frame, first, if signed { value | 0xffff_ffff << 32 } else { value });
            }
            Opcode::B => next = displaced(pc, first),
            Opcode::Bcc(condition) | Opcode::BCcc(condition) => {
                if holds(condition, frame.pstate >> 28) {
                    next = displaced(pc, first);
                }
            }
            Opcode::CBZ | Opcode::CBNZ => {
                if (read(frame, first) == 0) == (instruction.opcode == Opcode::CBZ) {
                    next = displaced(pc, second);
                }
            }
            Opcode::TBZ | Opcode::TBNZ => {
                let Operand::Imm16(bit) = second else { panic!("{instruction}") };
                if (read(frame, first) >> bit & 1 == 0) == (instruction.opcode == Opcode::TBZ) {
                    next = displaced(pc, third);
                }
            }
            Opcode::BR => (next, btype) = (read(frame, first), self.jump(first)),
            Opcode::RET => next = read(frame, first),
            Opcode::BRAA | Opcode::BRAB | Opcode::BRAAZ | Opcode::BRABZ => {
                let modifier = if second == Operand::Nothing { 0 } else { read(frame, second) };
                let key_b = matches!(instruction.opcode, Opcode::BRAB | Opcode::BRABZ);
                next = self.authenticated(key_b, read(frame, first), modifier)?;
                btype = self.jump(first);
            }
            Opcode::RETAA | Opcode::RETAB => {
                next = self.authenticated(instruction.opcode == Opcode::RETAB, frame.x[30], frame.sp)?;
            }
            Opcode::MRS if second == Operand::SystemReg(0x5a11) => write(frame, first, frame.pstate & 0x3c0),
            Opcode::MSR => {
                let masks = match (first, second) {
                    // The decoder takes only four bits of the register number.
                    (Operand::SystemReg(0x5a11), Operand::Register(size, _)) => {
                        read(frame, Operand::Register(size, word as u16 % 32)) & 0x3c0
                    }
                    (Operand::PstateField(0o36), Operand::Imm16(mask)) => frame.pstate & 0x3c0 | u64::from(mask) << 6,
                    (Operand::PstateField(0o37), Operand::Imm16(mask)) => {
                        frame.pstate & 0x3c0 & !(u64::from(mask) << 6)
                    }
                    _ => panic!("{instruction}"),
                };
                frame.pstate = frame.pstate & !0x3c0 | masks;
            }
            _ => panic!("{instruction} has no place in a copy"),
        }
        frame.pstate = frame.pstate & !0xc00 | btype << 10;
        frame.pc = next;
        Ok(())
    }

    /// Returns PSTATE.BTYPE after BR by a register (C6.2, BR).
    fn jump(&self, register: Operand) -> u64 {
        match (self.guard, register) {
            (Guard::Absent, _) => 0,
            (Guard::Guarded, Operand::Register(_, number)) if number != 16 && number != 17 => 3,
            _ => 1,
        }
    }
}

impl Environment for World {
    fn guard(&self, _: u64) -> Guard {
        self.guard
    }

    fn has_consistent_branches(&self) -> bool {
        true
    }

    fn read_u32(&self, address: u64) -> Result<u32, u64> {
        self.read(address, 4).map(|value| value as u32).ok_or(ABORT)
    }

    fn read_u64(&self, address: u64) -> Result<u64, u64> {
        self.read(address, 8).ok_or(ABORT)
    }

    fn authenticate(&self, key: Key, pointer: u64, modifier: u64) -> Result<u64, u64> {
        self.authenticated(key == Key::B, pointer, modifier).map_err(|_| FAILED)
    }
}

fn read(frame: &TrapFrame, operand: Operand) -> u64 {
    match operand {
        Operand::Register(_, 31) => 0,
        Operand::RegisterOrSP(_, 31) => frame.sp,
        Operand::Register(SizeCode::W, number) => frame.x[usize::from(number)] % (1 << 32),
        Operand::Register(_, number) | Operand::RegisterOrSP(_, number) => frame.x[usize::from(number)],
        _ => panic!("{operand:?} is no register"),
    }
}

fn write(frame: &mut TrapFrame, operand: Operand, value: u64) {
    match operand {
        Operand::Register(_, 31) => {}
        Operand::RegisterOrSP(_, 31) => frame.sp = value,
        Operand::Register(_, number) | Operand::RegisterOrSP(_, number) => frame.x[usize::from(number)] = value,
        _ => panic!("{operand:?} is no register"),
    }
}

fn shifted(operand: Operand) -> u64 {
    match operand {
        Operand::ImmShift(value, shift) => u64::from(value) << shift,
        _ => panic!("{operand:?} is no immediate"),
    }
}

fn displaced(base: u64, operand: Operand) -> u64 {
    match operand {
        Operand::PCOffset(offset) => base.wrapping_add_signed(offset),
        _ => panic!("{operand:?} is no offset"),
    }
}

/// Returns whether a condition holds, with N, Z, C and V in bits 3 to 0 (C1.2.4).
fn holds(condition: u8, flags: u64) -> bool {
    let (n, z, c, v) = (flags >> 3 & 1 == 1, flags >> 2 & 1 == 1, flags >> 1 & 1 == 1, flags & 1 == 1);
    match condition {
        0 => z,
        1 => !z,
        2 => c,
        3 => !c,
        4 => n,
        5 => !n,
        6 => v,
        7 => !v,
        8 => c && !z,
        9 => !c || z,
        10 => n == v,
        11 => n != v,
        12 => !z && n == v,
        13 => z || n != v,
        _ => true,
    }
}
