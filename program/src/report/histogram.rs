//! Histograms as text: a row for each range, with a bar.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};

/// The longest bar, in characters.
const BAR: u128 = 52;

/// Writes the rows of `counts` from the first that is not 0 to the last, each named by `label`; the counts are divided by
/// `divisor`.
fn write(counts: &[u64], divisor: u64, label: impl Fn(usize) -> String, out: &mut dyn Write) -> fmt::Result {
    let most = counts.iter().copied().max().unwrap_or(0);
    let Some(first) = counts.iter().position(|&count| count > 0) else { return Ok(()) };
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(first);
    for (row, &count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let length = (u128::from(count) * BAR).checked_div(most.into()).unwrap_or(0) as usize;
        let (label, bar, width) = (label(row), "@".repeat(length), BAR as usize);
        writeln!(out, "{label:<16}{:>8} |{bar:<width$}|", count / divisor.max(1))?;
    }
    Ok(())
}

/// Writes a histogram by powers of two.
pub(super) fn write_powers(counts: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
    let label = |row: usize| match row {
        0 => "(..., 0)".into(),
        1 | 2 => format!("[{}]", row - 1),
        _ => format!("[{}, {})", power(row - 2), power(row - 1)),
    };
    write(counts, divisor, label, out)
}

/// 2 to the power of `exponent`.
fn power(exponent: usize) -> String {
    let suffix = ["", "K", "M", "G", "T", "P", "E"].get(exponent / 10).unwrap_or(&"");
    format!("{}{suffix}", 1 << (exponent % 10))
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
    let rows = counts.len().saturating_sub(2);
    let bound = |steps: usize| number(i128::from(least) + i128::from(step) * steps as i128, step);
    let label = |row: usize| match row {
        0 => format!("(..., {})", bound(0)),
        _ if row > rows => format!("[{}, ...)", number(most.into(), step)),
        _ => format!("[{}, {})", bound(row - 1), bound(row)),
    };
    write(counts, divisor, label, out)
}

/// A bound, shortened if the steps are whole multiples of 1024.
fn number(bound: i128, step: i64) -> String {
    const KILO: i128 = 1 << 10;
    const MEGA: i128 = 1 << 20;
    match bound {
        _ if i128::from(step) % KILO != 0 => format!("{bound}"),
        0 => "0".into(),
        _ if bound % MEGA == 0 => format!("{}M", bound / MEGA),
        _ if bound % KILO == 0 => format!("{}K", bound / KILO),
        _ => format!("{bound}"),
    }
}
