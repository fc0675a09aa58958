//! The two groups of a function's variables.

use crate::error::{Listed, Problem};

/// A group of a function's variables. Some functions have an argument and a local of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariableGroup {
    /// `args`.
    Arguments,
    /// `locals`.
    Locals,
}

impl VariableGroup {
    /// Returns the group that a builtin stands for.
    pub fn of(builtin: &str) -> Option<Self> {
        match builtin {
            "args" => Some(Self::Arguments),
            "locals" => Some(Self::Locals),
            _ => None,
        }
    }

    /// Returns the problem with a name that no variable of the group has. `names` lists the variables.
    pub fn none(self, names: Listed) -> Problem {
        match self {
            Self::Arguments => Problem::NoArgument { names },
            Self::Locals => Problem::NoLocal { names },
        }
    }

    /// Returns the builtin.
    pub fn builtin(self) -> &'static str {
        match self {
            Self::Arguments => "args",
            Self::Locals => "locals",
        }
    }
}
