//! The `format` files that Linux 6.1 printed, and values in records.

use kprobes_random::tried::tried;

use super::*;
use alloc::vec;

const X64: Type = Type::DEFAULT;

fn written(format: &Format) -> String {
    let mut text = String::new();
    format.write(&mut text, "blk_update", 1292).unwrap();
    text
}

#[test]
fn a_return_as_linux_prints_it() {
    let linux = "name: blk_update\nID: 1292\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \n\
        \tfield:unsigned long __probe_func;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long __probe_ret_ip;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:u64 arg1;\toffset:24;\tsize:8;\tsigned:0;\n\
        \n\
        print fmt: \"(%lx <- %lx) arg1=0x%Lx\", REC->__probe_func, REC->__probe_ret_ip, REC->arg1\n";
    assert_eq!(written(&Format::new(Shape::Return, [("arg1", X64)]).unwrap()), linux);
}

#[test]
fn arguments_follow_each_other_without_gaps() {
    let array = Type { count: 2, ..Type::one(Base::of("u16").unwrap()) };
    let texts = Type { count: 2, ..Type::one(Base::String) };
    let types = [("a", Type::one(Base::Char)), ("b", array), ("c", Type::one(Base::String)), ("d", texts)];
    let format = Format::new(Shape::Probe, types).unwrap();
    let offsets: Vec<_> = format.arguments().iter().map(|field| (field.offset, field.size)).collect();
    assert_eq!(offsets, [(16, 1), (17, 4), (21, 4), (25, 8)]);
    assert_eq!(format.size(), 33 + 8, "with the word about the array of numbers");
    let text = written(&format);
    for line in tried([
        "\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n",
        "\tfield:u8 a;\toffset:16;\tsize:1;\tsigned:0;\n",
        "\tfield:u16 b[2];\toffset:17;\tsize:4;\tsigned:0;\n",
        "\tfield:__data_loc char[] c;\toffset:21;\tsize:4;\tsigned:1;\n",
        "\tfield:__data_loc char[][2] d;\toffset:25;\tsize:8;\tsigned:1;\n",
        "print fmt: \"(%lx) a='%c' b={%u,%u} c=\\\"%s\\\" d={\\\"%s\\\",\\\"%s\\\"}\", REC->__probe_ip, REC->a, \
         REC->b[0], REC->b[1], __get_str(c), __get_str(d[0]), __get_str(d[1])\n",
    ]) {
        assert!(text.contains(line), "{text}\n{line}");
    }
}

#[test]
fn values_are_read_from_records() {
    let signed = Type { count: 2, ..Type::one(Base::Signed(Width::W16)) };
    let format = Format::new(Shape::Probe, [("n", signed), ("t", Type::one(Base::String)), ("u", X64)]).unwrap();
    let mut record = vec![0; 16];
    record.extend([0xfe, 0xff, 2, 0]);
    record.extend((3 << 16 | 32_u32).to_le_bytes());
    record.extend(0x8000_0000_0000_0001_u64.to_le_bytes());
    record.extend(*b"hi\0");
    let field = |name| format.field(name).unwrap();
    assert_eq!(field("n").value(&record, 0), Some(-2_i64 as u64));
    assert_eq!(field("n").value(&record, 1), Some(2));
    assert_eq!(field("n").value(&record, 2), None);
    assert_eq!(field("u").value(&record, 0), Some(0x8000_0000_0000_0001));
    assert_eq!(field("t").bytes(&record, 0), Some(&b"hi"[..]));
    assert_eq!(field("u").bytes(&record, 0), None);
    assert_eq!((field("n").is_number(), field("u").is_number(), field("t").is_text()), (false, true, true));
    assert_eq!(field("t").bytes(&record[..33], 0), None, "the record ends before the text");
    record[20..24].fill(0);
    assert_eq!(field("t").bytes(&record, 0), None, "a text that could not be read");
    assert_eq!(field("u").value(&record[..28], 0), None);
}

#[test]
fn types_are_printed_as_they_are_typed() {
    for name in ["u8", "u64", "s16", "x32", "char", "symbol", "string", "symstr"] {
        assert_eq!(alloc::format!("{}", Base::of(name).unwrap()), name);
    }
    for name in ["", "u", "u9", "é8", "x128", "strings"] {
        assert_eq!(Base::of(name), None);
    }
}
