//! The files about how events are recorded and shown: tracers, the clock, options, and the tasks and CPUs that are
//! recorded.

use core::fmt::Write;

use fallible::OutOfMemory;
use kprobes_trace::errno::Errno;
use kprobes_trace::options::{Flag, TraceClock};
use kprobes_trace::recorder::PRINT_EVENT;
use kprobes_trace::text;
use kprobes_trace::trigger::restriction::{Restriction, Tasks};

use kprobes_trace::host::Context;

use super::tracefs::{Fault, number, switch};
use crate::session::Session;
use crate::{tracer, tracing};

/// The content of `README`. Programs, such as Linux's self-tests, search it for features, so its lines about features
/// are those of Linux.
const README: &str = include_str!("readme.txt");

pub(super) fn read_me(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(out.write_str(README)?)
}

/// The layout of a page of `trace_pipe_raw`.
const HEADER_PAGE: &str = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;
";

const HEADER_EVENT: &str = "\
# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
";

pub(super) fn read_header_page(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(out.write_str(HEADER_PAGE)?)
}

pub(super) fn read_header_event(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(out.write_str(HEADER_EVENT)?)
}

pub(super) fn read_print_format(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(out.write_str(text::PRINT_FORMAT)?)
}

pub(super) fn read_print_number(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(writeln!(out, "{PRINT_EVENT}")?)
}

/// Writes a text to the trace.
pub(super) fn mark(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    if !session.events.options().is(Flag::Markers) {
        return Err(Errno::Invalid);
    }
    let is_left_out = |cpus: u64| cpus & 1 << Context::cpu_here() == 0;
    if cpus(session)?.is_some_and(is_left_out) || !session.events.write_marker(text) {
        return Err(Errno::BadFile);
    }
    Ok(())
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

pub(super) fn read_clock(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(session.events.options().clock.write(out)?)
}

pub(super) fn write_clock(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.events.set_clock(TraceClock::find(text).ok_or(Errno::Invalid)?);
    Ok(())
}

pub(super) fn read_options(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(session.events.options().write(out)?)
}

pub(super) fn write_options(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let (flag, on) = Flag::parse(text).ok_or(Errno::Invalid)?;
    tracer::set_option(session, flag, on)
}

/// Returns the option that `options/NAME` names.
fn option(parts: &[&str]) -> Result<Flag, Errno> {
    parts.last().and_then(|name| Flag::find(name)).ok_or(Errno::NotFound)
}

pub(super) fn read_option(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(writeln!(out, "{}", u8::from(session.events.options().is(option(parts)?)))?)
}

pub(super) fn write_option(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    tracer::set_option(session, option(parts)?, switch(text)?)
}

/// The maximum number of names that Linux keeps (`PID_MAX_DEFAULT`).
const NAMES_MAX: u64 = 32768;

pub(super) fn read_names(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(session.events.write_names(out)?)
}

pub(super) fn read_names_size(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
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

/// The files that name tasks: those whose hits, or calls, are recorded alone or not at all.
#[derive(Clone, Copy)]
struct Named {
    /// Whether it is about calls, which the tracers record, and not about events.
    is_of_calls: bool,
    /// Whether the tasks are those that are left out.
    is_without: bool,
}

impl Named {
    fn of(parts: &[&str]) -> Self {
        let name = parts.last().copied().unwrap_or_default();
        Self { is_of_calls: name.contains("ftrace"), is_without: name.contains("notrace") }
    }

    fn tasks(self, restriction: &mut Restriction) -> &mut Tasks {
        if self.is_without { &mut restriction.without } else { &mut restriction.only }
    }

    fn change(self, session: &mut Session, change: impl FnOnce(&mut Tasks) -> Result<(), Errno>) -> Result<(), Errno> {
        match self.is_of_calls {
            true => tracer::change(session, |settings| change(self.tasks(&mut settings.restriction))),
            false => tracer::restrict(session, |restriction| change(self.tasks(restriction))),
        }
    }
}

pub(super) fn read_tasks(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    let named = Named::of(parts);
    let restriction = if named.is_of_calls { session.tracing.restriction() } else { session.controls.restriction() };
    let mut restriction = restriction.map_err(Errno::from)?;
    let tasks = named.tasks(&mut restriction);
    // As in Linux, only the files about calls say that they name none.
    if named.is_of_calls && tasks.is_empty() {
        return Ok(out.write_str("no pid\n")?);
    }
    Ok(tasks.write(out)?)
}

pub(super) fn write_tasks(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    Named::of(parts).change(session, |tasks| tasks.add(text))
}

/// Names no tasks any more.
pub(super) fn clear_tasks(session: &mut Session, parts: &[&str]) -> Result<(), Errno> {
    Named::of(parts).change(session, |tasks| {
        *tasks = Tasks::default();
        Ok(())
    })
}

/// Returns the mask of the CPUs whose hits are recorded; `None` means all.
fn cpus(session: &Session) -> Result<Option<u64>, OutOfMemory> {
    session.controls.restriction().map(|restriction| restriction.cpus)
}

/// Returns the mask of all CPUs that have a ring; bit 0 is CPU 0.
fn all_cpus(session: &Session) -> u64 {
    u64::MAX >> (64 - session.events.rings().cpus().clamp(1, 64))
}

pub(super) fn read_cpus(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    let all = all_cpus(session);
    let digits = (64 - all.leading_zeros()).div_ceil(4) as usize;
    Ok(writeln!(out, "{:0digits$x}", cpus(session).map_err(Errno::from)?.unwrap_or(all))?)
}

/// Takes a mask in Linux's format: hexadecimal, with commas between groups of digits.
pub(super) fn write_cpus(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let all = all_cpus(session);
    let mut mask = 0_u64;
    let text = text.trim_ascii();
    for digit in text.bytes().filter(|&byte| byte != b',') {
        let digit = char::from(digit).to_digit(16).ok_or(Errno::Invalid)?;
        mask = mask.checked_mul(16).ok_or(Errno::Overflow)? | u64::from(digit);
    }
    if !text.ends_with(|last: char| last.is_ascii_hexdigit()) {
        return Err(Errno::Invalid);
    }
    if mask & !all != 0 {
        return Err(Errno::Overflow);
    }
    let cpus = (mask != all).then_some(mask);
    tracer::restrict(session, |restriction| {
        restriction.cpus = cpus;
        Ok(())
    })?;
    tracer::change(session, |settings| {
        settings.restriction.cpus = cpus;
        Ok(())
    })
}
