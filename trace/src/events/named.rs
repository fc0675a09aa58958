//! The names in the arguments of an event: where the table of types locates their values, and which types of
//! `kprobe_events` the values get. Linux takes this from BTF.
//!
//! A path is followed as in a program, without reading the value. Fields are found through references, pointers, `Box`,
//! `Rc`, `Arc`, `Pin` and structs around a single value, so `->` and `.` mean the same. The result is what
//! `+OFFSET(%REG)` would fetch.

use alloc::vec::Vec;
use core::fmt;

use kprobes_types::{Argument as Passed, Flavor, Function, Type as Rust, TypeId, TypeKind as Shape, Types, ValuePlace};

use super::ResolveError;
use super::resolve;
use crate::definition::{
    self, ARGUMENT_NAME_MAX, ARGUMENTS_MAX, Argument, Definition, EventKind, Named, Origin, Problem, is_name,
};
use crate::fetch::{BitRange, Fetch, RecordedPart, Register, Source};
use crate::format::{Base, Type, Width};
use crate::recorder::EntryValue;
use crate::symbols::Symbols;

/// The largest number of pointers and wrappers that are followed to a value. The limit is needed because a type may
/// lead to itself.
const STEPS_MAX: usize = 16;
/// The number of registers that hold arguments (AAPCS64, section 6.8.2, stage C.9). Further arguments are on the
/// caller's stack, if each takes a word. `$argN` may always name the registers, even if the function has fewer
/// arguments.
pub(super) const REGISTERS: u32 = 8;

/// Why a name is refused, and the number of characters of the expression before the cause.
#[derive(Debug)]
pub(super) struct ArgumentError {
    error: ResolveError,
    at: usize,
}

impl ArgumentError {
    fn new(problem: Problem, at: usize, reason: impl fmt::Display) -> Self {
        Self { error: ResolveError::new(problem, reason), at }
    }

    fn bare(problem: Problem, at: usize) -> Self {
        Self { error: problem.into(), at }
    }
}

impl From<ArgumentError> for ResolveError {
    fn from(error: ArgumentError) -> Self {
        error.error
    }
}

impl From<fallible::OutOfMemory> for ArgumentError {
    fn from(error: fallible::OutOfMemory) -> Self {
        Self { error: error.into(), at: 0 }
    }
}

/// The signature of a function, from the table of types.
pub(super) struct Signature<'a> {
    types: Types<'a>,
    function: Function<'a>,
    is_return: bool,
}

/// Where a value is located.
#[derive(Debug)]
enum Spot {
    /// In what a call passes or returns, at this byte offset.
    Passed(ValuePlace, u64),
    /// In memory, at this byte offset from the address that the reads yield.
    Memory(Source, Vec<i64>, u64),
}

impl Spot {
    fn at(self, offset: u64) -> Self {
        match self {
            Self::Passed(place, at) => Self::Passed(place, at.wrapping_add(offset)),
            Self::Memory(source, reads, at) => Self::Memory(source, reads, at.wrapping_add(offset)),
        }
    }

    fn copy(&self) -> Result<Self, fallible::OutOfMemory> {
        Ok(match self {
            Self::Passed(place, at) => Self::Passed(*place, *at),
            Self::Memory(source, reads, at) => {
                Self::Memory(source.try_copy()?, fallible::collect(reads.iter().copied())?, *at)
            }
        })
    }
}

/// A value that is located but not read yet.
struct Value {
    of: TypeId,
    spot: Spot,
}

/// A value in the form that an event can record.
enum Scalar {
    /// A number: its location, its size in bytes, and the type that it gets.
    Number(Spot, u64, Base),
    /// A text: the locations of its address and of its length.
    Text(Spot, Spot),
    /// Neither a number nor a text.
    Other(Value),
}

/// Gives each argument by name its type from the table, unless the definition has one, and replaces `$arg*` by the
/// arguments of the function.
pub(super) fn settle(definition: &mut Definition, symbols: &dyn Symbols) -> Result<(), definition::Error> {
    let asks = |argument: &Argument| match argument.expression.origin {
        Origin::Named(_) | Origin::Arguments | Origin::ReturnValue => true,
        Origin::Argument(number) => number >= REGISTERS,
        _ => false,
    };
    if !definition.arguments.iter().any(asks) {
        return Ok(());
    }
    let signature = Signature::of(definition, symbols)
        .map_err(|ResolveError { problem, reason }| definition.error(1, problem, reason))?;
    expand(definition, signature.as_ref())?;
    for number in 0..definition.arguments.len() {
        if let Some(argument) = definition.arguments.get_mut(number) {
            name_result(argument, signature.as_ref())?;
        }
        let Some(argument) = definition.arguments.get(number) else { break };
        let kind = kind(argument, signature.as_ref());
        let kind = kind.map_err(|ArgumentError { error: ResolveError { problem, reason }, at }| {
            definition.error_in(number, at, problem, reason)
        })?;
        if let (Some(kind), Some(argument)) = (kind, definition.arguments.get_mut(number)) {
            argument.kind = kind;
        }
    }
    Ok(())
}

/// Replaces `$arg*` by the arguments of the function. It leaves out arguments that are not a single value or have no
/// known location.
fn expand(definition: &mut Definition, signature: Option<&Signature<'_>>) -> Result<(), definition::Error> {
    let is_all = |argument: &Argument| argument.expression.origin == Origin::Arguments;
    let Some(at) = definition.arguments.iter().position(is_all) else { return Ok(()) };
    let Some(signature) = signature.filter(|signature| signature.function.arguments().next().is_some()) else {
        return Err(definition.error_in(at, 0, Problem::NoArguments, None));
    };
    let mut arguments = Vec::new();
    for passed in
        signature.function.arguments().filter(|passed| is_name(passed.name) && passed.name.len() <= ARGUMENT_NAME_MAX)
    {
        let argument = Argument::of_name(passed.name)?;
        match kind(&argument, Some(signature)) {
            Ok(_) => {}
            Err(ArgumentError { error: ResolveError { problem: Problem::OutOfMemory, .. }, .. }) => {
                return Err(fallible::OutOfMemory.into());
            }
            Err(_) => continue,
        }
        if definition.arguments.iter().any(|other| other.name == argument.name) {
            return Err(definition.error_in(at, 0, Problem::UsedArgumentName, None));
        }
        fallible::push(&mut arguments, argument)?;
    }
    if arguments.is_empty() {
        let reason =
            fallible::copy("none of its arguments is a single value that is known here; `list-probes -v` shows them")?;
        return Err(definition.error_in(at, 0, Problem::NoArgumentOfName, Some(reason)));
    }
    put_in_place(definition, at, arguments)
}

/// Replaces argument `at`, which is `$arg*`, by `arguments`.
pub(super) fn put_in_place(
    definition: &mut Definition,
    at: usize,
    arguments: Vec<Argument>,
) -> Result<(), definition::Error> {
    if definition.arguments.len() - 1 + arguments.len() > ARGUMENTS_MAX {
        return Err(definition.error_in(at, 0, Problem::TooManyArguments, None));
    }
    // Later arguments without a name of their own are numbered, and the inserted ones count.
    for number in at + 1..definition.arguments.len() {
        let is_named = definition.bodies.get(number).is_some_and(|&(_, before)| before > 0);
        let name = fallible::format(format_args!("arg{}", number + 1))?;
        let is_numbered = |argument: &&mut Argument| !is_named && argument.name == name;
        if let Some(argument) = definition.arguments.get_mut(number).filter(is_numbered) {
            argument.name = fallible::format(format_args!("arg{}", number + arguments.len()))?;
        }
    }
    let body = definition.bodies.get(at).copied().unwrap_or_default();
    let bodies = fallible::collect(arguments.iter().map(|_| body))?;
    replace(&mut definition.arguments, at, arguments)?;
    replace(&mut definition.bodies, at, bodies)?;
    let is_used = |(number, argument): (usize, &Argument)| {
        definition.arguments.iter().take(number).any(|other| other.name == argument.name)
    };
    match definition.arguments.iter().enumerate().any(is_used) {
        true => Err(definition.error_in(at, 0, Problem::UsedArgumentName, None)),
        false => Ok(()),
    }
}

/// Replaces one element of `all` by `others`.
fn replace<T>(all: &mut Vec<T>, at: usize, others: Vec<T>) -> Result<(), fallible::OutOfMemory> {
    all.try_reserve(others.len())?;
    drop(all.splice(at..=at, others));
    Ok(())
}

/// Turns `$retval` into a value by name, if its type is one that an event can record. Otherwise `$retval` stays the
/// value of x0.
fn name_result(argument: &mut Argument, signature: Option<&Signature<'_>>) -> Result<(), fallible::OutOfMemory> {
    let is_alone = argument.expression.origin == Origin::ReturnValue && argument.expression.reads.is_empty();
    let is_number = argument.has_type() && argument.kind.base != Base::String;
    let Some(signature) = signature.filter(|_| is_alone && !is_number) else { return Ok(()) };
    let named = Origin::Named(Named { argument: None, at: 0, fields: Vec::new() });
    let was = core::mem::replace(&mut argument.expression.origin, named);
    let problem = fetch(argument, Some(signature), &mut Vec::new()).err().map(|error| error.error.problem);
    match problem {
        Some(Problem::OutOfMemory) => return Err(fallible::OutOfMemory),
        Some(_) if !signature.is_in_memory() && !argument.has_type() => argument.expression.origin = was,
        _ => {}
    }
    Ok(())
}

/// Returns the type of an argument according to the table; `None` if the table does not determine it.
fn kind(argument: &Argument, signature: Option<&Signature<'_>>) -> Result<Option<Type>, ArgumentError> {
    let mut kept = Vec::new();
    Ok(match (&argument.expression.origin, signature) {
        (Origin::Named(_), _) => Some(fetch(argument, signature, &mut kept)?.1),
        (Origin::ReturnValue, Some(signature)) => {
            if signature.function.returned().is_some_and(|returned| returned.place == ValuePlace::Nothing) {
                return Err(ArgumentError::bare(Problem::NothingReturned, 0));
            }
            None
        }
        (Origin::ReturnValue, None) if argument.kind.base == Base::String && argument.expression.reads.is_empty() => {
            return Err(ArgumentError::bare(Problem::Text, argument.text.find(':').map_or(0, |at| at + 1)));
        }
        (Origin::Argument(number), Some(signature)) if *number >= signature.most_words()? => {
            return Err(ArgumentError::new(Problem::NoArgumentOfName, 0, "the function has fewer arguments"));
        }
        _ => None,
    })
}

/// Returns what an argument by name fetches, and the type of the result.
pub(super) fn fetch(
    argument: &Argument,
    signature: Option<&Signature<'_>>,
    kept: &mut Vec<EntryValue>,
) -> Result<(Fetch, Type), ArgumentError> {
    let Origin::Named(named) = &argument.expression.origin else {
        return Err(ArgumentError::bare(Problem::Argument, 0));
    };
    let Some(signature) = signature else {
        let at = named.fields.first().filter(|_| named.argument.is_none()).map_or(named.at, |(_, at)| *at);
        return Err(ArgumentError::bare(Problem::NoSignature, at));
    };
    let value = signature.named(named, kept)?;
    let wanted = argument.has_type().then_some(argument.kind);
    signature.part(argument, named, value, wanted, kept)
}

/// Returns the source of `value`, which a call passes or returns. If it `is_kept`, it is saved at the entry of the
/// function, and added to `kept` if it is not there yet.
pub(super) fn passed(
    value: EntryValue,
    is_kept: bool,
    kept: &mut Vec<EntryValue>,
) -> Result<Source, fallible::OutOfMemory> {
    match value {
        _ if is_kept => {}
        EntryValue::Register(register) => return Ok(Source::Register(register)),
        EntryValue::Stack(offset) => return Ok(Source::Stack(offset)),
    }
    let index = kept.iter().position(|other| *other == value).unwrap_or(kept.len());
    if index == kept.len() {
        fallible::push(kept, value)?;
    }
    Ok(Source::Entry(index as u16))
}

impl<'a> Signature<'a> {
    /// Returns the signature of the probed function; `None` for an address, or if the table does not have the function.
    pub fn of(definition: &Definition, symbols: &'a dyn Symbols) -> Result<Option<Self>, ResolveError> {
        let crate::definition::Base::Symbol(_) = definition.place.base else { return Ok(None) };
        let address = resolve::resolve(&definition.place, symbols)?;
        let is_return = matches!(definition.kind, EventKind::Return { .. });
        Ok(symbols.signature(address).map(|(types, function)| Self { types, function, is_return }))
    }

    fn get(&self, of: TypeId) -> Result<Rust<'a>, ArgumentError> {
        self.types.get(of).ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, 0))
    }

    /// Whether the function returns its result in memory.
    fn is_in_memory(&self) -> bool {
        self.function.returned().is_some_and(|returned| matches!(returned.place, ValuePlace::At(_)))
    }

    /// Returns the largest number of words that the arguments can take.
    fn most_words(&self) -> Result<u32, ArgumentError> {
        let mut words = REGISTERS;
        for (number, Passed { of, .. }) in self.function.arguments().enumerate() {
            // An argument takes two words at most. One with 128 bits may also skip a word for alignment.
            let most = if self.get(of)?.size > 8 { 3 } else { 1 };
            words = if number == 0 { most } else { words.saturating_add(most) };
        }
        Ok(words.max(REGISTERS))
    }

    /// Locates the value that `named` leads to.
    fn named(&self, named: &Named, kept: &mut Vec<EntryValue>) -> Result<Value, ArgumentError> {
        let mut value = match &named.argument {
            Some(name) => {
                let Some(found) = self.function.arguments().find(|one| one.name == name) else {
                    let names = Names(self.function.arguments().map(|one| one.name));
                    let reason = format_args!("the arguments are {names}");
                    return Err(ArgumentError::new(Problem::NoArgumentOfName, named.at, reason));
                };
                Value { of: found.of, spot: Spot::Passed(found.place, 0) }
            }
            None => {
                let returned =
                    self.function.returned().ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, named.at))?;
                if returned.place == ValuePlace::Nothing {
                    return Err(ArgumentError::bare(Problem::NothingReturned, named.at));
                }
                let spot = match returned.place {
                    // The caller passes the address at the entry.
                    ValuePlace::At(source) => Spot::Memory(self.source(source, true, named.at, kept)?, Vec::new(), 0),
                    place => Spot::Passed(place, 0),
                };
                Value { of: returned.of, spot }
            }
        };
        for (field, at) in &named.fields {
            value = self.field(value, field, named, *at, kept)?;
        }
        Ok(value)
    }

    /// Returns the source of a word that a call passes or returns. In a return probe, a word passed `at_entry` is saved
    /// there.
    fn source(
        &self,
        source: kprobes_types::Source,
        at_entry: bool,
        at: usize,
        kept: &mut Vec<EntryValue>,
    ) -> Result<Source, ArgumentError> {
        let place = match source {
            kprobes_types::Source::Lost => {
                return Err(ArgumentError::new(
                    Problem::NoArgumentOfName,
                    at,
                    "this part of the value is optimised out",
                ));
            }
            kprobes_types::Source::Register(number) => {
                EntryValue::Register(Register::x(number).ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, at))?)
            }
            kprobes_types::Source::Memory { register: kprobes_types::Source::STACK_POINTER, offset: offset @ 0.. } => {
                EntryValue::Stack(offset.cast_unsigned())
            }
            // No call passes anything there.
            kprobes_types::Source::Memory { .. }
            | kprobes_types::Source::Sum { .. }
            | kprobes_types::Source::Bits { .. } => {
                return Err(ArgumentError::bare(Problem::TypeInfo, at));
            }
        };
        Ok(passed(place, self.is_return && at_entry, kept)?)
    }

    /// Returns the word that contains `bytes` bytes at `offset` of the value at `place`, and the bit of the word at
    /// which they begin.
    fn word(
        &self,
        place: ValuePlace,
        offset: u64,
        bytes: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Source, u8), ArgumentError> {
        let no = |reason: &dyn fmt::Display| ArgumentError::new(Problem::NoArgumentOfName, named.at, reason);
        match place {
            ValuePlace::Words { .. } => {
                let part = place.part(offset, bytes);
                let part = part.ok_or_else(|| no(&"this part of the value is optimised out"))?;
                let bit = 8 * (offset - u64::from(part.offset)) as u8;
                Ok((self.source(part.source, named.argument.is_some(), named.at, kept)?, bit))
            }
            ValuePlace::Constant(value) => {
                Ok((Source::Immediate(value.checked_shr(8 * offset as u32).unwrap_or(0)), 0))
            }
            ValuePlace::Unknown(why) => Err(no(&why)),
            ValuePlace::Nothing | ValuePlace::At(_) | ValuePlace::Memory { .. } => Err(no(&"it has no bytes")),
        }
    }

    /// Turns the location of a value that is passed by address into one in memory. Other locations stay.
    fn memory(&self, spot: Spot, named: &Named, kept: &mut Vec<EntryValue>) -> Result<Spot, ArgumentError> {
        Ok(match spot {
            Spot::Passed(ValuePlace::At(source), offset) => {
                Spot::Memory(self.source(source, true, named.at, kept)?, Vec::new(), offset)
            }
            other => other,
        })
    }

    /// Locates the target of the pointer at `spot`, `behind` bytes after the address that the pointer holds.
    fn pointed(
        &self,
        spot: Spot,
        behind: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<Spot, ArgumentError> {
        Ok(match self.memory(spot, named, kept)? {
            Spot::Passed(place, offset) => {
                let (source, _) = self.word(place, offset, 8, named, kept)?;
                Spot::Memory(source, Vec::new(), behind)
            }
            Spot::Memory(source, mut reads, offset) => {
                fallible::push(&mut reads, small(offset)?)?;
                Spot::Memory(source, reads, behind)
            }
        })
    }

    /// Locates the field of this name, in the value or in what the value leads to.
    fn field(
        &self,
        value: Value,
        name: &str,
        named: &Named,
        at: usize,
        kept: &mut Vec<EntryValue>,
    ) -> Result<Value, ArgumentError> {
        let Value { mut of, mut spot } = value;
        let whole = self.get(of)?;
        for _ in 0..STEPS_MAX {
            let shape = self.get(of)?;
            let no_field = |names: &dyn fmt::Display| {
                ArgumentError::new(Problem::NoField, at, format_args!("the fields of {} are {names}", shape.name))
            };
            match shape.kind.clone() {
                Shape::Struct { members, .. } => {
                    if let Some(member) = members.clone().find(|member| member.name == name) {
                        return Ok(Value { of: member.of, spot: spot.at(member.offset.into()) });
                    }
                    let names = Names(members.map(|member| member.name));
                    let inner = self.types.only_member(&shape).ok_or_else(|| no_field(&names))?;
                    let is_way = |of: Rust<'_>| {
                        matches!(of.kind, Shape::Struct { .. } | Shape::Pointer { .. } | Shape::Wrapper { .. })
                    };
                    if !self.types.get(inner.of).is_some_and(is_way) {
                        return Err(no_field(&names));
                    }
                    (of, spot) = (inner.of, spot.at(inner.offset.into()));
                }
                Shape::Sequence { data, length, .. } => {
                    // `data_ptr` and `length` are the compiler's names. An address and a length get the type of a word.
                    return match name {
                        "data_ptr" => {
                            Ok(Value { of, spot: spot.at(data.into()) }).and_then(|value| self.as_word(value, at))
                        }
                        "length" => {
                            Ok(Value { of, spot: spot.at(length.into()) }).and_then(|value| self.as_word(value, at))
                        }
                        _ => Err(no_field(&"data_ptr and length")),
                    };
                }
                Shape::Variants { tag: None, mut variants } => {
                    of = variants.next().ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, at))?.of;
                }
                Shape::Variants { .. } => {
                    let reason = format_args!("{} is an enum, whose fields depend on its variant", shape.name);
                    return Err(ArgumentError::new(Problem::NoStruct, at, reason));
                }
                Shape::Pointer { target, at: behind, .. } => {
                    spot = self.pointed(spot, behind.into(), named, kept)?;
                    of = target;
                }
                Shape::Wrapper { target, at: within } => (of, spot) = (target, spot.at(within.into())),
                _ => {
                    return Err(ArgumentError::new(
                        Problem::NoStruct,
                        at,
                        format_args!("{} has no fields", whole.name),
                    ));
                }
            }
        }
        Err(ArgumentError::bare(Problem::TypeInfo, at))
    }

    /// Gives a value the type of a word, for the address and the length of a slice. The type is `usize` from the table,
    /// which every program with a slice has.
    fn as_word(&self, value: Value, at: usize) -> Result<Value, ArgumentError> {
        let word = (0..self.types.len()).map(|number| TypeId(number as u32)).find(|&of| {
            let is_word = |of: Rust<'_>| of.size == 8 && matches!(of.kind, Shape::Integer { signed: false });
            self.types.get(of).is_some_and(is_word)
        });
        Ok(Value { of: word.ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, at))?, ..value })
    }

    /// Reduces a value to the form that an event can record.
    fn scalar(&self, value: Value, named: &Named, kept: &mut Vec<EntryValue>) -> Result<Scalar, ArgumentError> {
        let Value { mut of, mut spot } = value;
        let mut is_behind = false;
        for _ in 0..STEPS_MAX {
            let shape = self.get(of)?;
            let bytes = shape.size;
            let width = Width::of_bytes(bytes);
            let base = match shape.kind.clone() {
                Shape::Integer { signed: true } | Shape::Enumeration { signed: true, .. } => width.map(Base::Signed),
                Shape::Integer { .. } | Shape::Enumeration { .. } | Shape::Bool | Shape::Char => {
                    width.map(Base::Unsigned)
                }
                Shape::Float => width.map(Base::Hexadecimal),
                Shape::Function if bytes == 8 => Some(Base::Symbol),
                Shape::Pointer { flavor, target, at } if bytes == 8 => {
                    // A reference to a text stands for the text; any other pointer is an address.
                    if flavor == Flavor::Raw || !self.leads_to_text(target) {
                        Some(Base::Hexadecimal(Width::W64))
                    } else {
                        spot = self.pointed(spot, at.into(), named, kept)?;
                        (of, is_behind) = (target, true);
                        continue;
                    }
                }
                Shape::Wrapper { target, at } => {
                    (of, spot) = (target, spot.at(at.into()));
                    continue;
                }
                Shape::Sequence { is_text: true, data, length, .. } => {
                    return Ok(Scalar::Text(spot.copy()?.at(data.into()), spot.at(length.into())));
                }
                Shape::Struct { .. } => match self.types.only_member(&shape) {
                    Some(inner) => {
                        (of, spot) = (inner.of, spot.at(inner.offset.into()));
                        continue;
                    }
                    None => None,
                },
                _ => None,
            };
            return Ok(match base {
                Some(base) if !is_behind => Scalar::Number(spot, bytes, base),
                _ => Scalar::Other(Value { of, spot }),
            });
        }
        Err(ArgumentError::bare(Problem::TypeInfo, named.at))
    }

    /// Whether a value of this type is a text, or a reference to one.
    fn leads_to_text(&self, of: TypeId) -> bool {
        let mut of = of;
        for _ in 0..STEPS_MAX {
            let Some(shape) = self.types.get(of) else { return false };
            of = match shape.kind {
                Shape::Sequence { is_text, .. } => return is_text,
                Shape::Pointer { flavor: Flavor::Reference | Flavor::Shared, target, .. }
                | Shape::Wrapper { target, .. } => target,
                _ => return false,
            };
        }
        false
    }

    /// Returns the error for a value of this type, which an event cannot record.
    fn no_value(&self, of: &Rust<'a>, id: TypeId, at: usize) -> ArgumentError {
        let no = |reason: &dyn fmt::Display| ArgumentError::new(Problem::NoOneValue, at, reason);
        let name = of.name;
        match self.types.get(id).map(|of| of.kind) {
            Some(Shape::Struct { members, .. }) => {
                let names = Names(members.map(|member| member.name));
                no(&format_args!("{name} has several values; its fields are {names}"))
            }
            Some(Shape::Sequence { .. }) => {
                no(&format_args!("{name} has several values; its fields are data_ptr and length"))
            }
            _ => no(&format_args!("{name} is not a single number or text")),
        }
    }

    /// Returns the fetch of a value for an argument. The argument has the `wanted` type, or otherwise the type of the
    /// value.
    fn part(
        &self,
        argument: &Argument,
        named: &Named,
        value: Value,
        wanted: Option<Type>,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Fetch, Type), ArgumentError> {
        let outer = &argument.expression.reads;
        let wants_text = wanted.is_some_and(|kind| kind.base == Base::String) && outer.is_empty();
        let whole = self.get(value.of)?;
        let (id, shape) = (value.of, whole.kind.clone());
        let no_text = || ArgumentError::bare(Problem::NoText, named.at);
        let (spot, bytes, base) = match self.scalar(value, named, kept)? {
            Scalar::Text(data, length) if wants_text || wanted.is_none() && outer.is_empty() => {
                if wanted.is_some_and(|kind| kind.count > 0) {
                    return Err(ArgumentError::bare(Problem::Text, named.at));
                }
                let (source, reads) = self.read(data, 8, named, kept)?;
                let (length, lengths) = self.read(length, 8, named, kept)?;
                let part = RecordedPart::Text(length, lengths);
                return Ok((Fetch { source, reads, part }, Type::one(Base::String)));
            }
            Scalar::Text(data, _) => (data, 8, Base::Hexadecimal(Width::W64)),
            Scalar::Number(spot, bytes, base) => (spot, bytes, base),
            Scalar::Other(Value { of, spot }) => {
                let is_array = matches!(self.get(of)?.kind, Shape::Array { .. });
                let is_wanted = wants_text || wanted.is_some_and(|kind| kind.count > 0);
                match (self.memory(spot, named, kept)?, wanted) {
                    (Spot::Memory(source, mut reads, offset), Some(kind))
                        if is_array && is_wanted && outer.is_empty() =>
                    {
                        let is_text = |of: Shape<TypeId, _, _, _>| match of {
                            Shape::Array { element, .. } => self.is_byte(element),
                            _ => false,
                        };
                        if wants_text && (kind.count > 0 || !is_text(self.get(of)?.kind)) {
                            return Err(no_text());
                        }
                        fallible::push(&mut reads, small(offset)?)?;
                        return Ok((Fetch { source, reads, part: RecordedPart::Whole }, kind));
                    }
                    _ if wants_text => return Err(no_text()),
                    _ => return Err(self.no_value(&whole, id, named.at)),
                }
            }
        };
        if wants_text {
            let is_bytes = matches!(shape, Shape::Pointer { flavor: Flavor::Raw, target, .. } if self.is_byte(target));
            let no_count = wanted.is_none_or(|kind| kind.count == 0);
            if !is_bytes || !no_count {
                return Err(no_text());
            }
        }
        let kind = wanted.unwrap_or(if outer.is_empty() { Type::one(base) } else { Type::DEFAULT });
        let (source, mut reads, bit) = self.read_part(spot, bytes, named, kept)?;
        if !outer.is_empty() || wants_text {
            if bytes != 8 {
                return Err(ArgumentError::new(
                    Problem::NoStruct,
                    named.at,
                    format_args!("{} is not an address", whole.name),
                ));
            }
            let zero = wants_text.then_some(0);
            fallible::extend(&mut reads, outer.iter().copied().chain(zero))?;
            return Ok((Fetch { source, reads, part: RecordedPart::Whole }, kind));
        }
        if kind.count > 0 && (reads.is_empty() || kind.base.is_text()) {
            return Err(ArgumentError::bare(Problem::Text, named.at));
        }
        let is_longer = kind.base.size() as u64 > bytes && !kind.base.is_text();
        let part = match Width::of_bytes(bytes) {
            Some(width) if (bit > 0 || is_longer) && kind.count == 0 => {
                let range = BitRange::new(bit, width.bits() as u8, matches!(base, Base::Signed(_)));
                RecordedPart::Bits(range.ok_or_else(|| self.no_value(&whole, id, named.at))?)
            }
            _ => RecordedPart::Whole,
        };
        Ok((Fetch { source, reads, part }, kind))
    }

    /// Whether a type is a byte, the element of a C string.
    fn is_byte(&self, of: TypeId) -> bool {
        self.types.get(of).is_some_and(|of| of.is_byte())
    }

    /// Returns the source and the reads that yield the first `bytes` bytes at `spot`, from the lowest bit of the result
    /// on.
    fn read(
        &self,
        spot: Spot,
        bytes: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Source, Vec<i64>), ArgumentError> {
        self.read_part(spot, bytes, named, kept).map(|(source, reads, _)| (source, reads))
    }

    /// Returns the source and the reads for `bytes` bytes at `spot`, and the bit of the result at which they begin.
    fn read_part(
        &self,
        spot: Spot,
        bytes: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Source, Vec<i64>, u8), ArgumentError> {
        Ok(match self.memory(spot, named, kept)? {
            Spot::Passed(place, offset) => {
                let (source, bit) = self.word(place, offset, bytes, named, kept)?;
                (source, Vec::new(), bit)
            }
            Spot::Memory(source, mut reads, offset) => {
                fallible::push(&mut reads, small(offset)?)?;
                (source, reads, 0)
            }
        })
    }
}

/// Converts an offset to the form that reads have.
fn small(offset: u64) -> Result<i64, ArgumentError> {
    i64::try_from(offset).map_err(|_| ArgumentError::bare(Problem::TypeInfo, 0))
}

/// Names, displayed with commas between them.
struct Names<I>(I);

impl<'a, I: Iterator<Item = &'a str> + Clone> fmt::Display for Names<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.0.clone().filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() {
            return f.write_str("none");
        }
        for (number, name) in names.enumerate() {
            write!(f, "{}{name}", if number > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
