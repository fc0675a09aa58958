//! The settings of tracers, which their files and options show and change.

use alloc::vec::Vec;

use fallible::{OutOfMemory, TryClone};
use kprobes_trace::trigger::restriction::Restriction;

use super::functions::{Functions, traceable};

/// The settings of tracers.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// `set_ftrace_filter`: the traced functions; if empty, all functions.
    pub(crate) filter: Functions,
    /// `set_ftrace_notrace`: the functions that are not traced.
    pub(crate) notrace: Functions,
    /// `set_graph_function`: only calls of these functions are recorded, with the calls in them; if empty, all calls.
    pub(crate) graph: Functions,
    /// `set_graph_notrace`: neither calls of these functions nor the calls in them are recorded.
    pub(crate) graph_notrace: Functions,
    /// `max_graph_depth`: the maximum depth of a call, where a call within no other has depth 1; 0 for no limit.
    pub(crate) max_depth: u32,
    /// The tasks and CPUs whose calls are recorded: `set_ftrace_pid`, `set_ftrace_notrace_pid`, `tracing_cpumask`,
    /// and the option `function-fork`.
    pub(crate) restriction: Restriction,
    /// Whether returns are recorded with the results of functions: the option `funcgraph-retval`.
    pub(super) results: bool,
    /// Whether stacks are recorded with calls: the option `func_stack_trace`.
    pub(super) stacks: bool,
}

impl TryClone for Settings {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self {
            filter: self.filter.try_clone()?,
            notrace: self.notrace.try_clone()?,
            graph: self.graph.try_clone()?,
            graph_notrace: self.graph_notrace.try_clone()?,
            max_depth: self.max_depth,
            restriction: self.restriction.try_clone()?,
            results: self.results,
            stacks: self.stacks,
        })
    }
}

impl Settings {
    /// Returns the functions to probe.
    pub(super) fn functions(&self) -> Result<Vec<u64>, OutOfMemory> {
        let (filter, notrace) = (self.filter.addresses(), self.notrace.addresses());
        let is_traced = |function: &u64| {
            (filter.is_empty() || filter.binary_search(function).is_ok()) && notrace.binary_search(function).is_err()
        };
        fallible::collect(traceable("*").map(|function| function.address).filter(is_traced))
    }
}
