//! Programs that watch memory: what a clause finds out about an access, and how watchpoints end.

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::probe::watchpoints;
use kprobes_console::program::list;
use runtime::{smp, task};

use super::{finished, map, printed, refused, start};
use crate::test;
use crate::watch::{enabled, watch_load, watch_store};

/// The watched word, and its neighbours.
static WORDS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Stores `value` in a word.
#[inline(never)]
fn poke(number: usize, value: u64) {
    // SAFETY: the word is atomic, and an aligned store is one access.
    unsafe { watch_store(WORDS[number].as_ptr(), value) };
    // The call above is not the last: this function has a frame record.
    core::hint::black_box(());
}

/// Loads a word.
#[inline(never)]
fn peek(number: usize) -> u64 {
    // SAFETY: the word is atomic, and an aligned load is one access.
    unsafe { watch_load(WORDS[number].as_ptr()) }
}

const NAME: &str = "tests::programs::watched::WORDS";

test!(
    depends(cpus, core),
    fn a_clause_knows_the_function_the_stack_and_the_registers_of_the_access() {
        let text = format!(
            "watchpoint:{NAME}+8:8:w {{ @[func, caller, comm, cpu, reg(\"x1\"), *(u64 *)reg(\"x0\")] = count(); \
             @tasks[tid] = count(); @stacks[kstack(2)] = count(); }}"
        );
        let last = smp::running().last().unwrap_or(0);
        let (mut id, program) = (0, start(&text));
        for cpu in smp::running() {
            let writer = task::spawn_on(cpu, "writer", move || {
                for number in (0..8).filter(|number| cpu == last || *number != 1) {
                    poke(number, 5);
                    peek(1);
                }
                FINISHED.store(task::current().id(), Relaxed);
            });
            writer.join();
            id = FINISHED.load(Relaxed);
        }
        let out = finished(program);
        let accesses = map(&out, "");
        let key = format!("watch_store, tests::programs::watched::poke, writer, {last}, 5, 0");
        assert_eq!(accesses.into_iter().collect::<alloc::vec::Vec<_>>(), [(key, 1)], "{out}");
        assert_eq!(map(&out, "tasks").into_iter().collect::<alloc::vec::Vec<_>>(), [(format!("{id}"), 1)], "{out}");
        assert!(out.contains("\n    watch_store+0\n    tests::programs::watched::poke+"), "{out}");
        assert_eq!(enabled(), 0);
    }
);

static FINISHED: AtomicU64 = AtomicU64::new(0);

test!(
    depends(core),
    fn a_mode_says_which_accesses_are_reported() {
        for (mode, expected) in [("r", 2), ("w", 1), ("rw", 3)] {
            let out = printed(&format!("w:{NAME}:8:{mode} {{ @ = count(); }}"), || {
                poke(0, 1);
                peek(0);
                peek(0);
                poke(1, 1);
            });
            assert_eq!(out, format!("@: {expected}\n"), "{mode}");
        }
        // An address is as good as a name.
        let address = WORDS[2].as_ptr().addr();
        assert_eq!(printed(&format!("w:{address:#x}:8:w {{ @ = count(); }}"), || poke(2, 1)), "@: 1\n");
    }
);

test!(
    depends(core),
    fn a_program_ends_its_own_watchpoints() {
        let address = WORDS[3].as_ptr().addr();
        let program =
            start(&format!("w:{NAME}+24:8:w {{ @ = count(); unwatch({address}); }} w:{NAME}:8:w {{ @x = count(); }}"));
        poke(3, 1);
        let mut out = String::new();
        program.drain(&mut out).expect("a string can be written to");
        poke(3, 2);
        poke(0, 2);
        assert_eq!(out + &finished(program), "@: 1\n@x: 1\n");
        assert_eq!(enabled(), 0);
    }
);

test!(
    depends(core),
    fn a_program_that_ends_leaves_no_watchpoint_however_it_ends() {
        let text = format!("w:{NAME}:8:w {{ @ = count(); }}");
        drop(start(&text));
        assert_eq!(enabled(), 0);
        // One watchpoint more than the CPU has: the program is refused, and leaves none.
        let all: String =
            (0..=watchpoints()).map(|number| format!("w:{NAME}+{}:8:w {{ @ = count(); }} ", 8 * number)).collect();
        assert!(refused(&all).contains(&format!("all {} watchpoints of the CPU are in use", watchpoints())));
        // The place in the text shows that `BEGIN` has not run.
        assert_eq!(
            refused("BEGIN { @ = count(); } w:0x1000000000000:8:w { @ = count(); }"),
            "error: 0x1000000000000 cannot be watched: it is no virtual address, because its upper bits are neither all 0 \
             nor all 1\n  BEGIN { @ = count(); } w:0x1000000000000:8:w { @ = count(); }\n                         \
             ^^^^^^^^^^^^^^^^^^^^^\n"
        );
        // A later probe of the program is refused.
        assert!(
            refused(&format!("{text} insn:aarch64_kprobes::exception::handle_sync:0 {{ @ = count(); }}"))
                .contains("cannot be probed")
        );
        for _ in 0..watchpoints() {
            assert_eq!(printed(&text, || poke(0, 1)), "@: 1\n");
        }
        assert_eq!(enabled(), 0);
        assert_eq!(list(&format!("w:{NAME}+8:4:r"), false).unwrap(), [format!("watchpoint:{NAME}+0x8:4:r")]);
    }
);

test!(
    depends(cpus, core),
    fn a_program_that_watches_prints_at_intervals() {
        let program = start(&format!("w:{NAME}+32:8:w {{ @ = count(); }} interval:ms:2 {{ print(@); }}"));
        let mut out = String::new();
        let mut wait_for = |count: u64| {
            let line = format!("@: {count}\n");
            while !out.contains(&line) {
                program.drain(&mut out).expect("a string can be written to");
                task::yield_now();
            }
        };
        (0..3).for_each(|value| poke(4, value));
        wait_for(3);
        (0..2).for_each(|value| poke(4, value));
        wait_for(5);
        out += &finished(program);
        let mut counts = out.lines().filter_map(|line| line.strip_prefix("@: ")?.parse().ok());
        assert!(counts.clone().is_sorted() && counts.next_back() == Some(5_u64), "{out}");
        assert_eq!(enabled(), 0);
    }
);

test!(
    depends(cpus, core),
    fn tasks_that_access_the_memory_end_its_watchpoint() {
        const TURNS: u64 = 100;
        let address = WORDS[5].as_ptr().addr();
        // Any of the first hits, on any CPU, may end the watchpoint.
        let program =
            start(&format!("w:{NAME}+40:8:w {{ @ = count(); @n++; if (@n > 20) {{ unwatch({address}); }} }}"));
        let accesses = |cpu: usize| {
            let reader = program.reader();
            task::spawn_on(cpu, "accesses", move || {
                let mut out = String::new();
                for turn in 0..TURNS {
                    poke(5, turn);
                    reader.drain(&mut out).expect("a string can be written to");
                }
            })
        };
        let tasks: alloc::vec::Vec<_> = smp::running().map(accesses).collect();
        let count = TURNS * tasks.len() as u64;
        tasks.into_iter().for_each(runtime::task::JoinHandle::join);
        program.drain(&mut String::new()).expect("a string can be written to");
        assert_eq!(enabled(), 0);
        poke(5, 0);
        let out = finished(program);
        let hits: u64 = out.lines().find_map(|line| line.strip_prefix("@: ")?.parse().ok()).unwrap_or(0);
        assert!((21..count).contains(&hits), "{hits} of {count}: {out}");
    }
);
