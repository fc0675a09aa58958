//! Probes on every instruction.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::iter;
use core::time::Duration;

use aarch64_kprobes::insn::Reason;
use aarch64_kprobes::probe::{self, Checker, Registration};
use aarch64_kprobes::{Hit, Kprobe, ProbeError};
use runtime::{memory, println, smp, task, time};

use super::{Count, functions, heap_in_use, known_calls, run, workload_named};
use crate::coverage::check_flow;
use crate::{fixture, parameter, test};

static HITS: Count = Count::new();

#[unsafe(link_section = ".kprobes.text.handlers.everything_hit")]
extern "C" fn hit(_: &mut Hit<'_>) {
    HITS.add();
}

/// Returns the instructions of the image that can be probed.
fn instructions() -> Vec<usize> {
    let mut checker = Checker::new();
    let mut addresses = Vec::new();
    let (mut closed, mut exclusive, mut data) = (0, 0, 0);
    let mut refused = BTreeMap::<Reason, u32>::new();
    for address in functions().into_iter().flat_map(|function| function.step_by(4)) {
        match checker.check(address) {
            Ok(_) => addresses.push(address),
            Err(ProbeError::Blacklisted { .. }) => closed += 1,
            Err(ProbeError::Exclusive { .. }) => exclusive += 1,
            Err(ProbeError::Data { .. }) => data += 1,
            Err(ProbeError::Instruction { reason, .. }) => *refused.entry(reason).or_default() += 1,
            Err(error) => panic!("{error}"),
        }
    }
    println!(
        "{} instructions can be probed; {closed} are closed, {exclusive} lie between exclusives, {data} are data, {} are refused:",
        addresses.len(),
        refused.values().sum::<u32>()
    );
    for (reason, count) in refused {
        println!("{count:>6}: each {reason}");
    }
    assert!(addresses.len() > 100_000, "so many instructions of this image were to be probed at least");
    addresses
}

/// Returns the probe at the virtual address `address`; `None` if the instruction cannot be probed.
fn find(probes: &[Kprobe], address: usize) -> Option<&Kprobe> {
    probes.binary_search_by_key(&address, |probe| probe.address()).ok().map(|index| &probes[index])
}

/// Checks, for functions that only workloads call, that the instructions were hit as often as expected.
fn check_workloads(probes: &[Kprobe], iterations: &BTreeMap<&'static str, u64>) {
    for (&name, &iterations) in iterations {
        for (function, calls) in known_calls(workload_named(name)) {
            let address = fixture::address_of(function);
            let entry = find(probes, address).expect("it is probed");
            assert_eq!((entry.hits(), entry.missed()), (calls * iterations, 0), "calls of {function}");
            check_flow(&fixture::range_of(address), |address| find(probes, address).map(|probe| probe.hits()));
        }
    }
}

test!(
    depends(cpus, interrupts),
    fn every_instruction_at_once() {
        let goal = parameter("EVERYTHING_HITS", option_env!("EVERYTHING_HITS"), 0);
        let in_use = heap_in_use();
        let addresses = instructions();
        let start = time::now();
        // The probes are armed at once, but registered in parts: the lists of one registration would not fit into
        // memory beside all probes.
        const PART: usize = 1 << 16;
        let mut probes: Vec<Kprobe> = Vec::with_capacity(addresses.len());
        for part in addresses.chunks(PART) {
            let requests = part.iter().map(|&address| Kprobe::at(address).pre(hit).disabled());
            let outcomes = Kprobe::register_all(requests).expect("there is memory for the lists");
            probes.extend(outcomes.into_iter().map(|outcome| outcome.expect("it has been checked")));
        }
        Registration::set_all_enabled(probes.iter().map(|probe| &**probe), true).expect("there is memory");
        let elapsed = (time::now() - start).as_millis();
        println!(
            "{} probes are armed on {} CPUs, {} hits in {elapsed} ms",
            probes.len(),
            smp::running().count(),
            HITS.sum()
        );
        println!("{:?}; {}", probe::memory(), memory::statistics());
        let mut iterations = BTreeMap::new();
        for name in iter::once("sha256").chain(["deflate", "sha256"].into_iter().cycle()) {
            let report = run(workload_named(name), 8);
            *iterations.entry(name).or_insert(0) += report.right;
            let elapsed = (time::now() - start).as_millis();
            println!("{name}: {} right, {} hits in {elapsed} ms", report.right, HITS.sum());
            if HITS.sum() >= goal {
                break;
            }
        }
        check_workloads(&probes, &iterations);
        drop(iterations);
        println!("{} probes, {} hits", probes.len(), HITS.sum());

        // The code that removes the probes hits them until it has restored the instructions.
        let (count, before) = (probes.len() as u64, HITS.sum());
        Kprobe::unregister_all(probes);
        let hits = HITS.sum() - before;
        println!("unregistered after {} ms, with {hits} hits", (time::now() - start).as_millis());
        assert!(hits < 32 * count, "{hits} hits to remove {count} probes");
        assert!(probe::list().expect("there is memory for the list").is_empty());
        // A stub in which a task was interrupted is freed by the next change after the task has left it. A CPU that is
        // called to one rendezvous after another may execute no instruction between them, so it is given time.
        let deadline = time::now() + Duration::from_secs(60);
        while probe::memory().stubs != 0 && time::now() < deadline {
            task::sleep(Duration::from_millis(1));
            Kprobe::at(addresses[0]).pre(hit).register().expect("it has been probed").unregister();
        }
        assert_eq!((probe::memory().points, probe::memory().slots, probe::memory().stubs), (0, 0, 0));
        drop(addresses);
        assert_eq!(heap_in_use(), in_use, "memory in use that is not kept for later probes, after and before");
    }
);
