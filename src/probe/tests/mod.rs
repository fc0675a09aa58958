//! The engine on the host: what happens to probed code, instruction by instruction.

mod computer;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::hit::{self, Breakpoint, returns};
use super::*;
use crate::exception::TrapFrame;
use crate::insn;
use crate::platform::Platform;
use crate::text;
use computer::{Computer, FUNCTION, Host, NOP, OUTSIDE, RET, TASK, add, branch_link};

/// The machine, with nothing seen yet.
fn computer() -> Computer {
    let computer = Computer::new();
    SEEN.store(0, Relaxed);
    computer
}

/// What the handlers of the tests leave behind.
static SEEN: AtomicU64 = AtomicU64::new(0);

fn see_x0(hit: &mut Hit<'_>) {
    SEEN.fetch_add(hit.frame().x[0], Relaxed);
}

#[test]
fn a_stepped_instruction_takes_two_exceptions_and_does_its_work() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), RET]);
    let probe = Kprobe::at(function + 4).pre(see_x0).register().unwrap();
    assert_eq!(computer.call(function, 10), 13);
    assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed(), computer.exceptions), (11, 1, 0, 2));
    probe.unregister();
    assert_eq!(computer.call(function, 10), 13);
    assert_eq!(computer.exceptions, 2);
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
        assert_eq!(hit.frame().pc, hit.address() as u64 + 4);
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
    let _probe = Kprobe::at(function).register().unwrap();
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
    let skipping = Kprobe::at(function).pre(skip).post(never).register().unwrap();
    let other = Kprobe::at(function).pre(see_x0).register().unwrap();
    assert_eq!(computer.call(function, 0), 2);
    assert_eq!((skipping.hits(), other.hits(), other.missed()), (1, 0, 1));
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
    /// Runs the inner function on the same pretended CPU, as a handler does that calls it.
    fn call_inner(_: &mut Hit<'_>) {
        let mut frame = TrapFrame { pc: INNER.load(Relaxed) as u64, sp: 0x800, ..TrapFrame::default() };
        frame.x[30] = OUTSIDE;
        while frame.pc != OUTSIDE {
            match text::read(frame.pc as usize) {
                insn::BRK_KPROBE => assert_eq!(hit::breakpoint(&mut frame), Breakpoint::Handled),
                insn::BRK_STEP => assert!(hit::stepped(&mut frame)),
                word if word == add(1) => (frame.x[0], frame.pc) = (frame.x[0] + 1, frame.pc + 4),
                RET => frame.pc = frame.x[30],
                word => panic!("{word:#x}"),
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
}

#[test]
fn a_fault_in_the_slot_appears_at_the_probe_and_leaves_the_cpu_clean() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kprobe::at(function).pre(see_x0).register().unwrap();
    computer.frame.pstate = 0b0101;
    computer.frame.pc = function as u64;
    computer.step();
    assert_ne!(computer.frame.pc, function as u64);
    hit::faulted(&mut computer.frame);
    assert_eq!((computer.frame.pc, computer.frame.pstate), (function as u64, 0b0101));
    assert_eq!(computer.call(function, 1), 2);
    assert_eq!(probe.hits(), 2);
}

#[test]
fn a_breakpoint_that_has_gone_is_simply_retried() {
    let computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let mut frame = TrapFrame { pc: function as u64, ..TrapFrame::default() };
    assert_eq!(hit::breakpoint(&mut frame), Breakpoint::Handled, "the instruction is back in place");
    assert_eq!(frame.pc, function as u64);
    text::write(function, &[insn::BRK_KPROBE]).unwrap();
    assert_eq!(hit::breakpoint(&mut frame), Breakpoint::Foreign, "somebody else's breakpoint");
    text::write(function, &[NOP]).unwrap();
}

fn see_return(call: &mut Call<'_>) {
    SEEN.fetch_add(call.return_value(), Relaxed);
    assert_ne!(call.return_address() as u64, returns::trampoline_address());
}

#[test]
fn a_return_is_seen_with_its_value_and_goes_where_it_would() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kretprobe::at(function).handler(see_return).register().unwrap();
    assert_eq!(computer.call(function, 41), 42);
    assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed(), probe.active()), (42, 1, 0, 0));
    assert_eq!(computer.frame.x[30], OUTSIDE);
}

#[test]
fn an_entry_handler_can_decline_and_leave_data_for_the_return() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    fn odd_only(call: &mut Call<'_>) -> Decision {
        let argument = call.frame().x[0];
        assert_eq!(call.instance_data(), [0, 0]);
        call.instance_data()[1] = argument;
        if argument % 2 == 1 { Decision::Follow } else { Decision::Decline }
    }
    fn sum(call: &mut Call<'_>) {
        assert_eq!(call.return_value(), call.instance_data()[1] + 1);
        SEEN.fetch_add(call.instance_data()[1], Relaxed);
    }
    let probe = Kretprobe::at(function).entry(odd_only).handler(sum).data_words(2).maxactive(1).register().unwrap();
    for argument in 0..6 {
        computer.call(function, argument);
    }
    assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed()), (1 + 3 + 5, 3, 0));
}

/// A function that calls the next one, whose caller's return address it keeps in x19 for want of a stack.
fn nest(computer: &mut Computer, outer: usize, inner: usize) -> u64 {
    // `mov x19, x30` and `mov x30, x19` are done by hand, as the pretended CPU does not know them.
    computer.frame.pc = outer as u64;
    computer.frame.x[0] = 0;
    computer.frame.x[30] = OUTSIDE;
    computer.run_until(outer as u64 + 4);
    let kept = computer.frame.x[30];
    computer.frame.sp -= 16;
    computer.run_until(inner as u64);
    computer.run_until(outer as u64 + 8);
    computer.frame.sp += 16;
    computer.frame.x[30] = kept;
    computer.run_until(OUTSIDE);
    computer.frame.x[0]
}

#[test]
fn nested_calls_return_to_their_own_callers() {
    let mut computer = computer();
    let inner = computer.function(1, &[add(1), RET]);
    let outer = computer.function(0, &[NOP, branch_link(FUNCTION as i32 - 1), add(10), RET]);
    let first = Kretprobe::at(outer).handler(see_return).register().unwrap();
    let second = Kretprobe::at(inner).handler(see_return).register().unwrap();
    assert_eq!(nest(&mut computer, outer, inner), 11);
    assert_eq!((SEEN.load(Relaxed), first.hits(), second.hits()), (12, 1, 1));
}

#[test]
fn calls_beyond_maxactive_are_missed_and_still_right() {
    let mut computer = computer();
    let inner = computer.function(1, &[add(1), RET]);
    let outer = computer.function(0, &[NOP, branch_link(FUNCTION as i32 - 1), add(10), RET]);
    let probe = Kretprobe::at(inner).maxactive(1).handler(see_return).register().unwrap();
    // Another task is in the function, and holds the one instance.
    TASK.set(2);
    let mut elsewhere = TrapFrame { pc: inner as u64, sp: 0x9000, ..TrapFrame::default() };
    elsewhere.x[30] = OUTSIDE;
    assert_eq!(hit::breakpoint(&mut elsewhere), Breakpoint::Handled);
    assert!(hit::stepped(&mut { TrapFrame { pc: elsewhere.pc + 4, ..elsewhere } }));
    TASK.set(1);
    assert_eq!((nest(&mut computer, outer, inner), probe.missed(), probe.active()), (11, 1, 1));
    // The other task dies in there: its instance is recycled, and its call has been missed.
    task_exited(2);
    assert_eq!((probe.missed(), probe.active()), (2, 0));
    assert_eq!((nest(&mut computer, outer, inner), probe.hits()), (11, 1));
}

#[test]
fn several_return_probes_on_one_function_all_see_the_return() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probes = [1, 2, 3].map(|_| Kretprobe::at(function).handler(see_return).register().unwrap());
    assert_eq!(computer.call(function, 1), 2);
    assert_eq!(SEEN.load(Relaxed), 6);
    assert!(probes.iter().all(|probe| probe.hits() == 1 && probe.active() == 0));
}

#[test]
fn a_tail_call_ends_both_functions_at_once() {
    let mut computer = computer();
    let callee = computer.function(1, &[add(1), RET]);
    let caller = computer.function(0, &[add(10), 0x1400_0000 | (FUNCTION as u32 - 1)]);
    let probes = [caller, callee].map(|address| Kretprobe::at(address).handler(see_return).register().unwrap());
    assert_eq!(computer.call(caller, 0), 11);
    assert_eq!(SEEN.load(Relaxed), 22);
    assert!(probes.iter().all(|probe| probe.hits() == 1 && probe.active() == 0));
}

#[test]
fn kprobes_see_the_true_x30_whatever_the_order_of_registration() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    fn see_caller(hit: &mut Hit<'_>) {
        SEEN.store(hit.frame().x[30], Relaxed);
    }
    let _returns = Kretprobe::at(function).register().unwrap();
    let _entries = Kprobe::at(function).pre(see_caller).register().unwrap();
    computer.call(function, 0);
    assert_eq!(SEEN.load(Relaxed), OUTSIDE);
}

#[test]
fn unregistering_in_flight_lets_the_call_return_without_a_handler() {
    let mut computer = computer();
    let function = computer.function(0, &[NOP, add(1), RET]);
    fn never(_: &mut Call<'_>) {
        panic!("the probe is gone");
    }
    let probe = Kretprobe::at(function).handler(never).register().unwrap();
    computer.frame.pc = function as u64;
    computer.frame.x[30] = OUTSIDE;
    computer.run_until(function as u64 + 4);
    assert_eq!(probe.active(), 1);
    probe.unregister();
    computer.run_until(OUTSIDE);
    assert_eq!(computer.frame.x[0], 1);
}

#[test]
fn an_abandoned_call_is_recycled_when_an_older_one_returns() {
    let mut computer = computer();
    let inner = computer.function(1, &[NOP, add(1), RET]);
    let outer = computer.function(0, &[NOP, branch_link(FUNCTION as i32 - 1), RET]);
    let first = Kretprobe::at(outer).handler(see_return).register().unwrap();
    let second = Kretprobe::at(inner).handler(see_return).register().unwrap();
    computer.frame.pc = outer as u64;
    computer.frame.x[30] = OUTSIDE;
    computer.run_until(outer as u64 + 4);
    let kept = computer.frame.x[30];
    computer.frame.sp -= 16;
    computer.run_until(inner as u64 + 4);
    // Something takes execution out of the inner function for good.
    computer.frame.sp += 16;
    computer.frame.pc = kept;
    computer.run_until(OUTSIDE);
    assert_eq!((first.hits(), second.hits(), second.missed(), second.active()), (1, 0, 1, 0));
}

#[test]
fn true_return_addresses_are_told_by_the_stack() {
    let mut computer = computer();
    let function = computer.function(0, &[NOP, RET]);
    let _probe = Kretprobe::at(function).register().unwrap();
    computer.frame.pc = function as u64;
    computer.frame.x[30] = OUTSIDE;
    computer.run_until(function as u64 + 4);
    let sp = computer.frame.sp as usize;
    assert!(is_trampoline(computer.frame.x[30] as usize));
    assert_eq!(true_return_address(1, sp), Some(OUTSIDE as usize));
    assert_eq!(true_return_address(1, sp + 16), None, "an older frame than any that is probed");
    // The second shares a bucket of the hash with the first.
    let hash = |task: u64| task.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let neighbour = (2..).find(|&task| hash(task) == hash(1)).unwrap();
    assert_eq!([2, neighbour].map(|task| true_return_address(task, sp)), [None; 2], "other tasks");
    computer.run_until(OUTSIDE);
    assert_eq!(true_return_address(1, sp), None);
}

#[test]
fn what_cannot_be_probed_is_refused_with_its_reason() {
    let computer = computer();
    // ldxr x1, [x0]; add x0, x0, #1; stxr w2, x1, [x0]; svc #0; ret
    let function = computer.function(0, &[0xc85f_7c01, add(1), 0xc802_7c01, 0xd400_0001, RET]);
    let register = |address| Kprobe::at(address).register().map(drop);
    assert_eq!(register(function + 2), Err(ProbeError::Misaligned { address: function + 2 }));
    let end = Host::text().end;
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
    assert!(list().is_empty());
}

#[test]
fn a_return_probe_on_a_loop_head_is_refused() {
    let computer = computer();
    // add x0, x0, #1; cbz x0, back to the first; ret
    let function = computer.function(0, &[add(1), 0xb4ff_ffe0, RET]);
    let refused = Kretprobe::at(function).register().map(drop);
    assert_eq!(refused, Err(ProbeError::EntryIsLoop { address: function, branch: function + 4 }));
    assert!(Kprobe::at(function).register().is_ok());
}

#[test]
fn an_abandoned_cpu_executes_what_is_probed_and_calls_nobody() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kprobe::at(function).pre(see_x0).register().unwrap();
    for steps in [1, 2] {
        computer.frame.pc = function as u64;
        computer.frame.x[0] = 0;
        computer.frame.pstate = 0b0101;
        (0..steps).for_each(|_| computer.step());
        hit::abandon(Some(&mut computer.frame));
        let expected = (function as u64 + 4 * (steps - 1), 0b0101);
        assert_eq!((computer.frame.pc, computer.frame.pstate), expected, "after {steps} steps");
        assert_eq!((computer.call(function, 5), probe.hits(), probe.missed()), (6, steps, steps));
        hit::cpu::Cpu::current().leave();
    }
    // A panic has no frame to put right.
    computer.frame.pc = function as u64;
    computer.step();
    hit::abandon(None);
    assert_eq!((computer.call(function, 5), probe.hits(), probe.missed()), (6, 3, 3));
    hit::cpu::Cpu::current().leave();
}

#[test]
fn the_list_tells_what_is_registered() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let slots = slots_in_use();
    let _simulated = Kprobe::at(function + 4).disabled().data(7).register().unwrap();
    let stepped = Kretprobe::at(function).register().unwrap();
    computer.call(function, 0);
    let info =
        |address, kind, mode, enabled, hits, data| ProbeInfo { address, kind, mode, enabled, hits, missed: 0, data };
    assert_eq!(
        list(),
        [
            info(function, ProbeKind::Kretprobe, Mode::Stepped, true, 1, 0),
            info(function + 4, ProbeKind::Kprobe, Mode::Simulated, false, 0, 7),
        ]
    );
    assert_eq!(slots_in_use(), slots + 1);
    stepped.unregister();
    assert_eq!(slots_in_use(), slots);
}
