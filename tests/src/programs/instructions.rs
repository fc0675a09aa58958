//! Compiled programs: they find the same as interpreted ones, come and go while all CPUs are in their code, and leave
//! no memory allocated.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kprobes_console::program::{Reason, RunningProgram};
use kprobes_vm::jit::Refused;
use runtime::memory::{self, layout};
use runtime::task::JoinHandle;
use runtime::{smp, task};

use super::{
    CALLS, Start, call_on_all_cpus, caller_of_target, collatz, finished, printed, recurse, refused, start, started,
    target,
};
use crate::fixture;
use crate::test;

/// The workload that one program after another probes. It is the same each time.
#[inline(never)]
fn work() {
    static TEXT: &[u8; 8] = b"a text\xff\0";
    call_on_all_cpus(1_000);
    for number in 0..30 {
        black_box(collatz(black_box(number)));
        black_box(caller_of_target(black_box(number)));
        black_box(target(number, TEXT.as_ptr().wrapping_add(number as usize % 8)));
    }
    black_box(recurse(black_box(20)));
    fixture::TAIL_CALL.call(7);
}

/// Programs whose maps and output are the same for each run of [`work`], with the number of handlers that they are
/// compiled to.
const PROGRAMS: [(&str, usize); 9] = [
    (
        "kprobe:tests::programs::target { @n = count(); @s = sum(arg0); @a = avg(arg0); @least = min(arg0); @most = max(arg0); \
         @both = stats((s64)arg0 - 5); @h = hist(arg0); @l = lhist(arg0, 10, 900, 90); @all++; @odd += arg0 % 2; }",
        1,
    ),
    (
        "kprobe:tests::programs::target /arg0 % 3 == 1/ { @by[arg0 & 7, comm] = count(); if (comm == \"caller\") { \
         @cpus[cpu] = count(); } @f[func] = count(); @p[probe, arg0 % 2] = count(); if (arg0 > 100 && comm == \"caller\") { @big++; } else { @small += arg0; } \
         @c[ksym(caller)] = count(); @t[tid > 0, nsecs > 0, elapsed < nsecs] = count(); }",
        1,
    ),
    (
        "insn:tests::programs::collatz:* { @at[reg(\"pc\")] = count(); @x[reg(\"x0\") % 5, func] = hist(reg(\"sp\") % 16); \
         @of[probe] = sum(reg(\"x0\")); }",
        1,
    ),
    (
        "return:tests::programs::recurse, return:fixture_tail_call { @left[func, retval] = count(); } \
         kprobe:tests::programs::recurse { @in[arg0] = sum(arg0 * 3); @depth = max(arg0); } \
         kretprobe:tests::programs::recurse { @back[retval] = count(); }",
        3,
    ),
    (
        "kprobe:tests::programs::target /comm != \"caller\"/ { printf(\"%d %s %d %s\\n\", arg0, str(arg1), *(u8 *)arg1, probe); \
         @t[str(arg1, 5)] = count(); @[kstack(2)] = count(); $x = arg0 * 7; unroll (3) { $x = $x / 2 + arg0 % 5; } @x = sum($x); \
         @g[arg0 / 2] = arg0; delete(@g[arg0]); if (arg0 == 9) { clear(@t); } }",
        1,
    ),
    (
        "kprobe:tests::programs::collatz { @ = count(); @sp[reg(\"sp\") % 16, reg(\"pc\") == func] = count(); if (arg0 == 4) { \
         exit(); } } kprobe:tests::programs::recurse { @after = count(); } END { printf(\"done\\n\"); }",
        2,
    ),
    (
        "kretprobe:tests::programs::target { @n = count(); @s = sum(retval); @h = hist(retval); @c[ksym(caller)] = count(); \
         @by[comm, retval % 3] = count(); @f[func, probe] = count(); @[kstack(2)] = count(); \
         @r[reg(\"pc\") == reg(\"lr\"), reg(\"sp\") % 16] = count(); \
         if (comm != \"caller\") { printf(\"%d %s\\n\", retval, probe); } }",
        1,
    ),
    (
        "kprobe:tests::programs::collatz { @start[tid] = nsecs; } kretprobe:tests::programs::collatz { \
         @took[nsecs >= @start[tid], @start[tid] > 0] = count(); delete(@start[tid]); } \
         kprobe:tests::programs::recurse, kretprobe:tests::programs::recurse { @both[probe] = count(); @one = sum(reg(\"x0\")); }",
        4,
    ),
    // One clause that is compiled for two views.
    ("kprobe:tests::programs::target, insn:tests::programs::target:4 { @[func, comm] = count(); }", 2),
];

test!(
    depends(cpus),
    fn compiled_programs_find_what_interpreted_ones_do() {
        for (text, handlers) in PROGRAMS {
            let [interpreted, compiled] = [RunningProgram::interpret as Start, RunningProgram::start].map(|start| {
                let program = started(text, start(text));
                assert_eq!(program.interpreted(), [], "{text}");
                let handlers = program.handlers();
                work();
                (handlers, finished(program))
            });
            assert_eq!((interpreted.0, compiled.0), (0, handlers), "{text}");
            assert!(interpreted.1 == compiled.1, "{text}\n{}but instructions find\n{}", interpreted.1, compiled.1);
            assert!(!compiled.1.is_empty() && !compiled.1.contains("Missed"), "{text}\n{}", compiled.1);
        }
    }
);

test!(
    fn what_is_not_compiled_is_interpreted_and_said_to_be() {
        let text = "kprobe:tests::programs::recurse { @n = count(); } \
                    kprobe:tests::programs::recurse { unroll (100) { unroll (5) { @[arg0] = count(); } } } \
                    kretprobe:tests::programs::recurse { @back = count(); }";
        let program = start(text);
        assert_eq!((program.handlers(), program.interpreted()), (2, &[(1, Reason::Refused(Refused::Long))][..]));
        assert_eq!(program.interpreted()[0].1.to_string(), "the clause compiles to more than 8191 instructions");
        black_box(recurse(black_box(2)));
        assert_eq!(finished(program), "@[0]: 500\n@[1]: 500\n@[2]: 500\n@back: 3\n@n: 3\n");
    }
);

test!(
    fn instructions_are_where_those_of_others_were() {
        let text = "kprobe:tests::programs::recurse, insn:tests::programs::recurse:4 { @[reg(\"x0\")] = hist(cpu); print(nsecs); }";
        let run = |number: usize| {
            let programs: Vec<RunningProgram> = (0..number).map(|_| start(text)).collect();
            black_box(recurse(black_box(2)));
            drop(programs);
        };
        run(20);
        let before = memory::usage().executable;
        (0..20).rev().for_each(run);
        run(20);
        assert_eq!(memory::usage().executable, before);
    }
);

test!(
    depends(cpus),
    fn programs_come_and_go_while_all_cpus_are_in_their_instructions() {
        // The instructions of each program lie where those of the other were. Each run of a program adds 1 to every
        // map.
        const TEXTS: [&str; 2] = [
            "kprobe:tests::programs::target { @a = count(); @b[arg0 & 3] = count(); @c++; @d[arg0 & 1, cpu] = sum(1); }",
            "kprobe:tests::programs::target { @d[cpu, arg0 & 1]++; if (arg0 % 3 == 1) { @c++; @a++; } else { @a++; @c++; } \
             @b[arg0 & 7] = sum(1); }",
        ];
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let caller = || {
            for number in (0..).take_while(|_| !IS_OVER.load(Relaxed)) {
                black_box(target(black_box(number), core::ptr::null()));
                if number % 256 == 0 {
                    task::yield_now();
                }
            }
        };
        let callers: Vec<JoinHandle> = smp::running().map(|cpu| task::spawn_on(cpu, "caller", caller)).collect();
        let mut all = 0;
        for text in TEXTS.into_iter().cycle().take(20) {
            let out = printed(text, || {
                let before = CALLS.load(Relaxed);
                while CALLS.load(Relaxed) < before + 500 {
                    task::yield_now();
                }
            });
            let total = |name: &str| -> u64 {
                let of = |line: &str| {
                    line.split_once(": ").filter(|(key, _)| key.starts_with(name)).map(|(_, value)| value.to_string())
                };
                out.lines().filter_map(of).map(|value| value.parse::<u64>().expect("a number")).sum()
            };
            let totals = ["@a", "@b", "@c", "@d"].map(total);
            assert!(totals[0] > 0 && totals == [totals[0]; 4], "{text}\n{out}");
            all += totals[0];
        }
        IS_OVER.store(true, Relaxed);
        callers.into_iter().for_each(JoinHandle::join);
        assert!(all <= CALLS.load(Relaxed));
    }
);

test!(
    depends(cpus),
    fn memory_is_back_where_it_was_before_a_program() {
        let run = |text: &str| {
            let program = start(text);
            work();
            drop(finished(program));
        };
        for text in PROGRAMS.map(|(text, _)| text).into_iter().chain(["kprobe:sha2::* { @[func, kstack] = count(); }"])
        {
            // The first runs allocate the memory that is kept for later ones, for both ways to end a program: if probes
            // are removed one by one, the others at an instruction remain for a while.
            run(text);
            drop(start(text));
            let before = memory::usage();
            run(text);
            drop(start(text));
            assert_eq!(memory::usage(), before, "{text}");
            refused(&format!("{text} kprobe:tests::programs::nothing {{ @after = count(); }}"));
            assert_eq!(memory::usage(), before, "{text}");
        }
    }
);

test!(
    fn without_executable_memory_a_program_is_interpreted_and_said_to_be() {
        // This program leaves the engine with room for stubs.
        let text = "kprobe:tests::programs::target { @ = count(); }";
        drop(started(text, RunningProgram::interpret(text)));
        for bytes in [1 << 20, layout::PAGE_SIZE] {
            while memory::allocate_executable(bytes, false).is_ok() {}
        }
        let program = start("kprobe:tests::programs::target { @[arg0] = count(); }");
        assert_eq!((program.handlers(), program.interpreted()), (0, &[(0, Reason::NoMemory)][..]));
        assert_eq!(program.interpreted()[0].1.to_string(), "there is no executable memory for its instructions");
        black_box(target(black_box(5), core::ptr::null()));
        assert_eq!(finished(program), "@[5]: 1\n");
    }
);
