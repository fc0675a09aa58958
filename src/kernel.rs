//! The services of the kernel, as functions.
//!
//! The linker binds the functions to the kernel's [`Platform`](crate::platform::Platform), not a pointer or a type
//! parameter. So the hit path consists of direct calls, which a reader and a tool can follow to their end, and no type
//! in the engine carries the kernel's name.

use core::fmt;
use core::ops::Range;

use crate::exception::frame::TrapFrame;
use crate::interrupts::are_masked;

mod exported {
    use super::{Range, TrapFrame, fmt};

    // The definitions are the safe functions that `platform!` generates from a `Platform`, in the same image and
    // with the same signatures.
    unsafe extern "Rust" {
        /// [`Platform::cpus`](crate::platform::Platform::cpus) of the kernel.
        #[cfg(target_os = "none")]
        pub safe fn kprobes_platform_cpus() -> usize;
        /// [`Platform::text`](crate::platform::Platform::text) of the kernel.
        pub safe fn kprobes_platform_text() -> Range<usize>;
        pub safe fn kprobes_platform_function(address: usize) -> Option<Range<usize>>;
        pub safe fn kprobes_platform_has_data(addresses: Range<usize>) -> bool;
        pub safe fn kprobes_platform_survey() -> &'static [u8];
        pub safe fn kprobes_platform_with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8));
        pub safe fn kprobes_platform_is_guarded(address: usize) -> bool;
        /// [`Platform::allocate_executable`](crate::platform::Platform::allocate_executable) of the kernel.
        pub safe fn kprobes_platform_allocate_executable(length: usize, guarded: bool) -> Option<usize>;
        /// [`Platform::hold_cpus`](crate::platform::Platform::hold_cpus) of the kernel.
        pub safe fn kprobes_platform_hold_cpus(action: &mut dyn FnMut());
        pub safe fn kprobes_platform_interrupted(each: &mut dyn FnMut(usize));
        /// [`Platform::on_each_cpu`](crate::platform::Platform::on_each_cpu) of the kernel.
        #[cfg(feature = "watchpoints")]
        pub safe fn kprobes_platform_on_each_cpu(action: fn()) -> bool;
        /// [`Platform::yield_now`](crate::platform::Platform::yield_now) of the kernel.
        pub safe fn kprobes_platform_yield_now();
        #[cfg(any(target_os = "none", test))]
        pub safe fn kprobes_platform_stack(pointer: usize) -> Option<Range<usize>>;
        pub safe fn kprobes_platform_fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> !;
    }
}

/// Returns the number of CPUs.
#[cfg(target_os = "none")]
pub use exported::kprobes_platform_cpus as cpus;
#[cfg(feature = "watchpoints")]
pub(crate) use exported::kprobes_platform_on_each_cpu as on_each_cpu;
#[cfg(any(target_os = "none", test))]
pub(crate) use exported::kprobes_platform_stack as stack;
pub use exported::{
    kprobes_platform_allocate_executable as allocate_executable, kprobes_platform_text as text,
    kprobes_platform_yield_now as yield_now,
};
pub(crate) use exported::{
    kprobes_platform_fatal as fatal, kprobes_platform_function as function, kprobes_platform_has_data as has_data,
    kprobes_platform_interrupted as interrupted, kprobes_platform_is_guarded as is_guarded,
    kprobes_platform_survey as survey, kprobes_platform_with_writable as with_writable,
};

/// Calls `action` as [`Platform::hold_cpus`](crate::platform::Platform::hold_cpus) does.
///
/// # Panics
///
/// If interrupts are masked, as they are in a handler and in the action of another call: two CPUs would wait for each
/// other.
pub fn hold_cpus(action: &mut dyn FnMut()) {
    assert!(!are_masked(), "CPUs cannot be held with interrupts masked");
    exported::kprobes_platform_hold_cpus(action);
}

/// Returns the number of CPUs that tests on the host may use.
#[cfg(not(target_os = "none"))]
#[must_use]
pub fn cpus() -> usize {
    HOST_CPUS
}

#[cfg(not(target_os = "none"))]
pub(crate) const HOST_CPUS: usize = 8;

/// Knows no stack: the tests of other crates run on the host, without a kernel.
#[cfg(not(any(target_os = "none", test)))]
pub(crate) fn stack(_pointer: usize) -> Option<Range<usize>> {
    None
}

/// Offsets in bytes from the address in TPIDR_EL1.
#[cfg(target_os = "none")]
mod offsets {
    /// Evaluates to an absolute symbol, whose value is below 4096.
    macro_rules! absolute {
        ($symbol:literal) => {{
            let value: u64;
            // SAFETY: the instructions only compute the value of the symbol in the output register.
            unsafe {
                core::arch::asm!(
                    "mov {0}, #0",
                    concat!("add {0}, {0}, #:lo12:", $symbol),
                    out(reg) value,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            value as u16
        }};
    }

    /// Returns the offset of the word that holds the address of the CPU's state.
    pub fn cpu_offset() -> u16 {
        absolute!("kprobes_cpu_offset")
    }

    /// Returns the offset of the calls of the task.
    pub fn calls_offset() -> u16 {
        absolute!("kprobes_calls_offset")
    }
}

/// The tests on the host have no TPIDR_EL1.
#[cfg(not(target_os = "none"))]
mod offsets {
    pub fn cpu_offset() -> u16 {
        0
    }

    pub fn calls_offset() -> u16 {
        0
    }
}

pub(crate) use offsets::{calls_offset, cpu_offset};

/// Returns the virtual addresses of the platform functions that are called while a probe is handled or text is written.
#[cfg(target_os = "none")]
pub(crate) fn at_a_hit() -> [usize; 3] {
    [stack as *const () as usize, fatal as *const () as usize, with_writable as *const () as usize]
}
