//! How the machine stops when it cannot go on.
//!
//! The cause may be a panic, an exception, or a probe hit that cannot be undone. The report itself may run into the
//! same cause again. So each CPU counts the reports that it has begun. The first is a full report. The second begins
//! because the first failed, and is one line. At the third, the CPU gives up.
//!
//! The first CPU that has something to report is the only one that reports. Before it does, it stops the others. They
//! wait forever, with interrupts masked. A CPU stops at the first of these:
//!
//! - the stop interrupt arrives;
//! - it has something to report itself;
//! - it is held for a rendezvous;
//! - it is about to write to the UART.
//!
//! A CPU that has interrupts masked and reaches none of these is named in the report. An example is a CPU that spins on
//! a lock that will never be free.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;

use aarch64_cpu::asm;
use aarch64_cpu::registers::{DAIF, Writeable};
use aarch64_kprobes::exception;
use heapless::String;
use kprobes_wire::mark;

use crate::interrupt::{self, Ipi};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::IrqLock;
use crate::{backtrace, power, print, println, smp, task, time, uart};

/// How long the reporting CPU waits for the others to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the machine stopped, for a debugger to read if no UART could print it.
#[unsafe(no_mangle)]
static MACHINE_EPITAPH: IrqLock<String<256>> = IrqLock::new(String::new());

/// The number of reports that each CPU has begun.
static REPORTS: PerCpu<AtomicUsize> = PerCpu::new([const { AtomicUsize::new(0) }; MAX_CPUS]);
/// Set once the epitaph has been written.
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);
/// The dense number of the CPU that reports, plus 1; 0 if no CPU reports.
static REPORTER: AtomicUsize = AtomicUsize::new(0);
/// Which CPUs have stopped, by dense number. Not a [`PerCpu`], because indexing one may panic.
static STOPPED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// How much a report of a failure attempts to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The whole report.
    Full,
    /// Only the reason, because a full report has failed.
    Line,
}

/// Counts the beginning of a report on this CPU and stops the other CPUs.
///
/// The caller has masked interrupts, and the failure is one that this CPU does not survive. Does not return if a
/// one-line report has already failed on this CPU, or if another CPU reports.
pub(crate) fn begin_report() -> Extent {
    stop_others();
    match REPORTS.here().fetch_add(1, Ordering::Relaxed) {
        0 => Extent::Full,
        1 => Extent::Line,
        _ => halt(),
    }
}

/// Prints `machine stopped: REASON` and stops this CPU forever, with interrupts masked.
///
/// A Raspberry Pi whose device tree has been read is then reset, so that its loader can take the next kernel.
pub fn stop(reason: fmt::Arguments) -> ! {
    mask_all();
    // SAFETY: `mask_all` has just masked interrupts, and this function does not return.
    unsafe { exception::abandon_cpu() };
    stop_others();
    write_epitaph(reason);
    println!("\nmachine stopped: {reason}");
    uart::flush();
    power::reset_stopped();
    halt()
}

/// Stops the machine because the host asked for it, and reports what this CPU was doing. The host uses this when it
/// gets no other answer.
pub(crate) fn stop_by_request(reason: fmt::Arguments) -> ! {
    mask_all();
    // SAFETY: `mask_all` has just masked interrupts, and this function does not return.
    unsafe { exception::abandon_cpu() };
    if begin_report() == Extent::Full {
        println!("\n{}", backtrace::current().with_lines());
    }
    stop(reason)
}

/// Stores the reason for a debugger, before the report is attempted. Only the first reason is stored: a failure during
/// the report does not replace it.
pub(crate) fn write_epitaph(reason: fmt::Arguments) {
    if !IS_WRITTEN.swap(true, Ordering::Relaxed)
        && let Some(mut epitaph) = MACHINE_EPITAPH.try_lock()
    {
        // A text that is too long is cut where the buffer ends.
        let _ = write!(epitaph, "{reason}");
    }
}

/// Makes this CPU the one that reports, and stops the others. Returns when all of them have stopped, or after naming
/// those that have not. Does not return if another CPU reports.
fn stop_others() {
    let this = task::current_cpu();
    match REPORTER.compare_exchange(0, this + 1, Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) => {}
        Err(reporter) if reporter == this + 1 => return,
        Err(_) => stopped(this),
    }
    smp::running().filter(|cpu| *cpu != this).for_each(|cpu| interrupt::send(cpu, Ipi::Stop));
    let deadline = time::counter().saturating_add(time::ticks(STOP_TIMEOUT));
    while still_running().next().is_some() && time::counter() < deadline {
        core::hint::spin_loop();
    }
    // The text that was being written may be marked. It ends here, so that the host does not take the report for it.
    print!("{}", mark::END);
    still_running().for_each(|cpu| println!("\nCPU {cpu} does not stop: it has interrupts masked"));
}

/// Returns the dense numbers of the CPUs that have not stopped, without the one that reports. The set shrinks as CPUs
/// stop.
pub fn still_running() -> impl Iterator<Item = usize> {
    let reporter = REPORTER.load(Ordering::Relaxed);
    smp::running().filter(move |cpu| cpu + 1 != reporter && !STOPPED[*cpu].load(Ordering::Acquire))
}

/// Returns whether a CPU has begun a report, so that the machine is about to stop.
pub(crate) fn is_stopping() -> bool {
    REPORTER.load(Ordering::Relaxed) != 0
}

/// Stops this CPU, whose dense number is `cpu`, if another CPU reports.
///
/// The caller has masked interrupts. This function is inlined so that code that cannot be probed can call it.
#[inline(always)]
pub(crate) fn stop_if_requested(cpu: usize) {
    let reporter = REPORTER.load(Ordering::Relaxed);
    if reporter != 0 && reporter != cpu + 1 {
        stopped(cpu);
    }
}

/// Marks this CPU, whose dense number is `cpu`, as stopped, and waits forever with interrupts masked.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.machine_stopped")]
fn stopped(cpu: usize) -> ! {
    mask_all();
    if let Some(stopped) = STOPPED.get(cpu) {
        stopped.store(true, Ordering::Release);
    }
    halt()
}

#[inline(always)]
fn mask_all() {
    DAIF.write(DAIF::D::Masked + DAIF::A::Masked + DAIF::I::Masked + DAIF::F::Masked);
}

/// Waits forever.
#[inline(always)]
fn halt() -> ! {
    loop {
        asm::wfi();
    }
}

/// Takes this CPU out of use forever, without a message.
pub(crate) fn park() -> ! {
    mask_all();
    halt()
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    mask_all();
    // SAFETY: `mask_all` has just masked interrupts, and this function does not return.
    unsafe { exception::abandon_cpu() };
    let extent = begin_report();
    let Some(location) = info.location() else { stop(format_args!("panic")) };
    if extent == Extent::Line {
        stop(format_args!("panic at {location} while a failure was reported"));
    }
    println!("\npanic at {location}: {}", info.message());
    println!("{}", backtrace::current().with_lines());
    stop(format_args!("panic at {location}: {}", info.message()))
}
