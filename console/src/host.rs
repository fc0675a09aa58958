//! What a kernel provides so that the console can run in it.
//!
//! Two functions are required: to read and to write. All others have defaults, which fit a kernel with one CPU and no tasks, and
//! `kprobes-tables.x` in its linker script. What the trace layer loads at every hit, it finds by
//! [`kprobes_trace::host::Host`].

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

use aarch64_kprobes::platform;
use fallible::OutOfMemory;
use kprobes_trace::host::Clock;
use spin::Once;

use crate::command::Command;
use crate::{screen, time};

/// A task that was started.
pub trait Task: Send {
    /// Waits until it has ended. Called once.
    fn join(&mut self);
}

/// Starts a task of this name, which does this, and returns what waits for its end; or there is no memory for it.
pub type Spawn = fn(&str, Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>, OutOfMemory>;

/// The services of the kernel that the console runs in. [`init`] is told of it.
///
/// # Safety
///
/// [`masked`](Self::masked) is as it says of itself, and no CPU with another number than those that [`cpus`](Self::cpus) says ever hits a
/// probe: what records and counts hits relies on it.
pub unsafe trait Host: Sync {
    /// The tables that `cargo xtask image` has made: the names of functions, copies that were inlined, types. What follows them is
    /// not looked at. Without them, nothing can be probed by its name.
    ///
    /// They have the addresses that the image was linked at. By default what `kprobes-tables.x` has set aside for them, which is empty
    /// until that command has filled it in.
    fn tables(&self) -> &'static [u8] {
        tables()
    }

    /// Writes text to whoever is at the console.
    fn write(&self, text: fmt::Arguments<'_>);

    /// A byte that came from there, if there is one. It is asked for while the console waits, and while a command runs, which ^C
    /// ends. A kernel that gets bytes in an interrupt may hand them to [`input::take`](crate::input::take) instead.
    fn read(&self) -> Option<u8>;

    /// Waits for input: for a moment, or until there is some. Called by the task of the console.
    ///
    /// By default it lets other tasks run.
    fn wait(&self) {
        platform::yield_now();
    }

    /// Whether what was written last, by anyone, was the end of a line.
    ///
    /// By default, what the console has written last.
    fn is_line_done(&self) -> bool {
        screen::was_line()
    }

    /// What starts tasks, if there are tasks. Without them, a program that runs with a command shows what it puts out behind that,
    /// and its clauses with an interval run then, once.
    fn spawn(&self) -> Option<Spawn> {
        None
    }

    /// Lets other tasks run for `duration`.
    ///
    /// By default it waits for the counter.
    fn sleep(&self, duration: Duration) {
        let end = time::now() + duration;
        while time::now() < end {
            platform::yield_now();
        }
    }

    /// Calls `action` once, on the CPU that calls, while nothing on it can hit a probe: all interrupts are masked that lead to
    /// code that can be probed.
    ///
    /// By default all of PSTATE.DAIF is.
    fn masked(&self, action: &mut dyn FnMut()) {
        platform::with_masked(action);
    }

    /// How many CPUs there ever are: their numbers are below this. It is asked once, when the first rings or the first program are made,
    /// which is after [`init`].
    ///
    /// By default as many as the [`Platform`](aarch64_kprobes::platform::Platform) says.
    fn cpus(&self) -> usize {
        platform::cpus()
    }

    /// How many of them run.
    fn running_cpus(&self) -> usize {
        self.cpus()
    }

    /// Which CPUs are in an interrupt handler, by their numbers; those that are not in it never are.
    fn interrupts(&self) -> &'static [AtomicBool] {
        &[]
    }

    /// How many bytes of the heap the console may ask for, if that is known. Without an answer, it asks for what it needs, and
    /// says so when it gets none.
    fn memory_to_spare(&self) -> Option<usize> {
        None
    }

    /// How many bytes the ring of each CPU has in the beginning, which records what is hit.
    fn ring_bytes(&self) -> usize {
        64 << 10
    }

    /// The clock of records and programs.
    ///
    /// By default the generic timer's, from when the console begins.
    fn clock(&self) -> Clock {
        Clock { frequency: time::timer_frequency(), origin: time::counter() }
    }

    /// What `help` ends with: lines that can be typed as they are.
    fn example(&self) -> &'static str {
        ""
    }

    /// Commands of this kernel besides those of the console.
    fn commands(&self) -> &'static [Command] {
        &[]
    }
}

/// What `kprobes-tables.x` has set aside.
fn tables() -> &'static [u8] {
    unsafe extern "C" {
        safe static __kprobes_tables_start: u8;
        safe static __kprobes_tables_end: u8;
    }
    let (start, end) = (&raw const __kprobes_tables_start, &raw const __kprobes_tables_end);
    // SAFETY: the linker script has this as data, which nothing writes to.
    unsafe { core::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

static HOST: Once<&'static dyn Host> = Once::new();
/// What it has said of its CPUs.
static CPUS: Once<usize> = Once::new();

/// Tells the console of the kernel, before anything else of it is used. It says so if the tables are no good. What comes after the
/// first time changes nothing.
pub fn init(host: &'static dyn Host) {
    HOST.call_once(|| {
        time::init(host.clock());
        host
    });
    crate::symbol::init(host.tables());
}

/// The kernel.
///
/// # Panics
///
/// [`init`] was not called.
pub(crate) fn host() -> &'static dyn Host {
    *HOST.get().expect("`init` tells the console of its kernel before anything else is asked of it")
}

/// How many bytes of the heap may be asked for, as far as it is known.
pub(crate) fn memory_to_spare() -> usize {
    host().memory_to_spare().unwrap_or(usize::MAX)
}

/// See [`Host::cpus`].
pub(crate) fn cpus() -> usize {
    *CPUS.call_once(|| host().cpus())
}

/// See [`Host::running_cpus`].
pub(crate) fn running_cpus() -> usize {
    host().running_cpus()
}

/// See [`Host::sleep`].
pub(crate) fn sleep(duration: Duration) {
    host().sleep(duration);
}

/// See [`Host::masked`].
pub(crate) fn masked(action: &mut dyn FnMut()) {
    host().masked(action);
}
