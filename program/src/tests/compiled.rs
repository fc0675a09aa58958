//! The machine code that programs compile to, as an independent decoder reads it. The tests on the target execute the
//! code.

use std::string::{String, ToString};
use std::vec::Vec;

use kprobes_vm::ir::{Code, Register};
use kprobes_vm::jit::{Base, Clock, Directory, Kernel, MachineCode, Path, Source, compile};
use kprobes_vm::maps::{Limits, Store};
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::machine::{Bed, load};
use crate::generate;
use crate::tests::rounds;
use kprobes_random::{Random, assert_tried};

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
    probe: None,
    cpu: Path { base: Base::Thread, offsets: &[24] },
    cpus: 4,
    task: Some(Source::Path(Path { base: Base::Thread, offsets: &[16] })),
    comm: Some(Path { base: Base::Thread, offsets: &[32] }),
    nanoseconds: Some(Clock { start: 0x4000, per_tick: 16 << 32 }),
    perform: 0x5000,
    context: 0x6000,
};

fn compiled(code: &Code, store: &Store) -> MachineCode {
    compile(code, 0, store, &Directory::new(store).unwrap(), &KERNEL).unwrap()
}

/// Disassembles an instruction.
pub(super) fn disassembled(word: u32) -> String {
    let bytes = word.to_le_bytes();
    InstDecoder::default().decode(&mut U8Reader::new(&bytes)).expect("an instruction").to_string()
}

/// Disassembles the instructions.
fn decoded(compiled: &MachineCode) -> Vec<String> {
    compiled.words[..compiled.instructions].iter().map(|&word| disassembled(word)).collect()
}

/// Returns the instructions of a program up to its last RET. The rare paths follow that RET.
fn usual(program: &str) -> String {
    let bed = Bed::new(program);
    let mut lines = decoded(&compiled(&bed.program.code, &bed.store));
    let end = lines.iter().rposition(|line| line == "ret").unwrap();
    lines.truncate(end + 1);
    // An address takes two instructions instead of a literal if it ends in 16 zero bits, or is as small as in Miri.
    lines.retain(|line| !line.starts_with("movk x9,"));
    let moves = lines.iter_mut().filter(|line| line.starts_with("mov x9,"));
    moves.for_each(|line| *line = "ldr x9, $+0x0".into());
    lines.join("\n")
}

/// Finds the table of this CPU for the first map of the program.
const OWN: &str =
    "mrs x1, s3_0_c13_c0_4\nldr x1, [x1, #0x18]\nldr x9, $+LITERAL\nadd x1, x9, x1, lsl #4\nldr x9, [x1, #0x8]\n";
/// Locks the bucket.
const HOLD: &str = "ldaxr x10, [x9]\ncbnz x10, $+ASIDE\nstxr w14, x9, [x9]\ncbnz w14, $+ASIDE\nldr x11, [x9, #0x8]\n";
const RELEASE: &str = "stlr xzr, [x9]\nret";

/// Returns `listing` with names in place of the distances of branches and literals that lead out of it.
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
    assert_tried!(
        open(&usual("kprobe:f { @ = count(); }")),
        std::format!(
            "{OWN}{HOLD}tbz w11, #0x0, $+ASIDE\nldr x14, [x9, #0x18]\nadd x14, x14, #0x1\nstr x14, [x9, #0x18]\n{RELEASE}"
        )
    );
    assert_tried!(
        open(&usual("kprobe:f { @ = hist(arg0); }")),
        std::format!(
            "ldr x3, [x0]\n{OWN}{HOLD}tbz w11, #0x0, $+ASIDE\nclz x13, x3\nmov x14, #0x41\nsub x13, x14, x13\ncmp x3, xzr\n\
             csel x13, xzr, x13, lt\nadd x12, x9, x13, lsl #3\nldr x14, [x12, #0x18]\nadd x14, x14, #0x1\n\
             str x14, [x12, #0x18]\n{RELEASE}"
        )
    );
    assert_tried!(
        open(&usual("kprobe:f { @ = hist(arg0, 3); }")),
        std::format!(
            "ldr x3, [x0]\n{OWN}{HOLD}tbz w11, #0x0, $+ASIDE\nclz x13, x3\nmov x14, #0x3c\nsubs x14, x14, x13\n\
             csel x14, x14, xzr, hs\nlsr x16, x3, x14\nadd x16, x16, x14, lsl #3\nmov x14, #0x1e8\ncmp x16, x14\n\
             csel x16, x16, x14, lo\nadd x16, x16, #0x1\ncmp x3, xzr\ncsel x13, xzr, x16, lt\n\
             add x12, x9, x13, lsl #3\nldr x14, [x12, #0x18]\nadd x14, x14, #0x1\nstr x14, [x12, #0x18]\n{RELEASE}"
        )
    );
    assert_tried!(
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
    assert_eq!((&start[..2], start[3]), (&["ldr x3, [x0]", "cmp x3, #0x5"][..], "mrs x1, s3_0_c13_c0_4"));
    // The address of the directory takes one instruction or two.
    assert!(["b.ls $+0x40", "b.ls $+0x44"].contains(&start[2]), "{start:?}");
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
        let compiled = compiled(&bed.program.code, &bed.store);
        for call in &compiled.calls {
            assert_eq!(compiled.words[call.word], 0xd63f_0220, "{program}");
        }
        (compiled.stack_bytes, compiled.calls.iter().map(|call| call.to).collect::<Vec<_>>())
    };
    assert_eq!(bytes("kprobe:f { $x = arg0 + cpu; if ($x) { return; } }"), (0, [].into()));
    assert_eq!(bytes("kprobe:f { print(nsecs); }"), (32, [0x5000].into()));
    assert_eq!(bytes("kprobe:f { @ = count(); }"), (32, [0x5000].into()));
}

#[test]
fn exit_is_looked_for_where_it_is_said() {
    let listing = usual("kprobe:f { @n = 1; } kprobe:g { exit(); }");
    assert_eq!(open(listing.lines().next().unwrap()), "ldr x9, $+LITERAL");
    assert_eq!(listing.lines().nth(1), Some("ldrb w9, [x9]"));
    assert!(!usual("kprobe:f { @n = 1; } kprobe:g { @n = 2; }").contains("ldrb"));
    // The clause also runs at the end, but not as compiled code.
    assert!(usual("kprobe:f, END { @n = 1; } kprobe:g { exit(); }").contains("ldrb w9, [x9]"));
}

#[test]
#[cfg_attr(miri, ignore = "its programs take minutes there; the other tests compile shorter ones")]
fn random_programs_become_instructions_that_keep_the_rules() {
    let mut random = Random::new(4);
    let limits = Limits { entries: 16, table_bytes: 1 << 10, stacks: 16, output_bytes: 1 << 10, ..Limits::usual(4) };
    for _ in 0..rounds(1_000) {
        let program = generate::sound(&mut random);
        let code = load(&program).unwrap_or_else(|error| panic!("{}", error.within(&program))).code;
        let store = Store::new(&code, &limits, 0).unwrap();
        let compiled = compiled(&code, &store);
        // The decoder knows every instruction, and none uses floating-point registers.
        let lines = decoded(&compiled);
        let is_vector =
            |name: &str| name.len() > 1 && name.starts_with(['d', 'q', 's', 'v']) && name[1..].parse::<u8>().is_ok();
        assert!(!lines.iter().flat_map(|line| line.split([' ', ','])).any(is_vector), "{program}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("blr")).count(), compiled.calls.len());
    }
}
