//! What is typed, and ^C, which is for the command that runs.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use aarch64_kprobes::platform;
use heapless::Deque;
use spin::Mutex;

use crate::host::host;

/// How many bytes are kept until they are read.
const ROOM: usize = 4096;
/// What ^C sends.
const INTERRUPT_KEY: u8 = 0x03;

/// What was typed and not read.
static TYPED: Mutex<Deque<u8, ROOM>> = Mutex::new(Deque::new());
static LOST: AtomicU64 = AtomicU64::new(0);
/// What [`INTERRUPT_KEY`] does: [`IDLE`], [`RUNNING`] or [`INTERRUPTED`].
static FOREGROUND: AtomicU8 = AtomicU8::new(IDLE);
/// Nothing, but be read.
const IDLE: u8 = 0;
/// It ends the command that runs.
const RUNNING: u8 = 1;
/// It has done so.
const INTERRUPTED: u8 = 2;

/// Takes a byte that has come. It may be called by an interrupt handler. Returns whether it was not ^C for the command that runs, and
/// so is to be read.
pub fn take(byte: u8) -> bool {
    with_typed(|typed| {
        if byte == INTERRUPT_KEY && FOREGROUND.load(Ordering::Relaxed) != IDLE {
            // What was typed ahead is not meant any more.
            typed.clear();
            // Not if the command, on another CPU, is over in this moment.
            let _ = FOREGROUND.compare_exchange(RUNNING, INTERRUPTED, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        }
        lose(typed.push_back(byte).is_err().into());
        true
    })
}

/// What was typed is held with interrupts masked alone, as a handler of one may bring more.
fn with_typed<R>(f: impl FnOnce(&mut Deque<u8, ROOM>) -> R) -> R {
    platform::with_masked(|| f(&mut TYPED.lock()))
}

/// Says that so many bytes came too fast for whoever took them, at least: the line that they are of is not carried out.
pub fn lose(bytes: u64) {
    LOST.fetch_add(bytes, Ordering::Relaxed);
}

/// How many bytes were lost so far, at least.
#[must_use]
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Whether there is something to read.
#[must_use]
pub fn is_there() -> bool {
    with_typed(|typed| !typed.is_empty())
}

/// Asks the kernel for what has come, as far as there is room for it. One task at a time, as bytes have an order.
fn look() {
    static IS_LOOKING: AtomicBool = AtomicBool::new(false);
    if IS_LOOKING.swap(true, Ordering::Acquire) {
        return;
    }
    while !with_typed(|typed| typed.is_full())
        && let Some(byte) = host().read()
    {
        take(byte);
    }
    IS_LOOKING.store(false, Ordering::Release);
}

/// Waits for a byte.
pub fn read_byte() -> u8 {
    loop {
        look();
        match with_typed(|typed| typed.pop_front()) {
            Some(byte) => return byte,
            None => host().wait(),
        }
    }
}

/// A command, for as long as it runs and this lives: ^C is for it, and not for the reader of the input.
#[derive(Debug)]
pub struct Foreground(());

impl Foreground {
    /// A command begins.
    #[must_use]
    pub fn begin() -> Self {
        FOREGROUND.store(RUNNING, Ordering::Relaxed);
        Self(())
    }

    /// Reads the input by `reader`, within a command that runs: ^C is for what that has begun, and not for the command.
    pub(crate) fn lend(reader: impl FnOnce()) {
        FOREGROUND.store(IDLE, Ordering::Relaxed);
        reader();
        FOREGROUND.store(RUNNING, Ordering::Relaxed);
    }

    /// The command is over. Whether ^C was pressed.
    #[must_use]
    pub fn end(self) -> bool {
        is_interrupted()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        FOREGROUND.store(IDLE, Ordering::Relaxed);
    }
}

/// Whether the command that runs is to end, as ^C was pressed.
#[must_use]
pub fn is_interrupted() -> bool {
    if FOREGROUND.load(Ordering::Relaxed) == RUNNING {
        look();
    }
    FOREGROUND.load(Ordering::Relaxed) == INTERRUPTED
}

/// Whether ^C was pressed: the command that runs has seen it, and goes on. The next one is for it again.
pub(crate) fn take_interrupt() -> bool {
    is_interrupted() && FOREGROUND.compare_exchange(INTERRUPTED, RUNNING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
