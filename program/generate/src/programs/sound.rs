//! Random programs that the checker accepts. They use everything that a program can do at the entry of a function.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use kprobes_program::builtins::names;
use kprobes_program::error::Problem;
use kprobes_program::syntax::parse;
use kprobes_random::Random;

use super::{MEMORY, SIGNS, builtin, pure};

const VARIABLES: [&str; 4] = ["$a", "$b", "$c", "$d"];
/// Numbers besides the builtins that are a number in every clause.
const NUMBERS: [&str; 12] = [
    "arg0",
    "arg1",
    "arg2",
    "arg5",
    "arg7",
    "reg(\"x9\")",
    "reg(\"x29\")",
    "reg(\"sp\")",
    "reg(\"pc\")",
    "reg(\"pstate\")",
    "@v",
    "@n",
];
const CASTS: [&str; 8] = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];

/// Returns a random number expression that is valid in every clause.
fn number(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.below(5) == 0 {
        return match random.below(5) {
            0 => random.value().to_string(),
            1 | 2 => builtin(random, names(true), &NUMBERS).into(),
            _ => random.of(&VARIABLES).into(),
        };
    }
    let depth = depth - 1;
    match random.below(24) {
        22 => format!(
            "({}, ({}, {})).{}",
            number(random, depth),
            number(random, depth),
            text(random, depth),
            random.of(&["0", "1.0"])
        ),
        23 => format!(
            "(({}, {}) == ({}, {}))",
            small(random, depth),
            text(random, depth),
            small(random, depth),
            text(random, depth)
        ),
        16 => format!("strlen({})", text(random, depth)),
        17 => format!("strstr({}, {})", text(random, depth), text(random, depth)),
        18 => format!("strcontains({}, {})", text(random, depth), text(random, depth)),
        19 => format!("has_key({}, {})", random.of(&["@k", "@c1"]), small(random, depth)),
        20 => random.of(&["len(@k)", "len(@kk)", "len(kstack(3))", "len(comm)"]).into(),
        21 => format!(
            "(buf({0}, {1}) == buf({0}, {2}))",
            address(random, depth),
            1 + random.below(9),
            random.below(9) + 1
        ),
        0 => pure(random, 2).to_string(),
        1 => format!("{}({})", random.of(&["-", "~", "!"]), number(random, depth)),
        2 => format!("({})({})", random.of(&CASTS), number(random, depth)),
        3 => format!("(({}) ? ({}) : ({}))", number(random, depth), number(random, depth), number(random, depth)),
        4 => format!("*({} *)({})", random.of(&CASTS), address(random, depth)),
        5 => format!("@k[{}]", small(random, depth)),
        6 => format!("@kk[{}, {}]", small(random, depth), small(random, depth)),
        7 => format!("strncmp({}, {}, {})", text(random, depth), text(random, depth), 1 + random.below(16)),
        8 => format!("({} {} {})", text(random, depth), random.of(&["==", "!="]), text(random, depth)),
        9 => random
            .of(&[
                "(func == caller)",
                "(caller != kaddr(\"main\"))",
                "(kstack(2) == kstack(3))",
                "(func == \"blk::submit\")",
                "(caller != \"main\")",
                "(\"blk::*\" == caller)",
                "(ksym(arg0) != \"blk::*\")",
            ])
            .into(),
        _ => {
            let operator = random.of(&SIGNS);
            format!("({}) {operator} ({})", number(random, depth), number(random, depth))
        }
    }
}

/// Returns a random number expression with few possible values.
fn small(random: &mut Random, depth: usize) -> String {
    format!("({}) % {}", number(random, depth), 1 + random.below(40))
}

/// Returns a random address that is readable, near readable memory, or arbitrary.
fn address(random: &mut Random, depth: usize) -> String {
    match random.below(6) {
        0 => number(random, depth),
        _ => format!("{MEMORY} + ({}) % 70", number(random, depth)),
    }
}

fn text(random: &mut Random, depth: usize) -> String {
    match random.below(5) {
        0 => "\"worker\"".into(),
        1 => "\"\"".into(),
        2 => format!("str({}, {})", address(random, depth), 1 + random.below(20)),
        _ => "comm".into(),
    }
}

/// Returns an aggregation for the map called `name`.
fn collected(random: &mut Random, name: &str, depth: usize) -> String {
    let value = number(random, depth);
    match name {
        "c" => "count()".into(),
        "s" => format!("sum({value})"),
        "a" => format!("avg({value})"),
        "t" => format!("stats({value})"),
        "l" => format!("min((s64)({value}))"),
        "m" => format!("min((u64)({value}))"),
        "g" => format!("max((s64)({value}))"),
        "x" => format!("max((u64)({value}))"),
        "r" => format!("lhist({value}, -10, 100, 7)"),
        "p" => format!("hist({value}, 3)"),
        _ => format!("hist({value})"),
    }
}

fn statement(random: &mut Random, depth: usize) -> String {
    let operator = random.of(&["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="]);
    let step = random.of(&["++", "--"]);
    match random.below(if depth == 0 { 18 } else { 22 }) {
        0..3 => format!("{} {operator} {};", random.of(&VARIABLES), number(random, 3)),
        3 => {
            format!("{} = {}{step} + {step}{};", random.of(&VARIABLES), random.of(&VARIABLES), random.of(&["@v", "@n"]))
        }
        4 => format!("@v {operator} {};", number(random, 2)),
        5 => format!("@k[{}] {operator} {};", small(random, 2), number(random, 2)),
        6 => format!("@kk[{}, {}] {operator} {};", small(random, 1), small(random, 1), number(random, 2)),
        7 => format!("@kkk[{}, {}, cpu]{step};", small(random, 1), small(random, 1)),
        8 | 9 => {
            let name = random.of(&["c", "s", "a", "t", "l", "m", "g", "x", "r", "p", "h"]);
            format!("@{name} = {};", collected(random, name, 2))
        }
        10 | 11 => {
            let name = random.of(&["c", "s", "a", "t", "l", "m", "g", "x", "r", "p", "h"]);
            format!("@{name}1[{}] = {};", small(random, 2), collected(random, name, 2))
        }
        12 => match random.below(4) {
            0 => format!("@two[func, {}] = count();", small(random, 1)),
            1 => format!("@text[{}] = hist({});", text(random, 1), number(random, 1)),
            2 => format!("@name[{}] = comm; @last = {};", small(random, 1), text(random, 1)),
            _ => format!("@stack[kstack({})] = count();", 1 + random.below(3)),
        },
        16 => format!("@pair = ({}, ({}, {})); print(@pair);", number(random, 1), text(random, 1), number(random, 1)),
        17 => format!(
            "@by[{}, ({}, {})] += (5, 6).1; print((@pair, @pair.1.0));",
            text(random, 1),
            small(random, 1),
            text(random, 1)
        ),
        13 => format!("printf(\"%d %s %x\\n\", {}, {}, {});", number(random, 2), text(random, 1), number(random, 1)),
        14 => format!("print({});", random.of(&["@v", "@k", "@c", "@h", "probe", "func", "comm", "kstack", "$a"])),
        15 => match random.below(8) {
            0 => "exit();".into(),
            1 => "return;".into(),
            2 => "clear(@k);".into(),
            3 => "zero(@c);".into(),
            4 => format!("print(@c * 2 + {});", random.of(&["@a", "@l", "@g", "@s"])),
            _ => format!("delete(@{}[{}]);", random.of(&["k", "c1", "h1"]), small(random, 1)),
        },
        18 => format!("unroll ({}) {{ {} }}", 1 + random.below(3), statement(random, depth - 1)),
        _ => {
            let (then, otherwise) = (statements(random, depth - 1), statements(random, depth - 1));
            format!("if ({}) {{ {then} }} else {{ {otherwise} }}", number(random, 3))
        }
    }
}

fn statements(random: &mut Random, depth: usize) -> String {
    let all: Vec<String> = (0..random.below(4)).map(|_| statement(random, depth)).collect();
    all.join(" ")
}

/// Returns a program of one clause at the entry of a function, `kprobe:f`. The checker accepts it unless it is too
/// long.
pub fn sound(random: &mut Random) -> String {
    loop {
        let program = program(random);
        if !parse(&program).is_err_and(|error| error.problem == Problem::Deep) {
            return program;
        }
    }
}

/// Returns a program for [`sound`] that may be nested too deeply.
fn program(random: &mut Random) -> String {
    let predicate = match random.below(3) {
        0 => format!("/{}/ ", pure(random, 3)),
        _ => String::new(),
    };
    let mut body: String = VARIABLES.map(|name| format!("{name} = {}; ", pure(random, 1))).concat();
    for _ in 0..=random.below(6) {
        body.push_str(&statement(random, 2));
        body.push(' ');
    }
    // These statements give the maps their types where the rest of the program does not.
    let maps = "if (ncpus == 0) { @v = 0; @n = (u64)0; @k[0] = 0; @kk[0, 0] = 0; @c = count(); @s = sum(0); @a = avg(0); \
                @l = min((s64)0); @g = max((s64)0); @h = hist(0); @c1[0] = count(); @h1[0] = hist(0); @pair = (0, (\"\", 0)); }";
    format!("kprobe:f {predicate}{{ {body}{maps} }}")
}
