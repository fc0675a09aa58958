//! The types of tuples and records. Such a type refers to the list of its parts by a number, so that a [`Type`] is
//! small and can be copied.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_vm::ir::{ITEMS_MAX, Type};

use crate::checked::{Shape, TUPLE_DEPTH_MAX};
use crate::error::{Error, Problem, Span};

/// The parts of each tuple type, indexed by number; no list occurs twice.
#[derive(Debug, Default)]
pub(super) struct Shapes(pub Vec<Shape>);

impl Shapes {
    /// Returns the type of the tuple at `span` with these parts. Refuses one that is nested too deeply or has too many
    /// words, and one type more than there can be.
    pub fn tuple(&mut self, parts: Vec<Type>, span: Span) -> Result<Type, Error> {
        self.record(parts, Vec::new(), span)
    }

    /// Returns the type of the record at `span` with these parts and names; of a tuple, if there are no names. Refuses
    /// what [`tuple`](Self::tuple) refuses.
    pub fn record(&mut self, parts: Vec<Type>, names: Vec<String>, span: Span) -> Result<Type, Error> {
        if self.depth_of(&parts) > TUPLE_DEPTH_MAX {
            return Err(span.error(Problem::DeepTuple { most: TUPLE_DEPTH_MAX }));
        }
        self.number(parts, names, 0)?.ok_or(span.error(Problem::Room { most: u8::MAX.into() }))
    }

    /// Returns the type of arrays of `count` integers of `bytes` bytes; `None` if it has too many words, or if there
    /// are too many types.
    pub fn array(&mut self, signed: bool, bytes: u8, count: usize) -> Result<Option<Type>, OutOfMemory> {
        let parts = fallible::collect((0..count).map(|_| Type::Integer { signed }))?;
        self.number(parts, Vec::new(), bytes)
    }

    /// Returns the nesting depth of a tuple with these parts.
    fn depth_of(&self, parts: &[Type]) -> u8 {
        let depth = |part: &Type| match *part {
            Type::Tuple { shape, .. } => self.0.get(usize::from(shape)).map_or(0, |shape| shape.depth),
            _ => 0,
        };
        parts.iter().map(depth).max().unwrap_or(0).saturating_add(1)
    }

    /// Returns the type with this shape; `None` if it has too many words, or if there are too many types. The empty
    /// tuple has one word, which is 0: a value without words could be no key, and no value of a map.
    fn number(&mut self, parts: Vec<Type>, names: Vec<String>, element_bytes: u8) -> Result<Option<Type>, OutOfMemory> {
        let words = match parts.as_slice() {
            [] => 1,
            parts => parts.iter().map(|part| usize::from(part.words())).sum::<usize>(),
        };
        let depth = self.depth_of(&parts);
        let shape = Shape { parts, names, element_bytes, depth };
        let known = self.0.iter().position(|other| *other == shape);
        let number = known.unwrap_or(self.0.len());
        let (Ok(words), Ok(number)) = (u8::try_from(words), u8::try_from(number)) else { return Ok(None) };
        if known.is_none() {
            fallible::push(&mut self.0, shape)?;
        }
        debug_assert!(self.0.len() <= ITEMS_MAX);
        Ok(Some(Type::Tuple { shape: number, words }))
    }

    /// Returns the size of an element, if the type is an array; 0 for a tuple or a record.
    pub fn element_bytes(&self, shape: u8) -> u8 {
        self.0.get(usize::from(shape)).map_or(0, |shape| shape.element_bytes)
    }

    /// Returns the part types of a tuple type.
    pub fn parts(&self, shape: u8) -> &[Type] {
        self.0.get(usize::from(shape)).map_or(&[], |shape| shape.parts.as_slice())
    }

    /// Returns the names of the parts of a record type; none for a tuple type.
    pub fn names(&self, shape: u8) -> &[String] {
        self.0.get(usize::from(shape)).map_or(&[], |shape| shape.names.as_slice())
    }

    /// Returns the index of the part of the type `from` that becomes part `number` of the type `to`. In records it has
    /// the same name, `None` if no part has; in tuples it is at the same place.
    // Not inlined, so that the stack frame of each recursion of `Clause::place` stays small.
    #[inline(never)]
    pub fn source(&self, to: u8, number: usize, from: u8) -> Option<usize> {
        match self.names(to).get(number) {
            Some(name) => self.names(from).iter().position(|other| other == name),
            None => Some(number),
        }
    }

    /// Returns the type that holds values of both types, for two uses of a map or a variable; `None` if no type does.
    /// It is nested as deeply as both. A record has the order of its parts in `one`.
    pub fn merge(&mut self, one: Type, other: Type) -> Result<Option<Type>, OutOfMemory> {
        use Type::{Bytes, Integer, Pointer, Text, Tuple};
        Ok(match (one, other) {
            _ if one == other => Some(one),
            (Text { words }, Text { words: others }) => Some(Text { words: words.max(others) }),
            (Bytes { words }, Bytes { words: others }) => Some(Bytes { words: words.max(others) }),
            (Integer { .. } | Pointer { .. }, Integer { .. } | Pointer { .. }) => Some(one),
            (Tuple { shape, .. }, Tuple { shape: another, .. }) => {
                let (ones, others) = (self.parts(shape), self.parts(another));
                let bytes = self.element_bytes(shape);
                let is_record = |shape| !self.names(shape).is_empty();
                let is_alike = is_record(shape) == is_record(another) && bytes == self.element_bytes(another);
                if ones.len() != others.len() || !is_alike {
                    return Ok(None);
                }
                let mut pairs = Vec::new();
                for (number, &one) in ones.iter().enumerate() {
                    let other = self.source(shape, number, another).and_then(|from| others.get(from));
                    let Some(&other) = other else { return Ok(None) };
                    fallible::push(&mut pairs, (one, other))?;
                }
                let names = fallible::collect_results(self.names(shape).iter().map(|name| fallible::copy(name)))?;
                let mut merged = Vec::new();
                for (one, other) in pairs {
                    let Some(part) = self.merge(one, other)? else { return Ok(None) };
                    fallible::push(&mut merged, part)?;
                }
                self.number(merged, names, bytes)?
            }
            _ => None,
        })
    }
}
