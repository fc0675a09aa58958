//! What is wrong with a program, and where: the user sees the place and a sentence.

use core::fmt;

use fallible::OutOfMemory;
use kprobes_types::{Kind, LineError, TypeId, Types, Unknown};
use kprobes_vm::code::Type;
use unicode_width::UnicodeWidthStr;

/// A part of the text of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// How many bytes precede it.
    pub start: usize,
    /// How many bytes precede what follows it.
    pub end: usize,
}

impl Span {
    /// From the start of this one to the end of `other`.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }

    /// The line of `source`, the text of the program, that this is in, and below it a mark: two lines, the last without its end.
    #[must_use]
    pub fn mark(self, source: &str) -> Mark<'_> {
        Mark { span: self, source }
    }

    /// This part of `source`, the text of the program.
    pub(crate) fn of(self, source: &str) -> &str {
        source.get(self.start..self.end).unwrap_or("")
    }

    /// The error that `problem` is here.
    #[must_use]
    pub fn error(self, problem: Problem) -> Error {
        Error { problem, span: self }
    }
}

/// A program that is refused: why, and the part of its text that is the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub problem: Problem,
    /// Where.
    pub span: Span,
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Span::default().error(Problem::OutOfMemory)
    }
}

impl From<OutOfMemory> for Problem {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl Error {
    /// Text that shows the line of `source`, the text of the program, with the cause marked below it, and the sentence.
    #[must_use]
    pub fn within<'a>(&self, source: &'a str) -> Marked<'a> {
        Marked { error: *self, source }
    }
}

/// An error within the text of its program: three lines, the last without its end.
#[derive(Clone, Copy, Debug)]
pub struct Marked<'a> {
    error: Error,
    source: &'a str,
}

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.error.span.mark(self.source), self.error.problem)
    }
}

/// A part of a program, marked in its line.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    span: Span,
    source: &'a str,
}

impl fmt::Display for Mark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { start, end } = self.span;
        let before = self.source.get(..start).unwrap_or(self.source);
        let (_, indent) = before.rsplit_once('\n').unwrap_or(("", before));
        let line = self.source.get(before.len() - indent.len()..).and_then(|rest| rest.lines().next()).unwrap_or("");
        let cause = self.source.get(start..end).and_then(|cause| cause.lines().next()).unwrap_or("");
        writeln!(f, "{line}")?;
        write!(f, "{}{:^<2$}", Indent(indent), "", cause.width().max(1))
    }
}

/// What is as wide below a text as the text is: a character may have no columns of a terminal, or two. A tab is one, too.
#[derive(Clone, Copy, Debug)]
pub struct Indent<'a>(pub &'a str);

impl fmt::Display for Indent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.split('\t');
        let first = parts.next().unwrap_or("");
        write!(f, "{:1$}", "", first.width())?;
        parts.try_for_each(|part| write!(f, "\t{:1$}", "", part.width()))
    }
}

/// What a value is, for a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    /// A number.
    Integer,
    /// The address of one.
    Pointer,
    /// Text.
    Text,
    /// An address that is shown as the function that it is in.
    Symbol,
    /// Where the kernel was called from.
    Stack,
    /// A probe.
    Site,
    /// Bytes of memory.
    Bytes,
    /// A time, shown by a format.
    Time,
    /// Values in a row.
    Tuple,
    /// A value of Rust.
    Known,
    /// What a map collects.
    Aggregate,
    /// No value.
    Nothing,
}

impl From<Type> for Noun {
    fn from(of: Type) -> Self {
        match of {
            Type::Integer { .. } => Self::Integer,
            Type::Pointer { .. } => Self::Pointer,
            Type::Text { .. } => Self::Text,
            Type::Symbol => Self::Symbol,
            Type::Stack => Self::Stack,
            Type::Site => Self::Site,
            Type::Bytes { .. } => Self::Bytes,
            Type::Time { .. } => Self::Time,
            Type::Tuple { .. } => Self::Tuple,
            Type::Known { .. } => Self::Known,
        }
    }
}

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer => "an integer",
            Self::Pointer => "a pointer",
            Self::Text => "a string",
            Self::Symbol => "a function",
            Self::Stack => "a stack",
            Self::Site => "a probe",
            Self::Bytes => "a buffer",
            Self::Time => "a time",
            Self::Tuple => "a tuple",
            Self::Known => "a value of Rust",
            Self::Aggregate => "an aggregation",
            Self::Nothing => "no value",
        })
    }
}

/// Names that there are, for a sentence. A problem is small, as each step of the reader returns one or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// These.
    Names(&'static [&'static str]),
    /// Those of the arguments of the function at this virtual address.
    Arguments(&'static Types<'static>, u64),
    /// Those of the fields of a struct.
    Fields(&'static Types<'static>, TypeId),
    /// Those of the variants of an enum.
    Variants(&'static Types<'static>, TypeId),
}

impl Listed {
    /// A name, by its number from 0 on.
    fn nth(self, number: usize) -> Option<&'static str> {
        match self {
            Self::Names(names) => names.get(number).copied(),
            Self::Arguments(types, address) => {
                let mut names = types.function(address)?.arguments().map(|argument| argument.name);
                names.by_ref().filter(|name| !name.is_empty()).nth(number)
            }
            Self::Fields(types, of) | Self::Variants(types, of) => match types.get(of)?.kind {
                Kind::Struct { mut members, .. } => members.nth(number).map(|member| member.name),
                Kind::Enumeration { mut enumerators, .. } => enumerators.nth(number).map(|one| one.name),
                Kind::Variants { mut variants, .. } => variants.nth(number).map(|one| one.name),
                _ => None,
            },
        }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// How many names a sentence lists.
        const MOST: usize = 8;
        let mut before = "";
        for number in 0..MOST {
            let Some(name) = self.nth(number) else { return Ok(()) };
            write!(f, "{before}`{name}`")?;
            before = if number + 2 < MOST && self.nth(number + 2).is_some() { ", " } else { " and " };
        }
        if self.nth(MOST).is_some() { f.write_str(" …") } else { Ok(()) }
    }
}

/// What can be wrong with a program. `Display` writes a sentence without its full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A character that means nothing here.
    Character,
    /// `/*` without `*/`.
    OpenComment,
    /// A string without its last quotation mark.
    OpenText,
    /// `\` and something that is no escape.
    Escape,
    /// A string that is too long.
    LongText {
        /// The most bytes.
        most: usize,
    },
    /// Digits that are no number, or one of more than 64 bits.
    Number,
    /// `$` without a name.
    VariableName,
    /// The text is longer than a program can be.
    LongProgram {
        /// The most bytes.
        most: usize,
    },
    /// There is no memory to read or to check the program.
    OutOfMemory,
    /// There is no program.
    Empty,
    /// The name of a probe begins with no kind of probe.
    ProbeKind,
    /// Nothing follows the kind of a probe.
    ProbeName,
    /// A bracket in the name of a probe that is not closed.
    OpenBracket,
    /// An offset that is no number.
    Offset,
    /// An offset, or copies, of more functions than one.
    GlobOffset,
    /// Something other than a function, or a glob of them.
    OneGlob,
    /// Something other than what `interval` takes.
    Interval,
    /// `inline` with neither `entry` nor `return`.
    InlineWhere,
    /// Something other than a `{` behind the probes.
    Block,
    /// A block that is not closed.
    OpenBlock,
    /// Something other than this sign.
    Expected {
        /// The sign.
        sign: &'static str,
    },
    /// Something other than a statement.
    Statement,
    /// Something other than a value.
    Value,
    /// A predicate that is not ended by `/`.
    OpenPredicate,
    /// Brackets or blocks within each other, more than can be.
    Deep,
    /// `++` or an assignment to something that cannot change.
    NoTarget,
    /// A value that is nothing done.
    Useless,
    /// A word that is not known.
    Word,
    /// A function that is not known.
    Function,
    /// A name that bpftrace has.
    Foreign {
        /// The name.
        name: &'static str,
        /// Why it is not here, or what comes nearest.
        why: &'static str,
    },
    /// An argument in a register that there is none for.
    ArgumentNumber,
    /// Arguments where registers no longer hold them.
    ArgumentAway,
    /// A return value where there is none.
    NoReturnValue,
    /// A value that only a hit has.
    NoHit,
    /// A register that is not known.
    Register,
    /// The kind of a probe where there are several.
    ProbeKinds,
    /// Something other than what a loop goes through.
    LoopRange,
    /// `break` or `continue` outside a loop.
    NoLoop,
    /// A loop through a map at a hit.
    LoopAtHit,
    /// How many keys a map has that each CPU collects in for itself.
    CollectedKeys,
    /// A format of a time with a conversion that is not known.
    TimeFormat,
    /// More or fewer arguments than a function takes.
    ArgumentCount {
        /// The fewest.
        least: usize,
        /// The most.
        most: usize,
    },
    /// A value of another type than is wanted.
    Type {
        /// What is wanted.
        wanted: Noun,
        /// What is there.
        found: Noun,
    },
    /// A choice between times whose formats differ.
    Formats,
    /// Values of two types that cannot be compared, or chosen from.
    Types {
        /// The one.
        left: Noun,
        /// The other.
        right: Noun,
    },
    /// A string where only equality is asked for.
    Order,
    /// A read through something that is no pointer.
    NotAPointer,
    /// A string that is not written out.
    NotLiteral,
    /// A number that is not known before the program runs.
    NotConstant,
    /// A number that is out of its range.
    Range {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A variable without a value yet.
    Unset,
    /// A map that is never given a value.
    UnknownMap,
    /// A whole map as a value.
    NoKey,
    /// Something other than a map where only a map will do.
    NotAMap,
    /// A key of a map that has none, a whole map that has keys, or more or fewer parts of one.
    KeyParts {
        /// As many as the map has.
        wanted: usize,
    },
    /// A part of a key of another type than elsewhere.
    KeyType {
        /// As elsewhere.
        wanted: Noun,
        /// Here.
        found: Noun,
    },
    /// A map that collects in two ways, or is both assigned and collected into.
    MapKind,
    /// A map that is shown as no number is.
    NoNumber,
    /// An aggregation anywhere but in `@map = …`.
    AggregateAlone,
    /// What only stands alone, as a value.
    NotAValue,
    /// Bounds of a linear histogram that do not ascend, or more than so many rows.
    Bounds {
        /// The most rows.
        most: u64,
    },
    /// A conversion in a format that is not known.
    Conversion,
    /// As many conversions as arguments.
    Conversions {
        /// The conversions.
        conversions: usize,
        /// The arguments.
        arguments: usize,
    },
    /// A conversion of another type of value.
    ConversionType {
        /// What it is for.
        wanted: Noun,
        /// What is there.
        found: Noun,
    },
    /// A `.` without a name behind it.
    FieldName,
    /// A value of Rust, in an image that has no table of types.
    NoTypes,
    /// A value of Rust, at functions of which at least this one is not in the table of types.
    NoSignature,
    /// An argument that a function has not.
    NoArgument {
        /// Those that it has.
        names: Listed,
    },
    /// An argument or a result that several functions have, at different places or of different types.
    Differs,
    /// A line of source that is not to be had.
    Line {
        /// Why.
        why: LineError<'static>,
    },
    /// A line of source without its number.
    LineNumber,
    /// A value that is not known where the probe is.
    Unknown {
        /// Why.
        why: Unknown,
    },
    /// A part of a value that the compiler has left out.
    Lost,
    /// What a function returns, where it may go on in another, or has written it to memory, at an address told at its entry.
    KnownAtReturns,
    /// A result of no bytes: of it the debugging information does not say which type it has.
    NothingReturned,
    /// A field that a value has not.
    NoField {
        /// The type.
        of: &'static str,
        /// The fields that it has.
        names: Listed,
    },
    /// A field of an enum, which depends on the variant.
    FieldOfEnum {
        /// The type.
        of: &'static str,
    },
    /// A number is wanted of a value that is none.
    NotANumber {
        /// The type.
        of: &'static str,
    },
    /// A value that is printed, of a type that cannot be.
    NotShown {
        /// The type.
        of: &'static str,
    },
    /// A variant of something that is no enum.
    NotAnEnum {
        /// The type.
        of: &'static str,
    },
    /// A variant that an enum has not.
    NoVariant {
        /// The type.
        of: &'static str,
        /// Those that it has.
        names: Listed,
    },
    /// A path that is compared with nothing.
    Path,
    /// The table of types is damaged.
    DamagedTypes,
    /// No function of that name.
    NoSymbol,
    /// No function and no static has this name.
    NoAddress,
    /// No function that a glob matches.
    NoMatch,
    /// No function that a name means, which may be meant for another one.
    NoMatchBut {
        /// The other one.
        meant: &'static str,
    },
    /// An offset that is no instruction of its function.
    NoInstruction,
    /// Functions that are never left.
    NoExit,
    /// A probe on copies of a function, of which there are none.
    NoInlined,
    /// A probe on copies of a function, of which no instruction tells when control passes.
    UntoldInlined,
    /// A probe on copies of a function, whose table takes more memory than is free.
    InlinedMemory {
        /// How much it takes.
        bytes: usize,
    },
    /// A probe on copies of a function, in an image whose table of them is damaged.
    InlinedDamaged,
    /// More instructions than a program can have.
    LongCode {
        /// The most.
        most: usize,
    },
    /// More values at a time than there is room for.
    Room {
        /// The room, in words of 64 bits.
        most: usize,
    },
    /// More maps, outputs or clauses than there can be.
    Many {
        /// The most.
        most: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Character => "this character means nothing here",
            Self::OpenComment => "this comment is not closed by `*/`",
            Self::OpenText => "this string is not closed by `\"`",
            Self::Escape => "the escapes are \\n, \\t, \\r, \\\" and \\\\",
            Self::LongText { most } => return write!(f, "a string has at most {most} bytes here"),
            Self::Number => "a number is decimal, 0x1f, 1e6 or a time as 5ms (ns us ms s m h d), and fits into 64 bits",
            Self::VariableName => "a variable has a name, as in $x",
            Self::LongProgram { most } => return write!(f, "a program has at most {most} bytes"),
            Self::OutOfMemory => "there is no memory left to read the program",
            Self::Empty => "a program is probes and what is done there, as in kprobe:f { @ = count(); }",
            Self::ProbeKind => "a probe is kprobe:, kretprobe:, return:, insn:, inline:, interval:, BEGIN or END",
            Self::ProbeName => "a function is missing here",
            Self::OpenBracket => "this bracket is not closed",
            Self::Offset => "an offset is a number of bytes, as in 8 or 0x10, and a multiple of 4",
            Self::GlobOffset => "this names instructions of one function, and cannot have a `*` or `?` in it",
            Self::OneGlob => "one function is expected, or several by one name with `*` or `?`",
            Self::Interval => "an interval is interval:s:N, :ms:N, :us:N or :hz:N, with N from 1, or interval:5ms; hz:N is at most 1000000",
            Self::InlineWhere => "what is inlined is probed at inline:FUNC:entry or inline:FUNC:return",
            Self::Block => "a `{` and what is done here are expected",
            Self::OpenBlock => "this block is not closed by `}`",
            Self::Expected { sign } => return write!(f, "a `{sign}` is expected here"),
            Self::Statement => "a statement is expected here",
            Self::Value => "a value is expected here",
            Self::OpenPredicate => "this predicate is not closed by a `/` before the `{`",
            Self::Deep => "this is nested too deeply",
            Self::NoTarget => "only a $variable and a @map can be given a value",
            Self::Useless => "this does nothing with its value",
            Self::Word => "this word is not known",
            Self::Function => "this function is not known",
            Self::Foreign { name, why } => return write!(f, "bpftrace's `{name}` is not supported: {why}"),
            Self::ArgumentNumber => "the arguments that registers hold are arg0 to arg7",
            Self::ArgumentAway => "arguments are known on the entry of a function only, by kprobe: without an offset",
            Self::NoReturnValue => "retval is known where a function returns only, by kretprobe: and return:",
            Self::NoHit => "this is known where code is probed only, not in BEGIN, END and interval:",
            Self::ProbeKinds => "this clause has probes of several kinds, which clauses of their own can tell apart",
            Self::LoopRange => "a loop is for ($i : 0..10) { … } or for ($kv : @x) { … }",
            Self::NoLoop => "this is in no loop",
            Self::LoopAtHit => "a map is gone through in BEGIN, END and interval: only, and at no hit",
            Self::CollectedKeys => "each CPU collects for keys of its own, so their number is not known at a hit",
            Self::TimeFormat => "the conversions of a time are those of strftime, as in %H:%M:%S, and %f for microseconds",
            Self::Register => "a register is x0 to x30, sp, pc or pstate, as in reg(\"x9\")",
            Self::ArgumentCount { least, most } if least == most => {
                return write!(f, "this function takes {least} argument{}", if least == 1 { "" } else { "s" });
            }
            Self::ArgumentCount { least, most } => {
                return write!(f, "this function takes {least} to {most} arguments");
            }
            Self::Type { wanted, found } => return write!(f, "this is {found}, and {wanted} is wanted"),
            Self::Types { left, right } => return write!(f, "{left} and {right} do not go together"),
            Self::Formats => "the two times have different formats",
            Self::Order => "strings, functions, probes, stacks, buffers and tuples can be compared by == and != only",
            Self::NotAPointer => "only a pointer can be read, as in *(u32 *)arg0",
            Self::NotLiteral => "this has to be written out as a string",
            Self::NotConstant => "this has to be known before the program runs",
            Self::Range { least, most } => return write!(f, "this is from {least} to {most}"),
            Self::Unset => "this variable has no value yet in this block",
            Self::UnknownMap => "this map is never given a value",
            Self::NoKey => "this map has keys, and one is missing here",
            Self::NotAMap => "a map is expected here, as in @x",
            Self::KeyParts { wanted: 0 } => "this map has no keys elsewhere",
            Self::KeyParts { wanted: 1 } => "the key of this map has 1 part elsewhere",
            Self::KeyParts { wanted } => return write!(f, "the key of this map has {wanted} parts elsewhere"),
            Self::KeyType { wanted, found } => {
                return write!(f, "this is {found}, and {wanted} in the key of this map elsewhere");
            }
            Self::MapKind => "this map is given values of another kind elsewhere",
            Self::NoNumber => "what this map collects is no single number",
            Self::AggregateAlone => "this is for a map alone, as in @x = count()",
            Self::NotAValue => "this is done for itself, and has no value",
            Self::Bounds { most } => {
                return write!(f, "the bounds ascend, and are at most {most} steps, of 1 or more, apart");
            }
            Self::Conversion => "the conversions are %d %i %u %o %x %X %c %p %s %r %rx %rh and %%, with l, h, a width or flags",
            Self::Conversions { conversions, arguments } => {
                return write!(f, "the format has {conversions} conversions, and {arguments} values follow it");
            }
            Self::ConversionType { wanted, found } => {
                return write!(f, "this is {found}, and its conversion is for {wanted}");
            }
            Self::FieldName => "the name of a field is expected here",
            Self::NoTypes => "this image has no table of types; see arg0 to arg7 and retval",
            Self::NoSignature => "of this function the arguments are not known; see arg0 to arg7 and retval",
            Self::NoArgument { names } if names.nth(0).is_none() => "the function has no arguments that have names",
            Self::NoArgument { names } => {
                return write!(f, "the function has no argument of this name, but {}", names);
            }
            Self::Differs => "the functions that the probe means have this in different places, or of different types",
            Self::Unknown { why } => return why.fmt(f),
            Self::Lost => "this part of the value is optimised out",
            Self::KnownAtReturns => "this is known by kretprobe: only: where return: stands, the function may go on in another, and a result in memory has no address",
            Self::NothingReturned => "the function returns nothing, or a value that has no bytes",
            Self::NoField { of, names } if names.nth(0).is_none() => return write!(f, "this is `{of}`, which has no fields"),
            Self::NoField { of, names } => {
                return write!(f, "this is `{of}`, which has no field of this name, but {}", names);
            }
            Self::FieldOfEnum { of } => {
                return write!(f, "this is `{of}`, whose fields depend on the variant that it is");
            }
            Self::NotANumber { of } => return write!(f, "this is `{of}`, and not a number; print shows it, or name a field"),
            Self::NotShown { of } => return write!(f, "this is `{of}`, whose layout is not known, or which is too large"),
            Self::NotAnEnum { of } => return write!(f, "this is `{of}`, which has no variants"),
            Self::NoVariant { of, names } => {
                return write!(f, "`{of}` has no variant of this name, but {}", names);
            }
            Self::Path => "a path is that of a variant that a value is compared with, as in args.state == State::Idle",
            Self::DamagedTypes => "the table of types of this image is damaged",
            Self::NoSymbol => "there is no function of this name",
            Self::NoAddress => "there is no function or static of this name",
            Self::NoMatch => "no function matches this",
            Self::NoMatchBut { meant } => return write!(f, "no function matches this; did you mean `{meant}`?"),
            Self::NoInstruction => "this is past the end of the function",
            Self::NoExit => "no instruction leaves what this matches: it never returns",
            Self::NoInlined => "no function that matches this is inlined anywhere",
            Self::UntoldInlined => "no instruction tells when control passes here, in any of the copies",
            Self::InlinedMemory { bytes } => {
                return write!(f, "the table of inlined copies takes {bytes} bytes, which are not free");
            }
            Self::Line { why } => return why.fmt(f),
            Self::LineNumber => "this is kprobe:FILE.rs:LINE, with a line from 1 on",
            Self::InlinedDamaged => "the table of inlined copies of this image is damaged",
            Self::LongCode { most } => return write!(f, "the program becomes longer than {most} instructions here"),
            Self::Room { most } => return write!(f, "the values need more than {most} words here"),
            Self::Many { most } => return write!(f, "there are at most {most} of these"),
        })
    }
}

impl core::error::Error for Problem {}
