//! The distance of words, to suggest one for another that is unknown.

use alloc::borrow::Cow;

use crate::names::numbered;

/// The size of the row that the edit distance keeps on the stack. The shorter of two compared words must have fewer
/// bytes than this.
const LONGEST: usize = 256;

/// Returns the word in `known` with the smallest edit distance from `word`; `None` if more than one in `share` letters
/// of the longer word would have to change.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>, share: usize) -> Option<&'a str> {
    let (distance, best) = known.map(|name| (distance(word, name), name)).min_by_key(|&(distance, _)| distance)?;
    (distance <= word.len().max(best.len()).checked_div(share)?).then_some(best)
}

/// Returns the edit distance (Levenshtein) of two words, or `usize::MAX` if both have at least `LONGEST` bytes, or one
/// has at least 65,535.
#[must_use]
pub fn distance(one: &str, other: &str) -> usize {
    let (one, other) = if one.len() < other.len() { (other, one) } else { (one, other) };
    if one.len() >= usize::from(u16::MAX) {
        return usize::MAX;
    }
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

/// Returns the path in `known` that is nearest to `path`. Each element of `known` is a demangled path with its plain
/// path. Prefers a path that ends with `path`, otherwise the one whose end has the smallest edit distance from it, and
/// among equals the shortest. Returns `None` if more than a third of the function's own name would have to change, and
/// for a pattern.
pub fn nearest_path<'a>(path: &str, known: impl Iterator<Item = (&'a str, Cow<'a, str>)>) -> Option<&'a str> {
    if path.contains(['*', '?']) || numbered(path).1.is_some() {
        return None;
    }
    let parts = path.matches("::").count() + 1;
    let wanted = last_parts(path, 1);
    let near = known.filter_map(|(name, plain)| {
        let found = last_parts(&plain, 1);
        let most = wanted.len().max(found.len()) / 3;
        // The difference of the lengths is a lower bound of the distance, and cheap to compute.
        let is_near = wanted.len().abs_diff(found.len()) <= most && distance(wanted, found) <= most;
        is_near.then(|| (distance(path, last_parts(&plain, parts)), name.len(), name))
    });
    near.min().map(|(.., name)| name)
}

/// Returns the last `count` parts of `path`, which `::` separates.
fn last_parts(path: &str, count: usize) -> &str {
    path.rmatch_indices("::").nth(count - 1).map_or(path, |(at, separator)| &path[at + separator.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::plain_path;

    #[test]
    fn distances() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("list", "lsit"), 2);
        let long = "x".repeat(LONGEST);
        assert_eq!(distance(&long, "x"), LONGEST - 1);
        // The time is the product of the lengths.
        let shorter = if cfg!(miri) { &long[LONGEST - 8..] } else { &long[1..] };
        assert_eq!(distance(shorter, &long), LONGEST - shorter.len());
        assert_eq!((distance(&long, &long), nearest(&long, [&*long].into_iter(), 2)), (usize::MAX, None));
        let longest = "x".repeat(0xffff);
        assert_eq!((distance(&longest[1..], ""), distance(&longest, "")), (0xfffe, usize::MAX));
    }

    #[test]
    fn the_nearest_path() {
        let known = [
            "sha2::sha256::compress256",
            "<runtime::block::Disk>::read",
            "<runtime::block::Disk as core::fmt::Debug>::fmt",
            "runtime::net::read::<u8>",
            "runtime::net::readers",
        ];
        let nearest = |path| nearest_path(path, known.into_iter().map(|name| (name, plain_path(name).unwrap().into())));
        assert_eq!(nearest("compress256"), Some(known[0]));
        assert_eq!(nearest("sha2::compress256"), Some(known[0]));
        assert_eq!(nearest("sha2::sha256::compres256"), Some(known[0]));
        assert_eq!(nearest("Disk::read"), Some(known[1]));
        assert_eq!(nearest("runtime::disk::Disk::read"), Some(known[1]));
        assert_eq!(nearest("read"), Some(known[3]));
        assert_eq!(nearest("raed"), None);
        assert_eq!(nearest("sha2::sha256::nothing"), None);
        for pattern in ["compress2*", "compress25?", "compress256#2", ""] {
            assert_eq!(nearest(pattern), None, "{pattern}");
        }
    }
}
