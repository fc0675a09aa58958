//! Runs a program on a machine from the shell of the host. Standard output has the program's output alone, so that
//! other programs can read it. All other output of the console goes to standard error.

mod import;
pub mod source;

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    mem,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kprobes_wire::{
    history::LINE_MAX,
    mark::{Diagnostic, Mark},
};

use crate::{
    boot,
    remote::{Heard, Remote, TURN},
    signals::{catch_interrupts, check_signals},
};
use source::{Quoted, Source};

/// The exit status if the program is refused.
pub const REFUSED: u8 = 3;
/// The exit status if the machine does not go on.
pub const STOPPED: u8 = 4;
/// The exit status if the command is refused.
pub const FAILED: u8 = 5;

/// The program to run, and how.
#[derive(clap::Args)]
#[command(
    after_help = "The exit status is 3 if the program is refused, 4 if the machine stops responding, 5 if COMMAND is refused, \
                  6 if an assert of the program does not hold, and otherwise N if the program calls exit(N)."
)]
pub struct Options {
    #[command(flatten)]
    machine: boot::TargetOptions,
    #[command(flatten)]
    program_options: ProgramOptions,
    /// The program; PROGRAM|FILE is the first of its arguments then.
    #[arg(short, value_name = "PROGRAM")]
    execute: Option<String>,
    /// Writes the program's output to this file instead of the standard output.
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The program, or its file, which may begin with a line `#!…`; `-` is standard input. With -l also probes.
    #[arg(value_name = "PROGRAM|FILE", required_unless_present_any = ["execute", "list"])]
    program: Option<String>,
    /// The parameters of the program: values of `$1`, `str($1)` and so on, and `--NAME=VALUE` for `getopt("NAME", …)`.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// How a program is run.
#[derive(clap::Args, Clone, Default)]
pub struct ProgramOptions {
    /// The format of the output.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub format: String,
    /// Runs this console command meanwhile, and ends the program when it ends.
    #[arg(short, value_name = "COMMAND")]
    pub command: Option<String>,
    /// Ends the program after this many seconds. Without this and a command, it runs until `exit()` or ^C.
    #[arg(long, value_name = "N", conflicts_with = "command", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seconds: Option<u64>,
    /// Makes room for this many keys in each map, and for as many stacks.
    #[arg(short, value_name = "KEYS")]
    pub keys: Option<u64>,
    /// Lists what the probes of the program match, or what PROBES match; without a kind, as in `*sleep*`, of all kinds.
    #[arg(short)]
    pub list: bool,
    /// Restricts the program to the hits in the task with this number.
    #[arg(short = 'p', value_name = "TASK")]
    pub task: Option<u64>,
    /// Does not tell how many probes there are.
    #[arg(short)]
    pub quiet: bool,
    /// Tells about each clause; with -l, about arguments.
    #[arg(short)]
    pub verbose: bool,
    /// Shows the program as ast, ops, dis (instructions) or all.
    #[arg(short = 'd', value_name = "STAGE", value_delimiter = ',', value_parser = ["ast", "ops", "dis", "all"])]
    pub stages: Vec<String>,
    /// Checks and compiles the program, and attaches nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Does not tell what cannot be probed or compiled.
    #[arg(long)]
    pub no_warnings: bool,
    /// Interprets all clauses.
    #[arg(short)]
    pub interpret: bool,
    /// Has no effect: nothing is unsafe here.
    #[arg(long = "unsafe", hide = true)]
    pub is_unsafe: bool,
    /// The parameters of the program.
    #[arg(skip)]
    pub parameters: Vec<String>,
}

impl ProgramOptions {
    /// Carries out `command` meanwhile, with output as text.
    pub fn text(command: &str) -> Self {
        Self { format: "text".into(), command: Some(command.into()), ..Self::default() }
    }

    /// Carries out `command` meanwhile, with output as JSON.
    pub fn json(command: &str) -> Self {
        Self { format: "json".into(), ..Self::text(command) }
    }

    /// Returns the line to type at the console.
    pub fn line(&self, program: &str) -> Result<String> {
        let mut line = format!("trace -m -f {} ", if self.format == "json" { "json" } else { "text" });
        if let Some(keys) = self.keys {
            line += &format!("-k {keys} ");
        }
        if let Some(task) = self.task {
            line += &format!("-p {task} ");
        }
        for stage in &self.stages {
            line += &format!("-d {stage} ");
        }
        for (is_given, option) in [
            (self.list, "-l"),
            (self.quiet, "-q"),
            (self.verbose, "-v"),
            (self.dry_run, "--dry-run"),
            (self.no_warnings, "--no-warnings"),
            (self.interpret, "-i"),
        ] {
            if is_given {
                line += &format!("{option} ");
            }
        }
        if program.is_empty() && self.list {
            return Ok(line);
        }
        line += &Quoted(program).to_string();
        if let Some(command) = &self.command {
            ensure!(command != "console", "a console within a program needs a terminal: `cargo xtask run`");
            line += &format!(" -c {}", Quoted(command));
        }
        line += &source::after(&self.parameters);
        check_line("the program, with its command and parameters,", &line)?;
        Ok(line)
    }
}

/// Checks that `line`, which error messages call `what`, can be typed at the console.
pub fn check_line(what: &str, line: &str) -> Result<()> {
    ensure!(line.len() <= LINE_MAX, "{what} has {} bytes, and the console takes {LINE_MAX}", line.len());
    let control = line.chars().find(|c| c.is_control());
    ensure!(control.is_none(), "{what} has the control character {:?}", control.unwrap_or(' '));
    Ok(())
}

/// The destination of a piece of output: that of the program, or notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Output,
    Notes,
}

/// A receiver of output.
pub type Sink<'a> = &'a mut dyn FnMut(Stream, &str) -> Result<()>;

/// How a program has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The program has asked for this exit status, which is not 0.
    Exited(u8),
    /// The program was refused. The text is the message to print.
    Refused(String),
    /// Its command was refused.
    Failed,
}

impl Outcome {
    /// Returns how a program has ended whose end is marked with this text.
    fn ended(text: &str) -> Result<Self> {
        match (text, text.parse()) {
            ("", _) => Ok(Self::Done),
            (_, Ok(status @ 1..)) => Ok(Self::Exited(status)),
            _ => bail!("the machine says `{text}` for the exit status of the program"),
        }
    }
}

/// Runs a program.
pub fn trace(options: &Options) -> Result<ExitCode> {
    let source = match options.source()? {
        Ok(source) => source,
        Err(sentence) => {
            eprintln!("{sentence}");
            return Ok(REFUSED.into());
        }
    };
    let program_options = ProgramOptions { parameters: options.parameters(), ..options.program_options.clone() };
    // Checked before anything is built.
    program_options.line(&source.line)?;
    let target = options.machine.target()?;
    catch_interrupts();
    let mut output = match &options.output {
        Some(path) => {
            let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
            Box::new(file) as Box<dyn Write>
        }
        None => Box::new(io::stdout()),
    };
    let mut sink = |stream, text: &str| show(&mut *output, stream, text);
    let mut remote = Remote::start(&target, options.machine.boot.timeout)?;
    let outcome = run_source(&mut remote, &source, &program_options, &mut sink)?;
    remote.leave(target.farewell());
    Ok(match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Exited(status) => status.into(),
        Outcome::Refused(sentence) => {
            eprintln!("{sentence}");
            REFUSED.into()
        }
        Outcome::Failed => FAILED.into(),
    })
}

impl Options {
    /// Reads the program. The inner error says what is wrong with its text.
    fn source(&self) -> Result<Result<Source, String>> {
        let words = self.parameters();
        let arguments: Vec<String> = words.into_iter().filter(|word| !word.starts_with("--")).collect();
        match (&self.execute, &self.program) {
            (Some(text), _) => Ok(Source::new(text, None, &arguments)),
            (None, Some(program)) => read(program, &arguments),
            (None, None) => Ok(Source::new("", None, &[])),
        }
    }

    /// Returns the parameters of the program.
    fn parameters(&self) -> Vec<String> {
        let first = self.program.iter().filter(|_| self.execute.is_some());
        first.chain(&self.arguments).filter(|word| *word != "--").cloned().collect()
    }
}

/// Writes output of the program to `out`, and notes to standard error.
pub fn show(out: &mut dyn Write, stream: Stream, text: &str) -> Result<()> {
    if stream == Stream::Notes {
        eprint!("{text}");
        return Ok(());
    }
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error.into()),
        outcome => outcome.context("the output cannot be written"),
    }
}

/// Reads the program, or the one in the file. The inner error says what is wrong with its text.
pub fn read(program: &str, arguments: &[String]) -> Result<Result<Source, String>> {
    let (text, name) = match program {
        "-" => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
            (text, Some("standard input".into()))
        }
        file if file.ends_with(".bt") || Path::new(file).is_file() => {
            let text = fs::read_to_string(file).with_context(|| format!("the program {file} cannot be read"))?;
            (text, Some(file.into()))
        }
        text => (text.into(), None),
    };
    Ok(Source::new(&text, name, arguments))
}

/// Runs a program that is given in one line, for tests and for code that reads its output.
pub fn run_text(
    remote: &mut Remote,
    program: &str,
    program_options: &ProgramOptions,
    out: Sink<'_>,
) -> Result<Outcome> {
    let source = Source::new(program, None, &[]).map_err(|sentence| anyhow!(sentence))?;
    run_source(remote, &source, program_options, out)
}

/// Runs a program on a machine that is at its prompt.
pub fn run_source(
    remote: &mut Remote,
    source: &Source,
    program_options: &ProgramOptions,
    out: Sink<'_>,
) -> Result<Outcome> {
    let line = program_options.line(&source.line)?;
    check_signals()?;
    remote.type_line(&line)?;
    let (mut outcome, mut deadline, mut is_over) = (None, None, false);
    // The console ends an unfinished line before its prompt. If the line ended with a marked text, that makes a blank
    // line here.
    let mut blank = false;
    while !is_over {
        for heard in remote.hear(TURN)? {
            match heard {
                Heard::Marked(Mark::Output, text) => out(Stream::Output, &text)?,
                Heard::Marked(Mark::Attached, text) => {
                    out(Stream::Notes, &text)?;
                    deadline = program_options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
                }
                Heard::Marked(Mark::Refused, text) => {
                    let Diagnostic { cause, sentence } = Diagnostic::parse(&text);
                    outcome = Some(Outcome::Refused(source.refusal(cause, sentence)));
                }
                Heard::Marked(Mark::Failed, _) => outcome = Some(Outcome::Failed),
                Heard::Marked(Mark::Frame, _) => {}
                Heard::Marked(Mark::Done, text) => outcome = outcome.or(Some(Outcome::ended(&text)?)),
                Heard::Line(line) => {
                    if mem::replace(&mut blank, line.is_empty()) {
                        out(Stream::Notes, "\n")?;
                    }
                    if !blank {
                        out(Stream::Notes, &format!("{line}\n"))?;
                    }
                }
                Heard::Prompt => is_over = true,
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            remote.interrupt();
            deadline = None;
        }
        remote.pass_interrupt();
    }
    outcome.context("the program ended abnormally: its last lines say why")
}

#[cfg(test)]
mod tests {
    use super::{Outcome, ProgramOptions};

    #[test]
    fn the_end_of_a_program_has_its_exit_status() {
        for (text, outcome) in [("", Outcome::Done), ("12", Outcome::Exited(12))] {
            assert_eq!(Outcome::ended(text).unwrap(), outcome, "{text}");
        }
        for damaged in ["0", "300", "12x", "-1"] {
            assert!(Outcome::ended(damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn options_are_passed_on() {
        assert_eq!(ProgramOptions::json("a b").line("BEGIN { }").unwrap(), "trace -m -f json 'BEGIN { }' -c 'a b'");
        let all = ProgramOptions {
            keys: Some(10),
            task: Some(3),
            quiet: true,
            verbose: true,
            stages: vec!["ast".into(), "ops".into()],
            dry_run: true,
            no_warnings: true,
            interpret: true,
            parameters: vec!["it's".into(), "--name=1".into()],
            ..ProgramOptions::default()
        };
        let expected =
            r"trace -m -f text -k 10 -p 3 -d ast -d ops -q -v --dry-run --no-warnings -i 'x' -- 'it'\''s' '--name=1'";
        assert_eq!(all.line("x").unwrap(), expected);
        let list = ProgramOptions { list: true, ..ProgramOptions::default() };
        assert_eq!(list.line("").unwrap(), "trace -m -f text -l ");
        assert_eq!(list.line("*sleep*").unwrap(), "trace -m -f text -l '*sleep*'");
    }
}
