//! The first tasks: with them, the boot of the first CPU ends.

use core::sync::atomic::{AtomicBool, Ordering};

use super::{idle, reaper, spawn};

/// Ends the boot of the first CPU: spawns the reaper, and the task `name` that runs `main`. Then becomes the idle task.
///
/// # Panics
///
/// Panics if it was called before: it unmasks interrupts, which a probe handler must not do.
pub fn start(name: &str, main: fn()) -> ! {
    static HAS_STARTED: AtomicBool = AtomicBool::new(false);
    assert!(!HAS_STARTED.swap(true, Ordering::Relaxed), "the kernel has been started before");
    spawn("reaper", reaper::reap);
    spawn(name, main);
    idle::run_idle()
}
