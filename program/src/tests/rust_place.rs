//! Arguments by name, fields, variants, and the errors about them.

use std::iter::once;
use std::ops::Range;
use std::string::{String, ToString};
use std::sync::OnceLock;
use std::vec;
use std::vec::Vec;

use kprobes_types::write::{
    self, Argument, Contents, CopyVariable, Function, Inlined, InlinedCopy, Shape, Type, Variable,
};
use kprobes_types::{Flavor, Form, LineRow, Source, Tag, TypeKind, Types, Unknown, ValuePart, ValuePlace};
use kprobes_vm::ir::Op;

use super::machine::{Bed, refused};
use super::{Task, tried};
use kprobes_random::assert_tried;

/// The indices of the types in the table.
const U32: usize = 0;
const I16: usize = 1;
const BOOL: usize = 2;
const CHAR: usize = 3;
const TEXT: usize = 4;
const STATE: usize = 5;
const HEADER: usize = 6;
const HEADER_REFERENCE: usize = 7;
const OPTION: usize = 8;
const SOME: usize = 9;
const NONE: usize = 10;
const BOX: usize = 11;
const NEWTYPE: usize = 12;
const MESSAGE: usize = 13;
const QUIT: usize = 14;
const MOVE: usize = 15;
const BYTES: usize = 17;
const U8: usize = 18;
const POINTER: usize = 19;
const WIDE: usize = 20;
const ENDLESS: usize = 21;
const PORT: usize = 23;
const OBJECT: usize = 28;
const BEYOND: usize = 29;
const HEADERS: usize = 32;
const HOLDER: usize = 33;

fn of(name: &str, size: u64, shape: Shape) -> Type {
    Type { name: name.to_string(), module: "blk".to_string(), size, shape }
}

fn fields(all: &[(&str, u32, usize)]) -> Vec<(String, u32, usize)> {
    all.iter().map(|&(name, offset, of)| (name.to_string(), offset, of)).collect()
}

fn structure(form: Form, all: &[(&str, u32, usize)]) -> Shape {
    TypeKind::Struct { form, members: fields(all) }
}

fn types() -> Vec<Type> {
    let integer = |signed| TypeKind::Integer { signed };
    let variants = |all: &[(&str, Option<u64>, usize)]| {
        all.iter().map(|&(name, value, of)| (name.to_string(), value, of)).collect()
    };
    let pointer = |flavor, target| TypeKind::Pointer { flavor, target, at: 0 };
    vec![
        of("u32", 4, integer(false)),
        of("i16", 2, integer(true)),
        of("bool", 1, TypeKind::Bool),
        of("char", 4, TypeKind::Char),
        of("&str", 16, TypeKind::Sequence { element: U8, is_text: true, data: 0, length: 8 }),
        of(
            "State",
            1,
            TypeKind::Enumeration {
                signed: true,
                enumerators: vec![("Idle".to_string(), 0), ("Busy".to_string(), 1), ("Gone".to_string(), 0xff)],
            },
        ),
        of(
            "Header",
            16,
            structure(
                Form::Named,
                &[("len", 4, U32), ("level", 2, I16), ("state", 0, STATE), ("last", 1, BOOL), ("next", 8, OPTION)],
            ),
        ),
        of("&Header", 8, pointer(Flavor::Reference, HEADER)),
        of(
            "Option<&Header>",
            8,
            TypeKind::Variants {
                tag: Some(Tag { offset: 0, bytes: 8 }),
                variants: variants(&[("None", Some(0), NONE), ("Some", None, SOME)]),
            },
        ),
        of("Some", 8, structure(Form::Tuple, &[("0", 0, HEADER_REFERENCE)])),
        of("None", 8, structure(Form::Named, &[])),
        of("Box<NewType>", 8, pointer(Flavor::Reference, NEWTYPE)),
        of("NewType", 8, structure(Form::Tuple, &[("0", 0, HEADER_REFERENCE)])),
        of(
            "Message",
            8,
            TypeKind::Variants {
                tag: Some(Tag { offset: 0, bytes: 1 }),
                variants: variants(&[("Quit", Some(3), QUIT), ("Move", Some(4), MOVE)]),
            },
        ),
        of("Quit", 8, structure(Form::Named, &[])),
        of("Move", 8, structure(Form::Named, &[("x", 4, U32)])),
        of("()", 0, TypeKind::Unit),
        of("&[u8]", 16, TypeKind::Sequence { element: U8, is_text: false, data: 0, length: 8 }),
        of("u8", 1, integer(false)),
        of("*const u32", 8, pointer(Flavor::Raw, U32)),
        of("(u32, u32)", 8, structure(Form::Tuple, &[("0", 0, U32), ("1", 4, U32)])),
        of("Endless", 8, TypeKind::Wrapper { target: ENDLESS, at: 0 }),
        of("&Endless", 8, pointer(Flavor::Reference, ENDLESS + 1)),
        of("Port", 2, structure(Form::Tuple, &[("0", 0, I16)])),
        of("&Port", 8, pointer(Flavor::Reference, PORT)),
        of("&&Port", 8, pointer(Flavor::Reference, PORT + 1)),
        of("&u32", 8, pointer(Flavor::Reference, U32)),
        of("&&u32", 8, pointer(Flavor::Reference, PORT + 3)),
        of("&dyn Device", 16, TypeKind::Object { data: 0, vtable: 8 }),
        of("&Beyond", 8, pointer(Flavor::Reference, BEYOND + 1)),
        of(
            "Beyond",
            88,
            TypeKind::Variants {
                tag: Some(Tag { offset: 80, bytes: 1 }),
                variants: variants(&[("Off", Some(3), QUIT), ("On", None, BEYOND + 2)]),
            },
        ),
        of("On", 88, structure(Form::Tuple, &[("0", 0x20, HEADER_REFERENCE)])),
        of("&[&Header]", 16, TypeKind::Sequence { element: HEADER_REFERENCE, is_text: false, data: 0, length: 8 }),
        of("Holder", 8, structure(Form::Tuple, &[("0", 0, BEYOND)])),
    ]
}

fn register(number: u8, bytes: u8) -> ValuePlace {
    ValuePlace::Words { first: ValuePart { offset: 0, bytes, source: Source::Register(number) }, second: None }
}

fn pair(number: u8) -> ValuePlace {
    let part = |offset, number| ValuePart { offset, bytes: 8, source: Source::Register(number) };
    ValuePlace::Words { first: part(0, number), second: Some(part(8, number + 1)) }
}

fn memory(register: u8, offset: i32) -> ValuePlace {
    ValuePlace::Memory { register, offset }
}

/// Copies: the copied function, the function that contains the copy, the instruction at which the copy is entered, and
/// its first instruction. The last copy begins with a loop, and follows another copy of its function.
pub(super) const COPIES: [(&str, u64, u64, u64); 3] = [
    ("net::step", 0x1100, 0x1120, 0x1120),
    ("net::step", 0x1200, 0x1210, 0x1210),
    ("net::again", 0x1200, 0x1244, 0x1248),
];

/// `net::step`, `net::inner`, which is also inlined into it, and `net::again`.
fn inlined() -> Vec<Inlined> {
    let function = |name, variables: &[(&str, Option<usize>, bool)]| Inlined {
        hash: kprobes_types::hash(name),
        variables: variables.iter().map(|&(name, of, is_argument)| (name.to_string(), of, is_argument)).collect(),
    };
    vec![
        function(
            "net::step",
            &[
                ("level", Some(I16), true),
                ("header", Some(HEADER_REFERENCE), true),
                ("gone", None, true),
                ("whole", Some(HEADER), false),
            ],
        ),
        function("net::inner", &[("level", Some(I16), true)]),
        function("net::again", &[("level", Some(I16), true)]),
    ]
}

/// A copy of `net::step` with its variables in these places.
fn step(instructions: Range<u32>, places: [ValuePlace; 3]) -> InlinedCopy {
    let all = [0, 1, 3].into_iter().zip(places);
    let variable =
        |(number, place)| CopyVariable { number, scope: vec![], places: vec![(instructions.clone(), place)] };
    InlinedCopy { of: 0, instructions: vec![instructions.clone()], variables: all.map(variable).collect() }
}

fn copies_of_send() -> Vec<InlinedCopy> {
    let mut outer = step(0x10..0x40, [register(3, 2), register(0, 8), memory(29, 0)]);
    outer.variables[0].places = vec![(0x10..0x20, register(3, 2)), (0x30..0x40, memory(20, 6))];
    let level = CopyVariable { number: 0, scope: vec![], places: vec![(0x28..0x30, register(5, 2))] };
    let again = |instructions: Range<u32>| {
        let level = CopyVariable { number: 0, scope: vec![], places: vec![(instructions.clone(), register(5, 2))] };
        InlinedCopy { of: 2, instructions: vec![instructions], variables: vec![level] }
    };
    let inner = InlinedCopy { of: 1, instructions: once(0x28..0x30).collect(), variables: vec![level] };
    vec![outer, inner, again(0x40..0x48), again(0x48..0x50)]
}

/// The state at the instruction `address` of a copy of `net::step`.
fn in_copy(address: u64) -> Task {
    let mut task = call();
    (task.function, task.registers[20], task.registers[29]) = (address, 0x8000 - 4, 0x8000);
    (task.registers[1], task.registers[3], task.registers[5]) = (0x8000, 0xaaaa_fffd, 9);
    task.registers[4] = u64::from_le_bytes([2, 0, 4, 0, 7, 0, 0, 0]);
    task
}

#[test]
fn variables_of_an_inlined_copy_are_those_of_its_function() {
    let at = |probe: &str, address, body: &str| printed_at(probe, body, &in_copy(address));
    // The variable is that of the innermost copy that has one of the name, in its place at the instruction.
    assert_eq!(at("kprobe:net::send+16", 0x1210, "print(args.level);"), "-3\n");
    assert_eq!(at("kprobe:net::send+48", 0x1230, "print(args.level);"), "-2\n");
    assert_eq!(at("kprobe:net::send+40", 0x1228, "print(args.level);"), "9\n");
    assert_eq!(at("kprobe:net::send+40", 0x1228, "print(args.header.len); print(locals.whole.len);"), "300\n300\n");
    assert_eq!(at("kprobe:net::send+40", 0x1228, "print(args);"), "{ .level = 9 }\n");
    // The copies have the variables in different places: a register and memory, two registers, and memory and a pair.
    let entry = "inline:net::step:entry";
    for (address, level) in [(0x1210, -3), (0x1120, -2)] {
        let header = "Header { len: 300, level: -2, state: Gone, last: true, next: None }";
        let all = std::format!("{{ .level = {level}, .header = {header}, .gone = (optimised out) }}\n");
        assert_eq!(at(entry, address, "print(args);"), all);
        assert_tried!(at(entry, address, "@[args.level] = count();"), std::format!("@[{level}]: 1\n"));
        assert_tried!(at(entry, address, "if (args.level == -3) { print(1); }"), ["", "1\n"][usize::from(level == -3)]);
        assert_eq!(at(entry, address, "print(args.header.len);"), "300\n");
        assert_eq!(at(entry, address, "print(args.header == 0x8000);"), "1\n");
        let swapped = ["65023\n", "65279\n"][usize::from(level == -2)];
        assert_tried!(at(entry, address, "print(bswap(args.level));"), swapped);
        assert_tried!(at(entry, address, "print(sizeof((u8[])args.level));"), "2\n");
    }
    assert_tried!(at(entry, 0x1210, "print(locals.whole.len); print(locals.whole.level);"), "300\n-2\n");
    assert_tried!(at(entry, 0x1120, "print(locals.whole.len); print(locals.whole.level);"), "7\n4\n");
    let whole = "Header { len: 7, level: 4, state: <invalid discriminant 2>, last: false, next: ";
    assert!(at(entry, 0x1120, "print(locals.whole);").starts_with(whole));
    let whole = "{ .whole = Header { len: 300, level: -2, state: Gone, last: true, next: None } }\n";
    assert_eq!(at(entry, 0x1210, "print(locals);"), whole);
}

#[test]
fn variables_of_an_inlined_copy_that_are_away_are_refused() {
    let body = |probe: &str, value: &str| refused(&std::format!("{probe} {{ print({value}); }}"));
    let entry = "inline:net::step:entry";
    for (probe, value, why) in tried([
        ("kprobe:net::send+36", "args.level", "in the inlined copy at 0x1224, this is optimised out here; it is there"),
        (entry, "args.gone", "in the inlined copy at 0x1120, this is optimised out"),
        (entry, "args.size", "the function has no argument of this name; it has `level`, `header` and `gone`"),
        (entry, "locals.level", "no local variable of this name is in scope here; the function has `whole`"),
        (entry, "arg0", "arguments are available only on the entry"),
        (
            "inline:net::inner:entry",
            "args.level",
            "the variables of the inlined copy are not known at this instruction",
        ),
        (
            "inline:net::again:entry",
            "args.level",
            "the variables of the inlined copy are not known at this instruction",
        ),
        (
            "inline:net::step:return",
            "args.level",
            "at entries and instructions: by kprobe:, insn: and inline:FUNC:entry",
        ),
        ("kprobe:net::send+80", "args.level", "the function has no named arguments"),
        ("kprobe:net::send", "args.level", "the function has no named arguments"),
        ("kprobe:net::send+16, kprobe:blk::submit", "args.message", "the function has no named arguments"),
    ]) {
        let shown = body(probe, value);
        assert!(shown.contains(why), "{probe} {value}: {shown}");
    }
}

/// The lines of `blk::submit`.
fn lines() -> Contents {
    let row = |address, line| LineRow { address, file: 0, line, is_statement: true };
    let rows = vec![row(0x1000, 3), row(0x1008, 4), row(0x1010, 3), row(0x1014, 0)];
    Contents { rows, files: vec!["blk/src/lib.rs".to_string()], ..Contents::default() }
}

#[test]
fn addresses_stand_for_lines() {
    assert_tried!(
        printed("print(line(0x1004)); print(line(func)); print(line(0x1014));"),
        "blk/src/lib.rs:3\nblk/src/lib.rs:3\n0x1014\n"
    );
    let bed = Bed::new("kprobe:blk::submit { @[line(arg0)] = count(); }");
    for address in [0x1000, 0x1008, 0x1004, 0x1010, 0x2000] {
        bed.hit(0, &Task::with(&[address]));
    }
    let counted = "@[0x2000]: 1\n@[blk/src/lib.rs:4]: 1\n@[blk/src/lib.rs:3]: 3\n";
    let mut sorted: Vec<_> = bed.finish().lines().map(ToString::to_string).collect();
    let mut expected: Vec<_> = counted.lines().map(ToString::to_string).collect();
    sorted.sort();
    expected.sort();
    assert_eq!(sorted.iter().filter(|line| !line.is_empty()).cloned().collect::<Vec<_>>(), expected);
}

#[test]
fn a_type_that_leads_to_itself_is_refused() {
    for (program, caret) in tried([
        ("kprobe:blk::read { @ = args.endless; }", "                       ^^^^^^^^^^^^"),
        ("kprobe:blk::read { @ = args.around; }", "                       ^^^^^^^^^^^"),
        ("kprobe:blk::read { print(args.endless.x); }", "                         ^^^^^^^^^^^^^^"),
    ]) {
        let shown = refused(program);
        assert!(shown.contains("this is nested too deeply") && shown.contains(caret.trim()), "{shown}");
    }
}

/// The table of types of the test image.
pub(super) fn table() -> &'static Types<'static> {
    static TABLE: OnceLock<Types<'static>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let argument = |name: &str, of, place| Argument { name: name.to_string(), of, place };
        let variable = |name: &str, of, is_argument, scope: &[Range<u32>], places: &[(Range<u32>, ValuePlace)]| {
            Variable { name: name.to_string(), of, is_argument, scope: scope.to_vec(), places: places.to_vec() }
        };
        let framed = |offset, at| ValuePart { offset, bytes: 8, source: Source::Memory { register: 29, offset: at } };
        let sum = ValuePart { source: Source::Sum { register: 20, offset: 8 }, ..framed(0, 0) };
        let sum = ValuePlace::Words { first: sum, second: None };
        let bits = |bytes, bits| {
            let source = Source::Bits { register: 21, bits };
            ValuePlace::Words { first: ValuePart { offset: 0, bytes, source }, second: None }
        };
        let halves = ValuePlace::Words { first: framed(0, 0x20), second: Some(framed(8, 0x28)) };
        let submit = Function {
            address: 0x1000,
            declaration: None,
            arguments: vec![
                argument("header", HEADER_REFERENCE, register(0, 8)),
                argument("name", TEXT, pair(1)),
                argument("level", I16, register(3, 2)),
                argument("last", BOOL, register(4, 1)),
                argument("message", MESSAGE, register(5, 8)),
                argument("letter", CHAR, register(6, 4)),
                argument("boxed", BOX, register(7, 8)),
                argument(
                    "deep",
                    U32,
                    ValuePlace::Words {
                        first: ValuePart { offset: 0, bytes: 4, source: Source::stack(8) },
                        second: None,
                    },
                ),
                argument("gone", U32, ValuePlace::Unknown(Unknown::OptimizedOut)),
                argument("moved", U32, ValuePlace::Unknown(Unknown::Elsewhere { from: 16, to: 60 })),
            ],
            returned: argument("", OPTION, register(0, 8)),
            variables: vec![
                variable("level", I16, true, &[], &[(0..0x20, register(3, 2)), (0x20..0x100, memory(29, -4))]),
                variable("header", HEADER_REFERENCE, true, &[], &[(0..0x10, register(0, 8))]),
                variable("sum", U32, false, &[8..0x40, 0x40..0x100], &[(0x10..0x40, register(19, 4))]),
                variable("sum", I16, false, &[0x40..0x50, 0x50..0x80], &[(0x40..0x80, memory(20, 6))]),
                variable("whole", HEADER, false, &[], &[(8..0x100, memory(29, 16))]),
                variable("far", HEADER, false, &[], &[(8..0x100, ValuePlace::At(framed(0, 0x20).source))]),
                variable("text", TEXT, false, &[], &[(8..0x100, halves)]),
                variable("spilled", U32, false, &[], &[(4..0x100, memory(31, 8))]),
                variable("inner", POINTER, false, &[], &[(8..0x100, sum)]),
                variable("lost", U32, false, &[], &[]),
                variable("is_low", BOOL, false, &[], &[(64..0x100, bits(1, 1))]),
                variable("low", U32, false, &[], &[(64..0x100, bits(4, 8))]),
            ],
            copies: vec![],
        };
        let read = Function {
            address: 0x1100,
            declaration: None,
            arguments: vec![
                argument("header", HEADER, ValuePlace::At(Source::Register(0))),
                argument("data", BYTES, pair(1)),
                argument("pointer", POINTER, register(3, 8)),
                argument("level", I16, register(3, 2)),
                argument("pair", WIDE, register(4, 8)),
                argument("always", U32, ValuePlace::Constant(7)),
                argument("state", STATE, register(5, 1)),
                argument("endless", ENDLESS, register(6, 8)),
                argument("around", ENDLESS + 1, register(6, 8)),
                argument("port", PORT + 1, register(7, 8)),
                argument("port_twice", PORT + 2, register(7, 8)),
                argument("twice", PORT + 4, register(7, 8)),
                argument("object", OBJECT, pair(6)),
                argument("holder", HOLDER, register(6, 8)),
                argument("headers", HEADERS, pair(6)),
            ],
            returned: argument("", WIDE, ValuePlace::At(Source::Register(8))),
            variables: vec![],
            copies: vec![step(0x20..0x30, [memory(20, 6), register(1, 8), pair(4)])],
        };
        let returned = argument("", STATE, register(0, 1));
        let send = Function {
            address: 0x1200,
            declaration: None,
            arguments: vec![],
            returned,
            variables: vec![],
            copies: copies_of_send(),
        };
        let contents = Contents {
            functions: vec![submit, read, send],
            types: types(),
            vtables: vec![(0x8010, HEADER), (0x8020, QUIT)],
            inlined: inlined(),
            ..lines()
        };
        let bytes = write::write(0, &contents).unwrap();
        let word = |chunk: &[u8]| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_ne_bytes(word)
        };
        let words: &'static [u32] = bytes.chunks(4).map(word).collect::<Vec<u32>>().leak();
        // SAFETY: every word consists of initialized bytes, and the words are leaked, so they live forever.
        Types::parse(unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), 4 * words.len()) }).unwrap()
    })
}

/// A call of `blk::submit` with a header at 0x8000 and a reference to it at 0x8020.
fn call() -> Task {
    let mut task = Task::with(&[0x8000, 0x8030, 5, 0x1234_fffe, 0xff01, 3, 0x1_0000_0041, 0x8020]);
    task.memory[..16].copy_from_slice(&[0xff, 1, 0xfe, 0xff, 44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    task.memory[0x20..0x28].copy_from_slice(&0x8000_u64.to_le_bytes());
    task.memory[0x30..0x38].copy_from_slice(b"net0 up!");
    task.stack_pointer = 0x8000 - 4;
    task
}

/// Returns what `body` prints at the entry of `blk::submit`.
fn printed(body: &str) -> String {
    printed_at("kprobe:blk::submit", body, &call())
}

fn printed_at(probe: &str, body: &str, task: &Task) -> String {
    let bed = Bed::new(&std::format!("{probe} {{ {body} }}"));
    bed.hit(0, task);
    bed.finish()
}

#[test]
fn all_arguments_are_printed_with_their_names() {
    let header = "Header { len: 300, level: -2, state: Gone, last: true, next: None }";
    let rest = ".deep = 300, .gone = (optimised out), .moved = (optimised out)";
    assert_tried!(
        printed("print(args);"),
        std::format!(
            "{{ .header = {header}, .name = \"net0 \", .level = -2, .last = true, .message = Quit, .letter = 'A', \
             .boxed = NewType({header}), {rest} }}\n"
        )
    );
    // Variables leave no room for the long values.
    let variables: Vec<_> = (0..14).map(|number| std::format!("$a{number} = buf(arg0, 128); ")).collect();
    assert_tried!(
        printed(&(variables.concat() + "print(args);")),
        "{ .header = …, .name = \"net0 \", .level = -2, .last = true, .message = Quit, .letter = 'A', .boxed = …, \
         .deep = …, .gone = (optimised out), .moved = (optimised out) }\n14 reads of memory failed, and gave 0\n"
    );
    assert!(refused("kprobe:net::send { print(args); }").contains("the function has no named arguments"));
}

#[test]
fn variables_are_where_they_are_at_the_instruction() {
    let mut task = call();
    task.registers[19] = 0xaaaa_0000_0007;
    task.registers[20] = 0x8000 - 4;
    task.registers[21] = 0xffff_fffe_ffff_ff0a;
    // The frame: a header, and after it the address and the length of a text.
    task.registers[29] = 0x8000;
    task.memory[..16].copy_from_slice(&[0, 0, 0xfe, 0xff, 44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    task.memory[16..32].copy_from_slice(&[0, 1, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    task.memory[0x20..0x28].copy_from_slice(&0x8030_u64.to_le_bytes());
    task.memory[0x28..0x30].copy_from_slice(&3_u64.to_le_bytes());
    let at = |offset: u32, body: &str| printed_at(&std::format!("kprobe:blk::submit+{offset}"), body, &task);
    assert_eq!(at(0, "print(args.level);"), "-2\n");
    assert_eq!(at(16, "print(args.level); print(locals.sum);"), "-2\n7\n");
    let header = "Header { len: 9, level: 5, state: Idle, last: true, next: None }";
    assert_eq!(at(64, "print(locals.whole.len); print(locals.whole);"), std::format!("9\n{header}\n"));
    assert_eq!(at(64, "printf(\"%s %d\", locals.text, len(locals.text));"), "net 3");
    assert_eq!(at(64, "print(locals.sum);"), "-2\n", "the inner one");
    assert_tried!(at(64, "if (locals.whole.state == State::Idle) { print(1); }"), "1\n");
    assert_tried!(at(64, "print(locals.spilled);"), "300\n");
    assert_tried!(at(64, "printf(\"%x %d\", locals.inner, *locals.inner);"), "8004 300");
    assert_tried!(printed_at("insn:blk::submit:16", "@[locals.sum] = count();", &task), "@[7]: 1\n");
    assert_tried!(at(64, "printf(\"%x\", locals.far.len);"), "21707520");
    assert_tried!(at(64, "print(locals.is_low); print(locals.low);"), "false\n10\n");
    assert_tried!(at(64, "if (locals.low == 10) { print(1); }"), "1\n");
    let all = at(16, "print(locals);");
    assert!(all.starts_with(&std::format!("{{ .sum = 7, .whole = {header}, .far = Header {{ len: ")), "{all}");
    assert!(all.contains(", .text = \"net\", .spilled = 300, .inner = 0x8004 }\n"), "{all}");
}

#[test]
fn variables_that_are_away_are_refused_with_where_they_are() {
    let body = |probe: &str, value: &str| refused(&std::format!("{probe} {{ print({value}); }}"));
    for (probe, value, why) in tried([
        ("kprobe:blk::submit+16", "args.header", "this is optimised out here; it is there from +0x0 to +0x10"),
        ("kprobe:blk::submit+128", "locals.sum", "this is optimised out here; it is there from +0x10 to +0x40"),
        ("kprobe:blk::submit+64", "locals.lost", "this is optimised out"),
        ("kprobe:blk::submit+4", "locals.whole", "this is optimised out here; it is there from +0x8 to +0x100"),
        ("kprobe:blk::submit+4", "locals.sum", "in scope here; the function has `sum`, `whole`, `far`"),
        ("kprobe:blk::submit+4", "locals.spilled", "locates this in the frame of the function, which is not there"),
        ("kprobe:blk::submit+240", "locals.spilled", "locates this in the frame of the function, which is not there"),
        ("kprobe:blk::submit+64", "locals.size", "in scope here; the function has `sum`, `whole`, `far`"),
        ("kprobe:blk::submit+64", "args.size", "the function has no argument of this name; it has `header`"),
        ("kprobe:blk::read+64", "locals.sum", "the function has no local variables of its own"),
        ("kretprobe:blk::submit", "locals.sum", "args and locals are available at entries and instructions"),
        ("kprobe:blk::submit+64", "arg0", "arguments are available only on the entry"),
        ("kprobe:blk::submit+64", "locals + 1", "print(locals) prints all that are there"),
    ]) {
        let shown = body(probe, value);
        assert!(shown.contains(why), "{probe} {value}: {shown}");
    }
}

#[test]
fn arguments_are_numbers_of_their_width() {
    assert_tried!(printed("print(args.level);"), "-2\n");
    assert_tried!(printed("printf(\"%d %d\", args.last, args.letter);"), "1 65");
    assert_tried!(printed("print(args.deep);"), "300\n");
    assert_tried!(printed_at("kprobe:blk::read", "print(args.always);", &call()), "7\n");
    assert_tried!(printed_at("kprobe:blk::read", "print(args.pair.1); print(args.pair.0);", &call()), "0\n65281\n");
}

#[test]
fn values_of_rust_have_the_sizes_and_the_classes_of_their_types() {
    for (value, size, is_integer, is_ptr, is_str) in tried([
        ("args.level", 2, 1, 0, 0),
        ("args.header", 8, 0, 1, 0),
        ("args.header.len", 4, 1, 0, 0),
        ("args.header.state", 1, 1, 0, 0),
        ("args.boxed", 8, 0, 1, 0),
        ("args.name", 16, 0, 0, 1),
        ("args.message", 8, 0, 0, 0),
    ]) {
        let asked = std::format!("print((sizeof({value}), is_integer({value}), is_ptr({value}), is_str({value})));");
        assert_eq!(printed(&asked), std::format!("({size}, {is_integer}, {is_ptr}, {is_str})\n"), "{value}");
    }
    let read = |body| printed_at("kprobe:blk::read", body, &call());
    assert_eq!(read("print((sizeof(args.header), is_ptr(args.pointer), sizeof(*args.pointer)));"), "(16, 1, 4)\n");
    assert_tried!(printed("print(bswap(args.header.len) == 0x2c010000);"), "1\n");
    assert_tried!(printed("print(bswap(args.level) == 0xfeff);"), "1\n");
    assert_tried!(printed("print(bswap(args.header.state));"), "255\n");
    assert_eq!(read("print(bswap(args.always) == 0x7000000);"), "1\n");
    // A reference to a struct is an address. A reference to such a reference is the value that it leads to.
    assert_eq!(read("print((bswap(args.port) == 0x2080000000000000, is_ptr(args.port)));"), "(1, 1)\n");
    assert_eq!(read("print((args.port_twice, bswap(args.port_twice), is_ptr(args.port_twice)));"), "(511, 65281, 0)\n");
    assert_eq!(read("print((args.twice == 0xfffe01ff, is_integer(args.twice), sizeof(args.twice)));"), "(1, 1, 8)\n");
}

#[test]
fn memory_is_read_once_for_a_value() {
    let mut task = call();
    task.registers[7] = 0x9000;
    for (body, shown) in tried([
        ("print(args.boxed.0.len == arg1);", "0\n2 reads of memory failed, and gave 0\n"),
        ("print(str(args.boxed.0.len, 5));", "\n3 reads of memory failed, and gave 0\n"),
        ("@[args.boxed.0] = 1; clear(@);", "1 read of memory failed, and gave 0\n"),
    ]) {
        assert_eq!(printed_at("kprobe:blk::submit", body, &task), shown, "{body}");
    }
}

#[test]
fn fields_are_found_through_references_boxes_and_new_types() {
    assert_tried!(printed("print(args.header.len);"), "300\n");
    assert_tried!(printed("print(args.header.level);"), "-2\n");
    assert_tried!(printed("print(args.boxed.len);"), "300\n");
    assert_tried!(printed("print(args->header->len);"), "300\n");
    assert_tried!(printed_at("kprobe:blk::read", "print(args.header.len);", &call()), "300\n");
    assert_tried!(printed("print(args.header == 0x8000);"), "1\n");
    let mut task = call();
    task.registers[3] = 0x8004;
    assert_tried!(printed_at("kprobe:blk::read", "printf(\"%x\", *args.pointer);", &task), "12c");
}

#[test]
fn a_field_is_what_a_read_of_its_address_is() {
    let code = |value: &str| {
        let bed = Bed::new(&std::format!("kprobe:blk::submit {{ @ = sum({value}); }}"));
        bed.program.code.routines.first().map(|routine| routine.ops.clone())
    };
    assert_eq!(code("args.header.len"), code("*(u32 *)(arg0 + 4)"));
    assert_eq!(code("args.header.level"), code("*(s16 *)(arg0 + 2)"));
}

#[test]
fn an_object_is_of_the_type_that_its_vtable_tells() {
    let object = |data: u64, vtable: u64, size: u64, next: u64| {
        let mut task = call();
        (task.registers[6], task.registers[7]) = (data, vtable);
        task.memory[8..16].copy_from_slice(&next.to_le_bytes());
        let at = vtable as usize - 0x8000 + 8;
        task.memory[at..at + 8].copy_from_slice(&size.to_le_bytes());
        printed_at("kprobe:blk::read", "print(args.object);", &task)
    };
    let header = |next| std::format!("Header {{ len: 300, level: -2, state: Gone, last: true, next: {next} }}\n");
    assert_eq!(object(0x8000, 0x8010, 16, 0), header("None"));
    assert_eq!(object(0x8000, 0x8010, 16, 0x8000), header("Some(…)"));
    assert_eq!(object(0x8000, 0x8010, 8, 0), header("(fault)"), "no more is read than the object has");
    assert_eq!(object(0x8000, 0x8030, 16, 0), "<&dyn Device at 0x8000>\n");
    // There is no memory at 1, and nothing is read there.
    assert_eq!(object(1, 0x8020, 0, 0), "Quit\n");
    let unread = "Header { len: (fault), level: (fault), state: (fault), last: (fault), next: (fault) }\n";
    assert_eq!(object(1, 0x8010, 16, 0), std::format!("{unread}1 read of memory failed, and gave 0\n"));
}

#[test]
fn strings_are_as_long_as_they_are() {
    assert_tried!(printed("printf(\"[%s]\", args.name);"), "[net0 ]");
    assert_tried!(printed("printf(\"[%s]\", str(args.name));"), "[net0 ]");
    assert_tried!(printed("printf(\"[%s]\", str(args.name, 3));"), "[net]");
    assert_tried!(printed("print(len(args.name));"), "5\n");
    let mut task = call();
    (task.registers[1], task.registers[2]) = (0x8030, 4);
    assert_tried!(printed_at("kprobe:blk::read", "@[str(args.data)] = count();", &task), "@[net0]: 1\n");
    assert_tried!(printed("if (args.name == \"net0 \") { print(1); }"), "1\n");
    // The length may be computed for an address, but not for a string of Rust.
    (task.registers[3], task.registers[5]) = (0x8030, 4);
    assert_eq!(printed_at("kprobe:blk::read", "print(str(args.pointer, arg5));", &task), "net0\n");
    assert!(refused("kprobe:blk::read { print(str(args.data, arg5)); }").contains("this has to be a constant"));
}

#[test]
fn variants_are_shown_and_compared_by_name() {
    assert_tried!(printed("print(args.header.state);"), "Gone\n");
    assert_tried!(printed("@[args.header.state, args.last] = count();"), "@[Gone, true]: 1\n");
    assert_tried!(printed("printf(\"%s %r\", args.message, args.letter);"), "Quit 'A'");
    assert_tried!(printed("@[args.header.next] = count();"), "@[None]: 1\n");
    for (condition, holds) in tried([
        ("args.header.state == State::Gone", 1),
        ("args.header.state == blk::State::Gone", 1),
        ("args.header.state != State::Gone", 0),
        ("State::Busy != args.header.state", 1),
        ("args.header.state is Gone", 1),
        ("args.message is Quit", 1),
        ("args.message == Message::Move", 0),
        ("args.header.next is None", 1),
        ("args.header.next == Option::Some", 0),
        ("!(args.header.next is Some)", 1),
    ]) {
        assert_eq!(printed(&std::format!("print({condition});")), std::format!("{holds}\n"), "{condition}");
    }
    let mut task = call();
    task.memory[0] = 7;
    task.registers[5] = 9;
    task.memory[8] = 0x20;
    let text = printed_at(
        "kprobe:blk::submit",
        "print(args.header.state); print(args.message); print(args.header.next is Some); @[args.header.next] = count();",
        &task,
    );
    assert_eq!(text, "<invalid discriminant 7>\n<invalid discriminant 9>\n1\n@[Some(..)]: 1\n");
}

#[test]
fn fields_of_a_variant_are_there_in_values_of_that_variant() {
    let mut task = call();
    // The message is `Move { x: 300 }`, and the next header is the one at 0x8000.
    task.registers[5] = 300 << 32 | 4;
    task.memory[8..16].copy_from_slice(&0x8000_u64.to_le_bytes());
    let at = |body: &str, task: &Task| printed_at("kprobe:blk::submit", body, task);
    assert_tried!(at("print(args.message.Move.x);", &task), "300\n");
    assert_tried!(at("@[args.message.Move.x] = sum(args.message.Move.x + 1);", &task), "@[300]: 301\n");
    assert_tried!(
        at("print(args.message.Move); printf(\"%r\", args.message.Move);", &task),
        "Move { x: 300 }\nMove { x: 300 }"
    );
    assert_tried!(at("print(args.header.next.Some.0.len);", &task), "300\n");
    assert_tried!(at("print(args.header.next.Some.0 == 0x8000);", &task), "1\n");
    assert_tried!(at("print(args.header.next.Some.0.next.Some.0.level);", &task), "-2\n");
    assert_tried!(at("print((sizeof(args.message.Move.x), sizeof(args.message.Quit)));", &call()), "(4, 8)\n");
    // At another variant, the clause ends where it names the field. Other clauses run.
    for body in tried(["print(args.message.Move.x)", "@a = count(); @b[args.message.Move.x] = count()"]) {
        let shown = at(&std::format!("print(1); if (1) {{ {body}; }} print(2);"), &call());
        assert!(shown.starts_with("1\n") && !shown.contains('2'), "{body}: {shown}");
    }
    let both = "kprobe:blk::submit /args.message.Move.x == 300/ { print(1); } kprobe:blk::submit { print(2); }";
    let run = |task: &Task| {
        let bed = Bed::new(both);
        bed.hit(0, task).hit(1, task);
        bed.finish()
    };
    assert_eq!((run(&task), run(&call())), ("1\n2\n".to_string(), "2\n".to_string()));
    // The field is not read if the left side of an operator decides, nor in a branch that is not taken.
    for condition in
        tried(["args.message is Move && args.message.Move.x", "!(args.message is Quit || args.message.Move.x)"])
    {
        assert_eq!(at(&std::format!("print(({condition}) == 0); print(3);"), &call()), "1\n3\n", "{condition}");
    }
    assert_tried!(at("if (args.message is Move) { print(args.message.Move.x); } print(3);", &call()), "3\n");
    // A tag that no variant has selects none, unless a variant owns all other tags.
    task.registers[5] = 9;
    assert_eq!(at("print(1); print(args.message.Move.x);", &task), "1\n");
    assert_eq!(at("print(1); print(args.message.Quit);", &task), "1\n");
    let returned = |registers: u64| {
        let mut task = call();
        task.registers[0] = registers;
        printed_at("kretprobe:blk::submit", "print(1); print(retval.Some.0.len);", &task)
    };
    assert_eq!((returned(0x8000).as_str(), returned(0).as_str()), ("1\n300\n", "1\n"));
    for (value, why) in tried([
        ("args.message.Stop", "`Message` has no variant of this name; it has `Quit` and `Move`"),
        ("args.message.x", "this is `Message`, whose fields depend on its variant: name it, as in x.Some.0"),
        ("args.message.Move.y", "this is `Move`, which has no field of this name; it has `x`"),
        ("args.header.state.Gone", "this is `State`, which has no fields"),
    ]) {
        let shown = refused(&std::format!("kprobe:blk::submit {{ print({value}); }}"));
        assert!(shown.contains(why), "{value}: {shown}");
    }
}

#[test]
fn values_are_printed_as_debug_does() {
    let header = "Header { len: 300, level: -2, state: Gone, last: true, next: None }";
    assert_tried!(printed("print(args.header);"), std::format!("{header}\n"));
    assert_tried!(printed("printf(\"<%r>\", args.boxed);"), std::format!("<NewType({header})>"));
    assert_tried!(printed("print(args.name);"), "\"net0 \"\n");
    assert_tried!(printed("print(args.message);"), "Quit\n");
    assert_tried!(printed("print(args.letter); print(args.last); print(args.level);"), "'A'\ntrue\n-2\n");
    let mut task = call();
    task.registers[5] = 0x1234_0000_0004;
    assert_tried!(printed_at("kprobe:blk::submit", "print(args.message);", &task), "Move { x: 4660 }\n");
    // A self-referential value is cut off. A part that cannot be read is shown as a fault, and counted.
    task.memory[9] = 0x80;
    let once = |inner: &str| header.replace("None", &std::format!("Some({inner})"));
    let text = printed_at("kprobe:blk::submit", "print(args.header);", &task);
    assert_eq!(text, std::format!("{}\n", once(&once(&once(&once("…"))))));
    task.memory[9] = 0x90;
    let fault = "Header { len: (fault), level: (fault), state: (fault), last: (fault), next: (fault) }";
    let text = printed_at("kprobe:blk::submit", "print(args.header);", &task);
    assert_eq!(text, std::format!("{}\n1 read of memory failed, and gave 0\n", once(fault)));
    (task.registers[1], task.registers[2]) = (0x8030, 5);
    assert_tried!(printed_at("kprobe:blk::read", "print(args.data);", &task), "[110, 101, 116, 48, 32]\n");
    // A variant whose tag was not read is not followed; nor is an element beyond the end.
    (task.registers[6], task.memory[9]) = (0x8000, 0);
    assert_eq!(printed_at("kprobe:blk::read", "print(args.holder);", &task), "Holder(…)\n");
    (task.registers[6], task.registers[7]) = (0x8020, 1);
    let text = printed_at("kprobe:blk::read", "print(args.headers);", &task);
    assert_eq!(text, std::format!("[{header}]\n"));
    task.registers[4] = 0x2_0000_0001;
    assert_tried!(printed_at("kprobe:blk::read", "print(args.pair);", &task), "(1, 2)\n");
    assert_tried!(printed_at("kprobe:blk::submit", "printf(\"%r %r\", args.level, args.header.len);", &task), "-2 300");
    // An excessive length is cut, and marked.
    task.registers[2] = u64::MAX;
    let text = printed_at("kprobe:blk::read", "print(args.data);", &task);
    assert_eq!(text, "[110, 101, 116, 48, 32, 117, 112, 33, …]\n");
    (task.registers[1], task.registers[2]) = (0x8030, 2);
    task.memory[0x31] = b'"';
    assert_tried!(printed_at("kprobe:blk::submit", "print(args.name);", &task), "\"n\\\"\"\n");
}

/// The place of a value is compiled once.
#[test]
fn a_field_that_is_printed_is_looked_up_once() {
    let bed = Bed::new("kprobe:blk::submit { print(args.header.state); }");
    let loads = bed.program.code.routines[0].ops.iter().filter(|op| matches!(op, Op::Load { .. }));
    assert_eq!(loads.count(), 1, "{}", bed.program);
}

#[test]
fn what_is_returned_has_its_type() {
    let mut task = call();
    task.registers[0] = 0xabff;
    assert_tried!(printed_at("kretprobe:net::send", "print(retval); print(retval is Gone);", &task), "Gone\n1\n");
    assert_tried!(printed_at("kretprobe:blk::submit", "@[retval] = count();", &call()), "@[Some(..)]: 1\n");
    let text = "Some(Header { len: 300, level: -2, state: Gone, last: true, next: None })\n";
    assert_tried!(printed_at("kretprobe:blk::submit", "print(retval);", &call()), text);
    // A result in memory is read at the address that the entry was given.
    assert_tried!(
        printed_at("kretprobe:blk::read", "print(retval); print(retval.1);", &call()),
        "(4294836735, 300)\n300\n"
    );
    // For several functions, or unknown ones, `retval` is a number.
    assert_tried!(printed_at("kretprobe:main", "print(retval);", &task), "44031\n");
    assert_tried!(printed_at("kretprobe:blk::submit, kretprobe:net::send", "print(retval);", &task), "44031\n");
}

#[test]
fn what_is_not_known_is_refused_where_it_is_named() {
    for (program, said) in tried([
        (
            "kprobe:blk::submit { print(args.nothing); }",
            "                           ^^^^^^^^^^^^\nthe function has no argument of this name; it has `header`, \
             `name`, `level`, \
             `last`, `message`, `letter`, `boxed` and `deep` …",
        ),
        ("kprobe:blk::submit { print(args.gone); }", "                           ^^^^^^^^^\nthis is optimised out"),
        (
            "kprobe:blk::submit { print(args.moved); }",
            "                           ^^^^^^^^^^\nthis is optimised out here; it is there from +0x10 to +0x3c",
        ),
        (
            "kprobe:blk::submit { print(args.header.size); }",
            "                           ^^^^^^^^^^^^^^^^\nthis is `Header`, which has no field of this name; it has \
             `len`, `level`, \
             `state`, `last` and `next`",
        ),
        (
            "kprobe:blk::submit { print(args.level.low); }",
            "                           ^^^^^^^^^^^^^^\nthis is `i16`, which has no fields",
        ),
        (
            "kprobe:blk::submit { print(args.header.next.len); }",
            "                           ^^^^^^^^^^^^^^^^^^^^\nthis is `Option<&Header>`, whose fields depend on its \
             variant: name it, as in x.Some.0",
        ),
        (
            "kprobe:blk::submit { @ = sum(args.header.next); }",
            "                             ^^^^^^^^^^^^^^^^\nthis is `Option<&Header>`, not a number; print it, or name \
             a field",
        ),
        (
            "kprobe:blk::submit /args.header.state is Lost/ { @ = count(); }",
            "                                         ^^^^\n`State` has no variant of this name; it has `Idle`, `Busy` \
             and `Gone`",
        ),
        (
            "kprobe:blk::submit /args.header.state == Mode::Idle/ { @ = count(); }",
            "                                         ^^^^^^^^^^\n`State` has no variant of this name; it has `Idle`, \
             `Busy` and `Gone`",
        ),
        (
            "kprobe:blk::submit /args.level == State::Idle/ { @ = count(); }",
            "                                  ^^^^^^^^^^^\nthis is `i16`, which has no variants",
        ),
        (
            "kprobe:blk::submit { print(State::Idle); }",
            "                           ^^^^^^^^^^^\na path names a variant to compare with, as in args.state == \
             State::Idle",
        ),
        (
            "kprobe:blk::* { print(args.header.len); }",
            "                      ^^^^^^^^^^^\nthe functions that the probe matches have this with different types, or in too many different places",
        ),
        (
            "kprobe:main { print(args.x); }",
            "                    ^^^^^^\nthe arguments of this function are unknown; use arg0 to arg7 and retval",
        ),
        ("kprobe:net::send { print(args.x); }", "                         ^^^^^^\nthe function has no named arguments"),
        (
            "return:blk::read { print(retval.0); }",
            "                         ^^^^^^\nonly kretprobe: has this: at return:, the function may tail-call \
             another, and the address of a result in memory is unknown",
        ),
        (
            "kretprobe:blk::submit { print(args.level); }",
            "                              ^^^^^^^^^^\nargs and locals are available at entries and instructions: by \
             kprobe:, insn: and inline:FUNC:entry",
        ),
    ]) {
        let text = refused(program);
        let shown = text.split_once('\n').unwrap().1;
        assert_eq!(shown, said, "{program}");
    }
}
