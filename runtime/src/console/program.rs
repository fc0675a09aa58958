//! Commands about programs: `trace`, the shortcuts that stand for usual ones, and `list-probes`.
//!
//! A program runs until it calls `exit()`, until ^C, or while a command runs that is given with it. A task of its own shows
//! meanwhile what it puts out; its maps come at the end.

use core::fmt;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use fallible::Arc;
use kprobes_program::error::Error;
use kprobes_program::shortcut::Shortcut;
use kprobes_vm::store::KEYS_MAX;

use super::lines;
use super::session::{Screen, Session};
use super::typed::{Typed, typed};
use super::words::{Failure, Words};
use crate::program::{Options, Program, Reader, Refusal};
use crate::sync::PreemptLock;
use crate::{print, println, program, symbol, task, uart};

/// How long who waits for a program, or for its output, sleeps at a time: a hit cannot wake a task.
const PERIOD: Duration = Duration::from_millis(20);

/// The screen, line by line.
type Lines = lines::Lines<Screen>;

/// `trace [-i] [-k KEYS] PROGRAM [-c COMMAND]`
pub(super) fn trace(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let mut options = Options::default();
    while let Some(option @ ("-i" | "-k")) = words.clone().next().map(|word| word.text) {
        words.next();
        if option == "-i" {
            options.is_interpreted = true;
        } else {
            words.clone().expect("a number of keys")?;
            options.keys = Some(words.number(1, KEYS_MAX as u64)? as usize);
        }
    }
    let Typed { text, command, .. } = typed(words, "a program, as in kprobe:f { @ = count(); },")?;
    run(session, &text, command.as_deref(), options)
}

/// `funccount GLOB [-c COMMAND]`
pub(super) fn count_functions(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::FunctionCount)
}

/// `funclatency GLOB [-c COMMAND]`
pub(super) fn time_function(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::FunctionLatency)
}

/// `stackcount FUNC [-c COMMAND]`
pub(super) fn count_stacks(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::StackCount)
}

fn short(session: &mut Session, words: &mut Words<'_>, shortcut: Shortcut) -> Result<(), Failure> {
    let Typed { text, column, command } = typed(words, "a function")?;
    let refused = |Error { problem, span }| {
        let before = text.get(..span.start).map_or(0, |before| before.chars().count());
        Failure::at(column + before, problem)
    };
    let program = shortcut.program(&text).map_err(refused)?;
    println!("{program}");
    run(session, &program, command.as_deref(), Options::default())
}

/// Runs a program, with `command` or until it ends. One at a time: the stack does not do for
/// a program that the command of another runs, and so on.
fn run(session: &mut Session, text: &str, command: Option<&str>, options: Options) -> Result<(), Failure> {
    static IS_RUNNING: AtomicBool = AtomicBool::new(false);
    if IS_RUNNING.swap(true, Ordering::Relaxed) {
        return Err(Failure::new("a program runs already, with this command"));
    }
    let outcome = run_alone(session, text, command, options);
    IS_RUNNING.store(false, Ordering::Relaxed);
    outcome
}

fn run_alone(session: &mut Session, text: &str, command: Option<&str>, options: Options) -> Result<(), Failure> {
    let program = match Program::start_unless(text, options, &uart::is_interrupted) {
        Ok(program) => program,
        // The shell, which runs this command, prints `^C`.
        Err(refusal) if refusal.is_stopped() => return Ok(()),
        Err(refusal) => {
            show(&refusal, text);
            return Ok(());
        }
    };
    describe(&program);
    // What `BEGIN` has put out comes before everything else; ^C is seen below.
    let mut lines = Lines::default();
    let _ = program.drain(&mut lines);
    let reader = program.reader();
    let left = Arc::try_new(PreemptLock::new(Lines::default()))?;
    let reader = task::try_spawn("trace", {
        let left = left.clone();
        move || {
            let lines = follow(&reader, lines);
            *left.lock() = lines;
        }
    })?;
    let outcome = match command {
        Some(command) if !program.is_over() && !uart::is_interrupted() => session.execute(command),
        Some(_) => Ok(()),
        None => {
            while !uart::is_interrupted() && !program.is_over() {
                task::sleep(PERIOD);
            }
            Ok(())
        }
    };
    if let (Err(failure), Some(command)) = (outcome, command) {
        // The screen gives no errors but for ^C.
        let _ = failure.write(command, &mut Screen);
    }
    let program = program.detach();
    reader.join();
    if uart::take_interrupt() {
        println!("^C");
    }
    let mut lines = mem::take(&mut *left.lock());
    match program.finish(&mut lines) {
        // ^C once more: the rest is not shown.
        Err(fmt::Error) if !uart::is_interrupted() => {
            drop(lines);
            Err(Failure::new("there is no memory left for the rest of the output"))
        }
        _ if lines.is_lost() => Err(Failure::new("there was no memory for a part of the output")),
        _ => Ok(()),
    }
}

/// Says why a program does not run.
fn show(refusal: &Refusal, text: &str) {
    // The screen gives no errors but for ^C.
    let _ = refusal.write(text, &mut Screen);
}

/// Says how much is probed.
fn describe(program: &Program) {
    print!("{} probe{}", program.probes(), if program.probes() == 1 { "" } else { "s" });
    let mut functions = program.refused();
    match (functions.next(), functions.count()) {
        (None, _) => {}
        (Some(one), 0) => print!("; 1 function cannot be probed: `why {one}`"),
        (Some(first), others) => {
            print!("; {} functions cannot be probed, as `why {first}` tells of the first", 1 + others);
        }
    }
    let instructions = program.refused_instructions();
    let place = |address: usize| {
        fmt::from_fn(move |f| {
            let Some(function) = symbol::lookup(address) else { return Ok(()) };
            write!(f, "{}+{:#x}", function.name, address as u64 - function.address)
        })
    };
    match *instructions {
        [] => {}
        [one] => print!("; of functions that are, 1 instruction cannot be probed: `why {}`", place(one)),
        [first, ..] => print!(
            "; of functions that are, {} instructions cannot be probed, as `why {}` tells of the first",
            instructions.len(),
            place(first)
        ),
    }
    println!();
    match program.untold() {
        0 => {}
        1 => println!("1 inlined copy is not probed: no instruction tells when control passes"),
        untold => println!("{untold} inlined copies are not probed: no instruction tells when control passes"),
    }
    for (number, reason) in program.interpreted() {
        println!("clause {} is interpreted: {reason}", number + 1);
    }
}

/// Shows what a program puts out, behind `lines`, until nothing more comes. Returns what was taken and could not be shown: the
/// beginning of what was being written when ^C was pressed.
fn follow(reader: &Reader, mut lines: Lines) -> Lines {
    loop {
        let is_ending = reader.is_ending();
        // ^C may have been for the program's command only: until that is over, nothing is taken that could not be shown.
        let outcome = match uart::is_interrupted() {
            true => Ok(false),
            false => reader.drain(&mut lines).and_then(|is_over| lines.flush().map(|()| is_over)),
        };
        // It has asked to end, or was told to.
        if is_ending || outcome == Ok(true) {
            return lines;
        }
        task::sleep(PERIOD);
    }
}

/// `list-probes [-v] PROBES`
pub(super) fn list(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let has_signatures = words.option("-v");
    let Typed { text, .. } = typed(words, "probes, as in kprobe:blk::*,")?;
    match program::list(&text, has_signatures) {
        Err(refusal) => show(&refusal, &text),
        Ok(probes) => {
            for probe in &probes {
                if uart::is_interrupted() {
                    return Ok(());
                }
                println!("{probe}");
            }
            let count = probes.iter().filter(|line| !line.starts_with(' ')).count();
            println!("{count} probe{}", if count == 1 { "" } else { "s" });
        }
    }
    Ok(())
}
