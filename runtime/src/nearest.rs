//! What was probably meant by a word that is not known.

/// The one of `known` that `word` becomes by the fewest insertions, removals and exchanges of characters; `None`
/// where more than half of it would have to change.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, best) = known.map(|name| (distance(word, name), name)).min_by_key(|&(distance, _)| distance)?;
    (distance <= word.len().max(best.len()) / 2).then_some(best)
}

/// The edit distance (Levenshtein) of two short words.
fn distance(one: &str, other: &str) -> usize {
    let mut row: alloc::vec::Vec<usize> = (0..=other.len()).collect();
    for (index, from) in one.bytes().enumerate() {
        let mut diagonal = index;
        row[0] = index + 1;
        for (column, to) in other.bytes().enumerate() {
            let exchanged = diagonal + usize::from(from != to);
            diagonal = row[column + 1];
            row[column + 1] = exchanged.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("list", "lsit"), 2);
    }

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
