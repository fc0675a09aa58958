//! Splits the text of a program into tokens, on demand. The name of a probe does not consist of tokens, and only the
//! parser knows where such a name begins.

use alloc::string::String;
use core::iter::Skip;
use core::str::CharIndices;

use crate::error::{Error, Problem, Span};

/// The maximum length of a string in a program, in bytes.
pub(super) const TEXT_MAX: usize = 255;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A number.
    Integer(u64),
    /// The content of a quoted string, with its escapes resolved.
    Text(String),
    /// A word: a keyword, a built-in value, a function, or a type.
    Word(&'a str),
    /// `$name`, without the `$`.
    Variable(&'a str),
    /// `$1` and so on: the number of the parameter, from 0; `None` for `$#`.
    Positional(Option<usize>),
    /// `@name`, without the `@`; the name may be empty.
    Map(&'a str),
    /// An operator or a bracket.
    Sign(&'static str),
    /// The `/` that ends a predicate: a `{` follows.
    EndPredicate,
    /// The end of the text.
    End,
}

/// All tokens that are operators or brackets. A token precedes every prefix of it.
static SIGNS: [&str; 47] = [
    "<<=", ">>=", "->", "..", ".", "::", "++", "--", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "(", ")", "{", "}", "[", "]", ";", ",", "?", ":", "<", ">", "=", "+", "-", "*", "/",
    "%", "&", "|", "^", "!", "~",
];

/// A position in the text of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    /// The text of the program.
    pub text: &'a str,
    /// The offset of the position in the text, in bytes.
    pub position: usize,
}

impl<'a> Cursor<'a> {
    /// Returns the text from the position on.
    pub fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or("")
    }

    /// Returns the span from the offset `start` to the position.
    pub fn since(&self, start: usize) -> Span {
        Span { start, end: self.position }
    }

    /// Skips white space and comments.
    pub fn skip_blank(&mut self) -> Result<(), Error> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.position += rest.len() - trimmed.len();
            if let Some(comment) = trimmed.strip_prefix("//") {
                self.position += 2 + comment.find('\n').unwrap_or(comment.len());
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                let Some(length) = comment.find("*/") else {
                    let span = Span { start: self.position, end: self.position + 2 };
                    return Err(span.error(Problem::OpenComment));
                };
                self.position += 2 + length + 2;
            } else {
                return Ok(());
            }
        }
    }

    /// Reads the next token, and returns it with its place.
    pub fn token(&mut self) -> Result<(Token<'a>, Span), Error> {
        self.skip_blank()?;
        let start = self.position;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok((Token::End, self.since(start)));
        };
        let token = match first {
            '0'..='9' => Token::Integer(self.integer()?),
            '"' => Token::Text(self.quoted()?),
            '$' | '@' => {
                self.position += 1;
                let name = self.word();
                match first {
                    '@' => Token::Map(name),
                    _ if name.is_empty() && self.rest().starts_with('#') => {
                        self.position += 1;
                        Token::Positional(None)
                    }
                    _ if name.is_empty() => return Err(self.since(start).error(Problem::VariableName)),
                    _ if name.starts_with(|c: char| c.is_ascii_digit()) => {
                        let place = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                        Token::Positional(Some(
                            place.ok_or_else(|| self.since(start).error(Problem::PositionalParameter))?,
                        ))
                    }
                    _ => Token::Variable(name),
                }
            }
            _ if first.is_ascii_alphabetic() || first == '_' => Token::Word(self.word()),
            _ => {
                let begins = |sign: &&str| rest.as_bytes().first() == sign.as_bytes().first() && rest.starts_with(sign);
                let Some(sign) = SIGNS.iter().copied().find(begins) else {
                    self.position += first.len_utf8();
                    return Err(self.since(start).error(Problem::Character));
                };
                self.position += sign.len();
                if sign == "/" && self.is_before_block()? { Token::EndPredicate } else { Token::Sign(sign) }
            }
        };
        Ok((token, self.since(start)))
    }

    /// Returns whether a `{` is next.
    fn is_before_block(&self) -> Result<bool, Error> {
        let mut ahead = *self;
        ahead.skip_blank()?;
        Ok(ahead.rest().starts_with('{'))
    }

    /// Returns the next token if it is a sign.
    pub fn next_sign(mut self) -> Result<Option<&'static str>, Error> {
        Ok(if let Token::Sign(sign) = self.token()?.0 { Some(sign) } else { None })
    }

    /// Returns the place of the next token.
    pub fn ahead(mut self) -> Result<Span, Error> {
        Ok(self.token()?.1)
    }

    /// Reads a run of ASCII letters, digits and `_`.
    pub fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.position += length;
        rest.get(..length).unwrap_or("")
    }

    /// Reads a number: decimal, `0x…`, octal `0…`, or `1e6`, with `_` between digits, and perhaps a suffix of C; or a
    /// time.
    fn integer(&mut self) -> Result<u64, Error> {
        let start = self.position;
        let word = self.word();
        value(word).ok_or_else(|| self.since(start).error(Problem::Number))
    }

    /// Reads the digits of an escape, at most `most` in base `radix` after the digit `first`, and returns their
    /// character. The character must be ASCII and not 0, because strings are UTF-8 and end at a zero.
    fn escaped(characters: &mut Skip<CharIndices<'_>>, first: Option<char>, radix: u32, most: usize) -> Option<char> {
        let mut value = first.and_then(|digit| digit.to_digit(radix));
        for _ in 0..most {
            let mut ahead = characters.clone();
            let Some(digit) = ahead.next().and_then(|(_, digit)| digit.to_digit(radix)) else { break };
            *characters = ahead;
            value = Some(value.unwrap_or(0) * radix + digit);
        }
        value.filter(|value| (1..0x80).contains(value)).and_then(char::from_u32)
    }

    /// Reads a string in quotation marks.
    fn quoted(&mut self) -> Result<String, Error> {
        let start = self.position;
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        let open = Span { start, end: start + 1 };
        loop {
            let Some((at, character)) = characters.next() else {
                return Err(open.error(Problem::OpenText));
            };
            match character {
                '"' => {
                    self.position = start + at + 1;
                    break;
                }
                '\\' => {
                    let escaped = characters.next().map(|(_, escaped)| escaped);
                    let character = match escaped {
                        Some('n') => Some('\n'),
                        Some('t') => Some('\t'),
                        Some('r') => Some('\r'),
                        Some('\\') => Some('\\'),
                        Some('"') => Some('"'),
                        Some('0'..='7') => Self::escaped(&mut characters, escaped, 8, 2),
                        Some('x') => Self::escaped(&mut characters, None, 16, 2),
                        _ => None,
                    };
                    let span = Span { start: start + at, end: start + at + 1 + escaped.map_or(0, char::len_utf8) };
                    fallible::push_char(&mut text, character.ok_or(span.error(Problem::Escape))?)?;
                }
                '\0' => return Err(Span { start: start + at, end: start + at + 1 }.error(Problem::Character)),
                _ => fallible::push_char(&mut text, character)?,
            }
        }
        if text.len() > TEXT_MAX {
            return Err(self.since(start).error(Problem::LongText { most: TEXT_MAX }));
        }
        Ok(text)
    }
}

/// Parses `text` as digits of base `radix`, with `_` between them.
fn digits(text: &str, radix: u32) -> Option<u64> {
    text.starts_with(|c: char| c.is_digit(radix)).then_some(())?;
    text.bytes().filter(|&byte| byte != b'_').try_fold(0_u64, |value, byte| {
        let digit = char::from(byte).to_digit(radix)?;
        value.checked_mul(radix.into())?.checked_add(digit.into())
    })
}

/// Parses `word` as a number or a time.
pub(super) fn value(word: &str) -> Option<u64> {
    literal(word).or_else(|| time(word))
}

/// Parses `word` as a number that is a value of a program. Such a number may be written as in C, unlike a number of a
/// probe: octal, `0X1f`, and with a suffix, which has no effect.
fn literal(word: &str) -> Option<u64> {
    let plain = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = word.get(plain.len()..)?;
    if !["", "u", "l", "ul", "lu", "ll", "ull", "llu"].iter().any(|known| known.eq_ignore_ascii_case(suffix)) {
        return None;
    }
    match plain.strip_prefix('0') {
        Some(hexadecimal) if let Some(hexadecimal) = hexadecimal.strip_prefix('X') => digits(hexadecimal, 16),
        Some(octal) if octal.starts_with(|c: char| c.is_ascii_digit() || c == '_') => {
            digits(octal.trim_start_matches('_'), 8)
        }
        _ => number(plain),
    }
}

/// Parses `word` as a number of 64 bits: decimal, `0x…` or `1e6`.
pub(super) fn number(word: &str) -> Option<u64> {
    if let Some(hexadecimal) = word.strip_prefix("0x") {
        return digits(hexadecimal, 16);
    }
    if word.len() > 1 && word.starts_with('0') {
        return None;
    }
    match word.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            let power = u32::try_from(digits(exponent, 10)?).ok()?;
            digits(mantissa, 10)?.checked_mul(10_u64.checked_pow(power)?)
        }
        None => digits(word, 10),
    }
}

/// The units of time, in nanoseconds. A unit precedes every unit whose name is a suffix of it.
static UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Parses `word` as a number with a unit of time, such as `5ms`, and returns it in nanoseconds.
pub(super) fn time(word: &str) -> Option<u64> {
    let (count, unit) = UNITS.iter().find_map(|&(name, unit)| Some((word.strip_suffix(name)?, unit)))?;
    if count.starts_with("0x") { None } else { number(count)?.checked_mul(unit) }
}
