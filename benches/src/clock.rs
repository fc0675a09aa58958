//! The clock of the benchmark.
//!
//! An emulator can make the virtual counter tick once for each instruction: QEMU with `-icount shift=0` does, with a
//! counter of 1 GHz. The clock checks for this with a loop of known length. On other machines it uses the cycle counter
//! of the performance monitors (Arm ARM, D13), and the figures are cycles.

use core::arch::asm;
use core::fmt;

use runtime::sync::IrqMask;

use crate::target;

/// A counter.
#[derive(Clone, Copy)]
pub enum Clock {
    /// CNTVCT_EL0, which ticks once for each instruction.
    Instructions,
    /// PMCCNTR_EL0.
    Cycles,
}

/// An error: the machine has no usable counter.
#[derive(Debug)]
pub struct NoClock {
    frequency: u64,
    instructions: u64,
    ticks: u64,
}

impl fmt::Display for NoClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frequency, instructions, ticks } = self;
        write!(
            f,
            "the virtual counter, of {frequency} Hz, has ticked {ticks} times in {instructions} instructions, not once an \
             instruction, and this CPU has no cycle counter"
        )
    }
}

macro_rules! read {
    ($register:literal) => {{
        let value: u64;
        // SAFETY: reads a system register, and has no other effect.
        unsafe { asm!(concat!("mrs {}, ", $register), out(reg) value, options(nostack, preserves_flags)) };
        value
    }};
}

impl Clock {
    /// Finds the counter of this machine.
    ///
    /// # Errors
    ///
    /// There is no usable counter.
    pub fn find() -> Result<Self, NoClock> {
        const TIMES: u64 = 1000;
        let _mask = IrqMask::new();
        let (instructions, ticks) = (2 * TIMES, calibrate(2 * TIMES) - calibrate(TIMES));
        if ticks == instructions {
            return Ok(Self::Instructions);
        }
        if !has_performance_monitors() {
            return Err(NoClock { frequency: read!("cntfrq_el0"), instructions, ticks });
        }
        start_cycle_counter();
        Ok(Self::Cycles)
    }

    /// Returns the unit that the clock counts.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
        }
    }

    /// Returns the count. The read is ordered after all preceding instructions, and before all following ones.
    #[inline(always)]
    pub fn now(self) -> u64 {
        synchronize();
        let now = match self {
            Self::Instructions => read!("cntvct_el0"),
            Self::Cycles => read!("pmccntr_el0"),
        };
        synchronize();
        now
    }
}

/// Returns the ticks of the virtual counter during `2 * times` instructions, and during a few more whose number is
/// constant.
#[inline(never)]
fn calibrate(times: u64) -> u64 {
    let start = Clock::Instructions.now();
    target::calibrate(times);
    Clock::Instructions.now() - start
}

/// Synchronizes, because reads of the counters may be executed out of order (Arm ARM, D12.2 and D13.2).
#[inline(always)]
fn synchronize() {
    // SAFETY: a context synchronization event has no other effect.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// Returns whether ID_AA64DFR0_EL1.PMUVer, bits 11 to 8, names a version of the architecture's performance monitors:
/// neither 0 (none) nor 15 (another architecture).
fn has_performance_monitors() -> bool {
    !matches!(read!("id_aa64dfr0_el1") >> 8 & 0xf, 0 | 0xf)
}

/// Makes PMCCNTR_EL0 count every cycle at EL1, with 64 bits.
fn start_cycle_counter() {
    // PMCR_EL0 (Arm ARM, D24.5): E enables the counters, C resets the cycle counter, and LC makes it overflow at 64
    // bits. D is clear; it would make it count every 64th cycle only.
    let control: u64 = 1 << 0 | 1 << 2 | 1 << 6;
    let cycle_counter: u64 = 1 << 31;
    // SAFETY: the machine has performance monitors (see `has_performance_monitors`), and nothing else uses them.
    unsafe {
        asm!(
            "msr pmccfiltr_el0, xzr",
            "msr pmcntenset_el0, {counter}",
            "msr pmcr_el0, {control}",
            "isb",
            counter = in(reg) cycle_counter,
            control = in(reg) control,
            options(nostack, preserves_flags),
        );
    }
}
