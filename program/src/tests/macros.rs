//! Macros.

use std::format;

use super::machine::{assert_refused, printed, refused};
use super::tried;
use kprobes_random::{assert_tried, tried::is_tried};

#[test]
fn macros_see_nothing_of_their_callers_but_their_parameters() {
    let macros = "macro one() { 1 } macro add_one(x) { x + 1 } macro add_two(x) { add_one(x) + 1 } \
        macro each($a, @b) { $a += 1; @b += 1; } macro thrice(x) { x; x; x; } macro to_pointer(a, b) { (a*)b } \
        macro own() { let $a = 50; $a += 1; $a } macro own(x) { let $x = x; $x * $x } macro entry(@b, k) { @b[k] = k; } \
        macro typed(x) { let $v; $v = x; $v } \
        macro unused(x, y) { 1 } macro passed(x) { unused(x, x) } \
        macro say(x) { x ? printf(\"yes\\n\") : printf(\"no\\n\") }";
    for (body, shown) in tried([
        ("print(one()); print(one); print(one + one);", "1\n1\n2\n"),
        ("$a = 10; print(add_one($a)); print(add_one(1 + 1) * 2);", "11\n6\n"),
        ("$a = 10; @b = 5; each($a, @b); print($a + @b); clear(@b);", "17\n"),
        ("thrice({ printf(\"hi\") }); print(add_two(1));", "hihihi3\n"),
        ("printf(\"%x\", to_pointer(typeof(u8), 255) + 1);", "100"),
        ("$a = 1; print(own()); print($a); $x = 3; print(own($x + 1)); print($x);", "51\n1\n16\n3\n"),
        ("$i = 0; thrice({ $i += add_one($i) }); print($i);", "7\n"),
        (
            "print(typed(1) + typed(2)); print(typed(\"text\")); print(typed(\"a longer text\"));",
            "3\ntext\na longer text\n",
        ),
        ("print(unused(1 + 1, typeof(u8 *))); print(unused(\"text\", $a)); print(passed(typeof(u8 *)));", "1\n1\n1\n"),
        ("say(1); say(0); say(cpu); say(cpu == 0);", "yes\nno\nno\nyes\n"),
        ("entry(@c, 7); @c[7] = add_one(@c[7]); print(@c[7]); clear(@c);", "@c[7]: 8\n"),
    ]) {
        assert_eq!(printed(&format!("{macros} kprobe:f {{ {body} }}"), &[&[]]), shown, "{body}");
        // A macro may stand after its use.
        assert_eq!(printed(&format!("kprobe:f {{ {body} }} {macros}"), &[&[]]), shown, "{body}");
    }
    assert_refused(&[
        ("macro a() { @x++; } BEGIN { a(); }", "a macro uses only maps that are its parameters"),
        ("macro a($x) { $x++; } BEGIN { @x = 1; a(@x); }", "this macro expects a variable here"),
        ("macro a($x) { $x++; } BEGIN { a(1 + 1); }", "this macro expects a variable here"),
        ("macro a(@x) { @x++; } BEGIN { a(1); }", "a map is expected here"),
        ("macro a() { b() } macro b() { a() } BEGIN { print(a()); }", "a macro cannot call itself"),
        ("macro a(x) { x } macro a(y) { y } BEGIN { print(a(1)); }", "there is another macro with this name"),
        (
            "macro a($x, $x) { $x } BEGIN { $y = 1; print(a($y, $y)); }",
            "the parameters of a macro have different names",
        ),
        ("macro a(x) { x } BEGIN { print(a()); }", "this function takes 1 argument"),
        ("macro a($x) { print($y); } BEGIN { $y = 1; a($y); }", "this variable is not set yet"),
        ("macro a(x) { x } BEGIN { print(a(1 2)); }", "a `,` is expected here"),
        ("macro a(x) { x } BEGIN { $x = 1; print(a($x = 5)); }", "a `,` is expected here"),
        ("macro a(x) { x } BEGIN { print(a(,)); }", "a value is expected here"),
        ("macro a(x, y) { x } BEGIN { print(a(1,)); }", "a value is expected here"),
        ("macro a(x) { (x)1 } BEGIN { print(a(typeof(u8) 2)); }", "a `,` is expected here"),
        // An argument is checked whether the block uses it or not.
        ("macro c(x) { 1 } BEGIN { print(c(1 2)); }", "a `,` is expected here"),
        ("macro c(x) { 1 } BEGIN { print(c(+)); }", "a value is expected here"),
        ("macro c(x) { 1 } BEGIN { print(c(typeof(u8) 2)); }", "a `,` is expected here"),
        ("macro c(x) { 1 } macro d(y) { c(y 2) } BEGIN { print(d(1)); }", "a `,` is expected here"),
        ("macro 7() { } BEGIN { }", "a macro is written as macro name"),
        ("macro a(1) { } BEGIN { }", "a macro is written as macro name"),
        ("macro a(x) { 1 BEGIN { }", "this block is not closed"),
        (
            "macro a(x) { x + x } macro b(x) { a(a(a(x))) } BEGIN { $s = b(b(b(1))); print(b($s)); }",
            "this is nested too deeply",
        ),
    ]);
    // The argument is in the text after the block that it is compared in.
    if is_tried() {
        let marks = format!("\n{:38}^^^^\n", "");
        let text = refused("macro m(x) { x == 1 } BEGIN { print(m(comm)); }");
        assert!(text.contains(&marks), "{text}");
    }
    // A builtin stays one where it has another number of arguments than the macro of its name.
    let builtins = "macro tid(x) { x + tid } macro len(a, b) { len(a) + len(b) } \
        kprobe:f { print((tid(1) == tid + 1, tid() == tid, len(\"a\", \"bc\"))); }";
    assert_tried!(printed(builtins, &[&[]]), "(1, 1, 3)\n");
    // A use of an argument counts once, also where it might be a type.
    let casts = format!("macro m(x){{{}x}}BEGIN{{print(m(1));}}", "$a=(x);".repeat(505));
    assert_tried!(printed(&casts, &[&[]]), "1\n");
    let many = "macro m(x) { (x, x, x, x, x, x, x, x, x, x) } BEGIN { print(m(m(m(1)))); }";
    if is_tried() {
        let text = refused(many);
        assert!(text.contains("macros are called, and their arguments used, at most 1000 times"), "{text}");
    }
    // Each use of the argument parses all of it.
    let long = format!(
        "macro many(x) {{ (x, x, x, x, x, x, x, x, x, x) }} kprobe:f {{ print(many(many(({}1)))); }}",
        "1,".repeat(83)
    );
    if is_tried() {
        let text = refused(&long);
        assert!(text.contains("the program has more than 16384 words and signs"), "{text}");
    }
}

#[test]
fn macros_may_follow_settings() {
    let program = "config = { max_strlen = 5 }; macro one() { 1 } kprobe:f { print(one()); }";
    assert_eq!(printed(program, &[&[]]), "1\n");
}
