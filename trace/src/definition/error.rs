//! The problems of a definition, with their texts and their positions.

use alloc::string::String;
use core::fmt;

use fallible::OutOfMemory;

use crate::errno::Errno;
use crate::problems::problems;

/// A refused definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The problem.
    pub problem: Problem,
    /// The number of characters of the line before the cause.
    pub column: usize,
    /// The number of characters before the cause in [`logged`](super::logged), the line as Linux's `error_log` shows
    /// it.
    pub position: usize,
    /// Details that the text of the problem does not say, if there are any.
    pub reason: Option<String>,
}

problems! {
    /// A problem of a definition. `Display` writes the text of Linux's `error_log`.
    #[non_exhaustive]
    pub enum Problem;

    /// The line begins with none of `p`, `r` and `-`, or has no place. Linux logs nothing for it.
    NotADefinition = "Invalid argument";
    /// Neither a group nor an event follows `-:`. Linux logs nothing for it.
    NothingToRemove = "Event name is not specified";
    /// The probe to remove does not exist. Linux logs nothing for it.
    NoSuchEvent = "No such file or directory";
    /// The probe to remove is enabled. Linux logs nothing for it.
    Busy = "Device or resource busy";
    /// There is no memory. Linux logs nothing for it.
    OutOfMemory = "Cannot allocate memory";
    /// A number of instances for a probe that takes none.
    MaxactiveOnProbe = "Maxactive is only for function exit";
    /// The number of instances is 0 or not a number.
    Maxactive = "Invalid maxactive number";
    /// The number of instances is above [`MAXACTIVE_MAX`](super::MAXACTIVE_MAX).
    MaxactiveTooBig = "Maxactive is too big";
    /// A kind of event that only Linux has. Linux logs nothing for it; here the log has the reason.
    UnsupportedKind = "Only kprobe (p, r), fprobe (f), tracepoint (t) and event (e) probes are supported";
    /// An fprobe at a place that is neither the entry nor the return of a named function.
    FunctionOnly = "Invalid probed address or symbol";
    /// A character that the name of a static event cannot have.
    TracepointName = "Invalid character in tracepoint name";
    /// No static event has the name.
    NoTracepoint = "Tracepoint is not found";
    /// The group or the name of the event that an event probe is on is missing.
    NoEventInfo = "This requires both group and event name to attach";
    /// The event that an event probe is on does not exist, or is itself on another event.
    AttachedEvent = "Attached event does not exist";
    /// Nothing follows the `if` of an event probe.
    NoFilter = "No filter rule after 'if'";
    /// The filter of an event probe is wrong. The reason is the text of the filter's problem.
    Filter = "The filter cannot be used";
    /// The place is neither a symbol nor an address.
    Place = "Invalid probed address or symbol";
    /// No function has the name, the function is shorter than the offset, or the source line does not exist.
    NoFunction = "Invalid probed address or symbol";
    /// No function and no static has the name after `@`.
    NoSymbol = "Invalid probed address or symbol";
    /// Several functions have the name.
    Ambiguous = "The symbol is not unique";
    /// A return probe with an offset.
    ReturnOffset = "Retprobe address must be an function entry";
    /// The text after `%` is not `return`.
    PlaceSuffix = "Invalid probed address suffix";
    /// Nothing precedes the `/`.
    NoGroup = "Group name is not specified";
    /// The group is longer than [`NAME_MAX`](super::NAME_MAX).
    GroupTooLong = "Group name is too long";
    /// The group is not an identifier of C, but for hyphens.
    Group = "Group name must follow the same rules as C identifiers";
    /// No event follows the `:`.
    NoEvent = "Event name is not specified";
    /// The event is longer than [`NAME_MAX`](super::NAME_MAX).
    EventTooLong = "Event name is too long";
    /// The event is not an identifier of C.
    Event = "Event name must follow the same rules as C identifiers";
    /// The group or the event has the name of a file in their directories.
    ReservedName = "This name is the name of a file";
    /// `$retval` of a probe that is not at a return.
    ReturnValueOnProbe = "$retval is not available on probe";
    /// `$stackN` with an N beyond the largest stack.
    StackNumber = "Invalid stack number";
    /// `$argN` with an N that is 0 or beyond the largest stack.
    ArgumentNumber = "Invalid argument number";
    /// A register in an event that is not a probe on an instruction. Linux logs [`Argument`](Self::Argument) after it.
    NoRegisters = "Invalid $-variable specified";
    /// No variable or field has the name, or it is not available here.
    Variable = "Invalid $-variable specified";
    /// An argument by name at a place that is neither the entry nor the return of a function.
    NoTypes = "BTF is not available or not supported";
    /// `$arg*` of a function without known arguments.
    NoArguments = "BTF is not available or not supported";
    /// No argument of the function has the name, or its location is unknown.
    NoArgumentOfName = "This variable is not found at this probe point";
    /// The arguments of the function are not known.
    NoSignature = "No BTF entry for this probe point";
    /// `$arg*` as a part of an argument.
    ArgumentsAlone = "$arg* must be an independent parameter without name etc.";
    /// `$arg*` or `$argN` at a place that is neither the entry nor the return of a function.
    ArgumentsInside = "$arg* can be used only on function entry or exit";
    /// `$arg*` twice.
    ArgumentsTwice = "$arg* can be used only once in the parameters";
    /// `$retval` of a function that returns nothing.
    NothingReturned = "This function returns 'void' type";
    /// A field of a value that has no fields.
    NoStruct = "This is not a pointer to union/structure.";
    /// A value that is not a number, a pointer or a text.
    NoOneValue = "Non pointer structure/union argument is not supported.";
    /// A `-` in a name without a `>` after it.
    Hyphen = "Failed to parse single hyphen. Forgot '>'?";
    /// No field has the name.
    NoField = "This field is not found.";
    /// The table of types contradicts itself, or a type refers to itself without end.
    TypeInfo = "Failed to get BTF type info.";
    /// The type `string` for a value that is not a text.
    NoText = "This type does not fit for string.";
    /// No register has the name.
    Register = "Invalid register name";
    /// The text after `@` is not a number.
    Address = "Invalid memory address";
    /// The text after `\` is not a number.
    Immediate = "Invalid immediate value";
    /// A `\"` without a closing `"`.
    UnclosedText = "String is not closed with '\"'";
    /// `@+`, which Linux has for offsets in files.
    FileOffset = "File offset is not available with kprobe";
    /// More nested reads of memory than Linux has room for.
    TooDeep = "Dereference is too much nested";
    /// No `(` after an offset.
    NoParenthesis = "Dereference needs a brace";
    /// An offset that is not a number.
    Offset = "Invalid dereference offset";
    /// No closing `)`.
    Unclosed = "Dereference brace is not closed";
    /// A read of memory at `$comm` or at a text, where an address is needed.
    TaskNameRead = "$comm can not be dereferenced";
    /// The argument has none of the known forms.
    Argument = "Invalid fetch argument";
    /// No closing `]`.
    UnclosedArray = "Array is not closed";
    /// Text after the `]`.
    ArraySuffix = "Array has wrong suffix";
    /// The size of an array is 0 or not a number.
    ArraySize = "Invalid array size";
    /// The size of an array is above [`ARRAY_MAX`](super::ARRAY_MAX).
    ArrayTooBig = "Array number is too big";
    /// No type has the name.
    Type = "Unknown type is specified";
    /// A text or an array of a value that is not in memory.
    Text = "String accepts only memory argument";
    /// `symstr` of a constant.
    SymbolText = "Symbol String doesn't accept data/userdata";
    /// `$comm` or a text with a type other than `string`.
    TextType = "$comm and immediate-string only accepts string type";
    /// A bitfield that is malformed, or does not fit into its base.
    Bits = "Invalid bitfield";
    /// The name of an argument is longer than [`ARGUMENT_NAME_MAX`](super::ARGUMENT_NAME_MAX).
    ArgumentNameTooLong = "Argument name is too long";
    /// Nothing precedes `=`.
    NoArgumentName = "Argument name is not specified";
    /// The name of an argument is not an identifier of C.
    ArgumentName = "Argument name must follow the same rules as C identifiers";
    /// Two arguments with one name, or an argument with the name of a field that every event has.
    UsedArgumentName = "This argument name is already used";
    /// An argument is longer than [`ARGUMENT_MAX`](super::ARGUMENT_MAX).
    ArgumentTooLong = "Argument expression is too long";
    /// Nothing follows `=`.
    NoArgument = "No argument expression";
    /// The engine refuses the probe.
    Refused = "Failed to register probe event";
    /// An event of this name exists, and can have no further probe, or events are on it.
    Exists = "Given group/event name is already used by another event";
    /// An event of this name exists, with the other kind of probe.
    OtherKind = "Probe type is different from existing probe";
    /// An event of this name exists, with other arguments.
    OtherArguments = "Argument type or name is different from existing probe";
    /// The event already has exactly this probe.
    Same = "There is already the exact same probe event";
    /// More than [`ARGUMENTS_MAX`](super::ARGUMENTS_MAX) arguments.
    TooManyArguments = "Too many arguments are specified";
    /// The arguments have more than [`BYTES_MAX`](super::BYTES_MAX) bytes, or the record would be larger than the rings
    /// accept.
    TooBig = "Event too big (too many fields?)";
}

impl Problem {
    /// Returns the error number of the write that fails with this problem.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoSuchEvent
            | Self::NoSymbol
            | Self::NoArgumentOfName
            | Self::NoSignature
            | Self::NothingReturned
            | Self::NoTracepoint
            | Self::NoField => Errno::NotFound,
            Self::TooManyArguments | Self::ArgumentTooLong | Self::TooBig => Errno::TooLong,
            Self::AttachedEvent => Errno::NoDevice,
            Self::NoArguments => Errno::NotSupported,
            Self::Busy => Errno::Busy,
            Self::OutOfMemory => Errno::NoMemory,
            Self::Exists | Self::OtherKind | Self::OtherArguments | Self::Same => Errno::Exists,
            _ => Errno::Invalid,
        }
    }

    /// Whether `error_log` shows the problem. As in Linux, for some problems the error of the write is the only report.
    #[must_use]
    pub const fn is_logged(self) -> bool {
        !matches!(
            self,
            Self::NotADefinition | Self::NothingToRemove | Self::NoSuchEvent | Self::Busy | Self::OutOfMemory
        )
    }

    /// Returns the problem that Linux logs after this one, at the same position.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self {
            Self::NoRegisters => Some(Self::Argument),
            _ => None,
        }
    }

    /// Returns how to correct the definition, if the text does not say it.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::NotADefinition => "a definition is `p:NAME PLACE`, `r:NAME PLACE` or `-:NAME`, as `help p` explains",
            Self::UnsupportedKind => {
                "`u` is for programs of a user; `s` is taken by the files `synthetic_events` and `dynamic_events`"
            }
            Self::FunctionOnly => {
                "`f` is for the entry of a named function, or with %return its return; `p` is for any place"
            }
            Self::NoTracepoint | Self::TracepointName => "`list-probes tracepoint:*` shows the static events",
            Self::NoEventInfo => "an event is GROUP.EVENT",
            Self::AttachedEvent => {
                "the file `dynamic_events` has the defined events, `list-probes tracepoint:*` shows the static ones"
            }
            Self::NoFilter => "a filter tests fields of the event that the probe is on, as in `if count > 5`",
            Self::MaxactiveOnProbe => "a return probe is `r`, or `f` with %return",
            Self::Maxactive | Self::MaxactiveTooBig => "it is from 1 to 4096",
            Self::Place => {
                "a symbol as `symbols` lists it, with an offset as in +8 or +0x10; or an address as in 0xffffffc000001000"
            }
            Self::Group => "letters, digits, `_` and `-`, no digit first",
            Self::Event | Self::ArgumentName => "letters, digits and `_`, no digit first",
            Self::GroupTooLong | Self::EventTooLong => "63 characters at most",
            Self::Variable => "$argN (at a function's entry or return), $retval (return), $stack, $stackN, $comm",
            Self::NoRegisters => "only `p` and `r` have registers",
            Self::Register => "a register is %x0 to %x30, %lr, %sp, %pc or %pstate",
            Self::Argument => "one of %REG, @ADDRESS, $VARIABLE, NAME, +OFFSET(…), \\NUMBER",
            Self::NoTypes => "arguments can be named only in probes on the entry or the return of a named function",
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

/// The text of Linux, followed by the reason or by advice.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.problem.text();
        match self.reason.as_deref().or(self.problem.advice()) {
            // A text that ends with `?` is followed by a sentence of its own.
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
