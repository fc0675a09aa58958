//! A switch that hits can change.

use core::sync::atomic::AtomicBool;

/// A switch, such as whether an event is recorded. Hits read and set it by the functions in [`hit`](crate::hit).
#[derive(Debug)]
pub struct Switch(pub(crate) AtomicBool);

impl Switch {
    /// Makes a switch that is on or off.
    #[must_use]
    pub const fn new(on: bool) -> Self {
        Self(AtomicBool::new(on))
    }
}
