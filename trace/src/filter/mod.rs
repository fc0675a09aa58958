//! Filters: which hits of an event count, in the language of Linux's `filter` files.
//!
//! ```text
//! FILTER      TEST, or !FILTER, FILTER && FILTER, FILTER || FILTER, (FILTER); && binds tighter than ||
//! TEST        FIELD OP VALUE
//! FIELD       a field of the event's format, `comm` (the task's name) or `cpu`
//! OP          == != < <= > >= &     for numbers; & holds if a bit is set in both
//!             == != ~               for strings; ~ matches a pattern with * ? [a-z] [!a-z] and \ before a character
//! VALUE       a number, in decimal, octal (0…) or hexadecimal (0x…); a string in '…' or "…"
//! ```
//!
//! A filter is compiled when it is written to the file: fields become offsets into the record, and the operators become
//! tests that each say which one is next, always a later one. So the hit path
//! (`hit::action`) looks no name up, and ends after as many tests as there are at most. What is wrong with a
//! filter is said with the words and at the columns of Linux.

mod error;
pub(crate) mod parse;
mod range;

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use fallible::{OutOfMemory, TryClone};

pub use error::{Error, Problem};
pub(crate) use parse::CPU;
pub(crate) use range::Range;

use crate::fetch::{Register, Word};
use crate::format::Field;
use crate::host::Clock;

/// The longest filter, in bytes.
pub const LENGTH_MAX: usize = 4095;
/// Strings in filters are shorter than this, in bytes.
pub const STRING_LIMIT: usize = 256;

/// A filter, as it was written and as it is carried out.
#[derive(Debug)]
pub struct Filter {
    text: String,
    tests: Box<[Test]>,
}

impl Filter {
    /// Reads a filter of an event with these `fields`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where.
    pub fn parse(text: &str, fields: &[Field]) -> Result<Self, Error> {
        let text = text.trim_matches(|character: char| character.is_ascii_whitespace());
        let tests = parse::parse(text, fields)?;
        Ok(Self { text: fallible::copy(text)?, tests })
    }

    /// The same filter with its numbers had from elsewhere.
    pub(crate) fn map(&self, number: impl Fn(Number) -> Number) -> Result<Self, OutOfMemory> {
        let mut mapped = self.try_clone()?;
        for test in &mut mapped.tests {
            if let Question::Number { number: place, .. } = &mut test.question {
                *place = number(*place);
            }
        }
        Ok(mapped)
    }

    /// Whether it was written in the same way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// Whether it looks at the record.
    pub(crate) fn needs_record(&self) -> bool {
        self.tests.iter().any(|test| match &test.question {
            Question::Number { number, .. } => number.needs_record(),
            Question::Text { text, .. } => text.needs_record(),
        })
    }

    /// The same tests, if they look at nothing but words.
    pub(crate) fn words(&self) -> Result<Option<Box<[Test<WordQuestion>]>>, OutOfMemory> {
        let of = |Test { question, yes, no }: &Test| {
            let Question::Number { number, range } = question else { return None };
            Some(Test { question: WordQuestion { word: number.word()?, range: *range }, yes: *yes, no: *no })
        };
        let words = || self.tests.iter().map(of);
        words().all(|test| test.is_some()).then(|| fallible::boxed_slice(words().flatten())).transpose()
    }

    /// The tests, of which the first is carried out first.
    pub(crate) fn tests(&self) -> &[Test] {
        &self.tests
    }
}

impl TryClone for Filter {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let copy = |Test { question, yes, no }: &Test| -> Result<_, OutOfMemory> {
            let question = match question {
                Question::Number { number, range } => Question::Number { number: *number, range: *range },
                Question::Text { text, pattern: Pattern { bytes, is_glob, negated } } => {
                    let bytes = fallible::boxed_slice(bytes.iter().copied())?;
                    Question::Text { text: *text, pattern: Pattern { bytes, is_glob: *is_glob, negated: *negated } }
                }
            };
            Ok(Test { question, yes: *yes, no: *no })
        };
        let tests = fallible::collect_results(self.tests.iter().map(copy))?;
        Ok(Self { text: fallible::copy(&self.text)?, tests: fallible::boxed_slice(tests)? })
    }
}

/// The filter as it was written, without the space around it.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The number of a test in its filter; or what is known without another one.
pub(crate) type Next = u16;
/// The hit counts.
pub(crate) const ACCEPT: Next = Next::MAX;
/// The hit does not count.
pub(crate) const REJECT: Next = Next::MAX - 1;

/// A question, and where its answers lead.
#[derive(Debug)]
pub(crate) struct Test<Q = Question> {
    pub(crate) question: Q,
    /// What is next if the answer is yes.
    pub(crate) yes: Next,
    /// What is next if it is no.
    pub(crate) no: Next,
}

/// What is asked of a record.
#[derive(Debug)]
pub(crate) enum Question {
    /// Of a number: whether it is in the range.
    Number { number: Number, range: Range },
    /// Of a string: whether `pattern` matches it.
    Text { text: Text, pattern: Pattern },
}

/// What is asked of a word of the hit itself: whether it is in the range.
#[derive(Clone, Debug)]
pub(crate) struct WordQuestion {
    pub(crate) word: Word,
    pub(crate) range: Range,
}

/// A number of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// In the record itself: at this offset, this many bytes (1, 2, 4 or 8), signed or not. It could not be read if the record has
    /// this bit set among its faults.
    Field { offset: u16, size: u8, signed: bool, fault: Option<u8> },
    /// A whole register: where a field has nothing else, and nothing else of the record is needed, that is not even made.
    Register { register: Register, signed: bool },
    /// The task, as `common_pid` has it.
    Task,
    /// The CPU.
    Cpu,
    /// When it was: never in a filter.
    Time(Time),
}

/// A time of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) clock: Clock,
    /// In microseconds, and not in nanoseconds.
    pub(crate) microseconds: bool,
}

impl Number {
    /// Whether it is in the record.
    pub(crate) fn needs_record(self) -> bool {
        matches!(self, Self::Field { .. })
    }

    /// Whether it is compared as a signed number.
    pub(crate) fn is_signed(self) -> bool {
        match self {
            Self::Field { signed, .. } | Self::Register { signed, .. } => signed,
            Self::Task => true,
            Self::Cpu | Self::Time(_) => false,
        }
    }

    /// What is to be fetched, if it is not in the record.
    pub(crate) fn word(self) -> Option<Word> {
        match self {
            Self::Register { register, .. } => Some(Word { register, is_memory: false, offset: 0 }),
            Self::Field { .. } | Self::Task | Self::Cpu | Self::Time(_) => None,
        }
    }
}

/// A string in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// At this offset there is a word that says where it is: the length in the upper half, the offset in the lower.
    Located { offset: u16 },
    /// At this offset, in so many bytes, filled up with zeros.
    Fixed { offset: u16, size: u16 },
    /// The name of the task.
    Task,
}

impl Text {
    /// Whether it is in the record.
    pub(crate) fn needs_record(self) -> bool {
        !matches!(self, Self::Task)
    }
}

/// How numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// A bit is set in both.
    Bits,
}

/// What a string is compared with.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) bytes: Box<[u8]>,
    /// The bytes are a pattern, and not just a string.
    pub(crate) is_glob: bool,
    /// The answer is the opposite.
    pub(crate) negated: bool,
}

#[cfg(test)]
mod tests;
