//! What happens when a probe is hit.
//!
//! Everything in this module and below runs with interrupts masked, between the exception, or the return of a probed
//! function into the trampoline, and the return to probed code; so does what it calls. It takes no lock that interrupted
//! code may hold, allocates nothing, and is placed by the linker in a region of its own, in which no probe is accepted.
//! What registers and removes probes is in the modules beside this one.
//!
//! ```text
//!                brk #4
//! probed code ────────────► pre-handlers ─┬─► simulated ──────────────────────────┬─► post-handlers ─┐
//!      ▲   │                              ├─► stepped:  [insn][brk #6] ── brk #6 ─┘                  │
//!      │   │ b                            └─► boosted:  [insn][b next] ─┐                            │
//!      │   └─► stub ──► pre-handlers ─► stub: [insn][b next] ─┐         │                            │
//!      └──────────────────────────────────────────────────────┴─────────┴────────────────────────────┘
//! ```
//!
//! An instruction that is boosted, or optimized, runs when the hit is over, with the interrupt masks of the probed code; the
//! others run within.
//!
//! A hit while handlers run on the same CPU executes its instruction and calls no handler; every probe there counts
//! it as missed.
//!
//! The usual hit of a breakpoint, and every hit of a stub, goes through `trampoline/hit.S`, which does what [`breakpoint`]
//! does where little is to be done, and leaves the rest to it.

pub(crate) mod counters;
pub(crate) mod cpu;
pub(crate) mod disarm;
pub(crate) mod entry;
pub(crate) mod instance;
mod list;
pub(crate) mod machine;
pub(crate) mod origin;
mod place;
pub(crate) mod point;
pub(crate) mod returns;
pub(crate) mod snippet_cell;
pub(crate) mod stub;
pub(crate) mod table;
pub(crate) mod trampoline;
pub(crate) mod unwind;

use core::fmt;
use core::marker::PhantomData;
use core::{mem, ptr};

use crate::exception::TrapFrame;
use crate::insn;
use crate::platform;
use cpu::Cpu;
use machine::ThisCpu;
use point::{Execution, Point, Watcher};

called_by_assembly! {
    /// Called before the probed instruction is executed: unless it changes the pc, at which execution then resumes instead.
    pub type PreHandler = fn(&mut Hit<'_>);
}
called_by_assembly! {
    /// Called after the probed instruction has been executed.
    pub type PostHandler = fn(&mut Hit<'_>);
}

/// A hit, as a handler sees it.
///
/// Handlers run with interrupts masked and must not wait, allocate, or take a lock that the probed code may
/// hold. A probe that they run into is executed and counted as missed.
#[derive(Debug)]
#[repr(transparent)]
pub struct Hit<'a> {
    frame: TrapFrame,
    _frame: PhantomData<&'a mut TrapFrame>,
}

impl<'a> Hit<'a> {
    /// From the address of a hit, at which its [`TrapFrame`] is, to the word that the probe was registered with, as
    /// [`Entry::DATA`](entry::Entry::DATA) has it.
    pub const DATA: [u16; 3] = Watcher::data_behind(mem::offset_of!(TrapFrame, watcher));

    /// The hit of the first probe of `point`, which stays until it is over.
    #[inline]
    fn first(frame: &'a mut TrapFrame, point: &Point) -> &'a mut Self {
        Self::new(frame, ptr::from_ref(point).cast())
    }

    /// The hit of the probe of `watcher`, which stays until it is over.
    #[inline]
    fn new(frame: &'a mut TrapFrame, watcher: *const Watcher) -> &'a mut Self {
        frame.watcher = watcher.expose_provenance() as u64;
        // SAFETY: it has the layout of a frame, and the borrow of the frame goes over to it.
        unsafe { &mut *ptr::from_mut(frame).cast::<Self>() }
    }

    /// The registers of the probed code.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> &TrapFrame {
        &self.frame
    }

    /// The registers of the probed code, to be changed.
    ///
    /// # Safety
    ///
    /// The probed code goes on with what is written here: it must be something that it can go on with.
    #[inline]
    pub unsafe fn frame_mut(&mut self) -> &mut TrapFrame {
        self.frame.written = 1;
        &mut self.frame
    }

    /// In a pre-handler: has execution resume behind the probed instruction, without executing it.
    ///
    /// # Safety
    ///
    /// The probed code goes on without the effect of the instruction: it must be able to.
    #[inline]
    pub unsafe fn skip(&mut self) {
        self.frame.written = 1;
        self.frame.pc = self.address() as u64 + 4;
    }

    /// The virtual address of the probed instruction.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        Watcher::of(self).address
    }

    /// The word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        Watcher::of(self).probe.data
    }
}

/// A probe was hit by an instruction that was being executed in a slot: there is no way on.
#[derive(Debug)]
struct HitInSlot<'a> {
    point: &'a Point,
    stepping: &'a Point,
}

impl fmt::Display for HitInSlot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the probe at {:#x} was hit while the instruction of the probe at {:#x} was in its slot",
            self.point.address(),
            self.stepping.address()
        )
    }
}

/// What has become of a `brk #0x4`.
//
// The variants without a fault hold nothing, rather than a `bool`: values of different widths in one place are moved by a
// call of memcpy, which can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breakpoint {
    /// It was a probe's.
    Handled,
    /// No probe put it there.
    Foreign,
    /// The probed instruction takes this exception when it is simulated. It is shown to have taken it at its own address,
    /// with this CPU out of the hit, as in [`faulted`].
    Raised(insn::Fault),
}

/// What has become of a probed instruction.
enum Progress {
    Executed,
    /// It will be, in its slot, to come back in [`stepped`].
    Stepping,
    /// It will be, in its slot, when the hit is over.
    Boosted,
    Raised(insn::Fault),
}

/// A `brk #0x4` at `frame.pc`.
#[inline(never)]
pub(crate) fn breakpoint(frame: &mut TrapFrame) -> Breakpoint {
    // SAFETY: this is the hit path.
    let Some(point) = (unsafe { table::lookup(frame.pc as usize) }) else { return Breakpoint::Foreign };
    let cpu = Cpu::current();
    // SAFETY: this is the hit path.
    if let Some((stepping, _)) = unsafe { cpu.stepping() } {
        platform::fatal(frame, &HitInSlot { point, stepping });
    }
    if cpu.is_handling() {
        point.miss(cpu);
        return match execute(cpu, point, false, frame) {
            Progress::Raised(fault) => Breakpoint::Raised(fault),
            Progress::Executed | Progress::Stepping | Progress::Boosted => Breakpoint::Handled,
        };
    }
    cpu.enter();
    point.first.counters.hit(cpu);
    (point.first.handler)(Hit::first(frame, point));
    if frame.pc != point.address() as u64 {
        // Where a handler goes on is no target of the branch that led here.
        frame.pstate &= !TrapFrame::BRANCH_TYPE;
        cpu.leave();
        return Breakpoint::Handled;
    }
    match execute(cpu, point, true, frame) {
        Progress::Stepping => return Breakpoint::Handled,
        Progress::Boosted => {}
        Progress::Executed => call_post_handlers(point, frame),
        Progress::Raised(fault) => {
            returns::take_back(point.address(), frame);
            cpu.leave();
            return Breakpoint::Raised(fault);
        }
    }
    cpu.leave();
    Breakpoint::Handled
}

/// A `brk #0x6` at `frame.pc`. Returns false if it is not the end of the slot that this CPU is in.
#[inline(never)]
pub(crate) fn stepped(frame: &mut TrapFrame) -> bool {
    let cpu = Cpu::current();
    // SAFETY: this is the hit path.
    let Some((point, slot)) = (unsafe { cpu.stepping() }) else { return false };
    if frame.pc != slot + 4 {
        return false;
    }
    frame.pc = point.address() as u64 + 4;
    // SAFETY: this is the hit path.
    if let Some(point) = unsafe { cpu.end_step(frame) } {
        call_post_handlers(point, frame);
        cpu.leave();
    }
    true
}

/// Any other exception. If it is an instruction in its slot that has faulted, it is shown to have faulted at the address
/// that it was probed at, with this CPU out of the hit; should the kernel repair the fault and resume, the probe is hit
/// again.
pub(crate) fn faulted(frame: &mut TrapFrame) {
    let cpu = Cpu::current();
    // SAFETY: interrupts have been masked since the instruction was sent to its slot, as in the hit path.
    if let Some((point, slot)) = unsafe { cpu.stepping() } {
        if frame.pc == slot {
            frame.set_interrupted(point.address() as u64);
            // SAFETY: as for `stepping` above.
            if unsafe { cpu.end_step(frame) }.is_some() {
                returns::take_back(point.address(), frame);
                cpu.leave();
            }
        }
    } else if let Some(restart) = unwind::restart(frame, unwind::read_own_stack) {
        returns::take_back(restart.address, frame);
    }
}

/// The kernel is about to report something that it will not survive: no handler runs on this CPU any more, and the
/// instructions of probes that are hit by the report are executed. `frame`, if it is in a slot, or behind an instruction
/// that was stepped there, is put right as in [`faulted`].
///
/// # Safety
///
/// Interrupts are masked, and nothing that was interrupted on this CPU, as `frame` says, goes on.
pub(crate) unsafe fn abandon(frame: Option<&mut TrapFrame>) {
    let cpu = Cpu::current();
    // SAFETY: interrupts have been masked since the instruction was sent to its slot, as in the hit path.
    match (unsafe { cpu.stepping() }, frame) {
        (Some((point, slot)), Some(frame)) => {
            if let Some(offset @ (0 | 4)) = frame.pc.checked_sub(slot) {
                frame.set_interrupted(point.address() as u64 + offset);
                // SAFETY: as for `stepping` above.
                unsafe { cpu.end_step(frame) };
            }
        }
        (None, Some(frame)) => {
            unwind::restart(frame, unwind::read_own_stack);
        }
        (_, None) => {}
    }
    cpu.abandon();
}

called_by_assembly! {
    /// The pre-handler of a point with several probes: calls those of all, up to one that sends execution elsewhere. The hit of
    /// the first has been counted.
    #[inline(never)]
    pub(crate) fn call_all(hit: &mut Hit<'_>) {
        call_each(hit, |_| true, true);
    }
}

called_by_assembly! {
    /// The pre-handler for a full stub that a CPU has come to before a probe was armed here that a stub cannot serve: calls those
    /// of the others. No hit has been counted.
    #[inline(never)]
    pub(crate) fn call_earlier(hit: &mut Hit<'_>) {
        call_each(hit, |watcher| watcher.post.is_none(), false);
    }
}

/// Calls the pre-handlers that `is_called` says of the point of `hit`, up to one that sends execution elsewhere; if there is none,
/// all its probes miss the hit. That of the first has been counted if it `is_counted`.
#[inline(always)]
fn call_each(hit: &mut Hit<'_>, is_called: impl Fn(&Watcher) -> bool, mut is_counted: bool) {
    // SAFETY: this is the hit path, and the handlers that call this are called for the first watcher of a point.
    let point = unsafe { Point::beginning_with(Watcher::place(hit)) };
    let cpu = Cpu::current();
    returns::note(hit.frame.x[30]);
    let mut watchers = point.watchers().iter();
    let mut is_any_called = false;
    for watcher in &mut watchers {
        if !is_called(watcher) {
            continue;
        }
        if !is_counted {
            watcher.counters.hit(cpu);
        }
        (is_counted, is_any_called) = (false, true);
        (watcher.handler)(Hit::new(&mut hit.frame, watcher));
        if hit.frame.pc != point.address() as u64 {
            break;
        }
    }
    if !is_any_called {
        return point.miss(cpu);
    }
    // The instruction that they wait for is not executed.
    watchers.for_each(|watcher| watcher.probe.counters.miss(cpu));
}

called_by_assembly! {
    /// The pre-handler of a probe that has none.
    pub(crate) fn call_nobody(_: &mut Hit<'_>) {}
}

#[inline(never)]
fn call_post_handlers(point: &Point, frame: &mut TrapFrame) {
    let next = frame.pc;
    // The vectors have stored where the exception was taken, which may be in a slot.
    frame.record[1] = next;
    for watcher in point.watchers() {
        if let Some(handler) = watcher.post {
            handler(Hit::new(frame, watcher));
        }
    }
    if frame.pc != next {
        frame.pstate &= !TrapFrame::BRANCH_TYPE;
    }
}

/// Executes the instruction of `point`, or sends `frame` to the copy for it; if it `is_told`, the post-handlers are then
/// called in [`stepped`].
#[inline]
fn execute(cpu: &Cpu, point: &Point, is_told: bool, frame: &mut TrapFrame) -> Progress {
    match point.execution {
        Execution::Simulated(operation) => match operation.simulate(frame, &ThisCpu { guarded: point.guarded }) {
            Ok(()) => Progress::Executed,
            Err(fault) => Progress::Raised(fault),
        },
        Execution::Stepped { slot } => {
            cpu.begin_step(point, slot, is_told, frame);
            Progress::Stepping
        }
        Execution::Boosted { .. } | Execution::Optimized { .. } => {
            frame.pc = point.slot as u64;
            Progress::Boosted
        }
    }
}
