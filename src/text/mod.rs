//! Changing instructions that may be executing.
//!
//! The order is always the same, and each step is here because leaving it out fails on hardware, though not in
//! an emulator without caches:
//!
//! 1. the new word is stored through a short-lived writable alias: one aligned word, so that a CPU that fetches
//!    it meanwhile sees the old or the new one and nothing between (Arm ARM, B2.2.1);
//! 2. the data cache is cleaned to the point of unification, by the alias: data caches are physically tagged;
//! 3. the instruction cache is invalidated, by the address that it is executed at;
//! 4. barriers complete both, and this CPU refetches (Arm ARM, B2.4.4 "Concurrent modification and execution of
//!    instructions", and the sequence in D7.5.9.4);
//! 5. the other CPUs synchronise: [`platform::synchronize_cpus`], once for any number of words.
//!
//! The caller does step 5, after all its words. A word may be replaced while another CPU executes it only if
//! both the old and the new one are in the set that B2.4.4 names (B, BL, BRK, HVC, ISB, NOP, SMC, SVC). A probe
//! point holds any instruction, so the engine needs a kernel that runs probed code on one CPU at a time, until
//! there is a rendezvous.

mod cache;

use crate::platform;

/// No memory for the writable alias of the virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoAlias {
    pub(crate) address: usize,
}

/// Writes `words` to the virtual address `address`, which is aligned to 4, with the words in one 4 KiB page,
/// and makes this CPU execute them from now on: steps 1 to 4.
pub(crate) fn write(address: usize, words: &[u32]) -> Result<(), NoAlias> {
    let length = size_of_val(words);
    let written = platform::with_writable(address, length, &mut |alias| {
        for (index, &word) in words.iter().enumerate() {
            // SAFETY: the alias is good for `length` bytes, and aligned as `address` is. The store is volatile
            // so that it is one store of the whole word.
            unsafe { alias.cast::<u32>().add(index).write_volatile(word.to_le()) };
        }
        cache::clean_data(alias as usize, length);
    });
    if !written {
        return Err(NoAlias { address });
    }
    cache::invalidate_instructions(address, length);
    Ok(())
}

/// The instruction at the virtual address `address`, which is aligned to 4 and in readable text.
pub(crate) fn read(address: usize) -> u32 {
    // SAFETY: the callers have checked that the address lies in the text that the kernel has declared. Other
    // tasks may write it, under the registry's lock and one whole word at a time, hence the volatile load.
    u32::from_le(unsafe { (address as *const u32).read_volatile() })
}
