//! The inferred types of the maps of a program, and the ops that access maps.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_vm::ir::{Aggregate, Arithmetic, ITEMS_MAX, Map, MapValue, Op, Operand, Series, Type, Word};

use super::clause::Clause;
use super::shapes::Shapes;
use super::value::{SIGNED, Value, number};
use super::{Checker, Stage};
use crate::error::{Error, Noun, Problem, Span};
use crate::syntax::{Expression, MapReference, Operator};

/// A map with what is known of it so far.
#[derive(Debug)]
pub(super) struct PartialMap {
    /// The name without `@`.
    pub name: String,
    pub keys: Option<Vec<Type>>,
    pub value: Option<MapValue>,
    /// The number of keys that it is declared to have room for.
    pub room: Option<usize>,
}

impl PartialMap {
    /// Returns the finished map; `None` if it is never given a value.
    pub fn finish(self) -> Option<Map> {
        let (name, room) = (self.name, self.room);
        Some(Map { name, keys: self.keys.unwrap_or_default(), value: self.value?, room })
    }
}

/// Returns what a map keeps that has both of these uses; `None` if they conflict.
fn merge(shapes: &mut Shapes, one: MapValue, other: MapValue) -> Result<Option<MapValue>, OutOfMemory> {
    use Aggregate as A;
    Ok(match (one, other) {
        // Whichever comes first in the text, a pointer makes the map one of pointers.
        (MapValue::Value(Type::Integer { .. }), MapValue::Value(Type::Pointer { .. })) => Some(other),
        (MapValue::Value(one), MapValue::Value(other)) => shapes.merge(one, other)?.map(MapValue::Value),
        (MapValue::Aggregate(first), MapValue::Aggregate(second)) => {
            let same = match (first, second) {
                (A::Sum { .. }, A::Sum { .. })
                | (A::Average { .. }, A::Average { .. })
                | (A::Least { .. }, A::Least { .. })
                | (A::Greatest { .. }, A::Greatest { .. })
                | (A::Statistics { .. }, A::Statistics { .. }) => true,
                (A::Series(first), A::Series(second)) => first == Series { signed: first.signed, ..second },
                _ => first == second,
            };
            same.then_some(one)
        }
        _ => None,
    })
}

impl Clause<'_, '_> {
    /// Returns the number of the map called `name`. A new name gets a new number.
    pub fn map_number(&mut self, name: &str, span: Span) -> Result<u8, Error> {
        let maps = &mut self.checker.maps;
        let number = maps.iter().position(|known| known.name == name).unwrap_or(maps.len());
        let small = u8::try_from(number).map_err(|_| span.error(Problem::Many { most: ITEMS_MAX }))?;
        if number == maps.len() {
            fallible::push(maps, PartialMap { name: fallible::copy(name)?, keys: None, value: None, room: None })?;
            self.checker.changed = true;
        }
        Ok(small)
    }

    /// Returns what the map keeps.
    pub fn kept(&self, map: u8, span: Span) -> Result<MapValue, Error> {
        let known = self.checker.maps.get(usize::from(map)).and_then(|known| known.value);
        known.ok_or(span.error(Problem::UnknownMap))
    }

    /// Learns that the map keeps `kept`.
    pub fn keep(&mut self, map: u8, kept: MapValue, span: Span) -> Result<(), Error> {
        let learns = self.learns(Stage::UnreachedMaps);
        let Checker { maps, shapes, .. } = &mut *self.checker;
        let Some(known) = maps.get_mut(usize::from(map)) else {
            return Ok(());
        };
        let merged = match known.value {
            Some(value) => merge(shapes, value, kept)?.ok_or(span.error(Problem::MapKind))?,
            None => kept,
        };
        if learns && known.value != Some(merged) {
            known.value = Some(merged);
            self.checker.changed = true;
        }
        Ok(())
    }

    /// Returns the number of a map, and the first word of the key of its entry.
    pub fn entry(&mut self, map: &str, keys: &[Expression], span: Span) -> Result<(u8, Word), Error> {
        let number = self.map_number(map, span)?;
        let mut parts = Vec::new();
        for key in keys {
            let value = self.shown(key)?;
            // A tuple that is the only part is expanded: its parts become the parts of the key. An array, a record and
            // the empty tuple are one part.
            let shapes = &self.checker.shapes;
            let has_places = |shape| shapes.element_bytes(shape) == 0 && shapes.names(shape).is_empty();
            let is_expanded = |shape| has_places(shape) && !shapes.parts(shape).is_empty();
            match (value.of, value.at) {
                (Type::Tuple { shape, .. }, Operand::Word(first)) if keys.len() == 1 && is_expanded(shape) => {
                    let mut at = first;
                    for &of in shapes.parts(shape) {
                        fallible::push(&mut parts, (Value { at: Operand::Word(at), of }, key.span))?;
                        at = Word(at.0.saturating_add(of.words()));
                    }
                }
                _ => fallible::push(&mut parts, (value, key.span))?,
            }
        }
        let types = self.key_types(number, &parts, span)?;
        if let ([(part, _)], [of]) = (parts.as_slice(), types.as_slice())
            && let Operand::Word(at) = part.at
            && part.of.fits_as(*of)
        {
            return Ok((number, at));
        }
        let words = types.iter().map(|of| usize::from(of.words())).sum::<usize>();
        let words = u8::try_from(words).map_err(|_| span.error(Problem::Room { most: u8::MAX.into() }))?;
        if words == 0 {
            return Ok((number, Word(0)));
        }
        let values = parts.into_iter().zip(types).map(|((part, at), of)| (part, of, at));
        Ok((number, self.row(values, words, span)?))
    }

    /// Returns the types of the parts of a map's key, and learns from the key `parts`.
    fn key_types(&mut self, map: u8, parts: &[(Value, Span)], span: Span) -> Result<Vec<Type>, Error> {
        let here = fallible::collect(parts.iter().map(|(part, _)| part.of))?;
        let learns = self.learns(Stage::UnreachedMaps);
        let Checker { maps, shapes, .. } = &mut *self.checker;
        let Some(known) = maps.get_mut(usize::from(map)) else {
            return Ok(here);
        };
        let Some(keys) = &known.keys else {
            if learns {
                known.keys = Some(fallible::collect(here.iter().copied())?);
                self.checker.changed = true;
            }
            return Ok(here);
        };
        if keys.len() != here.len() {
            let problem = if here.is_empty() { Problem::NoKey } else { Problem::KeyParts { wanted: keys.len() } };
            return Err(span.error(problem));
        }
        let mut merged = Vec::new();
        for (&wanted, (part, at)) in keys.iter().zip(parts) {
            let problem = Problem::KeyType { wanted: wanted.into(), found: part.of.into() };
            fallible::push(&mut merged, shapes.merge(wanted, part.of)?.ok_or(at.error(problem))?)?;
        }
        if learns && *keys != merged {
            known.keys = Some(fallible::collect(merged.iter().copied())?);
            self.checker.changed = true;
        }
        Ok(merged)
    }

    /// Reads the value of a map at a key.
    pub fn read_map(&mut self, map: &MapReference, span: Span) -> Result<Value, Error> {
        let (number, key) = self.entry(&map.name, &map.keys, span)?;
        self.read_entry(number, key, span)
    }

    /// Reads the value of the key at `key` of the map `number`.
    pub fn read_entry(&mut self, number: u8, key: Word, span: Span) -> Result<Value, Error> {
        match self.kept(number, span) {
            Ok(kept) => {
                let of = kept.read_type().ok_or(span.error(Problem::NoNumber))?;
                self.give(of, |to| read_op(kept, to, number, key), span)
            }
            Err(_) if self.checker.is_learning() => {
                (self.guessed, self.checker.is_left) = (true, true);
                Ok(Value::GUESS)
            }
            Err(error) => Err(error),
        }
    }

    /// Updates the value of a map by an operator. Returns the new value if `after`, and the old one otherwise.
    #[expect(clippy::too_many_arguments, reason = "the operation, its operands, and their places in the text")]
    pub fn modify(
        &mut self,
        map: u8,
        key: Word,
        operator: Operator,
        by: Value,
        by_span: Span,
        span: Span,
        after: bool,
    ) -> Result<Value, Error> {
        let by = number(by, by_span)?;
        if self.kept(map, span).is_err() {
            self.keep(map, MapValue::Value(Type::Integer { signed: by.is_signed() }), span)?;
        }
        let of = match self.kept(map, span) {
            Ok(MapValue::Value(of @ (Type::Integer { .. } | Type::Pointer { .. }))) => of,
            Ok(MapValue::Value(of)) => {
                return Err(span.error(Problem::Type { wanted: Noun::Integer, found: of.into() }));
            }
            Ok(MapValue::Aggregate(_)) => return Err(span.error(Problem::MapKind)),
            Err(error) if !self.checker.is_learning() => return Err(error),
            Err(_) => SIGNED,
        };
        let (how, _) = arithmetic(operator, of, by.of).ok_or(span.error(Problem::MapKind))?;
        check_move(operator, of, by.of, [span, by_span])?;
        let by = self.distance_of_elements(operator, of, by, span)?.unwrap_or(by.at);
        self.give(of, |to| Op::Modify { to, map, key, how, by, after }, span)
    }
}

/// Refuses an assignment by an operator to a pointer, of type `of`, unless it moves the pointer by a number. The
/// pointer and the operand, of type `by`, are at `span` and `by_span`.
pub(super) fn check_move(operator: Operator, of: Type, by: Type, [span, by_span]: [Span; 2]) -> Result<(), Error> {
    let wrong = match (of, by) {
        (Type::Pointer { .. }, Type::Pointer { .. }) => by_span,
        (Type::Pointer { .. }, _) if !matches!(operator, Operator::Add | Operator::Subtract) => span,
        _ => return Ok(()),
    };
    Err(wrong.error(Problem::Type { wanted: Noun::Integer, found: Noun::Pointer }))
}

/// Returns the op that reads what a map keeps for a key.
pub(super) fn read_op(kept: MapValue, to: Word, map: u8, key: Word) -> Op {
    match kept {
        MapValue::Value(_) => Op::Get { to, map, key },
        MapValue::Aggregate(_) => Op::Total { to, map, key },
    }
}

/// Returns the op of an arithmetic operator for values of these types, and the type of the number that results.
pub(super) fn arithmetic(operator: Operator, left: Type, right: Type) -> Option<(Arithmetic, Type)> {
    let signed = left == SIGNED && (right == SIGNED || matches!(operator, Operator::Left | Operator::Right));
    let how = match operator {
        Operator::Add => Arithmetic::Add,
        Operator::Subtract => Arithmetic::Subtract,
        Operator::Multiply => Arithmetic::Multiply,
        Operator::Divide if signed => Arithmetic::DivideSigned,
        Operator::Divide => Arithmetic::Divide,
        Operator::Remainder if signed => Arithmetic::RemainderSigned,
        Operator::Remainder => Arithmetic::Remainder,
        Operator::BitAnd => Arithmetic::And,
        Operator::BitOr => Arithmetic::Or,
        Operator::BitXor => Arithmetic::Xor,
        Operator::Left => Arithmetic::Left,
        Operator::Right if signed => Arithmetic::RightSigned,
        Operator::Right => Arithmetic::Right,
        _ => return None,
    };
    Some((how, Type::Integer { signed }))
}
