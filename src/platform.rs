//! The trait that the embedding kernel implements once, and exports with [`platform!`](crate::platform!).

use core::fmt;
use core::ops::Range;

use crate::context::Context;
use crate::exception::TrapFrame;
pub use crate::probe::{CpuState, CpuStates, TaskCalls};

/// The largest number of CPUs that the engine keeps state for.
pub const MAX_CPUS: usize = 256;

/// The services of the kernel that embeds the engine.
///
/// Two functions are required. The others have defaults, for a kernel that runs on one CPU, never preempts a task in
/// an interrupt, can write to its text at the address of the text, keeps its [`Context`] in TPIDR_EL1, and includes
/// `kprobes.x` in its linker script. The documentation of each function says what its default assumes.
///
/// - [`fatal`](Self::fatal) and [`stack`](Self::stack) are called while a probe is handled,
///   [`interrupted`](Self::interrupted) while the other CPUs are held, and [`with_writable`](Self::with_writable) while
///   they are held or run; all with interrupts masked. These four functions, and everything they call, must not be
///   probed, must not wait for a lock that interrupted code may hold, and must not allocate.
/// - [`cpus`](Self::cpus) and [`text`](Self::text) are also called with interrupts masked, as by [`CpuState::of`],
///   [`Context::install`] and [`probe::recover`](crate::probe::recover). They must not wait or allocate.
/// - All other functions are called from tasks, and may block.
///
/// The engine refuses probes only in its own region of the image. [`platform!`](crate::platform!) places the first four
/// functions there. A function that they call, and that is not inlined, needs a section `.kprobes.text.NAME`.
///
/// The engine runs at EL1, or at EL2 with FEAT_VHE and HCR_EL2.E2H set. At EL2, the names of EL1 registers in this
/// documentation stand for the registers that these names access there.
///
/// ```
/// use core::ops::Range;
///
/// use aarch64_kprobes::platform::Platform;
///
/// unsafe extern "C" {
///     // Symbols of the linker script.
///     safe static __text_start: u8;
///     safe static __text_end: u8;
/// }
///
/// struct MyKernel;
/// # #[cfg(target_os = "none")]
/// aarch64_kprobes::platform!(MyKernel);
///
/// // SAFETY: one CPU, no tasks, and the MMU off: the defaults fit. The vector is `b kprobes_vector`. The text has only
/// // code of Rust, in functions of the table.
/// unsafe impl Platform for MyKernel {
///     fn text() -> Range<usize> {
///         &raw const __text_start as usize..&raw const __text_end as usize
///     }
///
///     fn function(address: usize) -> Option<Range<usize>> {
///         symbols().iter().find(|function| function.contains(&address)).cloned()
///     }
/// #   #[cfg(not(target_os = "none"))]
/// #   fn allocate_executable(_: usize, _: bool) -> Option<usize> {
/// #       None
/// #   }
/// }
///
/// /// Returns the addresses of the functions.
/// fn symbols() -> &'static [Range<usize>] {
///     // …
/// #   &[]
/// }
/// ```
///
/// # Safety
///
/// The engine rewrites instructions, and trusts these functions when it does. The implementer guarantees what each
/// function documents, and:
///
/// - TPIDR_EL1, and the word at [`CPU_OFFSET`](Self::CPU_OFFSET) from there, are set on a CPU before it takes a
///   synchronous exception by vectors that lead to the engine, and before it calls
///   [`abandon`](crate::exception::abandon) or [`abandon_cpu`](crate::exception::abandon_cpu).
/// - Breakpoint exceptions reach [`handle_sync`](crate::exception::handle_sync) with all of PSTATE.DAIF masked and on
///   the stack of the interrupted code: through `kprobes_vector`, or through vectors that save and restore the whole
///   [`TrapFrame`].
/// - A handler stays on its CPU, with interrupts masked, until it returns. Handlers are safe functions, and may call
///   others: no safe function of the kernel unmasks the interrupts of its caller, or leaves the CPU to another task,
///   when it is called with all of PSTATE.DAIF masked. Such a call may stop the machine instead.
/// - The code in [`text`](Self::text) keeps to the procedure call standard (AAPCS64) where the engine cannot see what
///   it does: in functions that are called through a register, and after calls that do not consist of one BL.
/// - A function in the text that is called by one task returns in that task, unless a return probe on it is refused. It
///   restores the stack pointer, or returns with one that no call in progress of the task has.
/// - The text consists of instructions, except where [`has_data`](Self::has_data) says otherwise, and where an
///   instruction of the same function loads a word by its address. A load-exclusive and its store-exclusive are in one
///   function, or the function of one of them calls the function of the other. Between them, no function is called
///   through a register.
/// - Nothing but the engine changes the text once anything of the engine is used that reads or writes it. Instructions
///   that the kernel patches lie outside of it, and so does code that the kernel copies to run it elsewhere.
/// - The guarded control stack (FEAT_GCS) is off at the exception level of the kernel.
pub unsafe trait Platform {
    /// The largest number of CPUs that may run, up to [`MAX_CPUS`]. The image has 4 KiB of zeroed memory for each.
    /// The defaults of [`hold_cpus`](Self::hold_cpus) and [`interrupted`](Self::interrupted) do not compile if this
    /// is more than one.
    const CPUS: usize = 1;

    /// Offset, in bytes from the virtual address in TPIDR_EL1, of the word that holds the address of the engine's
    /// state of this CPU. A multiple of 8, less than 4096.
    ///
    /// The kernel stores in that word the reference that [`CpuState::of`] returns for the CPU's number, which is
    /// below [`cpus`](Self::cpus). Handlers read the word with interrupts masked. Stubs may read it with interrupts
    /// unmasked; they then do what would also be correct with the state of another CPU. So where TPIDR_EL1 leads to
    /// memory of the CPU, that memory is never freed, and keeps the word.
    ///
    /// The default is the offset in a [`Context`].
    const CPU_OFFSET: usize = Context::CPU;

    /// Offset, in bytes from the virtual address in TPIDR_EL1, of the [`TaskCalls`] of the task that runs on this
    /// CPU, made by [`TaskCalls::new`]. A multiple of 8, less than 4096.
    ///
    /// The kernel orders what a task does on one CPU before what it does on the next. If TPIDR_EL1 leads to memory of
    /// the CPU, [`TaskCalls::switch`] exchanges the calls when the CPU switches tasks.
    ///
    /// The default is the offset in a [`Context`].
    const CALLS_OFFSET: usize = Context::CALLS;

    /// Returns the number of CPUs: every CPU that runs, now or later, has a number below it, which no other CPU ever
    /// has. At most [`CPUS`](Self::CPUS). The number must not change once anything of the engine is used besides
    /// [`CpuState::of`], [`Context`] and [`embedding`](crate::embedding): probes, counts and records take memory for
    /// each CPU.
    ///
    /// The default is [`CPUS`](Self::CPUS).
    fn cpus() -> usize {
        Self::CPUS
    }

    /// Returns the virtual addresses of the text in which probes may be placed: multiples of 4. It is the same at each
    /// call. It is readable, and so is the region in which nothing is probed. In code that is loaded later, no probe
    /// can be placed; it keeps to the procedure call standard where it calls the text.
    ///
    /// A breakpoint exception can be taken at each instruction there, whenever a CPU executes it, and loses no state:
    /// the CPU has its vectors, and the word at [`CPU_OFFSET`](Self::CPU_OFFSET), and ELR_EL1, SPSR_EL1, ESR_EL1 and
    /// FAR_EL1 hold nothing that is still needed. Vectors, and code that runs before a CPU is set up, do not fulfil
    /// this: they lie outside of the text, or in the region in which nothing is probed.
    fn text() -> Range<usize>;

    /// Returns the virtual addresses of the function that contains the virtual address `address`; `None` if no known
    /// function does. The instruction is then refused, unless its probe comes with the bounds of the function
    /// ([`KprobeBuilder::within`](crate::probe::KprobeBuilder::within) and
    /// [`KretprobeBuilder::within`](crate::probe::KretprobeBuilder::within)). It is also refused if the addresses do
    /// not begin and end at multiples of 4, within [`text`](Self::text).
    fn function(address: usize) -> Option<Range<usize>>;

    /// Returns whether there is data at any of these virtual addresses, which may be those of several functions, and
    /// end beyond the text. Code that reads data would read a breakpoint instead.
    ///
    /// A kernel that keeps the mapping symbols of its ELF file (ELF for the Arm 64-bit Architecture, section 5.7)
    /// knows. Without them, the engine itself finds the words that instructions of the same function load.
    fn has_data(addresses: Range<usize>) -> bool {
        let _ = addresses;
        false
    }

    /// Returns the survey of this image that the host has made: the bytes that `cargo kprobes image` and `cargo kprobes
    /// symbols` put into the symbol table. The kernel guarantees that [`function`](Self::function) looks up the
    /// functions of the same table, and that the instructions of [`text`](Self::text) are those that were linked,
    /// except for what the engine changes.
    ///
    /// By default there is none. Then the first probe that depends on a survey makes one on the target, which takes
    /// some hundred instructions for each instruction of the text. The same happens if the bytes are not a survey, if
    /// the text is not all in it, or if the image does not run at its link address.
    fn survey() -> &'static [u8] {
        &[]
    }

    /// Calls `write` with a writable alias of the virtual address `address`, which is in a 4 KiB page with text or with
    /// executable memory from [`allocate_executable`](Self::allocate_executable). The alias is valid for `length`
    /// bytes, which lie in that page. They may be the whole page, and so begin before the text. The alias should be
    /// gone when this returns: one that stays lets stray writes change the text.
    ///
    /// It cannot fail, because removing a probe has to put its instruction back. A kernel reserves what an alias
    /// needs, for each CPU, before it registers the first probe. Several CPUs may call it at the same time, so each has
    /// an alias of its own.
    ///
    /// The default alias is the address itself. It assumes that the text and the pool of `kprobes.x` are writable,
    /// or that the MMU is off.
    #[inline(always)]
    fn with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8)) {
        let _ = length;
        write(core::ptr::with_exposed_provenance_mut(address));
    }

    /// Returns whether the CPU checks branch targets at the virtual address `address`: the GP bit of its translation is
    /// set (Arm ARM, D8.4, PSTATE.BTYPE). The result must not change while there are probes on the page.
    ///
    /// The default assumes that no page is guarded.
    fn is_guarded(address: usize) -> bool {
        let _ = address;
        false
    }

    /// Maps `length` bytes of fresh memory, executable and not writable, and guarded if `guarded` is set. Returns their
    /// virtual address, which is a multiple of 4096, at most 128 MiB from an end of the text, and not that of the last
    /// 4 KiB of the address space; or `None` if there is no memory, or if `length` is not a multiple of 4096. The
    /// memory is never unmapped.
    ///
    /// The default allocates from the pool that `kprobes.x` reserves in the image, which is not guarded: it returns no
    /// guarded memory. A kernel for which [`is_guarded`](Self::is_guarded) is true implements this function.
    #[cfg(target_os = "none")]
    fn allocate_executable(length: usize, guarded: bool) -> Option<usize> {
        if guarded { None } else { pool::allocate(length) }
    }
    /// Maps executable memory, as on the target. There is no default on the host.
    #[cfg(not(target_os = "none"))]
    fn allocate_executable(length: usize, guarded: bool) -> Option<usize>;

    /// Calls `action` once, with interrupts (PSTATE.I) masked on this CPU, while every other running CPU is held.
    ///
    /// A CPU is held when it has taken an interrupt since the call, in code that had interrupts unmasked, and waits
    /// with all of PSTATE.DAIF masked in code that cannot be probed. (With PSTATE.D clear, a watched access would call
    /// a handler, and its code may be half written.) Each CPU executes a context synchronization event before it clears
    /// PSTATE.D and resumes. What a CPU has stored before it is held is visible to `action`, and what `action` has
    /// stored is visible to the CPU when it resumes. So a CPU reports with a store-release that it is held, and waits
    /// with load-acquires for a store-release at the end. The engine calls this from tasks, with interrupts unmasked.
    /// Several tasks may call it at the same time; the later one waits until the action of the earlier one is over.
    ///
    /// A CPU that starts to run when there may be probes is among those that are held before it executes its first
    /// instruction of the [`text`](Self::text), and then executes a context synchronization event. One that stops is
    /// among them until it has executed its last one.
    ///
    /// The default assumes that there is no other CPU.
    fn hold_cpus(action: &mut dyn FnMut()) {
        const { assert!(Self::CPUS == 1, "a platform of several CPUs implements `hold_cpus`") }
        crate::interrupts::with_masked(action);
    }

    /// Calls `each` with the pc of every interrupted context: of each CPU that is held, and of each task that was
    /// preempted in an interrupt rather than in a call. The engine calls this within the action of
    /// [`hold_cpus`](Self::hold_cpus), so it must not wait for a lock that a CPU may hold with interrupts unmasked,
    /// and must not allocate.
    ///
    /// The default reports none: it assumes that there is no other CPU, and that no task is preempted.
    #[inline(always)]
    fn interrupted(each: &mut dyn FnMut(usize)) {
        const { assert!(Self::CPUS == 1, "a platform of several CPUs implements `interrupted`") }
        let _ = each;
    }

    /// Calls `action` once on each running CPU, with interrupts (PSTATE.I) masked, and returns true when all calls have
    /// returned. What the caller has stored is visible to the calls, and what they have stored to the caller
    /// afterwards. A kernel that does not implement it returns false, calls nothing, and has no
    /// [watchpoints](crate::probe::Watchpoint). The engine calls this from tasks, with interrupts unmasked. A CPU that
    /// starts calls [`probe::initialize_cpu`](crate::probe::initialize_cpu) when this includes it.
    ///
    /// A CPU that stops sets PSTATE.D before this no longer includes it, and clears MDSCR_EL1.MDE before PSTATE.D is
    /// clear again: a watched access in between could call a handler that another CPU has just removed. If it goes on
    /// later, or resumes without its registers, it calls
    /// [`probe::initialize_cpu`](crate::probe::initialize_cpu) again.
    ///
    /// A watched access takes an exception wherever PSTATE.D is clear, outside of [`text`](Self::text) as well. Where
    /// there are watchpoints, PSTATE.D is set while ELR_EL1, SPSR_EL1, ESR_EL1 or FAR_EL1 hold something that is still
    /// needed, while the stack pointer is not that of a stack, and while the CPU is [held](Self::hold_cpus). The 4 KiB
    /// before and after each load-exclusive that is executed can be read.
    ///
    /// The default calls `action` on this CPU if there is no other, and returns false otherwise.
    fn on_each_cpu(action: fn()) -> bool {
        if Self::CPUS == 1 {
            crate::interrupts::with_masked(action);
        }
        Self::CPUS == 1
    }

    /// Lets other tasks run. Called while another task changes probes, and while a task that was interrupted in the
    /// code of a removed probe has not left it.
    ///
    /// The default returns at once: it assumes that there are no other tasks, or that they run anyway.
    fn yield_now() {
        core::hint::spin_loop();
    }

    /// Returns the stack that contains the stack pointer `pointer`, which may be the end of the stack; `None` where
    /// the stack is not known. Two calls of one task that run on different stacks must never get the same range.
    ///
    /// When a call returns, the engine knows that later calls lower on the same stack will not return, and frees
    /// their instances for other calls. The default knows no stack: a call that never returns then keeps its
    /// instance until its task exits.
    fn stack(pointer: usize) -> Option<Range<usize>> {
        let _ = pointer;
        None
    }

    /// Reports an unrecoverable state, with the registers in `frame`, and stops the machine.
    ///
    /// The default panics: the kernel's panic handler makes the report.
    #[inline(always)]
    fn fatal(frame: &TrapFrame, reason: &dyn fmt::Display) -> ! {
        // SAFETY: the hit path, which calls this, has interrupts masked. The panic does not return, so nothing that
        // was interrupted on this CPU goes on.
        unsafe { crate::exception::abandon_cpu() };
        panic!("{reason}, at {:#x}", frame.pc)
    }
}

/// The executable memory that `kprobes.x` reserves in the image.
#[cfg(any(target_os = "none", test))]
mod pool {
    use core::ops::Range;
    use core::sync::atomic::AtomicUsize;
    use core::sync::atomic::Ordering::Relaxed;

    const PAGE: usize = 4096;

    /// Takes `length` bytes, a multiple of a page, and returns their address; `None` if the pool has fewer left, or for
    /// another length.
    #[cfg(target_os = "none")]
    pub fn allocate(length: usize) -> Option<usize> {
        unsafe extern "C" {
            safe static __kprobes_pool_start: u8;
            safe static __kprobes_pool_end: u8;
        }
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        take(&raw const __kprobes_pool_start as usize..&raw const __kprobes_pool_end as usize, &TAKEN, length)
    }

    /// Takes `length` bytes from a pool at the virtual addresses `pool`, of which `taken` bytes are taken.
    fn take(pool: Range<usize>, taken: &AtomicUsize, length: usize) -> Option<usize> {
        // Any caller may ask for any length. The engine divides pages into cells, which begin where pages do.
        if !length.is_multiple_of(PAGE) {
            return None;
        }
        let fits = |taken: usize| taken.checked_add(length).filter(|&taken| taken <= pool.end - pool.start);
        taken.try_update(Relaxed, Relaxed, fits).ok().map(|taken| pool.start + taken)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn memory_is_taken_by_pages_until_there_is_none() {
            let taken = AtomicUsize::new(0);
            let mut take = |length| take(0x8000..0xb000, &taken, length);
            for length in [1, PAGE - 8, PAGE + 4, usize::MAX] {
                assert_eq!(take(length), None, "{length:#x}");
            }
            assert_eq!([PAGE, 2 * PAGE, PAGE, 0].map(&mut take), [Some(0x8000), Some(0x9000), None, Some(0xb000)]);
        }
    }
}

// For the crates that build on the engine and run in the same kernel.
#[doc(hidden)]
pub use crate::interrupts::{are_masked, with_masked};
#[doc(hidden)]
pub use crate::kernel::{allocate_executable, cpus, hold_cpus, text, yield_now};

/// Exports an implementation of [`Platform`] to the engine: `platform!(MyKernel);`, once in an image. The page of
/// [`Platform`] has an example.
///
/// The functions are placed in the section `.kprobes.text`, together with what is inlined into them, so that those
/// that run while a probe is handled or text is written are in the region in which nothing is probed.
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
            // Both are multiples of 8, so the words do not overlap either.
            assert!(
                <$platform as $crate::platform::Platform>::CPU_OFFSET
                    != <$platform as $crate::platform::Platform>::CALLS_OFFSET,
                "CPU_OFFSET and CALLS_OFFSET are the offsets of two words"
            );
            let cpus = <$platform as $crate::platform::Platform>::CPUS;
            assert!(cpus > 0 && cpus <= $crate::platform::MAX_CPUS, "1 to MAX_CPUS CPUs run");
        };
        const _: () = {
            use core::fmt::Display;
            use core::ops::Range;
            use $crate::exception::TrapFrame;
            use $crate::platform::Platform;

            $crate::__platform_functions! {
                $platform,
                kprobes_platform_cpus = cpus() -> usize;
                kprobes_platform_text = text() -> Range<usize>;
                kprobes_platform_function = function(address: usize) -> Option<Range<usize>>;
                kprobes_platform_has_data = has_data(addresses: Range<usize>) -> bool;
                kprobes_platform_survey = survey() -> &'static [u8];
                kprobes_platform_with_writable =
                    with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8));
                kprobes_platform_is_guarded = is_guarded(address: usize) -> bool;
                kprobes_platform_allocate_executable =
                    allocate_executable(length: usize, guarded: bool) -> Option<usize>;
                kprobes_platform_hold_cpus = hold_cpus(action: &mut dyn FnMut());
                kprobes_platform_interrupted = interrupted(each: &mut dyn FnMut(usize));
                kprobes_platform_on_each_cpu = on_each_cpu(action: fn()) -> bool;
                kprobes_platform_yield_now = yield_now();
                kprobes_platform_stack = stack(pointer: usize) -> Option<Range<usize>>;
                kprobes_platform_fatal = fatal(frame: &TrapFrame, reason: &dyn Display) -> !;
            }

            #[unsafe(no_mangle)]
            static kprobes_platform_states: $crate::platform::CpuStates<{ <$platform as Platform>::CPUS }> =
                $crate::platform::CpuStates::new();
        };
    };
}

/// Exports functions of a [`Platform`], each as a symbol.
#[doc(hidden)]
#[macro_export]
macro_rules! __platform_functions {
    (
        $platform:ty,
        $($symbol:ident = $function:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*
    ) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn $symbol($($argument: $type),*) $(-> $result)? {
                <$platform as $crate::platform::Platform>::$function($($argument),*)
            }
        )*
    };
}
