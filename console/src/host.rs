//! The services that a kernel provides to the console.
//!
//! Two functions are required: one to read and one to write. All others have defaults, which fit a kernel without
//! tasks, whose CPUs all run, and with `kprobes-tables.x` in its linker script. The trace layer finds what it loads at
//! every hit through a trait of its own, [`kprobes_trace::context::ContextLayout`].

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::platform;
use fallible::OutOfMemory;
pub use kprobes_program::syntax::{HardwareEvent, Period};
use kprobes_symbols::image;
use kprobes_trace::clock::Clock;
use spin::Once;

use crate::time;

/// A started task.
pub trait Task: Send {
    /// Waits until the task has ended. Called once.
    fn join(&mut self);
}

/// Starts a task with this name and body. Returns a handle to wait for its end, or an error if there is no memory for
/// it.
pub type Spawn = fn(&str, Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>, OutOfMemory>;

/// The reason why the CPUs cannot be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingError {
    /// The machine has no suitable timer, for this reason: a clause of a sentence.
    Timer(&'static str),
    /// The machine has no counters of events that can interrupt, for this reason: a clause of a sentence.
    Counters(&'static str),
    /// The machine does not count this event.
    NotCounted(HardwareEvent),
    /// The machine counts at most this many events at once.
    TooManyEvents(usize),
    /// The CPUs are already being sampled.
    Busy,
    /// There is not enough memory.
    OutOfMemory,
}

impl fmt::Display for SamplingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timer(why) => write!(f, "the CPUs cannot be sampled: {why}"),
            Self::Counters(why) => {
                write!(f, "the CPUs cannot be sampled by events of hardware: {why}; use profile:hz:N")
            }
            Self::NotCounted(event) => write!(f, "this machine does not count {}; use profile:hz:N", event.name()),
            Self::TooManyEvents(most) => write!(f, "this machine counts at most {most} events of hardware at once"),
            Self::Busy => f.write_str("the CPUs are sampled already: end the other program first"),
            Self::OutOfMemory => f.write_str("there is not enough memory to sample the CPUs"),
        }
    }
}

impl SamplingError {
    /// Returns the index of the first of `periods` that the error is about.
    pub(crate) fn place(self, mut periods: impl Iterator<Item = Period>) -> Option<usize> {
        match self {
            Self::NotCounted(missing) => periods.position(|period| period.event() == Some(missing)),
            Self::Counters(_) => periods.position(|period| period.event().is_some()),
            Self::TooManyEvents(most) => {
                periods.enumerate().filter(|(_, period)| period.event().is_some()).nth(most).map(|(index, _)| index)
            }
            Self::Timer(_) | Self::Busy | Self::OutOfMemory => periods.next().map(|_| 0),
        }
    }
}

impl From<OutOfMemory> for SamplingError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// The code that can be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All code except for handlers of exceptions and hits.
    Masked,
    /// Only code that has interrupts unmasked, for this reason: a clause of a sentence.
    Unmasked(&'static str),
}

/// The function that is called for a sample, and its first argument.
#[derive(Clone, Copy, Debug)]
pub struct SampleHandler {
    /// Called on the sampled CPU, with all interrupts masked. The arguments are `data`; the index of the period; the
    /// number of samples that were due since the one before and could not be taken; and the registers of the
    /// interrupted code as they would be without probes. The function takes no lock that the interrupted code may hold,
    /// allocates nothing and does not panic. It may hit probes.
    ///
    /// Returns whether it took the sample. Otherwise the sample counts as one that could not be taken, and the function
    /// is not called again on this CPU.
    pub take: unsafe fn(usize, usize, u64, &TrapFrame) -> bool,
    /// The first argument.
    pub data: usize,
}

/// A running sampling of the CPUs. Dropping it ends the sampling: when the drop returns, no sample is being taken, and
/// none will be.
pub trait Sampler: Send + Sync {
    /// Ends the sampling, as dropping it does. Returns the number of samples, of all periods and CPUs, that were due,
    /// could not be taken, and were not passed to a later [`take`](SampleHandler::take).
    ///
    /// `ended` is the time since the program stopped taking samples, if it has. Samples due since then do not count.
    /// The last sample before, of each period on each CPU, does not count either, because it may have been on its way.
    fn stop(self: Box<Self>, ended: Option<Duration>) -> u64;
}

/// A clock that interrupts every CPU to sample its code, after a time or after a number of events that the CPU counts.
///
/// # Safety
///
/// After a [`Sampler`] has been dropped, its [`SampleHandler`] must not be called.
pub unsafe trait SamplingClock: Sync {
    /// Returns which code can be sampled with `periods`, of which there is at least one.
    ///
    /// A time is at least 10 µs, and a number of events from 10,000 to 2³¹ − 1. Several periods may be equal; each
    /// period of events takes a counter of its own. Events while a sample is taken need not count.
    ///
    /// # Errors
    ///
    /// The CPUs cannot be sampled with these periods.
    fn coverage(&self, periods: &[Period]) -> Result<Coverage, SamplingError>;

    /// Starts to sample every running CPU with each of `periods`, which were passed to [`coverage`](Self::coverage)
    /// before. Called by a task, with interrupts unmasked.
    ///
    /// # Errors
    ///
    /// The CPUs cannot be sampled.
    ///
    /// # Safety
    ///
    /// The function of `handler` can be called with its data, on any CPU, until the result is dropped.
    unsafe fn start(&self, periods: &[Period], handler: SampleHandler) -> Result<Box<dyn Sampler>, SamplingError>;
}

/// The services of the kernel that the console runs in, passed to [`init`](crate::init).
///
/// # Safety
///
/// [`masked`](Self::masked) must behave as documented, and every CPU that hits a probe must have a number below
/// [`cpus`](Self::cpus). The code that records and counts hits relies on both. [`tables`](Self::tables) must return the
/// tables of this image.
///
/// Commands, events and programs can read any address: `*(uint32 *)0x8010000c`. Addresses without memory give no value,
/// but a read of a device register may change the device. Let only trusted people use the console.
pub unsafe trait Host: Sync {
    /// Returns the tables that `cargo kprobes image` made: the names of functions, inlined copies, and types. Bytes
    /// after the tables are ignored. Without tables, nothing can be probed by its name.
    ///
    /// The tables hold the addresses that the image was linked at. By default, returns the region that
    /// `kprobes-tables.x` reserves, which is empty until that command fills it in.
    fn tables(&self) -> &'static [u8] {
        image::reserved()
    }

    /// Writes text to the console. Its lines end in LF. If the terminal needs a CR before LF, this function adds it.
    fn write(&self, text: fmt::Arguments<'_>);

    /// Returns a byte of input, if there is one. The console calls this while it waits for input, and while a command
    /// runs, so that ^C ends the command. A kernel that receives input in an interrupt handler may call
    /// [`input::take`](crate::input::take) instead.
    fn read(&self) -> Option<u8>;

    /// Waits for input, or for a moment. Called by the task of the console.
    ///
    /// By default, lets other tasks run.
    fn wait(&self) {
        platform::yield_now();
    }

    /// Returns whether the last text on the console, from any writer, ended with a newline. `None` if it is unknown;
    /// the console then considers only its own text.
    ///
    /// By default, returns `None`.
    fn is_line_done(&self) -> Option<bool> {
        None
    }

    /// Returns the function that starts tasks, if the kernel has tasks. Without tasks, the output of a program that
    /// runs with a command appears after the command, and its `interval:` clauses run once, at that time.
    ///
    /// By default, returns `None`.
    fn spawn(&self) -> Option<Spawn> {
        None
    }

    /// Lets other tasks run for `duration`.
    ///
    /// By default, yields until the counter has advanced that far.
    fn sleep(&self, duration: Duration) {
        let end = time::now() + duration;
        while time::now() < end {
            platform::yield_now();
        }
    }

    /// Calls `action` once on the calling CPU, with all interrupts masked whose handlers may hit a probe. No other code
    /// on this CPU can hit a probe meanwhile.
    ///
    /// By default, masks all of PSTATE.DAIF.
    fn masked(&self, action: &mut dyn FnMut()) {
        platform::with_masked(action);
    }

    /// Returns the clock that samples the CPUs, for `profile:`, if the kernel has one.
    ///
    /// By default, returns `None`.
    fn sampling_clock(&self) -> Option<&'static dyn SamplingClock> {
        None
    }

    /// Returns the maximum number of CPUs; CPU numbers are below it. Called once, when the first rings or the first
    /// program are made, which is after [`init`](crate::init).
    ///
    /// By default, returns the number that the [`Platform`](aarch64_kprobes::platform::Platform) gives.
    fn cpus(&self) -> usize {
        platform::cpus()
    }

    /// Returns the number of running CPUs.
    ///
    /// By default, returns [`cpus`](Self::cpus).
    fn running_cpus(&self) -> usize {
        self.cpus()
    }

    /// Returns a flag for each CPU number that tells whether the CPU is in an interrupt handler. A CPU without a flag
    /// is never in one.
    ///
    /// By default, returns no flags.
    fn interrupts(&self) -> &'static [AtomicBool] {
        &[]
    }

    /// Returns whether the vectors of interrupts call the function at the virtual address `_function`. The tracer
    /// `function_graph` marks the beginning and the end of such a call.
    ///
    /// By default, returns false.
    fn is_interrupt_entry(&self, _function: usize) -> bool {
        false
    }

    /// Returns whether there is a task with this number; `None` if that is unknown. A program that is restricted to a
    /// task ends with the task.
    ///
    /// By default, returns `None`.
    fn has_task(&self, _number: u64) -> Option<bool> {
        None
    }

    /// Writes lines about this kernel for `trace --info`.
    ///
    /// By default, writes nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    fn write_features(&self, _out: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }

    /// Returns the number of heap bytes that the console may allocate, or `None` if it is unknown. The console then
    /// tries to allocate what it needs, and reports a failure.
    ///
    /// By default, returns `None`.
    fn memory_to_spare(&self) -> Option<usize> {
        None
    }

    /// Returns the initial size of each CPU's ring for records, in bytes.
    ///
    /// By default, returns 64 KiB.
    fn ring_bytes(&self) -> usize {
        64 << 10
    }

    /// Returns the clock of records and programs.
    ///
    /// By default, returns the generic timer with its origin at the first call of [`init`](crate::init).
    fn clock(&self) -> Clock {
        Clock { frequency: time::timer_frequency(), origin: time::counter() }
    }

    /// Returns the end of the text of `help`: example lines that can be typed as they are.
    ///
    /// By default, returns no lines.
    fn example(&self) -> &'static str {
        ""
    }
}

static HOST: Once<&'static dyn Host> = Once::new();
/// The result of [`Host::cpus`], which is called once.
static CPUS: Once<usize> = Once::new();

/// Sets the services of the kernel, and the clock. Later calls have no effect.
pub(crate) fn set(host: &'static dyn Host) {
    HOST.call_once(|| {
        time::init(host.clock());
        host
    });
}

/// Returns the kernel's services.
///
/// # Panics
///
/// Panics if [`init`](crate::init) was not called.
pub(crate) fn host() -> &'static dyn Host {
    *HOST.get().expect("`init` tells the console of its kernel before anything else is asked of it")
}

/// Returns the number of heap bytes that may be allocated; `usize::MAX` if it is unknown.
pub(crate) fn memory_to_spare() -> usize {
    host().memory_to_spare().unwrap_or(usize::MAX)
}

/// Returns the result of the first call of [`Host::cpus`].
pub(crate) fn cpus() -> usize {
    *CPUS.call_once(|| host().cpus())
}

pub(crate) fn running_cpus() -> usize {
    host().running_cpus()
}

pub(crate) fn sleep(duration: Duration) {
    host().sleep(duration);
}

pub(crate) fn masked(action: &mut dyn FnMut()) {
    host().masked(action);
}
