//! Filters: which hits of an event count, in the language of Linux's `filter` files.
//!
//! ```text
//! FILTER      TEST, or !FILTER, FILTER && FILTER, FILTER || FILTER, (FILTER); && binds tighter than ||
//! TEST        FIELD OP VALUE, or FIELD.function == FUNCTION, FIELD.function != FUNCTION, or FIELD & CPUS{LIST},
//!             FIELD == CPUS{LIST}, FIELD != CPUS{LIST}
//! FIELD       a field of the event's format, `comm` (the task's name) or `cpu`
//! OP          == != < <= > >= &     for numbers; & holds if a bit is set in both
//!             == != ~               for strings; ~ matches a pattern with * ? [a-z] [!a-z] and \ before a character
//! FUNCTION    the path of a function, in quotes or not, or an address in it; the field is an address in the function, too
//! LIST        numbers of CPUs, as in 0,2-3 or 0-15:1/4; & holds for the numbers in the list, == if the list is that number
//! VALUE       a number, in decimal, octal (0…) or hexadecimal (0x…); a string in '…' or "…"
//! ```
//!
//! A filter is compiled when it is written to the file: fields become offsets into the record, and operators become
//! tests. Each test names the next test for either answer, which is always a later one. So the hit path (`hit::action`)
//! looks up no name, and takes at most as many steps as there are tests. Problems of a filter are reported with the
//! words and at the columns of Linux.

mod accepted_range;
mod cpu_list;
mod error;
pub(crate) mod parse;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, ops};

use fallible::{OutOfMemory, TryClone};

pub(crate) use accepted_range::AcceptedRange;
pub use error::{Error, Problem};

use crate::clock::Clock;
use crate::fetch::RegisterPart;
use crate::format::Field;

/// The name that Linux's `error_log` has before an error of a filter.
pub const FILTER_LOG: &str = "event filter parse error";
/// The longest filter, in bytes.
pub const LENGTH_MAX: usize = 4095;
/// The limit for strings in filters, in bytes; a string must be shorter.
pub const STRING_LIMIT: usize = 256;

/// How filters find functions. A range has the virtual addresses of a function's code.
#[derive(Clone, Copy, Debug)]
pub struct FindFunction {
    /// Passes each function of this name to its second argument.
    pub named: fn(&str, &mut dyn FnMut(ops::Range<u64>)),
    /// Returns the function that contains this virtual address.
    pub at: fn(u64) -> Option<ops::Range<u64>>,
}

impl FindFunction {
    /// Finds none.
    pub const NONE: Self = Self { named: |_, _| {}, at: |_| None };
}

/// A filter: its text, and the tests that it was compiled to.
#[derive(Debug)]
pub struct Filter {
    text: String,
    tests: Box<[Test]>,
}

impl Filter {
    /// Parses a filter for an event with these `fields`, which may name `functions`.
    ///
    /// # Errors
    ///
    /// Returns the problem and its position.
    pub fn parse(text: &str, fields: &[Field], functions: FindFunction) -> Result<Self, Error> {
        let text = text.trim_matches(|character: char| character.is_ascii_whitespace());
        let tests = parse::parse(text, fields, functions)?;
        Ok(Self { text: fallible::copy(text)?, tests })
    }

    /// Returns a filter without a text that accepts the hits whose `number` is one of `numbers`, if `is_in`; otherwise
    /// all others.
    pub(crate) fn one_of(number: Number, numbers: impl Iterator<Item = u64>, is_in: bool) -> Result<Self, OutOfMemory> {
        let (found, other) = if is_in { (ACCEPT, REJECT) } else { (REJECT, ACCEPT) };
        let mut ranges = fallible::collect(numbers.map(|number| AcceptedRange::of(Comparison::Equal, number, false)))?;
        if ranges.is_empty() {
            fallible::push(&mut ranges, AcceptedRange::NONE)?;
        }
        if ranges.len() > parse::TESTS_MAX {
            return Err(OutOfMemory);
        }
        let last = ranges.len() as NextTest;
        let tests = (1..).zip(ranges).map(|(next, range)| Test {
            question: Question::Number { number, range },
            yes: found,
            no: if next == last { other } else { next },
        });
        Ok(Self { text: String::new(), tests: fallible::boxed_slice(tests)? })
    }

    /// Returns a copy of the filter with `number` applied to each number that it tests.
    pub(crate) fn map(&self, number: impl Fn(Number) -> Number) -> Result<Self, OutOfMemory> {
        let mut mapped = self.try_clone()?;
        for test in &mut mapped.tests {
            if let Question::Number { number: place, .. } = &mut test.question {
                *place = number(*place);
            }
        }
        Ok(mapped)
    }

    /// Returns the filter of the hits that both accept, with the text of `other`.
    pub(crate) fn and(&self, other: &Self) -> Result<Self, OutOfMemory> {
        self.followed_by(other, ACCEPT)
    }

    /// Returns the filter of the hits that one of the two accepts, with the text of `other`.
    pub(crate) fn or(&self, other: &Self) -> Result<Self, OutOfMemory> {
        self.followed_by(other, REJECT)
    }

    /// Returns the filter that goes on with the tests of `other` where this one would end with `outcome`. It has the
    /// text of `other`.
    fn followed_by(&self, other: &Self, outcome: NextTest) -> Result<Self, OutOfMemory> {
        let (mut first, second) = (self.try_clone()?, other.try_clone()?);
        let before = NextTest::try_from(first.tests.len()).map_err(|_| OutOfMemory)?;
        let mut tests = Vec::new();
        tests.try_reserve_exact(first.tests.len() + second.tests.len())?;
        let next = |next: NextTest| if next == outcome { before } else { next };
        for test in &mut first.tests {
            (test.yes, test.no) = (next(test.yes), next(test.no));
        }
        // A hit has few filters, and each has at most `TESTS_MAX` tests, so a `NextTest` can number all tests.
        let shifted = |next: NextTest| if next >= REJECT { next } else { next.saturating_add(before) };
        tests.extend(first.tests);
        tests.extend(second.tests.into_iter().map(|Test { question, yes, no }| Test {
            question,
            yes: shifted(yes),
            no: shifted(no),
        }));
        Ok(Self { text: second.text, tests: fallible::boxed_slice(tests)? })
    }

    /// Whether both filters have the same text.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// Whether a test looks at the record.
    pub(crate) fn needs_record(&self) -> bool {
        self.tests.iter().any(|test| match &test.question {
            Question::Number { number, .. } => number.needs_record(),
            Question::Text { text, .. } => text.needs_record(),
        })
    }

    /// Returns the tests in a form that needs only registers; `None` if a test looks at anything else.
    pub(crate) fn register_tests(&self) -> Result<Option<Box<[Test<RegisterQuestion>]>>, OutOfMemory> {
        let of = |Test { question, yes, no }: &Test| {
            let Question::Number { number, range } = question else { return None };
            Some(Test { question: RegisterQuestion { part: number.part()?, range: *range }, yes: *yes, no: *no })
        };
        let tests = || self.tests.iter().map(of);
        tests().all(|test| test.is_some()).then(|| fallible::boxed_slice(tests().flatten())).transpose()
    }

    /// Returns the tests. A hit starts with the first.
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

/// The text of the filter, without white space around it.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The number of the next test of a filter, or the outcome: [`ACCEPT`] or [`REJECT`].
pub(crate) type NextTest = u16;
/// Outcome: the hit counts.
pub(crate) const ACCEPT: NextTest = NextTest::MAX;
/// Outcome: the hit does not count.
pub(crate) const REJECT: NextTest = NextTest::MAX - 1;

/// A question, and the next test for each answer.
#[derive(Debug)]
pub(crate) struct Test<Q = Question> {
    pub(crate) question: Q,
    /// The next test if the answer is yes.
    pub(crate) yes: NextTest,
    /// The next test if the answer is no.
    pub(crate) no: NextTest,
}

/// A question about a hit.
#[derive(Debug)]
pub(crate) enum Question {
    /// Whether a number is in the range.
    Number { number: Number, range: AcceptedRange },
    /// Whether `pattern` matches a string.
    Text { text: HitString, pattern: Pattern },
}

/// Whether a register, or a part of one, is in the range.
#[derive(Clone, Debug)]
pub(crate) struct RegisterQuestion {
    pub(crate) part: RegisterPart,
    pub(crate) range: AcceptedRange,
}

/// A number of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// A number in the record: at this offset, with this size (1, 2, 4 or 8 bytes), signed or not. If the record's
    /// faults have the bit `fault`, the number could not be read.
    Field { offset: u16, size: u8, signed: bool, fault: Option<u8> },
    /// A register, or a part of it. It replaces a field with the same value: if no field is left, the record is not
    /// made for the filter.
    Register(RegisterPart),
    /// The number of the task, as `common_pid` shows it.
    Task,
    /// The number of the CPU.
    Cpu,
    /// The time of the hit; never in a filter.
    Time(Time),
}

/// The time of a hit in a unit of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) clock: Clock,
    /// Whether the unit is microseconds; otherwise nanoseconds.
    pub(crate) microseconds: bool,
}

impl Number {
    /// Whether the number is in the record.
    pub(crate) fn needs_record(self) -> bool {
        matches!(self, Self::Field { .. })
    }

    /// Whether the number is compared as a signed one.
    pub(crate) fn is_signed(self) -> bool {
        match self {
            Self::Field { signed, .. } => signed,
            Self::Register(part) => part.bits.is_signed(),
            Self::Task | Self::Cpu => true,
            Self::Time(_) => false,
        }
    }

    /// Returns the register or the part of one that the number is; `None` if it is neither.
    pub(crate) fn part(self) -> Option<RegisterPart> {
        match self {
            Self::Register(part) => Some(part),
            Self::Field { .. } | Self::Task | Self::Cpu | Self::Time(_) => None,
        }
    }
}

/// A string of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitString {
    /// A string located by the u32 at this offset: its length is in the upper half, its offset in the lower half.
    Located { offset: u16 },
    /// A string at this offset with this fixed size in bytes, padded with zeros.
    Fixed { offset: u16, size: u16 },
    /// The name of the task.
    Task,
}

impl HitString {
    /// Whether the string is in the record.
    pub(crate) fn needs_record(self) -> bool {
        !matches!(self, Self::Task)
    }
}

/// The comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// A bit is set in both numbers.
    Bits,
}

/// The right side of a test of a string.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) bytes: Box<[u8]>,
    /// Whether the bytes are a pattern; otherwise they are a plain string.
    pub(crate) is_glob: bool,
    /// Whether the answer is inverted.
    pub(crate) negated: bool,
}

#[cfg(all(test, not(loom)))]
mod tests;
