//! Rust values: arguments by their names, return values, and fields, resolved through the table of types.
//!
//! A value is not read while the checker walks through its fields: it stays a place and a type until a number, a string
//! or a variant is needed. Then it is loaded in the same way as `*(u32 *)(arg0 + 8)`. A field access dereferences
//! references automatically, as in Rust.

use alloc::vec::Vec;

use kprobes_types::{
    Argument, Flavor, InlinedCopy, Kind, Part, Source, Tag, Type as RustType, TypeId, Types, Unknown, ValuePlace,
};
use kprobes_vm::code::{Arithmetic, Builtin, Comparison, Op, Operand, Register, Type};

use super::clause::{Clause, is_on_instructions};
use super::value::{SIGNED, UNSIGNED, Value};
use super::{Instruction, Whose};
use crate::checked::RustValue;
use crate::error::{Error, Listed, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, Operator, Probe};

/// The maximum number of references and wrappers that are followed to reach a field. Types may be recursive.
pub(super) const STEPS_MAX: usize = 16;

/// The maximum number of instructions at which a value is in different places.
const PLACES_MAX: usize = 64;

/// The register with the base of a function's frame (AAPCS64, section 6.4.6).
const FRAME_POINTER: u8 = 29;

/// The names of a function's variables: there is an argument and a local of the same name in some functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// `args`.
    Arguments,
    /// `locals`.
    Locals,
}

impl Group {
    /// Returns the group that a builtin stands for.
    pub fn of(builtin: &str) -> Option<Self> {
        match builtin {
            "args" => Some(Self::Arguments),
            "locals" => Some(Self::Locals),
            _ => None,
        }
    }

    /// Returns the problem that there is no variable of a name, but there are these.
    fn none(self, names: Listed) -> Problem {
        match self {
            Self::Arguments => Problem::NoArgument { names },
            Self::Locals => Problem::NoLocal { names },
        }
    }

    /// Returns the builtin.
    pub fn builtin(self) -> &'static str {
        match self {
            Self::Arguments => "args",
            Self::Locals => "locals",
        }
    }
}

/// A Rust value that is not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Typed {
    pub of: TypeId,
    pub spot: Spot,
}

/// The place of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    /// A value that a call passes or returns, with an offset in bytes.
    Passed(ValuePlace, u64),
    /// A value whose place depends on the probed instruction, by the number of its places in the clause, with an offset
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
    pub fn types(&self, span: Span) -> Result<&'static Types<'static>, Error> {
        let types = self.checker.symbols.types().map_err(|problem| span.error(problem))?;
        types.ok_or(span.error(Problem::NoTypes))
    }

    /// Returns a type. Types refer only to types that are in the table, because the table was validated when it was
    /// loaded.
    pub fn rust(&self, of: TypeId, span: Span) -> Result<RustType<'static>, Error> {
        self.types(span)?.get(of).ok_or(span.error(Problem::DamagedTypes))
    }

    /// Applies `find` to every place of the probes, and returns the result. The type is the same at all places. Where
    /// the location is not, it depends on the probed instruction.
    fn of_places(
        &mut self,
        find: impl Fn(&kprobes_types::Function<'static>, Instruction) -> Result<Argument<'static>, Problem>,
        span: Span,
    ) -> Result<(TypeId, Spot), Error> {
        let mut found: Vec<(u64, ValuePlace)> = Vec::new();
        let mut of = None;
        self.each_place(span, |function, at| {
            let one = find(&function, at)?;
            let is_of_type = *of.get_or_insert(one.of) == one.of;
            match found.iter().find(|(address, _)| *address == at.address) {
                Some((_, place)) if is_of_type && *place == one.place => Ok(()),
                None if is_of_type => Ok(fallible::push(&mut found, (at.address, one.place))?),
                _ => Err(Problem::Differs),
            }
        })?;
        let (Some(of), Some(&(_, first))) = (of, found.first()) else { return Err(span.error(Problem::NoSignature)) };
        if found.iter().all(|(_, place)| *place == first) {
            return Ok((of, Spot::Passed(first, 0)));
        }
        // The functions of a glob may be thousands.
        if found.len() > PLACES_MAX {
            return Err(span.error(Problem::Differs));
        }
        let known = self.places.iter().position(|other| *other == found);
        let number = known.unwrap_or(self.places.len());
        if known.is_none() {
            fallible::push(&mut self.places, found)?;
        }
        Ok((of, Spot::Places(number, 0)))
    }

    /// Calls `each` with every instruction of the probes and its function, until there is an error. Of functions, it is
    /// the entry.
    pub fn each_place(
        &self,
        span: Span,
        mut each: impl FnMut(kprobes_types::Function<'static>, Instruction) -> Result<(), Problem>,
    ) -> Result<(), Error> {
        let types = self.types(span)?;
        let mut visit = |at: Instruction| {
            let described = types.function(at.function).ok_or(span.error(Problem::NoSignature))?;
            each(described, at).map_err(|problem| span.error(problem))
        };
        for probe in &self.probes {
            match &probe.node {
                Probe::Entry { glob } | Probe::Return { glob } | Probe::Exit { glob } => {
                    let functions = self.checker.symbols.functions(glob).map_err(|problem| span.error(problem))?;
                    if functions.is_empty() {
                        return Err(probe.span.error(Problem::NoMatch));
                    }
                    functions.into_iter().try_for_each(|function| visit(Instruction::entry(function.start)))?;
                }
                node if is_on_instructions(node) => {
                    let known = self.checker.instructions.take().filter(|(of, _)| *of == probe.span);
                    let found = match known {
                        Some((_, found)) => found,
                        None => self.checker.symbols.instructions(probe)?,
                    };
                    let outcome = found.iter().copied().try_for_each(&mut visit);
                    self.checker.instructions.set(Some((probe.span, found)));
                    outcome?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns an argument or a local by its name.
    #[inline(never)]
    fn variable_of_function(&mut self, group: Group, name: &str, span: Span) -> Result<Typed, Error> {
        self.allow(self.allowed.variables, Problem::VariableAway, span)?;
        let types = self.types(span)?;
        let find = |function: &_, at| variable_at(types, function, at, group, name);
        let (of, spot) = self.of_places(find, span)?;
        Ok(Typed { of, spot })
    }

    /// Returns whether all probes are at completed returns. At `return:` the function may continue in another one by a
    /// tail call.
    fn is_at_returns(&self) -> bool {
        self.probes.iter().all(|probe| matches!(probe.node, Probe::Return { .. }))
    }

    /// Returns the return value of the functions, if it is the same for all.
    fn returned(&mut self, span: Span) -> Result<Typed, Error> {
        self.allow(self.allowed.result, Problem::NoReturnValue, span)?;
        let (of, spot) = self.of_places(|function, _| function.returned().ok_or(Problem::DamagedTypes), span)?;
        match spot {
            Spot::Passed(ValuePlace::Nothing, _) => Err(span.error(Problem::NothingReturned)),
            Spot::Passed(ValuePlace::At(_), _) => {
                self.allow(self.is_at_returns(), Problem::KnownAtReturns, span)?;
                let address = self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Result }, span)?;
                Ok(Typed { of, spot: Spot::Memory(address.at, 0) })
            }
            // The functions return it in different ways.
            Spot::Places(..) => Err(span.error(Problem::Differs)),
            _ => Ok(Typed { of, spot }),
        }
    }

    /// Returns the Rust value that an expression denotes; `None` if it denotes no Rust value.
    pub fn typed(&mut self, expression: &Expression) -> Result<Option<Typed>, Error> {
        let span = expression.span;
        self.go_on(span)?;
        match &*expression.form {
            ExpressionForm::Builtin(name) if name == "retval" => self.typed_result(span),
            ExpressionForm::Field { of, name } => match &*of.form {
                // A field of a static event is no Rust value: see `event`.
                ExpressionForm::Builtin(root) if root == "args" && self.is_at_events() => Ok(None),
                ExpressionForm::Builtin(root) if root == "retval" => {
                    self.field_of_result(name, of.span, span).map(Some)
                }
                ExpressionForm::Builtin(root) if let Some(group) = Group::of(root) => {
                    self.variable_of_function(group, name, span).map(Some)
                }
                _ => {
                    let Some(of) = self.typed(of)? else { return Ok(None) };
                    self.field(of, name, span).map(Some)
                }
            },
            ExpressionForm::Part { tuple, number } => {
                let Some(tuple) = self.typed(tuple)? else { return Ok(None) };
                let name = fallible::format(format_args!("{number}"))?;
                self.field(tuple, &name, span).map(Some)
            }
            ExpressionForm::Index { pointer, index } => {
                let Some(array) = self.typed(pointer)? else { return Ok(None) };
                self.typed_element(array, pointer.span, index, span)
            }
            _ => Ok(None),
        }
    }

    #[inline(never)]
    fn typed_result(&mut self, span: Span) -> Result<Option<Typed>, Error> {
        match self.returned(span) {
            // Without type information, `retval` falls back to the number in x0.
            Err(Error {
                problem: Problem::NoTypes | Problem::NoSignature | Problem::Differs | Problem::NoMatch,
                ..
            }) => Ok(None),
            Ok(_) if !self.is_at_returns() => Ok(None),
            found => found.map(Some),
        }
    }

    #[inline(never)]
    fn field_of_result(&mut self, name: &str, at: Span, span: Span) -> Result<Typed, Error> {
        let of = self.returned(at)?;
        self.allow(self.is_at_returns(), Problem::KnownAtReturns, span)?;
        self.field(of, name, span)
    }

    /// Returns an element of an array; `None` if `array` is another value.
    #[inline(never)]
    fn typed_element(
        &mut self,
        array: Typed,
        at: Span,
        index: &Expression,
        span: Span,
    ) -> Result<Option<Typed>, Error> {
        let array = self.followed(array, at)?;
        // Indexing a raw pointer to integers is handled as for other pointers.
        let Kind::Array { element, count } = self.rust(array.of, span)?.kind else { return Ok(None) };
        let number = self.value(index)?;
        let number = super::value::constant(number, index.span)?;
        if number >= count {
            return Err(index.span.error(Problem::Range { least: 0, most: count.saturating_sub(1) }));
        }
        let bytes = self.rust(element, span)?.size;
        Ok(Some(Typed { of: element, spot: array.spot.at(number.wrapping_mul(bytes)) }))
    }

    /// Returns the field of this name, in the value or in the value that it refers to.
    #[inline(never)]
    fn field(&mut self, value: Typed, name: &str, span: Span) -> Result<Typed, Error> {
        let mut value = value;
        for _ in 0..STEPS_MAX {
            let of = self.rust(value.of, span)?;
            match of.kind {
                Kind::Struct { mut members, .. } => {
                    if let Some(member) = members.clone().find(|member| member.name == name) {
                        return Ok(Typed { of: member.of, spot: value.spot.at(member.offset.into()) });
                    }
                    let types = self.types(span)?;
                    let problem = span.error(Problem::NoField { of: of.name, names: Listed::Fields(types, value.of) });
                    let has_bytes = |member: &kprobes_types::Member<'static>| {
                        types.get(member.of).is_some_and(|member| member.size > 0)
                    };
                    let only = members.find(has_bytes).filter(|_| !members.any(|member| has_bytes(&member)));
                    let only = only.ok_or(problem)?;
                    // In a struct with one field that has bytes, fields are looked up in that field, too. A field that
                    // has no fields itself is reported for the struct.
                    let inner = self.rust(only.of, span)?;
                    let has_fields = match inner.kind {
                        Kind::Struct { .. } | Kind::Pointer { .. } | Kind::Wrapper { .. } => true,
                        Kind::Variants { tag, mut variants } => {
                            tag.is_none() || variants.any(|variant| variant.name == name)
                        }
                        _ => false,
                    };
                    if !has_fields {
                        return Err(problem);
                    }
                    value = Typed { of: only.of, spot: value.spot.at(only.offset.into()) };
                }
                Kind::Variants { tag: None, mut variants } => {
                    let only = variants.next().ok_or(span.error(Problem::FieldOfEnum { of: of.name }))?;
                    value = Typed { of: only.of, ..value };
                    if only.name == name {
                        return Ok(value);
                    }
                }
                Kind::Variants { tag: Some(tag), mut variants } => {
                    let all = variants.clone();
                    let problem = match name.starts_with(|c: char| c.is_ascii_uppercase()) {
                        true => {
                            Problem::NoVariant { of: of.name, names: Listed::Variants(self.types(span)?, value.of) }
                        }
                        false => Problem::FieldOfEnum { of: of.name },
                    };
                    let found = variants.find(|variant| variant.name == name).ok_or(span.error(problem))?;
                    let values = all.filter_map(|variant| variant.value);
                    let (how, left, right) = self.has_tag(Operator::Unequal, value, tag, found.value, values, span)?;
                    // As `let Some(x) = value else { return };`: the clause ends at values of other variants.
                    let mut ends = core::mem::take(&mut self.ends);
                    let outcome = self.branch_if(how, left, right, &mut ends, span);
                    self.ends = ends;
                    outcome?;
                    return Ok(Typed { of: found.of, ..value });
                }
                Kind::Pointer { .. } | Kind::Wrapper { .. } => {
                    value = self.inner(value, span)?.ok_or(span.error(Problem::DamagedTypes))?;
                }
                _ => return Err(span.error(Problem::NoField { of: of.name, names: Listed::Names(&[]) })),
            }
        }
        Err(span.error(Problem::Deep))
    }

    /// Returns the target of a pointer, or the content of a wrapper; `None` for other values.
    fn inner(&mut self, value: Typed, span: Span) -> Result<Option<Typed>, Error> {
        Ok(match self.rust(value.of, span)?.kind {
            Kind::Pointer { target, at, .. } => {
                let address = self.load(value.spot, 8, UNSIGNED, span)?;
                Some(Typed { of: target, spot: Spot::Memory(address.at, at.into()) })
            }
            Kind::Wrapper { target, at } => Some(Typed { of: target, spot: value.spot.at(at.into()) }),
            _ => None,
        })
    }

    /// Follows references, counted references and wrappers to the value behind them.
    pub fn followed(&mut self, value: Typed, span: Span) -> Result<Typed, Error> {
        let mut value = value;
        for _ in 0..STEPS_MAX {
            match self.rust(value.of, span)?.kind {
                Kind::Pointer { flavor: Flavor::Reference | Flavor::Shared, .. } | Kind::Wrapper { .. } => {
                    value = self.inner(value, span)?.ok_or(span.error(Problem::DamagedTypes))?;
                }
                _ => return Ok(value),
            }
        }
        Err(span.error(Problem::Deep))
    }

    /// Returns a word of a value.
    fn source(&mut self, source: Source, span: Span) -> Result<Value, Error> {
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
    fn register(&mut self, number: u8, span: Span) -> Result<Value, Error> {
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

    /// Calls `compile` for each place of a value whose place depends on the probed instruction. What it compiles runs
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
            ValuePlace::Words { first, second } => {
                let end = offset.saturating_add(bytes.into());
                let has = |part: &Part| {
                    u64::from(part.offset) <= offset && end <= u64::from(part.offset) + u64::from(part.bytes)
                };
                let part = [Some(first), second].into_iter().flatten().find(has);
                // Bytes that span two parts cannot be loaded.
                let part = part.ok_or(span.error(Problem::Lost))?;
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

    /// Returns whether a value of type `of` is a pointer whose address is read where a number is needed.
    pub fn is_address(&self, of: TypeId, span: Span) -> Result<bool, Error> {
        let mut of = of;
        for _ in 0..STEPS_MAX {
            of = match self.rust(of, span)?.kind {
                Kind::Wrapper { target, .. } => target,
                Kind::Pointer { flavor, target, .. } => {
                    return Ok(flavor == Flavor::Raw || !is_read_through(&self.rust(target, span)?.kind));
                }
                _ => return Ok(false),
            };
        }
        Err(span.error(Problem::Deep))
    }

    /// Reads a value where a number, a string or an address is needed.
    #[inline(never)]
    pub fn scalar(&mut self, value: Typed, span: Span) -> Result<Value, Error> {
        let mut value = value;
        for _ in 0..STEPS_MAX {
            let of = self.rust(value.of, span)?;
            let bytes = u8::try_from(of.size).unwrap_or(u8::MAX);
            let no_number = span.error(Problem::NotANumber { of: of.name });
            value = match of.kind {
                Kind::Integer { signed } | Kind::Enumeration { signed, .. } if matches!(bytes, 1 | 2 | 4 | 8) => {
                    return self.load(value.spot, bytes, Type::Integer { signed }, span);
                }
                Kind::Bool => return self.load(value.spot, 1, UNSIGNED, span),
                Kind::Char => return self.load(value.spot, 4, UNSIGNED, span),
                Kind::Function => return self.load(value.spot, 8, Type::Symbol, span),
                Kind::Pointer { flavor, target, at } => {
                    let to = self.rust(target, span)?;
                    match (flavor, to.kind) {
                        (Flavor::Reference | Flavor::Shared, kind) if is_read_through(&kind) => {
                            self.followed(value, span)?
                        }
                        (Flavor::Raw, Kind::Integer { signed }) if matches!(to.size, 1 | 2 | 4 | 8) => {
                            let of = Type::Pointer { signed, bytes: to.size as u8 };
                            return self.load(value.spot, 8, of, span);
                        }
                        (Flavor::Shared, _) => {
                            let address = self.load(value.spot, 8, UNSIGNED, span)?;
                            let distance = Operand::Constant(at.into());
                            return self.compute(Arithmetic::Add, address.at, distance, UNSIGNED, span);
                        }
                        _ => return self.load(value.spot, 8, UNSIGNED, span),
                    }
                }
                Kind::Wrapper { .. } => self.inner(value, span)?.ok_or(no_number)?,
                Kind::Sequence { is_text: true, .. } => {
                    return self.sequence_text(value, None, span)?.ok_or(no_number);
                }
                Kind::Struct { mut members, .. } => {
                    let types = self.types(span)?;
                    let has_bytes =
                        |member: &kprobes_types::Member<'static>| types.get(member.of).is_some_and(|of| of.size > 0);
                    let only = members.find(has_bytes).filter(|_| !members.any(|member| has_bytes(&member)));
                    let only = only.ok_or(no_number)?;
                    // A field that is no number is reported for the whole struct.
                    if let Kind::Variants { .. } | Kind::Array { .. } | Kind::Unit | Kind::Opaque =
                        self.rust(only.of, span)?.kind
                    {
                        return Err(no_number);
                    }
                    Typed { of: only.of, spot: value.spot.at(only.offset.into()) }
                }
                _ => return Err(no_number),
            };
        }
        Err(span.error(Problem::Deep))
    }

    /// Returns the address and the number of elements of a string or a slice of bytes; `None` for other values.
    pub fn bytes_of(&mut self, value: Typed, span: Span) -> Result<Option<(Operand, Operand)>, Error> {
        let value = self.followed(value, span)?;
        let of = self.rust(value.of, span)?;
        Ok(match of.kind {
            Kind::Sequence { element, is_text, data, length } => {
                let is_bytes = is_text
                    || matches!(self.rust(element, span)?, RustType { size: 1, kind: Kind::Integer { .. }, .. });
                if !is_bytes {
                    return Ok(None);
                }
                let data = self.load(value.spot.at(data.into()), 8, UNSIGNED, span)?;
                Some((data.at, self.load(value.spot.at(length.into()), 8, UNSIGNED, span)?.at))
            }
            Kind::Array { element, count } => {
                let is_bytes =
                    matches!(self.rust(element, span)?, RustType { size: 1, kind: Kind::Integer { .. }, .. });
                match self.in_memory(value.spot, span)? {
                    Some((base, offset)) if is_bytes => {
                        let at = self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at;
                        Some((at, Operand::Constant(count)))
                    }
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// Returns the number of elements of a slice, string or array; `None` for other values.
    pub fn count_of(&mut self, value: Typed, span: Span) -> Result<Option<Value>, Error> {
        let value = self.followed(value, span)?;
        Ok(match self.rust(value.of, span)?.kind {
            Kind::Sequence { length, .. } => Some(self.load(value.spot.at(length.into()), 8, UNSIGNED, span)?),
            Kind::Array { count, .. } => Some(Value::constant(count, false)),
            _ => None,
        })
    }

    /// Compiles a value that is shown. A `bool`, a `char` and an enum are shown as in Rust, with the variant only for
    /// an enum with fields. Other values are read as numbers.
    pub fn shown(&mut self, expression: &Expression) -> Result<Value, Error> {
        let span = expression.span;
        let Some(typed) = self.typed(expression)? else { return self.value(expression) };
        let value = self.followed(typed, span)?;
        let of = self.rust(value.of, span)?;
        match of.kind {
            Kind::Bool | Kind::Char | Kind::Enumeration { .. } => {
                let number = self.scalar(value, span)?;
                let of = self.checker.rust_type(RustValue::Whole(value.of), 1, span)?;
                Ok(Value { of, ..number })
            }
            Kind::Variants { .. } => self.variant(value, span),
            _ => self.scalar(typed, span),
        }
    }

    /// Returns the variant of an enum with fields.
    fn variant(&mut self, value: Typed, span: Span) -> Result<Value, Error> {
        let of = self.rust(value.of, span)?;
        let Kind::Variants { tag, variants } = of.kind else {
            return Err(span.error(Problem::NotAnEnum { of: of.name }));
        };
        let tags = Tags::of(tag.map_or(8, |tag| tag.bytes), variants.clone().filter_map(|variant| variant.value));
        let of_variant = self.checker.rust_type(RustValue::Variant { of: value.of, first: tags.first }, 1, span)?;
        let Some(tag) = tag else { return Ok(Value { at: Operand::Constant(u64::MAX), of: of_variant }) };
        let number = self.load(value.spot.at(tag.offset.into()), tag.bytes, UNSIGNED, span)?;
        let distance = self.distance(number, tag.bytes, tags.first, span)?;
        if variants.clone().all(|variant| variant.value.is_some()) {
            return Ok(Value { of: of_variant, ..distance });
        }
        let to = self.room(1, span)?;
        self.push(Op::Set { to, from: distance.at }, span)?;
        let (left, right) = (Operand::Word(to), Operand::Constant(tags.span));
        let mut exits = Vec::new();
        self.branch_if(Comparison::Below, left, right, &mut exits, span)?;
        self.push(Op::Set { to, from: Operand::Constant(u64::MAX) }, span)?;
        self.land(&exits);
        Ok(Value { at: left, of: of_variant })
    }

    /// Returns the distance of a tag from the tag `first`, truncated to the size of the tag.
    pub fn distance(&mut self, tag: Value, bytes: u8, first: u64, span: Span) -> Result<Value, Error> {
        if first == 0 {
            return Ok(tag);
        }
        let distance = self.compute(Arithmetic::Subtract, tag.at, Operand::Constant(first), UNSIGNED, span)?;
        match bytes {
            8 => Ok(distance),
            _ => {
                let from = distance.at;
                self.give(UNSIGNED, |to| Op::Extend { to, from, bits: 8 * bytes, signed: false }, span)
            }
        }
    }

    /// Returns the comparison of the tag of an enum with that of a variant: it holds exactly if they are equal, or
    /// unequal if `operator` is [`Operator::Unequal`]. `wanted` is the tag of the variant, and `values` are those of all
    /// variants that have one.
    fn has_tag(
        &mut self,
        operator: Operator,
        value: Typed,
        tag: Tag,
        wanted: Option<u64>,
        values: impl Iterator<Item = u64> + Clone,
        span: Span,
    ) -> Result<(Comparison, Operand, Operand), Error> {
        let is_unequal = operator == Operator::Unequal;
        let number = self.load(value.spot.at(tag.offset.into()), tag.bytes, UNSIGNED, span)?;
        if let Some(wanted) = wanted {
            let how = if is_unequal { Comparison::Unequal } else { Comparison::Equal };
            return Ok((how, number.at, Operand::Constant(wanted)));
        }
        let tags = Tags::of(tag.bytes, values);
        let distance = self.distance(number, tag.bytes, tags.first, span)?;
        let how = if is_unequal { Comparison::Below } else { Comparison::AboveEqual };
        Ok((how, distance.at, Operand::Constant(tags.span)))
    }

    /// Returns the comparison with a variant, if `path` names one and `value` is a Rust value. The result is a
    /// comparison of two numbers that holds exactly if `value operator path` does.
    pub fn is_variant(
        &mut self,
        operator: Operator,
        value: &Expression,
        path: &Expression,
    ) -> Result<Option<(Comparison, Operand, Operand)>, Error> {
        let (name, is_path) = match &*path.form {
            ExpressionForm::Path(path) => (path.as_str(), true),
            // Every variant begins with a capital letter, and no builtin value does.
            ExpressionForm::Builtin(name) => (name.as_str(), name.starts_with(|c: char| c.is_ascii_uppercase())),
            _ => return Ok(None),
        };
        let span = value.span;
        let Some(value) = self.typed(value)? else { return Ok(None) };
        let value = self.followed(value, span)?;
        let of = self.rust(value.of, span)?;
        let mut segments = name.rsplit("::").map(str::trim);
        let name = segments.next().unwrap_or("");
        // The segments before the variant are the type and the modules that contain it.
        let generic = of.name.split('<').next().unwrap_or("");
        let is_type = segments.next().is_none_or(|own| own == generic)
            && segments.zip(of.module.rsplit("::")).all(|(one, other)| one == other);
        let equal = matches!(operator, Operator::Equal);
        if !equal && operator != Operator::Unequal {
            return if is_path { Err(path.span.error(Problem::Order)) } else { Ok(None) };
        }
        let how = if equal { Comparison::Equal } else { Comparison::Unequal };
        let names = Listed::Variants(self.types(span)?, value.of);
        let no_variant = path.span.error(Problem::NoVariant { of: of.name, names });
        match of.kind {
            Kind::Enumeration { mut enumerators, .. } => {
                let Some(found) = enumerators.find(|one| one.name == name && is_type) else {
                    return if is_path { Err(no_variant) } else { Ok(None) };
                };
                let bytes = u8::try_from(of.size).unwrap_or(8);
                let number = self.load(value.spot, bytes, UNSIGNED, span)?;
                Ok(Some((how, number.at, Operand::Constant(found.value))))
            }
            Kind::Variants { tag, mut variants } => {
                let all = variants.clone();
                let Some(found) = variants.find(|one| one.name == name && is_type) else {
                    return if is_path { Err(no_variant) } else { Ok(None) };
                };
                let Some(tag) = tag else {
                    return Ok(Some((how, Operand::Constant(0), Operand::Constant(0))));
                };
                let values = all.filter_map(|one| one.value);
                self.has_tag(operator, value, tag, found.value, values, span).map(Some)
            }
            _ if is_path => Err(path.span.error(Problem::NotAnEnum { of: of.name })),
            _ => Ok(None),
        }
    }
}

/// Returns the variable that `name` means at an instruction of a function.
fn variable_at(
    types: &'static Types<'static>,
    function: &kprobes_types::Function<'static>,
    at: Instruction,
    group: Group,
    name: &str,
) -> Result<Argument<'static>, Problem> {
    let (is_argument, offset) = (group == Group::Arguments, at.offset());
    let in_frame = |found: Argument<'static>| {
        let is_there = |register| match register {
            FRAME_POINTER => at.has_frame,
            Source::STACK_POINTER => at.has_stack,
            _ => true,
        };
        match bases(&found.place).all(is_there) {
            true => found,
            false => Argument { place: ValuePlace::Unknown(Unknown::Unsaid), ..found },
        }
    };
    for (number, copy) in copies_at(types, at)? {
        match copy.find(name, is_argument, offset) {
            Some(Ok(found)) => return Ok(in_frame(found)),
            Some(Err(why)) => return Err(Problem::UnknownInCopy { address: at.looked_up, why }),
            None if at.whose == Whose::All => {}
            None => return Err(group.none(Listed::OfCopy(types, at.function, number, is_argument))),
        }
    }
    let none = match group {
        Group::Arguments => group.none(Listed::Arguments(types, at.function)),
        Group::Locals => group.none(Listed::Locals(types, at.function)),
    };
    // At the entry, the calling convention tells more than the debugging information.
    if is_argument && at.looked_up == at.function {
        return function.arguments().find(|one| one.name == name).ok_or(none);
    }
    let variables = types.variables(at.function).ok_or(Problem::NoTypes)?;
    variables.find(name, is_argument, offset).map(in_frame).ok_or(none)
}

/// Returns the copies whose variables an instruction means, the innermost first, each with its number in the function.
/// Those of the function follow them, unless the probe means a copy.
pub(super) fn copies_at(
    types: &'static Types<'static>,
    at: Instruction,
) -> Result<Vec<(u32, InlinedCopy<'static>)>, Problem> {
    let mut all = Vec::new();
    if at.whose == Whose::Function || at.whose == Whose::All && at.address == at.function {
        return Ok(all);
    }
    let copies = types.copies(at.function).ok_or(Problem::NoTypes)?;
    for (number, copy) in (0..).zip(copies) {
        let is_meant = match at.whose {
            Whose::Copy { hash, first } => copy.hash == hash && copy.has(at.offset_of(first)),
            _ => copy.has(at.offset()),
        };
        if is_meant {
            fallible::push(&mut all, (number, copy))?;
        }
    }
    // A copy comes after those that contain it.
    all.reverse();
    match at.whose {
        Whose::Unknown => Err(Problem::InCopy),
        // Copies of one function, one within another, cannot be told apart. A copy that begins with a loop is entered
        // at an instruction before it.
        Whose::Copy { .. } if all.len() != 1 || all.iter().any(|(_, copy)| !copy.has(at.offset())) => {
            Err(Problem::InCopy)
        }
        Whose::Innermost => {
            all.truncate(1);
            Ok(all)
        }
        _ => Ok(all),
    }
}

/// Returns the registers that a value, or its address, is found by, because it is in memory or a sum.
fn bases(place: &ValuePlace) -> impl Iterator<Item = u8> {
    let base = |source: Source| match source {
        Source::Memory { register, .. } | Source::Sum { register, .. } => Some(register),
        _ => None,
    };
    let all = match *place {
        ValuePlace::Words { first, second } => [base(first.source), second.and_then(|second| base(second.source))],
        ValuePlace::At(source) => [base(source), None],
        ValuePlace::Memory { register, .. } => [Some(register), None],
        _ => [None; 2],
    };
    all.into_iter().flatten()
}

/// Returns whether a reference to a value of this kind denotes the value, and not its address, where a number or a
/// string is needed.
fn is_read_through<M, V, E>(kind: &Kind<TypeId, M, V, E>) -> bool {
    match kind {
        Kind::Integer { .. } | Kind::Bool | Kind::Char | Kind::Enumeration { .. } | Kind::Sequence { .. } => true,
        Kind::Pointer { flavor, .. } => *flavor != Flavor::Raw,
        _ => false,
    }
}

/// The smallest range that contains the tags of all variants that have their own: its first number, and its length. The
/// range may wrap around at the size of the tag.
pub(super) struct Tags {
    pub first: u64,
    pub span: u64,
}

impl Tags {
    /// Returns the shortest such range that contains all `values`.
    pub fn of(bytes: u8, values: impl Iterator<Item = u64> + Clone) -> Self {
        let most = u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)));
        let span = |first: u64| values.clone().map(|value| value.wrapping_sub(first) & most).max().unwrap_or(0);
        let first = values.clone().min_by_key(|&first| span(first)).unwrap_or(0);
        Self { first, span: span(first).saturating_add(1) }
    }
}
