//! Builds the documentation of the published crates, and checks its links.

use std::{collections::BTreeSet, fs, io, path::Path};

use super::{capture::capture, report::Outcome};
use crate::{setup::TARGET, workspace};

const WARNINGS: [&str; 2] = ["--config", r#"build.rustdocflags=["-Dwarnings"]"#];

/// Documents each of `packages` after those that it depends on, because rustdoc links to another crate only if the
/// pages of that crate exist. (docs.rs tells it where they are.) Fails if a page links to a page that does not exist.
pub fn check(packages: &[&str]) -> Result<Outcome, String> {
    let root = workspace::root().join("target").join(TARGET).join("doc");
    // Cargo makes again what is not there. Older pages may have other links.
    match fs::remove_dir_all(&root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(format!("{}: {error}", root.display())),
        _ => {}
    }
    for package in packages {
        let arguments = [&["doc", "--release", "--no-deps", "-p", package], &WARNINGS[..]].concat();
        capture(&mut workspace::cargo(&arguments), |_| {}).output()?;
    }
    let mut dead = BTreeSet::new();
    for package in packages {
        let pages = root.join(package.replace('-', "_"));
        find_dead(&pages, &mut dead).map_err(|error| format!("{}: {error}", pages.display()))?;
    }
    if dead.is_empty() { Ok(Outcome::Passed) } else { Err(Vec::from_iter(dead).join("\n")) }
}

/// Adds a line for each link that leads nowhere from a page in a directory, or below it.
fn find_dead(directory: &Path, dead: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            find_dead(&path, dead)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(&path)?;
            let links = text.split("href=\"").skip(1).filter_map(|rest| rest.split(['"', '#', '?']).next());
            // A script makes those with a `$`.
            let links = links.filter(|link| !link.contains("://") && !link.contains('$'));
            let links = links.filter(|link| !directory.join(link).exists());
            // Of a link to a hidden or private item, rustdoc leaves the text.
            let left = text.split("[<code>").skip(1).filter_map(|rest| Some(rest.split_once("</code>]")?.0));
            let left = left.filter(|name| !name.contains('<'));
            dead.extend(links.chain(left).map(|link| format!("{} links to {link}", path.display())));
        }
    }
    Ok(())
}
