//! What a kernel provides so that the trace layer can record in it and print what it recorded.
//!
//! Recording happens while a probe is handled. What it needs of the kernel is bound by the linker, as the
//! engine's [`Platform`](aarch64_kprobes::platform::Platform) is: direct calls, which a reader and a tool can
//! follow to their end. Printing happens in a task and takes its services as parameters.

/// What is known of a CPU at a hit, besides its registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The number of the CPU, dense from 0.
    pub cpu: usize,
    /// The number of the task that was interrupted.
    pub task: u64,
    /// The name of the task in UTF-8, filled up with zeros.
    pub name: [u8; 16],
    /// An interrupt handler was interrupted.
    pub interrupt: bool,
}

/// What the kernel is asked at every hit.
///
/// Both functions are called with interrupts masked, inside the handling of a probe: they, and whatever they
/// call, must not be probed, take no lock and allocate nothing, as for the engine's platform.
pub trait Host {
    /// The CPU and what runs on it.
    fn context() -> Context;

    /// The system counter (CNTVCT_EL0 or CNTPCT_EL0), in ticks.
    fn counter() -> u64;
}

/// Exports an implementation of [`Host`]: `host!(MyKernel);`, once in an image.
///
/// The exported functions go into the section `.kprobes.text`, for the region in which nothing is probed, and
/// take along what is inlined into them.
#[macro_export]
macro_rules! host {
    ($host:ty) => {
        const _: () = {
            use $crate::host::{Context, Host};

            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_trace_context() -> Context {
                <$host as Host>::context()
            }
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".kprobes.text")]
            fn kprobes_trace_counter() -> u64 {
                <$host as Host>::counter()
            }
        };
    };
}

/// A function, by its place in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The demangled path.
    pub name: &'a str,
    /// The virtual address of the first instruction.
    pub address: u64,
    /// The length in bytes.
    pub size: u64,
}

/// The names of functions.
pub trait Symbols {
    /// The function that contains the virtual address `address`.
    fn lookup(&self, address: u64) -> Option<Function<'_>>;

    /// The functions whose demangled path is `name`, in the order of their addresses: instances of one generic
    /// function in several crates can share it.
    fn find<'a>(&'a self, name: &str, each: &mut dyn FnMut(Function<'a>));
}

/// How ticks of the counter become times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Ticks a second; not 0.
    pub frequency: u64,
    /// The counter at time 0.
    pub origin: u64,
}

impl Clock {
    /// Microseconds from time 0 to `ticks`.
    #[must_use]
    pub fn microseconds(self, ticks: u64) -> u64 {
        let elapsed = u128::from(ticks.saturating_sub(self.origin));
        (elapsed * 1_000_000 / u128::from(self.frequency.max(1))) as u64
    }
}
