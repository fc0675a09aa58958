//! Writes the entries of a map: in ascending order of their values if these are numbers or aggregations, otherwise in
//! that of their keys.

use core::cmp::Ordering;
use core::fmt::{self, Write};

use fallible::OutOfMemory;
use kprobes_vm::hit::{total, wide};
use kprobes_vm::ir::{Aggregate, Map, MapValue, Series, Type};
use kprobes_vm::maps::Entries;

use super::{OutputFormat, Reporter, histogram, line, series, split, widened};
use crate::checked::RustValue;

/// Returns the number by which an entry is sorted.
fn order(kept: MapValue, value: &[u64]) -> i128 {
    let first = value.first().copied().unwrap_or(0);
    match kept {
        MapValue::Value(of) => widened(first, of == Type::Integer { signed: true }),
        MapValue::Aggregate(Aggregate::Histogram { .. } | Aggregate::Linear { .. }) => {
            value.iter().map(|&count| i128::from(count)).sum()
        }
        MapValue::Aggregate(Aggregate::Series(of)) => {
            let all = (0..usize::from(of.intervals)).filter_map(|place| of.interval(value, place));
            let (_, newest) = all.max_by_key(|(number, _)| *number).unwrap_or_default();
            widened(newest, of.signed)
        }
        MapValue::Aggregate(aggregate) => widened(total(&aggregate, value), is_signed(aggregate)),
    }
}

/// Compares the bytes in these words, of which the first is the lowest of its word.
fn compare_bytes(one: &[u64], other: &[u64]) -> Ordering {
    one.iter().map(|word| word.swap_bytes()).cmp(other.iter().map(|word| word.swap_bytes()))
}

/// Returns whether an aggregation is signed.
pub(super) fn is_signed(aggregate: Aggregate) -> bool {
    match aggregate {
        Aggregate::Statistics { signed } | Aggregate::Series(Series { signed, .. }) => signed,
        _ => aggregate.number() == Some(Type::Integer { signed: true }),
    }
}

impl Reporter<'_> {
    /// Writes the `top` greatest entries of a map, or all if `top` is 0, with numbers divided by `divisor`. If there is
    /// no memory to read the map, says so instead.
    pub(super) fn map(&self, number: usize, top: u64, divisor: u64, out: &mut dyn Write) -> fmt::Result {
        let Some(of) = self.program.code.maps.get(number) else { return Ok(()) };
        let Ok(entries) = self.sorted(number, of) else { return self.unread(of, out) };
        let all = entries.iter().len();
        let shown = if top == 0 { all } else { usize::try_from(top).unwrap_or(usize::MAX) };
        if self.format == OutputFormat::Json {
            return self.json_map(of, of.value, entries.iter().skip(all.saturating_sub(shown)), divisor, out);
        }
        for (key, value) in entries.iter().skip(all.saturating_sub(shown)) {
            self.key(of, key, out)?;
            self.entry(of.value, value, divisor, out)?;
            out.write_char('\n')?;
        }
        Ok(())
    }

    /// Returns the entries of map `number` in the order in which they are written.
    fn sorted(&self, number: usize, of: &Map) -> Result<Entries, OutOfMemory> {
        let mut entries = self.entries(number, of)?;
        match of.value {
            MapValue::Aggregate(_) | MapValue::Value(Type::Integer { .. } | Type::Pointer { .. }) => {
                entries.sort_by_number(|value| order(of.value, value))?;
            }
            MapValue::Value(_) => entries.sort_by_key(|one, other| self.compare(&of.keys, one, other)),
        }
        Ok(entries)
    }

    /// Writes that there was no memory to read a map.
    fn unread(&self, of: &Map, out: &mut dyn Write) -> fmt::Result {
        let sentence = fallible::format(format_args!("@{}: not printed: there was not enough memory", of.name))?;
        self.format.write_failure(&sentence, out)
    }

    /// Compares two keys of these parts: signed numbers by their sign, strings and bytes by their bytes, and values of
    /// Rust by their words.
    fn compare(&self, parts: &[Type], mut one: &[u64], mut other: &[u64]) -> Ordering {
        for &part in parts {
            let (left, right);
            (left, one) = split(one, part);
            (right, other) = split(other, part);
            let ordering = match part {
                Type::Integer { signed: true } => {
                    let signed = |words: &[u64]| words.first().map(|word| word.cast_signed());
                    signed(left).cmp(&signed(right))
                }
                Type::Text { .. } => compare_bytes(left, right),
                Type::Bytes { .. } => match (left, right) {
                    ([length, left @ ..], [other_length, right @ ..]) => {
                        compare_bytes(left, right).then(length.cmp(other_length))
                    }
                    _ => Ordering::Equal,
                },
                Type::Tuple { shape, .. } => self.compare(self.parts(shape), left, right),
                _ => left.cmp(right),
            };
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }

    /// Returns the types of the parts of a tuple.
    fn parts(&self, shape: u8) -> &[Type] {
        self.program.tuples.get(usize::from(shape)).map_or(&[], |of| &of.parts)
    }

    /// Returns the entries of map `number`. Aggregations for several addresses of one function or one line are merged,
    /// because they are shown under the same name.
    fn entries(&self, number: usize, of: &Map) -> Result<Entries, OutOfMemory> {
        let mut entries = self.store.read(number, of.value, self.masked)?;
        if let MapValue::Aggregate(_) = of.value {
            entries.change_keys(|key| self.unify(&of.keys, key))?;
        }
        Ok(entries)
    }

    /// Maps keys of these parts that are shown alike to equal keys: replaces addresses by the start of their function,
    /// or by their line.
    fn unify(&self, parts: &[Type], key: &mut [u64]) {
        let mut rest = key;
        for part in parts {
            let Some((words, others)) = rest.split_at_mut_checked(part.words().into()) else { return };
            if let ([address], Type::Symbol) = (&mut *words, part) {
                *address = self.names.symbol(*address).map_or(*address, |(_, start)| start);
            }
            if let &Type::Tuple { shape, .. } = part {
                self.unify(self.parts(shape), words);
            }
            if let ([address], &Type::Rust { shape, .. }) = (words, part)
                && self.program.rust_values.get(usize::from(shape)) == Some(&RustValue::Line)
            {
                let lines = self.names.types().and_then(|types| types.lines());
                *address = lines.and_then(|lines| line::key(&lines, *address)).unwrap_or(*address);
            }
            rest = others;
        }
    }

    /// Writes the aggregation for a key of map `number`, if it is more than a single number, as one entry. If there is
    /// no memory to read the map, says so instead.
    pub(super) fn collected(&self, number: usize, of: &Map, key: &[u64], out: &mut dyn Write) -> fmt::Result {
        let mut wanted = fallible::collect(key.iter().copied())?;
        self.unify(&of.keys, &mut wanted);
        let Ok(entries) = self.entries(number, of) else { return self.unread(of, out) };
        let found = entries.iter().find(|(key, _)| **key == wanted);
        let nothing = fallible::collect((0..of.value.words()).map(|_| 0))?;
        let value = found.map_or(nothing.as_slice(), |(_, value)| value);
        match self.format {
            OutputFormat::Json => self.json_map(of, of.value, [(key, value)].into_iter(), 1, out),
            OutputFormat::Text => {
                self.key(of, key, out)?;
                self.entry(of.value, value, 1, out)?;
                out.write_char('\n')
            }
        }
    }

    /// Writes the name of a map, and a key in brackets.
    pub(super) fn key(&self, of: &Map, key: &[u64], out: &mut dyn Write) -> fmt::Result {
        write!(out, "@{}", of.name)?;
        if of.keys.is_empty() {
            return Ok(());
        }
        let mut rest = key;
        for (number, &part) in of.keys.iter().enumerate() {
            out.write_str(if number == 0 { "[" } else { ", " })?;
            let (words, others) = split(rest, part);
            self.value(part, words, 1, out)?;
            rest = others;
        }
        out.write_char(']')
    }

    /// Writes the value for a key.
    fn entry(&self, kept: MapValue, value: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
        let aggregate = match kept {
            MapValue::Value(of) => {
                out.write_str(": ")?;
                return self.value(of, value, divisor, out);
            }
            MapValue::Aggregate(aggregate) => aggregate,
        };
        let number = Type::Integer { signed: is_signed(aggregate) };
        match aggregate {
            Aggregate::Histogram { bits } => {
                out.write_str(":\n")?;
                histogram::write_powers(value, bits, divisor, out)
            }
            Aggregate::Linear { least, step, .. } => {
                out.write_str(":\n")?;
                histogram::write_linear(value, least, step, divisor, out)
            }
            Aggregate::Series(of) => {
                out.write_str(":\n")?;
                series::write(&of, value, divisor, out)
            }
            Aggregate::Statistics { .. } => {
                let count = value.first().copied().unwrap_or(0);
                let sum = if let &[_, low, high] = value { wide([low, high]) } else { 0 };
                write!(out, ": count {count}, average ")?;
                self.value(number, &[total(&aggregate, value)], divisor, out)?;
                if is_signed(aggregate) {
                    write!(out, ", total {}", sum.cast_signed())
                } else {
                    write!(out, ", total {sum}")
                }
            }
            _ => {
                out.write_str(": ")?;
                self.value(number, &[total(&aggregate, value)], divisor, out)
            }
        }
    }
}
