//! Reads a value from its place: registers, words on the stack, or memory. The place may depend on the probed
//! instruction.

use alloc::vec::Vec;

use kprobes_types::{Source, ValuePlace};
use kprobes_vm::ir::{Arithmetic, Builtin, Comparison, Op, Operand, Register, Type};

use super::clause::Clause;
use super::value::{SIGNED, UNSIGNED, Value};
use crate::error::{Error, Problem, Span};

/// The place of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    /// A value that a call passes or returns, with an offset in bytes.
    Passed(ValuePlace, u64),
    /// A value whose place depends on the probed instruction: the number of its list in `Clause::places`, and an offset
    /// in bytes.
    Places(usize, u64),
    /// A value in memory: an address, with an offset in bytes.
    Memory(Operand, u64),
}

impl Spot {
    pub fn at(self, offset: u64) -> Self {
        match self {
            Self::Passed(place, at) => Self::Passed(place, at.wrapping_add(offset)),
            Self::Places(number, at) => Self::Places(number, at.wrapping_add(offset)),
            Self::Memory(base, at) => Self::Memory(base, at.wrapping_add(offset)),
        }
    }
}

impl Clause<'_, '_> {
    /// Returns a word of a value.
    pub fn source(&mut self, source: Source, span: Span) -> Result<Value, Error> {
        match source {
            Source::Lost => Err(span.error(Problem::Lost)),
            Source::Register(number) => self.register(number, span),
            Source::Memory { register, offset } => {
                self.load(Spot::Passed(ValuePlace::Memory { register, offset }, 0), 8, UNSIGNED, span)
            }
            Source::Sum { register, offset } => {
                let base = self.register(register, span)?;
                let offset = Operand::Constant(i64::from(offset).cast_unsigned());
                self.compute(Arithmetic::Add, base.at, offset, UNSIGNED, span)
            }
            Source::Bits { register, bits } => {
                let word = self.register(register, span)?;
                self.compute(Arithmetic::And, word.at, Operand::Constant((1 << bits) - 1), UNSIGNED, span)
            }
        }
    }

    /// Returns the general register with this number, or the stack pointer.
    pub fn register(&mut self, number: u8, span: Span) -> Result<Value, Error> {
        let register = if number == Source::STACK_POINTER { Register::Sp } else { Register::X(number) };
        self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Register(register) }, span)
    }

    /// Returns the address and the offset of a value in memory; `None` for other values.
    pub fn in_memory(&mut self, spot: Spot, span: Span) -> Result<Option<(Operand, u64)>, Error> {
        Ok(match spot {
            Spot::Memory(base, offset) => Some((base, offset)),
            Spot::Passed(ValuePlace::At(source), offset) => Some((self.source(source, span)?.at, offset)),
            Spot::Passed(ValuePlace::Memory { register, offset: distance }, offset) => {
                let base = self.register(register, span)?;
                Some((base.at, offset.wrapping_add_signed(distance.into())))
            }
            Spot::Passed(..) => None,
            Spot::Places(number, offset) => {
                let is_in_memory = |place: &ValuePlace| matches!(place, ValuePlace::At(_) | ValuePlace::Memory { .. });
                if !self.places.get(number).is_some_and(|all| all.iter().all(|(_, place)| is_in_memory(place))) {
                    return Ok(None);
                }
                let to = self.room(1, span)?;
                self.by_place(number, span, |clause, place| {
                    let Some((base, offset)) = clause.in_memory(Spot::Passed(place, 0), span)? else { return Ok(()) };
                    let address = clause.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?;
                    clause.push(Op::Set { to, from: address.at }, span)
                })?;
                Some((Operand::Word(to), offset))
            }
        })
    }

    /// Calls `compile` for each place of a value whose place depends on the probed instruction. The compiled code runs
    /// at hits of the instructions at which the value is in that place.
    pub fn by_place(
        &mut self,
        number: usize,
        span: Span,
        mut compile: impl FnMut(&mut Self, ValuePlace) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let all = fallible::collect(self.places.get(number).into_iter().flatten().copied())?;
        let mut distinct: Vec<ValuePlace> = Vec::new();
        for (_, place) in &all {
            if !distinct.contains(place) {
                fallible::push(&mut distinct, *place)?;
            }
        }
        let free = self.free;
        let what = Builtin::Register(Register::Pc);
        let probed = self.give(UNSIGNED, |to| Op::Load { to, what }, span)?.at;
        let (mut ends, last) = (Vec::new(), distinct.pop());
        for place in distinct {
            let mut here = Vec::new();
            for (address, _) in all.iter().filter(|(_, other)| *other == place) {
                self.branch_if(Comparison::Equal, probed, Operand::Constant(*address), &mut here, span)?;
            }
            let elsewhere = self.jump(span)?;
            self.land(&here);
            let kept = self.free;
            compile(self, place)?;
            self.free = kept;
            fallible::push(&mut ends, self.jump(span)?)?;
            self.land(&[elsewhere]);
        }
        last.map_or(Ok(()), |place| compile(self, place))?;
        self.free = free;
        self.land(&ends);
        Ok(())
    }

    /// Loads a number of `bytes` bytes, with the signedness of `of`.
    pub fn load(&mut self, spot: Spot, bytes: u8, of: Type, span: Span) -> Result<Value, Error> {
        let signed = of == SIGNED;
        if let Some((base, offset)) = self.in_memory(spot, span)? {
            let address = match offset {
                0 => base,
                _ => self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at,
            };
            return self.give(of, |to| Op::Read { to, address, bytes, signed }, span);
        }
        if let Spot::Places(number, offset) = spot {
            let to = self.room(1, span)?;
            self.by_place(number, span, |clause, place| {
                let value = clause.load(Spot::Passed(place, offset), bytes, of, span)?;
                clause.push(Op::Set { to, from: value.at }, span)
            })?;
            return Ok(Value { at: Operand::Word(to), of });
        }
        let Spot::Passed(place, offset) = spot else { return Err(span.error(Problem::Lost)) };
        let word = match place {
            ValuePlace::Constant(value) => Value::constant(value.checked_shr(8 * offset as u32).unwrap_or(0), false),
            ValuePlace::Unknown(why) => return Err(span.error(Problem::Unknown { why })),
            ValuePlace::Nothing | ValuePlace::At(_) | ValuePlace::Memory { .. } => Value::constant(0, false),
            ValuePlace::Words { .. } => {
                // Bytes that span two parts cannot be loaded.
                let part = place.part(offset, bytes.into()).ok_or(span.error(Problem::Lost))?;
                let distance = offset - u64::from(part.offset);
                if let Source::Memory { register, offset } = part.source {
                    return self.load(Spot::Passed(ValuePlace::Memory { register, offset }, distance), bytes, of, span);
                }
                let word = self.source(part.source, span)?;
                if distance == 0 {
                    word
                } else {
                    self.compute(Arithmetic::Right, word.at, Operand::Constant(8 * distance), UNSIGNED, span)?
                }
            }
        };
        match (bytes, word.at) {
            (8.., at) => Ok(Value { at, of }),
            (_, Operand::Constant(value)) => {
                Ok(Value { at: Operand::Constant(kprobes_vm::hit::extend(value, 8 * bytes, signed)), of })
            }
            (_, from) => self.give(of, |to| Op::Extend { to, from, bits: 8 * bytes, signed }, span),
        }
    }
}
