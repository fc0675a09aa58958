//! Time series in the output.

use std::format;
use std::string::String;

use super::machine::{Bed, Task};

/// Returns what `kprobe:f { body }` prints for hits on several CPUs, each with its CPU, its time in nanoseconds and
/// arg0.
fn series(body: &str, hits: &[(usize, u64, i64)]) -> String {
    let bed = Bed::new(&format!("kprobe:f {{ {body} }}"));
    for &(cpu, time, value) in hits {
        bed.hit(0, &Task { cpu, time, ..Task::with(&[value.cast_unsigned()]) });
    }
    bed.finish()
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn each_interval_is_a_row_with_a_point() {
    let hits = [(0, SECOND, 7), (1, 3 * SECOND, -2), (0, 3 * SECOND + 5, 3), (1, 4 * SECOND, 0)];
    assert_eq!(
        series(r#"@ = tseries((s64)arg0, 1s, 8, "min");"#, &hits),
        "\
@:
         -2                                                  7
hh:mm:ss |___________________________________________________|
00:00:01 |          .                                        * 7
00:00:02 |          .                                        | -
00:00:03 *          .                                        | -2
00:00:04 |          *                                        | 0
         v___________________________________________________v
         -2                                                  7

"
    );
}

#[test]
fn what_is_older_than_the_intervals_is_not_shown() {
    let shown = |intervals: u64, hits: &[_]| {
        let text = series(&format!("@ = tseries(arg0, 1ms, {intervals}, \"sum\");"), hits);
        let rows = text.lines().filter(|line| line.starts_with("00:")).map(|line| {
            let (start, rest) = line.split_once(' ').unwrap();
            format!("{start}={} ", rest.rsplit_once(' ').unwrap().1)
        });
        rows.collect::<String>()
    };
    let hits = [(0, 1_000_000, 1), (1, 2_000_000, 2), (0, 2_999_999, 3), (1, 5_000_000, 4)];
    assert_eq!(shown(5, &hits), "00:00:00.001=1 00:00:00.002=5 00:00:00.003=- 00:00:00.004=- 00:00:00.005=4 ");
    assert_eq!(shown(4, &hits), "00:00:00.002=5 00:00:00.003=- 00:00:00.004=- 00:00:00.005=4 ");
    // CPU 0 still holds old values, because it has not used their places again. They are left out.
    assert_eq!(shown(3, &hits), "00:00:00.005=4 ");
    assert_eq!(shown(1, &hits), "00:00:00.005=4 ");
}

#[test]
fn starts_are_as_exact_as_intervals() {
    for (interval, start) in
        [("2s", "00:00:02"), ("300ms", "00:00:03.000"), ("7us", "00:00:03.000004"), ("1", "00:00:03.000005700")]
    {
        let text = series(&format!("@ = tseries(arg0, {interval}, 3);"), &[(0, 3_000_005_700, 5)]);
        assert!(
            text.contains(&format!("\n{start} |                         *                         | 5\n")),
            "{text}"
        );
    }
}

#[test]
fn values_at_the_end_of_their_range_have_a_row() {
    let text = series("@a = tseries(arg0, 1s, 3); @b = tseries((s64)arg0, 1s, 3);", &[(0, 0, -1)]);
    assert!(text.contains("* 18446744073709551615\n") && text.contains("|                         * "), "{text}");
    let text = series("@ = tseries(arg0, 1s, 3, \"avg\");", &[(0, 0, 0)]);
    assert!(text.contains("\n00:00:00 *                                                   | 0\n"), "{text}");
}

#[test]
fn keys_are_sorted_by_their_newest_values_and_values_are_divided() {
    let text = series("@[arg0] = tseries(arg0, 1s, 3); print(@, 1, 10);", &[(0, 0, 70), (0, 0, 20), (0, 0, 50)]);
    let (printed, _) = text.split_once("\n\n").unwrap();
    assert!(printed.starts_with("@[70]:\n") && printed.contains("| 7\n"), "{text}");
    assert_eq!(text.matches("@[20]:").count(), 1, "{text}");
    let order: String = text.lines().rev().filter(|line| line.starts_with('@')).take(3).collect();
    assert_eq!(order, "@[70]:@[50]:@[20]:");
}

#[test]
fn one_series_takes_values_of_both_signs() {
    let text = series("@ = tseries(5, 1s, 3); @ = tseries(arg0, 1s, 3);", &[(0, 0, 7)]);
    assert!(text.contains("| 7\n"), "{text}");
    let refused = super::machine::refused("kprobe:f { @ = tseries(1, 1s, 3); @ = tseries(1, 2s, 3); }");
    assert!(refused.ends_with("this map is set to another type elsewhere"), "{refused}");
}

#[test]
fn a_series_without_values_says_so() {
    assert_eq!(series("@ = tseries(arg0, 1s, 3); zero(@);", &[(0, 0, 7)]), "@:\n<no data>\n\n");
}
