//! Numbers of things in sentences: `1 hit`, `2 hits`.

use std::fmt::Display;

/// Returns `number` and the noun, with an `s` after it unless the number is 1.
pub fn counted(number: impl Display + PartialEq + From<u8>, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1.into() { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn the_noun_agrees_with_the_number() {
        assert_eq!([0_u64, 1, 2].map(|number| counted(number, "CPU")), ["0 CPUs", "1 CPU", "2 CPUs"]);
    }
}
