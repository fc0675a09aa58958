//! Tracks the values of registers at an instruction: how far the stack pointer is from its value at the entry, and the
//! addresses by which jump tables are read. Everything else is unknown.
//!
//! An instruction that is not known here makes all registers unknown that its encoding could write, which are more than
//! it does write. Section numbers are those of the Arm Architecture Reference Manual, DDI 0487 issue I.a.

use aarch64_kprobes::insn::{Op, Verdict, classify};

/// The known value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Unknown,
    /// The stack pointer at the entry, plus this many bytes. If it was aligned downwards, the smallest value that it
    /// can have.
    Stack(i64),
    /// This number, mostly an address.
    Constant(u64),
    /// An entry of this jump table.
    Entry(JumpTable),
    /// The target of a jump table's entry: a base plus the entry.
    Target {
        /// The address that the shifted entry is added to.
        base: u64,
        /// How many bits the entry is shifted.
        shift: u32,
        /// The table.
        table: JumpTable,
    },
}

/// A jump table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JumpTable {
    /// Its virtual address.
    pub address: u64,
    /// The size of an entry in bytes.
    pub size: usize,
    /// Whether entries are signed.
    pub signed: bool,
}

/// The known values of all registers. Number 31 is the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers([Value; 32]);

const SP: u8 = 31;

impl Registers {
    /// The values at the entry of a function.
    pub fn at_entry() -> Self {
        let mut values = [Value::Unknown; 32];
        values[usize::from(SP)] = Value::Stack(0);
        Self(values)
    }

    /// Returns the value of register `number`.
    pub fn get(&self, number: u8) -> Value {
        self.0[usize::from(number)]
    }

    /// Returns how many bytes of stack are in use since the entry. `None` if this is unknown.
    pub fn depth(&self) -> Option<i64> {
        match self.get(SP) {
            Value::Stack(offset) => Some(-offset),
            _ => None,
        }
    }

    /// Merges with the values of another path to the same instruction. Returns whether fewer values are known than
    /// before.
    pub fn join(&mut self, other: &Self) -> bool {
        let before = *self;
        for (value, other) in self.0.iter_mut().zip(&other.0) {
            if value != other {
                *value = Value::Unknown;
            }
        }
        *self != before
    }

    /// Updates the values for a call: registers that a called function preserves keep their values (AAPCS64, section
    /// 6.1.1).
    pub fn call(&mut self) {
        for number in (0..=18).chain([30]) {
            self.set(number, Value::Unknown);
        }
    }

    /// Updates the values for the instruction `word` at the virtual address `address`, which is not a branch.
    pub fn execute(&mut self, address: u64, word: u32) {
        match classify(word) {
            Verdict::Simulate(Op::Address { rd, offset }) => {
                return self.set_general(rd, Value::Constant(address.wrapping_add_signed(offset.into())));
            }
            Verdict::Simulate(Op::AddressOfPage { rd, offset }) => {
                return self.set_general(rd, Value::Constant((address & !0xfff).wrapping_add_signed(offset)));
            }
            _ => {}
        }
        let (rd, rn, rm) = (register(word, 0), register(word, 5), register(word, 16));
        match word >> 25 & 0b1111 {
            // Data processing, immediate.
            0b1000 | 0b1001 => self.immediate(word, rd, rn),
            // Branches, exceptions, system instructions: MRS and SYSL write Rt.
            0b1010 | 0b1011 => self.set_general(rd, Value::Unknown),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => self.memory(word),
            // CCMN and CCMP write flags only (C4.1.95, Conditional compare).
            0b0101 | 0b1101 if word & 0x1fe0_0000 == 0x1a40_0000 => {}
            0b0101 | 0b1101 => self.processing(word, rd, rn, rm),
            // FMOV and the conversions write general registers.
            _ => self.set_general(rd, Value::Unknown),
        }
    }

    fn set(&mut self, number: u8, value: Value) {
        self.0[usize::from(number)] = value;
    }

    /// Sets a register where number 31 is the zero register.
    fn set_general(&mut self, number: u8, value: Value) {
        if number != SP {
            self.set(number, value);
        }
    }

    /// C4.1.92, Data processing -- immediate.
    fn immediate(&mut self, word: u32, rd: u8, rn: u8) {
        let sets_flags = word >> 29 & 1 == 1;
        // ADD and SUB (immediate), 64 bits: both registers may be the stack pointer, but for ADDS and SUBS.
        if word & 0x9f80_0000 == 0x9100_0000 {
            let immediate = i64::from(word >> 10 & 0xfff) << ((word >> 22 & 1) * 12);
            let immediate = if word >> 30 & 1 == 1 { -immediate } else { immediate };
            let sum = match self.get(rn) {
                Value::Stack(offset) => Value::Stack(offset + immediate),
                Value::Constant(value) => Value::Constant(value.wrapping_add_signed(immediate)),
                _ => Value::Unknown,
            };
            return if sets_flags { self.set_general(rd, Value::Unknown) } else { self.set(rd, sum) };
        }
        // AND (immediate), 64 bits, of a known distance from the stack pointer, with the mask of an alignment: N is 1,
        // imms the number of ones less 1, immr that of ones at the top (C3.4.2).
        if word & 0xffc0_0000 == 0x9240_0000 {
            let (immr, ones) = (word >> 16 & 0x3f, (word >> 10 & 0x3f) + 1);
            if let (Value::Stack(offset), true) = (self.get(rn), immr == ones) {
                let alignment = 1_i64 << (64 - ones);
                return self.set(rd, Value::Stack(offset - (alignment - 1)));
            }
        }
        // AND, ORR and EOR (immediate), and ADDG, SUBG and the 32-bit forms, may write the stack pointer. ANDS, ADDS
        // and SUBS have no such form, nor has any other instruction.
        let logical = word & 0x1f80_0000 == 0x1200_0000 && word >> 29 & 0b11 != 0b11;
        let arithmetic = word & 0x1f00_0000 == 0x1100_0000 && !sets_flags;
        if logical || arithmetic { self.set(rd, Value::Unknown) } else { self.set_general(rd, Value::Unknown) }
    }

    /// C4.1.95, Data processing -- register.
    fn processing(&mut self, word: u32, rd: u8, rn: u8, rm: u8) {
        // MOV (register), 64 bits: ORR with the zero register.
        if word & 0xffe0_ffe0 == 0xaa00_03e0 {
            let value = if rm == SP { Value::Constant(0) } else { self.get(rm) };
            return self.set_general(rd, value);
        }
        // ADD (shifted register), 64 bits, LSL.
        if word & 0xffe0_0000 == 0x8b00_0000 && rn != SP && rm != SP {
            let shift = word >> 10 & 0x3f;
            let sum = match (self.get(rn), self.get(rm), shift) {
                (Value::Constant(base), Value::Entry(table), shift)
                | (Value::Entry(table), Value::Constant(base), shift @ 0) => Value::Target { base, shift, table },
                _ => Value::Unknown,
            };
            return self.set_general(rd, sum);
        }
        // ADD and SUB (extended register), ADDPT and SUBPT, and IRG may write the stack pointer.
        let extended = word & 0x3fe0_0000 == 0x0b20_0000;
        let checked = word & 0xbfe0_e000 == 0x9a00_2000;
        let tagged = word & 0xffe0_fc00 == 0x9ac0_1000;
        if extended || checked || tagged {
            self.set(rd, Value::Unknown);
        } else {
            self.set_general(rd, Value::Unknown);
        }
    }

    /// C4.1.94, Loads and stores.
    fn memory(&mut self, word: u32) {
        let (rt, rn, second, rs) = (register(word, 0), register(word, 5), register(word, 10), register(word, 16));
        let vector = word >> 26 & 1 == 1;
        // Pairs: bits 24 and 23 are 01 for post-index, 11 for pre-index.
        if word & 0x3a00_0000 == 0x2800_0000 {
            let opc = word >> 30;
            let scale = match (vector, opc) {
                (true, opc) => 4_i64 << opc,
                // STGP stores two registers for a tag granule.
                (false, 0b01) if word >> 22 & 1 == 0 => 16,
                (false, 0b10) => 8,
                (false, _) => 4,
            };
            if word >> 22 & 1 == 1 && !vector {
                self.set_general(rt, Value::Unknown);
                self.set_general(second, Value::Unknown);
            }
            if word >> 23 & 1 == 1 {
                self.advance(rn, i64::from((word << 10).cast_signed() >> 25) * scale);
            }
            return;
        }
        // One register, with an offset of 9 bits: bits 11 and 10 are 01 for post-index, 11 for pre-index.
        if word & 0x3b20_0000 == 0x3800_0000 {
            if !vector && word >> 22 & 0b11 != 0 {
                self.set_general(rt, Value::Unknown);
            }
            if word >> 10 & 1 == 1 {
                self.advance(rn, i64::from((word << 11).cast_signed() >> 23));
            }
            return;
        }
        // One register, with a register for an offset: the form by which jump tables are read.
        if word & 0x3b20_0c00 == 0x3820_0800 && !vector {
            let entry = |size, signed| match self.get(rn) {
                Value::Constant(address) => Value::Entry(JumpTable { address, size, signed }),
                _ => Value::Unknown,
            };
            let loaded = match (word >> 30, word >> 22 & 0b11) {
                (_, 0b00) => return,
                (0b00, 0b01) => entry(1, false),
                (0b01, 0b01) => entry(2, false),
                (0b10, 0b01) => entry(4, false),
                (0b10, 0b10) => entry(4, true),
                _ => Value::Unknown,
            };
            return self.set_general(rt, loaded);
        }
        // One register, with an unsigned offset, or literal: nothing else is written.
        if word & 0x3b00_0000 == 0x3900_0000 || word & 0x3b00_0000 == 0x1800_0000 {
            let stores = word & 0x3bc0_0000 == 0x3900_0000;
            if !vector && !stores {
                self.set_general(rt, Value::Unknown);
            }
            return;
        }
        // The rest may write any of its registers: exclusives and their status, atomics, LDRAA, memory copies, vector
        // structures and tags with their write-back.
        for number in [rt, rt | 1, second, rs, rs | 1] {
            self.set_general(number, Value::Unknown);
        }
        let atomic = word & 0x3b20_0c00 == 0x3820_0000 || word & 0x3f00_0000 == 0x0800_0000;
        if !atomic && writes_back(word) {
            self.set(rn, Value::Unknown);
        }
    }

    /// Adds `offset` to the base register of a load or store.
    fn advance(&mut self, number: u8, offset: i64) {
        let value = match self.get(number) {
            Value::Stack(at) => Value::Stack(at + offset),
            Value::Constant(at) => Value::Constant(at.wrapping_add_signed(offset)),
            _ => Value::Unknown,
        };
        self.set(number, value);
    }
}

/// Whether a load or store may write its base register. `word` is neither a form of one register nor of a pair.
fn writes_back(word: u32) -> bool {
    let structures = word & 0xbe80_0000 == 0x0c80_0000;
    let authenticated = word & 0xff20_0c00 == 0xf820_0c00;
    let tags = word & 0xff20_0000 == 0xd920_0000 && word >> 10 & 1 == 1;
    let copies = word & 0x3b20_0c00 == 0x1900_0400;
    let ordered = word & 0xbfa0_0c00 == 0x9900_0800;
    structures || authenticated || tags || copies || ordered
}

/// Returns the number of the register in the field of `word` that begins at bit `low`.
fn register(word: u32, low: u32) -> u8 {
    (word >> low & 0x1f) as u8
}
