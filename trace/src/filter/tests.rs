//! Filters: parsing, errors with the words and columns of Linux, and evaluation.

use super::*;
use crate::hit::action::tests::Hit;
use alloc::string::ToString;
use kprobes_random::Random;
use kprobes_random::assert_tried;
use kprobes_random::tried::{one_character_off, tried};

/// The functions `f` and `<a<b, c> as d>::f`, and two that are `g`.
const FUNCTIONS: FindFunction = FindFunction {
    named: |name, each| match name {
        "f" => each(0x1000..0x1010),
        "<a<b, c> as d>::f" => each(0x8000_0000_0000_0000..0x8000_0000_0000_0008),
        "g" => (0..2).for_each(|number| each(0x2000 + number..0x2000 + number + 1)),
        _ => {}
    },
    at: |address| (0x1000..0x1010).contains(&address).then_some(0x1000..0x1010),
};

fn accepts(filter: &str, hit: &Hit) -> bool {
    let parsed = Filter::parse(filter, hit.fields(), FUNCTIONS).unwrap_or_else(|error| panic!("{filter}: {error:?}"));
    assert_eq!(parsed.to_string(), filter.trim());
    hit.accepted_by(&parsed)
}

fn refused(filter: &str) -> (Problem, usize) {
    let error = Filter::parse(filter, Hit::new().fields(), FUNCTIONS).expect_err(filter);
    (error.problem, error.column)
}

#[test]
fn numbers_are_compared_with_their_sign_and_width() {
    let hit = Hit::new();
    for (filter, expected) in tried([
        ("u == 200", true),
        ("u==0xc8", true),
        ("u == 0310", true),
        ("u != 200", false),
        ("u < 201 ", true),
        ("u <= 200", true),
        ("u > 199", true),
        ("u >= 201", false),
        ("u & 0x8", true),
        ("u & 0x7", false),
        ("u == 456", true),
        ("s == -3", true),
        ("s < 0", true),
        ("s > 0xffff", false),
        ("s >= -3", true),
        ("x > 0x7fffffffffffffff", true),
        ("common_pid == 7", true),
        ("cpu == 2", true),
        ("cpu > -1 && cpu != -1", true),
        ("CPU != 2", false),
        ("__probe_ip == 0x1000", true),
    ]) {
        assert_eq!(accepts(filter, &hit), expected, "{filter}");
    }
}

#[test]
fn an_address_is_in_a_function_or_not() {
    // The hit is at 0x1000, and `x` is 0x8000000000000000.
    let hit = Hit::new();
    for (filter, expected) in tried([
        ("__probe_ip.function == f", true),
        ("__probe_ip.function==f&&u == 200", true),
        ("(__probe_ip.function == f)", true),
        ("__probe_ip.function != f", false),
        ("x.function == f || u == 1", false),
        ("x.function == <a<b, c> as d>::f", true),
        ("x.function == '<a<b, c> as d>::f' && s < 0", true),
        ("!(x.function == \"f\")", true),
        ("__probe_ip.function == 0x100f", true),
        ("x.function != 4096", true),
    ]) {
        assert_eq!(accepts(filter, &hit), expected, "{filter}");
    }
    for (filter, problem, caret) in tried([
        ("__probe_ip.function == h", Problem::FunctionNotFound, "                         ^"),
        ("__probe_ip.function == g", Problem::FunctionNotUnique, "                         ^"),
        ("__probe_ip.function == 0x1010", Problem::FunctionNotFound, "                              ^"),
        ("__probe_ip.function == 0xg", Problem::InvalidValue, "                           ^"),
        ("__probe_ip.function > f", Problem::InvalidOperator, "                       ^"),
        ("__probe_ip.function ~ 'f'", Problem::InvalidOperator, "                       ^"),
        ("u.function == f", Problem::IllegalOperation, "               ^"),
        ("t.function == f", Problem::IllegalOperation, "               ^"),
        ("u.functional == f", Problem::InvalidOperator, "  ^"),
    ]) {
        assert_eq!(refused(filter), (problem, caret.len() - 1), "{filter}");
    }
}

#[test]
fn a_number_is_a_cpu_of_a_list_or_not() {
    // The hit is on CPU 2, `u` is 200, and `s` is -3.
    let hit = Hit::new();
    for (filter, expected) in tried([
        ("cpu & CPUS{2}", true),
        ("cpu & CPUS{0-1,3-255}", false),
        ("cpu&CPUS{0,2-3}&&u == 200", true),
        ("common_cpu & CPUS{all}", true),
        ("cpu & CPUS{0-7:1/2}", true),
        ("cpu & CPUS{1-7:1/2}", false),
        ("cpu & CPUS{0-7:2/4, 2}", true),
        ("cpu & CPUS{0-3:0/1}", false),
        ("cpu & CPUS{0-3:1/1024}", false),
        ("cpu & CPUS{2-N}", true),
        ("cpu & CPUS{ALL}", true),
        ("cpu & CPUS{1\t2}", true),
        ("cpu & CPUS{,}", false),
        ("cpu == CPUS{,}", false),
        ("cpu != CPUS{,}", true),
        ("s != CPUS{2-3}", false),
        ("s != CPUS{2}", true),
        ("!(cpu & CPUS{0-1,2}) || cpu & CPUS{9}", false),
        ("(cpu & CPUS{0,1,4} || u == 200) && cpu & CPUS{0,2}", true),
        ("cpu == CPUS{2}", true),
        ("cpu == CPUS{2,3}", false),
        ("cpu == CPUS{3}", false),
        ("cpu != CPUS{2}", false),
        ("cpu != CPUS{2-3}", true),
        ("cpu != CPUS{3}", true),
        ("u & CPUS{199-201}", true),
        ("s & CPUS{all}", false),
    ]) {
        assert_eq!(accepts(filter, &hit), expected, "{filter}");
    }
    for (filter, problem, caret) in tried([
        ("cpu < CPUS{2}", Problem::IllegalOperation, "       ^"),
        ("t & CPUS{2}", Problem::IllegalOperation, "     ^"),
        ("cpu ~ CPUS{2}", Problem::IllegalOperation, "       ^"),
        ("cpu & CPUS2}", Problem::MissingBraceOpen, "            ^"),
        ("cpu & CPUS{2", Problem::MissingBraceClose, "             ^"),
        ("cpu & CPUS{}", Problem::InvalidCpuList, "            ^"),
        ("cpu < CPUS2}", Problem::IllegalOperation, "       ^"),
        ("cpu < CPUS{9-1}", Problem::IllegalOperation, "       ^"),
        ("cpu & CPUS{3-2} && u == 1", Problem::InvalidCpuList, "               ^"),
        ("cpu & CPUS{256}", Problem::InvalidCpuList, "               ^"),
        ("cpu & CPUS{0-9:2/1}", Problem::InvalidCpuList, "                   ^"),
        ("cpu & CPUS{0-9:1/0}", Problem::InvalidCpuList, "                   ^"),
        ("cpu & CPUS{5:1/2}", Problem::InvalidCpuList, "                 ^"),
        ("cpu & CPUS{+1}", Problem::InvalidCpuList, "              ^"),
    ]) {
        assert_eq!(refused(filter), (problem, caret.len() - 1), "{filter}");
    }
}

#[test]
fn lists_of_cpus_cannot_make_a_filter_long() {
    let list = "cpu & CPUS{0-N:1/2}";
    let several = |count: usize| alloc::vec![list; count].join(" || ");
    assert_tried!(refused(&several(9)), (Problem::TooManyTests, several(8).len() + 4));
    assert_tried!(accepts(&several(8), &Hit::new()), true);
}

#[test]
fn texts_are_compared_whole_or_by_a_pattern() {
    let hit = Hit::new();
    for (filter, expected) in tried([
        ("t == \"hello.rs\"", true),
        ("t == 'hello.r'", false),
        ("t != 'hello'", true),
        ("t ~ \"hello*\"", true),
        ("t ~ \"*.rs\"", true),
        ("t ~ \"*llo*\"", true),
        ("t ~ \"h?l*o.[r-t]s\"", true),
        ("t ~ \"h?l*o.[!r-t]s\"", false),
        ("t ~ \"*l*l*l*\"", false),
        ("t ~ \"!*.rs\"", false),
        ("t ~ \"hello\\.rs\"", true),
        ("t ~ \"*[-]*\"", false),
        ("t ~ \"*[a-]*\"", false),
        ("t ~ \"*[]o]*\"", true),
        ("t ~ \"[\"", false),
        ("t ~ \"\"", false),
        ("t.ustring == \"hello.rs\"", true),
        ("t.ustring~'*.r'", false),
        ("u.ustring == 200", true),
        ("comm == \"main\"", true),
        ("comm ~ \"m*\"", true),
    ]) {
        assert_eq!(accepts(filter, &hit), expected, "{filter}");
    }
}

#[test]
fn operators_bind_as_in_c_and_nest() {
    let hit = Hit::new();
    let (t, f) = ("u==200", "u==1");
    for (pattern, expected) in tried([
        ("T&&T", true),
        ("T&&F", false),
        ("F||T", true),
        ("T || T && F", true),
        ("(T || T) && F", false),
        ("F && T || T", true),
        ("F && (T || T)", false),
        ("!F", true),
        ("!T", false),
        ("!!T", true),
        ("!(T && F)", true),
        ("!(T && !(F || T))", true),
        ("!F && !F", true),
        ("!(F || F) && T", true),
        ("((T))", true),
        ("F || F || !(T && T) || T", true),
        ("T && T && T && F || F", false),
        ("!( !( !( T ) ) )", false),
    ]) {
        let filter = pattern.replace('T', t).replace('F', f);
        assert_eq!(accepts(&filter, &hit), expected, "{filter}");
    }
}

/// Checks all formulas of four tests with every pair of parentheses against an evaluation of the text itself.
#[test]
fn every_small_formula_means_what_it_says() {
    let hit = Hit::new();
    let operators = ["&&", "||"];
    // The factor is odd, so each formula has its turn. It has bits of each part, so those that follow each other differ
    // in all parts.
    for number in tried((0..1024_u32).map(|turn| turn * 437 % 1024)) {
        let (bits, choice, negated) = (number & 15, number >> 4 & 7, number >> 7);
        let value = |index: u32| bits >> index & 1 == 1;
        let test = |index: u32| if value(index) { "u==200" } else { "u==1" };
        let operator = |index: u32| operators[(choice >> index & 1) as usize];
        let sign = |index: u32| if negated >> index & 1 == 1 { "!" } else { "" };
        let filter = alloc::format!(
            "{}{} {} {}({} {} {}{}) {} {}",
            sign(0),
            test(0),
            operator(0),
            sign(1),
            test(1),
            operator(1),
            sign(2),
            test(2),
            operator(2),
            test(3)
        );
        let apply = |operator: &str, one: bool, other: bool| if operator == "&&" { one && other } else { one || other };
        let not = |index: u32, value: bool| value != (negated >> index & 1 == 1);
        let middle = not(1, apply(operator(1), value(1), not(2, value(2))));
        let first = not(0, value(0));
        let expected = if operator(0) == "||" && operator(2) == "&&" {
            first || (middle && value(3))
        } else {
            apply(operator(2), apply(operator(0), first, middle), value(3))
        };
        assert_eq!(accepts(&filter, &hit), expected, "{filter}");
    }
}

#[test]
fn what_is_wrong_is_said_where_linux_says_it() {
    assert_tried!(refused("nofield == 1"), (Problem::FieldNotFound, 8));
    assert_tried!(refused("u = 1"), (Problem::InvalidOperator, 3));
    assert_tried!(refused("u == 'x'"), (Problem::ExpectDigit, 6));
    assert_tried!(refused("t == 5"), (Problem::ExpectString, 6));
    assert_tried!(refused("t < 'x'"), (Problem::IllegalOperation, 5));
    assert_tried!(refused("u ~ 5"), (Problem::IllegalOperation, 5));
    assert_tried!(refused("u == 5x"), (Problem::IllegalInteger, 6));
    assert_tried!(refused("u == -1"), (Problem::IllegalInteger, 6));
    assert_tried!(refused("u == 18446744073709551616"), (Problem::IllegalInteger, 6));
    assert_tried!(refused("u == 111111111111111111111111"), (Problem::OperandTooLong, 30));
    assert_tried!(refused("u == abc"), (Problem::InvalidValue, 6));
    assert_tried!(refused("u == "), (Problem::InvalidValue, 5), "behind the end");
    assert_tried!(refused("t == \"x"), (Problem::MissingQuote, 5));
    assert_tried!(refused("(u == 5"), (Problem::TooManyOpen, 0));
    assert_tried!(refused("u == 5)"), (Problem::TooManyClosed, 6));
    assert_tried!(refused("u == 5 t == 'x'"), (Problem::TooManyTests, 7));
    assert_tried!(refused("u == 5 & t == 'x'"), (Problem::TooManyTests, 7));
    assert_tried!(refused(""), (Problem::NoTest, 0));
    assert_tried!(refused("( () )"), (Problem::NoTest, 0));
    assert_tried!(refused("&& u == 5"), (Problem::MissingTest, 0));
    assert_tried!(refused("&&"), (Problem::MissingTest, 0));
    assert_tried!(refused("(u == 5 &&)"), (Problem::MissingTest, 0));
    assert_tried!(refused("! !"), (Problem::NoFilter, 3));
    assert_tried!(refused("t == '\u{e9}').").0, Problem::TooManyClosed);
}

/// The cases of `filter/event-filter-incomplete.tc` of Linux.
#[test]
fn an_operator_at_the_end_is_refused() {
    for base in ["u == 5", "u == 5 || u == 6", "u == 5 && u == 6", "!(u == 5 || u == 6)", "u == 5 || s < 0 && x > 1"] {
        for tail in tried(["&&", "||", "&& !", "|| !", "&&!", "&& !!", "|| !!"]) {
            let filter = format!("{base} {tail}");
            assert_eq!(refused(&filter), (Problem::Incomplete, filter.len()), "{filter}");
            let filter = format!("{filter} ");
            assert_eq!(refused(&filter), (Problem::Incomplete, filter.trim_end().len()), "{filter}");
        }
    }
}

#[test]
fn depth_costs_no_stack() {
    let hit = Hit::new();
    let depth = if cfg!(miri) { 50 } else { 1000 };
    let deep = alloc::format!("{}u==200{}", "!(".repeat(depth), ")".repeat(depth));
    assert!(accepts(&deep, &hit));
    let long = alloc::vec!["u==1"; depth / 2].join("||");
    assert!(!accepts(&long, &hit));
}

/// Every text is parsed, or refused with a column inside it or close to its end.
#[test]
fn noise_is_answered() {
    let words = [
        "u == 5", "t ~ '*x'", "u", "t", "s", "comm", "==", "!=", "~", "&", "&&", "||", "!", "(", ")", "'", "\"x\"",
        " ", "5", "-", "0x", "\u{e9}", "*",
    ];
    let mut random = Random::new(1);
    let mut good = 0;
    let texts = 200_000;
    for _ in tried(0..texts) {
        let mut text = String::new();
        loop {
            text += random.of(&words);
            if random.one_in(16) {
                break;
            }
        }
        match Filter::parse(&text, Hit::new().fields(), FUNCTIONS) {
            Ok(filter) => {
                good += 1;
                let again = filter.to_string();
                assert_eq!(Filter::parse(&again, Hit::new().fields(), FUNCTIONS).unwrap().to_string(), again);
                Hit::new().accepted_by(&filter);
            }
            Err(error) => assert!(error.column <= text.len() + 2, "{text}: {error:?}"),
        }
    }
    assert!(cfg!(miri) || good > texts / 200, "{good}");
}

/// Inserts every character of Latin-1 at every position of a filter, and replaces each character by it. If the result
/// still means the same filter, it differs only in blanks, in zeros before hexadecimal digits, in the case of these
/// digits, and in the kind of quotes.
#[test]
fn every_character_in_every_place_is_understood_or_refused() {
    const FILTER: &str = "(x == 0x1f || !(s < -3)) && t ~ \"h?l*[!r-t]\" && comm != 'main' && cpu & 5";
    let hit = Hit::new();
    let read =
        |text: &str| Filter::parse(text, hit.fields(), FUNCTIONS).ok().map(|filter| format!("{:?}", filter.tests()));
    let without =
        |text: &str| text.replace(|c: char| c.is_whitespace() || c == '0', "").replace('"', "'").to_lowercase();
    let original = read(FILTER);
    assert!(original.is_some());
    for text in tried(one_character_off(FILTER)) {
        assert!(read(&text) != original || without(&text) == without(FILTER), "{text:?} is read as {FILTER:?}");
    }
}
