//! Messages in the trace, between the records of events: texts written to `trace_marker`, bytes written to
//! `trace_marker_raw`, and messages of the kernel itself by [`trace_printk!`](crate::trace_printk).
//!
//! Writing a text to `trace_marker` is also the event `ftrace:print` of that trace. The event has no probe and is never
//! recorded: the message is its record. But it fires triggers, before the message is recorded.

use core::fmt;
use core::mem::offset_of;
use core::ptr;

use aarch64_kprobes::event::{Event, Field, Text};
use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::platform;
#[cfg(not(target_os = "none"))]
use spin::Mutex;

use crate::context::Context;
use crate::errno::Errno;
use crate::events::{Events, RegisteredProbe};
use crate::hit::Registers;
use crate::hit::write::RecordedHit;
use crate::recorder::{PRINT_MAX, RAW_MAX};
use crate::ring::{Ring, Rings};

/// The longest message of [`trace_printk!`](crate::trace_printk), in bytes, as in Linux (`TRACE_BUF_SIZE`). A longer
/// one is cut.
pub const PRINTK_MAX: usize = 1024;

/// The fields of `ftrace:print`: a text is written to `trace_marker`.
#[repr(C)]
struct Print<'a> {
    ip: u64,
    buf: Text<'a>,
}

/// The description of [`Print`]. No code stands for the event, so it has no address.
pub(crate) static PRINT: Event = Event::new(
    "ftrace",
    "print",
    &[
        Field::new::<u64>("ip", Some("unsigned long"), offset_of!(Print<'static>, ip)),
        Field::new::<Text<'static>>("buf", None, offset_of!(Print<'static>, buf)),
    ],
    None,
    ptr::null(),
);

/// Writes a message to the trace: `trace_printk!(rings, "{} of {}", number, all)`. The record carries the current CPU
/// and task, and the name of the function that contains the call.
///
/// The macro takes no lock and allocates nothing, so it can be used nearly everywhere, including interrupt handlers. It
/// must not be used in code that runs while a probe is handled.
#[macro_export]
macro_rules! trace_printk {
    ($rings:expr, $($arguments:tt)+) => {
        $rings.print($crate::mark::here(), ::core::format_args!($($arguments)+))
    };
}

/// Returns the virtual address of the code that this call is inlined into.
#[inline(always)]
#[must_use]
pub fn here() -> u64 {
    let here;
    // SAFETY: the instruction only writes the output register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("adr {}, .", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        here = 0;
    }
    here
}

/// Returns the frame pointer of the function that this call is inlined into; 0 on the host.
#[inline(always)]
fn frame_pointer() -> u64 {
    let frame_pointer;
    // SAFETY: the instruction reads x29, and writes only the output register.
    #[cfg(target_os = "none")]
    unsafe {
        core::arch::asm!("mov {}, x29", out(reg) frame_pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    {
        frame_pointer = 0;
    }
    frame_pointer
}

/// A sink that keeps the first [`PRINTK_MAX`] bytes and drops the rest.
struct Buffer {
    bytes: [u8; PRINTK_MAX],
    length: usize,
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let length = text.len().min(room.len());
        room.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        self.length += length;
        Ok(())
    }
}

impl Rings {
    /// Records a message of [`trace_printk!`](crate::trace_printk) from the function that contains the virtual address
    /// `place`.
    pub fn print(&self, place: u64, arguments: fmt::Arguments<'_>) {
        if !self.is_on() {
            return;
        }
        let mut buffer = Buffer { bytes: [0; PRINTK_MAX], length: 0 };
        // The buffer never fails. If an argument's `Display` fails, the text up to there is recorded.
        let _ = fmt::write(&mut buffer, arguments);
        self.mark(place, buffer.bytes.get(..buffer.length).unwrap_or_default());
    }

    /// Records `text` as written at the virtual address `place`, or to `trace_marker` if `place` is 0. A text that is
    /// too long for one record is split over several. Returns whether all of it was recorded: there was room, and the
    /// CPU is not left out.
    fn mark(&self, place: u64, text: &[u8]) -> bool {
        text.chunks(PRINT_MAX).all(|part| {
            // SAFETY: `on_this_cpu` passes the ring of this CPU, and masks interrupts.
            self.on_this_cpu(|ring, context, was_masked| unsafe { ring.mark(context, was_masked, place, part) })
        })
    }

    /// Calls `act` with interrupts masked: the task stays on its CPU, and nothing else records there. `act` gets the
    /// ring of the CPU, the context, and whether interrupts were masked before. Returns false if the CPU has no ring or
    /// is left out.
    ///
    /// On the host, every thread is on CPU 0, and nothing is masked. A lock keeps the other messages out instead. It
    /// does not cover hits: `Recorder::record` is `unsafe`, and its caller excludes them.
    fn on_this_cpu(&self, act: impl FnOnce(&Ring, &Context, bool) -> bool) -> bool {
        #[cfg(not(target_os = "none"))]
        static CPU: Mutex<()> = Mutex::new(());
        #[cfg(not(target_os = "none"))]
        let _cpu = CPU.lock();
        let were_masked = platform::are_masked();
        platform::with_masked(|| {
            // SAFETY: the callers print to the rings, where `ContextLayout` guarantees the offsets (see its # Safety).
            let context = unsafe { Context::here() };
            match self.rings.get(context.cpu) {
                Some(ring) if !ring.is_left_out() => act(ring, &context, were_masked),
                _ => false,
            }
        })
    }
}

impl<P: RegisteredProbe> Events<P> {
    /// Records `bytes` as written to `trace_marker_raw`: a number of four bytes, the lowest first, and data. Returns
    /// false if they are not recorded: recording is off, this CPU is left out, or there is no room.
    ///
    /// # Errors
    ///
    /// Fails if there are fewer than 4 bytes, or more than [`RAW_MAX`].
    pub fn write_raw(&self, bytes: &[u8]) -> Result<bool, Errno> {
        if !(size_of::<u32>()..=RAW_MAX).contains(&bytes.len()) {
            return Err(Errno::Invalid);
        }
        if !self.rings().is_on() {
            return Ok(false);
        }
        // SAFETY: `on_this_cpu` passes the ring of this CPU, and masks interrupts.
        Ok(self.rings().on_this_cpu(|ring, context, was_masked| unsafe { ring.mark_raw(context, was_masked, bytes) }))
    }

    /// Records `text` as written to `trace_marker`, after the triggers of `ftrace:print`. Returns false if it is not
    /// recorded, as [`write_raw`](Self::write_raw) does.
    pub fn write_marker(&self, text: &str) -> bool {
        if !self.rings().is_on() {
            return false;
        }
        let recorder = self.iter().find(|event| event.is_only_for_triggers()).map(|event| event.recorder());
        // Without triggers there is no plan, and the event would be recorded.
        if let Some(recorder) = recorder.filter(|recorder| recorder.plan.has_plan()) {
            let print = Print { ip: 0, buf: text.into() };
            let mut frame = TrapFrame::default();
            frame.x[0] = ptr::from_ref(&print).expose_provenance() as u64;
            let is_hit = self.rings().on_this_cpu(|_, context, was_masked| {
                frame.pstate = if was_masked { TrapFrame::IRQ_MASKED } else { 0 };
                // The stack of the event begins here.
                frame.x[29] = frame_pointer();
                let hit = RecordedHit {
                    context: *context,
                    address: here(),
                    return_address: None,
                    entry: &[],
                    is_caller_in_x30: false,
                };
                // SAFETY: `on_this_cpu` has masked interrupts, so nothing else is recorded on this CPU. The event is
                // not one of returns, and `hit` has no return address. The argument of its recorder is the address of
                // the fields, which is in x0. x29 and the address are those of this function, which does not return
                // before the stack has been walked.
                unsafe { recorder.record(Registers::Frame(&frame), &hit) };
                true
            });
            if !is_hit {
                return false;
            }
        }
        // As in Linux, a trigger that turns tracing off comes too late for this text.
        self.rings().mark(0, text.as_bytes())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::boxed::Box;
    use std::format;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::recorder::PRINT_HEADER;

    static INTERRUPTS: [AtomicBool; 1] = [AtomicBool::new(false)];

    /// Every thread of the host is on CPU 0, so two threads print to the same ring. No message finds the ring busy.
    #[test]
    fn messages_of_two_threads_are_all_recorded() {
        let count: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let rings: &Rings = Box::leak(Box::new(Rings::new(1, 4 << 20, &INTERRUPTS).unwrap()));
        rings.set_on(true);
        let start = Barrier::new(2);
        let print = |thread: u64| {
            start.wait();
            (0..count).for_each(|_| rings.print(thread, format_args!("{thread}{thread}")));
        };
        thread::scope(|scope| {
            scope.spawn(|| print(1));
            print(2);
        });
        let snapshot = rings.snapshot().unwrap();
        let mut counts = [0; 2];
        for record in snapshot.records().unwrap() {
            let thread = record.word(8);
            assert_eq!(&record.bytes[PRINT_HEADER..], format!("{thread}{thread}\n\0").as_bytes());
            counts[thread as usize - 1] += 1;
        }
        assert_eq!(counts, [count; 2]);
    }
}
