//! Backtraces of any running code, on a machine on which every instruction is probed.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;

use aarch64_kprobes::Kprobe;
use runtime::memory::layout;
use runtime::{backtrace, println, task, time, workload};

use super::{functions, parameter, workload_named};
use crate::test;

/// The minimum number of samples, and the maximum number that are checked.
const SAMPLES: usize = 64;

test!(
    fn samples_of_a_machine_on_which_every_instruction_is_probed_name_its_functions() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        IS_OVER.store(false, Relaxed);
        let least = Duration::from_secs(parameter(option_env!("EVERYTHING_SECONDS"), 0));
        let mut traces = Vec::with_capacity(SAMPLES);
        let all = functions().into_iter().flat_map(|function| function.step_by(4)).map(Kprobe::at);
        let outcomes = Kprobe::register_all(all).expect("there is memory for the lists");
        let probes: Vec<Kprobe> = outcomes.into_iter().flatten().collect();
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
        let (start, mut samples) = (time::now(), 0);
        while samples < SAMPLES || time::now() - start < least {
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
        let hits: u64 = probes.iter().map(|probe| probe.hits()).sum();
        assert!(probes.len() > 100_000 && hits > 1_000_000, "{} probes, {hits} hits", probes.len());
        let elapsed = time::now() - start;
        IS_OVER.store(true, Relaxed);
        work.join();
        Kprobe::unregister_all(probes);
        // Nothing is probed any more here.
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
