//! The cases of a test: fewer in a usual run than in a thorough one, and few in Miri, which is a thousand times as
//! slow.
//!
//! In Miri, a test tries cases for a tenth of a second after it asked for the first. Its clock counts what it executes,
//! so each run tries the same cases.

/// Returns whether the tests of the host take their long forms: `cargo xtask test --thorough` sets `THOROUGH` in their
/// environment.
#[cfg(not(target_os = "none"))]
#[must_use]
pub fn is_thorough() -> bool {
    std::env::var_os("THOROUGH").is_some()
}

/// Returns whether a test tries its next case.
///
/// # Panics
///
/// In Miri, panics on the main thread: tests that share a thread would share their time.
#[must_use]
pub fn is_tried() -> bool {
    #[cfg(miri)]
    {
        use std::time::{Duration, Instant};

        const TIME: Duration = Duration::from_millis(100);
        std::thread_local! {
            static FIRST: Instant = {
                assert_ne!(std::thread::current().name(), Some("main"), "a test has a thread of its own");
                Instant::now()
            };
        }
        FIRST.with(Instant::elapsed) < TIME
    }
    #[cfg(not(miri))]
    true
}

/// Returns the cases that a test [tries](is_tried). The first is always among them.
pub fn tried<T>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    cases.into_iter().enumerate().take_while(|(number, _)| is_tried() || *number == 0).map(|(_, case)| case)
}

/// Returns the texts that differ from `text` in one place: each character of Latin-1 is inserted before each character
/// that differs from it, and replaces that character; each one is also appended.
#[cfg(not(target_os = "none"))]
pub fn one_character_off(text: &str) -> impl Iterator<Item = String> {
    let characters = text.char_indices().map(|(place, at)| (place, Some(at)));
    characters.chain([(text.len(), None)]).flat_map(move |(place, at)| {
        let (before, rest) = text.split_at(place);
        let others = (0..=u8::MAX).map(char::from).filter(move |&c| Some(c) != at);
        others.flat_map(move |c| {
            let replaced = at.map(|at| format!("{before}{c}{}", &rest[at.len_utf8()..]));
            [Some(format!("{before}{c}{rest}")), replaced].into_iter().flatten()
        })
    })
}

/// Asserts as [`assert_eq!`] does, if the test [tries](crate::tried::is_tried) this case.
#[macro_export]
macro_rules! assert_tried {
    ($($arguments:tt)+) => {
        if $crate::tried::is_tried() {
            assert_eq!($($arguments)+);
        }
    };
}
