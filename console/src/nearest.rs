//! Suggestions for unknown words.

use kprobes_symbols::distance;

/// Returns the word in `known` with the smallest edit distance from `word`; `None` if the distance is more than half
/// the length of the longer word.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    distance::nearest(word, known, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word() {
        let known = ["list", "symbols", "run", "backtrace"];
        let nearest = |word| nearest(word, known.into_iter());
        assert_eq!(nearest("lits"), Some("list"));
        assert_eq!(nearest("symbol"), Some("symbols"));
        assert_eq!(nearest("backtarce"), Some("backtrace"));
        assert_eq!(nearest("rum"), Some("run"));
        assert_eq!(nearest("poweroff"), None);
        assert_eq!(nearest(""), None);
    }
}
