//! Suggestions for unknown words.

use alloc::borrow::Cow;

use kprobes_program::distance::{self, distance};
use kprobes_program::syntax::numbered;

/// Returns the word in `known` with the smallest edit distance from `word`; `None` if the distance is more than half
/// the length of the longer word.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    distance::nearest(word, known, 2)
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
    use kprobes_program::syntax::plain_path;

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
