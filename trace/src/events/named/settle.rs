//! Names in a definition before its event is made: `$arg*` becomes the arguments of the function, and what has no type
//! gets that of the table.

use alloc::vec::Vec;

use kprobes_types::ValuePlace;

use super::{ArgumentError, REGISTERS, Signature, fetch};
use crate::definition::{
    self, ARGUMENT_NAME_MAX, ARGUMENTS_MAX, Argument, Definition, Named, Origin, Problem, is_name,
};
use crate::events::ResolveError;
use crate::format::{Base, Type};
use crate::symbols::Symbols;

/// Gives each argument by name its type from the table, unless the definition has one, and replaces `$arg*` by the
/// arguments of the function.
pub(in crate::events) fn settle(definition: &mut Definition, symbols: &dyn Symbols) -> Result<(), definition::Error> {
    let asks = |argument: &Argument| match argument.expression.origin {
        Origin::Named(_) | Origin::Arguments | Origin::ReturnValue => true,
        Origin::Argument(number) => number >= REGISTERS,
        _ => false,
    };
    if !definition.arguments.iter().any(asks) {
        return Ok(());
    }
    let signature = Signature::of(definition, symbols)
        .map_err(|ResolveError { problem, reason }| definition.error(1, problem, reason))?;
    expand(definition, signature.as_ref())?;
    for number in 0..definition.arguments.len() {
        if let Some(argument) = definition.arguments.get_mut(number) {
            name_result(argument, signature.as_ref())?;
        }
        let Some(argument) = definition.arguments.get(number) else { break };
        let kind = kind(argument, signature.as_ref());
        let kind = kind.map_err(|ArgumentError { error: ResolveError { problem, reason }, at }| {
            definition.error_in(number, at, problem, reason)
        })?;
        if let (Some(kind), Some(argument)) = (kind, definition.arguments.get_mut(number)) {
            argument.kind = kind;
        }
    }
    Ok(())
}

/// Replaces `$arg*` by the arguments of the function. It leaves out arguments that are not a single value or have no
/// known location.
fn expand(definition: &mut Definition, signature: Option<&Signature<'_>>) -> Result<(), definition::Error> {
    let is_all = |argument: &Argument| argument.expression.origin == Origin::Arguments;
    let Some(at) = definition.arguments.iter().position(is_all) else { return Ok(()) };
    let Some(signature) = signature.filter(|signature| signature.function.arguments().next().is_some()) else {
        return Err(definition.error_in(at, 0, Problem::NoArguments, None));
    };
    let mut arguments = Vec::new();
    for passed in
        signature.function.arguments().filter(|passed| is_name(passed.name) && passed.name.len() <= ARGUMENT_NAME_MAX)
    {
        let argument = Argument::of_name(passed.name)?;
        match kind(&argument, Some(signature)) {
            Ok(_) => {}
            Err(ArgumentError { error: ResolveError { problem: Problem::OutOfMemory, .. }, .. }) => {
                return Err(fallible::OutOfMemory.into());
            }
            Err(_) => continue,
        }
        if definition.arguments.iter().any(|other| other.name == argument.name) {
            return Err(definition.error_in(at, 0, Problem::UsedArgumentName, None));
        }
        fallible::push(&mut arguments, argument)?;
    }
    if arguments.is_empty() {
        let reason =
            fallible::copy("none of its arguments is a single value that is known here; `list-probes -v` shows them")?;
        return Err(definition.error_in(at, 0, Problem::NoArgumentOfName, Some(reason)));
    }
    put_in_place(definition, at, arguments)
}

/// Replaces argument `at`, which is `$arg*`, by `arguments`.
pub(in crate::events) fn put_in_place(
    definition: &mut Definition,
    at: usize,
    arguments: Vec<Argument>,
) -> Result<(), definition::Error> {
    if definition.arguments.len() - 1 + arguments.len() > ARGUMENTS_MAX {
        return Err(definition.error_in(at, 0, Problem::TooManyArguments, None));
    }
    // Later arguments without a name of their own are numbered, and the inserted ones count.
    for number in at + 1..definition.arguments.len() {
        let is_named = definition.bodies.get(number).is_some_and(|&(_, before)| before > 0);
        let name = fallible::format(format_args!("arg{}", number + 1))?;
        let is_numbered = |argument: &&mut Argument| !is_named && argument.name == name;
        if let Some(argument) = definition.arguments.get_mut(number).filter(is_numbered) {
            argument.name = fallible::format(format_args!("arg{}", number + arguments.len()))?;
        }
    }
    let body = definition.bodies.get(at).copied().unwrap_or_default();
    let bodies = fallible::collect(arguments.iter().map(|_| body))?;
    replace(&mut definition.arguments, at, arguments)?;
    replace(&mut definition.bodies, at, bodies)?;
    let is_used = |(number, argument): (usize, &Argument)| {
        definition.arguments.iter().take(number).any(|other| other.name == argument.name)
    };
    match definition.arguments.iter().enumerate().any(is_used) {
        true => Err(definition.error_in(at, 0, Problem::UsedArgumentName, None)),
        false => Ok(()),
    }
}

/// Replaces one element of `all` by `others`.
fn replace<T>(all: &mut Vec<T>, at: usize, others: Vec<T>) -> Result<(), fallible::OutOfMemory> {
    all.try_reserve(others.len())?;
    drop(all.splice(at..=at, others));
    Ok(())
}

/// Turns `$retval` into a value by name, if its type is one that an event can record. Otherwise `$retval` stays the
/// value of x0.
fn name_result(argument: &mut Argument, signature: Option<&Signature<'_>>) -> Result<(), fallible::OutOfMemory> {
    let is_alone = argument.expression.origin == Origin::ReturnValue && argument.expression.reads.is_empty();
    let is_number = argument.has_type() && argument.kind.base != Base::String;
    let Some(signature) = signature.filter(|_| is_alone && !is_number) else { return Ok(()) };
    let named = Origin::Named(Named { argument: None, at: 0, fields: Vec::new() });
    let was = core::mem::replace(&mut argument.expression.origin, named);
    let problem = fetch(argument, Some(signature), &mut Vec::new()).err().map(|error| error.error.problem);
    match problem {
        Some(Problem::OutOfMemory) => return Err(fallible::OutOfMemory),
        Some(_) if !signature.is_in_memory() && !argument.has_type() => argument.expression.origin = was,
        _ => {}
    }
    Ok(())
}

/// Returns the type of an argument according to the table; `None` if the table does not determine it.
fn kind(argument: &Argument, signature: Option<&Signature<'_>>) -> Result<Option<Type>, ArgumentError> {
    let mut kept = Vec::new();
    Ok(match (&argument.expression.origin, signature) {
        (Origin::Named(_), _) => Some(fetch(argument, signature, &mut kept)?.1),
        (Origin::ReturnValue, Some(signature)) => {
            if signature.function.returned().is_some_and(|returned| returned.place == ValuePlace::Nothing) {
                return Err(ArgumentError::bare(Problem::NothingReturned, 0));
            }
            None
        }
        (Origin::ReturnValue, None) if argument.kind.base == Base::String && argument.expression.reads.is_empty() => {
            return Err(ArgumentError::bare(Problem::Text, argument.text.find(':').map_or(0, |at| at + 1)));
        }
        (Origin::Argument(number), Some(signature)) if *number >= signature.most_words()? => {
            return Err(ArgumentError::new(Problem::NoArgumentOfName, 0, "the function has fewer arguments"));
        }
        _ => None,
    })
}
