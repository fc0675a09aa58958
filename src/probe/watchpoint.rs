//! Watchpoints: a handler for each access to some bytes of memory, by the debug registers of the CPUs.
//!
//! A watchpoint owns one pair of registers, the same on every CPU. Enabling it makes every CPU load its registers, by
//! [`Platform::on_each_cpu`](crate::platform::Platform::on_each_cpu).

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use spin::mutex::SpinMutex;

use super::hit::cpu::Cpu;
use super::hit::watch::range::Values;
#[cfg(target_os = "none")]
use super::hit::watch::registers;
use super::hit::watch::slot::{Request, SLOTS, Slot};
use super::hit::watch::{MOST, WatchHandler};
use super::registry::Yield;
use crate::{interrupts, kernel};

/// The reason why memory cannot be watched. Addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchError {
    /// No pair of registers can watch these bytes.
    Range {
        /// The address of the first byte.
        address: usize,
        /// The number of bytes.
        length: usize,
    },
    /// The upper bits of the address are neither all 0 nor all 1: no access has it.
    NotCanonical {
        /// The address of the first byte.
        address: usize,
    },
    /// All watchpoints are in use.
    NoneFree {
        /// The number of watchpoints that a CPU has.
        count: usize,
    },
    /// The caller runs with debug exceptions masked (PSTATE.D): a kernel that does so sees no access.
    Masked,
    /// The kernel runs at EL2. The engine sets the debug registers for accesses at EL1.
    AtEl2,
    /// The kernel does not implement [`Platform::on_each_cpu`](crate::platform::Platform::on_each_cpu).
    OneCpu,
    /// The debug registers of a CPU are in use, but not by the engine.
    Busy {
        /// The address of the first byte.
        address: usize,
    },
    /// A CPU does not keep what is written to its debug registers, because a higher exception level uses them, or has
    /// fewer of them than the CPU that was asked.
    NotKept {
        /// The address of the first byte.
        address: usize,
    },
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Range { address, length } => write!(
                f,
                "no watchpoint covers {length} bytes from {address:#x} on: one covers bytes of one aligned doubleword, or \
                 a power of two up to 2 GiB, aligned to itself"
            ),
            Self::NotCanonical { address } => write!(
                f,
                "{address:#x} cannot be watched: it is no virtual address, because its upper bits are neither all 0 nor \
                 all 1"
            ),
            Self::NoneFree { count } => write!(f, "all {count} watchpoints of the CPU are in use"),
            Self::Masked => f.write_str(
                "the kernel runs with debug exceptions masked (PSTATE.D), so that no access would be reported",
            ),
            Self::AtEl2 => f.write_str(
                "the kernel runs at EL2, and watchpoints report accesses at EL1 only, so none of the kernel",
            ),
            Self::OneCpu => f.write_str(
                "the kernel gives no way to set the debug registers of every CPU: it does not implement \
                 `Platform::on_each_cpu`",
            ),
            Self::Busy { address } => write!(
                f,
                "{address:#x} cannot be watched: a debugger, or another part of the kernel, uses the watchpoints of a CPU"
            ),
            Self::NotKept { address } => write!(
                f,
                "{address:#x} cannot be watched: a CPU does not keep what is written to its debug registers, as when EL2 \
                 or EL3 has them for itself"
            ),
        }
    }
}

impl core::error::Error for WatchError {}

/// What a watchpoint is to watch.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct WatchpointBuilder {
    address: usize,
    length: usize,
    loads: bool,
    stores: bool,
    handler: WatchHandler,
    data: usize,
}

/// A registered watchpoint, which is enabled or not. Dropping it disables it on all CPUs: no handler runs after that,
/// and none is running. If it is enabled, dropping it panics with interrupts masked.
///
/// A kernel that has watchpoints runs its tasks with debug exceptions unmasked (PSTATE.D clear). If it has several
/// CPUs, it implements [`Platform::on_each_cpu`](crate::platform::Platform::on_each_cpu). It may set hardware
/// breakpoints of its own, with MDSCR_EL1.MDE set: they stay enabled.
///
/// ```no_run
/// use core::sync::atomic::{AtomicU64, Ordering};
///
/// use aarch64_kprobes::probe::{WatchError, WatchHit, Watchpoint};
///
/// static LAST: AtomicU64 = AtomicU64::new(0);
///
/// extern "C" fn stored(hit: &WatchHit<'_>) {
///     LAST.store(hit.frame().pc, Ordering::Relaxed);
/// }
///
/// /// Keeps the address of the last instruction that stored to the doubleword at `address`, for as long as the
/// /// watchpoint exists.
/// fn watch(address: usize) -> Result<Watchpoint, WatchError> {
///     let watchpoint = Watchpoint::at(address, 8, stored).stores().register()?;
///     Watchpoint::set_all_enabled([&watchpoint], true)?;
///     Ok(watchpoint)
/// }
/// ```
#[derive(Debug)]
pub struct Watchpoint {
    number: usize,
    address: usize,
    is_enabled: AtomicBool,
}

/// Held by the task that changes which watchpoints are enabled.
static TURN: SpinMutex<(), Yield> = SpinMutex::new(());

impl WatchpointBuilder {
    /// Watches loads.
    pub fn loads(self) -> Self {
        Self { loads: true, ..self }
    }

    /// Watches stores.
    pub fn stores(self) -> Self {
        Self { stores: true, ..self }
    }

    /// Sets the word that the handler gets as [`data`](super::WatchHit::data).
    pub fn data(self, data: usize) -> Self {
        Self { data, ..self }
    }

    /// Takes a pair of registers, without loading them: [`Watchpoint::set_all_enabled`] does that. Each CPU tries
    /// whether its registers keep the values.
    ///
    /// Without [`loads`](Self::loads) and [`stores`](Self::stores), the watchpoint reports nothing.
    ///
    /// # Errors
    ///
    /// - [`WatchError::Range`] or [`WatchError::NotCanonical`] for bytes that cannot be watched.
    /// - [`WatchError::AtEl2`] if the kernel runs at EL2.
    /// - [`WatchError::Masked`] if the caller runs with debug exceptions masked.
    /// - [`WatchError::NoneFree`] if all registers are taken.
    /// - [`WatchError::OneCpu`] if the kernel does not implement
    ///   [`Platform::on_each_cpu`](crate::platform::Platform::on_each_cpu).
    /// - [`WatchError::Busy`] or [`WatchError::NotKept`] if a CPU does not leave its registers to the engine.
    ///
    /// # Panics
    ///
    /// If interrupts are masked, as they are in a handler: it would wait for itself.
    pub fn register(self) -> Result<Watchpoint, WatchError> {
        let Self { address, length, loads, stores, handler, data } = self;
        let range = WatchError::Range { address, length };
        let values = Values::of(address as u64, length as u64).ok_or(range)?;
        #[cfg(target_os = "none")]
        let count = if interrupts::is_at_el2() {
            return Err(WatchError::AtEl2);
        } else if registers::are_masked() {
            return Err(WatchError::Masked);
        } else if !is_canonical(address as u64, registers::translation_control()) {
            return Err(WatchError::NotCanonical { address });
        } else {
            registers::watchpoints()
        };
        #[cfg(not(target_os = "none"))]
        let count = SLOTS.len();
        let request = Request { address: address as u64, bytes: length as u64, values, loads, stores, handler, data };
        let number = Slot::take(count, &request).ok_or(WatchError::NoneFree { count })?;
        counted(number, true);
        let watchpoint = Watchpoint { number, address, is_enabled: AtomicBool::new(false) };
        in_turn(|| watchpoint.check())?;
        Ok(watchpoint)
    }
}

impl Watchpoint {
    /// Begins to describe a watchpoint on the `length` bytes from the virtual address `address` on, which calls
    /// `handler`. It watches [loads](WatchpointBuilder::loads), [stores](WatchpointBuilder::stores), or both.
    ///
    /// The bytes lie in one aligned doubleword; or their number is a power of two, at most 2 GiB, and the address is a
    /// multiple of it.
    ///
    /// These accesses are not seen:
    ///
    /// - with debug exceptions masked (PSTATE.D): by the engine, by handlers of probes, by an instruction that is
    ///   stepped for a post-handler, and wherever else the kernel masks them, as exception entry does;
    /// - by a stub, the snippet in front of it, or the trampoline of a return probe, while debug exceptions are
    ///   unmasked there;
    /// - at another virtual address of the same memory, by devices, and by unprivileged instructions such as LDTR;
    /// - at exception levels other than EL1; a kernel that runs at EL2 can register no watchpoint;
    /// - loads by the engine for a probed load of a literal.
    ///
    /// An access is reported to each watchpoint that it touches, if
    /// [`MemoryAccess::of`](crate::insn::MemoryAccess::of) knows the instruction. Of other accesses only one byte is
    /// known: the one that FAR_EL1 names or, if no watchpoint watches that, the first byte of the nearest watchpoint
    /// above it (Arm ARM, D2.10.5). They are reported to the watchpoints that watch this byte, and not to others that
    /// they touch.
    ///
    /// The store of a store-exclusive is reported after it has stored; one that does not store is not reported. A
    /// store-exclusive whose load-exclusive was not watched fails once. If a sequence from a load-exclusive to its
    /// store-exclusive has more exits than the CPU has breakpoints, the watchpoint is [given up](Self::given_up_at). It
    /// is also given up if a call, a return or a system instruction in the sequence has kept it from storing many times
    /// in a row; and if a loop that compares has not stored as often, and executes no CLREX then (code of LLVM does,
    /// except at opt-level 0). It is given up at once if a branch between the load-exclusive and the store-exclusive
    /// leads back, as in a lock that waits by load-exclusives, or polls without an instruction that waits (YIELD, WFE).
    pub fn at(address: usize, length: usize, handler: WatchHandler) -> WatchpointBuilder {
        WatchpointBuilder { address, length, loads: false, stores: false, handler, data: 0 }
    }

    /// Enables or disables `watchpoints` on all CPUs. When it has disabled them, no handler is running, and none will
    /// run.
    ///
    /// A CPU that starts calls [`initialize_cpu`].
    ///
    /// # Errors
    ///
    /// [`WatchError::OneCpu`], or [`WatchError::NotKept`] if the registers of a CPU cannot be set. None of
    /// `watchpoints` is enabled then.
    ///
    /// # Panics
    ///
    /// If interrupts are masked, as they are in a handler: it would wait for itself.
    pub fn set_all_enabled<'a>(
        watchpoints: impl IntoIterator<Item = &'a Self>,
        is_enabled: bool,
    ) -> Result<(), WatchError> {
        // Before its turn, because the iterator may change other watchpoints.
        let mut all = [None; MOST];
        for watchpoint in watchpoints {
            all[watchpoint.number] = Some(watchpoint);
        }
        in_turn(|| change(&all, is_enabled))
    }

    /// Finds out whether the watchpoint can be enabled on all CPUs, in the turn of the caller.
    fn check(&self) -> Result<(), WatchError> {
        let address = self.address;
        let _ = (is_busy(), has_failed());
        select(self.number);
        if !kernel::on_each_cpu(try_registers) {
            Err(WatchError::OneCpu)
        } else if is_busy() {
            Err(WatchError::Busy { address })
        } else if has_failed() {
            Err(WatchError::NotKept { address })
        } else {
            Ok(())
        }
    }

    /// Returns the number of accesses that were reported.
    #[must_use]
    pub fn hits(&self) -> u64 {
        counted(self.number, false)[0]
    }

    /// Returns the number of accesses that were not reported, because another hit was being handled on the CPU.
    #[must_use]
    pub fn missed(&self) -> u64 {
        counted(self.number, false)[1]
    }

    /// Returns the virtual address of the first watched byte.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns the virtual address of a load-exclusive whose sequence could not be followed to its end, or failed each
    /// time. No CPU has watched since.
    #[must_use]
    pub fn given_up_at(&self) -> Option<usize> {
        let address = self.slot()?.given_up_at.load(Ordering::Relaxed);
        (address != 0).then_some(address as usize)
    }

    fn slot(&self) -> Option<&'static Slot> {
        SLOTS.get(self.number)
    }

    fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            slot.set_armed(is_enabled);
        }
    }
}

impl Drop for Watchpoint {
    /// Disables and frees the watchpoint.
    ///
    /// # Panics
    ///
    /// If it is enabled and interrupts are masked. The panic does not unwind, because the owner would then drop what
    /// the handler uses.
    fn drop(&mut self) {
        if self.is_enabled.load(Ordering::Relaxed) {
            if interrupts::are_masked() {
                interrupts::refuse_drop(&format_args!("an armed watchpoint must not be dropped in a handler"));
            }
            // Disabling fails only where enabling has failed before.
            let _ = Self::set_all_enabled([&*self], false);
        }
        if let Some(slot) = self.slot() {
            slot.free();
        }
    }
}

/// Returns the number of watchpoints that this CPU has.
#[must_use]
pub fn watchpoints() -> usize {
    #[cfg(target_os = "none")]
    return registers::watchpoints();
    #[cfg(not(target_os = "none"))]
    return SLOTS.len();
}

/// Loads the debug registers of this CPU that belong to watchpoints, if there are any. A kernel calls it on a CPU that
/// starts, after it has included the CPU in [`Platform::on_each_cpu`](crate::platform::Platform::on_each_cpu), and
/// before the CPU runs anything that may touch watched bytes. So no change of a watchpoint passes the CPU by: it is
/// seen here, or `on_each_cpu` includes the CPU.
///
/// # Safety
///
/// The word at [`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET) holds the state of this CPU: it is read.
pub unsafe fn initialize_cpu() {
    // As in `load_on_each_cpu`, the other way round: the CPU is included before the slots are read.
    fence(Ordering::SeqCst);
    load_registers();
}

#[cfg(target_os = "none")]
use super::hit::watch::range::is_canonical;
#[cfg(target_os = "none")]
use super::hit::watch::{has_failed, is_busy, load_registers, select, try_registers};
#[cfg(not(target_os = "none"))]
use without_registers::{has_failed, is_busy, load_registers, select, try_registers};

/// The host's tests have no debug registers.
#[cfg(not(target_os = "none"))]
mod without_registers {
    pub(super) fn select(_: usize) {}
    pub(super) fn try_registers() {}
    pub(super) fn load_registers() {}
    pub(super) fn is_busy() -> bool {
        false
    }
    pub(super) fn has_failed() -> bool {
        false
    }
}

/// Calls `change` while no other task changes which watchpoints are enabled.
fn in_turn<T>(change: impl FnOnce() -> T) -> T {
    assert!(!interrupts::are_masked(), "CPUs cannot be waited for with interrupts masked");
    // Dropped also if `change` panics.
    let _turn = TURN.lock();
    change()
}

/// Enables or disables `watchpoints`, in the turn of the caller.
fn change(watchpoints: &[Option<&Watchpoint>], is_enabled: bool) -> Result<(), WatchError> {
    has_failed();
    let watchpoints = || watchpoints.iter().flatten();
    watchpoints().for_each(|watchpoint| watchpoint.set_enabled(is_enabled));
    let problem = if !load_on_each_cpu() {
        WatchError::OneCpu
    } else if is_enabled && has_failed() {
        let address = watchpoints().next().map_or(0, |watchpoint| watchpoint.address());
        WatchError::NotKept { address }
    } else {
        return Ok(());
    };
    watchpoints().for_each(|watchpoint| watchpoint.set_enabled(false));
    load_on_each_cpu();
    Err(problem)
}

/// Loads the debug registers of each CPU from the slots, which have been changed. Returns whether the kernel can do
/// that.
fn load_on_each_cpu() -> bool {
    // The slots are changed before the kernel reads which CPUs there are. A CPU that is not yet among them sees the
    // change in `initialize_cpu`.
    fence(Ordering::SeqCst);
    kernel::on_each_cpu(load_registers)
}

/// Returns the numbers of hits and of missed hits on all CPUs, and forgets them if `is_reset`.
fn counted(number: usize, is_reset: bool) -> [u64; 2] {
    let each = (0..kernel::cpus()).map(|cpu| Cpu::of(cpu).watchpoints.counted(number, is_reset));
    each.fold([0; 2], |[hits, missed], [more, more_missed]| [hits + more, missed + more_missed])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::WatchHit;

    fn handler(_: &WatchHit<'_>) {}

    /// Another task would wait for its turn forever.
    #[test]
    fn a_change_that_panics_ends_its_turn() {
        let panics = std::panic::catch_unwind(|| in_turn(|| panic!("by the test")));
        assert!(panics.is_err());
        in_turn(|| ());
    }

    #[test]
    fn each_watchpoint_has_registers_of_its_own_until_it_is_dropped() {
        let one = || Watchpoint::at(0x1000, 8, handler).stores().register();
        let mut all: Vec<Watchpoint> = (0..SLOTS.len()).map(|_| one().unwrap()).collect();
        assert_eq!(one().unwrap_err(), WatchError::NoneFree { count: SLOTS.len() });
        let freed = all.swap_remove(3).number;
        assert_eq!(one().unwrap().number, freed);
        let mut numbers: Vec<usize> = all.iter().map(|watchpoint| watchpoint.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SLOTS.len() - 1);
        Watchpoint::set_all_enabled(&all, true).unwrap();
        drop(all);
        assert!(one().is_ok());
        let error = Watchpoint::at(0x1006, 4, handler).register().unwrap_err();
        assert_eq!(error, WatchError::Range { address: 0x1006, length: 4 });
        assert_eq!(
            error.to_string(),
            "no watchpoint covers 4 bytes from 0x1006 on: one covers bytes of one aligned doubleword, or a power of two up \
             to 2 GiB, aligned to itself"
        );
    }
}
