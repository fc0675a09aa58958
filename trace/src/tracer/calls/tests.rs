//! The depths of calls, against those of made-up executions of which each CPU has kept only the newest records.

use alloc::vec::Vec;
use core::ops::Range;

use fallible::failing::each_allocation;
use kprobes_random::Random;
use kprobes_random::tried::tried;

use super::*;
use crate::recorder::{GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT};
use crate::tracer::graph;
use crate::tracer::tests::{ALLOC, GETNAME, IRQ, Made, Names, OPEN, SCHEDULE, TRAMPOLINE, numbered};

const CPUS: usize = 3;
/// The stack pointer of all tasks at their beginning.
const STACKS: u64 = 0x8000;
const EXECUTIONS: u64 = 1_500;

/// A call of an execution.
#[derive(Debug)]
struct Truth {
    task: Key,
    function: u64,
    stack: u64,
    /// The bytes of stack that the call has taken when it calls others.
    frame: u64,
    address: u64,
    is_tail: bool,
    /// The numbers of its entry and its return.
    entry: usize,
    back: usize,
}

/// A record of an execution.
#[derive(Clone, Debug)]
struct Event {
    made: Made,
    call: usize,
    is_entry: bool,
}

/// The calls and records of tasks that move between CPUs.
#[derive(Debug, Default)]
struct Execution {
    calls: Vec<Truth>,
    events: Vec<Event>,
}

/// A task of an execution, with its calls, outermost first.
struct Running {
    number: u32,
    cpu: usize,
    open: Vec<usize>,
}

impl Execution {
    fn new(random: &mut Random) -> Self {
        let mut execution = Self::default();
        let idle = (0..CPUS).map(|cpu| Running { number: 0, cpu, open: Vec::new() });
        let others = (1..=random.below(3_u32)).map(|number| Running { number, cpu: 0, open: Vec::new() });
        let mut tasks: Vec<_> = idle.chain(others).collect();
        for _ in 0..20 + random.below(200) {
            let number = random.below(tasks.len());
            let task = &mut tasks[number];
            if task.number != 0 && random.one_in(6) {
                task.cpu = random.below(CPUS);
            }
            match task.open.last().copied() {
                Some(last) if random.one_in(6) => execution.end_in(task, last),
                Some(_) if task.open.len() > 6 || random.one_in(2) => execution.leave(task),
                last => execution.enter(random, task, last),
            }
        }
        execution
    }

    fn enter(&mut self, random: &mut Random, task: &mut Running, last: Option<usize>) {
        let is_interrupt = random.one_in(12);
        // Code that is not traced may have taken more.
        let between = if random.one_in(4) { 0x10 * random.below(4) } else { 0 };
        let below = last.map_or(STACKS, |last| self.calls[last].stack - self.calls[last].frame);
        let stack = below - between - if is_interrupt { 0x110 } else { 0 };
        let function = if is_interrupt { IRQ } else { random.of(&[OPEN, GETNAME, ALLOC, SCHEDULE]) };
        let frame = 0x10 * (1 + random.below(3));
        // Each place in the code calls once.
        let address = 0x10_0000 + 4 * self.calls.len() as u64;
        self.begin(task, function, stack, frame, address, false);
    }

    /// Ends the call `last` in another function.
    fn end_in(&mut self, task: &mut Running, last: usize) {
        let Truth { stack, frame, address, .. } = self.calls[last];
        // No other call has the function: from the record of a tail call its return address is not known, so it can be
        // taken for another call of that function with the same stack pointer.
        let function = 0x20_0000 + 4 * self.calls.len() as u64;
        self.begin(task, function, stack, frame, address, true);
    }

    fn begin(&mut self, task: &mut Running, function: u64, stack: u64, frame: u64, address: u64, is_tail: bool) {
        let (call, entry) = (self.calls.len(), self.events.len());
        let parent = if is_tail { TRAMPOLINE } else { address };
        self.record(task, GRAPH_ENTRY_EVENT, [function, parent, stack], call);
        let key = (task.number, if task.number == 0 { task.cpu } else { 0 });
        self.calls.push(Truth { task: key, function, stack, frame, address, is_tail, entry, back: usize::MAX });
        task.open.push(call);
    }

    /// Returns from the innermost call, and from all that have ended in it.
    fn leave(&mut self, task: &mut Running) {
        while let Some(call) = task.open.pop() {
            let Truth { function, stack, address, is_tail, .. } = self.calls[call];
            self.calls[call].back = self.events.len();
            self.record(task, GRAPH_RETURN_EVENT, [function, address, stack], call);
            if !is_tail {
                break;
            }
        }
    }

    fn record(&mut self, task: &Running, event: u16, words: [u64; 3], call: usize) {
        let made = Made::new(event, task.number, self.events.len() as u64, &words).on(task.cpu);
        self.events.push(Event { made, call, is_entry: event == GRAPH_ENTRY_EVENT });
    }

    /// Returns which records the CPUs have kept: the newest of each.
    fn kept(&self, random: &mut Random) -> Vec<bool> {
        let mut kept = Vec::from_iter(self.events.iter().map(|_| true));
        for cpu in 0..CPUS {
            let of_cpu = |number: &usize| self.events[*number].made.cpu == cpu;
            let numbers: Vec<usize> = (0..kept.len()).filter(of_cpu).collect();
            let mut dropped = if random.one_in(3) { 0 } else { random.below(numbers.len() + 1) };
            // Rows that a ring has cut are left out: the outer call then begins after its tail call.
            let is_in_row = |number: usize| {
                let Event { call, is_entry, .. } = self.events[number];
                !is_entry && self.calls[call].is_tail
            };
            while dropped > 0 && is_in_row(numbers[dropped - 1]) {
                dropped += 1;
            }
            numbers[..dropped].iter().for_each(|&number| kept[number] = false);
        }
        kept
    }

    /// Returns, for each call, the numbers of the records that it is shown around, as far as the records that were
    /// `kept` tell. A call without records has none. A call without an entry begins after the last record that cannot
    /// be in it. A call without a return ends with the first record that cannot be in it, or with the beginning of a
    /// call that cannot.
    fn known(&self, kept: &[bool]) -> Vec<Range<usize>> {
        let has = |number: usize| kept.get(number).is_some_and(|kept| *kept);
        let of_task = |task: Key| {
            let is_kept = move |number: &usize| has(*number) && self.calls[self.events[*number].call].task == task;
            (0..self.events.len()).filter(is_kept)
        };
        let begin = |call: &Truth| match has(call.entry) {
            true => call.entry + 1,
            // These were not in the call.
            false => of_task(call.task)
                .take_while(|&number| number < call.entry)
                .filter(|&number| self.calls[self.events[number].call].stack >= call.stack)
                .last()
                .map_or(0, |number| number + 1),
        };
        let has_no_entry = |call: &Truth| !has(call.entry) && has(call.back);
        let end = |call: &Truth| {
            let is_after = |number: &usize| {
                let Event { call: other, is_entry, .. } = self.events[*number];
                let other = &self.calls[other];
                let is_same = is_entry && !other.is_tail && other.stack == call.stack;
                *number > call.entry && (other.stack > call.stack || is_same)
            };
            let by_record = of_task(call.task).find(is_after).unwrap_or(usize::MAX);
            let others = self.calls.iter().filter(|other| other.task == call.task && other.stack >= call.stack);
            let by_call =
                others.filter(|other| has_no_entry(other)).map(begin).filter(|begin| *begin > call.entry).min();
            by_record.min(by_call.unwrap_or(usize::MAX))
        };
        let range = |call: &Truth| match (has(call.entry), has(call.back)) {
            (false, false) => 0..0,
            (_, true) => begin(call)..call.back,
            (true, false) => begin(call)..end(call),
        };
        self.calls.iter().map(range).collect()
    }
}

/// Returns the depth of the calls of all records.
fn depths(records: &[Made]) -> Vec<usize> {
    let mut calls = Calls::before(numbered(records), |record| graph::call_record(record, &Names)).unwrap();
    let depths = numbered(records).map(|record| follow(&mut calls, &record).unwrap().depth).collect();
    assert!(calls.unrecorded.is_empty(), "{:?} have not begun", calls.unrecorded);
    depths
}

/// Follows `record`, which must close a call if it is a return.
fn follow(calls: &mut Calls, record: &Record<'_>) -> Result<Transition, OutOfMemory> {
    calls.reach(record)?;
    match graph::call_record(record, &Names).unwrap() {
        CallRecord::Entry(entry) => {
            let transition = calls.enter(record, entry);
            calls.has_entered(record, entry, transition)?;
            Ok(transition)
        }
        CallRecord::Return => {
            let transition = calls.leave(record);
            let open = &calls.tasks.find(record).unwrap().open;
            assert!(open[transition.depth].identity.is_of_return(record), "{record:?} closes nothing");
            calls.has_left(record, transition)?;
            Ok(transition)
        }
    }
}

#[test]
fn depths_are_those_of_the_calls_that_are_known() {
    let (mut records, mut other) = (0_u64, 0_u64);
    for seed in tried(0..EXECUTIONS) {
        let mut random = Random::new(seed);
        let execution = Execution::new(&mut random);
        let kept = execution.kept(&mut random);
        let known = execution.known(&kept);
        let of_kept: Vec<_> = (0..kept.len()).filter(|&number| kept[number]).collect();
        let made: Vec<_> = of_kept.iter().map(|&number| execution.events[number].made.clone()).collect();
        let found = depths(&made);
        for (&number, depth) in of_kept.iter().zip(found) {
            let call = execution.events[number].call;
            let others = || {
                let of_task = |at: &usize| *at != call && execution.calls[*at].task == execution.calls[call].task;
                (0..execution.calls.len()).filter(of_task)
            };
            let expected = others().filter(|&at| known[at].contains(&number)).count();
            assert_eq!(depth, expected, "seed {seed}, record {number}");
            // The true depth, without the calls that have no record.
            let is_around = |at: &usize| {
                let Truth { entry, back, .. } = execution.calls[*at];
                !known[*at].is_empty() && (entry..back).contains(&number)
            };
            records += 1;
            other += u64::from(others().filter(is_around).count() != depth);
        }
    }
    let is_whole = cfg!(miri) || records > 40 * EXECUTIONS;
    assert!(is_whole && 20 * other < records, "{other} of {records} depths are not the true ones");
}

/// Returns `count` records of few functions and stack pointers, which no execution makes.
fn anything(random: &mut Random, count: usize, tasks: u32) -> Vec<Made> {
    let record = |time| {
        let event = random.of(&[GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT]);
        let parent = random.of(&[TRAMPOLINE, 0x10_0000, 0x10_0004]);
        let words = [random.of(&[OPEN, GETNAME, IRQ]), parent, 0x10 * random.below(4)];
        Made::new(event, random.below(tasks), time as u64, &words).on(random.below(2))
    };
    (0..count).map(record).collect()
}

#[test]
fn every_return_closes_a_call_whatever_was_recorded() {
    let few = (0..4 * EXECUTIONS).map(|seed| (seed, 16, 2));
    // More tasks than are kept.
    let many = (0..EXECUTIONS / 250).map(|seed| (seed, 5000, 2 * TASKS as u32));
    for (seed, count, tasks) in tried(few.chain(many)) {
        depths(&anything(&mut Random::new(seed), count, tasks));
    }
}

#[test]
fn calls_before_records_that_are_not_followed_are_dropped() {
    for seed in tried(0..EXECUTIONS) {
        let mut random = Random::new(seed);
        let records = anything(&mut random, 16, 2);
        let mut calls = Calls::before(numbered(&records), |record| graph::call_record(record, &Names)).unwrap();
        let first = random.below(records.len());
        for record in numbered(&records).skip(first) {
            calls.reach(&record).unwrap();
            let transition = match graph::call_record(&record, &Names).unwrap() {
                CallRecord::Entry(entry) => {
                    let transition = calls.enter(&record, entry);
                    calls.has_entered(&record, entry, transition).unwrap();
                    transition
                }
                CallRecord::Return => {
                    let transition = calls.leave(&record);
                    calls.has_left(&record, transition).unwrap();
                    transition
                }
            };
            assert!(transition.depth <= records.len(), "seed {seed}");
        }
        assert!(calls.unrecorded.is_empty(), "seed {seed}");
    }
}

#[test]
fn records_are_followed_after_there_was_no_memory() {
    for seed in tried(0..8) {
        let mut random = Random::new(seed);
        let execution = Execution::new(&mut random);
        let kept = execution.kept(&mut random);
        let events = execution.events.iter().zip(&kept);
        let records: Vec<_> = events.filter(|(_, kept)| **kept).map(|(event, _)| event.made.clone()).collect();
        let expected = depths(&records);
        let before = || Calls::before(numbered(&records), |record| graph::call_record(record, &Names));
        let (mut calls, allocations) = each_allocation(before, |error| *error == OutOfMemory);
        assert!(allocations > 0);
        for (record, expected) in numbered(&records).zip(expected) {
            let (transition, _) = each_allocation(|| follow(&mut calls, &record), |error| *error == OutOfMemory);
            assert_eq!(transition.depth, expected, "seed {seed}");
        }
    }
}
