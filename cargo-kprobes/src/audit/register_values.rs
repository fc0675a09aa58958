//! Tracks the values of registers at an instruction: how far the stack pointer is from its value at the entry, and the
//! addresses by which jump tables are read. Everything else is unknown.
//!
//! The operands are those that the engine's decoder gives. An instruction that it does not know makes all registers
//! unknown that it may write.

use aarch64_kprobes::insn::{
    Instruction, LoadSize, Op, RegisterAccess, Registers, Shift, StackPointer, Verdict, classify,
    encode::compute::Binary,
};

use super::flow::LINK;

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
pub struct RegisterValues([Value; 32]);

/// The number of the stack pointer, which is that of the zero register in other operands.
const SP: u8 = 31;
const ZERO: u8 = 31;
const FRAME_POINTER: u8 = 29;

impl Value {
    /// Returns the value plus `bytes`.
    fn plus(self, bytes: i64) -> Self {
        match self {
            Self::Stack(offset) => offset.checked_add(bytes).map_or(Self::Unknown, Self::Stack),
            Self::Constant(value) => Self::Constant(value.wrapping_add_signed(bytes)),
            value if bytes == 0 => value,
            _ => Self::Unknown,
        }
    }
}

impl RegisterValues {
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
            Value::Stack(offset) => offset.checked_neg(),
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
        (0..=18).for_each(|number| self.set(number, Value::Unknown));
        self.link();
    }

    /// Updates the values for a call of a function that counts as a part of its caller: the call itself changes only
    /// the link register.
    pub fn link(&mut self) {
        self.set(LINK, Value::Unknown);
    }

    /// Forgets all values, also that of the stack pointer.
    pub fn forget(&mut self) {
        self.0 = [Value::Unknown; 32];
    }

    /// Updates the values for the instruction `word` at the virtual address `address`, which is not a branch.
    pub fn execute(&mut self, address: u64, word: u32) {
        let result = self.result(address, word);
        let stack = match StackPointer::after(word) {
            StackPointer::Moved(bytes) => self.get(SP).plus(bytes),
            StackPointer::FromFrame(bytes) => self.get(FRAME_POINTER).plus(bytes),
            StackPointer::Unknown => Value::Unknown,
        };
        let written = RegisterAccess::of(word).may_write(word);
        for number in (0..SP).filter(|&number| written.intersects(Registers::x(number))) {
            self.set(number, Value::Unknown);
        }
        self.set(SP, stack);
        if let Some((number, value)) = result {
            self.set(number, value);
        }
    }

    /// Returns the register that an instruction computes, and its value. `None` if nothing is known of the value, or if
    /// it goes to the zero register.
    fn result(&self, address: u64, word: u32) -> Option<(u8, Value)> {
        let (number, value, may_be_stack_pointer) = match classify(word) {
            Verdict::Simulate(Op::Address { rd, offset }) => {
                (rd, Value::Constant(address.wrapping_add_signed(offset.into())), false)
            }
            Verdict::Simulate(Op::AddressOfPage { rd, offset }) => {
                (rd, Value::Constant((address & !0xfff).wrapping_add_signed(offset)), false)
            }
            _ => match Instruction::decode(word)? {
                Instruction::AddImmediate { rd, rn, addend } => (rd, self.get(rn).plus(addend), true),
                Instruction::Align { rd, rn, alignment } => match self.get(rn) {
                    Value::Stack(offset) if rn != SP => {
                        let lowest = offset.checked_sub_unsigned(alignment - 1);
                        (rd, lowest.map_or(Value::Unknown, Value::Stack), true)
                    }
                    _ => return None,
                },
                Instruction::Binary { how: Binary::Or, rd, rn: ZERO, rm, shift: Shift::Left(0) } => {
                    (rd, if rm == ZERO { Value::Constant(0) } else { self.get(rm) }, false)
                }
                Instruction::Binary { how: Binary::Add, rd, rn, rm, shift: Shift::Left(left) }
                    if rn != ZERO && rm != ZERO =>
                {
                    match (self.get(rn), self.get(rm), left) {
                        (Value::Constant(base), Value::Entry(table), shift)
                        | (Value::Entry(table), Value::Constant(base), shift @ 0) => {
                            (rd, Value::Target { base, shift: shift.into(), table }, false)
                        }
                        _ => return None,
                    }
                }
                Instruction::LoadIndexed { rt, rn, size: LoadSize { bytes, signed } } => match self.get(rn) {
                    Value::Constant(address) if bytes == 4 || bytes < 4 && !signed => {
                        (rt, Value::Entry(JumpTable { address, size: bytes.into(), signed }), false)
                    }
                    _ => return None,
                },
                _ => return None,
            },
        };
        (number != SP || may_be_stack_pointer).then_some((number, value))
    }

    fn set(&mut self, number: u8, value: Value) {
        self.0[usize::from(number)] = value;
    }
}
