//! Rust values: a program prints an argument and a return value as Rust's own `{:?}` does.
#![expect(dead_code, reason = "only programs and `Debug`, which the lint ignores, read the fields")]

use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt::Debug;
use core::hint::black_box;
use core::num::{NonZero, Wrapping};
use core::pin::Pin;
use core::sync::atomic::AtomicU32;

use kprobes_console::program::RunningProgram;
use kprobes_console::symbol;

use crate::programs::{finished, sentence};
use crate::test;

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Busy = 5,
    Gone = -3,
}

#[derive(Clone, Debug)]
struct Small {
    a: u32,
    b: u64,
}

#[derive(Clone, Debug)]
struct Large {
    number: u8,
    state: State,
    name: &'static str,
    small: Small,
    counts: [u16; 3],
}

#[derive(Clone, Debug)]
struct Meters(u32);

#[derive(Clone, Debug)]
struct Wrapped(Meters);

#[derive(Clone, Debug)]
enum Message {
    Quit,
    Move { x: i32, y: i32 },
    Write(String),
    Color(u8, u8, u8),
}

#[derive(Clone, Debug)]
enum Niche {
    Text(String),
    Empty,
    Other,
}

#[derive(Clone, Debug)]
struct Generic<T> {
    value: T,
    more: Option<T>,
}

#[derive(Clone, Debug)]
struct List {
    value: u32,
    next: Option<Box<List>>,
}

#[derive(Clone, Debug)]
#[repr(C)]
struct Foreign {
    kind: u16,
    length: u64,
}

#[derive(Clone, Debug)]
struct Nothing;

/// A value beside another field, as in a mutex.
#[derive(Debug)]
struct Guarded<T: ?Sized> {
    holder: u32,
    value: T,
}

static NUMBER: u32 = 77;
static HEADER: Small = Small { a: 1, b: 2 };

/// Returns what a program prints for the argument and the return value of a `function` of this module, during `call`,
/// if it differs from `expected`.
fn difference<T>(function: &str, expected: &str, call: impl FnOnce() -> T) -> Option<String> {
    let path = format!("tests::typed::{function}");
    let text = format!("kprobe:{path} {{ print(args.value); }} kretprobe:{path} {{ print(retval); }}");
    let out = match RunningProgram::start(&text) {
        Ok(program) => {
            black_box(call());
            finished(program)
        }
        Err(refusal) => sentence(&text, &refusal),
    };
    (out != format!("{expected}\n{expected}\n")).then(|| format!("{function}: {expected}, and not {out}"))
}

/// Defines for each value a function that takes and returns it, and a test that compares its text with that of `{:?}`.
macro_rules! values {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        mod functions {
            use super::*;

            // The name in the body keeps the compiler from merging equal functions.
            $(#[inline(never)]
            pub fn $name(value: $type, count: u64) -> $type {
                black_box((stringify!($name), count));
                black_box(value)
            })*
        }

        /// The number of values.
        const VALUES: usize = [$(stringify!($name)),*].len();

        test!(
            fn values_are_printed_as_debug_does() {
                assert!(VALUES >= 60, "{VALUES}");
                let mut differences = Vec::new();
                $({
                    let value: $type = $value;
                    let expected = shown(&value);
                    differences.extend(difference(concat!("functions::", stringify!($name)), &expected, || functions::$name(black_box(value), black_box(1))));
                })*
                assert!(differences.is_empty(), "{}", differences.concat());
            }
        );
    };
}

/// Functions that take and return pointers which are shown as addresses.
mod addresses {
    use super::*;

    #[inline(never)]
    pub fn guarded(value: &'static Guarded<dyn Debug>, count: u64) -> &'static Guarded<dyn Debug> {
        black_box(("guarded", count));
        black_box(value)
    }

    #[inline(never)]
    pub fn counted(value: Rc<dyn Debug>, count: u64) -> Rc<dyn Debug> {
        black_box(("counted", count));
        black_box(value)
    }

    #[inline(never)]
    pub fn shared(value: Arc<dyn Debug>, count: u64) -> Arc<dyn Debug> {
        black_box(("shared", count));
        black_box(value)
    }

    #[inline(never)]
    pub fn shared_text(value: Arc<str>, count: u64) -> Arc<str> {
        black_box(("shared_text", count));
        black_box(value)
    }
}

test!(
    fn pointers_to_values_of_unknown_alignment_are_printed_as_addresses() {
        // The counts are two words before the value.
        let counts = |value: *const ()| value.addr() - 16;
        static GUARDED: Guarded<Small> = Guarded { holder: 3, value: Small { a: 1, b: 2 } };
        let guarded: &'static Guarded<dyn Debug> = &GUARDED;
        let (counted, shared): (Rc<dyn Debug>, Arc<dyn Debug>) = (Rc::new(NUMBER), Arc::new(NUMBER));
        let text: Arc<str> = "text".into();
        let expected = [
            format!("<&Guarded<dyn Debug> at {:#x}>", (&raw const GUARDED).addr()),
            format!("<Rc<dyn Debug> at {:#x}>", counts(Rc::as_ptr(&counted).cast())),
            format!("<Arc<dyn Debug> at {:#x}>", counts(Arc::as_ptr(&shared).cast())),
            format!("<Arc<str> at {:#x}>", counts(Arc::as_ptr(&text).cast())),
        ];
        let differences = [
            difference("addresses::guarded", &expected[0], || addresses::guarded(black_box(guarded), black_box(1))),
            difference("addresses::counted", &expected[1], || addresses::counted(black_box(counted), black_box(1))),
            difference("addresses::shared", &expected[2], || addresses::shared(black_box(shared), black_box(1))),
            difference("addresses::shared_text", &expected[3], || {
                addresses::shared_text(black_box(text), black_box(1))
            }),
        ];
        let differences: Vec<String> = differences.into_iter().flatten().collect();
        assert!(differences.is_empty(), "{}", differences.concat());
    }
);

fn shown(value: &impl Debug) -> String {
    format!("{value:?}")
}

values! {
    byte: u8 = 200;
    signed_byte: i8 = -100;
    short: u16 = 60_000;
    signed_short: i16 = -30_000;
    word: u32 = 4_000_000_000;
    signed_word: i32 = -2_000_000_000;
    long: u64 = u64::MAX;
    signed_long: i64 = i64::MIN;
    size: usize = 1 << 40;
    signed_size: isize = -1;
    wide: u128 = u128::MAX - 1;
    signed_wide: i128 = -5;
    yes: bool = true;
    no: bool = false;
    letter: char = 'ß';
    quote: char = '\'';
    newline: char = '\n';
    text: &'static str = "it's \"quoted\"\n";
    empty_text: &'static str = "";
    unicode: &'static str = "größer …";
    string: String = "owned".to_string();
    boxed_text: Box<str> = "boxed".into();
    slice: &'static [u16] = &[1, 2, 3];
    empty_slice: &'static [u64] = &[];
    structs: &'static [Small] = &[Small { a: 1, b: 2 }, Small { a: 3, b: 4 }];
    vector: Vec<u32> = vec![7, 8, 9];
    texts: Vec<&'static str> = vec!["a", "b"];
    array: [u8; 5] = [1, 2, 3, 4, 5];
    words: [u64; 3] = [1, 2, 3];
    pair: (u8, u32) = (1, 2);
    triple: (u64, bool, char) = (3, true, 'x');
    single: (u16,) = (9,);
    nested: ((u8, u8), [u16; 2]) = ((1, 2), [3, 4]);
    state: State = State::Busy;
    negative: State = State::Gone;
    small: Small = Small { a: 5, b: 6 };
    large: Large = Large {
        number: 1,
        state: State::Idle,
        name: "large",
        small: Small { a: 2, b: 3 },
        counts: [4, 5, 6],
    };
    meters: Meters = Meters(8);
    wrapped: Wrapped = Wrapped(Meters(9));
    quit: Message = Message::Quit;
    moved: Message = Message::Move { x: -1, y: 2 };
    written: Message = Message::Write("hello".to_string());
    color: Message = Message::Color(1, 2, 3);
    niche: Niche = Niche::Text("niche".to_string());
    niche_empty: Niche = Niche::Empty;
    niche_other: Niche = Niche::Other;
    none: Option<u32> = None;
    some: Option<u32> = Some(4);
    some_byte: Option<u8> = Some(255);
    some_bool: Option<bool> = Some(false);
    no_bool: Option<bool> = None;
    deep_option: Option<Option<bool>> = Some(None);
    reference: &'static u32 = &NUMBER;
    header: &'static Small = &HEADER;
    some_reference: Option<&'static u32> = Some(&NUMBER);
    no_reference: Option<&'static u32> = None;
    non_zero: NonZero<u32> = NonZero::new(3).unwrap();
    some_non_zero: Option<NonZero<u64>> = NonZero::new(3);
    no_non_zero: Option<NonZero<u64>> = None;
    fine: Result<(), u8> = Ok(());
    failed: Result<(), u8> = Err(7);
    state_result: Result<u32, State> = Err(State::Busy);
    text_result: Result<String, Niche> = Ok("fine".to_string());
    wide_result: Result<u64, (u8, u8)> = Err((1, 2));
    ordering: Ordering = Ordering::Less;
    some_ordering: Option<Ordering> = Some(Ordering::Greater);
    boxed: Box<Small> = Box::new(Small { a: 1, b: 2 });
    counted: Rc<Small> = Rc::new(Small { a: 3, b: 4 });
    shared: Arc<[u8; 3]> = Arc::new([1, 2, 3]);
    pinned: Pin<Box<u16>> = Box::pin(6);
    generic: Generic<u16> = Generic { value: 1, more: Some(2) };
    generic_text: Generic<&'static str> = Generic { value: "a", more: None };
    list: List = List { value: 1, next: Some(Box::new(List { value: 2, next: None })) };
    wrapping: Wrapping<u8> = Wrapping(3);
    foreign: Foreign = Foreign { kind: 1, length: 2 };
    pointer: *const u8 = 0x1234 as *const u8;
    atomic: AtomicU32 = AtomicU32::new(12);
    object: &'static dyn Debug = &HEADER;
    boxed_object: Box<dyn Debug> = Box::new(Message::Move { x: 3, y: -4 });
    empty_object: &'static dyn Debug = &Nothing;
    some_object: Option<&'static dyn Debug> = Some(&NUMBER);
    no_object: Option<&'static dyn Debug> = None;
    objects: [&'static dyn Debug; 2] = [&NUMBER, &HEADER];
}

/// The values that the variables of [`folded`] have, one after another.
struct Trajectory {
    numbers: Vec<u64>,
    totals: Vec<u64>,
    sums: Vec<u64>,
}

const SEED: u64 = 0x1234_5678_9abc_def0;

impl Trajectory {
    fn new() -> Self {
        let numbers: Vec<u64> = (1..=5).map(|number| number * 0x1_0001).collect();
        let (mut totals, mut sums) = (vec![SEED], vec![0]);
        for number in &numbers {
            totals.push(totals.last().map_or(0, |total| total.rotate_left(7) ^ number));
            sums.push(sums.last().map_or(0, |sum| sum + number));
        }
        Self { numbers, totals, sums }
    }
}

/// A function with a local in a register, one in memory, and an argument that is needed until the end.
#[inline(never)]
fn folded(numbers: &[u64], seed: u64) -> u64 {
    let mut sum = Small { a: 0, b: 0 };
    let mut total = seed;
    for number in numbers {
        total = total.rotate_left(7) ^ number;
        add(&mut sum, *number);
    }
    let sum = sum.b;
    black_box(total) ^ sum ^ black_box(seed)
}

#[inline(never)]
fn add(sum: &mut Small, number: u64) {
    sum.b += number;
    black_box(sum);
}

/// Checks that a variable of the function at `path` has its values at every instruction where it is anywhere, and that
/// there is such an instruction. `run` runs a program during the calls, and returns what it prints; `None` if it is
/// refused.
fn check_everywhere(path: &str, variable: &str, values: &[u64], run: impl Fn(&str) -> Option<String>) {
    let size = symbol::find(path).next().expect("the function is not inlined").size;
    let mut places = 0;
    for offset in (0..size).step_by(4) {
        // The variable is nowhere at this instruction, or the instruction cannot be probed.
        let Some(out) = run(&format!("kprobe:{path}+{offset} {{ printf(\"%lu\\n\", {variable}); }}")) else { continue };
        // Values come in the order in which the variable takes them, and none of them twice.
        let mut rest = values.iter().copied();
        let mut is_next = |value: u64| values.len() == 1 || rest.any(|next| next == value);
        let wrong = out.lines().find(|line| !line.parse().is_ok_and(&mut is_next));
        assert_eq!(wrong, None, "{variable} at {path}+{offset:#x} is one of {values:?}: {out}");
        places += usize::from(!out.is_empty());
    }
    assert!(places > 0, "{variable} is nowhere in {path}");
}

test!(
    depends(core),
    fn variables_have_their_values_at_every_instruction() {
        let Trajectory { numbers, totals, sums } = Trajectory::new();
        let counts = [numbers.len() as u64];
        let variables: [(&str, &[u64]); 5] = [
            ("args.seed", &[SEED]),
            ("len(args.numbers)", &counts),
            ("locals.total", &totals),
            ("locals.sum.b", &sums),
            ("locals.number", &numbers),
        ];
        let during_call = |text: &str| {
            let program = RunningProgram::start(text).ok()?;
            black_box(folded(black_box(&numbers), black_box(SEED)));
            Some(finished(program))
        };
        for (variable, values) in variables {
            check_everywhere("tests::typed::folded", variable, values, during_call);
        }
    }
);

/// A function that is inlined into two others, and into which [`doubled`] is inlined.
#[inline(always)]
fn mixed(sum: &mut Small, total: u64, number: u64) -> u64 {
    let turned = total.rotate_left(7);
    add(sum, doubled(number));
    let next = black_box(turned) ^ number;
    black_box(total);
    next
}

/// The line of [`mixed`] that computes the next total.
const LINE: u32 = line!() - 6;

#[inline(always)]
fn doubled(value: u64) -> u64 {
    black_box(value) + black_box(value)
}

#[inline(never)]
fn mixed_once(numbers: &[u64], seed: u64) -> u64 {
    let mut sum = Small { a: 0, b: 0 };
    numbers.iter().fold(seed, |total, number| mixed(&mut sum, total, *number))
}

#[inline(never)]
fn mixed_again(name: &str, seed: u64, numbers: &[u64]) -> u64 {
    let (mut sum, mut total, mut rest) = (Small { a: 0, b: 0 }, seed, numbers);
    while let [number, others @ ..] = rest {
        total = mixed(&mut sum, total, *number);
        rest = others;
    }
    black_box(name);
    total ^ sum.b
}

/// Runs a program during one call of each function that has a copy of [`mixed`], and returns what it prints; `None` if
/// it is refused.
fn during_both(text: &str, numbers: &[u64]) -> Option<String> {
    let program = RunningProgram::start(text).ok()?;
    black_box(mixed_once(black_box(numbers), black_box(SEED)));
    black_box(mixed_again(black_box("again"), black_box(SEED), black_box(numbers)));
    Some(finished(program))
}

test!(
    depends(core),
    fn variables_of_inlined_copies_have_their_values_at_every_instruction() {
        let Trajectory { numbers, totals, .. } = Trajectory::new();
        let turned: Vec<u64> = totals.iter().map(|total| total.rotate_left(7)).collect();
        // `args.value` is the argument of the inner copy.
        let variables: [(&str, &[u64]); 4] =
            [("args.number", &numbers), ("locals.turned", &turned), ("args.value", &numbers), ("args.total", &totals)];
        // For the second copy, the debugging information does not locate the total.
        for (function, known) in [("mixed_once", 4), ("mixed_again", 3)] {
            let path = format!("tests::typed::{function}");
            for (variable, values) in &variables[..known] {
                check_everywhere(&path, variable, values, |text| during_both(text, &numbers));
            }
        }
        // At the entry of both copies, and at an instruction of a line in both.
        let expected: String = numbers.iter().chain(&numbers).map(|number| format!("{number}\n")).collect();
        let body = "{ printf(\"%lu\\n\", args.number); }";
        assert_eq!(during_both(&format!("inline:tests::typed::mixed:entry {body}"), &numbers), Some(expected));
        let expected: Vec<String> = numbers.iter().map(|number| format!("{number}")).collect();
        let text = format!("kprobe:tests/src/typed.rs:{LINE} {{ @[args.number] = count(); }}");
        let out = during_both(&text, &numbers).expect("the line has the argument");
        let is_key = |number: &String| out.contains(&format!("@[{number}]: "));
        assert!(expected.iter().all(is_key) && out.lines().count() == numbers.len(), "{out}");
    }
);
