//! What a kernel provides so that the trace layer can record in it and print what it recorded.
//!
//! What recording needs of the kernel it loads from the kernel's own memory, at places that the kernel names once: a call would
//! cost more than what it tells. Printing happens in a task and takes its services as parameters.

use aarch64_kprobes::Context as Place;
use kprobes_types::{LineError, Types};

/// Where and when a hit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The number of the CPU, dense from 0.
    pub cpu: usize,
    /// The number of the task that was interrupted.
    pub task: u64,
    /// The name of the task in UTF-8, filled up with zeros; the first 8 bytes are the first word, in little-endian order.
    pub name: [u64; 2],
    /// The system counter (CNTVCT_EL0), in ticks.
    pub time: u64,
}

/// Where the kernel keeps what every hit asks for: in bytes from the virtual address in TPIDR_EL1, multiples of 8 up to 504. By
/// default where the engine's [`Context`](aarch64_kprobes::Context) has it.
///
/// # Safety
///
/// What is said here is true: it is loaded without a question.
pub unsafe trait Host {
    /// Where the number of this CPU is, a `usize`: dense from 0.
    const CPU_OFFSET: usize = Place::CPU_NUMBER;
    /// Where the number of the task that runs on it is, a `u64`.
    const TASK_OFFSET: usize = Place::TASK;
    /// Where the name of this task is, 16 bytes filled up with zeros.
    const NAME_OFFSET: usize = Place::NAME;
}

/// Where the kernel keeps what stubs record, as its [`Host`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The number of the CPU.
    pub cpu: usize,
    /// The number of the task.
    pub task: usize,
    /// Its name.
    pub name: usize,
}

#[cfg(target_os = "none")]
impl Offsets {
    /// What the [`Host`] of this image says.
    #[must_use]
    pub fn of_host() -> Self {
        let (cpu, task, name);
        // SAFETY: it writes three registers.
        unsafe {
            core::arch::asm!(
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
    /// The name of the task, filled up with zeros.
    #[inline(always)]
    #[must_use]
    pub fn name_bytes(&self) -> &[u8; 16] {
        // SAFETY: two words have as many bytes, of which the first is the lowest in memory on every target of this crate.
        unsafe { &*core::ptr::from_ref(&self.name).cast() }
    }
}

#[cfg(target_os = "none")]
impl Context {
    /// The number of this CPU. Only while a hit is handled.
    #[inline(always)]
    #[doc(hidden)]
    #[must_use]
    pub fn cpu_here() -> usize {
        let cpu;
        // SAFETY: as below.
        unsafe {
            core::arch::asm!(
                "mrs {cpu}, tpidr_el1",
                "ldr {cpu}, [{cpu}, #:lo12:kprobes_trace_cpu_offset]",
                cpu = out(reg) cpu,
                options(nostack, preserves_flags)
            );
        }
        cpu
    }

    /// Of this CPU, now. Only while a hit is handled.
    #[inline(always)]
    #[doc(hidden)]
    #[must_use]
    pub fn here() -> Self {
        let (cpu, task, low, high, time);
        // SAFETY: the kernel promises that all this is there. The counter is read without a barrier: a few instructions earlier
        // or later make no difference.
        unsafe {
            core::arch::asm!(
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

/// Exports an implementation of [`Host`]: `host!(MyKernel);`, once in an image.
#[macro_export]
macro_rules! host {
    ($host:ty) => {
        #[cfg(target_os = "none")]
        ::core::arch::global_asm!(
            ".global kprobes_trace_cpu_offset",
            ".set kprobes_trace_cpu_offset, {cpu}",
            ".global kprobes_trace_task_offset",
            ".set kprobes_trace_task_offset, {task}",
            ".global kprobes_trace_name_offset",
            ".set kprobes_trace_name_offset, {name}",
            cpu = const <$host as $crate::host::Host>::CPU_OFFSET,
            task = const <$host as $crate::host::Host>::TASK_OFFSET,
            name = const <$host as $crate::host::Host>::NAME_OFFSET,
        );
        const _: () = {
            const fn is_offset(offset: usize) -> bool {
                offset % 8 == 0 && offset <= 504
            }
            assert!(is_offset(<$host as $crate::host::Host>::CPU_OFFSET));
            assert!(is_offset(<$host as $crate::host::Host>::TASK_OFFSET));
            assert!(is_offset(<$host as $crate::host::Host>::NAME_OFFSET));
        };
    };
}

/// A function, by its place in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The demangled path.
    pub name: &'a str,
    /// The virtual address of the first instruction.
    pub address: u64,
    /// The length in bytes.
    pub size: u64,
}

/// The names of functions and statics.
pub trait Symbols {
    /// The function that contains the virtual address `address`.
    fn lookup(&self, address: u64) -> Option<Function<'_>>;

    /// Whether the instruction at the virtual address `address` is the first of a function that is only called, as the procedure
    /// call standard has it (AAPCS64, section 6.1): x9 to x17 and the flags hold nothing there. A probe on it costs less.
    fn is_call(&self, _address: u64) -> bool {
        false
    }

    /// The arguments of the function that begins at the virtual address `address`, what it returns, and the types of both.
    fn signature(&self, _address: u64) -> Option<(Types<'_>, kprobes_types::Function<'_>)> {
        None
    }

    /// The virtual addresses of the instructions that begin line `line` of the file of source whose path ends with `file`.
    ///
    /// # Errors
    ///
    /// There is no such line.
    fn line(&self, _file: &str, _line: u32, _each: &mut dyn FnMut(u64)) -> Result<(), LineError<'_>> {
        Err(LineError::NoLines)
    }

    /// The functions that are meant by `name`, in the order of their addresses: those whose demangled path it is, of which
    /// instances of one generic function in several crates can share one, or what else the kernel takes for the name of a function.
    fn find<'a>(&'a self, name: &str, each: &mut dyn FnMut(Function<'a>));

    /// The virtual addresses of the statics whose demangled path is `name`.
    fn find_static(&self, _name: &str, _each: &mut dyn FnMut(u64)) {}

    /// All functions, with names that are never freed; of several names for one function, the one that
    /// [`lookup`](Self::lookup) finds is taken. Arguments of the type `symstr` are recorded with these names: without them, as
    /// addresses.
    fn each(&self, _each: &mut dyn FnMut(Function<'static>)) {}

    /// The path of the function that was probably meant by `name`, which is the name of none.
    fn nearest(&self, _name: &str) -> Option<&str> {
        None
    }

    /// The path of the static that was probably meant by `name`, which is the name of none.
    fn nearest_static(&self, _name: &str) -> Option<&str> {
        None
    }
}

/// How ticks of the counter become times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Ticks a second; not 0.
    pub frequency: u64,
    /// The counter at time 0.
    pub origin: u64,
}

impl Clock {
    /// Nanoseconds from time 0 to `ticks`.
    #[must_use]
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let elapsed = u128::from(ticks.saturating_sub(self.origin));
        (elapsed * 1_000_000_000 / u128::from(self.frequency.max(1))) as u64
    }

    /// Microseconds from time 0 to `ticks`, rounded as Linux's `ns2usecs` does it.
    #[must_use]
    pub fn microseconds(self, ticks: u64) -> u64 {
        self.nanoseconds(ticks).saturating_add(500) / 1000
    }
}
