//! The console's UART, a PL011: polled output that works in any state of the kernel, interrupt-driven input.
//!
//! All CPUs write to it in turn, a call of [`print!`](crate::print) each. A task yields until it has its turn. Code that runs
//! with interrupts masked (handlers) waits for a moment only, as the task that has the turn may be the one that was interrupted;
//! then it writes, even into the line of another task. So does [`urge`]. When the machine stops, the CPU that reports has the UART
//! alone: others that want to write stop. A kernel that no longer answers still takes the quit key, if its interrupts come.
//! Arm DDI 0183: PrimeCell UART (PL011) Technical Reference Manual.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::time::Duration;

use aarch64_cpu::registers::DAIF;
use kprobes_console::input;
use kprobes_pl011::{Data, Divisor, Flags, Interrupts, PULSE, PULSE_KEY, Pl011, QUIT_KEY, QUITS};
use spin::Once;
use tock_registers::interfaces::{ReadWriteable, Readable, Writeable};

use crate::device_tree::Device;
use crate::interrupt::{self, InterruptError};
use crate::memory::{MapError, Mmio};
use crate::sync::{IrqMask, WaitQueue};
use crate::{machine, task, time};

/// Bytes that an interrupt takes at most: more than any FIFO holds (32), so all, unless they come as fast as they are
/// taken.
const BURST: usize = 64;

/// Bits in a second.
const SPEED: u32 = 115_200;

/// How long code that must go on waits for its turn: more than a line takes at 115,200 baud.
const MOMENT: Duration = Duration::from_millis(10);

static UART: Once<Mmio<Pl011>> = Once::new();
/// A task has the turn to write.
static WRITING: AtomicBool = AtomicBool::new(false);
static READERS: WaitQueue = WaitQueue::new();
/// What was written last was the end of a line.
static IS_LINE_DONE: AtomicBool = AtomicBool::new(true);

/// How often the quit key was the last that came.
static QUIT: AtomicU8 = AtomicU8::new(0);

/// Maps the UART and makes it ready for output. Its speed becomes [`SPEED`] if the frequency of its clock in Hz is known;
/// else it stays as the firmware has set it.
pub(crate) fn initialize(device: &Device, clock: Option<u32>) -> Result<(), MapError> {
    // SAFETY: the device tree says that a PL011 has its registers there.
    start(unsafe { Mmio::map(device.registers.address)? }, clock);
    Ok(())
}

/// Looks for a UART at the physical address `address`, where there may be nothing, and uses it if it is one.
///
/// For the one case in which nothing tells where the UART is: there is no device tree, and that has to be said.
pub(crate) fn probe(address: u64) -> bool {
    // SAFETY: whether it is a PL011 is seen before anything but its identification registers (3.3.14, 3.3.15) is
    // accessed; and no memory has an owner yet that could be there instead.
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

/// Makes input come by interrupt.
pub(crate) fn enable_receive(device: &Device) -> Result<(), InterruptError> {
    let Some(uart) = UART.get() else { return Ok(()) };
    let interrupt = device.interrupt.ok_or(InterruptError::None("UART"))?;
    interrupt::register(interrupt, handle_interrupt)?;
    uart.interrupt_mask.modify(Interrupts::RECEIVE::SET + Interrupts::RECEIVE_TIMEOUT::SET);
    // What came before stands in the FIFO, and may be enough that no interrupt comes for it (3.4).
    receive(uart);
    Ok(())
}

fn handle_interrupt() {
    if let Some(uart) = UART.get() {
        receive(uart);
    }
}

/// Takes what is in the receive FIFO, up to [`BURST`] bytes: interrupts are masked meanwhile. Reading also withdraws the
/// request, when few enough are left; if more are left, it stands, and comes again once other interrupts had their turn.
fn receive(uart: &Pl011) {
    if uart.flags.is_set(Flags::RECEIVE_EMPTY) {
        // A request without bytes is not withdrawn by reading. Before the loop, which sees what comes meanwhile.
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
            // A command may wait for it that is to stop.
            machine::stop_as_told(format_args!("the quit key, ^\\, came {QUITS} times in a row"));
        }
        if byte == PULSE_KEY {
            // Only while nothing is sent: another CPU may have found the last place in the FIFO free, and not filled it yet. A
            // pulse that finds the UART busy is not missed, as what is sent is a sign of life, too.
            if !uart.flags.is_set(Flags::BUSY) && !machine::is_stopping() {
                uart.data.write(Data::BYTE.val(PULSE.into()));
            }
            continue;
        }
        if input::take(byte) {
            input::lose(data.is_set(Data::OVERRUN).into());
        }
    }
    READERS.wake_one();
}

/// Waits until there is input. The task sleeps meanwhile.
pub(crate) fn wait_for_input() {
    READERS.wait_until(|| input::is_there().then_some(()));
}

fn write_byte(uart: &Pl011, byte: u8) {
    while uart.flags.is_set(Flags::TRANSMIT_FULL) {
        core::hint::spin_loop();
    }
    uart.data.write(Data::BYTE.val(byte.into()));
}

/// Writes text, each `\n` as `\r\n`.
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

/// Whether what was written last was the end of a line.
#[must_use]
pub fn is_line_done() -> bool {
    IS_LINE_DONE.load(Ordering::Relaxed)
}

/// What [`print!`](crate::print) calls.
#[doc(hidden)]
pub fn write(arguments: fmt::Arguments) {
    let turn = if DAIF.is_set(DAIF::I) { take_turn_within(MOMENT) } else { take_turn() };
    write_in_turn(turn, arguments);
}

/// Writes text for the host, which a terminal does not show: the line that it comes in goes on after it.
pub(crate) fn write_aside(arguments: fmt::Arguments) {
    let turn = take_turn();
    let is_line_done = is_line_done();
    write_out(arguments);
    IS_LINE_DONE.store(is_line_done, Ordering::Relaxed);
    end_turn(turn);
}

/// Writes after a moment even if another task has the turn: for messages that must appear, perhaps about that task.
pub(crate) fn urge(arguments: fmt::Arguments) {
    write_in_turn(take_turn_within(MOMENT), arguments);
}

fn write_in_turn(turn: bool, arguments: fmt::Arguments) {
    write_out(arguments);
    end_turn(turn);
}

fn write_out(arguments: fmt::Arguments) {
    if let Some(uart) = UART.get() {
        // Output gives no errors; one of the arguments' own formatting leaves its text incomplete.
        let _ = Output(uart).write_fmt(arguments);
    }
}

fn end_turn(turn: bool) {
    if turn {
        WRITING.store(false, Ordering::Release);
    }
}

/// Takes the turn if it is free. Gives false where there are no turns, as this CPU alone writes.
fn try_turn() -> Option<bool> {
    if reports_here() { Some(false) } else { (!WRITING.swap(true, Ordering::Acquire)).then_some(true) }
}

/// Whether this CPU is the one that reports that the machine stops. Does not return if another one is.
fn reports_here() -> bool {
    let is_stopping = machine::is_stopping();
    if is_stopping {
        let _mask = IrqMask::new();
        machine::stop_if_told(task::current_cpu());
    }
    is_stopping
}

/// Waits for the turn. Returns false if there are no turns.
fn take_turn() -> bool {
    loop {
        match try_turn() {
            Some(turn) => return turn,
            None => task::yield_now(),
        }
    }
}

/// The same, for `patience` at most; false also if it is over.
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

/// Waits until everything that was written has left the UART.
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
