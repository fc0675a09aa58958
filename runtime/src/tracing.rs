//! What the trace layer needs of this kernel: at a hit, the task; to print, names and the clock.

use kprobes_trace::host::{Clock, Function, Host, Symbols};
use kprobes_trace::ring::{ResizeError, Rings};
use kprobes_trace::trigger::controls::{Controls, Services};
use kprobes_types::{LineError, Types};
use spin::Once;

use crate::interrupt::fast;
use crate::{backtrace, interrupt, lines, memory, smp, symbol, task, time, types};

/// How many bytes the ring of a CPU has.
const BYTES: usize = 512 << 10;

struct Kernel;

kprobes_trace::host!(Kernel);

// SAFETY: TPIDR_EL1 points to a task, in which all of this is at these places.
unsafe impl Host for Kernel {
    const CPU_OFFSET: usize = task::CPU_NUMBER_OFFSET;
    const TASK_OFFSET: usize = task::NUMBER_OFFSET;
    const NAME_OFFSET: usize = task::NAME_OFFSET;
}

/// The rings of the CPUs that run, made when they are first asked for. No CPU is started after boot, so no other is ever hit.
///
/// # Panics
///
/// If there is no memory for them.
pub fn rings() -> &'static Rings {
    static RINGS: Once<Rings> = Once::new();
    RINGS.call_once(|| Rings::new(smp::count(), BYTES, &interrupt::IN_HANDLER).expect("there is memory for the rings"))
}

/// Gives each ring at least so many bytes. The newest records stay, as many as there is room for.
///
/// # Errors
///
/// No memory, of which an eighth is left to others: nothing has changed.
pub fn resize_rings(bytes: usize) -> Result<(), ResizeError> {
    resize_rings_of(None, bytes)
}

/// The same for the ring of `cpu` alone, if it is given.
///
/// # Errors
///
/// As of [`resize_rings`].
pub fn resize_rings_of(cpu: Option<usize>, bytes: usize) -> Result<(), ResizeError> {
    let mut hold = |action: &mut dyn FnMut()| smp::hold_cpus(&mut || fast::without(&mut *action));
    // SAFETY: what is called here has all interrupts masked, and every other CPU is held where it handles no hit.
    unsafe { rings().resize_of(cpu, bytes, memory::statistics().heap_to_spare(), &mut hold) }
}

/// What is set about events: nothing yet.
#[must_use]
pub fn controls() -> Controls {
    Controls::new(Services {
        synchronize: aarch64_kprobes::probe::synchronize,
        in_link: |address| backtrace::is_caller_in_link(address as usize),
        now: || time::now().as_micros() as u64,
        free: || memory::statistics().heap_to_spare(),
    })
}

/// The clock of the trace: microseconds since the kernel started. It is the same at every call, so a record has one time.
#[must_use]
pub fn clock() -> Clock {
    Clock { frequency: time::frequency(), origin: time::start() }
}

/// The functions of the image.
pub struct Names;

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        symbol::lookup(address as usize).map(function)
    }

    /// The assembly of this kernel that has other rules is in the region that cannot be probed, or runs before there are probes.
    fn is_call(&self, address: u64) -> bool {
        self.lookup(address).is_some_and(|function| function.address == address)
    }

    fn signature(&self, address: u64) -> Option<(Types<'_>, kprobes_types::Function<'_>)> {
        let types = types::table().ok()?;
        Some((*types, types.function(address)?))
    }

    fn line(&self, file: &str, line: u32, each: &mut dyn FnMut(u64)) -> Result<(), LineError<'_>> {
        lines::places(file, line)?.for_each(each);
        Ok(())
    }

    fn find<'a>(&'a self, name: &str, each: &mut dyn FnMut(Function<'a>)) {
        symbol::meant(name).for_each(|symbol| each(function(symbol)));
    }

    fn nearest(&self, name: &str) -> Option<&str> {
        symbol::nearest(name)
    }

    fn nearest_static(&self, name: &str) -> Option<&str> {
        symbol::nearest_static(name)
    }

    fn find_static(&self, name: &str, each: &mut dyn FnMut(u64)) {
        symbol::find_static(name).for_each(|symbol| each(symbol.address));
    }

    fn each(&self, each: &mut dyn FnMut(Function<'static>)) {
        symbol::table().into_iter().flat_map(|table| table.iter()).for_each(|symbol| each(function(symbol)));
    }
}

fn function(symbol: kprobes_symbols::Symbol<'static>) -> Function<'static> {
    Function { name: symbol.name, address: symbol.address, size: symbol.size }
}
