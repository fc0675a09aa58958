//! The handlers of the storm, and their records: the probes for which they were called, and violations of the rules.
//!
//! A probe has a watch for as long as it is registered, and the watch has a generation for each probe. A handler that
//! is called for an unregistered probe finds another generation.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::probe::CallArguments;
use aarch64_kprobes::{Call, Decision, Hit};
use runtime::task;

use super::functions::{FUNCTIONS, Function, Group};

/// The maximum number of probes at a time.
const WATCHES: usize = 256;
/// The handlers of some probes call a probed function, each at one of this many hits.
const SELDOM: u64 = 16;

/// The records for one probe.
pub struct Watch {
    /// The generation; 0 while there is no probe.
    generation: AtomicU64,
    is_armed: AtomicBool,
    /// The number of calls of the handler before the instruction, or at the entry.
    before: AtomicU64,
    /// The number of calls of the handler after the instruction, or at the return.
    after: AtomicU64,
}

static ALL: [Watch; WATCHES] = [const {
    Watch {
        generation: AtomicU64::new(0),
        is_armed: AtomicBool::new(false),
        before: AtomicU64::new(0),
        after: AtomicU64::new(0),
    }
}; WATCHES];

/// The number of violations of each rule.
#[derive(Default, Debug)]
pub struct Offences {
    /// Calls of handlers of unregistered probes.
    unregistered: AtomicU64,
    /// Calls of handlers of disarmed probes.
    disarmed: AtomicU64,
    /// Returns that were reported for another call.
    crossed: AtomicU64,
    /// Wrong answers of functions that handlers called.
    wrong: AtomicU64,
}

pub static OFFENCES: Offences = Offences {
    unregistered: AtomicU64::new(0),
    disarmed: AtomicU64::new(0),
    crossed: AtomicU64::new(0),
    wrong: AtomicU64::new(0),
};

impl Offences {
    /// Panics if there was a violation.
    pub fn check(&self) {
        let all = [&self.unregistered, &self.disarmed, &self.crossed, &self.wrong];
        assert!(all.iter().all(|count| count.load(Relaxed) == 0), "{self:?}");
    }
}

impl Watch {
    /// Starts to watch a probe, with the watch of this number. Returns the data to register the probe with.
    pub fn begin(number: usize, is_armed: bool) -> usize {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let watch = &ALL[number];
        let generation = GENERATION.fetch_add(1, Relaxed);
        watch.before.store(0, Relaxed);
        watch.after.store(0, Relaxed);
        watch.is_armed.store(is_armed, Relaxed);
        assert_eq!(watch.generation.swap(generation, Relaxed), 0);
        number | (generation as usize) << 8
    }

    /// Returns the watch with this number.
    pub fn of(number: usize) -> &'static Self {
        &ALL[number]
    }

    /// Records that the probe has been unregistered.
    pub fn end(&self) {
        self.generation.store(0, Relaxed);
    }

    /// Records that the probe is about to be armed, or has been disarmed.
    pub fn set_armed(&self, is_armed: bool) {
        self.is_armed.store(is_armed, Relaxed);
    }

    /// Returns the number of calls of its handlers, before and after.
    pub fn calls(&self) -> (u64, u64) {
        (self.before.load(Relaxed), self.after.load(Relaxed))
    }
}

/// Returns the watch of the probe whose handler was called with `data`.
fn watch(data: usize) -> &'static Watch {
    let watch = &ALL[data & (WATCHES - 1)];
    if watch.generation.load(Relaxed) != (data >> 8) as u64 {
        OFFENCES.unregistered.fetch_add(1, Relaxed);
    }
    watch
}

/// Returns the watch of a probe whose handler must not be called once the probe is disarmed.
fn armed_watch(data: usize) -> &'static Watch {
    let watch = watch(data);
    if !watch.is_armed.load(Relaxed) {
        OFFENCES.disarmed.fetch_add(1, Relaxed);
    }
    watch
}

/// A handler before the instruction.
pub extern "C" fn before(hit: &mut Hit<'_>) {
    armed_watch(hit.data()).before.fetch_add(1, Relaxed);
}

/// A handler before the instruction that sees what a call passes, where the instruction is the first of a function.
pub extern "C" fn at_entry(call: &CallArguments) {
    armed_watch(call.data()).before.fetch_add(1, Relaxed);
}

/// A handler before the instruction that sometimes hits probes itself.
pub extern "C" fn before_with_calls(hit: &mut Hit<'_>) {
    let calls = armed_watch(hit.data()).before.fetch_add(1, Relaxed);
    if calls.is_multiple_of(SELDOM) && !Function::named("nest", Group::Steady).is_right_in_handler(calls) {
        OFFENCES.wrong.fetch_add(1, Relaxed);
    }
}

/// A handler after the instruction.
pub extern "C" fn after(hit: &mut Hit<'_>) {
    armed_watch(hit.data()).after.fetch_add(1, Relaxed);
}

/// The number of words of private data of a call.
pub const DATA_WORDS: usize = 2;

/// A handler at the entry.
pub extern "C" fn entry(call: &mut Call<'_>) -> Decision {
    armed_watch(call.data()).before.fetch_add(1, Relaxed);
    let argument = call.frame().x[0];
    call.instance_data_mut().copy_from_slice(&[argument, task::current_task_number()]);
    Decision::Follow
}

/// A handler at the return.
pub extern "C" fn returned(call: &mut Call<'_>) {
    watch(call.data()).after.fetch_add(1, Relaxed);
    let address = call.function();
    let function = FUNCTIONS.iter().find(|function| function.address() == address);
    let result = call.return_value();
    let &[argument, task] = call.instance_data() else { return };
    if task != task::current_task_number() || function.is_none_or(|function| (function.answer)(argument) != result) {
        OFFENCES.crossed.fetch_add(1, Relaxed);
    }
}
