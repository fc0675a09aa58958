//! Executes programs as snippets, step by step on the real store, and compares the maps with those of the interpreter.
//!
//! The simulated CPU knows the instructions that snippets use. It also checks the rules for the end of a snippet: a
//! locked bucket is unlocked, and a hit that is left to the handler has changed nothing.

use std::boxed::Box;
use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::vec::Vec;

use aarch64_kprobes::insn::encode::compute::Branch;
use aarch64_kprobes::probe::{Snippet, Step};
use kprobes_vm::ir::Op;
use kprobes_vm::jit::{At, Clock, Kernel, in_stub};
use kprobes_vm::maps::{Limits, WORDS, Words};

use super::compiled::KERNEL;
use super::machine::{Bed, Task};
use crate::tests::{rounds, tried};
use kprobes_random::Random;

/// Words that follow the state of the CPU.
#[derive(Debug, Clone)]
struct Near(Arc<[AtomicU64]>);

impl Words for Near {
    fn distance(&self, index: usize) -> u64 {
        8 * index as u64
    }

    fn sum(&self, index: usize) -> u64 {
        self.0[index].load(Relaxed)
    }
}

/// The registers at a hit, and the values of system registers.
struct Cpu {
    x: [u64; 32],
    sp: u64,
    /// N, Z, C and V, from bit 3 down to bit 0.
    flags: u8,
    thread: u64,
    counter: u64,
    /// The number of stores, except those that lock a bucket.
    stores: usize,
    held: Option<u64>,
}

/// Returns a pointer to the word at `address`.
fn word(address: u64) -> *mut u64 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

impl Cpu {
    fn load(&self, address: u64) -> u64 {
        // SAFETY: steps load only from memory of the store, and from the thread's state, both of which are valid while
        // the test runs.
        unsafe { word(address).read() }
    }

    fn store(&mut self, address: u64, value: u64) {
        self.stores += 1;
        // SAFETY: steps store only to memory of the store, and to the words near the CPU, both of which are valid while
        // the test runs.
        unsafe { word(address).write(value) };
    }

    fn set(&mut self, register: u32, value: u64) {
        if register < 31 {
            self.x[register as usize] = value;
        }
    }

    fn compare(&mut self, left: u64, right: u64) {
        let (result, is_less) = left.overflowing_sub(right);
        let overflows = left.cast_signed().overflowing_sub(right.cast_signed()).1;
        self.flags = u8::from(result >> 63 == 1) << 3
            | u8::from(result == 0) << 2
            | u8::from(!is_less) << 1
            | u8::from(overflows);
    }

    fn holds(&self, condition: u32) -> bool {
        let [n, z, c, v] = [3, 2, 1, 0].map(|bit| self.flags >> bit & 1 == 1);
        let holds = match condition >> 1 {
            0 => z,
            1 => c,
            4 => c && !z,
            5 => n == v,
            6 => n == v && !z,
            _ => panic!("condition {condition}"),
        };
        holds != (condition & 1 == 1)
    }

    fn is_taken(&self, branch: Branch) -> bool {
        let x = |register: u8| self.x[usize::from(register)];
        match branch {
            Branch::Always => true,
            Branch::If(condition) => self.holds(condition as u32),
            Branch::Zero(register) => x(register) == 0,
            Branch::NotZero(register) => x(register) != 0,
            Branch::NotZeroWord(register) => x(register) as u32 != 0,
            Branch::BitClear(register, bit) => x(register) >> bit & 1 == 0,
            Branch::Literal(_) => panic!("no branch"),
        }
    }

    fn execute(&mut self, word: u32) {
        let (d, n, m) = (word & 31, word >> 5 & 31, word >> 16 & 31);
        let second = word >> 10 & 31;
        let x = |register: u32| self.x[register as usize];
        let (one, other) = (x(n), x(m));
        let immediate = u64::from(word >> 10 & 0xfff);
        let address = if n == 31 { self.sp } else { one };
        match word {
            _ if word & !31 == 0xd538_d080 => return self.set(d, self.thread),
            _ if word & !31 == 0xd53b_e040 => return self.set(d, self.counter),
            _ if word & 0xffff_fc00 == 0xc89f_fc00 => {
                assert_eq!((self.held.take(), d), (Some(one), 31), "lets go of what it does not hold");
                // SAFETY: `one` is the address of the bucket that the snippet holds, which is in a table of the store,
                // and the store lives while the test runs.
                return unsafe { super::stepped::word(one).write(0) };
            }
            _ if word & 0xffe0_fc1f == 0xf820_001f => {
                let sum = self.load(one).wrapping_add(other);
                return self.store(one, sum);
            }
            _ => {}
        }
        match word & 0xffe0_fc00 {
            0xf860_6800 => return self.set(d, self.load(one.wrapping_add(other))),
            0xf820_6800 => return self.store(one.wrapping_add(other), x(d)),
            0x9bc0_7c00 => return self.set(d, ((u128::from(one) * u128::from(other)) >> 64) as u64),
            0x9ac0_0800 => return self.set(d, one.checked_div(other).unwrap_or(0)),
            0x9ac0_0c00 => {
                let (one, other) = (one.cast_signed(), other.cast_signed());
                let quotient = if other == 0 { 0 } else { one.wrapping_div(other) };
                return self.set(d, quotient.cast_unsigned());
            }
            0x9ac0_2000 => return self.set(d, one << (other % 64)),
            0x9ac0_2400 => return self.set(d, one >> (other % 64)),
            0x9ac0_2800 => return self.set(d, (one.cast_signed() >> (other % 64)).cast_unsigned()),
            0xdac0_1000 => return self.set(d, one.leading_zeros().into()),
            _ => {}
        }
        match word & 0xffc0_0000 {
            0xf940_0000 => return self.set(d, self.load(address.wrapping_add(8 * immediate))),
            0xf900_0000 => return self.store(address.wrapping_add(8 * immediate), x(d)),
            0xa900_0000 => {
                let at = address.wrapping_add(8 * u64::from(word >> 15 & 63));
                let second = x(second);
                self.store(at, x(d));
                return self.store(at + 8, second);
            }
            // SAFETY: steps load only from memory of the store and from the thread's state, both of which are valid
            // while the test runs.
            0x3940_0000 => return self.set(d, unsafe { super::stepped::word(address).cast::<u8>().read() }.into()),
            0x9100_0000 => return self.set(d, address.wrapping_add(immediate)),
            0xd100_0000 => return self.set(d, address.wrapping_sub(immediate)),
            0xf100_0000 => return self.compare(one, immediate),
            0xd340_0000 | 0x9340_0000 => {
                let (rotate, last) = (word >> 16 & 63, word >> 10 & 63);
                let is_signed = word >> 30 == 2;
                let value = if rotate <= last {
                    let (bits, moved) = (last - rotate + 1, one >> rotate);
                    let up = moved << (64 - bits);
                    if is_signed { (up.cast_signed() >> (64 - bits)).cast_unsigned() } else { up >> (64 - bits) }
                } else {
                    assert!(!is_signed);
                    (one & ((1 << (last + 1)) - 1)) << (64 - rotate)
                };
                return self.set(d, value);
            }
            _ => {}
        }
        let condition = word >> 12 & 15;
        match word & 0xffe0_0c00 {
            0x9a80_0000 => return self.set(d, if self.holds(condition) { one } else { other }),
            0x9a80_0400 => return self.set(d, if self.holds(condition) { one } else { other.wrapping_add(1) }),
            0xfa40_0000 if self.holds(condition) => return self.compare(one, other),
            0xfa40_0000 => return self.flags = (word & 15) as u8,
            _ => {}
        }
        match word & 0xffe0_8000 {
            0x9b00_0000 => return self.set(d, x(second).wrapping_add(one.wrapping_mul(other))),
            0x9b00_8000 => return self.set(d, x(second).wrapping_sub(one.wrapping_mul(other))),
            _ => {}
        }
        let by = word >> 10 & 63;
        let moved = if word >> 22 & 3 == 0 { other << by } else { other >> by };
        match word & 0xff20_0000 {
            0x8b00_0000 => self.set(d, one.wrapping_add(moved)),
            0xcb00_0000 => self.set(d, one.wrapping_sub(moved)),
            0xeb00_0000 => {
                self.compare(one, moved);
                self.set(d, one.wrapping_sub(moved));
            }
            0x8a00_0000 => self.set(d, one & moved),
            0xaa00_0000 => self.set(d, one | moved),
            0xca00_0000 => self.set(d, one ^ moved),
            _ => panic!("{word:#x}"),
        }
    }

    /// Executes the steps. Returns whether the hit was left to the handler.
    fn run(&mut self, steps: &[Step]) -> bool {
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            at += 1;
            match *step {
                Step::Instruction(word) => self.execute(word),
                Step::Number(register, number) => self.set(register.into(), number),
                Step::Operand(register) => self.set(register.into(), 8 * (WORDS as u64 - 100)),
                Step::Branch(branch, to) if self.is_taken(branch) => at = to,
                Step::Call(branch) if self.is_taken(branch) => {
                    assert_eq!((self.held, self.stores), (None, 0), "the handler finds something done");
                    return true;
                }
                Step::Branch(..) | Step::Call(_) => {}
                Step::Hold(base, was) => {
                    let bucket = self.x[usize::from(base)];
                    assert_eq!(self.held.replace(bucket), None);
                    assert_eq!(self.load(bucket), 0);
                    // SAFETY: the address is that of a bucket in a table of the store, which lives while the test runs.
                    unsafe { word(bucket).write(1) };
                    self.set(was.into(), 0);
                }
                Step::Turn(left, to) => {
                    self.x[usize::from(left)] >>= 1;
                    if self.x[usize::from(left)] != 0 {
                        at = to;
                    }
                }
                step => panic!("{step:?}"),
            }
        }
        assert_eq!(self.held, None, "keeps what it holds");
        false
    }
}

fn number(random: &mut Random, depth: usize) -> String {
    if depth > 0 && random.below(3) == 0 {
        let operator = random.of(&["+", "-", "*", "/", "&", "|", "^", "<<", ">>", "==", "<", ">="]);
        return format!("({} {operator} {})", number(random, depth - 1), number(random, depth - 1));
    }
    match random.below(6) {
        0 => random.value().to_string(),
        1 => random.of(&["tid", "nsecs", "elapsed", "reg(\"sp\")"]).into(),
        2 => "$a".into(),
        _ => format!("arg{}", random.below(8)),
    }
}

/// Returns a random key whose value is often the same.
fn key(random: &mut Random) -> String {
    random.of(&["arg0", "arg1", "arg2", "arg3", "tid", "(arg0 & 3)", "$b"]).into()
}

fn entry(random: &mut Random) -> String {
    match random.below(5) {
        0 => "@x".into(),
        1 => format!("@two[{}, {}]", key(random), key(random)),
        _ => format!("@one[{}]", key(random)),
    }
}

fn statement(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 12 } else { 14 }) {
        0 => format!("$a = {};", entry(random)),
        1 => format!("$a = {};", number(random, 2)),
        2 | 3 => format!("{} = {};", entry(random), number(random, 1)),
        4 => format!("{} {} {};", entry(random), random.of(&["+=", "-=", "*=", "^=", "/="]), number(random, 0)),
        5 => format!("$a = {}++;", entry(random)),
        6 | 7 => match entry(random) {
            map if map == "@x" => "@x = 3;".into(),
            map => format!("delete({map});"),
        },
        8 => match random.below(2) {
            0 => {
                let map = entry(random);
                format!(
                    "@h = hist(nsecs - {map}); {}",
                    if map == "@x" { String::new() } else { format!("delete({map});") }
                )
            }
            _ => "@h = hist(nsecs - @one[tid]); @s = sum(arg4); delete(@one[tid]);".into(),
        },
        9 => "@c = count();".into(),
        10 => format!("@l = lhist({}, 0, 100, 7);", number(random, 1)),
        11 => format!("$a = has_key(@one, {});", key(random)),
        _ => format!("if ({}) {{ {} }}", number(random, 1), statement(random, depth - 1)),
    }
}

/// Returns which kinds of table ops a clause has.
fn kinds(ops: &[Op]) -> [bool; 5] {
    let has = |is: fn(&Op) -> bool| ops.iter().any(is);
    [
        has(|op| matches!(op, Op::Get { .. })),
        has(|op| matches!(op, Op::Has { .. })),
        has(|op| matches!(op, Op::Put { .. })),
        has(|op| matches!(op, Op::Modify { .. })),
        has(|op| matches!(op, Op::Delete { .. })),
    ]
}

/// A program twice: one copy interpreted, and one with its first clause as steps.
struct Both {
    oracle: Bed,
    bed: Bed,
    steps: Vec<Step>,
    near: Near,
    clock: Clock,
}

/// Clocks of 62.5 MHz and 1 GHz, and one whose ticks are not a whole number of nanoseconds.
const CLOCKS: [Clock; 3] = [
    Clock { start: 0x4000, per_tick: 16 << 32 },
    Clock { start: 0, per_tick: 1 << 32 },
    Clock { start: 77, per_tick: 0x12_8451_2345 },
];

impl Both {
    /// Loads the program twice; returns `None` if its first clause has no snippet.
    fn new(program: &str, atomics: bool, clock: Clock) -> Option<Self> {
        let kernel = Kernel { nanoseconds: Some(clock), ..KERNEL };
        let limits = Limits { entries: 16, table_bytes: 1 << 10, ..Limits::usual(4) };
        let (oracle, mut bed) = (Bed::within(program, &limits), Bed::within(program, &limits));
        let found = in_stub(&bed.program.code, 0, At::Instruction, &bed.store, &kernel, atomics).unwrap()?;
        let near = Near((0..WORDS).map(|_| AtomicU64::new(0)).collect());
        let new = &mut || Ok::<Box<dyn Words>, _>(Box::new(near.clone()));
        let steps = found.steps(&bed.program.code, &mut bed.store, new).expect("there is memory");
        Some(Self { oracle, bed, steps, near, clock })
    }

    /// Interprets a clause other than the first, in both copies.
    fn interpret(&self, clause: usize, hit: &Task) {
        self.oracle.hit(clause, hit);
        self.bed.hit(clause, hit);
    }

    /// Runs the first clause in both copies, with the counter at the time of `hit`. Returns whether the snippet left
    /// the hit to the handler.
    fn hit(&self, hit: &Task) -> bool {
        let (counter, Clock { start, per_tick }) = (hit.time, self.clock);
        let ticks = u128::from(counter.wrapping_sub(start));
        let hit = &Task { time: ((ticks * u128::from(per_tick)) >> 32) as u64, ..hit.clone() };
        self.oracle.hit(0, hit);
        let thread = [0, 0, hit.task, hit.cpu as u64];
        let mut cpu = Cpu {
            x: [0; 32],
            sp: hit.stack_pointer,
            flags: 0,
            thread: thread.as_ptr().expose_provenance() as u64,
            counter,
            stores: 0,
            held: None,
        };
        cpu.x[..31].copy_from_slice(&hit.registers);
        cpu.x[usize::from(Snippet::CPU)] = self.near.0.as_ptr().expose_provenance() as u64;
        cpu.x[usize::from(Snippet::ONE)] = 1;
        let is_left = cpu.run(&self.steps);
        if is_left {
            self.bed.hit(0, hit);
        }
        is_left
    }

    /// Returns what both copies print at the end.
    fn finish(self) -> [String; 2] {
        [self.oracle.finish(), self.bed.finish()]
    }
}

#[test]
fn snippets_leave_in_maps_what_the_interpreter_does() {
    let mut random = Random::new(7);
    // The number of programs whose snippet has an op of each kind, and the number of hits that snippets completed or
    // left to the handler.
    let (mut seen, mut hits) = ([0; 5], [0, 0]);
    for round in tried(0..rounds(6_000)) {
        let mut body = format!("$a = 5; $b = arg{}; ", random.below(3));
        let predicate = match random.below(4) {
            0 => format!("/{}/ ", entry(&mut random).replace("$b", "arg2")),
            _ => String::new(),
        };
        for _ in 0..=random.below(3) {
            body += &statement(&mut random, 1);
        }
        // These clauses give the maps a type even if the first clause assigns nothing.
        let rest = "kprobe:g { @one[arg0] = arg1; @two[arg0, arg1] = arg2; @x = arg3; }";
        let program = format!("kprobe:f {predicate}{{ {body} }} {rest}");
        let Some(both) = Both::new(&program, round % 2 == 0, random.of(&CLOCKS)) else { continue };
        for (seen, is_there) in seen.iter_mut().zip(kinds(&both.bed.program.code.routines[0].ops)) {
            *seen += u64::from(is_there);
        }
        for _ in 0..if cfg!(miri) { 8 } else { 80 } {
            let arguments: Vec<u64> = (0..8).map(|_| random.below(24) as u64).collect();
            let time = random.value();
            let hit = Task { time, task: random.below(9) as u64, cpu: random.below(4), ..Task::with(&arguments) };
            if random.below(5) == 0 {
                both.interpret(1, &hit);
            } else {
                hits[usize::from(both.hit(&hit))] += 1;
            }
        }
        let [expected, found] = both.finish();
        assert_eq!(found, expected, "{program}");
    }
    if cfg!(miri) {
        return;
    }
    assert!(seen.iter().all(|&seen| seen > rounds(6_000) / 60), "{seen:?}");
    assert!(hits[0] > hits[1] && hits[1] > rounds(6_000), "{hits:?}");
}

/// A key that found no room in its home bucket stays in a later one, even when its home is empty again.
#[test]
fn a_key_behind_its_home_is_found_there() {
    const KEYS: u64 = if cfg!(miri) { 10 } else { 40 };
    let others = "kprobe:g { @one[arg0] = arg1; } kprobe:g { delete(@one[arg0]); }";
    let mut left = [0; 4];
    let bodies =
        ["@one[arg0] = arg1;", "@h = hist(@one[arg0]);", "@h = hist(has_key(@one, arg0));", "delete(@one[arg0]);"];
    for (kind, body) in tried(bodies.into_iter().enumerate()) {
        for only in tried(0..KEYS) {
            let both =
                Both::new(&format!("kprobe:f {{ {body} }} {others}"), true, CLOCKS[0]).expect("it has a snippet");
            (0..KEYS).for_each(|key| both.interpret(1, &Task::with(&[key, 5])));
            (0..KEYS).filter(|&key| key != only).for_each(|key| both.interpret(2, &Task::with(&[key])));
            left[kind] += u64::from(both.hit(&Task::with(&[only, 7])));
            let [expected, found] = both.finish();
            assert_eq!(found, expected, "{body} for {only}");
        }
    }
    assert!(cfg!(miri) || left.iter().all(|&left| (1..KEYS / 2).contains(&left)), "{left:?}");
}
