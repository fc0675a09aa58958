//! Random programs, from the grammar and by damaging valid ones: each is refused, or runs and computes the right
//! values.

use std::string::{String, ToString};
use std::vec::Vec;

use kprobes_vm::maps::Limits;

use super::machine::{Bed, SimulatedImage, Task};
use crate::check::check;
use crate::generate;
use crate::syntax::{Expression, ExpressionForm, Operator, TypeForm, Unary, parse};
use crate::tests::{rounds, tried};
use kprobes_random::Random;
use kprobes_random::tried::one_character_off;

/// Evaluates `expression` for `arguments`, and tells whether the result is signed. An independent implementation, with
/// numbers that cannot overflow.
fn evaluate(expression: &Expression, arguments: &[u64]) -> (u64, bool) {
    let wide = |(value, signed): (u64, bool)| if signed { i128::from(value.cast_signed()) } else { i128::from(value) };
    let truth = |holds: bool| (u64::from(holds), true);
    match &*expression.form {
        ExpressionForm::Integer(value) => (*value, *value < 1 << 63),
        ExpressionForm::Builtin(name) => (arguments[name[3..].parse::<usize>().unwrap()], false),
        ExpressionForm::Unary { operator, operand } => {
            let value = evaluate(operand, arguments);
            match operator {
                Unary::Negate => ((-wide(value)) as u64, true),
                Unary::Invert => (!value.0, value.1),
                _ => truth(value.0 == 0),
            }
        }
        ExpressionForm::Cast { to: TypeForm::Named(to), operand } => {
            let (value, _) = evaluate(operand, arguments);
            let cut = match (to.bits, to.signed) {
                (8, false) => u64::from(value as u8),
                (16, false) => u64::from(value as u16),
                (32, false) => u64::from(value as u32),
                (8, true) => i64::from(value as i8).cast_unsigned(),
                (16, true) => i64::from(value as i16).cast_unsigned(),
                (32, true) => i64::from(value as i32).cast_unsigned(),
                _ => value,
            };
            (cut, to.signed)
        }
        ExpressionForm::Choice { condition, then, otherwise } => {
            let (then, otherwise) = (evaluate(then, arguments), evaluate(otherwise, arguments));
            let chosen = if evaluate(condition, arguments).0 != 0 { then.0 } else { otherwise.0 };
            (chosen, then.1 && otherwise.1)
        }
        ExpressionForm::Binary { operator, left, right } => {
            let (left, right) = (evaluate(left, arguments), evaluate(right, arguments));
            let signed = left.1 && right.1;
            let (one, other) = (wide((left.0, signed)), wide((right.0, signed)));
            let result = match operator {
                Operator::Or => return truth(left.0 != 0 || right.0 != 0),
                Operator::And => return truth(left.0 != 0 && right.0 != 0),
                Operator::Equal => return truth(left.0 == right.0),
                Operator::Unequal => return truth(left.0 != right.0),
                Operator::Less => return truth(one < other),
                Operator::LessEqual => return truth(one <= other),
                Operator::Greater => return truth(one > other),
                Operator::GreaterEqual => return truth(one >= other),
                Operator::Left => return (left.0 << (right.0 % 64), left.1),
                Operator::Right => return ((wide(left) >> (right.0 % 64)) as u64, left.1),
                Operator::BitOr => one | other,
                Operator::BitXor => one ^ other,
                Operator::BitAnd => one & other,
                Operator::Add => one + other,
                Operator::Subtract => one - other,
                Operator::Multiply => one.wrapping_mul(other),
                Operator::Divide if other == 0 => 0,
                Operator::Divide => one / other,
                Operator::Remainder if other == 0 => one,
                Operator::Remainder => one % other,
            };
            (result as u64, signed)
        }
        form => panic!("{form:?} is not pure"),
    }
}

#[test]
fn values_are_what_a_simple_evaluator_makes_of_them() {
    let mut random = Random::new(1);
    for _ in tried(0..rounds(4_000)) {
        let expression = generate::pure(&mut random, 4);
        let text = expression.to_string();
        let program =
            format!("kprobe:f /{text}/ {{ print({text}); $x = {text}; @[$x] = $x; if ({text}) {{ print(1); }} }}");
        let program = if program.len() > crate::syntax::PROGRAM_MAX / 2 { continue } else { program };
        let mut bed = Bed::new(&program);
        for _ in 0..4 {
            let arguments: Vec<u64> = (0..4).map(|_| random.value()).collect();
            bed.hit(0, &Task::with(&arguments));
            bed.text.clear();
            bed.drain();
            let (value, signed) = evaluate(&expression, &arguments);
            let shown = if signed { value.cast_signed().to_string() } else { value.to_string() };
            let expected = if value == 0 { String::new() } else { format!("{shown}\n1\n") };
            assert_eq!(bed.text, expected, "{program} with {arguments:?}\n{}", bed.program);
        }
    }
}

/// Checks and runs `text` if it is valid. Returns whether it is.
fn survives(text: &str, random: &mut Random) -> bool {
    let tree = match parse(text) {
        Ok(tree) => tree,
        Err(error) => {
            let span = error.span;
            assert!(span.start <= span.end && text.get(span.start..span.end).is_some(), "{text}: {error:?}");
            drop(error.within(text).to_string());
            return false;
        }
    };
    let program = match check(&tree, &SimulatedImage) {
        Ok(program) => program,
        Err(error) => {
            assert!(text.get(error.span.start..error.span.end).is_some(), "{text}: {error:?}");
            drop(error.within(text).to_string());
            return false;
        }
    };
    let limits = Limits { entries: 16, table_bytes: 1 << 10, stacks: 16, output_bytes: 1 << 10, ..Limits::usual(2) };
    let mut bed = Bed::of(program, &limits);
    for _ in 0..4 {
        let arguments: Vec<u64> = (0..8).map(|_| if random.below(3) == 0 { 0x8000 } else { random.value() }).collect();
        let hit = Task { cpu: random.below(3), time: random.value(), ..Task::with(&arguments) };
        for clause in 0..bed.program.code.routines.len() {
            bed.hit(clause, &hit);
        }
        bed.drain();
    }
    bed.finish();
    true
}

#[test]
fn programs_of_the_grammar_read_back_and_are_refused_or_run() {
    let mut random = Random::new(2);
    let mut right = 0;
    for _ in tried(0..rounds(10_000)) {
        let tree = generate::program(&mut random);
        let text = tree.to_string();
        match parse(&text) {
            Ok(read) => assert_eq!(read, tree, "{text}"),
            Err(error) => {
                use crate::error::Problem::{Deep, LongProgram};
                assert!(matches!(error.problem, Deep | LongProgram { .. }), "{}", error.within(&text));
            }
        }
        right += u64::from(survives(&text, &mut random));
    }
    assert!(cfg!(miri) || right > rounds(10_000) / 50, "{right}");
}

/// Valid programs, to be damaged.
const RIGHT: [&str; 8] = [
    "kprobe:blk::* /arg1 > 512/ { @[func] = hist(arg1); }",
    "BEGIN { @start = nsecs; @x = 1; } interval:s:1 { print(@x); clear(@x); } END { zero(@start); }",
    "kprobe:f { @s[tid] = nsecs; } kretprobe:f /@s[tid]/ { @ns = hist(nsecs - @s[tid]); delete(@s[tid]); }",
    "insn:<a::B as c::D>::f:0x10, return:g { $x = reg(\"x9\"); printf(\"%5d %-s %x\\n\", $x, comm, *(u32 *)($x + 8)); }",
    "kprobe:f { if (arg0 == 1 && !arg1) { $a = str(arg0, 20); } else { unroll (3) { @n[cpu, comm]++; } } exit(); }",
    "kprobe:f { @[kstack(3), caller] = lhist((s32)arg0, -10, 100, 10); @a = avg(arg0); @m = max(arg1); @t = stats(1); }",
    "kprobe:f { $t = arg0 ? \"one\" : comm; @last = $t; print(@last); print((\"a\" == comm) + 1); @v = @last; }",
    "inline:f:entry { @p[probe, func == \"main\"] = count(); $q = (u16 *)reg(\"sp\"); print($q[2]); print(@p, 3, 2); }",
];

#[test]
fn damaged_programs_are_refused_or_run() {
    let mut random = Random::new(3);
    for program in tried(RIGHT) {
        assert!(survives(program, &mut random), "{program}");
    }
    let pieces: Vec<char> = "(){}[];,/@$\"\\%*+-=!<>&|?:~^ \n\u{0}19afxé日".chars().collect();
    for _ in tried(0..rounds(20_000)) {
        let mut text: Vec<char> = random.of(&RIGHT).chars().collect();
        for _ in 0..=random.below(4) {
            let (at, other) = (random.below(text.len()), random.below(text.len()));
            match random.below(6) {
                0 => text.truncate(at + 1),
                1 => text[at] = random.of(&pieces),
                2 => text.swap(at, other),
                3 => drop(text.remove(at)),
                4 => text = [&text[..at], &text[other..]].concat(),
                _ => text.insert(at, random.of(&pieces)),
            }
            if text.is_empty() {
                text.push('@');
            }
        }
        survives(&text.iter().collect::<String>(), &mut random);
    }
}

/// Inserts every Latin-1 character at every position of a program, and replaces every character by it. A text that
/// parses to the same program may differ from it only in white space, empty statements, and the spelling of numbers,
/// `s32` and `tid`: no other input is silently ignored.
#[test]
fn every_character_in_every_place_is_understood_or_refused() {
    let without = |text: &str| {
        let text = text.replace("i32", "s32").replace("pid", "tid").replace("0X", "0x");
        let mut before = ' ';
        let is_suffix = |c: char| core::mem::replace(&mut before, c).is_ascii_hexdigit() && "uUlL".contains(c);
        text.replace(is_suffix, "").replace(|c: char| c.is_whitespace() || ";_0".contains(c), "")
    };
    for program in tried(RIGHT) {
        let tree = parse(program).unwrap();
        for text in tried(one_character_off(program)) {
            let is_same = parse(&text).is_ok_and(|read| read == tree);
            assert!(!is_same || without(&text) == without(program), "{text:?} is read as {program:?}");
        }
    }
}
