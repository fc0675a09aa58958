//! The behavior of each construct, by its output.

use std::fmt::{self, Write};
use std::format;
use std::string::String;

use kprobes_vm::store::Limits;

use super::machine::{Bed, Image, Task, masked, printed, refused};
use crate::report::{OutputFormat, drain};

/// Returns what `kprobe:f { body }` prints for one hit with these arguments.
fn once(body: &str, arguments: &[u64]) -> String {
    printed(&format!("kprobe:f {{ {body} }}"), &[arguments])
}

/// Returns what `print` shows for an expression, with arg0 to arg3 being 10, 3, -1 and 0x8000.
fn value(expression: &str) -> String {
    once(&format!("print({expression});"), &[10, 3, u64::MAX, 0x8000]).trim_end().into()
}

#[test]
fn arithmetic_is_that_of_64_bits() {
    for (expression, shown) in [
        ("arg0 + arg1 * 2", "16"),
        ("(arg0 + arg1) * 2", "26"),
        ("arg0 - 11", "18446744073709551615"),
        ("(s64)arg0 - 11", "-1"),
        ("arg0 / arg1", "3"),
        ("arg0 % arg1", "1"),
        ("arg0 / 0", "0"),
        ("arg0 % 0", "10"),
        ("-7 / 2", "-3"),
        ("(s64)arg2 / 1", "-1"),
        ("arg2 / 2", "9223372036854775807"),
        ("-arg0", "-10"),
        ("~arg0 & 0xff", "245"),
        ("arg0 | 5 ^ 1", "14"),
        ("1 << 10", "1024"),
        ("arg2 >> 60", "15"),
        ("(s64)arg2 >> 60", "-1"),
        ("1e3 + 1_000", "2000"),
        ("0x1f", "31"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
}

#[test]
fn comparisons_have_a_sign_where_both_sides_have() {
    for (expression, shown) in [
        ("arg2 > 5", "1"),
        ("(s64)arg2 < 5", "1"),
        ("(s64)arg2 < arg0", "0"),
        ("-1 < 0", "1"),
        ("arg0 == 10 && arg1 == 3", "1"),
        ("arg0 == 9 || arg1 == 4", "0"),
        ("!(arg0 == 9 || arg1 == 4)", "1"),
        ("!arg0", "0"),
        ("arg0 > 5 ? 1 + 1 : 3", "2"),
        ("arg0 > 50 ? \"big\" : \"small\"", "small"),
        ("arg0 >= 10 != arg1 <= 2", "1"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
}

#[test]
fn casts_cut_and_extend() {
    for (expression, shown) in [
        ("(u8)arg2", "255"),
        ("(s8)arg2", "-1"),
        ("(uint16_t)arg2", "65535"),
        ("(int32)arg2", "-1"),
        ("(u32)(arg2 << 4)", "4294967280"),
        ("(u8)300", "44"),
        ("(u64)-1", "18446744073709551615"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
}

#[test]
fn memory_is_read_through_pointers() {
    for (expression, shown) in [
        ("*(u8 *)arg3", "97"),
        ("*(u32 *)(arg3 + 2)", "1769108595"),
        ("*((u8 *)arg3 + 2)", "115"),
        ("((u8 *)arg3)[3]", "116"),
        ("((u16 *)arg3)[1]", "29811"),
        ("*(s8 *)(arg3 + 25)", "-1"),
        ("(u32 *)arg3", "0x8000"),
        ("str(arg3)", "a string"),
        ("str(arg3 + 2, 3)", "str"),
        ("str(arg3 + 2, arg1)", "str"),
        ("str(arg3 + 9, 100)", "of 63 bytes and \u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{1}\u{fffd}"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
}

#[test]
fn reads_that_fail_give_0_and_are_counted() {
    let body = "printf(\"%d %d [%s] [%s]\", *(u32 *)arg0, *(u64 *)0, str(arg0), str(0x803c, 20));";
    assert_eq!(once(body, &[0x9000]), "0 0 [] [ ...]4 reads of memory failed, and gave 0\n");
}

#[test]
fn a_hit_is_known_by_its_builtins() {
    for (expression, shown) in [
        ("func", "blk::submit"),
        ("caller", "main"),
        ("probe", "kprobe:blk::submit"),
        ("cpu", "0"),
        ("tid", "7"),
        ("pid", "7"),
        ("comm", "worker"),
        ("nsecs", "5000"),
        ("elapsed", "4000"),
        ("reg(\"x9\")", "99"),
        ("reg(\"sp\")", "32768"),
        ("reg(\"pstate\")", "965"),
        ("kaddr(\"blk::read\")", "4352"),
        ("ksym(0x1234)", "net::send"),
        ("ksym(0x9999)", "0x9999"),
        ("func == \"blk::submit\"", "1"),
        ("func == kaddr(\"blk::read\")", "0"),
        ("comm == \"worker\"", "1"),
        ("comm != \"workers\"", "1"),
        ("\"worker\" == comm", "1"),
        ("strncmp(comm, \"workshop\", 4)", "0"),
        ("strncmp(comm, \"workshop\", 5)", "1"),
        ("kstack", "\n    blk::submit+4\n    blk::read+16\n    main+32"),
        ("kstack(2)", "\n    blk::submit+4\n    blk::read+16"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
    assert_eq!(printed("kretprobe:f, return:g { print(retval); }", &[&[42]]), "42\n");
}

#[test]
fn functions_of_one_path_match_together_and_are_told_apart() {
    let hits = |program: &str| {
        let bed = Bed::new(program);
        for (function, caller) in [(0x1400, 0x1510), (0x1500, 0x1710), (0x1600, 0x1610), (0x1700, 0x1310)] {
            bed.hit(0, &Task { function, caller, ..Task::with(&[]) });
        }
        bed.finish()
    };
    assert_eq!(
        hits("kprobe:net::* { @[func] = count(); @from[caller] = count(); }"),
        "@[net::check::<u32>]: 1\n@[net::twin#1]: 1\n@[net::check::<u64>]: 1\n@[net::twin#2]: 1\n\
         @from[main]: 1\n@from[net::twin#1]: 1\n@from[net::check::<u64>]: 1\n@from[net::twin#2]: 1\n"
    );
    for (condition, count) in [
        ("func == \"net::twin\"", 2),
        ("\"net::twin\" == func", 2),
        ("func != \"net::twin\"", 2),
        ("func == \"net::twin#1\"", 1),
        ("func == \"net::twin#2\"", 1),
        ("func == \"net::check\"", 2),
        ("func == \"net::check::<u64>\"", 1),
        ("func != \"net::check::<u64>\"", 3),
        ("func == kaddr(\"net::twin\")", 1),
        ("func == kaddr(\"net::twin#2\") || func == \"net::check\"", 3),
        ("caller == \"net::twin\"", 2),
        ("caller == \"main\"", 1),
        ("ksym(0x1710) == \"net::twin\"", 4),
        ("ksym(0x1710) != \"net::twin#1\" && \"net::twin#1\" != ksym(arg0)", 4),
        ("ksym(0x1710) == \"net::check\"", 0),
    ] {
        let found = hits(&format!("kprobe:net::* /{condition}/ {{ @ = count(); }}"));
        assert_eq!(found, if count > 0 { format!("@: {count}\n") } else { String::new() }, "{condition}");
        let found = hits(&format!("kprobe:net::* {{ @ = sum({condition}); }}"));
        assert_eq!(found, format!("@: {count}\n"), "{condition}");
    }
    let stack = Bed::new("kprobe:net::twin { @[kstack] = count(); }");
    stack.hit(0, &Task { stack: &[0x1704, 0x1500], ..Task::with(&[]) });
    assert_eq!(stack.finish(), "@[\n    net::twin#2+4\n    net::check::<u32>+256\n]: 1\n");
}

#[test]
fn a_predicate_decides_and_may_divide() {
    let program = "kprobe:f /arg0 / 2 > 5 && comm == \"worker\"/ { print(arg0); }";
    assert_eq!(printed(program, &[&[11], &[12], &[5], &[100]]), "12\n100\n");
    assert_eq!(printed("kprobe:f /0/ { print(1); }", &[&[]]), "");
    assert_eq!(printed("kprobe:f /1/ { print(1); }", &[&[]]), "1\n");
}

#[test]
fn if_else_unroll_and_return() {
    let body = "if (arg0 > 100) { print(\"a\"); } else if (arg0 > 10) { print(\"b\"); } else { print(\"c\"); } \
                if (arg0 == 5) { return; } print(\"end\");";
    let program = format!("kprobe:f {{ {body} }}");
    assert_eq!(printed(&program, &[&[500], &[50], &[5]]), "a\nend\nb\nend\nc\n");
    assert_eq!(once("$i = 0; unroll (4) { $i += $i + 1; print($i); }", &[]), "1\n3\n7\n15\n");
    assert_eq!(once("unroll (2) { unroll (3) { @n++; } }", &[]), "@n: 6\n");
}

#[test]
fn variables_keep_values_within_their_block() {
    assert_eq!(once("$x = arg0; $y = $x++; $z = ++$x; printf(\"%d %d %d\", $x, $y, $z);", &[5]), "7 5 7");
    assert_eq!(once("$x = 8; $x -= 3; $x <<= 2; $x |= 1; $x %= 16; print($x); $x--; print(--$x);", &[]), "5\n3\n");
    assert_eq!(once("$s = comm; $t = \"ab\"; $s = \"cd\"; printf(\"%s %s\", $s, $t);", &[]), "cd ab");
    assert_eq!(once("$x = 1; if (arg0) { $x = 2; $y = 3; print($y); } print($x);", &[1]), "3\n2\n");
}

#[test]
fn maps_keep_values_by_key() {
    assert_eq!(once("@x = 5; @y = comm; @z = func;", &[]), "@x: 5\n@y: worker\n@z: blk::submit\n");
    let program = "kprobe:f { @[arg0, comm, func] = arg1; @seen[arg0]++; @sum += arg1; @last = arg1 - 5; }";
    assert_eq!(
        printed(program, &[&[2, 30], &[1, 40], &[2, 10]]),
        "@[2, worker, blk::submit]: 10\n@[1, worker, blk::submit]: 40\n@last: 5\n@seen[1]: 1\n@seen[2]: 2\n@sum: 80\n"
    );
    let body = "@x[1] = 5; @x[2] = 6; @x[1]++; print(len(@x)); delete(@x[2]); @x[7] = 0; delete(@x, 9); \
        printf(\"%d %d %d\\n\", len(@x), has_key(@x, 7), has_key(@x, 2)); clear(@x);";
    assert_eq!(once(body, &[]), "2\n2 1 0\n");
    let mut bed = Bed::new("kprobe:f { @x[arg0] = 1; print(len(@x)); clear(@x); }");
    bed.hit(0, &Task::with(&[1])).hit(0, &Task::with(&[2]));
    bed.drain();
    bed.hit(0, &Task::with(&[3]));
    assert_eq!(bed.finish(), "1\n2\n1\n");
    // Keys are found whichever CPU collected them, and a part of a key may be any value.
    let mut bed = Bed::new("kprobe:f { @c[comm] = count(); print(has_key(@c, \"worker\")); }");
    bed.hit(0, &Task { cpu: 1, comm: "other", ..Task::with(&[]) }).hit(0, &Task { cpu: 2, ..Task::with(&[]) });
    bed.hit(0, &Task { cpu: 3, comm: "other", ..Task::with(&[]) });
    bed.drain();
    assert_eq!(bed.text, "0\n1\n1\n");
    assert_eq!(once("print(len(kstack())); print(len(kstack(2)));", &[]), "3\n2\n");
}

#[test]
fn a_map_may_be_read_before_the_text_that_gives_it_values() {
    let program = "kprobe:f { if (@n > 1) { exit(); } @copy = @of; @n++; @of = comm; }";
    assert_eq!(printed(program, &[&[], &[], &[], &[]]), "@copy: worker\n@n: 2\n@of: worker\n");
    let bed = Bed::new("kprobe:g /@start[tid]/ { @ns = nsecs - @start[tid]; } kprobe:f { @start[tid] = nsecs; }");
    bed.hit(0, &Task::with(&[])).hit(1, &Task::with(&[]));
    bed.hit(0, &Task { time: 5_700, cpu: 3, ..Task::with(&[]) });
    assert_eq!(bed.finish(), "@ns: 700\n@start[7]: 5000\n");
}

#[test]
fn what_is_collected_is_put_together_from_all_cpus() {
    let program = "kprobe:f { @c = count(); @s = sum(arg0); @a = avg(arg0); @l = min(arg0); @g = max(arg0); \
                   @st = stats(arg0); @neg = sum((s64)arg1); @low[cpu] = min((s32)arg1); }";
    let bed = Bed::new(program);
    for (cpu, number) in [(0, 10), (1, 20), (2, 31), (0, 2)] {
        bed.hit(0, &Task { cpu, ..Task::with(&[number, number.wrapping_neg()]) });
    }
    assert_eq!(
        bed.finish(),
        "@a: 15\n@c: 4\n@g: 31\n@l: 2\n@low[2]: -31\n@low[1]: -20\n@low[0]: -10\n@neg: -63\n@s: 63\n\
         @st: count 4, average 15, total 63\n"
    );
    assert_eq!(
        once("@c = count(); @c = count(); @s = sum(5); print(@c * 10); print(@s);", &[]),
        "20\n@s: 5\n@c: 2\n@s: 5\n"
    );
    assert_eq!(
        once("@c[1] = count(); @m[2] = avg(9); print(@c[1]); print(@m[2]);", &[]),
        "@c[1]: 1\n@m[2]: 9\n@c[1]: 1\n@m[2]: 9\n"
    );
}

#[test]
fn averages_are_of_sums_that_do_not_wrap() {
    let program = "kprobe:f { @a = avg(arg0); @n = avg((s64)arg1); @st = stats(arg0); @t = stats((s64)arg1); }";
    let bed = Bed::new(program);
    let (large, small) = (u64::MAX - 1, i64::MIN.cast_unsigned());
    for cpu in [0, 0, 0, 1, 2] {
        bed.hit(0, &Task { cpu, ..Task::with(&[large, small]) });
    }
    let (all, least) = (5 * u128::from(large), 5 * i128::from(i64::MIN));
    assert_eq!(
        bed.finish(),
        format!(
            "@a: {large}\n@n: {}\n@st: count 5, average {large}, total {all}\n@t: count 5, average {}, total {least}\n",
            i64::MIN,
            i64::MIN
        )
    );
}

#[test]
fn control_characters_in_strings_that_maps_keep_are_escaped() {
    assert_eq!(
        once("@[\"a\\nb\", 1] = count(); @of = \"\\t\"; print(\"a\\tb\"); print(@of);", &[]),
        "a\tb\n@of: \\t\n@[a\\nb, 1]: 1\n@of: \\t\n"
    );
    let mut memory = [0; 64];
    let text = "\x1b[2J\x07e\u{301}";
    memory[..text.len()].copy_from_slice(text.as_bytes());
    let bed = Bed::new("kprobe:f { @[str(0x8000)] = count(); }");
    bed.hit(0, &Task { memory, ..Task::with(&[]) });
    assert_eq!(bed.finish(), "@[\\u{1b}[2J\\u{7}e\u{301}]: 1\n");
}

#[test]
#[cfg_attr(miri, ignore = "it counts 8000 keys")]
fn there_is_room_for_as_many_keys_and_stacks_as_are_asked_for() {
    let program = "kprobe:f { @[kstack(7)] = count(); @s[str(0x8000)] = hist(arg0); }";
    let limits = Limits::usual(1).with_keys(8_000);
    let bed = Bed::within(program, &limits);
    for number in 0..8_000_u64 {
        let stack = Box::leak(Box::new([0xffff_ffc0_0000_1000, number / 100, 4 * number]));
        let mut memory = [0; 64];
        memory[..4].copy_from_slice(format!("{number:04}").as_bytes());
        bed.hit(0, &Task { stack, memory, ..Task::with(&[]) });
    }
    assert_eq!((bed.store.stacks_dropped(), bed.store.dropped(0), bed.store.dropped(1)), (0, 0, 0));
    // The memory for a program is computed before it is loaded.
    assert!(Limits::usual(1).bytes(&bed.program.code) < limits.bytes(&bed.program.code) / 8);
}

#[test]
fn histograms_have_rows_between_powers_of_two() {
    let hits: Vec<[u64; 1]> =
        [0, 1, 1, 2, 3, 4, 1023, 1024, 1500, 2047, u64::MAX].into_iter().map(|number| [number]).collect();
    let hits: Vec<&[u64]> = hits.iter().map(|hit| &hit[..]).collect();
    assert_eq!(
        printed("kprobe:f { @bytes = hist(arg0); }", &hits),
        "\
@bytes:
(..., 0)               1 |@@@@@@@@@@@@@@@@@                                   |
[0]                    1 |@@@@@@@@@@@@@@@@@                                   |
[1]                    2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@                  |
[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@                  |
[4, 8)                 1 |@@@@@@@@@@@@@@@@@                                   |
[8, 16)                0 |                                                    |
[16, 32)               0 |                                                    |
[32, 64)               0 |                                                    |
[64, 128)              0 |                                                    |
[128, 256)             0 |                                                    |
[256, 512)             0 |                                                    |
[512, 1K)              1 |@@@@@@@@@@@@@@@@@                                   |
[1K, 2K)               3 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

"
    );
    assert_eq!(
        printed("kprobe:f { @[arg1] = hist(arg0); }", &[&[1 << 62, 2], &[1 << 20, 1], &[1 << 20, 1]]),
        "\
@[2]:
[4E, 8E)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

@[1]:
[1M, 2M)               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

"
    );
}

#[test]
fn linear_histograms_have_equal_rows() {
    let hits: [&[u64]; 6] = [&[5], &[10], &[19], &[20], &[99], &[0]];
    assert_eq!(
        printed("kprobe:f { @ = lhist(arg0, 10, 30, 5 + 5); }", &hits),
        "\
@:
(..., 10)              2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[10, 20)               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[20, 30)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[30, ...)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

"
    );
    assert_eq!(
        once("@ = lhist(arg0, -4096, 4096, 2048);", &[3000]),
        "@:\n[2K, 4K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
    );
    assert_eq!(
        once("@ = lhist((s64)arg0, -10, 0, 5);", &[(-7_i64).cast_unsigned()]),
        "@:\n[-10, -5)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
    );
}

#[test]
fn printf_converts_as_c_does() {
    for (format, arguments, shown) in [
        ("%d %i %u", "arg0, -5, arg1", "10 -5 3"),
        ("%d|%u", "arg2, arg2", "-1|18446744073709551615"),
        ("%x %X %#x %lx %llx", "255, 255, 255, 255, arg2", "ff FF 0xff ff ffffffffffffffff"),
        ("%o %#o", "8, 8", "10 010"),
        ("%#.3o %#.2o %#.1o %#5o|%#05o|%#-5o|", "8, 8, 8, 8, 8, 8", "010 010 010   010|00010|010  |"),
        (
            "[%.0d] [%.0u] [%.0x] [%#.0x] [%.0o] [%#.0o] [%+.0d] [%3.0d]",
            "0, 0, 0, 0, 0, 0, 0, 0",
            "[] [] [] [] [] [0] [+] [   ]",
        ),
        ("%.0d %#x %#o %.2d %#.3x", "7, 0, 0, 0, 8", "7 0 0 00 0x008"),
        ("%hhd %hu", "511, 65537", "-1 1"),
        ("[%5d] [%-5d] [%05d] [%+d] [% d]", "42, 42, -42, 42, 42", "[   42] [42   ] [-0042] [+42] [ 42]"),
        ("[%.3d] [%8.3d]", "7, 7", "[007] [     007]"),
        ("%c%c", "104, 105", "hi"),
        // The byte that C writes is not valid UTF-8: it is shown as in a string.
        ("%c%c", "255, 0x141", "\u{fffd}A"),
        ("%p %p", "arg3, func", "0x8000 0x1000"),
        ("[%s] [%8s] [%-8s] [%.3s]", "comm, comm, comm, comm", "[worker] [  worker] [worker  ] [wor]"),
        ("%s %s %s", "func, probe, \"text\"", "blk::submit kprobe:blk::submit text"),
        ("%s", "kstack(1)", "\n    blk::submit+4\n"),
    ] {
        let printed = once(&format!("printf(\"{format}\", {arguments});"), &[10, 3, u64::MAX, 0x8000]);
        assert_eq!(printed, shown, "{format}");
    }
    assert_eq!(once("printf(\"100%% \\t\\\"\\\\\\n\");", &[]), "100% \t\"\\\n");
}

#[test]
fn maps_are_printed_cleared_and_zeroed_in_their_order() {
    let body = "@x[1] = 100; @x[2] = 300; @x[3] = 200; print(@x, 2); print(@x, 0, 100); zero(@x); print(@x); clear(@x); \
                print(@x); printf(\"end\");";
    assert_eq!(
        once(body, &[]),
        "@x[3]: 200\n@x[2]: 300\n@x[1]: 1\n@x[3]: 2\n@x[2]: 3\n@x[1]: 0\n@x[2]: 0\n@x[3]: 0\nend"
    );
}

#[test]
fn what_is_collected_for_a_key_is_printed() {
    let hist = once("@h[1, \"a\"] = hist(5); @h[2, \"a\"] = hist(5); print(@h[1, \"a\"]); clear(@h);", &[0]);
    let whole = once("@h[1, \"a\"] = hist(5);", &[0]);
    assert_eq!(hist, whole);
    let linear = once("@l[arg0] = lhist(5, 0, 10, 5); @l[8] = lhist(5, 0, 10, 5); print(@l[arg0]); clear(@l);", &[7]);
    assert_eq!(linear, once("@l[7] = lhist(5, 0, 10, 5);", &[0]));
    let statistics = once("@s[1] = stats(5); @s[1] = stats(7); print(@s[1]); print(@s[2]); clear(@s);", &[0]);
    assert_eq!(statistics, "@s[1]: count 2, average 6, total 12\n@s[2]: count 0, average 0, total 0\n");
    // A function is one key, whichever of its addresses were recorded.
    let function = once("@h[func] = hist(5); print(@h[func]); clear(@h);", &[0]);
    assert_eq!(function, once("@h[func] = hist(5);", &[0]));
}

#[test]
fn exit_ends_the_clause_and_all_others_but_end() {
    let mut bed = Bed::new("kprobe:f { @n++; if (@n == 2) { exit(); } print(@n); } END { printf(\"end\\n\"); }");
    let hit = Task::with(&[]);
    bed.hit(0, &hit);
    assert!(!bed.drain());
    assert_eq!(bed.store.ended(), u64::MAX);
    bed.hit(0, &Task { time: 7, ..hit }).hit(0, &hit);
    assert_eq!(bed.store.ended(), 7);
    assert!(bed.drain());
    bed.hit(0, &hit).hit(1, &hit);
    assert_eq!(bed.finish(), "@n: 1\nend\n@n: 2\n");
}

#[test]
fn output_that_is_there_is_in_the_order_of_time() {
    let bed = Bed::new("kprobe:f { print(arg0); }");
    for (cpu, time) in [(0, 30), (0, 50), (1, 20), (2, 40)] {
        bed.hit(0, &Task { cpu, time, ..Task::with(&[time]) });
    }
    assert_eq!(bed.finish(), "20\n30\n40\n50\n");
}

#[test]
fn what_does_not_fit_is_counted_and_said() {
    let limits = Limits { entries: 16, table_bytes: 1024, stacks: 16, output_bytes: 128, ..Limits::usual(1) };
    let bed = Bed::within("kprobe:f { @[arg0] = count(); print(arg0); }", &limits);
    for number in 0..100 {
        bed.hit(0, &Task::with(&[number]));
    }
    let text = bed.finish();
    let kept = text.lines().filter(|line| line.starts_with("@[")).count();
    assert!((16..=40).contains(&kept), "{text}");
    assert!(text.starts_with("0\n1\n2\n3\n4\n"), "{text}");
    assert!(text.contains("\nLost 95 events\n"), "{text}");
    assert!(text.ends_with(&format!("@: {} values lost: the map was full\n", 100 - kept)), "{text}");
}

#[test]
fn stacks_that_find_no_place_are_counted_and_said() {
    let limits = Limits { stack_bytes: 0, ..Limits::usual(1) };
    let places = 16;
    for (lost, sentence) in [
        (0, None),
        (1, Some("1 stack lost: the table of stacks was full")),
        (3, Some("3 stacks lost: the table of stacks was full")),
    ] {
        let bed = Bed::within("kprobe:f { @[kstack] = count(); }", &limits);
        for number in 0..places + lost {
            let stack = Box::leak(Box::new([0x1004, 0x1110 + 4 * number]));
            bed.hit(0, &Task { stack, ..Task::with(&[]) });
        }
        // A stack that has a place needs no other.
        bed.hit(0, &Task { stack: &[0x1004, 0x1110], ..Task::with(&[]) });
        let text = bed.finish();
        let counts = |count: &str| text.lines().filter(|line| line.ends_with(&format!("]: {count}"))).count() as u64;
        assert_eq!(counts("2"), 1, "{text}");
        assert_eq!(text.lines().find(|line| line.contains("lost")), sentence, "{text}");
    }
}

#[test]
fn what_writing_puts_out_is_for_the_next_time() {
    struct Feedback<'a>(&'a Bed, String);
    impl Write for Feedback<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.hit(0, &Task::with(&[]));
            self.1.write_str(text)
        }
    }
    let bed = Bed::new("kprobe:f { printf(\"hit\\n\"); }");
    bed.hit(0, &Task::with(&[])).hit(0, &Task { cpu: 1, ..Task::with(&[]) });
    let mut out = Feedback(&bed, String::new());
    assert_eq!(drain(&bed.program, &bed.store, &Image, &masked, OutputFormat::Text, &mut out), Ok(false));
    assert_eq!(out.1, "hit\nhit\n");
}

#[test]
fn a_clause_of_a_cpu_that_is_not_counted_does_nothing() {
    let bed = Bed::new("kprobe:f { @ = count(); }");
    bed.hit(0, &Task { cpu: 4, ..Task::with(&[]) });
    assert_eq!(bed.finish(), "");
}

#[test]
fn an_error_is_a_line_a_mark_and_a_sentence() {
    assert_eq!(
        refused("kprobe:f { @x = foo(1); }"),
        "kprobe:f { @x = foo(1); }\n                ^^^\nthis function is unknown"
    );
    assert_eq!(
        refused("BEGIN {\n\tprint($x);\n}"),
        "\tprint($x);\n\t      ^^\nthis variable is not set yet in this block"
    );
}

#[test]
fn the_reference_shows_what_is_printed() {
    let reference = include_str!("../../../docs/language.md");
    let program = "kprobe:f { @bytes[func] = hist(arg0); }";
    let bed = Bed::new(program);
    for (size, count) in [(600, 2), (1500, 3)] {
        for _ in 0..count {
            bed.hit(0, &Task::with(&[size]));
        }
    }
    let printed = bed.finish();
    let (histogram, _) = printed.split_once("\n\n").unwrap();
    assert!(reference.contains(histogram), "{printed}");
    let error = refused("kprobe:f { @x = foo(1); }");
    assert!(reference.contains(&error), "{error}");
}

#[test]
fn times_are_nanoseconds_and_shown_by_a_format() {
    for (expression, shown) in [
        ("1s", "1000000000"),
        ("5ms + 10us + 1ns", "5010001"),
        ("1m + 1h + 1d", "90060000000000"),
        ("1_000us", "1000000"),
        ("true + true + false", "2"),
        ("strftime(\"%H:%M:%S|%f\", 1h + 2m + 3s + 4us)", "01:02:03|000004"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
    assert_eq!(
        once("printf(\"%s,%5d\\n\", strftime(\"%S\", arg0), 7); @ = strftime(\"%T\", 61s);", &[9_000_000_000]),
        "09,    7\n@: 00:01:01\n"
    );
    assert_eq!(once("time(\"%s\\n\"); time();", &[]), "0\n00:00:00\n");
}

#[test]
fn strings_are_measured_and_looked_through() {
    for (expression, shown) in [
        ("strlen(\"\")", "0"),
        ("strlen(\"12345678\")", "8"),
        ("len(\"123456789\")", "9"),
        ("strstr(\"needle in hay\", \"hay\")", "10"),
        ("strstr(\"aab\", \"ab\")", "1"),
        ("strstr(\"ab\", \"abc\")", "-1"),
        ("strstr(\"\", \"\")", "0"),
        ("strcontains(\"blk::submit\", \"::sub\")", "1"),
        ("strcontains(\"blk::submit\", \"::Sub\")", "0"),
        ("strcontains(comm, \"ork\")", "1"),
        ("probetype", "kprobe"),
        ("ncpus", "4"),
        ("rand <= 0xffffffff && rand != rand", "1"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
}

#[test]
fn questions_about_types_are_answered_without_a_hit() {
    for (expression, shown) in [
        ("is_integer(arg0)", "1"),
        ("is_integer(comm)", "0"),
        ("is_unsigned_integer(arg0)", "1"),
        ("is_unsigned_integer((s64)arg0)", "0"),
        ("is_ptr((u8 *)arg0)", "1"),
        ("is_ptr(arg0)", "0"),
        ("is_str(\"a\")", "1"),
        ("is_str(probetype)", "1"),
        ("is_str(func)", "0"),
        ("is_array(arg0)", "0"),
        ("is_literal(\"a\")", "1"),
        ("is_literal(12)", "1"),
        ("is_literal(arg0)", "0"),
        ("sizeof(u8)", "1"),
        ("sizeof(uint16_t)", "2"),
        ("sizeof(int32)", "4"),
        ("sizeof(u16*)", "8"),
        ("sizeof(arg0)", "8"),
        ("sizeof((s16)arg0)", "2"),
        ("sizeof(*(u32 *)arg3)", "4"),
        ("sizeof(\"abc\")", "4"),
        ("sizeof((1, 2))", "16"),
        ("strcap(\"abc\")", "3"),
        ("strcap(comm)", "15"),
        ("default_str_length", "63"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
    // Nothing of it is evaluated.
    assert_eq!(once("$x = 1; print(sizeof($x++)); print($x);", &[]), "8\n1\n");
    // A variable has its type before the text that gives it one.
    let later = "let $v; if (is_str($v)) { @y = \"text\"; } else { @y = 1; } $v = \"a\"; print(@y); clear(@y);";
    assert_eq!(once(later, &[]), "@y: text\n");
    // So does what is made of it.
    for made in ["$w = $v;", "let $w; $w = $v;", "$w = ($v, 1).0;", "$w = (ncpus ? $v : $v);"] {
        let later = format!(
            "let $v; {made} if (is_str($w)) {{ @y = \"text\"; }} else {{ @y = 1; }} $v = \"a\"; print(@y); clear(@y);"
        );
        assert_eq!(once(&later, &[]), "@y: text\n", "{made}");
    }
    let sized = "let $v; if (sizeof(($v, 1)) > 16) { @y = \"long\"; } else { @y = 1; } $v = \"longer than 7\"; \
        print(@y); clear(@y);";
    assert_eq!(once(sized, &[]), "@y: long\n");
    // The room for a string grows by a later assignment.
    let grown = "@x = \"a\"; if (strcap(@x) < 10) { @y = 1; } else { @y = \"text\"; } @x = \"longer than 7\"; \
        print(@y); clear(@x); clear(@y);";
    assert_eq!(once(grown, &[]), "@y: text\n");
    // A variable that nothing gives a type is a number.
    assert_eq!(once("let $v; @z = sizeof($v); print(@z); clear(@z);", &[]), "@z: 8\n");
    assert_eq!(once("let $v; $v = $v + 1; @z = $v; $w = @z; let $u; $u = $w; @y = $u;", &[]), "@y: 1\n@z: 1\n");
    // A distribution is none of these.
    assert_eq!(once("@h = hist(1); print((is_integer(@h), is_ptr(@h))); clear(@h);", &[]), "(0, 0)\n");
    let later = "if (is_str(@v)) { @y = \"text\"; } else { @y = 1; } @v = \"a\"; print(@y); clear(@y); clear(@v);";
    assert_eq!(once(later, &[]), "@y: text\n");
}

#[test]
fn what_is_decided_is_not_compiled() {
    for (body, shown) in [
        ("if (sizeof(u8) == 1 || arg0) { print(1); } else { fail(\"a byte\"); }", "1\n"),
        ("if (0) { fail(\"no\"); } print(2);", "2\n"),
        ("if (is_str(arg0) && is_literal(1)) { print(strlen(arg0)); } else { print(3); }", "3\n"),
        ("static_assert(1 + 1 == 2, \"sum\"); assert_str(comm); print(4);", "4\n"),
        ("static_assert((1 && 1) == 1 && (0 ? arg0 : 7) == 7, \"logic\"); print(4);", "4\n"),
        ("static_assert(probetype == \"kprobe\" && \"a\" != \"b\", \"strings\"); print(4);", "4\n"),
        ("if (arg0 && 0) { print(\"both\"); } else { print(6); }", "6\n"),
        ("if (arg0 || 1) { print(7); }", "7\n"),
        ("print((arg0 == 1 && 1, 0 || arg0 == 2, !(arg0 && 0)));", "(1, 0, 1)\n"),
        // A block that never runs tells what its maps keep.
        ("if (0) { @none = 1; print(@later); } @x = 2; print(@none);", "@x: 2\n"),
        ("if (0) { print(@later); } @x = 2;", "@x: 2\n"),
        ("if (!@seen) { @seen = 1; print(5); } clear(@seen);", "5\n"),
    ] {
        assert_eq!(once(body, &[1]), shown, "{body}");
    }
    let asserted = "assert(arg0 < 2, \"100% small\"); print(arg0);";
    assert_eq!(
        printed(&format!("kprobe:f {{ {asserted} }}"), &[&[1], &[2], &[1]]),
        "1\nERROR: assertion failed: 100% small\n"
    );
}

#[test]
fn bytes_are_swapped_within_the_width_of_a_number() {
    for (expression, shown) in [
        ("bswap(0x0102030405060708) == 0x0807060504030201", "1"),
        ("bswap((u16)0x1234) == 0x3412", "1"),
        ("bswap((u32)arg1 + 0) == 0x300000000000000", "1"),
        ("bswap((u32)arg1) == 0x3000000", "1"),
        ("bswap((s16)arg2)", "65535"),
        ("bswap((u16)arg3)", "128"),
        ("bswap((u8)arg0)", "10"),
        ("bswap(arg3) == 0x80000000000000", "1"),
        ("bswap(bswap(arg3 * arg1 + 0x123456789abcdef)) - arg3 * arg1 == 0x123456789abcdef", "1"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
}

#[test]
fn find_gives_a_variable_the_value_of_a_key() {
    let body = "@m[2] = (1, \"hello\"); let $v; if (find(@m, 2, $v)) { print($v); } \
        $v = (5, \"kept\"); print(find(@m, 3, $v)); print($v[1]); clear(@m);";
    assert_eq!(once(body, &[]), "(1, hello)\n0\nkept\n");
    let kept = "@m[1] = 7; let $v; find(@m, 1, $v); print($v); clear(@m);";
    assert_eq!(once(kept, &[]), "7\n");
    let counted = "@c[1] = count(); $n = 0; print(find(@c, 1, $n)); print($n); clear(@c);";
    assert_eq!(once(counted, &[]), "1\n1\n");
}

#[test]
fn keys_are_counted_and_asked_for() {
    let body = "@x[1] = 5; @x[2] = 6; @x[1]++; print(len(@x)); delete(@x[2]); @x[7] = 0; delete(@x, 9); \
        printf(\"%d %d %d\\n\", len(@x), has_key(@x, 7), has_key(@x, 2)); clear(@x);";
    assert_eq!(once(body, &[]), "2\n2 1 0\n");
    let mut bed = Bed::new("kprobe:f { @x[arg0] = 1; print(len(@x)); clear(@x); }");
    bed.hit(0, &Task::with(&[1])).hit(0, &Task::with(&[2]));
    bed.drain();
    bed.hit(0, &Task::with(&[3]));
    assert_eq!(bed.finish(), "1\n2\n1\n");
    // Keys are found whichever CPU collected them.
    let mut bed = Bed::new("kprobe:f { @c[comm] = count(); print(has_key(@c, \"worker\")); }");
    bed.hit(0, &Task { cpu: 1, comm: "other", ..Task::with(&[]) }).hit(0, &Task { cpu: 2, ..Task::with(&[]) });
    bed.hit(0, &Task { cpu: 3, comm: "other", ..Task::with(&[]) });
    bed.drain();
    assert_eq!(bed.text, "0\n1\n1\n");
    assert_eq!(once("print(len(kstack())); print(len(kstack(2)));", &[]), "3\n2\n");
}

#[test]
fn bytes_are_shown_as_characters_or_numbers() {
    for (body, shown) in [
        ("print(buf(0x8007, 3));", "g\\x00o\n"),
        (
            "printf(\"%r|%rx|%rh|\", buf(0x8018, 3), buf(0x8018, 3), buf(0x8018, 3));",
            " \\xff\\xfe|\\x20\\xff\\xfe|20 ff fe|",
        ),
        ("printf(\"%-8r|%4rh\", buf(0x8000, arg0 - 8), buf(0x8000, 1));", "a       |  61"),
        ("print(len(buf(0x8000, 9))); print(buf(0x8000, 4) == buf(0x8000, arg1)); @ = buf(0x8000, 1);", "9\n1\n@: a\n"),
        ("print(buf(0x803e, 8));", ".?\n1 read of memory failed, and gave 0\n"),
    ] {
        let shown = shown.replace(".?", &String::from_utf8_lossy(&Task::with(&[]).memory[62..]));
        assert_eq!(once(body, &[10, 4]), shown, "{body}");
    }
    assert_eq!(
        refused("kprobe:f { printf(\"%r\", comm); }"),
        "kprobe:f { printf(\"%r\", comm); }\n                        ^^^^\nthis is a string, but its conversion is for \
         a buffer"
    );
}

#[test]
fn a_variable_that_is_declared_is_of_the_block_and_zero_at_first() {
    assert_eq!(once("let $x; if (arg0) { $x = \"yes\"; } print($x);", &[1]), "yes\n");
    assert_eq!(once("let $x; if (arg0) { $x = \"yes\"; } print($x);", &[0]), "\n");
    assert_eq!(
        once("let $x; if (arg0) { $x = \"a\"; } else { $x = \"much longer\"; } print($x);", &[0]),
        "much longer\n"
    );
    assert_eq!(
        once("let $x; $x += 5; print($x); let $y = 7; print($y); let $z: u8 = 300; print($z);", &[]),
        "5\n7\n44\n"
    );
    assert_eq!(once("$x = 1; if (1) { let $x = 2; $x++; } print($x);", &[]), "1\n");
    assert_eq!(once("unroll (2) { let $x; $x++; print($x); }", &[]), "1\n1\n");
}

#[test]
fn errors_and_warnings_are_lines() {
    assert_eq!(once("errorf(\"bad %d\", 5); warnf(\"odd\");", &[]), "ERROR: bad 5\nWARNING: odd\n");
}

#[test]
fn tuples_are_values_keys_and_parts() {
    for (expression, shown) in [
        ("(1, 2)", "(1, 2)"),
        ("(1, \"a\", (func, comm))", "(1, a, (blk::submit, worker))"),
        ("(1, (2, 3)).1.0", "2"),
        ("(1, \"a\").1", "a"),
        ("(1, \"a\") == (1, \"a\")", "1"),
        ("(1, \"a\") != (1, \"a string that is longer\")", "1"),
        ("(1, \"a\") == (arg0, comm)", "0"),
        ("(arg0, comm) == (10, \"worker\")", "1"),
        ("(arg0 ? (1, 2) : (3, 4)).1", "2"),
    ] {
        assert_eq!(value(expression), shown, "{expression}");
    }
    let body = "@x[1, 2] = 3; @x[(1, 2)]++; $k = (4, 5); @x[$k] = 9; @x[(4, 5)]++; print(@x[1, 2]); print(has_key(@x, (4, 5))); \
        delete(@x, (1, 2)); delete(@x[$k]); @x[7, 8] = 1;";
    assert_eq!(once(body, &[]), "@x[1, 2]: 4\n1\n@x[7, 8]: 1\n");
    assert_eq!(once("@n[1, (2, \"a\")] = count();", &[]), "@n[1, (2, a)]: 1\n");
    // The longest string that is assigned to a map or a declared variable determines the type.
    assert_eq!(
        once("@t = (1, \"a\"); @t = (2, \"much longer\"); print(@t.1);", &[]),
        "much longer\n@t: (2, much longer)\n"
    );
    assert_eq!(
        once("@t[1] = (1, \"much longer\"); @t[2] = (2, \"a\"); $t = @t[2]; print($t); clear(@t);", &[]),
        "(2, a)\n"
    );
    assert_eq!(once("let $t; if (arg0) { $t = (1, \"b\"); } print($t);", &[1]), "(1, b)\n");
    assert_eq!(once("$t = (1, 2); $t = (3, 4); printf(\"%s %d\\n\", $t, $t.0);", &[]), "(3, 4) 3\n");
}

#[test]
fn tuples_are_refused_where_they_are_wrong() {
    for (body, marks, sentence) in [
        ("print((1, 2).2);", "      ^^^^^^^^", "this has to be from 0 to 1"),
        ("print(5.0);", "      ^^^", "this is an integer, but a tuple is expected"),
        ("print((1, 2) + 1);", "      ^^^^^^", "this is a tuple, but an integer is expected"),
        ("print((1, 2) == (1, 2, 3));", "      ^^^^^^^^^^^^^^^^^^^", "a tuple and a tuple cannot be combined"),
        ("@x = (1, 2); @x = (1, comm);", "             ^^", "this map is set to another type elsewhere"),
        (
            "$x = (1, \"a\"); $x = (1, comm);",
            "                    ^^^^^^^^^",
            "this is a tuple, but a tuple is expected",
        ),
    ] {
        assert_eq!(
            refused(&format!("kprobe:f {{ {body} }}")),
            format!("kprobe:f {{ {body} }}\n           {marks}\n{sentence}")
        );
    }
}

#[test]
fn loops_have_turns() {
    for (body, shown) in [
        ("$i = 0; while ($i < 3) { print($i); $i++; }", "0\n1\n2\n"),
        ("$i = 0; while (1) { if ($i++ == 2) { continue; } if ($i > 4) { break; } print($i); }", "1\n2\n4\n"),
        ("for ($i : 2..5) { print($i); $i = 100; }", "2\n3\n4\n"),
        ("for $i : 0..3 { if ($i == 1) { continue; } print($i); }", "0\n2\n"),
        ("for ($i : -1..1) { print($i); }", "-1\n0\n"),
        ("for ($i : 5..5) { print($i); } for ($i : arg0..5) { print($i); }", ""),
        ("$n = 2; for ($i : 0..$n) { $n = 9; print($i); }", "0\n1\n"),
        (
            "for ($i : 0..2) { for ($j : 0..3) { if ($j == 2) { break; } print(($i, $j)); } }",
            "(0, 0)\n(0, 1)\n(1, 0)\n(1, 1)\n",
        ),
        ("for ($i : 0..3) { if ($i == 1) { return; } print($i); } print(9);", "0\n"),
        ("let $s; for ($i : 0..4) { $x = $i * $i; $s += $x; } print($s);", "14\n"),
        ("unroll (2) { $i = 0; while ($i < 2) { $i++; } print($i); }", "2\n2\n"),
        ("while (0) { print(1); } while (arg0 == 1) { print(2); } print(3);", "3\n"),
    ] {
        assert_eq!(once(body, &[10]), shown, "{body}");
    }
}

#[test]
fn loops_end() {
    let cut = "1 run was ended after 65536 operations in loops\n";
    assert_eq!(once("while (1) { } print(1);", &[]), cut);
    assert_eq!(
        once("$i = 0; while (1) { $i++; @i = $i; if ($i == 7000) { break; } } print(1);", &[]),
        format!("1\n@i: 7000\n")
    );
    assert_eq!(once("for ($i : 0..1 << 60) { for ($j : 0..1 << 60) { } }", &[]), cut);
    let whole = once("for ($i : 0..1 << 60) { @n = $i; }", &[]);
    assert_eq!(whole, format!("@n: 13107\n{cut}"));
}

#[test]
fn maps_are_gone_through_where_there_is_time() {
    let bed = Bed::new(
        "kprobe:f { @c[arg0] = count(); @v[arg0, comm] = (arg0, comm); } \
         END { for ($kv : @c) { @sum[$kv.0] = $kv.1; @all++; } for ($kv : @v) { @is[$kv.0 == $kv.1, $kv.0.1]++; } \
         for ($kv : @sum) { delete(@sum[$kv.0]); if (len(@sum) == 1) { break; } } clear(@c); clear(@v); print(len(@sum)); clear(@sum); }",
    );
    for number in 0..300 {
        bed.hit(0, &Task { cpu: number as usize % 3, ..Task::with(&[number / 2]) });
    }
    bed.hit(1, &Task::with(&[]));
    assert_eq!(bed.finish(), "1\n@all: 150\n@is[1, worker]: 150\n");
    let sums = printed("END { @c[1] = count(); @c[1] = count(); for ($kv : @c) { print($kv); } }", &[&[]]);
    assert_eq!(sums, "(1, 2)\n@c[1]: 2\n");
    assert_eq!(printed("BEGIN { for ($kv : @x) { print($kv); } @x[1] = 1; delete(@x[1]); }", &[&[]]), "");
}

#[test]
fn loops_are_refused_where_they_are_wrong() {
    for (program, marks, sentence) in [
        ("kprobe:f { break; }", "           ^^^^^", "this is not inside a loop"),
        ("kprobe:f { unroll (2) { continue; } }", "                        ^^^^^^^^", "this is not inside a loop"),
        (
            "kprobe:f { @x[1] = 1; for ($kv : @x) { } }",
            "                                 ^^",
            "only BEGIN, END and interval: can loop over a map, not the clause of a hit",
        ),
        (
            "END { @x = 1; for ($kv : @x) { } }",
            "                         ^^",
            "this map is used without keys elsewhere",
        ),
        (
            "END { @x[1] = hist(1); for ($kv : @x) { } }",
            "                                  ^^",
            "the aggregation of this map is not a single number",
        ),
        ("END { for ($kv : @x) { } }", "                 ^^", "no statement sets this map"),
        ("END { for ($i : 5) { } }", "                ^", "a loop is for ($i : 0..10) { … } or for ($kv : @x) { … }"),
        ("END { for (@i : 0..5) { } }", "           ^^", "a loop is for ($i : 0..10) { … } or for ($kv : @x) { … }"),
        (
            "END { for ($i : 0..5) { } print($i); }",
            "                                ^^",
            "this variable is not set yet in this block",
        ),
        ("END { for ($i : 0..comm) { } }", "                   ^^^^", "this is a string, but an integer is expected"),
    ] {
        assert_eq!(refused(program), format!("{program}\n{marks}\n{sentence}"));
    }
}

#[test]
fn a_block_is_a_value_with_statements_before_it() {
    for (body, shown) in [
        ("$a = { let $b = 1; $b += 2; $b }; print($a);", "3\n"),
        ("$x = 5; print({ let $x = 1; $x + 1 } + $x); print($x);", "7\n5\n"),
        ("print(({ print(\"first\"); 20 }, { $y = \"pink\"; $y }));", "first\n(20, pink)\n"),
        ("{ print(1); $z = 2; print($z) } print(3);", "1\n2\n3\n"),
        ("@m[{ $k = arg0; $k * 2 }] = { 7 }; print(@m[6]); clear(@m);", "@m[6]: 7\n"),
        ("_ = has_key(@q, 1); _ = arg0 + 1; @q[1] = 1; clear(@q); print(4);", "4\n"),
        ("arg0 == 3 ? print(\"three\") : print(\"other\"); arg0 == 4 ? $u++ : print(5);", "three\n5\n"),
        ("$w = (typeof(arg0))7; let $v: typeof((s8)1) = 255; print(($w, $v, sizeof(typeof((u16)1))));", "(7, -1, 2)\n"),
        ("$p = (typeof((u16)1) *)0x8000; print(sizeof(*$p)); $s = (s8)-1; print((typeof($s))200);", "2\n200\n"),
        ("if ({ let $t = arg0; $t > 2 }) { print(6); }", "6\n"),
    ] {
        assert_eq!(once(&format!("$u = 0; {body}"), &[3]), shown, "{body}");
    }
    assert_eq!(
        refused("BEGIN { $a = { print(1); }; }"),
        "BEGIN { $a = { print(1); }; }\n             ^^^^^^^^^^^^^\nthis has no value: use it as a statement"
    );
    assert!(refused("BEGIN { $a = { let $b = 1; $b }; print($b); }").ends_with("not set yet in this block"));
}

#[test]
fn macros_see_nothing_of_their_callers_but_their_parameters() {
    let macros = "macro one() { 1 } macro add_one(x) { x + 1 } macro add_two(x) { add_one(x) + 1 } \
        macro each($a, @b) { $a += 1; @b += 1; } macro thrice(x) { x; x; x; } macro to_pointer(a, b) { (a*)b } \
        macro own() { let $a = 50; $a += 1; $a } macro own(x) { let $x = x; $x * $x } macro entry(@b, k) { @b[k] = k; }";
    for (body, shown) in [
        ("print(one()); print(one); print(one + one);", "1\n1\n2\n"),
        ("$a = 10; print(add_one($a)); print(add_one(1 + 1) * 2);", "11\n6\n"),
        ("$a = 10; @b = 5; each($a, @b); print($a + @b); clear(@b);", "17\n"),
        ("thrice({ printf(\"hi\") }); print(add_two(1));", "hihihi3\n"),
        ("printf(\"%x\", to_pointer(typeof(u8), 255) + 1);", "100"),
        ("$a = 1; print(own()); print($a); $x = 3; print(own($x + 1)); print($x);", "51\n1\n16\n3\n"),
        ("$i = 0; thrice({ $i += add_one($i) }); print($i);", "7\n"),
        ("entry(@c, 7); @c[7] = add_one(@c[7]); print(@c[7]); clear(@c);", "@c[7]: 8\n"),
    ] {
        assert_eq!(printed(&format!("{macros} kprobe:f {{ {body} }}"), &[&[]]), shown, "{body}");
        // A macro may stand behind its use.
        assert_eq!(printed(&format!("kprobe:f {{ {body} }} {macros}"), &[&[]]), shown, "{body}");
    }
    for (program, why) in [
        ("macro a() { @x++; } BEGIN { a(); }", "a macro uses only maps that are its parameters"),
        ("macro a($x) { $x++; } BEGIN { @x = 1; a(@x); }", "this macro expects a variable here"),
        ("macro a($x) { $x++; } BEGIN { a(1 + 1); }", "this macro expects a variable here"),
        ("macro a(@x) { @x++; } BEGIN { a(1); }", "a map is expected here"),
        ("macro a() { b() } macro b() { a() } BEGIN { print(a()); }", "a macro cannot call itself"),
        ("macro a(x) { x } macro a(y) { y } BEGIN { print(a(1)); }", "there is another macro with this name"),
        ("macro a(x) { x } BEGIN { print(a()); }", "this function takes 1 argument"),
        ("macro a($x) { print($y); } BEGIN { $y = 1; a($y); }", "this variable is not set yet"),
        ("macro 7() { } BEGIN { }", "a macro is written as macro name"),
        ("macro a(1) { } BEGIN { }", "a macro is written as macro name"),
        ("macro a(x) { 1 BEGIN { }", "this block is not closed"),
        (
            "macro a(x) { x + x } macro b(x) { a(a(a(x))) } BEGIN { $s = b(b(b(1))); print(b($s)); }",
            "this is nested too deeply",
        ),
    ] {
        assert!(refused(program).contains(why), "{program}: {}", refused(program));
    }
    let many = "macro m(x) { (x, x, x, x, x, x, x, x, x, x) } BEGIN { print(m(m(m(1)))); }";
    assert!(refused(many).contains("macros are called, and their arguments used, at most 1000 times"));
}

#[test]
fn settings_hold_for_the_whole_program() {
    for (settings, body, shown) in [
        ("print_maps_on_exit = false", "@x = 1; print(2);", "2\n"),
        ("BPFTRACE_PRINT_MAPS_ON_EXIT=1;", "@x = 1;", "@x: 1\n"),
        (
            "max_strlen = 5; license = \"GPL\"; ON_STACK_LIMIT=32",
            "print((str(0x8000), default_str_length));",
            "(a str, 5)\n",
        ),
        ("stack_mode = raw", "print(kstack(1));", "\n    1004\n\n"),
        (
            "stack_mode = perf",
            "print(kstack(1)); print(kstack(bpftrace, 1));",
            "\n    1004 blk::submit+4\n\n\n    blk::submit+4\n\n",
        ),
        ("", "print(len(kstack(raw))); print(kstack(perf, 1));", "3\n\n    1004 blk::submit+4\n\n"),
    ] {
        let program = format!("config = {{ {settings} }}; kprobe:f {{ {body} }}");
        assert_eq!(printed(&program, &[&[1]]), shown, "{program}");
    }
    let declared = "let @few = hash(16); let @many = percpuhash(200); kprobe:f { @few[arg0] = 1; @many[arg0] = count(); \
        @few[arg0]++; }";
    let bed = Bed::new(declared);
    for key in 0..150 {
        bed.hit(0, &Task::with(&[key]));
    }
    let shown = bed.finish();
    assert!((16..64).contains(&shown.matches("@few[").count()), "{shown}");
    assert_eq!(shown.matches("@many[").count(), 150, "{shown}");
    assert!(shown.contains("@few: "), "{shown}");
    for (program, why) in [
        ("config = { max_maps = 3 } BEGIN { }", "this setting is unknown"),
        ("config = { missing_probes = maybe } BEGIN { }", "the value of this setting is error, warn or ignore"),
        ("config = { max_strlen = 200 } BEGIN { }", "this has to be from 1 to 127"),
        ("config = { max_strlen = long } BEGIN { }", "this has to be from 1 to 127"),
        ("config = { print_maps_on_exit = 2 } BEGIN { }", "the value of this setting is true or false"),
        ("config = { max_strlen = 9 BEGIN { }", "a `;` is expected here"),
        ("BEGIN { } config = { max_strlen = 9 }", "the settings of a program come first"),
        ("let @x = lruhash(9); BEGIN { }", "a full map keeps the keys that it has"),
        ("let @x = hash(0); BEGIN { }", "this has to be from 1 to 1048576"),
        ("let @x = array(9); BEGIN { }", "a map is declared as let @x"),
        ("BEGIN { print(kstack(all, 3)); }", "a stack is shown as bpftrace, perf or raw"),
    ] {
        assert!(refused(program).contains(why), "{program}: {}", refused(program));
    }
}

#[test]
fn records_are_tuples_whose_parts_have_names() {
    for (body, shown) in [
        (
            "$a = (color=\"green\", size=2); print($a); print($a.size); print($a.0);",
            "{ .color = green, .size = 2 }\n2\ngreen\n",
        ),
        ("$a = (x=1, y=(z=\"in\", w=3)); print($a.y.z); print(($a.y.w + 1, $a.x));", "in\n(4, 1)\n"),
        (
            "@r[(a=1, b=2)] = (n=\"one\", v=arg0); @r[(a=1, b=2)] = (n=\"another one\", v=2); print(@r[1, 2].n); clear(@r);",
            "another one\n",
        ),
        ("print((1,)); $t = (\"alone\",); print($t.0);", "(1,)\nalone\n"),
        ("print(config.max_strlen); print(config.stack_mode); print(config.missing_probes);", "63\nbpftrace\nerror\n"),
        ("print({ (k=7) }.k);", "7\n"),
    ] {
        assert_eq!(once(body, &[3]), shown, "{body}");
    }
    for (body, why) in [
        ("$a = (x=1, x=2);", "the parts of a record have different names"),
        ("$a = (x=1, y=2); print($a.z);", "the record has no part of this name"),
        ("$a = (x=1); $a = (y=1);", "expected"),
        ("$a = 1; print($a.z);", "bpftrace's `.` is not supported"),
        ("$a = (x=1, y);", "a `=` is expected here"),
        ("print(config.colors);", "this setting is unknown"),
    ] {
        let program = format!("kprobe:f {{ {body} }}");
        assert!(refused(&program).contains(why), "{program}: {}", refused(&program));
    }
}

#[test]
fn addresses_of_networks_are_shown_and_read() {
    for (body, shown) in [
        (
            "print(ntop(0x0f02000a)); print(ntop(2, 0x0100007f)); @[ntop(pton(\"10.0.2.2\"))] = 1;",
            "10.0.2.15\n127.0.0.1\n@[10.0.2.2]: 1\n",
        ),
        (
            "print(pton(\"10.0.2.15\") == 0x0f02000a); print(pton(\"fe80::1\")); print(pton(\"::1\") == pton(\"0::1\"));",
            "1\nfe80::1\n1\n",
        ),
        ("print(pton(\"fe80::1\") == pton(\"fe80::2\")); print(pton(\"1::1\") != pton(\"2::1\"));", "0\n1\n"),
        ("print(macaddr(0x8000)); printf(\"%s|\", macaddr(0x8000));", "61:20:73:74:72:69\n61:20:73:74:72:69|"),
        ("print((memcmp(0x8000, 0x8000, 5), memcmp(0x8000, 0x8001, 5)));", "(0, 1)\n"),
        ("@d[1] = 2; print((delete(@d, 1), delete(@d, 1), len(@d)));", "(1, 0, 0)\n"),
        ("print((reg(\"r0\"), reg(\"x0\")));", "(3, 3)\n"),
    ] {
        assert_eq!(once(body, &[3]), shown, "{body}");
    }
    for (body, why) in [
        ("print(pton(\"10.0.2\"));", "an address is written as in pton"),
        ("print(ntop(3, 1));", "an address is a number of 4 bytes"),
        ("print(ntop(10, 1));", "an address is a number of 4 bytes"),
        ("print(offsetof(arg0, x));", "a struct is expected here"),
        ("print(macaddr(comm));", "expected"),
        ("BEGIN { print(macaddr(1)); } kprobe:f { ", "only where code is probed"),
    ] {
        let program = if body.starts_with("BEGIN") { format!("{body} }}") } else { format!("kprobe:f {{ {body} }}") };
        assert!(refused(&program).contains(why), "{program}: {}", refused(&program));
    }
    for (probe, like) in [
        ("fentry:blk::*", "kprobe:blk::*"),
        ("f:f", "kprobe:f"),
        ("fexit:f", "kretprobe:f"),
        ("rawtracepoint:sched:x", "tracepoint:sched:x"),
        ("first=kprobe:f", "kprobe:f"),
    ] {
        assert_eq!(crate::syntax::parse(&format!("{probe} {{ }}")).unwrap().to_string(), format!("{like} {{ }}"));
    }
}

#[test]
fn integers_are_cast_to_arrays_and_back() {
    for (body, shown) in [
        ("$a = (int8[8])12345; printf(\"%x %x\\n\", $a[0], $a[1]); printf(\"%d\\n\", (uint64)$a);", "39 30\n12345\n"),
        (
            "print((u8[2])(u16)0x1234); print((s8[])(u32)0xff); @a = (u16[4])arg0;",
            "[52, 18]\n[-1, 0, 0, 0]\n@a: [3, 0, 0, 0]\n",
        ),
        ("print((u32)(u8[4])(u32)arg1 == (u32)arg1); print((u16[])(u8[4])(u32)0x10002);", "1\n[2, 1]\n"),
        ("print((sizeof(u32[10]), sizeof((u8[4])(u32)1), is_array((u8[8])1), is_array(1)));", "(40, 4, 1, 0)\n"),
        ("print((u8[4])(u32)pton(\"10.0.2.15\") == (u8[4])(u32)0x0f02000a); print(((u8[8])(u64)7)[0] + 1);", "1\n8\n"),
        ("let $x: u8[2] = (u16)513; print($x); $x = (u8[2])(u16)1; print($x[1]);", "[1, 2]\n0\n"),
    ] {
        assert_eq!(once(body, &[3, 0x8877_6655_4433_2211]), shown, "{body}");
    }
    for (body, why) in [
        ("$a = (u8[4])arg0;", "this value has 8 bytes, and the type 4"),
        ("$a = (u32)(u8[2])(u16)1;", "this value has 2 bytes, and the type 4"),
        ("$a = (u8[0])arg0;", "this value has 8 bytes"),
        ("$a = (u32[])(u16)1;", "this value has 2 bytes, and the type 4"),
        ("print(sizeof(u32[]));", "the number of elements is missing here"),
        ("$a = (u8[4])comm;", "expected"),
    ] {
        let program = format!("kprobe:f {{ {body} }}");
        assert!(refused(&program).contains(why), "{program}: {}", refused(&program));
    }
}

#[test]
fn what_is_compiled_to_be_asked_about_is_bounded() {
    let refused_deep = |before: &str, after: &str, depth: usize| {
        let value = format!("{}1{}", before.repeat(depth), after.repeat(depth));
        let program = format!("kprobe:f {{ print({value}); print({value}); print({value}); }}");
        crate::syntax::parse(&program).and_then(|tree| crate::check::check(&tree, &Image)).err()
    };
    for (before, after) in [("sizeof(", ")"), ("bswap(1 + ", ")"), ("is_str(1 + ", ")"), ("(u8[])(1 + (u64)(", "))")] {
        assert_eq!(refused_deep(before, after, 5), None, "{before}");
    }
    // A type that is asked for is asked for again by each type around it.
    assert_eq!(refused_deep("(typeof(", "))1", 3), None);
    let error = refused_deep("(typeof(", "))1", 14).unwrap();
    assert!(matches!(error.problem, crate::error::Problem::LongCode { .. }), "{error:?}");
}

#[test]
fn what_is_left_out_leaves_no_jumps_and_effects_stay() {
    for (body, argument, shown) in [
        ("if (1 ? arg0 : { return; 3 }) { print(1); } else { print(2); } print(3);", 0, "2\n3\n"),
        ("_ = sizeof({ _ = arg1; return; 3 }); if (arg0) { print(1); } else { print(2); } print(3);", 0, "2\n3\n"),
        ("print(({ print(1); 1 } && 1)); print(4);", 3, "1\n1\n4\n"),
        ("print(({ if (arg0 == 3) { return; } 1 } && 1)); print(2);", 3, ""),
        ("$a = *(u16 *)0x8000; print(bswap($a) == bswap($a)); print(sizeof($a)); print(sizeof($a));", 3, "1\n8\n8\n"),
    ] {
        assert_eq!(once(body, &[argument, 0]), shown, "{body}");
    }
}
