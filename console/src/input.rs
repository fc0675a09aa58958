//! Queues input until it is read, lets ^C interrupt the running command, and shows its line at ^T.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use core::time::Duration;

use aarch64_kprobes::platform;
use heapless::{Deque, String};
use kprobes_trace::context::Context;
use spin::Mutex;

use crate::host::host;
use crate::lock::Lock;
use crate::{output, time};

/// The size of the queue, in bytes.
const ROOM: usize = 4096;
/// The byte that a terminal sends for ^C.
const INTERRUPT_KEY: u8 = 0x03;
/// The byte that a terminal sends for ^T. While a command runs, it asks for its line, as in BSD (termios(4), VSTATUS).
const STATUS_KEY: u8 = 0x14;
/// The maximum number of bytes of a line that the answer to ^T shows.
const SHOWN: usize = 120;

/// The input that has not been read.
static TYPED: Mutex<Deque<u8, ROOM>> = Mutex::new(Deque::new());
static LOST: AtomicU64 = AtomicU64::new(0);
/// The effect of [`INTERRUPT_KEY`]: [`IDLE`], [`RUNNING`] or [`INTERRUPTED`].
static FOREGROUND: AtomicU8 = AtomicU8::new(IDLE);
/// No command runs: ^C is read as any other byte.
const IDLE: u8 = 0;
/// A command runs: ^C interrupts it.
const RUNNING: u8 = 1;
/// A command runs, and ^C has interrupted it.
const INTERRUPTED: u8 = 2;
/// Whether [`STATUS_KEY`] was pressed and not answered yet.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// The running line, for [`STATUS_KEY`].
static RUNNING_LINE: Lock<Option<RunningLine>> = Lock::new(None);

#[derive(Clone, Debug)]
struct RunningLine {
    /// The beginning of the text.
    text: String<SHOWN>,
    is_cut: bool,
    /// The time at which the line began.
    begin: Duration,
    /// The name and the number of the task of the console.
    name: [u8; 16],
    task: u64,
}

impl RunningLine {
    fn new(line: &str) -> Self {
        let mut text = String::new();
        let is_cut =
            line.chars().any(|character| text.push(if character.is_control() { ' ' } else { character }).is_err());
        // SAFETY: the task of the console calls this, and can be hit. So the offsets are correct, as `ContextLayout`
        // guarantees (see its # Safety).
        let here = platform::with_masked(|| unsafe { Context::here() });
        Self { text, is_cut, begin: time::now(), name: *here.name_bytes(), task: here.task }
    }

    /// Shows the status on a line of its own.
    fn show(&self) {
        let Self { text, is_cut, begin, name, task } = self;
        let time = time::now().saturating_sub(*begin);
        let name = core::str::from_utf8(name).unwrap_or_default().trim_end_matches('\0');
        if !output::is_line_done() {
            println!();
        }
        let more = if *is_cut { "..." } else { "" };
        println!("running for {}.{:03} s in {name}-{task}: {text}{more}", time.as_secs(), time.subsec_millis());
    }
}

/// Takes a byte of input. An interrupt handler may call this. While a command runs, ^C interrupts the command, and ^T
/// asks for its line; a reader of the input gets neither.
///
/// Returns whether the input before the byte is still to be read: a ^C that interrupts a command discards it.
pub fn take(byte: u8) -> bool {
    with_typed(|typed| {
        if byte == STATUS_KEY && FOREGROUND.load(Ordering::Relaxed) != IDLE {
            IS_ASKED.store(true, Ordering::Relaxed);
            return true;
        }
        if byte == INTERRUPT_KEY && FOREGROUND.load(Ordering::Relaxed) != IDLE {
            typed.clear();
            // Fails if the command ends on another CPU at this moment: then there is nothing to interrupt.
            let _ = FOREGROUND.compare_exchange(RUNNING, INTERRUPTED, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        }
        count_lost(typed.push_back(byte).is_err().into());
        true
    })
}

/// Locks the queue, with interrupts masked because an interrupt handler may call [`take`].
fn with_typed<R>(f: impl FnOnce(&mut Deque<u8, ROOM>) -> R) -> R {
    platform::with_masked(|| f(&mut TYPED.lock()))
}

/// Records that at least `bytes` bytes of input were lost because they arrived too fast. The line that they belonged to
/// is refused.
pub fn count_lost(bytes: u64) {
    LOST.fetch_add(bytes, Ordering::Relaxed);
}

/// Returns a lower bound for the number of bytes lost so far.
#[must_use]
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Returns whether there is input to read.
#[must_use]
pub fn is_available() -> bool {
    with_typed(|typed| !typed.is_empty())
}

/// Moves input from the kernel to the queue, until the queue is full. While a command runs, a full queue does not end
/// this, because the next byte may be ^C: bytes without room are lost and counted. A call takes at most `ROOM` bytes,
/// so that input without end does not stop the command. One task at a time does this, so that the bytes stay in order.
fn poll() {
    static IS_POLLING: AtomicBool = AtomicBool::new(false);
    if IS_POLLING.swap(true, Ordering::Acquire) {
        return;
    }
    for _ in 0..ROOM {
        let has_room = FOREGROUND.load(Ordering::Relaxed) != IDLE || !with_typed(|typed| typed.is_full());
        let Some(byte) = has_room.then(|| host().read()).flatten() else { break };
        take(byte);
    }
    IS_POLLING.store(false, Ordering::Release);
}

/// Waits for a byte, and returns it.
pub fn read_byte() -> u8 {
    loop {
        poll();
        match with_typed(|typed| typed.pop_front()) {
            Some(byte) => return byte,
            None => host().wait(),
        }
    }
}

/// A guard for the time in which a command runs: while it lives, ^C interrupts the command and ^T shows its line.
/// Neither is passed to the reader.
#[derive(Debug)]
pub struct Foreground {
    /// The line whose command reads the input.
    outer: Option<RunningLine>,
}

impl Foreground {
    /// Begins the command of `line`.
    #[must_use]
    pub fn begin(line: &str) -> Self {
        let outer = RUNNING_LINE.lock().replace(RunningLine::new(line));
        IS_ASKED.store(false, Ordering::Relaxed);
        FOREGROUND.store(RUNNING, Ordering::Relaxed);
        Self { outer }
    }

    /// Runs `reader`, which reads the input within a running command. Meanwhile ^C belongs to the commands that
    /// `reader` runs, and not to the outer command.
    pub(crate) fn lend(reader: impl FnOnce()) {
        FOREGROUND.store(IDLE, Ordering::Relaxed);
        reader();
        FOREGROUND.store(RUNNING, Ordering::Relaxed);
    }

    /// Ends the command. Returns whether ^C was pressed.
    #[must_use]
    pub fn end(self) -> bool {
        is_interrupted()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        FOREGROUND.store(IDLE, Ordering::Relaxed);
        *RUNNING_LINE.lock() = self.outer.take();
    }
}

/// Returns whether the running command should end because ^C was pressed. Shows its line if ^T was pressed.
#[must_use]
pub fn is_interrupted() -> bool {
    if FOREGROUND.load(Ordering::Relaxed) == RUNNING {
        poll();
        if IS_ASKED.load(Ordering::Relaxed) && IS_ASKED.swap(false, Ordering::Relaxed) {
            let running = RUNNING_LINE.lock().clone();
            running.iter().for_each(RunningLine::show);
        }
    }
    FOREGROUND.load(Ordering::Relaxed) == INTERRUPTED
}

/// Returns whether ^C was pressed, and resets this. A command that handles ^C and goes on calls this to receive the
/// next ^C.
pub(crate) fn take_interrupt() -> bool {
    is_interrupted() && FOREGROUND.compare_exchange(INTERRUPTED, RUNNING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_discards_what_was_typed_ahead_and_a_question_does_not() {
        let read = || with_typed(|typed| typed.pop_front());
        FOREGROUND.store(RUNNING, Ordering::Relaxed);
        assert_eq!([b'a', STATUS_KEY].map(take), [true; 2]);
        assert_eq!((read(), read()), (Some(b'a'), None));
        assert_eq!([b'b', INTERRUPT_KEY].map(take), [true, false]);
        assert_eq!(read(), None);
        FOREGROUND.store(IDLE, Ordering::Relaxed);
        assert_eq!([STATUS_KEY, INTERRUPT_KEY].map(take), [true; 2]);
        assert_eq!((read(), read()), (Some(STATUS_KEY), Some(INTERRUPT_KEY)));
    }
}
