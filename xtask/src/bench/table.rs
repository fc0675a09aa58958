//! Formats the figures for people.

use std::{env, fmt::Write, process::Command};

use anyhow::{Context, Result};
use cargo_kprobes::counted::counted;

use super::{comparison::Comparison, protocol::Measured, session::Figure};
use crate::{setup::output_of, top::view::grouped};

/// Names with generic arguments can be very long. At most this many characters are shown.
const LONGEST_NAME: usize = 100;

/// Returns a table of the figures beside those of Linux.
pub fn table(figures: &[Figure], comparison: &Comparison) -> String {
    let unit = figures.first().map_or("instructions", |figure| figure.measured.unit.as_str());
    let counts_instructions = unit == "instructions";
    let heads = ["case", unit, "exceptions", "Linux 6.1", "6.12", "6.12 / this", "at most", "floor"];
    let mut rows = vec![heads.map(String::from)];
    for figure in figures {
        // Linux's figures are instructions.
        let known = comparison.of(&figure.measured.name).filter(|_| counts_instructions);
        let linux = known.and_then(|known| known.linux);
        rows.push([
            figure.measured.name.clone(),
            number(Some(figure.measured.value())),
            number(figure.trace.as_ref().map(|trace| trace.exceptions as f64)),
            number(linux.map(|[old, _]| old.into())),
            number(linux.map(|[_, new]| new.into())),
            linux.map_or("-".into(), |[_, new]| format!("{:.1}", f64::from(new) / figure.measured.value())),
            number(known.and_then(|known| known.at_most).map(f64::from)),
            number(known.and_then(|known| known.floor).map(f64::from)),
        ]);
    }
    aligned(&rows)
}

/// Returns a table of the functions in which the instructions of one hit or change are, and whether the log and the
/// counter agree.
pub fn profile(figure: &Figure) -> Result<String> {
    let Measured { name, bare, count, unit, .. } = &figure.measured;
    let trace = figure.trace.as_ref().with_context(|| format!("{name} was not logged"))?;
    // The log has one hit, but a change with all of its probes.
    let (what, one) = if *bare != 0 { ("one hit, above the bare call", 1) } else { ("one probe", *count) };
    let of_one = |instructions: u64| number(Some(instructions as f64 / one as f64));
    let mut functions: Vec<&(String, u64)> = trace.functions.iter().collect();
    functions.sort_by_key(|(_, instructions)| u64::MAX - instructions);
    let mut text = format!("{name}: the instructions of {what}, by function\n\n");
    for (function, instructions) in functions {
        let name: String = function.chars().take(LONGEST_NAME).collect();
        let cut = if name.len() < function.len() { "…" } else { "" };
        let _ = writeln!(text, "{:>8}  {name}{cut}", of_one(*instructions));
    }
    let exceptions = counted(trace.exceptions, "exception");
    let _ = writeln!(text, "{:>8}  by the log, with {exceptions}", of_one(trace.total()));
    let _ = writeln!(text, "{:>8}  by the counter, in {unit}", number(Some(figure.measured.value())));
    Ok(text)
}

/// Formats a number with separators for thousands, and with tenths if it has any.
pub fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    let tenths = (value * 10.0).round() as i64;
    let sign = if tenths < 0 { "-" } else { "" };
    let text = format!("{sign}{}", grouped(tenths.unsigned_abs() / 10));
    match tenths.unsigned_abs() % 10 {
        0 => text,
        tenth => format!("{text}.{tenth}"),
    }
}

/// Aligns columns, the first of text and the others of numbers.
pub fn aligned<R: AsRef<[String]>>(rows: &[R]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.as_ref().len()), 0);
        widths.iter_mut().zip(row.as_ref()).for_each(|(width, cell)| *width = cell.len().max(*width));
    }
    let mut text = String::new();
    for row in rows {
        for (column, (cell, &width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// Returns the date in UTC.
pub fn today() -> Result<String> {
    Ok(output_of(Command::new("date").args(["-u", "+%F"]))?.trim().into())
}

/// Returns the command line of this process.
pub fn own_command() -> String {
    let arguments: Vec<_> = env::args().skip(1).collect();
    format!("cargo xtask {}", arguments.join(" "))
}

#[cfg(test)]
mod tests {
    use super::{number, profile, table};
    use crate::bench::{comparison::Comparison, protocol::Measured, session::Figure, trace::Trace};

    fn figure(name: &str, total: u64, unit: &str, exceptions: Option<u64>) -> Figure {
        let measured = Measured { name: name.into(), total, bare: 622, count: 100, unit: unit.into() };
        let functions = vec![("first".into(), 100), ("second".into(), 176)];
        Figure { measured, trace: exceptions.map(|exceptions| Trace { functions, exceptions }) }
    }

    #[test]
    fn figures_are_shown_beside_those_of_linux() {
        let figures = [
            figure("kprobe.simulated", 28222, "instructions", Some(1)),
            figure("register.one", 123_456_672, "instructions", None),
            figure("new", 672, "instructions", Some(0)),
        ];
        let expected = "\
case              instructions  exceptions  Linux 6.1     6.12  6.12 / this  at most  floor
kprobe.simulated           276           1        430      322          1.2      120     59
register.one       1,234,560.5           -    148,647  220,016          0.2        -      -
new                        0.5           0          -        -            -        -      -
";
        assert_eq!(table(&figures, &Comparison::load().unwrap()), expected);
    }

    #[test]
    fn cycles_are_not_compared_with_instructions() {
        let text = table(&[figure("kprobe.simulated", 28222, "cycles", Some(1))], &Comparison::load().unwrap());
        assert!(text.contains("cycles") && !text.contains("322"), "{text}");
    }

    #[test]
    fn a_profile_begins_with_the_most_and_tells_both_sums() {
        let text = profile(&figure("case", 28222, "instructions", Some(2))).unwrap();
        let expected = "\
case: the instructions of one hit, above the bare call, by function

     176  second
     100  first
     276  by the log, with 2 exceptions
     276  by the counter, in instructions
";
        assert_eq!(text, expected);
        assert!(profile(&figure("case", 1, "instructions", None)).is_err());
    }

    #[test]
    fn json_has_the_unit_as_a_key() {
        let json = |figure: Figure| figure.json();
        assert_eq!(
            json(figure("a", 28222, "instructions", Some(1))),
            r#"{"name": "a", "instructions": 276, "exceptions": 1}"#
        );
        assert_eq!(json(figure("a", 672, "cycles", None)), r#"{"name": "a", "cycles": 0.5}"#);
    }

    #[test]
    fn doubts_are_told() {
        assert_eq!(figure("a", 28222, "instructions", Some(1)).doubt(), None);
        assert_eq!(figure("a", 28322, "cycles", Some(1)).doubt(), None);
        let doubt = figure("a", 28322, "instructions", Some(1)).doubt().unwrap();
        assert_eq!(doubt, "a: the counter says 277 instructions, but 276 were logged");
    }

    #[test]
    fn numbers_are_readable() {
        for (value, text) in [(0.0, "0"), (999.96, "1,000"), (-1234.5, "-1,234.5"), (1e6, "1,000,000")] {
            assert_eq!(number(Some(value)), text);
        }
    }
}
