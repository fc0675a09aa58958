//! What a kernel provides so that the engine can run in it.
//!
//! The functions are bound by the linker, not by a pointer or a type parameter: the hit path then consists
//! of direct calls, which a reader and a tool can follow to their end, and no type in the engine carries the
//! kernel's name around. A kernel implements [`Platform`] once and exports it with [`platform!`](crate::platform!).

use core::fmt;
use core::ops::Range;

use crate::context::Context;
use crate::exception::TrapFrame;
pub use crate::probe::{CpuState, CpuStates, TaskCalls};

/// The largest number of CPUs that the engine keeps state for.
pub const MAX_CPUS: usize = 256;

/// The services of the kernel that embeds the engine.
///
/// `fatal` and `stack` are called while a probe is being handled, and `with_writable` and `interrupted` while the
/// other CPUs are held, all with interrupts masked. They, and whatever they call, must not be probed, must not wait for a
/// lock that interrupted code may hold, and must not allocate; the engine refuses probes only in its own part of the image,
/// so the kernel places them in the same region (see `linker.ld`). All other functions are called from tasks, and may
/// block.
///
/// # Safety
///
/// The engine rewrites instructions on the word of these functions. The implementer guarantees, besides what
/// each function says of itself, that breakpoint exceptions reach
/// [`handle_sync`](crate::exception::handle_sync) with all of PSTATE.DAIF masked and on the stack of the
/// interrupted code, with the vectors of `trampoline/vectors.S` or others that save and restore the whole
/// [`TrapFrame`].
///
/// Two functions are required. The others have defaults, for a kernel that runs on one CPU, never preempts a task in an interrupt,
/// has its text where it can write to it, and its [`Context`] in TPIDR_EL1; `trampoline/kprobes.x` is in its
/// linker script. Each says what makes it wrong.
pub unsafe trait Platform {
    /// How many CPUs run at most, up to [`MAX_CPUS`]: for each, the image has 4 KiB of zeroed memory. The defaults of
    /// [`hold_cpus`](Self::hold_cpus) and [`interrupted`](Self::interrupted) do not compile with more than one.
    const CPUS: usize = 1;

    /// Where the address of the engine's state of this CPU is: that of what [`CpuState::of`] returns for its number, below
    /// [`cpus`](Self::cpus). In bytes from the virtual address in TPIDR_EL1; a multiple of 8 below 4096. Handlers read it with
    /// interrupts masked; stubs may read it unmasked, and then do the same for the state of any CPU.
    ///
    /// By default that of a [`Context`].
    const CPU_OFFSET: usize = Context::CPU;

    /// Where the calls that the task is in which runs on this CPU are, its [`TaskCalls`]. An offset as
    /// [`CPU_OFFSET`](Self::CPU_OFFSET). What the task does on one CPU happens before what it does on the next.
    ///
    /// By default that of a [`Context`].
    const CALLS_OFFSET: usize = Context::CALLS;

    /// How many CPUs there are: those that run, or ever will, have the numbers below this. At most [`CPUS`](Self::CPUS), and
    /// the same from the first registration on: counts and records take memory for so many.
    ///
    /// By default [`CPUS`](Self::CPUS).
    fn cpus() -> usize {
        Self::CPUS
    }

    /// The virtual addresses of the text in which probes may be placed.
    fn text() -> Range<usize>;

    /// The virtual addresses of the function that contains the virtual address `address`, if one does.
    fn function(address: usize) -> Option<Range<usize>>;

    /// Whether data lies anywhere at these virtual addresses, which are those of a function or of a word in one: code that reads
    /// it would read a breakpoint there. A kernel that keeps the mapping symbols of its ELF file (ELF for the Arm 64-bit
    /// Architecture, section 5.7) knows; the engine itself finds the words that instructions of the same function load.
    fn has_data(addresses: Range<usize>) -> bool {
        let _ = addresses;
        false
    }

    /// Calls `write` with a writable alias of the virtual address `address`, which is text or executable
    /// memory from [`allocate_executable`](Self::allocate_executable), good for `length` bytes that lie in one
    /// 4 KiB page; the alias is gone when this returns. It cannot fail, as an instruction has to be put back whenever a probe
    /// is removed: what an alias takes, a kernel sets aside for each CPU before it registers the first probe.
    ///
    /// By default the address itself: text and the pool of `kprobes.x` are writable, or the MMU is off.
    #[inline(always)]
    fn with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8)) {
        let _ = length;
        write(core::ptr::with_exposed_provenance_mut(address));
    }

    /// Whether branch targets are checked at the virtual address `address`: the GP bit of its translation is set
    /// (Arm ARM, D8.4.1). It must not change while there are probes on the page.
    ///
    /// By default they are checked nowhere.
    fn is_guarded(address: usize) -> bool {
        let _ = address;
        false
    }

    /// Maps `length` bytes (a multiple of 4096) of fresh memory, executable and not writable, guarded or not, and
    /// returns their virtual address. They are never unmapped.
    ///
    /// By default from the pool that `kprobes.x` sets aside in the image, which is not guarded.
    #[cfg(target_os = "none")]
    fn allocate_executable(length: usize, guarded: bool) -> Option<usize> {
        pool::allocate(length).filter(|_| !guarded)
    }
    /// Maps executable memory, as on the target; the host has no default.
    #[cfg(not(target_os = "none"))]
    fn allocate_executable(length: usize, guarded: bool) -> Option<usize>;

    /// Calls `action` once, with interrupts (PSTATE.I) masked on this CPU, while every other running CPU is held: it has taken an
    /// interrupt since the call, in code that had interrupts unmasked, and waits with interrupts masked in code that cannot
    /// be probed. Each executes a context synchronization event before it goes on. Called from tasks, with interrupts
    /// unmasked.
    ///
    /// By default there is no other CPU.
    fn hold_cpus(action: &mut dyn FnMut()) {
        const { assert!(Self::CPUS == 1, "a platform of several CPUs implements `hold_cpus`") }
        crate::interrupts::with_masked(action);
    }

    /// Calls `each` with the pc of every context that is interrupted: of each CPU that is held, and of each task that was
    /// preempted in an interrupt rather than in a call. Called within the action of [`hold_cpus`](Self::hold_cpus): it must
    /// not wait for a lock that a CPU may hold with interrupts unmasked, and must not allocate.
    ///
    /// By default there is none: no other CPU, and no task is preempted.
    #[inline(always)]
    fn interrupted(each: &mut dyn FnMut(usize)) {
        const { assert!(Self::CPUS == 1, "a platform of several CPUs implements `interrupted`") }
        let _ = each;
    }

    /// Lets other tasks run while a registration of another task is in progress.
    ///
    /// By default it returns at once: there are none, or they run without being let.
    fn yield_now() {
        core::hint::spin_loop();
    }

    /// The stack that the stack pointer `pointer` is in, which may be its end; nothing where that is not known. No two calls
    /// of a task are told the same stack that are on different ones.
    ///
    /// When a call returns, calls that began later and lower on its stack will not: their instances are free for others. With
    /// the default, which knows no stack, a call that does not return holds its instance until its task exits.
    fn stack(pointer: usize) -> Option<Range<usize>> {
        let _ = pointer;
        None
    }

    /// Reports a state that cannot be continued, with the registers in `frame`, and stops the machine.
    ///
    /// By default it panics: the kernel's panic handler reports it.
    #[inline(always)]
    fn fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> ! {
        // SAFETY: interrupts are masked, as in the hit that calls this, and the panic ends in no return.
        unsafe { crate::exception::abandon_cpu() };
        panic!("{reason}, at {:#x}", frame.pc)
    }
}

/// The executable memory that `kprobes.x` sets aside.
#[cfg(target_os = "none")]
mod pool {
    use core::sync::atomic::AtomicUsize;
    use core::sync::atomic::Ordering::Relaxed;

    unsafe extern "C" {
        safe static __kprobes_pool_start: u8;
        safe static __kprobes_pool_end: u8;
    }

    /// Takes `length` bytes, a multiple of a page, and returns their address.
    pub fn allocate(length: usize) -> Option<usize> {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let (start, end) = (&raw const __kprobes_pool_start as usize, &raw const __kprobes_pool_end as usize);
        let fits = |taken: usize| taken.checked_add(length).filter(|&taken| taken <= end - start);
        TAKEN.try_update(Relaxed, Relaxed, fits).ok().map(|taken| start + taken)
    }
}

mod exported {
    use super::{Range, TrapFrame, fmt};

    // Bound to the definitions that `platform!` makes of the safe functions of a `Platform`, in the same image,
    // with the same signatures.
    unsafe extern "Rust" {
        /// [`Platform::cpus`](super::Platform::cpus) of the kernel.
        #[cfg(target_os = "none")]
        pub safe fn kprobes_platform_cpus() -> usize;
        /// [`Platform::text`](super::Platform::text) of the kernel.
        pub safe fn kprobes_platform_text() -> Range<usize>;
        pub safe fn kprobes_platform_function(address: usize) -> Option<Range<usize>>;
        pub safe fn kprobes_platform_has_data(addresses: Range<usize>) -> bool;
        pub safe fn kprobes_platform_with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8));
        pub safe fn kprobes_platform_is_guarded(address: usize) -> bool;
        /// [`Platform::allocate_executable`](super::Platform::allocate_executable) of the kernel.
        pub safe fn kprobes_platform_allocate_executable(length: usize, guarded: bool) -> Option<usize>;
        /// [`Platform::hold_cpus`](super::Platform::hold_cpus) of the kernel.
        pub safe fn kprobes_platform_hold_cpus(action: &mut dyn FnMut());
        pub safe fn kprobes_platform_interrupted(each: &mut dyn FnMut(usize));
        /// [`Platform::yield_now`](super::Platform::yield_now) of the kernel.
        pub safe fn kprobes_platform_yield_now();
        #[cfg(any(target_os = "none", test))]
        pub safe fn kprobes_platform_stack(pointer: usize) -> Option<Range<usize>>;
        pub safe fn kprobes_platform_fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> !;
    }
}

/// How many CPUs there are.
#[cfg(target_os = "none")]
#[doc(hidden)]
pub use exported::kprobes_platform_cpus as cpus;
#[cfg(any(target_os = "none", test))]
pub(crate) use exported::kprobes_platform_stack as stack;
// For the crates that build on the engine, which have the same kernel.
#[cfg(target_os = "none")]
#[doc(hidden)]
pub use crate::interrupts::with_masked;
#[doc(hidden)]
pub use exported::{
    kprobes_platform_allocate_executable as allocate_executable, kprobes_platform_hold_cpus as hold_cpus,
    kprobes_platform_text as text, kprobes_platform_yield_now as yield_now,
};
pub(crate) use exported::{
    kprobes_platform_fatal as fatal, kprobes_platform_function as function, kprobes_platform_has_data as has_data,
    kprobes_platform_interrupted as interrupted, kprobes_platform_is_guarded as is_guarded,
    kprobes_platform_with_writable as with_writable,
};

/// On the host there are as many CPUs as tests may ask for.
#[cfg(not(target_os = "none"))]
#[doc(hidden)]
#[must_use]
pub fn cpus() -> usize {
    HOST_CPUS
}

#[cfg(not(target_os = "none"))]
pub(crate) const HOST_CPUS: usize = 8;

/// On the host, the tests of other crates have no kernel, which would know a stack.
#[cfg(not(any(target_os = "none", test)))]
pub(crate) fn stack(_pointer: usize) -> Option<Range<usize>> {
    None
}

/// The CPU and the task that run, found by [`Platform::CPU_OFFSET`] and [`Platform::CALLS_OFFSET`].
#[cfg(target_os = "none")]
mod identity {
    use super::CpuState;
    use crate::probe::TaskCalls;

    /// The state of this CPU.
    #[inline(always)]
    pub fn cpu() -> &'static CpuState {
        let state: *const CpuState;
        // SAFETY: the kernel promises that the address is there.
        unsafe {
            core::arch::asm!(
                "mrs {0}, tpidr_el1",
                "ldr {0}, [{0}, #:lo12:kprobes_cpu_offset]",
                out(reg) state,
                options(readonly, nostack, preserves_flags)
            );
        }
        // SAFETY: the kernel promises that it is the state of this CPU, which is a static.
        unsafe { &*state }
    }

    /// The value of an absolute symbol below 4096.
    macro_rules! absolute {
        ($symbol:literal) => {{
            let value: u64;
            // SAFETY: computes a number.
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

    /// Where the address of the state of the CPU is, in bytes from the address in TPIDR_EL1.
    pub fn cpu_offset() -> u16 {
        absolute!("kprobes_cpu_offset")
    }

    /// Where the calls of the task are, in bytes from the address in TPIDR_EL1.
    pub fn calls_offset() -> u16 {
        absolute!("kprobes_calls_offset")
    }

    /// The calls that the task is in which runs on it. For the hit path: in other tasks they may be gone.
    #[inline(always)]
    pub fn calls<'a>() -> &'a TaskCalls {
        let calls: *const TaskCalls;
        // SAFETY: as above; and a task that runs is there.
        unsafe {
            core::arch::asm!(
                "mrs {0}, tpidr_el1",
                "add {0}, {0}, #:lo12:kprobes_calls_offset",
                out(reg) calls,
                options(pure, nomem, nostack, preserves_flags)
            );
            &*calls
        }
    }
}

/// The host's tests have one CPU, and say which task runs; in models each thread is a CPU, and says it of its own.
#[cfg(not(target_os = "none"))]
pub(crate) mod identity {
    use super::CpuState;
    use crate::probe::TaskCalls;

    const TASKS: usize = 4;

    #[cfg(not(all(test, loom)))]
    static TASK: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(1);
    #[cfg(not(all(test, loom)))]
    static CALLS: [TaskCalls; TASKS] = [const { TaskCalls::new() }; TASKS];

    #[cfg(all(test, loom))]
    kprobes_models::loom::thread_local! {
        pub static CPU: core::cell::Cell<usize> = core::cell::Cell::new(0);
        static TASK: core::cell::Cell<usize> = core::cell::Cell::new(0);
    }
    #[cfg(all(test, loom))]
    kprobes_models::loom::lazy_static! {
        static ref CALLS: [TaskCalls; TASKS] = Default::default();
    }

    pub fn cpu_offset() -> u16 {
        0
    }

    pub fn calls_offset() -> u16 {
        0
    }

    pub fn cpu() -> &'static CpuState {
        #[cfg(all(test, loom))]
        return CpuState::of(CPU.with(core::cell::Cell::get));
        #[cfg(not(all(test, loom)))]
        CpuState::of(0)
    }

    /// Has the task with this number run on this CPU.
    #[cfg(test)]
    pub fn switch_to(task: usize) {
        #[cfg(all(test, loom))]
        TASK.with(|current| current.set(task));
        #[cfg(not(all(test, loom)))]
        TASK.store(task, core::sync::atomic::Ordering::Relaxed);
    }

    /// The calls of the task with this number.
    pub fn calls_of(task: usize) -> &'static TaskCalls {
        &CALLS[task % TASKS]
    }

    pub fn calls() -> &'static TaskCalls {
        calls_of(task())
    }

    /// The number of the task that runs on this CPU.
    pub fn task() -> usize {
        #[cfg(all(test, loom))]
        return TASK.with(core::cell::Cell::get);
        #[cfg(not(all(test, loom)))]
        TASK.load(core::sync::atomic::Ordering::Relaxed)
    }
}

pub(crate) use identity::{calls, calls_offset, cpu, cpu_offset};

/// The virtual addresses of functions that are called while a probe is handled.
#[cfg(target_os = "none")]
pub(crate) fn at_a_hit() -> [usize; 3] {
    [stack as *const () as usize, fatal as *const () as usize, with_writable as *const () as usize]
}

/// Exports an implementation of [`Platform`] to the engine: `platform!(MyKernel);`, once in an image.
///
/// What is called while a probe is handled or text is written goes into the section `.kprobes.text`, for the region in which
/// nothing is probed, and takes along what is inlined into it.
#[macro_export]
macro_rules! platform {
    ($platform:ty) => {
        #[cfg(target_os = "none")]
        ::core::arch::global_asm!(
            ".global kprobes_cpu_offset",
            ".set kprobes_cpu_offset, {cpu}",
            ".global kprobes_calls_offset",
            ".set kprobes_calls_offset, {calls}",
            cpu = const <$platform as $crate::platform::Platform>::CPU_OFFSET,
            calls = const <$platform as $crate::platform::Platform>::CALLS_OFFSET,
        );
        const _: () = {
            const fn is_offset(offset: usize) -> bool {
                offset % 8 == 0 && offset < 1 << 12
            }
            assert!(is_offset(<$platform as $crate::platform::Platform>::CPU_OFFSET));
            assert!(is_offset(<$platform as $crate::platform::Platform>::CALLS_OFFSET));
            let cpus = <$platform as $crate::platform::Platform>::CPUS;
            assert!(cpus > 0 && cpus <= $crate::platform::MAX_CPUS, "1 to MAX_CPUS CPUs run");
        };
        const _: () = {
            use core::fmt::Display;
            use core::ops::Range;
            use $crate::exception::TrapFrame;
            use $crate::platform::Platform;

            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_cpus() -> usize {
                <$platform as Platform>::cpus()
            }
            #[unsafe(no_mangle)]
            static kprobes_platform_states: $crate::platform::CpuStates<{ <$platform as Platform>::CPUS }> =
                $crate::platform::CpuStates::new();
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_text() -> Range<usize> {
                <$platform as Platform>::text()
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_function(address: usize) -> Option<Range<usize>> {
                <$platform as Platform>::function(address)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_has_data(addresses: Range<usize>) -> bool {
                <$platform as Platform>::has_data(addresses)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8)) {
                <$platform as Platform>::with_writable(address, length, write)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_is_guarded(address: usize) -> bool {
                <$platform as Platform>::is_guarded(address)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_allocate_executable(length: usize, guarded: bool) -> Option<usize> {
                <$platform as Platform>::allocate_executable(length, guarded)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_hold_cpus(action: &mut dyn FnMut()) {
                <$platform as Platform>::hold_cpus(action)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_interrupted(each: &mut dyn FnMut(usize)) {
                <$platform as Platform>::interrupted(each)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_yield_now() {
                <$platform as Platform>::yield_now()
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_stack(pointer: usize) -> Option<Range<usize>> {
                <$platform as Platform>::stack(pointer)
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_platform_fatal(frame: &TrapFrame, reason: &dyn Display) -> ! {
                <$platform as Platform>::fatal(frame, reason)
            }
        };
    };
}
