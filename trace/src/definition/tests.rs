//! The grammar, rule by rule, and every refusal with its column.

use kprobes_random::{assert_tried, tried::tried};

use super::*;
use crate::errno::Errno;
use crate::fetch::Register;
use crate::format::{Base as BaseType, Bits, Type, Width};
use alloc::format;
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

/// Returns the problem of a line with a caret below its cause.
fn refused(line: &str, caret: &str) -> Problem {
    let error = parse(line).expect_err(line);
    assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}\n{error:?}");
    error.problem
}

#[test]
fn definitions_are_listed_as_linux_lists_them() {
    assert_tried!(
        listed("r:blk_update blk_update_request $retval"),
        "r:kprobes/blk_update blk_update_request arg1=$retval"
    );
    for line in tried([
        "p:kprobes/blk_start blk_update_request req=%x0 error=%x1:u8 bytes=%x2:u32",
        "r10:kpb/read_out vfs_read ret=$retval:s64",
        "p:kprobes/read_in vfs_read count=%x2:u64 file=+0(+0($arg1)):x64",
    ]) {
        assert_eq!(listed(line), line);
    }
    assert_tried!(listed("p:kpb.x f"), "p:kpb/x f");
    assert_tried!(listed("p:-g-h/x f"), "p:-g-h/x f");
    assert_tried!(listed("r f"), "r:kprobes/r_f_0 f");
    assert_tried!(listed("p:x f%return $retval"), "r:kprobes/x f arg1=$retval");
    assert_tried!(listed("p:x f+0x10"), "p:kprobes/x f+16");
    assert_tried!(listed("p:g/ 0x1000"), "p:g/p_0x0000000000001000 0x0000000000001000");
}

/// Returns the definition without positions, which depend on the spelling of the line.
fn meaning(definition: &Definition) -> (EventKind, &str, &str, &Base, u64, &[Argument]) {
    let Definition { kind, group, event, place, arguments, .. } = definition;
    (*kind, group, event, &place.base, place.offset, arguments)
}

#[test]
fn what_is_listed_defines_the_same() {
    for line in tried([
        "p:a/b <a::T as b::U<c, d>>::f+0x10 %sp:x32 n=%pc s=%pstate",
        "r4096:b f::{closure#0} $arg12 a=$retval:char",
        "p f $arg1:s8 $arg8 $comm \\-7 t=\\\"a:b=c\" $stack $stack7:symbol",
        "p 0xffffffc000001000 +0x8(-u4(@a::b-8)):b3@2/16[5] +0(@0x1000):string[64]",
    ]) {
        let definition = define(line);
        let again = define(&definition.to_string());
        assert_eq!(meaning(&again), meaning(&definition));
    }
}

#[test]
fn places_are_symbols_offsets_and_addresses() {
    let place = |line| define(line).place;
    let symbol = |name: &str| Base::Symbol(name.to_string());
    assert_eq!(place("p:x f"), ProbePlace { base: symbol("f"), offset: 0, column: 4, offset_column: 4 });
    assert_eq!(place("p:x f+12"), ProbePlace { base: symbol("f"), offset: 12, column: 4, offset_column: 6 });
    assert_eq!(place("p f+0x1c").offset, 0x1c);
    assert_eq!(place("p <dyn A + B>::f+4").base, symbol("<dyn A + B>::f"));
    assert_eq!(place("p 0x1000").base, Base::Address(0x1000));
    assert_eq!(place("p net/tcp.rs:12 %x0").base, Base::Line("net/tcp.rs".to_string(), 12));
    assert_tried!(listed("p tcp.rs:12"), "p:kprobes/p_tcp_rs_12 tcp.rs:12");
    assert_tried!(refused("r tcp.rs:12", "  ^"), Problem::ReturnOffset);
    assert_tried!(refused("p tcp.rs:12 $arg1", "            ^"), Problem::ArgumentsInside);
    assert_eq!(parse_place(" f::<A, B>+8 ").unwrap().offset, 8);
    assert_eq!(parse_place(" f+8").unwrap(), ProbePlace { base: symbol("f"), offset: 8, column: 1, offset_column: 3 });
    for wrong in ["f g", "", "f%return", "f+"] {
        assert!(parse_place(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn expressions() {
    let expression = |line: &str| {
        let Expression { origin, reads, .. } = define(line).arguments.pop().unwrap().expression;
        (origin, reads)
    };
    let plain = |line: &str| {
        let (origin, reads) = expression(line);
        assert_eq!(reads, []);
        origin
    };
    assert_tried!(plain("p f %x30"), Origin::Register(Register::x(30).unwrap()));
    assert_tried!(plain("p f %sp"), Origin::Register(Register::SP));
    assert_tried!(plain("p f %pc"), Origin::Register(Register::PC));
    assert_tried!(plain("p f %pstate"), Origin::Register(Register::PSTATE));
    assert_tried!(plain("p f %lr"), plain("p f %x30"));
    assert_tried!(plain("p f $stack"), Origin::Register(Register::SP));
    assert_tried!(plain("p f $stack3"), Origin::Stack(3));
    assert_tried!(plain("p f $arg3"), Origin::Argument(2));
    assert_tried!(plain("r f $arg3"), Origin::Argument(2));
    assert_tried!(plain("r f $retval"), Origin::ReturnValue);
    assert_tried!(plain("p f $comm"), Origin::TaskName);
    assert_tried!(plain("p f \\0x10"), Origin::Immediate(16));
    assert_tried!(plain("p f \\-1"), Origin::Immediate(u64::MAX));
    assert_tried!(plain("p f \\\"x\""), Origin::Text(b"x"[..].into()));
    assert_eq!(expression("p f @0x20"), (Origin::Immediate(0x20), [0].into()));
    assert_eq!(expression("p f @a::b+4:u8"), (Origin::Symbol("a::b".into(), 4), [0].into()));
    assert_eq!(expression("p f +8(-4(%x0))"), (Origin::Register(Register::x(0).unwrap()), [-4, 8].into()));
    assert_eq!(expression("p f +u0x8($stack2)"), (Origin::Stack(2), [8].into()));
}

#[test]
fn types() {
    let kind = |text: &str| define(&format!("p f +0(%x0):{text}")).arguments[0].kind;
    assert_eq!(define("p f %x1").arguments[0].kind, Type::DEFAULT);
    assert_tried!(kind("s16"), Type::one(BaseType::Signed(Width::W16)));
    assert_tried!(kind("string"), Type::one(BaseType::String));
    let bits = Type { bits: Some(Bits { width: 4, offset: 28 }), ..Type::one(BaseType::Unsigned(Width::W32)) };
    assert_tried!(kind("b4@28/32"), bits);
    assert_tried!(kind("b0x4@0x1c/0x20[7]"), Type { count: 7, ..bits });
    assert_tried!(kind("ustring[2]"), Type { count: 2, ..Type::one(BaseType::String) });
    assert_eq!(define("p f $comm").arguments[0].kind.base, BaseType::String);
    assert_eq!(define("p f %x1:symstr %x2").arguments[1].name, "arg2");
}

#[test]
fn automatic_names_are_identifiers_of_the_longest_length_at_most() {
    let name = |line| define(line).event;
    assert_tried!(name("p vfs_read"), "p_vfs_read_0");
    assert_tried!(name("p __vfs_read+0x10"), "p___vfs_read_16");
    assert_tried!(name("p 0x1000"), "p_0x0000000000001000");
    assert_tried!(name("r sha2::sha256::compress256"), "r_sha2__sha256__compress256_0");
    assert_tried!(name("p adler2::adler32_slice"), "p_adler2__adler32_slice_0");
    assert_tried!(name("p f.llvm.1+4"), "p_f_llvm_1_4");
    assert_tried!(name("p <a::T as b::U>::\u{e9}"), "p__a__T_as_b__U_____0");
    let long = name("p core::ptr::drop_in_place::<alloc::vec::Vec<alloc::boxed::Box<dyn core::any::Any>>>");
    assert_eq!(long, "p_core__ptr__drop_in_place___alloc__vec__Vec_alloc__boxed__Box_");
    assert_eq!(long.len(), NAME_MAX);
}

#[test]
fn removals() {
    let removal = |line: &str| match parse(line) {
        Ok(Some(Command::Remove(removal))) => removal,
        other => panic!("{line}: {other:?}"),
    };
    let owned = |name: Option<&str>| name.map(ToString::to_string);
    let wanted = |group, event, rest: &[&str]| Removal {
        family: None,
        group: owned(group),
        event: owned(event),
        rest: rest.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(removal("-:x"), wanted(None, Some("x"), &[]));
    assert_eq!(removal("-:g/x # gone"), wanted(Some("g"), Some("x"), &[]));
    assert_eq!(removal("-:g/"), wanted(Some("g"), None, &[]));
    assert_eq!(removal("-:x f+4 a=%x0"), wanted(None, Some("x"), &["f+4", "a=%x0"]));
    let definition = define("p:g/x f+4 a=%x0 b=%x1");
    for line in ["-:x", "-:g/x", "-:g/", "-:x f+4", "-:x f+4 a=%x0", "-:x f+4 a=%x0 b=%x1"] {
        assert!(removal(line).matches(&definition), "{line}");
    }
    for line in ["-:y", "-:h/x", "-:x f", "-:x f+4 b=%x1", "-:x f+4 a=%x0 b=%x1 c=%x2"] {
        assert!(!removal(line).matches(&definition), "{line}");
    }
    let definition = define("e:g/x sched.sched_switch a=$prev_pid");
    for line in ["-:x sched.sched_switch", "-:x sched/sched_switch", "-:g/x sched/sched_switch a=$prev_pid"] {
        assert!(removal(line).matches(&definition), "{line}");
    }
    for line in ["-:x sched_switch", "-:x sched/sched_wakeup", "-:x sched:sched_switch", "-:x sched/"] {
        assert!(!removal(line).matches(&definition), "{line}");
    }
    assert_tried!(refused("- x", " ^"), Problem::NotADefinition);
    assert_tried!(refused("-x", " ^"), Problem::NotADefinition);
    assert_tried!(refused("-:", "  ^"), Problem::NothingToRemove);
    assert!(!Problem::NothingToRemove.is_logged());
}

#[test]
fn names_alone() {
    assert_eq!(parse_event_name("x"), Ok((None, "x".to_string())));
    assert_eq!(parse_event_name("g/x"), Ok((Some("g".to_string()), "x".to_string())));
    let problem = |text| parse_event_name(text).map_err(|error| (error.problem, error.column)).unwrap_err();
    assert_eq!(problem("g/"), (Problem::NoEvent, 2));
    assert_eq!(problem("g/-"), (Problem::Event, 2));
}

#[test]
fn empty_lines_and_comments_are_nothing() {
    for line in ["", "  ", "# p:x f", "\t# x"] {
        assert_eq!(parse(line), Ok(None));
    }
}

#[test]
fn commands_are_told_from_definitions() {
    for line in
        ["p", "p f", "p:x f", "p100 f", "r f", "r5 f", "r:", "-", "-:x", "-x", "f:x f", "t:x f", "f f", "f9 f", "e x.y"]
    {
        assert!(is_definition(line), "{line}");
    }
    for line in ["", "poweroff", "run sha256", "q:x f", "t9", "free", "# p"] {
        assert!(!is_definition(line), "{line}");
    }
}

/// The columns are those of Linux's `fprobe_syntax_errors.tc`, `tprobe_syntax_errors.tc` and
/// `eprobes_syntax_errors.tc`.
#[test]
fn probes_on_functions_and_events_are_refused_as_linux_refuses_them() {
    assert_tried!(refused("f100 vfs", " ^"), Problem::MaxactiveOnProbe);
    assert_tried!(refused("t100 kfree", " ^"), Problem::MaxactiveOnProbe);
    assert_tried!(refused("f vfs+10", "  ^"), Problem::FunctionOnly);
    assert_tried!(refused("f 0x1000", "  ^"), Problem::FunctionOnly);
    assert_tried!(refused("f a.rs:7", "  ^"), Problem::FunctionOnly);
    assert_tried!(refused("f vfs%hoge", "     ^"), Problem::PlaceSuffix);
    assert_tried!(refused("f vfs %x0", "      ^"), Problem::NoRegisters);
    assert_tried!(refused("f vfs %x0:string", "      ^"), Problem::NoRegisters);
    assert_tried!(refused("t kfree %rax", "        ^"), Problem::NoRegisters);
    assert_tried!(refused("t kfree a=+0(%x0)", "             ^"), Problem::NoRegisters);
    assert_tried!(refused("e a/b arg=%rax", "          ^"), Problem::NoRegisters);
    assert_tried!(
        (Problem::NoRegisters.text(), Problem::NoRegisters.next()),
        (Problem::Variable.text(), Some(Problem::Argument))
    );
    assert_tried!(refused("t kfree $retval", "        ^"), Problem::ReturnValueOnProbe);
    assert_tried!(refused("t kfree $arg* $arg*", "              ^"), Problem::ArgumentsTwice);
    assert_tried!(refused("t kfree+1", "       ^"), Problem::TracepointName);
    assert_tried!(refused("t:/bar kfree", "  ^"), Problem::NoGroup);
    assert_tried!(refused("t: kfree", "  ^"), Problem::NoEvent);
    assert_tried!(refused("e a.", "  ^"), Problem::NoEventInfo);
    assert_tried!(refused("e .b", "  ^"), Problem::NoEventInfo);
    assert_tried!(refused("e ab", "  ^"), Problem::NoEventInfo);
    assert_tried!(refused("e:foo.1/bar a/b", "  ^"), Problem::Group);
    assert_tried!(refused("e a/b foo", "      ^"), Problem::NoTypes);
    assert_tried!(refused("e:foo/bar a/b arg=dfd", "                  ^"), Problem::NoTypes);
    assert_tried!(refused("e a/b $", "      ^"), Problem::Variable);
    assert_tried!(refused("e:foo/bar a/b if", "                 ^"), Problem::NoFilter);
    assert_tried!(refused("e:foo/bar a/b x=$y if  # none", "                      ^"), Problem::NoFilter);
    assert_tried!(refused("t kfree if x == 1", "             ^"), Problem::NoArgumentName);
}

#[test]
fn a_function_probe_on_a_result_is_one_on_the_return() {
    let kind = |line| define(line).kind;
    assert_tried!(kind("f f"), EventKind::Probe);
    for line in ["f f $retval", "f f a=$retval:u8", "f f%return", "f f +8($retval)"] {
        assert_eq!(kind(line), EventKind::Return { maxactive: None }, "{line}");
    }
    assert_tried!(kind("f7 f%return"), EventKind::Return { maxactive: Some(7) });
    let long = ["a"; 80].concat();
    assert_eq!(define(&format!("f {long}")).event, format!("{}__entry", &long[..56]));
    assert_tried!(listed("t 9lives"), "t:tracepoints/_9lives 9lives");
    assert_tried!(listed("e a/b x=$c:u8"), "e:eprobes/b a.b x=$c:u8");
}

#[test]
fn names_are_refused_as_linux_refuses_them() {
    assert_tried!(refused("q:x f", "^"), Problem::NotADefinition);
    for line in ["s:x int a", "u:x /bin/sh:0"] {
        assert_eq!(refused(line, "^"), Problem::UnsupportedKind);
    }
    assert_tried!(refused("foo f", " ^"), Problem::NotADefinition);
    assert_tried!(refused("go f", "^"), Problem::NotADefinition);
    assert_tried!(refused("px f", " ^"), Problem::NotADefinition);
    assert_tried!(refused("p:x", "   ^"), Problem::NotADefinition);
    assert_tried!(refused("p100:x f", " ^"), Problem::MaxactiveOnProbe);
    assert_tried!(refused("r0:x f", " ^"), Problem::Maxactive);
    assert_tried!(refused("r4097:x f", " ^"), Problem::MaxactiveTooBig);
    assert_tried!(refused("r99999999999 f", " ^"), Problem::Maxactive);
    assert_tried!(refused("r1x f", " ^"), Problem::Maxactive);
    assert_eq!(define("r0x10 f").kind, EventKind::Return { maxactive: Some(16) });
    assert_tried!(refused("p: f", "  ^"), Problem::NoEvent);
    assert_tried!(refused("p:/x f", "  ^"), Problem::NoGroup);
    assert_tried!(refused("p:g+h/x f", "  ^"), Problem::Group);
    assert_tried!(refused("p:1-h/x f", "  ^"), Problem::Group);
    assert_tried!(refused("p:g/x-y f", "    ^"), Problem::Event);
    assert_tried!(refused("p:1x f", "  ^"), Problem::Event);
    for name in ["enable", "filter", "format", "hist", "id", "trigger"] {
        assert_eq!(refused(&format!("p:{name} f"), "  ^"), Problem::ReservedName);
        assert_eq!(refused(&format!("p:g/{name} f"), "    ^"), Problem::ReservedName);
        assert_eq!(refused(&format!("p:{name}/x f"), "  ^"), Problem::ReservedName);
    }
    assert_eq!(define("p:filters/enabled f").event, "enabled");
    let name = "n".repeat(64);
    assert_tried!(refused(&format!("p:{name} f"), "  ^"), Problem::EventTooLong);
    assert_tried!(refused(&format!("p:{name}/x f"), "  ^"), Problem::GroupTooLong);
    assert_eq!(define(&format!("p:{} f", &name[1..])).event.len(), NAME_MAX);
}

#[test]
fn places_are_refused_with_their_column() {
    for line in ["p hoge-fuga", "p hoge+1000-1000"] {
        assert_eq!(refused(line, "  ^").errno(), Errno::Invalid);
    }
    assert_tried!(refused("p:x +4x", "    ^"), Problem::Place);
    assert_tried!(refused("p:x f+", "    ^"), Problem::Place);
    assert_tried!(refused("p:x f-4", "    ^"), Problem::Place);
    assert_tried!(refused("p:x 0x10+0", "    ^"), Problem::Place);
    assert_tried!(refused("p:x f+0x+4", "    ^"), Problem::Place);
    assert_tried!(refused("p:x f+4294967296", "    ^"), Problem::Place);
    assert_tried!(refused("r:x f+4", "    ^"), Problem::ReturnOffset);
    assert_tried!(refused("p:x f+4%return", "    ^"), Problem::ReturnOffset);
    assert_tried!(refused("p:x f%ret", "     ^"), Problem::PlaceSuffix);
    assert_eq!(define("r:x f+0").place.offset, 0);
    assert_tried!(refused("p:x a<b %x0", "    ^"), Problem::Place);
}

#[test]
fn arguments_are_refused_with_their_column() {
    assert_tried!(refused("p:x f %x31", "      ^"), Problem::Register);
    assert_tried!(refused("p:x f a=%x99", "        ^"), Problem::Register);
    assert_tried!(refused("p:x f %x", "      ^"), Problem::Register);
    assert_tried!(refused("p:x f %x+1", "      ^"), Problem::Register);
    assert_tried!(refused("p:x f %x01", "      ^"), Problem::Register);
    assert_tried!(refused("p:x f %w0", "      ^"), Problem::Register);
    assert_tried!(refused("p:x f $comn", "      ^"), Problem::Variable);
    assert_tried!(refused("p:x f $arg0", "      ^"), Problem::ArgumentNumber);
    assert_tried!(refused("p:x f $arg2049", "      ^"), Problem::ArgumentNumber);
    assert_tried!(refused("p:x f $argx", "      ^"), Problem::Variable);
    assert_tried!(refused("p:x f+4 $arg*", "        ^"), Problem::ArgumentsInside);
    assert_tried!(refused("p:x f %x99 $argx", "           ^"), Problem::Variable);
    assert_tried!(refused("p:x f a=$arg*", "        ^"), Problem::ArgumentsAlone);
    assert_tried!(refused("p:x f +0($arg*)", "         ^"), Problem::ArgumentsAlone);
    assert_tried!(refused("p:x f $arg* $arg*", "            ^"), Problem::ArgumentsTwice);
    assert_tried!(refused("p:x f+4 name", "        ^"), Problem::NoTypes);
    assert_tried!(refused("p:x f name-.foo", "          ^"), Problem::Hyphen);
    assert_tried!(refused("r:x f $retvals->a", "      ^"), Problem::Variable);
    assert_tried!(refused("p:x f+4 $arg1", "        ^"), Problem::ArgumentsInside);
    assert_tried!(refused("p:x f $stack2049", "      ^"), Problem::StackNumber);
    assert_tried!(refused("p:x f $stackx", "      ^"), Problem::Variable);
    assert_tried!(refused("p:x f $retval", "      ^"), Problem::ReturnValueOnProbe);
    assert_tried!(refused("p:x f $retval->len", "      ^"), Problem::ReturnValueOnProbe);
    assert_tried!(refused("p:x f+4 a=$retval.0", "          ^"), Problem::ReturnValueOnProbe);
    assert_tried!(refused("p:x f &1", "      ^"), Problem::Argument);
    assert_tried!(refused("p:x f =%x0", "      ^"), Problem::NoArgumentName);
    assert_tried!(refused("p:x f a=", "        ^"), Problem::NoArgument);
    assert_tried!(refused("p:x f 1a=%x0", "      ^"), Problem::ArgumentName);
    assert_tried!(refused("p:x f common_pid=%x0", "      ^"), Problem::UsedArgumentName);
    assert_tried!(refused("p:x f a=%x0 a=%x1", "            ^"), Problem::UsedArgumentName);
    assert_tried!(refused("p:x f arg2=%x0 %x1", "               ^"), Problem::UsedArgumentName);
    assert_tried!(refused(&format!("p:x f {}=%x0", "n".repeat(33)), "      ^"), Problem::ArgumentNameTooLong);
    assert_tried!(refused(&format!("p:x f a=+{}(%x0)", "0".repeat(63)), "        ^"), Problem::ArgumentTooLong);
    assert_eq!([Problem::ArgumentTooLong, Problem::TooManyArguments].map(Problem::errno), [Errno::TooLong; 2]);
    if cfg!(miri) {
        // A line with so many arguments takes half a minute.
        return;
    }
    let many = format!("p f{}", " %x0".repeat(129));
    assert_tried!(refused(&many, "    ^"), Problem::TooManyArguments);
    assert_eq!(define(&many[..many.len() - 4]).arguments.len(), ARGUMENTS_MAX);
}

#[test]
fn memory_is_refused_with_its_column() {
    assert_tried!(refused("p:x f @sym+junk", "    ^"), Problem::Refused);
    assert!(parse("p:x f @").is_ok(), "no symbol has this name");
    assert_tried!(refused("p:x f @0xg", "      ^"), Problem::Address);
    assert_tried!(refused("p:x f @+8", "      ^"), Problem::FileOffset);
    assert_tried!(refused("p:x f \\x", "       ^"), Problem::Immediate);
    assert_tried!(refused("p:x f \\\"x", "         ^"), Problem::UnclosedText);
    assert_tried!(refused("p:x f \\\"", "        ^"), Problem::UnclosedText);
    assert_tried!(refused("p:x f +0", "      ^"), Problem::NoParenthesis);
    assert_tried!(refused("p:x f +x(%x0)", "      ^"), Problem::Offset);
    assert_tried!(refused("p:x f +(%x0)", "      ^"), Problem::Offset);
    assert_tried!(refused("p:x f +0(%x0", "            ^"), Problem::Unclosed);
    assert_tried!(refused("p:x f +0(+0(%x0)", "               ^"), Problem::Unclosed);
    assert_tried!(refused("p:x f +0(+0(%y0))", "            ^"), Problem::Register);
    assert_tried!(refused("p:x f +0(%x0)x", "             ^"), Problem::Argument);
    assert_tried!(refused("p:x f +0($comm)", "         ^"), Problem::TaskNameRead);
    assert_tried!(refused("p:x f +0(\\\"x\")", "         ^"), Problem::TaskNameRead);
    let nested = |depth: usize, rest: &str| format!("p:x f {}%x0{}{rest}", "+0(".repeat(depth), ")".repeat(depth));
    assert_tried!(refused(&nested(15, ""), "         ^"), Problem::TooDeep);
    let inner = nested(15, "").replace("%x0", "@0");
    assert_tried!(refused(&inner, "            ^"), Problem::TooDeep, "the innermost level that is too deep");
    assert_eq!(define(&nested(14, "")).arguments[0].expression.reads.len(), 14);
    let array = nested(13, ":u8[2]").replace("%x0", "@0");
    assert_tried!(refused(&array, "         ^"), Problem::TooDeep);
}

/// Linux's own test of carets, kprobe_syntax_errors.tc, with the registers of this architecture: `^` precedes the
/// cause.
#[test]
fn carets_stand_where_the_test_of_linux_has_them() {
    let long = "1".repeat(64);
    let long_group = format!("p:^g{long}/bar vfs_read");
    let long_event = format!("p:foo/^e{long} vfs_read");
    for marked in tried([
        "p^100 vfs_read",
        "r^1a111 vfs_read",
        "r^100000 vfs_read",
        "p ^hoge-fuga",
        "p ^hoge+1000-1000",
        "r ^vfs_read+10",
        "p:^/bar vfs_read",
        &long_group,
        "p:^foo.1/bar vfs_read",
        &long_event,
        "p:foo/^bar.1 vfs_read",
        "p vfs_read ^$retval",
        "p vfs_read ^$stack10000",
        "p vfs_read ^$arg10000",
        "p vfs_read ^$none_var",
        "p vfs_read ^%none_reg",
        "p vfs_read ^@12345678abcde",
        "p vfs_read ^@+10",
        "p vfs_read ^+0@0)",
        "p vfs_read ^+0ab1(@0)",
        "p vfs_read +0(+0(@0^)",
        "p vfs_read +0(^$comm)",
        "p vfs_read ^&1",
        "p vfs_read +0(^+0(+0(+0(+0(+0(+0(+0(+0(+0(+0(+0(+0(+0(@0))))))))))))))",
        "p vfs_read +0(@11):u8[10^",
        "p vfs_read +0(@11):u8[10]^a",
        "p vfs_read +0(@11):u8[^10a]",
        "p vfs_read +0(@11):u8[^256]",
        "p vfs_read @11:^unknown_type",
        "p vfs_read $stack0:^string",
        "p vfs_read @11:^b10@a/16",
        "p vfs_read ^arg123456789012345678901234567890=@11",
        "p vfs_read ^=@11",
        "p vfs_read ^var.1=@11",
        "p vfs_read var1=@11 ^var1=@12",
        "p vfs_read ^+1234567(+1234567(+1234567(+1234567(+1234567(+1234567(@1234))))))",
        "p vfs_read arg1=^",
    ]) {
        let line = marked.replace('^', "");
        let error = parse(&line).expect_err(marked);
        assert_eq!(Some(error.position), marked.find('^'), "{marked}: {error}");
    }
}

#[test]
fn types_are_refused_with_their_column() {
    assert_tried!(refused("p:x f %x0:u9", "          ^"), Problem::Type);
    assert_tried!(refused("p:x f %x0:", "          ^"), Problem::Type);
    assert_tried!(refused("p:x f %x0:é", "          ^"), Problem::Type);
    assert_tried!(refused("p:x f %x0:b4@0", "          ^"), Problem::Type);
    assert_tried!(refused("p:x f %x0:b4@0/7", "          ^"), Problem::Type);
    assert_tried!(refused("p:x f %x0:b0@0/8", "          ^"), Problem::Bits);
    assert_tried!(refused("p:x f %x0:b4@5/8", "          ^"), Problem::Bits);
    assert_tried!(refused("p:x f %x0:b4@/8", "          ^"), Problem::Bits);
    assert_tried!(refused("p:x f %x0:string", "          ^"), Problem::Text);
    assert_tried!(refused("p:x f \\1:symstr", "         ^"), Problem::SymbolText);
    assert_tried!(refused("p:x f $comm:u8", "            ^"), Problem::TextType);
    assert_tried!(refused("p:x f $comm:string[2]", "            ^"), Problem::TextType);
    assert_tried!(refused("p:x f %x0:u8[2]", "          ^"), Problem::Text);
    assert_tried!(refused("p:x f +0(%x0):u8[2", "                  ^"), Problem::UnclosedArray);
    assert_tried!(refused("p:x f +0(%x0):u8[2]x", "                   ^"), Problem::ArraySuffix);
    assert_tried!(refused("p:x f +0(%x0):u8[0]", "                 ^"), Problem::ArraySize);
    assert_tried!(refused("p:x f +0(%x0):u8[]", "                 ^"), Problem::ArraySize);
    assert_tried!(refused("p:x f +0(%x0):u8[65]", "                 ^"), Problem::ArrayTooBig);
    assert_eq!(define("p f \\1:string").arguments[0].kind.base, BaseType::String);
}

/// The log is that of Linux 6.1: positions count in the line without superfluous spaces.
#[test]
fn errors_are_logged_as_linux_logs_them() {
    let line = "  p:x   vfs_read  %x99 # why";
    let error = parse(line).unwrap_err();
    assert_eq!(logged(line).unwrap(), "p:x vfs_read %x99");
    assert_eq!((error.column, error.position, error.problem.text()), (18, 13, "Invalid register name"));
    let error = parse("r:x vfs_read+4").unwrap_err();
    let text = "Retprobe address must be an function entry";
    assert_eq!((error.position, error.to_string()), (4, text.to_string()));
    let text = "Invalid register name: a register is %x0 to %x30, %lr, %sp, %pc or %pstate";
    assert_eq!(parse(line).unwrap_err().to_string(), text);
}
