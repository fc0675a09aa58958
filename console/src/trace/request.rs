//! The arguments of the command `trace`, parsed from a line.
//!
//! Options stand before the program or, if the program is in quotes, after it. Letters can share a `-`. A value follows
//! in the same word or as the next one: `-k10`, `-k 10`.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_program::report::OutputFormat;
use kprobes_vm::maps::KEYS_MAX;

use super::options::{Meaning, Name, OPTIONS};
use crate::arguments::{TextArgument, text_argument};
use crate::nearest::nearest;
use crate::shell;
use crate::words::{Failure, Word, Words};

/// The stages that `-d` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The parsed program.
    Tree,
    /// The ops that clauses are lowered to.
    Ops,
    /// The instructions that clauses are compiled to.
    Instructions,
}

impl Stage {
    /// All stages, in the order of the compiler.
    pub const ALL: [Self; 3] = [Self::Tree, Self::Ops, Self::Instructions];

    /// Returns the name of the stage.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "ast",
            Self::Ops => "ops",
            Self::Instructions => "dis",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Returns whether the stage is in the set.
    pub fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// The arguments of `trace`, parsed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The program or the probes to list.
    pub text: Option<Given>,
    /// The command to run while the program runs.
    pub command: Option<String>,
    /// The number of keys of each map, if it is not the default.
    pub keys: Option<usize>,
    /// The form of the output.
    pub format: OutputFormat,
    /// The task whose hits the program sees.
    pub task: Option<TaskNumber>,
    /// The parameters of the program.
    pub parameters: Vec<String>,
    /// The given options, a bit for each.
    given: u32,
    /// The stages to show.
    pub stages: Stages,
}

/// The program or the probes in a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Given {
    /// The text.
    pub text: String,
    /// Whether `-e` says that it is a program.
    pub is_program: bool,
}

/// The number of a task in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskNumber {
    /// The number.
    pub number: u64,
    /// The column of the number, in characters from 0.
    pub column: usize,
}

impl Request {
    /// Returns whether the option is given.
    pub fn has(&self, name: Name) -> bool {
        self.given & 1 << name as u32 != 0
    }

    /// Parses the words after `trace`.
    ///
    /// # Errors
    ///
    /// An option is unknown, refused or without its value, a quote is not closed, a second program follows, or there is
    /// no memory. The error points at the cause.
    pub fn parse(words: &mut Words<'_>) -> Result<Self, Failure> {
        let mut request = Self::default();
        loop {
            let rest = words.rest();
            let next = words.clone().next().map_or("", |word| word.text);
            match rest.text.chars().next() {
                None => return Ok(request),
                Some('-') if next == "--" && request.text.is_none() => {
                    words.next();
                    request.read_text(words, false)?;
                }
                Some('-') if next == "--" => {
                    words.next();
                    while !words.rest().text.is_empty() {
                        fallible::push(&mut request.parameters, shell_word(words)?)?;
                    }
                }
                Some('-') if next.starts_with("--") => request.read_long(words)?,
                Some('-') if next.len() > 1 => request.read_letters(words)?,
                Some('>') => return Err(rest.failure("the output of a program cannot be redirected")),
                _ => request.read_text(words, false)?,
            }
        }
    }

    /// Reads a program or probes: a word in quotes, or everything up to a `-c`.
    fn read_text(&mut self, words: &mut Words<'_>, is_program: bool) -> Result<(), Failure> {
        let rest = words.rest();
        if self.text.is_some() {
            return Err(
                rest.failure("one quoted text is expected here, optionally followed by -c 'COMMAND' or -- PARAMETERS")
            );
        }
        let mut text = if rest.text.starts_with(['\'', '"']) {
            shell_word(words)?
        } else {
            let TextArgument { text, command, .. } = text_argument(words, PROGRAM)?;
            words.advance(rest.text.len());
            self.command = command.or(self.command.take());
            text
        };
        // Text without quotes takes the rest of the line.
        if self.has(Name::List)
            && let Some(probes) = text.strip_suffix("-v").filter(|probes| probes.ends_with(' '))
        {
            text = fallible::copy(probes.trim_end())?;
            self.give(Name::Verbose);
        }
        self.text = Some(Given { text, is_program });
        Ok(())
    }

    /// Reads letters after a `-`, the last of which may have a value.
    fn read_letters(&mut self, words: &mut Words<'_>) -> Result<(), Failure> {
        words.advance(1);
        loop {
            let rest = words.rest();
            let Some(letter) = rest.text.chars().next() else { return Ok(()) };
            let shown = Word { column: rest.column, text: rest.text };
            let option = OPTIONS.iter().find(|option| option.letter == letter && letter != ' ');
            let option = option.ok_or_else(|| {
                shown.failure(format_args!("there is no option `-{letter}`; `help trace` lists them"))
            })?;
            words.advance(letter.len_utf8());
            let ends = !words.continues();
            match option.meaning {
                Meaning::Refused(why) => return Err(shown.failure(format_args!("-{letter} is not supported: {why}"))),
                Meaning::Used(name, _) if option.value.is_empty() || name == Name::List => {
                    self.give(name);
                    if ends {
                        return Ok(());
                    }
                }
                Meaning::Used(name, _) => return self.read_value(name, words),
            }
        }
    }

    /// Reads a word that begins with `--`.
    fn read_long(&mut self, words: &mut Words<'_>) -> Result<(), Failure> {
        let rest = words.rest();
        let word = words.next().unwrap_or(rest);
        let (long, value) = match word.text.split_once('=') {
            Some((long, _)) => (long, true),
            None => (word.text, false),
        };
        let option =
            OPTIONS.iter().find(|option| !option.long.is_empty() && long.strip_prefix("--") == Some(option.long));
        match option.ok_or_else(|| unknown(word, long))?.meaning {
            Meaning::Refused(why) => Err(word.failure(format_args!("{long} is not supported: {why}"))),
            Meaning::Used(..) if value => Err(word.failure(format_args!("{long} has no value"))),
            Meaning::Used(name, _) => {
                self.give(name);
                Ok(())
            }
        }
    }

    /// Reads the value of an option.
    fn read_value(&mut self, name: Name, words: &mut Words<'_>) -> Result<(), Failure> {
        self.give(name);
        match name {
            Name::Program => {
                if words.rest().text.is_empty() {
                    words.expect(PROGRAM)?;
                }
                return self.read_text(words, true);
            }
            Name::Command => {
                let rest = words.rest();
                if rest.text.is_empty() {
                    words.expect("a command, as in run sha256,")?;
                }
                // A command without quotes takes the rest of the line.
                self.command = Some(if rest.text.starts_with(['\'', '"']) {
                    shell_word(words)?
                } else {
                    words.advance(rest.text.len());
                    fallible::copy(rest.text)?
                });
                return Ok(());
            }
            _ => {}
        }
        let word = Word { column: words.rest().column, text: words.clone().expect(missing(name))?.text };
        match name {
            Name::Keys => self.keys = Some(words.number(1, KEYS_MAX as u64)? as usize),
            Name::Task => {
                let number = word.text.parse().map_err(|_| word.failure("the number of a task is expected here"))?;
                self.task = Some(TaskNumber { number, column: word.column });
                words.next();
            }
            Name::Format => {
                self.format = match word.text {
                    "text" => OutputFormat::Text,
                    "json" => OutputFormat::Json,
                    _ => return Err(word.failure("the output is text or json")),
                };
                words.next();
            }
            Name::Buffer if word.text == "line" => drop(words.next()),
            Name::Buffer => {
                return Err(word.failure("output is shown in whole lines, within 20 ms: the only mode is line"));
            }
            _ => {
                for one in word.text.split(',') {
                    match Stage::ALL.iter().find(|stage| stage.name() == one) {
                        Some(&stage) => self.stages.0 |= 1 << stage as u8,
                        None if one == "all" => self.stages.0 = u8::MAX,
                        None => return Err(word.failure("the stages are ast, ops, dis and all")),
                    }
                }
                words.next();
            }
        }
        Ok(())
    }

    fn give(&mut self, name: Name) {
        self.given |= 1 << name as u32;
    }
}

/// A program, in error messages.
pub const PROGRAM: &str = "a program, as in kprobe:f { @ = count(); },";

/// Returns the value of an option in words, for the error that it is missing.
fn missing(name: Name) -> &'static str {
    match name {
        Name::Keys => "a number of keys",
        Name::Format => "text or json",
        Name::Task => "the number of a task",
        Name::Stage => "a stage, as in ast,",
        _ => "the mode, which is line,",
    }
}

/// Reads a word as a shell does.
fn shell_word(words: &mut Words<'_>) -> Result<String, Failure> {
    let rest = words.rest();
    let (word, length) = shell::first_word(rest.text).map_err(|error| error.failure(rest.column))?;
    words.advance(length);
    Ok(word)
}

fn unknown(word: Word<'_>, option: &str) -> Failure {
    let known = OPTIONS.iter().map(|known| known.long).filter(|long| !long.is_empty());
    match option.strip_prefix("--").and_then(|long| nearest(long, known)) {
        Some(meant) => word.failure(format_args!("there is no option `{option}`; did you mean `--{meant}`?")),
        None => word.failure(format_args!("there is no option `{option}`; `help trace` lists them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const PROGRAM: &str = "kprobe:f { @ = count(); }";

    fn parse(line: &str) -> Result<Request, Failure> {
        Request::parse(&mut Words::new(line))
    }

    fn read(line: &str) -> Request {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error:?}"))
    }

    fn refused(line: &str) -> (usize, String) {
        let mut text = String::new();
        parse(line).expect_err(line).write(line, &mut text).unwrap();
        let sentence = text.lines().next().unwrap().strip_prefix("error: ").unwrap().to_string();
        let mark = text.lines().nth(2).unwrap_or("");
        (mark.len().saturating_sub("  Command: ^".len()), sentence)
    }

    fn text(request: &Request) -> (&str, bool) {
        request.text.as_ref().map_or(("", false), |given| (given.text.as_str(), given.is_program))
    }

    #[test]
    fn a_program_stands_anywhere_in_quotes_and_last_without() {
        for (line, is_program) in [
            ("kprobe:f { @ = count(); }", false),
            ("'kprobe:f { @ = count(); }'", false),
            ("-e kprobe:f { @ = count(); }", true),
            ("-e 'kprobe:f { @ = count(); }' -v", true),
            ("-v 'kprobe:f { @ = count(); }' -k 10", false),
            ("-e'kprobe:f { @ = count(); }'", true),
            ("-- kprobe:f { @ = count(); }", false),
            ("-qe \"kprobe:f { @ = count(); }\" -f json", true),
        ] {
            assert_eq!(text(&read(line)), (PROGRAM, is_program), "{line}");
        }
        assert_eq!(text(&read(r"'a'\''b'")).0, "a'b");
    }

    #[test]
    fn a_command_is_quoted_or_the_rest() {
        for line in [
            "kprobe:f { @ = count(); } -c run sha256 10",
            "'kprobe:f { @ = count(); }' -c run sha256 10",
            "'kprobe:f { @ = count(); }' -c 'run sha256 10' -v",
            "-c 'run sha256 10' -e 'kprobe:f { @ = count(); }'",
            "-c 'run sha256 10' kprobe:f { @ = count(); }",
            "-e kprobe:f { @ = count(); } -c 'run sha256 10'",
        ] {
            let request = read(line);
            assert_eq!((text(&request).0, request.command.as_deref()), (PROGRAM, Some("run sha256 10")), "{line}");
        }
        let nested = read("'f' -c trace -v 'g' -c run");
        assert_eq!(nested.command.as_deref(), Some("trace -v 'g' -c run"));
        assert!(!nested.has(Name::Verbose));
    }

    #[test]
    fn options_have_values_and_share_a_dash() {
        for line in ["-k 10 -f json -p 7", "-k10 -fjson -p7", "-f json -ik 10 -p 7", "-p 7 -f text -k 1 -k 10 -f json"]
        {
            let request = read(&alloc::format!("{line} 'f'"));
            let Request { keys, format, task, .. } = &request;
            assert_eq!((*keys, *format), (Some(10), OutputFormat::Json), "{line}");
            assert_eq!(task.map(|task| task.number), Some(7), "{line}");
        }
        let request = read("-lv --no-warnings --unsafe --dry-run -B line");
        let names = [Name::List, Name::Verbose, Name::NoWarnings, Name::Unsafe, Name::DryRun, Name::Buffer];
        assert!(names.iter().all(|&name| request.has(name)));
        assert!([Name::Quiet, Name::Help, Name::Program].iter().all(|&name| !request.has(name)));
        let stages = |line: &str| {
            let stages = read(line).stages;
            Stage::ALL.into_iter().filter(|&stage| stages.has(stage)).map(Stage::name).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(stages("-d dis,ast"), ["ast", "dis"]);
        assert_eq!(stages("-d ops -d ast"), ["ast", "ops"]);
        assert_eq!(stages("-dall"), ["ast", "ops", "dis"]);
        assert_eq!(stages("-v"), [""; 0]);
    }

    #[test]
    fn probes_are_listed_without_a_program() {
        for line in ["-l kprobe:*sleep*, t:* -v", "-lv kprobe:*sleep*, t:*", "-l 'kprobe:*sleep*, t:*' -v"] {
            let request = read(line);
            assert_eq!(text(&request), ("kprobe:*sleep*, t:*", false), "{line}");
            assert!(request.has(Name::Verbose) && request.has(Name::List), "{line}");
        }
        assert_eq!(read("-l").text, None);
    }

    #[test]
    fn words_after_a_program_are_its_parameters() {
        let request = read("-q 'f' -c 'run a' -- 10 --name='two words' --flag");
        assert_eq!(request.parameters, ["10", "--name=two words", "--flag"]);
        assert_eq!((text(&request), request.command.as_deref()), (("f", false), Some("run a")));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (line, column, sentence) in [
            ("-x 'f'", 1, "there is no option `-x`; `help trace` lists them"),
            ("-vx 'f'", 2, "there is no option `-x`; `help trace` lists them"),
            ("'f' -x", 5, "there is no option `-x`; `help trace` lists them"),
            ("--foo=1 'f'", 0, "there is no option `--foo`; `help trace` lists them"),
            ("--dry-rnu 'f'", 0, "there is no option `--dry-rnu`; did you mean `--dry-run`?"),
            ("--dry-run=1", 0, "--dry-run has no value"),
            ("-d codegen 'f'", 3, "the stages are ast, ops, dis and all"),
            ("-B none 'f'", 3, "output is shown in whole lines, within 20 ms: the only mode is line"),
            ("-f xml 'f'", 3, "the output is text or json"),
            ("-k 0 'f'", 3, "a number from 1 to 1048576 is expected here"),
            ("-p main 'f'", 3, "the number of a task is expected here"),
            ("'f' 'g'", 4, "one quoted text is expected here, optionally followed by -c 'COMMAND' or -- PARAMETERS"),
            ("'f' > g", 4, "the output of a program cannot be redirected"),
            ("'f", 0, "this quote is not closed"),
            ("f -c ", 5, "a command, as in run sha256, is missing here"),
            ("'f' -c ", 7, "a command, as in run sha256, is missing here"),
            ("-k", 3, "a number of keys is missing here"),
            ("-e", 3, "a program, as in kprobe:f { @ = count(); }, is missing here"),
        ] {
            assert_eq!(refused(line), (column, sentence.into()), "{line}");
        }
        for option in ["-o f", "-I d", "--include=x", "--fmt f", "--probe-filter=a.*", "--usdt-file-activation"] {
            let name = option.split(['=', ' ']).next().unwrap();
            let (_, sentence) = refused(option);
            assert!(sentence.starts_with(&alloc::format!("{name} is not supported: ")), "{sentence}");
        }
    }
}
