//! Names for frequent questions. Each stands for a program, which is printed so that the user can build on it.

use alloc::string::String;

use crate::error::{Error, Problem, Span};
use crate::syntax::{Probe, Spanned, parse_probes};

/// A shortcut for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    /// `funccount GLOB`: the number of calls of each matching function.
    FunctionCount,
    /// `funclatency GLOB`: a histogram of the time that calls of the matching functions take, in nanoseconds. The time
    /// includes calls that the function makes of others or of itself.
    FunctionLatency,
    /// `stackcount FUNC`: the call stacks that lead to a function, with counts.
    StackCount,
}

impl Shortcut {
    /// Returns the shortcut with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "funccount" => Some(Self::FunctionCount),
            "funclatency" => Some(Self::FunctionLatency),
            "stackcount" => Some(Self::StackCount),
            _ => None,
        }
    }

    /// Returns the program for the functions that match `glob`.
    ///
    /// # Errors
    ///
    /// Returns the problem with `glob`, with its place in `glob`.
    pub fn program(self, glob: &str) -> Result<String, Error> {
        const KIND: &str = "kprobe:";
        let shift = |at: usize| at.saturating_sub(KIND.len()).min(glob.len());
        let probes = parse_probes(&fallible::format(format_args!("{KIND}{glob}"))?).map_err(|error| {
            let problem = if let Problem::Expected { .. } = error.problem { Problem::OneGlob } else { error.problem };
            Span { start: shift(error.span.start), end: shift(error.span.end) }.error(problem)
        })?;
        let [Spanned { node: Probe::Kprobe { glob }, .. }] = probes.as_slice() else {
            return Err(Span { start: 0, end: glob.len() }.error(Problem::OneGlob));
        };
        Ok(match self {
            Self::FunctionCount => fallible::format(format_args!("kprobe:{glob} {{ @[func] = count(); }}")),
            Self::StackCount => fallible::format(format_args!("kprobe:{glob} {{ @[kstack] = count(); }}")),
            // A call is identified by its function and its stack pointer: the stack pointer is the same at the return,
            // and lies on the stack of one task. If a tail call enters the function again in the meantime, the call is
            // identified by a number, too.
            Self::FunctionLatency => fallible::format(format_args!(
                "kprobe:{glob} {{ @calls[func, reg(\"sp\")]++; @start[func, reg(\"sp\"), @calls[func, reg(\"sp\")]] = nsecs; }} \
                 kretprobe:{glob} /@calls[func, reg(\"sp\")]/ {{ $now = nsecs; $sp = reg(\"sp\"); $call = @calls[func, $sp]; \
                 $start = @start[func, $sp, $call]; if ($start) {{ @nsecs = hist($now - $start); }} \
                 delete(@start[func, $sp, $call]); \
                 if ($call > 1) {{ @calls[func, $sp]--; }} else {{ delete(@calls[func, $sp]); }} }} \
                 END {{ clear(@start); clear(@calls); }}"
            )),
        }?)
    }
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::Shortcut;
    use crate::error::{Problem, Span};
    use crate::tests::{Bed, Task, tried};

    #[test]
    fn each_is_a_program_that_does_what_its_name_says() {
        let hit = |time, cpu| Task { time, cpu, ..Task::with(&[]) };
        let count = Bed::new(&Shortcut::FunctionCount.program("blk::*").unwrap());
        count.hit(0, &hit(0, 0)).hit(0, &hit(0, 1)).hit(0, &Task { function: 0x1100, ..hit(0, 1) });
        assert_eq!(count.finish(), "@[blk::read]: 1\n@[blk::submit]: 2\n");
        // In Miri, the test of calls whose return is missed is enough for this long program.
        if !cfg!(miri) {
            let latency = Bed::new(&Shortcut::FunctionLatency.program("blk::submit").unwrap());
            latency
                .hit(1, &hit(50, 0))
                .hit(0, &hit(100, 0))
                .hit(1, &hit(1_600, 1))
                .hit(0, &hit(2_000, 2))
                .hit(2, &hit(9_000, 0));
            assert_eq!(latency.finish(), LATENCY);
        }
        let stacks = Bed::new(&Shortcut::StackCount.program("blk::submit").unwrap());
        stacks.hit(0, &hit(0, 0));
        assert_eq!(stacks.finish(), "@[\n    blk::submit+4\n    blk::read+16\n    main+32\n]: 1\n");
    }

    const LATENCY: &str =
        "@nsecs:\n[1K, 2K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n";

    /// Runs `funclatency` on hits of (clause, time, function, stack pointer), with clause 0 for entries and 1 for
    /// returns, and returns its output.
    fn latency(hits: &[(usize, u64, u64, u64)]) -> String {
        let bed = Bed::new(&Shortcut::FunctionLatency.program("blk::*").unwrap());
        for &(clause, time, function, stack_pointer) in hits {
            bed.hit(clause, &Task { time, function, stack_pointer, ..Task::with(&[]) });
        }
        bed.hit(2, &Task::with(&[]));
        bed.finish()
    }

    #[test]
    fn a_call_within_another_has_a_time_of_its_own() {
        let expected = "@nsecs:\n\
            [1K, 2K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\
            [2K, 4K)               0 |                                                    |\n\
            [4K, 8K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n";
        // The inner call is a call of another function, a recursive call, or a tail call of either.
        for (inner, stack_pointer) in tried([(0x1100, 0x8010), (0x1000, 0x8010), (0x1100, 0x8020), (0x1000, 0x8020)]) {
            let found = latency(&[
                (0, 10_000, 0x1000, 0x8020),
                (0, 13_000, inner, stack_pointer),
                (1, 14_500, inner, stack_pointer),
                (1, 15_000, 0x1000, 0x8020),
            ]);
            assert_eq!(found, expected, "{inner:#x} at {stack_pointer:#x}");
        }
    }

    #[test]
    fn a_call_whose_return_is_missed_leaves_the_next_its_own_time() {
        let missed = [(0, 100, 0x1000, 0x8010), (0, 10_000, 0x1000, 0x8010), (1, 11_500, 0x1000, 0x8010)];
        assert_eq!(latency(&missed), LATENCY);
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
            "f x\n  ^\none name is expected here, possibly with `*` or `?`"
        );
    }

    #[test]
    fn the_reference_shows_them() {
        let reference = include_str!("../../docs/language.md");
        for (shortcut, glob) in tried([
            (Shortcut::FunctionCount, "GLOB"),
            (Shortcut::StackCount, "FUNC"),
            (Shortcut::FunctionLatency, "GLOB"),
        ]) {
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
