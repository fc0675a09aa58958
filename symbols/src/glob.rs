//! Patterns for names of functions: the shell's wildcards `*` and `?`. Brackets have no special meaning, because names
//! of Rust functions contain brackets.

/// Whether the whole of `name` matches `pattern`, in which `*` stands for any number of characters, including none, and
/// `?` for exactly one. Every other character stands for itself.
///
/// Takes at most time proportional to the product of both lengths, and no memory.
pub fn glob_match(pattern: &str, name: &str) -> bool {
    glob_match_chars(pattern, name.chars())
}

/// Whether a name that is given by its characters matches `pattern`, as [`glob_match`] does.
pub fn glob_match_chars(pattern: &str, mut name: impl Iterator<Item = char> + Clone) -> bool {
    let mut pattern = pattern.chars();
    // Where to continue after a mismatch: after the last `*`, with one more character taken by it.
    let mut retry = None;
    loop {
        let mut pattern_rest = pattern.clone();
        let mut name_rest = name.clone();
        match (pattern_rest.next(), name_rest.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((pattern_rest.clone(), name.clone()));
                pattern = pattern_rest;
                continue;
            }
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
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

#[cfg(test)]
mod tests {
    use super::glob_match;
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
