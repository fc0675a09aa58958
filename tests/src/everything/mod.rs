//! Everything at once: probes on all instructions of the image that can be probed, or on the entries and returns of all
//! functions. The kernel keeps working with any of its code probed: the scheduler, interrupts, the console, and the
//! engine's own registry. Workloads compute the right answers, and the counts add up.
//!
//! The test command runs a short version, because every executed instruction is a hit. The amount of work is
//! chosen when the image is built: the number of hits on instructions, and the number of seconds for which functions
//! are probed.
//!
//! ```text
//! EVERYTHING_HITS=1000000000 EVERYTHING_SECONDS=60 cargo xtask test --timeout 7200 everything
//! ```

mod functions;
mod instructions;
mod samples;

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::probe;
use kprobes_console::symbol;
use runtime::per_cpu::MAX_CPUS;
use runtime::workload::{Report, Workload};
use runtime::{memory, task, workload};

/// Returns all functions of the image, by address. Of overlapping functions, such as aliases, only the first is
/// returned.
fn functions() -> Vec<Range<usize>> {
    let table = symbol::table().expect("the image has symbols");
    let mut end = 0;
    let ranges = table.iter().map(|symbol| symbol.address as usize..(symbol.address + symbol.size) as usize);
    ranges
        .filter(|range| {
            let is_new = range.start >= end;
            end = end.max(range.end);
            is_new
        })
        .collect()
}

/// A counter with a part for each CPU. Only handlers add to it, so an addition is not interrupted.
struct Count([Own; MAX_CPUS]);

#[repr(align(64))]
struct Own(AtomicU64);

impl Count {
    const fn new() -> Self {
        Self([const { Own(AtomicU64::new(0)) }; MAX_CPUS])
    }

    /// Adds one. Called only by handlers, and inlined into them like everything that it calls.
    #[inline(always)]
    fn add(&self) {
        if let Some(Own(count)) = self.0.get(task::current_cpu()) {
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|Own(count)| count.load(Relaxed)).sum()
    }
}

/// Runs a workload, and checks that all its answers are right. It has more tasks than most machines have CPUs.
fn run(workload: &'static Workload, iterations: u64) -> Report {
    let report = workload::run(workload, iterations, 8, || false).unwrap();
    assert_eq!((report.right, report.wrong), (iterations, 0), "{report}");
    report
}

/// Returns the functions that an iteration of `workload` is known to call, with the number of calls. If the environment
/// changes the profile of `Cargo.toml`, some functions may be inlined.
pub fn known_calls(workload: &Workload) -> impl Iterator<Item = (&'static str, u64)> {
    let is_default = option_env!("CARGO_PROFILE_RELEASE_OPT_LEVEL").is_none()
        && option_env!("CARGO_PROFILE_RELEASE_LTO").is_none()
        && option_env!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS").is_none();
    let is_there = |function: &str| symbol::find(function).next().is_some();
    let found = workload.calls.iter().filter(|(function, _)| is_there(function)).count();
    assert!(found > 0 && (!is_default || found == workload.calls.len()), "the functions are in the image");
    workload.calls.iter().copied().filter(move |(function, _)| is_there(function))
}

/// Returns the workload with this name.
fn workload_named(name: &str) -> &'static Workload {
    workload::find(name).expect("there is such a workload")
}

/// Returns the number of heap bytes in use, without the memory that the engine keeps when nothing is probed any more.
fn heap_in_use() -> usize {
    // The first check of an instruction allocates a list of functions that is kept.
    probe::check(heap_in_use as fn() -> usize as usize).expect("its first instruction can be probed");
    let kept = probe::memory();
    memory::statistics().heap_used - kept.table_bytes - kept.counter_bytes
}
