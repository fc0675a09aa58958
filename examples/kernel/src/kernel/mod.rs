//! The kernel: its start, and the work that its tasks do.

mod boot;
pub mod cpu;
mod exception;
#[cfg_attr(feature = "raspi3b", path = "bcm2836.rs")]
#[cfg_attr(not(feature = "raspi3b"), path = "gic.rs")]
pub mod interrupts;
mod report;
pub mod task;
mod timer;

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kprobes_symbols::image;
use talc::TalcLock;
use talc::source::Claim;

use crate::{demonstration, probes}; // probes
pub use boot::{ALIASES_START, DATA_PAGE}; // patching
use cpu::CPUS;
pub use report::println;

const HEAP_SIZE: usize = 16 << 20;
static mut HEAP: [u8; HEAP_SIZE] = [0; HEAP_SIZE];

// Interrupt handlers do not allocate. A task that is preempted with the lock held will run again.
#[global_allocator]
// SAFETY: only the allocator uses the array.
static ALLOCATOR: TalcLock<spin::Mutex<()>, Claim> = TalcLock::new(unsafe { Claim::array(&raw mut HEAP) });

/// The number of CPUs that have started.
pub static STARTED: AtomicUsize = AtomicUsize::new(0);

/// Where each CPU enters the kernel, on the stack of its idle task, with interrupts masked.
extern "C" fn start_cpu(cpu: usize) -> ! {
    task::adopt(cpu);
    probes::check_cpu(); // probes
    interrupts::start_cpu();
    timer::start();
    // Release, and the load acquires: `main` runs after each CPU has been set up.
    STARTED.fetch_add(1, Ordering::Release);
    if cpu == 0 {
        image::table().unwrap_or_else(|error| panic!("{error}"));
        interrupts::start();
        (1..CPUS).for_each(cpu::start);
        while STARTED.load(Ordering::Acquire) < CPUS {
            spin_loop();
        }
        task::spawn(main, 0);
    }
    cpu::idle()
}

const WORKERS: usize = 8;
static STOP: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicUsize = AtomicUsize::new(0);
/// The number of calls of [`collatz`], the sum of their arguments, and the sum of what they returned.
static CALLS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The first task.
extern "C" fn main(_: usize) {
    let placed = demonstration::place(); // probes
    (0..WORKERS).for_each(|number| task::spawn(worker, number));
    demonstration::place_and_remove(); // probes
    while task::preemptions() < 100 {
        spin_loop();
    }
    STOP.store(true, Ordering::Relaxed);
    while ENDED.load(Ordering::Acquire) < WORKERS {
        spin_loop();
    }
    println(format_args!("{CPUS} CPUs ran {WORKERS} tasks and preempted them {} times", task::preemptions()));
    let [calls, arguments, results] = CALLS.each_ref().map(|sum| sum.load(Ordering::Relaxed));
    println(format_args!("collatz: {calls} calls, arguments add up to {arguments}, results to {results}"));
    demonstration::report(&placed); // probes
    cpu::power_off()
}

/// Works until [`STOP`] is set.
extern "C" fn worker(number: usize) {
    let (mut calls, mut arguments, mut results) = (0, 0, 0);
    while !STOP.load(Ordering::Relaxed) {
        let argument = number as u64 + digits(calls);
        (calls, arguments, results) = (calls + 1, arguments + argument, results + collatz(argument));
    }
    for (total, own) in CALLS.iter().zip([calls, arguments, results]) {
        total.fetch_add(own, Ordering::Relaxed);
    }
    // Release: `main` sees the sums after it has seen this.
    ENDED.fetch_add(1, Ordering::Release);
}

/// Returns the number of steps from `n` to 1: an even number is halved, an odd one tripled and incremented.
#[inline(never)]
pub extern "C" fn collatz(mut n: u64) -> u64 {
    let mut steps = 0;
    while n > 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}

/// Returns the sum of the decimal digits of `n`.
#[inline(never)]
pub extern "C" fn digits(mut n: u64) -> u64 {
    let mut sum = 0;
    while n > 0 {
        (sum, n) = (sum + n % 10, n / 10);
    }
    sum
}
