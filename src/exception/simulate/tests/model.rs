//! Executes random instructions on random frames, and compares the result with that of a model. The model is written
//! from the manual's pseudocode and shares nothing with the code under test: it decodes the word itself, in wide signed
//! arithmetic, on thirty-two registers of which the last is always zero.

use std::println;

use super::{ABORT, Guard, Memory, TrapFrame, try_run};
use crate::insn::Fault;
use kprobes_random::Random;

/// The number of instructions.
const ROUNDS: u32 = if cfg!(miri) { 200 } else { 500_000 };

struct Model {
    r: [u64; 32],
    pc: u64,
    pstate: u64,
}

/// The fixed bits of each modelled class; the other bits are random.
const CLASSES: [(u32, u32); 16] = [
    (0x1f00_0000, 0x1000_0000), // ADR, ADRP
    (0x7c00_0000, 0x1400_0000), // B, BL
    (0xff00_0000, 0x5400_0000), // B.cond, BC.cond
    (0x7e00_0000, 0x3400_0000), // CBZ, CBNZ
    (0x7e00_0000, 0x3600_0000), // TBZ, TBNZ
    (0xffff_fc1f, 0xd61f_0000), // BR
    (0xffff_fc1f, 0xd63f_0000), // BLR
    (0xffff_fc1f, 0xd65f_0000), // RET
    (0xff00_0000, 0x1800_0000), // LDR W
    (0xff00_0000, 0x5800_0000), // LDR X
    (0xff00_0000, 0x9800_0000), // LDRSW
    (0xff00_0000, 0xd800_0000), // PRFM
    (0xffff_ffe0, 0xd53b_4220), // MRS DAIF
    (0xffff_ffe0, 0xd51b_4220), // MSR DAIF
    (0xffff_f0ff, 0xd503_40df), // MSR DAIFSet
    (0xffff_f0ff, 0xd503_40ff), // MSR DAIFClr
];

/// Returns the `width` bits from bit `low` up, as a signed number.
fn sbits(word: u32, low: u32, width: u32) -> i128 {
    let value = i128::from(u64::from(word) >> low) % (1 << width);
    if value >= 1 << (width - 1) { value - (1 << width) } else { value }
}

impl Model {
    fn plus(&self, offset: i128) -> u64 {
        (i128::from(self.pc) + offset).rem_euclid(1 << 64) as u64
    }

    /// Executes `word`. `literal` is the memory at the address of a literal load; `None` if it cannot be read.
    fn execute(&mut self, word: u32, literal: Option<u64>) -> Result<(), ()> {
        let t = (word % 32) as usize;
        let n = (word / 32 % 32) as usize;
        let mut next = self.plus(4);
        let flag = |number: u32| (self.pstate >> number) % 2 == 1;
        match word >> 24 {
            top if top % 32 == 16 => {
                let immediate = sbits(word, 5, 19) * 4 + i128::from(word >> 29 & 3);
                self.r[t] = if word >> 31 == 0 {
                    self.plus(immediate)
                } else {
                    let page = i128::from(self.pc / 4096) + immediate;
                    (page * 4096).rem_euclid(1 << 64) as u64
                };
            }
            0x14..=0x17 => next = self.plus(sbits(word, 0, 26) * 4),
            0x94..=0x97 => {
                self.r[30] = next;
                next = self.plus(sbits(word, 0, 26) * 4);
            }
            0x54 => {
                let (n, z, c, v) = (flag(31), flag(30), flag(29), flag(28));
                let holds = match word % 16 {
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
                };
                if holds {
                    next = self.plus(sbits(word, 5, 19) * 4);
                }
            }
            top @ (0x34 | 0x35 | 0xb4 | 0xb5) => {
                let value = if top < 0x80 { self.r[t] % (1 << 32) } else { self.r[t] };
                if (value != 0) == (top % 2 == 1) {
                    next = self.plus(sbits(word, 5, 19) * 4);
                }
            }
            top @ (0x36 | 0x37 | 0xb6 | 0xb7) => {
                let bit = (word >> 19) % 32 + word / (1 << 31) * 32;
                if self.r[t] / 2_u64.pow(bit) % 2 == u64::from(top % 2) {
                    next = self.plus(sbits(word, 5, 14) * 4);
                }
            }
            0xd6 => {
                next = self.r[n];
                if word >> 21 & 3 == 1 {
                    self.r[30] = self.plus(4);
                }
            }
            0x18 => self.r[t] = literal.ok_or(())? % (1 << 32),
            0x58 => self.r[t] = literal.ok_or(())?,
            0x98 => self.r[t] = literal.ok_or(())? as u32 as i32 as i64 as u64,
            0xd8 => {}
            _ => {
                let immediate = u64::from(word >> 8 & 15) << 6;
                match word & 0xffff_f0e0 {
                    0xd53b_4020 => self.r[t] = self.pstate & 0x3c0,
                    0xd51b_4020 => self.pstate = self.pstate & !0x3c0 | self.r[t] & 0x3c0,
                    0xd503_40c0 => self.pstate |= immediate,
                    _ => self.pstate &= !immediate,
                }
            }
        }
        self.r[31] = 0;
        self.pc = next;
        Ok(())
    }
}

/// Returns the address and size of a literal load `word` at `pc`.
fn literal_of(word: u32, pc: u64) -> Option<(u64, usize)> {
    let size = match word >> 24 {
        0x18 | 0x98 => 4,
        0x58 => 8,
        _ => return None,
    };
    let address = (i128::from(pc) + sbits(word, 5, 19) * 4).rem_euclid(1 << 64);
    Some((address as u64, size))
}

#[test]
fn random_instructions_do_what_the_model_does() {
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    for round in 0..ROUNDS {
        let (mask, value) = CLASSES[round as usize % CLASSES.len()];
        let word = random.next() as u32 & !mask | value;
        let mut frame = TrapFrame {
            sp: random.next(),
            pc: random.value() & !3,
            pstate: random.next() & 0xf000_03cf,
            ..TrapFrame::default()
        };
        frame.x.fill_with(|| random.value());
        let mut model = Model { r: [0; 32], pc: frame.pc, pstate: frame.pstate };
        model.r[..31].copy_from_slice(&frame.x);

        let content = random.value();
        let memory = match literal_of(word, frame.pc) {
            Some((address, size)) if !random.next().is_multiple_of(8) => {
                Memory::with(address, &content.to_le_bytes()[..size])
            }
            _ => Memory::guarded(Guard::Absent),
        };
        let literal = (!memory.bytes.is_empty()).then_some(content);

        let before = frame;
        let result = try_run(word, &mut frame, &memory);
        let expected = model.execute(word, literal);
        let context = std::format!("round {round} of seed {seed:#x}: {word:#010x} on {before:x?}");
        if let Some((address, _)) = literal_of(word, before.pc).filter(|_| expected.is_err()) {
            assert_eq!(result, Err(Fault::Read { address, syndrome: ABORT }), "{context}");
            assert_eq!(frame, before, "{context}");
            continue;
        }
        assert_eq!(result, Ok(()), "{context}");
        assert_eq!(frame.x, model.r[..31], "{context}");
        assert_eq!((frame.pc, frame.pstate, frame.sp), (model.pc, model.pstate, before.sp), "{context}");
    }
}
