//! Time series: a row for each interval, with a point between the least value and the greatest.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use fallible::OutOfMemory;
use kprobes_vm::code::{INTERVAL_WORDS, Series};

use super::time;

/// The number of columns in which points lie.
const COLUMNS: usize = 53;

/// An interval: its start in nanoseconds since the start of the machine, and its value, if it has one.
pub(super) type Row = (u64, Option<i128>);

/// Returns the intervals of a series, from the first to the last that have values. A place whose interval is older than
/// the last ones has not been used again.
pub(super) fn rows(series: &Series, words: &[u64]) -> Result<Vec<Row>, OutOfMemory> {
    let known = || (0..words.len() / INTERVAL_WORDS).filter_map(|place| series.interval(words, place));
    let Some(newest) = known().map(|(number, _)| number).max() else { return Ok(Vec::new()) };
    let is_shown = |number: u64| newest - number < series.intervals.into();
    let first = known().map(|(number, _)| number).filter(|&number| is_shown(number)).min().unwrap_or(newest);
    let value = |value: u64| if series.signed { value.cast_signed().into() } else { i128::from(value) };
    fallible::collect((first..=newest).map(|row| {
        let place = row.checked_rem(series.intervals.into()).unwrap_or(0) as usize;
        let found = series.interval(words, place).filter(|(number, _)| *number == row);
        (row.saturating_mul(series.interval), found.map(|(_, found)| value(found)))
    }))
}

/// Writes the date and the time at which an interval starts, as exact as it is.
pub(super) fn write_date(start: u64, out: &mut dyn Write) -> fmt::Result {
    time::write("%F %H:%M:%S", start, out)?;
    write!(out, ".{:09}", start % 1_000_000_000)
}

/// Writes the time of day at which an interval starts, as exact as the length of the intervals asks for.
fn write_start(series: &Series, start: u64, out: &mut dyn Write) -> fmt::Result {
    time::write("%H:%M:%S", start, out)?;
    let fraction = start % 1_000_000_000;
    match unit(series) {
        "" => Ok(()),
        "ms" => write!(out, ".{:03}", fraction / 1_000_000),
        "us" => write!(out, ".{:06}", fraction / 1000),
        _ => write!(out, ".{fraction:09}"),
    }
}

/// Returns the unit in which fractions of seconds are shown; empty if there are none.
fn unit(series: &Series) -> &'static str {
    match series.interval {
        length if length.is_multiple_of(1_000_000_000) => "",
        length if length.is_multiple_of(1_000_000) => "ms",
        length if length.is_multiple_of(1000) => "us",
        _ => "ns",
    }
}

/// Writes a series as text. Values are divided by `divisor`.
pub(super) fn write(series: &Series, words: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
    let mut rows = rows(series, words)?;
    rows.iter_mut().for_each(|(_, value)| *value = value.map(|value| value / i128::from(divisor.max(1))));
    let values = || rows.iter().filter_map(|(_, value)| *value);
    let (Some(mut least), Some(mut most)) = (values().min(), values().max()) else {
        return out.write_str("<no data>\n");
    };
    if least == most {
        let bounds: [i128; 2] = if series.signed { [i64::MIN.into(), i64::MAX.into()] } else { [0, u64::MAX.into()] };
        (least, most) = ((least - 1).max(bounds[0]), (most + 1).min(bounds[1]));
    }
    let column = |value: i128| ((value - least) * (COLUMNS as i128 - 1) / (most - least).max(1)) as usize;
    let (name, width) = match unit(series) {
        "" => ("hh:mm:ss", 8),
        "ms" => ("hh:mm:ss.ms", 12),
        "us" => ("hh:mm:ss.us", 15),
        _ => ("hh:mm:ss.ns", 18),
    };
    let bounds = fallible::format(format_args!("{least:<21}{most:>32}"))?;
    writeln!(out, "{:width$} {bounds}", "")?;
    writeln!(out, "{name:<width$} |{:_<1$}|", "", COLUMNS - 2)?;
    for &(start, value) in &rows {
        write_start(series, start, out)?;
        let mut line = [b' '; COLUMNS];
        (line[0], line[COLUMNS - 1]) = (b'|', b'|');
        if least < 0 && most > 0 {
            line[column(0)] = b'.';
        }
        if let Some(value) = value {
            line[column(value)] = b'*';
        }
        let line = core::str::from_utf8(&line).unwrap_or_default();
        match value {
            Some(value) => writeln!(out, " {line} {value}")?,
            None => writeln!(out, " {line} -")?,
        }
    }
    writeln!(out, "{:width$} v{:_<2$}v", "", "", COLUMNS - 2)?;
    writeln!(out, "{:width$} {bounds}", "")
}
