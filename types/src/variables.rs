//! The variables of a function: its arguments and locals, each with its places.
//!
//! A variable has a scope, outside of which its name means another variable or nothing. Within the scope, the compiler
//! keeps the value in one place after another, or does not keep it.

use crate::model::{TypeId, Unknown, ValuePlace};
use crate::record::Cursor;
use crate::table::{Argument, Types};

/// The variables of a function. Those of a block come after those of the blocks around it.
#[derive(Clone, Debug)]
pub struct Variables<'a> {
    types: Types<'a>,
    count: usize,
    rest: Cursor<'a>,
}

/// A variable of a function.
#[derive(Clone, Copy, Debug)]
pub struct Variable<'a> {
    types: Types<'a>,
    /// The name.
    pub name: &'a str,
    /// The type.
    pub of: TypeId,
    /// Whether it is an argument, and not a local.
    pub is_argument: bool,
    /// The number of stretches of the scope, or 0 for the whole function, and their record.
    scope: (u64, Cursor<'a>),
    /// The number of stretches with a place, and their record.
    places: (u64, Cursor<'a>),
}

/// Consecutive instructions of a function, as offsets from its entry in bytes.
#[derive(Clone, Copy)]
struct Stretch {
    from: u32,
    to: u32,
}

impl Stretch {
    /// Reads the stretch after one that ends at the offset `end`.
    fn read(end: u32, rest: &mut Cursor<'_>) -> Option<Self> {
        let from = end.checked_add(rest.word()?.checked_mul(4)?)?;
        Some(Self { from, to: from.checked_add(rest.word()?.checked_mul(4)?)? })
    }

    fn has(self, offset: u32) -> bool {
        (self.from..self.to).contains(&offset)
    }
}

impl<'a> Variables<'a> {
    /// Reads the number of variables at `rest`, which the variables follow.
    pub(crate) fn take(types: Types<'a>, mut rest: Cursor<'a>) -> Option<Self> {
        let count = rest.number()?.try_into().ok()?;
        Some(Self { types, count, rest })
    }

    /// Checks that every variable can be read. Returns the number of bytes that follow the last.
    pub(crate) fn check(mut self) -> Option<usize> {
        (0..self.count).try_for_each(|_| self.variable().map(drop))?;
        Some(self.rest.0.len())
    }

    fn variable(&mut self) -> Option<Variable<'a>> {
        let (types, rest) = (self.types, &mut self.rest);
        let (name, of) = (types.name(rest.word()?)?, types.id(rest.word()?)?);
        let head = rest.number()?;
        let scope = (head >> 1, *rest);
        let mut end = 0;
        for _ in 0..scope.0 {
            end = Stretch::read(end, rest)?.to;
        }
        let places = (rest.number()?, *rest);
        end = 0;
        for _ in 0..places.0 {
            end = Stretch::read(end, rest)?.to;
            types.place(rest)?;
        }
        Some(Variable { types, name, of, is_argument: head & 1 == 1, scope, places })
    }

    /// Returns the variable that `name` means at the instruction `offset` bytes after the entry, among arguments or
    /// among locals: that of the innermost block. Its place is [`Unknown`] where the compiler does not keep it.
    #[must_use]
    pub fn find(self, name: &str, is_argument: bool, offset: u32) -> Option<Argument<'a>> {
        let is_meant = |one: &Variable<'a>| one.is_argument == is_argument && one.name == name;
        self.filter(is_meant).filter_map(|one| one.at(offset)).last()
    }
}

impl<'a> Iterator for Variables<'a> {
    type Item = Variable<'a>;

    fn next(&mut self) -> Option<Variable<'a>> {
        self.count = self.count.checked_sub(1)?;
        self.variable()
    }
}

impl<'a> Variable<'a> {
    /// Returns the variable at the instruction `offset` bytes after the entry; `None` if that is outside of its scope.
    #[must_use]
    pub fn at(&self, offset: u32) -> Option<Argument<'a>> {
        let (count, mut rest) = self.scope;
        let (mut end, mut is_in_scope) = (0, count == 0);
        for _ in 0..count {
            let stretch = Stretch::read(end, &mut rest)?;
            is_in_scope |= stretch.has(offset);
            end = stretch.to;
        }
        let argument = |place| Argument { name: self.name, of: self.of, place };
        if !is_in_scope {
            return None;
        }
        let (count, mut rest) = self.places;
        let mut unknown = Unknown::OptimizedOut;
        end = 0;
        for _ in 0..count {
            let stretch = Stretch::read(end, &mut rest)?;
            let place = self.types.place(&mut rest)?;
            if stretch.has(offset) {
                return Some(argument(place));
            }
            // The next stretch after the instruction, or the last before it.
            if end <= offset {
                unknown = Unknown::Elsewhere { from: stretch.from, to: stretch.to };
            }
            end = stretch.to;
        }
        Some(argument(ValuePlace::Unknown(unknown)))
    }
}
