//! What happens when a probe is hit.
//!
//! A hit begins at a breakpoint, in a stub, or at the return of a followed call, and ends with the return to probed
//! code. The code of this module and its submodules runs in between, with interrupts masked, and so do the functions
//! that it calls. (Snippets, see [`snippet_cell`], call nothing and may run unmasked.) It takes no lock that
//! interrupted code may hold, and allocates nothing. The linker places it in a region of its own, in which no probe is
//! accepted. The modules beside this one register and remove probes.
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
//! A boosted or optimized instruction runs after its hit, with the interrupt masks of the probed code. The others run
//! within the hit.
//!
//! A hit while handlers run on the same CPU executes the instruction and calls no handler; every probe on that
//! instruction counts it as missed. (A snippet counts it as a hit, unless a return probe shares the instruction.)
//!
//! The usual hit of a breakpoint, and every hit of a stub that calls a handler, goes through `trampoline/hit.S`. It
//! does what [`breakpoint`] does in the simple cases, and leaves the others to it.

pub(crate) mod arguments;
pub(crate) mod counters;
pub(crate) mod cpu;
pub(crate) mod disarm;
pub(crate) mod instance;
pub(crate) mod list;
pub(crate) mod origin;
pub(crate) mod point;
pub(crate) mod result;
pub(crate) mod returns;
pub(crate) mod snippet_cell;
pub(super) mod stack_position;
pub(crate) mod stack_walk;
pub(crate) mod stub;
pub(crate) mod table;
pub(crate) mod this_cpu;
pub(crate) mod trampoline;
pub(crate) mod unwind;
#[cfg(feature = "watchpoints")]
pub(crate) mod watch;

use core::fmt;
use core::marker::PhantomData;
use core::{mem, ptr};

use crate::exception::frame::TrapFrame;
use crate::insn;
use crate::kernel;
use cpu::Cpu;
use point::{ArmedProbe, Execution, Point};
use this_cpu::ThisCpu;

called_by_assembly! {
    /// Called before the probed instruction is executed. If it changes the pc, execution resumes there, and the
    /// instruction is not executed. [`Hit`] says what a handler may do.
    pub type PreHandler = fn(&mut Hit<'_>);
}
called_by_assembly! {
    /// Called after the probed instruction has been executed. [`Hit`] says what a handler may do.
    pub type PostHandler = fn(&mut Hit<'_>);
}

/// A hit, as a handler sees it.
///
/// Handlers run with all of PSTATE.DAIF masked. They must not wait, allocate, take a lock that the probed code may
/// hold, or use the floating-point registers, which the engine does not save.
///
/// A handler belongs in a section `.kprobes.text.handlers.NAME`, where the audit of an image looks for handlers, and
/// every function that it calls and that is not inlined in `.kprobes.text.NAME`. They cannot be probed there. Elsewhere
/// they can be: the probed instruction is then executed, and the probe on it counts the hit as missed.
#[derive(Debug)]
#[repr(transparent)]
pub struct Hit<'a> {
    frame: TrapFrame,
    /// The pointer keeps it on its CPU: a hit is neither `Send` nor `Sync`.
    _frame: PhantomData<(&'a mut TrapFrame, *mut ())>,
}

impl<'a> Hit<'a> {
    /// Byte offsets that lead from the address of a `Hit`, at which its [`TrapFrame`] lies, to the word that the probe
    /// was registered with, in the form of [`CallArguments::DATA`](arguments::CallArguments::DATA).
    #[doc(hidden)]
    pub const DATA: [u16; 3] = ArmedProbe::data_path(mem::offset_of!(TrapFrame, called_for));

    /// Makes the hit of the first probe of `point`. The point stays in place until the hit is over.
    #[inline]
    pub(in crate::probe) fn first(frame: &'a mut TrapFrame, point: &Point) -> &'a mut Self {
        Self::new(frame, ptr::from_ref(point).cast())
    }

    /// Makes the hit of the probe of `armed`, which stays in place until the hit is over.
    #[inline]
    fn new(frame: &'a mut TrapFrame, armed: *const ArmedProbe) -> &'a mut Self {
        frame.called_for = armed.expose_provenance() as u64;
        // SAFETY: `Hit` is `repr(transparent)` over `TrapFrame`, and the borrow of the frame passes to the result.
        unsafe { &mut *ptr::from_mut(frame).cast::<Self>() }
    }

    /// Returns the registers of the probed code.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> &TrapFrame {
        &self.frame
    }

    /// Returns the registers of the probed code, for modification.
    ///
    /// # Safety
    ///
    /// The probed code continues with the values that are written here, and must be able to. Only `x`, `sp`, `pc` and
    /// `pstate` are written: a frame that was copied earlier is not put in the place of this one.
    #[inline]
    pub unsafe fn frame_mut(&mut self) -> &mut TrapFrame {
        self.frame.written = 1;
        &mut self.frame
    }

    /// In a pre-handler: resumes execution after the probed instruction, without executing it.
    ///
    /// # Safety
    ///
    /// The probed code continues without the effect of the instruction, and must be able to.
    #[inline]
    pub unsafe fn skip(&mut self) {
        self.frame.written = 1;
        self.frame.pc = self.address() as u64 + 4;
    }

    /// Returns the virtual address of the probed instruction.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        ArmedProbe::of(self).address
    }

    /// Returns the word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        ArmedProbe::of(self).probe.data
    }
}

/// A probe was hit by an instruction that was being stepped in a slot. Execution cannot continue.
#[derive(Debug)]
struct HitInSlot<'a> {
    point: &'a Point,
    stepping: &'a Point,
}

/// Returns the virtual address of a function whose name `kprobes.x` selects only if names are mangled by v0.
#[cfg(target_os = "none")]
#[inline(always)]
pub(crate) fn function_of_a_trait() -> usize {
    <HitInSlot<'_> as fmt::Display>::fmt as *const () as usize
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

/// The outcome of a `brk #0x4`.
//
// The variants without a fault hold nothing, rather than a `bool`: values of different widths in one place are moved by
// a call of memcpy, which can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breakpoint {
    /// The breakpoint belongs to a probe, and has been handled.
    Handled,
    /// The breakpoint does not belong to a probe.
    Foreign,
    /// The simulated instruction takes this exception. The frame shows it at the instruction's own address, and this
    /// CPU has left the hit, as after [`faulted`].
    Raised(insn::Fault),
}

/// What has happened to the probed instruction.
enum Progress {
    Executed,
    /// It will be executed in its slot, which ends in [`stepped`].
    Stepping,
    /// It will be executed in its slot after the hit is over.
    Boosted,
    Raised(insn::Fault),
}

/// Handles a `brk #0x4` at `frame.pc`.
#[inline(never)]
pub(crate) fn breakpoint(frame: &mut TrapFrame) -> Breakpoint {
    // SAFETY: the vectors call this in the hit path, with interrupts masked; `point` is used only here.
    let Some(point) = (unsafe { table::lookup(frame.pc as usize) }) else { return Breakpoint::Foreign };
    let cpu = Cpu::current();
    // SAFETY: the vectors call this in the hit path, with interrupts masked; the result is used only here.
    if let Some((stepping, _)) = unsafe { cpu.stepping() } {
        kernel::fatal(frame, &HitInSlot { point, stepping });
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
        // The address that a handler sends execution to is not the target of the branch that led here.
        frame.pstate &= !TrapFrame::BRANCH_TYPE;
        cpu.leave();
        return Breakpoint::Handled;
    }
    match execute(cpu, point, true, frame) {
        Progress::Stepping => return Breakpoint::Handled,
        Progress::Boosted => {}
        Progress::Executed => call_post_handlers(point, frame),
        Progress::Raised(fault) => {
            undo(cpu, point, frame);
            return Breakpoint::Raised(fault);
        }
    }
    cpu.leave();
    Breakpoint::Handled
}

/// Handles a `brk #0x6` at `frame.pc`. Returns false if this is not the end of the slot that this CPU is stepping.
#[inline(never)]
pub(crate) fn stepped(frame: &mut TrapFrame) -> bool {
    let cpu = Cpu::current();
    // SAFETY: the vectors call this in the hit path, with interrupts masked; the result is used only here.
    let Some((point, slot_end)) = (unsafe { cpu.stepping() }) else { return false };
    if frame.pc != slot_end {
        return false;
    }
    frame.pc = point.address() as u64 + 4;
    // SAFETY: as for `stepping`, this is the hit path.
    if let Some(point) = unsafe { cpu.end_step(frame) } {
        call_post_handlers(point, frame);
        cpu.leave();
    }
    true
}

/// Ends the hit of `point`, whose instruction has faulted. No post-handler is called, and no function was entered: so
/// this takes back the hits of probes that have only a post-handler, and the calls that are followed.
#[inline(never)]
fn undo(cpu: &Cpu, point: &Point, frame: &mut TrapFrame) {
    for armed in point.armed_probes() {
        if armed.has_only_post() {
            armed.counters.take_back(cpu);
        }
    }
    returns::undo_entry(point.address(), frame);
    cpu.leave();
}

/// Handles an exception that is not a debug exception. If an instruction has faulted in its slot, the frame is changed
/// to show the fault at the address of the probed instruction, and this CPU leaves the hit. If the kernel repairs the
/// fault and resumes, the probe is hit again.
pub(crate) fn faulted(frame: &mut TrapFrame) {
    let cpu = Cpu::current();
    // SAFETY: interrupts have been masked since the instruction was sent to its slot, as in the hit path.
    if let Some((point, slot_end)) = unsafe { cpu.stepping() } {
        if frame.pc == slot_end - 4 {
            frame.set_interrupted(point.address() as u64);
            // SAFETY: as for `stepping` above, interrupts have been masked since the instruction was sent to its slot.
            if let Some(point) = unsafe { cpu.end_step(frame) } {
                undo(cpu, point, frame);
            }
        }
    } else if let Some(restart) = unwind::restart(frame, unwind::read_own_stack) {
        returns::undo_entry(restart.address, frame);
    }
}

/// Ends all hits on this CPU, because the kernel is about to report an error that stops it: no handler runs on this CPU
/// any more, and if the report hits a probe, only the instruction is executed. The calls in progress of the task are
/// marked as abandoned, and return without a handler. If `frame` is in a slot, or just after an instruction that was
/// stepped in one, it is changed to show the probed code, as in [`faulted`].
///
/// # Safety
///
/// Interrupts are masked, and no code that was interrupted on this CPU, as `frame` shows it, resumes.
pub(crate) unsafe fn abandon(frame: Option<&mut TrapFrame>) {
    let cpu = Cpu::current();
    // SAFETY: interrupts have been masked since the instruction was sent to its slot, as in the hit path.
    match (unsafe { cpu.stepping() }, frame) {
        (Some((point, slot_end)), Some(frame)) => {
            if let Some(offset @ (0 | 4)) = frame.pc.checked_sub(slot_end - 4) {
                frame.set_interrupted(point.address() as u64 + offset);
                // SAFETY: as for `stepping` above, interrupts have been masked since the instruction was sent to its
                // slot.
                unsafe { cpu.end_step(frame) };
            }
        }
        (None, Some(frame)) => {
            unwind::restart(frame, unwind::read_own_stack);
        }
        (_, None) => {}
    }
    cpu.abandon();
    list::TaskCalls::current().0.abandon();
}

called_by_assembly! {
    /// The pre-handler of a point with several probes. Calls the pre-handlers of all of them, until one sends execution
    /// elsewhere. The hit of the first probe has been counted already.
    #[inline(never)]
    pub(crate) fn call_all(hit: &mut Hit<'_>) {
        call_each(hit, |_| true, true);
    }
}

called_by_assembly! {
    /// The pre-handler for a full stub, at a point to which a probe was added that a stub cannot serve, after a CPU had
    /// entered the stub. Calls the pre-handlers of the other probes; the added one does not miss a hit that had begun
    /// before. No hit has been counted yet.
    #[inline(never)]
    pub(crate) fn call_earlier(hit: &mut Hit<'_>) {
        call_each(hit, |armed| armed.post.is_none(), false);
    }
}

/// Calls the pre-handlers of the point's armed probes for which `is_called` returns true, until one sends execution
/// elsewhere. If `is_counted`, the hit of the first probe has been counted already.
#[inline(always)]
fn call_each(hit: &mut Hit<'_>, is_called: impl Fn(&ArmedProbe) -> bool, mut is_counted: bool) {
    // SAFETY: this is the hit path, and the handlers that call this run only for the first armed probe of a point.
    let point = unsafe { Point::beginning_with(ArmedProbe::place(hit)) };
    let cpu = Cpu::current();
    returns::note(hit.frame.x[30]);
    let mut armed_probes = point.armed_probes().iter();
    for armed in &mut armed_probes {
        if !is_called(armed) {
            continue;
        }
        if !is_counted {
            armed.counters.hit(cpu);
        }
        is_counted = false;
        (armed.handler)(Hit::new(&mut hit.frame, armed));
        if hit.frame.pc != point.address() as u64 {
            for earlier in point.armed_probes() {
                if ptr::eq(earlier, armed) {
                    break;
                }
                // What it was to be told comes after the instruction.
                if is_called(earlier) && earlier.has_only_post() {
                    earlier.counters.take_back(cpu);
                    earlier.counters.miss(cpu);
                }
            }
            break;
        }
    }
    // The instruction that these armed probes wait for is not executed.
    armed_probes.filter(|armed| is_called(armed)).for_each(|armed| armed.probe.counters.miss(cpu));
}

called_by_assembly! {
    /// The pre-handler of a probe that has none: does nothing.
    pub(crate) fn noop_handler(_: &mut Hit<'_>) {}
}

#[inline(never)]
fn call_post_handlers(point: &Point, frame: &mut TrapFrame) {
    let next = frame.pc;
    // The vectors have stored the address where the exception was taken, which may be in a slot.
    frame.record[1] = next;
    for armed in point.armed_probes() {
        if let Some(handler) = armed.post {
            handler(Hit::new(frame, armed));
        }
    }
    if frame.pc != next {
        frame.pstate &= !TrapFrame::BRANCH_TYPE;
    }
}

/// Executes the instruction of `point`, or sends `frame` to its copy. If `is_told`, [`stepped`] calls the post-handlers
/// after the step.
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
