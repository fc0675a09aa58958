//! The files about what was recorded, and whether and where it is.

use core::fmt::Write;
use core::time::Duration;

use kprobes_trace::errno::Errno;

use super::super::session::Session;
use super::tracefs::{Fault, number, switch};
use crate::{println, smp, task, tracing, uart};

/// How long `trace_pipe` waits until it looks again: a hit cannot wake a task.
const PIPE_PERIOD: Duration = Duration::from_millis(20);

pub(super) fn read_trace(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(session.events.write_trace(out, usize::MAX, smp::running().count(), &tracing::Names, tracing::clock())?)
}

/// What was recorded is forgotten.
pub(super) fn clear_trace(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    session.events.clear_trace();
    Ok(())
}

/// What is written to a file that can only be emptied makes no difference.
pub(super) fn pass_over(_: &mut Session, _: &[&str], _: &str) -> Result<(), Errno> {
    Ok(())
}

/// Shows records as they come, until ^C.
pub(super) fn read_pipe(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    while !uart::is_interrupted() {
        if session.events.write_pipe(out, &tracing::Names, tracing::clock())? == 0 {
            task::sleep(PIPE_PERIOD);
        }
    }
    Ok(())
}

pub(super) fn read_on(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(writeln!(out, "{}", u8::from(session.events.rings().is_on()))?)
}

pub(super) fn write_on(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.events.rings().set_on(number(text)? != 0);
    Ok(())
}

pub(super) fn read_size(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(writeln!(out, "{}", session.events.rings().bytes() >> 10)?)
}

pub(super) fn write_size(_: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let bytes = number(text)?.checked_mul(1024).and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|&bytes| bytes > 0).ok_or(Errno::Invalid)?;
    tracing::resize_rings(bytes).map_err(|error| {
        println!("{error}");
        Errno::NoMemory
    })
}

pub(super) fn read_overwrite(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(writeln!(out, "{}", u8::from(session.events.rings().overwrites()))?)
}

pub(super) fn write_overwrite(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.events.rings().set_overwrites(switch(text)?);
    Ok(())
}

pub(super) fn read_errors(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), Fault> {
    Ok(session.controls.errors.write(out)?)
}

/// The errors are forgotten.
pub(super) fn clear_errors(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    session.controls.errors.clear();
    Ok(())
}
