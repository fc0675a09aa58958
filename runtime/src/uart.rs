//! The console's UART, a PL011: polled output that works in any state of the kernel, and interrupt-driven input.
//!
//! CPUs take turns to write, one call of [`print!`](crate::print) at a time:
//!
//! - A task yields until it has its turn.
//! - Code that runs with interrupts masked, such as a handler, waits for a moment only, because it may have interrupted
//!   the task that has the turn. Then it writes anyway, even into another task's line. `write_urgently` does so too.
//! - When the machine stops, the reporting CPU has the UART to itself. Other CPUs that want to write stop.
//!
//! A kernel that no longer answers still takes the quit key if its interrupts come.
//!
//! Section numbers are those of Arm DDI 0183, PrimeCell UART (PL011) Technical Reference Manual.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::time::Duration;

use aarch64_cpu::registers::DAIF;
use device_tree::Device;
use kprobes_console::input;
use kprobes_pl011::{Data, Divisor, Flags, Interrupts, PULSE, PULSE_KEY, Pl011, QUIT_KEY, QUITS};
use spin::Once;
use tock_registers::interfaces::{ReadWriteable, Readable, Writeable};

use crate::interrupt::{self, Handler, InterruptError};
use crate::memory::{MapError, Mmio};
use crate::sync::{IrqMask, WaitQueue};
use crate::{machine, task, time};

/// The most bytes that one interrupt takes. It exceeds every FIFO (32 bytes), so one interrupt empties the FIFO unless
/// bytes arrive as fast as they are taken.
const BURST: usize = 64;

/// Bits per second.
const SPEED: u32 = 115_200;

/// How long code that must go on waits for its turn. It is longer than a line takes at 115,200 baud.
const MOMENT: Duration = Duration::from_millis(10);

static UART: Once<Mmio<Pl011>> = Once::new();
/// Whether some task has the turn to write.
static WRITING: AtomicBool = AtomicBool::new(false);
static READERS: WaitQueue = WaitQueue::new();
/// Whether the last output ended a line.
static IS_LINE_DONE: AtomicBool = AtomicBool::new(true);

/// How many quit keys have come in a row.
static QUIT: AtomicU8 = AtomicU8::new(0);

/// Maps the UART and prepares it for output. `clock` is the frequency of its clock in Hz. If it is known, the speed
/// becomes [`SPEED`]; otherwise the firmware's setting stays.
pub(crate) fn initialize(device: &Device, clock: Option<u32>) -> Result<(), MapError> {
    // SAFETY: the device tree says that a PL011 has its registers there.
    start(unsafe { Mmio::map(device.registers.address)? }, clock);
    Ok(())
}

/// Tries the physical address `address` for a UART, and uses it if it is a PL011. Returns whether it is.
///
/// Only the boot without a device tree calls this: the missing tree has to be reported, and only the tree would say
/// where the UART is.
pub(crate) fn probe(address: u64) -> bool {
    // SAFETY: the identification registers (3.3.14, 3.3.15) are read first, and the other registers are accessed only
    // if they say that this is a PL011. No memory has an owner yet, so the access disturbs none if there is memory
    // instead.
    let Ok(uart) = (unsafe { Mmio::<Pl011>::map(address) }) else { return false };
    let found = uart.is_identified();
    if found {
        start(uart, None);
    }
    found
}

fn start(uart: Mmio<Pl011>, clock: Option<u32>) {
    uart.start(clock.and_then(|clock| Divisor::new(clock, SPEED)));
    UART.call_once(|| uart);
}

/// Enables input by interrupt.
pub(crate) fn enable_receive(device: &Device) -> Result<(), InterruptError> {
    let Some(uart) = UART.get() else { return Ok(()) };
    let interrupt = device.interrupt.ok_or(InterruptError::None("UART"))?;
    interrupt::register(interrupt, &HANDLER)?;
    uart.interrupt_mask.modify(Interrupts::RECEIVE::SET + Interrupts::RECEIVE_TIMEOUT::SET);
    // Bytes that came earlier are in the FIFO. They may already exceed the level whose crossing raises the interrupt
    // (3.4).
    receive(uart);
    Ok(())
}

static HANDLER: Handler = Handler { name: "uart-pl011", handle: handle_interrupt };

fn handle_interrupt() {
    if let Some(uart) = UART.get() {
        receive(uart);
    }
}

/// Takes up to [`BURST`] bytes out of the receive FIFO. Interrupts are masked meanwhile. Reading also withdraws the
/// interrupt request when few enough bytes are left. If more are left, the request stands, and the interrupt comes
/// again after other interrupts had their turn.
fn receive(uart: &Pl011) {
    if uart.flags.is_set(Flags::RECEIVE_EMPTY) {
        // Reading does not withdraw a request that has no bytes. The clear goes before the loop, which sees bytes that
        // come meanwhile.
        uart.interrupt_clear.write(Interrupts::RECEIVE::SET + Interrupts::RECEIVE_TIMEOUT::SET);
    }
    for _ in 0..BURST {
        if uart.flags.is_set(Flags::RECEIVE_EMPTY) {
            break;
        }
        let data = uart.data.extract();
        let byte = data.read(Data::BYTE) as u8;
        let quits = if byte == QUIT_KEY { QUIT.load(Ordering::Relaxed) + 1 } else { 0 };
        QUIT.store(quits, Ordering::Relaxed);
        if usize::from(quits) == QUITS {
            // The handler stops the machine itself: the task that would read the key may be the one that hangs.
            machine::stop_by_request(format_args!("the quit key, ^\\, came {QUITS} times in a row"));
        }
        let lost = data.is_set(Data::OVERRUN).into();
        if byte == PULSE_KEY {
            input::count_lost(lost);
            // Answer only while nothing is being sent. Otherwise another CPU may have seen the last free place in the
            // FIFO and not filled it yet. A busy UART needs no pulse: its output is a sign of life, too.
            if !uart.flags.is_set(Flags::BUSY) && !machine::is_stopping() {
                uart.data.write(Data::BYTE.val(PULSE.into()));
            }
            continue;
        }
        // Bytes that were lost before a ^C would have been discarded.
        if input::take(byte) {
            input::count_lost(lost);
        }
    }
    READERS.wake_one();
}

/// Waits until there is input. The task sleeps meanwhile.
pub(crate) fn wait_for_input() {
    READERS.wait_until(|| input::is_available().then_some(()));
}

fn write_byte(uart: &Pl011, byte: u8) {
    while uart.flags.is_set(Flags::TRANSMIT_FULL) {
        core::hint::spin_loop();
    }
    uart.data.write(Data::BYTE.val(byte.into()));
}

/// Writes text to the UART, each `\n` as `\r\n`.
struct Output<'a>(&'a Pl011);

impl Write for Output<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        reports_here();
        for byte in text.bytes() {
            if byte == b'\n' {
                write_byte(self.0, b'\r');
            }
            write_byte(self.0, byte);
        }
        if let Some(last) = text.bytes().last() {
            IS_LINE_DONE.store(last == b'\n', Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns whether the last output ended a line.
#[must_use]
pub fn is_line_done() -> bool {
    IS_LINE_DONE.load(Ordering::Relaxed)
}

/// The implementation of [`print!`](crate::print).
#[doc(hidden)]
pub fn write(arguments: fmt::Arguments) {
    let turn = if DAIF.is_set(DAIF::I) { take_turn_within(MOMENT) } else { take_turn() };
    write_in_turn(turn, arguments);
}

/// Writes text for the host that a terminal does not show. The console line around it continues after it.
pub(crate) fn write_aside(arguments: fmt::Arguments) {
    let turn = take_turn();
    let is_line_done = is_line_done();
    write_out(arguments);
    IS_LINE_DONE.store(is_line_done, Ordering::Relaxed);
    end_turn(turn);
}

/// Writes after a moment even if another task has the turn. For messages that must appear, perhaps about that very
/// task.
pub(crate) fn write_urgently(arguments: fmt::Arguments) {
    write_in_turn(take_turn_within(MOMENT), arguments);
}

fn write_in_turn(turn: bool, arguments: fmt::Arguments) {
    write_out(arguments);
    end_turn(turn);
}

fn write_out(arguments: fmt::Arguments) {
    if let Some(uart) = UART.get() {
        // The UART reports no errors. An error can come only from formatting an argument, and leaves the text
        // incomplete.
        let _ = Output(uart).write_fmt(arguments);
    }
}

fn end_turn(turn: bool) {
    if turn {
        WRITING.store(false, Ordering::Release);
    }
}

/// Takes the turn if it is free, and returns true. Returns false if there are no turns because this CPU alone writes,
/// and `None` if another task has the turn.
fn try_turn() -> Option<bool> {
    if reports_here() { Some(false) } else { (!WRITING.swap(true, Ordering::Acquire)).then_some(true) }
}

/// Returns whether this CPU reports that the machine stops. Does not return if another CPU reports.
fn reports_here() -> bool {
    let is_stopping = machine::is_stopping();
    if is_stopping {
        let _mask = IrqMask::new();
        machine::stop_if_requested(task::current_cpu());
    }
    is_stopping
}

/// Waits for the turn. Returns true when the caller has it, and false if there are no turns.
fn take_turn() -> bool {
    loop {
        match try_turn() {
            Some(turn) => return turn,
            None => task::yield_now(),
        }
    }
}

/// Waits for the turn for `patience` at most. Returns true when the caller has it, and false if there are no turns or
/// time is over.
fn take_turn_within(patience: Duration) -> bool {
    let deadline = time::counter().saturating_add(time::ticks(patience));
    loop {
        match try_turn() {
            Some(turn) => return turn,
            None if time::counter() >= deadline => return false,
            None => core::hint::spin_loop(),
        }
    }
}

/// Waits until all output has left the UART.
pub fn flush() {
    if let Some(uart) = UART.get() {
        uart.wait_until_sent();
    }
}

/// Writes formatted text to the UART.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => { $crate::uart::write(format_args!($($argument)*)) };
}

/// Writes formatted text and the end of a line to the UART.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($argument:tt)*) => { $crate::print!("{}\n", format_args!($($argument)*)) };
}
