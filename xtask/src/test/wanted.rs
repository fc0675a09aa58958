//! Decides which tests the command line asks for, by the names of the tests.
//!
//! A name begins with a prefix: a stage such as `host`, or a configuration such as `rpi3/smp1`.

use anyhow::{Result, ensure};

use crate::board::BASE;

/// Returns a filter as the names of tests have it, which name a board alone for its configuration [`BASE`]. `prefixes`
/// are those of all configurations.
///
/// # Errors
///
/// The filter begins with a configuration that does not exist, and `::`.
pub fn existing(filter: &str, prefixes: &[String]) -> Result<String> {
    let head = filter.split("::").next().unwrap_or_default();
    let Some((board, configuration)) = head.split_once('/') else { return Ok(filter.into()) };
    if configuration == BASE && prefixes.iter().any(|prefix| prefix == board) {
        return Ok(filter.replacen(head, board, 1));
    }
    let is_of_board = |prefix: &&str| prefix.split('/').next() == Some(board);
    let of_board: Vec<_> = prefixes.iter().map(String::as_str).filter(is_of_board).collect();
    let may_exist = head == filter || of_board.is_empty() || of_board.contains(&head);
    ensure!(may_exist, "there is no configuration `{head}`; those of {board} are `{}`", of_board.join("`, `"));
    Ok(filter.into())
}

/// The tests that the command line asks for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    filter: Option<String>,
    /// Whether a name must equal the filter, with a prefix or without, rather than contain it.
    is_exact: bool,
    /// All prefixes of names.
    known: Vec<String>,
    /// The only prefixes that the filter leaves, if it begins with one.
    prefixes: Option<Vec<String>>,
    /// Whether the filter is a prefix and nothing more.
    is_prefix: bool,
}

impl Wanted {
    /// Selects tests whose names contain `filter`, or equal it if `is_exact`; every test without a filter. `prefixes`
    /// are all prefixes of names. A filter that begins with one of them and `::` selects no other prefix. A filter that
    /// is a board, with or without a slash, selects every test in all its configurations.
    pub fn new<'a>(
        filter: Option<String>,
        is_exact: bool,
        prefixes: impl IntoIterator<Item = &'a str> + Clone,
    ) -> Self {
        let Some(text) = &filter else { return Self::default() };
        let (head, is_prefix) = text.split_once("::").map_or((text.as_str(), true), |(head, _)| (head, false));
        let board = format!("{}/", head.trim_end_matches('/'));
        let is_meant = |prefix: &&str| {
            *prefix == head || is_prefix && (prefix.starts_with(&board) || board.strip_suffix('/') == Some(*prefix))
        };
        let known = prefixes.clone().into_iter().map(String::from).collect();
        let meant: Vec<String> = prefixes.into_iter().filter(is_meant).map(String::from).collect();
        let is_prefix = is_prefix && !meant.is_empty();
        let prefixes = (!meant.is_empty()).then_some(meant);
        Self { filter, is_exact, known, prefixes, is_prefix }
    }

    /// Whether the test of this name is wanted.
    pub fn has(&self, name: &str) -> bool {
        let Some(filter) = self.filter.as_deref() else { return true };
        let (prefix, rest) = name.split_once("::").unwrap_or((name, ""));
        if self.is_prefix {
            return self.may_have(prefix);
        }
        if self.is_exact { name == filter || rest == filter } else { name.contains(filter) }
    }

    /// Returns the wanted tests among these.
    pub fn among(&self, names: impl IntoIterator<Item: Into<String>>) -> Vec<String> {
        names.into_iter().map(Into::into).filter(|name| self.has(name)).collect()
    }

    /// Whether the filter begins with this prefix, and with no other.
    pub fn names(&self, prefix: &str) -> bool {
        self.prefixes.as_deref().is_some_and(|prefixes| matches!(prefixes, [meant] if meant == prefix))
    }

    /// Whether a test with this prefix may be wanted.
    pub fn may_have(&self, prefix: &str) -> bool {
        self.prefixes.as_ref().is_none_or(|prefixes| prefixes.iter().any(|meant| meant == prefix))
    }

    /// Whether a test may be wanted whose name is a prefix, one of `modules`, and a word without `::`.
    pub fn may_have_of(&self, modules: &[&str]) -> bool {
        if self.is_exact {
            return self.is_of(modules);
        }
        let Some((head, rest)) = self.filter.as_deref().and_then(|filter| filter.split_once("::")) else { return true };
        let is_end_of_module = modules.iter().any(|module| module.trim_end_matches("::").ends_with(head));
        let is_end_of_prefix = self.known.iter().any(|prefix| prefix.ends_with(head));
        let may_extend = modules.iter().any(|module| module.starts_with(rest) || rest.starts_with(module));
        is_end_of_module && !rest.contains("::") || is_end_of_prefix && may_extend
    }

    /// Whether all wanted tests have names that begin with one of `modules` after the prefix.
    pub fn is_of(&self, modules: &[&str]) -> bool {
        let Some(filter) = self.filter.as_deref() else { return false };
        let own = if self.prefixes.is_some() { filter.split_once("::").map_or("", |(_, own)| own) } else { filter };
        (self.is_exact || self.prefixes.is_some()) && modules.iter().any(|module| own.starts_with(module))
    }

    /// Whether there is a filter.
    pub fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the filter leaves some prefixes out.
    pub fn is_narrowed(&self) -> bool {
        self.prefixes.is_some()
    }

    /// Returns the message for a filter that matches no test.
    pub fn nothing(&self) -> String {
        let what = if self.is_exact { "is called" } else { "has a name with" };
        let filter = self.filter.as_deref().unwrap_or_default();
        format!("no test {what} {filter:?}; `cargo xtask test --list` lists the tests")
    }
}

#[cfg(test)]
mod tests {
    use super::{Wanted, existing};

    const PREFIXES: [&str; 4] = ["host", "pi", "pi/smp1", "virt"];

    fn wanted(filter: &str, is_exact: bool) -> Wanted {
        Wanted::new(Some(filter.into()), is_exact, PREFIXES)
    }

    /// Returns the prefixes that a filter leaves.
    fn prefixes(filter: &str) -> Vec<&'static str> {
        let wanted = wanted(filter, false);
        PREFIXES.into_iter().filter(|prefix| wanted.may_have(prefix)).collect()
    }

    #[test]
    fn a_filter_is_part_of_a_name() {
        assert!(Wanted::default().has("virt::a") && wanted("::a", false).has("virt::ab"));
        assert!(!wanted("::b", false).has("virt::ab") && !wanted("pi::a", false).has("virt::pi::b"));
    }

    #[test]
    fn an_exact_filter_is_a_name_with_or_without_its_prefix() {
        for filter in ["virt::m::a", "m::a"] {
            assert!(wanted(filter, true).has("virt::m::a"), "{filter}");
            assert!(!wanted(filter, true).has("virt::m::ab") && !wanted(filter, true).has("virt::n::m::a"), "{filter}");
            assert!(wanted(filter, true).may_have_of(&["k::", "m::"]) && !wanted(filter, true).may_have_of(&["k::"]));
        }
        assert!(!wanted("m::a", false).is_of(&["m::"]));
        assert!(wanted("virt::m::a", false).is_of(&["m::"]) && !Wanted::default().is_of(&["m::"]));
    }

    #[test]
    fn modules_without_a_test_that_may_be_asked_for_are_known() {
        for (filter, may_have) in [
            ("m", true),
            ("m::a", true),
            ("::a", true),
            ("um::a", true),
            ("k::a", false),
            ("m::a::b", false),
            ("virt::m::a", true),
            ("rt::m", true),
            ("virt::", true),
            ("virt::k::a", false),
        ] {
            assert_eq!(wanted(filter, false).may_have_of(&["m::", "museum::"]), may_have, "{filter}");
        }
        assert!(Wanted::default().may_have_of(&["k::"]));
    }

    #[test]
    fn a_filter_that_begins_with_a_prefix_asks_for_no_other() {
        assert_eq!(prefixes("pi/smp1::a"), ["pi/smp1"]);
        assert_eq!(prefixes("pi::a"), ["pi"]);
        assert_eq!(prefixes("m::a"), PREFIXES);
        assert_eq!(prefixes("moon"), PREFIXES);
        assert!(wanted("pi::a", false).is_narrowed() && !wanted("m::a", false).is_narrowed());
    }

    #[test]
    fn a_configuration_is_named_where_the_filter_begins_with_it_alone() {
        assert!(wanted("pi/smp1::a", false).names("pi/smp1") && wanted("pi/smp1", false).names("pi/smp1"));
        for filter in ["pi", "pi::a", "m::a", "smp1"] {
            assert!(!wanted(filter, false).names("pi/smp1"), "{filter}");
        }
        assert!(!Wanted::default().names("pi/smp1"));
    }

    #[test]
    fn a_configuration_that_does_not_exist_is_refused() {
        let existing = |filter| existing(filter, &PREFIXES.map(String::from)).map_err(|error| error.to_string());
        for (filter, meant) in [
            ("pi/base::m::a", "pi::m::a"),
            ("pi/base", "pi"),
            ("pi/smp1::a", "pi/smp1::a"),
            ("pi/", "pi/"),
            ("m::tools/a", "m::tools/a"),
            ("tools/a", "tools/a"),
        ] {
            assert_eq!(existing(filter).as_deref(), Ok(meant));
        }
        let error = "there is no configuration `pi/smp2`; those of pi are `pi`, `pi/smp1`";
        assert_eq!(existing("pi/smp2::a"), Err(error.into()));
        assert_eq!(existing("pi/sm").as_deref(), Ok("pi/sm"), "a part of names");
    }

    #[test]
    fn a_board_is_all_its_configurations() {
        for filter in ["pi", "pi/"] {
            assert_eq!(prefixes(filter), ["pi", "pi/smp1"]);
            assert!(wanted(filter, false).has("pi::a") && wanted(filter, false).has("pi/smp1::a"), "{filter}");
            assert!(!wanted(filter, false).has("virt::pi::a"), "{filter}");
        }
        assert_eq!(prefixes("pi/smp1"), ["pi/smp1"]);
    }
}
