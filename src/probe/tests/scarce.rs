//! Without memory: a change that fails changes nothing, removing probes needs no memory, and freed memory is reused.

use std::sync::atomic::Ordering::Relaxed;

use fallible::failing::{Heap, allocated, each_allocation, with_bytes, with_memory};

use super::*;
use computer::{EXHAUSTED, HOLDS};

/// Probes that take all slots. There is no memory for more slots while this exists.
struct Exhausted(Vec<Kprobe>);

impl Exhausted {
    fn new(computer: &Computer) -> Self {
        EXHAUSTED.store(true, Relaxed);
        let mut words = [add(1); FUNCTION];
        words[FUNCTION - 1] = RET;
        let functions: Vec<_> = (60..120).map(|number| computer.function(number, &words)).collect();
        let addresses = functions.iter().flat_map(|function| (0..FUNCTION - 1).map(move |index| function + 4 * index));
        let outcomes =
            Kprobe::register_all(addresses.map(|address| Kprobe::at(address).at_most(Mode::Boosted))).unwrap();
        assert!(outcomes.last().is_some_and(Result::is_err), "the slots of one piece do not do for so many");
        Self(outcomes.into_iter().flatten().collect())
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        EXHAUSTED.store(false, Relaxed);
        Kprobe::unregister_all(self.0.drain(..));
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

fn without_memory<T>(action: impl FnOnce() -> T) -> T {
    with_memory(0, action)
}

fn mode(address: usize) -> Option<Mode> {
    list().unwrap().into_iter().find(|probe| probe.address == address).and_then(|probe| probe.mode)
}

fn never(_: &mut Hit<'_>) {
    panic!("its probe is not armed");
}

/// The four probes at the entry of a function are removed one after the other; the remaining ones report every hit.
#[test]
fn probes_go_where_there_is_no_memory_at_all() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let before = (memory().points, memory().slots, memory().stubs);
    let stays = Kprobe::at(function).pre(see_x0).register().unwrap();
    let goes = Kprobe::at(function).pre(see_x0).post(see_x0).register().unwrap();
    let disabled = Kprobe::at(function).pre(never).disabled().register().unwrap();
    fn see_value(call: &mut Call<'_>) {
        SEEN.fetch_add(call.return_value(), Relaxed);
    }
    let returns = Kretprobe::at(function).handler(see_value).register().unwrap();
    assert_eq!((computer.call(function, 10), SEEN.swap(0, Relaxed)), (11, 10 + 10 + 11 + 11));
    without_memory(|| drop(disabled));
    assert_eq!((computer.call(function, 10), SEEN.swap(0, Relaxed)), (11, 10 + 10 + 11 + 11));
    without_memory(|| drop(goes));
    assert_eq!((computer.call(function, 10), SEEN.swap(0, Relaxed), stays.hits()), (11, 10 + 11, 3));
    assert_eq!(mode(function), Some(Mode::Stepped));
    without_memory(|| stays.disable()).unwrap();
    assert_eq!((computer.call(function, 10), SEEN.swap(0, Relaxed), returns.hits()), (11, 11, 4));
    assert_eq!(without_memory(|| stays.enable()), Err(ProbeError::OutOfMemory { address: function }));
    assert_eq!((computer.call(function, 10), SEEN.swap(0, Relaxed), stays.is_enabled()), (11, 11, false));
    without_memory(|| drop((returns, stays)));
    assert_eq!((text::read(function), computer.call(function, 10), SEEN.load(Relaxed)), (add(1), 11, 0));
    assert_eq!((memory().points, memory().slots, memory().stubs), before);
}

/// All probes are removed at once. A slot in which a task was interrupted is kept for as long as the task is in it.
#[test]
fn many_probes_go_where_there_is_no_memory_at_all() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), add(4), RET]);
    let before = (memory().points, memory().slots);
    let outcomes = Kprobe::register_all([0, 4, 8].map(|offset| Kprobe::at(function + offset).pre(see_x0))).unwrap();
    let probes: Vec<Kprobe> = outcomes.into_iter().map(Result::unwrap).collect();
    computer.frame.pc = function as u64;
    computer.step();
    INTERRUPTED.lock().unwrap().push(computer.frame.pc as usize);
    without_memory(|| Kprobe::unregister_all(probes));
    assert_eq!((memory().points, memory().slots), (before.0, before.1 + 1));
    assert_eq!(computer.call(function, 0), 7);
    INTERRUPTED.lock().unwrap().clear();
    drop(Kprobe::at(function).register().unwrap());
    assert_eq!((memory().points, memory().slots), before);
}

/// Two probes are exchanged, on one instruction and on two.
#[test]
fn an_exchange_without_memory_changes_nothing() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), RET]);
    let before = Kprobe::at(function).pre(see_x0).register().unwrap();
    for offset in [0, 4] {
        let after = Kprobe::at(function + offset).pre(see_x0).disabled().register().unwrap();
        each_allocation(
            || before.exchange(&after),
            |error| {
                assert_eq!((before.is_enabled(), after.is_enabled()), (true, false));
                assert_eq!((computer.call(function, 10), SEEN.swap(0, Relaxed)), (13, 10));
                matches!(error, ProbeError::OutOfMemory { .. })
            },
        );
        assert_eq!((before.is_enabled(), after.is_enabled()), (false, true));
        assert_eq!((computer.call(function, 20), SEEN.swap(0, Relaxed)), (23, [20, 21][offset / 4]));
        after.exchange(&before).unwrap();
    }
}

/// Registers a probe with a slot, so that there is memory for slots.
fn some_slot(computer: &Computer) -> Kprobe {
    Kprobe::at(computer.function(1, &[add(1), RET])).at_most(Mode::Boosted).register().unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "it registers 512 probes")]
fn a_probe_without_memory_for_a_slot_is_refused_and_the_others_are_not() {
    let mut computer = computer();
    let function = computer.function(0, &[NOP, add(1), RET]);
    let probes = [0, 4, 8].map(|offset| Kprobe::at(function + offset).pre(see_x0).at_most(Mode::Boosted));
    let exhausted = Exhausted::new(&computer);
    let points = memory().points;
    let outcomes = Kprobe::register_all(probes).unwrap();
    assert_eq!(outcomes[1].as_ref().err(), Some(&ProbeError::OutOfMemory { address: function + 4 }));
    assert_eq!((text::read(function + 4), memory().points), (add(1), points + 2));
    assert_eq!((computer.call(function, 1), SEEN.load(Relaxed)), (2, 1 + 2));
    drop((outcomes, exhausted));
    let probes: Vec<Kprobe> = Kprobe::register_all(probes).unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!((computer.call(function, 1), probes[1].hits()), (2, 1));
}

#[test]
#[cfg_attr(miri, ignore = "it registers 512 probes")]
fn a_probe_goes_where_there_is_no_memory_to_execute_the_others_faster() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let stays = Kprobe::at(function).pre(see_x0).at_most(Mode::Boosted).register().unwrap();
    let goes = Kprobe::at(function).pre(never).post(never).register().unwrap();
    let exhausted = Exhausted::new(&computer);
    goes.unregister();
    assert_eq!(mode(function), Some(Mode::Stepped));
    assert_eq!((computer.call(function, 5), SEEN.load(Relaxed), stays.hits()), (6, 5, 1));
    drop(exhausted);
    stays.disable().unwrap();
    stays.enable().unwrap();
    assert_eq!(mode(function), Some(Mode::Boosted));
    assert_eq!((computer.call(function, 5), stays.hits()), (6, 2));
}

#[test]
#[cfg_attr(miri, ignore = "it registers 512 probes")]
fn a_probe_is_refused_where_there_is_no_memory_to_execute_what_it_needs() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let first = Kprobe::at(function).pre(see_x0).at_most(Mode::Boosted).register().unwrap();
    let exhausted = Exhausted::new(&computer);
    let refused = Kprobe::at(function).post(never).register();
    assert_eq!(refused.err(), Some(ProbeError::OutOfMemory { address: function }));
    assert_eq!((computer.call(function, 5), SEEN.load(Relaxed), first.hits(), computer.exceptions), (6, 5, 1, 1));
    drop(exhausted);
}

#[test]
#[cfg_attr(miri, ignore = "it registers 512 probes")]
fn probes_are_armed_together_or_not_at_all() {
    let mut computer = computer();
    let _some = some_slot(&computer);
    let function = computer.function(0, &[add(1), add(2), RET]);
    let probes = [0, 4]
        .map(|offset| Kprobe::at(function + offset).pre(see_x0).at_most(Mode::Boosted).disabled().register().unwrap());
    let mut exhausted = Exhausted::new(&computer);
    exhausted.0.pop();
    let slots = memory().slots;
    let enable = || Registration::set_all_enabled(probes.iter().map(|probe| &**probe), true);
    assert_eq!(enable(), Err(ProbeError::OutOfMemory { address: function + 4 }));
    assert_eq!((text::read(function), text::read(function + 4), memory().slots), (add(1), add(2), slots));
    assert!(probes.iter().all(|probe| !probe.is_enabled()));
    exhausted.0.pop();
    enable().unwrap();
    assert_eq!((computer.call(function, 0), SEEN.load(Relaxed)), (3, 1));
}

/// There is memory for the points of all probes, but not for lists of all beside them.
#[test]
#[cfg_attr(miri, ignore = "it registers 500 probes")]
fn many_probes_are_armed_in_groups_where_there_is_no_memory_for_long_lists() {
    let mut computer = computer();
    let before = (memory().points, memory().slots, memory().stubs);
    // Simulated, so that no memory for code is taken that other tests would find free.
    let mut words = [NOP; FUNCTION];
    words[FUNCTION - 1] = RET;
    let functions: Vec<_> = (0..50).map(|number| computer.function(number, &words)).collect();
    let addresses = functions.iter().flat_map(|function| (0..FUNCTION - 1).map(move |index| function + 4 * index));
    let disabled = addresses.map(|address| Kprobe::at(address).at_most(Mode::Boosted).disabled());
    let outcomes = Kprobe::register_all(disabled).unwrap();
    let probes: Vec<Kprobe> = outcomes.into_iter().map(Result::unwrap).collect();
    let set = |enabled| Registration::set_all_enabled(probes.iter().map(|probe| &**probe), enabled);
    let free = allocated();
    set(true).unwrap();
    let armed = (allocated() - free) as usize;
    set(false).unwrap();
    assert_eq!(allocated(), free);
    // Addresses, and short lists; but a point and a word of the text, with an address each, take 7 words.
    let lists = 4 * probes.len() * size_of::<usize>();
    let holds = HOLDS.load(Relaxed);
    assert!(matches!(with_memory(4, || set(true)), Err(ProbeError::OutOfMemory { .. })));
    let holds = HOLDS.load(Relaxed) - holds;
    assert!(holds < 20, "every CPU is held {holds} times where nothing changes");
    with_bytes(armed + lists, || set(true)).unwrap();
    for &function in &functions {
        computer.call(function, 1);
    }
    assert!(probes.iter().all(|probe| probe.hits() == 1));
    drop(probes);
    assert_eq!((memory().points, memory().slots, memory().stubs), before);
}

/// Checked for every allocation at which memory may run out.
#[test]
fn what_there_is_no_memory_to_arm_is_as_it_was() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), RET]);
    let stays = Kprobe::at(function).pre(see_x0).at_most(Mode::Boosted).register().unwrap();
    let probes = [Kprobe::at(function).post(see_x0), Kprobe::at(function), Kprobe::at(function + 4).pre(see_x0)]
        .map(|probe| probe.disabled().register().unwrap());
    let state =
        || (mode(function), text::read(function + 4), memory().slots, probes.each_ref().map(|one| one.is_enabled()));
    let before = state();
    let arm = || Registration::set_all_enabled(probes.iter().map(|probe| &**probe), true);
    let mut times = 0;
    while let Err(error) = with_memory(times, arm) {
        assert!(matches!(error, ProbeError::OutOfMemory { .. }));
        let (found, hits) = (state(), stays.hits());
        // The remaining probe may keep a slot that suits all the probes, until there is memory for another slot.
        assert_eq!((found.1, found.2, found.3), (before.1, before.2, before.3));
        assert_eq!((computer.call(function, 1), SEEN.swap(0, Relaxed), stays.hits()), (4, 1, hits + 1));
        times += 1;
    }
    assert!(times > 6, "it asks for memory {times} times");
    assert_eq!((computer.call(function, 1), SEEN.load(Relaxed)), (4, 1 + 2 + 2));
}

#[test]
fn nothing_is_left_of_a_probe_that_is_gone() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let points = memory().points;
    for _ in 0..3 {
        let kprobe = Kprobe::at(function).pre(see_x0).register().unwrap();
        let kretprobe = Kretprobe::at(function).register().unwrap();
        assert_eq!(memory().points, points + 1);
        assert_eq!((kprobe.hits(), kprobe.missed(), kretprobe.hits(), kretprobe.missed()), (0, 0, 0, 0));
        computer.call(function, 0);
        assert_eq!((kprobe.hits(), kretprobe.hits()), (1, 1));
        drop((kprobe, kretprobe));
        assert_eq!(memory().points, points);
        // A CPU that had fetched the breakpoint takes it only now.
        let mut frame = TrapFrame { pc: function as u64, ..TrapFrame::default() };
        assert_eq!(hit::breakpoint(&mut frame), Breakpoint::Foreign);
    }
}

#[test]
fn a_slot_is_used_again_when_somebody_is_in_its_neighbours_only() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let slots = memory().slots;
    let probe = Kprobe::at(function).register().unwrap();
    computer.frame.pc = function as u64;
    computer.step();
    let slot = computer.frame.pc as usize;
    *INTERRUPTED.lock().unwrap() = vec![slot - 4, slot + 8];
    probe.unregister();
    INTERRUPTED.lock().unwrap().clear();
    assert_eq!(memory().slots, slots);
}

#[test]
fn of_slots_side_by_side_the_one_is_kept_that_somebody_is_in() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), add(2), add(4), RET]);
    let before = memory().slots;
    let outcomes = Kprobe::register_all([0, 4, 8].map(|offset| Kprobe::at(function + offset))).unwrap();
    let probes: Vec<Kprobe> = outcomes.into_iter().map(Result::unwrap).collect();
    let mut slots = [0, 4, 8].map(|offset| {
        computer.frame.pc = (function + offset) as u64;
        computer.step();
        computer.frame.pc as usize
    });
    slots.sort_unstable();
    // The first word of this slot follows the last word of the slot before it.
    INTERRUPTED.lock().unwrap().push(slots[1]);
    Kprobe::unregister_all(probes);
    assert_eq!(memory().slots, before + 1);
    // This slot is not reused meanwhile.
    let again = Kprobe::at(function).register().unwrap();
    computer.frame.pc = function as u64;
    computer.step();
    assert_ne!(computer.frame.pc as usize, slots[1]);
    INTERRUPTED.lock().unwrap().clear();
    drop(again);
    assert_eq!(memory().slots, before);
}

/// Address, kind, whether it is enabled, and hits of a probe.
type Registered = (usize, ProbeKind, bool, u64);

/// Returns the registered probes, which instructions of `function` are replaced, and the number of points.
///
/// Modes and words are left out: without memory for another slot, a remaining probe may keep one that suits all the
/// probes that were to be registered.
fn state(function: usize) -> (Vec<Registered>, [bool; 4], usize) {
    let all = list().unwrap().into_iter();
    let all = all.map(|ProbeInfo { address, kind, enabled, hits, .. }| (address, kind, enabled, hits)).collect();
    let is_armed = |address| Some(text::read(address)) != instruction(address);
    (all, [0, 4, 8, 12].map(|offset| is_armed(function + offset)), memory().points)
}

/// Runs `operation` without memory for each of its allocations in turn, checks that a failure changes nothing, and
/// returns the result of the run that succeeds. It must allocate more than twice.
fn each_fails<T>(function: usize, operation: impl FnMut() -> Result<T, ProbeError>) -> T {
    let before = state(function);
    let (result, allocations) = each_allocation(operation, |error| {
        assert_eq!(state(function), before);
        matches!(*error, ProbeError::OutOfMemory { address } if (function..function + 16).contains(&address))
    });
    assert!(allocations > 2, "{allocations}");
    result
}

/// Returns the first error among the outcomes, if there is one.
fn all_or_none<T>(
    outcomes: Result<Vec<Result<T, ProbeError>>, ProbeError>,
) -> Result<Vec<Result<T, ProbeError>>, ProbeError> {
    let outcomes = outcomes?;
    match outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
        Some(error) => Err(error.clone()),
        None => Ok(outcomes),
    }
}

#[test]
fn a_probe_without_memory_is_not_registered_whichever_allocation_fails() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), NOP, add(2), RET]);
    let mut kept = Vec::new();
    for builder in [
        Kprobe::at(function).pre(see_x0),
        // The second probe on an instruction allocates a list, and the third a longer one.
        Kprobe::at(function).pre(see_x0),
        Kprobe::at(function).pre(see_x0).post(see_x0),
        Kprobe::at(function + 4).pre(see_x0).at_most(Mode::Boosted),
        Kprobe::at(function + 8).pre(never).disabled(),
    ] {
        kept.push(each_fails(function, || builder.register()));
    }
    let returns = each_fails(function, || Kretprobe::at(function).data_words(3).maxactive(9).register());
    assert_eq!((computer.call(function, 1), returns.hits()), (4, 1));
    for probe in &kept {
        without_memory(|| probe.disable()).unwrap();
    }
    each_fails(function, || Registration::set_all_enabled(kept.iter().map(|probe| &**probe), true));
}

#[test]
fn many_probes_without_memory_are_not_registered_whichever_allocation_fails() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), NOP, add(2), RET]);
    let at = || [0, 4, 8, 12].map(|offset| Kprobe::at(function + offset).pre(see_x0));
    let kprobes = each_fails(function, || all_or_none(Kprobe::register_all(at())));
    let builders = || [3, 5].map(|calls| Kretprobe::at(function).maxactive(calls));
    let kretprobes = each_fails(function, || all_or_none(Kretprobe::register_all(builders())));
    assert_eq!((computer.call(function, 1), kprobes.len(), kretprobes.len()), (4, 4, 2));
    let hits =
        kprobes.iter().flatten().map(|probe| probe.hits()).chain(kretprobes.iter().flatten().map(|probe| probe.hits()));
    assert!(hits.eq([1; 6]));
    let probes = || kprobes.iter().flatten().map(|probe| &**probe);
    without_memory(|| probes().try_for_each(|probe| probe.disable())).unwrap();
    each_fails(function, || Registration::set_all_enabled(probes(), true));
    let (all, allocations) = each_allocation(list, |_| true);
    assert!(all.len() == 6 && allocations > 0);
}

/// A load-exclusive, an instruction within the sequence, and its store-exclusive.
const SEQUENCE: [u32; 4] = [0xc85f_7c20, add(1), 0xc802_7c20, RET];

#[test]
fn what_is_checked_without_memory_is_not_taken_for_known() {
    let computer = computer();
    let function = computer.function(0, &SEQUENCE);
    let inside = function + 4;
    let wrong = Err(ProbeError::Exclusive { address: inside, load: function });
    let mut failures = 0;
    for allocations in 0.. {
        let mut checker = Checker::new();
        let first = with_memory(allocations, || checker.check(inside).map(|_| ()));
        assert_eq!(checker.check(inside).map(|_| ()), wrong, "the check after it");
        if first == wrong {
            break;
        }
        assert_eq!(first, Err(ProbeError::OutOfMemory { address: inside }));
        failures += 1;
    }
    assert!(failures > 4);
}
