//! The problems a program can have, each with its place in the text. The user sees the marked line and a sentence.

use core::fmt;

use aarch64_kprobes::event::Event;
use fallible::OutOfMemory;
use kprobes_types::{LineError, TypeId, TypeKind, Types, Unknown};
use kprobes_vm::counted::counted;
use kprobes_vm::ir::Type;
use unicode_width::UnicodeWidthStr;

/// A part of the text of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The byte offset of the first byte.
    pub start: usize,
    /// The byte offset after the last byte.
    pub end: usize,
}

impl Span {
    /// Returns the span from the start of this one to the end of `other`. Returns this one if `other` ends before it,
    /// as the block of a macro may end before the argument that it begins with.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self { start: self.start, end: if other.end > self.start { other.end } else { self.end } }
    }

    /// Returns two lines to display: the line of `source`, the text of the program, that holds this span, and a line
    /// that marks the span below it. The second line has no newline.
    #[must_use]
    pub fn mark(self, source: &str) -> Mark<'_> {
        Mark { span: self, source }
    }

    /// Returns this part of `source`, the text of the program, or an empty string if the span is outside it.
    pub(crate) fn of(self, source: &str) -> &str {
        source.get(self.start..self.end).unwrap_or("")
    }

    /// Returns the error for `problem` at this span.
    #[must_use]
    pub fn error(self, problem: Problem) -> Error {
        Error { problem, span: self }
    }
}

/// A refused program: the problem, and the part of the text that causes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The problem.
    pub problem: Problem,
    /// The part of the text that causes the problem.
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
    /// Returns text that shows the line of `source`, the text of the program, marks the cause below it, and adds the
    /// sentence.
    #[must_use]
    pub fn within<'a>(&self, source: &'a str) -> Marked<'a> {
        Marked { error: *self, source }
    }
}

/// An error shown in the text of its program: three lines, the last without a newline.
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

/// A span of a program, marked in its line.
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

/// White space as wide as a text on a terminal, to put a mark below that text. A character takes 0, 1 or 2 columns.
/// Tabs are kept.
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

/// The noun for the type of a value in error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    /// A number.
    Integer,
    /// The address of a number.
    Pointer,
    /// Text.
    Text,
    /// An address that is shown as the function that contains it.
    Symbol,
    /// A call stack of the kernel.
    Stack,
    /// A probe.
    Probe,
    /// Bytes of memory.
    Bytes,
    /// A time with its format.
    Time,
    /// A tuple.
    Tuple,
    /// A value of the Rust type with this number, which the checker replaces by one of the next nouns.
    Shaped(u8),
    /// A Rust value.
    Rust,
    /// An address of a network card.
    HardwareAddress,
    /// An address of the internet.
    InternetAddress,
    /// The address of an instruction, which is shown as its line of source.
    Line,
}

impl From<Type> for Noun {
    fn from(of: Type) -> Self {
        match of {
            Type::Integer { .. } => Self::Integer,
            Type::Pointer { .. } => Self::Pointer,
            Type::Text { .. } => Self::Text,
            Type::Symbol => Self::Symbol,
            Type::Stack { .. } => Self::Stack,
            Type::Probe => Self::Probe,
            Type::Bytes { .. } => Self::Bytes,
            Type::Time { .. } => Self::Time,
            Type::Tuple { .. } => Self::Tuple,
            Type::Rust { shape, .. } => Self::Shaped(shape),
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
            Self::Probe => "a probe",
            Self::Bytes => "a buffer",
            Self::Time => "a time",
            Self::Tuple => "a tuple",
            Self::Shaped(_) | Self::Rust => "a value of Rust",
            Self::HardwareAddress => "an address of a network card",
            Self::InternetAddress => "an address of the internet",
            Self::Line => "a line of source",
        })
    }
}

/// Names to suggest in an error message. Listed by reference to the tables rather than copied, so that a [`Problem`]
/// stays small: each step of the parser may return one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// These names.
    Names(&'static [&'static str]),
    /// The names of the arguments of the function at this virtual address.
    Arguments(&'static Types<'static>, u64),
    /// The names of the locals of the function at this virtual address.
    Locals(&'static Types<'static>, u64),
    /// The names of the arguments, or of the locals if the last is false, of the copy with this number in the function
    /// at this virtual address.
    OfCopy(&'static Types<'static>, u64, u32, bool),
    /// The names of the fields of this struct.
    Fields(&'static Types<'static>, TypeId),
    /// The names of the variants of this enum.
    Variants(&'static Types<'static>, TypeId),
    /// The names of the fields of this static event.
    Event(Described),
}

/// A static event whose fields are listed.
#[derive(Clone, Copy, Debug)]
pub struct Described(pub &'static Event);

/// Each event has one description.
impl PartialEq for Described {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for Described {}

impl Listed {
    /// Returns the name with this index, from 0.
    fn nth(self, number: usize) -> Option<&'static str> {
        match self {
            Self::Names(names) => names.get(number).copied(),
            Self::Event(Described(event)) => event.fields().get(number).map(|field| field.name),
            Self::Arguments(types, address) => {
                let mut names = types.function(address)?.arguments().map(|argument| argument.name);
                names.by_ref().filter(|name| !name.is_empty()).nth(number)
            }
            Self::Locals(types, function) => {
                let all = types.variables(function)?.filter(|one| !one.is_argument);
                let is_first = |&(at, name): &(usize, &str)| !all.clone().take(at).any(|one| one.name == name);
                all.clone().map(|one| one.name).enumerate().filter(is_first).nth(number).map(|(_, name)| name)
            }
            Self::OfCopy(types, function, copy, is_argument) => {
                let all = types.copies(function)?.nth(copy as usize)?.variables();
                let all = all.filter(|one| one.is_argument == is_argument);
                let is_first = |&(at, name): &(usize, &str)| !all.clone().take(at).any(|one| one.name == name);
                all.clone().map(|one| one.name).enumerate().filter(is_first).nth(number).map(|(_, name)| name)
            }
            Self::Fields(types, of) | Self::Variants(types, of) => match types.get(of)?.kind {
                TypeKind::Struct { mut members, .. } => members.nth(number).map(|member| member.name),
                TypeKind::Enumeration { mut enumerators, .. } => enumerators.nth(number).map(|one| one.name),
                TypeKind::Variants { mut variants, .. } => variants.nth(number).map(|one| one.name),
                _ => None,
            },
        }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The maximum number of names in a sentence.
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

/// Defines an enum of problems from a list of them, each with the sentence that `Display` writes: a text, which can
/// have the fields of the problem in it, or a closure that writes it to a formatter.
macro_rules! problems {
    (
        $(#[$attribute:meta])*
        pub enum $problem:ident;
        $(
            $(#[$comment:meta])*
            $name:ident $({ $($(#[$about:meta])* $field:ident: $type:ty,)* })? =
                $($text:literal)? $(|$f:ident| $written:expr)?;
        )*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $problem {
            $($(#[$comment])* $name $({ $($(#[$about])* $field: $type,)* })?,)*
        }

        impl fmt::Display for $problem {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match *self {
                    $(
                        Self::$name $({ $($field),* })? => {
                            problems!(@write f $({ $($field)* })? $($text)? $(|$f| $written)?)
                        }
                    )*
                })
            }
        }
    };
    (@write $to:ident $text:literal) => { $text };
    (@write $to:ident { $($field:ident)* } $text:literal) => { return write!($to, $text) };
    (@write $to:ident { $($field:ident)* } |$f:ident| $written:expr) => {{
        let $f = $to;
        return $written;
    }};
}

problems! {
    /// A problem of a program. `Display` writes a sentence without its full stop.
    #[non_exhaustive]
    pub enum Problem;

    /// A character that means nothing here.
    Character = "this character is not part of the language";
    /// `/*` without `*/`.
    OpenComment = "this comment is not closed by `*/`";
    /// A string without its last quotation mark.
    OpenText = "this string is not closed by `\"`";
    /// `\` without a known escape.
    Escape = "this escape is unknown; the escapes are \\n, \\t, \\r, \\\", \\\\, and \\x41 or \\101 for ASCII but 0";
    /// A string that is too long.
    LongText {
        /// The maximum, in bytes.
        most: usize,
    } = "a string has at most {most} bytes here";
    /// Digits that form no number, or a number of more than 64 bits.
    Number = "a number is decimal, 0x1f, octal 017, 1e6 or a time as 5ms (ns us ms s m h d), and fits into 64 bits";
    /// `$` without a name.
    VariableName = "a variable has a name, as in $x";
    /// A program that is too long.
    LongProgram {
        /// The maximum, in bytes.
        most: usize,
    } = "a program has at most {most} bytes";
    /// Not enough memory to parse or check the program.
    OutOfMemory = "there is not enough memory to read the program";
    /// An empty program.
    Empty = "a program consists of probes and actions, as in kprobe:f { @ = count(); }";
    /// A probe whose name begins with no kind of probe.
    ProbeKind =
        "a probe is kprobe:, kretprobe:, return:, insn:, inline:, tracepoint:, watchpoint:, profile:, software:, \
         hardware:, interval:, BEGIN or END";
    /// A kind of probe with nothing after it.
    ProbeName = "a function is missing here";
    /// An unclosed bracket in the name of a probe.
    OpenBracket = "this bracket is not closed";
    /// An offset that is not a number of bytes divisible by 4.
    Offset = "an offset is a number of bytes, as in 8 or 0x10, and a multiple of 4";
    /// An offset or a line of more than one function.
    GlobOffset = "a probe with an offset or a line names one function, without `*` or `?`";
    /// Something other than one function or one glob.
    OneGlob = "one name is expected here, possibly with `*` or `?`";
    /// A `watchpoint` without an address, a length and a mode.
    WatchForm =
        "memory is watched by watchpoint:ADDRESS:LENGTH:MODE, as in watchpoint:SYMBOL+8:4:w, with a mode of r, w or rw";
    /// Bytes that no watchpoint can cover.
    WatchRange =
        "a watchpoint covers bytes of one aligned doubleword, or a power of two up to 2147483648, aligned to itself";
    /// An `interval` with an invalid unit or count.
    Interval =
        "an interval is interval:s:N, :ms:N, :us:N or :hz:N, with N from 1, or interval:5ms; hz:N is at most 1000000";
    /// A `profile` with an invalid unit or count.
    Profile =
        "a profile is profile:hz:N, :s:N, :ms:N or :us:N, with N from 1, or profile:5ms; at most 100000 samples a \
         second";
    /// A `software` with an unknown event, or an invalid count.
    SoftwareEvent =
        "a software event is software:cpu-clock:N, a sample of each CPU every N nanoseconds, with N from 10000";
    /// A `hardware:` with an unknown event.
    HardwareEvent =
        "the events of hardware: are cpu-cycles, instructions, cache-references, cache-misses, branch-instructions, \
         branch-misses, bus-cycles, frontend-stalls and backend-stalls";
    /// A `hardware:` with an invalid number of events.
    HardwareCount = "a sample is taken after 10000 to 2147483647 events, as in hardware:cpu-cycles:1000000";
    /// `inline` with neither `entry` nor `return`.
    InlineWhere = "an inlined function is probed by inline:FUNC:entry or inline:FUNC:return";
    /// Something other than `{` after the probes.
    Block = "a block of actions in `{` and `}` is expected here";
    /// A block without its `}`.
    OpenBlock = "this block is not closed by `}`";
    /// A setting that does not exist.
    Setting =
        "this setting is unknown; there are max_map_keys, max_probes, max_strlen, missing_probes, \
         perf_rb_pages, print_maps_on_exit, show_debug_info and stack_mode";
    /// A value that a setting does not have.
    SettingValue {
        /// The values that it has, as part of a sentence.
        wanted: &'static str,
    } = "the value of this setting is {wanted}";
    /// A text that is no address of the internet.
    Address = "an address is written as in pton(\"10.0.2.15\") or pton(\"fe80::1\")";
    /// A value that is no address of the family.
    Family = "an address is a number of 4 bytes or an array of 4 (family 2), or an array of 16 (family 10)";
    /// A value that has no fields with an offset.
    NotAStruct = "a struct is expected here, as in offsetof(args.NAME, field)";
    /// An array without its number of elements.
    ArrayLength = "the number of elements is missing here, as in u8[4]";
    /// A cast between values of different sizes, in bytes.
    CastSize {
        /// The size of the value.
        has: u64,
        /// The size of the type.
        wants: u64,
    } = "this value has {has} bytes, and the type {wants}: cast it to an integer of that size first";
    /// A name that a record has twice.
    FieldTwice = "the parts of a record have different names";
    /// A name that a record does not have.
    NoPart = "the record has no part of this name";
    /// A part of `()`.
    EmptyTuple = "the empty tuple has no parts";
    /// Something other than the mode of a stack.
    StackMode = "a stack is shown as bpftrace, perf or raw, as in kstack(perf, 3)";
    /// `config` after a clause, a macro or the declaration of a map.
    LateConfig = "the settings of a program come first";
    /// A map that is declared twice.
    MapTwice = "this map is declared already";
    /// Something other than the kind and the size of a declared map.
    MapDeclaration = "a map is declared as let @x = hash(100);, or percpuhash(100)";
    /// Something other than the name or a parameter of a macro.
    MacroHead = "a macro is written as macro name($variable, @map, value) { … }";
    /// Two macros with the same name and number of parameters.
    MacroTwice = "there is another macro with this name and as many parameters";
    /// A name that two parameters of a macro have.
    FormalTwice = "the parameters of a macro have different names";
    /// A map in a macro that is no parameter of it.
    MacroMap = "a macro uses only maps that are its parameters, as in macro name(@x) { … }";
    /// An argument for a parameter `$v` that is no variable.
    MacroVariable = "this macro expects a variable here, as in $x";
    /// A macro that calls itself.
    MacroWithin = "a macro cannot call itself";
    /// Too many calls of macros and uses of their arguments.
    Expansions {
        /// The maximum.
        most: usize,
    } = "macros are called, and their arguments used, at most {most} times";
    /// A program that is too long once its macros are written out.
    Expanded {
        /// The maximum number of tokens.
        most: usize,
    } = "with its macros written out, the program has more than {most} words and signs";
    /// Something other than this token.
    Expected {
        /// The expected token.
        sign: &'static str,
    } = "a `{sign}` is expected here";
    /// Something other than a statement.
    Statement = "a statement is expected here";
    /// Something other than a value.
    Value = "a value is expected here";
    /// A predicate without its closing `/`.
    OpenPredicate = "this predicate is not closed by a `/` before the `{`";
    /// Brackets or blocks that are nested too deeply.
    Deep = "this is nested too deeply";
    /// Tuples or records that are nested too deeply.
    DeepTuple {
        /// The maximum depth.
        most: u8,
    } = "tuples and records are nested at most {most} deep";
    /// `++` or an assignment to something that is not a variable or a map.
    NoTarget = "only a $variable and a @map can be given a value";
    /// An expression statement without effect.
    Useless = "this expression has no effect";
    /// The name of a value, a function or a kind of probe is unknown, but similar to a known one.
    Meant {
        /// The known name.
        meant: &'static str,
    } = "this is unknown; did you mean `{meant}`?";
    /// A number with a fraction.
    Fraction = "numbers are integers, in bpftrace, too: there is no floating-point arithmetic";
    /// An address where a function is expected.
    ProbeAddress = "a function is expected here, and no address; print(ksym(ADDRESS)) tells the function of an address";
    /// An unknown word.
    Word = "this word is unknown";
    /// An unknown function.
    Function = "this function is unknown";
    /// A function that is not called.
    Parentheses = "this is a function: its arguments follow in parentheses, as in strlen(comm) or count()";
    /// A name of bpftrace's that this language does not support.
    Foreign {
        /// The name.
        name: &'static str,
        /// Why the name is not supported, or the nearest replacement.
        why: &'static str,
    } = "bpftrace's `{name}` is not supported: {why}";
    /// An `argN` beyond the argument registers.
    ArgumentNumber = "the arguments that registers hold are arg0 to arg7";
    /// An argument at a probe where the registers no longer hold the arguments.
    ArgumentAway = "arguments are available only on the entry of a function: by kprobe: without an offset";
    /// A variable of a function at a probe that is neither at an entry nor at an instruction.
    VariableAway = "args and locals are available at entries and instructions: by kprobe:, insn: and inline:FUNC:entry";
    /// A return value at a probe that is not at a return.
    NoReturnValue = "retval is available only where a function returns: by kretprobe: and return:";
    /// A value that exists only at a hit.
    NoHit = "this is available only where code is probed, not in BEGIN, END and interval:";
    /// An unknown register.
    Register = "a register is x0 to x30, sp, pc or pstate, as in reg(\"x9\")";
    /// `probetype` in a clause whose probes are of several kinds.
    ProbeKinds = "this clause has probes of several kinds: write a clause for each kind";
    /// A clause at hits and elsewhere, in a program that is restricted to the hits in a task.
    MixedTask = "-p is about hits: write a clause of its own for BEGIN, END and interval:";
    /// A `for` loop over something other than numbers or a map.
    LoopRange = "a loop is for ($i : 0..10) { … } or for ($kv : @x) { … }";
    /// `break` or `continue` outside a loop.
    NoLoop = "this is not inside a loop";
    /// A loop over a map in a clause that runs at a hit.
    LoopAtHit = "only BEGIN, END and interval: can loop over a map, not the clause of a hit";
    /// The number of keys of a map that each CPU aggregates on its own.
    CollectedKeys = "the number of these keys is unknown at a hit, because each CPU has its own";
    /// An unknown conversion in the format of a time.
    TimeFormat = "the conversions of a time are those of strftime, as in %H:%M:%S, and %f for microseconds";
    /// The wrong number of arguments.
    ArgumentCount {
        /// The minimum.
        least: usize,
        /// The maximum.
        most: usize,
    } = |f| match least == most {
        true => write!(f, "this function takes {}", counted(least, "argument", "arguments")),
        false => write!(f, "this function takes {least} to {most} arguments"),
    };
    /// A value of the wrong type.
    Type {
        /// The expected type.
        wanted: Noun,
        /// The actual type.
        found: Noun,
    } = |f| match wanted == found {
        true => write!(f, "this is {found} of another type"),
        false => write!(f, "this is {found}, but {wanted} is expected"),
    };
    /// A choice between times with different formats, or a comparison of such times.
    Formats = "the two times have different formats";
    /// Values of two types that cannot be compared, or between which `?:` cannot choose.
    Types {
        /// The type on the left.
        left: Noun,
        /// The type on the right.
        right: Noun,
    } = |f| match (left, right) {
        (Noun::Stack, Noun::Stack) => f.write_str("the two stacks have different modes"),
        (Noun::Tuple, Noun::Tuple) => {
            f.write_str("the two tuples differ in the number, the names or the types of their parts")
        }
        _ if left == right => write!(f, "the right value is {right} of another type than the left one"),
        _ => write!(f, "{left} and {right} cannot be combined"),
    };
    /// A value that can be compared for equality only, with an operator that orders.
    Order =
        "strings known only at a hit, functions, probes, stacks, buffers and tuples can be compared by == and != only";
    /// A read through a value that is no pointer.
    NotAPointer = "only a pointer can be dereferenced, as in *(u32 *)arg0";
    /// An argument that has to be a string literal.
    NotLiteral = "this has to be a string literal";
    /// A number that has to be constant.
    NotConstant = "this has to be a constant";
    /// A `static_assert` whose condition is false.
    Asserted = "the program asserts what does not hold";
    /// A `fail` in code that is not ruled out at compile time.
    Failed = "the program refuses itself here";
    /// A clock that the kernel does not have.
    Clock = "the clocks are boot and monotonic, and both are nsecs";
    /// A constant outside its range.
    Range {
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    } = "this has to be from {least} to {most}";
    /// A variable without a value yet.
    Unset = "this variable is not set yet in this block";
    /// A map that is never given a value.
    UnknownMap = "no statement sets this map";
    /// A map with keys, used as a value without a key.
    NoKey = "this map has keys: a key is missing here";
    /// Something other than a map where a map is required.
    NotAMap = "a map is expected here, as in @x";
    /// A key with the wrong number of parts; 0 parts means that the map has no keys.
    KeyParts {
        /// The number of parts of the map's key.
        wanted: usize,
    } = |f| match wanted {
        0 => f.write_str("this map is used without keys elsewhere"),
        _ => write!(f, "the key of this map has {} elsewhere", counted(wanted, "part", "parts")),
    };
    /// A part of a key whose type differs from other uses of the map.
    KeyType {
        /// The type in the other uses.
        wanted: Noun,
        /// The type here.
        found: Noun,
    } = |f| match wanted == found {
        true => write!(f, "this is {found} of another type than in the key of this map elsewhere"),
        false => write!(f, "this is {found}, but {wanted} in the key of this map elsewhere"),
    };
    /// A map that is used for two kinds of aggregation, or for both an aggregation and assigned values.
    MapKind = "this map is set to another type elsewhere";
    /// An aggregation that has no single number, read as a number.
    NoNumber = "the aggregation of this map is not a single number";
    /// An aggregation outside `@map = …`.
    AggregateAlone = "this can only be assigned to a map, as in @x = count()";
    /// A call without a value, used as a value.
    NotAValue = "this has no value: use it as a statement";
    /// Bounds of a linear histogram that do not ascend, or that have too many rows.
    Bounds {
        /// The maximum number of rows.
        most: u64,
    } = "the bounds must ascend, with at most {most} steps of 1 or more";
    /// Something other than a way to combine the values of an interval of a time series.
    SeriesFunction =
        "the values of an interval are combined by \"avg\", \"max\", \"min\" or \"sum\"; without, the last counts";
    /// A parameter, such as `--count=five`, that does not have the wanted form.
    Parameter {
        /// Its number among the parameters, from 1 on.
        number: usize,
        /// The form.
        wanted: &'static str,
    } = "parameter {number} of the program has to be {wanted}";
    /// A parameter that no `getopt` names.
    UnknownParameter {
        /// Its number among the parameters, from 1 on.
        number: usize,
    } = "parameter {number} of the program has a name that no getopt in it has";
    /// A default of `getopt` that is not written out.
    ParameterDefault = "the default is written out: a number, a string, true or false";
    /// `$0`.
    PositionalParameter = "the parameters of a program are $1 and so on, and $# is their number";
    /// `$1` in a probe.
    ProbeParameter = "a parameter in a probe is possible only in a program in a file, run from the host";
    /// An unknown conversion in a format.
    Conversion = "the conversions are %d %i %u %o %x %X %c %p %s %r %rx %rh and %%, with l, h, a width or flags";
    /// A number of conversions that differs from the number of arguments.
    Conversions {
        /// The number of conversions.
        conversions: usize,
        /// The number of arguments.
        arguments: usize,
    } = |f| {
        let conversions = counted(conversions, "conversion", "conversions");
        let values = counted(arguments, "value follows", "values follow");
        write!(f, "the format has {conversions}, but {values} it")
    };
    /// A conversion that does not fit the type of its value.
    ConversionType {
        /// The type that the conversion takes.
        wanted: Noun,
        /// The type of the value.
        found: Noun,
    } = "this is {found}, but its conversion is for {wanted}";
    /// A `.` without a name after it.
    FieldName = "the name of a field is expected here";
    /// A Rust value in an image without a table of types.
    NoTypes = "this image has no table of types; use arg0 to arg7 and retval";
    /// A Rust value at a function that is not in the table of types.
    NoSignature = "the arguments of this function are unknown; use arg0 to arg7 and retval";
    /// An argument that the function does not have.
    NoArgument {
        /// The arguments that the function has.
        names: Listed,
    } = |f| match names.nth(0) {
        None => f.write_str("the function has no named arguments"),
        Some(_) => write!(f, "the function has no argument of this name; it has {names}"),
    };
    /// A variable of an inlined copy that the table of types does not describe at the instruction.
    InCopy = "the variables of the inlined copy are not known at this instruction: probe another by kprobe:FUNC+OFF";
    /// A variable that is not available in an inlined copy.
    UnknownInCopy {
        /// The virtual address of the instruction in the copy.
        address: u64,
        /// The reason.
        why: Unknown,
    } = "in the inlined copy at {address:#x}, {why}";
    /// A local variable that the function does not have.
    NoLocal {
        /// The locals that the function has.
        names: Listed,
    } = |f| match names.nth(0) {
        None => f.write_str("the function has no local variables of its own"),
        Some(_) => write!(f, "no local variable of this name is in scope here; the function has {names}"),
    };
    /// A name that is no field of the static event.
    NoEventField {
        /// The fields that the event has.
        names: Listed,
    } = "the event has no field of this name, but {names}";
    /// A probe that means no static event.
    NoEvent = "no static event matches this; `list-probes tracepoint:*` shows them";
    /// A probe that means no static event, where one has a similar name.
    NoEventBut {
        /// The group and the name of that one.
        meant: Described,
    } = |f| {
        let (group, name) = (meant.0.group(), meant.0.name());
        write!(f, "no static event matches this; did you mean `tracepoint:{group}:{name}`?")
    };
    /// `tracepoint:` without a group and an event.
    TracepointName = "a static event is probed at tracepoint:GROUP:EVENT";
    /// An argument or a result whose place or type differs between the functions of the probe.
    Differs = "the functions that the probe matches have this with different types, or in too many different places";
    /// A line of source that cannot be probed.
    Line {
        /// The reason.
        why: LineError<'static>,
    } = |f| why.fmt(f);
    /// A line of source without its number.
    LineNumber = "a line is probed by kprobe:FILE.rs:LINE, with LINE from 1, or by kprobe:FUNC:LINE, with LINE from 0";
    /// A value that is not available at the probe.
    Unknown {
        /// The reason.
        why: Unknown,
    } = |f| why.fmt(f);
    /// A part of a value that the compiler optimized out.
    Lost = "this part of the value is optimised out";
    /// A result that is known at `kretprobe:` only: at `return:` the function may continue in another one by a tail
    /// call, and the address of a result in memory is known only from the entry.
    KnownAtReturns =
        "only kretprobe: has this: at return:, the function may tail-call another, and the address of a result in \
         memory is unknown";
    /// A result without bytes. The debugging information does not give such a result a type.
    NothingReturned = "the function returns nothing, or a value that has no bytes";
    /// A field that the value does not have.
    NoField {
        /// The type.
        of: &'static str,
        /// The fields that it has.
        names: Listed,
    } = |f| match names.nth(0) {
        None => write!(f, "this is `{of}`, which has no fields"),
        Some(_) => write!(f, "this is `{of}`, which has no field of this name; it has {names}"),
    };
    /// A field of an enum, whose fields depend on its variant.
    FieldOfEnum {
        /// The type.
        of: &'static str,
    } = "this is `{of}`, whose fields depend on its variant: name it, as in x.Some.0";
    /// A Rust value that is no number, where a number is required.
    NotANumber {
        /// The type.
        of: &'static str,
    } = "this is `{of}`, not a number; print it, or name a field";
    /// A printed value whose layout is unknown, or that is too large.
    NotShown {
        /// The type.
        of: &'static str,
    } = "this is `{of}`, whose layout is unknown, or which is too large";
    /// A variant of a type that is no enum.
    NotAnEnum {
        /// The type.
        of: &'static str,
    } = "this is `{of}`, which has no variants";
    /// A variant that the enum does not have.
    NoVariant {
        /// The type.
        of: &'static str,
        /// The variants that the enum has.
        names: Listed,
    } = "`{of}` has no variant of this name; it has {names}";
    /// A path that is not compared with a value.
    Path = "a path names a variant to compare with, as in args.state == State::Idle";
    /// A damaged table of types.
    DamagedTypes = "the table of types of this image is damaged";
    /// No function has this name.
    NoSymbol = "no function has this name";
    /// No function or static has this name.
    NoAddress = "no function or static has this name";
    /// No function matches the glob.
    NoMatch = "no function matches this";
    /// No function matches, but a similar name exists.
    NoMatchBut {
        /// The similar name.
        meant: &'static str,
    } = "no function matches this; did you mean `{meant}`?";
    /// An offset past the end of the function.
    NoInstruction = "this is past the end of the function";
    /// Functions that no instruction leaves, so that they never return.
    NoExit = "no function that matches this returns";
    /// An `inline:` probe on a function that has no inlined copies.
    NoInlined = "no function that matches this is inlined anywhere";
    /// An `inline:` probe on a function in whose copies no instruction marks the entry or the return.
    UntoldInlined = "no instruction marks where any of these copies is entered or left";
    /// An `inline:` probe whose table of copies needs more memory than is free.
    InlinedMemory {
        /// The size of the table, in bytes.
        bytes: usize,
    } = "the table of inlined copies takes {bytes} bytes, and less memory is free";
    /// An `inline:` probe in an image whose table of copies is damaged.
    InlinedDamaged = "the table of inlined copies of this image is damaged";
    /// A clause of too many operations or statements.
    LongCode {
        /// The maximum.
        most: usize,
    } = "the clause exceeds {most} operations or statements here";
    /// A clause of too many expressions. An expression counts each time that it is compiled.
    LongExpressions {
        /// The maximum.
        most: usize,
    } = "the clause takes more than {most} steps to check: repeat less by unroll, and nest typeof and sizeof less";
    /// More values at a time than there is room for, in the frame, in a tuple or in a key.
    Room {
        /// The maximum, in words of 64 bits.
        most: usize,
    } = "the values exceed {most} words of 64 bits here";
    /// A number that is no exit status.
    ExitStatus =
        "an exit status is 0 or from 10 to 125, as in exit(11) for exit(1): cargo xtask trace has 1 to 9 itself, and \
         shells the higher ones";
    /// Too many maps, outputs or clauses.
    Many {
        /// The maximum.
        most: usize,
    } = "there can be at most {most} of these";
}

impl core::error::Error for Problem {}

impl Problem {
    /// Replaces each noun in the problem by the one that `replace` returns for it.
    pub(crate) fn with_nouns(self, replace: impl Fn(Noun) -> Noun) -> Self {
        match self {
            Self::Type { wanted, found } => Self::Type { wanted: replace(wanted), found: replace(found) },
            Self::Types { left, right } => Self::Types { left: replace(left), right: replace(right) },
            Self::KeyType { wanted, found } => Self::KeyType { wanted: replace(wanted), found: replace(found) },
            Self::ConversionType { wanted, found } => {
                Self::ConversionType { wanted: replace(wanted), found: replace(found) }
            }
            other => other,
        }
    }
}
