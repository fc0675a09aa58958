//! The end: how the machine stops when it cannot go on.
//!
//! Whatever brings the end, a panic, an exception or a probe that there is no way back from, may be met again by the
//! report of it. So a CPU counts the reports that it has begun: the first is a full one, the second, which the first
//! has failed with, a line, and with the third it gives up.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use aarch64_cpu::asm;
use aarch64_cpu::registers::{DAIF, Writeable};
use aarch64_kprobes::exception;
use heapless::String;

use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::IrqLock;
use crate::{backtrace, println};

/// The reason for which the machine has stopped, for a debugger, where there was no UART to tell it.
#[unsafe(no_mangle)]
static MACHINE_EPITAPH: IrqLock<String<256>> = IrqLock::new(String::new());

/// How many reports each CPU is in the middle of.
static REPORTS: PerCpu<AtomicUsize> = PerCpu::new([const { AtomicUsize::new(0) }; MAX_CPUS]);
/// The epitaph is written.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// How much a report of a failure attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything.
    Full,
    /// The reason alone: a full report has failed.
    Line,
}

/// Counts a report that this CPU begins, of a failure that it will not survive. Does not return where a short report
/// has failed already.
pub(crate) fn begin_report() -> Extent {
    match REPORTS.here().fetch_add(1, Ordering::Relaxed) {
        0 => Extent::Full,
        1 => Extent::Line,
        _ => halt(),
    }
}

/// Reports `machine stopped: REASON` and stops this CPU for ever, with interrupts masked.
pub fn stop(reason: fmt::Arguments) -> ! {
    mask_all();
    exception::abandon_cpu();
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

fn mask_all() {
    DAIF.write(DAIF::D::Masked + DAIF::A::Masked + DAIF::I::Masked + DAIF::F::Masked);
}

/// Waits for ever.
fn halt() -> ! {
    loop {
        asm::wfi();
    }
}

/// Takes this CPU out of use for ever, without a word.
pub(crate) fn park() -> ! {
    mask_all();
    halt()
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    mask_all();
    exception::abandon_cpu();
    let extent = begin_report();
    let Some(location) = info.location() else { stop(format_args!("panic")) };
    if extent == Extent::Line {
        stop(format_args!("panic at {location} while a failure was reported"));
    }
    println!("\npanic at {location}: {}", info.message());
    println!("{}", backtrace::current());
    stop(format_args!("panic at {location}: {}", info.message()))
}
