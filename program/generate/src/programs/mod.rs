//! Random programs that follow the grammar. They need not make sense, but their text parses back to the same tree.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

mod sound;

pub use sound::sound;

use kprobes_program::builtins::{Role, calls, names};
use kprobes_program::error::Span;
use kprobes_program::syntax::{
    Clause, Expression, ExpressionForm, HardwareEvent, LoopRange, MapReference, Operator, Probe, Program, Spanned,
    Statement, StatementForm, Target, TypeForm, TypeName, Unary, Unit,
};
use kprobes_random::Random;

/// The address of the partly readable memory that generated programs refer to.
pub const MEMORY: u64 = 0x8000;

const NOWHERE: Span = Span { start: 0, end: 0 };

/// Builtins with rules of their own.
const BUILTINS: [&str; 7] = ["probetype", "arg0", "arg1", "arg7", "retval", "comm", "kstack"];
/// The binary operators.
const SIGNS: [&str; 18] =
    ["||", "&&", "|", "^", "&", "==", "!=", "<", "<=", ">", ">=", "<<", ">>", "+", "-", "*", "/", "%"];

fn one<T>(node: T) -> Spanned<T> {
    Spanned { node, span: NOWHERE }
}

fn value(form: ExpressionForm) -> Expression {
    Expression::new(form, NOWHERE).expect("there is memory for what is made up")
}

fn some<T>(random: &mut Random, least: usize, most: usize, mut make: impl FnMut(&mut Random) -> T) -> Vec<T> {
    let count = least + random.below(most - least + 1);
    (0..count).map(|_| make(random)).collect()
}

fn name(random: &mut Random) -> String {
    random.of(&["a", "b", "x", "a1", "long_name", "if_not"]).to_string()
}

fn text(random: &mut Random) -> String {
    random.of(&["", "worker", "%d %s\n", "quote \" and \\", "\t\r é", "blk::submit", "x9", "%5d|%-3x %c"]).to_string()
}

fn operator(random: &mut Random) -> Operator {
    Operator::of_sign(random.of(&SIGNS)).expect("the language has the operator")
}

fn type_name(random: &mut Random) -> TypeName {
    TypeName { signed: random.below(2) == 0, bits: random.of(&[8, 16, 32, 64]), pointer: random.below(3) == 0 }
}

fn map(random: &mut Random, depth: usize) -> MapReference {
    let name = if random.below(3) == 0 { String::new() } else { name(random) };
    let keys = if random.below(2) == 0 { Vec::new() } else { some(random, 1, 3, |random| expression(random, depth)) };
    MapReference { name, keys }
}

fn target(random: &mut Random, depth: usize) -> Spanned<Target> {
    one(if random.below(2) == 0 { Target::Variable(name(random)) } else { Target::Map(map(random, depth)) })
}

/// Returns a random expression of numbers and arguments that the checker accepts at the entry of a function.
pub fn pure(random: &mut Random, depth: usize) -> Expression {
    use ExpressionForm as Form;
    if depth == 0 || random.below(6) == 0 {
        return value(match random.below(2) {
            0 => Form::Integer(random.value()),
            _ => Form::Builtin(random.of(&["arg0", "arg1", "arg2", "arg3"]).to_string()),
        });
    }
    let depth = depth - 1;
    value(match random.below(8) {
        0 => {
            let operator = random.of(&[Unary::Negate, Unary::Invert, Unary::Not]);
            Form::Unary { operator, operand: pure(random, depth) }
        }
        1 => Form::Cast {
            to: TypeForm::Named(TypeName { pointer: false, ..type_name(random) }),
            operand: pure(random, depth),
        },
        2 => Form::Choice { condition: pure(random, depth), then: pure(random, depth), otherwise: pure(random, depth) },
        _ => Form::Binary { operator: operator(random), left: pure(random, depth), right: pure(random, depth) },
    })
}

/// Returns the name of a call with this role, or one that is out of place or unknown. The parser replaces `getopt`.
fn call(random: &mut Random, role: Role) -> String {
    let names = calls(role).filter(|&name| name != "getopt");
    builtin(random, names, &["count", "kstack", "unknown"]).to_string()
}

/// Returns the name of a builtin: one of `names` or of `others`.
fn builtin(random: &mut Random, names: impl Iterator<Item = &'static str>, others: &[&'static str]) -> &'static str {
    let all: Vec<_> = names.chain(others.iter().copied()).collect();
    random.of(&all)
}

/// Returns a random expression.
fn expression(random: &mut Random, depth: usize) -> Expression {
    use ExpressionForm as Form;
    if depth == 0 || random.below(4) == 0 {
        return value(match random.below(8) {
            0 | 1 => Form::Integer(random.value()),
            2 => Form::Text(text(random)),
            3 | 4 => Form::Variable(name(random)),
            _ => Form::Builtin(builtin(random, names(false), &BUILTINS).to_string()),
        });
    }
    let depth = depth - 1;
    value(match random.below(15) {
        12 if random.below(3) == 0 => {
            let names = some(random, 1, 1, |_| "color".to_string()).into_iter().chain(["size".to_string()]);
            Form::Record(names.map(|name| (name, expression(random, depth))).collect())
        }
        12 => Form::Tuple(some(random, 1, 3, |random| expression(random, depth))),
        13 => Form::Part { tuple: expression(random, depth), number: random.below(3) as u64 },
        0 => Form::Map(map(random, depth)),
        1 => {
            let arguments = some(random, 0, 3, |random| expression(random, depth));
            Form::Call { name: one(call(random, Role::Value)), arguments }
        }
        2 | 3 => {
            let operator = random.of(&[Unary::Negate, Unary::Invert, Unary::Not, Unary::Read]);
            Form::Unary { operator, operand: expression(random, depth) }
        }
        4 => Form::Step { target: target(random, depth), up: random.below(2) == 0, first: random.below(2) == 0 },
        5 => Form::Choice {
            condition: expression(random, depth),
            then: expression(random, depth),
            otherwise: expression(random, depth),
        },
        6 => Form::Cast { to: TypeForm::Named(type_name(random)), operand: expression(random, depth) },
        7 => {
            let to = TypeForm::Of { value: expression(random, depth), pointer: random.below(3) == 0 };
            Form::Cast { to, operand: expression(random, depth) }
        }
        14 => Form::Block {
            body: some(random, 0, 2, |random| statement(random, 0)),
            value: (random.below(3) > 0).then(|| expression(random, depth)),
        },
        8 => {
            // Brackets after a map without a key would parse as its key.
            let pointer = expression(random, depth);
            match *pointer.form {
                Form::Map(MapReference { ref keys, .. }) if keys.is_empty() => return pointer,
                _ => Form::Index { pointer, index: expression(random, depth) },
            }
        }
        _ => {
            let operator = operator(random);
            let (left, right) = (expression(random, depth), expression(random, depth));
            // Two strings that are added would parse as one.
            if matches!((operator, &*left.form, &*right.form), (Operator::Add, Form::Text(_), Form::Text(_))) {
                return left;
            }
            Form::Binary { operator, left, right }
        }
    })
}

fn statement(random: &mut Random, depth: usize) -> Statement {
    use StatementForm as Form;
    let inner = depth.saturating_sub(1);
    one(match random.below(if depth == 0 { 6 } else { 12 }) {
        0 if random.below(2) == 0 => Form::Discard(expression(random, 2)),
        0 => Form::Return,
        1 | 2 => {
            let operator = operator(random);
            Form::Assign {
                target: target(random, 1),
                operator: Some(operator).filter(|operator| operator.is_arithmetic()),
                value: expression(random, 3),
            }
        }
        3 => {
            let form = ExpressionForm::Step { target: target(random, 1), up: true, first: random.below(2) == 0 };
            Form::Do(value(form))
        }
        4 | 5 => {
            let arguments = some(random, 0, 3, |random| expression(random, 2));
            Form::Do(value(ExpressionForm::Call { name: one(call(random, Role::Action)), arguments }))
        }
        6 => Form::If {
            condition: expression(random, 2),
            then: some(random, 0, 3, |random| statement(random, inner)),
            otherwise: some(random, 0, 3, |random| statement(random, inner)),
        },
        7 => Form::While {
            condition: expression(random, 2),
            body: some(random, 0, 3, |random| statement(random, inner)),
        },
        8 => Form::For {
            name: name(random),
            range: match random.below(2) {
                0 => LoopRange::Map(one(name(random))),
                _ => LoopRange::Numbers { first: expression(random, 1), end: expression(random, 1) },
            },
            body: some(random, 0, 3, |random| statement(random, inner)),
        },
        9 => Form::Let { name: name(random), value: (random.below(2) == 0).then(|| expression(random, 2)) },
        10 if random.below(2) == 0 => Form::Break,
        10 => Form::Continue,
        _ => Form::Unroll {
            count: value(ExpressionForm::Integer(random.below(6) as u64)),
            body: some(random, 0, 3, |random| statement(random, inner)),
        },
    })
}

fn probe(random: &mut Random) -> Probe {
    let path =
        random.of(&["f", "blk::submit", "<a::B<u8> as c::D>::f::<[u8; 4]>", "a::{closure#0}", "<fn(u8) -> u8>::g"]);
    let glob = random.of(&["*", "blk::*", "*::submit", "<* as c::D>::?", path]).to_string();
    let function = path.to_string();
    match random.below(11) {
        0 => Probe::Begin,
        1 => Probe::End,
        2 if random.below(3) == 0 => match random.below(3) {
            0 => Probe::CpuClock { period: 10_000 + random.below(5000) as u64 },
            1 => Probe::Hardware { event: random.of(&HardwareEvent::ALL), count: 10_000 + random.below(5000) as u32 },
            _ => Probe::Profile { count: 10 + random.below(5000) as u64, unit: random.of(&Unit::ALL) },
        },
        2 => Probe::Interval { count: 1 + random.below(5000) as u64, unit: random.of(&Unit::ALL) },
        3 | 4 => Probe::Kprobe { glob },
        5 if random.below(2) == 0 => Probe::Kretprobe { glob },
        5 => Probe::Return { glob },
        6 => Probe::Offset { function, offset: 4 * random.below(100) as u64 },
        7 => Probe::Instruction { function, offset: Some(4 * random.below(9) as u64).filter(|&offset| offset > 0) },
        8 if random.below(2) == 0 => Probe::FunctionLine { function, line: random.below(99) as u32 },
        8 => Probe::Line { file: String::from("blk/src/lib.rs"), line: 1 + random.below(99) as u32 },
        9 if random.below(2) == 0 => Probe::Tracepoint { group: "sched".to_string(), event: "sched_*".to_string() },
        10 => Probe::Watch {
            symbol: (random.below(2) == 0).then_some(function),
            offset: 8 * random.below(100) as u64,
            length: [1, 2, 4, 8][random.below(4)],
            loads: true,
            stores: random.below(2) == 0,
        },
        _ => Probe::Inline { function, exit: random.below(2) == 0 },
    }
}

/// Returns a random program.
pub fn program(random: &mut Random) -> Program {
    let clauses = some(random, 1, 3, |random| Clause {
        probes: some(random, 1, 2, |random| one(probe(random))),
        predicate: (random.below(3) == 0).then(|| expression(random, 2)),
        body: some(random, 0, 4, |random| statement(random, 2)),
    });
    Program { config: Vec::new(), maps: Vec::new(), clauses }
}
