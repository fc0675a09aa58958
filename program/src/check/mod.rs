//! Lowers the tree to code, and checks types and bounds on the way.
//!
//! The types of maps are inferred first, because a program may read a map before the text that assigns it: the program
//! is compiled repeatedly, without a result, until a pass learns nothing new about its maps and variables.

mod action;
mod address;
mod arguments;
mod array;
mod call;
mod capture;
mod clause;
mod compile_time;
mod condition;
mod event;
mod expression;
mod format;
mod frame;
mod map;
mod place;
mod rust_place;
mod shapes;
mod statement;
mod swap;
mod text;
mod value;
mod variable;
mod variable_group;
mod variant;

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Range;

use aarch64_kprobes::event::Event;
use fallible::{OutOfMemory, TryClone};
use kprobes_types::Types;
use kprobes_vm::ir::{Code, ITEMS_MAX, Routine, Type};
use kprobes_vm::maps::KEYS_MAX;

use crate::checked::{Action, Block, Checked, RustValue};
use crate::config::Config;
use crate::error::{Error, Noun, Problem, Span};
use crate::syntax::{Probe, Program, Spanned};
use clause::Clause;
use map::PartialMap;
use shapes::Shapes;

/// The functions of the image.
pub trait Symbols {
    /// Returns the virtual address of the static whose demangled path is `path`, otherwise of the function. Its path
    /// may have a number after it, as [`numbered`](kprobes_symbols::names::numbered) reads it. If several match,
    /// returns the lowest address.
    fn address(&self, path: &str) -> Option<u64>;

    /// Returns the virtual address ranges of all functions that a probe on `path` means, none twice. A function that
    /// exists only as inlined copies has a placeholder range in the list.
    ///
    /// # Errors
    ///
    /// The functions cannot be determined, or there is no memory for the list.
    fn functions(&self, path: &str) -> Result<Vec<Range<u64>>, Problem>;

    /// Returns the instructions that a probe means by an offset, a line or the entries of inlined copies.
    ///
    /// # Errors
    ///
    /// The probe means no instruction, the instructions cannot be determined, or there is no memory for the list.
    fn instructions(&self, _probe: &Spanned<Probe>) -> Result<Vec<Instruction>, Error> {
        Ok(Vec::new())
    }

    /// Returns the table of function arguments and Rust types; `None` if the image has no such table.
    ///
    /// # Errors
    ///
    /// The table is damaged.
    fn types(&self) -> Result<Option<&'static Types<'static>>, Problem> {
        Ok(None)
    }

    /// Calls `each` for every static event of the image.
    fn each_event(&self, _each: &mut dyn FnMut(&'static Event)) {}
}

/// A probed instruction of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The virtual address of the function.
    pub function: u64,
    /// The virtual address of the instruction.
    pub address: u64,
    /// The virtual address of the instruction at which variables are looked up. Where a conditional branch enters a
    /// copy, this is the instruction that control passes to.
    pub looked_up: u64,
    /// Whether the frame pointer is that of the function there.
    pub has_frame: bool,
    /// Whether the stack pointer is at the lower end of the frame there.
    pub has_stack: bool,
    /// The variables that the probe means.
    pub scope: VariableScope,
}

/// The variables that a probe on an instruction means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableScope {
    /// The variables of the function.
    Function,
    /// The variables of the innermost copy at the instruction that has a variable of the name, otherwise of the
    /// function.
    All,
    /// The variables of the innermost copy at the instruction; outside of copies, of the function.
    Innermost,
    /// The variables of a copy of one function. The instruction may lie in another copy of that function instead, or in
    /// both.
    Copy {
        /// The [`hash`](kprobes_types::hash) of the function's demangled name.
        hash: u16,
        /// The virtual address of the copy's first instruction.
        first: u64,
    },
    /// The variables of a copy that the table of types does not describe.
    Unknown,
}

impl Instruction {
    /// Creates the entry of the function at the virtual address `function`.
    fn entry(function: u64) -> Self {
        let scope = VariableScope::Function;
        Self { function, address: function, looked_up: function, has_frame: false, has_stack: false, scope }
    }

    /// Returns the offset from the entry of the function at which variables are looked up, in bytes.
    fn offset(&self) -> u32 {
        self.offset_of(self.looked_up)
    }

    /// Returns the offset of a virtual address from the entry of the function, in bytes.
    fn offset_of(&self, address: u64) -> u32 {
        u32::try_from(address.wrapping_sub(self.function)).unwrap_or(u32::MAX)
    }
}

/// Checks a program, and lowers it to code.
///
/// # Errors
///
/// Returns the first problem, with its place.
pub fn check(program: &Program, symbols: &dyn Symbols) -> Result<Checked, Error> {
    let config = Config::read(&program.config)?;
    let mut checker = Checker {
        symbols,
        config,
        maps: Vec::new(),
        actions: Vec::new(),
        formats: Vec::new(),
        shapes: Shapes::default(),
        rust_values: Vec::new(),
        captures: Vec::new(),
        declared: Vec::new(),
        stack_frames: 0,
        instructions: Cell::new(None),
        stage: Stage::Certain,
        changed: true,
        is_left: false,
    };
    if program.clauses.len() > ITEMS_MAX {
        let span = program.clauses.get(ITEMS_MAX).and_then(|clause| clause.probes.first());
        return Err(span.map_or_else(Span::default, |probe| probe.span).error(Problem::Many { most: ITEMS_MAX }));
    }
    while checker.is_learning() {
        (checker.changed, checker.is_left) = (false, false);
        for clause in &program.clauses {
            // The final pass below finds other problems again, in the order of the text.
            if let Err(error @ Error { problem: Problem::OutOfMemory, .. }) = Clause::compile(&mut checker, clause) {
                return Err(error);
            }
        }
        if !checker.changed {
            checker.stage = if checker.is_left { checker.stage.next() } else { Stage::Final };
        }
    }
    for declared in &program.maps {
        let room = usize::try_from(declared.node.keys).ok().filter(|keys| (1..=KEYS_MAX).contains(keys));
        let range = Problem::Range { least: 1, most: KEYS_MAX as u64 };
        let room = room.ok_or(declared.span.error(range))?;
        if let Some(map) = checker.maps.iter_mut().find(|map| map.name == declared.node.name) {
            map.room = Some(room);
        }
    }
    // Only code that never runs may name a map that no statement sets: in other code, the final pass refuses it.
    checker.maps.retain(|map| map.value.is_some());
    let (mut routines, mut probes) = (Vec::new(), Vec::new());
    for clause in &program.clauses {
        let ops = Clause::compile(&mut checker, clause).map_err(|error| checker.with_nouns(error))?;
        let runs_after_exit = clause.probes.iter().any(|probe| probe.node == Probe::End);
        fallible::push(&mut routines, Routine { ops, runs_after_exit })?;
        let where_it_runs = clause.probes.iter().map(|probe| probe.node.try_clone());
        fallible::push(&mut probes, fallible::collect_results(where_it_runs)?)?;
    }
    let maps = fallible::collect(checker.maps.into_iter().filter_map(PartialMap::finish))?;
    let code = Code { routines, maps, actions: checker.actions.len(), stack_frames: checker.stack_frames };
    Ok(Checked {
        config,
        code,
        probes,
        actions: checker.actions,
        formats: checker.formats,
        tuples: checker.shapes.0,
        rust_values: checker.rust_values,
        captures: checker.captures,
    })
}

/// The state of the checker that all clauses share.
struct Checker<'a> {
    symbols: &'a dyn Symbols,
    config: Config,
    maps: Vec<PartialMap>,
    actions: Vec<Action>,
    formats: Vec<String>,
    shapes: Shapes,
    rust_values: Vec<RustValue>,
    captures: Vec<Vec<Block>>,
    /// The variables that are declared without a value.
    declared: Vec<Declared>,
    stack_frames: usize,
    /// The instructions of the probe that was looked up last, with its place in the text.
    instructions: Cell<Option<(Span, Vec<Instruction>)>>,
    stage: Stage,
    /// Whether this pass has learned something new.
    changed: bool,
    /// Whether this pass left a statement to the next stage.
    is_left: bool,
}

/// The lengths of the tables that the final pass fills.
struct Tables {
    stack_frames: usize,
    actions: usize,
    formats: usize,
    shapes: usize,
    rust_values: usize,
    captures: usize,
}

/// A variable that is declared without a value.
struct Declared {
    /// The position of the declaration in the text.
    at: usize,
    /// The name. Each call of a macro has variables of its own.
    name: String,
    /// The type, as far as it is known.
    of: Option<Type>,
}

/// How the types of maps and of declared variables are inferred: a stage ends when it learns nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Code whose types are certain tells types. The room for a string is not certain: a later use may need more.
    Certain,
    /// The rooms for strings count as certain.
    Rooms,
    /// Blocks that never run tell the types of variables that no other code does.
    UnreachedVariables,
    /// A variable to which nothing has given a type is a number.
    Defaults,
    /// Blocks that never run, operations whose results are numbers, and choices of which one value is certain tell the
    /// types of maps that no other code does.
    UnreachedMaps,
    /// All types are known, and code is produced.
    Final,
}

impl Stage {
    fn next(self) -> Self {
        match self {
            Self::Certain => Self::Rooms,
            Self::Rooms => Self::UnreachedVariables,
            Self::UnreachedVariables => Self::Defaults,
            Self::Defaults => Self::UnreachedMaps,
            Self::UnreachedMaps | Self::Final => Self::Final,
        }
    }
}

impl Checker<'_> {
    /// Returns whether types are still being inferred, and no code is produced.
    fn is_learning(&self) -> bool {
        self.stage < Stage::Final
    }

    /// Returns the lengths of the tables.
    fn tables(&self) -> Tables {
        Tables {
            stack_frames: self.stack_frames,
            actions: self.actions.len(),
            formats: self.formats.len(),
            shapes: self.shapes.0.len(),
            rust_values: self.rust_values.len(),
            captures: self.captures.len(),
        }
    }

    /// Returns the number of entries of the tables that types refer to.
    fn entries_of_types(&self) -> usize {
        self.formats.len() + self.shapes.0.len() + self.rust_values.len() + self.captures.len()
    }

    /// Truncates the tables to these lengths. No type that is kept may refer to a removed entry.
    fn truncate(&mut self, to: &Tables) {
        self.actions.truncate(to.actions);
        self.formats.truncate(to.formats);
        self.shapes.0.truncate(to.shapes);
        self.rust_values.truncate(to.rust_values);
        self.captures.truncate(to.captures);
    }

    /// Returns the number of the time format `format`; the same format has the same number.
    fn format(&mut self, format: &str, span: Span) -> Result<u8, Error> {
        number_in(&mut self.formats, fallible::copy(format)?, span)
    }

    /// Returns the number of the variable `name` that is declared at `at`.
    fn declaration(&mut self, at: usize, name: &str) -> Result<usize, OutOfMemory> {
        if let Some(number) = self.declared.iter().position(|other| other.at == at && other.name == name) {
            return Ok(number);
        }
        fallible::push(&mut self.declared, Declared { at, name: fallible::copy(name)?, of: None })?;
        Ok(self.declared.len() - 1)
    }

    /// Learns that the declared variable with this number is given a value of type `of`.
    fn declare(&mut self, number: usize, of: Type) -> Result<(), OutOfMemory> {
        let Some(declared) = self.declared.get_mut(number) else { return Ok(()) };
        let merged = match declared.of {
            None => Some(of),
            Some(known) => self.shapes.merge(known, of)?,
        };
        if merged.is_some() && merged != declared.of {
            declared.of = merged;
            self.changed = true;
        }
        Ok(())
    }

    /// Returns the number of these blocks; equal blocks have the same number.
    fn capture(&mut self, blocks: Vec<Block>, span: Span) -> Result<u8, Error> {
        number_in(&mut self.captures, blocks, span)
    }

    /// Returns the type of a value of `words` words that represents the Rust value `of`.
    fn rust_type(&mut self, of: RustValue, words: u8, span: Span) -> Result<Type, Error> {
        Ok(Type::Rust { shape: number_in(&mut self.rust_values, of, span)?, words })
    }

    /// Returns `error` with the nouns for values that are shown like values of Rust.
    fn with_nouns(&self, error: Error) -> Error {
        let noun = |noun| match noun {
            Noun::Shaped(shape) => match self.rust_values.get(usize::from(shape)) {
                Some(RustValue::HardwareAddress) => Noun::HardwareAddress,
                Some(RustValue::InternetAddress { .. }) => Noun::InternetAddress,
                Some(RustValue::Line) => Noun::Line,
                _ => Noun::Rust,
            },
            other => other,
        };
        Error { problem: error.problem.with_nouns(noun), ..error }
    }

    /// Returns the number of `action`; equal actions have the same number. While types are inferred, there are none.
    fn action(&mut self, action: Action, span: Span) -> Result<u8, Error> {
        if self.is_learning() { Ok(0) } else { number_in(&mut self.actions, action, span) }
    }
}

/// Returns the number of `item` in `table`. An item that is not in the table is added.
fn number_in<T: PartialEq>(table: &mut Vec<T>, item: T, span: Span) -> Result<u8, Error> {
    let number = table.iter().position(|other| *other == item).unwrap_or(table.len());
    if number == table.len() {
        fallible::push(table, item)?;
    }
    u8::try_from(number).map_err(|_| span.error(Problem::Many { most: ITEMS_MAX }))
}

#[cfg(test)]
mod tests;
