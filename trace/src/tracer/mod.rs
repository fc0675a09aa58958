//! The tracers `function` and `function_graph`, which record functions without a definition of an event (Linux:
//! Documentation/trace/ftrace.rst).
//!
//! A tracer has probes on many functions at once. All of them share one recorder for each kind of record: the address
//! of the function is the operand of its stub.
//!
//! | module | what it owns |
//! |---|---|
//! | [`profile`] | how often functions were called, and how long they took |
//! | [`usage`] | how deep stacks were |
//!
//! **Nesting.** A call and its return are each recorded with the return address and the stack pointer. The reader
//! matches a return with its call by both: a call is within the calls of its task whose stack pointers are higher. A
//! hit therefore keeps no depth. If only the return of a call was recorded, the call begins as early as the other
//! records allow, so calls before it may be indented.

// The private modules:
//
// | module | what it owns |
// |---|---|
// | `calls` | the calls that each task is in, found from the records alone |
// | `inheritance` | children that inherit the restriction of their parents; for the bare-metal target only |
// | `graph` | the text of `function_graph` |
// | `probes` | the probes, on many functions at once; for the bare-metal target only |

mod calls;
pub(crate) mod graph;
mod inheritance;
mod probes;
pub mod profile;
pub mod usage;

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::{Arc, OutOfMemory};

use crate::fetch::{Fetch, RecordedPart, Register, Source};
use crate::format::{Base, Format, Shape, Type, Width};
use crate::recorder::{FUNCTION_EVENT, GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT, Recorder};
use crate::ring::Rings;
use crate::trigger::Plan;
use crate::trigger::inherited_tasks::InheritedTasks;
use crate::trigger::restriction::Restriction;

pub use inheritance::{InheritanceError, InheritanceProbes};
pub use probes::{Graph, Refused, Traced};

/// A tracer: the records that are made besides those of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// The calls and returns of functions.
    FunctionGraph,
    /// The calls of functions.
    Function,
    /// Nothing.
    Nop,
}

impl Tracer {
    /// All tracers with their names, in the order of `available_tracers`.
    pub const ALL: [(Self, &str); 3] =
        [(Self::FunctionGraph, "function_graph"), (Self::Function, "function"), (Self::Nop, "nop")];

    /// Returns the tracer of this name, which may have white space around it.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, other)| *other == name.trim_ascii()).map(|(tracer, _)| *tracer)
    }

    /// Returns the name of the tracer.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(tracer, _)| *tracer == self).map_or("", |(_, name)| name)
    }
}

/// A kind of record of a tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A call, in the tracer `function`: the function, and the return address.
    Function,
    /// A call, in the tracer `function_graph`: the function, the return address, the stack pointer.
    Entry,
    /// A return: the function, the return address, the stack pointer.
    Return,
}

/// The offset of the return address in a record of a call, in bytes.
pub const PARENT: usize = 16;
/// The offset of the stack pointer in a record of the graph, in bytes.
pub const STACK: usize = 24;
/// The offset of the function's result in a record of a return that has the result, in bytes.
pub(crate) const RESULT: usize = 32;

/// What the tracers record.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// The tasks and the CPUs whose calls are recorded.
    pub restriction: &'a Restriction,
    /// The tasks of the restriction, if children inherit it; made by [`InheritedTasks::of`].
    pub inherited: Option<&'a Arc<InheritedTasks>>,
    /// Whether a record of the stack follows each record of a call in the tracer `function`.
    pub stacks: bool,
    /// Whether a record of a return has the function's result, x0.
    pub results: bool,
}

impl Recording<'_> {
    /// All calls and returns, without stacks and results.
    pub const ALL: Recording<'static> =
        Recording { restriction: &Restriction::NONE, inherited: None, stacks: false, results: false };
}

impl RecordKind {
    /// Returns the recorder of such records in `rings`, for all functions.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn recorder(self, rings: &'static Rings, recording: &Recording<'_>) -> Result<Arc<Recorder>, OutOfMemory> {
        const WORD: Type = Type::one(Base::Hexadecimal(Width::W64));
        const PARENT: (&str, Register) = ("parent_ip", Register::LINK);
        const STACK: (&str, Register) = ("sp", Register::SP);
        const RESULT: (&str, Register) = ("retval", Register::RESULT);
        let (event, shape, fields): (_, _, &[_]) = match self {
            Self::Function => (FUNCTION_EVENT, Shape::Probe, &[PARENT]),
            Self::Entry => (GRAPH_ENTRY_EVENT, Shape::Probe, &[PARENT, STACK]),
            Self::Return if recording.results => (GRAPH_RETURN_EVENT, Shape::Return, &[STACK, RESULT]),
            Self::Return => (GRAPH_RETURN_EVENT, Shape::Return, &[STACK]),
        };
        let format = Format::new(shape, fields.iter().map(|(name, _)| (*name, WORD)))?;
        let fetch =
            |&(_, register)| Fetch { source: Source::Register(register), reads: Vec::new(), part: RecordedPart::Whole };
        let fetches = fallible::collect(fields.iter().map(fetch))?;
        let recorder = Arc::try_new(Recorder::new(event, &format, &fetches, Box::default(), None, rings)?)?;
        // At a return, x30 is not the caller's address any more, and the graph shows callers in any case.
        let recording = Recording { stacks: recording.stacks && self == Self::Function, ..*recording };
        let plan = Plan::of_tracer(&recording)?;
        recorder.plan.set_first(plan);
        Ok(recorder)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
