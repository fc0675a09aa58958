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
/// it. Each range between powers of two has 2 to the power `bits` rows.
pub(super) fn powers(row: usize, bits: u8) -> (Option<i128>, Option<i128>) {
    (row.checked_sub(1).map(|before| Start::of(before, bits).value()), Some(Start::of(row, bits).value()))
}

/// The least number in a row of a histogram by powers of two: a number of units, each a power of two.
#[derive(Clone, Copy)]
struct Start {
    units: u64,
    exponent: usize,
}

impl Start {
    /// Returns the start of the row after `before` rows for numbers from 0 on.
    fn of(before: usize, bits: u8) -> Self {
        let rows = 1 << bits;
        match (before / rows).checked_sub(1) {
            Some(exponent) => Self { units: (rows + before % rows) as u64, exponent },
            None => Self { units: before as u64, exponent: 0 },
        }
    }

    fn value(self) -> i128 {
        i128::from(self.units).checked_shl(self.exponent as u32).unwrap_or(i128::MAX)
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = ["", "K", "M", "G", "T", "P", "E"].get(self.exponent / 10).unwrap_or(&"");
        write!(f, "{}{suffix}", self.units << (self.exponent % 10))
    }
}

/// Returns the bounds of row `row` of a linear histogram of `words` rows: the least number in the row, and the least
/// above it. The last row begins after the last whole step.
pub(super) fn linear(row: usize, words: usize, least: i64, step: i64) -> (Option<i128>, Option<i128>) {
    let rows = words.saturating_sub(2);
    let bound = |steps: usize| i128::from(least) + i128::from(step) * steps as i128;
    match row {
        0 => (None, Some(bound(0))),
        _ if row > rows => (Some(bound(rows)), None),
        _ => (Some(bound(row - 1)), Some(bound(row))),
    }
}

/// Writes a histogram by powers of two.
pub(super) fn write_powers(counts: &[u64], bits: u8, divisor: u64, out: &mut dyn Write) -> fmt::Result {
    let label = |row: usize| match row.checked_sub(1) {
        None => fallible::copy("(..., 0)"),
        // These rows have a single number.
        Some(before) if row <= 2 << bits => format(format_args!("[{before}]")),
        Some(before) => format(format_args!("[{}, {})", Start::of(before, bits), Start::of(row, bits))),
    };
    write(counts, divisor, label, out)
}

/// Writes a linear histogram.
pub(super) fn write_linear(counts: &[u64], least: i64, step: i64, divisor: u64, out: &mut dyn Write) -> fmt::Result {
    let label = |row: usize| {
        let (from, to) = linear(row, counts.len(), least, step);
        match (from.map(|bound| Bound { bound, step }), to.map(|bound| Bound { bound, step })) {
            (Some(from), Some(to)) => format(format_args!("[{from}, {to})")),
            (Some(from), None) => format(format_args!("[{from}, ...)")),
            (None, to) => format(format_args!("(..., {})", to.unwrap_or(Bound { bound: least.into(), step }))),
        }
    };
    write(counts, divisor, label, out)
}

/// A bound. It is abbreviated with `K` or `M` if the step is a multiple of 1024.
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
