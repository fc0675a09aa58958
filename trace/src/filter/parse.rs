//! Compiles the text of a filter to its tests.
//!
//! Operators wait on a stack until their right side is complete. A complete part of the filter is a [`Subexpression`]:
//! the number of its first test, and its open ends, which are the answers without a next test so far. `a && b` connects
//! the "yes" ends of `a` to `b`; `!a` swaps the two kinds of ends. Nothing is recursive: nested parentheses cost
//! memory, not stack.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops;

use fallible::OutOfMemory;
use kprobes_symbols::Brackets;

use crate::definition;
use crate::format::Base;

use super::cpu_list::CpuList;
use super::{
    ACCEPT, AcceptedRange, Comparison, Error, Field, FindFunction, HitString, LENGTH_MAX, NextTest, Number, Pattern,
    Problem, Question, REJECT, STRING_LIMIT, Test,
};

/// The maximum number of tests of a filter, which is also the maximum number of steps of a hit. The longest text has
/// fewer fields.
pub(super) const TESTS_MAX: usize = 1024;
/// The longest number, in bytes.
const NUMBER_MAX: usize = 23;

const OPERATORS: [(&str, Operator); 8] = [
    ("~", Operator::Glob),
    ("!=", Operator::Compare(Comparison::NotEqual)),
    ("==", Operator::Compare(Comparison::Equal)),
    ("<=", Operator::Compare(Comparison::LessOrEqual)),
    ("<", Operator::Compare(Comparison::Less)),
    (">=", Operator::Compare(Comparison::GreaterOrEqual)),
    (">", Operator::Compare(Comparison::Greater)),
    ("&", Operator::Compare(Comparison::Bits)),
];

#[derive(Clone, Copy)]
enum Operator {
    Glob,
    Compare(Comparison),
}

/// An operator or parenthesis that waits for its right side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Open,
    Or,
    And,
    Not,
}

/// A complete part of the filter: its first test, and the answers that lead out of it.
struct Subexpression {
    first: usize,
    yes: Vec<End>,
    no: Vec<End>,
}

/// An answer of a test: the number of the test, and which answer.
#[derive(Clone, Copy)]
struct End {
    test: usize,
    yes: bool,
}

#[derive(Default)]
struct Compiler {
    tests: Vec<Test>,
    waiting: Vec<Waiting>,
    subexpressions: Vec<Subexpression>,
}

pub(super) fn parse(text: &str, fields: &[Field], functions: FindFunction) -> Result<Box<[Test]>, Error> {
    let bytes = text.as_bytes();
    if bytes.len() > LENGTH_MAX {
        return Err(Error { problem: Problem::OperandTooLong, column: 0 });
    }
    check_pairs(bytes)?;
    if bytes.iter().all(|byte| byte.is_ascii_whitespace() || matches!(byte, b'(' | b')')) {
        return Err(Error { problem: Problem::NoTest, column: 0 });
    }
    let mut compiler = Compiler::default();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            _ if byte.is_ascii_whitespace() => at += 1,
            b'(' => {
                fallible::push(&mut compiler.waiting, Waiting::Open)?;
                at += 1;
            }
            b'!' if !matches!(bytes.get(at + 1), Some(b'=' | b'~')) => {
                fallible::push(&mut compiler.waiting, Waiting::Not)?;
                at += 1;
            }
            _ => {
                let (questions, end) = questions(text, at, fields, functions)?;
                if compiler.tests.len() + questions.len() > TESTS_MAX {
                    return Err(Error { problem: Problem::TooManyTests, column: at });
                }
                compiler.test(questions)?;
                at = compiler.after_test(bytes, end)?;
            }
        }
    }
    compiler.finish(bytes.len())
}

/// Checks that quotes and parentheses have partners.
fn check_pairs(bytes: &[u8]) -> Result<(), Error> {
    let mut open = Vec::new();
    let mut quote = None;
    for (at, &byte) in bytes.iter().enumerate() {
        match (quote, byte) {
            (Some((_, kind)), _) if kind == byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some((at, byte)),
            (None, b'(') => fallible::push(&mut open, at)?,
            (None, b')') if open.pop().is_none() => {
                return Err(Error { problem: Problem::TooManyClosed, column: at });
            }
            _ => {}
        }
    }
    match (quote, open.pop()) {
        (Some((column, _)), _) => Err(Error { problem: Problem::MissingQuote, column }),
        (None, Some(column)) => Err(Error { problem: Problem::TooManyOpen, column }),
        (None, None) => Ok(()),
    }
}

impl Compiler {
    /// Adds a subexpression that holds if the answer to one of `questions` is yes.
    fn test(&mut self, questions: Vec<Question>) -> Result<(), OutOfMemory> {
        let mut whole = None;
        for question in questions {
            let test = self.tests.len();
            fallible::push(&mut self.tests, Test { question, yes: ACCEPT, no: REJECT })?;
            let end = |yes| fallible::collect([End { test, yes }]);
            let subexpression = Subexpression { first: test, yes: end(true)?, no: end(false)? };
            whole = Some(match whole {
                Some(before) => self.either(before, subexpression)?,
                None => subexpression,
            });
        }
        fallible::extend(&mut self.subexpressions, whole)
    }

    /// Returns the subexpression that holds if one of the two does.
    fn either(&mut self, mut left: Subexpression, right: Subexpression) -> Result<Subexpression, OutOfMemory> {
        self.backpatch(&left.no, right.first as NextTest);
        left.no = right.no;
        fallible::extend(&mut left.yes, right.yes)?;
        Ok(left)
    }

    /// Parses what follows a test: any number of `)`, and then `&&`, `||` or the end.
    fn after_test(&mut self, bytes: &[u8], mut at: usize) -> Result<usize, Error> {
        loop {
            match (bytes.get(at), bytes.get(at + 1)) {
                (None, _) => return Ok(at),
                (Some(byte), _) if byte.is_ascii_whitespace() => at += 1,
                (Some(b')'), _) => {
                    self.join(Waiting::Or)?;
                    // `check_pairs` has found the opening parenthesis. A `!` before the parenthesis negates the whole
                    // subexpression.
                    self.waiting.pop();
                    self.negate();
                    at += 1;
                }
                (Some(b'&'), Some(b'&')) => {
                    self.join(Waiting::And)?;
                    fallible::push(&mut self.waiting, Waiting::And)?;
                    return Ok(at + 2);
                }
                (Some(b'|'), Some(b'|')) => {
                    self.join(Waiting::Or)?;
                    fallible::push(&mut self.waiting, Waiting::Or)?;
                    return Ok(at + 2);
                }
                _ => return Err(Error { problem: Problem::TooManyTests, column: at }),
            }
        }
    }

    /// Applies each waiting `!`.
    fn negate(&mut self) {
        while self.waiting.last() == Some(&Waiting::Not) {
            self.waiting.pop();
            if let Some(Subexpression { yes, no, .. }) = self.subexpressions.last_mut() {
                core::mem::swap(yes, no);
            }
        }
    }

    /// Applies each waiting operator that binds at least as tightly as `least`.
    fn join(&mut self, least: Waiting) -> Result<(), OutOfMemory> {
        self.negate();
        while let Some(&operator) = self.waiting.last() {
            if operator == Waiting::Open || operator == Waiting::Or && least == Waiting::And {
                return Ok(());
            }
            self.waiting.pop();
            let (Some(right), Some(mut left)) = (self.subexpressions.pop(), self.subexpressions.pop()) else { break };
            let whole = if operator == Waiting::And {
                self.backpatch(&left.yes, right.first as NextTest);
                left.yes = right.yes;
                fallible::extend(&mut left.no, right.no)?;
                left
            } else {
                self.either(left, right)?
            };
            fallible::push(&mut self.subexpressions, whole)?;
        }
        Ok(())
    }

    fn backpatch(&mut self, ends: &[End], next: NextTest) {
        for &End { test, yes } in ends {
            if let Some(test) = self.tests.get_mut(test) {
                *(if yes { &mut test.yes } else { &mut test.no }) = next;
            }
        }
    }

    fn finish(mut self, length: usize) -> Result<Box<[Test]>, Error> {
        let operators = self.waiting.iter().filter(|waiting| matches!(waiting, Waiting::And | Waiting::Or)).count();
        if self.subexpressions.len() <= operators && !self.tests.is_empty() {
            return Err(Error { problem: Problem::Incomplete, column: length });
        }
        self.join(Waiting::Or)?;
        match (self.subexpressions.pop(), self.subexpressions.is_empty() && self.waiting.is_empty()) {
            (Some(subexpression), true) => {
                self.backpatch(&subexpression.yes, ACCEPT);
                self.backpatch(&subexpression.no, REJECT);
                Ok(fallible::boxed_slice(self.tests)?)
            }
            // There is nothing but `!`.
            _ => Err(Error { problem: Problem::NoFilter, column: length }),
        }
    }
}

/// Parses the test that begins at `at`. Returns its questions, of which at least one must be answered with yes, and the
/// position after it.
///
/// Columns of a test are one too large, as in Linux, which counts them from after the first byte. So they may be after
/// the end of the filter.
fn questions(
    text: &str,
    at: usize,
    fields: &[Field],
    functions: FindFunction,
) -> Result<(Vec<Question>, usize), Error> {
    let one = |question| fallible::collect([question]);
    let bytes = text.as_bytes();
    let error = |problem, column: usize| Error { problem, column: column + 1 };
    let span = |from: usize, is: fn(u8) -> bool| {
        bytes[from..].iter().position(|&byte| !is(byte)).map_or(bytes.len(), |length| from + length)
    };
    let name_end = span(at, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name_end == at {
        return Err(Error { problem: Problem::MissingTest, column: 0 });
    }
    let operand = Operand::find(&text[at..name_end], fields).ok_or_else(|| error(Problem::FieldNotFound, name_end))?;
    // Memory of processes is the same memory here.
    let name_end = if text[name_end..].starts_with(USTRING) { name_end + USTRING.len() } else { name_end };
    let is_function = text[name_end..]
        .strip_prefix(FUNCTION)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_'));
    let name_end = if is_function { name_end + FUNCTION.len() } else { name_end };
    let operator_start = span(name_end, |byte| byte.is_ascii_whitespace());
    let (sign, operator) = OPERATORS
        .iter()
        .find(|(sign, _)| bytes[operator_start..].starts_with(sign.as_bytes()))
        .ok_or_else(|| error(Problem::InvalidOperator, operator_start))?;
    let start = span(operator_start + sign.len(), |byte| byte.is_ascii_whitespace());
    if is_function {
        // As in Linux, only a number with the size of an address can be an address.
        let (Operand::Number(number @ Number::Field { size: 8, .. }), true) = (operand, start < bytes.len()) else {
            return Err(error(Problem::IllegalOperation, start));
        };
        let is_in = match operator {
            Operator::Compare(Comparison::Equal) => true,
            Operator::Compare(Comparison::NotEqual) => false,
            _ => return Err(error(Problem::InvalidOperator, start)),
        };
        let (name, end) = function_name(text, start).ok_or(error(Problem::MissingQuote, bytes.len()))?;
        let function = find_function(name, functions).map_err(|problem| error(problem, end))?;
        return Ok((one(Question::Number { number, range: AcceptedRange::of_addresses(&function, is_in) })?, end));
    }
    if let Some(rest) = text[start..].strip_prefix(CPUS) {
        let (Operand::Number(number), Operator::Compare(comparison)) = (operand, *operator) else {
            return Err(error(Problem::IllegalOperation, start));
        };
        if !matches!(comparison, Comparison::Equal | Comparison::NotEqual | Comparison::Bits) {
            return Err(error(Problem::IllegalOperation, start));
        }
        let list = start + CPUS.len() + 1;
        let rest = rest.strip_prefix('{').ok_or(error(Problem::MissingBraceOpen, list))?;
        let length = rest.find('}').ok_or(error(Problem::MissingBraceClose, bytes.len()))?;
        let end = list + length;
        let cpus = CpuList::parse(&rest[..length]).ok_or(error(Problem::InvalidCpuList, end))?;
        let asked = cpus.compared(comparison)?.into_iter().map(|range| Question::Number { number, range });
        return Ok((fallible::collect(asked)?, end + 1));
    }
    match bytes.get(start) {
        Some(&quote @ (b'\'' | b'"')) => {
            let (is_glob, negated) = match operator {
                Operator::Glob => (true, false),
                Operator::Compare(Comparison::Equal) => (false, false),
                Operator::Compare(Comparison::NotEqual) => (false, true),
                Operator::Compare(_) => return Err(error(Problem::IllegalOperation, start)),
            };
            let Operand::Text(operand) = operand else { return Err(error(Problem::ExpectDigit, start)) };
            // `check_pairs` has found the closing quote, unless a quote of the other kind came first.
            let length = bytes[start + 1..].iter().position(|&byte| byte == quote);
            let end = start + 1 + length.ok_or_else(|| error(Problem::MissingQuote, bytes.len()))?;
            let string = &bytes[start + 1..end];
            if string.len() >= STRING_LIMIT {
                return Err(error(Problem::OperandTooLong, end));
            }
            let (string, negated) = match string {
                [b'!', rest @ ..] if is_glob => (rest, true),
                _ => (string, negated),
            };
            let pattern = Pattern { bytes: fallible::boxed_slice(string.iter().copied())?, is_glob, negated };
            Ok((one(Question::Text { text: operand, pattern })?, end + 1))
        }
        Some(b'0'..=b'9' | b'-') => {
            let Operand::Number(number) = operand else { return Err(error(Problem::ExpectString, start)) };
            let Operator::Compare(comparison) = *operator else { return Err(error(Problem::IllegalOperation, start)) };
            let sign = usize::from(bytes[start] == b'-');
            let end = span(start + sign, |byte| byte.is_ascii_alphanumeric());
            if end - start > NUMBER_MAX {
                return Err(error(Problem::OperandTooLong, end));
            }
            let value = integer(&text[start..end], number.is_signed());
            let value = value.ok_or_else(|| error(Problem::IllegalInteger, start))?;
            let range = AcceptedRange::of(comparison, narrow(number, value), number.is_signed());
            Ok((one(Question::Number { number, range })?, end))
        }
        _ => Err(error(Problem::InvalidValue, start)),
    }
}

/// The word before a list of CPUs.
const CPUS: &str = "CPUS";
/// The word after a field that is a text in the memory of a process.
const USTRING: &str = ".ustring";
/// The word after a field that is an address in a function.
const FUNCTION: &str = ".function";

/// Returns the name of a function that begins at `start`, and the position after it; `None` if its quote is not closed.
/// A name without quotes ends at white space, `)`, `&` or `|`, except in angle brackets.
fn function_name(text: &str, start: usize) -> Option<(&str, usize)> {
    let rest = &text[start..];
    if let Some(quote @ ('\'' | '"')) = rest.chars().next() {
        let length = rest[1..].find(quote)?;
        return Some((&rest[1..1 + length], start + length + 2));
    }
    let mut brackets = Brackets::ANGLE;
    let is_end = |character: char| {
        brackets.pass(character) && (character.is_ascii_whitespace() || matches!(character, ')' | '&' | '|'))
    };
    let length = rest.find(is_end).unwrap_or(rest.len());
    Some((&rest[..length], start + length))
}

/// Returns the addresses of the only function of this name; for an address, those of the function that contains it.
fn find_function(name: &str, functions: FindFunction) -> Result<ops::Range<u64>, Problem> {
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        let address = definition::number::unsigned(name).ok_or(Problem::InvalidValue)?;
        return (functions.at)(address).ok_or(Problem::FunctionNotFound);
    }
    let (mut found, mut count) = (None, 0);
    (functions.named)(name, &mut |function| {
        count += 1;
        found.get_or_insert(function);
    });
    match count {
        0 | 1 => found.filter(|function| !function.is_empty()).ok_or(Problem::FunctionNotFound),
        _ => Err(Problem::FunctionNotUnique),
    }
}

/// The name that always means the number of the CPU, even if an event has a field `cpu`.
const CPU: &str = "common_cpu";

/// The left side of a test.
enum Operand {
    Number(Number),
    Text(HitString),
}

impl Operand {
    /// Returns what `name` stands for in an event with these fields.
    fn find(name: &str, fields: &[Field]) -> Option<Self> {
        let of_field = |field: &Field| match text(field) {
            Some(text) => Some(Self::Text(text)),
            None => number(field).map(Self::Number),
        };
        // An argument may have the name `cpu`; then the name means the argument.
        match fields.iter().find(|field| field.name == name && name != CPU) {
            Some(field) => of_field(field),
            None => match name {
                "comm" | "COMM" => Some(Self::Text(HitString::Task)),
                "cpu" | "CPU" | CPU => Some(Self::Number(Number::Cpu)),
                _ => None,
            },
        }
    }
}

/// Returns the number in `field`; `None` if the field is not one number.
pub(crate) fn number(field: &Field) -> Option<Number> {
    let Field { offset, size, signed, fault, .. } = *field;
    field.is_number().then_some(Number::Field { offset: offset as u16, size: size as u8, signed, fault })
}

/// Returns the string in `field`; `None` if the field is not a text.
pub(crate) fn text(field: &Field) -> Option<HitString> {
    let offset = field.offset as u16;
    field.is_text().then_some(match field.kind.base {
        Base::Characters => HitString::Fixed { offset, size: field.size as u16 },
        _ => HitString::Located { offset },
    })
}

/// Returns the stack in `field`, whose bytes are located like a text; `None` if the field is not a stack.
pub(crate) fn stack(field: &Field) -> Option<HitString> {
    field.is_stack().then_some(HitString::Located { offset: field.offset as u16 })
}

/// Parses a number as Linux does for a field with or without a sign.
fn integer(text: &str, is_signed: bool) -> Option<u64> {
    if is_signed {
        definition::number::signed(text).map(|value| value as u64)
    } else {
        definition::number::unsigned(text)
    }
}

/// Truncates `value` to the width of `number`, as Linux does.
fn narrow(number: Number, value: u64) -> u64 {
    let (size, signed) = match number {
        Number::Field { size, signed, .. } => (u32::from(size), signed),
        Number::Task | Number::Cpu => (4, true),
        // Registers take the place of fields in filters that have been parsed.
        Number::Register(part) => (8, part.bits.is_signed()),
        Number::Time(_) => (8, false),
    };
    let unused = 64 - 8 * size.min(8);
    if signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused }
}
