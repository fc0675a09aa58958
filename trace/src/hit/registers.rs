//! The registers of the probed code, in whichever form the engine shows them.
//!
//! A hit is recorded, filtered and counted in the same way whether the engine has saved all registers or only what a call passes.
//! The functions here are inlined, so that a handler, which knows the form that it is given, does not ask for it.

use core::ptr;

use aarch64_kprobes::exception::{TrapFrame, nofault};
use aarch64_kprobes::probe::Entry;

use crate::fetch::{Register, Word};

/// What the values of a hit are had from.
#[derive(Clone, Copy, Debug)]
pub enum Registers<'a> {
    /// All registers.
    Frame(&'a TrapFrame),
    /// Those of a call. No other is asked for: that is seen to when the probe is registered.
    Entry(&'a Entry),
}

impl Registers<'_> {
    /// The value of `register`; 0 if it is not one of a call, where only these are.
    #[inline(always)]
    pub(crate) fn get(self, register: Register) -> u64 {
        match self {
            // SAFETY: x0 to x30, sp, pc and pstate lie one behind the other, and a register is one of them.
            Self::Frame(frame) => unsafe { *ptr::from_ref(frame).cast::<u64>().add(register.place()) },
            Self::Entry(entry) => match (entry.arguments().get(register.place()), register) {
                (Some(argument), _) => *argument,
                (None, Register::SP) => entry.stack_pointer(),
                (None, other) => rest(entry, other),
            },
        }
    }

    /// The word, if it can be read.
    #[inline(always)]
    pub(crate) fn fetch(self, word: &Word) -> Option<u64> {
        let value = self.get(word.register);
        if word.is_memory {
            // SAFETY: the one who defines an event answers for what its arguments read (README.md, Limits).
            return unsafe { nofault::read(value.wrapping_add_signed(word.offset.into()) as usize) }.ok();
        }
        Some(value)
    }

    /// Whether interrupts were masked.
    #[inline(always)]
    pub(crate) fn irqs_masked(self) -> bool {
        match self {
            Self::Frame(frame) => frame.pstate & TrapFrame::IRQ_MASKED != 0,
            Self::Entry(entry) => entry.irqs_masked(),
        }
    }
}

/// The registers of a call that are seldom asked for.
#[inline(always)]
fn rest(entry: &Entry, register: Register) -> u64 {
    if register == Register::LINK {
        entry.return_address()
    } else if register == Register::FRAME {
        entry.frame_pointer()
    } else if register == Register::PC {
        entry.address() as u64
    } else if register == Register::INDIRECT_RESULT {
        entry.indirect_result()
    } else if register == Register::PLATFORM {
        entry.platform_register()
    } else {
        0
    }
}
