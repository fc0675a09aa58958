//! Reads the lines that are written to the files of functions. A line has patterns, with white space between them. A
//! `!` before a pattern removes its functions. In `set_ftrace_filter` a command may follow a pattern, as in
//! `FUNCTION:traceoff`.
//!
//! A path of Rust may contain blanks between angle brackets: `<a::B as c::D>::f`. Such a blank does not end the
//! pattern.

use kprobes_symbols::Brackets;
use kprobes_trace::definition::single_colon;

/// A pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern<'a> {
    /// The name of a function, or a glob with `*`, `?` and `[…]`.
    pub glob: &'a str,
    /// The command of the function, after a `:`.
    pub command: Option<&'a str>,
    /// Whether a `!` precedes the pattern.
    pub is_removed: bool,
}

/// Returns the patterns in `text`.
pub(crate) fn of(text: &str) -> impl Iterator<Item = Pattern<'_>> {
    let mut brackets = Brackets::ANGLE;
    let words = text.split(move |character: char| {
        if character == '\n' {
            brackets = Brackets::ANGLE;
        }
        brackets.pass(character) && character.is_ascii_whitespace()
    });
    words.filter(|word| !word.is_empty()).map(|word| {
        let (word, is_removed) = word.strip_prefix('!').map_or((word, false), |word| (word, true));
        let (glob, command) = match single_colon(word) {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        };
        Pattern { glob, command, is_removed }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn patterns_are_words_but_for_what_is_in_angle_brackets() {
        let found: Vec<_> =
            of(" a::* !<b::C as d::E<fn() -> u8>>::f\t*x\n<y::Z").map(|p| (p.glob, p.is_removed)).collect();
        let expected = [("a::*", false), ("<b::C as d::E<fn() -> u8>>::f", true), ("*x", false), ("<y::Z", false)];
        assert_eq!(found, expected);
        assert_eq!(of(" \n").next(), None);
        assert_eq!(of("!").next(), Some(Pattern { glob: "", command: None, is_removed: true }));
    }

    #[test]
    fn a_command_follows_a_colon_that_is_alone() {
        let found: Vec<_> =
            of("a::b:traceoff !*:enable_event:g:e:3 <x as y::Z>::f:").map(|p| (p.glob, p.command)).collect();
        let expected = [("a::b", Some("traceoff")), ("*", Some("enable_event:g:e:3")), ("<x as y::Z>::f", Some(""))];
        assert_eq!(found, expected);
        let found: Vec<_> =
            of("a::{shim:vtable#0} a::{shim:vtable#0}::<b>:traceoff:3 {closure#0}:stacktrace a::{shim:*:traceon")
                .map(|p| (p.glob, p.command))
                .collect();
        let expected = [
            ("a::{shim:vtable#0}", None),
            ("a::{shim:vtable#0}::<b>", Some("traceoff:3")),
            ("{closure#0}", Some("stacktrace")),
            ("a::{shim", Some("*:traceon")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_bracket_that_is_not_closed_ends_with_its_line() {
        assert_eq!(of("<a b\nc d").map(|pattern| pattern.glob).collect::<Vec<_>>(), ["<a b", "c", "d"]);
    }
}
