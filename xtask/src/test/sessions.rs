//! Finds the written sessions with the console:
//!
//! - in `tests/console/`, one a file;
//! - in the README files of the repository and of the board, in `docs/tracing.md` and in `docs/language.md`, where they
//!   show readers what to expect;
//! - in `tests/console/smpN/`, for machines of N CPUs; sessions in README files that are marked as `console smpN` are
//!   for these, too. The others there are for the default machine;
//! - in `tests/console/special/`, for machines that were not just started, or that are damaged.
//!
//! The first line of a file may be `depends: TRAITS`: the traits of the machine that can make a difference to the
//! session. The next line may be `profile: default`: the session depends on the compiler's output for the profile of
//! `Cargo.toml`, and is ignored where the environment sets another profile.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::{
    dialogue::Subject,
    garbage,
    select::{Demands, Trait},
    session::{Player, Session},
};
use crate::workspace;

/// The mark of a session that needs a peer at the other end of the network.
const LIVE: &str = "console network";

/// The mark of a session that holds only for the default profile.
const DEFAULT_PROFILE: &str = "profile: default\n";

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
    let smp = format!("smp{cpus}");
    let particular = directory.join(&smp);
    if particular.is_dir() {
        all.extend(in_directory(&particular, &format!("{smp}-"))?);
    }
    for (readme, name, depends) in [
        // Users try this session first, so it is tested on every board.
        (root.join("README.md"), "readme".into(), &[Trait::Board][..]),
        (root.join("docs/tracing.md"), "tracing".into(), &[]),
        (root.join("docs/language.md"), "language".into(), &[]),
        (root.join("boards").join(board).join("README.md"), format!("readme-{board}"), &[]),
    ] {
        let demands = Demands::on(depends);
        if is_plain {
            all.extend(in_readme(&readme, "console", &name, &demands)?);
        }
        all.extend(in_readme(&readme, &format!("console {smp}"), &format!("{name}-{smp}"), &demands)?);
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
            let text = read(&path)?;
            let (demands, text) = demands(&text).with_context(|| format!("{} is wrong", path.display()))?;
            let rest = text.strip_prefix(DEFAULT_PROFILE);
            let session = Session::parse(rest.unwrap_or(text));
            all.push(Written { name, demands, is_of_default_profile: rest.is_some(), session });
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// Splits the first line with the session's demands, if there is one, from the session.
fn demands(text: &str) -> Result<(Demands, &str)> {
    let Some((line, session)) = text.strip_prefix("depends: ").and_then(|rest| rest.split_once('\n')) else {
        return Ok((Demands::default(), text));
    };
    let named = |word| Trait::named(word).with_context(|| format!("it depends on {word}, which nothing has"));
    let depends: Vec<_> = line.split_whitespace().map(named).collect::<Result<_>>()?;
    Ok((Demands::on(&depends), session))
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

/// Returns the test that sends garbage between the two sessions of its file.
pub fn garbage() -> Result<Box<dyn Subject<()> + Send>, String> {
    let text =
        read(&workspace::root().join("tests/console/special/garbage.txt")).map_err(|error| format!("{error:#}"))?;
    Ok(Box::new(garbage::parse(&text)?))
}

/// Returns the session of `special/NAME.txt`.
pub fn special(name: &str) -> Result<Box<dyn Subject<()> + Send>, String> {
    let path = workspace::root().join(format!("tests/console/special/{name}.txt"));
    let text = read(&path).map_err(|error| format!("{error:#}"))?;
    Ok(Box::new(Player::new(Session::parse(&text)?)))
}

/// Returns the session for a kernel without symbols. It begins with the kernel's `sentence` about them.
pub fn without_symbols(sentence: &str) -> Result<Box<dyn Subject<()> + Send>, String> {
    let text = read(&workspace::root().join("tests/console/special/without-symbols.txt"))
        .map_err(|error| format!("{error:#}"))?;
    Ok(Box::new(Player::new(Session::parse(&format!("{sentence}\n{text}"))?)))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Demands, Trait, demands};

    #[test]
    fn a_file_may_say_what_it_depends_on() {
        let cpus_and_board = Demands::on(&[Trait::Cpus, Trait::Board]);
        assert_eq!(demands("depends: cpus board\nkprobes> a\n").unwrap(), (cpus_and_board, "kprobes> a\n"));
        assert_eq!(demands("kprobes> a\n").unwrap(), (Demands::default(), "kprobes> a\n"));
        let error = demands("depends: moon\nkprobes> a\n").unwrap_err().to_string();
        assert_eq!(error, "it depends on moon, which nothing has");
    }
}
