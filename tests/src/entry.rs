//! Probes at the entry of functions whose handlers see what a call passes: in all modes, and where the lean stub, which
//! saves only those registers, cannot be used. Where probes come and go, a usual run makes a quarter of the rounds of a
//! thorough one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::insn::{Live, Registers, Survey};
use aarch64_kprobes::probe::{self, CallArguments, Fallback, KprobeBuilder, Mode, NotEntry, Registration};
use aarch64_kprobes::{Call, Hit, Kprobe, Kretprobe};
use runtime::sync::IrqLock;
use runtime::{smp, task};

use crate::random::lose_registers;
use crate::{fixture, is_thorough, test};

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!("entry.S"),
);

unsafe extern "C" {
    fn entry_call(function: usize, registers: *const [u64; 20]) -> u64;
    safe fn entry_loop(turns: u64) -> u64;
    safe fn entry_table(turns: u64) -> u64;
    safe fn entry_add(argument: u64) -> u64;
    safe fn entry_call_outlined(argument: u64) -> u64;
    fn entry_outlined();
    fn entry_preserving();
    fn entry_save();
}

/// All modes in which the entry instruction of a function is executed.
const MODES: [Mode; 4] = [Mode::Stepped, Mode::Boosted, Mode::Optimized, Mode::Lean];

static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn after(_: &mut Hit<'_>) {}

extern "C" fn count(_: &CallArguments) {
    SEEN.fetch_add(1, Relaxed);
}

fn address_of_add() -> usize {
    entry_add as *const () as usize
}

/// Returns the mode of the first probe at `address`, and the reason why it has no faster mode.
pub fn mode_at(address: usize) -> (Mode, Option<Fallback>) {
    let info = probe::list()
        .expect("there is memory for the list")
        .into_iter()
        .find(|info| info.address == address)
        .expect("it is probed");
    (info.mode.expect("it is armed"), info.fallback)
}

/// The registers that `entry_save` found: x0 to x8, x18 to x30, sp.
pub struct SavedRegisters([u64; 23]);

/// The registers that the handler saw: x0 to x8, x29, x30, sp, pc, and the data of the probe.
static SHOWN: IrqLock<[u64; 14]> = IrqLock::new([0; 14]);

extern "C" fn show(call: &CallArguments) {
    let mut shown = SHOWN.lock();
    shown[..8].copy_from_slice(call.arguments());
    shown[8] = call.indirect_result();
    shown[9] = call.frame_pointer();
    shown[10] = call.return_address();
    shown[11] = call.stack_pointer();
    shown[12] = call.address() as u64;
    shown[13] = call.data() as u64;
    drop(shown);
    lose_registers();
}

/// Returns the address of `entry_save`.
pub fn address_of_save() -> usize {
    entry_save as *const () as usize
}

/// Calls `entry_save` with a pattern in the registers.
pub fn call_save() -> (SavedRegisters, [u64; 20]) {
    let mut saved = SavedRegisters([0; 23]);
    let mut registers = [0; 20];
    for (number, register) in (1..).zip(&mut registers) {
        *register = number * 0x0101_0101_0101;
    }
    registers[8] = (&raw mut saved).addr() as u64;
    // SAFETY: x8 points to an array of as many words as the function stores. Otherwise the function follows the
    // procedure call standard.
    let result = unsafe { entry_call(entry_save as *const () as usize, &registers) };
    assert_eq!(result, registers[0] + 1);
    (saved, registers)
}

test!(
    depends(core),
    fn handlers_see_what_is_passed_and_the_function_finds_it() {
        let address = address_of_save();
        for mode in MODES {
            let builder = Kprobe::at(address).arguments(show).data(42).at_most(mode);
            let builder = if mode == Mode::Stepped { builder.post(after) } else { builder };
            let probe = builder.register().unwrap();
            assert_eq!(mode_at(address), (mode, None));
            let (SavedRegisters(saved), registers) = call_save();
            assert_eq!(saved[..20], registers, "{mode}");
            let shown = *SHOWN.lock();
            assert_eq!(shown[..9], saved[..9], "{mode}");
            assert_eq!(shown[9..12], saved[20..], "{mode}: x29, x30, sp");
            assert_eq!(shown[12..], [address as u64, 42], "{mode}");
            assert!(fixture::range_of(entry_call as *const () as usize).contains(&(shown[10] as usize)));
            assert_eq!((probe.hits(), probe.missed()), (1, 0));
        }
    }
);

test!(
    fn interrupts_are_masked_in_handlers_and_as_they_were_after() {
        extern "C" fn look(_: &CallArguments) {
            SEEN.store(fixture::READ_MASKS.call(0), Relaxed);
        }
        let masks = fixture::READ_MASKS.call(0);
        for mode in MODES {
            SEEN.store(0, Relaxed);
            let _probe = Kprobe::at(address_of_add()).arguments(look).at_most(mode).register().unwrap();
            assert_eq!(entry_add(1), 2);
            assert_eq!((SEEN.load(Relaxed), fixture::READ_MASKS.call(0)), (TrapFrame::DAIF, masks), "{mode}");
        }
    }
);

test!(
    fn the_host_surveys_the_text_as_the_engine_does() {
        // Only the headers differ: they name the surveyed text, and the host surveys the whole image.
        const HEADER: usize = 24;
        let checker = probe::Checker::new();
        let rows = |survey: Survey| survey.to_bytes(0).expect("there is memory")[HEADER..].to_vec();
        let made = rows(checker.survey().expect("there is memory"));
        let appended = rows(checker.appended_survey().expect("it is of this text"));
        assert!(made.len() > 1000, "{} bytes", made.len());
        assert!(appended == made, "{} and {} bytes", appended.len(), made.len());
    }
);

test!(
    fn an_instruction_that_not_only_calls_lead_to_is_probed_as_others_are() {
        let (loops, table) = (entry_loop as *const () as usize, entry_table as *const () as usize);
        let inside = address_of_add() + 4;
        let probes = [loops, table, inside].map(|address| Kprobe::at(address).arguments(count).register().unwrap());
        assert_eq!(mode_at(loops), (Mode::Optimized, Some(Fallback::NotEntry(NotEntry::Loop { branch: loops + 12 }))));
        let reason = NotEntry::Inside { function: address_of_add() };
        assert_eq!(mode_at(inside), (Mode::Optimized, Some(Fallback::NotEntry(reason))));
        assert_eq!(mode_at(table), (Mode::Optimized, Some(Fallback::NotEntry(NotEntry::Jump { branch: table + 24 }))));
        assert_eq!((entry_loop(3), entry_table(3), entry_add(1)), (10, 10, 2));
        assert_eq!((probes.map(|probe| probe.hits()), SEEN.load(Relaxed)), ([4, 4, 1], 9));
    }
);

test!(
    fn a_function_of_given_bounds_has_a_stub_that_saves_all() {
        let address = address_of_add();
        let (lean, returns) = (Kprobe::at(address).arguments(count), Kretprobe::at(address));
        let bounds = fixture::range_of(address);
        assert_eq!(bounds.start, address);
        // SAFETY: the range is the whole function, which has no load-exclusive. No instruction reads it as data.
        let (given, given_returns) = unsafe { (lean.within(bounds.clone()), returns.within(bounds)) };
        let probe = given.register().unwrap();
        assert_eq!((mode_at(address).0, entry_add(1), probe.hits()), (Mode::Optimized, 2, 1));
        probe.unregister();
        for (followed, fallback) in [(returns, None), (given_returns, Some(Fallback::Given))] {
            let followed = followed.register().unwrap();
            assert_eq!((mode_at(address), entry_add(1), followed.hits()), ((Mode::Optimized, fallback), 2, 1));
            let other = lean.register().unwrap();
            followed.unregister();
            assert_eq!(mode_at(address), (Mode::Lean, None), "the bounds are for one probe");
            other.unregister();
        }
        let _probe = lean.register().unwrap();
        assert_eq!(mode_at(address), (Mode::Lean, None), "the bounds are for one probe");
    }
);

test!(
    fn probes_at_one_entry_share_a_stub_that_saves_all() {
        extern "C" fn see(hit: &mut Hit<'_>) {
            SEEN.fetch_add(100 * hit.frame().x[0], Relaxed);
        }
        let address = address_of_add();
        let mode = |first: &KprobeBuilder, second: &KprobeBuilder| {
            let first = first.register().unwrap();
            assert_eq!(mode_at(address), (Mode::Lean, None));
            let second = second.register().unwrap();
            let shared = mode_at(address);
            assert_eq!(entry_add(1), 2);
            assert_eq!((first.hits(), second.hits()), (1, 1));
            second.disable().unwrap();
            assert_eq!(mode_at(address), (Mode::Lean, None));
            entry_add(1);
            second.enable().unwrap();
            assert_eq!(mode_at(address), shared);
            second.unregister();
            assert_eq!(mode_at(address), (Mode::Lean, None));
            entry_add(1);
            assert_eq!((first.hits(), first.missed()), (3, 0));
            shared
        };
        let lean = Kprobe::at(address).arguments(count);
        assert_eq!(mode(&lean, &lean), (Mode::Optimized, Some(Fallback::Shared)));
        assert_eq!(SEEN.swap(0, Relaxed), 4);
        assert_eq!(mode(&lean, &Kprobe::at(address).pre(see)), (Mode::Optimized, Some(Fallback::Shared)));
        assert_eq!(SEEN.swap(0, Relaxed), 103);
        // The slowest mode that is requested decides.
        assert_eq!(mode(&lean, &lean.at_most(Mode::Boosted)).0, Mode::Simulated);
        let returns = Kretprobe::at(address).register().unwrap();
        let lean = lean.register().unwrap();
        assert_eq!(entry_add(1), 2);
        assert_eq!((returns.hits(), lean.hits()), (1, 1));
    }
);

test!(
    fn a_handler_that_calls_the_function_counts_as_missed() {
        extern "C" fn call_it(call: &CallArguments) {
            for _ in 0..3 {
                SEEN.fetch_add(entry_add(call.arguments()[0]), Relaxed);
            }
        }
        for mode in MODES {
            SEEN.store(0, Relaxed);
            let probe = Kprobe::at(address_of_add()).arguments(call_it).at_most(mode).register().unwrap();
            assert_eq!((entry_add(7), entry_add(8)), (8, 9));
            assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed()), (3 * 8 + 3 * 9, 2, 6), "{mode}");
        }
    }
);

test!(
    fn backtraces_from_handlers_show_the_function_and_its_callers() {
        static TRACE: IrqLock<Vec<usize>> = IrqLock::new(Vec::new());
        extern "C" fn trace(call: &CallArguments) {
            let trace = runtime::backtrace::current();
            let mut addresses = trace.addresses().skip_while(|&address| address != call.address());
            let mut noted = TRACE.lock();
            noted.clear();
            noted.extend(addresses.by_ref().take(16));
        }
        #[inline(never)]
        fn caller(argument: u64) -> u64 {
            core::hint::black_box(entry_add(core::hint::black_box(argument))) + 1
        }
        let range = fixture::range_of(caller as *const () as usize);
        let mut before: Option<Vec<usize>> = None;
        TRACE.lock().reserve(16);
        let _returns = Kretprobe::at(caller as *const () as usize).register().unwrap();
        for mode in MODES {
            let _probe = Kprobe::at(address_of_add()).arguments(trace).at_most(mode).register().unwrap();
            assert_eq!(core::hint::black_box(caller)(1), 3);
            let found = TRACE.lock().clone();
            assert_eq!(found[0], address_of_add(), "{mode}: {found:x?}");
            assert!(range.contains(&found[1]), "{mode}: {found:x?}");
            assert!(found.len() > 3 && !found.iter().any(|&address| probe::is_trampoline(address)), "{found:x?}");
            // The callers are the real ones, and the same in all modes.
            assert!(before.replace(found.clone()).is_none_or(|before| before == found), "{mode}: {found:x?}");
        }
    }
);

test!(
    depends(cpus),
    fn probes_come_and_go_while_tasks_are_in_their_stubs() {
        let rounds = if is_thorough() { 100 } else { 25 };
        static CALLS: AtomicU64 = AtomicU64::new(0);
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        fn call() {
            while !IS_OVER.load(Relaxed) {
                let number = CALLS.fetch_add(1, Relaxed);
                assert_eq!(entry_add(number), number + 1);
            }
        }
        let cpus: Vec<usize> = smp::running().collect();
        let tasks: Vec<_> = cpus.iter().chain(&cpus).map(|&cpu| task::spawn_on(cpu, "caller", call)).collect();
        for _ in 0..rounds {
            let probe = Kprobe::at(address_of_add()).arguments(count).register().unwrap();
            while probe.hits() == 0 {
                task::yield_now();
            }
            probe.disable().unwrap();
            let (hits, calls) = (probe.hits(), CALLS.load(Relaxed));
            while CALLS.load(Relaxed) == calls {
                task::yield_now();
            }
            assert_eq!((SEEN.swap(0, Relaxed), probe.hits(), probe.missed()), (hits, hits, 0));
        }
        IS_OVER.store(true, Relaxed);
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    depends(cpus, core),
    fn probes_that_stay_lose_no_hit_to_those_that_come_and_go() {
        let rounds = if is_thorough() { 8 } else { 2 };
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        static HANDLED: AtomicU64 = AtomicU64::new(0);
        extern "C" fn entered(_: &CallArguments) {
            HANDLED.fetch_add(1, Relaxed);
        }
        extern "C" fn hit(_: &mut Hit<'_>) {
            HANDLED.fetch_add(1, Relaxed);
        }
        extern "C" fn returned(_: &mut Call<'_>) {
            HANDLED.fetch_add(1, Relaxed);
        }
        extern "C" fn nothing(_: &mut Hit<'_>) {}
        extern "C" fn no_entry(_: &CallArguments) {}
        extern "C" fn no_return(_: &mut Call<'_>) {}
        fn call() {
            (0..).take_while(|_| !IS_OVER.load(Relaxed)).for_each(|number| assert_eq!(entry_add(number), number + 1));
        }
        let at = address_of_add();
        let stay: [&dyn Fn() -> Box<dyn Deref<Target = Registration>>; 3] = [
            &|| Box::new(Kprobe::at(at).arguments(entered).register().unwrap()),
            &|| Box::new(Kprobe::at(at).pre(hit).register().unwrap()),
            &|| Box::new(Kretprobe::at(at).handler(returned).maxactive(64).register().unwrap()),
        ];
        let go: [&dyn Fn() -> Box<dyn Deref<Target = Registration>>; 4] = [
            &|| Box::new(Kprobe::at(at).arguments(no_entry).register().unwrap()),
            &|| Box::new(Kprobe::at(at).pre(nothing).register().unwrap()),
            &|| Box::new(Kprobe::at(at).post(nothing).register().unwrap()),
            &|| Box::new(Kretprobe::at(at).handler(no_return).maxactive(64).register().unwrap()),
        ];
        let cpus: Vec<usize> = smp::running().collect();
        let tasks: Vec<_> = cpus.iter().chain(&cpus).map(|&cpu| task::spawn_on(cpu, "caller", call)).collect();
        for (stays, goes) in (0..stay.len()).flat_map(|stays| (0..go.len()).map(move |goes| (stays, goes))) {
            HANDLED.store(0, Relaxed);
            let probe = stay[stays]();
            for _ in 0..rounds {
                let other = go[goes]();
                let before = probe.hits();
                while other.hits() == 0 || probe.hits() == before {
                    task::yield_now();
                }
            }
            probe.disable().unwrap();
            while probe.active() != 0 {
                task::yield_now();
            }
            let handled = HANDLED.load(Relaxed);
            assert_eq!((probe.hits(), probe.missed()), (handled, 0), "{stays} beside {goes}");
        }
        IS_OVER.store(true, Relaxed);
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    fn registers_that_an_entry_needs_are_saved() {
        let [outlined, preserving] = [entry_outlined as *const () as usize, entry_preserving as *const () as usize];
        let caller = entry_call_outlined as *const () as u64;
        let [x9, x10] = [9, 10].map(Registers::x);
        for (address, reason) in [
            (outlined, Live::Read { register: x9, reader: outlined as u64 }),
            (preserving, Live::Kept { register: x10, call: caller + 24 }),
        ] {
            let probe = Kprobe::at(address).arguments(show).register().unwrap();
            assert_eq!(mode_at(address), (Mode::Optimized, Some(Fallback::Live(reason))));
            for argument in 0..10 {
                assert_eq!(entry_call_outlined(argument), argument + 2);
            }
            assert_eq!((probe.hits(), probe.missed()), (10, 0));
        }
    }
);
