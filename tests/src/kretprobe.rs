//! Kretprobes.

use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use aarch64_kprobes::exception;
use aarch64_kprobes::insn::{Indirect, Op, RegisterAccess, Registers, Verdict, classify};
use aarch64_kprobes::probe::{CallResult, Mode};
use aarch64_kprobes::{Call, Decision, Hit, Kprobe, Kretprobe, ProbeError};
use runtime::sync::IrqMask;
use runtime::{backtrace, smp, task};

use crate::result::{LEAN, SEEN, add_value};
use crate::{fixture, test};

extern "C" fn add_return_value(call: &mut Call<'_>) {
    SEEN.fetch_add(call.return_value(), Relaxed);
}

/// Calls itself `depth` times, and returns `depth`.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 { 0 } else { black_box(recurse(black_box(depth - 1))) + 1 }
}

fn recurse_address() -> usize {
    recurse as *const () as usize
}

test!(
    depends(core, board),
    fn return_values_are_seen() {
        let probe = Kretprobe::at(fixture::REGISTERS.address()).handler(add_return_value).register().unwrap();
        for argument in 0..100 {
            assert_eq!(fixture::REGISTERS.call(argument), argument + 1);
        }
        assert_eq!(SEEN.load(Relaxed), 5050);
        assert_eq!((probe.hits(), probe.missed(), probe.active()), (100, 0, 0));
    }
);

test!(
    depends(cpus),
    fn the_caller_finds_its_registers_and_flags() {
        let function = fixture::REGISTERS.address();
        for mode in [Mode::Optimized, Mode::Boosted, Mode::Stepped] {
            for cpu in smp::running() {
                // The one instance is the spare of one CPU, and the others have none.
                let probe = Kretprobe::at(function).maxactive(1).at_most(mode).register().unwrap();
                task::spawn_on(cpu, "caller", || {
                    assert_eq!([fixture::CHECK_REGISTERS.call(0), fixture::CHECK_REGISTERS.call(0)], [0; 2]);
                })
                .join();
                assert_eq!((probe.hits(), probe.missed(), probe.active()), (2, 0, 0), "{mode} on CPU {cpu}");
            }
        }
    }
);

test!(
    fn a_handler_can_change_the_return_value() {
        extern "C" fn change(call: &mut Call<'_>) {
            // SAFETY: the caller accepts any word.
            unsafe { call.frame_mut() }.x[0] = 99;
        }
        let _probe = Kretprobe::at(fixture::IDENTITY.address()).handler(change).register().unwrap();
        assert_eq!(fixture::IDENTITY.call(1), 99);
    }
);

test!(
    fn an_entry_handler_can_change_an_argument() {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        extern "C" fn change(call: &mut Call<'_>) -> Decision {
            CALLS.fetch_add(1, Relaxed);
            // SAFETY: the function accepts any word.
            unsafe { call.frame_mut() }.x[0] += 1;
            if call.data() == 0 { Decision::Follow } else { Decision::Decline }
        }
        let address = fixture::IDENTITY.address();
        for mode in [Mode::Optimized, Mode::Boosted, Mode::Stepped] {
            for data in [0, 1] {
                let before = CALLS.load(Relaxed);
                let probe = Kretprobe::at(address).entry(change).data(data).at_most(mode).register().unwrap();
                assert_eq!(fixture::IDENTITY.call(7), 8, "{mode}");
                assert_eq!(CALLS.load(Relaxed) - before, 1, "{mode}");
                assert_eq!((probe.hits(), probe.missed(), probe.active()), (1 - data as u64, 0, 0), "{mode}");
                // A second probe that also changes a register.
                extern "C" fn write(hit: &mut Hit<'_>) {
                    // SAFETY: the function accepts any word.
                    unsafe { hit.frame_mut() }.x[0] += 10;
                }
                let other = Kprobe::at(address).pre(write).at_most(mode).register().unwrap();
                assert_eq!(fixture::IDENTITY.call(7), 18, "{mode}");
                assert_eq!((CALLS.load(Relaxed) - before, other.hits()), (2, 1), "{mode}");
            }
        }
    }
);

test!(
    fn a_handler_can_return_elsewhere() {
        extern "C" fn divert(call: &mut Call<'_>) {
            // SAFETY: the other function returns through x30, which is unchanged, to the same caller.
            unsafe { call.frame_mut() }.pc = fixture::REGISTERS.address() as u64;
        }
        let _probe = Kretprobe::at(fixture::IDENTITY.address()).handler(divert).register().unwrap();
        assert_eq!(fixture::IDENTITY.call(1), 2);
    }
);

test!(
    fn recursion_beyond_maxactive_is_missed_and_returns_right() {
        let builder = Kretprobe::at(recurse_address()).maxactive(4);
        for (builder, lean) in [(builder.handler(add_return_value), 0), (builder.result(add_value), 4)] {
            let probe = builder.register().unwrap();
            assert_eq!(recurse(black_box(10)), 10);
            assert_eq!((probe.hits(), probe.missed(), probe.active()), (4, 7, 0));
            assert_eq!(SEEN.swap(0, Relaxed), 10 + 9 + 8 + 7, "the outermost calls are followed");
            assert_eq!(LEAN.swap(0, Relaxed), lean);
            assert_eq!(recurse(black_box(3)), 3);
            assert_eq!((probe.hits(), probe.missed(), probe.active()), (8, 7, 0));
            assert_eq!((SEEN.swap(0, Relaxed), LEAN.swap(0, Relaxed)), (3 + 2 + 1, lean));
        }
    }
);

test!(
    fn several_probes_on_one_function_all_see_the_return() {
        let address = fixture::IDENTITY.address();
        let probes = [(); 3].map(|()| Kretprobe::at(address).handler(add_return_value).register().unwrap());
        assert_eq!(fixture::IDENTITY.call(5), 5);
        assert_eq!(SEEN.load(Relaxed), 15);
        assert!(probes.iter().all(|probe| probe.hits() == 1 && probe.missed() == 0));
    }
);

test!(
    fn the_entry_handler_can_decline_and_leave_data() {
        extern "C" fn entry(call: &mut Call<'_>) -> Decision {
            let argument = call.frame().x[0];
            call.instance_data_mut()[0] = argument;
            if argument < 10 { Decision::Decline } else { Decision::Follow }
        }
        extern "C" fn check(call: &mut Call<'_>) {
            assert_eq!(call.instance_data()[0] + 1, call.return_value());
            SEEN.fetch_add(call.instance_data()[0], Relaxed);
        }
        let probe = Kretprobe::at(fixture::REGISTERS.address())
            .entry(entry)
            .handler(check)
            .data_words(1)
            .maxactive(1)
            .register()
            .unwrap();
        for argument in [1, 10, 2, 20, 3] {
            fixture::REGISTERS.call(argument);
        }
        assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed()), (30, 2, 0));
    }
);

test!(
    depends(cpus),
    fn a_probe_unregistered_in_flight_lets_its_calls_return() {
        static ENTERED: AtomicBool = AtomicBool::new(false);
        static RELEASED: AtomicBool = AtomicBool::new(false);
        #[inline(never)]
        fn wait(argument: u64) -> u64 {
            ENTERED.store(true, Relaxed);
            while !RELEASED.load(Relaxed) {
                task::yield_now();
            }
            argument + 1
        }
        let builder = Kretprobe::at(wait as *const () as usize);
        for builder in [builder.handler(add_return_value), builder.result(add_value)] {
            ENTERED.store(false, Relaxed);
            RELEASED.store(false, Relaxed);
            let probe = builder.register().unwrap();
            let caller = task::spawn("caller", || assert_eq!(wait(black_box(1)), 2));
            while !ENTERED.load(Relaxed) {
                task::yield_now();
            }
            assert_eq!(probe.active(), 1);
            probe.unregister();
            RELEASED.store(true, Relaxed);
            caller.join();
            assert_eq!(SEEN.load(Relaxed), 0, "the handler is not called any more");
            assert!(aarch64_kprobes::probe::list().expect("there is memory for the list").is_empty());
        }
    }
);

test!(
    depends(cpus),
    fn a_task_that_exits_inside_gives_its_instances_back() {
        #[inline(never)]
        fn leave(_: u64) -> u64 {
            // SAFETY: the functions of the task own no values.
            unsafe { task::exit() }
        }
        #[inline(never)]
        fn call_leave(argument: u64) -> u64 {
            black_box(leave(black_box(argument)) + 1)
        }
        let addresses = [leave as *const () as usize, call_leave as *const () as usize];
        let probes = addresses.map(|address| Kretprobe::at(address).maxactive(2).register().unwrap());
        for round in 1..=5 {
            let task = task::spawn("short", || {
                call_leave(black_box(0));
            });
            task.join();
            for probe in &probes {
                assert_eq!((probe.active(), probe.hits(), probe.missed()), (0, 0, round));
            }
        }
    }
);

test!(
    depends(cpus),
    fn preempted_calls_are_paired_with_their_own_returns() {
        const CALLS: u64 = 50_000;
        static MISMATCHES: AtomicU64 = AtomicU64::new(0);
        static RETURNS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        static SWITCHES: AtomicU64 = AtomicU64::new(0);
        static LAST: AtomicU64 = AtomicU64::new(0);
        /// Takes so long that the timer interrupts it now and then.
        #[inline(never)]
        fn work(argument: u64) -> u64 {
            for round in 0..50 {
                black_box(round);
            }
            argument ^ 0x5555
        }
        extern "C" fn entry(call: &mut Call<'_>) -> Decision {
            let argument = call.frame().x[0];
            call.instance_data_mut()[0] = argument;
            Decision::Follow
        }
        extern "C" fn check(call: &mut Call<'_>) {
            let argument = call.instance_data()[0];
            if call.return_value() != argument ^ 0x5555 {
                MISMATCHES.fetch_add(1, Relaxed);
            }
            let caller = argument & 1;
            RETURNS[caller as usize].fetch_add(1, Relaxed);
            if LAST.swap(caller, Relaxed) != caller {
                SWITCHES.fetch_add(1, Relaxed);
            }
        }
        let probe =
            Kretprobe::at(work as *const () as usize).entry(entry).handler(check).data_words(1).register().unwrap();
        let callers: Vec<_> = (0..2u64)
            .map(|caller| {
                task::spawn("caller", move || {
                    for call in 0..CALLS {
                        let argument = call << 1 | caller;
                        assert_eq!(work(black_box(argument)), argument ^ 0x5555);
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join();
        }
        assert_eq!(MISMATCHES.load(Relaxed), 0);
        assert_eq!(RETURNS.each_ref().map(|returns| returns.load(Relaxed)), [CALLS; 2]);
        assert_eq!((probe.hits(), probe.missed(), probe.active()), (2 * CALLS, 0, 0));
        assert!(SWITCHES.load(Relaxed) > 2, "the tasks have not preempted each other");
    }
);

test!(
    fn backtraces_show_the_true_callers() {
        static TRACE: runtime::sync::IrqLock<Vec<usize>> = runtime::sync::IrqLock::new(Vec::new());
        #[inline(never)]
        fn innermost(argument: u64) -> u64 {
            *TRACE.lock() = backtrace::current().addresses().collect();
            black_box(argument) + 1
        }
        #[inline(never)]
        fn middle(argument: u64) -> u64 {
            black_box(innermost(black_box(argument))) + 1
        }
        let addresses = || -> Vec<usize> {
            assert_eq!(middle(black_box(1)), 3);
            TRACE.lock().clone()
        };
        let without = addresses();
        let functions = [innermost as *const () as usize, middle as *const () as usize];
        let _returns = functions.map(|function| Kretprobe::at(function).register().unwrap());
        let with = addresses();
        // The innermost addresses are in `innermost` and equal, and so are all callers, except for the two call sites
        // in this test.
        assert_eq!(without.len(), with.len(), "{without:x?} {with:x?}");
        let differing = without.iter().zip(&with).filter(|(without, with)| without != with).count();
        assert!(differing <= 1, "{without:x?} {with:x?}");
        assert!(with.iter().all(|&address| !aarch64_kprobes::probe::is_trampoline(address)));
    }
);

test!(
    fn backtraces_cross_the_exception_of_a_probe() {
        static TRACE: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
        extern "C" fn trace(hit: &mut Hit<'_>) {
            for (place, address) in TRACE.iter().zip(backtrace::of_frame(hit.frame()).addresses()) {
                place.store(address, Relaxed);
            }
        }
        #[inline(never)]
        fn caller_of_the_probed_function(argument: u64) -> u64 {
            black_box(fixture::IDENTITY.call(black_box(argument))) + 1
        }
        let _entry = Kprobe::at(fixture::IDENTITY.address()).pre(trace).register().unwrap();
        let _return = Kretprobe::at(fixture::IDENTITY.address()).register().unwrap();
        assert_eq!(caller_of_the_probed_function(1), 2);
        let addresses: Vec<usize> =
            TRACE.iter().map(|place| place.load(Relaxed)).take_while(|&address| address != 0).collect();
        assert_eq!(addresses[0], fixture::IDENTITY.address());
        assert!(fixture::range_of(caller_of_the_probed_function as *const () as usize).contains(&addresses[1]));
        assert!(addresses.len() > 3, "{addresses:x?}");
        assert!(!addresses.iter().any(|&address| aarch64_kprobes::probe::is_trampoline(address)), "{addresses:x?}");
    }
);

test!(
    fn return_probes_go_on_entries_only() {
        let address = fixture::IDENTITY.address() + 4;
        let refused = Kretprobe::at(address).register().map(drop);
        assert!(matches!(refused, Err(ProbeError::NotEntry { address: at, .. }) if at == address));
    }
);

test!(
    depends(cpus),
    fn instances_are_not_leaked() {
        let probe = Kretprobe::at(recurse_address()).maxactive(64).register().unwrap();
        let tasks: Vec<_> = (0..16)
            .map(|number| task::spawn("caller", move || assert_eq!(recurse(black_box(number % 4)), number % 4)))
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
        assert_eq!((probe.hits(), probe.missed(), probe.active()), (4 * (1 + 2 + 3 + 4), 0, 0));
    }
);

/// Does what a report does first. The caller has masked interrupts.
#[inline(never)]
extern "C" fn begin_report(number: u64) -> u64 {
    // SAFETY: no hit is being handled, and the test stops the machine with interrupts masked.
    unsafe { exception::abandon_cpu() };
    black_box(number)
}

/// Adds 1 to what `begin_report` returns.
#[inline(never)]
extern "C" fn report(number: u64) -> u64 {
    black_box(begin_report(black_box(number))) + 1
}

test!(
    stops ": on purpose, after both returns",
    fn calls_that_return_on_an_abandoned_cpu_are_missed() {
        extern "C" fn never(_: &mut Call<'_>) {
            panic!("the CPU was abandoned");
        }
        extern "C" fn never_lean(_: &CallResult) {
            panic!("the CPU was abandoned");
        }
        let inner = Kretprobe::at(begin_report as *const () as usize).handler(never).register().unwrap();
        let outer = Kretprobe::at(report as *const () as usize).result(never_lean).register().unwrap();
        let _mask = IrqMask::new();
        assert_eq!(report(black_box(1)), 2);
        for probe in [&inner, &outer] {
            assert_eq!((probe.hits(), probe.missed(), probe.active()), (0, 1, 0));
        }
        panic!("on purpose, after both returns");
    }
);

unsafe extern "C" {
    safe static kretprobe_lean: u32;
    safe static kretprobe_end: u32;
}

test!(
    // A kernel may keep what belongs to the CPU in x18, and a task may go on at another CPU where it is interrupted.
    fn the_trampolines_touch_x18_only_where_interrupts_are_masked() {
        /// MSR DAIFSet, #0b1111, and MSR DAIF, X0 (Arm ARM, C6.2).
        const MASK: u32 = 0xd503_4fdf;
        const UNMASK: u32 = 0xd51b_4220;
        let (begin, end) = (&raw const kretprobe_lean, (&raw const kretprobe_end).addr());
        let mut is_masked = false;
        let (mut changes, mut accesses) = (0, 0);
        for index in 0..(end - begin.addr()) / 4 {
            // SAFETY: the two labels are the ends of the engine's code of returns, which nothing writes.
            let (at, word) = (begin.addr() + 4 * index, unsafe { begin.add(index).read() });
            let RegisterAccess { reads, writes } = RegisterAccess::of(word);
            if reads.with(writes).intersects(Registers::x(18)) && reads != Registers::ALL {
                assert!(is_masked, "{at:#x}: {word:#010x}");
                accesses += 1;
            }
            match classify(word) {
                _ if word == MASK => is_masked = true,
                _ if word & !0x1f == UNMASK => is_masked = false,
                // What follows is entered by a branch, with interrupts masked.
                Verdict::Simulate(Op::BranchRegister { kind: Indirect::Return, .. }) => is_masked = true,
                _ => continue,
            }
            changes += 1;
        }
        assert!(changes > 10 && accesses > 5, "{changes} changes of the masks, {accesses} accesses");
    }
);
