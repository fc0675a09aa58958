//! Return probes.

use super::computer::{HOLDS, KEEP_LINK};
use super::*;
use crate::probe::hit::list::tasks::{calls_of, switch_to};

fn see_return(call: &mut Call<'_>) {
    SEEN.fetch_add(call.return_value(), Relaxed);
    assert_ne!(call.return_address() as u64, trampoline_address());
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
        call.instance_data_mut()[1] = argument;
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

/// Runs a function that calls the next one. It keeps its caller's return address in x19, because it has no stack.
fn nest(computer: &mut Computer, outer: usize, inner: usize) -> u64 {
    // `mov x30, x19` is done by hand, because the simulated CPU does not execute it.
    computer.frame.x[0] = 0;
    computer.begin(outer, OUTSIDE);
    let kept = computer.frame.x[19];
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
    let outer = computer.function(0, &[KEEP_LINK, branch_link(FUNCTION as i32 - 1), add(10), RET]);
    let first = Kretprobe::at(outer).handler(see_return).register().unwrap();
    let second = Kretprobe::at(inner).handler(see_return).register().unwrap();
    assert_eq!(nest(&mut computer, outer, inner), 11);
    assert_eq!((SEEN.load(Relaxed), first.hits(), second.hits()), (12, 1, 1));
}

#[test]
fn calls_beyond_maxactive_are_missed_and_still_right() {
    let mut computer = computer();
    let inner = computer.function(1, &[add(1), RET]);
    let outer = computer.function(0, &[KEEP_LINK, branch_link(FUNCTION as i32 - 1), add(10), RET]);
    let probe = Kretprobe::at(inner).maxactive(1).handler(see_return).register().unwrap();
    // Another task is in the function, and holds the only instance.
    switch_to(2);
    let mut elsewhere = TrapFrame { pc: inner as u64, sp: 0x9000, ..TrapFrame::default() };
    elsewhere.x[30] = OUTSIDE;
    assert_eq!(hit::breakpoint(&mut elsewhere), Breakpoint::Handled);
    execute(text::read(elsewhere.pc as usize), &mut elsewhere);
    switch_to(1);
    assert_eq!((nest(&mut computer, outer, inner), probe.missed(), probe.active()), (11, 1, 1));
    // The other task exits in there: its instance is given back, and its call counts as missed.
    // SAFETY: the test never switches to that task again.
    unsafe { task_exited(calls_of(2)) };
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
    computer.begin(function, OUTSIDE);
    assert_eq!(probe.active(), 1);
    probe.unregister();
    computer.run_until(OUTSIDE);
    assert_eq!(computer.frame.x[0], 1);
}

/// The CPU that has ended the last call may still be in the code of the probe.
#[test]
fn every_cpu_is_held_before_a_probe_is_freed_whose_calls_have_ended() {
    let mut computer = computer();
    let (function, other) = (computer.function(0, &[NOP, add(1), RET]), computer.function(1, &[add(1), RET]));
    let holds_of_a_change = || {
        let before = HOLDS.load(Relaxed);
        let _probe = Kprobe::at(other).disabled().register().unwrap();
        HOLDS.load(Relaxed) - before
    };
    let probe = Kretprobe::at(function).register().unwrap();
    let usual = holds_of_a_change();
    computer.begin(function, OUTSIDE);
    probe.unregister();
    assert_eq!(holds_of_a_change(), usual, "the probe is kept while a call is in progress");
    computer.run_until(OUTSIDE);
    assert_eq!([holds_of_a_change(), holds_of_a_change()], [usual + 1, usual]);
}

#[test]
fn an_abandoned_call_is_recycled_when_an_older_one_returns() {
    let mut computer = computer();
    let inner = computer.function(1, &[NOP, add(1), RET]);
    let outer = computer.function(0, &[KEEP_LINK, branch_link(FUNCTION as i32 - 1), RET]);
    let first = Kretprobe::at(outer).handler(see_return).register().unwrap();
    let second = Kretprobe::at(inner).handler(see_return).register().unwrap();
    computer.begin(outer, OUTSIDE);
    let kept = computer.frame.x[30];
    computer.frame.sp -= 16;
    computer.run_until(inner as u64 + 4);
    // The inner function is left for good, without a return.
    computer.frame.sp += 16;
    computer.frame.pc = kept;
    computer.run_until(OUTSIDE);
    assert_eq!((first.hits(), second.hits(), second.missed(), second.active()), (1, 0, 1, 0));
}

#[test]
fn calls_that_return_on_an_abandoned_cpu_are_missed() {
    let mut computer = computer();
    let functions = [0, 1].map(|number| computer.function(number, &[NOP, add(1), RET]));
    fn never(_: &mut Call<'_>) {
        panic!("the CPU was abandoned");
    }
    let probes = functions.map(|address| Kretprobe::at(address).handler(never).register().unwrap());
    // The outer call begins at the end of the stack.
    let top = computer.frame.sp;
    let callers = [OUTSIDE, OUTSIDE + 0x100];
    let outer = enter(&mut computer, functions[0], top, callers[0]);
    let inner = enter(&mut computer, functions[1], top - 16, callers[1]);
    // SAFETY: no hit is being handled.
    unsafe { hit::abandon(None) };
    let floors = [top, top - 16].map(|floor| floor as usize);
    // SAFETY: the task runs in this thread.
    let found = floors.map(|floor| unsafe { true_return_address(calls_of(1), floor) });
    assert_eq!(found, callers.map(|caller| Some(caller as usize)));
    for ((sp, pc), caller) in [(inner, callers[1]), (outer, callers[0])] {
        (computer.frame.sp, computer.frame.pc, computer.frame.x[30]) = (sp, pc, trampoline_address());
        computer.run_until(caller);
        assert!(hit::cpu::Cpu::current().is_handling());
    }
    assert_eq!(probes.each_ref().map(|probe| (probe.hits(), probe.missed(), probe.active())), [(0, 1, 0); 2]);
    hit::cpu::Cpu::current().leave();
}

#[test]
fn true_return_addresses_are_told_by_the_stack() {
    let mut computer = computer();
    let function = computer.function(0, &[NOP, RET]);
    let _probe = Kretprobe::at(function).register().unwrap();
    computer.begin(function, OUTSIDE);
    let sp = computer.frame.sp as usize;
    assert!(is_trampoline(computer.frame.x[30] as usize));
    // SAFETY: the tasks of the host's tests run one at a time, in this thread.
    let address = |task, floor| unsafe { true_return_address(calls_of(task), floor) };
    assert_eq!(address(1, sp), Some(OUTSIDE as usize));
    assert_eq!(address(1, sp + 16), None, "an older frame than any that is probed");
    assert_eq!(address(2, sp), None, "another task");
    computer.run_until(OUTSIDE);
    assert_eq!(address(1, sp), None);
}

#[test]
fn a_return_probe_on_a_loop_head_is_refused() {
    let computer = computer();
    // cbz x0, back by an instruction; cbgt w0, w1, back by one, which is itself refused.
    for branch in [0xb4ff_ffe0, 0x7401_3fe0] {
        let function = computer.function(0, &[add(1), branch, RET]);
        let refused = Kretprobe::at(function).register().map(drop);
        assert_eq!(refused, Err(ProbeError::EntryIsLoop { address: function, branch: function + 4 }));
        assert!(Kprobe::at(function).register().is_ok());
    }
}

#[test]
fn a_return_probe_is_refused_where_x30_is_not_the_return_address() {
    let computer = computer();
    // ldr x30, [sp]; ret
    let function = computer.function(0, &[NOP, 0xf940_03fe, RET]);
    let refused = Kretprobe::at(function).register().map(drop);
    assert_eq!(refused, Err(ProbeError::NotReturnAddress { address: function, writer: function + 4 }));
    assert!(Kprobe::at(function).register().is_ok());
}

#[test]
fn an_entry_that_faults_and_is_retried_is_one_call() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probes = [(); 2].map(|()| Kretprobe::at(function).handler(see_return).maxactive(1).register().unwrap());
    computer.frame.pc = function as u64;
    computer.frame.x[30] = OUTSIDE;
    computer.step();
    hit::faulted(&mut computer.frame);
    assert_eq!(computer.frame.x[30], OUTSIDE, "the function has not been entered yet");
    assert!(probes.iter().all(|probe| probe.active() == 0));
    computer.run_until(OUTSIDE);
    assert!(probes.iter().all(|probe| (probe.hits(), probe.missed(), probe.active()) == (1, 0, 0)));
}

/// Enters a function that returns to its beginning by a tail call, where its first instruction faults.
fn fault_at_reentry(computer: &mut Computer, function: usize) {
    computer.begin(function, OUTSIDE);
    let link = computer.frame.x[30];
    assert_eq!(link, trampoline_address());
    computer.frame.pc = function as u64;
    computer.step();
    hit::faulted(&mut computer.frame);
    assert_eq!((computer.frame.pc, computer.frame.x[30]), (function as u64, link));
}

#[test]
fn a_tail_call_that_faults_is_taken_back_alone() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kretprobe::at(function).handler(see_return).register().unwrap();
    fault_at_reentry(&mut computer, function);
    assert_eq!(probe.active(), 1);
    computer.run_until(OUTSIDE);
    assert_eq!((probe.hits(), probe.missed(), probe.active()), (2, 0, 0));
}

#[test]
fn a_tail_call_that_is_missed_and_faults_takes_nothing_back() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probe = Kretprobe::at(function).handler(see_return).maxactive(1).register().unwrap();
    fault_at_reentry(&mut computer, function);
    assert_eq!((probe.active(), probe.missed()), (1, 1));
    computer.run_until(OUTSIDE);
    assert_eq!((probe.hits(), probe.missed(), probe.active()), (1, 2, 0));
}

#[test]
fn of_several_probes_at_a_tail_call_those_are_taken_back_that_followed() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let probes =
        [1, 2, 3].map(|calls| Kretprobe::at(function).handler(see_return).maxactive(calls).register().unwrap());
    fault_at_reentry(&mut computer, function);
    assert_eq!(probes.each_ref().map(|probe| (probe.active(), probe.missed())), [(1, 1), (1, 0), (1, 0)]);
    computer.run_until(OUTSIDE);
    assert_eq!(probes.each_ref().map(|probe| (probe.hits(), probe.missed())), [(1, 2), (2, 0), (2, 0)]);
}

/// Enters `function` with this stack pointer, and leaves it before its second instruction. Returns the stack pointer
/// and the pc at which it was left.
fn enter(computer: &mut Computer, function: usize, stack_pointer: u64, caller: u64) -> (u64, u64) {
    computer.frame.sp = stack_pointer;
    computer.begin(function, caller);
    assert_eq!(computer.frame.x[30], trampoline_address());
    (computer.frame.sp, function as u64 + 4)
}

#[test]
fn calls_on_several_stacks_of_a_task_return_in_any_order() {
    let mut computer = computer();
    let functions = [0, 1].map(|number| computer.function(number, &[NOP, add(1), RET]));
    let probes = functions.map(|address| Kretprobe::at(address).handler(see_return).register().unwrap());
    // One stack that the kernel knows, and two that it does not know.
    let callers = [OUTSIDE, OUTSIDE + 0x100, OUTSIDE + 0x200];
    for stacks in [[0x1000, 0x9000, 0x5000], [0x9000, 0x5000, 0x1000], [0x5000, 0x1000, 0x9000]] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut call = 0;
            let fibers = stacks.map(|stack| {
                let fiber = enter(&mut computer, functions[call % 2], stack, callers[call]);
                call += 1;
                fiber
            });
            for fiber in order {
                let (sp, pc) = fibers[fiber];
                let floor = sp as usize;
                // SAFETY: the task runs in this thread.
                let address = unsafe { true_return_address(calls_of(1), floor) };
                assert_eq!(address, Some(callers[fiber] as usize), "{order:?}");
                (computer.frame.sp, computer.frame.pc) = (sp, pc);
                computer.frame.x[30] = trampoline_address();
                computer.run_until(callers[fiber]);
            }
            assert_eq!(probes.each_ref().map(|probe| probe.active()), [0, 0], "{order:?}");
        }
    }
    assert_eq!(probes.map(|probe| (probe.hits(), probe.missed())), [(36, 0), (18, 0)]);
    computer.frame.sp = 0x1000;
}

#[test]
fn a_return_with_another_stack_pointer_goes_to_the_caller_and_is_missed() {
    let mut computer = computer();
    let inner = computer.function(1, &[NOP, RET]);
    let outer = computer.function(0, &[NOP, RET]);
    let probes = [outer, inner].map(|address| Kretprobe::at(address).handler(see_return).register().unwrap());
    for moved in [-16, 16] {
        let (sp, pc) = enter(&mut computer, outer, 0x800, OUTSIDE);
        enter(&mut computer, inner, 0x700, OUTSIDE + 0x100);
        // A newer call, on another stack.
        let elsewhere = enter(&mut computer, inner, 0x9000, OUTSIDE + 0x200);
        (computer.frame.sp, computer.frame.pc) = (0x700_u64.wrapping_add_signed(moved), inner as u64 + 4);
        computer.run_until(OUTSIDE + 0x100);
        (computer.frame.sp, computer.frame.pc, computer.frame.x[30]) = (sp, pc, trampoline_address());
        computer.run_until(OUTSIDE);
        (computer.frame.sp, computer.frame.pc) = elsewhere;
        computer.frame.x[30] = trampoline_address();
        computer.run_until(OUTSIDE + 0x200);
    }
    assert_eq!(probes.map(|probe| (probe.hits(), probe.missed(), probe.active())), [(2, 0, 0), (2, 2, 0)]);
}

#[test]
fn given_bounds_take_the_place_of_the_kernels() {
    let mut computer = computer();
    // The kernel takes these for one function. They are two, and the second begins at the third instruction.
    let outer = computer.function(0, &[add(1), RET, add(2), RET]);
    let (function, end) = (outer + 8, outer + 16);
    let refused = ProbeError::NotEntry { address: function, function: outer..outer + 4 * FUNCTION };
    assert_eq!(Kretprobe::at(function).register().map(drop), Err(refused.clone()));
    // SAFETY: the range is the second function. No instruction reads its words as data.
    let given = unsafe { Kretprobe::at(function).handler(see_return).within(function..end) };
    let probe = given.register().unwrap();
    assert_eq!(computer.call(function, 40), 42);
    assert_eq!((SEEN.load(Relaxed), probe.hits(), probe.missed(), computer.frame.x[30]), (42, 1, 0, OUTSIDE));
    drop(probe);
    let both = Kretprobe::register_all([given, Kretprobe::at(function)]).unwrap();
    assert!(matches!(&both[..], [Ok(_), Err(error)] if *error == refused), "the bounds are for one probe");
    drop(both);
    let register = |bounds| {
        // SAFETY: no call is made while one of these is registered. No instruction reads these words as data.
        unsafe { Kretprobe::at(function).within(bounds) }.register().map(drop)
    };
    let inside = ProbeError::NotEntry { address: function, function: outer..end };
    assert_eq!(register(outer..end), Err(inside));
    for bounds in [outer..function, function..end + 2, function..crate::kernel::text().end + 4, end..function] {
        assert_eq!(register(bounds), Err(ProbeError::NoFunction { address: function }));
    }
}
