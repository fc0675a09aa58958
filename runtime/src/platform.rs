//! What the engine asks of a kernel, answered by this one.

use core::fmt;
use core::ops::Range;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::platform::Platform;

use crate::memory::{self, layout};
use kprobes_console::symbol;

use crate::per_cpu::MAX_CPUS;
use crate::{exception, smp, task};

/// This kernel.
struct Runtime;

aarch64_kprobes::platform!(Runtime);

// SAFETY: breakpoint exceptions reach the engine by trampoline/vectors.S, on the stack of the interrupted code and with
// PSTATE.DAIF masked, as the CPU does on every exception. TPIDR_EL1 points to the task that runs, which has the state of the
// CPU that it runs on. The rest is as each function says.
unsafe impl Platform for Runtime {
    const CPUS: usize = MAX_CPUS;
    const CPU_OFFSET: usize = task::CPU_OFFSET;
    const CALLS_OFFSET: usize = task::CALLS_OFFSET;

    fn cpus() -> usize {
        smp::possible()
    }

    fn text() -> Range<usize> {
        layout::text()
    }

    fn function(address: usize) -> Option<Range<usize>> {
        symbol::function(address)
    }

    fn has_data(addresses: Range<usize>) -> bool {
        symbol::has_data(addresses)
    }

    fn with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8)) {
        memory::with_writable(address, length, write);
    }

    fn is_guarded(address: usize) -> bool {
        memory::is_guarded(address)
    }

    fn allocate_executable(length: usize, guarded: bool) -> Option<usize> {
        memory::allocate_executable(length, guarded).ok()
    }

    fn hold_cpus(action: &mut dyn FnMut()) {
        smp::hold_cpus(action);
    }

    #[inline(always)]
    fn interrupted(each: &mut dyn FnMut(usize)) {
        smp::interrupted(each);
    }

    fn yield_now() {
        task::yield_now();
    }

    #[inline(always)]
    fn stack(pointer: usize) -> Option<Range<usize>> {
        memory::stack::containing(pointer)
    }

    /// A part of its caller in the engine, and so of the region that cannot be probed, as what it calls is.
    #[inline(always)]
    fn fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> ! {
        exception::fatal(frame, reason)
    }
}
