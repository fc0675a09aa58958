//! Reading memory that may not be there.
//!
//! A handler follows pointers of the code that it watches, and these may be wrong; that must be an answer to
//! the person who asks, not the end of the machine. The loads are single instructions in
//! `trampoline/nofault.S`; a data abort on one of them resumes at a common exit that reports failure.

use core::mem::MaybeUninit;

use super::TrapFrame;

/// The address cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The virtual address of the first byte that was asked for.
    pub address: usize,
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
#[inline]
pub fn read<T: Readable>(address: usize) -> Result<T, Fault> {
    let Loaded { value, failed } = load(address, T::SIZE);
    if failed == 0 { Ok(T::from_register(value)) } else { Err(Fault { address }) }
}

/// Fills `buffer` from the virtual address `address` on; returns how many bytes could be read, from the first on.
pub fn read_bytes(address: usize, buffer: &mut [MaybeUninit<u8>]) -> usize {
    let mut length = 0;
    for byte in buffer {
        let Ok(value) = read::<u8>(address.wrapping_add(length)) else { break };
        byte.write(value);
        length += 1;
    }
    length
}

/// What a load routine returns, in x0 and x1.
#[repr(C)]
struct Loaded {
    value: u64,
    failed: u64,
}

#[cfg(target_os = "none")]
mod routines {
    use super::Loaded;

    core::arch::global_asm!(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/trampoline/nofault.S")));

    unsafe extern "C" {
        pub fn kprobes_nofault_load1(address: usize) -> Loaded;
        pub fn kprobes_nofault_load2(address: usize) -> Loaded;
        pub fn kprobes_nofault_load4(address: usize) -> Loaded;
        pub fn kprobes_nofault_load8(address: usize) -> Loaded;
        pub safe static kprobes_nofault_start: u8;
        pub safe static kprobes_nofault_end: u8;
        pub safe static kprobes_nofault_failed: u8;
    }
}

#[cfg(target_os = "none")]
#[inline]
fn load(address: usize, size: usize) -> Loaded {
    use routines::*;
    // SAFETY: the routines may be given any address: each is one load, an abort of which is repaired by
    // `fix_up`, and they change no memory.
    unsafe {
        match size {
            1 => kprobes_nofault_load1(address),
            2 => kprobes_nofault_load2(address),
            4 => kprobes_nofault_load4(address),
            _ => kprobes_nofault_load8(address),
        }
    }
}

/// Resumes a failed load of this module at its failure exit.
#[cfg(target_os = "none")]
pub(super) fn fix_up(frame: &mut TrapFrame) -> bool {
    use routines::*;
    let start = &raw const kprobes_nofault_start as u64;
    let end = &raw const kprobes_nofault_end as u64;
    if (start..end).contains(&frame.pc) {
        frame.pc = &raw const kprobes_nofault_failed as u64;
        return true;
    }
    false
}

/// The host has no exceptions to repair: its tests pass addresses that are good, or null.
#[cfg(not(target_os = "none"))]
fn load(address: usize, size: usize) -> Loaded {
    if address == 0 {
        return Loaded { value: 0, failed: 1 };
    }
    // SAFETY: the tests read only memory of their own, which is at least 8 bytes long.
    let value = unsafe { core::ptr::read_unaligned(address as *const u64) };
    let bits = 8 * size as u32;
    Loaded { value: if bits == 64 { value } else { value & ((1 << bits) - 1) }, failed: 0 }
}

#[cfg(not(target_os = "none"))]
pub(super) fn fix_up(_frame: &mut TrapFrame) -> bool {
    false
}
