//! The functions of `functions.S`: their results, and the number of executions by their own counts.

use core::slice;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runtime::per_cpu::MAX_CPUS;
use runtime::task;

use kprobes_random::Random;

core::arch::global_asm!(include_str!("functions.S"));

/// The probes that a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Probes that stay, and others in addition.
    Steady,
    /// Only probes that come and go.
    Loose,
}

/// The number of stretches that count their executions.
pub const COUNTERS: usize = 13;
/// The number of tasks that call the functions at a time.
pub const WORKERS: usize = 12;

/// The number of executions of each stretch, for one caller.
#[repr(C, align(64))]
pub struct Counters([AtomicU64; COUNTERS]);

/// The counters of each group: one element for each worker, followed by one for the handlers of each CPU, which do not
/// interrupt each other.
static ALL: [[Counters; WORKERS + MAX_CPUS]; 2] =
    [const { [const { Counters([const { AtomicU64::new(0) }; COUNTERS]) }; WORKERS + MAX_CPUS] }; 2];

/// A function.
pub struct Function {
    pub name: &'static str,
    pub group: Group,
    code: unsafe extern "C" fn(u64, *const Counters) -> u64,
    /// Converts random bits to an argument.
    argument: fn(u64) -> u64,
    /// Returns the expected result.
    pub answer: fn(u64) -> u64,
    /// The number of the counter of its calls.
    pub calls: usize,
}

/// An instruction to probe.
#[derive(Clone, Copy)]
pub struct ProbePlace {
    /// The virtual address of the instruction.
    pub address: usize,
    pub group: Group,
    /// The number of the counter of its stretch.
    pub counter: usize,
}

fn plain(argument: u64) -> u64 {
    (argument ^ 0xff).wrapping_add(7)
}

/// The actions of [`storm_pause`], selected by the low bits of its argument.
const YIELD: u64 = 1;
const SPIN: u64 = 2;
const EXIT: u64 = 3;

/// Called in the middle of `pause`. The task may continue on another CPU, or not at all.
#[unsafe(no_mangle)]
extern "C" fn storm_pause(argument: u64) -> u64 {
    match argument & 3 {
        YIELD => task::yield_now(),
        SPIN => (0..100).for_each(|turn| _ = core::hint::black_box(turn)),
        // SAFETY: the functions of the task own only values that may be forgotten.
        EXIT => unsafe { task::exit() },
        _ => {}
    }
    argument
}

macro_rules! functions {
    ($($name:literal $steady:ident $loose:ident $calls:literal $argument:expr, $answer:expr;)*) => {
        unsafe extern "C" {
            $(fn $steady(argument: u64, counters: *const Counters) -> u64;
            fn $loose(argument: u64, counters: *const Counters) -> u64;)*
        }
        /// All functions of both groups.
        pub static FUNCTIONS: &[Function] = &[
            $(Function {
                name: $name, group: Group::Steady, code: $steady, argument: $argument, answer: $answer, calls: $calls,
            },
            Function {
                name: $name, group: Group::Loose, code: $loose, argument: $argument, answer: $answer, calls: $calls,
            },)*
        ];
    };
}

functions! {
    "plain" storm_plain_steady storm_plain_loose 0 |bits| bits, plain;
    "turn" storm_turn_steady storm_turn_loose 1 |bits| bits, |argument| {
        let turns = (argument & 7) + 1;
        argument.wrapping_add(turns * (turns + 1) / 2)
    };
    "nest" storm_nest_steady storm_nest_loose 3 |bits| bits, |argument| plain(argument).wrapping_add(1);
    "tail" storm_tail_steady storm_tail_loose 5 |bits| bits, |argument| plain(argument.wrapping_add(2));
    "recurse" storm_recurse_steady storm_recurse_loose 6 |bits| bits % 6, |argument| argument * 3;
    "pause" storm_pause_steady storm_pause_loose 9 pause_argument, |argument| argument + 5;
    "cross" storm_cross_steady storm_cross_loose 11 pause_argument, |argument| argument + 11;
}

/// Returns an argument with which the call returns.
fn pause_argument(bits: u64) -> u64 {
    (bits >> 8 << 2) | [0, 0, YIELD, SPIN][bits as usize & 3]
}

impl Function {
    /// Returns the function with this name.
    pub fn named(name: &str, group: Group) -> &'static Self {
        let found = FUNCTIONS.iter().find(|function| function.name == name && function.group == group);
        found.expect("there is such a function")
    }

    /// Returns the virtual address of the first instruction.
    pub fn address(&self) -> usize {
        self.code as usize
    }

    fn call(&self, argument: u64, caller: usize) -> u64 {
        // SAFETY: the function only changes the counters that it is given, which nothing else changes meanwhile.
        unsafe { (self.code)(argument, &ALL[self.group as usize][caller]) }
    }

    /// Calls the function for the worker with this number. Returns whether the answer is right.
    pub fn is_right(&self, sequence: &mut Random, worker: usize) -> bool {
        let argument = (self.argument)(sequence.next());
        self.call(argument, worker) == (self.answer)(argument)
    }

    /// Calls the function in a handler. Returns whether the answer is right.
    pub fn is_right_in_handler(&self, argument: u64) -> bool {
        self.call(argument, WORKERS + task::current_cpu()) == (self.answer)(argument)
    }

    /// Calls `pause` or `cross` for the worker with this number, which ends the task in the middle of the call.
    pub fn exit_inside(&self, worker: usize) -> ! {
        let answer = self.call(EXIT, worker);
        unreachable!("a task that has exited went on, with {answer}");
    }
}

/// Returns the number of executions of a stretch.
pub fn executed(group: Group, counter: usize) -> u64 {
    ALL[group as usize].iter().map(|counters| counters.0[counter].load(Relaxed)).sum()
}

/// Returns all instructions to probe.
pub fn places(group: Group) -> impl Iterator<Item = ProbePlace> {
    unsafe extern "C" {
        safe static storm_places_steady: [usize; 2];
        safe static storm_places_steady_end: [usize; 2];
        safe static storm_places_loose: [usize; 2];
        safe static storm_places_loose_end: [usize; 2];
    }
    let (start, end) = match group {
        Group::Steady => (&raw const storm_places_steady, &raw const storm_places_steady_end),
        Group::Loose => (&raw const storm_places_loose, &raw const storm_places_loose_end),
    };
    // SAFETY: between the two symbols, `functions.S` has an address and a number for each place.
    let table = unsafe { slice::from_raw_parts(start, end.offset_from_unsigned(start)) };
    table.iter().map(move |&[address, counter]| ProbePlace { address, group, counter })
}
