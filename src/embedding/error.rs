//! The mistakes in how a kernel embeds the engine, as data and as sentences.

use core::fmt;
use core::ops::Range;

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
