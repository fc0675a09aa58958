//! Compares values by the text that they are displayed as.

use core::fmt::{self, Write};

/// A sink that compares: it removes each text written to it from the front of the expected text, and fails on a
/// difference.
struct Rest<'a>(&'a str);

impl Write for Rest<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Whether `value` is displayed as exactly `text`.
pub(crate) fn is_shown_as(value: &dyn fmt::Display, text: &str) -> bool {
    let mut rest = Rest(text);
    write!(rest, "{value}").is_ok() && rest.0.is_empty()
}

/// Whether both values are displayed as the same text. False if there is no memory to find out.
pub(crate) fn are_shown_alike(one: &dyn fmt::Display, other: &dyn fmt::Display) -> bool {
    fallible::format(format_args!("{one}")).is_ok_and(|text| is_shown_as(other, &text))
}
