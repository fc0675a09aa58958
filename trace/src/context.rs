//! Where and when a hit happened, and where the kernel keeps these values.
//!
//! Recording calls no function of the kernel: a call would cost more than the value it returns. Instead the kernel
//! names, once, the offsets in its own memory at which a hit loads the CPU number, the task and its name.

use aarch64_kprobes::Context as EngineContext;

/// Where and when a hit happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The number of the CPU, dense from 0.
    pub cpu: usize,
    /// The number of the task that was interrupted.
    pub task: u64,
    /// The name of the task in UTF-8, padded with zeros; the first 8 bytes are the first word, in little-endian order.
    pub name: [u64; 2],
    /// The system counter (CNTVCT_EL0), in ticks.
    pub time: u64,
}

/// Where the kernel keeps the values that every hit records. The offsets are in bytes from the virtual address in
/// TPIDR_EL1, and multiples of 8 up to 504. The defaults are those of the engine's
/// [`Context`](aarch64_kprobes::Context).
///
/// # Safety
///
/// The offsets are correct whenever a probe can be hit, wherever something is printed to the rings, and in the code
/// that a watched access or a sample interrupts. Every hit loads from them without a check.
///
/// A definition chooses the addresses that the hits of its event read: `x=@0x8010000c:u32`. An address without memory
/// gives no value, but a read of a device register may change the device. Let only trusted people define events: an
/// event can read any address.
pub unsafe trait ContextLayout {
    /// The offset of the number of this CPU, a `usize`, dense from 0.
    const CPU_OFFSET: usize = EngineContext::CPU_NUMBER;
    /// The offset of the number of the task that runs on this CPU, a `u64`.
    const TASK_OFFSET: usize = EngineContext::TASK;
    /// The offset of the name of this task: 16 bytes, padded with zeros. The text of a trace shows 15 of them, as Linux
    /// does.
    const NAME_OFFSET: usize = EngineContext::NAME;
}

/// The offsets of the image's [`ContextLayout`] as values, which the code of stubs contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The offset of the number of the CPU.
    pub cpu: usize,
    /// The offset of the number of the task.
    pub task: usize,
    /// The offset of the name of the task.
    pub name: usize,
}

impl Context {
    /// Returns the name of the task, padded with zeros.
    #[inline(always)]
    #[must_use]
    pub fn name_bytes(&self) -> &[u8; 16] {
        // SAFETY: two `u64`s are 16 bytes, and `u8` has no alignment. The bytes are in order because every target of
        // this crate is little-endian.
        unsafe { &*core::ptr::from_ref(&self.name).cast() }
    }
}

/// Loads the values that [`ContextLayout`] gives the offsets of.
#[cfg(target_os = "none")]
mod loads {
    use core::arch::asm;

    use super::{Context, Offsets};

    impl Offsets {
        /// Returns the offsets of the [`ContextLayout`](super::ContextLayout) of this image.
        #[must_use]
        pub fn of_image() -> Self {
            let (cpu, task, name);
            // SAFETY: the instructions only write the three output registers.
            unsafe {
                asm!(
                    "movz {cpu}, #:abs_g0:kprobes_trace_cpu_offset",
                    "movz {task}, #:abs_g0:kprobes_trace_task_offset",
                    "movz {name}, #:abs_g0:kprobes_trace_name_offset",
                    cpu = out(reg) cpu,
                    task = out(reg) task,
                    name = out(reg) name,
                    options(nomem, nostack, preserves_flags)
                );
            }
            Self { cpu, task, name }
        }
    }

    impl Context {
        /// Returns the number of this CPU. Valid only while a hit is handled or interrupts are masked, so that the task
        /// stays on this CPU.
        ///
        /// # Safety
        ///
        /// The caller must be where the image's [`ContextLayout`](super::ContextLayout) guarantees the offsets to be
        /// correct: where a probe can be hit, or where something is printed to the rings.
        #[inline(always)]
        #[doc(hidden)]
        #[must_use]
        pub unsafe fn cpu_here() -> usize {
            let cpu;
            // SAFETY: the caller is where the implementation of `ContextLayout` guarantees that the word at this offset
            // from TPIDR_EL1 is the number of the CPU (see # Safety of both).
            unsafe {
                asm!(
                    "mrs {cpu}, tpidr_el1",
                    "ldr {cpu}, [{cpu}, #:lo12:kprobes_trace_cpu_offset]",
                    cpu = out(reg) cpu,
                    options(nostack, preserves_flags)
                );
            }
            cpu
        }

        /// Returns the context of this CPU, now. Valid only while a hit is handled or interrupts are masked, so that
        /// the task stays on this CPU.
        ///
        /// # Safety
        ///
        /// The contract of [`cpu_here`](Self::cpu_here) applies.
        #[inline(always)]
        #[doc(hidden)]
        #[must_use]
        pub unsafe fn here() -> Self {
            let (cpu, task, low, high, time);
            // SAFETY: the caller is where the implementation of `ContextLayout` guarantees that these values are at the
            // offsets from TPIDR_EL1 (see # Safety of both). The counter is read without a barrier: a few instructions
            // earlier or later make no difference.
            unsafe {
                asm!(
                    "mrs {high}, tpidr_el1",
                    "ldr {cpu}, [{high}, #:lo12:kprobes_trace_cpu_offset]",
                    "ldr {task}, [{high}, #:lo12:kprobes_trace_task_offset]",
                    "add {high}, {high}, #:lo12:kprobes_trace_name_offset",
                    "mrs {time}, cntvct_el0",
                    "ldp {low}, {high}, [{high}]",
                    cpu = out(reg) cpu,
                    task = out(reg) task,
                    low = out(reg) low,
                    high = out(reg) high,
                    time = out(reg) time,
                    options(nostack, preserves_flags)
                );
            }
            Self { cpu, task, name: [low, high], time }
        }
    }
}

/// The host's programs have no kernel: one CPU, one task, and no time.
#[cfg(not(target_os = "none"))]
mod loads {
    use super::{Context, Offsets};

    impl Offsets {
        /// Returns zeros, from which nothing is loaded.
        #[must_use]
        pub fn of_image() -> Self {
            Self { cpu: 0, task: 0, name: 0 }
        }
    }

    impl Context {
        /// Returns 0.
        ///
        /// # Safety
        ///
        /// There is no condition here. On the target there is one.
        #[doc(hidden)]
        #[must_use]
        pub unsafe fn cpu_here() -> usize {
            0
        }

        /// Returns zeros.
        ///
        /// # Safety
        ///
        /// There is no condition here. On the target there is one.
        #[doc(hidden)]
        #[must_use]
        pub unsafe fn here() -> Self {
            Self::default()
        }
    }
}

/// Exports an implementation of [`ContextLayout`]: `context_layout!(MyKernel);`, once in an image.
#[macro_export]
macro_rules! context_layout {
    ($layout:ty) => {
        #[cfg(target_os = "none")]
        ::core::arch::global_asm!(
            ".global kprobes_trace_cpu_offset",
            ".set kprobes_trace_cpu_offset, {cpu}",
            ".global kprobes_trace_task_offset",
            ".set kprobes_trace_task_offset, {task}",
            ".global kprobes_trace_name_offset",
            ".set kprobes_trace_name_offset, {name}",
            cpu = const <$layout as $crate::context::ContextLayout>::CPU_OFFSET,
            task = const <$layout as $crate::context::ContextLayout>::TASK_OFFSET,
            name = const <$layout as $crate::context::ContextLayout>::NAME_OFFSET,
        );
        const _: () = {
            const fn is_offset(offset: usize) -> bool {
                offset % 8 == 0 && offset <= 504
            }
            assert!(is_offset(<$layout as $crate::context::ContextLayout>::CPU_OFFSET));
            assert!(is_offset(<$layout as $crate::context::ContextLayout>::TASK_OFFSET));
            assert!(is_offset(<$layout as $crate::context::ContextLayout>::NAME_OFFSET));
        };
    };
}
