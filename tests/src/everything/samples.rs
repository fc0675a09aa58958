//! Backtraces of any running code, on a machine on which every instruction is probed.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;

use aarch64_kprobes::Kprobe;
use aarch64_kprobes::probe::Registration;
use runtime::memory::layout;
use runtime::{backtrace, println, smp, task, time, workload};

use super::{functions, workload_named};
use crate::{is_thorough, parameter, test};

/// The minimum number of samples, and the maximum number that are checked, in a thorough run on one CPU. A usual run
/// takes a quarter of them, so it sees fewer places. So does a thorough run on several CPUs, where QEMU takes ten times
/// as long for a sample.
const SAMPLES: usize = 64;

test!(
    fn samples_of_a_machine_on_which_every_instruction_is_probed_name_its_functions() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        IS_OVER.store(false, Relaxed);
        let enough = if is_thorough() && smp::running().count() == 1 { SAMPLES } else { SAMPLES / 4 };
        let least = Duration::from_secs(parameter("EVERYTHING_SECONDS", option_env!("EVERYTHING_SECONDS"), 0));
        let mut traces = Vec::with_capacity(SAMPLES);
        let all = functions().into_iter().flat_map(|function| function.step_by(4));
        // The probes are armed after their registration, so that they slow down only the sampled work.
        let outcomes = Kprobe::register_all(all.map(|address| Kprobe::at(address).disabled()));
        let probes: Vec<Kprobe> = outcomes.expect("there is memory for the lists").into_iter().flatten().collect();
        let arm = |enabled| Registration::set_all_enabled(probes.iter().map(|probe| &**probe), enabled);
        let work = task::spawn("work", || {
            let enough = || IS_OVER.load(Relaxed);
            let report = workload::run(workload_named("sha256"), 1_000_000, 4, enough).expect("there is memory");
            assert_eq!(report.wrong, 0);
        });
        let tasks = loop {
            let tasks = task::list().expect("there is memory for the list");
            if tasks.iter().any(|task| task.name.starts_with("sha256/")) {
                break tasks;
            }
            task::yield_now();
        };
        arm(true).expect("there is memory");
        let (start, mut samples) = (time::now(), 0);
        while samples < enough || time::now() - start < least {
            for task in &tasks {
                // A running task has no backtrace.
                if let Ok(trace) = backtrace::of_task(task.id) {
                    samples += 1;
                    if traces.len() == traces.capacity() {
                        traces.swap_remove(samples % SAMPLES);
                    }
                    traces.push(trace);
                }
            }
            task::yield_now();
        }
        let elapsed = time::now() - start;
        arm(false).expect("there is memory");
        IS_OVER.store(true, Relaxed);
        work.join();
        let hits: u64 = probes.iter().map(|probe| probe.hits()).sum();
        assert!(probes.len() > 100_000 && hits > 1_000_000, "{} probes, {hits} hits", probes.len());
        for trace in &traces {
            let text = trace.to_string();
            assert!(!text.contains("broken"), "{text}");
            for (address, line) in trace.addresses().zip(text.lines()) {
                let is_named = line.contains('+') && line.contains('/');
                assert!(layout::text().contains(&address) && is_named, "{text}");
            }
        }
        println!("{samples} samples, {hits} hits in {} ms", elapsed.as_millis());
    }
);
