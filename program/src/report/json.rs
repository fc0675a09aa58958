//! Output and maps as JSON, an object on each line, for programs on the host. The objects are those that
//! `bpftrace -f json` prints.
//!
//! bpftrace writes numbers that a double cannot hold as strings, because many JSON readers keep all numbers in doubles.

use alloc::string::String;
use core::fmt::{self, Write};

use kprobes_vm::hit::{total, wide};
use kprobes_vm::ir::{Aggregate, Map, MapValue, Type};

use super::entries::is_signed;
use super::{Reporter, bytes_of, histogram, series, split, string, widened};

/// Writes a JSON string with its quotes.
pub(super) fn quoted(text: &str, out: &mut dyn Write) -> fmt::Result {
    out.write_char('"')?;
    Escaped(out).write_str(text)?;
    out.write_char('"')
}

/// Escapes the text that is written to it for a JSON string.
pub(super) struct Escaped<'a>(pub(super) &'a mut dyn Write);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '"' => self.0.write_str("\\\""),
            '\\' => self.0.write_str("\\\\"),
            '\n' => self.0.write_str("\\n"),
            '\r' => self.0.write_str("\\r"),
            '\t' => self.0.write_str("\\t"),
            c if c.is_control() => write!(self.0, "\\u{:04x}", u32::from(c)),
            c => self.0.write_char(c),
        })
    }
}

/// Writes an object `{"type": TYPE, "data": DATA}`.
pub(super) fn object(kind: &str, out: &mut dyn Write, data: impl FnOnce(&mut dyn Write) -> fmt::Result) -> fmt::Result {
    write!(out, "{{\"type\": \"{kind}\", \"data\": ")?;
    data(out)?;
    out.write_str("}\n")
}

/// Writes an object `{"type": TYPE, "msg": TEXT}`.
pub(super) fn message(kind: &str, text: &str, out: &mut dyn Write) -> fmt::Result {
    write!(out, "{{\"type\": \"{kind}\", \"msg\": ")?;
    quoted(text, out)?;
    out.write_str("}\n")
}

/// Writes an object `{"type": TYPE, "count": COUNT, "data": {NAME: COUNT}}`.
pub(super) fn count(kind: &str, name: &str, count: u64, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{{\"type\": \"{kind}\", \"count\": {count}, \"data\": {{\"{name}\": {count}}}}}")
}

/// Writes a number, in quotes if a double cannot hold it.
fn number(value: i128, out: &mut dyn Write) -> fmt::Result {
    // The number of bits in the significand of a double. The bits of a number from its highest set bit to its lowest
    // must fit in it.
    const PRECISION: u32 = 53;
    let magnitude = value.unsigned_abs();
    let digits = u128::BITS - magnitude.leading_zeros() - magnitude.trailing_zeros().min(u128::BITS - 1);
    if magnitude == 0 || digits <= PRECISION { write!(out, "{value}") } else { write!(out, "\"{value}\"") }
}

/// Returns the `type` of the object for a map.
fn kind(kept: MapValue) -> &'static str {
    match kept {
        MapValue::Aggregate(Aggregate::Histogram { .. } | Aggregate::Linear { .. }) => "hist",
        MapValue::Aggregate(Aggregate::Average { .. } | Aggregate::Statistics { .. }) => "stats",
        MapValue::Aggregate(Aggregate::Series(_)) => "tseries",
        _ => "map",
    }
}

impl Reporter<'_> {
    /// Writes the object of a map with these entries of key and value. Writes nothing without entries.
    pub(super) fn json_map<'a>(
        &self,
        of: &Map,
        kept: MapValue,
        entries: impl Iterator<Item = (&'a [u64], &'a [u64])>,
        divisor: u64,
        out: &mut dyn Write,
    ) -> fmt::Result {
        let mut entries = entries.peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        object(kind(kept), out, |out| {
            write!(out, "{{\"@{}\": ", of.name)?;
            if of.keys.is_empty() {
                let value = entries.next().map_or(&[][..], |(_, value)| value);
                self.json_kept(kept, value, divisor, out)?;
                return out.write_char('}');
            }
            out.write_char('{')?;
            for (number, (key, value)) in entries.enumerate() {
                out.write_str(if number > 0 { ", \"" } else { "\"" })?;
                self.json_parts(&of.keys, &[], key, &mut Escaped(out))?;
                out.write_str("\": ")?;
                self.json_kept(kept, value, divisor, out)?;
            }
            out.write_str("}}")
        })
    }

    /// Writes the parts of a key as text, separated by commas. The parts of a record have names.
    fn json_parts(&self, parts: &[Type], names: &[String], key: &[u64], out: &mut dyn Write) -> fmt::Result {
        let mut rest = key;
        for (number, &part) in parts.iter().enumerate() {
            out.write_str(if number > 0 { "," } else { "" })?;
            if let Some(name) = names.get(number) {
                write!(out, ".{name}=")?;
            }
            let (words, others) = split(rest, part);
            rest = others;
            match part {
                Type::Text { .. } => out.write_str(&string(words)?)?,
                Type::Tuple { shape, .. } => {
                    let Some(of) = self.program.tuples.get(usize::from(shape)) else { return Ok(()) };
                    let [open, close] = match of.element_bytes {
                        0 if of.names.is_empty() => ['(', ')'],
                        0 => ['{', '}'],
                        _ => ['[', ']'],
                    };
                    out.write_char(open)?;
                    self.json_parts(&of.parts, &of.names, words, out)?;
                    out.write_char(close)?;
                }
                _ => self.value(part, words, 1, out)?,
            }
        }
        Ok(())
    }

    /// Writes the value for a key.
    fn json_kept(&self, kept: MapValue, value: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
        let aggregate = match kept {
            MapValue::Value(of) => return self.json_value(of, value, divisor, out),
            MapValue::Aggregate(aggregate) => aggregate,
        };
        let divided = |value: i128| value / i128::from(divisor.max(1));
        match aggregate {
            Aggregate::Histogram { bits } => rows(value, divisor, |row| histogram::powers(row, bits), out),
            Aggregate::Linear { least, step, .. } => {
                rows(value, divisor, |row| histogram::linear(row, value.len(), least, step), out)
            }
            Aggregate::Series(of) => {
                out.write_char('[')?;
                let intervals = series::intervals(&of, value)?;
                let valued = intervals.into_iter().filter_map(|(start, value)| Some((start, value?)));
                for (place, (start, value)) in valued.enumerate() {
                    out.write_str(if place > 0 { ",{\"interval_start\": \"" } else { "{\"interval_start\": \"" })?;
                    series::write_date(start, out)?;
                    out.write_str("\", \"value\": ")?;
                    number(divided(value), out)?;
                    out.write_char('}')?;
                }
                out.write_char(']')
            }
            Aggregate::Statistics { signed } => {
                let count = value.first().copied().unwrap_or(0);
                let sum = if let &[_, low, high] = value { wide([low, high]).cast_signed() } else { 0 };
                out.write_str("{\"count\": ")?;
                number(count.into(), out)?;
                out.write_str(", \"average\": ")?;
                number(divided(widened(total(&aggregate, value), signed)), out)?;
                out.write_str(", \"total\": ")?;
                number(sum, out)?;
                out.write_char('}')
            }
            _ => number(divided(widened(total(&aggregate, value), is_signed(aggregate))), out),
        }
    }

    /// Writes a value.
    pub(super) fn json_value(&self, of: Type, words: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
        let word = words.first().copied().unwrap_or(0);
        match of {
            Type::Integer { signed } => number(widened(word, signed) / i128::from(divisor.max(1)), out),
            Type::Pointer { .. } => number(word.into(), out),
            Type::Text { .. } => quoted(&string(words)?, out),
            Type::Bytes { .. } => {
                out.write_char('[')?;
                for (place, byte) in bytes_of(words).enumerate() {
                    write!(out, "{}{byte}", if place > 0 { "," } else { "" })?;
                }
                out.write_char(']')
            }
            Type::Tuple { shape, .. } => {
                let Some(of) = self.program.tuples.get(usize::from(shape)) else { return Ok(()) };
                let [open, close] = if of.names.is_empty() { ['[', ']'] } else { ['{', '}'] };
                out.write_char(open)?;
                let mut rest = words;
                for (place, &part) in of.parts.iter().enumerate() {
                    let (words, others) = split(rest, part);
                    rest = others;
                    out.write_str(if place > 0 { "," } else { "" })?;
                    if let Some(name) = of.names.get(place) {
                        quoted(name, out)?;
                        out.write_str(": ")?;
                    }
                    self.json_value(part, words, divisor, out)?;
                }
                out.write_char(close)
            }
            Type::Symbol | Type::Probe | Type::Stack { .. } | Type::Time { .. } | Type::Rust { .. } => {
                out.write_char('"')?;
                self.value(of, words, divisor, &mut Escaped(out))?;
                out.write_char('"')
            }
        }
    }
}

/// Writes the rows of a histogram, from the first that is not 0 to the last that is not 0, each with its bounds, both
/// inclusive.
fn rows(
    counts: &[u64],
    divisor: u64,
    bounds: impl Fn(usize) -> (Option<i128>, Option<i128>),
    out: &mut dyn Write,
) -> fmt::Result {
    out.write_char('[')?;
    let Some(range) = histogram::shown(counts) else { return out.write_char(']') };
    for row in range.clone() {
        out.write_str(if row > *range.start() { ",{" } else { "{" })?;
        let (least, end) = bounds(row);
        for (name, bound) in [("min", least), ("max", end.map(|end| end - 1))] {
            if let Some(bound) = bound {
                write!(out, "\"{name}\": ")?;
                number(bound, out)?;
                out.write_str(", ")?;
            }
        }
        write!(out, "\"count\": {}}}", counts.get(row).copied().unwrap_or(0) / divisor.max(1))?;
    }
    out.write_char(']')
}
