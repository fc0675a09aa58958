//! The options of the command `trace`, in one table: the parser of a line, the tab key and `help trace` use it.
//!
//! Options have bpftrace's names. Options of bpftrace that have no meaning here are in the table, too: they are refused
//! with the reason.

use core::fmt;

use fallible::OutOfMemory;

use crate::line_editor::Candidates;

/// The options that `trace` carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `-B`.
    Buffer,
    /// `-c`.
    Command,
    /// `-d`.
    Stage,
    /// `--dry-run`.
    DryRun,
    /// `-e`.
    Program,
    /// `-f`.
    Format,
    /// `-h`.
    Help,
    /// `-i`.
    Interpret,
    /// `--info`.
    Information,
    /// `-k`.
    Keys,
    /// `-l`.
    List,
    /// `-m`.
    Mark,
    /// `--no-warnings`.
    NoWarnings,
    /// `-p`.
    Task,
    /// `-q`.
    Quiet,
    /// `--unsafe`.
    Unsafe,
    /// `-V`.
    Version,
    /// `-v`.
    Verbose,
}

/// An option.
pub(super) struct Known {
    /// The letter after `-`; a blank if there is none.
    pub(super) letter: char,
    /// The name after `--`; empty if there is none.
    pub(super) long: &'static str,
    /// The name of the value; empty if the option has no value.
    pub(super) value: &'static str,
    pub(super) meaning: Meaning,
}

/// The meaning of an option.
pub(super) enum Meaning {
    /// `trace` carries it out. The text describes it in `help trace`.
    Used(Name, &'static str),
    /// The option is refused. The text is the nearest replacement, or the reason.
    Refused(&'static str),
}

const fn used(letter: char, long: &'static str, value: &'static str, name: Name, help: &'static str) -> Known {
    assert!(USAGE_WIDTH + help.len() <= 80, "no line of help is longer than 80 columns");
    Known { letter, long, value, meaning: Meaning::Used(name, help) }
}

const fn refused(letter: char, long: &'static str, why: &'static str) -> Known {
    Known { letter, long, value: "", meaning: Meaning::Refused(why) }
}

/// The width of the first half of a line about an option.
const USAGE_WIDTH: usize = 22;

pub(super) static OPTIONS: [Known; 28] = [
    used('B', "", "line", Name::Buffer, "show output in whole lines, as without it"),
    used('c', "", "COMMAND", Name::Command, "trace while this command runs"),
    used('d', "", "STAGE", Name::Stage, "show the program as ast, ops, dis (instructions) or all"),
    used(' ', "dry-run", "", Name::DryRun, "check and compile the program, attach nothing"),
    used('e', "", "PROGRAM", Name::Program, "the program"),
    used('f', "", "FORMAT", Name::Format, "print text or json"),
    used('h', "help", "", Name::Help, "show this help"),
    used('i', "", "", Name::Interpret, "interpret all clauses"),
    used(' ', "info", "", Name::Information, "show what this kernel supports"),
    used('k', "", "KEYS", Name::Keys, "room for this many keys per map, and stacks"),
    used('l', "", "[PROBES|PROGRAM]", Name::List, "list what probes match; `*` alone: of all kinds"),
    used('m', "", "", Name::Mark, "mark the output for a host"),
    used(' ', "no-warnings", "", Name::NoWarnings, "do not tell what cannot be probed or compiled"),
    used('p', "", "TASK", Name::Task, "only hits in the task with this number; ends with it"),
    used('q', "", "", Name::Quiet, "do not tell how many probes there are"),
    used(' ', "unsafe", "", Name::Unsafe, "no effect: nothing is unsafe here"),
    used('V', "version", "", Name::Version, "show the version"),
    used('v', "", "", Name::Verbose, "tell about clauses; with -l, about arguments"),
    refused(
        'o',
        "",
        "the console's files are those of tracefs; on the host, `cargo xtask trace -o FILE` writes the output to a file",
    ),
    refused(
        ' ',
        "probe-filter",
        "there are no regular expressions; give the probe a narrower pattern, as in kprobe:a::*",
    ),
    refused('I', "", "there are no C headers; the image has the types of its functions"),
    refused(' ', "include", "there are no C headers; the image has the types of its functions"),
    refused(' ', "debuginfo", "the image has its types and lines"),
    refused(' ', "fmt", "there are no files of programs; `-d ast` shows the program in the standard form"),
    refused(' ', "no-feature", "it chooses features of Linux; `-i` does without compiled clauses"),
    refused(' ', "traceable-functions", "it is a list of Linux; `coverage` says what can be probed"),
    refused(' ', "usdt-file-activation", "there is no user space"),
    refused(' ', "verify-llvm-ir", "there is no LLVM; every compiled clause is verified"),
];

/// Offers the options that `trace` carries out.
pub fn offer(found: &mut Candidates) -> Result<(), OutOfMemory> {
    for Known { letter, long, meaning, .. } in &OPTIONS {
        let Meaning::Used(..) = meaning else { continue };
        if *letter != ' ' {
            found.offer(&fallible::format(format_args!("-{letter}"))?, " ")?;
        }
        if !long.is_empty() {
            found.offer(&fallible::format(format_args!("--{long}"))?, " ")?;
        }
    }
    Ok(())
}

/// Shows a line for each option that `trace` carries out.
pub struct Help;

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OPTIONS:")?;
        for Known { letter, long, value, meaning } in &OPTIONS {
            let Meaning::Used(_, help) = meaning else { continue };
            let letter = fmt::from_fn(|f| match letter {
                ' ' => Ok(()),
                letter => write!(f, "-{letter}{}", if long.is_empty() { "" } else { ", " }),
            });
            let long = fmt::from_fn(|f| if long.is_empty() { Ok(()) } else { write!(f, "--{long}") });
            let value = fmt::from_fn(|f| if value.is_empty() { Ok(()) } else { write!(f, " {value}") });
            let usage = fallible::format(format_args!("  {letter}{long}{value}"))?;
            write!(f, "\n{usage:<USAGE_WIDTH$}{help}")?;
        }
        write!(f, "\n{:<USAGE_WIDTH$}after the program: its parameters, for getopt and $1", "  -- PARAMETERS")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_help_fits_the_screen() {
        let help = Help.to_string();
        assert!(help.lines().all(|line| line.len() <= 80));
        assert!(help.contains("\n  -h, --help          show this help\n"), "{help}");
        assert!(help.contains("\n  --dry-run           check"), "{help}");
    }
}
