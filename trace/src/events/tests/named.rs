//! Arguments by name, with a table of types that this file builds.

use std::sync::OnceLock;
use std::{string::ToString, vec};

use kprobes_types::write::{self, Argument, Contents, Type};
use kprobes_types::{Flavor, Form, Source, Tag, TypeKind, Types, Unknown, ValuePart, ValuePlace};

use super::{define, events, fetched};
use crate::definition::{self, Problem};
use alloc::string::String;
use alloc::vec::Vec;
use fallible::failing::with_memory;

/// The index of each type in the table.
const U32: usize = 0;
const I16: usize = 1;
const U64: usize = 2;
const BYTE: usize = 3;
const TEXT: usize = 4;
const HEADER: usize = 5;
const STATE: usize = 6;
const UNIT: usize = 7;
const PAIR: usize = 8;
const REFERENCE: usize = 9;
const OPTION: usize = 10;
const POINTER: usize = 11;
const BYTES: usize = 12;
const NEWTYPE: usize = 13;
const LOOP: usize = 14;
const WIDE: usize = 15;

fn types() -> Vec<Type> {
    let of = |name: &str, size, shape| Type { name: name.to_string(), module: String::new(), size, shape };
    let members = |form, all: &[(&str, u32, usize)]| TypeKind::Struct {
        form,
        members: all.iter().map(|&(name, offset, of)| (name.to_string(), offset, of)).collect(),
    };
    let sequence = |is_text| TypeKind::Sequence { element: BYTE, is_text, data: 0, length: 8 };
    let pointer = |flavor, target| TypeKind::Pointer { flavor, target, at: 0 };
    vec![
        of("u32", 4, TypeKind::Integer { signed: false }),
        of("i16", 2, TypeKind::Integer { signed: true }),
        of("u64", 8, TypeKind::Integer { signed: false }),
        of("u8", 1, TypeKind::Integer { signed: false }),
        of("&str", 16, sequence(true)),
        of("Header", 32, members(Form::Named, &[("next", 0, U64), ("state", 8, STATE), ("name", 16, TEXT)])),
        of("State", 1, TypeKind::Enumeration { signed: true, enumerators: vec![("Idle".to_string(), 0)] }),
        of("()", 0, TypeKind::Unit),
        of("Pair", 4, members(Form::Tuple, &[("0", 0, I16), ("1", 2, I16)])),
        of("&Header", 8, pointer(Flavor::Reference, HEADER)),
        of(
            "Option<u32>",
            8,
            TypeKind::Variants {
                tag: Some(Tag { offset: 0, bytes: 4 }),
                variants: vec![("None".to_string(), None, UNIT)],
            },
        ),
        of("*const u8", 8, pointer(Flavor::Raw, BYTE)),
        of("&[u8]", 16, sequence(false)),
        of("Length", 4, members(Form::Tuple, &[("0", 0, U32)])),
        of("Loop", 8, TypeKind::Wrapper { target: LOOP, at: 0 }),
        of("u128", 16, TypeKind::Integer { signed: false }),
    ]
}

/// Returns the signatures of `f` and the other functions.
fn contents() -> Contents {
    let part = |offset, bytes, number| ValuePart { offset, bytes, source: Source::Register(number) };
    let one = |bytes, number| ValuePlace::Words { first: part(0, bytes, number), second: None };
    let two = |first, second| ValuePlace::Words { first: part(0, 8, first), second: Some(part(8, 8, second)) };
    let argument = |name: &str, of, place| Argument { name: name.to_string(), of, place };
    let elsewhere = ValuePlace::Unknown(Unknown::Elsewhere { from: 0x10, to: 0x3c });
    let arguments = vec![
        argument("name", TEXT, two(19, 5)),
        argument("count", U32, one(4, 20)),
        argument("level", PAIR, ValuePlace::Constant(0xfffe_0003)),
        argument("header", REFERENCE, one(8, 21)),
        argument("whole", HEADER, ValuePlace::At(Source::Register(21))),
        argument("gone", U32, elsewhere),
        argument(
            "lost",
            U64,
            ValuePlace::Words { first: ValuePart { source: Source::Lost, ..part(0, 8, 0) }, second: None },
        ),
        argument("option", OPTION, one(8, 3)),
        argument("raw", POINTER, one(8, 19)),
        argument("bytes", BYTES, two(19, 4)),
        argument("length", NEWTYPE, one(4, 30)),
        argument("endless", LOOP, one(8, 1)),
        argument("wide", WIDE, two(1, 2)),
        argument("nothing", UNIT, ValuePlace::Nothing),
        argument("", U32, one(4, 1)),
        argument(
            "on_stack",
            U64,
            ValuePlace::Words { first: ValuePart { source: Source::stack(16), ..part(0, 8, 0) }, second: None },
        ),
    ];
    let function = |address, arguments, of, place| write::Function {
        address,
        declaration: None,
        arguments,
        returned: Argument { name: String::new(), of, place },
        variables: Vec::new(),
        copies: Vec::new(),
    };
    Contents {
        functions: vec![
            function(0x1000, arguments, I16, one(2, 2)),
            function(0x3000, vec![argument("count", U32, one(4, 3))], UNIT, ValuePlace::Nothing),
            function(0x4000, vec![], HEADER, ValuePlace::At(Source::Register(8))),
        ],
        types: types(),
        ..Contents::default()
    }
}

/// Returns the signature of the function at `address` from the table.
pub(super) fn signature(address: u64) -> Option<(Types<'static>, kprobes_types::Function<'static>)> {
    // The table's memory is not limited together with that of the event.
    with_memory(usize::MAX, || signature_of(address))
}

fn signature_of(address: u64) -> Option<(Types<'static>, kprobes_types::Function<'static>)> {
    static TABLE: OnceLock<Types<'static>> = OnceLock::new();
    let types = TABLE.get_or_init(|| {
        let bytes = write::write(0x1000, &contents()).unwrap();
        let words: Vec<u32> =
            bytes.chunks(4).map(|four| four.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))).collect();
        let words: &'static [u32] = Vec::leak(words);
        // SAFETY: the pointer and the length are those of `words`, which are never freed.
        let bytes = unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), 4 * words.len()) };
        Types::parse(bytes).unwrap()
    });
    Some((*types, types.function(address)?))
}

#[test]
fn arguments_have_names_and_types() {
    assert_eq!(fetched("p f count"), "count=1");
    assert_eq!(fetched("p f c=count:x64 count:s8 length"), "c=0x1 count=1 length=30");
    assert_eq!(fetched("p f level.0 level.1 l=level->1:s64 level.1:x32"), "arg1=3 arg2=-2 l=-2 arg4=0xfffffffe");
    assert_eq!(fetched("p f level.1:x8 level.1:b4@0/16"), "arg1=0xfe arg2=14");
    assert_eq!(fetched("p f name"), "name=\"first\"");
    assert_eq!(
        fetched("p f n=name:string name:x8 count"),
        format!("n=\"first\" name={:#x} count=1", super::TEXTS.as_ptr() as u8)
    );
    assert_eq!(fetched("p f bytes->length +0(bytes.data_ptr):x8[2] +1(name):char"), "arg1=4 arg2={0x66,0x69} arg3='i'");
    assert_eq!(fetched("p f raw:string +6(raw):string"), "raw=\"first\" arg2=\"second\"");
    assert_eq!(
        fetched("p f header->next header.state header->state:x64 +8(header):u64"),
        "arg1=1 arg2=2 arg3=0x2 arg4=2"
    );
    assert_eq!(fetched("p f whole.next whole->state"), "arg1=1 arg2=2");
}

#[test]
fn results_have_types() {
    assert_eq!(fetched("r f $retval r=$retval:x64 count"), "arg1=2 r=0x0 count=5");
    assert_eq!(fetched("r f level.1"), "arg1=-2");
    // A result in memory is at an address that the caller passes at the entry.
    let listed = |line: &str| {
        let mut events = events();
        define(&mut events, line).unwrap();
        let event = events.iter().next().unwrap();
        (event.definition().to_string(), event.recorder().entry_words())
    };
    assert_eq!(listed("r twice#2 $retval->next"), ("r:kprobes/r_twice_2_0 twice#2 arg1=$retval->next".to_string(), 1));
    assert_eq!(listed("r twice#2 $retval:x64"), ("r:kprobes/r_twice_2_0 twice#2 arg1=$retval:x64".to_string(), 0));
}

#[test]
fn all_arguments_are_those_that_can_be_recorded() {
    let mut events = events();
    define(&mut events, "p:all f %x1 $arg* %x2 x=%x3").unwrap();
    let listed = events.iter().next().unwrap().definition().to_string();
    let names = "name=name count=count header=header raw=raw length=length on_stack=on_stack";
    assert_eq!(listed, format!("p:kprobes/all f arg1=%x1 {names} arg8=%x2 x=%x3"));
}

/// Returns the problem of a line with a caret below its cause.
fn refused(line: &str, caret: &str) -> (Problem, String) {
    let mut events = events();
    let error: definition::Error = define(&mut events, line).expect_err(line);
    assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}\n{error}");
    (error.problem, error.reason.unwrap_or_default())
}

#[test]
fn names_are_refused_where_linux_does_it() {
    assert_eq!(refused("p f hoge", "    ^").0, Problem::NoArgumentOfName);
    assert_eq!(refused("p:x f a=%x0 b=+0(hoge)", "                 ^").0, Problem::NoArgumentOfName);
    assert_eq!(refused("p f header->foo", "            ^").0, Problem::NoField);
    assert_eq!(refused("p f n=header->next.foo", "                   ^").0, Problem::NoStruct);
    assert_eq!(refused("r f $retval->foo", "             ^").0, Problem::NoStruct);
    assert_eq!(refused("p f count:string", "    ^").0, Problem::NoText);
    assert_eq!(refused("p f header:string", "    ^").0, Problem::NoText);
    assert_eq!(refused("p f $arg25", "    ^").0, Problem::NoArgumentOfName);
    assert_eq!(refused("r twice#1 $retval", "          ^").0, Problem::NothingReturned);
    assert_eq!(refused("p a::b $arg*", "       ^").0, Problem::NoArguments);
    assert_eq!(Problem::NoArguments.errno(), crate::errno::Errno::NotSupported);
    assert_eq!(refused("p f %x0 $arg* count", "        ^").0, Problem::UsedArgumentName);
    assert_eq!(refused("r 0x1000 count", "         ^").0, Problem::NoSignature);
    assert_eq!(refused("r 0x1000 $retval->x", "                  ^").0, Problem::NoSignature);
    assert_eq!(refused("r 0x1000 $retval:string", "                 ^").0, Problem::Text);
}

#[test]
fn what_is_no_single_value_is_refused() {
    let (problem, reason) = refused("p f whole", "    ^");
    assert_eq!(
        (problem, &*reason),
        (Problem::NoOneValue, "Header has several values; its fields are next, state, name")
    );
    assert_eq!(refused("p f bytes", "    ^").0, Problem::NoOneValue);
    assert_eq!(refused("p f option", "    ^").0, Problem::NoOneValue);
    assert_eq!(refused("p f wide", "    ^").0, Problem::NoOneValue);
    assert_eq!(refused("p f option.0", "           ^").0, Problem::NoStruct);
    assert_eq!(refused("p f endless", "    ^").0, Problem::TypeInfo);
    assert_eq!(refused("p f nothing", "    ^").0, Problem::NoOneValue);
    assert_eq!(refused("p f count:u8[2]", "    ^").0, Problem::Text);
    assert_eq!(refused("p f +0(count)", "       ^").0, Problem::NoStruct);
    let (problem, reason) = refused("p f gone", "    ^");
    let is_there = "this is optimised out here; it is there from +0x10 to +0x3c";
    assert_eq!((problem, &*reason), (Problem::NoArgumentOfName, is_there));
    assert_eq!(refused("p f lost", "    ^").1, "this part of the value is optimised out");
    assert_eq!(refused("r twice#2 $retval", "          ^").0, Problem::NoOneValue);
}
