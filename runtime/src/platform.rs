//! The implementation of the engine's `Platform` trait for this kernel.

use core::fmt;
use core::ops::Range;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::platform::Platform;

use crate::memory::{self, layout};
use kprobes_console::symbol;

use crate::per_cpu::MAX_CPUS;
use crate::{exception, smp, task};

/// The kernel as the engine sees it.
struct Runtime;

aarch64_kprobes::platform!(Runtime);

// SAFETY: trampoline/vectors.S passes breakpoint exceptions to the engine on the stack of the interrupted code, with
// PSTATE.DAIF masked as the CPU does on every exception. TPIDR_EL1 points to the task that runs, which holds the
// address of its CPU's state. The functions that the methods call keep the rest of the contract.
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

    fn survey() -> &'static [u8] {
        symbol::survey()
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

    fn on_each_cpu(action: fn()) -> bool {
        smp::on_each_cpu(action);
        true
    }

    fn yield_now() {
        task::yield_now();
    }

    #[inline(always)]
    fn stack(pointer: usize) -> Option<Range<usize>> {
        memory::stack::containing(pointer)
    }

    /// This function and those that it calls are inlined into code that cannot be probed, or lie in that region
    /// themselves.
    #[inline(always)]
    fn fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> ! {
        exception::fatal(frame, reason)
    }
}
