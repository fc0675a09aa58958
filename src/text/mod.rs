//! Changes instructions that may be executing.
//!
//! The order is always the same. Each step is here because leaving it out fails on hardware, though not in an emulator
//! without caches:
//!
//! 1. the new words are stored through a short-lived writable alias: each is one aligned store, so that a CPU that
//!    fetches it meanwhile sees the old or the new one and nothing between (Arm ARM, B2.2.1);
//! 2. the data cache is cleaned to the point of unification, by the alias: data caches are physically tagged;
//! 3. the instruction cache is invalidated, by the address that they are executed at;
//! 4. barriers complete both, and this CPU refetches (Arm ARM, B2.4.4 "Concurrent modification and execution of
//!    instructions", and D7.5.9).
//!
//! That is all for memory that no CPU executes yet ([`write`]). A CPU gets to an instruction there only through a
//! context synchronization event: the exception of a breakpoint, or the end of [`patch`].
//!
//! A word may be replaced while another CPU executes it only if both the old and the new one are in the set that B2.4.4
//! names (B, BL, BRK, HVC, ISB, NOP, SMC, SVC). A probe point may hold any instruction, so [`patch`] holds the other
//! CPUs ([`kernel::hold_cpus`]) during steps 1 to 4, and each of them executes a context synchronization event before
//! it resumes. It holds them for at most [`WORDS_PER_RENDEZVOUS`] words at a time, which bounds how long interrupts are
//! masked.

pub mod cache;

use core::ops::Range;
use core::ptr;

use crate::{interrupts, kernel};

/// Consecutive words in one page, and the virtual address, a multiple of 4, at which the first is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<const N: usize> {
    pub(crate) address: usize,
    pub(crate) words: [u32; N],
}

pub(crate) type Word = Words<1>;

/// Iterates over the virtual addresses of all words of `group`, from word `index` of its first item on.
//
// Written by hand: at some levels of optimization, ranges and the adapters of `core` are functions that can be probed.
struct Addresses<'a, const N: usize> {
    group: &'a [Words<N>],
    index: usize,
}

impl<const N: usize> Iterator for Addresses<'_, N> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let [first, rest @ ..] = self.group else { return None };
        let address = first.address + 4 * self.index;
        self.index += 1;
        if self.index == N {
            (self.group, self.index) = (rest, 0);
        }
        Some(address)
    }
}

/// Memory for code, such as a slot or a stub, that can be reused unless a CPU or a task was interrupted in it.
pub(crate) trait CodeMemory {
    /// Returns its virtual addresses.
    fn range(&self) -> Range<usize>;

    /// Records that a CPU or a task was interrupted in it. Called while the other CPUs are held.
    fn occupy(&mut self);
}

/// The largest number of words that are written while the other CPUs are held.
pub(crate) const WORDS_PER_RENDEZVOUS: usize = 256;

const PAGE: usize = 4096;

/// Writes `words`, in this order, to memory that no CPU executes, and makes them executable.
pub(crate) fn write<const N: usize>(words: &[Words<N>]) {
    let mut rest = words;
    while let Some(&Words { address: first, .. }) = rest.first() {
        let page = first & !(PAGE - 1);
        let count = rest.iter().take_while(|word| word.address & !(PAGE - 1) == page).count();
        let Some((group, others)) = rest.split_at_checked(count) else { break };
        let addresses = || Addresses { group, index: 0 };
        let mut fill = |alias: *mut u8| {
            for Words { address, words } in group {
                // SAFETY: `with_writable` gave an alias for the whole page that contains the address.
                let first = unsafe { alias.add(address & (PAGE - 1)) }.cast::<u32>();
                for (index, word) in words.iter().enumerate() {
                    // SAFETY: the words are consecutive and lie in the page of the alias, which is aligned like it. The
                    // store is volatile so that it is one store of the whole word.
                    unsafe { first.add(index).write_volatile(word.to_le()) };
                }
            }
            // SAFETY: the loop above has just written the words there, so they are mapped. Interrupts are masked below.
            unsafe { cache::clean_data(alias.addr(), addresses().map(|address| address & (PAGE - 1))) };
        };
        // Masked, because an alias belongs to one CPU, and because the task must stay there until the barriers have
        // completed the maintenance: a DSB waits only for that of its own CPU (Arm ARM, B2.3.12).
        interrupts::with_masked(|| {
            kernel::with_writable(page, PAGE, &mut fill);
            // SAFETY: the addresses lie in the text, as `probe::check` or `embedding` has found, or in memory from
            // `Platform::allocate_executable`. Interrupts are masked.
            unsafe { cache::invalidate_instructions(addresses()) };
        });
        rest = others;
    }
}

/// Replaces instructions that any CPU may be executing, with the other CPUs held. Marks the items of `places`, sorted
/// by address, in which a CPU or a task is interrupted while the CPUs are held for the last time; it does so even if
/// there are no words.
///
/// When this returns, every CPU has left any code that it ran with interrupts masked at the time of the call.
//
// Inlined: it holds the other CPUs on behalf of tasks, and is not part of the closed region that this module is in.
#[inline(always)]
pub(crate) fn patch<P: CodeMemory>(words: &[Word], places: &mut [P]) {
    let mut rest = words;
    loop {
        let (group, others) = rest.split_at_checked(WORDS_PER_RENDEZVOUS).unwrap_or((rest, &[]));
        kernel::hold_cpus(&mut || {
            // The kernel may have masked only PSTATE.I, and a fast interrupt on this CPU may execute what is written.
            interrupts::with_masked(|| write(group));
            if others.is_empty() && !places.is_empty() {
                kernel::interrupted(&mut |pc| mark(places, pc));
            }
        });
        rest = others;
        if rest.is_empty() {
            break;
        }
    }
}

/// Marks the item of `places`, sorted by address, that contains the virtual address `pc`, if there is one.
fn mark(places: &mut [impl CodeMemory], pc: usize) {
    // Finds the first place that does not lie below `pc`. By hand: a search of `core` may be compiled to a function
    // that can be probed.
    let (mut from, mut to) = (0, places.len());
    while from < to {
        let middle = from.midpoint(to);
        match places.get(middle) {
            Some(place) if place.range().end <= pc => from = middle + 1,
            _ => to = middle,
        }
    }
    if let Some(place) = places.get_mut(from).filter(|place| place.range().contains(&pc)) {
        place.occupy();
    }
}

/// Reads the instruction at the virtual address `address`, a multiple of 4 in the text, in a slot, in a stub or in a
/// routine of the engine.
pub(crate) fn read(address: usize) -> u32 {
    // SAFETY: the callers have checked that the address lies in the text, which is readable by the contract of
    // `Platform::text`, or in code of the engine. Other tasks may write the word, with the registry's lock held, all of
    // it at a time; hence the volatile load.
    u32::from_le(unsafe { ptr::with_exposed_provenance::<u32>(address).read_volatile() })
}
