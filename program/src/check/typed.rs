//! Values of Rust: arguments by their names, what a function returns, and fields, from the table of types.
//!
//! A value is followed without being read: it stays a place and a type until what is wanted of it is a number, a string or a
//! variant, which is loaded as `*(u32 *)(arg0 + 8)` is. References are followed as Rust does it where a field is named.

use kprobes_types::{Argument, Flavor, Kind, Part, Place, Source, Type as RustType, TypeId, Types};
use kprobes_vm::code::{Arithmetic, Builtin, Comparison, Op, Operand, Register, Type};

use super::clause::Clause;
use super::value::{SIGNED, UNSIGNED, Value};
use crate::checked::Known;
use crate::error::{Error, Listed, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, Operator, Probe};

/// How many references and wrappers are followed to come to a field, at most: a type may lead to itself.
const STEPS_MAX: usize = 16;

/// A value of Rust that is not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Typed {
    pub of: TypeId,
    pub spot: Spot,
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    /// What a call passes, or returns: so many bytes from the start of it.
    Passed(Place, u64),
    /// In memory: so many bytes from an address.
    Memory(Operand, u64),
}

impl Spot {
    fn at(self, offset: u64) -> Self {
        match self {
            Self::Passed(place, at) => Self::Passed(place, at.wrapping_add(offset)),
            Self::Memory(base, at) => Self::Memory(base, at.wrapping_add(offset)),
        }
    }
}

impl Clause<'_, '_> {
    pub fn types(&self, span: Span) -> Result<&'static Types<'static>, Error> {
        let types = self.checker.symbols.types().map_err(|problem| span.error(problem))?;
        types.ok_or(span.error(Problem::NoTypes))
    }

    /// A type. The table was checked, so it has all types that it refers to.
    pub fn rust(&self, of: TypeId, span: Span) -> Result<RustType<'static>, Error> {
        self.types(span)?.get(of).ok_or(span.error(Problem::DamagedTypes))
    }

    /// What all functions of the probes have that `find` finds in one.
    fn of_functions(
        &self,
        find: impl Fn(&kprobes_types::Function<'static>, u64) -> Result<Argument<'static>, Problem>,
        span: Span,
    ) -> Result<Argument<'static>, Error> {
        let types = self.types(span)?;
        let mut found: Option<Argument<'static>> = None;
        for probe in &self.probes {
            let (Probe::Entry { glob } | Probe::Return { glob } | Probe::Exit { glob }) = &probe.node else { continue };
            let functions = self.checker.symbols.functions(glob).map_err(|problem| span.error(problem))?;
            if functions.is_empty() {
                return Err(probe.span.error(Problem::NoMatch));
            }
            for function in functions {
                let (address, function) = (function.start, types.function(function.start));
                let function = function.ok_or(span.error(Problem::NoSignature))?;
                let one = find(&function, address).map_err(|problem| span.error(problem))?;
                match found {
                    Some(other) if (other.of, other.place) != (one.of, one.place) => {
                        return Err(span.error(Problem::Differs));
                    }
                    _ => found = Some(one),
                }
            }
        }
        found.ok_or(span.error(Problem::NoSignature))
    }

    /// An argument.
    fn argument(&self, name: &str, span: Span) -> Result<Typed, Error> {
        self.allow(self.allowed.arguments, Problem::ArgumentAway, span)?;
        let types = self.types(span)?;
        let find = |function: &kprobes_types::Function<'static>, address: u64| {
            let no_argument = Problem::NoArgument { names: Listed::Arguments(types, address) };
            function.arguments().find(|one| one.name == name).ok_or(no_argument)
        };
        let found = self.of_functions(find, span)?;
        Ok(Typed { of: found.of, spot: Spot::Passed(found.place, 0) })
    }

    /// Whether all functions have returned: where `return:` stands, they may go on in others.
    fn is_at_returns(&self) -> bool {
        self.probes.iter().all(|probe| matches!(probe.node, Probe::Return { .. }))
    }

    /// What the functions return, if all are known to return the same.
    fn returned(&mut self, span: Span) -> Result<Typed, Error> {
        self.allow(self.allowed.result, Problem::NoReturnValue, span)?;
        let found = self.of_functions(|function, _| function.returned().ok_or(Problem::DamagedTypes), span)?;
        if found.place == Place::Nothing {
            return Err(span.error(Problem::NothingReturned));
        }
        if let Place::At(_) = found.place {
            self.allow(self.is_at_returns(), Problem::KnownAtReturns, span)?;
            let address = self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Result }, span)?;
            return Ok(Typed { of: found.of, spot: Spot::Memory(address.at, 0) });
        }
        Ok(Typed { of: found.of, spot: Spot::Passed(found.place, 0) })
    }

    /// The value of Rust that an expression stands for, if it does.
    pub fn typed(&mut self, expression: &Expression) -> Result<Option<Typed>, Error> {
        let span = expression.span;
        Ok(Some(match &*expression.form {
            ExpressionForm::Builtin(name) if name == "retval" => match self.returned(span) {
                // As a number it is what x0 has, where nothing better is known.
                Err(Error {
                    problem: Problem::NoTypes | Problem::NoSignature | Problem::Differs | Problem::NoMatch,
                    ..
                }) => {
                    return Ok(None);
                }
                Ok(_) if !self.is_at_returns() => return Ok(None),
                found => found?,
            },
            ExpressionForm::Field { of, name } => match &*of.form {
                ExpressionForm::Builtin(root) if root == "args" => self.argument(name, span)?,
                ExpressionForm::Builtin(root) if root == "retval" => {
                    let of = self.returned(of.span)?;
                    self.allow(self.is_at_returns(), Problem::KnownAtReturns, span)?;
                    self.field(of, name, span)?
                }
                _ => {
                    let of = self.typed(of)?.ok_or(span.error(Problem::Value))?;
                    self.field(of, name, span)?
                }
            },
            ExpressionForm::Part { tuple, number } => {
                let Some(tuple) = self.typed(tuple)? else { return Ok(None) };
                let name = fallible::format(format_args!("{number}"))?;
                self.field(tuple, &name, span)?
            }
            ExpressionForm::Index { pointer, index } => {
                let Some(array) = self.typed(pointer)? else { return Ok(None) };
                let array = self.followed(array, pointer.span)?;
                let of = self.rust(array.of, span)?;
                // A raw pointer to integers is one.
                let Kind::Array { element, count } = of.kind else { return Ok(None) };
                let number = self.value(index)?;
                let number = super::value::constant(number, index.span)?;
                if number >= count {
                    return Err(index.span.error(Problem::Range { least: 0, most: count.saturating_sub(1) }));
                }
                let bytes = self.rust(element, span)?.size;
                Typed { of: element, spot: array.spot.at(number.wrapping_mul(bytes)) }
            }
            _ => return Ok(None),
        }))
    }

    /// The field of this name, in the value or in what it leads to.
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
                    // Of a struct around one value, the fields are those of the value; the end of the way is told above.
                    let inner = self.rust(only.of, span)?;
                    if !matches!(inner.kind, Kind::Struct { .. } | Kind::Pointer { .. } | Kind::Wrapper { .. }) {
                        return Err(problem);
                    }
                    value = Typed { of: only.of, spot: value.spot.at(only.offset.into()) };
                }
                Kind::Variants { tag: None, mut variants } => {
                    let only = variants.next().ok_or(span.error(Problem::FieldOfEnum { of: of.name }))?;
                    value = Typed { of: only.of, ..value };
                }
                Kind::Variants { .. } => return Err(span.error(Problem::FieldOfEnum { of: of.name })),
                Kind::Pointer { .. } | Kind::Wrapper { .. } => {
                    value = self.inner(value, span)?.ok_or(span.error(Problem::DamagedTypes))?;
                }
                _ => return Err(span.error(Problem::NoField { of: of.name, names: Listed::Names(&[]) })),
            }
        }
        Err(span.error(Problem::Deep))
    }

    /// What a pointer points to, or a wrapper has within; nothing for anything else.
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

    /// What references, counted references and wrappers stand for.
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

    /// A word that a call passes.
    pub fn source(&mut self, source: Source, span: Span) -> Result<Value, Error> {
        match source {
            Source::Lost => Err(span.error(Problem::Lost)),
            Source::Register(number) => {
                let what = Builtin::Register(Register::X(number));
                self.give(UNSIGNED, |to| Op::Load { to, what }, span)
            }
            Source::Stack(distance) => self.on_stack(distance.into(), 8, UNSIGNED, span),
        }
    }

    fn on_stack(&mut self, distance: u64, bytes: u8, of: Type, span: Span) -> Result<Value, Error> {
        let stack = self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Register(Register::Sp) }, span)?;
        self.load(Spot::Memory(stack.at, distance), bytes, of, span)
    }

    /// A number of so many bytes, which `of` says the sign of.
    pub fn load(&mut self, spot: Spot, bytes: u8, of: Type, span: Span) -> Result<Value, Error> {
        let signed = of == SIGNED;
        let (place, offset) = match spot {
            Spot::Memory(base, 0) => return self.give(of, |to| Op::Read { to, address: base, bytes, signed }, span),
            Spot::Memory(base, offset) => {
                let address = self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at;
                return self.give(of, |to| Op::Read { to, address, bytes, signed }, span);
            }
            Spot::Passed(place, offset) => (place, offset),
        };
        let word = match place {
            Place::At(source) => {
                let address = self.source(source, span)?;
                return self.load(Spot::Memory(address.at, offset), bytes, of, span);
            }
            Place::Constant(value) => Value::constant(value.checked_shr(8 * offset as u32).unwrap_or(0), false),
            Place::Unknown(why) => return Err(span.error(Problem::Unknown { why })),
            Place::Nothing => Value::constant(0, false),
            Place::Words { first, second } => {
                let end = offset.saturating_add(bytes.into());
                let has = |part: &Part| {
                    u64::from(part.offset) <= offset && end <= u64::from(part.offset) + u64::from(part.bytes)
                };
                let part = [Some(first), second].into_iter().flatten().find(has);
                // Bytes of two parts.
                let part = part.ok_or(span.error(Problem::Lost))?;
                let distance = offset - u64::from(part.offset);
                if let Source::Stack(stack) = part.source {
                    return self.on_stack(u64::from(stack) + distance, bytes, of, span);
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

    /// A value where a number, a string or an address is wanted.
    pub fn scalar(&mut self, value: Typed, span: Span) -> Result<Value, Error> {
        self.scalar_within(value, STEPS_MAX, span)
    }

    /// The same, after so many steps at most.
    fn scalar_within(&mut self, value: Typed, steps: usize, span: Span) -> Result<Value, Error> {
        let steps = steps.checked_sub(1).ok_or(span.error(Problem::Deep))?;
        let of = self.rust(value.of, span)?;
        let bytes = u8::try_from(of.size).unwrap_or(u8::MAX);
        let no_number = span.error(Problem::NotANumber { of: of.name });
        match of.kind {
            Kind::Integer { signed } if matches!(bytes, 1 | 2 | 4 | 8) => {
                self.load(value.spot, bytes, Type::Integer { signed }, span)
            }
            Kind::Enumeration { signed, .. } if matches!(bytes, 1 | 2 | 4 | 8) => {
                self.load(value.spot, bytes, Type::Integer { signed }, span)
            }
            Kind::Bool => self.load(value.spot, 1, UNSIGNED, span),
            Kind::Char => self.load(value.spot, 4, UNSIGNED, span),
            Kind::Function => self.load(value.spot, 8, Type::Symbol, span),
            Kind::Pointer { flavor, target, at } => {
                let to = self.rust(target, span)?;
                let (signed, is_simple) = match to.kind {
                    Kind::Integer { signed } => (signed, true),
                    Kind::Bool | Kind::Char | Kind::Enumeration { .. } | Kind::Sequence { .. } => (false, true),
                    Kind::Pointer { flavor, .. } => (false, flavor != Flavor::Raw),
                    _ => (false, false),
                };
                match (flavor, is_simple, to.kind) {
                    // A reference stands for what it leads to, if that is simple, and otherwise for its address.
                    (Flavor::Reference | Flavor::Shared, true, _) => {
                        let value = self.followed(value, span)?;
                        self.scalar_within(value, steps, span)
                    }
                    (Flavor::Raw, _, Kind::Integer { .. }) if matches!(to.size, 1 | 2 | 4 | 8) => {
                        self.load(value.spot, 8, Type::Pointer { signed, bytes: to.size as u8 }, span)
                    }
                    (Flavor::Shared, ..) => {
                        let address = self.load(value.spot, 8, UNSIGNED, span)?;
                        self.compute(Arithmetic::Add, address.at, Operand::Constant(at.into()), UNSIGNED, span)
                    }
                    _ => self.load(value.spot, 8, UNSIGNED, span),
                }
            }
            Kind::Wrapper { .. } => {
                let value = self.inner(value, span)?.ok_or(no_number)?;
                self.scalar_within(value, steps, span)
            }
            Kind::Sequence { is_text: true, .. } => self.sequence_text(value, None, span)?.ok_or(no_number),
            Kind::Struct { mut members, .. } => {
                let types = self.types(span)?;
                let has_bytes =
                    |member: &kprobes_types::Member<'static>| types.get(member.of).is_some_and(|of| of.size > 0);
                let only = members.find(has_bytes).filter(|_| !members.any(|member| has_bytes(&member)));
                let only = only.ok_or(no_number)?;
                // What is wrong is wrong with the whole.
                let inner = Typed { of: only.of, spot: value.spot.at(only.offset.into()) };
                match self.rust(only.of, span)?.kind {
                    Kind::Variants { .. } | Kind::Array { .. } | Kind::Unit | Kind::Opaque => Err(no_number),
                    _ => self.scalar_within(inner, steps, span),
                }
            }
            _ => Err(no_number),
        }
    }

    /// Where the elements of a string or of a slice of bytes are, and how many there are; nothing for another value.
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
                match value.spot {
                    Spot::Memory(base, offset) if is_bytes => {
                        let at = self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at;
                        Some((at, Operand::Constant(count)))
                    }
                    Spot::Passed(Place::At(source), offset) if is_bytes => {
                        let base = self.source(source, span)?.at;
                        let at = self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at;
                        Some((at, Operand::Constant(count)))
                    }
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// How many elements a value has, if it has any number of them.
    pub fn count_of(&mut self, value: Typed, span: Span) -> Result<Option<Value>, Error> {
        let value = self.followed(value, span)?;
        Ok(match self.rust(value.of, span)?.kind {
            Kind::Sequence { length, .. } => Some(self.load(value.spot.at(length.into()), 8, UNSIGNED, span)?),
            Kind::Array { count, .. } => Some(Value::constant(count, false)),
            _ => None,
        })
    }

    /// A value where it is shown: as Rust names it, if it is a bool, a char or an enum, of which with fields the variant is shown;
    /// otherwise as where a number is wanted.
    pub fn shown(&mut self, expression: &Expression) -> Result<Value, Error> {
        let span = expression.span;
        let Some(typed) = self.typed(expression)? else { return self.value(expression) };
        let value = self.followed(typed, span)?;
        let of = self.rust(value.of, span)?;
        match of.kind {
            Kind::Bool | Kind::Char | Kind::Enumeration { .. } => {
                let number = self.scalar(value, span)?;
                let of = self.checker.known(Known::Whole(value.of), 1, span)?;
                Ok(Value { of, ..number })
            }
            Kind::Variants { .. } => self.variant(value, span),
            _ => self.scalar(typed, span),
        }
    }

    /// Which variant an enum with fields is.
    fn variant(&mut self, value: Typed, span: Span) -> Result<Value, Error> {
        let of = self.rust(value.of, span)?;
        let Kind::Variants { tag, variants } = of.kind else {
            return Err(span.error(Problem::NotAnEnum { of: of.name }));
        };
        let tags = Tags::of(tag.map_or(8, |tag| tag.bytes), variants.clone().filter_map(|variant| variant.value));
        let known = self.checker.known(Known::Variant { of: value.of, first: tags.first }, 1, span)?;
        let Some(tag) = tag else { return Ok(Value { at: Operand::Constant(u64::MAX), of: known }) };
        let number = self.load(value.spot.at(tag.offset.into()), tag.bytes, UNSIGNED, span)?;
        let distance = self.distance(number, tag.bytes, tags.first, span)?;
        if variants.clone().all(|variant| variant.value.is_some()) {
            return Ok(Value { of: known, ..distance });
        }
        let to = self.room(1, span)?;
        self.push(Op::Set { to, from: distance.at }, span)?;
        let (left, right) = (Operand::Word(to), Operand::Constant(tags.span));
        let mut exits = alloc::vec::Vec::new();
        self.branch_if(Comparison::Below, left, right, &mut exits, span)?;
        self.push(Op::Set { to, from: Operand::Constant(u64::MAX) }, span)?;
        self.land(&exits);
        Ok(Value { at: left, of: known })
    }

    /// How far a tag is above another, in its bytes.
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

    /// A comparison with a variant, if `path` names one and `value` is a value of Rust: what holds then of which numbers.
    pub fn is_variant(
        &mut self,
        operator: Operator,
        value: &Expression,
        path: &Expression,
    ) -> Result<Option<(Comparison, Operand, Operand)>, Error> {
        let (name, is_path) = match &*path.form {
            ExpressionForm::Path(path) => (path.as_str(), true),
            // No value that is there begins with a capital letter, but every variant does.
            ExpressionForm::Builtin(name) => (name.as_str(), name.starts_with(|c: char| c.is_ascii_uppercase())),
            _ => return Ok(None),
        };
        let span = value.span;
        let Some(value) = self.typed(value)? else { return Ok(None) };
        let value = self.followed(value, span)?;
        let of = self.rust(value.of, span)?;
        let mut segments = name.rsplit("::").map(str::trim);
        let name = segments.next().unwrap_or("");
        // What precedes the variant is the type, and modules that it is in.
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
                let number = self.load(value.spot.at(tag.offset.into()), tag.bytes, UNSIGNED, span)?;
                if let Some(wanted) = found.value {
                    return Ok(Some((how, number.at, Operand::Constant(wanted))));
                }
                let tags = Tags::of(tag.bytes, all.filter_map(|one| one.value));
                let distance = self.distance(number, tag.bytes, tags.first, span)?;
                let how = if equal { Comparison::AboveEqual } else { Comparison::Below };
                Ok(Some((how, distance.at, Operand::Constant(tags.span))))
            }
            _ if is_path => Err(path.span.error(Problem::NotAnEnum { of: of.name })),
            _ => Ok(None),
        }
    }
}

/// The tags of variants: from which on, and how many up to the last, where the numbers of their size begin again behind the
/// greatest.
pub(super) struct Tags {
    pub first: u64,
    pub span: u64,
}

impl Tags {
    /// The fewest numbers in a row that have all `values`.
    pub fn of(bytes: u8, values: impl Iterator<Item = u64> + Clone) -> Self {
        let most = u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)));
        let span = |first: u64| values.clone().map(|value| value.wrapping_sub(first) & most).max().unwrap_or(0);
        let first = values.clone().min_by_key(|&first| span(first)).unwrap_or(0);
        Self { first, span: span(first).saturating_add(1) }
    }
}
