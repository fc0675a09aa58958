//! A cache of the plain paths of all functions, for the search by glob. Computing a plain path takes fifty times as
//! long as comparing it.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_symbols::Symbol;
use kprobes_symbols::names::{Glob, plain_path, plain_pieces};

/// The plain paths of all functions, and the numbers of the functions that share their path.
#[derive(Debug)]
pub struct Paths<'a> {
    text: String,
    /// The end of each path in `text`, in the order of the functions.
    ends: Vec<u32>,
    /// The functions that share their path, in ascending order of address.
    twins: Vec<Twin<'a>>,
}

/// A function that shares its path with another one.
#[derive(Debug)]
struct Twin<'a> {
    function: Symbol<'a>,
    /// Its position among the functions of this path, from 1 on, in the order of their addresses.
    number: usize,
}

impl<'a> Paths<'a> {
    /// Computes the plain paths and the numbers of `functions`. `by_name` lists the same functions by name and, for one
    /// name, by address. Returns `None` if they take more than `most` bytes, or if there is no memory for them.
    pub fn new<I>(functions: impl Fn() -> I, by_name: impl Iterator<Item = Symbol<'a>>, most: usize) -> Option<Self>
    where
        I: Iterator<Item = Symbol<'a>>,
    {
        // A plain path is never longer than the name.
        let (count, length) = functions().fold((0, 0), |(count, length), each| (count + 1, length + each.name.len()));
        let rest = most.checked_sub(length + count * size_of::<u32>())?;
        let (mut text, mut ends) = (String::new(), Vec::new());
        text.try_reserve_exact(length).ok()?;
        ends.try_reserve_exact(count).ok()?;
        for function in functions() {
            plain_pieces(function.name, &mut |piece| text.push_str(piece));
            ends.push(u32::try_from(text.len()).ok()?);
        }
        Some(Self { text, ends, twins: twins(by_name, rest / size_of::<Twin<'_>>())? })
    }

    /// Returns the plain path of the function with this number.
    fn get(&self, number: usize) -> Option<&str> {
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.text.get(start as usize..*self.ends.get(number)? as usize)
    }

    /// Returns the position of `function` among the functions that share its path, from 1 on, in the order of their
    /// addresses; 0 if no other function has that path.
    pub fn number_of(&self, function: &Symbol<'_>) -> usize {
        let from = self.twins.partition_point(|twin| twin.function.address < function.address);
        let here = self.twins.iter().skip(from).take_while(|twin| twin.function.address == function.address);
        here.filter(|twin| twin.function.name == function.name).map(|twin| twin.number).min().unwrap_or(0)
    }
}

/// Returns the functions that share their paths. Returns `None` if there are more than `most`, or if there is no memory
/// for a list of them. A symbol without a size names no function.
fn twins<'a>(by_name: impl Iterator<Item = Symbol<'a>>, most: usize) -> Option<Vec<Twin<'a>>> {
    let mut twins: Vec<Twin<'a>> = Vec::new();
    let mut add = |function, number| {
        let is_room = twins.len() < most && fallible::push(&mut twins, Twin { function, number }).is_ok();
        is_room.then_some(())
    };
    let mut last: Option<(Symbol<'a>, usize)> = None;
    for function in by_name.filter(|function| function.size > 0) {
        let number = match last {
            Some((before, number)) if before.name == function.name => {
                if number == 1 {
                    add(before, 1)?;
                }
                add(function, number + 1)?;
                number + 1
            }
            _ => 1,
        };
        last = Some((function, number));
    }
    fallible::sort_by_key(&mut twins, |twin| twin.function.address);
    Some(twins)
}

/// Returns the plain path of `function`, from the cache if there is one. `number` is the function's index in the symbol
/// table.
///
/// # Errors
///
/// The path is not cached, and there is no memory for it.
pub fn of<'a>(paths: Option<&'a Paths<'_>>, number: usize, function: &Symbol<'_>) -> Result<Cow<'a, str>, OutOfMemory> {
    match paths.and_then(|paths| paths.get(number)) {
        Some(path) => Ok(path.into()),
        None => plain_path(function.name).map(Cow::Owned),
    }
}

/// Returns whether `glob` matches `function`, whose index in the symbol table is `number`: see [`Glob::matches`].
pub fn matches(paths: Option<&Paths<'_>>, number: usize, function: &Symbol<'_>, glob: Glob<'_>) -> bool {
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
        assert!(
            Paths::new(|| functions.into_iter(), functions.into_iter(), length - 1).is_none(),
            "they take more than they may"
        );
        let paths = Paths::new(|| functions.into_iter(), functions.into_iter(), length);
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

    #[test]
    fn functions_that_share_a_path_are_numbered_by_address() {
        // By name and address, as the table lists them. There are two names at 12, and one name twice at 20.
        let by_name = [("a", 8, 4), ("b", 4, 0), ("b", 12, 4), ("b", 20, 4), ("b", 20, 8), ("b", 28, 4), ("c", 12, 4)];
        let by_name = by_name.map(|(name, address, size)| Symbol { name, address, size });
        let paths = |most| Paths::new(|| by_name.into_iter(), by_name.into_iter(), most);
        let numbers = paths(1 << 10).map(|paths| by_name.map(|function| paths.number_of(&function)));
        assert_eq!(numbers, Some([0, 0, 1, 2, 2, 4, 0]));
        let least = by_name.len() * (1 + size_of::<u32>()) + 4 * size_of::<Twin<'_>>();
        assert!(paths(least).is_some() && paths(least - 1).is_none(), "numbers take no more than they may");
    }
}
