//! Finds the written sessions with the console:
//!
//! - in `tests/console/`, one a file;
//! - in the README files of the repository and of the board, in `docs/tracing.md` and in `docs/language.md`, where they
//!   show readers what to expect;
//! - in `tests/console/tools/`, for the programs in `tools/` whose output does not depend on the number of CPUs;
//! - in `tests/console/smpN/`, for machines of N CPUs; sessions in README files that are marked as `console smpN` are
//!   for these, too. The others there are for the default machine;
//! - in `tests/console/special/`, for machines that were not just started, or that are damaged.
//!
//! The first line of a file may be `depends: TRAITS`: the traits of the machine that can make a difference to the
//! session. The next line may be `needs: WHAT`, as for a test of the tests image: the session is skipped on a machine
//! that does not meet the need. The next line may be `profile: default`: the session depends on the compiler's output
//! for the profile of `Cargo.toml`, and is ignored where the environment sets another profile.
//!
//! A file types a program of `tools/` as `trace tools/NAME.bt ARGUMENTS -c 'COMMAND'`: what `cargo xtask trace` takes.
//! The console gets the text of the program instead, in one line.

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow};

use super::{
    blanks, garbage,
    select::{Demands, Trait},
    session::{Player, Session},
};
use crate::{
    conversation::PROMPT,
    dialogue::Subject,
    trace::source::{Quoted, Source, after},
    workspace,
};

/// The mark of a session that needs a peer at the other end of the network.
const LIVE: &str = "console network";

/// The mark of a session that holds only for the default profile.
const DEFAULT_PROFILE: &str = "profile: default\n";

/// The command that runs a program.
const TRACE: &str = "trace ";

/// The start of a line of a session that runs a program of `tools/`.
const TOOL: &str = "trace tools/";

/// A session, with its name and demands.
pub struct Written {
    pub name: String,
    pub demands: Demands,
    /// Whether it holds only for a kernel compiled with the profile of `Cargo.toml`.
    pub is_of_default_profile: bool,
    /// The error says why the text is not a session.
    session: Result<Session, String>,
}

impl Written {
    /// Says that the session is one for a number of CPUs.
    fn on_these_cpus(mut self) -> Self {
        if !self.demands.depends.contains(&Trait::Cpus) {
            self.demands.depends.push(Trait::Cpus);
        }
        self
    }

    /// Returns a new run of the session.
    pub fn subject(&self) -> Result<Box<dyn Subject<()> + Send>, String> {
        Ok(Box::new(Player::new(self.session.clone()?)))
    }

    /// Returns a new run of the session without the line that switches the machine off, for boards that would stay off.
    pub fn subject_that_stays(&self) -> Result<Box<dyn Subject<()> + Send>, String> {
        Ok(Box::new(Player::new(self.session.clone()?.without_power_off())))
    }
}

/// Returns every session for machines with this number of CPUs. `is_plain` says that the board has this number by
/// default.
pub fn all(board: &str, cpus: u32, is_plain: bool) -> Result<Vec<Written>> {
    let root = workspace::root();
    let directory = root.join("tests/console");
    let mut all = in_directory(&directory, "")?;
    all.extend(in_directory(&directory.join("tools"), "tools-")?);
    let smp = format!("smp{cpus}");
    let particular = directory.join(&smp);
    if particular.is_dir() {
        all.extend(in_directory(&particular, &format!("{smp}-"))?.into_iter().map(Written::on_these_cpus));
    }
    for (readme, name, depends) in [
        // Users try this session first, so it is tested on every board.
        (root.join("README.md"), "readme".into(), &[Trait::Board, Trait::Cpus][..]),
        (root.join("docs/tracing.md"), "tracing".into(), &[]),
        (root.join("docs/language.md"), "language".into(), &[]),
        // It shows the CPUs of the board.
        (root.join("boards").join(board).join("README.md"), format!("readme-{board}"), &[Trait::Cpus]),
    ] {
        let demands = Demands::on(depends);
        if is_plain {
            all.extend(in_readme(&readme, "console", &name, &demands)?);
        }
        let particular = in_readme(&readme, &format!("console {smp}"), &format!("{name}-{smp}"), &demands)?;
        all.extend(particular.into_iter().map(Written::on_these_cpus));
    }
    Ok(all)
}

/// Returns the command of the first session of `README.md`, which traces traffic.
pub fn live_command() -> Result<String, String> {
    let text = read(&workspace::root().join("README.md")).map_err(|error| format!("{error:#}"))?;
    let session = Session::in_markdown(&text, LIVE).into_iter().next();
    session.ok_or_else(|| format!("README.md has no session that is marked as `{LIVE}`"))??.only_command()
}

/// Returns the sessions of all files in `directory`. Each is named `prefix` and the name of its file.
fn in_directory(directory: &Path, prefix: &str) -> Result<Vec<Written>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("{} cannot be read", directory.display()))? {
        let path = entry?.path();
        if let (Some(stem), Some("txt")) = (path.file_stem(), path.extension().and_then(|extension| extension.to_str()))
        {
            let name = format!("{prefix}{}", stem.to_string_lossy());
            let text = with_programs(&read(&path)?).with_context(|| format!("{} is wrong", path.display()))?;
            let (demands, text) = demands(&text).with_context(|| format!("{} is wrong", path.display()))?;
            let rest = text.strip_prefix(DEFAULT_PROFILE);
            let session = Session::parse(rest.unwrap_or(text));
            all.push(Written { name, demands, is_of_default_profile: rest.is_some(), session });
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// Replaces the file of each program of `tools/` that a session types by its text, with its arguments.
fn with_programs(text: &str) -> Result<String> {
    let mut lines = String::new();
    for line in text.lines() {
        match line.strip_prefix(PROMPT) {
            Some(typed) if typed.starts_with(TOOL) => lines += &format!("{PROMPT}{}\n", tool_command(typed)?),
            _ => lines += &format!("{line}\n"),
        }
    }
    Ok(lines)
}

/// Returns `trace tools/NAME.bt ARGUMENTS -c 'COMMAND'` with the text of the program, as the console takes it. Spaces
/// separate the arguments, and quotes have no meaning there.
pub fn tool_command(typed: &str) -> Result<String> {
    let words = typed.strip_prefix(TRACE).with_context(|| format!("`{typed}` does not begin with `{TRACE}`"))?;
    let (words, command) = words.split_at(words.find(" -c ").unwrap_or(words.len()));
    let mut words = words.split_whitespace().map(String::from);
    let file = words.next().with_context(|| format!("`{typed}` has no program"))?;
    let program = read(&workspace::root().join(&file))?;
    let words: Vec<_> = words.collect();
    let source = Source::new(&program, Some(file), &words).map_err(|sentence| anyhow!(sentence))?;
    Ok(format!("{TRACE}{}{command}{}", Quoted(source.line.trim()), after(&words)))
}

/// Splits the first lines, with the session's demands, from the session.
fn demands(text: &str) -> Result<(Demands, &str)> {
    let (depends, text) = header(text, "depends: ");
    let (needs, session) = header(text, "needs: ");
    Ok((Demands::parse(depends, needs).map_err(|sentence| anyhow!("it {sentence}"))?, session))
}

/// Splits the first line from `text`, if it begins with `mark`.
fn header<'a>(text: &'a str, mark: &str) -> (Option<&'a str>, &'a str) {
    match text.strip_prefix(mark).and_then(|rest| rest.split_once('\n')) {
        Some((line, rest)) => (Some(line), rest),
        None => (None, text),
    }
}

/// Returns the sessions of a Markdown file that are marked as `mark`. They are named `NAME`, `NAME-2` and so on.
fn in_readme(path: &Path, mark: &str, name: &str, demands: &Demands) -> Result<Vec<Written>> {
    let sessions = Session::in_markdown(&read(path)?, mark);
    let named = |(index, session)| {
        let name = if index == 0 { name.into() } else { format!("{name}-{}", index + 1) };
        let is_of_default_profile = !name.starts_with("readme");
        Written { name, demands: demands.clone(), is_of_default_profile, session }
    };
    Ok(sessions.into_iter().enumerate().map(named).collect())
}

/// Returns the test that sends garbage between the two sessions of its file, and more of it if `is_thorough`.
pub fn garbage(is_thorough: bool) -> Result<Box<dyn Subject<()> + Send>, String> {
    let length = if is_thorough { garbage::WHOLE_LENGTH } else { garbage::USUAL_LENGTH };
    Ok(Box::new(garbage::parse(&read_special("garbage")?, length)?))
}

/// Returns the test that types the session of its file in several spacings, and in all of them if `is_thorough`.
pub fn blanks(is_thorough: bool) -> Result<Box<dyn Subject<()> + Send>, String> {
    let rounds = if is_thorough { blanks::ALL_ROUNDS } else { blanks::USUAL_ROUNDS };
    Ok(Box::new(blanks::parse(&read_special("blanks")?, rounds)?))
}

/// Returns the session of `special/NAME.txt`.
pub fn special(name: &str) -> Result<Box<dyn Subject<()> + Send>, String> {
    Ok(Box::new(Player::new(Session::parse(&read_special(name)?)?)))
}

/// Returns the session for a kernel without symbols. It begins with the kernel's `sentence` about them.
pub fn without_symbols(sentence: &str) -> Result<Box<dyn Subject<()> + Send>, String> {
    let text = read_special("without-symbols")?;
    Ok(Box::new(Player::new(Session::parse(&format!("{sentence}\n{text}"))?)))
}

fn read_special(name: &str) -> Result<String, String> {
    let path = workspace::root().join(format!("tests/console/special/{name}.txt"));
    read(&path).map_err(|error| format!("{error:#}"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Demands, PROMPT, Source, TOOL, Trait, demands, read, with_programs, workspace};
    use crate::test::network;

    #[test]
    fn a_tool_is_typed_as_its_text() {
        let file = read(&workspace::root().join("tools/funccount.bt")).unwrap();
        let program = Source::new(&file, None, &["sha2::*".into()]).unwrap().line;
        let typed = with_programs("kprobes> trace tools/funccount.bt sha2::* -c 'run sha256 1'\n1 probe\n").unwrap();
        assert_eq!(typed, format!("kprobes> trace '{}' -c 'run sha256 1' -- 'sha2::*'\n1 probe\n", program.trim()));
        assert!(with_programs("kprobes> trace tools/nothing.bt\n").is_err());
        let refused = with_programs("kprobes> trace tools/funccount.bt\n").unwrap_err().to_string();
        assert!(refused.contains("$1 is not given"), "{refused}");
    }

    #[test]
    fn every_tool_is_run_by_a_test_and_described() {
        let root = workspace::root();
        let files = |directory: &str| {
            let entries = fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(|path| path.is_file()).collect::<Vec<_>>()
        };
        let sessions = ["tests/console/tools", "tests/console/smp1", "tests/console/smp4"].map(files).concat();
        let sessions: String = sessions.iter().map(|path| read(path).unwrap()).collect();
        let readme = read(&root.join("tools/README.md")).unwrap();
        let tools: Vec<_> = files("tools").into_iter().filter(|path| path.extension().unwrap() == "bt").collect();
        assert!(!tools.is_empty());
        for tool in tools {
            let name = tool.file_name().unwrap().to_str().unwrap();
            let is_typed = sessions.lines().any(|line| {
                let words = line.strip_prefix(PROMPT).and_then(|typed| typed.strip_prefix(TOOL)?.strip_prefix(name));
                words.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            });
            assert!(is_typed || network::TOOLS.iter().any(|tool| tool.file() == name), "no test runs tools/{name}");
            assert!(readme.contains(&format!("| [`{name}`]({name}) |")), "tools/README.md has no row of {name}");
        }
    }

    #[test]
    fn a_file_may_say_what_it_depends_on() {
        let cpus_and_board = Demands::on(&[Trait::Cpus, Trait::Board]);
        assert_eq!(demands("depends: cpus board\nkprobes> a\n").unwrap(), (cpus_and_board, "kprobes> a\n"));
        assert_eq!(demands("kprobes> a\n").unwrap(), (Demands::default(), "kprobes> a\n"));
        let disk = Demands { needs: Some("disk".into()), ..Demands::on(&[Trait::Board]) };
        assert_eq!(demands("depends: board\nneeds: disk\nkprobes> a\n").unwrap(), (disk, "kprobes> a\n"));
        let error = demands("depends: moon\nkprobes> a\n").unwrap_err().to_string();
        assert_eq!(error, "it depends on moon, which nothing has");
    }
}
