//! Addresses of networks: `macaddr`, `ntop` and `pton`. The bytes of an address keep their order in memory.

use core::net::{IpAddr, Ipv4Addr};

use kprobes_types::TypeKind;
use kprobes_vm::ir::{Arithmetic, Op, Operand, Type, Word};

use super::call::written;
use super::clause::Clause;
use super::place::Spot;
use super::rust_place::{RustPlace, STEPS_MAX};
use super::value::{UNSIGNED, Value, number};
use crate::checked::RustValue;
use crate::error::{Error, Problem, Span};
use crate::syntax::{Expression, ExpressionForm};

/// The numbers that Linux gives to the families of addresses, `AF_INET` and `AF_INET6`.
const FAMILIES: [(u64, u8); 2] = [(2, 4), (10, 16)];

impl Clause<'_, '_> {
    /// `macaddr`: six bytes, of an array or at an address.
    pub fn hardware_address(&mut self, of: &Expression, span: Span) -> Result<Value, Error> {
        let array = self.at_place(of, |clause, place| {
            Ok(clause.array_of_bytes(place, of.span)?.filter(|(_, count)| *count == 6))
        })?;
        let spot = match array {
            Some((spot, _)) => spot,
            None => Spot::Memory(self.numeric(of)?.at, 0),
        };
        let low = self.load(spot, 4, UNSIGNED, span)?;
        let high = self.load(spot.at(4), 2, UNSIGNED, span)?;
        let high = self.compute(Arithmetic::Left, high.at, Operand::Constant(32), UNSIGNED, span)?;
        let whole = self.compute(Arithmetic::Or, low.at, high.at, UNSIGNED, span)?;
        Ok(Value { of: self.checker.rust_type(RustValue::HardwareAddress, 1, span)?, ..whole })
    }

    /// `ntop`: an address of the internet, from a number of 4 bytes or an array of 4 or 16.
    pub fn internet_address(
        &mut self,
        family: Option<&Expression>,
        of: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let wanted = match family {
            None => None,
            Some(family) => {
                let number = self.known(family, 2, 10)?;
                let bytes = FAMILIES.iter().find(|(known, _)| *known == number).map(|(_, bytes)| u64::from(*bytes));
                Some(bytes.ok_or(family.span.error(Problem::Family))?)
            }
        };
        let array = self.at_place(of, |clause, place| clause.array_of_bytes(place, of.span))?;
        let (address, bytes) = match array {
            Some((spot, 4)) => (self.load(spot, 4, UNSIGNED, span)?, 4),
            Some((spot, 16)) => {
                let first = self.room(2, span)?;
                for (word, distance) in [(0, 0), (1, 8)] {
                    let half = self.load(spot.at(distance), 8, UNSIGNED, span)?;
                    self.push(Op::Set { to: Word(first.0.saturating_add(word)), from: half.at }, span)?;
                }
                (Value { at: Operand::Word(first), of: UNSIGNED }, 16)
            }
            Some(_) => return Err(of.span.error(Problem::Family)),
            None => {
                let value = self.value(of)?;
                match self.address_bytes(value) {
                    Some(bytes) => (value, bytes),
                    None => (number(value, of.span)?, 4),
                }
            }
        };
        if wanted.is_some_and(|wanted| wanted != u64::from(bytes)) {
            return Err(of.span.error(Problem::Family));
        }
        let words = if bytes == 4 { 1 } else { 2 };
        Ok(Value { of: self.checker.rust_type(RustValue::InternetAddress { bytes }, words, span)?, ..address })
    }

    /// Returns the number of bytes of a value that is an address already.
    fn address_bytes(&self, value: Value) -> Option<u8> {
        let Type::Rust { shape, .. } = value.of else { return None };
        match self.checker.rust_values.get(usize::from(shape)) {
            Some(RustValue::InternetAddress { bytes }) => Some(*bytes),
            _ => None,
        }
    }

    /// `pton`: the bytes of an address in a string literal.
    pub fn parsed_address(&mut self, text: &Expression, span: Span) -> Result<Value, Error> {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        match written(text)?.parse().map_err(|_| text.span.error(Problem::Address))? {
            IpAddr::V4(address) => Ok(Value::constant(word(&Ipv4Addr::octets(&address)), false)),
            IpAddr::V6(address) => {
                let octets = address.octets();
                let (low, high) = octets.split_at(8);
                let first = self.room(2, span)?;
                for (number, half) in [(0, low), (1, high)] {
                    let from = Operand::Constant(word(half));
                    self.push(Op::Set { to: Word(first.0.saturating_add(number)), from }, span)?;
                }
                let of = self.checker.rust_type(RustValue::InternetAddress { bytes: 16 }, 2, span)?;
                Ok(Value { at: Operand::Word(first), of })
            }
        }
    }

    /// Returns the place and the length of an array of bytes, which may be the only field of a struct, as in
    /// `Ipv4Addr`; `None` for any other value.
    pub fn array_of_bytes(&mut self, value: RustPlace, span: Span) -> Result<Option<(Spot, u64)>, Error> {
        let mut value = self.followed(value, span)?;
        for _ in 0..STEPS_MAX {
            value = match self.rust(value.of, span)?.kind {
                TypeKind::Array { element, count } => {
                    let is_byte = self.rust(element, span)?.is_byte();
                    return Ok(is_byte.then_some((value.spot, count)));
                }
                TypeKind::Struct { members, .. } => {
                    let mut members = members;
                    match (members.next(), members.next()) {
                        (Some(only), None) => {
                            let inner = RustPlace { of: only.of, spot: value.spot.at(only.offset.into()) };
                            self.followed(inner, span)?
                        }
                        _ => return Ok(None),
                    }
                }
                _ => return Ok(None),
            };
        }
        Err(span.error(Problem::Deep))
    }

    /// `offsetof`: the offset of a field in a struct.
    pub fn offset_of(&mut self, of: &Expression, field: &Expression) -> Result<Value, Error> {
        let ExpressionForm::Builtin(name) = &*field.form else { return Err(field.span.error(Problem::FieldName)) };
        let value = self.rust_place(of)?.ok_or(of.span.error(Problem::NotAStruct))?;
        let value = self.followed(value, of.span)?;
        match self.rust(value.of, of.span)?.kind {
            TypeKind::Struct { mut members, .. } => {
                let found = members.find(|member| member.name == name.as_str());
                let names = crate::error::Listed::Fields(self.types(of.span)?, value.of);
                let no_field = Problem::NoField { of: self.rust(value.of, of.span)?.name, names };
                let found = found.ok_or(field.span.error(no_field))?;
                Ok(Value::constant(found.offset.into(), true))
            }
            _ => Err(of.span.error(Problem::NotAStruct)),
        }
    }
}
