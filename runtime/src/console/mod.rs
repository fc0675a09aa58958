//! The console's host: the UART, the tasks, and the commands about this kernel.

mod network;
mod record;
mod sampling;
mod system;

use alloc::string::String;
use core::fmt;
use core::slice;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

use kprobes_console::command::Command;
use kprobes_console::host::{Host, SamplingClock, Spawn, Task};
use kprobes_console::input;
use kprobes_trace::clock::Clock;

use crate::exception;
use crate::interrupt::{self, fast};
use crate::memory::{self, layout};
use crate::sync::IrqMask;
use crate::task::JoinHandle;
use crate::{print, println, smp, task, time, uart, workload};

/// The size of a CPU's ring in bytes.
const RING: usize = 512 << 10;

struct Kernel;

kprobes_trace::context_layout!(Kernel);

// SAFETY: TPIDR_EL1 points to a `Task`, which asserts these offsets of its fields.
unsafe impl kprobes_trace::context::ContextLayout for Kernel {
    const CPU_OFFSET: usize = task::CPU_NUMBER_OFFSET;
    const TASK_OFFSET: usize = task::NUMBER_OFFSET;
    const NAME_OFFSET: usize = task::NAME_OFFSET;
}

// SAFETY: `masked` masks interrupts and fast interrupts on this CPU while the action runs.
unsafe impl Host for Kernel {
    /// Returns the bytes after the image, up to the length in its header.
    fn tables(&self) -> &'static [u8] {
        let image = layout::image();
        let end = image.start.saturating_add(memory::image_length());
        if end <= image.end {
            return &[];
        }
        // SAFETY: boot maps the image forever, to the length in its header, and read-only after `image.end`.
        unsafe { slice::from_raw_parts(image.end as *const u8, end - image.end) }
    }

    fn write(&self, text: fmt::Arguments<'_>) {
        uart::write(text);
    }

    /// Returns `None` always: the interrupt handler of the UART passes input to the console.
    fn read(&self) -> Option<u8> {
        None
    }

    fn wait(&self) {
        uart::wait_for_input();
    }

    fn is_line_done(&self) -> Option<bool> {
        Some(uart::is_line_done())
    }

    fn spawn(&self) -> Option<Spawn> {
        Some(|name, body| {
            let mut started = fallible::boxed(Started(None))?;
            started.0 = Some(task::try_spawn(name, body)?);
            Ok(started)
        })
    }

    fn sleep(&self, duration: Duration) {
        task::sleep(duration);
    }

    fn masked(&self, action: &mut dyn FnMut()) {
        let _mask = IrqMask::new();
        interrupt::without(action);
    }

    fn sampling_clock(&self) -> Option<&'static dyn SamplingClock> {
        Some(&sampling::Sampling)
    }

    /// Returns the length of a table with an entry for each CPU that runs. No CPU starts after boot, so no other CPU
    /// ever hits a probe.
    fn cpus(&self) -> usize {
        smp::count()
    }

    fn running_cpus(&self) -> usize {
        smp::running().count()
    }

    fn interrupts(&self) -> &'static [AtomicBool] {
        &interrupt::IN_HANDLER
    }

    fn is_interrupt_entry(&self, function: usize) -> bool {
        exception::is_interrupt_entry(function)
    }

    fn has_task(&self, number: u64) -> Option<bool> {
        Some(task::exists(number))
    }

    fn write_features(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        match fast::check() {
            Ok(()) => writeln!(out, "fast interrupts: yes")?,
            Err(error) => writeln!(out, "fast interrupts: no: {error}")?,
        }
        sampling::write_counted(out)
    }

    fn memory_to_spare(&self) -> Option<usize> {
        Some(memory::statistics().heap_to_spare())
    }

    fn ring_bytes(&self) -> usize {
        RING
    }

    fn clock(&self) -> Clock {
        Clock { frequency: time::frequency(), origin: time::start() }
    }

    fn example(&self) -> &'static str {
        "\x20 symbols sha2::*\n\
         \x20 p:blocks sha2::sha256::compress256 count=%x2:u64\n\
         \x20 r:status miniz_oxide::inflate::core::decompress_fast $retval:s8\n\
         \x20 run sha256 100\n\
         \x20 run deflate 10\n\
         \x20 list\n\
         \x20 cat trace 10\n\
         \x20 -:blocks"
    }
}

/// A task that the console has spawned.
struct Started(Option<JoinHandle>);

impl Task for Started {
    fn join(&mut self) {
        self.0.take().into_iter().for_each(JoinHandle::join);
    }
}

/// The commands of this kernel.
static COMMANDS: [Command; 8] = [
    Command::new("record", "[on|off]", "send the records to the host", record::record)
        .more(
            "on: send the present records, and then each page of the rings as it fills;\n\
         off: send the rest, and end",
        )
        .example("record on"),
    Command::new("run", "WORKLOAD [N] [TASKS]", "N iterations of sha256, deflate or disk", system::run)
        .more("WORKLOAD: sha256, deflate or disk; N: iterations, 100; TASKS: 1 to 64, 4")
        .example("run sha256 100 1")
        .values(&workload::NAMES),
    Command::new("network", "", "all network interfaces, with their traffic", network::network),
    Command::new("tasks", "", "all tasks", system::tasks),
    Command::new("cpus", "", "all CPUs, with the reason if one is off", system::cpus),
    Command::new("backtrace", "[-v] TASK", "the functions that a task is in", system::backtrace)
        .more("TASK: its number or name; -v: with source lines")
        .example("backtrace -v main"),
    Command::new("poweroff", "", "switch the machine off", system::power_off),
    Command::new("reboot", "", "reset the machine and boot again", system::reboot),
];

/// Registers this kernel as the host of the console.
pub(crate) fn init() {
    kprobes_console::init(&Kernel);
}

/// Runs the [console](kprobes_console::run), forever, with the commands of this kernel.
///
/// # Panics
///
/// Panics if there is no memory for the rings and the events.
pub fn run() -> ! {
    kprobes_console::run(&COMMANDS)
}

/// Reads a line of input, and echoes it. For an image that does not [run] the console.
pub fn read_line() -> String {
    let mut line = String::new();
    loop {
        match input::read_byte() {
            b'\r' | b'\n' => {
                println!();
                return line;
            }
            byte => {
                print!("{}", byte as char);
                line.push(byte as char);
            }
        }
    }
}
