//! Prints the record of a static event as the `print fmt` of its file `format` says.
//!
//! A `print fmt` is a format of C's `printf` in quotes, followed by its arguments, which are C expressions. A reader on
//! another machine interprets the same text (libtraceevent), so an event looks the same everywhere. These forms are
//! understood:
//!
//! | what | forms |
//! |---|---|
//! | conversions | `%d %i %u %x %X %c %s %p %px %ps %pS %%`, with flags, width and the lengths of C |
//! | fields | `REC->FIELD`, `__get_str(FIELD)` |
//! | operators | `?:`, `\|\| && \| ^ & == != < > <= >= << >> + - * ! ~ -`, parentheses |
//! | casts | to `char short int long` with their signs, `bool`, `u8` to `s64`, `size_t ssize_t pid_t dev_t sector_t`, and to pointers |
//! | names of values | `__print_flags(VALUE, "SEPARATOR", { BITS, "NAME" }, …)`, `__print_symbolic(VALUE, { VALUE, "NAME" }, …)` |
//!
//! Arithmetic is that of C, by the types of fields, literals and casts (module `number`). An event whose text has
//! anything else prints each field by its name.

mod number;

use core::fmt::{self, Write};

use number::{Integer, Number, apply};

use crate::definition;
use crate::format::{Base, Field, Format};
use crate::symbols::{Symbols, write_name, write_offset};

/// The maximum nesting depth of expressions. Deeper expressions are not understood.
const DEPTH_MAX: u32 = 16;

/// Writes `bytes` as text, with a replacement character for each sequence that is not UTF-8.
pub(crate) fn write_lossy(out: &mut dyn Write, bytes: &[u8]) -> fmt::Result {
    bytes.utf8_chunks().try_for_each(|chunk| {
        out.write_str(chunk.valid())?;
        if chunk.invalid().is_empty() { Ok(()) } else { out.write_char('\u{fffd}') }
    })
}

/// The value of an expression.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number(Number),
    /// The bytes of a field.
    Bytes(&'a [u8]),
    /// The text between quotes.
    Quoted(&'a str),
    /// Names for a value, from the first of the list `names` on. With a `separator`, they are names for its bits.
    Names {
        value: u64,
        separator: Option<&'a str>,
        names: &'a str,
    },
}

/// The type that a value is converted to.
#[derive(Clone, Copy)]
enum Cast {
    Bool,
    Integer(Integer),
    Pointer,
}

/// Why nothing more is printed.
enum Stop {
    /// The text is not understood.
    Text,
    /// The output returned an error.
    Write,
}

impl From<fmt::Error> for Stop {
    fn from(_: fmt::Error) -> Self {
        Self::Write
    }
}

/// The rest of the text, and the fields and the record that its expressions refer to.
#[derive(Clone, Copy)]
struct Reader<'a> {
    rest: &'a str,
    fields: &'a [Field],
    record: &'a [u8],
    depth: u32,
}

/// Whether `print` is understood for events with these fields.
#[must_use]
pub fn is_understood(print: &str, fields: &[Field]) -> bool {
    struct Nowhere;
    impl Write for Nowhere {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            Ok(())
        }
    }
    struct Nameless;
    impl Symbols for Nameless {
        fn lookup(&self, _: u64) -> Option<crate::symbols::Function<'_>> {
            None
        }
        fn find<'a>(&'a self, _: &str, _: &mut dyn FnMut(crate::symbols::Function<'a>)) {}
    }
    Reader { rest: print, fields, record: &[], depth: 0 }.print(&mut Nowhere, &Nameless).is_ok()
}

/// Writes the fields of `record` as the `print fmt` of the event says; without one, each by its name.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(out: &mut dyn Write, format: &Format, record: &[u8], symbols: &dyn Symbols) -> fmt::Result {
    let Some(print) = format.print else { return write_fields(out, format, record) };
    match (Reader { rest: print, fields: &format.fields, record, depth: 0 }).print(out, symbols) {
        Err(Stop::Write) => Err(fmt::Error),
        // `Format::of_static` keeps only a text that is understood, whatever a record holds.
        Ok(()) | Err(Stop::Text) => Ok(()),
    }
}

fn write_fields(out: &mut dyn Write, format: &Format, record: &[u8]) -> fmt::Result {
    for (number, field) in format.arguments().iter().enumerate() {
        write!(out, "{}{}=", if number > 0 { " " } else { "" }, field.name)?;
        let value = field.value(record, 0).unwrap_or(0);
        match field.kind.base {
            Base::Characters => write_lossy(out, field.characters(record))?,
            Base::String => write_lossy(out, field.bytes(record, 0).unwrap_or(b"(fault)"))?,
            Base::Signed(_) => write!(out, "{}", value as i64)?,
            Base::Hexadecimal(_) => write!(out, "{value:016x}")?,
            _ => write!(out, "{value}")?,
        }
    }
    Ok(())
}

/// Writes the `print fmt` of an event that has none of its own.
///
/// # Errors
///
/// The errors of `out`.
pub fn write_default(out: &mut dyn Write, fields: &[Field]) -> fmt::Result {
    out.write_char('"')?;
    for (number, field) in fields.iter().enumerate() {
        let conversion = match (field.kind.base, field.size) {
            (Base::Characters | Base::String, _) => "%s",
            (Base::Signed(_), 8) => "%ld",
            (Base::Signed(_), _) => "%d",
            (Base::Hexadecimal(_), _) => "%p",
            (_, 8) => "%lu",
            _ => "%u",
        };
        write!(out, "{}{}={conversion}", if number > 0 { " " } else { "" }, field.name)?;
    }
    out.write_char('"')?;
    fields.iter().try_for_each(|field| match field.kind.base {
        Base::String => write!(out, ", __get_str({})", field.name),
        _ => write!(out, ", REC->{}", field.name),
    })
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes `text`, if it comes next.
    fn take(&mut self, text: &str) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(text);
        rest.map(|rest| self.rest = rest).is_some()
    }

    fn expect(&mut self, text: &str) -> Result<(), Stop> {
        if self.take(text) { Ok(()) } else { Err(Stop::Text) }
    }

    /// Takes a text in quotes. Returns the text between them, with its escapes.
    fn quoted(&mut self) -> Result<&'a str, Stop> {
        self.expect("\"")?;
        let mut escaped = false;
        let is_end = |character: char| {
            let ends = character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            ends
        };
        let end = self.rest.find(is_end).ok_or(Stop::Text)?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(text)
    }

    /// Takes a name, if one comes next.
    fn word(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let end = self.rest.find(|character| !is_part(character)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() || word.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        self.rest = rest;
        Some(word)
    }

    fn print(&mut self, out: &mut dyn Write, symbols: &dyn Symbols) -> Result<(), Stop> {
        let mut text = self.quoted()?;
        while let Some(at) = text.find(['%', '\\']) {
            let (before, rest) = text.split_at(at);
            out.write_str(before)?;
            if let Some(escaped) = rest.strip_prefix('\\') {
                let mut characters = escaped.chars();
                match characters.next().ok_or(Stop::Text)? {
                    'n' => out.write_char('\n')?,
                    't' => out.write_char('\t')?,
                    other => out.write_char(other)?,
                }
                text = characters.as_str();
                continue;
            }
            text = match rest[1..].strip_prefix('%') {
                Some(rest) => {
                    out.write_char('%')?;
                    rest
                }
                None => {
                    let (conversion, rest) = Conversion::read(&rest[1..]).ok_or(Stop::Text)?;
                    self.expect(",")?;
                    let value = self.expression()?;
                    conversion.write(out, value, self, symbols)?;
                    rest
                }
            };
        }
        out.write_str(text)?;
        self.skip_blanks();
        if self.rest.is_empty() { Ok(()) } else { Err(Stop::Text) }
    }

    fn expression(&mut self) -> Result<Value<'a>, Stop> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Stop::Text);
        }
        let condition = self.binary(0)?;
        let value = if self.take("?") {
            let holds = condition.number()?.value() != 0;
            let first = self.expression()?;
            self.expect(":")?;
            let second = self.expression()?;
            match (first, second) {
                (Value::Number(first), Value::Number(second)) => {
                    let common = first.integer().common(second.integer());
                    Value::Number(common.number(if holds { first } else { second }.value()))
                }
                // Whatever the record holds, the conversion must fit.
                (Value::Number(_), _) | (_, Value::Number(_)) => return Err(Stop::Text),
                _ if holds => first,
                _ => second,
            }
        } else {
            condition
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Takes an expression of operators that bind at least as closely as `least`.
    fn binary(&mut self, least: u8) -> Result<Value<'a>, Stop> {
        let mut left = self.unary()?;
        while let Some((operator, closeness)) = self.operator().filter(|(_, closeness)| *closeness >= least) {
            self.expect(operator)?;
            let right = self.binary(closeness + 1)?.number()?;
            left = Value::Number(apply(operator, left.number()?, right));
        }
        Ok(left)
    }

    /// Returns the operator that comes next, and how closely it binds, as in C.
    fn operator(&mut self) -> Option<(&'static str, u8)> {
        const OPERATORS: [(&str, u8); 16] = [
            ("||", 0),
            ("&&", 1),
            ("==", 5),
            ("!=", 5),
            ("<<", 7),
            (">>", 7),
            ("<=", 6),
            (">=", 6),
            ("|", 2),
            ("^", 3),
            ("&", 4),
            ("<", 6),
            (">", 6),
            ("+", 8),
            ("-", 8),
            ("*", 9),
        ];
        self.skip_blanks();
        OPERATORS.into_iter().find(|(operator, _)| self.rest.starts_with(operator))
    }

    fn unary(&mut self) -> Result<Value<'a>, Stop> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Stop::Text);
        }
        let value = if self.take("!") {
            Value::Number(Number::truth(self.unary()?.number()?.value() == 0))
        } else if self.take("~") {
            Value::Number(self.unary()?.number()?.promoted(|value| !value))
        } else if self.take("-") {
            Value::Number(self.unary()?.number()?.promoted(u64::wrapping_neg))
        } else if let Some(cast) = self.cast()? {
            match (cast, self.unary()?) {
                (Cast::Pointer, Value::Number(number)) => Value::Number(Integer::UNSIGNED_LONG.number(number.value())),
                (Cast::Pointer, text) => text,
                (Cast::Bool, value) => Value::Number(Number::truth(value.number()?.value() != 0)),
                (Cast::Integer(integer), value) => Value::Number(integer.number(value.number()?.value())),
            }
        } else {
            self.primary()?
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Takes a type in parentheses, if one comes next.
    fn cast(&mut self) -> Result<Option<Cast>, Stop> {
        let mut inside = *self;
        if !inside.take("(") {
            return Ok(None);
        }
        let (mut cast, mut is_signed, mut is_type) = (Some(Cast::Integer(Integer::INT)), None, false);
        while let Some(word) = inside.word() {
            cast = match word {
                "const" | "int" => cast,
                "signed" | "unsigned" => {
                    is_signed = Some(word == "signed");
                    cast
                }
                "void" => None,
                "bool" => Some(Cast::Bool),
                _ => match Integer::named(word) {
                    Some(integer) => Some(Cast::Integer(integer)),
                    None if is_type => return Err(Stop::Text),
                    None => return Ok(None),
                },
            };
            is_type = true;
        }
        if !is_type {
            return Ok(None);
        }
        while inside.take("*") {
            cast = Some(Cast::Pointer);
        }
        inside.expect(")")?;
        *self = inside;
        match (cast, is_signed) {
            (Some(Cast::Integer(integer)), Some(is_signed)) => Ok(Some(Cast::Integer(integer.signed(is_signed)))),
            (cast @ Some(_), _) => Ok(cast),
            (None, _) => Err(Stop::Text),
        }
    }

    fn primary(&mut self) -> Result<Value<'a>, Stop> {
        self.skip_blanks();
        if self.take("(") {
            let value = self.expression()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.rest.starts_with('"') {
            return self.quoted().map(Value::Quoted);
        }
        match self.word() {
            None => self.literal().map(Value::Number),
            Some("REC") => {
                self.expect("->")?;
                let name = self.word().ok_or(Stop::Text)?;
                self.field(name)
            }
            Some("__get_str") => {
                self.expect("(")?;
                let name = self.word().ok_or(Stop::Text)?;
                self.expect(")")?;
                self.field(name)
            }
            Some("__print_flags") => self.names(true),
            Some("__print_symbolic") => self.names(false),
            Some(_) => Err(Stop::Text),
        }
    }

    fn literal(&mut self) -> Result<Number, Stop> {
        let is_part = |character: char| character.is_ascii_alphanumeric();
        let end = self.rest.find(|character| !is_part(character)).unwrap_or(self.rest.len());
        let (literal, rest) = self.rest.split_at(end);
        self.rest = rest;
        let digits = literal.trim_end_matches(['u', 'U', 'l', 'L']);
        let (radix, digits) = definition::number::digits(digits);
        let value = definition::number::plain(digits, radix).ok_or(Stop::Text)?;
        let suffix = literal.trim_start_matches(|digit: char| !"uUlL".contains(digit));
        Ok(Integer::of_literal(value, radix == 10, suffix).number(value))
    }

    fn field(&self, name: &str) -> Result<Value<'a>, Stop> {
        let field = self.fields.iter().find(|field| field.name == name).ok_or(Stop::Text)?;
        Ok(match field.kind.base {
            Base::Characters => Value::Bytes(field.characters(self.record)),
            Base::String => Value::Bytes(field.bytes(self.record, 0).unwrap_or(b"(fault)")),
            base => Value::Number(Integer::of(base).number(field.value(self.record, 0).unwrap_or(0))),
        })
    }

    /// Takes the arguments of `__print_flags`, or of `__print_symbolic`.
    fn names(&mut self, has_separator: bool) -> Result<Value<'a>, Stop> {
        self.expect("(")?;
        let value = self.expression()?.number()?.value();
        self.expect(",")?;
        let mut separator = None;
        if has_separator {
            separator = Some(self.quoted()?);
            self.expect(",")?;
        }
        let names = self.rest;
        while self.name()?.is_some() {}
        self.expect(")")?;
        Ok(Value::Names { value, separator, names })
    }

    /// Takes `{ VALUE, "NAME" }` and the comma after it, if this comes next.
    fn name(&mut self) -> Result<Option<(u64, &'a str)>, Stop> {
        if !self.take("{") {
            return Ok(None);
        }
        let value = self.expression()?.number()?.value();
        self.expect(",")?;
        let name = self.quoted()?;
        self.expect("}")?;
        self.take(",");
        Ok(Some((value, name)))
    }

    /// Writes the names for `value`, whose list `self` begins with. A value, or bits, without a name are written as a
    /// number.
    fn write_names(&mut self, out: &mut dyn Write, value: u64, separator: Option<&str>) -> Result<(), Stop> {
        let (mut rest, mut is_first) = (value, true);
        while let Some((bits, name)) = self.name()? {
            match separator {
                None if bits == value => return Ok(out.write_str(name)?),
                Some(separator) if bits != 0 && rest & bits == bits => {
                    write!(out, "{}{name}", if is_first { "" } else { separator })?;
                    (rest, is_first) = (rest & !bits, false);
                }
                _ => {}
            }
        }
        match separator {
            Some(separator) if rest != 0 => write!(out, "{}{rest:#x}", if is_first { "" } else { separator })?,
            Some(_) => {}
            None => write!(out, "{value:#x}")?,
        }
        Ok(())
    }
}

impl Value<'_> {
    fn number(self) -> Result<Number, Stop> {
        if let Self::Number(number) = self { Ok(number) } else { Err(Stop::Text) }
    }
}

/// A sink that counts bytes.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// A conversion, without its `%`.
struct Conversion<'a> {
    is_left: bool,
    has_zeros: bool,
    has_prefix: bool,
    /// Printed before a signed number that is not negative: `+`, a blank or nothing.
    plus: &'static str,
    width: usize,
    /// The length modifiers of C, which give the size of a number.
    length: &'a str,
    letter: char,
    /// The letter after `p`.
    of_pointer: Option<char>,
}

impl<'a> Conversion<'a> {
    /// Parses the conversion that `text` begins with. Also returns the rest of `text`.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let flags = text.len() - text.trim_start_matches(['-', '0', '#', '+', ' ']).len();
        let (flags, text) = text.split_at(flags);
        let digits = text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        let (width, text) = text.split_at(digits);
        let length = text.len() - text.trim_start_matches(['l', 'L', 'h', 'z', 'q']).len();
        let (length, text) = text.split_at(length);
        let mut characters = text.chars();
        let letter = characters.next().filter(|letter| "diuxXcsp".contains(*letter))?;
        let rest = characters.as_str();
        // Linux takes all letters and digits after `p` for the form of the pointer.
        let after = rest.trim_start_matches(|next: char| letter == 'p' && next.is_ascii_alphanumeric());
        let (form, rest) = rest.split_at(rest.len() - after.len());
        let of_pointer = match form {
            "" => None,
            "s" | "S" | "x" => form.chars().next(),
            _ => return None,
        };
        let width = if width.is_empty() { 0 } else { width.parse().ok().filter(|width| *width <= 64)? };
        let is_left = flags.contains('-');
        let (has_zeros, has_prefix) = (flags.contains('0') && !is_left, flags.contains('#'));
        let plus = match (flags.contains('+'), flags.contains(' ')) {
            (true, _) => "+",
            (false, true) => " ",
            (false, false) => "",
        };
        Some((Self { is_left, has_zeros, has_prefix, plus, width, length, letter, of_pointer }, rest))
    }

    fn write(
        &self,
        out: &mut dyn Write,
        value: Value<'_>,
        reader: &Reader<'_>,
        symbols: &dyn Symbols,
    ) -> Result<(), Stop> {
        let number = match value {
            Value::Number(number) if self.letter != 's' => number.value(),
            Value::Bytes(bytes) if self.letter == 's' => return Ok(self.write_bytes(out, bytes)?),
            Value::Quoted(text) if self.letter == 's' => return Ok(self.write_bytes(out, text.as_bytes())?),
            Value::Names { value, separator, names } if self.letter == 's' => {
                let write = |out: &mut dyn Write| Reader { rest: names, ..*reader }.write_names(out, value, separator);
                let mut length = Length(0);
                write(&mut length)?;
                // The names are understood, so only the output can fail.
                return Ok(self.pad(out, length.0, |out| write(out).map_err(|_| fmt::Error))?);
            }
            _ => return Err(Stop::Text),
        };
        match (self.letter, self.of_pointer) {
            ('p', Some(letter @ ('s' | 'S'))) => {
                let write = |out: &mut dyn Write| match letter {
                    'S' => write_offset(out, number, symbols),
                    _ => write_name(out, number, symbols),
                };
                let mut length = Length(0);
                write(&mut length)?;
                self.pad(out, length.0, write)?;
            }
            ('p', _) => {
                // Without a width, an address has all its digits.
                let (width, has_zeros) = match self.width {
                    0 => (16, !self.is_left),
                    width => (width, self.has_zeros),
                };
                Self { width, has_zeros, length: "l", letter: 'x', ..*self }.write_number(out, number)?;
            }
            ('c', _) => self.pad(out, 1, |out| out.write_char(char::from(number as u8)))?,
            _ => self.write_number(out, number)?,
        }
        Ok(())
    }

    /// Writes a number after its sign or prefix, with zeros between them, or with blanks before or after both, up to
    /// the width.
    fn write_number(&self, out: &mut dyn Write, number: u64) -> fmt::Result {
        let bytes = match self.length {
            "hh" => 1,
            "h" => 2,
            length if length.contains(['l', 'L', 'z', 'q']) => 8,
            _ => 4,
        };
        let unused = 64 - 8 * bytes;
        let signed = (number << unused) as i64 >> unused;
        let unsigned = number << unused >> unused;
        let (prefix, size) = match self.letter {
            'd' | 'i' => (if signed < 0 { "-" } else { self.plus }, signed.unsigned_abs()),
            'x' if self.has_prefix => ("0x", unsigned),
            'X' if self.has_prefix => ("0X", unsigned),
            _ => ("", unsigned),
        };
        let digits = match self.letter {
            'x' | 'X' => size.checked_ilog2().unwrap_or(0) / 4 + 1,
            _ => size.checked_ilog10().unwrap_or(0) + 1,
        };
        let room = self.width.saturating_sub(prefix.len());
        let zeros = if self.has_zeros { room } else { 0 };
        let blanks = room.saturating_sub(zeros.max(digits as usize));
        if !self.is_left {
            write!(out, "{:blanks$}", "")?;
        }
        out.write_str(prefix)?;
        match self.letter {
            'x' => write!(out, "{size:0zeros$x}")?,
            'X' => write!(out, "{size:0zeros$X}")?,
            _ => write!(out, "{size:0zeros$}")?,
        }
        if self.is_left { write!(out, "{:blanks$}", "") } else { Ok(()) }
    }

    /// Writes a text, with blanks before or after it up to the width.
    fn write_bytes(&self, out: &mut dyn Write, bytes: &[u8]) -> fmt::Result {
        self.pad(out, bytes.len(), |out| write_lossy(out, bytes))
    }

    /// Writes what has this length, with blanks before or after it, up to the width.
    fn pad(
        &self,
        out: &mut dyn Write,
        length: usize,
        write: impl FnOnce(&mut dyn Write) -> fmt::Result,
    ) -> fmt::Result {
        let blanks = self.width.saturating_sub(length);
        if !self.is_left {
            write!(out, "{:blanks$}", "")?;
        }
        write(out)?;
        if self.is_left { write!(out, "{:blanks$}", "") } else { Ok(()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
