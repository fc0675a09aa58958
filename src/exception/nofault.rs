//! Reads memory that may not be mapped.
//!
//! A handler follows pointers of the code that it watches, and these may be wrong. A wrong pointer must give an answer,
//! not stop the machine. The loads are single instructions in `trampoline/nofault.S`; an exception on one of them
//! resumes at a common exit that reports the failure, unless it is a hardware breakpoint, a watchpoint or a software
//! step. Simulated branches authenticate pointers in the same way.

use core::mem::MaybeUninit;
#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::frame::TrapFrame;
use crate::insn::op::Key;

/// An address cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The virtual address of the first byte of the read.
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
/// Handlers may call it. The address need not be aligned, except for device memory.
///
/// ```no_run
/// use core::sync::atomic::{AtomicU64, Ordering};
///
/// use aarch64_kprobes::Hit;
/// use aarch64_kprobes::exception::nofault;
///
/// static SUM: AtomicU64 = AtomicU64::new(0);
///
/// /// Adds up the words that the first arguments of a function point to.
/// extern "C" fn entered(hit: &mut Hit<'_>) {
///     // SAFETY: the function takes no address of a device. All exceptions of this kernel reach `handle_sync`.
///     if let Ok(word) = unsafe { nofault::read::<u32>(hit.frame().x[0] as usize) } {
///         SUM.fetch_add(word.into(), Ordering::Relaxed);
///     }
/// }
/// ```
///
/// # Errors
///
/// [`Fault`] if the load takes a data abort.
///
/// # Safety
///
/// The load has no side effect, whether it succeeds or not: the address is not that of a device register that changes
/// when it is read, and no SError follows. Synchronous exceptions of this CPU reach
/// [`handle_sync`](crate::exception::handle_sync), or stop the kernel.
#[inline]
pub unsafe fn read<T: Readable>(address: usize) -> Result<T, Fault> {
    match load(address, T::SIZE) {
        Outcome { value, syndrome: 0 } => Ok(T::from_register(value)),
        Outcome { syndrome, .. } => Err(Fault { address, syndrome }),
    }
}

/// Fills `buffer` with the bytes from the virtual address `address` on. Returns the number of bytes that could be read
/// before the first that could not. Handlers may call it.
///
/// # Safety
///
/// [`read`] may be called for each of the bytes.
pub unsafe fn read_bytes(address: usize, buffer: &mut [MaybeUninit<u8>]) -> usize {
    let mut length = 0;
    for byte in buffer {
        // SAFETY: the caller guarantees that reading the byte has no side effect (see # Safety).
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
/// ESR_EL1 of the exception that the instruction takes: the authentication has failed on a CPU with FEAT_FPAC, or the
/// CPU has no pointer authentication.
#[inline]
pub(crate) fn authenticate(key: Key, pointer: u64, modifier: u64) -> Result<u64, u64> {
    match try_authenticate(key, pointer, modifier) {
        Outcome { value, syndrome: 0 } => Ok(value),
        Outcome { syndrome, .. } => Err(syndrome),
    }
}

/// Returns whether the engine receives this CPU's synchronous exceptions. It executes a breakpoint, from which the
/// engine resumes at the failure exit. If the kernel handles that exception instead, the kernel most likely stops
/// there, at the symbol `kprobes_nofault_breakpoint`.
#[cfg(target_os = "none")]
pub(crate) fn receives_exceptions() -> bool {
    routines::kprobes_nofault_breakpoint().syndrome != 0
}

/// The virtual address that [`call`] is calling; 0 while it calls none.
#[cfg(target_os = "none")]
static CALLED: AtomicUsize = AtomicUsize::new(0);

/// Calls the virtual address `address`. Returns ESR_EL1 of the exception if the first instruction there could not be
/// executed, otherwise 0.
///
/// # Safety
///
/// BTI C and RET were written to the address, and no other task calls this.
#[cfg(target_os = "none")]
pub(crate) unsafe fn call(address: usize) -> u64 {
    let syndrome: u64;
    CALLED.store(address, Relaxed);
    // SAFETY: the instructions change no register and no memory (see # Safety); if they cannot be executed, `fix_up`
    // resumes after the call. Registers that a call may change are declared, for exceptions that a kernel reports.
    unsafe {
        core::arch::asm!(
            "mov x1, #0",
            "blr {address}",
            address = in(reg) address,
            out("x1") syndrome,
            clobber_abi("C"),
        );
    }
    CALLED.store(0, Relaxed);
    syndrome
}

/// The result of a routine, in x0 and x1.
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

/// Calls the load routine for `size` bytes. The call is written in assembly because the routines change only the
/// registers of their contract, so the caller need not save the others.
#[cfg(target_os = "none")]
#[inline]
fn load(address: usize, size: usize) -> Outcome {
    macro_rules! call {
        ($routine:ident) => {{
            let (value, syndrome);
            // SAFETY: the routine accepts any address: it is one load, `fix_up` repairs its abort, and it changes no
            // memory.
            unsafe {
                core::arch::asm!(
                    "bl {routine}",
                    routine = sym routines::$routine,
                    inlateout("x0") address => value,
                    lateout("x1") syndrome,
                    lateout("x30") _,
                    // A veneer that the linker inserts may use these (AAPCS64, section 6.1.1).
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

/// Resumes a routine that has taken an exception with the syndrome `esr` at the failure exit. The exception is no
/// hardware breakpoint, watchpoint or software step. Returns false if it was not taken in one of the routines.
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
    // The address that `call` has branched to. The branch type was meant for it, not for the return address.
    if frame.pc != 0 && frame.pc == CALLED.load(Relaxed) as u64 {
        frame.pc = frame.x[30];
        frame.pstate &= !TrapFrame::BRANCH_TYPE;
        frame.x[1] = esr;
        return true;
    }
    false
}

/// Reads memory on the host, which has no exceptions to repair: its tests pass valid addresses, or null.
#[cfg(not(target_os = "none"))]
fn load(address: usize, size: usize) -> Outcome {
    if address == 0 {
        return Outcome { value: 0, syndrome: 1 };
    }
    // SAFETY: the tests read only integers in memory of their own.
    let value = unsafe {
        match size {
            1 => core::ptr::read(address as *const u8).into(),
            2 => core::ptr::read_unaligned(address as *const u16).into(),
            4 => core::ptr::read_unaligned(address as *const u32).into(),
            // The number may be a pointer, which the caller reads from next.
            _ => core::ptr::read_unaligned(address as *const *const u8).expose_provenance() as u64,
        }
    };
    Outcome { value, syndrome: 0 }
}

/// Returns the pointer unchanged: the host has no keys.
#[cfg(not(target_os = "none"))]
fn try_authenticate(_key: Key, pointer: u64, _modifier: u64) -> Outcome {
    Outcome { value: pointer, syndrome: 0 }
}

#[cfg(not(target_os = "none"))]
pub(super) fn fix_up(_frame: &mut TrapFrame, _esr: u64) -> bool {
    false
}
