//! ^C and the signals that end processes: they are noted, so that what a machine does can be ended in order first.

use std::{
    fmt, mem,
    sync::{
        OnceLock,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
};

use anyhow::{Result, bail};

/// How long a ^C may wait to be passed on before the next one ends this process. Closing a terminal may send several
/// signals at once.
const GRACE: u64 = 1_000;
/// When ^C was pressed and not yet passed on, in milliseconds of the monotonic clock. 0 if it was not.
static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
/// The number of the first signal that has asked this process to end. 0 if none has.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The settings of the terminal to go back to if a signal ends this process, and the text to write then.
static TERMINAL: OnceLock<(libc::termios, &[u8])> = OnceLock::new();

/// Whether ^C was pressed, or another signal has asked this process to end, and that was not passed on.
pub fn is_noted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed) > 0
}

/// Whether ^C was pressed since the last call.
pub fn is_interrupted() -> bool {
    INTERRUPTED.swap(0, Ordering::Relaxed) > 0
}

/// The exit status of a process that ^C has ended.
pub const INTERRUPTED_STATUS: u8 = 128 + libc::SIGINT as u8;

/// The signals that ask this process to end.
const ENDINGS: [Signal; 2] =
    [Signal { number: libc::SIGTERM, name: "SIGTERM" }, Signal { number: libc::SIGHUP, name: "SIGHUP" }];

/// A signal that asks this process to end.
#[derive(Clone, Copy)]
pub struct Signal {
    number: libc::c_int,
    name: &'static str,
}

impl Signal {
    /// Returns the exit status of a process that this signal has ended.
    pub fn status(self) -> u8 {
        128 + self.number as u8
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The first signal that has asked this process to end, if there was one since [`catch_interrupts`].
pub fn ended_by() -> Option<Signal> {
    let number = SIGNAL.load(Ordering::Relaxed);
    ENDINGS.into_iter().find(|signal| signal.number == number)
}

/// Checks that nothing has asked this process to end, before it begins something that takes long.
pub fn check_signals() -> Result<()> {
    ended_by().map_or(Ok(()), |signal| bail!("{signal} came before anything began"))
}

/// Passes ^C, and the signals that end processes, on to the program on the machine as ^C. If the machine does not take
/// the ^C, the next one ends this process. The exit status tells of a signal: see [`ended_by`].
pub fn catch_interrupts() {
    handle_all(note as extern "C" fn(libc::c_int) as libc::sighandler_t);
}

/// Lets ^C and the signals that end processes do so again.
pub fn release_interrupts() {
    handle_all(libc::SIG_DFL);
}

/// Sets the handler of ^C and of the signals that end processes, which is [`note`] or the default.
fn handle_all(handler: libc::sighandler_t) {
    handle(libc::SIGINT, handler);
    ENDINGS.iter().for_each(|signal| handle(signal.number, handler));
}

/// Sets the handler of a signal, which is [`note`] or the default.
fn handle(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: `note` only accesses atomics and a value that does not change once it is set, and calls only functions
    // that are async-signal-safe.
    let before = unsafe { libc::signal(signal, handler) };
    if signal == libc::SIGHUP && before == libc::SIG_IGN {
        // `nohup` asks for this.
        // SAFETY: to ignore a signal runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Gives the terminal its present settings back, and writes `text` to it, if a signal ends this process. Later calls
/// have no effect.
pub fn restore_on_exit(text: &'static [u8]) {
    let mut settings = mem::MaybeUninit::uninit();
    // SAFETY: tcgetattr writes all of the settings if it returns 0.
    if unsafe { libc::tcgetattr(libc::STDIN_FILENO, settings.as_mut_ptr()) } == 0 {
        // SAFETY: tcgetattr has returned 0, so that all of the settings are written.
        let _ = TERMINAL.set((unsafe { settings.assume_init() }, text));
    }
}

extern "C" fn note(signal: libc::c_int) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime is async-signal-safe, and writes to `time` only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    // Neither is negative on this clock.
    let now = 1 + time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000;
    if signal != libc::SIGINT {
        // Fails for the second signal.
        let _ = SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    }
    match INTERRUPTED.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        // Another thread may have noted a signal since this one took the time.
        Err(first) if now.saturating_sub(first) >= GRACE => {}
        _ => return,
    }
    if let Some((settings, text)) = TERMINAL.get() {
        // SAFETY: both functions are async-signal-safe, and only read what they are given.
        unsafe {
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings);
            libc::write(libc::STDOUT_FILENO, text.as_ptr().cast(), text.len());
        }
    }
    // SAFETY: `_exit` is async-signal-safe.
    unsafe { libc::_exit(128 + signal) };
}
