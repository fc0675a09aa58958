//! The engine on the host: probed code is executed instruction by instruction.

mod check;
pub(super) mod computer;
#[cfg(not(loom))]
mod hostile;
mod returns;
mod scarce;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::hit::trampoline::kretprobe_address as trampoline_address;
use super::hit::{self, Breakpoint, table};
use super::*;
use crate::exception::frame::TrapFrame;
use crate::insn;
use crate::platform::Platform;
use crate::text;
use computer::{
    Computer, FUNCTION, INTERRUPTED, NOP, OUTSIDE, RET, TestPlatform, add, branch_link, enter_exception, execute,
};

/// Returns the machine, with `SEEN` at zero.
fn computer() -> Computer {
    let computer = Computer::new();
    SEEN.store(0, Relaxed);
    // Another test may have failed in a handler, and left the CPU in it.
    hit::cpu::Cpu::current().leave();
    computer
}

/// The sum of the values that the tests' handlers have seen.
static SEEN: AtomicU64 = AtomicU64::new(0);

fn see_x0(hit: &mut Hit<'_>) {
    SEEN.fetch_add(hit.frame().x[0], Relaxed);
}

#[test]
fn a_stepped_instruction_takes_two_exceptions_and_does_its_work() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), RET]);
    let probe = Kprobe::at(function + 4).pre(see_x0).at_most(Mode::Stepped).register().unwrap();
    assert_eq!(computer.call(function, 10), 13);
    assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed(), computer.exceptions), (11, 1, 0, 2));
    probe.unregister();
    assert_eq!(computer.call(function, 10), 13);
    assert_eq!(computer.exceptions, 2);
}

#[test]
fn no_mode_that_is_possible_is_faster_than_the_one_that_a_probe_asks_for() {
    let computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    // An instruction that runs in a slot is not simulated, and one that is simulated does not run in a slot.
    for (offset, fastest, expected) in [
        (0, Mode::Stepped, Mode::Stepped),
        (0, Mode::Simulated, Mode::Stepped),
        (0, Mode::Boosted, Mode::Boosted),
        (4, Mode::Stepped, Mode::Simulated),
        (4, Mode::Simulated, Mode::Simulated),
        (4, Mode::Boosted, Mode::Simulated),
    ] {
        let _probe = Kprobe::at(function + offset).at_most(fastest).register().unwrap();
        assert_eq!(list().unwrap()[0].mode, Some(expected), "{offset}, {fastest}");
    }
}

#[test]
fn a_boosted_instruction_takes_one_exception_and_does_its_work() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), RET]);
    let probe = Kprobe::at(function + 4).pre(see_x0).register().unwrap();
    assert_eq!(computer.call(function, 10), 13);
    assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed(), computer.exceptions), (11, 1, 0, 1));
    assert!(!hit::cpu::Cpu::current().is_handling());
}

#[test]
fn a_simulated_instruction_takes_one_exception() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kprobe::at(function + 4).pre(see_x0).register().unwrap();
    assert_eq!(computer.call(function, 10), 11);
    assert_eq!((SEEN.load(Relaxed), probe.hits(), computer.exceptions), (11, 1, 1));
}

#[test]
fn post_handlers_see_the_instruction_done() {
    let mut computer = computer();
    let function = computer.function(0, &[add(5), NOP, RET]);
    fn after(hit: &mut Hit<'_>) {
        let TrapFrame { pc, record, .. } = *hit.frame();
        assert_eq!((pc, record[1]), (hit.address() as u64 + 4, pc));
        SEEN.fetch_add(hit.frame().x[0] * hit.data() as u64, Relaxed);
    }
    let stepped = Kprobe::at(function).post(after).data(1).register().unwrap();
    let simulated = Kprobe::at(function + 4).post(after).data(100).register().unwrap();
    assert_eq!(computer.call(function, 1), 6);
    assert_eq!(SEEN.load(Relaxed), 606);
    assert_eq!((stepped.hits(), simulated.hits()), (1, 1));
}

#[test]
fn interrupt_masks_are_the_probed_codes_own_after_the_slot() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let _probe = Kprobe::at(function).at_most(Mode::Stepped).register().unwrap();
    for masks in [0, TrapFrame::IRQ_MASKED, TrapFrame::DAIF] {
        computer.frame.pstate = 0b0101 | masks;
        computer.frame.pc = function as u64;
        computer.step();
        assert_eq!(computer.frame.pstate, 0b0101 | TrapFrame::DAIF, "in the slot everything is masked");
        computer.run_until(function as u64 + 4);
        assert_eq!(computer.frame.pstate, 0b0101 | masks);
    }
}

#[test]
fn several_probes_on_one_instruction_run_in_order() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    fn digit(hit: &mut Hit<'_>) {
        SEEN.store(10 * SEEN.load(Relaxed) + hit.data() as u64, Relaxed);
    }
    let first = Kprobe::at(function).pre(digit).data(1).register().unwrap();
    let second = Kprobe::at(function).pre(digit).data(2).register().unwrap();
    let third = Kprobe::at(function).pre(digit).data(3).register().unwrap();
    computer.call(function, 0);
    assert_eq!(SEEN.load(Relaxed), 123);
    second.disable().unwrap();
    computer.call(function, 0);
    assert_eq!(SEEN.load(Relaxed), 12313);
    first.unregister();
    computer.call(function, 0);
    assert_eq!(SEEN.load(Relaxed), 123_133);
    assert_eq!((second.hits(), third.hits()), (1, 3));
    second.enable().unwrap();
    third.disable().unwrap();
    computer.call(function, 0);
    assert_eq!(SEEN.load(Relaxed), 1_231_332);
}

#[test]
fn a_disabled_probe_leaves_the_instruction_in_place() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kprobe::at(function).disabled().register().unwrap();
    assert_eq!((text::read(function), probe.is_enabled()), (add(1), false));
    probe.enable().unwrap();
    assert_eq!((text::read(function), probe.is_enabled()), (insn::BRK_KPROBE, true));
    computer.call(function, 0);
    probe.disable().unwrap();
    assert_eq!(text::read(function), add(1));
    computer.call(function, 0);
    assert_eq!(probe.hits(), 1);
}

#[test]
fn a_skipped_instruction_is_not_executed_and_the_others_miss_it() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), RET]);
    fn skip(hit: &mut Hit<'_>) {
        // SAFETY: the instruction only adds to a register.
        unsafe { hit.skip() };
    }
    fn never(_: &mut Hit<'_>) {
        panic!("the instruction was not executed");
    }
    let earlier = Kprobe::at(function).post(never).register().unwrap();
    let skipping = Kprobe::at(function).pre(skip).post(never).register().unwrap();
    let other = Kprobe::at(function).pre(see_x0).register().unwrap();
    assert_eq!(computer.call(function, 0), 2);
    assert_eq!((skipping.hits(), other.hits(), other.missed()), (1, 0, 1));
    assert_eq!((earlier.hits(), earlier.missed()), (0, 1), "its handler was to run after the instruction");
}

#[test]
fn a_handler_can_send_execution_elsewhere() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), add(4), RET]);
    fn divert(hit: &mut Hit<'_>) {
        let target = hit.data() as u64;
        // SAFETY: the target is an instruction of the same function.
        unsafe { hit.frame_mut() }.pc = target;
    }
    let _probe = Kprobe::at(function).pre(divert).data(function + 8).register().unwrap();
    assert_eq!(computer.call(function, 0), 4);
}

#[test]
fn a_hit_in_a_handler_executes_and_is_counted_as_missed() {
    let mut computer = computer();
    let inner = computer.function(1, &[add(1), NOP, RET]);
    static INNER: AtomicUsize = AtomicUsize::new(0);
    INNER.store(inner, Relaxed);
    /// Runs the inner function on the same simulated CPU, as a handler that calls it would.
    fn call_inner(_: &mut Hit<'_>) {
        let mut frame = TrapFrame { pc: INNER.load(Relaxed) as u64, sp: 0x800, ..TrapFrame::default() };
        frame.x[30] = OUTSIDE;
        while frame.pc != OUTSIDE {
            match text::read(frame.pc as usize) {
                insn::BRK_KPROBE => assert_eq!(hit::breakpoint(&mut frame), Breakpoint::Handled),
                word => execute(word, &mut frame),
            }
        }
        SEEN.fetch_add(frame.x[0], Relaxed);
    }
    let function = computer.function(0, &[add(10), RET]);
    let stepped = Kprobe::at(inner).pre(see_x0).register().unwrap();
    let simulated = Kprobe::at(inner + 4).pre(see_x0).register().unwrap();
    let returned = Kretprobe::at(inner).register().unwrap();
    let outer = Kprobe::at(function).pre(call_inner).register().unwrap();
    assert_eq!(computer.call(function, 0), 10);
    assert_eq!(SEEN.load(Relaxed), 1, "the inner instructions were executed, and nobody was told");
    assert_eq!((outer.hits(), outer.missed()), (1, 0));
    assert_eq!((stepped.hits(), stepped.missed()), (0, 1));
    assert_eq!((simulated.hits(), simulated.missed()), (0, 1));
    assert_eq!((returned.hits(), returned.missed(), returned.active()), (0, 1, 0));
    computer.call(inner, 0);
    assert_eq!((stepped.hits(), simulated.hits(), returned.hits()), (1, 1, 1), "the CPU is out of the hit");
    assert_eq!(Kprobe::unregister_all([stepped, outer, simulated]), 2, "what they have missed is told at the end");
    assert_eq!(Kretprobe::unregister_all([returned]), 1);
}

#[test]
fn a_fault_in_the_slot_appears_at_the_probe_and_leaves_the_cpu_clean() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    for mode in [Mode::Stepped, Mode::Boosted] {
        let probe = Kprobe::at(function).pre(see_x0).at_most(mode).register().unwrap();
        assert_eq!(list().unwrap()[0].mode, Some(mode));
        computer.frame.pstate = 0b0101;
        computer.frame.pc = function as u64;
        computer.step();
        assert_ne!(computer.frame.pc, function as u64);
        enter_exception(&mut computer.frame);
        hit::faulted(&mut computer.frame);
        let TrapFrame { pc, pstate, record, .. } = computer.frame;
        assert_eq!((pc, pstate, record[1]), (function as u64, 0b0101, pc));
        assert_eq!(computer.call(function, 1), 2);
        assert_eq!(probe.hits(), 2);
    }
}

#[test]
fn a_fault_is_no_hit_of_a_probe_that_is_told_after_the_instruction() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let both = Kprobe::at(function).pre(see_x0).post(see_x0).register().unwrap();
    let after = Kprobe::at(function).post(see_x0).register().unwrap();
    computer.frame.pc = function as u64;
    computer.step();
    enter_exception(&mut computer.frame);
    hit::faulted(&mut computer.frame);
    assert_eq!((both.hits(), after.hits(), after.missed()), (1, 0, 0));
    // The kernel has repaired the fault.
    assert_eq!(computer.call(function, 1), 2);
    assert_eq!((both.hits(), after.hits(), after.missed()), (2, 1, 0));
    // bc.eq, which is simulated, and which the CPU of the host does not have.
    let undefined = computer.function(1, &[0x5400_0050, NOP, RET]);
    let after = Kprobe::at(undefined).post(see_x0).register().unwrap();
    let mut frame = TrapFrame { pc: undefined as u64, ..TrapFrame::default() };
    assert_eq!(hit::breakpoint(&mut frame), Breakpoint::Raised(insn::Fault::Undefined));
    assert_eq!((after.hits(), after.missed()), (0, 0));
    assert!(!hit::cpu::Cpu::current().is_handling());
}

#[test]
fn a_fault_elsewhere_is_none_of_the_engine_s() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let _probe = Kprobe::at(function).register().unwrap();
    computer.frame.pc = function as u64 + 4;
    let before = computer.frame;
    hit::faulted(&mut computer.frame);
    assert_eq!(computer.frame, before);
}

#[test]
fn a_breakpoint_of_somebody_else_is_left_to_him() {
    let computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    Kprobe::at(function).register().unwrap().unregister();
    let mut frame = TrapFrame { pc: function as u64, ..TrapFrame::default() };
    assert_eq!(hit::breakpoint(&mut frame), Breakpoint::Foreign);
    assert_eq!(frame.pc, function as u64);
    assert!(!hit::stepped(&mut frame));
}

#[test]
fn the_fastest_mode_that_serves_all_probes_is_taken() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let mode = || list().unwrap()[0].mode.unwrap();
    fn after(_: &mut Hit<'_>) {
        SEEN.fetch_add(100, Relaxed);
    }
    let slots = memory().slots;
    let boosted = Kprobe::at(function).pre(see_x0).register().unwrap();
    assert_eq!(mode(), Mode::Boosted);
    let stepped = Kprobe::at(function).post(after).register().unwrap();
    assert_eq!((mode(), memory().slots), (Mode::Stepped, slots + 1));
    assert_eq!((computer.call(function, 5), SEEN.load(Relaxed)), (6, 105));
    stepped.disable().unwrap();
    assert_eq!(mode(), Mode::Boosted);
    assert_eq!((computer.call(function, 5), SEEN.load(Relaxed)), (6, 110));
    stepped.enable().unwrap();
    assert_eq!(mode(), Mode::Stepped);
    drop(boosted);
    assert_eq!((mode(), memory().slots), (Mode::Stepped, slots + 1));
    drop(stepped);
    assert_eq!(memory().slots, slots);
}

#[test]
fn a_slot_that_somebody_is_in_is_not_used_again() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let slots = memory().slots;
    let probe = Kprobe::at(function).register().unwrap();
    computer.frame.pc = function as u64;
    computer.frame.x[0] = 0;
    computer.step();
    let slot = computer.frame.pc as usize;
    assert_ne!(slot, function);
    for inside in [slot, slot + 4] {
        INTERRUPTED.lock().unwrap().push(inside);
    }
    probe.unregister();
    assert_eq!(memory().slots, slots + 1, "it is kept for whoever is in it");
    let again = Kprobe::at(function).register().unwrap();
    assert_eq!(memory().slots, slots + 2);
    computer.run_until(function as u64 + 4);
    assert_eq!((computer.frame.x[0], again.hits()), (1, 0), "who was in the slot finds it as it was");
    INTERRUPTED.lock().unwrap().clear();
    drop(again);
    assert_eq!(memory().slots, slots);
}

#[test]
fn a_probe_misses_no_hit_that_began_before_it_was_armed() {
    let computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    fn never(_: &mut Hit<'_>) {
        unreachable!("the hit began before");
    }
    fn skip(hit: &mut Hit<'_>) {
        // SAFETY: nothing executes the function.
        unsafe { hit.skip() };
    }
    let mut frame = computer.frame;
    (frame.pc, frame.x[30]) = (function as u64, OUTSIDE);
    // SAFETY: no other thread changes probes while the computer exists, and no point is used after the next change.
    let point = || unsafe { table::lookup(function) }.expect("it is probed");

    let needs_a_breakpoint = Kprobe::at(function).pre(never).post(never).register().unwrap();
    (point().full)(Hit::first(&mut frame, point()));
    assert_eq!((needs_a_breakpoint.hits(), needs_a_breakpoint.missed()), (0, 0));
    let skips = Kprobe::at(function).pre(skip).register().unwrap();
    needs_a_breakpoint.unregister();
    let needs_a_breakpoint = Kprobe::at(function).pre(never).post(never).register().unwrap();
    (point().full)(Hit::first(&mut frame, point()));
    assert_eq!((skips.hits(), skips.missed()), (1, 0));
    assert_eq!((needs_a_breakpoint.hits(), needs_a_breakpoint.missed()), (0, 0));
    drop((skips, needs_a_breakpoint));
    frame.pc = function as u64;

    let needs_all_registers = Kprobe::at(function).pre(never).register().unwrap();
    let found = std::ptr::from_ref(point()).cast_mut();
    // SAFETY: the point is that of the function, and begins with its first armed probe.
    unsafe { CallArguments::with(&frame, found.cast(), point().lean) };
    // SAFETY: `found` is the point in the cell of the function.
    assert_eq!(unsafe { hit::returns::kprobes_entered(found, OUTSIDE, frame.sp) }, OUTSIDE);
    assert_eq!((needs_all_registers.hits(), needs_all_registers.missed()), (0, 0));
}

#[test]
fn many_probes_are_registered_at_once_and_the_wrong_ones_refused() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), 0xd400_0001, add(4), RET]);
    let probes = [8, 0, 12, 4, 0].map(|offset| Kprobe::at(function + offset).pre(see_x0));
    let mut results = Kprobe::register_all(probes).unwrap();
    assert!(matches!(results.remove(0), Err(ProbeError::Instruction { word: 0xd400_0001, .. })));
    let probes: Vec<Kprobe> = results.into_iter().map(Result::unwrap).collect();
    let addresses: Vec<usize> = probes.iter().map(|probe| probe.address() - function).collect();
    assert_eq!(addresses, [0, 12, 4, 0]);
    computer.frame.x[30] = OUTSIDE;
    computer.frame.pc = function as u64;
    computer.run_until(function as u64 + 8);
    assert_eq!(probes.iter().map(|probe| probe.hits()).collect::<Vec<_>>(), [1, 0, 1, 1]);
    Registration::set_all_enabled(probes.iter().map(|probe| &**probe), false).unwrap();
    assert_eq!((text::read(function), text::read(function + 12)), (add(1), add(4)));
    Registration::set_all_enabled(probes.iter().map(|probe| &**probe), true).unwrap();
    assert_eq!(text::read(function + 4), insn::BRK_KPROBE);
    Kprobe::unregister_all(probes);
    assert_eq!((text::read(function + 4), list().unwrap().len()), (add(2), 0));
    let refused = Kretprobe::register_all([Kretprobe::at(function).maxactive(0), Kretprobe::at(function)]).unwrap();
    assert!(matches!(refused[..], [Err(ProbeError::MaxActive { maxactive: 0 }), Ok(_)]));
}

#[test]
fn what_cannot_be_probed_is_refused_with_its_reason() {
    let computer = computer();
    // ldxr x1, [x0]; add x0, x0, #1; stxr w2, x1, [x0]; svc #0; ret
    let function = computer.function(0, &[0xc85f_7c01, add(1), 0xc802_7c01, 0xd400_0001, RET]);
    let register = |address| Kprobe::at(address).register().map(drop);
    assert_eq!(register(function + 2), Err(ProbeError::Misaligned { address: function + 2 }));
    let end = TestPlatform::text().end;
    assert_eq!(register(end), Err(ProbeError::NotText { address: end }));
    assert!(matches!(register(function), Err(ProbeError::Instruction { word: 0xc85f_7c01, .. })));
    let exclusive = ProbeError::Exclusive { address: function + 4, load: function };
    assert_eq!(register(function + 4), Err(exclusive));
    assert!(matches!(register(function + 12), Err(ProbeError::Instruction { word: 0xd400_0001, .. })));
    let entry = Kretprobe::at(function + 16).register().map(drop);
    assert!(matches!(entry, Err(ProbeError::NotEntry { .. })));
    for maxactive in [0, MAX_ACTIVE + 1] {
        let refused = Kretprobe::at(function + 16).maxactive(maxactive).register().map(drop);
        assert_eq!(refused, Err(ProbeError::MaxActive { maxactive }));
    }
    let words = MAX_DATA_WORDS + 1;
    let refused = Kretprobe::at(function + 16).data_words(words).register().map(drop);
    assert_eq!(refused, Err(ProbeError::DataWords { words }));
    assert!(list().unwrap().is_empty());
}

#[test]
fn an_abandoned_cpu_executes_what_is_probed_and_calls_nobody() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kprobe::at(function).pre(see_x0).at_most(Mode::Stepped).register().unwrap();
    for steps in [1, 2] {
        computer.frame.pc = function as u64;
        computer.frame.x[0] = 0;
        computer.frame.pstate = 0b0101;
        (0..steps).for_each(|_| computer.step());
        enter_exception(&mut computer.frame);
        // SAFETY: the test resets the CPU and starts a new call below, so no interrupted code resumes.
        unsafe { hit::abandon(Some(&mut computer.frame)) };
        let TrapFrame { pc, pstate, record, .. } = computer.frame;
        let expected = (function as u64 + 4 * (steps - 1), 0b0101, pc);
        assert_eq!((pc, pstate, record[1]), expected, "after {steps} steps");
        assert_eq!((computer.call(function, 5), probe.hits(), probe.missed()), (6, steps, steps));
        hit::cpu::Cpu::current().leave();
    }
    // A panic has no frame to correct.
    computer.frame.pc = function as u64;
    computer.step();
    // SAFETY: the test resets the CPU and starts a new call below, so no interrupted code resumes.
    unsafe { hit::abandon(None) };
    assert_eq!((computer.call(function, 5), probe.hits(), probe.missed()), (6, 3, 3));
    hit::cpu::Cpu::current().leave();
}

#[test]
fn the_list_tells_what_is_registered() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let slots = memory().slots;
    let _simulated = Kprobe::at(function + 4).disabled().data(7).register().unwrap();
    let stepped = Kretprobe::at(function).at_most(Mode::Boosted).register().unwrap();
    computer.call(function, 0);
    let info = |address, kind, mode, enabled, hits, data| ProbeInfo {
        address,
        kind,
        mode,
        fallback: None,
        enabled,
        hits,
        missed: 0,
        data,
    };
    assert_eq!(
        list().unwrap(),
        [
            info(function, ProbeKind::Kretprobe, Some(Mode::Boosted), true, 1, 0),
            info(function + 4, ProbeKind::Kprobe, None, false, 0, 7),
        ]
    );
    assert_eq!(memory().slots, slots + 1);
    stepped.unregister();
    assert_eq!(memory().slots, slots);
}

#[test]
fn an_address_in_a_slot_tells_of_the_instruction() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    for mode in [Mode::Boosted, Mode::Stepped] {
        let probe = Kprobe::at(function).pre(see_x0).at_most(mode);
        let probe = if mode == Mode::Stepped { probe.post(see_x0) } else { probe }.register().unwrap();
        computer.frame.pc = function as u64;
        computer.step();
        let slot = computer.frame.pc as usize;
        assert_ne!(slot, function, "{mode}");
        assert_eq!([origin(slot), origin(slot + 4)], [Some(function), Some(function + 4)], "{mode}");
        computer.frame.x[30] = OUTSIDE;
        computer.run_until(OUTSIDE);
        probe.unregister();
    }
}
