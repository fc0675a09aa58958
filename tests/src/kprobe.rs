//! Kprobes, on functions of this image and on live ones of the kernel.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::{self, Mode};
use aarch64_kprobes::{Call, Hit, Kprobe, Kretprobe, ProbeError};
use kprobes_console::symbol;
use runtime::task;

use crate::fixture::{self, add_by_call, add_exclusively, exclusive_address, exclusive_call_addresses, range_of};
use crate::test;

static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn see_x0(hit: &mut Hit<'_>) {
    SEEN.fetch_add(hit.frame().x[0], Relaxed);
}

/// Returns the address of the only function with this name.
fn function(name: &str) -> usize {
    let mut found = symbol::find(name);
    let symbol = found.next().unwrap_or_else(|| panic!("there is no {name}"));
    assert!(found.next().is_none(), "there are several functions called {name}");
    symbol.address as usize
}

test!(
    depends(core, board),
    fn handlers_see_the_registers() {
        extern "C" fn check(hit: &mut Hit<'_>) {
            let frame = hit.frame();
            assert_eq!(frame.pc as usize, hit.address());
            assert_eq!(frame.sp, core::ptr::from_ref(frame) as u64 + TrapFrame::SIZE as u64);
            let stack = task::current().stack();
            assert!(stack.contains(&(frame.sp as usize)));
            assert_eq!(frame.pstate & 0b1111, 0b0101, "EL1 on SP_EL1");
            SEEN.store(frame.x[0] + hit.data() as u64, Relaxed);
        }
        let probe = Kprobe::at(fixture::IDENTITY.address()).pre(check).data(1000).register().unwrap();
        assert_eq!(fixture::IDENTITY.call(234), 234);
        assert_eq!(SEEN.load(Relaxed), 1234);
        assert_eq!((probe.hits(), probe.missed()), (1, 0));
    }
);

test!(
    fn interrupts_are_masked_in_handlers_and_as_they_were_after() {
        extern "C" fn check(_: &mut Hit<'_>) {
            SEEN.store(fixture::READ_MASKS.call(0), Relaxed);
        }
        let masks = fixture::READ_MASKS.call(0);
        assert_eq!(masks & TrapFrame::IRQ_MASKED, 0);
        let _probe = Kprobe::at(fixture::IDENTITY.address()).pre(check).register().unwrap();
        fixture::IDENTITY.call(0);
        assert_eq!(SEEN.load(Relaxed), TrapFrame::DAIF);
        assert_eq!(fixture::READ_MASKS.call(0), masks);
    }
);

test!(
    fn a_handler_can_change_any_register() {
        extern "C" fn change(hit: &mut Hit<'_>) {
            // SAFETY: the function returns the value of x0, which may be any.
            unsafe { hit.frame_mut() }.x[0] = 77;
        }
        let _probe = Kprobe::at(fixture::IDENTITY.address()).pre(change).register().unwrap();
        assert_eq!(fixture::IDENTITY.call(1), 77);
    }
);

test!(
    fn a_handler_can_skip_the_instruction() {
        extern "C" fn skip(hit: &mut Hit<'_>) {
            // SAFETY: the skipped instruction only adds to a register.
            unsafe { hit.skip() };
        }
        // The skipped instruction adds 1.
        let _probe = Kprobe::at(fixture::REGISTERS.address()).pre(skip).register().unwrap();
        assert_eq!(fixture::REGISTERS.call(5), 5);
    }
);

test!(
    fn a_handler_can_move_the_pc() {
        extern "C" fn divert(hit: &mut Hit<'_>) {
            // SAFETY: the other function also takes and returns one word.
            unsafe { hit.frame_mut() }.pc = fixture::REGISTERS.address() as u64;
        }
        let _probe = Kprobe::at(fixture::IDENTITY.address()).pre(divert).register().unwrap();
        assert_eq!(fixture::IDENTITY.call(5), 6);
    }
);

/// Has the effect of `sub sp, sp, #512` or `add sp, sp, #512` in place of the instruction.
extern "C" fn move_stack_pointer(hit: &mut Hit<'_>) {
    let distance = hit.data() as i64;
    // SAFETY: the instruction is skipped, and this change is its effect.
    let frame = unsafe { hit.frame_mut() };
    frame.sp = frame.sp.wrapping_add_signed(distance);
    // SAFETY: the change of sp above replaces the effect of the instruction.
    unsafe { hit.skip() };
}

test!(
    fn a_handler_can_move_the_stack_pointer_both_ways() {
        let expected = fixture::STACK_POINTER.call(7);
        let instructions: Vec<usize> = fixture::STACK_POINTER.instructions().collect();
        // A distance so large that the frames do not overlap, and one so small that they do.
        let down = Kprobe::at(instructions[1]).pre(move_stack_pointer).data(-512isize as usize).register().unwrap();
        assert_eq!(fixture::STACK_POINTER.call(7), expected);
        let up = Kprobe::at(instructions[5]).pre(move_stack_pointer).data(512).register().unwrap();
        assert_eq!(fixture::STACK_POINTER.call(7), expected);
        assert_eq!((down.hits(), up.hits()), (2, 1));
        drop((down, up));
        let _down = Kprobe::at(instructions[1]).pre(move_stack_pointer).data(-48isize as usize).register().unwrap();
        let _up = Kprobe::at(instructions[5]).pre(move_stack_pointer).data(48).register().unwrap();
        assert_eq!(fixture::STACK_POINTER.call(7), 7 + 48);
    }
);

test!(
    fn another_stack_pointer_leaves_the_instruction_to_be_executed() {
        extern "C" fn displace(hit: &mut Hit<'_>) {
            let distance = hit.data() as i64;
            // SAFETY: the function uses no stack, and the second probe reverts the change of the first.
            let frame = unsafe { hit.frame_mut() };
            frame.sp = frame.sp.wrapping_add_signed(distance);
        }
        for mode in [Mode::Stepped, Mode::Boosted, Mode::Optimized] {
            let instructions: Vec<usize> = fixture::REGISTERS.instructions().collect();
            let probe = |index: usize, distance: isize| {
                Kprobe::at(instructions[index]).pre(displace).data(distance as usize).at_most(mode).register().unwrap()
            };
            let probes = [probe(0, -512), probe(1, 512)];
            assert_eq!(fixture::REGISTERS.call(7), 8, "{mode}");
            assert_eq!(probes.each_ref().map(|probe| probe.hits()), [1, 1], "{mode}");
        }
    }
);

test!(
    fn handlers_see_who_called_the_probed_code() {
        extern "C" fn look(hit: &mut Hit<'_>) {
            let trace = runtime::backtrace::current();
            let caller = hit.frame().x[30] as usize;
            let place = trace.addresses().position(|address| address == hit.address());
            let is_right = place.is_some_and(|place| trace.addresses().nth(place + 1) == Some(caller));
            SEEN.fetch_add(u64::from(is_right), Relaxed);
        }
        for (seen, mode) in (1..).zip([Mode::Stepped, Mode::Boosted, Mode::Optimized]) {
            let _probe = Kprobe::at(fixture::IDENTITY.address()).pre(look).at_most(mode).register().unwrap();
            fixture::IDENTITY.call(1);
            assert_eq!(SEEN.load(Relaxed), seen, "{mode}");
        }
    }
);

test!(
    fn post_handlers_see_where_the_probed_code_goes_on() {
        extern "C" fn look(hit: &mut Hit<'_>) {
            let next = hit.frame().pc as usize;
            let is_right = runtime::backtrace::current().addresses().any(|address| address == next);
            SEEN.fetch_add(u64::from(is_right), Relaxed);
        }
        // The assembly itself calls the post-handler of a single probe. For several probes it calls Rust code, which
        // calls the post-handlers.
        let probe = || Kprobe::at(fixture::REGISTERS.address()).post(look).register().unwrap();
        let _first = probe();
        fixture::REGISTERS.call(1);
        assert_eq!(SEEN.load(Relaxed), 1);
        let _second = probe();
        fixture::REGISTERS.call(1);
        assert_eq!(SEEN.load(Relaxed), 3);
    }
);

test!(
    fn a_stepped_instruction_that_a_return_handler_runs_into_is_missed() {
        extern "C" fn count(_: &mut Hit<'_>) {
            SEEN.fetch_add(1, Relaxed);
        }
        extern "C" fn call_it(call: &mut Call<'_>) {
            assert_eq!(fixture::REGISTERS.call(call.return_value()), call.return_value() + 1);
        }
        let stepped = Kprobe::at(fixture::REGISTERS.address()).pre(count).post(count).register().unwrap();
        let returns = Kretprobe::at(fixture::IDENTITY.address()).handler(call_it).register().unwrap();
        assert_eq!(fixture::IDENTITY.call(3), 3);
        assert_eq!((SEEN.load(Relaxed), stepped.hits(), stepped.missed(), returns.hits()), (0, 0, 1, 1));
    }
);

test!(
    fn a_handler_that_calls_the_probed_function_counts_as_missed() {
        const DEPTH: u64 = 5;
        extern "C" fn call_it(hit: &mut Hit<'_>) {
            let argument = hit.frame().x[0];
            for _ in 0..DEPTH {
                SEEN.fetch_add(fixture::REGISTERS.call(argument), Relaxed);
            }
        }
        let probes: Vec<_> = fixture::REGISTERS
            .instructions()
            .map(|address| Kprobe::at(address).pre(call_it).register().unwrap())
            .collect();
        for call in 0..10 {
            assert_eq!(fixture::REGISTERS.call(call), call + 1);
        }
        assert_eq!(probes.len(), 2);
        for probe in &probes {
            assert_eq!((probe.hits(), probe.missed()), (10, 10 * 2 * DEPTH));
        }
    }
);

test!(
    fn post_handlers_run_after_the_instruction() {
        extern "C" fn after(hit: &mut Hit<'_>) {
            SEEN.store(hit.frame().x[0], Relaxed);
        }
        let _probe = Kprobe::at(fixture::REGISTERS.address()).post(after).register().unwrap();
        fixture::REGISTERS.call(41);
        assert_eq!(SEEN.load(Relaxed), 42);
    }
);

test!(
    fn disabled_and_unregistered_probes_are_not_hit() {
        let address = fixture::IDENTITY.address();
        let first = Kprobe::at(address).pre(see_x0).register().unwrap();
        let second = Kprobe::at(address).pre(see_x0).register().unwrap();
        fixture::IDENTITY.call(1);
        first.disable().unwrap();
        fixture::IDENTITY.call(10);
        assert_eq!((first.hits(), second.hits(), SEEN.load(Relaxed)), (1, 2, 12));
        second.unregister();
        fixture::IDENTITY.call(100);
        assert_eq!((first.hits(), SEEN.load(Relaxed)), (1, 12));
        first.enable().unwrap();
        fixture::IDENTITY.call(1000);
        assert_eq!((first.hits(), SEEN.load(Relaxed)), (2, 1012));
    }
);

test!(
    fn data_that_mapping_symbols_tell_of_is_refused() {
        let [branch, data, ret]: [usize; 3] =
            fixture::DATA_WITHIN.instructions().collect::<Vec<_>>().try_into().expect("it has three words");
        let refused = ProbeError::Data { address: data, reader: None };
        assert_eq!(Kprobe::at(data).register().err(), Some(refused));
        let _probes = [branch, ret].map(|address| Kprobe::at(address).pre(see_x0).register().unwrap());
        assert_eq!(fixture::DATA_WITHIN.call(7), 7);
    }
);

test!(
    depends(cpus),
    fn registering_leaks_neither_memory_nor_slots() {
        let address = fixture::IDENTITY.address();
        let register = || drop(Kprobe::at(address).pre(see_x0).register().unwrap());
        register();
        let (heap, memory) = (runtime::memory::statistics().heap_used, probe::memory());
        for _ in 0..1000 {
            register();
        }
        assert_eq!(runtime::memory::statistics().heap_used, heap);
        assert_eq!(probe::memory(), memory);
    }
);

test!(
    depends(cpus, interrupts),
    fn the_scheduler_and_the_allocator_can_be_probed() {
        extern "C" fn nothing(_: &mut Hit<'_>) {}
        let mut refused = 0;
        let table = symbol::table().unwrap();
        let probes: Vec<Kprobe> = table
            .iter()
            .filter(|symbol| {
                ["runtime::task", "runtime::sync", "runtime::memory", "talc", "alloc::"]
                    .iter()
                    .any(|path| symbol.name.contains(path))
            })
            .filter_map(|symbol| match Kprobe::at(symbol.address as usize).pre(nothing).register() {
                Ok(probe) => Some(probe),
                Err(_) => {
                    refused += 1;
                    None
                }
            })
            .collect();
        assert!(probes.len() > 50, "{} functions are probed, and {refused} are refused", probes.len());
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                task::spawn("worker", move || {
                    for round in 0..20 {
                        let words: Vec<usize> = (0..number * 100 + round).collect();
                        assert_eq!(words.iter().sum::<usize>(), words.len() * words.len().saturating_sub(1) / 2);
                        task::sleep(Duration::from_millis(1));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join();
        }
        assert!(probes.iter().map(|probe| probe.hits()).sum::<u64>() > 1000);
    }
);

test!(
    fn exclusive_sequences_are_refused_and_go_on_working() {
        let range = range_of(exclusive_address());
        let probes: Vec<Result<Kprobe, ProbeError>> =
            range.clone().step_by(4).map(|address| Kprobe::at(address).pre(see_x0).register()).collect();
        // mov, ldxr, add, stxr, cbnz, ret
        let accepted: Vec<bool> = probes.iter().map(Result::is_ok).collect();
        assert_eq!(accepted, [true, false, false, false, true, true]);
        assert!(matches!(probes[2], Err(ProbeError::Exclusive { load, .. }) if load == range.start + 4));
        let mut word = 40;
        assert_eq!(add_exclusively(&mut word, 2), 42);
        assert_eq!(word, 42);
    }
);

test!(
    fn a_function_that_an_exclusive_sequence_calls_is_refused() {
        let [caller, called] = exclusive_call_addresses().map(range_of);
        let load = caller.start + 12;
        for address in called.step_by(4) {
            let refused = Kprobe::at(address).pre(see_x0).register().err();
            assert_eq!(refused, Some(ProbeError::Exclusive { address, load }));
        }
        // stp, mov, mov, ldxr, bl, stxr, cbnz, ldp, ret
        let probes: Vec<_> = caller.step_by(4).map(|address| Kprobe::at(address).pre(see_x0).register()).collect();
        let accepted: Vec<bool> = probes.iter().map(Result::is_ok).collect();
        assert_eq!(accepted, [true, true, true, false, false, false, true, true, true]);
        let mut word = 40;
        assert_eq!((add_by_call(&mut word, 2), word), (42, 42));
    }
);

test!(
    fn what_cannot_be_probed_is_refused() {
        static DATA: AtomicUsize = AtomicUsize::new(0);
        let register = |address: usize| Kprobe::at(address).register().map(drop);
        let identity = fixture::IDENTITY.address();
        assert_eq!(register(identity + 1), Err(ProbeError::Misaligned { address: identity + 1 }));
        let data = &raw const DATA as usize;
        assert_eq!(register(data), Err(ProbeError::NotText { address: data }));
        assert_eq!(register(0), Err(ProbeError::NotText { address: 0 }));
        let blacklisted = probe::blacklist().start;
        assert_eq!(register(blacklisted), Err(ProbeError::Blacklisted { address: blacklisted }));
        for name in ["exception_vectors", "kretprobe_trampoline", "kprobes_nofault_load8", "kprobes_return"] {
            let address = function(name);
            assert_eq!(register(address), Err(ProbeError::Blacklisted { address }), "{name}");
        }
    }
);

test!(
    fn a_registration_in_a_handler_is_refused() {
        extern "C" fn register(_: &mut Hit<'_>) {
            let address = fixture::REGISTERS.address();
            let refused = Kprobe::at(address).register().map(drop);
            SEEN.store(u64::from(refused == Err(ProbeError::InterruptsMasked { address })), Relaxed);
        }
        let _probe = Kprobe::at(fixture::IDENTITY.address()).pre(register).register().unwrap();
        fixture::IDENTITY.call(0);
        assert_eq!(SEEN.load(Relaxed), 1);
    }
);
