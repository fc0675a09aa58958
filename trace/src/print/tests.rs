//! What is printed of a static event, compared with what the kernel of Linux prints of the same bytes.

use alloc::string::String;
use alloc::vec::Vec;

use aarch64_kprobes::event::{Event, Field, FieldKind};

use kprobes_random::{assert_tried, tried::tried};

use super::*;
use crate::symbols::Function;

/// One function, from 0x1000 on.
struct One;

impl Symbols for One {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        (0x1000..0x1100).contains(&address).then_some(Function { name: "one", address: 0x1000, size: 0x100 })
    }

    fn find<'a>(&'a self, _: &str, _: &mut dyn FnMut(Function<'a>)) {}
}

aarch64_kprobes::event! {
    struct Sample<'a> = test:sample {
        name: [u8; 8],
        number: i32,
        state: i64,
        text: aarch64_kprobes::event::Text<'a>,
        address: u64,
    }
}

/// Returns what `print` gives for an event with the `name` "ab", `number`, `state`, the `text` "xyz" and the `address`
/// 0x1004.
fn printed(print: &'static str, number: i32, state: i64) -> Option<String> {
    let mut format = Format::of_static(Sample::EVENT).unwrap();
    let mut record = Vec::from([0; 8]);
    record.extend(b"ab\0\0\0\0\0\0");
    record.extend(number.to_le_bytes());
    record.extend([0; 4]);
    record.extend(state.to_le_bytes());
    record.extend((4_u32 << 16 | 48).to_le_bytes());
    record.extend([0; 4]);
    record.extend(0x1004_u64.to_le_bytes());
    record.extend(b"xyz\0");
    assert_eq!(format.size(), 48);
    is_understood(print, &format.fields).then_some(())?;
    format.print = Some(print);
    let mut out = String::new();
    write(&mut out, &format, &record, &One).unwrap();
    Some(out)
}

#[test]
fn conversions_are_those_of_printf() {
    for (print, text) in tried([
        (r#""a=%d", REC->number"#, "a=-5"),
        (
            r#""%u|%x|%#x|%X", REC->number, REC->number, REC->number, REC->number"#,
            "4294967291|fffffffb|0xfffffffb|FFFFFFFB",
        ),
        (r#""%03d|%3d|%-3d|", 7, 7, 7"#, "007|  7|7  |"),
        (r#""%8X|%-6x|%#8x|%#06x|%#X|", 171, 171, 171, 171, 171"#, "      AB|ab    |    0xab|0x00ab|0XAB|"),
        (r#""%+d|% d|%+4d|%+04d|%04d|%+u|", 7, 7, 7, 7, -7, 7"#, "+7| 7|  +7|+007|-007|7|"),
        (r#""%hhx|%hd|%3c|%-3c|", 0x1ff, 0x18000, 65, 0xe9"#, "ff|-32768|  A|é  |"),
        (r#""%ld %lu %lld %zu", REC->state, REC->state, (long long)REC->state, REC->state"#, "3 3 3 3"),
        (r#""[%s] [%5s] [%-5s] %% %c", REC->name, REC->name, __get_str(text), 65"#, "[ab] [   ab] [xyz  ] % A"),
        (r#""%pS %ps %p", (void *)REC->address, REC->address, REC->address"#, "one+0x4/0x100 one 0000000000001004"),
        (
            r#""[%15pS] [%-5ps] [%6px] [%-6p] [%08p] [%#px]", REC->address, REC->address, REC->address, REC->address, REC->address, REC->address"#,
            "[  one+0x4/0x100] [one  ] [  1004] [1004  ] [00001004] [0x00000000001004]",
        ),
        (r#""\"%d\"\n", 1"#, "\"1\"\n"),
        (r#""nothing""#, "nothing"),
    ]) {
        assert_eq!(printed(print, -5, 3).as_deref(), Some(text), "{print}");
    }
}

#[test]
fn expressions_are_those_of_c() {
    for (expression, value) in tried([
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("1 << 4 | 1", 17),
        ("10 - 2 - 3", 5),
        ("!0 + !5 + ~0 + 2", 2),
        ("-3 < 2 && 1", 1),
        ("7 & 3 == 3", 1),
        ("6 ^ 3", 5),
        ("((1U << 20) - 1) & 0x100005", 5),
        ("0 ? 1 : 2 ? 3 : 4", 3),
        ("REC->state >= 3", 1),
        ("1 >> 1 || 0", 0),
        ("017", 15),
        // The operands of an operator are converted to one type, which has no sign if one of them has none, unless the
        // type with a sign has room for all values of the other.
        ("REC->number < 0", 1),
        ("REC->number < 1U", 0),
        ("REC->number < 1L", 1),
        ("REC->number < (unsigned long)1", 0),
        ("-1 < 1U", 0),
        ("-1L < 1U", 1),
        ("-1 < (u16)1", 1),
        ("-1 > (size_t)1", 1),
        ("REC->address < -1", 1),
        ("0xffffffff > 0", 1),
        ("0xffffffff == -1", 1),
        ("4294967295 == -1", 0),
        ("0x8000000000000000 > 1", 1),
        ("(1 ? -1 : 1U) > 0", 1),
        // A shift to the right keeps the sign that the type on its left has.
        ("REC->number >> 1 == -3", 1),
        ("(u32)REC->number >> 1 == 0x7ffffffd", 1),
        ("(REC->number - 0UL) >> 63", 1),
        ("-8 >> 1U", -4),
        ("1 << 32", 0),
        ("-1 >> 64", 0),
        // Arithmetic wraps in the width of its type.
        ("0xffffffff + 1 == 0", 1),
        ("0xffffffffL + 1 == 0x100000000", 1),
        ("~0U > 0", 1),
        ("~(u8)0 < 0", 1),
        // Casts cut, and extend by the sign of the type.
        ("(u8)0x1ff", 255),
        ("(signed char)0x1ff", -1),
        ("(char)-1", 255),
        ("(s16)0x8000 < 0", 1),
        ("(unsigned short)-1 == 0xffff", 1),
        ("(long long int)REC->number == -5", 1),
        ("(bool)256", 1),
        ("(void *)-1 > 0", 1),
        ("(unsigned)-1 > 0", 1),
    ]) {
        let print = alloc::format!("\"%d\", {expression}").leak();
        assert_eq!(printed(print, -5, 3), Some(alloc::format!("{value}")), "{expression}");
    }
}

#[test]
fn values_have_names() {
    const FLAGS: &str = r#""%s", __print_flags(REC->state, "|", { 1, "S" }, { 2, "D" }, { 0x10, "X" })"#;
    const SYMBOLIC: &str = r#""%s", __print_symbolic(REC->state, { 0, "zero" }, { 3, "three" })"#;
    for (print, state, text) in tried([
        (FLAGS, 0, ""),
        (FLAGS, 1, "S"),
        (FLAGS, 0x12, "D|X"),
        (FLAGS, 0x43, "S|D|0x40"),
        (SYMBOLIC, 0, "zero"),
        (SYMBOLIC, 3, "three"),
        (SYMBOLIC, 17, "0x11"),
        (
            r#""[%6s] [%-6s]", __print_symbolic(REC->state, { 3, "three" }), __print_flags(REC->state, "|", { 1, "S" }, { 2, "D" })"#,
            3,
            "[ three] [S|D   ]",
        ),
        (r#""%s%s", REC->state ? "some" : "none", """#, 1, "some"),
    ]) {
        assert_eq!(printed(print, 0, state).as_deref(), Some(text), "{print} of {state:#x}");
    }
}

#[test]
fn what_is_not_understood_is_found_before_it_is_printed() {
    for print in tried([
        "",
        "no quotes",
        r#""%d""#,
        r#""%d", REC->nothing"#,
        r#""%d", __get_dynamic_array(text)"#,
        r#""%d", REC->name"#,
        r#""%s", REC->number"#,
        r#""%y", 1"#,
        r#""%.*s", REC->name"#,
        r#""%.*s", 2, REC->name"#,
        r#""%pI4", REC->address"#,
        r#""%pSR", REC->address"#,
        r#""%d", 1, 2"#,
        r#""%d", (1"#,
        r#""%d", 1 +"#,
        r#""%d", 0x"#,
        r#""%d", 08"#,
        r#""%d", (void)1"#,
        r#""%d", (unsigned other)1"#,
        r#""%d", (int)REC->name"#,
        r#""%d", (long"#,
        r#""%9999d", 1"#,
        r#""%d", ((((((((((((((((((((1))))))))))))))))))))"#,
        r#""%s", __print_flags(REC->state, "|", { 1, "S" }"#,
        "\"%d \\",
    ]) {
        assert_eq!(printed(print, 0, 0), None, "{print}");
    }
}

/// An event without a text of its own shows its fields by their names, in the record and in `format`.
#[test]
fn an_event_without_a_text_prints_its_fields() {
    let format = Format::of_static(Sample::EVENT).unwrap();
    assert_eq!(format.print, None);
    let mut text = String::new();
    format.write(&mut text, "sample", 300).unwrap();
    let expected = "\
name: sample
ID: 300
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char name[8];\toffset:8;\tsize:8;\tsigned:0;
\tfield:int number;\toffset:16;\tsize:4;\tsigned:1;
\tfield:long state;\toffset:24;\tsize:8;\tsigned:1;
\tfield:__data_loc char[] text;\toffset:32;\tsize:4;\tsigned:0;
\tfield:u64 address;\toffset:40;\tsize:8;\tsigned:0;

print fmt: \"name=%s number=%d state=%ld text=%s address=%lu\", REC->name, REC->number, REC->state, __get_str(text), REC->address
";
    assert_eq!(text, expected);
    let understood = expected.lines().last().unwrap().strip_prefix("print fmt: ").unwrap();
    assert!(is_understood(understood, &format.fields));
}

/// The description has the fields as they lie in the struct.
#[test]
fn a_description_is_that_of_the_struct() {
    let event: &Event = Sample::EVENT;
    assert_eq!((event.group(), event.name(), event.print(), event.sites()), ("test", "sample", None, 0));
    let place = |field: &Field| (field.name, field.kind, field.offset, field.size);
    let fields: Vec<_> = event.fields().iter().map(place).collect();
    assert_eq!(
        fields,
        [
            ("name", FieldKind::Characters, 0, 8),
            ("number", FieldKind::Signed, 8, 4),
            ("state", FieldKind::Signed, 16, 8),
            ("text", FieldKind::Text, 24, 16),
            ("address", FieldKind::Unsigned, 40, 8)
        ]
    );
    let format = Format::of_static(event).unwrap();
    let (fetches, fields) = format.parts(event).unwrap();
    // With the zeros after `number` and after the place of `text`.
    assert_eq!((fetches.len(), fields.len()), (7, 7));
    aarch64_kprobes::emit!(Sample { name: [unevaluated(); 8], number: 0, state: 0, text: "".into(), address: 0 });
}

/// Nothing listens in a program of the host.
fn unevaluated() -> u8 {
    panic!("a field was evaluated, and nothing listens")
}

/// A conversion that fits one of two values would end the line in the middle when the record asks for the other.
#[test]
fn both_values_of_a_choice_fit_the_conversion() {
    assert_tried!(printed(r#""a=%s b", REC->number ? 5 : "none""#, 1, 0), None);
    assert_tried!(printed(r#""a=%d b", REC->number ? "some" : 0"#, 1, 0), None);
    assert_tried!(printed(r#""a=%s b", REC->number ? "some" : REC->name"#, 1, 0).as_deref(), Some("a=some b"));
}
