//! The registers of the probed code, in either form in which the engine shows them.
//!
//! Recording, filtering and counting do not depend on whether the engine saved all registers or only those of a call.
//! The functions here are inlined. A handler knows its form at compile time, so no check is left at run time.

use core::ptr;

use aarch64_kprobes::exception::{TrapFrame, nofault};
use aarch64_kprobes::probe::CallArguments;

use crate::fetch::{Register, RegisterPart, Word};

/// The registers that the values of a hit come from.
#[derive(Clone, Copy, Debug)]
pub enum Registers<'a> {
    /// All registers.
    Frame(&'a TrapFrame),
    /// The registers of a call. Registration makes sure that the event uses no others.
    Arguments(&'a CallArguments),
}

impl Registers<'_> {
    /// Returns the value of `register`; 0 if only the registers of a call were saved and it is not one of them.
    #[inline(always)]
    pub(crate) fn get(self, register: Register) -> u64 {
        match self {
            // SAFETY: a `TrapFrame` is `repr(C)` and begins with x0 to x30, sp, pc and pstate as consecutive words. The
            // constructors of `Register` make only indices of these 34 words.
            Self::Frame(frame) => unsafe { *ptr::from_ref(frame).cast::<u64>().add(register.place()) },
            Self::Arguments(call) => match (call.register(register.place() as u8), register) {
                (Some(value), _) => value,
                (None, Register::SP) => call.stack_pointer(),
                (None, Register::PC) => call.address() as u64,
                (None, _) => 0,
            },
        }
    }

    /// Returns the value of `word`; `None` if its memory cannot be read.
    #[inline(always)]
    pub(crate) fn fetch(self, word: &Word) -> Option<u64> {
        let value = self.get(word.register);
        if word.is_memory {
            // SAFETY: the user who defines an event answers for the memory that its arguments read (README.md, Limits).
            return unsafe { nofault::read(value.wrapping_add_signed(word.offset.into()) as usize) }.ok();
        }
        Some(value)
    }

    /// Returns the number in a register or in a part of it.
    #[inline(always)]
    pub(crate) fn part(self, part: RegisterPart) -> u64 {
        part.bits.apply(self.get(part.register))
    }

    /// Whether interrupts were masked.
    #[inline(always)]
    pub(crate) fn irqs_masked(self) -> bool {
        match self {
            Self::Frame(frame) => frame.pstate & TrapFrame::IRQ_MASKED != 0,
            Self::Arguments(call) => call.irqs_masked(),
        }
    }
}
