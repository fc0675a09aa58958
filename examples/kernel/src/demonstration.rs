//! Probes on functions that all tasks call.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_kprobes::{Call, Hit, Kprobe, Kretprobe};

use crate::kernel::cpu::{self, CPUS};
use crate::kernel::{collatz, digits, println};

/// What a probe has counted: its hits on each CPU, and the sum of the first arguments or of the returned values.
struct Counts {
    hits: [AtomicU64; CPUS],
    sum: AtomicU64,
}

/// The counts of the kprobe and the kretprobe on [`collatz`], and those on [`digits`].
static COUNTS: [Counts; 4] =
    [const { Counts { hits: [const { AtomicU64::new(0) }; CPUS], sum: AtomicU64::new(0) } }; 4];

#[inline(always)]
fn count(probe: usize, value: u64) {
    if let Some(counts) = COUNTS.get(probe) {
        counts.hits[cpu::number()].fetch_add(1, Ordering::Relaxed);
        counts.sum.fetch_add(value, Ordering::Relaxed);
    }
}

#[unsafe(link_section = ".kprobes.text.handlers.entered")]
extern "C" fn entered(hit: &mut Hit<'_>) {
    count(hit.data(), hit.frame().x[0]);
}

#[unsafe(link_section = ".kprobes.text.handlers.returned")]
extern "C" fn returned(call: &mut Call<'_>) {
    count(call.data(), call.return_value());
}

type Probes = (Kprobe, Kretprobe);

fn place_on(function: extern "C" fn(u64) -> u64, counts: usize) -> Probes {
    let address = function as usize;
    let kprobe = Kprobe::at(address).pre(entered).data(counts).register();
    let kretprobe = Kretprobe::at(address).handler(returned).data(counts + 1).register();
    (kprobe.unwrap_or_else(|error| panic!("{error}")), kretprobe.unwrap_or_else(|error| panic!("{error}")))
}

/// Places probes that stay.
pub fn place() -> Probes {
    place_on(collatz, 0)
}

/// Places probes on [`digits`], which all tasks call, and removes them when they have been hit on each CPU, many times.
pub fn place_and_remove() {
    const TIMES: usize = 20;
    let of_digits = || COUNTS[2..].iter().flat_map(|counts| &counts.hits);
    for _ in 0..TIMES {
        of_digits().for_each(|hits| hits.store(0, Ordering::Relaxed));
        let (kprobe, kretprobe) = place_on(digits, 2);
        while of_digits().any(|hits| hits.load(Ordering::Relaxed) == 0) {
            spin_loop();
        }
        assert_eq!((kprobe.missed(), kretprobe.missed()), (0, 0));
        kretprobe.unregister();
        kprobe.unregister();
    }
    println(format_args!("digits: probes were placed, hit on each CPU, and removed {TIMES} times"));
}

/// Prints the counts of the probes that [`place`] has placed.
pub fn report((kprobe, kretprobe): &Probes) {
    for (kind, probe, Counts { hits, sum }) in
        [("kprobe", &**kprobe, &COUNTS[0]), ("kretprobe", &**kretprobe, &COUNTS[1])]
    {
        let (total, missed) = (probe.hits(), probe.missed());
        println(format_args!("{kind}: {total} hits, {hits:?} by CPU, {missed} missed, values add up to {sum:?}"));
    }
}
