//! Compares a reply with the expected one, and shows the differences as `diff` would.
//!
//! The expected text has placeholders:
//!
//! | placeholder | stands for |
//! |---|---|
//! | a line `...` | any number of lines |
//! | `${NAME}` | a number, decimal or hexadecimal after `0x`, which is remembered by its name |
//! | a line `[...] ${NAME}` | the rows of a histogram; NAME is the sum of their counts |
//!
//! A line with a `${NAME}` may be aligned in any way. Rows that begin with an address come in the order in which the
//! linker has placed the functions. They may come in any order, unless the expected text has a `...`.

use std::{collections::BTreeMap, ptr};

use super::normal::normal;

/// Numbers by the names that a session gives them.
pub type Numbers = BTreeMap<String, u64>;

/// A line that stands for any number of lines.
pub const GAP: &str = "...";

/// Compares `actual` with `expected`, and adds the numbers that have names to `numbers`.
///
/// # Errors
///
/// The difference: expected lines after `-`, actual lines after `+`.
pub fn compare(expected: &[String], actual: &[String], numbers: &mut Numbers) -> Result<(), String> {
    let patterns: Vec<_> = expected.iter().map(|line| Pattern { text: line, normal: normal(line) }).collect();
    let mut lines: Vec<_> = actual.iter().map(|line| ActualLine { text: line, normal: normal(line) }).collect();
    if !expected.iter().any(|line| line == GAP) {
        reorder(&patterns, &mut lines);
    }
    let steps = align(&patterns, &lines);
    if steps.iter().any(|step| matches!(step, AlignmentStep::Missing(_) | AlignmentStep::Extra(_))) {
        return Err(steps.iter().map(AlignmentStep::to_string).collect());
    }
    let mut add = |name: String, number, text: &str| match *numbers.entry(name.clone()).or_insert(number) {
        before if before == number => Ok(()),
        before => Err(format!("  {text}\nhere {name} is {number}, and was {before} before")),
    };
    for step in &steps {
        if let AlignmentStep::Same(pattern, line) = step {
            let named = pattern.matches(line).unwrap_or_default();
            named.into_iter().try_for_each(|(name, number)| add(name, number, line.text))?;
        }
    }
    for pattern in &patterns {
        let Some(name) = pattern.sum() else { continue };
        let count = |step: &AlignmentStep<'_>| match step {
            AlignmentStep::Skipped(gap, text) if ptr::eq(*gap, pattern) => count_of_row(text),
            _ => None,
        };
        add(name.into(), steps.iter().filter_map(count).sum(), pattern.text)?;
    }
    Ok(())
}

/// Returns the count of a row of a histogram. `None` if the line is something else.
fn count_of_row(line: &str) -> Option<u64> {
    let (row, _) = line.strip_suffix('|')?.split_once(" |")?;
    let (label, count) = row.rsplit_once(' ')?;
    label.starts_with(['[', '(']).then(|| count.parse().ok())?
}

/// An expected line, as written and in normal form.
struct Pattern<'a> {
    text: &'a str,
    normal: String,
}

/// An actual line, as written and in normal form.
struct ActualLine<'a> {
    text: &'a str,
    normal: String,
}

impl Pattern<'_> {
    /// Returns the name of the sum, if the pattern stands for the rows of a histogram.
    fn sum(&self) -> Option<&str> {
        self.text.strip_prefix("[...] ${")?.strip_suffix('}')
    }

    /// Whether the pattern may stand for any number of lines.
    fn is_gap(&self) -> bool {
        self.text == GAP || self.sum().is_some()
    }

    /// Whether the line may be one of the lines that a gap stands for.
    fn covers(&self, line: &ActualLine<'_>) -> bool {
        self.text == GAP || count_of_row(line.text).is_some()
    }

    /// Returns the named numbers with which the pattern matches this line. `None` if it does not match.
    fn matches(&self, line: &ActualLine<'_>) -> Option<Vec<(String, u64)>> {
        if !self.normal.contains("${") {
            return (self.normal == line.normal).then(Vec::new);
        }
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (pattern, line) = (squeezed(&self.normal), squeezed(&line.normal));
        let (mut pattern, mut line) = (pattern.as_str(), line.as_str());
        let mut numbers = Vec::new();
        while let Some((before, rest)) = pattern.split_once("${") {
            let (name, after) = rest.split_once('}')?;
            line = line.strip_prefix(before)?;
            let (digits, radix) = match line.strip_prefix("0x") {
                Some(digits) => (digits, 16),
                None => (line, 10),
            };
            let end = digits.find(|character: char| !character.is_digit(radix)).unwrap_or(digits.len());
            numbers.push((name.to_string(), u64::from_str_radix(&digits[..end], radix).ok()?));
            (pattern, line) = (after, &digits[end..]);
        }
        (pattern == line).then_some(numbers)
    }
}

/// Sorts the rows that begin with an address into the expected order. Unexpected rows come last.
fn reorder(patterns: &[Pattern<'_>], lines: &mut [ActualLine<'_>]) {
    let is_row = |text: &str| text.starts_with("ADDRESS ");
    let mut places: Vec<_> = (0..lines.len()).filter(|&place| is_row(&lines[place].normal)).collect();
    for pattern in patterns.iter().filter(|pattern| is_row(&pattern.normal)) {
        if let Some(found) = places.iter().position(|&place| pattern.matches(&lines[place]).is_some()) {
            // The rows between keep their order.
            for nth in (0..found).rev() {
                lines.swap(places[nth], places[nth + 1]);
            }
            places.remove(0);
        }
    }
}

/// One step of an alignment of both texts.
enum AlignmentStep<'a> {
    Same(&'a Pattern<'a>, &'a ActualLine<'a>),
    /// A line that a gap covers.
    Skipped(&'a Pattern<'a>, &'a str),
    Missing(&'a str),
    Extra(&'a str),
}

impl std::fmt::Display for AlignmentStep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same(_, line) => writeln!(f, "  {}", line.text),
            Self::Skipped(_, line) => writeln!(f, "  {line}"),
            Self::Missing(line) => writeln!(f, "- {line}"),
            Self::Extra(line) => writeln!(f, "+ {line}"),
        }
    }
}

/// Returns the alignment with the fewest differences.
fn align<'a>(patterns: &'a [Pattern<'a>], lines: &'a [ActualLine<'a>]) -> Vec<AlignmentStep<'a>> {
    let is_gap = |at: usize| patterns[at].is_gap();
    // The least number of differences between the patterns and the lines from here on.
    let mut cost = vec![vec![0_usize; lines.len() + 1]; patterns.len() + 1];
    for p in (0..=patterns.len()).rev() {
        for l in (0..=lines.len()).rev() {
            cost[p][l] = match (p < patterns.len(), l < lines.len()) {
                (false, _) => lines.len() - l,
                (true, false) => cost[p + 1][l] + usize::from(!is_gap(p)),
                (true, true) if is_gap(p) && patterns[p].covers(&lines[l]) => cost[p + 1][l].min(cost[p][l + 1]),
                (true, true) if is_gap(p) => cost[p + 1][l],
                (true, true) if patterns[p].matches(&lines[l]).is_some() => cost[p + 1][l + 1],
                (true, true) => 1 + cost[p + 1][l].min(cost[p][l + 1]),
            };
        }
    }
    let (mut p, mut l) = (0, 0);
    let mut steps = Vec::new();
    while p < patterns.len() || l < lines.len() {
        if p < patterns.len() && is_gap(p) {
            // Rows of a histogram are never left to a gap that follows.
            let is_row = patterns[p].sum().is_some()
                && l < lines.len()
                && patterns[p].covers(&lines[l])
                && cost[p][l] == cost[p][l + 1];
            if !is_row && cost[p][l] == cost[p + 1][l] {
                p += 1;
            } else {
                steps.push(AlignmentStep::Skipped(&patterns[p], lines[l].text));
                l += 1;
            }
        } else if p < patterns.len() && l < lines.len() && patterns[p].matches(&lines[l]).is_some() {
            steps.push(AlignmentStep::Same(&patterns[p], &lines[l]));
            (p, l) = (p + 1, l + 1);
        } else if p < patterns.len() && cost[p][l] == 1 + cost[p + 1][l] {
            steps.push(AlignmentStep::Missing(patterns[p].text));
            p += 1;
        } else {
            steps.push(AlignmentStep::Extra(lines[l].text));
            l += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::{Numbers, compare};

    fn difference(expected: &str, actual: &str) -> Result<Numbers, String> {
        let lines = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
        let mut numbers = Numbers::new();
        compare(&lines(expected), &lines(actual), &mut numbers).map(|()| numbers)
    }

    #[test]
    fn equal_texts_are_equal() {
        for (expected, actual) in [
            ("", ""),
            ("a\nb", "a\nb"),
            ("...", ""),
            ("...\nc", "a\nb\nc"),
            ("a\n...\nc\n...", "a\nb\nc\nc\nd"),
            ("took 5 ms", "took 17 ms"),
        ] {
            assert!(difference(expected, actual).is_ok(), "{expected:?} {actual:?}");
        }
    }

    #[test]
    fn differences_are_shown() {
        for (expected, actual, shown) in [
            ("a\nb\nc", "a\nx\nc", "  a\n- b\n+ x\n  c\n"),
            ("a", "", "- a\n"),
            ("", "a", "+ a\n"),
            ("a\n...\nc", "a\nb", "  a\n  b\n- c\n"),
            ("10 calls", "11 calls", "- 10 calls\n+ 11 calls\n"),
        ] {
            assert_eq!(difference(expected, actual), Err(shown.into()), "{expected:?} {actual:?}");
        }
    }

    #[test]
    fn rows_of_histograms_are_added_up() {
        let rows = "[1]  10 |@@@@|\n[2, 4)   0 |    |\n[4, 8)   5 |@@  |";
        let actual = format!("a\n@x:\n{rows}\n\n@y:\n(..., 0)   7 |@@@@|\nb");
        for expected in ["a\n@x:\n[...] ${x}\n\n@y:\n[...] ${y}\nb", "...\n@x:\n[...] ${x}\n...\n@y:\n[...] ${y}\n..."]
        {
            let numbers = difference(expected, &actual).unwrap();
            assert_eq!((numbers["x"], numbers["y"]), (15, 7), "{expected}");
        }
        assert_eq!(difference("a\n[...] ${x}", "a").unwrap()["x"], 0);
        assert_eq!(difference("[...] ${x}", "[1] 2").unwrap_err(), "+ [1] 2\n");
        let twice = difference("[...] ${x}\na\n[...] ${x}", "[1]  1 |@|\na\n[1]  2 |@|");
        assert_eq!(twice.unwrap_err(), "  [...] ${x}\nhere x is 2, and was 1 before");
    }

    #[test]
    fn numbers_get_names() {
        let numbers = difference("x ${hits}  ${missed} y\n${sum}", "x 12 3     y\n0x1f").unwrap();
        assert_eq!(numbers.into_values().collect::<Vec<_>>(), [12, 3, 31]);
        for (expected, actual) in [("x ${n} y", "x y"), ("x ${n} y", "x 1 z"), ("${n}", "many"), ("${n}\n${n}", "1\n2")]
        {
            assert!(difference(expected, actual).is_err(), "{expected:?} {actual:?}");
        }
    }

    #[test]
    fn rows_may_come_in_any_order() {
        let row = |address: u64, rest: &str| format!("{address:016x} {rest}\n");
        let (low, high) = (0xffff_ffc0_0000_1000, 0xffff_ffc0_0000_2000);
        let expected = format!("head\n{}{}tail", row(low, " k  f"), row(high, " k  ${n} g"));
        let actual = format!("head\n{}{}tail", row(low, " k  7 g"), row(high, " k  f"));
        assert_eq!(difference(&expected, &actual).unwrap()["n"], 7);
        let other = actual.replace(" f", " h");
        assert!(difference(&expected, &other).unwrap_err().contains("- ffffffc000001000  k  f\n"));
        let twice = expected.replace(" ${n} g", " f");
        assert!(difference(&twice, &actual).is_err());
    }
}
