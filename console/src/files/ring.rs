//! The files about the records, and about whether and where events are recorded.

use core::fmt::Write;
use core::time::Duration;

use kprobes_trace::errno::Errno;
use kprobes_trace::ring::RAW_PAGE;

use super::content::{ReadError, number};
use crate::session::Session;
use crate::{host, input, time, tracing};

/// The interval at which `trace_pipe` polls for records: a hit cannot wake a task.
const PIPE_PERIOD: Duration = Duration::from_millis(20);

/// Returns the number of the CPU for a directory of `per_cpu`, if the CPU has a ring.
pub(super) fn cpu_of(name: &str) -> Option<usize> {
    cpu_number(name.strip_prefix("cpu")?)
}

/// Returns the number in `digits`, if a CPU with a ring has this number.
pub(super) fn cpu_number(digits: &str) -> Option<usize> {
    let is_plain = digits == "0" || !digits.starts_with(['0', '+']);
    digits.parse().ok().filter(|_| is_plain).filter(|&cpu| cpu < tracing::rings().cpus())
}

/// Returns the CPU of a file; `None` if the file is about all CPUs.
fn cpu(parts: &[&str]) -> Option<usize> {
    if let ["per_cpu", name, _] = parts { cpu_of(name) } else { None }
}

pub(super) fn read_trace(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let (cpus, clock) = (host::running_cpus(), time::clock());
    match cpu(parts) {
        Some(cpu) => session.events.write_trace_of(out, cpu, cpus, &tracing::Names, clock)?,
        None => session.events.write_trace(out, usize::MAX, cpus, &tracing::Names, clock)?,
    }
    Ok(())
}

/// Writes the newest `count` records.
pub(super) fn read_newest(session: &Session, count: usize, out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_trace(out, count, host::running_cpus(), &tracing::Names, time::clock())?)
}

pub(super) fn read_snapshot(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_snapshot(out, cpu(parts), host::running_cpus(), &tracing::Names, time::clock())?)
}

pub(super) fn write_snapshot(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    match cpu(parts) {
        Some(cpu) => session.events.set_snapshot_of(cpu, number(text)?),
        None => session.events.set_snapshot(number(text)?),
    }
}

pub(super) fn read_stats(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let cpu = cpu(parts).ok_or(Errno::NotFound)?;
    Ok(session.events.write_stats(out, cpu, time::clock(), time::counter())?)
}

/// Discards the records.
pub(super) fn clear_trace(session: &mut Session, parts: &[&str]) -> Result<(), Errno> {
    match cpu(parts) {
        Some(cpu) => session.events.clear_trace_of(cpu),
        None => session.events.clear_trace(),
    }
    Ok(())
}

/// Ignores the text: such a file can only be emptied.
pub(super) fn pass_over(_: &mut Session, _: &[&str], _: &str) -> Result<(), Errno> {
    Ok(())
}

/// Shows records as they arrive, until ^C.
pub(super) fn read_pipe(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    while !input::is_interrupted() {
        if session.events.write_pipe(out, cpu(parts), &tracing::Names, time::clock())? == 0 {
            host::sleep(PIPE_PERIOD);
        }
    }
    Ok(())
}

/// Shows records as they arrive, as pages in the format of `hexdump -C`, until ^C.
pub(super) fn read_raw(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let cpu = cpu(parts).ok_or(Errno::NotFound)?;
    let mut at = 0;
    let mut repeats = false;
    let mut last = [0; HEX_ROW];
    while !input::is_interrupted() {
        let pages = session.events.take_pages(cpu, time::clock())?;
        for row in pages.bytes.as_chunks::<HEX_ROW>().0 {
            // Of a run of equal rows, the first is shown, and a `*` stands for the others.
            let is_same = at > 0 && *row == last;
            if !is_same {
                write_row(at, row, out)?;
            } else if !repeats {
                out.write_str("*\n")?;
            }
            (last, repeats) = (*row, is_same);
            at += HEX_ROW;
        }
        if pages.records == 0 {
            host::sleep(PIPE_PERIOD);
        }
    }
    Ok(())
}

/// The number of bytes in a row of `hexdump -C`.
const HEX_ROW: usize = 16;

fn write_row(at: usize, row: &[u8; HEX_ROW], out: &mut dyn Write) -> core::fmt::Result {
    write!(out, "{at:08x}")?;
    for (place, byte) in row.iter().enumerate() {
        write!(out, "{}{byte:02x}", if place % 8 == 0 { "  " } else { " " })?;
    }
    out.write_str("  |")?;
    row.iter().try_for_each(|&byte| out.write_char(if matches!(byte, b' '..=b'~') { byte.into() } else { '.' }))?;
    out.write_str("|\n")
}

pub(super) fn read_on(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", u8::from(session.events.rings().is_on()))?)
}

pub(super) fn write_on(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.events.rings().set_on(number(text)? != 0);
    Ok(())
}

pub(super) fn read_size(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let rings = session.events.rings();
    let all = rings.bytes();
    match cpu(parts).map(|cpu| rings.sizes().nth(cpu)) {
        None if rings.sizes().any(|size| size != all) => Ok(out.write_str("X\n")?),
        None => Ok(writeln!(out, "{}", all >> 10)?),
        Some(size) => Ok(writeln!(out, "{}", size.unwrap_or(0) >> 10)?),
    }
}

pub(super) fn read_total_size(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", session.events.rings().sizes().sum::<usize>() >> 10)?)
}

pub(super) fn write_size(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    let bytes = number(text)?.checked_mul(1024).and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|&bytes| bytes > 0).ok_or(Errno::Invalid)?;
    session.events.keep_parted();
    tracing::resize(session.events.rings(), cpu(parts), bytes).map_err(|error| {
        println!("{error}");
        Errno::NoMemory
    })
}

/// The size of a page of a ring, in KiB.
const PAGE_KIB: u64 = RAW_PAGE as u64 / 1024;

pub(super) fn read_page_size(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{PAGE_KIB}")?)
}

/// Accepts the sizes that Linux would round up to a page of this size.
pub(super) fn write_page_size(_: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    match number(text)? {
        1..=PAGE_KIB => Ok(()),
        _ => {
            println!("the pages of a ring have {PAGE_KIB} KiB, and cannot have another size");
            Err(Errno::Invalid)
        }
    }
}

pub(super) fn read_errors(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.problems().write(out)?)
}

/// Clears the log of errors.
pub(super) fn clear_errors(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    session.events.clear_problems();
    Ok(())
}
