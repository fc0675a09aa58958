//! Compiles aggregations, and actions: calls without a value.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_vm::ir::{
    Aggregate, Arithmetic, Builtin, Combine, Comparison, HISTOGRAM_BITS_MAX, INTERVALS_MAX, MapValue, Op, Operand,
    ROWS_MAX, Series, Type, Word,
};

use super::call::{map, written};
use super::clause::Clause;
use super::format;
use super::map::read_op;
use super::value::UNSIGNED;
use super::variable_group::VariableGroup;
use crate::builtins::{Role, find};
use crate::checked::{ASSERTION_STATUS, Action, EXIT_STATUSES, PrintKind};
use crate::conversion::{Conversion, Piece, Shown};
use crate::error::{Error, Problem, Span};
use crate::report;
use crate::syntax::{Expression, ExpressionForm, MapReference, Spanned};

impl Clause<'_, '_> {
    /// Returns the aggregation and its operand, if the call is an aggregation.
    pub fn aggregate(
        &mut self,
        name: &Spanned<String>,
        arguments: &[Expression],
        span: Span,
    ) -> Result<Option<(MapValue, Operand)>, Error> {
        let Some(aggregate) = find(Role::Aggregate, &name.node) else { return Ok(None) };
        aggregate.check(arguments.len()).map_err(|problem| span.error(problem))?;
        let Some((first, rest)) = arguments.split_first() else {
            return Ok(Some((MapValue::Aggregate(Aggregate::Count), Operand::Constant(1))));
        };
        let value = self.numeric(first)?;
        let signed = value.is_signed();
        let aggregate = match name.node.as_str() {
            "sum" => Aggregate::Sum { signed },
            "avg" => Aggregate::Average { signed },
            "min" => Aggregate::Least { signed },
            "max" => Aggregate::Greatest { signed },
            "stats" => Aggregate::Statistics { signed },
            "hist" => {
                let bits = rest.first().map(|bits| self.known(bits, 0, HISTOGRAM_BITS_MAX.into())).transpose()?;
                Aggregate::Histogram { bits: bits.unwrap_or(0) as u8 }
            }
            "lhist" => self.bounds(rest)?,
            _ => self.series(rest, signed, span)?,
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

    /// Reads the length of the intervals of a time series, their number, and how values are combined.
    fn series(&mut self, rest: &[Expression], signed: bool, span: Span) -> Result<Aggregate, Error> {
        let [length, count, by @ ..] = rest else {
            return Err(span.error(Problem::ArgumentCount { least: 3, most: 4 }));
        };
        let interval = self.known(length, 1, i64::MAX.cast_unsigned())?;
        let intervals = self.known(count, 1, INTERVALS_MAX)? as u16;
        let by = match by.first() {
            None => Combine::Last,
            Some(by) => match written(by)? {
                "avg" => Combine::Average,
                "max" => Combine::Greatest,
                "min" => Combine::Least,
                "sum" => Combine::Sum,
                _ => return Err(by.span.error(Problem::SeriesFunction)),
            },
        };
        Ok(Aggregate::Series(Series { interval, intervals, by, signed }))
    }

    /// Compiles a call for its effect.
    pub fn action(&mut self, name: &Spanned<String>, arguments: &[Expression], span: Span) -> Result<(), Error> {
        match (name.node.as_str(), arguments) {
            (assertion, _) if self.assertion(assertion, arguments)? => Ok(()),
            ("assert", [condition, message]) => {
                let mut holds = Vec::new();
                self.branch(condition, true, &mut holds)?;
                let text =
                    fallible::format(format_args!("{}assertion failed: {}\n", report::ERROR, written(message)?))?;
                let pieces = fallible::collect([Piece { text, conversion: None }])?;
                self.emit(Action::Format { pieces, kind: PrintKind::Error }, Word(0), 0, span)?;
                self.exit(Operand::Constant(ASSERTION_STATUS.into()), span)?;
                self.land(&holds);
                Ok(())
            }
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
            ("print", [what, rest @ ..]) if rest.len() <= 2 => self.print(what, rest, span),
            ("clear" | "zero", [what]) => {
                let map = self.whole(map(what)?, what.span)?;
                let action = if name.node == "clear" { Action::Clear { map } } else { Action::Zero { map } };
                self.emit(action, Word(0), 0, span)
            }
            ("unwatch", [address]) => {
                let value = self.numeric(address)?;
                let from = self.in_words(value, value.of, span)?;
                self.emit(Action::Unwatch, from, 1, span)
            }
            ("delete", [what, rest @ ..]) if rest.len() < 2 => {
                let (map, key) = self.deleted_entry(what, rest.first())?;
                self.push(Op::Delete { map, key }, span)
            }
            ("exit", []) => self.exit(Operand::Constant(0), span),
            ("exit", [status]) => match self.numeric(status)?.at {
                Operand::Constant(known) if known != 0 && !EXIT_STATUSES.contains(&known) => {
                    Err(status.span.error(Problem::ExitStatus))
                }
                known @ Operand::Constant(_) => self.exit(known, span),
                computed => {
                    let status = self.exit_status(computed, span)?;
                    self.exit(status, span)
                }
            },
            ("find", _) => self.call(name, arguments, span).map(drop),
            (other, _) => {
                if let Some(action) = find(Role::Action, other) {
                    return Err(span.error(action.miscounted()));
                }
                self.call(name, arguments, span)?;
                Err(span.error(Problem::Useless))
            }
        }
    }

    /// Adds ops that replace `computed` by the greatest exit status if it is no exit status.
    fn exit_status(&mut self, computed: Operand, span: Span) -> Result<Operand, Error> {
        let (least, most) = EXIT_STATUSES.into_inner();
        let distance = self.compute(Arithmetic::Subtract, computed, Operand::Constant(least), UNSIGNED, span)?;
        let status = self.room(1, span)?;
        let mut exits = Vec::new();
        self.push(Op::Set { to: status, from: computed }, span)?;
        self.branch_if(Comparison::Equal, computed, Operand::Constant(0), &mut exits, span)?;
        self.branch_if(Comparison::BelowEqual, distance.at, Operand::Constant(most - least), &mut exits, span)?;
        self.push(Op::Set { to: status, from: Operand::Constant(most) }, span)?;
        self.land(&exits);
        Ok(Operand::Word(status))
    }

    /// Ends the program and this run of the clause.
    fn exit(&mut self, status: Operand, span: Span) -> Result<(), Error> {
        self.emit(Action::Exit, Word(0), 0, span)?;
        self.push(Op::Exit { status }, span)?;
        let end = self.jump(span)?;
        Ok(fallible::push(&mut self.ends, end)?)
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
            ExpressionForm::Builtin(name) if let Some(group) = VariableGroup::of(name) => {
                self.print_group(group, what.span)
            }
            ExpressionForm::Map(reference) => {
                let (map, key) = self.entry(&reference.name, &reference.keys, what.span)?;
                let key_words = self.checker.maps.get(usize::from(map)).and_then(|known| known.keys.as_ref());
                let key_words = key_words.map_or(0, |keys| keys.iter().map(|of| of.words()).sum::<u8>());
                let kept = self.kept(map, what.span)?;
                let Some(of) = kept.read_type() else {
                    return self.emit(Action::PrintEntry { map }, key, key_words, span);
                };
                let words = key_words.saturating_add(of.words());
                let from = self.room(words, span)?;
                let to = Word(from.0.saturating_add(key_words));
                self.push(Op::Copy { to: from, from: key, words: key_words }, span)?;
                self.push(read_op(kept, to, map, key), span)?;
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
            PrintKind::Printf | PrintKind::Time | PrintKind::Value => ("", ""),
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
        let from = match *values.as_slice() {
            [] => Word(0),
            [(alone, at)] => self.in_words(alone, alone.of, at)?,
            _ => self.row(values.iter().map(|&(value, at)| (value, value.of, at)), words, span)?,
        };
        self.emit(Action::Format { pieces, kind }, from, words, span)
    }

    /// Returns the type of times with this format.
    pub fn time_format(&mut self, format: &Expression) -> Result<Type, Error> {
        let text = written(format)?;
        if !report::is_time_format(text) {
            return Err(format.span.error(Problem::TimeFormat));
        }
        Ok(Type::Time { format: self.checker.format(text, format.span)? })
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

    pub fn emit(&mut self, action: Action, from: Word, words: u8, span: Span) -> Result<(), Error> {
        let action = self.checker.action(action, span)?;
        self.push(Op::Emit { action, from, words }, span)
    }
}
