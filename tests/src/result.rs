//! Return probes whose handlers see only what a function returns, so that fewer registers are saved.

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::{mem, ptr};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::{self, CallResult, Fallback, Mode};
use aarch64_kprobes::{Call, Decision, Kretprobe};
use alloc::vec::Vec;
use runtime::sync::IrqLock;
use runtime::{backtrace, smp, task};

use crate::entry::mode_at;
use crate::random::lose_registers;
use crate::smp::start_on_each_cpu;
use crate::{fixture, is_thorough, test};

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!("result.S"),
);

unsafe extern "C" {
    fn result_call(function: usize, passed: *const [u64; 20], returned: *mut [u64; 22]) -> u64;
    safe fn result_add(argument: u64) -> u64;
    safe fn result_keep(argument: u64) -> u64;
    safe fn result_kept() -> u64;
    safe fn result_pass(argument: u64) -> u64;
    safe fn result_passed(argument: u64);
}

/// The sum of the values that handlers saw.
pub static SEEN: AtomicU64 = AtomicU64::new(0);

/// The number of calls of handlers with fewer registers saved.
pub static LEAN: AtomicU64 = AtomicU64::new(0);

/// The values that a handler saw: x0 to x7, x29, the return address, sp, the function, and the data of the probe.
static SHOWN: IrqLock<[u64; 13]> = IrqLock::new([0; 13]);

/// Counts the handler if its `CallResult` lies directly below the stack pointer of the probed code.
fn note(returned: &CallResult) {
    let end = ptr::from_ref(returned).addr() + size_of::<CallResult>();
    LEAN.fetch_add(u64::from(end as u64 == returned.stack_pointer()), Relaxed);
}

/// Adds the value that is returned to [`SEEN`].
pub extern "C" fn add_value(returned: &CallResult) {
    note(returned);
    SEEN.fetch_add(returned.return_value(), Relaxed);
}

extern "C" fn show(returned: &CallResult) {
    note(returned);
    let mut shown = SHOWN.lock();
    shown[..8].copy_from_slice(returned.results());
    shown[8] = returned.frame_pointer();
    shown[9] = returned.return_address() as u64;
    shown[10] = returned.stack_pointer();
    shown[11] = returned.function() as u64;
    shown[12] = returned.data() as u64;
    drop(shown);
    lose_registers();
}

fn address_of_add() -> usize {
    result_add as *const () as usize
}

test!(
    depends(core, cpus),
    fn handlers_see_what_is_returned_and_the_caller_finds_it() {
        let address = address_of_add();
        for mode in [Mode::Optimized, Mode::Boosted] {
            let probe = Kretprobe::at(address).result(show).data(42).at_most(mode).register().unwrap();
            let shown = if mode == Mode::Optimized { Mode::Lean } else { Mode::Boosted };
            assert_eq!(mode_at(address), (shown, None));
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
        static WERE_MASKED: AtomicBool = AtomicBool::new(false);
        extern "C" fn look(returned: &CallResult) {
            note(returned);
            SEEN.store(fixture::READ_MASKS.call(0), Relaxed);
            WERE_MASKED.store(returned.irqs_masked(), Relaxed);
        }
        let call = || {
            SEEN.store(0, Relaxed);
            let before = fixture::READ_MASKS.call(0);
            assert_eq!(result_add(1), 2);
            assert_eq!((SEEN.load(Relaxed), fixture::READ_MASKS.call(0)), (TrapFrame::DAIF, before));
            assert_eq!(WERE_MASKED.load(Relaxed), before & TrapFrame::IRQ_MASKED != 0);
        };
        for mode in [Mode::Optimized, Mode::Boosted] {
            let _probe = Kretprobe::at(address_of_add()).result(look).at_most(mode).register().unwrap();
            call();
            let guard = IrqLock::new(());
            let _masked = guard.lock();
            call();
        }
        assert_eq!(LEAN.load(Relaxed), 2);
    }
);

test!(
    fn all_is_saved_where_less_is_not_known_to_do() {
        extern "C" fn spoil_all(returned: &CallResult) {
            add_value(returned);
            lose_registers();
        }
        extern "C" fn follow(_: &mut Call<'_>) -> Decision {
            Decision::Follow
        }
        // The caller of one function needs x10 after the call, that of the other what the function leaves in x9.
        for (function, call, expected) in [
            (result_kept as *const () as usize, result_keep as extern "C" fn(u64) -> u64, 7),
            (result_passed as *const () as usize, result_pass, 6),
        ] {
            let probe = Kretprobe::at(function).result(spoil_all).register().unwrap();
            assert_eq!((call(5), probe.hits(), LEAN.load(Relaxed)), (expected, 1, 0));
            assert!(matches!(mode_at(function), (Mode::Optimized, Some(Fallback::Live(_)))));
        }
        let address = address_of_add();
        let builder = Kretprobe::at(address).result(add_value);
        // SAFETY: the range is the whole function, which no instruction reads as data.
        let given = unsafe { builder.within(fixture::range_of(address)) };
        for (builder, fallback) in
            [(builder.entry(follow), None), (builder.data_words(1), None), (given, Some(Fallback::Given))]
        {
            let probe = builder.register().unwrap();
            assert_eq!(mode_at(address), (Mode::Optimized, fallback));
            assert_eq!((result_add(5), probe.hits(), LEAN.load(Relaxed)), (6, 1, 0));
        }
        let probe = builder.register().unwrap();
        assert_eq!((result_add(5), probe.hits(), LEAN.load(Relaxed)), (6, 1, 1));
    }
);

test!(
    fn a_function_that_ends_in_a_call_returns_to_both_probes() {
        /// The return addresses that the handlers have got.
        static ADDRESSES: IrqLock<Vec<usize>> = IrqLock::new(Vec::new());
        extern "C" fn keep_address(returned: &CallResult) {
            add_value(returned);
            ADDRESSES.lock().push(returned.return_address());
        }
        extern "C" fn keep_address_of_call(call: &mut Call<'_>) {
            SEEN.fetch_add(call.return_value(), Relaxed);
            ADDRESSES.lock().push(call.return_address());
        }
        ADDRESSES.lock().reserve(4);
        let (outer, inner) = (Kretprobe::at(fixture::TAIL_CALL.address()), Kretprobe::at(fixture::IDENTITY.address()));
        // The call returns through two trampolines, each of either kind.
        for (outer, inner, lean) in [
            (outer.result(keep_address), inner.result(keep_address), 2),
            (outer.handler(keep_address_of_call), inner.result(keep_address), 1),
            (outer.result(keep_address), inner.handler(keep_address_of_call), 0),
            (outer.handler(keep_address_of_call), inner.handler(keep_address_of_call), 0),
        ] {
            let probes = [outer.register().unwrap(), inner.register().unwrap()];
            assert_eq!(fixture::TAIL_CALL.call(1), 2);
            assert_eq!((SEEN.swap(0, Relaxed), LEAN.swap(0, Relaxed)), (4, lean));
            assert!(probes.iter().all(|probe| (probe.hits(), probe.active()) == (1, 0)));
            let addresses = mem::take(&mut *ADDRESSES.lock());
            assert_eq!((addresses.len(), addresses[0]), (2, addresses[1]));
            assert!(!probe::is_trampoline(addresses[0]));
            ADDRESSES.lock().reserve(4);
        }
        // Two probes of one function end together.
        let probes = [inner.result(keep_address), inner.result(keep_address)].map(|probe| probe.register().unwrap());
        assert_eq!((fixture::IDENTITY.call(5), SEEN.load(Relaxed), LEAN.load(Relaxed)), (5, 10, 0));
        assert!(probes.iter().all(|probe| probe.hits() == 1));
    }
);

test!(
    depends(cpus, core),
    fn probes_come_and_go_while_their_functions_return_on_every_cpu() {
        /// The number of rounds of a thorough run. A usual run has a fifth, so the probe goes at fewer moments of
        /// calls.
        const ROUNDS: usize = 50;
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        /// Whether the probe of a round is registered.
        static IS_REGISTERED: [AtomicBool; ROUNDS] = [const { AtomicBool::new(false) }; ROUNDS];
        extern "C" fn see(returned: &CallResult) {
            add_value(returned);
            assert!(IS_REGISTERED[returned.data()].load(Relaxed), "called after its probe was unregistered");
        }
        let callers = start_on_each_cpu("caller", || {
            let numbers = (0..).take_while(|_| !IS_OVER.load(Relaxed));
            numbers.for_each(|number| assert_eq!(result_add(number), number + 1));
        });
        let mut hits = 0;
        let rounds = if is_thorough() { ROUNDS } else { ROUNDS / 5 };
        for (round, is_registered) in IS_REGISTERED.iter().enumerate().take(rounds) {
            is_registered.store(true, Relaxed);
            let probe = Kretprobe::at(address_of_add()).result(see).data(round).register().unwrap();
            while probe.hits() < 10 {
                task::yield_now();
            }
            if round % 2 == 0 {
                probe.disable().unwrap();
                // A task may have been preempted in a call that is followed.
                while probe.active() > 0 {
                    task::yield_now();
                }
                hits += probe.hits();
                assert_eq!((probe.missed(), LEAN.swap(0, Relaxed)), (0, probe.hits()));
            }
            probe.unregister();
            is_registered.store(false, Relaxed);
            LEAN.store(0, Relaxed);
        }
        IS_OVER.store(true, Relaxed);
        callers.into_iter().for_each(|caller| caller.join());
        assert!(hits > 0);
    }
);

test!(
    fn a_handler_sees_the_callers_in_its_backtrace() {
        static TRACE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
        extern "C" fn trace(returned: &CallResult) {
            note(returned);
            for (place, address) in TRACE.iter().zip(backtrace::current().addresses()) {
                place.store(address as u64, Relaxed);
            }
        }
        #[inline(never)]
        fn inner(argument: u64) -> u64 {
            black_box(fixture::TAIL_CALL.call(black_box(argument))) + 1
        }
        #[inline(never)]
        fn outer(argument: u64) -> u64 {
            black_box(inner(black_box(argument))) + 1
        }
        // The frame record of the handler has a trampoline, and so has that of `inner`.
        let [inner_address, outer_address] = [inner as *const () as usize, outer as *const () as usize];
        let _probes = [inner_address, fixture::TAIL_CALL.address()].map(|at| Kretprobe::at(at).register().unwrap());
        let _probe = Kretprobe::at(fixture::IDENTITY.address()).result(trace).register().unwrap();
        assert_eq!((outer(1), LEAN.load(Relaxed)), (4, 1));
        let trace = TRACE.each_ref().map(|place| place.load(Relaxed) as usize);
        let position = |function| {
            let range = fixture::range_of(function);
            trace
                .iter()
                .position(|address| range.contains(address))
                .unwrap_or_else(|| panic!("{function:#x}: {trace:x?}"))
        };
        assert_eq!(position(inner_address) + 1, position(outer_address), "{trace:x?}");
        assert!(!trace.iter().any(|&address| probe::is_trampoline(address)), "{trace:x?}");
    }
);

test!(
    fn an_overflow_in_the_routine_that_calls_a_handler_is_shown_at_the_caller() {
        static ROUTINE: AtomicU64 = AtomicU64::new(0);
        static PLACES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
        // The routine has not stored anything yet.
        extern "C" fn trace(returned: &CallResult) {
            note(returned);
            let mut frame = TrapFrame::ZERO;
            (frame.pc, frame.sp, frame.x[29]) =
                (ROUTINE.load(Relaxed), returned.stack_pointer(), returned.frame_pointer());
            frame.record = [frame.x[29], frame.pc];
            let shown = backtrace::of_frame(&frame).addresses().next().unwrap_or(0);
            PLACES[0].store(shown as u64, Relaxed);
            PLACES[1].store(returned.return_address() as u64, Relaxed);
        }
        ROUTINE.store(fixture::address_of("kretprobe_result") as u64, Relaxed);
        // Of two calls in progress, only the inner one has returned.
        let _outer = Kretprobe::at(fixture::TAIL_CALL.address()).register().unwrap();
        let _probe = Kretprobe::at(fixture::IDENTITY.address()).result(trace).register().unwrap();
        fixture::TAIL_CALL.call(1);
        assert_eq!(LEAN.load(Relaxed), 1);
        let [shown, expected] = PLACES.each_ref().map(|place| place.load(Relaxed));
        assert_eq!(shown, expected, "{shown:#x} and {expected:#x}");
    }
);
