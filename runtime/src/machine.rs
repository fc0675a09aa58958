//! The end: how the machine stops when it cannot go on.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use aarch64_cpu::asm;
use aarch64_cpu::registers::{DAIF, Writeable};
use aarch64_kprobes::platform::MAX_CPUS;
use heapless::String;

use crate::per_cpu::PerCpu;
use crate::sync::IrqLock;
use crate::{backtrace, println};

/// The reason for which the machine has stopped, for a debugger, where there was no UART to tell it.
#[unsafe(no_mangle)]
static MACHINE_EPITAPH: IrqLock<String<256>> = IrqLock::new(String::new());

/// How many panics each CPU is in the middle of.
static PANICS: PerCpu<AtomicUsize> = PerCpu::new([const { AtomicUsize::new(0) }; MAX_CPUS]);
/// The epitaph is written.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Reports `machine stopped: REASON` and stops this CPU for ever, with interrupts masked.
pub fn stop(reason: fmt::Arguments) -> ! {
    DAIF.write(DAIF::D::Masked + DAIF::A::Masked + DAIF::I::Masked + DAIF::F::Masked);
    write_epitaph(reason);
    println!("\nmachine stopped: {reason}");
    halt()
}

/// Leaves the reason to a debugger, before the attempt to report it. The first reason counts: what fails while it is
/// reported does not replace it.
pub(crate) fn write_epitaph(reason: fmt::Arguments) {
    if !STOPPED.swap(true, Ordering::Relaxed)
        && let Some(mut epitaph) = MACHINE_EPITAPH.try_lock()
    {
        // Of a text that is too long, as much as there is room for.
        let _ = write!(epitaph, "{reason}");
    }
}

/// Waits for ever.
fn halt() -> ! {
    loop {
        asm::wfi();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    DAIF.write(DAIF::D::Masked + DAIF::A::Masked + DAIF::I::Masked + DAIF::F::Masked);
    let nested = PANICS.here().fetch_add(1, Ordering::Relaxed);
    match (nested, info.location()) {
        (0, Some(location)) => {
            println!("\npanic at {location}: {}", info.message());
            println!("{}", backtrace::current());
            stop(format_args!("panic at {location}: {}", info.message()))
        }
        // Formatting the message or the backtrace has panicked.
        (1, Some(location)) => stop(format_args!("panic at {location} while a panic was reported")),
        _ => halt(),
    }
}
