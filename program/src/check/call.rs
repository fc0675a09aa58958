//! Compiles calls: functions with a value, aggregations, and actions.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_types::LineError;
use kprobes_vm::code::{
    Aggregate, Builtin, Comparison, MapValue, Op, Operand, ROWS_MAX, Register, STACK_MAX, Type, Word,
};

use super::clause::Clause;
use super::format;
use super::typed::Typed;
use super::value::{SIGNED, TEXT_MAX, UNSIGNED, Value, constant, number, text_words};
use crate::builtins::is_callable;
use crate::checked::{Action, PrintKind, RustValue};
use crate::error::{Error, Noun, Problem, Span};
use crate::foreign;
use crate::report::{self, Conversion, Piece, Shown};
use crate::syntax::{Expression, ExpressionForm, MapReference, Spanned};

/// The room for a string of unknown length, in words.
const TEXT_WORDS: u8 = 8;

/// The aggregations.
const AGGREGATES: [&str; 8] = ["count", "sum", "avg", "min", "max", "stats", "hist", "lhist"];
/// The actions: calls without a value.
const ACTIONS: [&str; 13] = [
    "printf",
    "errorf",
    "warnf",
    "time",
    "print",
    "clear",
    "zero",
    "delete",
    "exit",
    "assert",
    "assert_str",
    "static_assert",
    "fail",
];

/// Refuses a wrong number of arguments.
fn count(arguments: &[Expression], least: usize, most: usize, span: Span) -> Result<(), Error> {
    match (least..=most).contains(&arguments.len()) {
        true => Ok(()),
        false => Err(span.error(Problem::ArgumentCount { least, most })),
    }
}

/// Returns the text of a string literal.
pub(super) fn written(argument: &Expression) -> Result<&str, Error> {
    match &*argument.form {
        ExpressionForm::Text(text) => Ok(text),
        _ => Err(argument.span.error(Problem::NotLiteral)),
    }
}

/// Returns the map of an expression, with its key if it has one.
fn map(argument: &Expression) -> Result<&MapReference, Error> {
    match &*argument.form {
        ExpressionForm::Map(map) => Ok(map),
        _ => Err(argument.span.error(Problem::NotAMap)),
    }
}

impl Clause<'_, '_> {
    /// Returns the constant value of `argument`, which must be from `least` to `most`.
    fn known(&mut self, argument: &Expression, least: u64, most: u64) -> Result<u64, Error> {
        let value = self.value(argument)?;
        let value = number(value, argument.span)?;
        let value = constant(value, argument.span)?;
        match (least..=most).contains(&value) {
            true => Ok(value),
            false => Err(argument.span.error(Problem::Range { least, most })),
        }
    }

    /// Compiles a call with a value.
    pub fn call(&mut self, name: &Spanned<String>, arguments: &[Expression], span: Span) -> Result<Value, Error> {
        match (name.node.as_str(), arguments) {
            (question, _) if let Some(answer) = self.question(question, arguments, span)? => Ok(answer),
            ("str", [pointer]) => self.text(pointer, None, span),
            ("str", [pointer, length]) => self.text(pointer, Some(length), span),
            ("str", _) => Err(span.error(Problem::ArgumentCount { least: 1, most: 2 })),
            ("kaddr", [path]) => {
                let address = self.symbol(written(path)?, path.span)?;
                Ok(Value { of: UNSIGNED, ..address })
            }
            ("ksym", [address]) => {
                let value = self.value(address)?;
                match value.of {
                    Type::Symbol => Ok(value),
                    _ => Ok(Value { of: Type::Symbol, ..number(value, address.span)? }),
                }
            }
            ("line", [address]) => {
                let value = self.value(address)?;
                let value = if value.of == Type::Symbol { value } else { number(value, address.span)? };
                if self.types(span)?.lines().is_none() {
                    return Err(span.error(Problem::Line { why: LineError::NoLines }));
                }
                Ok(Value { of: self.checker.rust_type(RustValue::Line, 1, span)?, ..value })
            }
            ("reg", [register]) => {
                let which = self::register(written(register)?).ok_or(register.span.error(Problem::Register))?;
                self.allow(self.allowed.hit, Problem::NoHit, span)?;
                self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Register(which) }, span)
            }
            ("kstack", [frames]) => {
                let frames = self.known(frames, 1, STACK_MAX as u64)?;
                self.stack(frames as usize, span)
            }
            ("kstack", []) => self.stack(STACK_MAX, span),
            ("len", [what]) => self.length(what, span),
            ("strlen", [text]) => {
                let (at, words) = self.string(text)?;
                self.give(UNSIGNED, |to| Op::Length { to, text: at, words }, span)
            }
            ("strstr", [text, part]) => self.find(text, part, span),
            ("strcontains", [text, part]) => {
                let found = self.find(text, part, span)?;
                let (how, left, right) = (Comparison::Unequal, found.at, Operand::Constant(u64::MAX));
                self.give(SIGNED, |to| Op::Compare { to, how, left, right }, span)
            }
            ("has_key", [what, key]) => {
                let (map, key) = self.map_entry(what, key)?;
                self.give(SIGNED, |to| Op::Has { to, map, key }, span)
            }
            ("find", [what, key, variable]) => self.find_key(what, key, variable, span),
            ("find", _) => Err(span.error(Problem::ArgumentCount { least: 3, most: 3 })),
            ("bswap", [number]) => self.swap_bytes(number, span),
            ("nsecs", [clock]) => match &*clock.form {
                // No clock counts while the machine sleeps: it never does.
                ExpressionForm::Builtin(name) if matches!(name.as_str(), "boot" | "monotonic") => {
                    self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Nanoseconds }, span)
                }
                _ => Err(clock.span.error(Problem::Clock)),
            },
            ("nsecs", _) => Err(span.error(Problem::ArgumentCount { least: 0, most: 1 })),
            ("buf", [pointer, length]) => self.bytes(pointer, length, span),
            ("strftime", [format, nanoseconds]) => {
                let of = self.time_format(format)?;
                let value = self.value(nanoseconds)?;
                Ok(Value { of, ..number(value, nanoseconds.span)? })
            }
            ("strncmp", [one, other, length]) => self.compare(one, other, length, span),
            ("strncmp", _) => Err(span.error(Problem::ArgumentCount { least: 3, most: 3 })),
            ("strstr" | "strcontains" | "has_key" | "buf" | "strftime", _) => {
                Err(span.error(Problem::ArgumentCount { least: 2, most: 2 }))
            }
            ("kstack", _) => Err(span.error(Problem::ArgumentCount { least: 0, most: 1 })),
            ("kaddr" | "ksym" | "line" | "reg" | "len" | "strlen" | "bswap", _) => {
                Err(span.error(Problem::ArgumentCount { least: 1, most: 1 }))
            }
            (aggregate, _) if AGGREGATES.contains(&aggregate) => Err(span.error(Problem::AggregateAlone)),
            (action, _) if ACTIONS.contains(&action) => Err(span.error(Problem::NotAValue)),
            (builtin, _) if is_callable(builtin) => Err(span.error(Problem::ArgumentCount { least: 0, most: 0 })),
            (unknown, _) => Err(name.span.error(foreign::value(unknown).unwrap_or(Problem::Function))),
        }
    }

    /// Reads the text of a Rust string or byte sequence, at most `most` bytes; `None` for any other value.
    pub fn sequence_text(
        &mut self,
        value: Typed,
        most: Option<(u64, Span)>,
        span: Span,
    ) -> Result<Option<Value>, Error> {
        let Some((address, length)) = self.bytes_of(value, span)? else { return Ok(None) };
        let Some((most, at)) = most else {
            let of = Type::Text { words: TEXT_WORDS };
            return Ok(Some(self.give(of, |to| Op::ReadText { to, words: TEXT_WORDS, address, length }, span)?));
        };
        let words = text_words(most as usize).ok_or(at.error(Problem::Range { least: 1, most: TEXT_MAX as u64 }))?;
        let fewest = self.room(1, span)?;
        let (left, right) = (Operand::Word(fewest), Operand::Constant(most));
        self.push(Op::Set { to: fewest, from: length }, span)?;
        let mut exits = Vec::new();
        self.branch_if(Comparison::BelowEqual, left, right, &mut exits, span)?;
        self.push(Op::Set { to: fewest, from: right }, span)?;
        self.land(&exits);
        Ok(Some(self.give(Type::Text { words }, |to| Op::ReadText { to, words, address, length: left }, span)?))
    }

    /// `str`: reads a string from memory.
    fn text(&mut self, pointer: &Expression, length: Option<&Expression>, span: Span) -> Result<Value, Error> {
        self.allow(self.allowed.hit, Problem::NoHit, span)?;
        if let Some(typed) = self.typed(pointer)? {
            let most = length.map(|length| Ok::<_, Error>((self.known(length, 1, TEXT_MAX as u64)?, length.span)));
            if let Some(text) = self.sequence_text(typed, most.transpose()?, pointer.span)? {
                return Ok(text);
            }
        }
        let value = self.value(pointer)?;
        if let (Type::Text { .. }, None, true) = (value.of, length, self.is_at_events()) {
            // A field of a static event is the string already.
            return Ok(value);
        }
        let address = number(value, pointer.span)?.at;
        let (words, length) = match length {
            None => (TEXT_WORDS, Operand::Constant(u64::from(TEXT_WORDS) * 8 - 1)),
            Some(expression) => {
                let value = self.value(expression)?;
                let value = number(value, expression.span)?;
                match value.at {
                    Operand::Word(_) => (TEXT_WORDS, value.at),
                    Operand::Constant(bytes) => {
                        let most = TEXT_MAX as u64;
                        let problem = expression.span.error(Problem::Range { least: 1, most });
                        let words = (1..=most).contains(&bytes).then(|| text_words(bytes as usize)).flatten();
                        (words.ok_or(problem)?, value.at)
                    }
                }
            }
        };
        self.give(Type::Text { words }, |to| Op::ReadText { to, words, address, length }, span)
    }

    /// `len`: the number of keys of a map, frames of a stack, or bytes of a string or buffer.
    fn length(&mut self, what: &Expression, span: Span) -> Result<Value, Error> {
        if let ExpressionForm::Map(map) = &*what.form
            && map.keys.is_empty()
        {
            let number = self.map_number(&map.name, what.span)?;
            let keys = self.checker.maps.get(usize::from(number)).and_then(|known| known.keys.as_ref());
            match (keys.is_some_and(|keys| !keys.is_empty()), self.kept(number, what.span)) {
                (_, Err(_)) if self.checker.is_learning() => {
                    self.guessed = true;
                    return Ok(Value::constant(0, false));
                }
                (true, Ok(MapValue::Value(_))) => return self.give(UNSIGNED, |to| Op::Keys { to, map: number }, span),
                (true, Ok(MapValue::Aggregate(_))) => return Err(what.span.error(Problem::CollectedKeys)),
                _ => {}
            }
        }
        if let Some(typed) = self.typed(what)?
            && let Some(count) = self.count_of(typed, what.span)?
        {
            return Ok(count);
        }
        let value = self.value(what)?;
        match (value.of, value.at) {
            (Type::Stack, stack) => self.give(UNSIGNED, |to| Op::Frames { to, stack }, span),
            (Type::Text { words }, Operand::Word(text)) => {
                self.give(UNSIGNED, |to| Op::Length { to, text, words }, span)
            }
            (Type::Bytes { .. }, at) => Ok(Value { at, of: UNSIGNED }),
            (of, _) => Err(what.span.error(Problem::Type { wanted: Noun::Text, found: of.into() })),
        }
    }

    /// Returns the first word of a string, and its number of words.
    pub fn string(&mut self, text: &Expression) -> Result<(Word, u8), Error> {
        let value = self.value(text)?;
        let Type::Text { words } = value.of else {
            return Err(text.span.error(Problem::Type { wanted: Noun::Text, found: value.of.into() }));
        };
        Ok((self.in_words(value, value.of, text.span)?, words))
    }

    /// `strstr`: the offset of the first occurrence of a string in another, or -1.
    fn find(&mut self, text: &Expression, part: &Expression, span: Span) -> Result<Value, Error> {
        let (text, text_words) = self.string(text)?;
        let (part, part_words) = self.string(part)?;
        self.give(SIGNED, |to| Op::Find { to, text, text_words, part, part_words }, span)
    }

    /// `find`: whether a map has a value for a key, which is then given to a variable.
    fn find_key(
        &mut self,
        what: &Expression,
        key: &Expression,
        variable: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let ExpressionForm::Variable(name) = &*variable.form else {
            return Err(variable.span.error(Problem::NoTarget));
        };
        let (map, key) = self.map_entry(what, key)?;
        let found = self.give(SIGNED, |to| Op::Has { to, map, key }, span)?;
        let mut exits = Vec::new();
        self.branch_if(Comparison::Equal, found.at, Operand::Constant(0), &mut exits, span)?;
        let value = self.read_entry(map, key, what.span)?;
        let known = self.variable(name).ok_or(variable.span.error(Problem::Unset))?;
        self.assign_known(known, value, variable.span)?;
        self.land(&exits);
        Ok(found)
    }

    /// `buf`: reads bytes from memory.
    fn bytes(&mut self, pointer: &Expression, length: &Expression, span: Span) -> Result<Value, Error> {
        self.allow(self.allowed.hit, Problem::NoHit, span)?;
        let value = self.value(pointer)?;
        let address = number(value, pointer.span)?.at;
        let value = self.value(length)?;
        let value = number(value, length.span)?;
        let words = match value.at {
            Operand::Word(_) => TEXT_WORDS,
            Operand::Constant(bytes) => {
                let most = TEXT_MAX as u64 + 1;
                let problem = length.span.error(Problem::Range { least: 1, most });
                if (1..=most).contains(&bytes) { bytes.div_ceil(8) as u8 } else { return Err(problem) }
            }
        };
        let (words, length) = (words + 1, value.at);
        self.give(Type::Bytes { words }, |to| Op::ReadBytes { to, words, address, length }, span)
    }

    /// Returns the type of times with this format.
    fn time_format(&mut self, format: &Expression) -> Result<Type, Error> {
        let text = written(format)?;
        if !report::is_time_format(text) {
            return Err(format.span.error(Problem::TimeFormat));
        }
        Ok(Type::Time { format: self.checker.format(text, format.span)? })
    }

    /// `strncmp`: 0 if the first bytes of two strings are equal.
    fn compare(
        &mut self,
        one: &Expression,
        other: &Expression,
        length: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let mut texts = [Word(0); 2];
        let bytes = self.known(length, 1, TEXT_MAX as u64)? as u8;
        for (place, text) in texts.iter_mut().zip([one, other]) {
            let value = self.value(text)?;
            let Type::Text { words } = value.of else {
                return Err(text.span.error(Problem::Type { wanted: Noun::Text, found: value.of.into() }));
            };
            let of = Type::Text { words: words.max(bytes.div_ceil(8)) };
            *place = self.in_words(value, of, text.span)?;
        }
        let [left, right] = texts;
        self.give(SIGNED, |to| Op::Differ { to, left, right, bytes }, span)
    }

    /// Returns the aggregation and its operand, if the call is an aggregation.
    pub fn aggregate(
        &mut self,
        name: &Spanned<String>,
        arguments: &[Expression],
        span: Span,
    ) -> Result<Option<(MapValue, Operand)>, Error> {
        if !AGGREGATES.contains(&name.node.as_str()) {
            return Ok(None);
        }
        let (least, most) = match name.node.as_str() {
            "count" => (0, 0),
            "lhist" => (4, 4),
            _ => (1, 1),
        };
        count(arguments, least, most, span)?;
        let Some((first, bounds)) = arguments.split_first() else {
            return Ok(Some((MapValue::Aggregate(Aggregate::Count), Operand::Constant(1))));
        };
        let value = self.value(first)?;
        let value = number(value, first.span)?;
        let signed = value.is_signed();
        let aggregate = match name.node.as_str() {
            "sum" => Aggregate::Sum { signed },
            "avg" => Aggregate::Average { signed },
            "min" => Aggregate::Least { signed },
            "max" => Aggregate::Greatest { signed },
            "stats" => Aggregate::Statistics { signed },
            "hist" => Aggregate::Histogram,
            _ => self.bounds(bounds)?,
        };
        Ok(Some((MapValue::Aggregate(aggregate), value.at)))
    }

    /// Reads the bounds of a linear histogram: first, last and step.
    fn bounds(&mut self, bounds: &[Expression]) -> Result<Aggregate, Error> {
        let mut numbers = [0; 3];
        for (place, bound) in numbers.iter_mut().zip(bounds) {
            *place = self.known(bound, 0, u64::MAX)?.cast_signed();
        }
        let [least, most, step] = numbers;
        let steps = most.abs_diff(least).checked_div(step.unsigned_abs());
        if step < 1 || most <= least || steps.is_none_or(|steps| !(1..=ROWS_MAX).contains(&steps)) {
            let span = bounds.first().zip(bounds.last()).map(|(first, last)| first.span.to(last.span));
            return Err(span.unwrap_or_default().error(Problem::Bounds { most: ROWS_MAX }));
        }
        Ok(Aggregate::Linear { least, most, step })
    }

    /// Compiles an action.
    pub fn action(&mut self, name: &Spanned<String>, arguments: &[Expression], span: Span) -> Result<(), Error> {
        match (name.node.as_str(), arguments) {
            (assertion, _) if self.assertion(assertion, arguments, span)? => Ok(()),
            ("assert", [condition, message]) => {
                let mut holds = Vec::new();
                self.branch(condition, true, &mut holds)?;
                let text =
                    fallible::format(format_args!("{}assertion failed: {}\n", report::ERROR, written(message)?))?;
                let pieces = fallible::collect([Piece { text, conversion: None }])?;
                self.emit(Action::Format { pieces, kind: PrintKind::Error }, Word(0), 0, span)?;
                self.exit(span)?;
                self.land(&holds);
                Ok(())
            }
            ("assert", _) => Err(span.error(Problem::ArgumentCount { least: 2, most: 2 })),
            ("printf", [text, values @ ..]) => self.printf(PrintKind::Printf, text, values, span),
            ("errorf", [text, values @ ..]) => self.printf(PrintKind::Error, text, values, span),
            ("warnf", [text, values @ ..]) => self.printf(PrintKind::Warning, text, values, span),
            ("time", rest @ ([] | [_])) => {
                let of = match rest {
                    [format] => self.time_format(format)?,
                    _ => Type::Time { format: self.checker.format("%H:%M:%S\n", span)? },
                };
                let now = self.give(of, |to| Op::Load { to, what: Builtin::Nanoseconds }, span)?;
                let from = self.in_words(now, of, span)?;
                let conversion = Some(Conversion { shown: Shown::Text, of, ..Conversion::default() });
                let pieces = fallible::collect([Piece { text: String::new(), conversion }])?;
                self.emit(Action::Format { pieces, kind: PrintKind::Time }, from, 1, span)
            }
            ("time", _) => Err(span.error(Problem::ArgumentCount { least: 0, most: 1 })),
            ("printf" | "errorf" | "warnf", []) => Err(span.error(Problem::ArgumentCount { least: 1, most: 32 })),
            ("print", [what, rest @ ..]) if rest.len() <= 2 => self.print(what, rest, span),
            ("print", _) => Err(span.error(Problem::ArgumentCount { least: 1, most: 3 })),
            ("clear" | "zero", [what]) => {
                let map = self.whole(map(what)?, what.span)?;
                let action = if name.node == "clear" { Action::Clear { map } } else { Action::Zero { map } };
                self.emit(action, Word(0), 0, span)
            }
            ("delete", [what]) => {
                let MapReference { name, keys } = map(what)?;
                let (map, key) = self.entry(name, keys, what.span)?;
                self.is_kept(map, what.span)?;
                self.push(Op::Delete { map, key }, span)
            }
            // The key is an argument after the map, instead of in its brackets.
            ("delete", [what, key]) => {
                let (map, key) = self.map_entry(what, key)?;
                self.push(Op::Delete { map, key }, span)
            }
            ("delete", _) => Err(span.error(Problem::ArgumentCount { least: 1, most: 2 })),
            ("clear" | "zero", _) => Err(span.error(Problem::ArgumentCount { least: 1, most: 1 })),
            ("find", _) => self.call(name, arguments, span).map(drop),
            ("exit", []) => self.exit(span),
            ("exit", _) => Err(span.error(Problem::ArgumentCount { least: 0, most: 0 })),
            (aggregate, _) if AGGREGATES.contains(&aggregate) => Err(span.error(Problem::AggregateAlone)),
            _ => {
                self.call(name, arguments, span)?;
                Err(span.error(Problem::Useless))
            }
        }
    }

    /// Ends the program and this run of the clause.
    fn exit(&mut self, span: Span) -> Result<(), Error> {
        self.emit(Action::Exit, Word(0), 0, span)?;
        self.push(Op::Exit, span)?;
        let end = self.jump(span)?;
        Ok(fallible::push(&mut self.ends, end)?)
    }

    /// Returns the number of the map `what` and the word of the key, where the key is an argument of its own.
    fn map_entry(&mut self, what: &Expression, key: &Expression) -> Result<(u8, Word), Error> {
        let reference = map(what)?;
        if !reference.keys.is_empty() {
            return Err(what.span.error(Problem::NotAMap));
        }
        let (map, key) = self.entry(&reference.name, core::slice::from_ref(key), what.span)?;
        self.is_kept(map, what.span)?;
        Ok((map, key))
    }

    fn is_kept(&self, map: u8, span: Span) -> Result<(), Error> {
        if self.checker.is_learning() { Ok(()) } else { self.kept(map, span).map(drop) }
    }

    /// Returns the number of a map that is named without a key.
    fn whole(&mut self, map: &MapReference, span: Span) -> Result<u8, Error> {
        if !map.keys.is_empty() {
            return Err(span.error(Problem::NotAMap));
        }
        let number = self.map_number(&map.name, span)?;
        self.is_kept(number, span)?;
        Ok(number)
    }

    fn emit(&mut self, action: Action, from: Word, words: u8, span: Span) -> Result<(), Error> {
        let action = self.checker.action(action, span)?;
        self.push(Op::Emit { action, from, words }, span)
    }

    fn print(&mut self, what: &Expression, rest: &[Expression], span: Span) -> Result<(), Error> {
        let mut numbers = [0, 1];
        for (place, argument) in numbers.iter_mut().zip(rest) {
            *place = self.known(argument, *place, u64::MAX)?;
        }
        let [top, divisor] = numbers;
        match &*what.form {
            ExpressionForm::Map(reference) if reference.keys.is_empty() => {
                let map = self.whole(reference, what.span)?;
                self.emit(Action::PrintMap { map, top, divisor }, Word(0), 0, span)
            }
            _ if !rest.is_empty() => Err(what.span.error(Problem::NotAMap)),
            ExpressionForm::Map(reference) => {
                let (map, key) = self.entry(&reference.name, &reference.keys, what.span)?;
                let key_words = self.checker.maps.get(usize::from(map)).and_then(|known| known.keys.as_ref());
                let key_words = key_words.map_or(0, |keys| keys.iter().map(|of| of.words()).sum::<u8>());
                let of = match self.kept(map, what.span)? {
                    MapValue::Value(of) => Some(of),
                    MapValue::Aggregate(aggregate) => aggregate.number(),
                };
                let Some(of) = of else {
                    return self.emit(Action::PrintEntry { map }, key, key_words, span);
                };
                let words = key_words.saturating_add(of.words());
                let from = self.room(words, span)?;
                let to = Word(from.0.saturating_add(key_words));
                self.push(Op::Copy { to: from, from: key, words: key_words }, span)?;
                let op = match self.kept(map, what.span)? {
                    MapValue::Value(_) => Op::Get { to, map, key },
                    MapValue::Aggregate(_) => Op::Total { to, map, key },
                };
                self.push(op, span)?;
                self.emit(Action::PrintEntry { map }, from, words, span)
            }
            _ => {
                let value = self.printed(what)?;
                let from = self.in_words(value, value.of, what.span)?;
                self.emit(Action::Print { of: value.of }, from, value.of.words(), span)
            }
        }
    }

    /// Compiles `printf`, `errorf` or `warnf`.
    fn printf(
        &mut self,
        kind: PrintKind,
        text: &Expression,
        arguments: &[Expression],
        span: Span,
    ) -> Result<(), Error> {
        let (before, after) = match kind {
            PrintKind::Printf | PrintKind::Time => ("", ""),
            PrintKind::Error => (report::ERROR, "\n"),
            PrintKind::Warning => (report::WARNING, "\n"),
        };
        let whole = fallible::format(format_args!("{before}{}{after}", written(text)?))?;
        let mut pieces = format::pieces(&whole)?.ok_or(text.span.error(Problem::Conversion))?;
        let conversions = pieces.iter().filter(|piece| piece.conversion.is_some()).count();
        if conversions != arguments.len() {
            let problem = Problem::Conversions { conversions, arguments: arguments.len() };
            return Err(text.span.to(arguments.last().unwrap_or(text).span).error(problem));
        }
        let mut values = Vec::new();
        let converted = pieces.iter_mut().filter_map(|piece| piece.conversion.as_mut());
        for (argument, conversion) in arguments.iter().zip(converted) {
            let value = match conversion.shown {
                Shown::Text => self.shown(argument)?,
                Shown::Bytes { .. } => self.printed(argument)?,
                _ => self.value(argument)?,
            };
            format::fit(conversion, value.of).map_err(|problem| argument.span.error(problem))?;
            fallible::push(&mut values, (value, argument.span))?;
        }
        let words = values.iter().map(|(value, _)| usize::from(value.of.words())).sum::<usize>();
        let words = u8::try_from(words).map_err(|_| span.error(Problem::Room { most: u8::MAX.into() }))?;
        let from = match (values.as_slice(), words) {
            ([], _) => Word(0),
            ([(alone, at)], _) => self.in_words(*alone, alone.of, *at)?,
            _ => {
                let first = self.room(words, span)?;
                let mut to = first;
                for (value, at) in values {
                    self.place(value, to, value.of, at)?;
                    to = Word(to.0.saturating_add(value.of.words()));
                }
                first
            }
        };
        self.emit(Action::Format { pieces, kind }, from, words, span)
    }
}

/// Returns the register with this name.
fn register(name: &str) -> Option<Register> {
    match name {
        "sp" => Some(Register::Sp),
        "pc" => Some(Register::Pc),
        "pstate" => Some(Register::Pstate),
        "lr" => Some(Register::X(30)),
        _ => {
            let digits = name.strip_prefix('x')?;
            let is_plain = digits.len() == 1 || !digits.starts_with('0');
            let number = digits.parse().ok().filter(|number| is_plain && *number <= 30)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(Register::X(number))
        }
    }
}
