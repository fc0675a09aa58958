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
//!      ▲                                  ├─► stepped:  [insn][brk #6] ── brk #6 ─┘                  │
//!      │                                  └─► boosted:  [insn][b next] ─┐                            │
//!      └────────────────────────────────────────────────────────────────┴────────────────────────────┘
//! ```
//!
//! A boosted instruction runs when the hit is over, with the interrupt masks of the probed code; the others run within.
//!
//! A hit while handlers run on the same CPU executes its instruction and calls nobody; every probe there counts
//! it as missed.

pub(crate) mod counters;
pub(crate) mod cpu;
pub(crate) mod instance;
mod list;
mod machine;
pub(crate) mod origin;
pub(crate) mod point;
pub(crate) mod returns;
pub(crate) mod table;

use core::fmt;

use crate::exception::TrapFrame;
use crate::insn;
use crate::platform;
use cpu::Cpu;
use machine::ThisCpu;
use point::{Execution, Kind, Plan, Point};

/// Called before the probed instruction is executed: unless it changes the pc, at which execution then resumes instead.
pub type PreHandler = fn(&mut Hit<'_>);
/// Called after the probed instruction has been executed.
pub type PostHandler = fn(&mut Hit<'_>);

/// A hit, as a handler sees it.
///
/// Handlers run with interrupts masked and must not wait, allocate, or take a lock that the probed code may
/// hold. A probe that they run into is executed and counted as missed.
#[derive(Debug)]
pub struct Hit<'a> {
    frame: &'a mut TrapFrame,
    address: usize,
    data: usize,
}

impl Hit<'_> {
    /// The registers of the probed code.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> &TrapFrame {
        self.frame
    }

    /// The registers of the probed code, to be changed.
    ///
    /// # Safety
    ///
    /// The probed code goes on with what is written here: it must be something that it can go on with.
    #[inline]
    pub unsafe fn frame_mut(&mut self) -> &mut TrapFrame {
        self.frame
    }

    /// In a pre-handler: has execution resume behind the probed instruction, without executing it.
    ///
    /// # Safety
    ///
    /// The probed code goes on without the effect of the instruction: it must be able to.
    #[inline]
    pub unsafe fn skip(&mut self) {
        self.frame.pc = self.address as u64 + 4;
    }

    /// The virtual address of the probed instruction.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// The word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
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
            self.point.address, self.stepping.address
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
pub(crate) fn breakpoint(frame: &mut TrapFrame) -> Breakpoint {
    // SAFETY: this is the hit path.
    let Some(point) = (unsafe { table::lookup(frame.pc as usize) }) else { return Breakpoint::Foreign };
    let Some(plan) = point.plan() else { return Breakpoint::Foreign };
    let cpu = Cpu::current();
    if let Some((stepping, _)) = cpu.stepping() {
        platform::fatal(frame, &HitInSlot { point, stepping });
    }
    if cpu.is_handling() {
        plan.miss(cpu);
        return match execute(cpu, point, plan, None, frame) {
            Progress::Raised(fault) => Breakpoint::Raised(fault),
            Progress::Executed | Progress::Stepping | Progress::Boosted => Breakpoint::Handled,
        };
    }
    cpu.enter();
    if !call_pre_handlers(cpu, point, plan, frame) {
        // Where a handler goes on is no target of the branch that led here.
        frame.pstate &= !TrapFrame::BRANCH_TYPE;
        cpu.leave();
        return Breakpoint::Handled;
    }
    match execute(cpu, point, plan, Some(plan), frame) {
        Progress::Stepping => return Breakpoint::Handled,
        Progress::Boosted => {}
        Progress::Executed => call_post_handlers(point, plan, frame),
        Progress::Raised(fault) => {
            returns::take_back(point.address, frame);
            cpu.leave();
            return Breakpoint::Raised(fault);
        }
    }
    cpu.leave();
    Breakpoint::Handled
}

/// A `brk #0x6` at `frame.pc`. Returns false if it is not the end of the slot that this CPU is in.
pub(crate) fn stepped(frame: &mut TrapFrame) -> bool {
    let cpu = Cpu::current();
    let Some((point, slot)) = cpu.stepping() else { return false };
    if frame.pc != slot + 4 {
        return false;
    }
    frame.pc = point.address as u64 + 4;
    if let Some(plan) = cpu.end_step(frame) {
        call_post_handlers(point, plan, frame);
        cpu.leave();
    }
    true
}

/// Any other exception. If it is an instruction in its slot that has faulted, it is shown to have faulted at the address
/// that it was probed at, with this CPU out of the hit; should the kernel repair the fault and resume, the probe is hit
/// again.
pub(crate) fn faulted(frame: &mut TrapFrame) {
    let cpu = Cpu::current();
    if let Some((point, slot)) = cpu.stepping() {
        if frame.pc == slot {
            frame.pc = point.address as u64;
            if cpu.end_step(frame).is_some() {
                returns::take_back(point.address, frame);
                cpu.leave();
            }
        }
    } else if let Some(address) = origin::of(frame.pc as usize) {
        frame.pc = address as u64;
        returns::take_back(address, frame);
    }
}

/// The kernel is about to report something that it will not survive: no handler runs on this CPU any more, and the
/// instructions of probes that are hit by the report are executed. `frame`, if it is in a slot, or behind an instruction
/// that was stepped there, is put right as in [`faulted`].
pub(crate) fn abandon(frame: Option<&mut TrapFrame>) {
    let cpu = Cpu::current();
    match (cpu.stepping(), frame) {
        (Some((point, slot)), Some(frame)) => {
            if let Some(offset @ (0 | 4)) = frame.pc.checked_sub(slot) {
                frame.pc = point.address as u64 + offset;
                cpu.end_step(frame);
            }
        }
        (None, Some(frame)) => {
            if let Some(address) = origin::of(frame.pc as usize) {
                frame.pc = address as u64;
            }
        }
        (_, None) => {}
    }
    cpu.abandon();
}

/// Runs the pre-handlers. Returns whether the probed instruction is still to be executed.
#[inline]
fn call_pre_handlers(cpu: &Cpu, point: &Point, plan: &Plan, frame: &mut TrapFrame) -> bool {
    let mut probes = plan.probes.iter();
    for probe in &mut probes {
        match &probe.kind {
            Kind::Kprobe { pre, .. } => {
                probe.counters.hit(cpu);
                if let Some(handler) = pre {
                    handler(&mut Hit { frame, address: point.address, data: probe.data });
                }
            }
            Kind::Return(return_probe) => returns::function_entered(cpu, probe, return_probe, frame),
        }
        if frame.pc != point.address as u64 {
            // The instruction that the others wait for is not executed.
            probes.for_each(|probe| probe.counters.miss(cpu));
            return false;
        }
    }
    true
}

fn call_post_handlers(point: &Point, plan: &Plan, frame: &mut TrapFrame) {
    let next = frame.pc;
    for probe in &plan.probes {
        if let Kind::Kprobe { post: Some(handler), .. } = &probe.kind {
            handler(&mut Hit { frame, address: point.address, data: probe.data });
        }
    }
    if frame.pc != next {
        frame.pstate &= !TrapFrame::BRANCH_TYPE;
    }
}

/// Executes the instruction of `point`, or sends `frame` to the slot for it; the probes of `told` are then told in
/// [`stepped`].
#[inline]
fn execute(cpu: &Cpu, point: &Point, plan: &Plan, told: Option<&Plan>, frame: &mut TrapFrame) -> Progress {
    match plan.execution {
        Execution::Simulated(operation) => match operation.simulate(frame, &ThisCpu { guarded: point.guarded }) {
            Ok(()) => Progress::Executed,
            Err(fault) => Progress::Raised(fault),
        },
        Execution::Stepped { slot } => {
            cpu.begin_step(point, slot, told, frame);
            Progress::Stepping
        }
        Execution::Boosted { slot } => {
            frame.pc = slot as u64;
            Progress::Boosted
        }
    }
}
