//! The functions of `functions.S`: what they compute, and how often they have been executed by their own count.

use core::slice;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runtime::per_cpu::MAX_CPUS;
use runtime::task;

use crate::random::sequence::Sequence;

core::arch::global_asm!(include_str!("functions.S"));

/// Which probes a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Those that stay, and others beside them.
    Steady,
    /// Only those that come and go.
    Loose,
}

/// How many stretches count themselves.
pub const COUNTERS: usize = 13;
/// Tasks that call the functions at a time.
pub const WORKERS: usize = 12;

/// How often each stretch was executed, for one caller.
#[repr(C, align(64))]
pub struct Counters([AtomicU64; COUNTERS]);

/// One for each worker, and behind them one for the handlers on each CPU: those do not interrupt each other. For each
/// group.
static ALL: [[Counters; WORKERS + MAX_CPUS]; 2] =
    [const { [const { Counters([const { AtomicU64::new(0) }; COUNTERS]) }; WORKERS + MAX_CPUS] }; 2];

/// A function.
pub struct Function {
    pub name: &'static str,
    pub group: Group,
    code: unsafe extern "C" fn(u64, *const Counters) -> u64,
    /// Makes an argument of random bits.
    argument: fn(u64) -> u64,
    /// What it returns.
    pub answer: fn(u64) -> u64,
    /// The number of the counter of its calls.
    pub calls: usize,
}

/// An instruction that probes are put on.
#[derive(Clone, Copy)]
pub struct Place {
    /// Its virtual address.
    pub address: usize,
    pub group: Group,
    /// The number of the counter of its stretch.
    pub counter: usize,
}

fn plain(argument: u64) -> u64 {
    (argument ^ 0xff).wrapping_add(7)
}

/// What [`storm_pause`] does, by the low bits of its argument.
const YIELD: u64 = 1;
const SPIN: u64 = 2;
const EXIT: u64 = 3;

/// Called in the middle of `pause`: the task may go on on another CPU, or not at all.
#[unsafe(no_mangle)]
extern "C" fn storm_pause(argument: u64) -> u64 {
    match argument & 3 {
        YIELD => task::yield_now(),
        SPIN => (0..100).for_each(|turn| _ = core::hint::black_box(turn)),
        EXIT => task::exit(),
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
        /// All of both groups.
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

/// With which the call returns.
fn pause_argument(bits: u64) -> u64 {
    (bits >> 8 << 2) | [0, 0, YIELD, SPIN][bits as usize & 3]
}

impl Function {
    /// The function of this name.
    pub fn named(name: &str, group: Group) -> &'static Self {
        let found = FUNCTIONS.iter().find(|function| function.name == name && function.group == group);
        found.expect("there is such a function")
    }

    /// The virtual address of its first instruction.
    pub fn address(&self) -> usize {
        self.code as usize
    }

    fn call(&self, argument: u64, caller: usize) -> u64 {
        // SAFETY: the function counts in what it is given, which nothing else does meanwhile, and touches nothing else.
        unsafe { (self.code)(argument, &ALL[self.group as usize][caller]) }
    }

    /// Calls the function for the worker with this number; whether the answer is right.
    pub fn is_right(&self, sequence: &mut Sequence, worker: usize) -> bool {
        let argument = (self.argument)(sequence.next());
        self.call(argument, worker) == (self.answer)(argument)
    }

    /// The same, in a handler.
    pub fn is_right_in_handler(&self, argument: u64) -> bool {
        self.call(argument, WORKERS + task::current_cpu()) == (self.answer)(argument)
    }

    /// Calls `pause` or `cross` for the worker with this number, and ends the task in the middle of the call.
    pub fn exit_inside(&self, worker: usize) -> ! {
        let answer = self.call(EXIT, worker);
        unreachable!("a task that has exited went on, with {answer}");
    }
}

/// How often a stretch was executed.
pub fn executed(group: Group, counter: usize) -> u64 {
    ALL[group as usize].iter().map(|counters| counters.0[counter].load(Relaxed)).sum()
}

/// All instructions that probes are put on.
pub fn places(group: Group) -> impl Iterator<Item = Place> {
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
    // SAFETY: `functions.S` has an address and a number for each place between the two.
    let table = unsafe { slice::from_raw_parts(start, end.offset_from_unsigned(start)) };
    table.iter().map(move |&[address, counter]| Place { address, group, counter })
}
