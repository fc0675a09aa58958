//! The grammar, rule by rule, and every refusal with its column.

use super::*;
use alloc::string::ToString;

fn define(line: &str) -> Definition {
    match parse(line) {
        Ok(Some(Command::Define(definition))) => definition,
        other => panic!("{line}: {other:?}"),
    }
}

fn listed(line: &str) -> String {
    define(line).to_string()
}

/// The problem that a line with a caret below its cause has.
fn refused(line: &str, caret: &str) -> Problem {
    let error = parse(line).expect_err(line);
    assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}\n{error:?}");
    error.problem
}

#[test]
fn definitions_are_listed_as_linux_lists_them() {
    assert_eq!(
        listed("r:blk_update blk_update_request $retval"),
        "r:kprobes/blk_update blk_update_request arg1=$retval"
    );
    assert_eq!(
        listed("p:kprobes/blk_start blk_update_request req=%x0 error=%x1:u8 bytes=%x2:u32"),
        "p:kprobes/blk_start blk_update_request req=%x0 error=%x1:u8 bytes=%x2:u32"
    );
    assert_eq!(listed("r10:kpb/read_out vfs_read ret=$retval:s64"), "r10:kpb/read_out vfs_read ret=$retval:s64");
    assert_eq!(listed("p:kpb.x f"), "p:kpb/x f x0=%x0 x1=%x1 x2=%x2 x3=%x3");
    assert_eq!(listed("r f"), "r:kprobes/r_f_0 f ret=$retval");
}

#[test]
fn what_is_listed_defines_the_same() {
    for line in [
        "p:a/b <a::T as b::U<c, d>>::f+0x10 %sp:x32 n=%pc s=%pstate",
        "r4096:b f::{closure#0}",
        "p f $arg1:s8 $arg8",
        "p 0xffffffc000001000+8 %x30",
    ] {
        let definition = define(line);
        let again = define(&definition.to_string());
        assert_eq!((again.kind, &again.group, &again.event), (definition.kind, &definition.group, &definition.event));
        assert_eq!((&again.place.base, again.place.offset), (&definition.place.base, definition.place.offset));
        assert_eq!(again.arguments, definition.arguments);
    }
}

#[test]
fn places_are_symbols_offsets_and_addresses() {
    let place = |line| define(line).place;
    let symbol = |name: &str| Base::Symbol(name.to_string());
    assert_eq!(place("p:x f"), Place { base: symbol("f"), offset: 0, column: 4, offset_column: 4 });
    assert_eq!(place("p:x f+12"), Place { base: symbol("f"), offset: 12, column: 4, offset_column: 6 });
    assert_eq!(place("p f+0x1c").offset, 0x1c);
    assert_eq!(place("p <dyn A + B>::f+4").base, symbol("<dyn A + B>::f"));
    assert_eq!(place("p 0x1000").base, Base::Address(0x1000));
    assert_eq!(parse_place(" f::<A, B>+8 ").unwrap().offset, 8);
}

#[test]
fn sources_and_types() {
    let argument = |line: &str| define(line).arguments.pop().unwrap();
    assert_eq!(argument("p f %x30").source, Source::Register(30));
    assert_eq!(argument("p f %sp").source, Source::StackPointer);
    assert_eq!(argument("p f %pc").source, Source::ProgramCounter);
    assert_eq!(argument("p f %pstate").source, Source::ProcessorState);
    assert_eq!(argument("p f $arg3").source, Source::Register(2));
    assert_eq!(argument("r f $retval").source, Source::Register(0));
    assert_eq!(argument("p f %x1 %x2").name, "arg2");
    assert_eq!(argument("p f %x1").kind, Type { format: Format::Hexadecimal, bits: 64 });
    assert_eq!(argument("p f %x1:s16").kind, Type { format: Format::Signed, bits: 16 });
}

#[test]
fn values_are_written_by_their_type() {
    let text = |kind: &str, value| {
        let mut text = String::new();
        define(&format!("p f %x0:{kind}")).arguments[0].kind.write(value, &mut text).unwrap();
        text
    };
    assert_eq!(text("x64", u64::MAX), "0xffffffffffffffff");
    assert_eq!(text("x8", 0x1234), "0x34");
    assert_eq!(text("u64", u64::MAX), "18446744073709551615");
    assert_eq!(text("u16", 0x1_ffff), "65535");
    assert_eq!(text("s8", 0xff), "-1");
    assert_eq!(text("s32", 0x7fff_ffff), "2147483647");
    assert_eq!(text("s64", u64::MAX), "-1");
    assert_eq!(text("x64", 0), "0x0");
}

#[test]
fn automatic_names_are_identifiers_of_the_longest_length_at_most() {
    let name = |line| define(line).event;
    assert_eq!(name("p vfs_read"), "p_vfs_read_0");
    assert_eq!(name("p vfs_read+0x10"), "p_vfs_read_16");
    assert_eq!(name("p 0x1000"), "p_0x1000");
    assert_eq!(name("r sha2::sha256::compress256"), "r_sha2_sha256_compress256_0");
    assert_eq!(name("p <a::T as b::U>::f"), "p_a_T_as_b_U_f_0");
    let long = name("p core::ptr::drop_in_place::<alloc::vec::Vec<alloc::boxed::Box<dyn core::any::Any>>>");
    assert!(long.len() <= NAME_MAX && is_identifier(&long) && long.ends_with("_dyn_core_any_Any_0"), "{long}");
}

#[test]
fn removals() {
    let remove = |group: Option<&str>, event: Option<&str>| {
        Ok(Some(Command::Remove { group: group.map(ToOwned::to_owned), event: event.map(ToOwned::to_owned) }))
    };
    assert_eq!(parse("-:x"), remove(None, Some("x")));
    assert_eq!(parse("-:g/x # gone"), remove(Some("g"), Some("x")));
    assert_eq!(parse("-:g/"), remove(Some("g"), None));
    assert_eq!(refused("- x", " ^"), Problem::NotAName);
    assert_eq!(refused("-x", " ^"), Problem::NotAName);
    assert_eq!(refused("-:", "  ^"), Problem::NoEvent);
    assert_eq!(refused("-:x f", "    ^"), Problem::AfterRemoval);
}

#[test]
fn names_alone() {
    assert_eq!(parse_event_name("x"), Ok((None, "x".to_string())));
    assert_eq!(parse_event_name("g/x"), Ok((Some("g".to_string()), "x".to_string())));
    assert_eq!(parse_event_name("g/"), Err(Error { problem: Problem::NoEvent, column: 2 }));
    assert_eq!(parse_event_name("g/-"), Err(Error { problem: Problem::Event, column: 2 }));
}

#[test]
fn empty_lines_and_comments_are_nothing() {
    for line in ["", "  ", "# p:x f", "\t# x"] {
        assert_eq!(parse(line), Ok(None));
    }
}

#[test]
fn commands_are_told_from_definitions() {
    for line in ["p", "p f", "p:x f", "p100 f", "r f", "r5 f", "r:", "-", "-:x", "-x"] {
        assert!(is_definition(line), "{line}");
    }
    for line in ["", "poweroff", "run sha256", "q:x f", "# p"] {
        assert!(!is_definition(line), "{line}");
    }
}

#[test]
fn names_are_refused_as_linux_refuses_them() {
    assert_eq!(refused("q:x f", "^"), Problem::NotADefinition);
    assert_eq!(refused("px f", " ^"), Problem::NotAName);
    assert_eq!(refused("p100:x f", " ^"), Problem::MaxactiveOnProbe);
    assert_eq!(refused("r0:x f", " ^"), Problem::Maxactive);
    assert_eq!(refused("r4097:x f", " ^"), Problem::Maxactive);
    assert_eq!(refused("r99999999999 f", " ^"), Problem::Maxactive);
    assert_eq!(refused("r1x f", " ^"), Problem::Maxactive);
    assert_eq!(refused("p: f", "  ^"), Problem::NoEvent);
    assert_eq!(refused("p:/x f", "  ^"), Problem::NoGroup);
    assert_eq!(refused("p:g-h/x f", "  ^"), Problem::Group);
    assert_eq!(refused("p:g/x-y f", "    ^"), Problem::Event);
    assert_eq!(refused("p:1x f", "  ^"), Problem::Event);
    let name = "n".repeat(64);
    assert_eq!(refused(&format!("p:{name} f"), "  ^"), Problem::EventTooLong);
    assert_eq!(refused(&format!("p:{name}/x f"), "  ^"), Problem::GroupTooLong);
    assert_eq!(define(&format!("p:{} f", &name[1..])).event.len(), NAME_MAX);
}

#[test]
fn places_are_refused_with_their_column() {
    assert_eq!(refused("p:x", "   ^"), Problem::NoPlace);
    assert_eq!(refused("p:x +4", "    ^"), Problem::NoPlace);
    assert_eq!(refused("p:x 0xfg", "    ^"), Problem::Address);
    assert_eq!(refused("p:x 0x", "    ^"), Problem::Address);
    assert_eq!(refused("p:x f+", "      ^"), Problem::Offset);
    assert_eq!(refused("p:x f+x", "      ^"), Problem::Offset);
    assert_eq!(refused("p:x f+0x+4", "      ^"), Problem::Offset);
    assert_eq!(refused("r:x f+4", "      ^"), Problem::ReturnOffset);
    assert_eq!(refused("p:x a<b", "     ^"), Problem::Unclosed);
    assert_eq!(parse_place("f g"), Err(Error { problem: Problem::AfterPlace, column: 2 }));
    assert_eq!(parse_place(""), Err(Error { problem: Problem::NoPlace, column: 0 }));
    assert_eq!(define("r:x f+0").place.offset, 0);
}

#[test]
fn arguments_are_refused_with_their_column() {
    assert_eq!(refused("p:x f %x31", "      ^"), Problem::Register);
    assert_eq!(refused("p:x f a=%x99", "        ^"), Problem::Register);
    assert_eq!(refused("p:x f %x", "      ^"), Problem::Register);
    assert_eq!(refused("p:x f %x+1", "      ^"), Problem::Register);
    assert_eq!(refused("p:x f %x01", "      ^"), Problem::Register);
    assert_eq!(refused("p:x f %w0", "      ^"), Problem::Register);
    assert_eq!(refused("p:x f %x0:u9", "          ^"), Problem::Type);
    assert_eq!(refused("p:x f %x0:", "          ^"), Problem::Type);
    assert_eq!(refused("p:x f %x0:é", "          ^"), Problem::Type);
    assert_eq!(refused("p:x f $comm", "      ^"), Problem::Variable);
    assert_eq!(refused("p:x f $arg0", "      ^"), Problem::ArgumentNumber);
    assert_eq!(refused("p:x f $arg9", "      ^"), Problem::ArgumentNumber);
    assert_eq!(refused("p:x f $arg999", "      ^"), Problem::ArgumentNumber);
    assert_eq!(refused("p:x f+4 $arg1", "        ^"), Problem::ArgumentAfterEntry);
    assert_eq!(refused("r:x f $arg1", "      ^"), Problem::ArgumentAfterEntry);
    assert_eq!(refused("p:x f $retval", "      ^"), Problem::ReturnValueOnProbe);
    assert_eq!(refused("p:x f +0(%sp)", "      ^"), Problem::Argument);
    assert_eq!(refused("p:x f =%x0", "      ^"), Problem::NoArgumentName);
    assert_eq!(refused("p:x f a=", "        ^"), Problem::NoArgument);
    assert_eq!(refused("p:x f 1a=%x0", "      ^"), Problem::ArgumentName);
    assert_eq!(refused("p:x f common_pid=%x0", "      ^"), Problem::ReservedArgumentName);
    assert_eq!(refused("p:x f a=%x0 a=%x1", "            ^"), Problem::UsedArgumentName);
    assert_eq!(refused("p:x f arg2=%x0 %x1", "               ^"), Problem::UsedArgumentName);
    assert_eq!(refused(&format!("p:x f {}=%x0", "n".repeat(33)), "      ^"), Problem::ArgumentNameTooLong);
    let nine = format!("p f{}", " %x0".repeat(9));
    assert_eq!(refused(&nine, &format!("{}^", " ".repeat(36))), Problem::TooManyArguments);
}

/// Every way to cut and to damage a good line gives a definition or a column inside it, never a panic.
#[test]
fn damaged_lines_are_read_or_refused() {
    let good = "r10:grp/ev <a::T<'b'> as U>::f::<fn(u8) -> [u8; 4]>+0x10 n=%x0:u8 $retval # é";
    let mut state = 1_u64;
    let mut next = move |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let pieces: Vec<char> = good.chars().chain("<>()[]{}'\\-+:/=%$0x \t\u{7f}日".chars()).collect();
    for _ in 0..200_000 {
        let mut line: Vec<char> = good.chars().collect();
        for _ in 0..=next(4) {
            let at = next(line.len());
            match next(3) {
                0 => line.truncate(at + 1),
                1 => line[at] = pieces[next(pieces.len())],
                _ => line.insert(at, pieces[next(pieces.len())]),
            }
        }
        let line: String = line.into_iter().collect();
        if let Err(error) = parse(&line) {
            assert!(error.column <= line.chars().count(), "{line}: {error:?}");
        }
    }
}
