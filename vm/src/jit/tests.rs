//! Words that break a rule are reported, and clauses that cannot be compiled are refused. The tests of a front end
//! check the instructions of programs, and tests on the target check what they do.

use std::string::{String, ToString};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec;
use std::vec::Vec;

use aarch64_kprobes::insn::encode::compute as a64;
use fallible::failing::each_allocation;

use super::*;
use crate::ir::{
    Aggregate, Arithmetic, Builtin, Comparison, ITEMS_MAX, Map, MapValue, Op, Operand, Routine, Type, Word,
};
use crate::maps::Limits;

/// A kernel whose hits are frames with x0 to x30, sp, pc and pstate.
const KERNEL: Kernel = Kernel {
    register: |register| {
        Some(match register {
            Register::X(number) => 8 * u16::from(number),
            Register::Sp => 248,
            Register::Pc => 256,
            Register::Pstate => 264,
        })
    },
    function: Some(Source::Path(Path { base: Base::Hit, offsets: &[280, 16] })),
    caller: None,
    probe: None,
    cpu: Path { base: Base::Thread, offsets: &[24] },
    cpus: 4,
    task: Some(Source::Path(Path { base: Base::Thread, offsets: &[16] })),
    comm: Some(Path { base: Base::Thread, offsets: &[32] }),
    nanoseconds: Some(Clock { start: 0x4000, per_tick: 16 << 32 }),
    perform: 0x5000,
    context: 0x6000,
};

/// Little room: in Miri, a borrow of a table takes time for each of its words.
const LIMITS: Limits = Limits { entries: 16, table_bytes: 1 << 10, output_bytes: 64, ..Limits::usual(4) };

/// Makes code of one clause, with these maps, and one action.
fn code(ops: Vec<Op>, maps: Vec<Map>) -> Code {
    Code { routines: vec![Routine { ops, runs_after_exit: false }], maps, actions: 1, stack_frames: 0 }
}

fn map(keys: &[Type], value: MapValue) -> Map {
    Map { name: String::new(), keys: keys.to_vec(), value, room: None }
}

fn argument(to: u8, number: u8) -> Op {
    Op::Load { to: Word(to), what: Builtin::Register(Register::X(number)) }
}

const NUMBER: Type = Type::Integer { signed: false };

#[test]
fn what_cannot_be_compiled_is_refused() {
    let (code, store) = counting();
    let directory = Directory::new(&store).unwrap();
    let refused = |clause, kernel: &Kernel| compile(&code, clause, &store, &directory, kernel).unwrap_err();
    assert_eq!(refused(1, &KERNEL), Refused::NoClause(1));
    assert_eq!(refused(0, &Kernel { cpus: 5, ..KERNEL }), Refused::Cpus { store: 4, kernel: 5 });
    assert_eq!(
        refused(0, &Kernel { cpus: 5, ..KERNEL }).to_string(),
        "the kernel has 5 CPUs, but the program is loaded for 4"
    );
}

#[test]
fn a_long_clause_is_refused() {
    let collect = Op::Collect { map: 0, key: Word(0), value: Operand::Constant(1) };
    let ops = [argument(0, 0)].into_iter().chain(core::iter::repeat_n(collect, WORDS_MAX / 16)).collect();
    let code = code(ops, vec![map(&[NUMBER], MapValue::Aggregate(Aggregate::Count))]);
    let store = Store::new(&code, &LIMITS, 1_000).unwrap();
    let directory = Directory::new(&store).unwrap();
    assert_eq!(compile(&code, 0, &store, &directory, &KERNEL).unwrap_err(), Refused::Long);
}

#[test]
fn a_clause_of_a_program_with_as_many_maps_as_there_can_be_is_compiled() {
    let get = |map| Op::Get { to: Word(0), map, key: Word(0) };
    let maps = (0..ITEMS_MAX).map(|_| map(&[], MapValue::Value(NUMBER))).collect();
    let code = code([0, u8::MAX].map(get).to_vec(), maps);
    let store = Store::new(&code, &LIMITS, 1_000).unwrap();
    compile(&code, 0, &store, &Directory::new(&store).unwrap(), &KERNEL).unwrap();
}

/// A stub looks up the slots of its CPU in a list, which has those of the store's CPUs.
#[test]
fn a_store_for_fewer_cpus_has_no_snippets() {
    let (code, store) = counting();
    let snippet = |cpus| in_stub(&code, 0, At::Instruction, &store, &Kernel { cpus, ..KERNEL }, true).unwrap();
    assert!(snippet(4).is_some() && snippet(5).is_none());
}

#[test]
fn a_clause_is_compiled_or_there_is_no_memory() {
    let (code, store) = if cfg!(miri) { counting() } else { any() };
    let machine_code = || compile(&code, 0, &store, &Directory::new(&store)?, &KERNEL);
    let (_, allocations) = each_allocation(machine_code, |error| *error == Refused::OutOfMemory);
    assert!(allocations > 20, "{allocations}");
}

/// The clause whose words the other tests change keeps the rules.
#[test]
fn a_clause_with_calls_searches_and_branches_is_compiled() {
    assert_eq!(ANY.flaw(|_| ()), Ok(()));
}

/// Makes `@[arg0] = count()`.
fn counting() -> (Code, Store) {
    let collect = Op::Collect { map: 0, key: Word(0), value: Operand::Constant(1) };
    let code = code(vec![argument(0, 0), collect], vec![map(&[NUMBER], MapValue::Aggregate(Aggregate::Count))]);
    let store = Store::new(&code, &LIMITS, 1_000).unwrap();
    (code, store)
}

/// The clause of [`any`], compiled.
struct Any {
    store: Store,
    directory: Directory,
    machine_code: MachineCode,
    /// The number of changes that tests have made.
    changes: AtomicUsize,
}

static ANY: LazyLock<Any> = LazyLock::new(Any::new);

/// Makes a clause with calls, searches and branches.
fn any() -> (Code, Store) {
    let word = |number| Operand::Word(Word(number));
    let ops = vec![
        argument(0, 0),
        Op::Branch { how: Comparison::BelowEqual, left: word(0), right: Operand::Constant(5), target: 13 },
        // `@[arg0, comm == "a"] = hist(arg1)`
        argument(1, 0),
        Op::Comm { to: Word(3) },
        Op::Compare { to: Word(2), how: Comparison::Equal, left: word(3), right: Operand::Constant(0x61) },
        argument(5, 1),
        Op::Collect { map: 0, key: Word(1), value: word(5) },
        // `if (cpu) { print(nsecs); }`
        Op::Load { to: Word(6), what: Builtin::Cpu },
        Op::Branch { how: Comparison::Equal, left: word(6), right: Operand::Constant(0), target: 11 },
        Op::Load { to: Word(7), what: Builtin::Nanoseconds },
        Op::Emit { action: 0, from: Word(7), words: 1 },
        // `@x++`
        Op::Modify { to: Word(8), map: 1, key: Word(0), how: Arithmetic::Add, by: Operand::Constant(1), after: false },
        // `@l = lhist(arg1, 3, 90, 10)`
        Op::Collect { map: 2, key: Word(0), value: word(5) },
    ];
    let linear = Aggregate::Linear { least: 3, most: 90, step: 10 };
    let maps = vec![
        map(&[NUMBER, NUMBER], MapValue::Aggregate(Aggregate::Histogram { bits: 0 })),
        map(&[], MapValue::Value(NUMBER)),
        map(&[], MapValue::Aggregate(linear)),
    ];
    let code = code(ops, maps);
    let store = Store::new(&code, &LIMITS, 1_000).unwrap();
    (code, store)
}

impl Any {
    fn new() -> Self {
        let (code, store) = any();
        let directory = Directory::new(&store).unwrap();
        let machine_code = compile(&code, 0, &store, &directory, &KERNEL).unwrap();
        Self { store, directory, machine_code, changes: AtomicUsize::new(0) }
    }

    fn reach(&self) -> Reach<'_> {
        Reach { store: &self.store, directory: &self.directory, cpu: KERNEL.cpu }
    }

    /// Returns the flaw of the instructions after `change`.
    fn flaw(&self, change: impl FnOnce(&mut MachineCode)) -> Result<(), &'static str> {
        let mut wrong = self.machine_code.clone();
        change(&mut wrong);
        wrong.verify(may_be_called, self.reach()).map_err(|refused| match refused {
            Refused::Flaw { what, .. } => what,
            other => panic!("{other}"),
        })
    }

    /// Asserts that `change` makes one of these flaws, or any flaw if none is named. In Miri, where the check takes
    /// seconds, one change in nine is tried.
    #[track_caller]
    fn breaks(&self, change: impl FnOnce(&mut MachineCode), flaws: &[&'static str]) {
        if !cfg!(miri) || self.changes.fetch_add(1, Ordering::Relaxed).is_multiple_of(9) {
            let found = self.flaw(change);
            let is_named = |flaw| flaws.is_empty() || flaws.contains(&flaw);
            assert!(found.is_err_and(is_named), "{found:?} is none of {flaws:?}");
        }
    }
}

/// Returns whether the handler may call this address.
fn may_be_called(to: u64) -> bool {
    to == 0x5000
}

#[test]
fn instructions_that_break_a_rule_are_told() {
    let right = &ANY.machine_code;
    assert!(right.verify(|_| false, ANY.reach()).is_err());
    let what = |change: &dyn Fn(&mut MachineCode), flaw| ANY.breaks(change, &[flaw]);
    let first = |word: u32, flaw| what(&|machine_code| machine_code.words[0] = word, flaw);
    for word in [0xd503_207f, 0xd420_0000, 0x1e60_4020, 0xd51b_4220, 0xd69f_03e0, 0xd61f_0120, 0, u32::MAX] {
        first(word, "is not an instruction of a handler");
    }
    let (ours, theirs, stack, return_address) = (0xf940_0003, 0xf940_0013, 0x9100_43ff, 0xaa01_03fe);
    assert_eq!(ANY.flaw(|machine_code| machine_code.words[0] = ours), Ok(()));
    for word in [theirs, stack, return_address, 0xf900_0020, 0xf900_03e0, 0xa900_0420, 0xf900_0040, 0xf900_0120] {
        first(word, "writes what it must not");
    }
    first(0xc80e_7d29, "takes a bucket out of sequence");
    first(0xc89f_fd3f, "releases a bucket that it does not hold");
    first(0x17ff_ffff, "branches out of the instructions");
    first(0x14ff_ffff, "branches out of the instructions");
    first(0x5800_0023, "loads from outside the literals");
    first(0x1400_0000, "may loop forever");
    what(&|machine_code| machine_code.words[4] = 0x17ff_fffd, "may loop forever");
    what(&|machine_code| machine_code.instructions -= 1, "runs past its end");
    first(super::words::ENTER[0], "uses the stack outside of a call");
    first(super::words::LEAVE[1], "uses the stack outside of a call");
    first(0xd63f_0220, "uses the stack outside of a call");
    let call = right.calls[0];
    let is_not = "is not the call that is declared for it";
    what(&|machine_code| machine_code.words[call.word - 1] = 0xd280_0011, is_not);
    what(&|machine_code| machine_code.words[call.word] = ours, is_not);
    what(&|machine_code| machine_code.calls[0].word -= 1, is_not);
    what(&|machine_code| machine_code.calls[0].to = 8, "calls a function that it must not");
    what(&|machine_code| machine_code.calls.truncate(1), "calls a function that it must not");
    what(&|machine_code| machine_code.calls.push(call), "has fewer calls than are declared");
    let last = right.calls.last().unwrap().word;
    what(&|machine_code| machine_code.words[last - 3] = 0xb400_0021, "branches within a call");
    let search = right.words.iter().position(|word| word & 0xff00_001f == 0xb500_000b).unwrap();
    what(&|machine_code| machine_code.words[search - 1] = ours, "may loop forever");
}

/// Each turn of a search must leave a smaller mask of used slots than the turn before.
#[test]
fn a_search_that_may_not_end_is_told() {
    let right = &ANY.machine_code;
    let search = right.words.iter().position(|word| super::words::search_offset(*word).is_some()).unwrap();
    let offset = super::words::search_offset(right.words[search]).unwrap();
    let head = super::words::target(search, offset).unwrap();
    // `tbz`, loads of the two words of the key, `cmp`, `ccmp`, `b.eq`, `add`, `lsr`, `cbnz`.
    assert_eq!(search - head, 8);
    let forever = ["may loop forever"];
    let first_slot = encode::add(SLOT, BUCKET, 8 * crate::maps::HEAD as u16);
    let again = |machine_code: &mut MachineCode| {
        machine_code.words[head..head + 2].copy_from_slice(&[load(TAKEN, BUCKET, 8), first_slot]);
    };
    ANY.breaks(again, &forever);
    // The mask is shifted only in turns that do not take the branch.
    let nothing = a64::copy(ONE, ONE);
    let past_the_shift = |machine_code: &mut MachineCode| {
        let (next_slot, words) = (right.words[search - 2], &mut machine_code.words);
        let branch = 0x3600_0000 | ((search - head - 1) as u32) << 5 | u32::from(TAKEN);
        words[head..head + 2].copy_from_slice(&[next_slot, branch]);
        words[search - 3..search - 1].fill(nothing);
    };
    ANY.breaks(past_the_shift, &forever);
}

/// Returns the numbers of the words of this form.
fn of_form(machine_code: &MachineCode, mask: u32, value: u32) -> Vec<usize> {
    let words = machine_code.words[..machine_code.instructions].iter().enumerate();
    words.filter(|(_, word)| **word & mask == value).map(|(at, _)| at).collect()
}

#[test]
fn stores_go_where_a_clause_has_something() {
    let right = &ANY.machine_code;
    let (lost, past) = ("writes what it must not", "writes past the end of its memory");
    // `str x14` to a row of a histogram by powers of two or by steps, and to a single value: redirected anywhere else.
    let mut stores = of_form(right, 0xffc0_001f, 0xf900_000e);
    stores.retain(|&at| right.words[at] >> 5 & 31 != u32::from(FRAME));
    assert!(stores.len() >= 2);
    for &at in &stores {
        for offset in [0, 4095] {
            let word = right.words[at] & !(0xfff << 10) | offset << 10;
            ANY.breaks(|wrong| wrong.words[at] = word, &[past]);
        }
        for base in [0, 1, 3, 11, 13, 17] {
            let word = right.words[at] & !(31 << 5) | base << 5;
            ANY.breaks(|wrong| wrong.words[at] = word, &[lost, "changes a bucket that it does not hold"]);
        }
    }
    // The words that bound the row: `clz`, the number that it is subtracted from, the comparison, and the selection.
    let is_refused = |at: usize, word: u32| ANY.breaks(|wrong| wrong.words[at] = word, &[lost, past]);
    for at in of_form(right, 0xffff_fc00, 0xdac0_1000) {
        is_refused(at, a64::copy(13, 3));
    }
    for at in of_form(right, 0xffff_ffff, a64::compute(a64::Binary::SubtractFlags, ZERO, RIGHT, OTHER)) {
        is_refused(at, a64::compute(a64::Binary::SubtractFlags, ZERO, OTHER, RIGHT));
        is_refused(at + 1, a64::select(a64::Condition::Hi, RIGHT, RIGHT, OTHER));
        is_refused(at + 1, a64::select(a64::Condition::Lo, RIGHT, OTHER, RIGHT));
    }
    // The row of the CPU, and its bucket.
    for at in of_form(right, 0xffff_ffff, a64::add_shifted(ROW, BUCKET, ROW, 3 + ANY.directory.shift)) {
        is_refused(at, a64::add_shifted(ROW, BUCKET, ROW, 4 + ANY.directory.shift));
        is_refused(at, a64::add_shifted(ROW, BUCKET, SLOT, 3 + ANY.directory.shift));
    }
    let home = of_form(right, 0xffff_ffff, a64::multiply_add(BUCKET, TAKEN, SLOT, BUCKET))[0];
    let further = a64::shift_right(TAKEN, TAKEN, 30);
    let takes = ["takes a bucket out of sequence"];
    ANY.breaks(|wrong| wrong.words[home] = a64::multiply_add(BUCKET, ONE, SLOT, BUCKET), &takes);
    ANY.breaks(|wrong| wrong.words[home - 1] += 1 << 5, &takes);
    ANY.breaks(|wrong| wrong.words[home - 2] = further, &takes);
}

#[test]
fn buckets_are_held_where_they_are_changed_and_let_go_of() {
    let right = &ANY.machine_code;
    let nothing = a64::copy(ONE, ONE);
    let take = a64::store_exclusive(OTHER, BUCKET, BUCKET);
    let release = a64::store_release(ZERO, BUCKET);
    let (taken, released) = (of_form(right, u32::MAX, take), of_form(right, u32::MAX, release));
    assert!(taken.len() >= 3 && released.len() >= taken.len());
    for &at in &taken {
        for (change, word) in [(at, nothing), (at - 1, nothing), (at - 2, load(HOLDER, BUCKET, 0)), (at + 1, nothing)] {
            ANY.breaks(|wrong| wrong.words[change] = word, &[]);
        }
        let other = a64::store_exclusive(OTHER, ZERO, BUCKET);
        ANY.breaks(|wrong| wrong.words[at] = other, &["takes a bucket out of sequence"]);
        // After these the lock is held. The first word after them loads the mask of used slots.
        ANY.breaks(|wrong| wrong.words[at + 2] = a64::RETURN, &["does not release its bucket"]);
        let lost = a64::copy(BUCKET, SLOT);
        let overwrites = "overwrites the address of the bucket that it holds";
        ANY.breaks(|wrong| wrong.words[at + 2] = lost, &[overwrites]);
    }
    for &at in &released {
        ANY.breaks(|wrong| wrong.words[at] = nothing, &[]);
    }
    // A search that does not stop after the last slot, or advances by another distance.
    for at in of_form(right, u32::MAX, a64::shift_right(TAKEN, TAKEN, 1)) {
        ANY.breaks(|wrong| wrong.words[at - 1] += 8 << 10, &[]);
        ANY.breaks(|wrong| wrong.words[at] = nothing, &[]);
    }
}
