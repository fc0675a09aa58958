//! Writes a tree as text, on one line, with no more parentheses than are needed to parse it back to the same tree.

use core::fmt::{self, Display, Formatter, Write};

use super::tree::{
    Clause, Expression, ExpressionForm, LoopRange, MapDeclaration, MapReference, Operator, Probe, Program,
    SettingValue, Statement, StatementForm, Target, TypeForm, TypeName, Unary,
};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.config.is_empty() {
            f.write_str("config = { ")?;
            for setting in &self.config {
                write!(f, "{} = ", setting.node.name)?;
                match &setting.node.value {
                    SettingValue::Number(number) => write!(f, "{number}; ")?,
                    SettingValue::Text(text) => {
                        quoted(f, text)?;
                        f.write_str("; ")?;
                    }
                }
            }
            f.write_str("} ")?;
        }
        for MapDeclaration { name, keys } in self.maps.iter().map(|map| &map.node) {
            write!(f, "let @{name} = hash({keys}); ")?;
        }
        separated(f, &self.clauses, " ", |clause, f| clause.fmt(f))
    }
}

impl Display for Clause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        separated(f, &self.probes, ", ", |probe, f| probe.node.fmt(f))?;
        if let Some(predicate) = &self.predicate {
            // A `*` right after the `/` would begin a comment.
            let is_read = begins_with(predicate, is_read);
            write!(f, " /{}{predicate}/", if is_read { " " } else { "" })?;
        }
        f.write_char(' ')?;
        block(f, &self.body)
    }
}

impl Display for Probe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("BEGIN"),
            Self::End => f.write_str("END"),
            Self::Interval { count, unit } => write!(f, "interval:{}:{count}", unit.name()),
            Self::Profile { count, unit } => write!(f, "profile:{}:{count}", unit.name()),
            Self::CpuClock { period } => write!(f, "software:cpu-clock:{period}"),
            Self::Hardware { event, count } => write!(f, "hardware:{}:{count}", event.name()),
            Self::Kprobe { glob } => write!(f, "kprobe:{glob}"),
            Self::Kretprobe { glob } => write!(f, "kretprobe:{glob}"),
            Self::Return { glob } => write!(f, "return:{glob}"),
            Self::Offset { function, offset } => write!(f, "kprobe:{function}+{offset:#x}"),
            Self::Line { file, line } => write!(f, "kprobe:{file}:{line}"),
            Self::FunctionLine { function, line } => write!(f, "kprobe:{function}:{line}"),
            Self::Instruction { function, offset: Some(offset) } => write!(f, "insn:{function}:{offset:#x}"),
            Self::Instruction { function, offset: None } => write!(f, "insn:{function}:*"),
            Self::Tracepoint { group, event } => write!(f, "tracepoint:{group}:{event}"),
            Self::Watch { symbol, offset, length, loads, stores } => {
                f.write_str("watchpoint:")?;
                match (symbol, offset) {
                    (Some(symbol), 0) => f.write_str(symbol)?,
                    (Some(symbol), offset) => write!(f, "{symbol}+{offset:#x}")?,
                    (None, address) => write!(f, "{address:#x}")?,
                }
                write!(f, ":{length}:{}{}", if *loads { "r" } else { "" }, if *stores { "w" } else { "" })
            }
            Self::Inline { function, exit: false } => write!(f, "inline:{function}:entry"),
            Self::Inline { function, exit: true } => write!(f, "inline:{function}:return"),
        }
    }
}

impl Display for StatementForm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assign { target, operator, value } => {
                let sign = operator.map_or("", Operator::sign);
                write!(f, "{} {sign}= {value};", target.node)
            }
            Self::Let { name, value: None } => write!(f, "let ${name};"),
            Self::Let { name, value: Some(value) } => write!(f, "let ${name} = {value};"),
            Self::Do(value) => write!(f, "{value};"),
            Self::Discard(value) => write!(f, "_ = {value};"),
            Self::If { condition, then, otherwise } => {
                write!(f, "if ({condition}) ")?;
                block(f, then)?;
                if otherwise.is_empty() {
                    return Ok(());
                }
                f.write_str(" else ")?;
                match otherwise.as_slice() {
                    [alone] if matches!(alone.node, Self::If { .. }) => alone.node.fmt(f),
                    _ => block(f, otherwise),
                }
            }
            Self::Unroll { count, body } => {
                write!(f, "unroll ({count}) ")?;
                block(f, body)
            }
            Self::While { condition, body } => {
                write!(f, "while ({condition}) ")?;
                block(f, body)
            }
            Self::For { name, range, body } => {
                match range {
                    LoopRange::Numbers { first, end } => write!(f, "for (${name} : {first}..{end}) ")?,
                    LoopRange::Map(map) => write!(f, "for (${name} : @{}) ", map.node)?,
                }
                block(f, body)
            }
            Self::Break => f.write_str("break;"),
            Self::Continue => f.write_str("continue;"),
            Self::Return => f.write_str("return;"),
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "${name}"),
            Self::Map(map) => map.fmt(f),
        }
    }
}

impl Display for MapReference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.name)?;
        if self.keys.is_empty() {
            return Ok(());
        }
        f.write_char('[')?;
        separated(f, &self.keys, ", ", |key, f| key.fmt(f))?;
        f.write_char(']')
    }
}

impl Display for TypeForm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::Array { element, count: Some(count) } => write!(f, "{element}[{count}]"),
            Self::Array { element, count: None } => write!(f, "{element}[]"),
            Self::Of { value, pointer } => write!(f, "typeof({value}){}", if *pointer { " *" } else { "" }),
        }
    }
}

impl Display for TypeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (sign, star) = (if self.signed { 's' } else { 'u' }, if self.pointer { " *" } else { "" });
        write!(f, "{sign}{}{star}", self.bits)
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_value(f, self, 0)
    }
}

/// Returns whether the text of `value` begins with an expression that `is` accepts.
fn begins_with(value: &Expression, is: fn(&ExpressionForm) -> bool) -> bool {
    is(&value.form)
        || match &*value.form {
            ExpressionForm::Binary { operator, left, .. } => {
                strength(left) >= operator.strength() && begins_with(left, is)
            }
            ExpressionForm::Choice { condition, .. } => strength(condition) > 0 && begins_with(condition, is),
            ExpressionForm::Part { tuple: first, .. }
            | ExpressionForm::Field { of: first, .. }
            | ExpressionForm::Index { pointer: first, .. } => strength(first) == POSTFIX && begins_with(first, is),
            _ => false,
        }
}

fn is_read(form: &ExpressionForm) -> bool {
    matches!(form, ExpressionForm::Unary { operator: Unary::Read, .. })
}

fn is_block(form: &ExpressionForm) -> bool {
    matches!(form, ExpressionForm::Block { .. })
}

/// The precedence of prefix and postfix expressions, above that of every binary operator.
const PREFIX: u8 = 20;
const POSTFIX: u8 = 21;

fn strength(value: &Expression) -> u8 {
    match &*value.form {
        ExpressionForm::Choice { .. } => 0,
        ExpressionForm::Binary { operator, .. } => operator.strength(),
        ExpressionForm::Unary { .. } | ExpressionForm::Cast { .. } | ExpressionForm::Step { first: true, .. } => PREFIX,
        _ => POSTFIX,
    }
}

/// Writes `value`, in parentheses if its precedence is below `least`.
fn write_value(f: &mut Formatter<'_>, value: &Expression, least: u8) -> fmt::Result {
    if strength(value) < least {
        f.write_char('(')?;
        write_form(f, &value.form)?;
        return f.write_char(')');
    }
    write_form(f, &value.form)
}

fn write_form(f: &mut Formatter<'_>, form: &ExpressionForm) -> fmt::Result {
    match form {
        ExpressionForm::Integer(value) => write!(f, "{value}"),
        ExpressionForm::Text(text) => quoted(f, text),
        ExpressionForm::Variable(name) => write!(f, "${name}"),
        ExpressionForm::Map(map) => map.fmt(f),
        ExpressionForm::Builtin(name) | ExpressionForm::Path(name) => f.write_str(name),
        ExpressionForm::Call { name, arguments } => {
            write!(f, "{}(", name.node)?;
            separated(f, arguments, ", ", |argument, f| argument.fmt(f))?;
            f.write_char(')')
        }
        ExpressionForm::Unary { operator, operand } => {
            f.write_str(match operator {
                Unary::Negate => "-",
                Unary::Invert => "~",
                Unary::Not => "!",
                Unary::Read => "*",
            })?;
            // Two minus signs in a row would be the operator `--`.
            let is_minus = |value: &Expression| {
                matches!(
                    *value.form,
                    ExpressionForm::Unary { operator: Unary::Negate, .. }
                        | ExpressionForm::Step { first: true, up: false, .. }
                )
            };
            let least = if *operator == Unary::Negate && is_minus(operand) { POSTFIX } else { PREFIX };
            write_value(f, operand, least)
        }
        ExpressionForm::Step { target, up, first } => {
            let sign = if *up { "++" } else { "--" };
            if *first { write!(f, "{sign}{}", target.node) } else { write!(f, "{}{sign}", target.node) }
        }
        ExpressionForm::Binary { operator, left, right } => {
            write_value(f, left, operator.strength())?;
            write!(f, " {} ", operator.sign())?;
            // A `/` before a `{` would end a predicate.
            match *operator == Operator::Divide && begins_with(right, is_block) {
                true => write!(f, "({right})"),
                false => write_value(f, right, operator.strength() + 1),
            }
        }
        ExpressionForm::Choice { condition, then, otherwise } => {
            write_value(f, condition, Operator::WEAKEST)?;
            write!(f, " ? {then} : {otherwise}")
        }
        ExpressionForm::Cast { to, operand } => {
            write!(f, "({to})")?;
            write_value(f, operand, PREFIX)
        }
        ExpressionForm::Tuple(parts) => {
            f.write_char('(')?;
            separated(f, parts, ", ", |part, f| part.fmt(f))?;
            f.write_str(if parts.len() == 1 { ",)" } else { ")" })
        }
        ExpressionForm::Record(parts) => {
            f.write_char('(')?;
            separated(f, parts, ", ", |(name, part), f| write!(f, "{name} = {part}"))?;
            f.write_char(')')
        }
        ExpressionForm::Block { body, value } => {
            f.write_str("{ ")?;
            for statement in body {
                write!(f, "{} ", statement.node)?;
            }
            value.iter().try_for_each(|value| write!(f, "{value} "))?;
            f.write_char('}')
        }
        ExpressionForm::Part { tuple, number } => {
            write_value(f, tuple, POSTFIX)?;
            write!(f, ".{number}")
        }
        ExpressionForm::Field { of, name } => {
            write_value(f, of, POSTFIX)?;
            write!(f, ".{name}")
        }
        ExpressionForm::Index { pointer, index } => {
            write_value(f, pointer, POSTFIX)?;
            write!(f, "[{index}]")
        }
    }
}

fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            '"' | '\\' => write!(f, "\\{c}")?,
            _ if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
            _ => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

fn block(f: &mut Formatter<'_>, body: &[Statement]) -> fmt::Result {
    f.write_str("{ ")?;
    separated(f, body, " ", |statement, f| statement.node.fmt(f))?;
    f.write_str(if body.is_empty() { "}" } else { " }" })
}

fn separated<T>(
    f: &mut Formatter<'_>,
    all: &[T],
    separator: &str,
    write: impl Fn(&T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (number, one) in all.iter().enumerate() {
        if number > 0 {
            f.write_str(separator)?;
        }
        write(one, f)?;
    }
    Ok(())
}
