//! Names for usual questions. Each is a program, which whoever asks is shown, and can go on from.

use alloc::format;
use alloc::string::String;

use crate::error::{Error, Problem, Span};
use crate::syntax::{Probe, Spanned, parse_probes};

/// A usual question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    /// `funccount GLOB`: how often each function that matches is called.
    FunctionCount,
    /// `funclatency FUNC`: how long calls of a function take, in nanoseconds.
    FunctionLatency,
    /// `stackcount FUNC`: where a function is called from, and how often.
    StackCount,
}

impl Shortcut {
    /// The shortcut called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "funccount" => Some(Self::FunctionCount),
            "funclatency" => Some(Self::FunctionLatency),
            "stackcount" => Some(Self::StackCount),
            _ => None,
        }
    }

    /// The program for the functions that match `glob`.
    ///
    /// # Errors
    ///
    /// What is wrong with `glob`, and where in it.
    pub fn program(self, glob: &str) -> Result<String, Error> {
        const KIND: &str = "kprobe:";
        let shift = |at: usize| at.saturating_sub(KIND.len()).min(glob.len());
        let probes = parse_probes(&format!("{KIND}{glob}")).map_err(|error| {
            let problem = if let Problem::Expected { .. } = error.problem { Problem::OneGlob } else { error.problem };
            Span { start: shift(error.span.start), end: shift(error.span.end) }.error(problem)
        })?;
        let [Spanned { node: Probe::Entry { glob }, .. }] = probes.as_slice() else {
            return Err(Span { start: 0, end: glob.len() }.error(Problem::OneGlob));
        };
        Ok(match self {
            Self::FunctionCount => format!("kprobe:{glob} {{ @[func] = count(); }}"),
            Self::StackCount => format!("kprobe:{glob} {{ @[kstack] = count(); }}"),
            Self::FunctionLatency => format!(
                "kprobe:{glob} {{ @start[tid] = nsecs; }} kretprobe:{glob} /@start[tid]/ {{ @nsecs = hist(nsecs - \
                 @start[tid]); delete(@start[tid]); }} END {{ clear(@start); }}"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::Shortcut;
    use crate::error::{Problem, Span};
    use crate::tests::{Bed, Task};

    #[test]
    fn each_is_a_program_that_does_what_its_name_says() {
        let hit = |time, cpu| Task { time, cpu, ..Task::with(&[]) };
        let count = Bed::new(&Shortcut::FunctionCount.program("blk::*").unwrap());
        count.hit(0, &hit(0, 0)).hit(0, &hit(0, 1)).hit(0, &Task { function: 0x1100, ..hit(0, 1) });
        assert_eq!(count.finish(), "@[blk::read]: 1\n@[blk::submit]: 2\n");
        let latency = Bed::new(&Shortcut::FunctionLatency.program("blk::submit").unwrap());
        latency
            .hit(1, &hit(50, 0))
            .hit(0, &hit(100, 0))
            .hit(1, &hit(1_600, 1))
            .hit(0, &hit(2_000, 2))
            .hit(2, &hit(9_000, 0));
        assert_eq!(
            latency.finish(),
            "@nsecs:\n[1K, 2K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
        );
        let stacks = Bed::new(&Shortcut::StackCount.program("blk::submit").unwrap());
        stacks.hit(0, &hit(0, 0));
        assert_eq!(stacks.finish(), "@[\n    blk::submit+4\n    blk::read+16\n    main+32\n]: 1\n");
    }

    #[test]
    fn a_glob_that_is_none_is_refused_where_it_is_wrong() {
        let refused = |glob: &str| Shortcut::FunctionCount.program(glob).unwrap_err();
        assert_eq!(refused("a<b"), Span { start: 1, end: 2 }.error(Problem::OpenBracket));
        assert_eq!(refused(""), Span { start: 0, end: 0 }.error(Problem::ProbeName));
        assert_eq!(refused("f+8"), Span { start: 0, end: 3 }.error(Problem::OneGlob));
        assert_eq!(refused("f, kprobe:g"), Span { start: 0, end: 11 }.error(Problem::OneGlob));
        assert_eq!(
            refused("f x").within("f x").to_string(),
            "f x\n  ^\none function is expected, or several by one name with `*` or `?`"
        );
    }

    #[test]
    fn the_reference_shows_them() {
        let reference = include_str!("../../docs/language.md");
        for (shortcut, glob) in
            [(Shortcut::FunctionCount, "GLOB"), (Shortcut::StackCount, "FUNC"), (Shortcut::FunctionLatency, "FUNC")]
        {
            let program = shortcut.program(glob).unwrap();
            assert!(reference.contains(&format!("`{program}`")), "{program}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(Shortcut::named("funclatency"), Some(Shortcut::FunctionLatency));
        assert_eq!(Shortcut::named("count"), None);
    }
}
