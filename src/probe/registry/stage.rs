//! Makes the point of an instruction: what a hit does there. It is made before the change that publishes it, so that a
//! lack of memory leaves everything as it was.

use alloc::vec::Vec;
use core::ptr::NonNull;

use super::{RegistryEntry, shortcut};
use crate::probe::Mode;
use crate::probe::arena::{Arena, Used};
use crate::probe::hit::counters::Counters;
use crate::probe::hit::point::{ArmedProbe, Execution, Handlers, Point, Pre, ProbeRef};
use crate::probe::hit::stub::Form;
use crate::probe::hit::{PreHandler, arguments, call_all, call_earlier, noop_handler, returns};
use crate::probe::slab::Slab;

impl RegistryEntry {
    /// Decides how the instruction is executed from now on, and makes the new point, or `Some(None)` if no probe is
    /// enabled. A new cell, if one is needed, is written at the end of the change. A cell that is no longer needed is
    /// added to `replaced`. Returns `None`, with nothing changed, if there is no memory.
    #[inline]
    pub(super) fn stage(
        &mut self,
        arena: &mut Arena,
        points: &mut Slab<Point>,
        replaced: &mut Vec<Used>,
    ) -> Option<Option<NonNull<Point>>> {
        let front = self.first_two();
        let Some(wanted) = self.fastest_mode(front) else {
            replaced.extend(self.cell());
            self.execution = None;
            return Some(None);
        };
        self.stage_armed(wanted, front, arena, points, replaced).map(Some)
    }

    /// Does what [`stage`](Self::stage) does if probes are enabled, which want the mode `wanted`, and the first two of
    /// which are `front`.
    #[inline(never)]
    fn stage_armed(
        &mut self,
        wanted: Mode,
        front: [Option<ProbeRef>; 2],
        arena: &mut Arena,
        points: &mut Slab<Point>,
        replaced: &mut Vec<Used>,
    ) -> Option<NonNull<Point>> {
        points.reserve()?;
        let several = self.several()?;
        // Code in front of a stub belongs to one probe, or to two.
        if self.execution.as_ref().is_none_or(|execution| !self.is_as_wanted(execution, wanted, front)) {
            let before = self.cell();
            match self.new_execution(wanted, arena) {
                Some((execution, fallback)) => {
                    (self.execution, self.wanted, self.fallback) = (Some(execution), wanted, fallback);
                    self.front = front;
                    if let Some(cell) = before {
                        replaced.push(cell);
                    }
                }
                None if self.execution.as_ref().is_some_and(|execution| self.can_serve(execution, wanted, front)) => {}
                None => return None,
            }
        }
        let has_several = !several.is_empty();
        let (execution, first) = self.in_effect(front, has_several)?;
        let place = points.allocate()?;
        // SAFETY: the slab has returned a place for a point.
        unsafe { place.write(self.point(execution, first, several, has_several)) };
        Some(place)
    }

    /// Returns whether `execution`, the present one, is what the enabled probes want. `front` are their first two.
    #[inline(never)]
    fn is_as_wanted(&self, execution: &Execution, wanted: Mode, front: [Option<ProbeRef>; 2]) -> bool {
        let is_following = matches!(execution, Execution::Optimized { form: Form::Follow, .. });
        let is_bound = wanted == Mode::Compiled || is_following;
        self.wanted == wanted && self.is_of_form(execution, wanted) && (!is_bound || self.front == front)
    }

    /// Returns whether `execution`, the present one, which may be slower than wanted, can serve the enabled probes.
    /// `front` are their first two.
    #[cold]
    fn can_serve(&self, execution: &Execution, wanted: Mode, front: [Option<ProbeRef>; 2]) -> bool {
        let serves_all = !matches!(execution, Execution::Optimized { before: 1.., .. });
        // A full stub can also serve handlers that need fewer registers.
        let is_full = matches!(execution, Execution::Optimized { form: Form::Full, .. });
        let has_registers = self.is_of_form(execution, wanted) || is_full;
        execution.mode() <= wanted && (serves_all || self.front == front) && has_registers
    }

    /// Returns whether `execution` saves what the enabled probes need in the mode `wanted`.
    fn is_of_form(&self, execution: &Execution, wanted: Mode) -> bool {
        match *execution {
            Execution::Optimized { form, .. } => form == self.form(wanted),
            _ => true,
        }
    }

    /// Makes the armed probes of the enabled probes, if there are several; otherwise an empty list. Returns `None` if
    /// there is no memory.
    #[inline(always)]
    fn several(&self) -> Option<Vec<ArmedProbe>> {
        let mut armed_probes = Vec::new();
        if self.probes.len() == 1 {
            return Some(armed_probes);
        }
        let count = self.enabled().count();
        if count > 1 {
            armed_probes.try_reserve_exact(count).ok()?;
            armed_probes.extend(self.in_order().map(|probe| self.armed_probe(probe)));
        }
        Some(armed_probes)
    }

    fn armed_probe(&self, probe: ProbeRef) -> ArmedProbe {
        let (handler, post): (PreHandler, _) = match probe.handlers {
            Handlers::Kprobe { pre: Pre::Nothing, post } => (noop_handler, post),
            Handlers::Kprobe { pre: Pre::Hit(handler), post } => (handler, post),
            Handlers::Kprobe { pre: Pre::Arguments(_), post } => (arguments::call, post),
            Handlers::Return(_) => (returns::function_entered_shared, None),
        };
        ArmedProbe { handler, counters: probe.entered, address: self.address, post, probe }
    }

    /// Returns how the instruction is executed, and the first of the enabled probes, if there is one. `front` are the
    /// first two, in the order of their registration.
    #[inline(always)]
    pub(super) fn in_effect(&self, front: [Option<ProbeRef>; 2], has_several: bool) -> Option<(&Execution, ProbeRef)> {
        let [first, _] = front;
        let first = if has_several { self.in_order().next() } else { first };
        Some((self.execution.as_ref()?, first?))
    }

    /// Makes the point for the enabled probes: for `first` alone, or, if `has_several`, for the armed probes in
    /// `several`, which [`Point::install_at`] may still have to supply.
    ///
    /// Always inlined, so that the point is made in place.
    #[inline(always)]
    pub(super) fn point(
        &self,
        execution: &Execution,
        first: ProbeRef,
        several: Vec<ArmedProbe>,
        has_several: bool,
    ) -> Point {
        let handlers = &first.handlers;
        let mut first = self.armed_probe(first);
        if has_several {
            first.handler = call_all;
        } else if let Handlers::Return(_) = handlers {
            first.handler = returns::function_entered;
        }
        let (full, full_counters) = match *execution {
            Execution::Boosted { .. } | Execution::Optimized { .. } => (first.handler, first.counters),
            Execution::Simulated(_) | Execution::Stepped { .. } => (call_earlier as _, Counters::SINK),
        };
        let (lean, lean_counters) = match (*execution, &first.probe.handlers) {
            (Execution::Optimized { form: Form::Lean, .. }, &Handlers::Kprobe { pre: Pre::Arguments(handler), .. }) => {
                (handler, first.counters)
            }
            _ => (arguments::call_earlier as _, Counters::SINK),
        };
        let is_post = |probe: ProbeRef| matches!(probe.handlers, Handlers::Kprobe { post: Some(_), .. });
        let has_post = first.post.is_some() || has_several && self.enabled().any(is_post);
        let (shortcut, slot, operands) = match *execution {
            Execution::Boosted { slot } => (Point::BOOSTED, slot, [0; 3]),
            Execution::Optimized { stub, form, .. } => (Point::BOOSTED, stub + 4 * form.copy(), [0; 3]),
            Execution::Simulated(operation) if !has_post => {
                operation.resolve(self.address as u64, self.guard()).map_or((0, 0, [0; 3]), shortcut::to)
            }
            Execution::Stepped { slot } if !has_several && has_post => (Point::STEPPED, slot, [slot as u64 + 4, 0, 0]),
            Execution::Simulated(_) | Execution::Stepped { .. } => (0, 0, [0; 3]),
        };
        let returns = if let Handlers::Return(_) = handlers { self.only_follows() } else { None };
        // A stub has code for the entry in front of it or in its routine; a breakpoint at an entry skips the handler.
        let (shortcut, entry) = match (returns, execution) {
            (None, _) | (_, &Execution::Optimized { .. }) => (shortcut, 0),
            (Some(_), _) => (0, shortcut),
        };
        let returns = returns.map_or(0, |probe| probe.spares().distance());
        let guarded = self.guarded;
        Point {
            first,
            full,
            full_counters,
            lean,
            lean_counters,
            shortcut,
            slot,
            entry,
            returns,
            operands,
            execution: *execution,
            guarded,
            word: self.checked.word,
            registered: NonNull::dangling(),
            several,
        }
    }
}
