//! The command `trace` and its shortcuts.
//!
//! A program runs until it calls `exit()`, until ^C, or until the command that is given with it ends. Meanwhile a task
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
use kprobes_program::syntax::Parameters;
use kprobes_wire::mark::{Diagnostic, Mark, Marked};

use super::describe::Notes;
use super::options::Name;
use super::refusal::refuse;
use super::request::{PROGRAM, Request, Stages, TaskNumber};
use super::{information, listing};
use crate::arguments::{TextArgument, text_argument};
use crate::help;
use crate::host::{self, host};
use crate::input;
use crate::lines;
use crate::lock::Lock;
use crate::program::{Options, Reader, RunningProgram};
use crate::screen::Screen;
use crate::session::Session;
use crate::words::{Failure, Word, Words};

/// The interval at which output is polled, and at which the end of a program is checked: a hit cannot wake a task.
const PERIOD: Duration = Duration::from_millis(20);

/// The screen, with buffered lines.
type Lines = lines::Lines<Screen>;

/// Runs the command `trace [OPTIONS] PROGRAM`.
pub(crate) fn trace(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let request = Request::parse(words)?;
    if request.has(Name::Help) {
        return help::describe(Word { text: "trace", column: 0 });
    }
    if request.has(Name::Version) {
        println!("aarch64-kprobes {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    if request.has(Name::Information) {
        return information::show();
    }
    if request.has(Name::List) {
        listing::list(session, &request);
        return Ok(());
    }
    let Some(given) = &request.text else {
        return Err(words.expect(PROGRAM).err().unwrap_or_else(|| Failure::new("a program is missing")));
    };
    if let Some(TaskNumber { number, column }) = request.task
        && host().has_task(number) == Some(false)
    {
        let sentence = "no task has this number; `tasks` lists them";
        if request.has(Name::Mark) {
            session.is_refused = true;
            print!("{}", Marked(Mark::Refused, Diagnostic { cause: None, sentence }));
            return Ok(());
        }
        return Err(Failure::at(column, sentence));
    }
    let notes = Notes {
        is_quiet: request.has(Name::Quiet),
        is_silent: request.has(Name::NoWarnings),
        is_verbose: request.has(Name::Verbose),
        stages: request.stages,
    };
    let is_marked = request.has(Name::Mark);
    if !is_marked && request.format == OutputFormat::Json && (notes.is_verbose || notes.stages != Stages::default()) {
        return Err(Failure::new("-v and -d print text: leave out -f json"));
    }
    let options = Options {
        is_interpreted: request.has(Name::Interpret),
        keys: request.keys,
        format: request.format,
        task: request.task.map(|task| task.number),
        parameters: Parameters { words: &request.parameters },
    };
    let run_options = RunOptions { options, is_marked, is_dry: request.has(Name::DryRun), notes };
    run(session, &given.text, request.command.as_deref(), &run_options)
}

/// Runs the command `funccount GLOB [-c COMMAND]`.
pub(crate) fn count_functions(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::FunctionCount)
}

/// Runs the command `funclatency GLOB [-c COMMAND]`.
pub(crate) fn time_function(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::FunctionLatency)
}

/// Runs the command `stackcount FUNC [-c COMMAND]`.
pub(crate) fn count_stacks(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    short(session, words, Shortcut::StackCount)
}

fn short(session: &mut Session, words: &mut Words<'_>, shortcut: Shortcut) -> Result<(), Failure> {
    let TextArgument { text, column, command } = text_argument(words, "a function")?;
    let refused = |Error { problem, span }| {
        let before = text.get(..span.start).map_or(0, |before| before.chars().count());
        Failure::at(column + before, problem)
    };
    let program = shortcut.program(&text).map_err(refused)?;
    println!("{program}");
    run(session, &program, command.as_deref(), &RunOptions::default())
}

/// The options for a run of a program.
#[derive(Default)]
struct RunOptions<'a> {
    options: Options<'a>,
    /// Whether everything that is printed about the program is marked for a program on the host.
    is_marked: bool,
    /// Whether the program is only checked and compiled.
    is_dry: bool,
    notes: Notes,
}

/// Runs a program, until `command` or the program ends. One program runs at a time: a program whose command runs
/// another program, and so on, would overflow the stack.
fn run(session: &mut Session, text: &str, command: Option<&str>, options: &RunOptions<'_>) -> Result<(), Failure> {
    static IS_RUNNING: AtomicBool = AtomicBool::new(false);
    if IS_RUNNING.swap(true, Ordering::Relaxed) {
        return Err(Failure::new("a program is already running, with this command"));
    }
    let outcome = run_alone(session, text, command, options);
    IS_RUNNING.store(false, Ordering::Relaxed);
    outcome
}

fn run_alone(
    session: &mut Session,
    text: &str,
    command: Option<&str>,
    run_options: &RunOptions<'_>,
) -> Result<(), Failure> {
    let RunOptions { options, is_marked, is_dry, notes } = run_options;
    let (options, is_marked) = (*options, *is_marked);
    let screen = |mark| Screen { mark: is_marked.then_some(mark) };
    let mut about = Text::default();
    let prepared = notes.write_tree(text, options, &mut about).and_then(|()| match is_dry {
        true => RunningProgram::prepare(text, options, &input::is_interrupted),
        false => RunningProgram::start_unless(text, options, &input::is_interrupted),
    });
    let mut program = match prepared {
        Ok(program) => program,
        // The session, which runs this command, prints `^C`.
        Err(refusal) if refusal.is_stopped() => return Ok(()),
        Err(refusal) => {
            session.is_refused = true;
            refuse(&refusal, text, &mut screen(Mark::Refused));
            return Ok(());
        }
    };
    notes.write(&program, &mut about).map_err(|_| OutOfMemory)?;
    let mut lines = Lines::new(screen(Mark::Output));
    // Errors mean that ^C was pressed, which is checked below. The output of `BEGIN` comes before all other output of
    // the program.
    if !notes.is_quiet {
        let _ = program.write_attached(&mut lines);
    }
    let _ = match (is_marked, options.format) {
        // In JSON, only objects are printed. The number of probes is in an object that was written before.
        (false, OutputFormat::Json) if notes.has_more(&program) => {
            options.format.write_failure(about.0.trim_end(), &mut lines)
        }
        (false, OutputFormat::Json) => Ok(()),
        _ => screen(Mark::Attached).write_str(&about.0),
    };
    if *is_dry {
        if is_marked || options.format == OutputFormat::Text {
            let _ = screen(Mark::Attached).write_str("dry run: nothing is attached\n");
        }
        if is_marked {
            print!("{}", Marked(Mark::Done, ""));
        }
        return Ok(());
    }
    let _ = program.drain(&mut lines);
    let mut printer = OutputPrinter::start(program.reader(), lines)?;
    let outcome = match command {
        Some(command) if !program.is_over() && !input::is_interrupted() => session.execute(command),
        Some(_) => Ok(()),
        None => {
            let is_there = || options.task.is_none_or(|task| host().has_task(task) != Some(false));
            while !input::is_interrupted() && !program.is_over() && is_there() {
                let idle = program.turn();
                printer.turn();
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
    let mut lines = printer.end();
    if input::take_interrupt() {
        println!("^C");
    }
    if is_marked && session.is_refused {
        print!("{}", Marked(Mark::Failed, command.unwrap_or_default()));
    }
    let outcome = program.finish(&mut lines);
    let (status, is_lost) = (program.status(), lines.is_lost());
    drop(program);
    drop(lines);
    // The mark is printed even if ^C was pressed again, or if output is lost.
    if is_marked {
        match status {
            0 => print!("{}", Marked(Mark::Done, "")),
            status => print!("{}", Marked(Mark::Done, status)),
        }
    }
    match outcome {
        // If ^C was pressed again, the rest is not shown.
        Err(fmt::Error) if !input::is_interrupted() => {
            Err(Failure::new("there is not enough memory for the rest of the output"))
        }
        _ if is_lost => Err(Failure::new("a part of the output is lost: there was not enough memory")),
        _ => Ok(()),
    }
}

/// Shows the output of a program while it runs.
enum OutputPrinter {
    /// A task shows the output. At its end it stores the lines that could not be shown, which begin with the text that
    /// was being written when ^C was pressed.
    Task(Box<dyn host::Task>, Arc<Lock<Lines>>),
    /// [`turn`](Self::turn) shows the output, in a kernel without tasks.
    Here(Reader, Lines),
}

impl OutputPrinter {
    /// Begins to show output after the contents of `lines`.
    fn start(reader: Reader, mut lines: Lines) -> Result<Self, OutOfMemory> {
        let Some(spawn) = host().spawn() else { return Ok(Self::Here(reader, lines)) };
        let left = Arc::try_new(Lock::new(Lines::default()))?;
        let body = fallible::boxed({
            let left = left.clone();
            move || {
                while print_output(&reader, &mut lines) {
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
            print_output(reader, lines);
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
                print_output(&reader, &mut lines);
                lines
            }
        }
    }
}

/// Shows the output so far. Returns whether more may come.
fn print_output(reader: &Reader, lines: &mut Lines) -> bool {
    let is_ending = reader.is_ending();
    // After ^C, the screen accepts nothing until the program's command has ended, so no output is taken.
    let outcome = match input::is_interrupted() {
        true => Ok(false),
        false => reader.drain(lines).and_then(|is_over| lines.flush().map(|()| is_over)),
    };
    // If the program has asked to exit, or was told to end, the rest of its output is printed when it is finished.
    !is_ending && outcome != Ok(true)
}
