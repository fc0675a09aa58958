//! The variables of a function and of the copies that are inlined into it: arguments and locals, each with its places.
//!
//! A variable has a scope, outside of which its name means another variable or nothing. Within the scope, the compiler
//! keeps the value in one place after another, or does not keep it.
//!
//! A copy is at the instructions that came from the copied function. Names and types of its variables are stored once
//! for all copies of that function.

use crate::COPY_VARIABLES_MAX;
use crate::model::{TypeId, Unknown, ValuePlace};
use crate::record::Cursor;
use crate::shared::{Argument, Shared};

/// The variables of a function. The variables of a block come after those of the blocks around it.
#[derive(Clone, Debug)]
pub struct Variables<'a> {
    shared: Shared<'a>,
    count: usize,
    rest: Cursor<'a>,
}

/// A variable of a function.
#[derive(Clone, Copy, Debug)]
pub struct Variable<'a> {
    shared: Shared<'a>,
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
        let head = rest.word()?;
        let distance = if head & 1 == 1 { rest.word()? } else { 0 };
        let from = end.checked_add(distance.checked_mul(4)?)?;
        Some(Self { from, to: from.checked_add((head >> 1).checked_mul(4)?)? })
    }

    fn has(self, offset: u32) -> bool {
        (self.from..self.to).contains(&offset)
    }
}

impl<'a> Variables<'a> {
    /// Reads the number of variables at `rest`, which the variables follow.
    pub(crate) fn take(shared: Shared<'a>, mut rest: Cursor<'a>) -> Option<Self> {
        let count = rest.number()?.try_into().ok()?;
        Some(Self { shared, count, rest })
    }

    /// Checks that every variable can be read, and every copy. Returns the number of bytes that follow the last.
    ///
    /// The variables of the copies are taken from `budget`: they may take no bytes in a copy, so that reading them
    /// could take much longer than the table is.
    pub(crate) fn check(self, budget: &mut usize) -> Option<usize> {
        let mut copies = self.copies()?;
        for _ in 0..copies.count {
            *budget = budget.checked_sub(copies.copy()?.names.0)?;
        }
        Some(copies.rest.0.len())
    }

    /// Returns the copies that are inlined into the function, which follow its variables.
    pub(crate) fn copies(mut self) -> Option<Copies<'a>> {
        (0..self.count).try_for_each(|_| self.variable().map(drop))?;
        let count = self.rest.number()?.try_into().ok()?;
        Some(Copies { shared: self.shared, count, start: 0, rest: self.rest })
    }

    fn variable(&mut self) -> Option<Variable<'a>> {
        let (shared, rest) = (self.shared, &mut self.rest);
        let (name, of) = (shared.name(rest.word()?)?, shared.id(rest.word()?)?);
        let head = rest.number()?;
        let scope = (head >> 1, *rest);
        skip_stretches(scope.0, 0, rest)?;
        let places = (rest.number()?, *rest);
        skip_places(&shared, places.0, 0, rest)?;
        Some(Variable { shared, name, of, is_argument: head & 1 == 1, scope, places })
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
        let (count, rest) = self.scope;
        if count > 0 && !is_in(count, rest, 0, offset) {
            return None;
        }
        let (count, rest) = self.places;
        Some(Argument { name: self.name, of: self.of, place: place_at(&self.shared, count, rest, 0, offset)? })
    }
}

/// Returns the place at the instruction `offset` among `count` stretches with a place. The first stretch counts from
/// `start`.
fn place_at<'a>(shared: &Shared<'a>, count: u64, mut rest: Cursor<'a>, start: u32, offset: u32) -> Option<ValuePlace> {
    let (mut unknown, mut end) = (Unknown::OptimizedOut, start);
    for _ in 0..count {
        let stretch = Stretch::read(end, &mut rest)?;
        let place = shared.place(&mut rest)?;
        if stretch.has(offset) {
            return Some(place);
        }
        // The next stretch after the instruction, or the last before it.
        if end <= offset {
            unknown = Unknown::Elsewhere { from: stretch.from, to: stretch.to };
        }
        end = stretch.to;
    }
    Some(ValuePlace::Unknown(unknown))
}

/// The copies of other functions in a function. A copy comes after those that contain it.
#[derive(Clone, Debug)]
pub struct Copies<'a> {
    shared: Shared<'a>,
    count: usize,
    /// The start of the last copy.
    start: u32,
    rest: Cursor<'a>,
}

/// An inlined copy.
#[derive(Clone, Copy, Debug)]
pub struct InlinedCopy<'a> {
    shared: Shared<'a>,
    /// The offset of its first instruction from the entry of the function that contains it, in bytes.
    pub start: u32,
    /// The [`hash`](crate::hash) of the demangled name of the copied function.
    pub hash: u16,
    /// The number of stretches of its instructions, and their record.
    instructions: (u64, Cursor<'a>),
    /// The number of variables of the copied function, and their record there.
    names: (usize, Cursor<'a>),
    /// The record of the variables of this copy.
    variables: Cursor<'a>,
}

/// A variable of an inlined copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyVariable<'a> {
    /// The name.
    pub name: &'a str,
    /// Whether it is an argument, and not a local.
    pub is_argument: bool,
    /// The type; `None` if no copy of the function has the variable.
    of: Option<TypeId>,
    /// The scope and the places in the copy; `None` if the copy does not have the variable.
    stored: Option<Stored<'a>>,
}

/// The scope and the places of a variable in a copy.
#[derive(Clone, Copy, Debug)]
struct Stored<'a> {
    /// The number of stretches of the scope, or 0 for the whole copy, and their record.
    scope: (u64, Cursor<'a>),
    places: ValuePlaces<'a>,
}

#[derive(Clone, Copy, Debug)]
enum ValuePlaces<'a> {
    /// One place in the whole scope.
    Whole(ValuePlace),
    /// The number of stretches with a place, and their record.
    Stretches(u64, Cursor<'a>),
}

/// Skips `count` stretches. The first counts from `start`.
fn skip_stretches(count: u64, start: u32, rest: &mut Cursor<'_>) -> Option<()> {
    let mut end = start;
    for _ in 0..count {
        end = Stretch::read(end, rest)?.to;
    }
    Some(())
}

/// Skips `count` stretches with a place. The first counts from `start`.
fn skip_places<'a>(shared: &Shared<'a>, count: u64, start: u32, rest: &mut Cursor<'a>) -> Option<()> {
    let mut end = start;
    for _ in 0..count {
        end = Stretch::read(end, rest)?.to;
        shared.place(rest)?;
    }
    Some(())
}

/// Whether one of `count` stretches has the instruction `offset`. The first counts from `start`.
fn is_in(count: u64, mut rest: Cursor<'_>, start: u32, offset: u32) -> bool {
    let mut end = start;
    for _ in 0..count {
        let Some(stretch) = Stretch::read(end, &mut rest) else { return false };
        if stretch.has(offset) {
            return true;
        }
        end = stretch.to;
    }
    false
}

impl<'a> Copies<'a> {
    fn copy(&mut self) -> Option<InlinedCopy<'a>> {
        let (shared, rest) = (self.shared, &mut self.rest);
        let head = rest.word()?;
        self.start = self.start.checked_add((head >> 1).checked_mul(4)?)?;
        let count = if head & 1 == 1 { rest.number()? } else { 1 };
        let instructions = (count, *rest);
        skip_stretches(instructions.0, self.start, rest)?;
        let mut record = shared.inlined(rest.word()?)?;
        let hash = u16::from_le_bytes(*record.bytes(2)?.first_chunk()?);
        let count = usize::try_from(record.number()?).ok().filter(|&count| count <= COPY_VARIABLES_MAX)?;
        let names = (count, record);
        let mut copy = InlinedCopy { shared, start: self.start, hash, instructions, names, variables: *rest };
        let mut all = copy.all();
        for _ in 0..names.0 {
            all.variable()?;
        }
        self.rest = all.rest;
        copy.variables.0 = copy.variables.0.get(..copy.variables.0.len() - self.rest.0.len())?;
        Some(copy)
    }
}

impl<'a> Iterator for Copies<'a> {
    type Item = InlinedCopy<'a>;

    fn next(&mut self) -> Option<InlinedCopy<'a>> {
        self.count = self.count.checked_sub(1)?;
        self.copy()
    }
}

/// The variables of a copy that are still to be read.
#[derive(Clone, Debug)]
struct CopyVariables<'a> {
    copy: InlinedCopy<'a>,
    count: usize,
    names: Cursor<'a>,
    rest: Cursor<'a>,
}

impl<'a> CopyVariables<'a> {
    fn variable(&mut self) -> Option<CopyVariable<'a>> {
        let (shared, start) = (self.copy.shared, self.copy.start);
        let name = shared.name(self.names.word()?)?;
        let about = self.names.number()?;
        let is_argument = about & 1 == 1;
        let of = match about >> 1 {
            // No copy has the variable.
            0 => return Some(CopyVariable { name, is_argument, of: None, stored: None }),
            of => Some(shared.id(u32::try_from(of - 1).ok()?)?),
        };
        let rest = &mut self.rest;
        let stored = match rest.number()?.checked_sub(1) {
            None => None,
            Some(head) => {
                let mut scope = (0, *rest);
                if head & 1 == 1 {
                    scope = (rest.number()?, *rest);
                    skip_stretches(scope.0, start, rest)?;
                }
                let places = match (head >> 1).checked_sub(1) {
                    None => ValuePlaces::Whole(shared.place(rest)?),
                    Some(count) => {
                        let stretches = ValuePlaces::Stretches(count, *rest);
                        skip_places(&shared, count, start, rest)?;
                        stretches
                    }
                };
                Some(Stored { scope, places })
            }
        };
        Some(CopyVariable { name, is_argument, of, stored })
    }
}

impl<'a> Iterator for CopyVariables<'a> {
    type Item = CopyVariable<'a>;

    fn next(&mut self) -> Option<CopyVariable<'a>> {
        self.count = self.count.checked_sub(1)?;
        self.variable()
    }
}

impl<'a> InlinedCopy<'a> {
    /// Returns whether the instruction `offset` bytes after the entry of the containing function is one of the copy.
    #[must_use]
    pub fn has(&self, offset: u32) -> bool {
        is_in(self.instructions.0, self.instructions.1, self.start, offset)
    }

    /// Returns the variables of the copied function, whether the copy has them or not. The variables of a block come
    /// after those of the blocks around it.
    pub fn variables(&self) -> impl Iterator<Item = CopyVariable<'a>> + Clone + use<'a> {
        self.all()
    }

    fn all(&self) -> CopyVariables<'a> {
        CopyVariables { copy: *self, count: self.names.0, names: self.names.1, rest: self.variables }
    }

    /// Returns the variable that `name` means at the instruction `offset` bytes after the entry of the containing
    /// function, among arguments or among locals; `None` if the copied function has none of this name in scope there.
    ///
    /// A variable that the copy does not have may hide another one of its name, so both are unknown. One without a name
    /// stands for all variables of a function that has too many.
    ///
    /// # Errors
    ///
    /// The inner error is the reason for which its place is unknown.
    #[must_use]
    pub fn find(&self, name: &str, is_argument: bool, offset: u32) -> Option<Result<Argument<'a>, Unknown>> {
        let is_meant =
            |one: &CopyVariable<'a>| one.name.is_empty() || one.is_argument == is_argument && one.name == name;
        self.variables().filter(is_meant).filter_map(|one| one.at(self, offset)).last()
    }
}

impl<'a> CopyVariable<'a> {
    /// Returns the variable, which is one of `copy`, at the instruction `offset` bytes after the entry of the function
    /// that contains the copy; `None` if that is outside of its scope.
    ///
    /// # Errors
    ///
    /// The inner error is the reason for which its place is unknown.
    #[must_use]
    pub fn at(&self, copy: &InlinedCopy<'a>, offset: u32) -> Option<Result<Argument<'a>, Unknown>> {
        let (Some(of), Some(Stored { scope: (count, scope), places })) = (self.of, self.stored) else {
            return Some(Err(Unknown::OptimizedOut));
        };
        if count > 0 && !is_in(count, scope, copy.start, offset) {
            return None;
        }
        if !copy.has(offset) {
            return Some(Err(Unknown::OptimizedOut));
        }
        let place = match places {
            ValuePlaces::Whole(place) => place,
            ValuePlaces::Stretches(count, rest) => place_at(&copy.shared, count, rest, copy.start, offset)?,
        };
        Some(match place {
            ValuePlace::Unknown(why) => Err(why),
            place => Ok(Argument { name: self.name, of, place }),
        })
    }
}
