//! Records and counts as text, in the layout of the files of Linux's tracefs.
//!
//! Who knows those files, or has a program that reads them, can read these.

use core::fmt::{self, Write};
use core::str;

use crate::definition::{Definition, Kind};
use crate::host::{Clock, Symbols};
use crate::recorder::Flags;
use crate::ring::Record;

const COLUMNS: &str = "\
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
";

/// The longest name of a task that is shown, in characters.
const TASK_NAME_MAX: usize = 15;

/// Writes what stands above the records in `trace`: `present` of `written` records follow; the machine has
/// `cpus` CPUs.
pub fn write_header(out: &mut dyn Write, present: usize, written: u64, cpus: usize) -> fmt::Result {
    out.write_str("# tracer: nop\n#\n")?;
    writeln!(out, "# entries-in-buffer/entries-written: {present}/{written}   #P:{cpus}\n#")?;
    out.write_str(COLUMNS)
}

/// Writes the line that says that `count` records of `cpu` were overwritten before they could be read.
pub fn write_lost(out: &mut dyn Write, cpu: usize, count: u64) -> fmt::Result {
    writeln!(out, "CPU:{cpu} [LOST {count} EVENTS]")
}

/// Writes the line of `record` in `trace`. `definition` is the one of its event, `None` if that is gone.
pub fn write_record(
    out: &mut dyn Write,
    record: &Record,
    definition: Option<&Definition>,
    symbols: &dyn Symbols,
    clock: Clock,
) -> fmt::Result {
    let microseconds = clock.microseconds(record.time);
    let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
    write!(out, "{:>16}-{:<7} [{:03}] ", task_name(&record.name), record.task, record.cpu)?;
    write!(out, "{} {seconds:>5}.{fraction:06}: ", FlagsText(record.flags))?;
    let Some(definition) = definition else {
        return writeln!(out, "event {}: ({:#x})", record.event, record.address);
    };
    write!(out, "{}: (", definition.event)?;
    match definition.kind {
        Kind::Probe => write_offset(out, record.address, symbols)?,
        Kind::Return { .. } => {
            write_offset(out, record.return_address, symbols)?;
            out.write_str(" <- ")?;
            match symbols.lookup(record.address) {
                Some(function) => out.write_str(function.name)?,
                None => write!(out, "{:#x}", record.address)?,
            }
        }
    }
    out.write_char(')')?;
    for (argument, &value) in definition.arguments.iter().zip(&record.values) {
        write!(out, " {}=", argument.name)?;
        argument.kind.write(value, out)?;
    }
    out.write_char('\n')
}

/// Writes the line of an event in `kprobe_profile`.
pub fn write_profile(out: &mut dyn Write, event: &str, hits: u64, missed: u64) -> fmt::Result {
    writeln!(out, "  {event:<44} {hits:>15} {missed:>15}")
}

/// Writes `name+0xOFFSET/0xSIZE` of the function that contains `address`; the bare address if none does.
pub fn write_offset(out: &mut dyn Write, address: u64, symbols: &dyn Symbols) -> fmt::Result {
    match symbols.lookup(address) {
        Some(function) => {
            write!(out, "{}+{:#x}/{:#x}", function.name, address - function.address, function.size)
        }
        None => write!(out, "{address:#x}"),
    }
}

/// The name of a task as far as it is text.
fn task_name(name: &[u8]) -> &str {
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let name = name.get(..length.min(TASK_NAME_MAX)).unwrap_or(name);
    match str::from_utf8(name) {
        Ok(name) => name,
        Err(error) => str::from_utf8(&name[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// The flags as five characters: dots, and a letter for what holds. The second, the fourth and the last, on what
/// keeps tasks from being preempted and from migrating, are of Linux, and always dots here.
struct FlagsText(Flags);

impl fmt::Display for FlagsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flags(bits) = self.0;
        let letter = |flag: u32, letter: char| if bits & flag != 0 { letter } else { '.' };
        write!(f, "{}.{}..", letter(Flags::IRQS_OFF, 'd'), letter(Flags::INTERRUPT, 'h'))
    }
}

#[cfg(test)]
mod tests;
