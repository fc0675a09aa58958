//! Tables that are built here, read back, and damaged.

use std::iter::once;
use std::ops::Range;
use std::string::ToString;
use std::{vec, vec::Vec};

use kprobes_random::Random;
use kprobes_symbols::frame::{CHECKED_FROM, seal};

use super::{Argument, Defect, Enumerator, Member, Types, TypesError, Variant};
use crate::lines::{LineError, LineRow};
use crate::model::{Declaration, Flavor, Form, Source, Tag, TypeId, TypeKind, Unknown, ValuePart, ValuePlace};
use crate::write::{self, Contents, CopyVariable, Function, Inlined, InlinedCopy, Type, WriteError};

const BASE: u64 = 0xffff_ffc0_0000_0000;

/// The declaration of the second function.
const DECLARATION: Declaration = Declaration { file: 1, line: 100, more: 200 };

/// Bytes at a multiple of 4.
struct Aligned(Vec<u32>, usize);

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_ne_bytes(word)
        };
        Self(bytes.chunks(4).map(word).collect(), bytes.len())
    }

    fn bytes(&self) -> &[u8] {
        &zerocopy::IntoBytes::as_bytes(self.0.as_slice())[..self.1]
    }
}

fn of(name: &str, size: u64, shape: write::Shape) -> Type {
    Type { name: name.to_string(), module: "kernel::net".to_string(), size, shape }
}

fn memory(register: u8, offset: i32) -> ValuePlace {
    ValuePlace::Memory { register, offset }
}

fn sum(register: u8, offset: i32) -> ValuePlace {
    let source = Source::Sum { register, offset };
    ValuePlace::Words { first: ValuePart { offset: 0, bytes: 4, source }, second: None }
}

fn bits(register: u8, bits: u8) -> ValuePlace {
    let source = Source::Bits { register, bits };
    ValuePlace::Words { first: ValuePart { offset: 0, bytes: 4, source }, second: None }
}

/// A type of every kind, and functions with places of every kind.
fn contents() -> Contents {
    let text = |text: &str| text.to_string();
    let types = vec![
        of("u32", 4, TypeKind::Integer { signed: false }),
        of("*mut Opaque", 8, TypeKind::Opaque),
        of("()", 0, TypeKind::Unit),
        of("bool", 1, TypeKind::Bool),
        of("char", 4, TypeKind::Char),
        of("i64", 8, TypeKind::Integer { signed: true }),
        of("f64", 8, TypeKind::Float),
        of("fn()", 8, TypeKind::Function),
        of("&Header", 8, TypeKind::Pointer { flavor: Flavor::Reference, target: 12, at: 0 }),
        of("Arc<Header>", 8, TypeKind::Pointer { flavor: Flavor::Shared, target: 12, at: 16 }),
        of("&str", 16, TypeKind::Sequence { element: 0, is_text: true, data: 0, length: 8 }),
        of("*const dyn Device", 16, TypeKind::Dynamic { data: 0, vtable: 8 }),
        of(
            "Header",
            16,
            TypeKind::Struct { form: Form::Named, members: vec![(text("next"), 8, 8), (text("len"), 4, 0)] },
        ),
        of("[u32; 3]", 12, TypeKind::Array { element: 0, count: 3 }),
        of("Pin<&Header>", 8, TypeKind::Wrapper { target: 8, at: 0 }),
        of(
            "State",
            1,
            TypeKind::Enumeration { signed: true, enumerators: vec![(text("Idle"), 0), (text("Gone"), 0xff)] },
        ),
        of(
            "Option<&Header>",
            8,
            TypeKind::Variants {
                tag: Some(Tag { offset: 0, bytes: 8 }),
                variants: vec![(text("None"), Some(0), 2), (text("Some"), None, 12)],
            },
        ),
        of("One", 4, TypeKind::Variants { tag: None, variants: vec![(text("Only"), None, 12)] }),
        of("*const u32", 8, TypeKind::Pointer { flavor: Flavor::Raw, target: 0, at: 0 }),
        of("&dyn Device", 16, TypeKind::Object { data: 8, vtable: 0 }),
    ];
    let argument = |name: &str, of: usize, place| write::Argument { name: text(name), of, place };
    let part = |offset, bytes, source| ValuePart { offset, bytes, source };
    let nothing = argument("", 2, ValuePlace::Nothing);
    let variable = |name: &str, of: usize, is_argument, scope: &[Range<u32>], places: &[(Range<u32>, ValuePlace)]| {
        write::Variable { name: text(name), of, is_argument, scope: scope.to_vec(), places: places.to_vec() }
    };
    let second = Some(part(8, 8, Source::stack(0)));
    let functions = vec![
        Function {
            address: BASE + 0x2000,
            declaration: Some(DECLARATION),
            arguments: vec![
                argument("name", 10, ValuePlace::Words { first: part(0, 8, Source::Register(7)), second }),
                argument("header", 12, ValuePlace::At(Source::Register(30))),
                argument("old", 0, ValuePlace::Unknown(Unknown::Elsewhere { from: 16, to: 300 })),
                argument("gone", 0, ValuePlace::Unknown(Unknown::OptimizedOut)),
            ],
            returned: argument("", 12, ValuePlace::At(Source::Register(8))),
            variables: vec![
                variable("name", 10, true, &[], &[(0x8..0x20, memory(29, -16)), (0x20..0x40, ValuePlace::Nothing)]),
                // A block, and another in it where the name is that of another variable.
                variable("count", 0, false, &[0x10..0x40, 0x40..0x80], &[(0x10..0x80, sum(3, -24))]),
                variable("count", 5, false, &[0x20..0x30, 0x40..0x50], &[(0x24..0x30, memory(31, 8))]),
                variable("count", 0, true, &[], &[]),
                variable("low", 0, false, &[], &[(0x10..0x20, bits(30, 1)), (0x20..0x40, bits(0, 63))]),
            ],
            copies: copies(),
        },
        Function {
            address: BASE + 0x1000,
            declaration: None,
            arguments: vec![
                argument("level", 0, ValuePlace::Constant(u64::MAX)),
                argument("flag", 3, ValuePlace::Words { first: part(0, 1, Source::Lost), second: None }),
            ],
            returned: nothing,
            variables: vec![],
            copies: vec![],
        },
    ];
    let row = |offset, file, line, is_statement| LineRow { address: BASE + offset, file, line, is_statement };
    // More rows than fit into a block, one line at several places, and instructions that come from no line.
    let many = (0..100).map(|number| row(0x1100 + 4 * number, 1, 300 - 2 * number as u32, number % 3 == 0));
    let rows = [row(0x1000, 0, 7, true), row(0x1008, 1, 9, true), row(0x1010, 0, 7, true), row(0x1014, 0, 0, false)];
    // Functions that end and begin with the same line.
    let last = [row(0x2000, 0, 7, false), row(0x2004, 0, 7, false)];
    let rows = rows.into_iter().chain(many).chain(last).collect();
    let files = vec![text("net/src/lib.rs"), text("net/src/tcp/mod.rs")];
    let vtables = vec![(BASE + 0x3020, 12), (BASE + 0x3000, 0)];
    Contents { functions, types, rows, files, vtables, inlined: inlined() }
}

/// A function with an argument, two locals of one name, and an argument that no copy has; and one without variables.
fn inlined() -> Vec<Inlined> {
    let variable = |name: &str, of, is_argument| (name.to_string(), of, is_argument);
    let all = [("self", Some(8), true), ("item", Some(0), false), ("item", Some(5), false), ("gone", None, true)];
    let variables = all.into_iter().map(|(name, of, is_argument)| variable(name, of, is_argument)).collect();
    vec![Inlined { hash: 0x1234, variables }, Inlined { hash: 0xffff, variables: vec![] }]
}

/// A copy in two parts, one within it that begins with it, and one that has no variable.
fn copies() -> Vec<InlinedCopy> {
    let variable = |number, scope: &[Range<u32>], places: &[(Range<u32>, ValuePlace)]| CopyVariable {
        number,
        scope: scope.to_vec(),
        places: places.to_vec(),
    };
    let outer = vec![
        variable(0, &[], &[(0x10..0x60, memory(19, 8))]),
        variable(1, &[0x10..0x20, 0x40..0x50], &[(0x14..0x48, sum(3, -24))]),
        variable(2, &[0x18..0x1c, 0x1c..0x20], &[(0x18..0x1c, memory(20, 0)), (0x1c..0x20, memory(21, 0))]),
    ];
    let inner = vec![variable(0, &[], &[(0x14..0x18, memory(22, 0))])];
    vec![
        InlinedCopy { of: 0, instructions: vec![0x10..0x20, 0x40..0x60], variables: outer },
        InlinedCopy { of: 0, instructions: once(0x10..0x18).collect(), variables: inner },
        InlinedCopy { of: 1, instructions: once(0x40..0x44).collect(), variables: vec![] },
    ]
}

#[test]
fn a_copy_has_variables_of_its_own() {
    let table = Aligned::new(&write::write(BASE, &contents()).unwrap());
    let types = Types::parse(table.bytes()).unwrap();
    let all: Vec<_> = types.copies(BASE + 0x2000).unwrap().collect();
    let of: Vec<_> = all.iter().map(|copy| (copy.start, copy.hash)).collect();
    assert_eq!(of, [(0x10, 0x1234), (0x10, 0x1234), (0x40, 0xffff)]);
    let at = |offset| all.iter().map(|copy| copy.has(offset)).collect::<Vec<_>>();
    assert_eq!(at(0xc), [false; 3]);
    assert_eq!(at(0x14), [true, true, false]);
    assert_eq!(at(0x18), [true, false, false]);
    assert_eq!(at(0x20), [false; 3]);
    assert_eq!(at(0x40), [true, false, true]);
    let find = |copy: usize, name: &str, is_argument, offset| {
        all[copy].find(name, is_argument, offset).map(|found| found.map(|found| (found.of.0, found.place)))
    };
    let elsewhere = |from, to| Some(Err(Unknown::Elsewhere { from, to }));
    // One place for the whole copy, and only there.
    assert_eq!(find(0, "self", true, 0x10), Some(Ok((8, memory(19, 8)))));
    assert_eq!(find(0, "self", true, 0x5c), Some(Ok((8, memory(19, 8)))));
    assert_eq!(find(0, "self", true, 0x30), Some(Err(Unknown::OptimizedOut)));
    assert_eq!(find(0, "self", false, 0x10), None, "it is no local");
    assert_eq!(find(1, "self", true, 0x10), elsewhere(0x14, 0x18));
    assert_eq!(find(1, "self", true, 0x14), Some(Ok((8, memory(22, 0)))));
    // The variable of the innermost block, and that around it, which has no place at first.
    assert_eq!(find(0, "item", false, 0x10), elsewhere(0x14, 0x48));
    assert_eq!(find(0, "item", false, 0x14), Some(Ok((0, sum(3, -24)))));
    assert_eq!(find(0, "item", false, 0x1c), Some(Ok((5, memory(21, 0)))));
    assert_eq!(find(0, "item", false, 0x44), Some(Ok((0, sum(3, -24)))));
    assert_eq!(find(0, "item", false, 0x50), None);
    // The inner copy has neither, and either may be meant.
    assert_eq!(find(1, "item", false, 0x14), Some(Err(Unknown::OptimizedOut)));
    assert_eq!(find(0, "gone", true, 0x10), Some(Err(Unknown::OptimizedOut)));
    assert_eq!((find(0, "other", true, 0x10), find(2, "self", true, 0x40)), (None, None));
    let names: Vec<_> = all[0].variables().map(|one| (one.name, one.is_argument)).collect();
    assert_eq!(names, [("self", true), ("item", false), ("item", false), ("gone", true)]);
    assert_eq!(types.copies(BASE + 0x1000).map(Iterator::count), Some(0));
    assert!(types.copies(BASE + 0x1004).is_none(), "no function begins there");
}

#[test]
fn a_name_means_the_variable_of_the_innermost_block() {
    let table = Aligned::new(&write::write(BASE, &contents()).unwrap());
    let types = Types::parse(table.bytes()).unwrap();
    let all = types.variables(BASE + 0x2000).unwrap();
    let find = |name: &str, is_argument, offset| {
        all.clone().find(name, is_argument, offset).map(|found| (found.of.0, found.place))
    };
    let elsewhere = |of, from, to| Some((of, ValuePlace::Unknown(Unknown::Elsewhere { from, to })));
    // The argument has no scope: it is known to be elsewhere, in the next place or the last.
    assert_eq!(find("name", true, 0x4), elsewhere(10, 0x8, 0x20));
    assert_eq!(find("name", true, 0x1c), Some((10, memory(29, -16))));
    assert_eq!(find("name", true, 0x20), Some((10, ValuePlace::Nothing)));
    assert_eq!(find("name", true, 0x40), elsewhere(10, 0x20, 0x40));
    assert_eq!(find("name", false, 0x1c), None, "it is no local");
    // The locals: outside of both blocks, in the outer, in the inner without a place, with it, and between its parts.
    assert_eq!(find("count", false, 0xc), None);
    assert_eq!(find("count", false, 0x1c), Some((0, sum(3, -24))));
    assert_eq!(find("count", false, 0x20), elsewhere(5, 0x24, 0x30));
    assert_eq!(find("count", false, 0x2c), Some((5, memory(31, 8))));
    assert_eq!(find("count", false, 0x3c), Some((0, sum(3, -24))));
    assert_eq!(find("count", false, 0x4c), elsewhere(5, 0x24, 0x30));
    assert_eq!(find("count", false, 0x80), None);
    assert_eq!(find("count", true, 0x2c), Some((0, ValuePlace::Unknown(Unknown::OptimizedOut))));
    assert_eq!(find("low", false, 0x1c), Some((0, bits(30, 1))));
    assert_eq!(find("low", false, 0x20), Some((0, bits(0, 63))));
    assert_eq!(find("size", false, 0x2c), None);
    assert_eq!(types.variables(BASE + 0x1000).map(Iterator::count), Some(0));
    assert!(types.variables(BASE + 0x1004).is_none(), "no function begins there");
    let names: Vec<_> = all.map(|one| (one.name, one.is_argument)).collect();
    assert_eq!(names, [("name", true), ("count", false), ("count", false), ("count", true), ("low", false)]);
}

#[test]
fn reads_what_was_written() {
    let contents = contents();
    let table = Aligned::new(&write::write(BASE, &contents).unwrap());
    let types = Types::parse(table.bytes()).unwrap();
    assert_eq!((types.len(), types.functions()), (contents.types.len(), 2));
    for (number, written) in contents.types.iter().enumerate() {
        let read = types.get(TypeId(number as u32)).unwrap();
        assert_eq!((read.name, read.module, read.size), (&*written.name, &*written.module, written.size));
        let id = |of: usize| TypeId(of as u32);
        match (read.kind, &written.shape) {
            (TypeKind::Struct { form, members }, TypeKind::Struct { form: of, members: all }) => {
                let all: Vec<_> =
                    all.iter().map(|(name, offset, of)| Member { name, offset: *offset, of: id(*of) }).collect();
                assert_eq!((form, members.collect::<Vec<_>>()), (*of, all));
            }
            (TypeKind::Variants { tag, variants }, TypeKind::Variants { tag: of, variants: all }) => {
                let all: Vec<_> =
                    all.iter().map(|(name, value, of)| Variant { name, value: *value, of: id(*of) }).collect();
                assert_eq!((tag, variants.collect::<Vec<_>>()), (*of, all));
            }
            (TypeKind::Enumeration { signed, enumerators }, TypeKind::Enumeration { signed: of, enumerators: all }) => {
                let all: Vec<_> = all.iter().map(|(name, value)| Enumerator { name, value: *value }).collect();
                assert_eq!((signed, enumerators.collect::<Vec<_>>()), (*of, all));
            }
            (TypeKind::Pointer { flavor, target, at }, &TypeKind::Pointer { flavor: f, target: t, at: a }) => {
                assert_eq!((flavor, target, at), (f, id(t), a));
            }
            (TypeKind::Array { element, count }, &TypeKind::Array { element: e, count: c }) => {
                assert_eq!((element, count), (id(e), c));
            }
            (TypeKind::Wrapper { target, at }, &TypeKind::Wrapper { target: t, at: a }) => {
                assert_eq!((target, at), (id(t), a))
            }
            (
                TypeKind::Sequence { element, is_text, data, length },
                &TypeKind::Sequence { element: e, is_text: i, data: d, length: l },
            ) => assert_eq!((element, is_text, data, length), (id(e), i, d, l)),
            (read, written) => {
                assert_eq!(std::format!("{read:?}"), std::format!("{written:?}"));
            }
        }
    }
    for written in &contents.functions {
        let read = types.function(written.address).unwrap();
        let argument = |argument: &write::Argument| (argument.name.clone(), argument.of as u32, argument.place);
        let of = |read: Argument<'_>| (read.name.to_string(), read.of.0, read.place);
        assert_eq!(
            read.arguments().map(of).collect::<Vec<_>>(),
            written.arguments.iter().map(argument).collect::<Vec<_>>()
        );
        assert_eq!(of(read.returned().unwrap()), argument(&written.returned));
        assert_eq!(read.declaration(), written.declaration);
    }
    let signature = |address| types.function(address).unwrap().to_string();
    let first = "fn(name: &str, header: Header, old: u32 (unknown at the entry), gone: u32 (optimised out)) -> Header";
    assert_eq!(signature(BASE + 0x2000), first);
    assert_eq!(signature(BASE + 0x1000), "fn(level: u32, flag: bool)");
    assert!(types.function(BASE + 0x1004).is_none() && types.function(0).is_none());
    let implementor = |offset| types.implementor(BASE + offset);
    assert_eq!([0x3000, 0x3008, 0x3020].map(implementor), [Some(TypeId(0)), None, Some(TypeId(12))]);
}

#[test]
fn refuses_what_was_cut_or_changed() {
    let table = write::write(BASE, &contents()).unwrap();
    for length in 0..table.len() {
        let cut = Aligned::new(&table[..length]);
        assert!(Types::parse(cut.bytes()).is_err(), "the first {length} of {} bytes", table.len());
    }
    for at in 0..table.len() {
        let mut changed = table.clone();
        changed[at] ^= 0x10;
        assert!(Types::parse(Aligned::new(&changed).bytes()).is_err(), "byte {at}");
    }
    let shifted = Aligned::new(&[&[0][..], &table].concat());
    assert!(matches!(Types::parse(&shifted.bytes()[1..]), Err(TypesError::Defect(Defect::Misaligned { .. }))));
    assert_eq!(Types::parse(&[]).unwrap_err(), TypesError::Absent);
}

#[test]
fn lines_are_found_both_ways() {
    let table = Aligned::new(&write::write(BASE, &contents()).unwrap());
    let lines = Types::parse(table.bytes()).unwrap().lines().unwrap();
    assert_eq!(lines.rows().collect::<Vec<_>>(), contents().rows);
    let at = |offset| lines.at(BASE + offset).map(|line| line.to_string());
    assert_eq!(at(0x1000).as_deref(), Some("net/src/lib.rs:7"));
    assert_eq!(at(0x1004).as_deref(), Some("net/src/lib.rs:7"));
    assert_eq!(at(0x100c).as_deref(), Some("net/src/tcp/mod.rs:9"));
    assert_eq!((at(0x1014), at(0xffc), lines.at(0)), (None, None, None));
    assert_eq!(at(0x1100 + 4 * 70).as_deref(), Some("net/src/tcp/mod.rs:160"));
    let files = |path| lines.files(path).map(|(number, _)| number).collect::<Vec<_>>();
    assert_eq!(files("lib.rs"), [0]);
    assert_eq!(files("tcp/mod.rs"), [1]);
    assert_eq!((files("od.rs"), files("src/mod.rs"), files("net/src/lib.rs")), (vec![], vec![], vec![0]));
    let begins = |file, line| lines.begins(file, line).map(|address| address - BASE).collect::<Vec<_>>();
    assert_eq!(begins(0, 7), [0x1000, 0x1010], "the last begins no statement");
    assert_eq!((begins(1, 300), begins(1, 298)), (vec![0x1100], vec![]));
    assert_eq!((lines.nearest(1, 299), lines.nearest(1, 9)), ([Some(294), Some(300)], [None, Some(102)]));
    assert_eq!(lines.places("mod.rs", 294).unwrap().collect::<Vec<_>>(), [BASE + 0x110c]);
    let refused = |path, line| lines.places(path, line).err().map(|error| error.to_string());
    let nearest = "this line of net/src/tcp/mod.rs has no instruction of its own; the nearest lines are 294 and 300";
    assert_eq!(refused("mod.rs", 299).as_deref(), Some(nearest));
    assert_eq!(refused("main.rs", 1).as_deref(), Some("no instruction comes from a file of this name"));
    let bare = write::write(BASE, &Contents { rows: vec![], ..contents() }).unwrap();
    assert_eq!(Types::parse(Aligned::new(&bare).bytes()).unwrap().lines(), None);
}

#[test]
fn lines_of_a_function_are_counted_from_its_declaration() {
    let table = Aligned::new(&write::write(BASE, &contents()).unwrap());
    let lines = Types::parse(table.bytes()).unwrap().lines().unwrap();
    let of = |declaration, within: core::ops::Range<u64>, line| {
        let found = lines.of_function(declaration, BASE + within.start..BASE + within.end, line);
        found.map(|(line, places)| (line, places.map(|address| address - BASE).collect::<Vec<_>>()))
    };
    // From 0x1100 on, every third of the lines 300, 298, … 102 is the beginning of a statement.
    assert_eq!(of(DECLARATION, 0x1100..0x1290, 200), Ok((200, vec![0x1100])));
    assert_eq!(of(DECLARATION, 0x1100..0x1290, 189), Ok((194, vec![0x110c])), "the next line that has one");
    assert_eq!(of(DECLARATION, 0x1104..0x1290, 195), Err(LineError::AfterFunction { last: 194 }));
    assert_eq!(of(DECLARATION, 0x1104..0x110c, 0), Err(LineError::NoLineOfFunction));
    let short = Declaration { more: 50, ..DECLARATION };
    assert_eq!(of(short, 0x1100..0x1290, 51), Err(LineError::AfterFunction { last: 50 }), "other lines of the file");
    let twice = Declaration { file: 0, line: 5, more: 2 };
    assert_eq!(of(twice, 0x1000..0x1018, 0), Ok((2, vec![0x1000, 0x1010])));
    assert_eq!(lines.within(BASE + 0x1004..BASE + 0x1011).count(), 2);
    assert_eq!(lines.within(0..u64::MAX).count(), lines.rows().count());
}

/// Calls every function of the reader, whatever the table contains.
fn read_all(types: &Types<'_>) {
    for number in 0..types.len() {
        let Some(of) = types.get(TypeId(number as u32)) else { continue };
        match of.kind {
            TypeKind::Struct { members, .. } => members.for_each(drop),
            TypeKind::Variants { variants, .. } => variants.for_each(drop),
            TypeKind::Enumeration { enumerators, .. } => enumerators.for_each(drop),
            _ => {}
        }
    }
    if let Some(lines) = types.lines() {
        lines.rows().for_each(|row| assert!(lines.at(row.address).is_some() || row.line == 0));
        lines.files("lib.rs").for_each(|(file, _)| assert!(lines.begins(file, 7).count() <= lines.rows().count()));
    }
    for [offset, _] in types.vtables {
        assert!(types.implementor(types.shared.base + u64::from(*offset)).is_some());
    }
    for function in types.functions {
        if let Some(function) = types.record(function) {
            function.arguments().for_each(drop);
            let _ = function.returned();
            if let (Some(declaration), Some(lines)) = (function.declaration(), types.lines()) {
                let _ = lines.of_function(declaration, 0..u64::MAX, 1).map(|(_, places)| places.count());
            }
        }
    }
    for number in 0..types.variables.len() {
        let Some(all) = types.variables_of(number) else { continue };
        for copy in all.clone().copies().into_iter().flatten() {
            for (variable, offset) in copy.variables().flat_map(|one| [0, 0x14, u32::MAX].map(|at| (one, at))) {
                let found = copy.find(variable.name, variable.is_argument, offset);
                assert!(found.is_some() || variable.at(&copy, offset).is_none(), "a variable in its scope is found");
                assert!(copy.has(offset) || !matches!(found, Some(Ok(_))), "a copy has variables where it is");
            }
        }
        for variable in all.clone() {
            for offset in [0, 0x2c, u32::MAX] {
                let found = all.clone().find(variable.name, variable.is_argument, offset);
                assert!(found.is_some() || variable.at(offset).is_none(), "a variable in its scope is found");
            }
        }
    }
}

#[test]
fn records_that_share_their_lists_are_refused() {
    let enumerators = (0..100).map(|value| ("Some".to_string(), value)).collect();
    let list = of("List", 1, TypeKind::Enumeration { signed: false, enumerators });
    let units = (1..10).map(|_| of("()", 0, TypeKind::Unit));
    let argument = write::Argument { name: "one".to_string(), of: 1, place: ValuePlace::Nothing };
    let function = |number: u64| Function {
        address: BASE + 4 * number,
        declaration: None,
        arguments: vec![argument.clone(); if number == 0 { 100 } else { 0 }],
        returned: argument.clone(),
        variables: vec![],
        copies: vec![],
    };
    let functions = (0..10).map(function).collect();
    let contents = Contents { functions, types: once(list).chain(units).collect(), ..Contents::default() };
    let table = write::write(BASE, &contents).unwrap();
    assert!(Types::parse(Aligned::new(&table).bytes()).is_ok());
    // The offset of a record is the last word of each item of a part. All become that of the first record.
    let error = |part: usize, words: usize| {
        let mut table = table.clone();
        let entry = 4 * crate::HEADER_WORDS + 12 * part;
        let word = |at: usize| u32::from_le_bytes(table[at..][..4].try_into().unwrap()) as usize;
        let (start, length) = (word(entry + 4), word(entry + 8));
        table[start..][..length].chunks_mut(4 * words).for_each(|item| item[4 * (words - 1)..].fill(0));
        seal(&mut table);
        Types::parse(Aligned::new(&table).bytes()).unwrap_err()
    };
    assert_eq!(error(2, 1), TypesError::Defect(Defect::Inconsistent { part: "a type" }));
    assert_eq!(error(0, 2), TypesError::Defect(Defect::Inconsistent { part: "a function" }));
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let table = write::write(BASE, &contents()).unwrap();
    let mut accepted = 0;
    for at in (CHECKED_FROM..table.len()).step_by(if cfg!(miri) { 97 } else { 1 }) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = table.clone();
            changed[at] = value;
            seal(&mut changed);
            if let Ok(types) = Types::parse(Aligned::new(&changed).bytes()) {
                accepted += 1;
                read_all(&types);
            }
        }
    }
    assert!(accepted > 0, "a table of another name is one");
}

/// Damages a table in one to four places: a byte, a bit, a word, a copy of other bytes, or the bytes from there on.
fn damage(table: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4_usize) {
        let at = CHECKED_FROM + random.below(table.len() - CHECKED_FROM);
        let most = (table.len() - at).min(16);
        match random.below(5) {
            0 => table[at] = random.next() as u8,
            1 => table[at] ^= 1 << random.below(8),
            2 => table[at..][..most.min(4)].copy_from_slice(&(random.value() as u32).to_le_bytes()[..most.min(4)]),
            3 => {
                let from = random.below(table.len() - most + 1);
                table.copy_within(from..from + 1 + random.below(most), at);
            }
            _ => table.truncate(at.max(4 * crate::HEADER_WORDS)),
        }
    }
    // Another length would be refused because of the checksum.
    let length = (table.len() as u32).to_le_bytes();
    table[16..20].copy_from_slice(&length);
}

#[test]
fn no_damage_makes_the_reader_panic() {
    let whole = write::write(BASE, &contents()).unwrap();
    // `DAMAGED_TABLES` is the number of tables of the longer form.
    let wanted = std::env::var("DAMAGED_TABLES").ok().map(|number| number.parse().expect("DAMAGED_TABLES is a number"));
    let tables = wanted.unwrap_or(if cfg!(miri) { 100 } else { 20_000_u64 });
    let mut random = Random::new(tables);
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..tables {
        let mut table = whole.clone();
        damage(&mut table, &mut random);
        seal(&mut table);
        match Types::parse(Aligned::new(&table).bytes()) {
            Ok(types) => {
                accepted += 1;
                read_all(&types);
            }
            Err(error) => {
                refused += 1;
                assert!(!matches!(error, TypesError::Defect(Defect::Checksum { .. })), "the checksum is right");
            }
        }
    }
    assert!(refused > accepted / 10 && accepted > refused / 100, "{refused} refused, {accepted} accepted");
}

#[test]
#[cfg_attr(miri, ignore = "it sorts the suffixes of 4 MiB")]
fn names_that_do_not_fit_are_refused() {
    // Each name repeats a character of its own, so no name contains another.
    let name = |number| char::from_u32(0x1_0000 + number).unwrap().to_string().repeat(255);
    let types = |count| (0..count).map(|number| of(&name(number), 0, TypeKind::Unit)).collect();
    let table = |count| write::write(BASE, &Contents { types: types(count), ..Contents::default() });
    let fitting = (4 << 20) / name(0).len() as u32;
    assert!(table(fitting).is_ok());
    assert_eq!(table(fitting + 1), Err(WriteError::NamesTooLong));
}
