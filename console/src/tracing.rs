//! The parts of the trace layer that the kernel configures: rings, names, and the services for events.
//! [`ContextLayout`](kprobes_trace::context::ContextLayout) configures what hits load.

use core::ops::Range;

use aarch64_kprobes::platform;
use fallible::OutOfMemory;
use kprobes_trace::engine::Probe;
use kprobes_trace::events::{self, Events, RegisteredProbe, Services};
use kprobes_trace::filter::FindFunction;
use kprobes_trace::ring::{ResizeError, Rings};
use kprobes_trace::symbols::{Function, Symbols};
use kprobes_types::{LineError, Types};
use spin::Once;

use crate::host::{cpus, host, masked, memory_to_spare};
use crate::{prologue, source_lines, symbol, time, types};

/// An event with its probe.
pub(crate) type Event = events::Event<Probe>;

/// Returns the rings of the CPUs, which are made at the first call.
///
/// # Panics
///
/// Panics if there is no memory for the rings.
pub fn rings() -> &'static Rings {
    static RINGS: Once<Rings> = Once::new();
    RINGS.call_once(|| make_rings().expect("there is memory for the rings"))
}

/// Makes rings of the size that the kernel has chosen.
pub(crate) fn make_rings() -> Result<Rings, OutOfMemory> {
    let host = host();
    Rings::new(cpus(), host.ring_bytes(), host.interrupts())
}

/// Resizes each ring to at least `bytes` bytes. The newest records are kept, as many as fit.
///
/// # Errors
///
/// There is no memory, or the rings would take more than the memory to spare. Nothing has changed then.
pub fn resize_rings(bytes: usize) -> Result<(), ResizeError> {
    resize(rings(), None, bytes)
}

/// Resizes the ring of `cpu` in `rings`, or each ring if `cpu` is `None`, to at least `bytes` bytes.
///
/// # Errors
///
/// Returns the errors of [`resize_rings`].
pub(crate) fn resize(rings: &Rings, cpu: Option<usize>, bytes: usize) -> Result<(), ResizeError> {
    let mut hold = |action: &mut dyn FnMut()| platform::hold_cpus(&mut || masked(action));
    // SAFETY: no hit is handled while `hold` runs its action: `Host::masked` guarantees this for this CPU, and
    // `hold_cpus` holds every other CPU at a point where it handles no hit.
    unsafe { rings.resize(cpu, bytes, memory_to_spare(), &mut hold) }
}

/// Makes a list without events, whose records will go to `rings`.
///
/// # Errors
///
/// There is no memory for the state of the readers.
pub fn events<P: RegisteredProbe>(rings: &'static Rings) -> Result<Events<P>, OutOfMemory> {
    let services = Services {
        is_caller_in_x30: |address| prologue::is_caller_in_x30(address as usize),
        now: || time::now().as_micros() as u64,
        free: memory_to_spare,
        clock: time::clock,
        functions: FindFunction {
            named: |name, each| symbol::meant(name).for_each(|symbol| each(range(&symbol))),
            at: |address| symbol::lookup(address as usize).map(|symbol| range(&symbol)),
        },
    };
    Events::new(rings, services)
}

/// The symbol table of the image, for the trace layer.
pub struct Names;

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        symbol::lookup(address as usize).map(function)
    }

    /// Assumes that every named function is reached only by calls under the procedure call standard, unless the engine
    /// finds otherwise in the code.
    fn is_call(&self, address: u64) -> bool {
        self.lookup(address).is_some_and(|function| function.address == address)
    }

    fn signature(&self, address: u64) -> Option<(Types<'_>, kprobes_types::Function<'_>)> {
        let types = types::table().ok()?;
        Some((*types, types.function(address)?))
    }

    fn line(&self, file: &str, line: u32, each: &mut dyn FnMut(u64)) -> Result<(), LineError<'_>> {
        source_lines::addresses(file, line)?.for_each(each);
        Ok(())
    }

    fn find<'a>(&'a self, name: &str, each: &mut dyn FnMut(Function<'a>)) {
        symbol::meant(name).for_each(|symbol| each(function(symbol)));
    }

    fn is_trampoline(&self, address: u64) -> bool {
        aarch64_kprobes::probe::is_trampoline(address as usize)
    }

    fn is_interrupt_entry(&self, function: u64) -> bool {
        host().is_interrupt_entry(function as usize)
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

fn range(symbol: &kprobes_symbols::Symbol<'_>) -> Range<u64> {
    symbol.address..symbol.address + symbol.size
}

fn function(symbol: kprobes_symbols::Symbol<'static>) -> Function<'static> {
    Function { name: symbol.name, address: symbol.address, size: symbol.size }
}
