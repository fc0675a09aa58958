//! The behavior of each construct, by its output.

use std::fmt::{self, Write};
use std::format;
use std::string::String;

use kprobes_vm::maps::Limits;

use super::machine::{Bed, SimulatedImage, Task, assert_refused, assert_values, masked, once, printed, refused};
use super::tried;
use crate::report::{OutputFormat, drain};
use kprobes_random::assert_tried;

#[test]
fn arithmetic_is_that_of_64_bits() {
    assert_values(&[
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
    ]);
}

#[test]
fn comparisons_have_a_sign_where_both_sides_have() {
    assert_values(&[
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
    ]);
}

#[test]
fn memory_is_read_through_pointers() {
    assert_values(&[
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
    ]);
    // A pointer moves by elements, in a map as in a variable.
    for (pointer, left) in tried([("$p", ""), ("@p", "@p: 0x8006\n"), ("@p[1]", "@p[1]: 0x8006\n")]) {
        let body = format!(
            "{pointer} = (u16 *)arg0; {pointer}++; print(*{pointer}); {pointer} += 2; {pointer} -= arg1; \
             print(*{pointer}++);"
        );
        assert_eq!(once(&body, &[0x8000, 1]), format!("29811\n26994\n{left}"), "{pointer}");
    }
    // A number may be given to a map of pointers, also before the text that gives it a pointer.
    for before in tried(["@p++;", "@p = 0;", "@p = arg1; @q = @p;"]) {
        let body = format!("{before} @p = (u16 *)arg0; @p++; print(*@p); clear(@p); clear(@q); @q = 0;");
        assert_eq!(once(&body, &[0x8000, 1]), "29811\n", "{before}");
    }
}

#[test]
fn reads_that_fail_give_0_and_are_counted() {
    let body = "printf(\"%d %d [%s] [%s]\", *(u32 *)arg0, *(u64 *)0, str(arg0), str(0x803c, 20));";
    assert_tried!(once(body, &[0x9000]), "0 0 [] [ ...]4 reads of memory failed, and gave 0\n");
}

#[test]
fn a_hit_is_known_by_its_builtins() {
    assert_values(&[
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
        ("kstack(perf) == kstack", "1"),
        ("kstack(raw) != kstack(perf, 2)", "1"),
    ]);
    assert_tried!(printed("kretprobe:f, return:g { print(retval); }", &[&[42]]), "42\n");
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
    for (condition, count) in tried([
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
    ]) {
        let found = hits(&format!("kprobe:net::* /{condition}/ {{ @ = count(); }}"));
        assert_eq!(found, if count > 0 { format!("@: {count}\n") } else { String::new() }, "{condition}");
        let found = hits(&format!("kprobe:net::* {{ @ = sum({condition}); }}"));
        assert_eq!(found, format!("@: {count}\n"), "{condition}");
    }
    let merged = Bed::new("kprobe:net::twin { @[(from=caller, n=1)] = count(); }");
    merged.hit(0, &Task { caller: 0x1310, ..Task::with(&[]) }).hit(0, &Task { caller: 0x1320, ..Task::with(&[]) });
    assert_eq!(merged.finish(), "@[{ .from = main, .n = 1 }]: 2\n");
    let stack = Bed::new("kprobe:net::twin { @[kstack] = count(); }");
    stack.hit(0, &Task { stack: &[0x1704, 0x1500], ..Task::with(&[]) });
    assert_eq!(stack.finish(), "@[\n    net::twin#2+4\n    net::check::<u32>+256\n]: 1\n");
}

#[test]
fn a_predicate_decides_and_may_divide() {
    let program = "kprobe:f /arg0 / 2 > 5 && comm == \"worker\"/ { print(arg0); }";
    assert_tried!(printed(program, &[&[11], &[12], &[5], &[100]]), "12\n100\n");
    assert_tried!(printed("kprobe:f /0/ { print(1); }", &[&[]]), "");
    assert_tried!(printed("kprobe:f /1/ { print(1); }", &[&[]]), "1\n");
}

#[test]
fn maps_keep_values_by_key() {
    assert_tried!(once("@x = 5; @y = comm; @z = func;", &[]), "@x: 5\n@y: worker\n@z: blk::submit\n");
    let program = "kprobe:f { @[arg0, comm, func] = arg1; @seen[arg0]++; @sum += arg1; @last = arg1 - 5; }";
    assert_tried!(
        printed(program, &[&[2, 30], &[1, 40], &[2, 10]]),
        "@[2, worker, blk::submit]: 10\n@[1, worker, blk::submit]: 40\n@last: 5\n@seen[1]: 1\n@seen[2]: 2\n@sum: 80\n"
    );
    let body = "@x[1] = 5; @x[2] = 6; @x[1]++; print(len(@x)); delete(@x[2]); @x[7] = 0; delete(@x, 9); \
        printf(\"%d %d %d\\n\", len(@x), has_key(@x, 7), has_key(@x, 2)); clear(@x);";
    assert_tried!(once(body, &[]), "2\n2 1 0\n");
    let body =
        "@x = 5; print(delete(@x)); print(delete(@x)); @y[1, 2] = 2; print((delete(@y[1, 2]), delete(@y, (1, 2))));";
    assert_tried!(once(body, &[]), "1\n0\n(1, 0)\n");
    let mut bed = Bed::new("kprobe:f { @x[arg0] = 1; print(len(@x)); clear(@x); }");
    bed.hit(0, &Task::with(&[1])).hit(0, &Task::with(&[2]));
    bed.drain();
    bed.hit(0, &Task::with(&[3]));
    assert_eq!(bed.finish(), "1\n2\n1\n");
    // A key is found from every CPU, not only from the CPU that collected it. A part of a key may be any value.
    let mut bed = Bed::new("kprobe:f { @c[comm] = count(); print(has_key(@c, \"worker\")); }");
    bed.hit(0, &Task { cpu: 1, comm: "other", ..Task::with(&[]) }).hit(0, &Task { cpu: 2, ..Task::with(&[]) });
    bed.hit(0, &Task { cpu: 3, comm: "other", ..Task::with(&[]) });
    bed.drain();
    assert_eq!(bed.text, "0\n1\n1\n");
    assert_tried!(once("print(len(kstack())); print(len(kstack(2)));", &[]), "3\n2\n");
}

#[test]
fn a_map_may_be_read_before_the_text_that_gives_it_values() {
    let program = "kprobe:f { if (@n > 1) { exit(); } @copy = @of; @n++; @of = comm; }";
    assert_tried!(printed(program, &[&[], &[], &[], &[]]), "@copy: worker\n@n: 2\n@of: worker\n");
    let bed = Bed::new("kprobe:g /@start[tid]/ { @ns = nsecs - @start[tid]; } kprobe:f { @start[tid] = nsecs; }");
    bed.hit(0, &Task::with(&[])).hit(1, &Task::with(&[]));
    bed.hit(0, &Task { time: 5_700, cpu: 3, ..Task::with(&[]) });
    assert_eq!(bed.finish(), "@ns: 700\n@start[7]: 5000\n");
    assert_tried!(printed("kprobe:f { @n = @n + 1; @on = !@on; }", &[&[], &[], &[]]), "@n: 3\n@on: 1\n");
    // The condition is of the type that only the code that it selects tells.
    for (body, shown) in tried([
        ("if (@last != comm) { @last = comm; print(1); } clear(@last);", "1\n"),
        ("if (strlen(@s) == 0) { @s = comm; } print(strlen(@s)); clear(@s);", "6\n"),
        ("if (@t == (0, \"\")) { @t = (7, comm); } print(@t.0); clear(@t);", "7\n"),
        ("while (@s != \"x\") { @s = \"x\"; print(1); } clear(@s);", "1\n"),
        ("let $s; if ($s == \"\") { $s = comm; } print($s);", "worker\n"),
        ("for ($i : 0..strlen(@s) + 2) { @s = comm; @n++; } print(strlen(@s)); clear(@s);", "6\n@n: 2\n"),
        ("let $s; for ($i : strlen($s)..7) { $s = comm; @[$i] = 1; } print(len(@)); clear(@);", "7\n"),
        // So is a choice, if one of its values tells the type.
        ("@first = @first == \"\" ? comm : @first; print(strlen(@first)); clear(@first);", "6\n"),
        ("@s[1] = @s[1] != \"\" ? @s[1] : \"a longer string\"; print(strlen(@s[1])); clear(@s);", "15\n"),
        ("@t = 1 ? @t : (7, comm); @u = (1, 2); print(@t); clear(@t);", "@t: (0, )\n@u: (1, 2)\n"),
        ("$x = @t == (0, \"\") ? (7, comm) : @t; @t = $x; print(@t); clear(@t);", "@t: (7, worker)\n"),
        ("@s = 1 ? @s : comm; print(strlen(@s)); @s = arg0 ? @s : @r; @r = \"a\"; clear(@r);", "0\n@s: \n"),
        ("@most = arg1 > @most ? arg1 : @most; @n = arg0 ? @n : -1;", "@most: 18446744073709551615\n@n: -1\n"),
        // Operations have numbers as their results, whatever the types of their operands turn out to be.
        ("@n = @n > 5 ? 0 : @n - 1; @is = @is == 0; @m = (u8)@m | @m;", "@is: 1\n@m: 0\n@n: -1\n"),
        ("@sum += @n; @n = @sum;", "@n: 0\n@sum: 0\n"),
        ("@n = @n + 1; @n = arg1;", "@n: 18446744073709551615\n"),
        (
            "@t = (@t.0 + 1, comm); @r = (n=@r.n + arg1, s=\"a\");",
            "@r: { .n = 18446744073709551615, .s = a }\n@t: (1, worker)\n",
        ),
        ("if (@t.0 == 5) { @s = 1; } else { @s = @t.1; } @t = (5, 7);", "@s: 0\n@t: (5, 7)\n"),
        // The keys of a map may become known after its values.
        ("print(len(@m)); @m[@k] = 1; @k = 5; clear(@m);", "0\n@k: 5\n"),
        ("$n = len(@m); @m[$n] = 1;", "@m[0]: 1\n"),
        ("@i = @i + 1; @x[@y[@z]] = 5; @y[2] = 1; @z = @x[0]; clear(@y);", "@i: 1\n@x[0]: 5\n@z: 5\n"),
        ("@p = cpu ? @p : func; print(@p); clear(@p);", "@p: blk::submit\n"),
        ("unroll (2) { @a = cpu ? 1 : @b; @b = arg1; } clear(@b);", "@a: 18446744073709551615\n"),
    ]) {
        assert_eq!(once(body, &[0, u64::MAX]), shown, "{body}");
    }
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
    assert_tried!(
        once("@c = count(); @c = count(); @s = sum(5); print(@c * 10); print(@s);", &[]),
        "20\n@s: 5\n@c: 2\n@s: 5\n"
    );
    assert_tried!(
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
    assert_tried!(
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
    assert_tried!(
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
    assert_tried!(
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
fn histograms_divide_powers_of_two_by_bits() {
    let hits: Vec<[u64; 1]> = [0, 7, 8, 9, 10, 15, 15, 15, u64::MAX].into_iter().map(|number| [number]).collect();
    let hits: Vec<&[u64]> = hits.iter().map(|hit| &hit[..]).collect();
    assert_tried!(
        printed("kprobe:f { @ = hist(arg0, 2); }", &hits),
        "\
@:
(..., 0)               1 |@@@@@@@@@@@@@@@@@                                   |
[0]                    1 |@@@@@@@@@@@@@@@@@                                   |
[1]                    0 |                                                    |
[2]                    0 |                                                    |
[3]                    0 |                                                    |
[4]                    0 |                                                    |
[5]                    0 |                                                    |
[6]                    0 |                                                    |
[7]                    1 |@@@@@@@@@@@@@@@@@                                   |
[8, 10)                2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@                  |
[10, 12)               1 |@@@@@@@@@@@@@@@@@                                   |
[12, 14)               0 |                                                    |
[14, 16)               3 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

"
    );
    // As in bpftrace, a bound is abbreviated only if the unit of its row is a power of 1024.
    for (bits, value, label) in tried([
        (0, 1024, "[1K, 2K)"),
        (3, 1024, "[1024, 1152)"),
        (3, 8192, "[8K, 9K)"),
        (5, 1_u64 << 62, "[4096P, 4224P)"),
        (5, u64::MAX >> 1, "[8064P, 8192P)"),
        (5, 63, "[63]"),
        (5, 64, "[64, 66)"),
    ]) {
        let text = printed(&format!("kprobe:f {{ @ = hist(arg0, {bits}); }}"), &[&[value]]);
        assert!(text.starts_with(&format!("@:\n{label:<16} ")), "{bits}, {value}: {text}");
    }
    assert_refused(&[
        ("kprobe:f { @ = hist(1, 6); }", "this has to be from 0 to 5"),
        ("kprobe:f { @ = hist(1, arg0); }", "this has to be a constant"),
        ("kprobe:f { @ = hist(1, 2, 3); }", "this function takes 1 to 2 arguments"),
        ("kprobe:f { @ = hist(1, 2); @ = hist(1, 3); }", "this map is set to another type elsewhere"),
    ]);
}

#[test]
fn linear_histograms_have_equal_rows() {
    let hits: [&[u64]; 6] = [&[5], &[10], &[19], &[20], &[99], &[0]];
    assert_tried!(
        printed("kprobe:f { @ = lhist(arg0, 10, 30, 5 + 5); }", &hits),
        "\
@:
(..., 10)              2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[10, 20)               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[20, 30)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[30, ...)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

"
    );
    assert_tried!(
        once("@ = lhist(arg0, 0, 10, 3);", &[9]),
        "@:\n[9, ...)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
    );
    assert_tried!(
        once("@ = lhist(arg0, -4096, 4096, 2048);", &[3000]),
        "@:\n[2K, 4K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
    );
    assert_tried!(
        once("@ = lhist((s64)arg0, -10, 0, 5);", &[(-7_i64).cast_unsigned()]),
        "@:\n[-10, -5)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
    );
}

#[test]
fn maps_whose_values_are_no_numbers_are_in_the_order_of_their_keys() {
    assert_tried!(once("@[3] = (-1, 0); @[-2] = (5, 0);", &[]), "@[-2]: (5, 0)\n@[3]: (-1, 0)\n");
    assert_tried!(once("@[\"b\", 1] = \"y\"; @[\"ab\", 2] = \"z\";", &[]), "@[ab, 2]: z\n@[b, 1]: y\n");
    assert_tried!(
        once("@[(5, \"b\"), 1] = \"w\"; @[(-1, \"c\"), 1] = \"x\"; @[(5, \"ab\"), 1] = \"y\";", &[]),
        "@[(-1, c), 1]: x\n@[(5, ab), 1]: y\n@[(5, b), 1]: w\n"
    );
    assert_tried!(
        once("@[buf(0x8007, 1)] = \"w\"; @[buf(0x8000, 2)] = \"x\"; @[buf(0x8000, 1)] = \"y\";", &[]),
        "@[a]: y\n@[a ]: x\n@[g]: w\n"
    );
}

#[test]
fn printf_converts_as_c_does() {
    for (format, arguments, shown) in tried([
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
    ]) {
        let printed = once(&format!("printf(\"{format}\", {arguments});"), &[10, 3, u64::MAX, 0x8000]);
        assert_eq!(printed, shown, "{format}");
    }
    assert_tried!(once("printf(\"100%% \\t\\\"\\\\\\n\");", &[]), "100% \t\"\\\n");
}

#[test]
fn maps_are_printed_cleared_and_zeroed_in_their_order() {
    let body = "@x[1] = 100; @x[2] = 300; @x[3] = 200; print(@x, 2); print(@x, 0, 100); zero(@x); print(@x); clear(@x); \
                print(@x); printf(\"end\");";
    assert_tried!(
        once(body, &[]),
        "@x[3]: 200\n@x[2]: 300\n@x[1]: 1\n@x[3]: 2\n@x[2]: 3\n@x[1]: 0\n@x[2]: 0\n@x[3]: 0\nend"
    );
}

#[test]
fn what_is_collected_for_a_key_is_printed() {
    for (query, whole) in tried([
        ("@h[1, \"a\"] = hist(5); @h[2, \"a\"] = hist(5); print(@h[1, \"a\"]); clear(@h);", "@h[1, \"a\"] = hist(5);"),
        (
            "@l[arg0] = lhist(5, 0, 10, 5); @l[8] = lhist(5, 0, 10, 5); print(@l[arg0]); clear(@l);",
            "@l[7] = lhist(5, 0, 10, 5);",
        ),
        // A function is one key, even if several of its addresses were recorded.
        ("@h[func] = hist(5); print(@h[func]); clear(@h);", "@h[func] = hist(5);"),
    ]) {
        assert_eq!(once(query, &[7]), once(whole, &[7]), "{query}");
    }
    let statistics = "@s[1] = stats(5); @s[1] = stats(7); print(@s[1]); print(@s[2]); clear(@s);";
    let shown = "@s[1]: count 2, average 6, total 12\n@s[2]: count 0, average 0, total 0\n";
    assert_tried!(once(statistics, &[0]), shown);
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
    for (lost, sentence) in tried([
        (0, None),
        (1, Some("1 stack lost: the table of stacks was full")),
        (3, Some("3 stacks lost: the table of stacks was full")),
    ]) {
        let bed = Bed::within("kprobe:f { @[kstack] = count(); }", &limits);
        for number in 0..places + lost {
            let stack = Box::leak(Box::new([0x1004, 0x1110 + 4 * number]));
            bed.hit(0, &Task { stack, ..Task::with(&[]) });
        }
        // A stack that is in the table needs no second place.
        bed.hit(0, &Task { stack: &[0x1004, 0x1110], ..Task::with(&[]) });
        let text = bed.finish();
        let counts = |count: &str| text.lines().filter(|line| line.ends_with(&format!("]: {count}"))).count() as u64;
        assert_eq!(counts("2"), 1, "{text}");
        assert_eq!(text.lines().find(|line| line.contains("lost")), sentence, "{text}");
    }
}

#[test]
fn a_probe_or_a_stack_that_was_never_given_is_empty() {
    for (body, shown) in tried([
        ("@p[1] = probe; print(@p[2]); clear(@p);", "@p[2]: \n"),
        ("@p[1] = probe; print(@p[2] == probe); print(@p[1] == probe); clear(@p);", "0\n1\n"),
        ("@p[1] = probe; zero(@p); print(@p[1]); print(@p); clear(@p);", "@p[1]: kprobe:blk::submit\n@p[1]: \n"),
        ("let $p; if (arg0) { $p = probe; } print($p); printf(\"[%s]\", $p); print(($p, 1));", "\n[](, 1)\n"),
        (
            "@p[1] = probe; $p = @p[2]; @k[$p] = count(); @k[probe] = count(); clear(@p);",
            "@k[]: 1\n@k[kprobe:blk::submit]: 1\n",
        ),
    ]) {
        assert_eq!(once(body, &[0]), shown, "{body}");
    }
    // Sixteen stacks take all places that there are.
    let full = |body: &str| {
        let program = format!("kprobe:f {{ @s[arg0] = kstack; if (arg0 == 15) {{ {body} }} }}");
        let bed = Bed::within(&program, &Limits { stack_bytes: 0, ..Limits::usual(1) });
        for number in 0..16 {
            let stack = Box::leak(Box::new([0x1004 + 4 * number]));
            bed.hit(0, &Task { stack, ..Task::with(&[number]) });
        }
        bed.finish()
    };
    for (body, shown) in tried([
        ("print(@s[99]); print(len(@s[99])); print(len(@s[0])); clear(@s);", "@s[99]: \n\n0\n1\n"),
        ("print(@s[99] == @s[0]); let $s; if (cpu) { $s = kstack; } print($s); clear(@s);", "0\n\n\n"),
        ("$s = @s[99]; @k[$s] = count(); clear(@s);", "@k[\n]: 1\n"),
    ]) {
        assert_eq!(full(body), shown, "{body}");
    }
    let zeroed: String = (0..16).map(|number| format!("@s[{number}]: \n\n")).collect();
    assert_tried!(full("zero(@s);"), zeroed);
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
    assert_eq!(drain(&bed.program, &bed.store, &SimulatedImage, &masked, OutputFormat::Text, &mut out), Ok(false));
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
    // The console prints the sentence first.
    let error = refused("kprobe:f { @x = foo(1); }");
    let (place, sentence) = error.rsplit_once('\n').unwrap();
    let shown = format!("error: {sentence}\n  {}", place.replace('\n', "\n  "));
    assert!(reference.contains(&shown), "{shown}");
}

#[test]
fn find_gives_a_variable_the_value_of_a_key() {
    let body = "@m[2] = (1, \"hello\"); let $v; if (find(@m, 2, $v)) { print($v); } \
        $v = (5, \"kept\"); print(find(@m, 3, $v)); print($v[1]); clear(@m);";
    assert_tried!(once(body, &[]), "(1, hello)\n0\nkept\n");
    let kept = "@m[1] = 7; let $v; find(@m, 1, $v); print($v); clear(@m);";
    assert_tried!(once(kept, &[]), "7\n");
    let counted = "@c[1] = count(); $n = 0; print(find(@c, 1, $n)); print($n); clear(@c);";
    assert_tried!(once(counted, &[]), "1\n1\n");
}

#[test]
fn errors_and_warnings_are_lines() {
    assert_tried!(once("errorf(\"bad %d\", 5); warnf(\"odd\");", &[]), "ERROR: bad 5\nWARNING: odd\n");
}
