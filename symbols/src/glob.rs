//! Patterns: the wildcards of a shell, `*` and `?`. In names of functions, brackets have no special meaning, because
//! names of Rust functions contain brackets; in the other dialect they hold classes of characters.
//!
//! There is one matcher, for every kind of text and in both dialects. It is inlined into its callers: those that handle
//! a hit must not call code outside of their region.

/// Whether the whole of `name` matches `pattern`, in which `*` stands for any number of characters, including none, and
/// `?` for exactly one. Every other character stands for itself.
///
/// Takes at most time proportional to the product of both lengths, and no memory.
pub fn glob_match(pattern: &str, name: &str) -> bool {
    glob_match_chars(pattern, name.chars())
}

/// Whether a name that is given by its characters matches `pattern`, as [`glob_match`] does.
pub fn glob_match_chars(pattern: &str, name: impl Iterator<Item = char> + Clone) -> bool {
    glob_match_units::<false, _>(pattern.chars(), name)
}

/// Whether a name that is given by its characters matches `pattern`, in which brackets hold classes, as
/// [`glob_match_units`] says.
pub fn class_match_chars(pattern: &str, name: impl Iterator<Item = char> + Clone) -> bool {
    glob_match_units::<true, _>(pattern.chars(), name)
}

/// A character or a byte.
pub trait Unit: Copy + Ord {
    /// Returns this ASCII character.
    fn of(ascii: u8) -> Self;
}

impl Unit for char {
    #[inline(always)]
    fn of(ascii: u8) -> Self {
        ascii as Self
    }
}

impl Unit for u8 {
    #[inline(always)]
    fn of(ascii: u8) -> Self {
        ascii
    }
}

/// Whether `name` matches `pattern`, both given by their characters or their bytes, as [`glob_match`] does.
///
/// With `CLASSES`, `[…]` is a class, which stands for one of the characters in it. In a class, `a-f` means all
/// characters from `a` to `f`, and a `]` that comes first means itself. `[!…]` stands for one character that is not in
/// the class. A `[` without a `]` stands for itself, and so does the character after a `\`.
#[inline(always)]
pub fn glob_match_units<const CLASSES: bool, U: Unit>(
    mut pattern: impl Iterator<Item = U> + Clone,
    mut name: impl Iterator<Item = U> + Clone,
) -> bool {
    // Where to continue after a mismatch: after the last `*`, with one more character taken by it.
    let mut retry = None;
    loop {
        let mut pattern_rest = pattern.clone();
        let mut name_rest = name.clone();
        match (pattern_rest.next(), name_rest.next()) {
            (None, None) => return true,
            (Some(wanted), _) if wanted == U::of(b'*') => {
                retry = Some((pattern_rest.clone(), name.clone()));
                pattern = pattern_rest;
                continue;
            }
            (Some(wanted), Some(found)) if element::<CLASSES, U>(wanted, &mut pattern_rest, found) => {
                (pattern, name) = (pattern_rest, name_rest);
                continue;
            }
            _ => {}
        }
        let Some((after_star, ref mut from)) = retry else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (pattern, name) = (after_star.clone(), from.clone());
        retry = Some((after_star, name.clone()));
    }
}

/// Whether the element of a pattern that begins with `wanted` matches `found`. If so, advances `rest`, which follows
/// `wanted`, to the next element.
#[inline(always)]
fn element<const CLASSES: bool, U: Unit>(wanted: U, rest: &mut (impl Iterator<Item = U> + Clone), found: U) -> bool {
    if wanted == U::of(b'?') {
        return true;
    }
    if CLASSES && wanted == U::of(b'[') {
        let mut after = rest.clone();
        if let Some(is_in) = class(&mut after, found) {
            *rest = after;
            return is_in;
        }
    }
    if CLASSES && wanted == U::of(b'\\') {
        let mut after = rest.clone();
        if let Some(escaped) = after.next() {
            *rest = after;
            return escaped == found;
        }
    }
    wanted == found
}

/// Whether `found` is in the class whose text after the `[` begins at `rest`. Advances `rest` to the text after the
/// `]`. `None` if the class is not closed.
#[inline(always)]
fn class<U: Unit>(rest: &mut (impl Iterator<Item = U> + Clone), found: U) -> Option<bool> {
    let mut low = rest.next()?;
    let is_negated = low == U::of(b'!');
    if is_negated {
        low = rest.next()?;
    }
    let mut is_in = false;
    loop {
        let mut high = low;
        let mut after = rest.clone();
        if after.next() == Some(U::of(b'-'))
            && let Some(end) = after.next()
            && end != U::of(b']')
        {
            high = end;
            *rest = after;
        }
        is_in |= low <= found && found <= high;
        low = rest.next()?;
        if low == U::of(b']') {
            return Some(is_in != is_negated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{class_match_chars, glob_match, glob_match_units};
    use std::string::String;

    #[test]
    fn matches_what_a_shell_would() {
        for (pattern, name) in [
            ("", ""),
            ("*", ""),
            ("**", "anything"),
            ("sha2::*", "sha2::sha256::compress256"),
            ("*compress*", "sha2::sha256::compress256"),
            ("*256", "sha2::sha256::compress256"),
            ("a*b*c", "aXbbXc"),
            ("a?c", "a\u{df}c"),
            ("<*>::next", "<core::str::iter::Chars as core::iter::Iterator>::next"),
        ] {
            assert!(glob_match(pattern, name), "{pattern} does not match {name}");
        }
        for (pattern, name) in
            [("", "a"), ("?", ""), ("a", "ab"), ("a*b", "a"), ("*a", "ab"), ("a*b*c", "acb"), ("[ab]", "a")]
        {
            assert!(!glob_match(pattern, name), "{pattern} matches {name}");
        }
    }

    #[test]
    fn classes_are_those_of_linux() {
        for (pattern, name) in [
            ("[Ss]ha*", "sha256"),
            ("[Ss]ha*", "Sha256"),
            ("*[0-9]", "sha256"),
            ("*[!a-z]", "sha256"),
            ("a[]x]b", "a]b"),
            ("a[!]x]b", "a-b"),
            ("a[x-]b", "a-b"),
            ("a[-x]b", "a-b"),
            ("a[b", "a[b"),
            ("[", "["),
            ("[a-", "[a-"),
            (r"a\*b", "a*b"),
            (r"a\", r"a\"),
            ("*[ab]*[cd]", "a-b-c-a-d"),
            ("[\u{e0}-\u{ff}]", "\u{e9}"),
        ] {
            assert!(class_match_chars(pattern, name.chars()), "{pattern} does not match {name}");
            if name.is_ascii() {
                assert!(glob_match_units::<true, u8>(pattern.bytes(), name.bytes()), "{pattern} does not match {name}");
            }
        }
        for (pattern, name) in [
            ("[Ss]ha*", "tsha"),
            ("[Ss]ha*", "[Ss]ha256"),
            ("*[!0-9]", "sha256"),
            ("a[]x]b", "a-b"),
            ("a[!]x]b", "a]b"),
            ("a[b", "ab"),
            (r"a\*b", "axb"),
            ("[a-c]", "d"),
            ("[ab]", ""),
        ] {
            assert!(!class_match_chars(pattern, name.chars()), "{pattern} matches {name}");
        }
    }

    /// The definition of a match, literally. It takes exponential time, so it is for short strings only.
    fn definition(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((b'*', rest)), _) => (0..=name.len()).any(|taken| definition(rest, &name[taken..])),
            (Some((wanted, rest)), Some((found, others))) => {
                (*wanted == b'?' || wanted == found) && definition(rest, others)
            }
            (Some(_), None) => false,
        }
    }

    #[test]
    fn agrees_with_the_definition_on_all_short_strings() {
        fn strings(alphabet: &str, longest: u32) -> impl Iterator<Item = String> {
            let radix = alphabet.len();
            (0..=longest).flat_map(move |length| {
                (0..radix.pow(length)).map(move |mut number| {
                    let mut text = String::new();
                    for _ in 0..length {
                        text.push(char::from(alphabet.as_bytes()[number % radix]));
                        number /= radix;
                    }
                    text
                })
            })
        }
        let longest = if cfg!(miri) { 2 } else { 5 };
        for pattern in strings("ab*?", longest) {
            for name in strings("ab", longest) {
                let expected = definition(pattern.as_bytes(), name.as_bytes());
                assert_eq!(glob_match(&pattern, &name), expected, "{pattern} on {name}");
            }
        }
    }
}
