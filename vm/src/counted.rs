//! Numbers of things in sentences: `1 hit was missed`, `2 hits were missed`.

use core::fmt::{self, Display};

/// Displays `number` before `one` if it is 1, and before `many` otherwise.
pub fn counted<'a, N: Display + PartialEq + From<u8> + 'a>(
    number: N,
    one: &'a str,
    many: &'a str,
) -> impl Display + 'a {
    fmt::from_fn(move |f| {
        let what = if number == N::from(1) { one } else { many };
        write!(f, "{number} {what}")
    })
}

#[cfg(test)]
mod tests {
    use super::counted;
    use alloc::format;

    #[test]
    fn the_noun_agrees_with_the_number() {
        let text = |number: u64| format!("{}", counted(number, "hit was missed", "hits were missed"));
        assert_eq!([0, 1, 2].map(text), ["0 hits were missed", "1 hit was missed", "2 hits were missed"]);
        assert_eq!(format!("{}", counted(1_usize, "CPU", "CPUs")), "1 CPU");
    }
}
