//! Resolves paths of the tracefs to files, and lists directories.
//!
//! A file is described by a pattern, in which `*` stands for any of the names in a directory. A path may begin with the
//! mount point of the tracefs in Linux.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;

/// Paths of a Linux machine, with the path here that each stands for: mount points of tracefs and debugfs, and a file
/// elsewhere.
const MOUNTS: [(&str, &str); 5] = [
    ("/sys/kernel/tracing", ""),
    ("/sys/kernel/debug/tracing", ""),
    ("/sys/kernel/debug/kprobes", "kprobes"),
    ("/sys/kernel/debug", ""),
    ("/proc/sys/kernel/stack_tracer_enabled", "stack_tracer_enabled"),
];

/// Splits a path into its parts: drops empty parts and `.`, and resolves `..`.
///
/// # Errors
///
/// There is no memory for the list of parts.
pub fn parts(path: &str) -> Result<Vec<&str>, OutOfMemory> {
    let in_mount = |&(mount, stands_for): &(&'static str, &'static str)| {
        let rest = path.strip_prefix(mount)?;
        (rest.is_empty() || rest.starts_with('/')).then_some((stands_for, rest))
    };
    let (first, rest) = MOUNTS.iter().find_map(in_mount).unwrap_or(("", path));
    let mut parts = Vec::new();
    for part in first.split('/').chain(rest.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => fallible::push(&mut parts, part)?,
        }
    }
    Ok(parts)
}

/// The relation of a pattern to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The path names this file.
    File,
    /// The path names a directory above the file.
    Below,
    /// The path names something else.
    None,
}

/// Compares a pattern with the parts of a path. A star matches any name, even one that does not exist.
#[must_use]
pub fn fit(pattern: &str, parts: &[&str]) -> Fit {
    let mut names = pattern.split('/');
    for part in parts {
        match names.next() {
            Some(name) if name == "*" || name == *part => {}
            _ => return Fit::None,
        }
    }
    if names.next().is_some() { Fit::Below } else { Fit::File }
}

/// Returns the names in the directory `parts`, in order: the names in `patterns`, and `stars` in place of a star.
///
/// # Errors
///
/// There is no memory for the list of names.
pub fn list<'a>(
    patterns: impl Iterator<Item = &'a str>,
    parts: &[&str],
    mut stars: Vec<String>,
) -> Result<Vec<String>, OutOfMemory> {
    let mut names = Vec::new();
    for pattern in patterns.filter(|pattern| fit(pattern, parts) == Fit::Below) {
        match pattern.split('/').nth(parts.len()) {
            Some("*") => fallible::extend(&mut names, stars.drain(..))?,
            Some(name) => fallible::push(&mut names, fallible::copy(name)?)?,
            None => {}
        }
    }
    fallible::sort_by(&mut names, Ord::cmp);
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERNS: [&str; 6] =
        ["trace", "kprobes/list", "events/enable", "events/*/enable", "events/*/*/enable", "events/*/*/filter"];

    #[test]
    fn what_linux_has_in_front_is_left_out() {
        let none: [&str; 0] = [];
        let parts = |path| parts(path).unwrap();
        assert_eq!(parts("trace"), ["trace"]);
        assert_eq!(parts("/sys/kernel/tracing/events/kprobes/x/filter"), ["events", "kprobes", "x", "filter"]);
        assert_eq!(parts("/sys/kernel/debug/tracing/trace"), ["trace"]);
        assert_eq!(parts("/sys/kernel/debug/kprobes/list"), ["kprobes", "list"]);
        assert_eq!(parts("/sys/kernel/debug/kprobes/"), ["kprobes"]);
        assert_eq!(parts("/proc/sys/kernel/stack_tracer_enabled"), ["stack_tracer_enabled"]);
        assert_eq!(parts("/proc/sys/kernel/trace"), ["proc", "sys", "kernel", "trace"]);
        assert_eq!(parts("/sys/kernel/tracingx"), ["sys", "kernel", "tracingx"]);
        assert_eq!(parts("./events//../trace"), ["trace"]);
        assert_eq!(parts("../.."), none);
        assert_eq!(parts("/"), none);
    }

    #[test]
    fn patterns_fit_files_and_the_directories_above() {
        assert_eq!(fit("events/*/*/filter", &["events", "g", "e", "filter"]), Fit::File);
        assert_eq!(fit("events/*/*/filter", &["events", "g"]), Fit::Below);
        assert_eq!(fit("events/*/*/filter", &[]), Fit::Below);
        assert_eq!(fit("events/*/*/filter", &["events", "g", "e", "id"]), Fit::None);
        assert_eq!(fit("trace", &["trace", "x"]), Fit::None);
    }

    #[test]
    fn directories_have_what_the_patterns_say() {
        let list = |path: &str, stars: &[&str]| {
            let stars = stars.iter().map(|name| String::from(*name)).collect();
            list(PATTERNS.into_iter(), &parts(path).unwrap(), stars).unwrap()
        };
        assert_eq!(list("", &[]), ["events", "kprobes", "trace"]);
        assert_eq!(list("events", &["h", "g", "g"]), ["enable", "g", "h"]);
        assert_eq!(list("events/g", &["two", "one"]), ["enable", "one", "two"]);
        assert_eq!(list("events/g/one", &[]), ["enable", "filter"]);
        assert_eq!(list("trace", &[]), [""; 0]);
    }
}
