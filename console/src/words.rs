//! Splits a command into words, each with its column, so that an error can point at a word.

use alloc::string::String;
use core::fmt::{self, Write};

use fallible::OutOfMemory;
use kprobes_program::error::Indent;

/// The message for a `>` after a command that cannot be redirected.
pub const SCREEN_ONLY: &str =
    "the output of this command cannot be redirected; only `echo TEXT > FILE` writes to a file";

/// An iterator over the words of a line.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    /// The line, without trailing white space.
    line: &'a str,
    /// The offset of the unread part, in bytes.
    position: usize,
}

/// A word of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// The text of the word.
    pub text: &'a str,
    /// The column of the word, in characters from 0.
    pub column: usize,
}

impl<'a> Words<'a> {
    /// Creates an iterator over the words of `line`.
    #[must_use]
    pub fn new(line: &'a str) -> Self {
        Self { line: line.trim_end(), position: 0 }
    }

    /// Returns the next word.
    ///
    /// # Errors
    ///
    /// No word is left. The error names `what` as missing.
    pub fn expect(&mut self, what: impl fmt::Display) -> Result<Word<'a>, Failure> {
        let column = self.line.chars().count() + 1;
        self.next().ok_or_else(|| Failure::at(column, format_args!("{what} is missing here")))
    }

    /// Returns the next word as a number from 1 to `limit`, or `default` if no word is left.
    ///
    /// # Errors
    ///
    /// The word is not such a number.
    pub fn number(&mut self, default: u64, limit: u64) -> Result<u64, Failure> {
        let Some(word) = self.next() else { return Ok(default) };
        match word.text.parse() {
            Ok(number) if (1..=limit).contains(&number) => Ok(number),
            _ => Err(word.failure(format_args!("a number from 1 to {limit} is expected here"))),
        }
    }

    /// Takes the next word if it is `option`, and returns whether it was.
    pub fn option(&mut self, option: &str) -> bool {
        let is_next = self.clone().next().is_some_and(|word| word.text == option);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Returns the unread part of the line, trimmed.
    #[must_use]
    pub fn rest(&self) -> Word<'a> {
        let rest = self.line[self.position..].trim_start();
        let start = self.line.len() - rest.len();
        Word { text: rest, column: self.line[..start].chars().count() }
    }

    /// Moves past the first `bytes` bytes of the [`rest`](Self::rest), which must end at a character.
    pub fn advance(&mut self, bytes: usize) {
        self.position = self.line.len() - self.rest().text.len() + bytes;
    }

    /// Returns whether the unread part continues a word that was read in part.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.line[self.position..].starts_with(|next: char| !next.is_whitespace())
    }

    /// Checks that the unread part has no redirection, pipe or list, as a shell would understand it.
    ///
    /// # Errors
    ///
    /// The unread part has one.
    pub fn no_redirection(&self) -> Result<(), Failure> {
        self.clone().try_for_each(|word| match word.text {
            text if text.starts_with('>') => Err(word.failure(SCREEN_ONLY)),
            text if text.starts_with(['|', '&', ';', '<'])
                && text.trim_start_matches(['|', '&', ';', '<']).is_empty() =>
            {
                Err(word.failure("pipes, lists and input redirections are not supported"))
            }
            _ => Ok(()),
        })
    }

    /// Checks that no word is left.
    ///
    /// # Errors
    ///
    /// A word is left.
    pub fn end(&mut self) -> Result<(), Failure> {
        match self.next() {
            Some(word) => Err(word.failure("nothing more is expected here")),
            None => Ok(()),
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let rest = self.rest();
        let end = rest.text.find(char::is_whitespace).unwrap_or(rest.text.len());
        self.position = self.line.len() - rest.text.len() + end;
        Some(Word { text: &rest.text[..end], ..rest }).filter(|word| !word.text.is_empty())
    }
}

impl Word<'_> {
    /// Creates a failure that points at this word.
    pub fn failure(&self, sentence: impl fmt::Display) -> Failure {
        Failure::at(self.column, sentence)
    }
}

/// The reason why a command was refused or has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason, without its full stop; `None` if there was no memory for it.
    sentence: Option<String>,
    column: Option<usize>,
}

impl Failure {
    /// Creates a failure whose cause is not in the line.
    pub fn new(sentence: impl fmt::Display) -> Self {
        Self { sentence: said(sentence), column: None }
    }

    /// Creates a failure whose cause is at the column `column` of the line, in characters from 0.
    pub fn at(column: usize, sentence: impl fmt::Display) -> Self {
        Self { sentence: said(sentence), column: Some(column) }
    }

    /// Writes the reason, and the row of `line` with the place of the cause, with a caret below the place.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write(&self, line: &str, out: &mut dyn Write) -> fmt::Result {
        writeln!(
            out,
            "error: {}",
            self.sentence.as_deref().unwrap_or("there is not enough memory, not even for the reason")
        )?;
        let Some(column) = self.column else { return Ok(()) };
        let (at, beyond) = match line.char_indices().nth(column) {
            Some((at, _)) => (at, 0),
            None => (line.len(), column - line.chars().count()),
        };
        let start = line[..at].rfind('\n').map_or(0, |before| before + 1);
        let row = line[start..].lines().next().unwrap_or_default();
        writeln!(out, "  Command: {row}\n           {}{:beyond$}^", Indent(&line[start..at]), "")
    }
}

impl From<OutOfMemory> for Failure {
    fn from(error: OutOfMemory) -> Self {
        Self::new(error)
    }
}

/// Returns the words with `between` between them.
pub fn joined<'a>(words: &'a [impl AsRef<str>], between: &'a str) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        words.iter().enumerate().try_for_each(|(number, word)| {
            f.write_str(if number > 0 { between } else { "" })?;
            f.write_str(word.as_ref())
        })
    })
}

/// Formats `sentence`; `None` if there is no memory for it.
fn said(sentence: impl fmt::Display) -> Option<String> {
    fallible::format(format_args!("{sentence}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_columns() {
        let mut words = Words::new("  run  sha256 \t 10 ");
        assert_eq!(words.next(), Some(Word { text: "run", column: 2 }));
        assert_eq!(words.rest(), Word { text: "sha256 \t 10", column: 7 });
        assert_eq!(words.expect("a workload"), Ok(Word { text: "sha256", column: 7 }));
        assert_eq!(words.number(1, 100), Ok(10));
        assert_eq!((words.next(), words.end(), words.number(4, 8)), (None, Ok(()), Ok(4)));
        assert_eq!(words.rest().text, "");
    }

    /// Lines with 0 to 5 white space characters before, between and after the words. Some words are parts of others.
    #[test]
    fn blanks_around_words_change_nothing_but_columns() {
        let words = ["disable", "ab", "b", "\u{1f4a5}"];
        let blank = |count: usize| "  \t   "[..count].to_string();
        for counts in 0..6_usize.pow(3) {
            let [before, between, behind] = [counts % 6, counts / 6 % 6, counts / 36];
            for length in 0..=words.len() {
                let (words, between) = (&words[..length], between.max(1));
                let line = blank(before) + &words.join(&blank(between)) + &blank(behind);
                let mut read = Words::new(&line);
                let mut column = before;
                for (index, text) in words.iter().enumerate() {
                    let rest = words[index..].join(&blank(between));
                    assert_eq!(read.rest(), Word { text: &rest, column }, "{line:?}");
                    assert_eq!(read.next(), Some(Word { text, column }), "{line:?}");
                    column += text.chars().count() + between;
                }
                assert_eq!((read.rest().text, read.next(), read.end()), ("", None, Ok(())), "{line:?}");
                let missing = Failure::at(line.trim_end().chars().count() + 1, "x is missing here");
                assert_eq!(read.expect("x"), Err(missing), "{line:?}");
            }
        }
    }

    #[test]
    fn failures_point_at_their_cause() {
        let shown = |failure: Failure, line: &str| {
            let mut text = String::new();
            failure.write(line, &mut text).unwrap();
            text
        };
        let line = "run sha256 0 x";
        let mut words = Words::new(line);
        words.next();
        words.next();
        assert_eq!(
            shown(words.number(1, 9).unwrap_err(), line),
            "error: a number from 1 to 9 is expected here\n  Command: run sha256 0 x\n                      ^\n"
        );
        assert_eq!(words.end(), Err(Failure::at(13, "nothing more is expected here")));
        assert_eq!(Words::new("  ").expect("x"), Err(Failure::at(1, "x is missing here")));
        assert_eq!(shown(Failure::new("no"), line), "error: no\n");
        for (line, column) in [("symbols x > f", 10), ("list >>f", 5), ("tasks | sort", 6), ("cpus && list", 5)] {
            let refused = Words::new(line).no_redirection().expect_err(line);
            assert_eq!(refused.column, Some(column));
        }
        for line in ["why <fn(u8) -> u8 as a::B<c>>::f", "-:x", "symbols f::<&u8>", "symbols <a>::f"] {
            assert_eq!(Words::new(line).no_redirection(), Ok(()));
        }
        let wide = "\u{1f4a5} \u{e9} x";
        for (column, blanks) in [(0, 0), (1, 2), (4, 5), (5, 6), (7, 8)] {
            let caret = alloc::format!("error: no\n  Command: {wide}\n           {:blanks$}^\n", "");
            assert_eq!(shown(Failure::at(column, "no"), wide), caret);
        }
        let rows = "echo 'a\nb c\nd'";
        assert_eq!(shown(Failure::at(10, "no"), rows), "error: no\n  Command: b c\n             ^\n");
        let tabs = "\trun\t\u{1f4a5} x";
        let caret = alloc::format!("error: no\n  Command: {tabs}\n           \t   \t   ^\n");
        assert_eq!(shown(Failure::at(7, "no"), tabs), caret);
    }
}
