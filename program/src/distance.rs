//! The distance of words, to suggest one for another that is unknown.

/// The size of the row that the edit distance keeps on the stack. The shorter of two compared words must have fewer
/// bytes than this.
const LONGEST: usize = 256;

/// Returns the word in `known` with the smallest edit distance from `word`; `None` if more than one in `share` letters
/// of the longer word would have to change.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>, share: usize) -> Option<&'a str> {
    let (distance, best) = known.map(|name| (distance(word, name), name)).min_by_key(|&(distance, _)| distance)?;
    (distance <= word.len().max(best.len()).checked_div(share)?).then_some(best)
}

/// Returns the edit distance (Levenshtein) of two words, or `usize::MAX` if both have at least [`LONGEST`] bytes.
#[must_use]
pub fn distance(one: &str, other: &str) -> usize {
    let (one, other) = if one.len() < other.len() { (other, one) } else { (one, other) };
    let mut row = [0; LONGEST];
    let Some(row) = row.get_mut(..=other.len()) else { return usize::MAX };
    row.iter_mut().zip(0_u16..).for_each(|(place, column)| *place = column);
    for (index, from) in (0_u16..).zip(one.bytes()) {
        let mut diagonal = index;
        row[0] = index + 1;
        for (column, to) in other.bytes().enumerate() {
            let exchanged = diagonal + u16::from(from != to);
            diagonal = row[column + 1];
            row[column + 1] = exchanged.min(row[column] + 1).min(diagonal + 1);
        }
    }
    usize::from(row[other.len()])
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
        let long = "x".repeat(LONGEST);
        assert_eq!((distance(&long, "x"), distance(&long[1..], &long)), (LONGEST - 1, 1));
        assert_eq!((distance(&long, &long), nearest(&long, [&*long].into_iter(), 2)), (usize::MAX, None));
    }
}
