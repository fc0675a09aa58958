//! The order in which statements run: conditions, loops, blocks, the life of variables, and settings.

use std::{format, vec};

use kprobes_vm::ir::{Builtin, Op, Operand, Register, Word};

use super::machine::{Bed, Task, assert_refused, load, once, printed, refused};
use super::tried;
use kprobes_random::assert_tried;

#[test]
fn if_else_unroll_and_return() {
    let body = "if (arg0 > 100) { print(\"a\"); } else if (arg0 > 10) { print(\"b\"); } else { print(\"c\"); } \
                if (arg0 == 5) { return; } print(\"end\");";
    let program = format!("kprobe:f {{ {body} }}");
    assert_tried!(printed(&program, &[&[500], &[50], &[5]]), "a\nend\nb\nend\nc\n");
    assert_tried!(once("$i = 0; unroll (4) { $i += $i + 1; print($i); }", &[]), "1\n3\n7\n15\n");
    assert_tried!(once("unroll (2) { unroll (3) { @n++; } }", &[]), "@n: 6\n");
}

#[test]
fn variables_keep_values_within_their_block() {
    assert_tried!(once("$x = arg0; $y = $x++; $z = ++$x; printf(\"%d %d %d\", $x, $y, $z);", &[5]), "7 5 7");
    assert_tried!(once("$x = 8; $x -= 3; $x <<= 2; $x |= 1; $x %= 16; print($x); $x--; print(--$x);", &[]), "5\n3\n");
    assert_tried!(once("$s = comm; $t = \"ab\"; $s = \"cd\"; printf(\"%s %s\", $s, $t);", &[]), "cd ab");
    assert_tried!(once("$x = 1; if (arg0) { $x = 2; $y = 3; print($y); } print($x);", &[1]), "3\n2\n");
}

#[test]
fn a_variable_that_is_declared_is_of_the_block_and_zero_at_first() {
    assert_tried!(once("let $x; if (arg0) { $x = \"yes\"; } print($x);", &[1]), "yes\n");
    assert_tried!(once("let $x; if (arg0) { $x = \"yes\"; } print($x);", &[0]), "\n");
    assert_tried!(
        once("let $x; if (arg0) { $x = \"a\"; } else { $x = \"much longer\"; } print($x);", &[0]),
        "much longer\n"
    );
    assert_tried!(
        once("let $x; $x += 5; print($x); let $y = 7; print($y); let $z: u8 = 300; print($z);", &[]),
        "5\n7\n44\n"
    );
    assert_tried!(once("$x = 1; if (1) { let $x = 2; $x++; } print($x);", &[]), "1\n");
    assert_tried!(once("unroll (2) { let $x; $x++; print($x); }", &[]), "1\n1\n");
}

#[test]
fn what_is_decided_is_not_compiled() {
    for (body, shown) in tried([
        ("if (sizeof(u8) == 1 || arg0) { print(1); } else { fail(\"a byte\"); }", "1\n"),
        ("if (0) { fail(\"no\"); } print(2);", "2\n"),
        ("if (is_str(arg0) && is_literal(1)) { print(strlen(arg0)); } else { print(3); }", "3\n"),
        ("static_assert(1 + 1 == 2, \"sum\"); assert_str(comm); print(4);", "4\n"),
        ("static_assert((1 && 1) == 1 && (0 ? arg0 : 7) == 7, \"logic\"); print(4);", "4\n"),
        ("static_assert(probetype == \"kprobe\" && \"a\" != \"b\", \"strings\"); print(4);", "4\n"),
        ("print((\"a\" < \"b\", \"b\" < \"ab\", \"a\" <= \"a\", \"a\" >= \"ab\"));", "(1, 0, 1, 0)\n"),
        ("print((\"é\" > \"z\", probetype > \"k\", \"a\" == \"b\", \"a\" != \"b\"));", "(1, 1, 0, 1)\n"),
        ("if (\"\" || !\"a\") { fail(\"empty\"); } else { print(\"a\" && arg0 ? 1 : 2); }", "1\n"),
        ("if (arg0 && 0) { print(\"both\"); } else { print(6); }", "6\n"),
        ("if (arg0 || 1) { print(7); }", "7\n"),
        ("print((arg0 == 1 && 1, 0 || arg0 == 2, !(arg0 && 0)));", "(1, 0, 1)\n"),
        // A block that never runs tells the types of its maps.
        ("if (0) { @none = 1; print(@later); } @x = 2; print(@none);", "@x: 2\n"),
        ("if (0) { print(@later); } @x = 2;", "@x: 2\n"),
        ("if (!@seen) { @seen = 1; print(5); } clear(@seen);", "5\n"),
    ]) {
        assert_eq!(once(body, &[1]), shown, "{body}");
    }
    let asserted = "assert(arg0 < 2, \"100% small\"); print(arg0);";
    assert_tried!(
        printed(&format!("kprobe:f {{ {asserted} }}"), &[&[1], &[2], &[1]]),
        "1\nERROR: assertion failed: 100% small\n"
    );
}

#[test]
fn what_is_left_out_leaves_no_jumps_and_effects_stay() {
    for (body, argument, shown) in tried([
        ("if (1 ? arg0 : { return; 3 }) { print(1); } else { print(2); } print(3);", 0, "2\n3\n"),
        ("_ = sizeof({ _ = arg1; return; 3 }); if (arg0) { print(1); } else { print(2); } print(3);", 0, "2\n3\n"),
        ("print(({ print(1); 1 } && 1)); print(4);", 3, "1\n1\n4\n"),
        ("print(({ if (arg0 == 3) { return; } 1 } && 1)); print(2);", 3, ""),
        ("$a = *(u16 *)0x8000; print(bswap($a) == bswap($a)); print(sizeof($a)); print(sizeof($a));", 3, "1\n8\n8\n"),
    ]) {
        assert_eq!(once(body, &[argument, 0]), shown, "{body}");
    }
}

#[test]
fn what_is_compiled_to_be_asked_about_is_bounded() {
    let refused_deep = |before: &str, after: &str, depth: usize| {
        let value = format!("{}1{}", before.repeat(depth), after.repeat(depth));
        let program = format!("kprobe:f {{ print({value}); print({value}); print({value}); }}");
        load(&program).err()
    };
    let around = [("sizeof(", ")"), ("bswap(1 + ", ")"), ("is_str(1 + ", ")"), ("(u8[])(1 + (u64)(", "))")];
    for (before, after) in tried(around) {
        assert_eq!(refused_deep(before, after, if cfg!(miri) { 2 } else { 5 }), None, "{before}");
    }
    // The first operand is compiled once.
    assert_eq!(refused_deep("memcmp(", ", 1, 8)", if cfg!(miri) { 2 } else { 14 }), None);
    if cfg!(miri) {
        // The other programs compile tens of thousands of expressions.
        return;
    }
    // Each `typeof` compiles its operand again for the `typeof` around it.
    assert_eq!(refused_deep("(typeof(", "))1", 3), None);
    let error = refused_deep("(typeof(", "))1", 14).unwrap();
    assert!(matches!(error.problem, crate::error::Problem::LongExpressions { .. }), "{error:?}");
}

#[test]
fn loops_have_turns() {
    for (body, shown) in tried([
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
    ]) {
        assert_eq!(once(body, &[10]), shown, "{body}");
    }
}

#[test]
fn loops_end() {
    let most = if cfg!(miri) { 7 } else { 7000 };
    let program = format!("$i = 0; while (1) {{ $i++; @i = $i; if ($i == {most}) {{ break; }} }} print(1);");
    assert_tried!(once(&program, &[]), format!("1\n@i: {most}\n"));
    if cfg!(miri) {
        // The other programs execute 65536 operations.
        return;
    }
    let cut = "1 run was ended after 65536 operations in loops\n";
    assert_tried!(once("while (1) { } print(1);", &[]), cut);
    assert_tried!(once("for ($i : 0..1 << 60) { for ($j : 0..1 << 60) { } }", &[]), cut);
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
    const KEYS: u64 = if cfg!(miri) { 4 } else { 150 };
    for number in 0..2 * KEYS {
        bed.hit(0, &Task { cpu: number as usize % 3, ..Task::with(&[number / 2]) });
    }
    bed.hit(1, &Task::with(&[]));
    assert_eq!(bed.finish(), format!("1\n@all: {KEYS}\n@is[1, worker]: {KEYS}\n"));
    let sums = printed("END { @c[1] = count(); @c[1] = count(); for ($kv : @c) { print($kv); } }", &[&[]]);
    assert_eq!(sums, "(1, 2)\n@c[1]: 2\n");
    assert_tried!(printed("BEGIN { for ($kv : @x) { print($kv); } @x[1] = 1; delete(@x[1]); }", &[&[]]), "");
}

#[test]
fn loops_are_refused_where_they_are_wrong() {
    for (program, marks, sentence) in tried([
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
    ]) {
        assert_eq!(refused(program), format!("{program}\n{marks}\n{sentence}"));
    }
}

#[test]
fn a_block_is_a_value_with_statements_before_it() {
    for (body, shown) in tried([
        ("$a = { let $b = 1; $b += 2; $b }; print($a);", "3\n"),
        ("$x = 5; print({ let $x = 1; $x + 1 } + $x); print($x);", "7\n5\n"),
        ("print(({ print(\"first\"); 20 }, { $y = \"pink\"; $y }));", "first\n(20, pink)\n"),
        ("{ print(1); $z = 2; print($z) } print(3);", "1\n2\n3\n"),
        ("@m[{ $k = arg0; $k * 2 }] = { 7 }; print(@m[6]); clear(@m);", "@m[6]: 7\n"),
        ("_ = has_key(@q, 1); _ = arg0 + 1; @q[1] = 1; clear(@q); print(4);", "4\n"),
        ("arg0 == 3 ? print(\"three\") : print(\"other\"); arg0 == 4 ? $u++ : print(5);", "three\n5\n"),
        (
            "{ arg0 == 3 ? print(\"three\") : print(\"other\") } { arg0 == 4 ? $u++ : { print($u); } } print(5);",
            "three\n0\n5\n",
        ),
        (
            "{ arg0 ? (arg0 == 4 ? print(1) : print(2)) : print(3) } { $n = 1; arg0 == $n + 2 ? $u++ : 0 } print($u);",
            "2\n1\n",
        ),
        ("{ 1 ? print(1) : print(@none) } { 0 ? fail(\"no\") : { @w = 2; print(@w) } } clear(@w);", "1\n@w: 2\n"),
        ("{ arg0 == 3 ? print(@z[1]) : { @z[1] = 5; } } clear(@z);", "@z[1]: 0\n"),
        ("{ @q == 0 ? @q++ : @q-- }", "@q: 1\n"),
        ("$w = (typeof(arg0))7; let $v: typeof((s8)1) = 255; print(($w, $v, sizeof(typeof((u16)1))));", "(7, -1, 2)\n"),
        ("$p = (typeof((u16)1) *)0x8000; print(sizeof(*$p)); $s = (s8)-1; print((typeof($s))200);", "2\n200\n"),
        ("if ({ let $t = arg0; $t > 2 }) { print(6); }", "6\n"),
    ]) {
        assert_eq!(once(&format!("$u = 0; {body}"), &[3]), shown, "{body}");
    }
    assert_eq!(
        refused("BEGIN { $a = { print(1); }; }"),
        "BEGIN { $a = { print(1); }; }\n             ^^^^^^^^^^^^^\nthis has no value: use it as a statement"
    );
    assert!(refused("BEGIN { $a = { let $b = 1; $b }; print($b); }").ends_with("not set yet in this block"));
    assert!(refused("BEGIN { 1 ? print(1) : print(2) print(3); }").ends_with("a `;` is expected here"));
}

#[test]
fn settings_hold_for_the_whole_program() {
    for (settings, body, shown) in tried([
        ("print_maps_on_exit = false", "@x = 1; print(2);", "2\n"),
        ("BPFTRACE_PRINT_MAPS_ON_EXIT=1;", "@x = 1;", "@x: 1\n"),
        (
            "max_strlen = 5; license = \"GPL\"; ON_STACK_LIMIT=32",
            "print((str(0x8000), default_str_length));",
            "(a str, 5)\n",
        ),
        ("max_strlen = 5", "print(str(0x8000, arg0 + 20)); print(str(0x8000, arg0 + 2));", "a str\na s\n"),
        ("max_strlen = 7", "print(str(0x8000, arg0 + 20)); print(str(0x8000, 6));", "a strin\na stri\n"),
        ("stack_mode = raw", "print(kstack(1));", "\n    1004\n\n"),
        (
            "stack_mode = perf",
            "print(kstack(1)); print(kstack(bpftrace, 1));",
            "\n    1004 blk::submit+4\n\n\n    blk::submit+4\n\n",
        ),
        ("", "print(len(kstack(raw))); print(kstack(perf, 1));", "3\n\n    1004 blk::submit+4\n\n"),
    ]) {
        let program = format!("config = {{ {settings} }}; kprobe:f {{ {body} }}");
        assert_eq!(printed(&program, &[&[1]]), shown, "{program}");
    }
    assert_refused(&[
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
    ]);
}

#[test]
#[cfg_attr(miri, ignore = "it fills two maps")]
fn a_map_has_the_room_that_is_declared() {
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
fn an_exit_has_a_status() {
    for (program, clauses, status) in tried([
        ("kprobe:f { @n++; if (@n == 2) { exit(12); } } END { exit(13); }", &[0, 0, 1][..], 12),
        ("kprobe:f { } END { exit(13); }", &[0, 1], 13),
        ("kprobe:f { exit(); } END { exit(13); }", &[0, 1], 0),
        ("kprobe:f { exit(0); }", &[0], 0),
        ("kprobe:f { exit(5 * 25); }", &[0], 125),
        ("kprobe:f { assert(arg0, \"no\"); } END { exit(13); }", &[0, 1], 6),
        ("kprobe:f { exit(arg0); }", &[0], 0),
        ("kprobe:f { exit(arg0 + 9); }", &[0], 125),
        ("kprobe:f { exit(arg0 + 10); }", &[0], 10),
        ("kprobe:f { exit(arg0 + 125); }", &[0], 125),
        ("kprobe:f { exit(arg0 + 126); }", &[0], 125),
        ("kprobe:f { exit(arg0 + 256); }", &[0], 125),
        ("kprobe:f { exit(arg0 - 1); }", &[0], 125),
        ("kprobe:f { @++; }", &[0], 0),
        // The ring has no room for the record of the exit.
        ("kprobe:f { @n++; print(comm); if (@n == 5000) { exit(12); } }", &[0; 5000], 12),
    ]) {
        let bed = Bed::new(program);
        for &clause in clauses {
            bed.hit(clause, &Task::with(&[0]));
        }
        assert_eq!(bed.store.status(), status, "{program}");
    }
}

#[test]
fn the_status_of_other_code_does_not_wrap() {
    let status = Word(0);
    let load = Op::Load { to: status, what: Builtin::Register(Register::X(0)) };
    for (computed, expected) in [(255, 255), (256, 255), (u64::MAX, 255)] {
        let mut bed = Bed::new("kprobe:f { }");
        bed.program.code.routines[0].ops = vec![load, Op::Exit { status: Operand::Word(status) }];
        bed.program.code.verify().unwrap();
        bed.hit(0, &Task::with(&[computed]));
        assert_eq!(bed.store.status(), expected);
    }
}

#[test]
fn what_never_runs_tells_types_last() {
    for (body, shown) in tried([
        // The code that runs tells the type.
        ("if (0) { @x = \"text\"; } @x = 5; print(@x); clear(@x);", "@x: 5\n"),
        ("if (0) { @x = \"text\"; } else { @x = 5; } print(@x); clear(@x);", "@x: 5\n"),
        ("$a = 1 ? 2 : { @x = \"text\"; 3 }; @x = 5; print(@x + $a); clear(@x);", "7\n"),
        ("print(0 ? { @x = \"text\"; 3 } : { @x = 5; 4 }); print(@x); clear(@x);", "4\n@x: 5\n"),
        ("@x = 5; if (1) { } else { @x = count(); } print(@x); clear(@x);", "@x: 5\n"),
        ("if (0) { @x = \"text\"; } let $v; @x = $v; print(@x); clear(@x);", "@x: 0\n"),
        ("let $v; if (0) { @x = \"text\"; $v = @x; } @y = $v; print(@y); clear(@y);", "@y: 0\n"),
        ("if (0) { @k[\"text\"] = 1; } let $v; @k[$v] = 2;", "@k[0]: 2\n"),
        // Only the code that never runs tells the type.
        ("let $x; if (0) { $x = \"text\"; } if (0) { @m = 5; } @m = $x; print(@m); clear(@m);", "@m: \n"),
        ("let $x; if (0) { $x = \"text\"; } @m = $x; print(@m); clear(@m);", "@m: \n"),
        ("let $x; @m = $x; if (0) { $x = \"text\"; } print(@m); clear(@m);", "@m: \n"),
        ("let $x; if (0) { $x = str(0x8000); } @[$x] = count();", "@[]: 1\n"),
        ("if (0) { @x = 1; } print(@x);", ""),
        ("if (0) { @x[1] = \"a\"; } print(@x[1]);", "@x[1]: \n"),
    ]) {
        assert_eq!(once(body, &[]), shown, "{body}");
    }
}

#[test]
fn what_a_refused_statement_made_is_gone() {
    let program = "kprobe:f { @x = { let $v = 1; strlen(@later) + $v }; $v = \"text\"; @y = $v; @later = \"abc\"; print(@y); \
        clear(@x); clear(@y); clear(@later); }";
    assert_tried!(printed(program, &[&[]]), "@y: text\n");
}

#[test]
fn settings_that_are_numbers_are_no_switches() {
    assert!(refused("config = { max_strlen = true } BEGIN { }").contains("this has to be from 1 to"));
    for value in ["true", "on", "1", "\"true\""] {
        assert_eq!(
            printed(&format!("config = {{ print_maps_on_exit = {value} }} kprobe:f {{ @ = 1; }}"), &[&[]]),
            "@: 1\n"
        );
    }
}
