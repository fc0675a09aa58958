//! The workloads: they tell a wrong answer, and their reports add up.

use alloc::string::ToString;
use core::time::Duration;

use runtime::workload::{self, Report, deflate, sha256, share};

use crate::test;

test!(
    fn a_damaged_stream_is_not_unpacked() {
        assert!(deflate::TEXT.starts_with(b"its registers was and to"));
        let mut packed = deflate::pack(&deflate::TEXT).unwrap();
        assert!(deflate::unpack(&packed, deflate::LENGTH).is_some_and(|text| text == deflate::TEXT));
        let middle = packed.len() / 2;
        packed[middle] ^= 1;
        assert_eq!(deflate::unpack(&packed, deflate::LENGTH), None);
    }
);

test!(
    fn no_other_message_has_the_digest() {
        assert_eq!(sha256::digest(&sha256::MESSAGE), sha256::ANSWER);
        assert_ne!(sha256::digest(&sha256::MESSAGE[1..]), sha256::ANSWER);
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
