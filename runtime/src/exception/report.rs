//! The report of a defect: what happened, where, with which registers, in which task, and the chain of callers.
//!
//! The functions that a report prints with may have probes on them. So before a CPU that reports calls anything that
//! can be probed, it tells the engine that it abandons its probes.

use core::fmt;

use aarch64_kprobes::exception::{self, TrapFrame};
use kprobes_console::symbol::{ReturnAddress, Symbolic};
use kprobes_syndrome::{Cause, ProcessorState, Syndrome};

use crate::machine::Extent;
use crate::memory::layout::{self, STACK_SIZE};
use crate::{backtrace, machine, print, println, task};

/// Reports an exception that came by the vector with the number `vector`, from 0 to 15, and stops the machine.
pub(super) fn unexpected(frame: &TrapFrame, vector: u64, esr: u64, far: u64) -> ! {
    let reason = Reason { vector, cause: Cause { syndrome: Syndrome(esr), far } };
    begin(frame, &reason);
    println!("exception: {}", VectorName(vector));
    if !reason.is_interrupt() {
        syndrome(&reason.cause);
    }
    details(frame);
    machine::stop(format_args!("{reason} {}", InterruptedCode(frame)))
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
    // From the start of the guard to where a frame would begin to fit.
    let is_overflow = (stack.start - STACK_SIZE..stack.start + TrapFrame::SIZE).contains(&sp);
    machine::stop(format_args!(
        "{} at {}: sp is {sp:#018x} and the stack from {:#018x} to {:#018x}",
        if is_overflow { "stack overflow" } else { "stack pointer outside the stack" },
        InterruptedCode(frame),
        stack.start,
        stack.end,
    ))
}

/// Reports `reason` with the registers in `frame`, which were saved on this CPU, and stops the machine. Lies in the
/// section that refuses probes, because a probe that is hit here would lead back here.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.runtime_fatal")]
pub fn fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> ! {
    // SAFETY: the machine ends with the report. Interrupts are masked, because they are masked during a hit.
    unsafe { exception::abandon_cpu() };
    begin(frame, reason);
    println!("fatal: {reason}");
    details(frame);
    machine::stop(format_args!("{reason}, at {}", InterruptedCode(frame)))
}

/// Begins a report. If a report on this CPU has failed already, stops the machine with one line instead.
fn begin(frame: &TrapFrame, reason: &dyn fmt::Display) {
    if machine::begin_report() == Extent::Line {
        machine::stop(format_args!("an exception during a report: {reason} {:#018x}", frame.pc));
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
    print!("{}", backtrace::of_frame(frame).with_lines());
}

fn print_row(first: usize, registers: &[u64]) {
    for (index, value) in registers.iter().enumerate() {
        print!("  x{:<2} {value:#018x}", first + index);
    }
    println!();
}

/// Why the machine stops. A place in the code follows in the sentence.
struct Reason {
    vector: u64,
    cause: Cause,
}

impl Reason {
    /// IRQ and FIQ have no syndrome: ESR_EL1 still holds that of an earlier exception.
    fn is_interrupt(&self) -> bool {
        matches!(self.vector % 4, 1 | 2)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.is_interrupt() { write!(f, "unexpected {} at", VectorName(self.vector)) } else { self.cause.fmt(f) }
    }
}

/// The place of the interrupted code and its task: `runtime::foo+0x1c/0x40 (task 3 main)`.
struct InterruptedCode<'a>(&'a TrapFrame);

impl fmt::Display for InterruptedCode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let task = task::current();
        // After a jump to nowhere, pc says nothing. x30 then names the likely culprit, as the jump was most likely a
        // call.
        let pc = self.0.pc as usize;
        if layout::text().contains(&pc) {
            write!(f, "{}", Symbolic(pc))?;
        } else {
            write!(f, "a call from {}", ReturnAddress(self.0.x[30] as usize))?;
        }
        write!(f, " (task {} {})", task.id(), task.name())
    }
}

/// The name of a vector by its number (Arm ARM, D1.4.1).
struct VectorName(u64);

impl fmt::Display for VectorName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let kind = ["synchronous exception", "IRQ", "FIQ", "SError"][(self.0 % 4) as usize];
        let origin = ["EL1 with SP_EL0", "EL1 with SP_EL1", "EL0 in AArch64 state", "EL0 in AArch32 state"]
            [(self.0 / 4 % 4) as usize];
        write!(f, "{kind} from {origin}, vector {:#05x}", self.0 * 0x80)
    }
}
