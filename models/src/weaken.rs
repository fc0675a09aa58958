//! Records the orderings that a model uses, and weakens one of them in a run.

use core::fmt;
use core::panic::Location;
use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::cell::RefCell;
use std::path::Path;

/// An ordering at one place in the sources, and a weaker ordering to use instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weakening {
    place: &'static Location<'static>,
    operation: &'static str,
    from: Ordering,
    to: Ordering,
}

impl Weakening {
    pub(crate) fn is_in(&self, files: &[&str]) -> bool {
        files.iter().any(|file| Path::new(self.place.file()).ends_with(file))
    }
}

impl fmt::Display for Weakening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, operation, from, to } = self;
        write!(f, "{}: {operation}: {from:?} to {to:?}", place.file())
    }
}

/// A run of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) weakened: Option<Weakening>,
    /// Every weakening that is possible in the run.
    pub(crate) possible: Vec<Weakening>,
}

thread_local! {
    /// The run on this thread. All threads of a model run on the same thread.
    static RUN: RefCell<Run> = RefCell::default();
}

/// Begins a run on this thread.
pub(crate) fn begin(weakened: Option<Weakening>) {
    RUN.set(Run { weakened, possible: Vec::new() });
}

/// Ends the run on this thread, and returns it.
pub(crate) fn end() -> Run {
    RUN.take()
}

/// Returns the ordering of the access at `place` in this run. The sources say `order`.
pub(crate) fn weaken(place: &'static Location<'static>, operation: &'static str, order: Ordering) -> Ordering {
    if order == Relaxed {
        return order;
    }
    RUN.with_borrow_mut(|run| {
        let weakening = |to: &Ordering| Weakening { place, operation, from: order, to: *to };
        for to in weaker(order, operation) {
            let weakening = weakening(to);
            if run.weakened.is_none() && !run.possible.contains(&weakening) {
                run.possible.push(weakening);
            }
        }
        run.weakened.filter(|weakened| *weakened == weakening(&weakened.to)).map_or(order, |weakened| weakened.to)
    })
}

/// Returns the orderings that are one step weaker.
fn weaker(order: Ordering, operation: &str) -> &'static [Ordering] {
    match (order, operation) {
        (SeqCst, "load") => &[Acquire],
        (SeqCst, "store") => &[Release],
        // A compare-exchange that fails only loads.
        (SeqCst, _) if operation.ends_with("failure") => &[Acquire],
        (SeqCst, _) => &[AcqRel],
        (AcqRel, _) => &[Acquire, Release],
        _ => &[Relaxed],
    }
}
