//! Texts in the trace, between the records of events: what is written to `trace_marker`, and what the kernel itself says by
//! [`trace_printk!`](crate::trace_printk).

use core::fmt;

use crate::host::Context;
use crate::recorder::PRINT_MAX;
use crate::ring::Rings;

/// The longest text of [`trace_printk!`](crate::trace_printk), in bytes, as in Linux (`TRACE_BUF_SIZE`). What is longer is cut.
pub const PRINTK_MAX: usize = 1024;

/// Writes a text to the trace: `trace_printk!(rings, "{} of {}", number, all)`. It is a record of the CPU and the task that it is
/// written by, with the name of the function in which this stands.
///
/// It takes no lock and no memory, so it can stand nearly everywhere: also in interrupt handlers, but not in what runs while a
/// probe is handled.
#[macro_export]
macro_rules! trace_printk {
    ($rings:expr, $($arguments:tt)+) => {
        $rings.print($crate::mark::here(), ::core::format_args!($($arguments)+))
    };
}

/// The virtual address of the code that this is inlined into.
#[inline(always)]
#[must_use]
pub fn here() -> u64 {
    let here;
    // SAFETY: it writes a register.
    unsafe { core::arch::asm!("adr {}, .", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here
}

/// The first bytes of what is written to it.
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
    /// Records what [`trace_printk!`](crate::trace_printk) says in the function that contains the virtual address `place`.
    pub fn print(&self, place: u64, arguments: fmt::Arguments<'_>) {
        if !self.is_on() {
            return;
        }
        let mut buffer = Buffer { bytes: [0; PRINTK_MAX], length: 0 };
        // The buffer gives no errors; an argument that does has said what it could.
        let _ = fmt::write(&mut buffer, arguments);
        self.mark(place, buffer.bytes.get(..buffer.length).unwrap_or_default());
    }

    /// Records `text` at the virtual address `place`, or as one of `trace_marker` if that is 0: in several records if it is longer
    /// than one can be. Returns false if nothing is recorded now.
    pub fn mark(&self, place: u64, text: &[u8]) -> bool {
        if !self.is_on() {
            return false;
        }
        for part in text.chunks(PRINT_MAX) {
            let daif: u64;
            // SAFETY: masking is always allowed. No `nomem`: what follows must not move out of where they are masked.
            unsafe {
                core::arch::asm!("mrs {}, daif", "msr daifset, #0b1111", out(reg) daif, options(nostack, preserves_flags));
            }
            const IRQ: u64 = 1 << 7;
            // So this stays on its CPU, and nothing else records there.
            let context = Context::here();
            if let Some(ring) = self.rings.get(context.cpu) {
                // SAFETY: it is the ring of this CPU, with interrupts masked.
                unsafe { ring.mark(&context, daif & IRQ != 0, place, part) };
            }
            // SAFETY: puts back what was read above.
            unsafe { core::arch::asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
        }
        true
    }
}
