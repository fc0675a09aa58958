//! The role of a function in a graph with limits.

/// The role of a function in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A call belongs to the graph if it is in a call that does, or if the graph may begin anywhere.
    Inner,
    /// A call belongs to the graph wherever it is made.
    Outermost,
    /// Neither a call nor the calls in it are recorded, whether the graph has begun or not.
    Silent,
}

impl Role {
    /// All roles, in their order.
    pub const ALL: [Self; 3] = [Self::Inner, Self::Outermost, Self::Silent];

    /// Returns whether a call of a function with this role belongs to the graph, at any depth. A silent call belongs to
    /// the graph, so that the calls in it are known. `around` is the role of the innermost call of the graph that
    /// contains the call.
    #[inline(always)]
    pub const fn belongs(self, around: Option<Self>, has_outermost: bool) -> bool {
        match (self, around) {
            (_, Some(Self::Silent)) => false,
            (Self::Inner, None) => !has_outermost,
            _ => true,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Role::{Inner, Outermost, Silent};
    use super::*;

    #[test]
    fn the_graph_begins_at_outermost_calls() {
        let around = [None, Some(Inner), Some(Outermost), Some(Silent)];
        let belongs = |role: Role, has_outermost| around.map(|around| role.belongs(around, has_outermost));
        assert_eq!(belongs(Inner, true), [false, true, true, false]);
        assert_eq!(belongs(Inner, false), [true, true, true, false]);
        assert_eq!(belongs(Outermost, true), [true, true, true, false]);
    }

    #[test]
    fn a_silent_call_silences_where_the_graph_has_not_begun() {
        for has_outermost in [false, true] {
            assert!(Silent.belongs(None, has_outermost));
            for role in Role::ALL {
                assert!(!role.belongs(Some(Silent), has_outermost));
            }
        }
    }
}
