//! The handlers of tracers. With limits, the handler of a call decides whether the call belongs to the graph. For a
//! profile, the handlers add up how long calls take.
//!
//! A call that does not belong to the graph is declined. The calls of a task in the engine's list that have these
//! handlers are therefore the calls of the graph that the task is in.

use core::sync::atomic::Ordering::Relaxed;

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe::{self, Call, CallArguments, Decision};

use super::Registers;
use super::action::HitState;
pub(crate) use super::role::Role;
use super::write::RecordedHit;
use crate::context::Context;
use crate::recorder::Recorder;
use crate::tracer::profile::Counts;
use crate::tracer::usage::Usage;
use crate::trigger::inherited_tasks::InheritedTasks;
use fallible::Arc;

/// The limits of the graph, with the recorders of its calls and returns.
#[derive(Debug)]
pub(crate) struct Limits {
    pub entry: Arc<Recorder>,
    pub back: Arc<Recorder>,
    /// The maximum number of calls of the graph that a task is in; no limit if it is 0.
    pub max_depth: u32,
    /// Whether the graph begins only with calls of functions with the role [`Role::Outermost`].
    pub has_outermost: bool,
}

/// The data of the probes of all functions with one role.
#[derive(Debug)]
pub(crate) struct TracedRole {
    pub limits: *const Limits,
    pub role: Role,
}

impl TracedRole {
    /// Returns the traced role of a probe that was registered with `data`, and its limits.
    ///
    /// # Safety
    ///
    /// `data` must be the address of a `TracedRole`. Neither the role nor its limits may move or be dropped while the
    /// references are used.
    #[inline(always)]
    unsafe fn at<'a>(data: usize) -> (&'a Self, &'a Limits) {
        // SAFETY: the caller guarantees that `data` is the address of a traced role that stays in place with its limits
        // (see # Safety).
        unsafe {
            let traced = &*core::ptr::with_exposed_provenance::<Self>(data);
            (traced, &*traced.limits)
        }
    }
}

impl Limits {
    /// Returns whether `call`, of a function with this role, belongs to the graph.
    #[inline(always)]
    fn has(&self, role: Role, call: &Call<'_>) -> bool {
        let mut depth = 0;
        let mut around = None;
        // A task is in at most `max_depth` calls of the graph. Without a limit, only the newest call is looked at.
        call.each_outer(graph_returned, |data| {
            if depth == 0 {
                // SAFETY: `Traced` registers this handler with traced roles alone, and drops them after the probes.
                around = Some(unsafe { TracedRole::at(data) }.0.role);
            }
            depth += 1;
            depth < self.max_depth
        });
        role.belongs(around, self.has_outermost) && (self.max_depth == 0 || depth < self.max_depth)
    }
}

/// Records that a function is called, if the call belongs to the graph.
#[unsafe(link_section = ".kprobes.text.handlers.trace_graph_entered")]
pub(crate) extern "C" fn graph_entered(call: &mut Call<'_>) -> Decision {
    // SAFETY: `Traced` registers this handler with traced roles alone, and drops them after the probes.
    let (traced, limits) = unsafe { TracedRole::at(call.data()) };
    if !limits.has(traced.role, call) {
        return Decision::Decline;
    }
    if traced.role != Role::Silent {
        // SAFETY: a `Call` exists only while the engine handles a hit.
        let (context, address) = (unsafe { Context::here() }, call.function() as u64);
        let hit = RecordedHit { context, address, return_address: None, entry: &[], is_caller_in_x30: false };
        // SAFETY: the engine calls this handler on the CPU of the hit, with interrupts masked. `entry` records calls,
        // and `hit` has no return address.
        unsafe { limits.entry.record(Registers::Frame(call.frame()), &hit) };
    }
    Decision::Follow
}

/// Records that a function has returned.
#[unsafe(link_section = ".kprobes.text.handlers.trace_graph_returned")]
pub(crate) extern "C" fn graph_returned(call: &mut Call<'_>) {
    // SAFETY: `Traced` registers this handler with traced roles alone, and drops them after the probes.
    let (traced, limits) = unsafe { TracedRole::at(call.data()) };
    if traced.role != Role::Silent {
        // SAFETY: a `Call` exists only while the engine handles a hit.
        let (context, address) = (unsafe { Context::here() }, call.function() as u64);
        let return_address = Some(call.return_address() as u64);
        let hit = RecordedHit { context, address, return_address, entry: &[], is_caller_in_x30: false };
        // SAFETY: the engine calls this handler on the CPU of the hit, with interrupts masked. `back` records returns,
        // and `hit` has a return address.
        unsafe { limits.back.record(Registers::Frame(call.frame()), &hit) };
    }
}

/// Saves the time of a call.
#[unsafe(link_section = ".kprobes.text.handlers.trace_profile_entered")]
pub(crate) extern "C" fn profile_entered(call: &mut Call<'_>) -> Decision {
    if let Some(word) = call.instance_data_mut().first_mut() {
        // SAFETY: a `Call` exists only while the engine handles a hit.
        *word = unsafe { Context::here() }.time;
    }
    Decision::Follow
}

/// Adds a call to those of its function on this CPU.
#[unsafe(link_section = ".kprobes.text.handlers.trace_profile_returned")]
pub(crate) extern "C" fn profile_returned(call: &mut Call<'_>) {
    // SAFETY: a `Call` exists only while the engine handles a hit.
    let context = unsafe { Context::here() };
    // SAFETY: `Traced::profile` registers this handler with the counts of functions, which its caller keeps until the
    // probes are dropped.
    let counts = unsafe { &*core::ptr::with_exposed_provenance::<Counts>(call.data()) };
    let began = call.instance_data().first().copied().unwrap_or(context.time);
    let ticks = context.time.wrapping_sub(began);
    if let Some(cell) = counts.cells.get(context.cpu) {
        // Only this CPU adds to its cell, with interrupts masked.
        cell.calls.store(cell.calls.load(Relaxed).wrapping_add(1), Relaxed);
        cell.ticks.store(cell.ticks.load(Relaxed).wrapping_add(ticks), Relaxed);
        cell.squares.store(cell.squares.load(Relaxed).wrapping_add(ticks.wrapping_mul(ticks)), Relaxed);
    }
}

/// The data of a probe at the start or the end of tasks.
#[derive(Debug)]
pub(crate) struct Listener {
    pub inherited: Arc<InheritedTasks>,
    /// The offsets of two numbers of tasks in the static event, in bytes.
    pub fields: [usize; 2],
}

impl Listener {
    /// Returns the listener of a probe at a static event, and the numbers in the event.
    ///
    /// # Safety
    ///
    /// `event` must be a hit of one of [`InheritanceProbes`](crate::tracer::InheritanceProbes).
    #[inline(always)]
    unsafe fn at<'a>(event: &CallArguments) -> (&'a Self, [u32; 2]) {
        // SAFETY: the caller guarantees that the probe is one of `InheritanceProbes`, which drops the listeners after
        // the probes. The first argument is the reference to the event's fields that `emit!` passes.
        unsafe {
            let listener = &*core::ptr::with_exposed_provenance::<Self>(event.data());
            let fields = event.arguments()[0] as usize;
            // The fields are mapped, so the number that no task has is never the outcome.
            let numbers = listener.fields.map(|place| nofault::read(fields.wrapping_add(place)).unwrap_or(u32::MAX));
            (listener, numbers)
        }
    }
}

/// Lets a starting task inherit the restriction of its parent.
#[unsafe(link_section = ".kprobes.text.handlers.trace_task_starts")]
pub(crate) extern "C" fn task_starts(event: &CallArguments) {
    // SAFETY: `InheritanceProbes` alone registers this handler.
    let (listener, [parent, child]) = unsafe { Listener::at(event) };
    listener.inherited.starts(parent, child);
}

/// Marks a task as ended.
#[unsafe(link_section = ".kprobes.text.handlers.trace_task_ends")]
pub(crate) extern "C" fn task_ends(event: &CallArguments) {
    // SAFETY: `InheritanceProbes` alone registers this handler.
    let (listener, [task, _]) = unsafe { Listener::at(event) };
    listener.inherited.ends(task);
}

/// Keeps the stack of a task, if it is deeper than any that this CPU has seen.
#[unsafe(link_section = ".kprobes.text.handlers.trace_stack_entered")]
pub(crate) extern "C" fn stack_entered(call: &CallArguments) {
    // SAFETY: `Traced::stacks` registers this handler with the address of stacks that its caller keeps until the probes
    // are dropped.
    let usage = unsafe { &*core::ptr::with_exposed_provenance::<Usage>(call.data()) };
    let pointer = call.stack_pointer();
    // SAFETY: `CallArguments` exist only while the engine handles a hit.
    let Some(deepest) = usage.0.get(unsafe { Context::cpu_here() }) else { return };
    // The kernel tells the bounds of a task's stack.
    let Some(stack) = probe::stack_around(pointer as usize) else { return };
    let depth = (stack.end as u64).wrapping_sub(pointer);
    if depth <= deepest.depth.load(Relaxed) {
        return;
    }
    // SAFETY: `CallArguments` exist only while the engine handles a hit.
    let context = unsafe { Context::here() };
    let registers = Registers::Arguments(call);
    let address = call.address() as u64;
    let state = HitState { registers, context: &context, address, faults: 0, is_caller_in_x30: true };
    let mut walk = state.walk(true);
    let mut next = Some((walk.first(), depth));
    deepest.note(depth, || {
        let frame = next?;
        // The stack of the caller ends at the stack pointer that the function was called with. The stack of an outer
        // function ends above the frame record of the function that it has called.
        let floor = walk.floor().map_or(depth, |floor| (stack.end as u64).saturating_sub(floor));
        next = walk.step().map(|address| (address, floor));
        Some(frame)
    });
}
