//! Values that are more than numbers: strings, bytes, tuples, records, arrays, addresses and times.

use std::format;
use std::string::String;

use super::machine::{Task, assert_values, once, printed, refused};
use super::tried;
use crate::checked::TUPLE_DEPTH_MAX;
use kprobes_random::assert_tried;

#[test]
fn strings_are_measured_and_looked_through() {
    assert_values(&[
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
        ("str(\"text\")", "text"),
        ("(\"a \" + \"te\" + \"xt\", strlen(\"abc\" + \"de\"), is_literal(\"a\" + \"b\"))", "(a text, 5, 1)"),
        ("comm == \"work\" + \"er\"", "1"),
        ("str(str(arg3, 4), 3)", "a s"),
        (
            "(str(comm, 4), str(comm, 8), str(comm, 127), str(\"a long text\", 8), str(\"a long text\", 9))",
            "(work, worker, worker, a long t, a long te)",
        ),
        ("strlen(str(\"a long text\", 8)) + (str(comm, 1) == \"w\")", "9"),
        ("(comm[0], comm[5], comm[6], \"abcdefghi\"[8])", "(119, 114, 0, 105)"),
        ("str(arg3 + 25)[0]", "-1"),
        ("sizeof(comm[1])", "1"),
        ("probetype", "kprobe"),
        ("ncpus", "4"),
        ("rand <= 0xffffffff && rand != rand", "1"),
    ]);
}

#[test]
fn questions_about_types_are_answered_without_a_hit() {
    assert_values(&[
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
        ("is_literal(-12)", "1"),
        ("is_literal(-arg0)", "0"),
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
    ]);
    // The operand of `sizeof` is not evaluated.
    assert_tried!(once("$x = 1; print(sizeof($x++)); print($x);", &[]), "8\n1\n");
    // A variable has its type even before the assignment that tells the type.
    let later = "let $v; if (is_str($v)) { @y = \"text\"; } else { @y = 1; } $v = \"a\"; print(@y); clear(@y);";
    assert_tried!(once(later, &[]), "@y: text\n");
    // A value made from such a variable has its type early, too.
    for made in ["$w = $v;", "let $w; $w = $v;", "$w = ($v, 1).0;", "$w = (ncpus ? $v : $v);"] {
        let later = format!(
            "let $v; {made} if (is_str($w)) {{ @y = \"text\"; }} else {{ @y = 1; }} $v = \"a\"; print(@y); clear(@y);"
        );
        assert_eq!(once(&later, &[]), "@y: text\n", "{made}");
    }
    let sized = "let $v; if (sizeof(($v, 1)) > 16) { @y = \"long\"; } else { @y = 1; } $v = \"longer than 7\"; \
        print(@y); clear(@y);";
    assert_tried!(once(sized, &[]), "@y: long\n");
    // The room for a string grows by a later assignment.
    let grown = "@x = \"a\"; if (strcap(@x) < 10) { @y = 1; } else { @y = \"text\"; } @x = \"longer than 7\"; \
        print(@y); clear(@x); clear(@y);";
    assert_tried!(once(grown, &[]), "@y: text\n");
    // A variable without any assignment that tells its type is a number.
    assert_tried!(once("let $v; @z = sizeof($v); print(@z); clear(@z);", &[]), "@z: 8\n");
    assert_tried!(once("let $v; $v = $v + 1; @z = $v; $w = @z; let $u; $u = $w; @y = $u;", &[]), "@y: 1\n@z: 1\n");
    // A distribution is neither an integer nor a pointer.
    assert_tried!(once("@h = hist(1); print((is_integer(@h), is_ptr(@h))); clear(@h);", &[]), "(0, 0)\n");
    let later = "if (is_str(@v)) { @y = \"text\"; } else { @y = 1; } @v = \"a\"; print(@y); clear(@y); clear(@v);";
    assert_tried!(once(later, &[]), "@y: text\n");
}

#[test]
fn bytes_are_swapped_within_the_width_of_a_number() {
    assert_values(&[
        ("bswap(0x0102030405060708) == 0x0807060504030201", "1"),
        ("bswap((u16)0x1234) == 0x3412", "1"),
        ("bswap((u32)arg1 + 0) == 0x300000000000000", "1"),
        ("bswap((u32)arg1) == 0x3000000", "1"),
        ("bswap((s16)arg2)", "65535"),
        ("bswap((u16)arg3)", "128"),
        ("bswap((u8)arg0)", "10"),
        ("bswap(arg3) == 0x80000000000000", "1"),
        ("bswap(bswap(arg3 * arg1 + 0x123456789abcdef)) - arg3 * arg1 == 0x123456789abcdef", "1"),
    ]);
    // A variable has 8 bytes, whatever it was set to, and so has a block or a macro whose value it is.
    let same = "macro same($v) { $v } kprobe:f { $a = *(u16 *)0x8000; print(bswap(same($a)) == bswap($a)); \
        $b = *(u16 *)0x8000; print(sizeof({ $b })); $c = *(u16 *)0x8000; print(sizeof(1 ? $c : 0)); }";
    assert_tried!(printed(same, &[&[]]), "1\n8\n8\n");
    let wide = "macro wide(p) { (u64)*(u16 *)p } kprobe:f { \
        print(bswap(wide(0x8000)) == bswap((u64)*(u16 *)0x8000)); print(sizeof({ (u64)*(u16 *)0x8000 })); \
        print(sizeof({ *(u16 *)0x8000 })); print(sizeof(0 ? 1 : *(u16 *)0x8000)); }";
    assert_tried!(printed(wide, &[&[]]), "1\n8\n2\n8\n");
}

#[test]
fn bytes_are_shown_as_characters_or_numbers() {
    for (body, shown) in tried([
        ("print(buf(0x8007, 3));", "g\\x00o\n"),
        (
            "printf(\"%r|%rx|%rh|\", buf(0x8018, 3), buf(0x8018, 3), buf(0x8018, 3));",
            " \\xff\\xfe|\\x20\\xff\\xfe|20 ff fe|",
        ),
        ("printf(\"%-8r|%4rh\", buf(0x8000, arg0 - 8), buf(0x8000, 1));", "a       |  61"),
        ("print(len(buf(0x8000, 9))); print(buf(0x8000, 4) == buf(0x8000, arg1)); @ = buf(0x8000, 1);", "9\n1\n@: a\n"),
        ("print(buf(0x803e, 8));", ".?\n1 read of memory failed, and gave 0\n"),
        (
            "print(buf(\"ok_key\", 8)); print(buf(comm, 3)); @[buf(\"hi\", 2), 1] = 1;",
            "ok_key\\x00\\x00\nwor\n@[hi, 1]: 1\n",
        ),
        ("print(buf(\"a string\", 3) == buf(0x8000, 3)); print(len(buf(\"a\", 128)));", "1\n128\n"),
        ("print(arg0 ? buf(\"hi\", 2) : buf(\"bye\", 3)); print(buf(comm, 8) == buf(\"worker\", 8));", "hi\n1\n"),
    ]) {
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
fn tuples_are_values_keys_and_parts() {
    assert_values(&[
        ("(1, 2)", "(1, 2)"),
        ("(1, \"a\", (func, comm))", "(1, a, (blk::submit, worker))"),
        ("()", "()"),
        ("((), (arg0, ()), ((),))", "((), (10, ()), ((),))"),
        ("(() == (), (arg0, ()) != (10, ()))", "(1, 0)"),
        ("(1, (2, 3)).1.0", "2"),
        ("(1, \"a\").1", "a"),
        ("(1, \"a\") == (1, \"a\")", "1"),
        ("(1, \"a\") != (1, \"a string that is longer\")", "1"),
        ("(1, \"a\") == (arg0, comm)", "0"),
        ("(arg0, comm) == (10, \"worker\")", "1"),
        ("(arg0 ? (1, 2) : (3, 4)).1", "2"),
    ]);
    let body = "@x[1, 2] = 3; @x[(1, 2)]++; $k = (4, 5); @x[$k] = 9; @x[(4, 5)]++; print(@x[1, 2]); print(has_key(@x, (4, 5))); \
        delete(@x, (1, 2)); delete(@x[$k]); @x[7, 8] = 1;";
    assert_tried!(once(body, &[]), "@x[1, 2]: 4\n1\n@x[7, 8]: 1\n");
    assert_tried!(once("@n[1, (2, \"a\")] = count();", &[]), "@n[1, (2, a)]: 1\n");
    let empty = "let $e; $e = (); @a = $e; @b[()]++; @b[@a]++; @c[(), 1] = (3, ()); @c[@c[$e, 1].1, 2] = (4, @a);";
    assert_tried!(once(empty, &[]), "@a: ()\n@b[()]: 2\n@c[(), 1]: (3, ())\n@c[(), 2]: (4, ())\n");
    // The longest string that is assigned to a map or a declared variable determines the type.
    assert_tried!(
        once("@t = (1, \"a\"); @t = (2, \"much longer\"); print(@t.1);", &[]),
        "much longer\n@t: (2, much longer)\n"
    );
    assert_tried!(
        once("@t[1] = (1, \"much longer\"); @t[2] = (2, \"a\"); $t = @t[2]; print($t); clear(@t);", &[]),
        "(2, a)\n"
    );
    assert_tried!(once("let $t; if (arg0) { $t = (1, \"b\"); } print($t);", &[1]), "(1, b)\n");
    assert_tried!(once("$t = (1, 2); $t = (3, 4); printf(\"%s %d\\n\", $t, $t.0);", &[]), "(3, 4) 3\n");
}

#[test]
fn a_choice_has_room_for_either_value() {
    let long = "x".repeat(100);
    let text = format!("print(arg0 ? \"{long}\" : \"none\"); print(arg0 ? \"none\" : \"{long}\");");
    for (body, shown) in tried([
        (text.as_str(), format!("{long}\nnone\nnone\n{long}\n").as_str()),
        ("print(strcap(arg0 ? \"a\" : \"b\"));", "63\n63\n"),
        (
            "$a = arg0 ? (\"hellolongstr\", \"a\") : (\"b\", \"hellolongstr\"); print($a);",
            "(hellolongstr, a)\n(b, hellolongstr)\n",
        ),
        (
            "@t = arg0 ? (1, (\"a\",)) : (2, (\"much longer\",)); $t = @t; print($t); clear(@t);",
            "(1, (a,))\n(2, (much longer,))\n",
        ),
        ("print(arg0 ? buf(0x8000, 8) : buf(0x8000, 16));", "a string\na string\\x00of 63 b\n"),
        ("print(arg0 ? buf(0x8000, 16) : buf(0x8000, arg0 + 2));", "a string\\x00of 63 b\na \n"),
        ("print(1 ? (\"a\", arg0) : (\"much longer\", 1));", "(a, 1)\n(a, 0)\n"),
    ]) {
        assert_eq!(printed(&format!("kprobe:f {{ {body} }}"), &[&[1], &[0]]), shown, "{body}");
    }
    for body in tried([
        "print(arg0 ? (1, \"a\") : (1, 2));",
        "print(arg0 ? (1, \"a\") : (1, \"a\", 2));",
        "print(arg0 ? (a=1, b=2) : (a=1, c=2));",
        "print(1 ? (1, \"a\") : (1, 2));",
    ]) {
        let reason = refused(&format!("kprobe:f {{ {body} }}"));
        assert!(
            reason.ends_with("\nthe two tuples differ in the number, the names or the types of their parts"),
            "{reason}"
        );
    }
    let stacks = refused("kprobe:f { print(arg0 ? kstack(perf) : kstack(raw)); }");
    assert!(stacks.ends_with("\nthe two stacks have different modes"), "{stacks}");
    // Each value is compiled once, however deep the choices are nested.
    let depth = if cfg!(miri) { 3 } else { 18 };
    let chain: String = (0..depth).map(|number| format!("arg0 == {number} ? \"{number}\" : ")).collect();
    assert_tried!(once(&format!("print({chain}\"other\");"), &[2]), "2\n");
    assert_tried!(once(&format!("print({chain}\"other\");"), &[99]), "other\n");
}

#[test]
fn tuples_are_refused_where_they_are_wrong() {
    for (body, marks, sentence) in tried([
        ("print((1, 2).2);", "      ^^^^^^^^", "this has to be from 0 to 1"),
        ("print(().0);", "      ^^^^", "the empty tuple has no parts"),
        ("print(5.0);", "      ^^^", "numbers are integers, in bpftrace, too: there is no floating-point arithmetic"),
        ("print((1, 2) + 1);", "      ^^^^^^", "this is a tuple, but an integer is expected"),
        (
            "print((1, 2) == (1, 2, 3));",
            "      ^^^^^^^^^^^^^^^^^^^",
            "the two tuples differ in the number, the names or the types of their parts",
        ),
        ("@x = (1, 2); @x = (1, comm);", "             ^^", "this map is set to another type elsewhere"),
        (
            "@x[1, (1, 2)] = 1; @x[1, (1, comm)] = 1;",
            "                         ^^^^^^^^^",
            "this is a tuple of another type than in the key of this map elsewhere",
        ),
        ("$x = (1, \"a\"); $x = (1, comm);", "                    ^^^^^^^^^", "this is a tuple of another type"),
    ]) {
        assert_eq!(
            refused(&format!("kprobe:f {{ {body} }}")),
            format!("kprobe:f {{ {body} }}\n           {marks}\n{sentence}")
        );
    }
}

#[test]
fn tuples_are_nested_to_a_depth() {
    // Each statement nests one level, so the text is not nested.
    let nested = |depth: usize, text: &str| {
        let next = |all: String, level: usize| format!("{all} $t{} = ($t{level},);", level + 1);
        (1..depth).fold(format!("$t1 = (\"{text}\",);"), next)
    };
    let most = usize::from(TUPLE_DEPTH_MAX);
    let shown = format!("{}a{}", "(".repeat(most), ",)".repeat(most));
    assert_tried!(once(&format!("{} print($t{most});", nested(most, "a")), &[]), format!("{shown}\n"));
    // Both types of the map are as deep, and so is their common one.
    let longer = "longer than a word";
    assert_tried!(
        once(&format!("{{ {} @ = $t{most}; }} {} @ = $t{most};", nested(most, longer), nested(most, "a")), &[]),
        format!("@: {shown}\n")
    );
    for depth in tried([most + 1, 200]) {
        let refused = refused(&format!("kprobe:f {{ {} }}", nested(depth, "a")));
        let mark = format!("\n{}^", " ".repeat(format!("kprobe:f {{ {} $t9 = ", nested(most, "a")).len()));
        assert!(refused.contains(&mark), "{refused}");
        assert!(refused.ends_with("\ntuples and records are nested at most 8 deep"), "{refused}");
    }
    let loops = format!("BEGIN {{ {} @[1] = $t{most}; for ($kv : @) {{ }} }}", nested(most, "a"));
    assert!(refused(&loops).ends_with("\ntuples and records are nested at most 8 deep"));
    let record = format!("kprobe:f {{ {} print((x = $t{most})); }}", nested(most, "a"));
    assert!(refused(&record).ends_with("\ntuples and records are nested at most 8 deep"));
}

#[test]
fn records_are_tuples_whose_parts_have_names() {
    for (body, shown) in tried([
        (
            "$a = (color=\"green\", size=2); print($a); print($a.size); print($a.0);",
            "{ .color = green, .size = 2 }\n2\ngreen\n",
        ),
        ("$a = (x=1, y=(z=\"in\", w=3)); print($a.y.z); print(($a.y.w + 1, $a.x));", "in\n(4, 1)\n"),
        (
            "@r[(a=1, b=2)] = (n=\"one\", v=arg0); @r[(a=1, b=2)] = (n=\"another one\", v=2); print(@r[(a=1, b=2)].n); clear(@r);",
            "another one\n",
        ),
        ("$r = (a=1, b=\"two\"); @r[$r] = 3; print(has_key(@r, $r));", "1\n@r[{ .a = 1, .b = two }]: 3\n"),
        (
            "@r[(a=1, b=\"much longer\")] = 1; @r[(a=arg0, b=\"b\")]++; delete(@r, (a=1, b=\"much longer\"));",
            "@r[{ .a = 3, .b = b }]: 1\n",
        ),
        ("print((1,)); $t = (\"alone\",); print($t.0);", "(1,)\nalone\n"),
        (
            "print(config.max_strlen); print(config().stack_mode); print((config.missing_probes, 1));",
            "63\nbpftrace\n(error, 1)\n",
        ),
        ("print({ (k=7) }.k);", "7\n"),
        ("$r = (a=1, b=2); $s = (a=3, b=4); print((arg0 ? $r : $s).a); print((arg0 ? $r : $s).b + 1);", "1\n3\n"),
        // The parts may come in another order. The first one stays.
        (
            "$a = (color=\"green\", size=2); $b = (size=arg0, color=\"red\"); $a = $b; print($a); print($b);",
            "{ .color = red, .size = 3 }\n{ .size = 3, .color = red }\n",
        ),
        (
            "@r[(a=1, b=2)] = (c=1, d=(e=2, f=\"in\")); @r[(b=2, a=1)] = (d=(f=\"longer than 7\", e=4), c=3);",
            "@r[{ .a = 1, .b = 2 }]: { .c = 3, .d = { .e = 4, .f = longer than 7 } }\n",
        ),
        ("let $r; $r = (a=1, b=\"one\"); $r = (b=\"much longer\", a=2); print(($r.0, $r.b));", "(2, much longer)\n"),
        ("print(((a=1, b=\"x\") == (b=\"x\", a=1), (a=1, b=2) == (b=1, a=2)));", "(1, 0)\n"),
        (
            "print(arg0 ? (a=4, b=5) : (b=6, a=7)); print(arg0 == 4 ? (a=4, b=5) : (b=6, a=7));",
            "{ .a = 4, .b = 5 }\n{ .a = 7, .b = 6 }\n",
        ),
        ("print((string=\"a\", long=2));", "{ .string = a, .long = 2 }\n"),
        (
            "$r = (u8=1, typeof=(int32=2)); print($r); print($r.typeof.int32 + (u8)$r.u8);",
            "{ .u8 = 1, .typeof = { .int32 = 2 } }\n3\n",
        ),
    ]) {
        assert_eq!(once(body, &[3]), shown, "{body}");
    }
    for (body, why) in tried([
        ("$a = (x=1, x=2);", "the parts of a record have different names"),
        ("$a = (x=1, y=2); print($a.z);", "the record has no part of this name"),
        ("$a = (x=1); $a = (y=1);", "of another type"),
        ("$a = (x=1, y=2); $a = (3, 4);", "of another type"),
        ("$a = (3, 4); $a = (x=1, y=2);", "of another type"),
        ("$a = 1; print($a.z);", "bpftrace's `.` is not supported"),
        ("print((arg0 ? 1 : 2).z);", "bpftrace's `.` is not supported"),
        ("$a = (x=1, y);", "a `=` is expected here"),
        ("@r[(a=1, b=2)] = 1; print(@r[1, 2]);", "the key of this map has 1 part elsewhere"),
        ("print(config.colors);", "this setting is unknown"),
    ]) {
        let program = format!("kprobe:f {{ {body} }}");
        assert!(refused(&program).contains(why), "{program}: {}", refused(&program));
    }
}

#[test]
fn addresses_of_networks_are_shown_and_read() {
    for (body, shown) in tried([
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
        ("$n = 4; print(memcmp(0x8000, 0x8000, $n++)); print($n);", "0\n5\n"),
        (
            "print((memcmp(\"abc\", \"abd\", 2), memcmp(\"abc\", \"abd\", 3), memcmp(\"ab\", \"abc\", 3)));",
            "(0, 1, 1)\n",
        ),
        (
            "print((ntop(pton(\"fe80::1\")), ntop(10, pton(\"::1\")), ntop(pton(\"10.0.2.15\"))));",
            "(fe80::1, ::1, 10.0.2.15)\n",
        ),
        ("@d[1] = 2; print((delete(@d, 1), delete(@d, 1), len(@d)));", "(1, 0, 0)\n"),
        ("print((reg(\"r0\"), reg(\"x0\")));", "(3, 3)\n"),
    ]) {
        assert_eq!(once(body, &[3]), shown, "{body}");
    }
    for (body, why) in tried([
        ("print(pton(\"10.0.2\"));", "an address is written as in pton"),
        ("print(ntop(3, 1));", "an address is a number of 4 bytes"),
        ("print(ntop(2, pton(\"::1\")));", "an address is a number of 4 bytes"),
        ("$a = (1, 2); $a = (1, \"x\");", "this is a tuple of another type"),
        (
            "$a = pton(\"::1\"); $a = pton(\"10.0.0.1\");",
            "this is an integer, but an address of the internet is expected",
        ),
        ("print(macaddr(arg0) + 1);", "this is an address of a network card, but an integer is expected"),
        ("print(line(func) + 1);", "this is a line of source, but an integer is expected"),
        ("print(ntop(1) == comm);", "an address of the internet and a string cannot be combined"),
        (
            "print(ntop(1) == pton(\"::1\"));",
            "the right value is an address of the internet of another type than the left one",
        ),
        (
            "@x[ntop(1)] = 1; @x[pton(\"::1\")] = 1;",
            "this is an address of the internet of another type than in the key",
        ),
        ("printf(\"%d\", ntop(1));", "this is an address of the internet, but its conversion is for an integer"),
        ("print(ntop(10, 1));", "an address is a number of 4 bytes"),
        ("print(offsetof(arg0, x));", "a struct is expected here"),
        ("print(macaddr(comm));", "expected"),
    ]) {
        let program = if body.starts_with("BEGIN") { format!("{body} }}") } else { format!("kprobe:f {{ {body} }}") };
        assert!(refused(&program).contains(why), "{program}: {}", refused(&program));
    }
    for (probe, like) in tried([
        ("fentry:blk::*", "kprobe:blk::*"),
        ("f:f", "kprobe:f"),
        ("fexit:f", "kretprobe:f"),
        ("rawtracepoint:sched:x", "tracepoint:sched:x"),
        ("first=kprobe:f", "kprobe:f"),
    ]) {
        assert_eq!(crate::syntax::parse(&format!("{probe} {{ }}")).unwrap().to_string(), format!("{like} {{ }}"));
    }
}

#[test]
fn integers_are_cast_to_arrays_and_back() {
    for (body, shown) in tried([
        ("$a = (int8[8])12345; printf(\"%x %x\\n\", $a[0], $a[1]); printf(\"%d\\n\", (uint64)$a);", "39 30\n12345\n"),
        (
            "print((u8[2])(u16)0x1234); print((s8[])(u32)0xff); @a = (u16[4])arg0;",
            "[52, 18]\n[-1, 0, 0, 0]\n@a: [3, 0, 0, 0]\n",
        ),
        ("print((u32)(u8[4])(u32)arg1 == (u32)arg1); print((u16[])(u8[4])(u32)0x10002);", "1\n[2, 1]\n"),
        ("print((sizeof(u32[10]), sizeof((u8[4])(u32)1), is_array((u8[8])1), is_array(1)));", "(40, 4, 1, 0)\n"),
        ("print((u8[4])(u32)pton(\"10.0.2.15\") == (u8[4])(u32)0x0f02000a); print(((u8[8])(u64)7)[0] + 1);", "1\n8\n"),
        ("let $x: u8[2] = (u16)513; print($x); $x = (u8[2])(u16)1; print($x[1]);", "[1, 2]\n0\n"),
        (
            "$a = (u8[2])(u16)513; @x[$a] = 1; @x[$a]++; print(has_key(@x, $a)); @y[$a, 3] = @x[(u8[2])(u16)513];",
            "1\n@x[[1, 2]]: 2\n@y[[1, 2], 3]: 2\n",
        ),
        ("let $x: u8[2]; print($x); let $y: u32[2]; print($y);", "[0, 0]\n[0, 0]\n"),
        ("@x[(u8[4])(u32)arg0] = 1; delete(@x, (u8[4])(u32)arg0);", ""),
        ("$a = (u16[])arg1; print((len((u8[4])(u32)arg0), len($a), len((u64[1])arg0)));", "(4, 4, 1)\n"),
        ("$a = (uint64[1])arg0; print($a); $b = (int64[])arg1; print((uint64)$a + 1);", "[3]\n4\n"),
        (
            "$v = arg1; $a = (u8[8])$v; print((sizeof($a[0]), sizeof($a[7]), bswap($a[7]))); print((u8[])$a[7]);",
            "(1, 1, 136)\n[136]\n",
        ),
    ]) {
        assert_eq!(once(body, &[3, 0x8877_6655_4433_2211]), shown, "{body}");
    }
    for (body, why) in tried([
        ("$a = (u8[4])arg0;", "this value has 8 bytes, and the type 4"),
        ("$a = (u32)(u8[2])(u16)1;", "this value has 2 bytes, and the type 4"),
        ("$a = (u8[0])arg0;", "this value has 8 bytes"),
        ("$a = (u32[])(u16)1;", "this value has 2 bytes, and the type 4"),
        ("print(sizeof(u32[]));", "the number of elements is missing here"),
        ("$a = (u8[4])comm;", "expected"),
    ]) {
        let program = format!("kprobe:f {{ {body} }}");
        assert!(refused(&program).contains(why), "{program}: {}", refused(&program));
    }
}

#[test]
fn times_are_nanoseconds_and_shown_by_a_format() {
    assert_values(&[
        ("1s", "1000000000"),
        ("5ms + 10us + 1ns", "5010001"),
        ("1m + 1h + 1d", "90060000000000"),
        ("1_000us", "1000000"),
        ("true + true + false", "2"),
        ("strftime(\"%H:%M:%S|%f\", 1h + 2m + 3s + 4us)", "01:02:03|000004"),
    ]);
    assert_tried!(
        once("printf(\"%s,%5d\\n\", strftime(\"%S\", arg0), 7); @ = strftime(\"%T\", 61s);", &[9_000_000_000]),
        "09,    7\n@: 00:01:01\n"
    );
    assert_tried!(once("time(\"%s\\n\"); time();", &[]), "0\n00:00:00\n");
}

#[test]
fn casts_cut_and_extend() {
    assert_values(&[
        ("(u8)arg2", "255"),
        ("(s8)arg2", "-1"),
        ("(uint16_t)arg2", "65535"),
        ("(int32)arg2", "-1"),
        ("(u32)(arg2 << 4)", "4294967280"),
        ("(u8)300", "44"),
        ("(u64)-1", "18446744073709551615"),
    ]);
}
