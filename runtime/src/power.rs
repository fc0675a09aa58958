//! Power control by PSCI (Arm DEN 0022): calls to the firmware or the hypervisor. Any CPU can make them. A machine
//! without PSCI may have a watchdog that resets it.

use core::arch::asm;
use core::fmt;
use core::time::Duration;

use device_tree::Conduit;
use spin::Once;

use crate::broadcom::watchdog;
use crate::{machine, time, uart};

/// Function identifiers (DEN 0022, 5.1.4 and 5.1.9).
const CPU_ON: u64 = 0xc400_0003;
const SYSTEM_OFF: u64 = 0x8400_0008;
const SYSTEM_RESET: u64 = 0x8400_0009;
/// How long the watchdog may take to act.
const PATIENCE: Duration = Duration::from_secs(1);

/// An error code of PSCI, a negative number (DEN 0022, 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsciError(i32);

impl fmt::Display for PsciError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let meaning = match self.0 {
            -1 => "not supported",
            -2 => "invalid parameters",
            -3 => "denied",
            -4 => "already on",
            -5 => "on pending",
            -6 => "internal failure",
            -7 => "not present",
            -8 => "disabled",
            -9 => "invalid address",
            _ => "an unknown error",
        };
        write!(f, "PSCI returned {}, {meaning}", self.0)
    }
}

/// How to call PSCI, and whether to reset a machine that has stopped.
static PSCI: Once<(Conduit, bool)> = Once::new();

/// Stores how PSCI is called, and whether the machine is reset after it has stopped.
///
/// A board with a loader is reset so that the loader can take the next kernel. A virtual machine is watched by a
/// person, and stays stopped.
pub(crate) fn initialize(conduit: Conduit, resets_when_stopped: bool) {
    PSCI.call_once(|| (conduit, resets_when_stopped));
}

/// Calls a PSCI function. Returns the outcome that w0 reports, or `None` if the machine has no PSCI.
fn call(function: u64, arguments: [u64; 3]) -> Option<Result<(), PsciError>> {
    let result: u64;
    macro_rules! conduit {
        ($instruction:literal) => {
            // SAFETY: the device tree says that PSCI answers this call. The call changes at most x0 to x17 (Arm DEN
            // 0028, 2.6), and memory only as the PSCI function is documented to.
            unsafe {
                asm!(
                    $instruction,
                    inout("x0") function => result,
                    inout("x1") arguments[0] => _,
                    inout("x2") arguments[1] => _,
                    inout("x3") arguments[2] => _,
                    clobber_abi("C"),
                    options(nostack),
                )
            }
        };
    }
    match PSCI.get()?.0 {
        Conduit::Hvc => conduit!("hvc #0"),
        Conduit::Smc => conduit!("smc #0"),
    }
    match result as i32 {
        error @ ..0 => Some(Err(PsciError(error))),
        _ => Some(Ok(())),
    }
}

/// Starts the CPU with this affinity at the physical address `entry`. Returns `None` if the machine has no PSCI.
pub(crate) fn start_cpu(affinity: u64, entry: u64) -> Option<Result<(), PsciError>> {
    call(CPU_ON, [affinity, entry, 0])
}

/// Switches the machine off, by PSCI or by the watchdog of a Raspberry Pi. Stops the machine if neither works.
pub fn off() -> ! {
    end("power off", SYSTEM_OFF, watchdog::off)
}

/// Resets the machine so that it boots again, by PSCI or by the watchdog of a Raspberry Pi. Stops the machine if
/// neither works.
pub fn reset() -> ! {
    end("reset", SYSTEM_RESET, watchdog::reset)
}

/// Begins to reset a board that has stopped, so that its loader can take the next kernel.
///
/// The watchdog goes first: it takes a moment and cannot fail as a call can. PSCI follows, if [`initialize`] was told
/// to reset. Returns before the watchdog acts, and on machines that are not reset.
pub(crate) fn reset_stopped() {
    watchdog::reset();
    if let Some((_, true)) = PSCI.get() {
        let _ = call(SYSTEM_RESET, [0; 3]);
    }
}

fn end(what: &str, function: u64, by_watchdog: fn()) -> ! {
    uart::flush();
    let psci = call(function, [0; 3]);
    by_watchdog();
    let deadline = time::counter().saturating_add(time::ticks(PATIENCE));
    while watchdog::is_present() && time::counter() < deadline {}
    match psci {
        None if watchdog::is_present() => {
            machine::stop(format_args!("{what}: the watchdog does not reset the machine"))
        }
        None => machine::stop(format_args!("{what}: the device tree describes neither PSCI nor a watchdog")),
        Some(Err(error)) => machine::stop(format_args!("{what}: {error}")),
        Some(Ok(())) => machine::stop(format_args!("{what}: PSCI returned")),
    }
}
