//! The life of a program: how it begins, runs, ends or is stopped, and what is refused before it begins.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::naked_asm;
use core::cell::Cell;
use core::hint::black_box;
use core::time::Duration;

use aarch64_kprobes::probe;
use kprobes_console::program::{Options, RunningProgram, list};
use kprobes_console::symbol;
use runtime::sync::IrqMask;
use runtime::task::JoinHandle;
use runtime::{smp, task, time};

use super::{finished, number, printed, refused, start, target};
use crate::test;

/// The number of periods of 2 ms for which [`keep_cpus_busy`] lets no task run.
const PERIODS: u64 = 50;

/// The first of two functions with the same path, which cannot be probed at their entry.
#[unsafe(naked)]
#[unsafe(export_name = "_RNvCs1_6closed4call")]
extern "C" fn first_closed() {
    naked_asm!("svc #1", "ret")
}

/// The second of two functions with the same path.
#[unsafe(naked)]
#[unsafe(export_name = "_RNvCs2_6closed4call")]
extern "C" fn second_closed() {
    naked_asm!("svc #2", "ret")
}

/// Masks interrupts on all CPUs for [`PERIODS`] periods. At the end each CPU calls `last`, before it takes an
/// interrupt.
fn keep_cpus_busy(last: fn()) {
    let busy = move || {
        let _mask = IrqMask::new();
        let begin = time::now();
        while time::now() - begin < Duration::from_millis(2 * PERIODS) {
            core::hint::spin_loop();
        }
        last();
    };
    let tasks: Vec<_> = smp::running().map(|cpu| task::spawn_on(cpu, "busy", busy)).collect();
    tasks.into_iter().for_each(JoinHandle::join);
}

fn periods_since(begin: Duration) -> u64 {
    (time::now() - begin).as_millis() as u64 / 2 + 1
}

test!(
    fn a_program_can_be_stopped_while_it_arms_its_probes() {
        let text = "BEGIN { printf(\"begin\\n\"); } kprobe:* /0/ { @ = count(); } END { printf(\"end\\n\"); }";
        let armed = |program: &RunningProgram| program.registrations().filter(|probe| probe.is_enabled()).count();
        let looks = Cell::new(0);
        let start = |most: usize| {
            looks.set(0);
            RunningProgram::start_unless(text, Options::default(), &|| looks.replace(looks.get() + 1) >= most)
        };
        let program = start(usize::MAX).expect("nobody stops it");
        let (all, whole) = (looks.get(), armed(&program));
        assert!(all >= 4 && whole == program.probes() - 2, "{whole} probes are armed after {all} looks");
        drop(program);
        let mut begun = 0;
        for most in 0..all {
            match start(most) {
                Ok(program) => {
                    begun += 1;
                    assert!(armed(&program) < whole, "{most}");
                    assert_eq!(finished(program), "begin\nend\n");
                }
                Err(refusal) => assert!(refusal.is_stopped() && begun == 0, "{most}"),
            }
            assert!(probe::list().expect("there is memory for the list").is_empty());
        }
        assert_eq!(begun, 1, "they are armed all at once");
    }
);

test!(
    fn clauses_that_nothing_is_hit_for_run_in_their_order() {
        let text = "BEGIN { @n = 3; printf(\"begin\\n\"); } interval:ms:1 { @n--; if (@n == 0) { exit(); } } \
                    END { printf(\"end %d\\n\", @n); delete(@n); }";
        let program = start(text);
        assert_eq!(program.probes(), 3);
        let mut out = String::new();
        while !program.drain(&mut out).expect("a string can be written to") {
            task::yield_now();
        }
        assert!(program.is_over());
        out.push_str(&finished(program));
        // On a slow machine, the number of missed intervals follows.
        assert!(out.starts_with("begin\nend 0\n"), "{out}");
    }
);

test!(
    fn end_finds_room_for_its_output() {
        let text = "config = { perf_rb_pages = 1 } BEGIN { $i = 0; while ($i < 1000) { print($i); $i++; } } \
                    END { print(\"end\"); }";
        let out = finished(start(text));
        assert!(out.starts_with("0\n") && out.contains("\nend\n") && out.contains("Lost "), "{out}");
    }
);

test!(
    fn intervals_that_are_not_kept_are_counted() {
        let begin = time::now();
        let program = start("interval:ms:2 { @ = count(); }");
        keep_cpus_busy(|| {});
        // The task that runs the clause gets its turn.
        task::sleep(Duration::from_millis(10));
        let out = finished(program);
        let (run, missed) = (number(&out, "@: "), number(&out, "Missed "));
        assert!(missed >= PERIODS / 2, "{out}");
        let most = periods_since(begin);
        assert!((PERIODS..=most).contains(&(run + missed)), "{out}, of {most}");
    }
);

test!(
    depends(cpus),
    fn intervals_that_were_missed_before_exit_are_counted() {
        for text in [
            "interval:ms:2 { @ = count(); } kprobe:tests::programs::target { exit(); }",
            "interval:ms:2 { @ = count(); if (@go == 1) { exit(); } } kprobe:tests::programs::target { @go = 1; }",
        ] {
            let begin = time::now();
            let program = start(text);
            keep_cpus_busy(|| _ = black_box(target(0, core::ptr::null())));
            while !program.is_over() {
                task::yield_now();
            }
            let most = periods_since(begin);
            // Periods after the end of the program do not count as missed.
            keep_cpus_busy(|| {});
            let out = finished(program);
            let missed = number(&out, "Missed ");
            assert!((PERIODS / 2..=most).contains(&missed), "{text}: {out}, of {most}");
        }
    }
);

test!(
    fn after_exit_nothing_runs_but_the_end() {
        let text =
            "kprobe:tests::programs::target { @ = count(); if (arg0 == 4) { exit(); } } END { printf(\"done\\n\"); }";
        let out = printed(text, || (0..100).for_each(|number| _ = black_box(target(number, core::ptr::null()))));
        assert_eq!(out, "done\n@: 5\n");
        // Not even at the other probes of a clause that has END.
        let out = printed("kprobe:tests::programs::target, END { @ = count(); if (@ == 5) { exit(); } }", || {
            (0..100).for_each(|number| _ = black_box(target(number, core::ptr::null())));
        });
        assert_eq!(out, "@: 6\n");
        assert_eq!(printed("BEGIN { exit(); } BEGIN, END { @++; }", || {}), "@: 1\n");
    }
);

test!(
    fn what_cannot_be_probed_is_refused_with_the_place_or_counted() {
        assert_eq!(
            refused("kprobe:tests::programs::qqqqqqq { @ = count(); }"),
            "error: no function matches this\n  kprobe:tests::programs::qqqqqqq { @ = count(); }\n  \
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        );
        let why = refused("BEGIN { } inline:f:entry { @ = count(); }");
        assert!(why.contains("is inlined anywhere\n"), "{why}");
        for before in ["", "BEGIN { } kprobe:tests::programs::target, "] {
            let text = format!("{before}kprobe:aarch64_kprobes::exception::handle_sync {{ @ = count(); }}");
            let why = refused(&text);
            assert!(why.contains("runs while probes are handled"), "{why}");
            let caret = format!("\n  {:1$}{2}\n", "", before.len(), "^".repeat(46));
            assert!(why.ends_with(&caret), "{why}{caret}");
        }
        let program = start("kprobe:* /0/ { @ = count(); }");
        black_box([first_closed as *const (), second_closed as *const ()]);
        let refused: Vec<_> =
            program.refused().map(|function| symbol::path(&function).expect("there is memory")).collect();
        for path in ["aarch64_kprobes::exception::handle_sync", "closed::call#1", "closed::call#2"] {
            assert!(refused.iter().any(|other| other == path), "{path}");
        }
        assert!(program.refused_instructions().is_empty());
        assert_eq!(program.probes() + refused.len(), list("kprobe:*", false).expect("there are some").len());
    }
);
