//! The end: how the machine stops when it cannot go on.
//!
//! Whatever brings the end, a panic, an exception or a probe that there is no way back from, may be met again by the
//! report of it. So a CPU counts the reports that it has begun: the first is a full one, the second, which the first
//! has failed with, a line, and with the third it gives up.
//!
//! One CPU reports, the first that has something to report. It stops the others before it does: they wait forever, with
//! interrupts masked, where their interrupt finds them, or where they have something to report themselves, or are held for
//! a rendezvous, or want to write to the UART. A CPU that has interrupts masked and comes to none of these, as one that
//! waits for a lock that will not be free any more, is named.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;

use aarch64_cpu::asm;
use aarch64_cpu::registers::{DAIF, Writeable};
use aarch64_kprobes::exception;
use heapless::String;

use crate::interrupt::{self, Ipi};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::IrqLock;
use crate::{backtrace, power, println, smp, task, time, uart};

/// How long the CPU that reports waits for the others to stop.
const TIME_TO_STOP: Duration = Duration::from_secs(1);

/// The reason for which the machine has stopped, for a debugger, where there was no UART to tell it.
#[unsafe(no_mangle)]
static MACHINE_EPITAPH: IrqLock<String<256>> = IrqLock::new(String::new());

/// How many reports each CPU is in the middle of.
static REPORTS: PerCpu<AtomicUsize> = PerCpu::new([const { AtomicUsize::new(0) }; MAX_CPUS]);
/// The epitaph is written.
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);
/// The dense number of the CPU that reports, plus 1; 0 while none does.
static REPORTER: AtomicUsize = AtomicUsize::new(0);
/// Which CPUs have stopped, by their dense numbers. Not [`PerCpu`], whose access may panic.
static STOPPED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// How much a report of a failure attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything.
    Full,
    /// The reason alone: a full report has failed.
    Line,
}

/// Counts a report that this CPU begins, with interrupts masked, of a failure that it will not survive, and stops the
/// others. Does not return where a short report has failed already, or another CPU reports.
pub(crate) fn begin_report() -> Extent {
    stop_others();
    match REPORTS.here().fetch_add(1, Ordering::Relaxed) {
        0 => Extent::Full,
        1 => Extent::Line,
        _ => halt(),
    }
}

/// Reports `machine stopped: REASON` and stops this CPU forever, with interrupts masked. A Raspberry Pi is reset then,
/// for the next kernel, once its device tree is read.
pub fn stop(reason: fmt::Arguments) -> ! {
    mask_all();
    // SAFETY: interrupts were just masked, and this does not return.
    unsafe { exception::abandon_cpu() };
    stop_others();
    write_epitaph(reason);
    println!("\nmachine stopped: {reason}");
    uart::flush();
    power::reset_stopped();
    halt()
}

/// Stops the machine on request, for a host that gets no other answer from it, and reports what this CPU was doing.
pub(crate) fn stop_as_told(reason: fmt::Arguments) -> ! {
    mask_all();
    // SAFETY: interrupts were just masked, and this does not return.
    unsafe { exception::abandon_cpu() };
    if begin_report() == Extent::Full {
        println!("\n{}", backtrace::current());
    }
    stop(reason)
}

/// Leaves the reason to a debugger, before the attempt to report it. The first reason counts: what fails while it is
/// reported does not replace it.
pub(crate) fn write_epitaph(reason: fmt::Arguments) {
    if !IS_WRITTEN.swap(true, Ordering::Relaxed)
        && let Some(mut epitaph) = MACHINE_EPITAPH.try_lock()
    {
        // Of a text that is too long, as much as there is room for.
        let _ = write!(epitaph, "{reason}");
    }
}

/// Makes this CPU the one that reports. Returns when the others have stopped, or when those that have not are named; and
/// does not return where another one reports.
fn stop_others() {
    let this = task::current_cpu();
    match REPORTER.compare_exchange(0, this + 1, Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) => {}
        Err(reporter) if reporter == this + 1 => return,
        Err(_) => stopped(this),
    }
    smp::running().filter(|cpu| *cpu != this).for_each(|cpu| interrupt::send(cpu, Ipi::Stop));
    let deadline = time::counter().saturating_add(time::ticks(TIME_TO_STOP));
    while still_running().next().is_some() && time::counter() < deadline {
        core::hint::spin_loop();
    }
    still_running().for_each(|cpu| println!("\nCPU {cpu} does not stop: it has interrupts masked"));
}

/// The dense numbers of the CPUs that have not stopped, but for the one that reports: fewer with time, once it does.
pub fn still_running() -> impl Iterator<Item = usize> {
    let reporter = REPORTER.load(Ordering::Relaxed);
    smp::running().filter(move |cpu| cpu + 1 != reporter && !STOPPED[*cpu].load(Ordering::Acquire))
}

/// Whether a CPU reports.
pub(crate) fn is_stopping() -> bool {
    REPORTER.load(Ordering::Relaxed) != 0
}

/// Stops this CPU, with the dense number `cpu`, if another one reports. With interrupts masked, and where no probe can be.
#[inline(always)]
pub(crate) fn stop_if_told(cpu: usize) {
    let reporter = REPORTER.load(Ordering::Relaxed);
    if reporter != 0 && reporter != cpu + 1 {
        stopped(cpu);
    }
}

/// Stops this CPU, with the dense number `cpu`, forever, with interrupts masked: another one reports.
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

/// Takes this CPU out of use forever, without a word.
pub(crate) fn park() -> ! {
    mask_all();
    halt()
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    mask_all();
    // SAFETY: interrupts were just masked, and this does not return.
    unsafe { exception::abandon_cpu() };
    let extent = begin_report();
    let Some(location) = info.location() else { stop(format_args!("panic")) };
    if extent == Extent::Line {
        stop(format_args!("panic at {location} while a failure was reported"));
    }
    println!("\npanic at {location}: {}", info.message());
    println!("{}", backtrace::current());
    stop(format_args!("panic at {location}: {}", info.message()))
}
