//! Numbers as Linux parses them (`kstrtoull`, `simple_strtoul`): hexadecimal after `0x`, octal after any other `0`,
//! otherwise decimal.

/// Returns the base of a number, and its digits.
pub(crate) fn digits(text: &str) -> (u32, &str) {
    let after_x = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match after_x.filter(|rest| rest.starts_with(|first: char| first.is_ascii_hexdigit())) {
        Some(rest) => (16, rest),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    }
}

/// Parses digits of this base and nothing else.
pub(crate) fn plain(text: &str, base: u32) -> Option<u64> {
    text.starts_with(|first: char| first.is_digit(base)).then(|| u64::from_str_radix(text, base).ok())?
}

/// Parses a number without a sign, or with a `+`.
pub(crate) fn unsigned(text: &str) -> Option<u64> {
    let (base, digits) = digits(text.strip_prefix('+').unwrap_or(text));
    plain(digits, base)
}

/// Parses a number with or without a sign.
pub(crate) fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(rest) => negative(rest),
        None => i64::try_from(unsigned(text)?).ok(),
    }
}

/// Parses the text after a `-`, and returns the negative number.
pub(crate) fn negative(text: &str) -> Option<i64> {
    let (base, digits) = digits(text);
    let size = plain(digits, base)?;
    (size <= 1 << 63).then(|| (size as i64).wrapping_neg())
}

/// Parses a number in decimal, without a sign or with a `+`.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    plain(text.strip_prefix('+').unwrap_or(text), 10)
}

/// Parses a number that is the contents of a file, as Linux does (`kstrtoul(…, 10)`): decimal, with an optional line
/// end after it.
pub fn whole(text: &str) -> Option<u64> {
    decimal(text.strip_suffix('\n').unwrap_or(text))
}

/// Parses a boolean that is the contents of a file, as Linux does (`kstrtobool`): only the first characters count.
pub fn boolean(text: &str) -> Option<bool> {
    match text.as_bytes() {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Some(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Some(false),
        _ => None,
    }
}

/// Returns the number that `text` begins with, or 0 if it begins with none, and the rest. A number that is too large
/// for a u64 becomes `u64::MAX`.
pub(crate) fn leading(text: &str) -> (u64, &str) {
    let (base, rest) = digits(text);
    let end = rest.find(|character: char| !character.is_digit(base)).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    (if number.is_empty() { 0 } else { u64::from_str_radix(number, base).unwrap_or(u64::MAX) }, rest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_linux_reads_them() {
        assert_eq!(["0", "10", "010", "0x1F", "0X1f", "+7"].map(unsigned), [0, 10, 8, 31, 31, 7].map(Some));
        assert_eq!(["", "+", "-1", "0x", "08", "1g", "++1", "18446744073709551616"].map(unsigned), [None; 8]);
        assert_eq!(["-8", "-0x10", "+4", "9"].map(signed), [-8, -16, 4, 9].map(Some));
        assert_eq!(
            ["-9223372036854775808", "9223372036854775808", "-", "--1"].map(signed),
            [Some(i64::MIN), None, None, None]
        );
        assert_eq!((decimal("010"), decimal("0x1"), decimal("")), (Some(10), None, None));
        assert_eq!(
            [leading("4@2"), leading("0x10/8"), leading("@"), leading("08")],
            [(4, "@2"), (16, "/8"), (0, "@"), (0, "8")]
        );
    }

    #[test]
    fn the_number_that_a_file_is_has_nothing_around_it() {
        assert_eq!(["0", "1\n", "+1\n", "007"].map(whole), [0, 1, 1, 7].map(Some));
        assert_eq!(["", "\n", " 1", "1 \n", "1\n\n", "0x1", "-1", "y", "1 1", "++1"].map(whole), [None; 10]);
    }

    #[test]
    fn booleans_are_read_as_linux_reads_them() {
        assert_eq!(["y", "Y\n", "yes", "t", "1", "on", "On", "10"].map(boolean), [Some(true); 8]);
        assert_eq!(["n", "No", "F", "0\n", "off", "of"].map(boolean), [Some(false); 6]);
        assert_eq!(["", "2", "o", "x", " 1", "\u{e9}"].map(boolean), [None; 6]);
    }
}
