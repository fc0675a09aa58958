//! Selects the configurations in which a test runs by default.
//!
//! A test declares which [`Trait`]s of a machine can make a difference to its result. It runs once in its home
//! configuration: the first that has what the test needs, or, if it depends on the number of CPUs, the first of those
//! with the most. For each other value of each trait that it depends on, it runs once more, in the configuration that
//! has this value and otherwise differs least from home. So a failure away from home names its cause. Two traits that
//! make a difference only together are tested only where no configuration has one of them alone, or by `--thorough`.

use std::fmt;

use crate::board::Traits;

/// A property of a machine that can make a difference to a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// The number of running CPUs.
    Cpus,
    /// The model of the CPUs, and so the architecture features that they implement.
    Core,
    /// The interrupt controller.
    Interrupts,
    /// The exception level at which the kernel is entered.
    Entry,
    /// The board.
    Board,
    /// The places where code can be interrupted.
    Interruption,
}

impl Trait {
    pub const ALL: [Self; 6] = [Self::Cpus, Self::Core, Self::Interrupts, Self::Entry, Self::Board, Self::Interruption];

    /// Returns the trait of this name. `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Core => "core",
            Self::Interrupts => "interrupts",
            Self::Entry => "entry",
            Self::Board => "board",
            Self::Interruption => "interruption",
        }
    }
}

impl fmt::Display for Trait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Traits {
    /// Whether both have the same value of a trait.
    fn agree(&self, other: &Self, about: Trait) -> bool {
        match about {
            Trait::Cpus => self.cpus == other.cpus,
            Trait::Core => self.core == other.core,
            Trait::Interrupts => self.interrupts == other.interrupts,
            Trait::Entry => self.entry == other.entry,
            Trait::Board => self.board == other.board,
            Trait::Interruption => self.interruption == other.interruption,
        }
    }

    /// Returns how many traits differ.
    fn distance(&self, other: &Self) -> usize {
        Trait::ALL.into_iter().filter(|about| !self.agree(other, *about)).count()
    }
}

/// The traits that a test depends on, and its need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    pub depends: Vec<Trait>,
    /// A need. The test is skipped on machines that do not meet it.
    pub needs: Option<String>,
}

impl Demands {
    /// The demands of a test that runs wherever one of these traits makes a difference.
    pub fn on(depends: &[Trait]) -> Self {
        Self { depends: depends.to_vec(), needs: None }
    }

    /// Parses the names of traits and a need. The error is a sentence without its subject.
    pub fn parse(depends: Option<&str>, needs: Option<&str>) -> Result<Self, String> {
        let named = |word| Trait::named(word).ok_or_else(|| format!("depends on {word}, which nothing has"));
        let depends = depends.unwrap_or_default().split_whitespace().map(named).collect::<Result<_, _>>()?;
        Ok(Self { depends, needs: needs.map(String::from) })
    }

    /// Returns the need that a configuration does not meet.
    pub fn lacking(&self, traits: &Traits) -> Option<&str> {
        self.needs.as_deref().filter(|need| traits.lacks.iter().any(|lack| lack == need))
    }

    /// Returns the configurations among `all` in which the test must run, in order. Empty if none meets its need.
    pub fn select(&self, all: &[Traits]) -> Vec<usize> {
        let able: Vec<usize> = (0..all.len()).filter(|&index| self.lacking(&all[index]).is_none()).collect();
        let most =
            if self.depends.contains(&Trait::Cpus) { able.iter().map(|&index| all[index].cpus).max() } else { None };
        let Some(home) = able.iter().copied().find(|&index| most.is_none_or(|most| all[index].cpus == most)) else {
            return Vec::new();
        };
        let mut selected = vec![home];
        for &about in &self.depends {
            // One representative for each value of this trait, home's first.
            let mut values = vec![home];
            for &index in &able {
                if values.iter().any(|&seen| all[seen].agree(&all[index], about)) {
                    continue;
                }
                let same = able.iter().copied().filter(|&other| all[other].agree(&all[index], about));
                values.extend(same.min_by_key(|&other| all[other].distance(&all[home])));
            }
            selected.extend(values);
        }
        selected.sort_unstable();
        selected.dedup();
        selected
    }
}

impl fmt::Display for Demands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depends: Vec<_> = self.depends.iter().map(|about| about.name()).collect();
        match (&depends[..], &self.needs) {
            ([], None) => f.write_str("depends on nothing"),
            ([], Some(need)) => write!(f, "needs: {need}"),
            (_, None) => write!(f, "depends on {}", depends.join(", ")),
            (_, Some(need)) => write!(f, "needs: {need}; depends on {}", depends.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Demands, Trait};
    use crate::board::{
        EntryLevel::{self, El1, El2},
        Interruption,
        Interrupts::{self, Bcm2836, GicV2, GicV3},
        Traits,
    };

    fn traits(cpus: u32, core: &str, interrupts: Interrupts, entry: EntryLevel, board: &str, lacks: &[&str]) -> Traits {
        let lacks = lacks.iter().map(|lack| lack.to_string()).collect();
        Traits {
            cpus,
            core: core.into(),
            interrupts,
            entry,
            board: board.into(),
            interruption: Interruption::Blocks,
            lacks,
        }
    }

    /// Six configurations of two boards.
    fn all() -> Vec<Traits> {
        vec![
            traits(1, "max", GicV2, El1, "virt", &["second CPU"]),
            traits(4, "max", GicV2, El1, "virt", &[]),
            traits(4, "max", GicV3, El1, "virt", &[]),
            traits(4, "a53", GicV2, El1, "virt", &["PAuth"]),
            traits(1, "a53", GicV2, El1, "virt", &["PAuth", "second CPU"]),
            traits(4, "a53", Bcm2836, El2, "pi", &["PAuth", "disk"]),
        ]
    }

    fn select(depends: &[Trait], needs: Option<&str>) -> Vec<usize> {
        Demands { depends: depends.to_vec(), needs: needs.map(String::from) }.select(&all())
    }

    #[test]
    fn what_depends_on_nothing_runs_once() {
        assert_eq!(select(&[], None), [0]);
        assert_eq!(select(&[], Some("second CPU")), [1]);
        assert_eq!(select(&[], Some("PAuth")), [0]);
    }

    #[test]
    fn every_other_value_is_visited_where_the_least_else_differs() {
        assert_eq!(select(&[Trait::Cpus], None), [0, 1]);
        assert_eq!(select(&[Trait::Core], None), [0, 4]);
        assert_eq!(select(&[Trait::Cpus, Trait::Core], None), [0, 1, 3]);
        assert_eq!(select(&[Trait::Cpus, Trait::Interrupts], None), [0, 1, 2, 5]);
        assert_eq!(select(&[Trait::Board], None), [0, 5]);
        assert_eq!(select(&[Trait::Core, Trait::Entry], Some("disk")), [0, 4]);
    }

    #[test]
    fn every_value_of_what_matters_is_visited() {
        let all = all();
        for about in Trait::ALL {
            let selected = select(&[about], None);
            for traits in &all {
                assert!(selected.iter().any(|&index| all[index].agree(traits, about)), "{about} of {traits:?}");
            }
        }
    }

    #[test]
    fn what_nothing_has_is_selected_nowhere() {
        let lacking = [traits(1, "max", GicV2, El1, "virt", &["disk"])];
        assert!(Demands { depends: vec![Trait::Board], needs: Some("disk".into()) }.select(&lacking).is_empty());
    }

    #[test]
    fn traits_are_known_by_their_names() {
        for about in Trait::ALL {
            assert_eq!(Trait::named(&about.to_string()), Some(about));
        }
        assert_eq!(Trait::named("moon"), None);
    }
}
