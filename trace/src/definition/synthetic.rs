//! Synthetic events: records that a trigger writes when its event's hit finds another event's hit under the same key.
//! Their definitions have the grammar of Linux's `synthetic_events` (Documentation/trace/histogram.rst, section 2.2.1).
//!
//! ```text
//! NAME TYPE FIELD[;] TYPE FIELD …                   defines an event; `s:[synthetic/]NAME …` in `dynamic_events`
//! !NAME …                                           removes it
//!
//! TYPE    u8…u64, s8…s64, [unsigned] char, int and long, bool, pid_t, gfp_t
//! FIELD   a name; after `char` with [N], up to 256, for a text of a fixed size, or with [] for one of any;
//!         after `unsigned long` with [] for a stack; the brackets may follow the type instead
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::name::is_identifier as is_name;
use super::number;
use crate::errno::Errno;
use crate::format::{Base, TEXT_SIZE, Width};
use crate::problems::problems;

/// The group of all synthetic events.
pub const GROUP: &str = "synthetic";
/// The largest number of fields of an event (`SYNTH_FIELDS_MAX`).
const FIELDS_MAX: usize = 64;

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Define an event.
    Define(Synthetic),
    /// Remove the event of this name.
    Remove(String),
}

/// The definition of a synthetic event.
#[derive(Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// The name, unique among synthetic events.
    pub name: String,
    /// The fields of its records.
    pub fields: Vec<Field>,
}

/// A field of a synthetic event.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, as `format` shows it.
    pub name: String,
    /// The name of the type, as `format` shows it.
    pub kind: String,
    /// The type, as records store it.
    pub base: Base,
    /// The size in bytes, as `format` shows it.
    pub size: usize,
    /// Whether `format` shows the field as signed.
    pub signed: bool,
}

/// A refused line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The problem.
    pub problem: Problem,
    /// The number of bytes of the line before the cause.
    pub column: usize,
}

problems! {
    /// A problem of a line. `Display` writes the text of Linux's `error_log`.
    pub enum Problem;

    /// A name is not an identifier of C.
    Name = "Illegal name";
    /// The line is not a definition.
    Command = "Command must be of the form: <name> field[;field] ...";
    /// The group is not [`GROUP`].
    Group = "Command must be of the form: s or -:[synthetic/]<name> field[;field] ...";
    /// An event of this name exists.
    Exists = "Event already exists";
    /// There are more than 64 fields, or more than a record has room for.
    TooManyFields = "Too many fields";
    /// A type ends after `unsigned`.
    IncompleteType = "Incomplete type";
    /// No type has the name.
    Type = "Invalid type";
    /// A field has no name.
    Field = "Invalid field";
    /// The text in brackets is not a size.
    Array = "Invalid array specification";
    /// There is no memory. Linux logs nothing for it.
    OutOfMemory = "Cannot allocate memory";
}

impl Problem {
    /// Returns the error number of the write.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::Exists => Errno::Exists,
            Self::OutOfMemory => Errno::NoMemory,
            _ => Errno::Invalid,
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self { problem: Problem::OutOfMemory, column: 0 }
    }
}

/// Parses a line of `synthetic_events` that does not begin with white space. Returns `Ok(None)` if the line is empty. A
/// definition of an event for which `exists` is true is refused before its fields are looked at.
///
/// # Errors
///
/// Returns the problem and the position of its cause. As in Linux, that is the first place in the line where the text
/// of the cause occurs.
pub fn parse(line: &str, exists: &dyn Fn(&str) -> bool) -> Result<Option<Command>, Error> {
    if line.is_empty() {
        return Ok(None);
    }
    let name = line.split([' ', '\t']).next().unwrap_or(line);
    if let Some(name) = name.strip_prefix('!') {
        return Ok(Some(Command::Remove(fallible::copy(name)?)));
    }
    define(line, line, exists).map(Some)
}

/// Parses a definition in `dynamic_events`, which begins with `s:`. A definition of an event for which `exists` is true
/// is refused before its fields are looked at.
///
/// # Errors
///
/// Returns the same errors as [`parse`].
pub fn parse_dynamic(line: &str, exists: &dyn Fn(&str) -> bool) -> Result<Command, Error> {
    let error = |problem| Error { problem, column: 0 };
    let rest = line.strip_prefix("s:").ok_or_else(|| error(Problem::Command))?;
    let (name, fields) = rest.split_once([' ', '\t']).ok_or_else(|| error(Problem::Command))?;
    match name.split_once('/') {
        Some((GROUP, _)) => define(line, &rest[GROUP.len() + 1..], exists),
        None if !fields.contains('/') => define(line, rest, exists),
        _ => Err(error(Problem::Group)),
    }
}

/// Parses a definition that is the end of `line`.
fn define(line: &str, definition: &str, exists: &dyn Fn(&str) -> bool) -> Result<Command, Error> {
    let command = Error { problem: Problem::Command, column: 0 };
    let first = definition.split(';').next().unwrap_or("");
    if first.split_ascii_whitespace().nth(2).is_none() {
        return Err(command);
    }
    let (name, fields) = definition.split_once([' ', '\t']).filter(|(name, _)| !name.is_empty()).ok_or(command)?;
    if !is_name(name) {
        return Err(error(line, Problem::Name, name));
    }
    if exists(name) {
        return Err(error(line, Problem::Exists, name));
    }
    let mut parsed = Vec::new();
    for part in fields.split(';') {
        let mut words = part.split_ascii_whitespace();
        while let Some(first) = words.next() {
            let field = parse_field(line, first, &mut words)?;
            if parsed.len() == FIELDS_MAX {
                return Err(Error { problem: Problem::TooManyFields, column: 0 });
            }
            fallible::push(&mut parsed, field)?;
        }
    }
    Ok(Command::Define(Synthetic { name: fallible::copy(name)?, fields: parsed }))
}

/// Makes the error of `problem` with its cause where `text` first occurs in the line.
fn error(line: &str, problem: Problem, text: &str) -> Error {
    Error { problem, column: line.find(text).unwrap_or(0) }
}

fn parse_field<'a>(line: &str, first: &'a str, words: &mut impl Iterator<Item = &'a str>) -> Result<Field, Error> {
    let (prefix, kind) = match first {
        "unsigned" => ("unsigned ", words.next().ok_or_else(|| error(line, Problem::IncompleteType, first))?),
        _ => ("", first),
    };
    let missing = if prefix.is_empty() { Problem::Field } else { Problem::IncompleteType };
    let field = words.next().ok_or_else(|| error(line, missing, first))?;
    let (name, array) = field.split_at(field.find('[').unwrap_or(field.len()));
    if !is_name(name) {
        return Err(error(line, Problem::Name, field));
    }
    let whole = fallible::format(format_args!("{prefix}{kind}{array}"))?;
    let name = fallible::copy(name)?;
    let signed = !whole.starts_with('u') && whole != "gfp_t";
    if let Some(at) = whole.find("char[") {
        let size = text_size(&whole[at + "char[".len()..]);
        let (problem, place) = if array.is_empty() { (Problem::Type, kind) } else { (Problem::Array, field) };
        return match size.ok_or_else(|| error(line, problem, place))? {
            0 => {
                let kind = fallible::format(format_args!("__data_loc {whole}"))?;
                Ok(Field { name, kind, base: Base::String, size: 8, signed: true })
            }
            size => Ok(Field { name, kind: whole, base: Base::Characters, size, signed }),
        };
    }
    if whole.contains("long[") {
        let kind = fallible::format(format_args!("__data_loc {whole}"))?;
        return Ok(Field { name, kind, base: Base::Stack, size: 8, signed: true });
    }
    let base = integer(&whole).ok_or_else(|| error(line, Problem::Type, kind))?;
    Ok(Field { name, kind: whole, base, size: base.size(), signed })
}

/// Parses the size of a text from what follows its bracket; 0 for any size. `None` if it is malformed or too large.
fn text_size(rest: &str) -> Option<usize> {
    let size = rest.strip_suffix(']').filter(|size| size.len() <= 3 && !size.contains(']'))?;
    if size.is_empty() {
        return Some(0);
    }
    number::unsigned(size).map(|size| size as usize).filter(|size| *size <= TEXT_SIZE)
}

fn integer(kind: &str) -> Option<Base> {
    use Width::{W8, W16, W32, W64};
    Some(match kind {
        "s64" | "long" => Base::Signed(W64),
        "u64" | "unsigned long" => Base::Unsigned(W64),
        "s32" | "int" | "pid_t" => Base::Signed(W32),
        "u32" | "unsigned int" => Base::Unsigned(W32),
        "gfp_t" => Base::Hexadecimal(W32),
        "s16" => Base::Signed(W16),
        "u16" => Base::Unsigned(W16),
        "s8" | "char" | "bool" => Base::Signed(W8),
        "u8" | "unsigned char" => Base::Unsigned(W8),
        _ => return None,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use kprobes_random::tried::tried;

    #[test]
    fn what_linux_refuses_is_refused_there() {
        for (marked, problem) in tried([
            ("myevent ^chr arg", Problem::Type),
            ("myevent ^unsigned arg", Problem::IncompleteType),
            ("myevent char ^str]; int v", Problem::Name),
            ("^mye-vent char str[]", Problem::Name),
            ("myevent char ^st-r[]", Problem::Name),
            ("myevent char str;^[]", Problem::Field),
            ("myevent char str; ^int", Problem::Field),
            ("myevent char ^str[; int v", Problem::Array),
            ("myevent char ^str[kdjdk]", Problem::Array),
            ("myevent char ^str[257]", Problem::Array),
            ("myevent ^u64 var[3]", Problem::Type),
            ("^mye;vent char str[]", Problem::Command),
            ("^myevent ; char str[]", Problem::Command),
            ("^myevent; char str[]", Problem::Command),
            ("^myevent ;char str[]", Problem::Command),
            ("^; char str[]", Problem::Command),
            ("^;myevent char str[]", Problem::Command),
            ("^myevent", Problem::Command),
        ]) {
            let column = marked.find('^').unwrap();
            assert_eq!(parse(&marked.replace('^', ""), &|_| false), Err(Error { problem, column }), "{marked}");
        }
        let exists = |name: &str| name == "there";
        let error = Error { problem: Problem::Exists, column: 0 };
        assert_eq!(parse("there nosuch x", &exists), Err(error));
        assert_eq!(parse_dynamic("s:there nosuch x", &exists), Err(Error { column: 2, ..error }));
        assert!(parse("!there", &exists).is_ok());
        let refused = |line| parse_dynamic(line, &|_| false).unwrap_err();
        assert_eq!(refused("s:junk/myevent char str["), Error { problem: Problem::Group, column: 0 });
        assert_eq!(refused("s:synthetic/myevent char str["), Error { problem: Problem::Array, column: 25 });
        assert_eq!(refused("s:synthetic/ char str int v"), Error { problem: Problem::Command, column: 0 });
    }

    #[test]
    fn a_stack_is_an_array_of_longs_of_any_size() {
        for (typed, kind) in tried([
            ("s unsigned long[] stack", "__data_loc unsigned long[]"),
            ("s unsigned long stack[]", "__data_loc unsigned long[]"),
            ("s long stack[9]", "__data_loc long[9]"),
        ]) {
            let Ok(Some(Command::Define(Synthetic { fields, .. }))) = parse(typed, &|_| false) else {
                panic!("{typed}")
            };
            let (name, kind, base) = ("stack".into(), kind.into(), Base::Stack);
            assert_eq!(fields, [Field { name, kind, base, size: 8, signed: true }], "{typed}");
        }
    }

    #[test]
    fn definitions_are_read_in_both_forms() {
        let define = |line: &str| match parse(line, &|_| false) {
            Ok(Some(Command::Define(definition))) => definition,
            other => panic!("{line}: {other:?}"),
        };
        let new = define("lat u64 lat; pid_t pid; char comm[16]; char any[]; unsigned long l");
        assert_eq!(new, define("lat  u64 lat pid_t pid char comm[16] char any[] unsigned long l"));
        assert_eq!(new, define("lat\tu64 lat ;pid_t pid;char comm[16] ; char any[]; unsigned long l;"));
        let fields: Vec<(&str, &str, usize, bool)> =
            new.fields.iter().map(|field| (&*field.name, &*field.kind, field.size, field.signed)).collect();
        assert_eq!(
            fields,
            [
                ("lat", "u64", 8, false),
                ("pid", "pid_t", 4, true),
                ("comm", "char[16]", 16, true),
                ("any", "__data_loc char[]", 8, true),
                ("l", "unsigned long", 8, false)
            ]
        );
        assert_eq!(parse("!lat u64 lat", &|_| false).unwrap(), Some(Command::Remove("lat".into())));
        assert!(matches!(parse_dynamic("s:lat u64 lat", &|_| false).unwrap(), Command::Define(..)));
        assert!(matches!(parse_dynamic("s:synthetic/lat u64 lat", &|_| false).unwrap(), Command::Define(..)));
    }
}
