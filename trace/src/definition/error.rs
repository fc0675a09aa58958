//! What is wrong with a definition, and where.

use alloc::string::String;
use core::fmt;

use fallible::OutOfMemory;

use crate::errno::Errno;

/// A definition that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub problem: Problem,
    /// How many characters of the line precede the cause.
    pub column: usize,
    /// The same in [`logged`](super::logged), the line as Linux's `error_log` shows it.
    pub position: usize,
    /// What is known besides.
    pub reason: Option<String>,
}

macro_rules! problems {
    ($($(#[$comment:meta])* $name:ident = $text:literal;)*) => {
        /// What can be wrong with a definition. `Display` writes the text of Linux's `error_log`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Problem {
            $($(#[$comment])* $name,)*
        }

        impl Problem {
            /// The text of Linux's `error_log`.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

problems! {
    /// The line is none of `p`, `r` and `-`, or has no place. Linux logs nothing then.
    NotADefinition = "Invalid argument";
    /// What is to be removed is not there. Linux logs nothing.
    NoSuchEvent = "No such file or directory";
    /// What is to be removed is enabled. Linux logs nothing.
    Busy = "Device or resource busy";
    /// There is no memory. Linux logs nothing.
    OutOfMemory = "Cannot allocate memory";
    /// A number of instances for a probe that needs none.
    MaxactiveOnProbe = "Maxactive is not for kprobe";
    /// The number of instances is 0, or no number.
    Maxactive = "Invalid maxactive number";
    /// The number of instances is above [`MAXACTIVE_MAX`](super::MAXACTIVE_MAX).
    MaxactiveTooBig = "Maxactive is too big";
    /// An event of another kind that Linux has. Linux logs nothing for it; here the log has the reason.
    UnsupportedKind = "Only kprobe (p) and kretprobe (r) events are supported";
    /// No symbol and no address.
    Place = "Invalid probed address or symbol";
    /// No function has the name, or none is so long.
    NoFunction = "Invalid probed address or symbol";
    /// Several functions have the name.
    Ambiguous = "The symbol is not unique";
    /// A return probe with an offset.
    ReturnOffset = "Retprobe address must be an function entry";
    /// What follows `%` behind the symbol is not `return`.
    PlaceSuffix = "Invalid probed address suffix";
    /// Nothing precedes the `/`.
    NoGroup = "Group name is not specified";
    /// The group is longer than [`NAME_MAX`](super::NAME_MAX).
    GroupTooLong = "Group name is too long";
    /// The group is not an identifier of C.
    Group = "Group name must follow the same rules as C identifiers";
    /// No event follows the `:`.
    NoEvent = "Event name is not specified";
    /// The event is longer than [`NAME_MAX`](super::NAME_MAX).
    EventTooLong = "Event name is too long";
    /// The event is not an identifier of C.
    Event = "Event name must follow the same rules as C identifiers";
    /// The group or the event has the name of a file of theirs.
    ReservedName = "This name is the name of a file";
    /// `$retval` before there is one.
    ReturnValueOnProbe = "$retval is not available on probe";
    /// `$stackN` further away than a stack is long.
    StackNumber = "Invalid stack number";
    /// `$argN` with an N that no function has.
    ArgumentNumber = "Invalid argument number";
    /// No variable of that name, or not here.
    Variable = "Invalid $-valiable specified";
    /// An argument by its name where no function is called or has returned, or `$arg*` of a function whose arguments are not known.
    NoTypes = "BTF is not available or not supported";
    /// No argument of the function has the name, or where it is cannot be known.
    NoArgumentOfName = "This variable is not found at this probe point";
    /// The arguments of the function are not known.
    NoSignature = "No BTF entry for this probe point";
    /// `$arg*` as a part of an argument.
    ArgumentsAlone = "$arg* must be an independent parameter without name etc.";
    /// `$arg*`, or `$argN`, where no function is called or has returned.
    ArgumentsInside = "$arg* can be used only on function entry or exit";
    /// `$arg*` twice.
    ArgumentsTwice = "$arg* can be used only once in the parameters";
    /// `$retval` of a function that returns nothing.
    NothingReturned = "This function returns 'void' type";
    /// A field of what has none.
    NoStruct = "This is not a pointer to union/structure.";
    /// A value that is no number, no pointer and no text.
    NoOneValue = "Non pointer structure/union argument is not supported.";
    /// A `-` in a name that no `>` follows.
    Hyphen = "Failed to parse single hyphen. Forgot '>'?";
    /// No field of that name.
    NoField = "This field is not found.";
    /// The table of types contradicts itself, or a type leads on without end.
    TypeInfo = "Failed to get BTF type info.";
    /// A text that is asked for of what is none.
    NoText = "This type does not fit for string.";
    /// No register of that name.
    Register = "Invalid register name";
    /// `@` and a number that is none.
    Address = "Invalid memory address";
    /// `\` and a number that is none.
    Immediate = "Invalid immediate value";
    /// `\"` and no `"` at the end.
    UnclosedText = "String is not closed with '\"'";
    /// `@+`, which is for files.
    FileOffset = "File offset is not available with kprobe";
    /// More reads of memory, one in the other, than Linux has room for.
    TooDeep = "Dereference is too much nested";
    /// No `(` behind an offset.
    NoParenthesis = "Dereference needs a brace";
    /// An offset that is no number.
    Offset = "Invalid dereference offset";
    /// No `)`.
    Unclosed = "Dereference brace is not closed";
    /// `$comm`, or a text, where an address is needed.
    TaskNameRead = "$comm can not be dereferenced";
    /// None of the forms of an argument.
    Argument = "Invalid fetch argument";
    /// No `]`.
    UnclosedArray = "Array is not closed";
    /// Something behind the `]`.
    ArraySuffix = "Array has wrong suffix";
    /// The size of an array is 0, or no number.
    ArraySize = "Invalid array size";
    /// The size of an array is above [`ARRAY_MAX`](super::ARRAY_MAX).
    ArrayTooBig = "Array number is too big";
    /// No type of that name.
    Type = "Unknown type is specified";
    /// A text or an array of what is not in memory.
    Text = "String accepts only memory argument";
    /// `symstr` of a constant.
    SymbolText = "Symbol String doesn't accept data/userdata";
    /// `$comm`, or a text, with another type than `string`.
    TextType = "$comm and immediate-string only accepts string type";
    /// A bitfield that is malformed, or wider than its base.
    Bits = "Invalid bitfield";
    /// The name of an argument is longer than [`ARGUMENT_NAME_MAX`](super::ARGUMENT_NAME_MAX).
    ArgumentNameTooLong = "Argument name is too long";
    /// Nothing precedes `=`.
    NoArgumentName = "Argument name is not specified";
    /// The name of an argument is not an identifier of C.
    ArgumentName = "Argument name must follow the same rules as C identifiers";
    /// Two arguments of one name, or one with the name of a field that every event has.
    UsedArgumentName = "This argument name is already used";
    /// An argument is longer than [`ARGUMENT_MAX`](super::ARGUMENT_MAX).
    ArgumentTooLong = "Argument expression is too long";
    /// Nothing follows `=`.
    NoArgument = "No argument expression";
    /// The engine refuses the probe.
    Refused = "Failed to register probe event";
    /// There is an event of this name, of the other kind.
    OtherKind = "Probe type is different from existing probe";
    /// There is an event of this name, with other arguments.
    OtherArguments = "Argument type or name is different from existing probe";
    /// There is this event, with this probe.
    Same = "There is already the exact same probe event";
    /// More than [`ARGUMENTS_MAX`](super::ARGUMENTS_MAX).
    TooManyArguments = "Too many arguments are specified";
    /// The record would be larger than the rings take.
    TooBig = "Event too big (too many fields?)";
}

impl Problem {
    /// The error of the write that it fails.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoSuchEvent
            | Self::NoFunction
            | Self::NoArgumentOfName
            | Self::NoSignature
            | Self::NothingReturned
            | Self::NoField => Errno::NotFound,
            Self::Busy => Errno::Busy,
            Self::OutOfMemory => Errno::NoMemory,
            Self::OtherKind | Self::OtherArguments | Self::Same => Errno::Exists,
            _ => Errno::Invalid,
        }
    }

    /// Whether `error_log` has it: of the others there is only the error of the write, as in Linux.
    #[must_use]
    pub const fn is_logged(self) -> bool {
        !matches!(self, Self::NotADefinition | Self::NoSuchEvent | Self::Busy | Self::OutOfMemory)
    }

    /// What would be right instead, where the text does not say it.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::NotADefinition => {
                "a definition begins with `p:NAME`, `r:NAME` or `-:NAME`, and what is probed follows"
            }
            Self::UnsupportedKind => {
                "p:NAME FUNCTION is hit when the function is called, r:NAME FUNCTION when it returns"
            }
            Self::MaxactiveOnProbe => "only a return probe (`r`) takes a number of instances",
            Self::Maxactive | Self::MaxactiveTooBig => "the number of instances is from 1 to 4096",
            Self::Place => {
                "a symbol as `symbols` lists it, with an offset as in +8 or +0x10; or an address as in 0xffffffc000001000"
            }
            Self::Group | Self::Event | Self::ArgumentName => "letters, digits and `_`, no digit first",
            Self::GroupTooLong | Self::EventTooLong => "63 characters at most",
            Self::Variable => "$argN (at a function's entry or return), $retval (return), $stack, $stackN, $comm",
            Self::Register => "a register is %x0 to %x30, %sp, %pc or %pstate",
            Self::Argument => "one of %REG, @ADDRESS, $VARIABLE, NAME, +OFFSET(…), \\NUMBER",
            Self::NoTypes => "arguments have names at the entry and the return of a function that is given by its name",
            Self::Hyphen => "a field is NAME->FIELD or NAME.FIELD",
            Self::Type => {
                "u, s or x with 8, 16, 32 or 64, as in x64; char, symbol, symstr, string, b<width>@<offset>/<size>; [N] for an array"
            }
            Self::Text => "an array, or a string, is in memory, as in +0(%x0):string",
            Self::ArgumentTooLong => "63 bytes at most",
            Self::ArgumentNameTooLong => "32 bytes at most",
            Self::ArrayTooBig => "64 values at most",
            Self::TooManyArguments => "128 arguments at most",
            _ => return None,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The text of Linux, and what is known besides.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.problem.text();
        match self.reason.as_deref().or(self.problem.advice()) {
            // Some of the texts end as sentences do.
            Some(reason) if text.ends_with('?') => write!(f, "{text} {reason}"),
            Some(reason) => write!(f, "{}: {reason}", text.trim_end_matches('.')),
            None => f.write_str(text),
        }
    }
}

impl core::error::Error for Error {}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self { problem: Problem::OutOfMemory, column: 0, position: 0, reason: None }
    }
}
