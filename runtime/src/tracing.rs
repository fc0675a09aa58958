//! What the trace layer needs of this kernel: at a hit, the task and the time; to print, names and the clock.

use aarch64_cpu::registers::{CNTVCT_EL0, Readable};
use aarch64_kprobes::platform::MAX_CPUS;
use kprobes_trace::host::{Clock, Context, Function, Host, Symbols};
use kprobes_trace::ring::Rings;
use spin::Once;

use crate::{interrupt, symbol, task, time};

/// How many records the ring of a CPU holds; one has 128 bytes.
const RECORDS: usize = 4096;

struct Kernel;

kprobes_trace::host!(Kernel);

impl Host for Kernel {
    #[inline(always)]
    fn context() -> Context {
        let task = task::current();
        // In registers: a copy byte by byte would become a call of memcpy, which may be probed.
        let bytes = task.name().bytes().take(16).enumerate();
        let name = bytes.fold(0, |name, (at, byte)| name | u128::from(byte) << (8 * at)).to_le_bytes();
        let cpu = task::current_cpu();
        Context { cpu, task: task.id(), name, interrupt: interrupt::is_in_handler(cpu) }
    }

    /// Without a barrier: a few instructions earlier or later make no difference.
    #[inline(always)]
    fn counter() -> u64 {
        CNTVCT_EL0.get()
    }
}

/// The rings of all CPUs, made when they are first asked for.
pub fn rings() -> &'static Rings {
    static RINGS: Once<Rings> = Once::new();
    RINGS.call_once(|| Rings::new(MAX_CPUS, RECORDS))
}

/// How many CPUs run tasks.
#[must_use]
pub fn cpus() -> usize {
    // Each has its idle task, and they are numbered from 0.
    task::list().iter().map(|task| task.cpu + 1).max().unwrap_or(1)
}

/// The clock that times in the trace are told by: from the start of the kernel, to the microsecond.
#[must_use]
pub fn clock() -> Clock {
    let origin = time::counter().saturating_sub(time::ticks(time::now()));
    Clock { frequency: time::frequency(), origin }
}

/// The functions of the image.
pub struct Names;

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        symbol::lookup(address as usize).map(function)
    }

    fn find<'a>(&'a self, name: &str, each: &mut dyn FnMut(Function<'a>)) {
        symbol::find(name).for_each(|symbol| each(function(symbol)));
    }
}

fn function(symbol: kprobes_symbols::Symbol<'static>) -> Function<'static> {
    Function { name: symbol.name, address: symbol.address, size: symbol.size }
}
