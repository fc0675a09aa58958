//! A cache of the plain paths of all functions, for the search by glob. Computing a plain path takes fifty times as
//! long as comparing it.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_program::syntax::{Glob, plain_path, plain_pieces};
use kprobes_symbols::Symbol;

/// The plain paths of all functions.
#[derive(Debug)]
pub struct Paths {
    text: String,
    /// The end of each path in `text`, in the order of the functions.
    ends: Vec<u32>,
}

impl Paths {
    /// Computes the plain paths of `functions`. Returns `None` if they take more than `most` bytes, or if there is no
    /// memory for them.
    pub fn new<'a, I>(functions: impl Fn() -> I, most: usize) -> Option<Self>
    where
        I: Iterator<Item = Symbol<'a>>,
    {
        // A plain path is never longer than the name.
        let (count, length) = functions().fold((0, 0), |(count, length), each| (count + 1, length + each.name.len()));
        if length + count * size_of::<u32>() > most {
            return None;
        }
        let (mut text, mut ends) = (String::new(), Vec::new());
        text.try_reserve_exact(length).ok()?;
        ends.try_reserve_exact(count).ok()?;
        for function in functions() {
            plain_pieces(function.name, &mut |piece| text.push_str(piece));
            ends.push(u32::try_from(text.len()).ok()?);
        }
        Some(Self { text, ends })
    }

    /// Returns the plain path of the function with this number.
    fn get(&self, number: usize) -> Option<&str> {
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.text.get(start as usize..*self.ends.get(number)? as usize)
    }
}

/// Returns the plain path of `function`, from the cache if there is one. `number` is the function's index in the symbol
/// table.
///
/// # Errors
///
/// The path is not cached, and there is no memory for it.
pub fn of<'a>(paths: Option<&'a Paths>, number: usize, function: &Symbol<'_>) -> Result<Cow<'a, str>, OutOfMemory> {
    match paths.and_then(|paths| paths.get(number)) {
        Some(path) => Ok(path.into()),
        None => plain_path(function.name).map(Cow::Owned),
    }
}

/// Returns whether `glob` matches `function`, whose index in the symbol table is `number`: see [`Glob::matches`].
pub fn matches(paths: Option<&Paths>, number: usize, function: &Symbol<'_>, glob: Glob<'_>) -> bool {
    match paths.and_then(|paths| paths.get(number)) {
        Some(path) => glob.matches_either(function.name, path),
        None => glob.matches(function.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["a::f::<u8>", "<b::C as d::E<u8>>::f", "g.cold"];

    #[test]
    fn functions_are_found_with_their_paths_as_without() {
        let functions = NAMES.map(|name| Symbol { name, address: 0, size: 4 });
        let length: usize = NAMES.iter().map(|name| name.len() + 4).sum();
        assert!(Paths::new(|| functions.into_iter(), length - 1).is_none(), "they take more than they may");
        let paths = Paths::new(|| functions.into_iter(), length);
        assert!(paths.is_some());
        for (number, function) in functions.iter().enumerate() {
            for paths in [None, paths.as_ref()] {
                assert_eq!(of(paths, number, function).unwrap(), plain_path(function.name).unwrap());
                for (glob, found) in [("a::f", 0), ("<b::C as d::E>::*", 1), ("g", 2), ("a::f::<u8>", 0), ("h", 3)] {
                    assert_eq!(matches(paths, number, function, Glob::new(glob)), number == found, "{glob}");
                }
            }
        }
    }
}
