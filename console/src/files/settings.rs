//! The files about how events are recorded and shown: tracers, the clock, options, and the tasks and CPUs that are
//! recorded.

use core::fmt::Write;

use kprobes_trace::errno::Errno;
use kprobes_trace::options::{Flag, TraceClock};
use kprobes_trace::trigger::restriction::{Restriction, Tasks};

use super::content::{ReadError, number, switch};
use crate::session::Session;
use crate::tracing;

/// The content of `README`. Programs such as Linux's self-tests search it for features, so its lines about features are
/// Linux's.
pub(super) const README: &str = include_str!("readme.txt");

/// The layout of a page of `trace_pipe_raw`.
pub(super) const HEADER_PAGE: &str = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

/// The encoding of a record in a page of `trace_pipe_raw`.
pub(super) const HEADER_EVENT: &str = "\
# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
";

/// Writes a text to the trace.
pub(super) fn mark(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    require_markers(session)?;
    if session.events.write_marker(text) { Ok(()) } else { Err(Errno::BadFile) }
}

/// Writes a number and data to the trace.
pub(super) fn mark_raw(session: &mut Session, _: &[&str], bytes: &[u8]) -> Result<(), Errno> {
    require_markers(session)?;
    if session.events.write_raw(bytes)? { Ok(()) } else { Err(Errno::BadFile) }
}

/// Checks that the option `markers` is on. Otherwise nothing can be written to the trace.
fn require_markers(session: &Session) -> Result<(), Errno> {
    if session.events.options().is(Flag::Markers) { Ok(()) } else { Err(Errno::Invalid) }
}

/// Shrinks the rings as far as possible: a ring has at least two pages.
pub(super) fn free(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    if session.events.options().is(Flag::DisableOnFree) {
        session.events.rings().set_on(false);
    }
    session.events.keep_parted();
    tracing::resize(session.events.rings(), None, 0).map_err(|_| Errno::NoMemory)?;
    session.events.clear_trace();
    Ok(())
}

/// Shrinks the rings when text is written to `free_buffer`, and ignores the text.
pub(super) fn free_more(session: &mut Session, parts: &[&str], _: &str) -> Result<(), Errno> {
    free(session, parts)
}

pub(super) fn read_clock(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.options().clock.write(out)?)
}

pub(super) fn write_clock(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.events.set_clock(TraceClock::find(text).ok_or(Errno::Invalid)?);
    Ok(())
}

pub(super) fn read_options(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.options().write(out)?)
}

pub(super) fn write_options(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let tracer = session.events.options().tracer;
    let (flag, on) = Flag::parse(text).filter(|(flag, _)| flag.applies_to(tracer)).ok_or(Errno::Invalid)?;
    session.tracing.set_option(&mut session.events, flag, on)
}

/// Returns the option that `options/NAME` names.
fn option(parts: &[&str]) -> Result<Flag, Errno> {
    parts.last().and_then(|name| Flag::find(name)).ok_or(Errno::NotFound)
}

pub(super) fn read_option(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", u8::from(session.events.options().is(option(parts)?)))?)
}

pub(super) fn write_option(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    session.tracing.set_option(&mut session.events, option(parts)?, switch(text)?)
}

/// The maximum number of names that Linux keeps (`PID_MAX_DEFAULT`).
const NAMES_MAX: u64 = 32768;

pub(super) fn read_names(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_names(out)?)
}

pub(super) fn read_names_size(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", session.events.options().names)?)
}

pub(super) fn write_names_size(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let names = number(text)?;
    if !(1..=NAMES_MAX).contains(&names) {
        return Err(Errno::Invalid);
    }
    session.events.set_names(names as usize);
    Ok(())
}

/// A file that names tasks: only their hits or calls are recorded, or all but theirs.
#[derive(Clone, Copy)]
struct Named {
    /// Whether the file is about calls, which the tracers record, and not about events.
    is_of_calls: bool,
    /// Whether the tasks are left out.
    is_without: bool,
}

impl Named {
    fn of(parts: &[&str]) -> Self {
        let name = parts.last().copied().unwrap_or_default();
        Self { is_of_calls: name.contains("ftrace"), is_without: name.contains("notrace") }
    }

    /// Returns the tasks to add to.
    fn tasks(self, restriction: &mut Restriction) -> &mut Tasks {
        if self.is_without { &mut restriction.without } else { restriction.only.get_or_insert_default() }
    }

    fn clear(self, restriction: &mut Restriction) {
        if self.is_without { restriction.without = Tasks::default() } else { restriction.only = None }
    }

    fn change(
        self,
        session: &mut Session,
        change: impl FnOnce(&mut Restriction) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match self.is_of_calls {
            true => session.tracing.change(|settings| change(&mut settings.restriction)),
            false => session.tracing.restrict_events(&mut session.events, change),
        }
    }
}

/// The content of a file about calls that names no tasks. As in Linux, a file about events is empty then.
const NO_TASKS: &str = "no pid\n";

pub(super) fn read_tasks(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let named = Named::of(parts);
    let (restriction, lost) = match named.is_of_calls {
        true => (session.tracing.restriction(), session.tracing.lost_children()),
        false => (session.events.restriction(), session.events.lost_children()),
    };
    let restriction = restriction.map_err(Errno::from)?;
    match (named.is_without, &restriction.only) {
        (true, _) if named.is_of_calls && restriction.without.is_empty() => out.write_str(NO_TASKS)?,
        (true, _) => restriction.without.write(out)?,
        (false, Some(only)) => only.write(out)?,
        (false, None) if named.is_of_calls => out.write_str(NO_TASKS)?,
        (false, None) => {}
    }
    match lost {
        0 => Ok(()),
        lost => Ok(writeln!(out, "# children for which there was no room: {lost}")?),
    }
}

pub(super) fn write_tasks(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    let named = Named::of(parts);
    // As in Linux, a text without a number changes nothing.
    if text.trim_ascii().is_empty() {
        return Ok(());
    }
    named.change(session, |restriction| named.tasks(restriction).add(text))
}

/// Removes all tasks from a file.
pub(super) fn clear_tasks(session: &mut Session, parts: &[&str]) -> Result<(), Errno> {
    let named = Named::of(parts);
    named.change(session, |restriction| {
        named.clear(restriction);
        Ok(())
    })
}

/// Returns the mask of all CPUs that have a ring; bit 0 is CPU 0.
fn all_cpus(session: &Session) -> u64 {
    u64::MAX >> (64 - session.events.rings().cpus().clamp(1, 64))
}

pub(super) fn read_cpus(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let all = all_cpus(session);
    let mask = session.events.recorded_cpus().unwrap_or(all);
    let digits = (64 - all.leading_zeros()).div_ceil(4) as usize;
    if let Some(upper) = digits.checked_sub(8).filter(|&upper| upper > 0) {
        write!(out, "{:0upper$x},", mask >> 32)?;
    }
    let lower = digits.min(8);
    Ok(writeln!(out, "{:0lower$x}", mask as u32)?)
}

/// Returns the mask in `text`, in Linux's format: a group of up to eight hexadecimal digits for each 32 CPUs, with
/// commas or white space between the groups.
fn mask(text: &str, all: u64) -> Result<u64, Errno> {
    const DIGITS: usize = 8;
    let most = if all > u64::from(u32::MAX) { 2 } else { 1 };
    let (mut mask, mut groups) = (0_u64, 0);
    let is_between = |character: char| character == ',' || character.is_ascii_whitespace();
    for group in text.split(is_between).filter(|group| !group.is_empty()) {
        if !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Errno::Invalid);
        }
        groups += 1;
        if groups > most || group.len() > DIGITS {
            return Err(Errno::Overflow);
        }
        mask = mask << 32 | u64::from_str_radix(group, 16).map_err(|_| Errno::Invalid)?;
    }
    match mask & !all {
        _ if groups == 0 => Err(Errno::Invalid),
        0 => Ok(mask),
        _ => Err(Errno::Overflow),
    }
}

/// Sets the recorded CPUs.
pub(super) fn write_cpus(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let all = all_cpus(session);
    let mask = mask(text, all)?;
    let cpus = (mask != all).then_some(mask);
    let before = session.events.recorded_cpus();
    let restrict = |session: &mut Session, cpus| {
        session.tracing.restrict_events(&mut session.events, |restriction| {
            restriction.cpus = cpus;
            Ok(())
        })
    };
    restrict(session, cpus)?;
    let changed = session.tracing.change(|settings| {
        settings.restriction.cpus = cpus;
        Ok(())
    });
    changed.and_then(|()| session.tracing.settle(&mut session.events)).inspect_err(|_| {
        // This fails only for lack of memory, and there was memory for this setting before.
        let _ = restrict(session, before);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_group_of_digits_for_each_32_cpus() {
        for (text, cpus, expected) in [
            ("f\n", 4, Ok(0xf)),
            ("0000000A", 4, Ok(0xa)),
            (" 3,\n", 4, Ok(3)),
            ("ffffffff", 32, Ok(0xffff_ffff)),
            ("1,0", 33, Ok(0x1_0000_0000)),
            ("ff 1", 40, Ok(0xff_0000_0001)),
            ("ffffffff,ffffffff", 64, Ok(u64::MAX)),
            // These are no lists of CPUs.
            ("0,2", 4, Err(Errno::Overflow)),
            ("0,f", 32, Err(Errno::Overflow)),
            ("0,0,f", 64, Err(Errno::Overflow)),
            ("00000000f", 64, Err(Errno::Overflow)),
            ("10", 4, Err(Errno::Overflow)),
            ("0x3", 4, Err(Errno::Invalid)),
            ("+1", 4, Err(Errno::Invalid)),
            (",", 4, Err(Errno::Invalid)),
            ("\n", 4, Err(Errno::Invalid)),
        ] {
            assert_eq!(mask(text, u64::MAX >> (64 - cpus)), expected, "{text}");
        }
    }
}
