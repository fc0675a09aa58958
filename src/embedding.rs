//! Finds mistakes in how a kernel embeds the engine, before the first probe could hang or corrupt the kernel.
//!
//! [`check`] examines the CPU that it runs on, and the image. The first registration of a probe calls it, and fails
//! with the mistake that it finds. A kernel with several CPUs calls it on each of them when they start, after it has
//! set TPIDR_EL1 and VBAR_EL1.

use core::fmt;
use core::ops::Range;

#[cfg(any(test, target_os = "none"))]
use crate::event::Event;
#[cfg(any(test, target_os = "none"))]
use crate::insn;

/// A mistake in the embedding. The text of its [`Display`](fmt::Display) says how to correct it. Addresses are
/// virtual.
// The discriminant is as wide as the widest field, as in `insn::Op`, so that the value is moved word by word.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum EmbeddingError {
    /// The engine was compiled without optimization: the hit path then calls small functions of `core`, which can be
    /// probed.
    Unoptimized,
    /// A function that runs while a probe is handled lies outside the region in which nothing is probed.
    HitPathOutside {
        /// The address of the function.
        function: usize,
        /// The region in which nothing is probed: [`probe::blacklist`](crate::probe::blacklist).
        region: Range<usize>,
    },
    /// A function that implements a trait, and runs while a probe is handled, lies outside the region in which nothing
    /// is probed, though other functions that do so lie in it: its name is not mangled as `kprobes.x` expects.
    Mangling {
        /// The address of the function.
        function: usize,
        /// The region in which nothing is probed: [`probe::blacklist`](crate::probe::blacklist).
        region: Range<usize>,
    },
    /// A function of the [`Platform`](crate::platform::Platform) that is called while a probe is handled lies
    /// outside the region in which nothing is probed.
    PlatformOutside {
        /// The address of the function.
        function: usize,
        /// The region in which nothing is probed: [`probe::blacklist`](crate::probe::blacklist).
        region: Range<usize>,
    },
    /// A static event happens in the region in which nothing is probed: its probe would be hit while another hit is
    /// handled.
    EventInHitPath {
        /// Where it happens.
        site: usize,
        /// The region: [`probe::blacklist`](crate::probe::blacklist).
        region: Range<usize>,
    },
    /// A static event happens outside [`text`](crate::platform::Platform::text), where the engine writes nothing.
    EventOutsideText {
        /// Where it happens.
        site: usize,
        /// The range that the function returned.
        text: Range<usize>,
    },
    /// The block of a static event, which calls its function, is out of reach of a branch at the place where the event
    /// happens.
    EventOutOfReach {
        /// Where it happens.
        site: usize,
        /// The address of the block.
        block: usize,
    },
    /// Two static events have the same group and name.
    EventTwice {
        /// The group.
        group: &'static str,
        /// The name.
        name: &'static str,
    },
    /// The kernel runs at an exception level, or with a stack pointer, for which the engine is not made: it needs EL1,
    /// or EL2 with HCR_EL2.E2H set, and SP_EL1 or SP_EL2.
    ExecutionState {
        /// The exception level: CurrentEL.EL.
        level: u64,
        /// Whether the stack pointer is SP_EL0: PSTATE.SP is 0.
        has_sp_el0: bool,
    },
    /// TPIDR_EL1 does not lead to readable memory, or leads to an address that is not a multiple of 8.
    NoContext {
        /// The value of TPIDR_EL1.
        register: usize,
    },
    /// The word that TPIDR_EL1 and [`CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET) lead to is not the address
    /// of a CPU's state.
    NotCpuState {
        /// The address of the word.
        address: usize,
        /// The value of the word.
        word: usize,
    },
    /// Two CPUs have one number, and so one state: [`CpuState::of`](crate::platform::CpuState::of).
    SharedCpuState {
        /// The number of the state.
        number: usize,
        /// The affinity fields of MPIDR_EL1: of the CPU that was checked first, and of the calling CPU.
        affinities: [u64; 2],
    },
    /// The word that TPIDR_EL1 and [`CALLS_OFFSET`](crate::platform::Platform::CALLS_OFFSET) lead to is not the list of
    /// a task's calls: that of [`TaskCalls::new`](crate::platform::TaskCalls::new).
    NotTaskCalls {
        /// The address of the word.
        address: usize,
        /// The value of the word.
        word: usize,
    },
    /// The CPU does not implement FEAT_LSE, whose instructions may be in stubs already, because the CPUs before it do.
    LateCpuWithoutAtomics,
    /// The engine does not receive synchronous exceptions: the kernel resumed after a breakpoint without telling it.
    NoVector {
        /// The base of the kernel's vectors: VBAR_EL1.
        vectors: usize,
    },
    /// [`text`](crate::platform::Platform::text) is empty, or does not begin and end at multiples of 4.
    Text {
        /// The range that the function returned.
        text: Range<usize>,
    },
    /// The first or the last instruction of [`text`](crate::platform::Platform::text) cannot be read.
    NotReadable {
        /// The address of the instruction.
        address: usize,
    },
    /// The alias of [`with_writable`](crate::platform::Platform::with_writable) cannot be written to.
    NotWritable {
        /// The address of the text.
        address: usize,
        /// The alias that the platform gave for it.
        alias: usize,
    },
    /// The alias of [`with_writable`](crate::platform::Platform::with_writable) leads to other memory.
    AliasMismatch {
        /// The address of the text.
        address: usize,
        /// The alias that the platform gave for it.
        alias: usize,
    },
    /// Memory of [`allocate_executable`](crate::platform::Platform::allocate_executable) does not begin at a multiple
    /// of 4096.
    ExecutableMisaligned {
        /// The address of the memory.
        address: usize,
    },
    /// [`is_guarded`](crate::platform::Platform::is_guarded) is true for text, but
    /// [`allocate_executable`](crate::platform::Platform::allocate_executable) has never returned guarded memory.
    NoGuardedMemory,
    /// No direct branch leads from the text to memory of
    /// [`allocate_executable`](crate::platform::Platform::allocate_executable), or back.
    ExecutableOutOfReach {
        /// The address of the memory.
        address: usize,
        /// The text: [`text`](crate::platform::Platform::text).
        text: Range<usize>,
    },
    /// An instruction in memory of [`allocate_executable`](crate::platform::Platform::allocate_executable) cannot be
    /// executed.
    NotExecutable {
        /// The address of the instruction.
        address: usize,
        /// ESR_EL1 of the exception.
        syndrome: u64,
    },
}

impl fmt::Display for EmbeddingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unoptimized => f.write_str(
                "the engine is compiled at opt-level 0, where the hit path calls functions that can be probed: set \
                 `opt-level = 2` in [profile.dev.package.aarch64-kprobes] or in the profile",
            ),
            Self::HitPathOutside { function, region } => write!(
                f,
                "the function at {function:#x} runs while probes are handled, but lies outside of {:#x}..{:#x}, where \
                 no probe can be placed: move `INCLUDE kprobes.x` in the linker script before the first pattern that \
                 matches `.text.*`",
                region.start, region.end
            ),
            Self::Mangling { function, region } => write!(
                f,
                "the function at {function:#x} implements a trait and runs while probes are handled, but lies outside of \
                 {:#x}..{:#x}, where no probe can be placed: compile with `-Csymbol-mangling-version=v0`, as `kprobes.x` \
                 selects functions by these names",
                region.start, region.end
            ),
            Self::PlatformOutside { function, region } => write!(
                f,
                "the function of the platform at {function:#x} runs while probes are handled, but lies outside of \
                 {:#x}..{:#x}, where no probe can be placed: move `INCLUDE kprobes.x` in the linker script before the \
                 first pattern that matches `.kprobes.text.*`",
                region.start, region.end
            ),
            Self::EventInHitPath { site, region } => write!(
                f,
                "a static event happens at {site:#x}, in {:#x}..{:#x}, which runs while probes are handled: move its `emit!` to \
                 code outside",
                region.start, region.end
            ),
            Self::EventOutsideText { site, text } => write!(
                f,
                "a static event happens at {site:#x}, outside of {:#x}..{:#x}, the text that `Platform::text` returns: move its \
                 `emit!` to code inside",
                text.start, text.end
            ),
            Self::EventOutOfReach { site, block } => write!(
                f,
                "a static event happens at {site:#x}, and the block that tells of it is at {block:#x}, out of reach of a branch: \
                 place the sections of the text within 128 MiB of each other"
            ),
            Self::EventTwice { group, name } => {
                write!(f, "two static events are named {group}:{name}: rename one of them in its `event!`")
            }
            Self::ExecutionState { level: level @ 1..=2, has_sp_el0: true } => write!(
                f,
                "the kernel runs with SP_EL0 (PSTATE.SP is 0), where an exception changes the stack: execute `msr spsel, \
                 #1` before the stack pointer of EL{level} is set"
            ),
            Self::ExecutionState { level: 2, .. } => f.write_str(
                "the kernel runs at EL2 with HCR_EL2.E2H clear, where the engine reads the registers of EL1: set E2H \
                 (FEAT_VHE), or enter EL1 first",
            ),
            Self::ExecutionState { level, .. } => {
                write!(f, "the kernel runs at EL{level}, but the engine needs EL1 or EL2: enter EL1 first")
            }
            Self::NoContext { register } => write!(
                f,
                "TPIDR_EL1 is {register:#x}, which does not point to a `Context`: call `Context::install` on each CPU \
                 before its first probe"
            ),
            Self::NotCpuState { address, word } => write!(
                f,
                "the word at {address:#x}, at TPIDR_EL1 + `Platform::CPU_OFFSET`, is {word:#x}, not the state of a \
                 CPU: call `Context::install` on each CPU before its first probe, or store `CpuState::of(number)` there"
            ),
            Self::SharedCpuState { number, affinities: [first, second] } => write!(
                f,
                "the CPUs with the affinities {first:#x} and {second:#x} in MPIDR_EL1 have one number, {number}: number the \
                 CPUs from 0 without gaps, and let `Platform::CPUS` and `Platform::cpus` be how many there are \
                 (`CpuState::of` returns the state of CPU 0 for a number that is too large)"
            ),
            Self::NotTaskCalls { address, word } => write!(
                f,
                "the word at {address:#x}, at TPIDR_EL1 + `Platform::CALLS_OFFSET`, is {word:#x}, not a list of calls: \
                 make `CALLS_OFFSET` the offset of a `TaskCalls` that `TaskCalls::new` has made"
            ),
            Self::LateCpuWithoutAtomics => f.write_str(
                "this CPU lacks the atomic instructions of FEAT_LSE, and stubs may already use them, because the CPUs before \
                 it have them: call `embedding::check` on each CPU before the first probe",
            ),
            Self::NoVector { vectors } => write!(
                f,
                "the vectors at {vectors:#x} do not call the engine: make the vector of synchronous exceptions from \
                 EL1 with SP_EL1, at {:#x}, `b kprobes_vector`, or call `exception::handle_sync` first in its handler",
                vectors + 0x200
            ),
            Self::Text { text } => write!(
                f,
                "`Platform::text` returns {:#x}..{:#x}, which is empty or does not begin and end at multiples of 4",
                text.start, text.end
            ),
            Self::NotReadable { address } => write!(
                f,
                "the instruction at {address:#x}, in the text that `Platform::text` returns, cannot be read: map the text \
                 readable, or return the part that is"
            ),
            Self::NotWritable { address, alias } => write!(
                f,
                "`Platform::with_writable` gives {alias:#x} as an alias of {address:#x}, which cannot be written to: map the text \
                 writable there, or return an alias that is"
            ),
            Self::AliasMismatch { address, alias } => write!(
                f,
                "`Platform::with_writable` gives {alias:#x} as an alias of {address:#x}, but they are different memory"
            ),
            Self::ExecutableMisaligned { address } => write!(
                f,
                "`Platform::allocate_executable` returns memory at {address:#x}, which is not a multiple of 4096: return \
                 whole pages"
            ),
            Self::NoGuardedMemory => f.write_str(
                "`Platform::is_guarded` says that branch targets are checked in the text, but \
                 `Platform::allocate_executable` has returned no guarded memory: implement it, as the default has none, \
                 or free memory",
            ),
            Self::ExecutableOutOfReach { address, text } => write!(
                f,
                "`Platform::allocate_executable` returns memory at {address:#x}, and no direct branch leads there from the \
                 text, at {:#x}..{:#x}: return memory within 128 MiB of the text",
                text.start, text.end
            ),
            Self::NotExecutable { address, syndrome } => write!(
                f,
                "`Platform::allocate_executable` returns memory at {address:#x} from which no instruction can be executed \
                 (ESR_EL1 is {syndrome:#x}): map it executable, and as memory that exists"
            ),
        }
    }
}

impl core::error::Error for EmbeddingError {}

/// Checks what can be checked of the embedding before there is a probe: this CPU, and the image. Call it on each CPU,
/// after TPIDR_EL1 and VBAR_EL1 are set.
///
/// It asks for no executable memory. The engine checks each page of that memory when it takes it, so the registration
/// or the enabling of a probe, not this function, reports
/// [`ExecutableMisaligned`](EmbeddingError::ExecutableMisaligned),
/// [`NoGuardedMemory`](EmbeddingError::NoGuardedMemory), [`ExecutableOutOfReach`](EmbeddingError::ExecutableOutOfReach)
/// and [`NotExecutable`](EmbeddingError::NotExecutable).
///
/// To find out whether exceptions lead to the engine, it executes a breakpoint (`brk #0x5`, at
/// `kprobes_nofault_breakpoint`). A kernel whose vectors do not lead to the engine reports that breakpoint as an
/// exception of its own, and most kernels stop there.
///
/// # Errors
///
/// The first mistake that it finds.
pub fn check() -> Result<(), EmbeddingError> {
    if cfg!(kprobes_unoptimized) {
        return Err(EmbeddingError::Unoptimized);
    }
    let text = crate::kernel::text();
    if text.is_empty() || !text.start.is_multiple_of(4) || !text.end.is_multiple_of(4) {
        return Err(EmbeddingError::Text { text });
    }
    #[cfg(target_os = "none")]
    target::check(text.start)?;
    Ok(())
}

/// Checks memory of [`allocate_executable`](crate::platform::Platform::allocate_executable), in which there is nothing
/// yet: that it begins where a page does, that a branch leads there from the text and back, that it can be written to,
/// and that instructions are executed there. Writes two instructions at the virtual address `memory`. Called with the
/// registry's lock held, and with interrupts unmasked.
///
/// # Errors
///
/// The first mistake that it finds.
pub(crate) fn check_executable(memory: usize) -> Result<(), EmbeddingError> {
    if !memory.is_multiple_of(4096) {
        return Err(EmbeddingError::ExecutableMisaligned { address: memory });
    }
    // Nothing is executed on the host.
    #[cfg(target_os = "none")]
    check_execution(memory)?;
    Ok(())
}

#[cfg(target_os = "none")]
fn check_execution(memory: usize) -> Result<(), EmbeddingError> {
    use crate::insn::encode::compute::RETURN;

    check_reach(memory, &crate::kernel::text())?;
    // Where nothing is mapped, the maintenance of the caches would fault.
    // SAFETY: by the contract of `allocate_executable` there is memory, and no device register.
    unsafe { crate::exception::nofault::read::<u32>(memory) }
        .map_err(|fault| EmbeddingError::NotExecutable { address: memory, syndrome: fault.syndrome })?;
    target::check_alias_of(memory)?;
    crate::text::write(&[crate::text::Words { address: memory, words: [BTI_C, RETURN] }]);
    // SAFETY: the alias through which `write` has stored both instructions was found to be of this memory, and the
    // caller holds the lock of the registry.
    match unsafe { crate::exception::nofault::call(memory) } {
        0 => Ok(()),
        syndrome => Err(EmbeddingError::NotExecutable { address: memory, syndrome }),
    }
}

/// BTI c (Arm ARM, C6.2), to which a call may lead in a guarded page; elsewhere it is a NOP.
#[cfg(target_os = "none")]
const BTI_C: u32 = 0xd503_245f;

/// Checks that direct branches lead from an end of the text to `memory`, and back.
#[cfg(any(test, target_os = "none"))]
fn check_reach(memory: usize, text: &Range<usize>) -> Result<(), EmbeddingError> {
    let reaches = |from: usize, to: usize| insn::branch(from as u64, to as u64).is_ok();
    let is_in_reach = |end: usize| reaches(end, memory) && reaches(memory, end);
    if is_in_reach(text.start) || is_in_reach(text.end - 4) {
        return Ok(());
    }
    Err(EmbeddingError::ExecutableOutOfReach { address: memory, text: text.clone() })
}

/// Checks the execution state, by the values of CurrentEL, SPSel and, at EL2, HCR_EL2.
#[cfg(any(test, target_os = "none"))]
fn check_state(current_el: u64, sp_sel: u64, hcr: u64) -> Result<(), EmbeddingError> {
    /// HCR_EL2.E2H (Arm ARM, D24.2).
    const E2H: u64 = 1 << 34;
    let level = current_el >> 2 & 0b11;
    let has_sp_el0 = sp_sel & 1 == 0;
    let has_registers = level == 1 || level == 2 && hcr & E2H != 0;
    if has_registers && !has_sp_el0 { Ok(()) } else { Err(EmbeddingError::ExecutionState { level, has_sp_el0 }) }
}

/// Checks that every static event happens in the text, which the engine can patch, outside the region in which nothing
/// is probed, and within reach of its block. `sites` are the addresses of sites and of their blocks.
#[cfg(any(test, target_os = "none"))]
fn check_sites(
    mut sites: impl Iterator<Item = (usize, usize)>,
    region: &Range<usize>,
    text: &Range<usize>,
) -> Result<(), EmbeddingError> {
    sites.try_for_each(|(site, block)| {
        if region.contains(&site) {
            return Err(EmbeddingError::EventInHitPath { site, region: region.clone() });
        }
        if !text.contains(&site) {
            return Err(EmbeddingError::EventOutsideText { site, text: text.clone() });
        }
        match insn::branch(site as u64, block as u64) {
            Ok(_) => Ok(()),
            Err(_) => Err(EmbeddingError::EventOutOfReach { site, block }),
        }
    })
}

/// Checks that no two static events have the same group and name.
#[cfg(any(test, target_os = "none"))]
fn check_names(mut events: impl Iterator<Item = &'static Event> + Clone) -> Result<(), EmbeddingError> {
    while let Some(event) = events.next() {
        let (group, name) = (event.group(), event.name());
        if events.clone().any(|other| (other.group(), other.name()) == (group, name)) {
            return Err(EmbeddingError::EventTwice { group, name });
        }
    }
    Ok(())
}

/// The checks that need the target: the linked image, system registers and an MMU.
#[cfg(target_os = "none")]
mod target {
    use core::arch::asm;

    use core::ops::Range;

    use super::EmbeddingError;
    use crate::event::{self, site};
    use crate::exception::nofault;
    use crate::interrupts::{self, is_at_el2};
    use crate::probe::atomics;
    use crate::probe::{CpuState, TaskCalls};
    use crate::{exception, kernel, probe};

    /// Checks the regions, this CPU, and the writable alias of the word at `address`, which is in the text.
    pub(super) fn check(address: usize) -> Result<(), EmbeddingError> {
        let region = probe::blacklist();
        let hit_path = [exception::handle_sync as *const () as usize, probe::hit::breakpoint as *const () as usize];
        if let Some(function) = outside(&hit_path, &region) {
            return Err(EmbeddingError::HitPathOutside { function, region });
        }
        if let Some(function) = outside(&[probe::hit::function_of_a_trait()], &region) {
            return Err(EmbeddingError::Mangling { function, region });
        }
        if let Some(function) = outside(&kernel::at_a_hit(), &region) {
            return Err(EmbeddingError::PlatformOutside { function, region });
        }
        let sites = site::all().iter().map(|site| (site.instruction(), site.block()));
        super::check_sites(sites, &region, &kernel::text())?;
        super::check_names(event::all())?;
        // Before anything that may take an exception: the vector of the engine is for this state.
        check_state()?;
        // A breakpoint finds the state of the CPU only if there is a watchpoint.
        check_register(read_register())?;
        if !nofault::receives_exceptions() {
            let vectors: usize;
            // SAFETY: reads a register.
            unsafe { asm!("mrs {}, vbar_el1", out(reg) vectors, options(nomem, nostack, preserves_flags)) };
            return Err(EmbeddingError::NoVector { vectors });
        }
        // Masked, so that the task stays on this CPU, and TPIDR_EL1 leads to what is this CPU's.
        interrupts::with_masked(check_cpu)?;
        crate::text::cache::join();
        if !atomics::join() {
            return Err(EmbeddingError::LateCpuWithoutAtomics);
        }
        let text = kernel::text();
        for address in [text.start, text.end - 4] {
            // SAFETY: by the contract of `Platform::text` there is text, and no device register.
            unsafe { nofault::read::<u32>(address) }.map_err(|_| EmbeddingError::NotReadable { address })?;
        }
        check_alias_of(address)
    }

    /// Checks the writable alias of the word at `address`.
    pub(super) fn check_alias_of(address: usize) -> Result<(), EmbeddingError> {
        let mut result = Ok(());
        // Masked, because an alias belongs to one CPU.
        interrupts::with_masked(|| {
            kernel::with_writable(address, 4, &mut |writable| result = check_alias(address, writable.addr()));
        });
        result
    }

    /// Returns the first of these addresses that is outside the region in which nothing is probed.
    fn outside(functions: &[usize], region: &Range<usize>) -> Option<usize> {
        functions.iter().copied().find(|function| !region.contains(function))
    }

    /// Checks the exception level and the stack pointer of this CPU.
    fn check_state() -> Result<(), EmbeddingError> {
        let (level, sp_sel): (u64, u64);
        // SAFETY: reads CurrentEL and SPSel.
        unsafe {
            asm!("mrs {}, currentel", "mrs {}, spsel", out(reg) level, out(reg) sp_sel,
                options(nomem, nostack, preserves_flags));
        }
        let mut hcr = 0_u64;
        if is_at_el2() {
            // SAFETY: reads a register, which can be read at EL2.
            unsafe { asm!("mrs {}, hcr_el2", out(reg) hcr, options(nomem, nostack, preserves_flags)) };
        }
        super::check_state(level, sp_sel, hcr)
    }

    fn read_register() -> usize {
        let register: usize;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, tpidr_el1", out(reg) register, options(nomem, nostack, preserves_flags)) };
        register
    }

    /// Checks that `register`, the value of TPIDR_EL1, can lead to the state of a CPU. Returns where its address is.
    fn check_register(register: usize) -> Result<usize, EmbeddingError> {
        let address = register.wrapping_add(kernel::cpu_offset().into());
        let is_set = register != 0 && address.is_multiple_of(8);
        if is_set { Ok(address) } else { Err(EmbeddingError::NoContext { register }) }
    }

    /// Checks that TPIDR_EL1 leads to the state of this CPU, and to the calls of a task. Called with interrupts masked.
    fn check_cpu() -> Result<(), EmbeddingError> {
        let register = read_register();
        let address = check_register(register)?;
        // SAFETY: TPIDR_EL1 belongs to the engine by the contract of `Context` and `Platform`: it leads to memory or to
        // no mapping. A kernel keeps no device register at such an address.
        let word =
            unsafe { nofault::read::<u64>(address) }.map_err(|_| EmbeddingError::NoContext { register })? as usize;
        let mpidr: u64;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags)) };
        let is_state = |&number: &usize| core::ptr::from_ref(CpuState::of(number)).addr() == word;
        let number = (0..kernel::cpus()).find(is_state).ok_or(EmbeddingError::NotCpuState { address, word })?;
        CpuState::of(number)
            .claim(mpidr)
            .map_err(|affinities| EmbeddingError::SharedCpuState { number, affinities })?;
        let address = register.wrapping_add(kernel::calls_offset().into());
        // SAFETY: as above, TPIDR_EL1 leads to memory, and both offsets are below 4096.
        let word =
            unsafe { nofault::read::<u64>(address) }.map_err(|_| EmbeddingError::NoContext { register })? as usize;
        // SAFETY: if a return probe was registered, this check has passed on the CPU that registered it, so the
        // platform gives the offset of a `TaskCalls`. Its word is the address of an instance or of `END`; or, if the
        // task was made without `TaskCalls::new`, what a kernel may leave in memory, which is not the address of a
        // device register.
        if unsafe { TaskCalls::is_list(word) } { Ok(()) } else { Err(EmbeddingError::NotTaskCalls { address, word }) }
    }

    /// Checks that `alias` can be written to, and maps the memory at `address`. Called with interrupts masked.
    fn check_alias(address: usize, alias: usize) -> Result<(), EmbeddingError> {
        /// PAR_EL1.F: the translation has failed (Arm ARM, D24.2.133).
        const FAILED: u64 = 1;
        /// The address in PAR_EL1, without the page offset.
        const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
        let (written, read): (u64, u64);
        macro_rules! translate {
            ($write:literal, $read:literal) => {
                // SAFETY: address translation changes only PAR_EL1, which is restored. The caller has masked
                // interrupts, whose handlers may change it.
                unsafe {
                    asm!(
                        "mrs {before}, par_el1",
                        concat!("at ", $write, ", {alias}"), "isb", "mrs {written}, par_el1",
                        concat!("at ", $read, ", {address}"), "isb", "mrs {read}, par_el1",
                        "msr par_el1, {before}",
                        alias = in(reg) alias, address = in(reg) address,
                        before = out(reg) _, written = out(reg) written, read = out(reg) read,
                        options(nostack, preserves_flags)
                    );
                }
            };
        }
        // AT S1E2W and AT S1E2R exist at EL2 only. They use the regime of the kernel there: EL2&0 if HCR_EL2.E2H is 1,
        // whatever HCR_EL2.TGE is. AT S1E1W and AT S1E1R would use that regime only if TGE is 1, too (Arm ARM, C5.4).
        if is_at_el2() {
            translate!("s1e2w", "s1e2r");
        } else {
            translate!("s1e1w", "s1e1r");
        }
        if written & FAILED != 0 {
            return Err(EmbeddingError::NotWritable { address, alias });
        }
        if read & FAILED == 0 && (read ^ written) & ADDRESS != 0 {
            return Err(EmbeddingError::AliasMismatch { address, alias });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// The engine would write to memory that is not text, such as that of code that ran once at the start.
    #[test]
    fn an_event_outside_the_text_is_refused() {
        let (region, text) = (0x1000..0x2000, 0x1000..0x8000);
        let check = |sites: &[usize]| check_sites(sites.iter().map(|&site| (site, site + 64)), &region, &text);
        assert_eq!(check(&[0x2000, 0x7ffc]), Ok(()));
        let inside = EmbeddingError::EventInHitPath { site: 0x1ffc, region: region.clone() };
        assert_eq!(check(&[0x2000, 0x1ffc]), Err(inside));
        assert_eq!(
            check(&[0x2000, 0x8000]).unwrap_err().to_string(),
            "a static event happens at 0x8000, outside of 0x1000..0x8000, the text that `Platform::text` returns: move \
             its `emit!` to code inside"
        );
    }

    /// The site would stay a NOP, and no probe would hear of the event.
    #[test]
    fn an_event_whose_block_is_out_of_reach_is_refused() {
        const REACH: usize = 1 << 27;
        let check = |block| check_sites([(0x2000, 0x2008), (0x4000, block)].into_iter(), &(0..0), &(0x1000..0x8000));
        assert_eq!(check(0x4000 + REACH - 4), Ok(()));
        assert_eq!(
            check(0x4000 + REACH).unwrap_err().to_string(),
            "a static event happens at 0x4000, and the block that tells of it is at 0x8004000, out of reach of a branch: place the \
             sections of the text within 128 MiB of each other"
        );
    }

    /// Probes would be stepped, at the cost of a second exception.
    #[test]
    fn executable_memory_out_of_reach_is_refused() {
        const REACH: usize = 1 << 27;
        let text = 0x1000_0000..0x1010_0000;
        for memory in [text.start, text.end - 4 + (REACH - 4), text.start - (REACH - 4)] {
            assert_eq!(check_reach(memory, &text), Ok(()));
        }
        for memory in [text.end + REACH, text.start - REACH - 4] {
            let error = EmbeddingError::ExecutableOutOfReach { address: memory, text: text.clone() };
            assert_eq!(check_reach(memory, &text), Err(error));
        }
    }

    /// Exceptions would be taken to another vector, on another stack, or with other registers.
    #[test]
    fn a_state_in_which_no_probe_works_is_refused() {
        const E2H: u64 = 1 << 34;
        let check = |level: u64, sp_sel, hcr| check_state(level << 2, sp_sel, hcr).map_err(|error| error.to_string());
        assert_eq!([check(1, 1, 0), check(2, 1, E2H)], [Ok(()), Ok(())]);
        for (refused, says) in [
            (check(1, 0, 0), "with SP_EL0 (PSTATE.SP is 0)"),
            (check(2, 0, E2H), "the stack pointer of EL2"),
            (check(2, 1, !E2H), "at EL2 with HCR_EL2.E2H clear"),
            (check(3, 1, 0), "runs at EL3, but the engine needs EL1 or EL2"),
            (check(3, 0, 0), "runs at EL3, but the engine needs EL1 or EL2"),
        ] {
            let error = refused.unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    /// Only one of the two could be listened to by its name.
    #[test]
    fn two_events_of_one_name_are_refused() {
        crate::event! {
            struct First = plant:filled { litres: u64 }
        }
        crate::event! {
            struct Other = plant:emptied { litres: u64 }
        }
        crate::event! {
            struct Second = plant:filled { tank: u8 }
        }
        assert_eq!(check_names([First::EVENT, Other::EVENT].into_iter()), Ok(()));
        assert_eq!(
            check_names([First::EVENT, Other::EVENT, Second::EVENT].into_iter()).unwrap_err().to_string(),
            "two static events are named plant:filled: rename one of them in its `event!`"
        );
    }
}
