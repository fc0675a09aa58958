//! What is wrong with a definition, and where.

use core::fmt;

use super::argument::{ARGUMENT_NAME_MAX, MAX_ARGUMENTS};
use super::{MAXACTIVE_MAX, NAME_MAX};

/// A definition that cannot be read: the reason, and the column of the character that is the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub problem: Problem,
    /// How many characters of the line precede the cause.
    pub column: usize,
}

/// What can be wrong with the text of a definition. `Display` writes a sentence without its full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The line begins with none of the letters that a definition begins with.
    NotADefinition,
    /// A bracket is not closed before the end of the line.
    Unclosed,
    /// Something other than `:` follows `p` or `-`, or the digits after `r`.
    NotAName,
    /// A number of instances for a probe that needs none.
    MaxactiveOnProbe,
    /// The number of instances is out of range, or no number.
    Maxactive,
    /// Nothing precedes the `/`.
    NoGroup,
    /// The group is longer than [`NAME_MAX`].
    GroupTooLong,
    /// The group is not an identifier of C.
    Group,
    /// No event follows `:` or `/`.
    NoEvent,
    /// The event is longer than [`NAME_MAX`].
    EventTooLong,
    /// The event is not an identifier of C.
    Event,
    /// No symbol and no address.
    NoPlace,
    /// The symbol begins with a digit, but is no address.
    Address,
    /// What follows `+` is no number.
    Offset,
    /// A return probe with an offset.
    ReturnOffset,
    /// Something follows a place that stands alone.
    AfterPlace,
    /// Something follows the name of an event to remove.
    AfterRemoval,
    /// More than [`MAX_ARGUMENTS`].
    TooManyArguments,
    /// Nothing precedes `=`.
    NoArgumentName,
    /// The name of an argument is longer than [`ARGUMENT_NAME_MAX`].
    ArgumentNameTooLong,
    /// The name of an argument is not an identifier of C.
    ArgumentName,
    /// The name of an argument belongs to a field that every event has.
    ReservedArgumentName,
    /// Two arguments of one name.
    UsedArgumentName,
    /// Nothing follows `=`.
    NoArgument,
    /// No register of that name.
    Register,
    /// No variable of that name.
    Variable,
    /// `$argN` with an N that has no register.
    ArgumentNumber,
    /// `$argN` where the registers no longer hold the arguments.
    ArgumentAfterEntry,
    /// `$retval` before there is one.
    ReturnValueOnProbe,
    /// No type of that name.
    Type,
    /// Neither a register nor a variable.
    Argument,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADefinition => f.write_str("a definition begins with `p`, `r` or `-`"),
            Self::Unclosed => f.write_str("this bracket is not closed"),
            Self::NotAName => f.write_str("a `:` and the event's name, or a space, is expected here"),
            Self::MaxactiveOnProbe => f.write_str("only a return probe (`r`) takes a number of instances"),
            Self::Maxactive => write!(f, "the number of instances is from 1 to {MAXACTIVE_MAX}"),
            Self::NoGroup => f.write_str("the name of the group is missing before the `/`"),
            Self::GroupTooLong => {
                write!(f, "the name of a group has at most {NAME_MAX} characters")
            }
            Self::Group => f.write_str("the name of a group is made of letters, digits and `_`, no digit first"),
            Self::NoEvent => f.write_str("the name of the event is missing"),
            Self::EventTooLong => {
                write!(f, "the name of an event has at most {NAME_MAX} characters")
            }
            Self::Event => f.write_str("the name of an event is made of letters, digits and `_`, no digit first"),
            Self::NoPlace => f.write_str("the symbol or address to probe is missing"),
            Self::Address => f.write_str("an address is a number, as in 0xffffffc000001000"),
            Self::Offset => f.write_str("the offset after `+` is a number of bytes, as in 8 or 0x10"),
            Self::ReturnOffset => f.write_str("a return probe is on a function's entry and takes no offset"),
            Self::AfterPlace => f.write_str("nothing follows the symbol or address here"),
            Self::AfterRemoval => f.write_str("nothing follows the name of an event to remove"),
            Self::TooManyArguments => {
                write!(f, "an event records at most {MAX_ARGUMENTS} arguments")
            }
            Self::NoArgumentName => f.write_str("the name of the argument is missing before the `=`"),
            Self::ArgumentNameTooLong => {
                write!(f, "the name of an argument has at most {ARGUMENT_NAME_MAX} characters")
            }
            Self::ArgumentName => {
                f.write_str("the name of an argument is made of letters, digits and `_`, no digit first")
            }
            Self::ReservedArgumentName => f.write_str("every event has a field of this name already"),
            Self::UsedArgumentName => f.write_str("another argument of this event has this name"),
            Self::NoArgument => f.write_str("what to record is missing after the `=`"),
            Self::Register => f.write_str("a register is %x0 to %x30, %sp, %pc or %pstate"),
            Self::Variable => f.write_str("a variable is $arg1 to $arg8 or $retval"),
            Self::ArgumentNumber => f.write_str("the arguments that registers hold are $arg1 to $arg8"),
            Self::ArgumentAfterEntry => {
                f.write_str("$argN is known at a function's entry only, by a `p` without offset")
            }
            Self::ReturnValueOnProbe => f.write_str("$retval is known to a return probe (`r`) only"),
            Self::Type => f.write_str("a type is u, s or x with 8, 16, 32 or 64, as in x64"),
            Self::Argument => f.write_str("an argument is a register (%x0) or a variable ($arg1, $retval)"),
        }
    }
}

impl core::error::Error for Problem {}
