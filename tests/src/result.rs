//! Return probes with handlers that see only what a function returns, with less saved.

use core::hint::black_box;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::{Mode, Return};
use aarch64_kprobes::{Call, Decision, Kretprobe};
use alloc::vec::Vec;
use runtime::sync::IrqLock;
use runtime::{backtrace, smp, task};

use crate::fixture;
use crate::test;

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!("result.S"),
);

unsafe extern "C" {
    fn result_call(function: usize, passed: *const [u64; 20], returned: *mut [u64; 22]) -> u64;
    safe fn result_add(argument: u64) -> u64;
    safe fn result_keep(argument: u64) -> u64;
    safe fn result_kept() -> u64;
}

static SEEN: AtomicU64 = AtomicU64::new(0);

/// The number of handlers that were called with less saved.
static LEAN: AtomicU64 = AtomicU64::new(0);

/// What a handler saw: x0 to x7, x29, the return address, sp, the function, and the data of the probe.
static SHOWN: IrqLock<[u64; 13]> = IrqLock::new([0; 13]);

/// Counts the handler if its `Return` lies directly below the stack pointer of the probed code.
fn note(returned: &Return) {
    let end = ptr::from_ref(returned).addr() + size_of::<Return>();
    LEAN.fetch_add(u64::from(end as u64 == returned.stack_pointer()), Relaxed);
}

extern "C" fn add_value(returned: &Return) {
    note(returned);
    SEEN.fetch_add(returned.value(), Relaxed);
}

/// Changes every register that a handler may change.
fn spoil() {
    // SAFETY: all changed registers are declared as clobbered, and nothing else is changed.
    unsafe {
        core::arch::asm!(
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18",
            "mov x\\n, #-77",
            ".endr",
            clobber_abi("C"),
            options(nomem, nostack),
        );
    }
}

extern "C" fn show(returned: &Return) {
    note(returned);
    let mut shown = SHOWN.lock();
    shown[..8].copy_from_slice(returned.values());
    shown[8] = returned.frame_pointer();
    shown[9] = returned.return_address();
    shown[10] = returned.stack_pointer();
    shown[11] = returned.function() as u64;
    shown[12] = returned.data() as u64;
    drop(shown);
    spoil();
}

fn address_of_add() -> usize {
    result_add as *const () as usize
}

test!(
    depends(core, cpus),
    fn handlers_see_what_is_returned_and_the_caller_finds_it() {
        let address = address_of_add();
        for mode in [Mode::Optimized, Mode::Boosted, Mode::Stepped] {
            let probe = Kretprobe::at(address).result(show).data(42).at_most(mode).register().unwrap();
            for cpu in smp::running() {
                LEAN.store(0, Relaxed);
                task::spawn_on(cpu, "caller", move || {
                    let mut passed = [0; 20];
                    (1..).zip(&mut passed).for_each(|(number, register)| *register = number * 0x0101_0101_0101);
                    let mut returned = [0; 22];
                    // SAFETY: both arrays have as many words as the caller reads and writes, and the called function
                    // follows the procedure call standard.
                    let sp = unsafe { result_call(address, &passed, &mut returned) };
                    passed[0] += 1;
                    assert_eq!(returned[..20], passed, "{mode}");
                    assert_eq!(returned[20..], [sp, sp], "{mode}: x29, sp");
                    let shown = *SHOWN.lock();
                    assert_eq!(shown[..8], passed[..8], "{mode}");
                    assert!(fixture::range_of(result_call as *const () as usize).contains(&(shown[9] as usize)));
                    assert_eq!([shown[8], shown[10]], [sp, sp], "{mode}: x29, sp");
                    assert_eq!(shown[11..], [address as u64, 42], "{mode}");
                })
                .join();
                assert_eq!(LEAN.load(Relaxed), u64::from(mode == Mode::Optimized), "{mode}");
            }
            assert_eq!((probe.hits(), probe.missed()), (smp::running().count() as u64, 0));
        }
    }
);

test!(
    fn interrupts_are_masked_in_handlers_and_as_they_were_after() {
        extern "C" fn look(returned: &Return) {
            note(returned);
            SEEN.store(fixture::READ_MASKS.call(0), Relaxed);
            assert!(!returned.irqs_masked());
        }
        let masks = fixture::READ_MASKS.call(0);
        for mode in [Mode::Optimized, Mode::Boosted] {
            SEEN.store(0, Relaxed);
            let _probe = Kretprobe::at(address_of_add()).result(look).at_most(mode).register().unwrap();
            assert_eq!(result_add(1), 2);
            assert_eq!((SEEN.load(Relaxed), fixture::READ_MASKS.call(0)), (TrapFrame::DAIF, masks), "{mode}");
        }
        assert_eq!(LEAN.load(Relaxed), 1);
    }
);

test!(
    fn all_is_saved_where_less_is_not_known_to_do() {
        extern "C" fn spoil_all(returned: &Return) {
            add_value(returned);
            spoil();
        }
        extern "C" fn follow(_: &mut Call<'_>) -> Decision {
            Decision::Follow
        }
        // The caller of this function needs x10 after the call.
        let kept = Kretprobe::at(result_kept as *const () as usize).result(spoil_all).register().unwrap();
        assert_eq!((result_keep(5), kept.hits(), LEAN.load(Relaxed)), (7, 1, 0));
        drop(kept);
        let address = address_of_add();
        let builder = Kretprobe::at(address).result(add_value);
        // SAFETY: the range is the whole function, which no instruction reads as data.
        let given = unsafe { builder.within(fixture::range_of(address)) };
        for builder in [builder.entry(follow), builder.data_words(1), given] {
            let probe = builder.register().unwrap();
            assert_eq!((result_add(5), probe.hits(), LEAN.load(Relaxed)), (6, 1, 0));
        }
        let probe = builder.register().unwrap();
        assert_eq!((result_add(5), probe.hits(), LEAN.load(Relaxed)), (6, 1, 1));
    }
);

/// Calls itself `depth` times, and returns `depth`.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 { 0 } else { black_box(recurse(black_box(depth - 1))) + 1 }
}

test!(
    fn calls_within_calls_are_paired_with_their_returns() {
        let recursive = Kretprobe::at(recurse as *const () as usize).result(add_value).maxactive(4).register().unwrap();
        assert_eq!(recurse(black_box(10)), 10);
        assert_eq!((recursive.hits(), recursive.missed(), recursive.active()), (4, 7, 0));
        assert_eq!(SEEN.swap(0, Relaxed), 10 + 9 + 8 + 7, "the outermost calls are followed");
        assert_eq!(LEAN.swap(0, Relaxed), 4);
        let caller = Kretprobe::at(fixture::TAIL_CALL.address()).result(add_value).register().unwrap();
        let callee = [(); 2].map(|()| Kretprobe::at(fixture::IDENTITY.address()).result(add_value).register().unwrap());
        assert_eq!(fixture::TAIL_CALL.call(1), 2);
        assert_eq!(SEEN.load(Relaxed), 6);
        assert_eq!((caller.hits(), callee.map(|probe| probe.hits())), (1, [1, 1]));
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
        let probe = Kretprobe::at(wait as *const () as usize).result(add_value).register().unwrap();
        let caller = task::spawn("caller", || assert_eq!(wait(black_box(1)), 2));
        while !ENTERED.load(Relaxed) {
            task::yield_now();
        }
        probe.unregister();
        RELEASED.store(true, Relaxed);
        caller.join();
        assert_eq!(SEEN.load(Relaxed), 0, "the handler is not called any more");
    }
);

test!(
    depends(cpus, core),
    fn probes_come_and_go_while_their_functions_return_on_every_cpu() {
        const ROUNDS: usize = 50;
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let callers: Vec<_> = smp::running()
            .map(|cpu| {
                task::spawn_on(cpu, "caller", || {
                    let numbers = (0..).take_while(|_| !IS_OVER.load(Relaxed));
                    numbers.for_each(|number| assert_eq!(result_add(number), number + 1));
                })
            })
            .collect();
        let mut hits = 0;
        for _ in 0..ROUNDS {
            let probe = Kretprobe::at(address_of_add()).result(add_value).register().unwrap();
            while probe.hits() < 10 {
                task::yield_now();
            }
            probe.disable().unwrap();
            // A task may have been preempted in a call that is followed.
            while probe.active() > 0 {
                task::yield_now();
            }
            hits += probe.hits();
            assert_eq!(probe.missed(), 0);
        }
        IS_OVER.store(true, Relaxed);
        callers.into_iter().for_each(|caller| caller.join());
        assert_eq!(LEAN.load(Relaxed), hits, "a handler was called for each hit, with less saved");
    }
);

test!(
    fn a_handler_sees_the_caller_in_its_backtrace() {
        static TRACE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
        extern "C" fn trace(returned: &Return) {
            note(returned);
            for (place, address) in TRACE.iter().zip(backtrace::current().addresses()) {
                place.store(address as u64, Relaxed);
            }
        }
        #[inline(never)]
        fn caller(argument: u64) -> u64 {
            black_box(result_add(black_box(argument))) + 1
        }
        let _probe = Kretprobe::at(address_of_add()).result(trace).register().unwrap();
        assert_eq!((caller(1), LEAN.load(Relaxed)), (3, 1));
        let range = fixture::range_of(caller as *const () as usize);
        let trace = TRACE.each_ref().map(|place| place.load(Relaxed) as usize);
        assert!(trace.iter().any(|address| range.contains(address)), "{trace:x?}");
        assert!(!trace.iter().any(|&address| aarch64_kprobes::probe::is_trampoline(address)), "{trace:x?}");
    }
);
