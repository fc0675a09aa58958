//! Which tests the command line asks for, by their names.

/// The tests that are asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    filter: Option<String>,
    /// A name has to be the filter, rather than contain it.
    is_exact: bool,
}

impl Wanted {
    /// Tests whose names contain `filter`, or are `filter` if `is_exact`. Every test without a filter.
    pub fn new(filter: Option<String>, is_exact: bool) -> Self {
        Self { filter, is_exact }
    }

    /// Whether the test of this name is asked for.
    pub fn has(&self, name: &str) -> bool {
        match &self.filter {
            None => true,
            Some(filter) if self.is_exact => name == filter,
            Some(filter) => name.contains(filter.as_str()),
        }
    }

    /// Whether a name that begins with `place::` may be asked for, where `places` are all that names begin with.
    ///
    /// A filter that begins with one of them asks for nothing in the others; any other filter may be found everywhere.
    pub fn may_have<'a>(&self, place: &str, places: impl IntoIterator<Item = &'a str>) -> bool {
        match self.place(places) {
            Some(wanted) => wanted == place,
            None => !self.is_exact,
        }
    }

    /// The place among `places` that the filter begins with.
    pub fn place<'a>(&self, places: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let (wanted, _) = self.filter.as_deref()?.split_once("::")?;
        places.into_iter().find(|place| *place == wanted)
    }

    /// Why no test was found.
    pub fn nothing(&self) -> String {
        let what = if self.is_exact { "is called" } else { "has a name with" };
        let filter = self.filter.as_deref().unwrap_or_default();
        format!("no test {what} {filter:?}; `cargo xtask test --list` names them")
    }
}

#[cfg(test)]
mod tests {
    use super::Wanted;

    const PLACES: [&str; 3] = ["host", "virt", "virt/smp4"];

    #[test]
    fn a_filter_is_part_of_a_name_unless_it_is_exact() {
        let wanted = |filter: &str, is_exact| Wanted::new(Some(filter.into()), is_exact);
        assert!(Wanted::default().has("virt::a") && wanted("::a", false).has("virt::ab"));
        assert!(wanted("virt::a", true).has("virt::a") && !wanted("virt::a", true).has("virt::ab"));
        assert!(!wanted("::b", false).has("virt::ab"));
    }

    #[test]
    fn a_filter_with_a_place_asks_for_no_other() {
        let places = |filter: Option<&str>, is_exact| {
            let wanted = Wanted::new(filter.map(String::from), is_exact);
            PLACES.into_iter().filter(|place| wanted.may_have(place, PLACES)).collect::<Vec<_>>()
        };
        assert_eq!(places(None, false), PLACES);
        assert_eq!(places(Some("virt::a"), false), ["virt"]);
        assert_eq!(places(Some("virt/smp4::"), true), ["virt/smp4"]);
        assert_eq!(places(Some("kprobe::a"), false), PLACES);
        assert_eq!(places(Some("kprobe::a"), true), [""; 0]);
    }
}
