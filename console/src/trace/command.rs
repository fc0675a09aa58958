//! The commands about programs: `trace`, its shortcuts, and `list-probes`.
//!
//! A program runs until it calls `exit()`, until ^C, or while a command runs that is given with it. Meanwhile a task
//! shows its output. Its maps are shown at the end.

use alloc::boxed::Box;
use core::fmt::{self, Write};
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use fallible::{Arc, OutOfMemory, Text};
use kprobes_program::error::Error;
use kprobes_program::report::OutputFormat;
use kprobes_program::shortcut::Shortcut;
use kprobes_vm::counted::counted;
use kprobes_vm::store::KEYS_MAX;
use kprobes_wire::mark::{self, Kind, Marked};

use crate::host::{Task, host};
use crate::lines;
use crate::lock::Lock;
use crate::program::{Options, Program, Reader, Refusal};
use crate::screen::Screen;
use crate::session::Session;
use crate::typed::{Typed, typed};
use crate::words::{Failure, Words};
use crate::{host, input, program, symbol};

/// The interval at which output is polled, and at which the end of a program is checked: a hit cannot wake a task.
const PERIOD: Duration = Duration::from_millis(20);

/// The screen, with buffered lines.
type Lines = lines::Lines<Screen>;

/// Runs the command `trace [-i] [-k KEYS] [-f text|json] [-m] PROGRAM [-c COMMAND]`.
pub(super) fn trace(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let (mut options, mut is_marked) = (Options::default(), false);
    while let Some(option @ ("-i" | "-k" | "-f" | "-m")) = words.clone().next().map(|word| word.text) {
        words.next();
        match option {
            "-i" => options.is_interpreted = true,
            "-m" => is_marked = true,
            "-f" => {
                let format = words.expect("text or json")?;
                options.format = match format.text {
                    "text" => OutputFormat::Text,
                    "json" => OutputFormat::Json,
                    _ => return Err(format.failure("the output is text or json")),
                };
            }
            _ => {
                words.clone().expect("a number of keys")?;
                options.keys = Some(words.number(1, KEYS_MAX as u64)? as usize);
            }
        }
    }
    let Typed { text, command, .. } = typed(words, "a program, as in kprobe:f { @ = count(); },")?;
    run(session, &text, command.as_deref(), options, is_marked)
}

/// Runs the command `funccount GLOB [-c COMMAND]`.
pub(super) fn count_functions(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::FunctionCount)
}

/// Runs the command `funclatency GLOB [-c COMMAND]`.
pub(super) fn time_function(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::FunctionLatency)
}

/// Runs the command `stackcount FUNC [-c COMMAND]`.
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
    run(session, &program, command.as_deref(), Options::default(), false)
}

/// Runs a program, until `command` or the program ends. If `is_marked`, everything that is printed about the program is
/// marked for a program on the host. One program runs at a time: a program whose command runs another program, and so
/// on, would overflow the stack.
fn run(
    session: &mut Session,
    text: &str,
    command: Option<&str>,
    options: Options,
    is_marked: bool,
) -> Result<(), Failure> {
    static IS_RUNNING: AtomicBool = AtomicBool::new(false);
    if IS_RUNNING.swap(true, Ordering::Relaxed) {
        return Err(Failure::new("a program is already running, with this command"));
    }
    let outcome = run_alone(session, text, command, options, is_marked);
    IS_RUNNING.store(false, Ordering::Relaxed);
    outcome
}

fn run_alone(
    session: &mut Session,
    text: &str,
    command: Option<&str>,
    options: Options,
    is_marked: bool,
) -> Result<(), Failure> {
    let screen = |kind| Screen { mark: is_marked.then_some(kind) };
    let mut program = match Program::start_unless(text, options, &input::is_interrupted) {
        Ok(program) => program,
        // The session, which runs this command, prints `^C`.
        Err(refusal) if refusal.is_stopped() => return Ok(()),
        Err(refusal) => {
            session.is_refused = true;
            show(&refusal, text, &mut screen(Kind::Refused));
            return Ok(());
        }
    };
    let mut about = Text::default();
    describe(&program, &mut about).map_err(|_| OutOfMemory)?;
    let mut lines = Lines::new(screen(Kind::Output));
    // Errors mean that ^C was pressed, which is checked below. The output of `BEGIN` comes before all other output of
    // the program.
    let _ = program.write_attached(&mut lines);
    let _ = match (is_marked, options.format) {
        // In JSON, nothing but objects is printed. An object that was written before has the number of probes.
        (false, OutputFormat::Json) if about.0.contains("; ") || about.0.lines().count() > 1 => {
            options.format.write_failure(about.0.trim_end(), &mut lines)
        }
        (false, OutputFormat::Json) => Ok(()),
        _ => screen(Kind::Attached).write_str(&about.0),
    };
    let _ = program.drain(&mut lines);
    let mut follower = Follower::start(program.reader(), lines)?;
    let outcome = match command {
        Some(command) if !program.is_over() && !input::is_interrupted() => session.execute(command),
        Some(_) => Ok(()),
        None => {
            while !input::is_interrupted() && !program.is_over() {
                let idle = program.turn();
                follower.turn();
                host::sleep(idle);
            }
            Ok(())
        }
    };
    if let (Err(failure), Some(command)) = (&outcome, command) {
        // The screen returns an error only after ^C.
        let _ = failure.write(command, &mut Screen::default());
    }
    session.is_refused |= outcome.is_err();
    if !program.is_over() {
        program.turn();
    }
    let program = program.detach();
    let mut lines = follower.end();
    if input::take_interrupt() {
        println!("^C");
    }
    if is_marked && session.is_refused {
        print!("{}", Marked(Kind::Failed, command.unwrap_or_default()));
    }
    match program.finish(&mut lines) {
        // If ^C was pressed again, the rest is not shown.
        Err(fmt::Error) if !input::is_interrupted() => {
            drop(lines);
            Err(Failure::new("there is not enough memory for the rest of the output"))
        }
        _ if lines.is_lost() => Err(Failure::new("a part of the output is lost: there was not enough memory")),
        _ => {
            drop(lines);
            // The mark is printed even if ^C was pressed again.
            if is_marked {
                print!("{}", Marked(Kind::Done, ""));
            }
            Ok(())
        }
    }
}

/// Shows why a program does not run.
fn show(refusal: &Refusal, text: &str, screen: &mut Screen) {
    // The screen returns an error only after ^C.
    let _ = match screen.mark {
        None => refusal.write(text, screen),
        Some(kind) => {
            let cause = refusal.cause().map(|span| (span.start, span.end));
            print!("{}", Marked(kind, mark::Refusal { cause, sentence: refusal.sentence() }));
            Ok(())
        }
    };
}

/// Writes the number of probes on the first line, with the functions and instructions that cannot be probed. Further
/// lines tell of copies that are not probed and clauses that are interpreted.
fn describe(program: &Program, out: &mut dyn Write) -> fmt::Result {
    write!(out, "{}", counted(program.probes(), "probe", "probes"))?;
    let mut functions = program.refused();
    match (functions.next(), functions.count()) {
        (None, _) => {}
        (Some(one), 0) => write!(out, "; 1 function cannot be probed: `why {one}`")?,
        (Some(first), others) => {
            write!(out, "; {} functions cannot be probed: `why {first}` for the first", 1 + others)?;
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
        [one] => write!(out, "; 1 instruction of the probed functions cannot be probed: `why {}`", place(one))?,
        [first, ..] => write!(
            out,
            "; {} instructions of the probed functions cannot be probed: `why {}` for the first",
            instructions.len(),
            place(first)
        )?,
    }
    writeln!(out)?;
    match program.untold() {
        0 => {}
        1 => writeln!(out, "1 inlined copy is not probed: no instruction marks where it is entered or left")?,
        untold => writeln!(
            out,
            "{untold} inlined copies are not probed: no instruction marks where they are entered or left"
        )?,
    }
    program.missing().iter().try_for_each(|missing| writeln!(out, "warning: {missing}"))?;
    program
        .interpreted()
        .iter()
        .try_for_each(|(number, reason)| writeln!(out, "clause {} is interpreted: {reason}", number + 1))
}

/// Shows the output of a program while it runs.
enum Follower {
    /// A task shows the output. At its end it stores the lines that could not be shown, which begin with the text that
    /// was being written when ^C was pressed.
    Task(Box<dyn Task>, Arc<Lock<Lines>>),
    /// [`turn`](Self::turn) shows the output, in a kernel without tasks.
    Here(Reader, Lines),
}

impl Follower {
    /// Begins to show output after the contents of `lines`.
    fn start(reader: Reader, mut lines: Lines) -> Result<Self, OutOfMemory> {
        let Some(spawn) = host().spawn() else { return Ok(Self::Here(reader, lines)) };
        let left = Arc::try_new(Lock::new(Lines::default()))?;
        let body = fallible::boxed({
            let left = left.clone();
            move || {
                while follow(&reader, &mut lines) {
                    host::sleep(PERIOD);
                }
                *left.lock() = lines;
            }
        })?;
        spawn("trace", body).map(|task| Self::Task(task, left))
    }

    /// Shows the output so far, if no task does it.
    fn turn(&mut self) {
        if let Self::Here(reader, lines) = self {
            follow(reader, lines);
        }
    }

    /// Shows the rest of the output, after the program has ended or was told to end. Returns the lines that could not
    /// be shown.
    fn end(self) -> Lines {
        match self {
            Self::Task(mut task, left) => {
                task.join();
                mem::take(&mut *left.lock())
            }
            Self::Here(reader, mut lines) => {
                follow(&reader, &mut lines);
                lines
            }
        }
    }
}

/// Shows the output so far. Returns whether more may come.
fn follow(reader: &Reader, lines: &mut Lines) -> bool {
    let is_ending = reader.is_ending();
    // ^C may have been meant for the program's command only. Until that command ends, the screen shows nothing, so no
    // output is taken.
    let outcome = match input::is_interrupted() {
        true => Ok(false),
        false => reader.drain(lines).and_then(|is_over| lines.flush().map(|()| is_over)),
    };
    // The program has asked to exit, or was told to end.
    !is_ending && outcome != Ok(true)
}

/// Runs the command `list-probes [-v] PROBES`.
pub(super) fn list(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let has_signatures = words.option("-v");
    let Typed { text, .. } = typed(words, "probes, as in kprobe:blk::*,")?;
    match program::list(&text, has_signatures) {
        Err(refusal) => {
            session.is_refused = true;
            show(&refusal, &text, &mut Screen::default());
        }
        Ok(probes) => {
            for probe in &probes {
                if input::is_interrupted() {
                    return Ok(());
                }
                println!("{probe}");
            }
            let count = probes.iter().filter(|line| !line.starts_with(' ')).count();
            println!("{}", counted(count, "probe", "probes"));
        }
    }
    Ok(())
}
