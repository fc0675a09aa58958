//! What programs become, as a decoder that somebody else wrote reads it. What it does is tested on the target.

use std::string::{String, ToString};
use std::vec::Vec;

use aarch64_kprobes::insn::encode::compute as a64;
use fallible::failing::each_allocation;
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::*;
use crate::check::check;
use crate::random::{Random, rounds};
use crate::store::Limits;
use crate::syntax::{generate, parse};
use crate::tests::{Bed, Image};

/// A kernel whose hits are frames with x0 to x30, sp, pc and pstate.
pub(super) const KERNEL: Kernel = Kernel {
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
    site: None,
    cpu: Path { base: Base::Thread, offsets: &[24] },
    cpus: 4,
    task: Some(Source::Path(Path { base: Base::Thread, offsets: &[16] })),
    comm: Some(Path { base: Base::Thread, offsets: &[32] }),
    nanoseconds: Some(Source::Call(0x4000)),
    perform: 0x5000,
    context: 0x6000,
};

fn compiled(code: &Code, store: &Store) -> Compiled {
    compile(code, 0, store, &Directory::new(store).unwrap(), &KERNEL).unwrap()
}

/// The instructions, one by one.
fn decoded(compiled: &Compiled) -> Vec<String> {
    let text = |word: &u32| {
        let bytes = word.to_le_bytes();
        InstDecoder::default().decode(&mut U8Reader::new(&bytes)).expect("an instruction").to_string()
    };
    compiled.words[..compiled.instructions].iter().map(text).collect()
}

/// The instructions of a program up to its last RET; what is aside is behind.
fn usual(program: &str) -> String {
    let bed = Bed::new(program);
    let lines = decoded(&compiled(&bed.code, &bed.store));
    let end = lines.iter().rposition(|line| line == "ret").unwrap();
    lines[..=end].join("\n")
}

/// Finds this CPU's table of the first of one map.
const OWN: &str =
    "mrs x1, s3_0_c13_c0_4\nldr x1, [x1, #0x18]\nldr x9, $+LITERAL\nadd x1, x9, x1, lsl #4\nldr x9, [x1, #0x8]\n";
/// Holds the bucket.
const HOLD: &str = "ldaxr x10, [x9]\ncbnz x10, $+ASIDE\nstxr w14, x9, [x9]\ncbnz w14, $+ASIDE\nldr x11, [x9, #0x8]\n";
const RELEASE: &str = "stlr xzr, [x9]\nret";

/// `listing` with the distances of what leads out of it left open.
fn open(listing: &str) -> String {
    let line = |line: &str| {
        let Some((start, distance)) = line.split_once("$+0x") else { return line.to_string() };
        let name = match (
            start.starts_with("ldr"),
            ["t", "cbnz x10", "cbnz w14"].iter().any(|name| start.starts_with(name)),
        ) {
            (true, _) => "LITERAL",
            (_, true) => "ASIDE",
            _ => return std::format!("{start}$+0x{distance}"),
        };
        std::format!("{start}$+{name}")
    };
    listing.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_usual_is_short() {
    assert_eq!(
        open(&usual("kprobe:f { @ = count(); }")),
        std::format!(
            "{OWN}{HOLD}tbz w11, #0x0, $+ASIDE\nldr x14, [x9, #0x18]\nadd x14, x14, #0x1\nstr x14, [x9, #0x18]\n{RELEASE}"
        )
    );
    assert_eq!(
        open(&usual("kprobe:f { @ = hist(arg0); }")),
        std::format!(
            "ldr x3, [x0]\n{OWN}{HOLD}tbz w11, #0x0, $+ASIDE\nclz x13, x3\nmov x14, #0x41\nsub x13, x14, x13\ncmp x3, xzr\n\
             csel x13, xzr, x13, lt\nadd x12, x9, x13, lsl #3\nldr x14, [x12, #0x18]\nadd x14, x14, #0x1\n\
             str x14, [x12, #0x18]\n{RELEASE}"
        )
    );
    assert_eq!(
        open(&usual("kprobe:f { @[arg0] = count(); }")),
        std::format!(
            "ldr x3, [x0]\n{OWN}ldr x10, $+LITERAL\nmul x11, x3, x10\n\
             eor x11, x11, x11, lsr #32\nmul x11, x11, x10\nlsr x11, x11, #0x38\n\
             mov x12, #0x98\nmadd x9, x11, x12, x9\n{HOLD}add x12, x9, #0x18\ntbz w11, #0x0, $+ASIDE\nldr x13, [x12]\n\
             cmp x13, x3\nb.eq $+0x14\nadd x12, x12, #0x10\nlsr x11, x11, #0x1\ncbnz x11, $-0x18\nb $+0x18\n\
             ldr x14, [x12, #0x8]\nadd x14, x14, #0x1\nstr x14, [x12, #0x8]\n{RELEASE}"
        )
    );
}

#[test]
fn a_predicate_that_is_false_finds_no_cpu() {
    let listing = usual("kprobe:f /arg0 > 5/ { @ = count(); }");
    let start: Vec<&str> = listing.lines().take(4).collect();
    assert_eq!(start, ["ldr x3, [x0]", "cmp x3, #0x5", "b.ls $+0x40", "mrs x1, s3_0_c13_c0_4"]);
    assert_eq!(listing.lines().nth(2 + 0x40 / 4), Some("ret"));
}

#[test]
fn values_are_in_registers_and_computed_as_a64_does() {
    let body = "$x = arg0 * arg1; $y = $x % arg2; $z = (s16)$y; if ((s64)$z < -5) { @v = $z / 7; }";
    let listing = usual(&std::format!("kprobe:f {{ {body} }}"));
    let start: Vec<&str> = listing.lines().take(9).collect();
    assert_eq!(
        start,
        [
            "ldr x3, [x0]",
            "ldr x4, [x0, #0x8]",
            "mul x4, x3, x4",
            "ldr x3, [x0, #0x10]",
            "udiv x14, x4, x3",
            "msub x3, x14, x3, x4",
            "sxth x3, w3",
            "mov x16, #0xfffffffffffffffb",
            "cmp x3, x16"
        ]
    );
    assert!(!listing.contains("blr"), "{listing}");
}

#[test]
fn only_what_is_called_takes_stack() {
    let bytes = |program: &str| {
        let bed = Bed::new(program);
        let compiled = compiled(&bed.code, &bed.store);
        for call in &compiled.calls {
            assert_eq!(compiled.words[call.word], 0xd63f_0220, "{program}");
        }
        (compiled.stack_bytes, compiled.calls.iter().map(|call| call.to).collect::<Vec<_>>())
    };
    assert_eq!(bytes("kprobe:f { $x = arg0 + cpu; if ($x) { return; } }"), (0, [].into()));
    assert_eq!(bytes("kprobe:f { print(nsecs); }"), (32, [0x4000, 0x5000].into()));
    assert_eq!(bytes("kprobe:f { @ = count(); }"), (32, [0x5000].into()));
}

#[test]
fn exit_is_looked_for_where_it_is_said() {
    let listing = usual("kprobe:f { @n = 1; } kprobe:g { exit(); }");
    assert_eq!(open(listing.lines().next().unwrap()), "ldr x9, $+LITERAL");
    assert_eq!(listing.lines().nth(1), Some("ldrb w9, [x9]"));
    assert!(!usual("END { @n = 1; } kprobe:g { exit(); }").contains("ldrb"));
}

#[test]
fn what_cannot_be_compiled_is_refused() {
    let bed = Bed::new("kprobe:f { unroll (100) { unroll (5) { @[arg0] = count(); } } }");
    let directory = Directory::new(&bed.store).unwrap();
    let refused = |clause, kernel: &Kernel| compile(&bed.code, clause, &bed.store, &directory, kernel).unwrap_err();
    assert_eq!(refused(0, &KERNEL), Refused::Long);
    assert_eq!(refused(1, &KERNEL), Refused::NoClause(1));
    assert_eq!(refused(0, &Kernel { cpus: 5, ..KERNEL }), Refused::Cpus { store: 4, kernel: 5 });
    assert_eq!(
        refused(0, &Kernel { cpus: 5, ..KERNEL }).to_string(),
        "there are 5 CPUs, and the program is loaded for 4"
    );
}

#[test]
fn a_clause_is_compiled_or_there_is_no_memory() {
    let any = Any::new();
    let compiled = || compile(&any.bed.code, 0, &any.bed.store, &Directory::new(&any.bed.store)?, &KERNEL);
    let (_, allocations) = each_allocation(compiled, |error| *error == Refused::OutOfMemory);
    assert!(allocations > 20, "{allocations}");
}

/// Any program, compiled, that has calls, searches and branches.
struct Any {
    bed: Bed,
    directory: Directory,
    compiled: Compiled,
}

impl Any {
    fn new() -> Self {
        let bed = Bed::new(
            "kprobe:f /arg0 > 5/ { @[arg0, comm == \"a\"] = hist(arg1); if (cpu) { print(nsecs); } @x++; @l = lhist(arg1, 3, 90, 10); }",
        );
        let directory = Directory::new(&bed.store).unwrap();
        let compiled = compile(&bed.code, 0, &bed.store, &directory, &KERNEL).unwrap();
        Self { bed, directory, compiled }
    }

    fn reach(&self) -> Reach<'_> {
        Reach { store: &self.bed.store, directory: &self.directory, cpu: KERNEL.cpu }
    }

    /// What is wrong with the instructions when `change` has been made.
    fn flaw(&self, change: impl FnOnce(&mut Compiled)) -> Result<(), &'static str> {
        let mut wrong = self.compiled.clone();
        change(&mut wrong);
        wrong.verify(may_be_called, self.reach()).map_err(|refused| match refused {
            Refused::Flaw { what, .. } => what,
            other => panic!("{other}"),
        })
    }
}

/// What the handler may call.
fn may_be_called(to: u64) -> bool {
    matches!(to, 0x4000 | 0x5000)
}

#[test]
fn random_programs_become_instructions_that_keep_the_rules() {
    let mut random = Random::new(4);
    let limits = Limits { entries: 16, table_bytes: 1 << 10, stacks: 16, output_bytes: 1 << 10, ..Limits::usual(4) };
    for _ in 0..rounds(1_000) {
        let program = generate::sound(&mut random);
        let code = parse(&program).and_then(|tree| check(&tree, &Image));
        let code = code.unwrap_or_else(|error| panic!("{}", error.within(&program)));
        let store = Store::new(&code, &limits, 0).unwrap();
        let compiled = compiled(&code, &store);
        // A decoder knows them all, and none touches floating point.
        let lines = decoded(&compiled);
        let is_vector =
            |name: &str| name.len() > 1 && name.starts_with(['d', 'q', 's', 'v']) && name[1..].parse::<u8>().is_ok();
        assert!(!lines.iter().flat_map(|line| line.split([' ', ','])).any(is_vector), "{program}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("blr")).count(), compiled.calls.len());
    }
}

#[test]
fn instructions_that_break_a_rule_are_told() {
    let any = Any::new();
    let right = &any.compiled;
    assert!(right.verify(|to| to == 0x5000, any.reach()).is_err());
    let what = |change: &dyn Fn(&mut Compiled)| any.flaw(change);
    let first = |word: u32| what(&|compiled| compiled.words[0] = word);
    for word in [0xd503_207f, 0xd420_0000, 0x1e60_4020, 0xd51b_4220, 0xd69f_03e0, 0xd61f_0120, 0, u32::MAX] {
        assert_eq!(first(word), Err("is no word of a handler"), "{word:#x}");
    }
    let (ours, theirs, stack, return_address) = (0xf940_0003, 0xf940_0013, 0x9100_43ff, 0xaa01_03fe);
    assert_eq!(first(ours), Ok(()));
    for word in [theirs, stack, return_address, 0xf900_0020, 0xf900_03e0, 0xa900_0420, 0xf900_0040, 0xf900_0120] {
        assert_eq!(first(word), Err("writes what is not its own"), "{word:#x}");
    }
    assert_eq!(first(0xc80e_7d29), Err("takes no bucket"));
    assert_eq!(first(0xc89f_fd3f), Err("lets go of a bucket that it does not hold"));
    assert_eq!(first(0x17ff_ffff), Err("leads out of the instructions"));
    assert_eq!(first(0x14ff_ffff), Err("leads out of the instructions"));
    assert_eq!(first(0x5800_0023), Err("loads what is no literal"));
    assert_eq!(first(0x1400_0000), Err("may be executed again and again"));
    assert_eq!(what(&|compiled| compiled.words[4] = 0x17ff_fffd), Err("may be executed again and again"));
    assert_eq!(what(&|compiled| compiled.instructions -= 1), Err("runs out of its end"));
    assert_eq!(first(super::call::ENTER[0]), Err("touches the stack beside a call"));
    assert_eq!(first(super::call::LEAVE[1]), Err("touches the stack beside a call"));
    assert_eq!(first(0xd63f_0220), Err("touches the stack beside a call"));
    let call = right.calls[0];
    let is_not = Err("is not the call that it is said to be");
    assert_eq!(what(&|compiled| compiled.words[call.word - 1] = 0xd280_0011), is_not);
    assert_eq!(what(&|compiled| compiled.words[call.word] = ours), is_not);
    assert_eq!(what(&|compiled| compiled.calls[0].word -= 1), is_not);
    assert_eq!(what(&|compiled| compiled.calls[0].to = 8), Err("calls what it may not"));
    assert_eq!(what(&|compiled| compiled.calls.truncate(1)), Err("calls what it may not"));
    assert_eq!(what(&|compiled| compiled.calls.push(call)), Err("has fewer calls than it says"));
    let last = right.calls.last().unwrap().word;
    assert_eq!(what(&|compiled| compiled.words[last - 3] = 0xb400_0021), Err("branches within a call"));
    let search = right.words.iter().position(|word| word & 0xff00_001f == 0xb500_000b).unwrap();
    assert_eq!(what(&|compiled| compiled.words[search - 1] = ours), Err("may be executed again and again"));
}

/// The numbers of the words of that form.
fn of_form(compiled: &Compiled, mask: u32, value: u32) -> Vec<usize> {
    let words = compiled.words[..compiled.instructions].iter().enumerate();
    words.filter(|(_, word)| **word & mask == value).map(|(at, _)| at).collect()
}

#[test]
fn stores_go_where_a_clause_has_something() {
    let any = Any::new();
    let right = &any.compiled;
    assert_eq!(any.flaw(|_| ()), Ok(()));
    let (lost, past) = ("writes what is not its own", "writes past the end of what it has");
    // `str x14` to a row, of a histogram by powers of two, of one by steps, and to a value alone: anywhere else.
    let mut stores = of_form(right, 0xffc0_001f, 0xf900_000e);
    stores.retain(|&at| right.words[at] >> 5 & 31 != u32::from(FRAME));
    assert!(stores.len() >= 2);
    for &at in &stores {
        for offset in [0, 4095] {
            let word = right.words[at] & !(0xfff << 10) | offset << 10;
            assert_eq!(any.flaw(|wrong| wrong.words[at] = word), Err(past), "{at}: {word:#x}");
        }
        for base in [0, 1, 3, 11, 13, 17] {
            let word = right.words[at] & !(31 << 5) | base << 5;
            let found = any.flaw(|wrong| wrong.words[at] = word);
            assert!(
                found == Err(lost) || found == Err("changes a bucket that it does not hold"),
                "{at}, x{base}: {found:?}"
            );
        }
    }
    // What bounds the row: `clz`, the number that it is taken from, the comparison, and the choice by it.
    let is_refused = |at: usize, word: u32| {
        let found = any.flaw(|wrong| wrong.words[at] = word);
        assert!(found == Err(lost) || found == Err(past), "{at}, {word:#x}: {found:?}");
    };
    for at in of_form(right, 0xffff_fc00, 0xdac0_1000) {
        is_refused(at, a64::copy(13, 3));
    }
    for at in of_form(right, 0xffff_ffff, a64::compute(a64::Binary::SubtractFlags, ZERO, RIGHT, OTHER)) {
        is_refused(at, a64::compute(a64::Binary::SubtractFlags, ZERO, OTHER, RIGHT));
        is_refused(at + 1, a64::select(a64::Condition::Hi, RIGHT, RIGHT, OTHER));
        is_refused(at + 1, a64::select(a64::Condition::Lo, RIGHT, OTHER, RIGHT));
    }
    // The row of the CPU, and its bucket.
    for at in of_form(right, 0xffff_ffff, a64::add_shifted(ROW, BUCKET, ROW, 3 + any.directory.shift)) {
        is_refused(at, a64::add_shifted(ROW, BUCKET, ROW, 4 + any.directory.shift));
        is_refused(at, a64::add_shifted(ROW, BUCKET, SLOT, 3 + any.directory.shift));
    }
    let home = of_form(right, 0xffff_ffff, a64::multiply_add(BUCKET, TAKEN, SLOT, BUCKET))[0];
    let further = a64::shift_right(TAKEN, TAKEN, 30);
    let takes = Err("takes no bucket");
    assert_eq!(any.flaw(|wrong| wrong.words[home] = a64::multiply_add(BUCKET, ONE, SLOT, BUCKET)), takes);
    assert_eq!(any.flaw(|wrong| wrong.words[home - 1] += 1 << 5), takes);
    assert_eq!(any.flaw(|wrong| wrong.words[home - 2] = further), takes);
}

#[test]
fn buckets_are_held_where_they_are_changed_and_let_go_of() {
    let any = Any::new();
    let right = &any.compiled;
    let nothing = a64::copy(ONE, ONE);
    let take = a64::store_exclusive(OTHER, BUCKET, BUCKET);
    let release = a64::store_release(ZERO, BUCKET);
    let (taken, released) = (of_form(right, u32::MAX, take), of_form(right, u32::MAX, release));
    assert!(taken.len() >= 3 && released.len() >= taken.len());
    for &at in &taken {
        for (change, word) in [(at, nothing), (at - 1, nothing), (at - 2, load(HOLDER, BUCKET, 0)), (at + 1, nothing)] {
            assert!(any.flaw(|wrong| wrong.words[change] = word).is_err(), "{change}");
        }
        let other = a64::store_exclusive(OTHER, ZERO, BUCKET);
        assert_eq!(any.flaw(|wrong| wrong.words[at] = other), Err("takes no bucket"));
        // Behind these it is held: the first word is that which tells what slots are taken.
        assert_eq!(any.flaw(|wrong| wrong.words[at + 2] = a64::RETURN), Err("keeps the bucket that it holds"));
        let lost = a64::copy(BUCKET, SLOT);
        assert_eq!(any.flaw(|wrong| wrong.words[at + 2] = lost), Err("loses the bucket that it holds"));
    }
    for &at in &released {
        assert!(any.flaw(|wrong| wrong.words[at] = nothing).is_err(), "{at}");
    }
    // A search that does not stop behind the last slot, or goes on by another length.
    for at in of_form(right, u32::MAX, a64::shift_right(TAKEN, TAKEN, 1)) {
        assert!(any.flaw(|wrong| wrong.words[at - 1] += 8 << 10).is_err(), "{at}");
        assert!(any.flaw(|wrong| wrong.words[at] = nothing).is_err(), "{at}");
    }
}
