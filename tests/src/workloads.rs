//! The workloads: they detect wrong answers, and their reports add up.

use alloc::string::ToString;
use core::time::Duration;

use aarch64_kprobes::{Hit, Kprobe};
use runtime::workload::{self, Report, share};

use crate::{fixture, test};

/// Runs an iteration of a workload while a function is passed fewer elements of a slice than its caller has.
fn iterate_with_less(name: &str, function: &str) -> Report {
    /// The slice is in x1 and x2.
    extern "C" fn take_one_away(hit: &mut Hit<'_>) {
        // SAFETY: a part of a slice is a slice.
        unsafe { hit.frame_mut() }.x[2] -= 1;
    }
    let probe = Kprobe::at(fixture::address_of(function)).pre(take_one_away).register().unwrap();
    let report = workload::run(workload::find(name).unwrap(), 1, 1, || false).unwrap();
    drop(probe);
    report
}

test!(
    fn wrong_answers_are_told() {
        for (name, function) in
            [("sha256", "sha2::sha256::compress256"), ("deflate", "miniz_oxide::inflate::core::decompress")]
        {
            let report = iterate_with_less(name, function);
            assert_eq!((report.right, report.wrong), (0, 1), "{name}");
            let report = workload::run(report.workload, 1, 1, || false).unwrap();
            assert_eq!((report.right, report.wrong), (1, 0), "{name}");
        }
    }
);

test!(
    fn shares_add_up_and_are_even() {
        for iterations in 0..50 {
            for tasks in 1..10 {
                let shares = (0..tasks).map(|index| share(iterations, tasks, index));
                assert_eq!(shares.clone().sum::<u64>(), iterations);
                assert!(shares.clone().max().unwrap() - shares.min().unwrap() <= 1);
            }
        }
    }
);

test!(
    fn a_report_counts_calls() {
        let workload = workload::find("sha256").unwrap();
        let report = Report { workload, tasks: 4, right: 99, wrong: 1, elapsed: Duration::from_millis(7) };
        let text = report.to_string();
        assert!(text.starts_with("sha256: 100 iterations in 4 tasks: 99 right, 1 wrong, 7 ms\n"), "{text}");
        assert!(text.ends_with("\n       200 calls of sha2::sha256::compress256"), "{text}");
        let text = Report { tasks: 1, right: 1, wrong: 0, ..report }.to_string();
        assert!(text.starts_with("sha256: 1 iteration in 1 task: 1 right, "), "{text}");
        assert!(text.contains("\n         1 call of runtime::workload::sha256::iterate"), "{text}");
    }
);
