//! Histograms as text: a row for each range, with a bar. Text and JSON take the rows and their bounds from this module.

use alloc::string::String;
use core::fmt::{self, Write};
use core::ops::RangeInclusive;

use fallible::{OutOfMemory, format};

/// The maximum length of a bar, in characters.
const BAR: usize = 52;

/// Writes the rows of `counts` from the first that is not 0 to the last that is not 0. `label` names a row. The counts
/// are divided by `divisor`.
fn write(
    counts: &[u64],
    divisor: u64,
    label: impl Fn(usize) -> Result<String, OutOfMemory>,
    out: &mut dyn Write,
) -> fmt::Result {
    let most = counts.iter().copied().max().unwrap_or(0);
    let Some(rows) = shown(counts) else { return Ok(()) };
    for (row, &count) in counts.iter().enumerate().filter(|(row, _)| rows.contains(row)) {
        let length = (u128::from(count) * BAR as u128).checked_div(most.into()).unwrap_or(0) as usize;
        let (label, rest) = (label(row)?, BAR - length);
        writeln!(out, "{label:<16}{:>8} |{:@<length$}{:<rest$}|", count / divisor.max(1), "", "")?;
    }
    Ok(())
}

/// Returns the rows to show: from the first that is not 0 to the last that is not 0.
pub(super) fn shown(counts: &[u64]) -> Option<RangeInclusive<usize>> {
    let first = counts.iter().position(|&count| count > 0)?;
    Some(first..=counts.iter().rposition(|&count| count > 0)?)
}

/// Returns the bounds of row `row` of a histogram by powers of two: the least number in the row, and the least above
/// it.
pub(super) fn powers(row: usize) -> (Option<i128>, Option<i128>) {
    let power = |exponent: usize| 1_i128.checked_shl(exponent as u32);
    match row {
        0 => (None, Some(0)),
        1 | 2 => (Some(row as i128 - 1), Some(row as i128)),
        _ => (power(row - 2), power(row - 1)),
    }
}

/// Returns the bounds of row `row` of a linear histogram of `words` rows: the least number in the row, and the least
/// above it.
pub(super) fn linear(row: usize, words: usize, least: i64, most: i64, step: i64) -> (Option<i128>, Option<i128>) {
    let rows = words.saturating_sub(2);
    let bound = |steps: usize| i128::from(least) + i128::from(step) * steps as i128;
    match row {
        0 => (None, Some(bound(0))),
        _ if row > rows => (Some(most.into()), None),
        _ => (Some(bound(row - 1)), Some(bound(row))),
    }
}

/// Writes a histogram by powers of two.
pub(super) fn write_powers(counts: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
    let label = |row: usize| match row {
        0 => fallible::copy("(..., 0)"),
        1 | 2 => format(format_args!("[{}]", row - 1)),
        _ => format(format_args!("[{}, {})", Power(row - 2), Power(row - 1))),
    };
    write(counts, divisor, label, out)
}

/// A power of 2, by its exponent.
struct Power(usize);

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = ["", "K", "M", "G", "T", "P", "E"].get(self.0 / 10).unwrap_or(&"");
        write!(f, "{}{suffix}", 1 << (self.0 % 10))
    }
}

/// Writes a linear histogram.
pub(super) fn write_linear(
    counts: &[u64],
    least: i64,
    most: i64,
    step: i64,
    divisor: u64,
    out: &mut dyn Write,
) -> fmt::Result {
    let label = |row: usize| {
        let (from, to) = linear(row, counts.len(), least, most, step);
        match (from.map(|bound| Bound { bound, step }), to.map(|bound| Bound { bound, step })) {
            (Some(from), Some(to)) => format(format_args!("[{from}, {to})")),
            (Some(from), None) => format(format_args!("[{from}, ...)")),
            (None, to) => format(format_args!("(..., {})", to.unwrap_or(Bound { bound: least.into(), step }))),
        }
    };
    write(counts, divisor, label, out)
}

/// A bound, abbreviated with a suffix if the steps are multiples of 1024.
struct Bound {
    bound: i128,
    step: i64,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KILO: i128 = 1 << 10;
        const MEGA: i128 = 1 << 20;
        let bound = self.bound;
        match bound {
            _ if i128::from(self.step) % KILO != 0 => write!(f, "{bound}"),
            0 => f.write_str("0"),
            _ if bound % MEGA == 0 => write!(f, "{}M", bound / MEGA),
            _ if bound % KILO == 0 => write!(f, "{}K", bound / KILO),
            _ => write!(f, "{bound}"),
        }
    }
}
