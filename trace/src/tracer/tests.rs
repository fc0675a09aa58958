//! Lines as Linux's print functions lay them out, from records of a made-up call tree.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering::Relaxed;

use super::graph::{Microseconds, Printer, Style};
use super::profile::{self, Counts};
use kprobes_random::{assert_tried, tried::tried};

use super::*;
use crate::clock::Clock;
use crate::options::{Flag, Options};
use crate::recorder::{PRINT_EVENT, STACK_EVENT};
use crate::ring::Record;
use crate::symbols::{Function, Symbols};
use crate::text::{self, ShowError};

const CLOCK: Clock = Clock { frequency: 1_000_000_000, origin: 0 };
pub(super) const TRAMPOLINE: u64 = 0x9000;
/// Functions of 0x100 bytes, one after the other from 0x1000 on.
const NAMES: [&str; 5] = ["do_sys_open", "getname", "kmem_cache_alloc", "handle_irq", "schedule"];
pub(super) const OPEN: u64 = 0x1000;
pub(super) const GETNAME: u64 = 0x1100;
pub(super) const ALLOC: u64 = 0x1200;
pub(super) const IRQ: u64 = 0x1300;
pub(super) const SCHEDULE: u64 = 0x1400;

pub(super) struct Names;

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        let number = address.checked_sub(OPEN)? / 0x100;
        let name = NAMES.get(number as usize)?;
        Some(Function { name, address: OPEN + 0x100 * number, size: 0x100 })
    }

    fn is_trampoline(&self, address: u64) -> bool {
        address == TRAMPOLINE
    }

    fn is_interrupt_entry(&self, function: u64) -> bool {
        function == IRQ
    }

    fn find<'a>(&'a self, _: &str, _: &mut dyn FnMut(Function<'a>)) {}
}

/// A record, with the time in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub cpu: usize,
    lost: u64,
    time: u64,
    name: [u8; 16],
    bytes: Vec<u8>,
}

impl Made {
    pub fn new(event: u16, task: u32, time: u64, words: &[u64]) -> Self {
        let common = u64::from(event) | u64::from(task) << 32;
        let bytes = [common].iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
        let mut name = [0; 16];
        let text = format!("task{task}-of-many");
        name[..text.len().min(16)].copy_from_slice(&text.as_bytes()[..text.len().min(16)]);
        Self { cpu: 0, lost: 0, time, name, bytes }
    }

    pub fn on(self, cpu: usize) -> Self {
        Self { cpu, ..self }
    }

    fn after_lost(self, lost: u64) -> Self {
        Self { lost, ..self }
    }

    /// Returns the record, with `count` others before it.
    pub fn record(&self, count: usize) -> Record<'_> {
        let Self { cpu, lost, time, name, ref bytes } = *self;
        Record { cpu, lost, time, count: count as u64, name, faults: 0, bytes }
    }
}

pub(super) fn numbered(records: &[Made]) -> impl Iterator<Item = Record<'_>> {
    records.iter().enumerate().map(|(number, made)| made.record(number))
}

/// Makes a call at `time` by task `task`.
pub(super) fn call(task: u32, time: u64, function: u64, stack: u64) -> Made {
    Made::new(GRAPH_ENTRY_EVENT, task, time, &[function, OPEN + 4, stack])
}

/// Makes a tail call.
pub(super) fn tail_call(task: u32, time: u64, function: u64, stack: u64) -> Made {
    Made::new(GRAPH_ENTRY_EVENT, task, time, &[function, TRAMPOLINE, stack])
}

pub(super) fn back(task: u32, time: u64, function: u64, stack: u64) -> Made {
    Made::new(GRAPH_RETURN_EVENT, task, time, &[function, OPEN + 4, stack])
}

fn of_tracer(tracer: Tracer) -> Options {
    let mut options = Options::default();
    options.tracer = tracer;
    options
}

fn graph_options() -> Options {
    of_tracer(Tracer::FunctionGraph)
}

/// Returns the record that follows the record of this number on its CPU.
fn next(records: &[Made], number: usize) -> Option<Record<'_>> {
    let is_next = |&next: &usize| records[next].cpu == records[number].cpu;
    (number + 1..records.len()).find(is_next).map(|next| records[next].record(next))
}

fn shown_with(records: &[Made], options: Options) -> String {
    let style = Style { symbols: &Names, clock: CLOCK, options, cpus: 4 };
    let mut printer = Printer::of(numbered(records), &Names).unwrap();
    let mut out = String::new();
    for (number, record) in numbered(records).enumerate() {
        let next = next(records, number);
        printer.write(&mut out, &record, next.as_ref(), None, style).unwrap();
    }
    out
}

fn shown(records: &[Made]) -> String {
    shown_with(records, graph_options())
}

#[test]
fn a_call_tree_is_nested() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        call(7, 2_000, GETNAME, 0x700),
        call(7, 3_000, ALLOC, 0x600),
        back(7, 4_382, ALLOC, 0x600),
        back(7, 15_475, GETNAME, 0x700),
        back(7, 200_000, OPEN, 0x800),
    ];
    let expected = "\
\x200)               |  do_sys_open() {
 0)               |    getname() {
 0)   1.382 us    |      kmem_cache_alloc();
 0) + 13.475 us   |    }
 0) ! 199.000 us  |  }
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn columns_are_shown_as_options_have_it() {
    let records = [
        call(7, 5_123_456_789, OPEN, 0x800),
        call(7, 5_123_457_000, GETNAME, 0x700),
        back(7, 5_123_667_000, GETNAME, 0x700),
    ];
    let mut options = graph_options();
    options.set(Flag::GraphTime, true);
    options.set(Flag::GraphTask, true);
    let expected = "\
\x20   5.123456 |   0)   task7-o-7    |               |  do_sys_open() {
    5.123457 |   0)   task7-o-7    | ! 210.000 us  |    getname();
";
    assert_tried!(shown_with(&records, options), expected);
    for flag in [Flag::GraphTime, Flag::GraphTask, Flag::GraphCpu, Flag::GraphOverhead] {
        options.set(flag, false);
    }
    assert_tried!(shown_with(&records, options), "              |  do_sys_open() {\n  210.000 us  |    getname();\n");
    options.set(Flag::GraphDuration, false);
    assert_tried!(shown_with(&records, options), "do_sys_open() {\n  getname();\n");
}

#[test]
fn durations_have_seven_digits_and_a_mark_above_each_limit() {
    let text = |nanoseconds| format!("[{}]", Microseconds(nanoseconds));
    for (nanoseconds, expected) in tried([
        (0, "[0.000 us    ]"),
        (999, "[0.999 us    ]"),
        (12_345, "[12.345 us   ]"),
        (1_234_567, "[1234.567 us ]"),
        (12_345_678, "[12345.67 us ]"),
        (123_456_789, "[123456.7 us ]"),
        (1_234_567_890, "[1234567 us  ]"),
        (12_345_678_901, "[12345678 us ]"),
        (123_456_789_012, "[123456789 us ]"),
    ]) {
        assert_eq!(text(nanoseconds), expected);
    }
    let limits =
        [(10_000, '+'), (100_000, '!'), (1_000_000, '#'), (10_000_000, '*'), (100_000_000, '@'), (1_000_000_000, '$')];
    let mut below = ' ';
    for (limit, mark) in limits {
        for (duration, expected) in [(limit, below), (limit + 1, mark)] {
            let line = shown(&[call(7, 0, OPEN, 0x800), back(7, duration, OPEN, 0x800)]);
            assert_eq!(line.chars().nth(4), Some(expected), "{duration}: {line}");
        }
        below = mark;
    }
}

#[test]
fn interrupts_nest_and_can_be_left_out() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        call(7, 2_000, IRQ, 0x500),
        call(7, 3_000, ALLOC, 0x400),
        back(7, 3_500, ALLOC, 0x400),
        back(7, 4_000, IRQ, 0x500),
        call(7, 5_000, GETNAME, 0x700),
        back(7, 5_100, GETNAME, 0x700),
        back(7, 6_000, OPEN, 0x800),
    ];
    let expected = "\
\x200)               |  do_sys_open() {
 0)   ==========> |
 0)               |    handle_irq() {
 0)   0.500 us    |      kmem_cache_alloc();
 0)   2.000 us    |    }
 0)   <========== |
 0)   0.100 us    |    getname();
 0)   5.000 us    |  }
";
    assert_tried!(shown(&records), expected);
    let mut options = graph_options();
    options.set(Flag::GraphInterrupts, false);
    let expected = "\
\x200)               |  do_sys_open() {
 0)   0.100 us    |    getname();
 0)   5.000 us    |  }
";
    assert_tried!(shown_with(&records, options), expected);
    let alone = [call(7, 1_000, IRQ, 0x800), back(7, 1_200, IRQ, 0x800)];
    assert_tried!(shown(&alone), " 0)   ==========> |\n 0)   0.200 us    |  handle_irq();\n 0)   <========== |\n");
}

#[test]
fn a_switch_of_tasks_is_marked_and_each_task_has_its_own_nesting() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        call(7, 2_000, SCHEDULE, 0x700),
        call(1234, 3_000, GETNAME, 0x9800),
        back(1234, 3_500, GETNAME, 0x9800),
        // The task goes on elsewhere.
        back(7, 4_000, SCHEDULE, 0x700).on(2),
        back(7, 5_000, OPEN, 0x800).on(2),
    ];
    let expected = "\
\x200)               |  do_sys_open() {
 0)               |    schedule() {
 ------------------------------------------
 0)   task7-o-7    =>  task123-1234\x20
 ------------------------------------------

 0)   0.500 us    |  getname();
 2)   2.000 us    |    }
 2)   4.000 us    |  }
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn a_tail_call_is_within_what_it_ends() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        tail_call(7, 2_000, GETNAME, 0x800),
        back(7, 3_000, GETNAME, 0x800),
        back(7, 3_100, OPEN, 0x800),
        // As deep, but by a caller.
        call(7, 4_000, ALLOC, 0x800),
        back(7, 4_500, ALLOC, 0x800),
    ];
    let expected = "\
\x200)               |  do_sys_open() {
 0)   1.000 us    |    getname();
 0)   2.100 us    |  }
 0)   0.500 us    |  kmem_cache_alloc();
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn a_return_that_is_missing_changes_no_other_line() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        // It never returns.
        call(7, 2_000, GETNAME, 0x700),
        call(7, 3_000, ALLOC, 0x700),
        back(7, 3_500, ALLOC, 0x700),
        call(7, 4_000, GETNAME, 0x6f0),
        call(7, 4_100, ALLOC, 0x6e0),
        back(7, 5_000, OPEN, 0x800),
    ];
    let expected = "\
\x200)               |  do_sys_open() {
 0)               |    getname() {
 0)   0.500 us    |    kmem_cache_alloc();
 0)               |    getname() {
 0)               |      kmem_cache_alloc() {
 0)   4.000 us    |  }
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn returns_of_calls_that_are_missing_are_named_and_counted_in_the_nesting() {
    let records = [
        call(7, 1_000, ALLOC, 0x600),
        back(7, 1_500, ALLOC, 0x600),
        back(7, 2_000, GETNAME, 0x700).after_lost(3),
        back(7, 3_000, OPEN, 0x800),
    ];
    let expected = "\
\x200)   0.500 us    |      kmem_cache_alloc();
CPU:0 [LOST 3 EVENTS]
 0)               |    } /* getname */
 0)               |  } /* do_sys_open */
";
    assert_tried!(shown(&records), expected);
    let mut options = graph_options();
    options.set(Flag::GraphTail, true);
    let records =
        [call(7, 0, OPEN, 0x800), call(7, 1, ALLOC, 0x700), back(7, 2, ALLOC, 0x700), back(7, 3, OPEN, 0x800)];
    let last = shown_with(&records, options);
    assert!(last.ends_with("|  } /* do_sys_open */\n"), "{last}");
}

#[test]
fn a_return_after_lost_records_is_not_that_of_a_call_without_others() {
    let records = [call(7, 1_000, OPEN, 0x800), back(7, 1_500, OPEN, 0x800).after_lost(2)];
    let expected = " 0)               |  do_sys_open() {\nCPU:0 [LOST 2 EVENTS]\n 0)   0.500 us    |  }\n";
    assert_tried!(shown(&records), expected);
}

#[test]
fn other_records_are_comments_and_stacks_have_their_own_lines() {
    let mut text = Made::new(PRINT_EVENT, 7, 3_000, &[0]);
    text.bytes.extend(b"hello\n\0");
    let records = [
        call(7, 1_000, OPEN, 0x800),
        text.clone(),
        call(7, 2_000, GETNAME, 0x700),
        text,
        Made::new(STACK_EVENT, 7, 4_000, &[1, GETNAME]),
    ];
    let expected = "\
\x200)               |  do_sys_open() {
 0)               |  /* hello */
 0)               |    getname() {
 0)               |      /* hello */
   task7-of-many-7       [000] .....     0.000004: <stack trace>
 => getname
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn a_task_that_runs_within_a_hidden_interrupt_is_shown() {
    let mut options = graph_options();
    options.set(Flag::GraphInterrupts, false);
    let records = [
        call(7, 1_000, IRQ, 0x500),
        // The interrupt switches to another task.
        call(8, 2_000, OPEN, 0x9800),
        call(8, 3_000, GETNAME, 0x9700),
        back(8, 3_500, GETNAME, 0x9700),
        back(8, 4_000, OPEN, 0x9800),
        // The task goes on elsewhere, still in its interrupt.
        call(7, 5_000, ALLOC, 0x400).on(2),
        back(7, 5_500, ALLOC, 0x400).on(2),
        back(7, 6_000, IRQ, 0x500).on(2),
        call(7, 7_000, GETNAME, 0x700).on(2),
        back(7, 7_500, GETNAME, 0x700).on(2),
    ];
    let expected = "\
\x200)               |  do_sys_open() {
 0)   0.500 us    |    getname();
 0)   2.000 us    |  }
 2)   0.500 us    |  getname();
";
    assert_tried!(shown_with(&records, options), expected);
}

#[test]
fn a_call_is_not_closed_by_the_return_of_its_recursive_caller() {
    let records = [call(7, 1_000, OPEN, 0x880), call(7, 2_000, OPEN, 0x800), back(7, 3_000, OPEN, 0x880)];
    let expected = "\
\x200)               |  do_sys_open() {
 0)               |    do_sys_open() {
 0)   2.000 us    |  }
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn a_hidden_interrupt_without_calls_returns_once() {
    let mut options = graph_options();
    options.set(Flag::GraphInterrupts, false);
    let records = [
        call(7, 1_000, IRQ, 0x500),
        back(7, 1_500, IRQ, 0x500),
        call(7, 2_000, ALLOC, 0x600),
        back(7, 2_500, ALLOC, 0x600),
        back(7, 3_000, GETNAME, 0x700),
    ];
    let expected = " 0)   0.500 us    |    kmem_cache_alloc();\n 0)               |  } /* getname */\n";
    assert_tried!(shown_with(&records, options), expected);
}

#[test]
fn a_return_whose_call_is_missing_in_between_indents_nothing_before_it() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        back(7, 1_500, OPEN, 0x800),
        back(7, 2_000, GETNAME, 0x700),
        // Its tail call, and then itself, began before the first record.
        back(7, 3_000, ALLOC, 0x900),
        back(7, 3_100, SCHEDULE, 0x900),
    ];
    let expected = "\
\x200)   0.500 us    |      do_sys_open();
 0)               |      } /* getname */
 0)               |    } /* kmem_cache_alloc */
 0)               |  } /* schedule */
";
    assert_tried!(shown(&records), expected);
}

/// The ring of CPU 0 has kept fewer records than that of CPU 2, so a call without an entry begins between records.
#[test]
fn a_call_whose_entry_was_overwritten_surrounds_its_calls_after_older_records_of_another_cpu() {
    let records = [
        call(7, 1_000, OPEN, 0x800).on(2),
        call(7, 1_100, GETNAME, 0x700).on(2),
        back(7, 1_200, GETNAME, 0x700).on(2),
        back(7, 1_500, OPEN, 0x800).on(2),
        // The task has called `schedule` on CPU 0.
        call(7, 3_000, GETNAME, 0x700),
        call(7, 3_100, ALLOC, 0x600),
        back(7, 3_300, ALLOC, 0x600),
        back(7, 3_400, GETNAME, 0x700),
        back(7, 4_000, SCHEDULE, 0x800),
        call(7, 5_000, OPEN, 0x800),
        back(7, 5_500, OPEN, 0x800),
    ];
    let expected = "\
\x202)               |  do_sys_open() {
 2)   0.100 us    |    getname();
 2)   0.500 us    |  }
 0)               |    getname() {
 0)   0.200 us    |      kmem_cache_alloc();
 0)   0.400 us    |    }
 0)               |  } /* schedule */
 0)   0.500 us    |  do_sys_open();
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn a_tail_call_is_within_a_call_whose_entry_is_missing() {
    let records = [
        call(7, 1_000, ALLOC, 0x800).on(2),
        back(7, 1_500, ALLOC, 0x800).on(2),
        tail_call(7, 2_000, GETNAME, 0x800),
        back(7, 3_000, GETNAME, 0x800),
        back(7, 3_100, OPEN, 0x800),
    ];
    let expected = "\
\x202)   0.500 us    |  kmem_cache_alloc();
 0)   1.000 us    |    getname();
 0)               |  } /* do_sys_open */
";
    assert_tried!(shown(&records), expected);
    // The entry of the tail call is missing, too, or only that one. They return at once.
    let [first, second, _, inner, outer] = records.clone();
    let missing = shown(&[first, second, call(7, 2_500, SCHEDULE, 0x700), inner.clone(), outer.clone()]);
    assert!(missing.ends_with(
        "      schedule() {\n 0)               |    } /* getname */\n 0)               |  } /* do_sys_open */\n"
    ));
    let inner = shown(&[call(7, 2_000, OPEN, 0x800).on(2), call(7, 2_500, SCHEDULE, 0x700), inner, outer]);
    assert!(inner.ends_with("      schedule() {\n 0)               |    } /* getname */\n 0)   1.100 us    |  }\n"));
}

#[test]
fn a_task_that_moves_away_within_a_call_on_one_line_is_in_that_call() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        call(7, 2_000, GETNAME, 0x700).on(2),
        back(7, 2_500, GETNAME, 0x700).on(2),
        back(7, 3_000, OPEN, 0x800),
        call(7, 4_000, ALLOC, 0x700),
        back(7, 4_500, ALLOC, 0x700),
    ];
    let expected = "\
\x200)   2.000 us    |  do_sys_open();
 2)   0.500 us    |    getname();
 0)   0.500 us    |  kmem_cache_alloc();
";
    assert_tried!(shown(&records), expected);
}

#[test]
fn a_return_to_another_caller_is_not_that_of_a_call() {
    let mut other = back(7, 2_000, OPEN, 0x800);
    other.bytes[16..24].copy_from_slice(&(GETNAME + 8).to_le_bytes());
    let expected = " 0)               |  do_sys_open() {\n 0)               |  } /* do_sys_open */\n";
    assert_tried!(shown(&[call(7, 1_000, OPEN, 0x800), other]), expected);
}

#[test]
fn a_hidden_interrupt_has_ended_where_a_call_without_an_entry_begins() {
    let mut options = graph_options();
    options.set(Flag::GraphInterrupts, false);
    let records = [
        call(7, 1_000, IRQ, 0x500).on(2),
        call(7, 2_000, ALLOC, 0x400),
        back(7, 2_500, ALLOC, 0x400),
        // The interrupt has ended on CPU 0, before this call began.
        back(7, 3_000, GETNAME, 0x500),
    ];
    let expected = " 0)   0.500 us    |    kmem_cache_alloc();\n 0)               |  } /* getname */\n";
    assert_tried!(shown_with(&records, options), expected);
}

#[test]
fn the_newest_records_are_nested_as_among_all() {
    let records = [
        back(7, 1_000, ALLOC, 0x600).on(2),
        call(7, 2_000, GETNAME, 0x700),
        back(7, 3_000, GETNAME, 0x700),
        back(7, 4_000, OPEN, 0x800),
    ];
    let style = Style { symbols: &Names, clock: CLOCK, options: graph_options(), cpus: 4 };
    let all = shown(&records);
    let lines: Vec<_> = all.lines().collect();
    for (skipped, first) in [(0, 0), (1, 1), (3, 2)] {
        let mut printer = Printer::of(numbered(&records), &Names).unwrap();
        let mut out = String::new();
        for (number, record) in numbered(&records).enumerate() {
            match number < skipped {
                true => printer.pass_over(&record, &Names).unwrap(),
                false => {
                    printer.write(&mut out, &record, next(&records, number).as_ref(), None, style).unwrap();
                }
            }
        }
        assert_eq!(out.lines().collect::<Vec<_>>(), lines[first..]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "it looks for each of 514 calls among 256 tasks")]
fn the_task_that_was_not_seen_for_longest_is_forgotten() {
    let mut records: Vec<_> = (1..=257).map(|task| call(task, 1_000, OPEN, 0x800)).collect();
    records.extend((2..=257).map(|task| back(task, 2_000, OPEN, 0x800).on(1)));
    let text = shown(&records);
    assert_eq!(text.matches("1.000 us").count(), 256);
}

/// A sink that takes only this many writes.
struct Short(usize, String);

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(1).ok_or(fmt::Error)?;
        self.1.push_str(text);
        Ok(())
    }
}

#[test]
fn a_record_that_was_not_written_can_be_written_again() {
    let records = [
        call(7, 1_000, OPEN, 0x800),
        tail_call(7, 2_000, GETNAME, 0x800),
        call(8, 3_000, ALLOC, 0x700),
        back(8, 3_500, ALLOC, 0x700),
        back(7, 4_000, GETNAME, 0x800),
        back(7, 5_000, OPEN, 0x800),
    ];
    let style = Style { symbols: &Names, clock: CLOCK, options: graph_options(), cpus: 4 };
    let (mut printer, mut out) = (Printer::default(), String::new());
    for (number, record) in numbered(&records).enumerate() {
        for writes in 0.. {
            let mut short = Short(writes, String::new());
            match printer.write(&mut short, &record, next(&records, number).as_ref(), None, style) {
                Ok(()) => {
                    out.push_str(&short.1);
                    break;
                }
                Err(error) => assert_eq!(error, ShowError::Write(fmt::Error)),
            }
        }
    }
    assert_eq!(out, shown(&records));
}

#[test]
fn a_call_of_the_tracer_function_has_its_caller() {
    let line = |parent, options: Options| {
        let made = Made::new(FUNCTION_EVENT, 7, 1_000, &[GETNAME, parent]);
        let mut out = String::new();
        text::write_record(&mut out, &made.record(0), None, &Names, CLOCK, options).unwrap();
        out
    };
    let options = of_tracer(Tracer::Function);
    // The call is the last instruction of its function.
    let expected = "   task7-of-many-7       [000] .....     0.000001: getname <-do_sys_open\n";
    assert_eq!(line(OPEN + 0x100, options), expected);
    assert!(line(TRAMPOLINE, options).ends_with(": getname <-[unknown/kretprobe'd]\n"));
    assert!(line(0x10, options).ends_with(": getname <-0x10\n"));
    let mut options = options;
    options.set(Flag::SymOffset, true);
    options.set(Flag::SymAddr, true);
    let expected = ": getname+0x0/0x100 <0000000000001100> <-do_sys_open+0x10/0x100 <0000000000001010>\n";
    assert!(line(OPEN + 0x10, options).ends_with(expected));
}

#[test]
fn a_profile_has_the_longest_first_with_average_and_variance() {
    let counts = Counts::of(&[OPEN, GETNAME, ALLOC], 2).unwrap();
    for (function, calls) in [(0, &[3_000_u64, 5_000][..]), (1, &[100_000])] {
        let cell = &counts[function].cells[1];
        cell.calls.store(calls.len() as u64, Relaxed);
        cell.ticks.store(calls.iter().sum(), Relaxed);
        cell.squares.store(calls.iter().map(|ticks| ticks * ticks).sum(), Relaxed);
    }
    let shown = |cpu| {
        let mut out = String::new();
        profile::write(&mut out, &counts, cpu, &Names, CLOCK).unwrap();
        out
    };
    let header = "\
\x20 Function                               Hit    Time            Avg             s^2
  --------                               ---    ----            ---             ---
";
    assert_tried!(shown(0), header);
    let expected = "\
\x20 getname                                  1    100.000 us      100.000 us      0.000 us   \x20
  do_sys_open                              2    8.000 us        4.000 us        2.000 us   \x20
";
    assert_tried!(shown(1).strip_prefix(header), Some(expected));
}

#[test]
fn tracers_have_the_names_of_linux() {
    let names =
        Tracer::ALL.map(|(tracer, name)| (Tracer::find(&format!("{name}\n")), tracer.name()) == (Some(tracer), name));
    assert_eq!(names, [true; 3]);
    assert_eq!(Tracer::find("wakeup"), None);
}

#[test]
fn records_of_a_tracer_are_laid_out_as_they_are_read() {
    use crate::recorder::Recorder;
    let rings: &'static Rings = alloc::boxed::Box::leak(alloc::boxed::Box::new(Rings::new(1, 8192, &[]).unwrap()));
    let recording = Recording { results: true, ..Recording::ALL };
    let is_of_a_call =
        |kind: RecordKind| kind.recorder(rings, &recording).map(|recorder| Recorder::is_of_a_call(&recorder)).unwrap();
    assert_eq!([RecordKind::Function, RecordKind::Entry, RecordKind::Return].map(is_of_a_call), [true, true, false]);
    assert_eq!((PARENT, STACK), (Shape::Return.size() - 8, Shape::Return.size()));
}

/// Records a call or a return by task 3 on two CPUs in turn, with x0 = 42. Returns the records' bytes.
fn recorded(kind: RecordKind, recording: &Recording<'_>) -> Vec<Vec<u8>> {
    use crate::context::Context;
    use crate::hit::Registers;
    use crate::hit::write::RecordedHit;
    use aarch64_kprobes::exception::TrapFrame;
    let rings: &'static Rings = alloc::boxed::Box::leak(alloc::boxed::Box::new(Rings::new(2, 8192, &[]).unwrap()));
    let recorder = kind.recorder(rings, recording).unwrap();
    let mut frame = TrapFrame::default();
    (frame.x[0], frame.sp) = (42, 0x8000);
    for cpu in 0..2 {
        let context = Context { cpu, task: 3, name: [0; 2], time: 1 };
        let return_address = (kind == RecordKind::Return).then_some(GETNAME);
        let hit = RecordedHit { context, address: OPEN, return_address, entry: &[], is_caller_in_x30: false };
        // SAFETY: only this thread uses the rings, and the hit fits the kind.
        unsafe { recorder.record(Registers::Frame(&frame), &hit) };
    }
    let taken = rings.take(None).unwrap();
    taken.records().unwrap().map(|record| record.bytes.to_vec()).collect()
}

#[test]
fn a_return_is_recorded_with_its_result_only_if_that_is_wanted() {
    let word = |record: &[u8], at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
    let record = &recorded(RecordKind::Return, &Recording { results: true, ..Recording::ALL })[0];
    assert_eq!([8, PARENT, STACK, RESULT].map(|at| word(record, at)), [OPEN, GETNAME, 0x8000, 42]);
    assert_eq!(recorded(RecordKind::Return, &Recording::ALL)[0].len(), RESULT);
}

#[test]
fn only_calls_on_the_chosen_cpus_are_recorded() {
    for (cpus, stacks, count) in
        [(None, false, 2), (Some(0b10), false, 1), (Some(0), false, 0), (None, true, 4), (Some(0b10), true, 2)]
    {
        let restriction = Restriction { cpus, ..Restriction::default() };
        let recording = Recording { restriction: &restriction, stacks, ..Recording::ALL };
        assert_eq!(recorded(RecordKind::Function, &recording).len(), count, "{cpus:?} {stacks}");
        // Only the tracer `function` has stacks.
        let count = if stacks { count / 2 } else { count };
        for kind in [RecordKind::Entry, RecordKind::Return] {
            assert_eq!(recorded(kind, &recording).len(), count, "{kind:?} {cpus:?} {stacks}");
        }
    }
}

#[test]
fn only_calls_of_the_chosen_tasks_are_recorded() {
    for (only, without, parent, count) in tried([
        ("3 4", "", None, 2),
        ("4", "", None, 0),
        ("", "3", None, 0),
        ("", "4", None, 2),
        // Task 3 is the child of another one.
        ("4", "", Some(4), 2),
        ("4", "", Some(5), 0),
        ("", "4", Some(4), 0),
        ("3", "3", Some(4), 0),
    ]) {
        let mut restriction = Restriction { children: parent.is_some(), ..Restriction::default() };
        if !only.is_empty() {
            restriction.only.get_or_insert_default().add(only).unwrap();
        }
        restriction.without.add(without).unwrap();
        let inherited = InheritedTasks::of(&restriction).unwrap();
        assert_eq!(inherited.is_some(), parent.is_some());
        if let (Some(inherited), Some(parent)) = (&inherited, parent) {
            inherited.starts(parent, 3);
        }
        let recording = Recording { restriction: &restriction, inherited: inherited.as_ref(), ..Recording::ALL };
        for kind in [RecordKind::Function, RecordKind::Entry, RecordKind::Return] {
            assert_eq!(recorded(kind, &recording).len(), count, "{kind:?} {only} {without} {parent:?}");
        }
    }
}

#[test]
fn results_are_printed_as_linux_does() {
    let back = |time, function, stack, result: u64| {
        Made::new(GRAPH_RETURN_EVENT, 7, time, &[function, OPEN + 4, stack, result])
    };
    for (result, is_hexadecimal, expected) in tried([
        (0, false, "0x0"),
        (0x1234, false, "0x1234"),
        (-5_i64 as u64, false, "-5"),
        (u64::from(-5_i32 as u32), false, "-5"),
        (-5_i64 as u64, true, "0xfffffffffffffffb"),
        (-4095_i64 as u64, false, "-4095"),
        (-4096_i64 as u64, false, "0xfffffffffffff000"),
        (1 << 32 | 0xffff_fffb, false, "0x1fffffffb"),
    ]) {
        let records = [
            call(7, 1_000, OPEN, 0x800),
            call(7, 2_000, GETNAME, 0x700),
            back(3_000, GETNAME, 0x700, result),
            back(4_000, OPEN, 0x800, result),
        ];
        let mut options = graph_options();
        options.set(Flag::GraphHexResult, is_hexadecimal);
        assert!(!shown_with(&records, options).contains("ret="));
        options.set(Flag::GraphResult, true);
        let shown = shown_with(&records, options);
        assert!(shown.contains(&format!("|    getname(); /* ret={expected} */\n")), "{shown}");
        assert!(shown.ends_with(&format!("|  }} /* do_sys_open ret={expected} */\n")), "{shown}");
        // A record that was made without results has none.
        let without = [call(7, 1_000, OPEN, 0x800), super::tests::back(7, 2_000, OPEN, 0x800)];
        assert!(shown_with(&without, options).ends_with("|  do_sys_open();\n"));
    }
}
