//! The report of a defect: what happened, where, with which registers, in which task, called by whom.
//!
//! A report runs into probes, if there are any on what it prints with. The CPU that begins one has told the engine to leave
//! them behind on this CPU before anything is called that can be probed.

use core::fmt;

use aarch64_kprobes::exception::{self, TrapFrame};

use super::cause::Cause;
use super::pstate::ProcessorState;
use super::syndrome::Syndrome;
use crate::machine::Extent;
use crate::memory::layout::{self, STACK_SIZE};
use crate::{backtrace, machine, print, println, task};
use kprobes_console::symbol::{ReturnAddress, Symbolic};

/// Reports an exception that came by the vector with the number `vector`, from 0 to 15, and stops the machine.
pub(super) fn unexpected(frame: &TrapFrame, vector: u64, esr: u64, far: u64) -> ! {
    let reason = Reason { vector, cause: Cause { syndrome: Syndrome(esr), far } };
    begin(frame, &reason);
    println!("exception: {}", VectorName(vector));
    if !reason.is_interrupt() {
        syndrome(&reason.cause);
    }
    details(frame);
    machine::stop(format_args!("{reason} {}", Place(frame)))
}

/// Reports that the stack pointer has left the stack of the current task, and stops the machine.
pub(super) fn stack_overflow(frame: &TrapFrame, esr: u64, far: u64) -> ! {
    begin(frame, &"stack overflow");
    println!("exception: no room for a trap frame below sp");
    syndrome(&Cause { syndrome: Syndrome(esr), far });
    details(frame);
    let task = task::current();
    let stack = task.stack();
    let sp = frame.sp as usize;
    // From where the guard begins to where a frame would begin to fit.
    let is_overflow = (stack.start - STACK_SIZE..stack.start + TrapFrame::SIZE).contains(&sp);
    machine::stop(format_args!(
        "{} at {}: sp is {sp:#018x} and the stack from {:#018x} to {:#018x}",
        if is_overflow { "stack overflow" } else { "stack pointer outside the stack" },
        Place(frame),
        stack.start,
        stack.end,
    ))
}

/// Reports `reason` with the registers in `frame`, which were saved on this CPU, and stops the machine. It lies with the
/// code that refuses probes, as it is called where a probe that is hit leads back here.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.runtime_fatal")]
pub fn fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> ! {
    // SAFETY: the report ends with the machine, and this is called with interrupts masked, as the hit is.
    unsafe { exception::abandon_cpu() };
    begin(frame, reason);
    println!("fatal: {reason}");
    details(frame);
    machine::stop(format_args!("{reason}, at {}", Place(frame)))
}

/// Begins a report, or ends the one that has failed.
fn begin(frame: &TrapFrame, reason: &dyn fmt::Display) {
    if machine::begin_report() == Extent::Line {
        machine::stop(format_args!("another exception in a report: {reason} {:#018x}", frame.pc));
    }
    println!();
}

fn syndrome(cause: &Cause) {
    println!("  esr {:#018x}  {}", cause.syndrome.0, cause.syndrome);
    if cause.syndrome.has_address() {
        println!("  far {:#018x}", cause.far);
    }
}

fn details(frame: &TrapFrame) {
    println!("  pc  {:#018x}  {}", frame.pc, Symbolic(frame.pc as usize));
    println!("  lr  {:#018x}  {}", frame.x[30], Symbolic(frame.x[30] as usize));
    println!("  sp  {:#018x}", frame.sp);
    println!("  pstate {:#010x}  {}", frame.pstate, ProcessorState(frame.pstate));
    for (row, registers) in frame.x.chunks(4).enumerate() {
        print_row(4 * row, registers);
    }
    let task = task::current();
    println!("  task {} {}, CPU {}", task.id(), task.name(), task::current_cpu());
    println!("backtrace:");
    print!("{}", backtrace::of_frame(frame));
}

fn print_row(first: usize, registers: &[u64]) {
    for (index, value) in registers.iter().enumerate() {
        print!("  x{:<2} {value:#018x}", first + index);
    }
    println!();
}

/// Why the machine stops, to go on with a place in the code.
struct Reason {
    vector: u64,
    cause: Cause,
}

impl Reason {
    /// IRQ and FIQ have no syndrome; what ESR_EL1 holds is that of an earlier exception.
    fn is_interrupt(&self) -> bool {
        matches!(self.vector % 4, 1 | 2)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.is_interrupt() { write!(f, "unexpected {} at", VectorName(self.vector)) } else { self.cause.fmt(f) }
    }
}

/// Where the interrupted code is, and whose it is: `runtime::foo+0x1c/0x40 (task 3 main)`.
struct Place<'a>(&'a TrapFrame);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let task = task::current();
        // After a jump to nowhere pc says nothing; x30 tells who made it, as it was a call in all likelihood.
        let pc = self.0.pc as usize;
        if layout::text().contains(&pc) {
            write!(f, "{}", Symbolic(pc))?;
        } else {
            write!(f, "a call from {}", ReturnAddress(self.0.x[30] as usize))?;
        }
        write!(f, " (task {} {})", task.id(), task.name())
    }
}

/// What a vector is for (Arm ARM, D1.4.1).
struct VectorName(u64);

impl fmt::Display for VectorName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let kind = ["synchronous exception", "IRQ", "FIQ", "SError"][(self.0 % 4) as usize];
        let origin = ["EL1 with SP_EL0", "EL1 with SP_EL1", "EL0 in AArch64 state", "EL0 in AArch32 state"]
            [(self.0 / 4 % 4) as usize];
        write!(f, "{kind} from {origin}, vector {:#05x}", self.0 * 0x80)
    }
}
