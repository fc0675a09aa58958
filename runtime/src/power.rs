//! Power, by PSCI (Arm DEN 0022): calls to the firmware or the hypervisor.

use core::arch::asm;

use spin::Once;

use crate::device_tree::Conduit;
use crate::{machine, uart};

/// Function identifier (DEN 0022, 5.1.9).
const SYSTEM_OFF: u64 = 0x8400_0008;

static CONDUIT: Once<Conduit> = Once::new();

/// Tells how PSCI is called here.
pub(crate) fn initialize(conduit: Conduit) {
    CONDUIT.call_once(|| conduit);
}

/// Calls a PSCI function without arguments. Returns what is in x0 then, an error if negative; None where there is no
/// PSCI.
fn call(function: u64) -> Option<i64> {
    let result;
    macro_rules! conduit {
        ($instruction:literal) => {
            // SAFETY: the device tree says that PSCI answers this call; it changes x0 to x17 at most (Arm DEN 0028,
            // 2.6), and memory only as the function called is documented to.
            unsafe {
                asm!($instruction, inout("x0") function => result, clobber_abi("C"), options(nostack))
            }
        };
    }
    match CONDUIT.get()? {
        Conduit::Hvc => conduit!("hvc #0"),
        Conduit::Smc => conduit!("smc #0"),
    }
    Some(result)
}

/// Switches the machine off.
pub fn off() -> ! {
    uart::flush();
    match call(SYSTEM_OFF) {
        None => machine::stop(format_args!("power off: the device tree describes no PSCI")),
        Some(error) => machine::stop(format_args!("power off: PSCI answered {error}")),
    }
}
