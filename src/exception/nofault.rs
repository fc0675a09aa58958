//! Reading memory that may not be there.
//!
//! A handler follows pointers of the code that it watches, and these may be wrong; that must be an answer to
//! the person who asks, not the end of the machine. The loads are single instructions in
//! `trampoline/nofault.S`; an exception on one of them resumes at a common exit that reports failure. The
//! authentication of pointers, on behalf of simulated branches, is done in the same way.

use core::mem::MaybeUninit;

use super::TrapFrame;
use crate::insn::Key;

/// The address cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The virtual address of the first byte that was asked for.
    pub address: usize,
    /// ESR_EL1 of the data abort.
    pub syndrome: u64,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "memory at {:#x} cannot be read", self.address)
    }
}

impl core::error::Error for Fault {}

/// An integer that can be read by one load.
pub trait Readable: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        const SIZE: usize;
        fn from_register(value: u64) -> Self;
    }
}

macro_rules! readable {
    ($($integer:ty),*) => {
        $(
            impl sealed::Sealed for $integer {
                const SIZE: usize = size_of::<$integer>();
                #[inline]
                fn from_register(value: u64) -> Self {
                    value as $integer
                }
            }
            impl Readable for $integer {}
        )*
    };
}
readable!(u8, u16, u32, u64, i8, i16, i32, i64);

/// Reads an integer at the virtual address `address`, in the byte order of the CPU.
///
/// May be called from handlers. The address need not be aligned, but for device memory.
///
/// # Errors
///
/// [`Fault`] if the load takes a data abort.
///
/// # Safety
///
/// The load has no effect, whatever its outcome: it reads no register of a device that is changed by being read.
#[inline]
pub unsafe fn read<T: Readable>(address: usize) -> Result<T, Fault> {
    match load(address, T::SIZE) {
        Outcome { value, syndrome: 0 } => Ok(T::from_register(value)),
        Outcome { syndrome, .. } => Err(Fault { address, syndrome }),
    }
}

/// Fills `buffer` from the virtual address `address` on; returns how many bytes could be read, from the first on.
///
/// # Safety
///
/// As for [`read`], of every byte.
pub unsafe fn read_bytes(address: usize, buffer: &mut [MaybeUninit<u8>]) -> usize {
    let mut length = 0;
    for byte in buffer {
        // SAFETY: by the caller.
        let Ok(value) = (unsafe { read::<u8>(address.wrapping_add(length)) }) else { break };
        byte.write(value);
        length += 1;
    }
    length
}

/// Authenticates a pointer to instructions, as AUTIA and AUTIB do.
///
/// # Errors
///
/// ESR_EL1 of the exception, if it takes one: the authentication has failed on a CPU with FEAT_FPAC, or the CPU has no
/// pointer authentication.
#[inline]
pub(crate) fn authenticate(key: Key, pointer: u64, modifier: u64) -> Result<u64, u64> {
    match try_authenticate(key, pointer, modifier) {
        Outcome { value, syndrome: 0 } => Ok(value),
        Outcome { syndrome, .. } => Err(syndrome),
    }
}

/// Whether the engine is told of this CPU's synchronous exceptions: executes a breakpoint that it takes back. If the kernel handles
/// the exception instead, that is likely the end of it, at the symbol `kprobes_nofault_breakpoint`.
#[cfg(target_os = "none")]
pub(crate) fn is_told_of_exceptions() -> bool {
    routines::kprobes_nofault_breakpoint().syndrome != 0
}

/// What a routine returns, in x0 and x1.
#[repr(C)]
struct Outcome {
    value: u64,
    /// ESR_EL1 of the exception, or 0.
    syndrome: u64,
}

#[cfg(target_os = "none")]
mod routines {
    use super::Outcome;

    core::arch::global_asm!(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/trampoline/nofault.S")));

    unsafe extern "C" {
        pub fn kprobes_nofault_load1(address: usize) -> Outcome;
        pub fn kprobes_nofault_load2(address: usize) -> Outcome;
        pub fn kprobes_nofault_load4(address: usize) -> Outcome;
        pub fn kprobes_nofault_load8(address: usize) -> Outcome;
        pub safe fn kprobes_nofault_authenticate_a(pointer: u64, modifier: u64) -> Outcome;
        pub safe fn kprobes_nofault_authenticate_b(pointer: u64, modifier: u64) -> Outcome;
        pub safe fn kprobes_nofault_breakpoint() -> Outcome;
        pub safe static kprobes_nofault_start: u8;
        pub safe static kprobes_nofault_end: u8;
        pub safe static kprobes_nofault_failed: u8;
    }
}

/// Called as the routines are written: they change no register but those of their contract, which spares the caller to save the
/// others.
#[cfg(target_os = "none")]
#[inline]
fn load(address: usize, size: usize) -> Outcome {
    macro_rules! call {
        ($routine:ident) => {{
            let (value, syndrome);
            // SAFETY: the routine may be given any address: it is one load, an abort of which is repaired by `fix_up`, and it
            // changes no memory.
            unsafe {
                core::arch::asm!(
                    "bl {routine}",
                    routine = sym routines::$routine,
                    inlateout("x0") address => value,
                    lateout("x1") syndrome,
                    lateout("x30") _,
                    // A veneer that the linker puts in between may use these (AAPCS64, section 6.1.1).
                    lateout("x16") _,
                    lateout("x17") _,
                    options(preserves_flags)
                );
            }
            Outcome { value, syndrome }
        }};
    }
    match size {
        1 => call!(kprobes_nofault_load1),
        2 => call!(kprobes_nofault_load2),
        4 => call!(kprobes_nofault_load4),
        _ => call!(kprobes_nofault_load8),
    }
}

#[cfg(target_os = "none")]
#[inline]
fn try_authenticate(key: Key, pointer: u64, modifier: u64) -> Outcome {
    match key {
        Key::A => routines::kprobes_nofault_authenticate_a(pointer, modifier),
        Key::B => routines::kprobes_nofault_authenticate_b(pointer, modifier),
    }
}

/// Resumes a routine that has taken an exception, with the syndrome `esr`, at the exit for that. Returns false if
/// it is none of them that has.
#[cfg(target_os = "none")]
pub(super) fn fix_up(frame: &mut TrapFrame, esr: u64) -> bool {
    use routines::*;
    let start = &raw const kprobes_nofault_start as u64;
    let end = &raw const kprobes_nofault_end as u64;
    if (start..end).contains(&frame.pc) {
        frame.pc = &raw const kprobes_nofault_failed as u64;
        frame.x[1] = esr;
        return true;
    }
    false
}

/// The host has no exceptions to repair: its tests pass addresses that are good, or null.
#[cfg(not(target_os = "none"))]
fn load(address: usize, size: usize) -> Outcome {
    if address == 0 {
        return Outcome { value: 0, syndrome: 1 };
    }
    // SAFETY: the tests read only memory of their own, which is at least 8 bytes long.
    let value = unsafe { core::ptr::read_unaligned(address as *const u64) };
    let bits = 8 * size as u32;
    Outcome { value: if bits == 64 { value } else { value & ((1 << bits) - 1) }, syndrome: 0 }
}

/// The host has no keys: no pointer is changed.
#[cfg(not(target_os = "none"))]
fn try_authenticate(_key: Key, pointer: u64, _modifier: u64) -> Outcome {
    Outcome { value: pointer, syndrome: 0 }
}

#[cfg(not(target_os = "none"))]
pub(super) fn fix_up(_frame: &mut TrapFrame, _esr: u64) -> bool {
    false
}
