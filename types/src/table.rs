//! The reader of tables. Every number is checked before use. [`Types::parse`] reads everything once; later reads apply
//! the same checks again.

use core::fmt;

use kprobes_symbols::frame::{self, Defect};
use zerocopy::FromBytes;

use crate::lines::{self, Lines};
use crate::model::{Declaration, Flavor, Form, Tag, TypeId, TypeKind, Unknown, ValuePlace};
use crate::record::Cursor;
use crate::shared::{Argument, Shared};
use crate::variables::{Copies, Variables};
use crate::{HEADER_WORDS, INLINED, LINES, MAGIC, PARTS, VARIABLES, VERSION, VTABLES};

/// How many variables of copies a table may have for each byte of its lists of variables. A variable that no copy has
/// takes no byte there. Compilers leave out many variables, but in no image as many as this.
const VISITS_OF_BYTE: usize = 8;

/// Why bytes are not a table of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypesError {
    /// There are no bytes, or they do not begin with the magic of a table.
    Absent,
    /// The bytes begin like a table, which has this defect.
    Defect(Defect),
}

impl fmt::Display for TypesError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => write!(out, "there is no table of types after the symbols of the image"),
            Self::Defect(defect) => write!(out, "the table of types {defect}"),
        }
    }
}

impl core::error::Error for TypesError {}

impl From<Defect> for TypesError {
    fn from(defect: Defect) -> Self {
        Self::Defect(defect)
    }
}

/// A table of types, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types<'a> {
    shared: Shared<'a>,
    /// The offset of each function, and the offset of its record, in ascending order.
    functions: &'a [[u32; 2]],
    function_records: &'a [u8],
    type_records: &'a [u8],
    lines: lines::Parts<'a>,
    /// The offset of each vtable, and the number of the type whose methods are in it, in ascending order.
    vtables: &'a [[u32; 2]],
    /// The offset of the variables of each function.
    variables: &'a [u32],
    variable_records: &'a [u8],
}

/// The signature of a function.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    types: Types<'a>,
    declaration: Option<Declaration>,
    count: usize,
    rest: Cursor<'a>,
}

/// A type.
#[derive(Clone, Debug)]
pub struct Type<'a> {
    /// The name that the compiler gives it, without the paths of modules.
    pub name: &'a str,
    /// The path of the module that declares an enum; empty for another type.
    pub module: &'a str,
    /// The size in bytes.
    pub size: u64,
    /// The kind, with everything that depends on it.
    pub kind: TypeKind<TypeId, Members<'a>, Variants<'a>, Enumerators<'a>>,
}

impl Type<'_> {
    /// Whether the type is an integer of one byte, as the elements of a C string are.
    #[must_use]
    pub fn is_byte(&self) -> bool {
        self.size == 1 && matches!(self.kind, TypeKind::Integer { .. })
    }

    /// Returns the number of members, variants or enumerators of the type.
    fn items(&self) -> usize {
        match &self.kind {
            TypeKind::Struct { members, .. } => members.count,
            TypeKind::Variants { variants, .. } => variants.count,
            TypeKind::Enumeration { enumerators, .. } => enumerators.count,
            _ => 0,
        }
    }
}

/// A member of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The name or number.
    pub name: &'a str,
    /// The offset in the struct, in bytes.
    pub offset: u32,
    /// The type.
    pub of: TypeId,
}

/// A variant of an enum with fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant<'a> {
    /// The name.
    pub name: &'a str,
    /// The value of the tag; `None` for the variant that all remaining values stand for.
    pub value: Option<u64>,
    /// The struct of its fields, with offsets in the enum.
    pub of: TypeId,
}

/// A variant of an enum without fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator<'a> {
    /// The name.
    pub name: &'a str,
    /// The value, in as many bytes as the type has.
    pub value: u64,
}

/// Defines an iterator over a list in a record.
macro_rules! list {
    ($(#[$doc:meta])* $list:ident, $item:ident, $next:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $list<'a> {
            shared: Shared<'a>,
            count: usize,
            rest: Cursor<'a>,
        }

        impl<'a> $list<'a> {
            /// Takes the list that begins at `rest`, and advances `rest` to what follows it.
            fn take(shared: Shared<'a>, rest: &mut Cursor<'a>) -> Option<Self> {
                let count = rest.number()?.try_into().ok()?;
                let list = Self { shared, count, rest: *rest };
                let mut items = list.clone();
                for _ in 0..count {
                    items.$next()?;
                }
                *rest = items.rest;
                Some(list)
            }
        }

        impl<'a> Iterator for $list<'a> {
            type Item = $item<'a>;

            fn next(&mut self) -> Option<$item<'a>> {
                self.count = self.count.checked_sub(1)?;
                self.$next()
            }
        }
    };
}

list!(
    /// The members of a struct, in the order of their declaration.
    Members, Member, member
);
list!(
    /// The variants of an enum with fields.
    Variants, Variant, variant
);
list!(
    /// The variants of an enum without fields.
    Enumerators, Enumerator, enumerator
);

impl<'a> Members<'a> {
    fn member(&mut self) -> Option<Member<'a>> {
        let name = self.shared.name(self.rest.word()?)?;
        Some(Member { name, offset: self.rest.word()?, of: self.shared.id(self.rest.word()?)? })
    }
}

impl<'a> Variants<'a> {
    fn variant(&mut self) -> Option<Variant<'a>> {
        let name = self.shared.name(self.rest.word()?)?;
        let value = match self.rest.number()? {
            0 => None,
            1 => Some(self.rest.number()?),
            _ => return None,
        };
        Some(Variant { name, value, of: self.shared.id(self.rest.word()?)? })
    }
}

impl<'a> Enumerators<'a> {
    fn enumerator(&mut self) -> Option<Enumerator<'a>> {
        Some(Enumerator { name: self.shared.name(self.rest.word()?)?, value: self.rest.number()? })
    }
}

impl<'a> Function<'a> {
    /// Returns the place of the function in the source; `None` if the debugging information does not tell it.
    #[must_use]
    pub fn declaration(&self) -> Option<Declaration> {
        self.declaration
    }

    /// Returns the arguments, in the order of their declaration.
    pub fn arguments(&self) -> impl Iterator<Item = Argument<'a>> + Clone + use<'a> {
        let Self { types: Types { shared, .. }, count, mut rest, .. } = *self;
        (0..count).map_while(move |_| shared.argument(&mut rest))
    }

    /// Returns the result; `None` if the record is inconsistent.
    #[must_use]
    pub fn returned(&self) -> Option<Argument<'a>> {
        let Self { types: Types { shared, .. }, count, mut rest, .. } = *self;
        (0..count).try_for_each(|_| shared.argument(&mut rest).map(drop))?;
        let of = shared.id(rest.word()?)?;
        Some(Argument { name: "", of, place: shared.place(&mut rest)? })
    }
}

/// The signature without the name, as in `fn(self: &Disk, block: u64) -> Result<(), Error>`. An argument that is
/// unknown at the entry is followed by the reason, in parentheses.
impl fmt::Display for Function<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |of: TypeId| self.types.get(of).map_or("?", |of| of.name);
        out.write_str("fn(")?;
        for (number, argument) in self.arguments().enumerate() {
            out.write_str(if number > 0 { ", " } else { "" })?;
            let own = if argument.name.is_empty() { "_" } else { argument.name };
            write!(out, "{own}: {}", name(argument.of))?;
            match argument.place {
                ValuePlace::Unknown(Unknown::OptimizedOut) => out.write_str(" (optimised out)")?,
                ValuePlace::Unknown(_) => out.write_str(" (unknown at the entry)")?,
                _ => {}
            }
        }
        out.write_str(")")?;
        match self.returned() {
            Some(returned) if name(returned.of) != "()" => write!(out, " -> {}", name(returned.of)),
            _ => Ok(()),
        }
    }
}

impl<'a> Types<'a> {
    /// Parses the table at the start of `bytes`, and ignores what follows it.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a complete, aligned, intact and consistent table. The whole table is checked here.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TypesError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(TypesError::Absent);
        }
        let (header, table) = frame::open::<HEADER_WORDS>(bytes, VERSION)?;
        let [.., count, base_low, base_high] = header;
        let (words, _) = table.as_chunks::<4>();
        let parts = words.get(HEADER_WORDS..).unwrap_or_default();
        let part = |wanted: u32| {
            let (parts, _) = parts.as_chunks::<3>();
            let parts = parts.get(..count as usize)?.iter().map(|part| part.map(u32::from_le_bytes));
            let [_, start, length] = parts.clone().find(|[kind, ..]| *kind == wanted)?;
            table.get(start as usize..)?.get(..length as usize)
        };
        let base = u64::from(base_low) | u64::from(base_high) << 32;
        let inlined = part(INLINED).unwrap_or_default();
        let variables = VARIABLES.map(part);
        let types = Self::of_parts(base, PARTS.map(part), LINES.map(part), part(VTABLES), variables, inlined);
        let types = types.ok_or(Defect::Inconsistent { part: "its parts" })?;
        types.check()?;
        Ok(types)
    }

    fn of_parts(
        base: u64,
        parts: [Option<&'a [u8]>; 7],
        lines: [Option<&'a [u8]>; 3],
        vtables: Option<&'a [u8]>,
        variables: [Option<&'a [u8]>; 2],
        inlined: &'a [u8],
    ) -> Option<Self> {
        let [variables, variable_records] = variables.map(Option::unwrap_or_default);
        let [functions, function_records, types, type_records, places, names, text] = parts;
        let lines = match lines {
            [Some(blocks), Some(rows), Some(files)] => lines::Parts {
                blocks: FromBytes::ref_from_bytes(blocks).ok()?,
                rows,
                files: FromBytes::ref_from_bytes(files).ok()?,
            },
            _ => lines::Parts::default(),
        };
        let shared = Shared {
            base,
            types: FromBytes::ref_from_bytes(types?).ok()?,
            places: places?,
            names: FromBytes::ref_from_bytes(names?).ok()?,
            text: text?,
            inlined,
        };
        Some(Self {
            shared,
            functions: FromBytes::ref_from_bytes(functions?).ok()?,
            function_records: function_records?,
            type_records: type_records?,
            lines,
            vtables: FromBytes::ref_from_bytes(vtables.unwrap_or_default()).ok()?,
            variables: FromBytes::ref_from_bytes(variables).ok()?,
            variable_records,
        })
    }

    /// Checks that every record can be read.
    fn check(&self) -> Result<(), Defect> {
        let part = |part| Defect::Inconsistent { part };
        // In a list in ascending order, the last address is the highest.
        let is_in_memory = |items: &[[u32; 2]]| {
            items.last().is_none_or(|[offset, _]| self.shared.base.checked_add(u32::from_le(*offset).into()).is_some())
        };
        // Each item takes a byte at least, so records that do not overlap have no more items than bytes. So the time of
        // the check is proportional to their length.
        let mut budget = self.type_records.len();
        for number in 0..self.shared.types.len() {
            let of = self.get(TypeId(number as u32)).ok_or(part("a type"))?;
            budget = budget.checked_sub(of.items()).ok_or(part("a type"))?;
        }
        if !self.functions.is_sorted_by(is_before) || !is_in_memory(self.functions) {
            return Err(part("the order of its functions"));
        }
        let mut budget = self.function_records.len();
        for function in self.functions {
            let function = self.record(function).filter(|function| function.returned().is_some());
            let left = function.and_then(|function| budget.checked_sub(function.count));
            budget = left.ok_or(part("a function"))?;
        }
        let is_known = |[_, of]: &[u32; 2]| self.shared.id(u32::from_le(*of)).is_some();
        let are_ordered = self.vtables.is_sorted_by(is_before) && is_in_memory(self.vtables);
        if !are_ordered || !self.vtables.iter().all(is_known) {
            return Err(part("its vtables"));
        }
        if !self.variables.is_empty() && self.variables.len() != self.functions.len() {
            return Err(part("the number of its lists of variables"));
        }
        // Lists that follow each other take no longer to check than they are long.
        let mut end = 0;
        let mut budget = VISITS_OF_BYTE * self.variable_records.len();
        for (number, at) in self.variables.iter().enumerate() {
            let length = self.variables_of(number).filter(|_| u32::from_le(*at) as usize >= end);
            let left = length.and_then(|list| list.check(&mut budget)).ok_or(part("a variable"))?;
            end = self.variable_records.len() - left;
        }
        if let Some(lines) = self.lines() {
            lines.check().ok_or(part("its lines"))?;
        }
        Ok(())
    }

    /// Returns the source lines; `None` if the table has none.
    #[must_use]
    pub fn lines(&self) -> Option<Lines<'a>> {
        Lines::of(self.shared, self.lines)
    }

    /// Returns the number of functions in the table.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Returns the number of types in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.types.len()
    }

    /// Whether the table has no type.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.types.is_empty()
    }

    /// Returns the function that begins at the virtual address `address`.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<Function<'a>> {
        self.record(self.at(self.functions, address)?)
    }

    /// Returns the variables of the function that begins at the virtual address `function`; `None` if the table does
    /// not have them.
    #[must_use]
    pub fn variables(&self, function: u64) -> Option<Variables<'a>> {
        self.variables_of(self.position(self.functions, function)?)
    }

    /// Returns the copies of other functions in the function that begins at the virtual address `function`; `None` if
    /// the table does not have its variables.
    #[must_use]
    pub fn copies(&self, function: u64) -> Option<Copies<'a>> {
        self.variables(function)?.copies()
    }

    fn variables_of(&self, number: usize) -> Option<Variables<'a>> {
        let at = u32::from_le(*self.variables.get(number)?);
        Variables::take(self.shared, Cursor(self.variable_records.get(at as usize..)?))
    }

    /// Returns the type whose methods are in the vtable at the virtual address `vtable`.
    #[must_use]
    pub fn implementor(&self, vtable: u64) -> Option<TypeId> {
        let [_, of] = self.at(self.vtables, vtable)?;
        self.shared.id(u32::from_le(*of))
    }

    /// Returns the item of a list of functions or vtables for the virtual address `address`.
    fn at(&self, items: &'a [[u32; 2]], address: u64) -> Option<&'a [u32; 2]> {
        items.get(self.position(items, address)?)
    }

    fn position(&self, items: &[[u32; 2]], address: u64) -> Option<usize> {
        let wanted = u32::try_from(address.checked_sub(self.shared.base)?).ok()?;
        items.binary_search_by_key(&wanted, |[offset, _]| u32::from_le(*offset)).ok()
    }

    fn record(&self, [_, at]: &[u32; 2]) -> Option<Function<'a>> {
        let mut rest = Cursor(self.function_records.get(u32::from_le(*at) as usize..)?);
        let declaration = match rest.word()? {
            0 => None,
            file => Some(self.declaration(file - 1, &mut rest)?),
        };
        let count = rest.number()?.try_into().ok()?;
        Some(Function { types: *self, declaration, count, rest })
    }

    fn declaration(&self, file: u32, rest: &mut Cursor<'a>) -> Option<Declaration> {
        self.lines.files.get(file as usize)?;
        let (line, more) = (rest.word()?, rest.word()?);
        line.checked_add(more)?;
        Some(Declaration { file, line, more })
    }

    /// Returns the member of a struct that has bytes, if there is exactly one.
    #[must_use]
    pub fn only_member(&self, of: &Type<'a>) -> Option<Member<'a>> {
        let TypeKind::Struct { members, .. } = of.kind.clone() else { return None };
        let mut sized = members.filter(|member| self.get(member.of).is_some_and(|member| member.size > 0));
        sized.next().filter(|_| sized.next().is_none())
    }

    /// Returns a type; `None` if it does not exist.
    #[must_use]
    pub fn get(&self, id: TypeId) -> Option<Type<'a>> {
        let at = u32::from_le(*self.shared.types.get(id.0 as usize)?);
        let mut rest = Cursor(self.type_records.get(at as usize..)?);
        let shared = self.shared;
        let (name, module) = (shared.name(rest.word()?)?, shared.name(rest.word()?)?);
        let size = rest.number()?;
        let rest = &mut rest;
        let flag = |rest: &mut Cursor<'a>| match rest.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let id = |rest: &mut Cursor<'a>| shared.id(rest.word()?);
        let kind = match rest.number()? {
            0 => TypeKind::Opaque,
            1 => TypeKind::Unit,
            2 => TypeKind::Bool,
            3 => TypeKind::Char,
            4 => TypeKind::Integer { signed: flag(rest)? },
            5 => TypeKind::Float,
            6 => TypeKind::Function,
            7 => {
                let flavor = match rest.number()? {
                    0 => Flavor::Reference,
                    1 => Flavor::Shared,
                    2 => Flavor::Raw,
                    _ => return None,
                };
                TypeKind::Pointer { flavor, target: id(rest)?, at: rest.word()? }
            }
            8 => TypeKind::Sequence {
                element: id(rest)?,
                is_text: flag(rest)?,
                data: rest.word()?,
                length: rest.word()?,
            },
            9 => TypeKind::Dynamic { data: rest.word()?, vtable: rest.word()? },
            10 => TypeKind::Array { element: id(rest)?, count: rest.number()? },
            11 => {
                let form = if flag(rest)? { Form::Tuple } else { Form::Named };
                TypeKind::Struct { form, members: Members::take(shared, rest)? }
            }
            12 => TypeKind::Wrapper { target: id(rest)?, at: rest.word()? },
            13 => TypeKind::Enumeration { signed: flag(rest)?, enumerators: Enumerators::take(shared, rest)? },
            14 => {
                let tag = match flag(rest)? {
                    false => None,
                    true => {
                        let (offset, bytes) = (rest.word()?, rest.word()?);
                        matches!(bytes, 1 | 2 | 4 | 8).then_some(Some(Tag { offset, bytes: bytes as u8 }))?
                    }
                };
                TypeKind::Variants { tag, variants: Variants::take(shared, rest)? }
            }
            15 => TypeKind::Object { data: rest.word()?, vtable: rest.word()? },
            _ => return None,
        };
        Some(Type { name, module, size, kind })
    }
}

/// Whether an item with an offset comes before another, which has another offset.
fn is_before([one, _]: &[u32; 2], [next, _]: &[u32; 2]) -> bool {
    u32::from_le(*one) < u32::from_le(*next)
}

#[cfg(test)]
mod tests;
