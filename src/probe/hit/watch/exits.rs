//! Where control may leave the sequence that a load-exclusive begins. A pure computation on the instructions.
//!
//! An exception return clears the local monitor (Arm ARM, B2.17.5). So no exception may be taken between a
//! load-exclusive and its store-exclusive, or the store fails, every time. The sequence is executed without watchpoints
//! instead, up to breakpoints at all of its exits.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};

use crate::insn::{Continuation, Exclusive, exclusive};

/// The largest number of exits.
pub(super) const EXITS: usize = 8;
/// The largest number of instructions that are looked at.
const WORDS: usize = 48;
/// An instruction that lies further than this many instructions after the load-exclusive belongs to no sequence: the
/// architecture asks for less (B2.17.5: 128 bytes).
const LENGTH: u64 = 40;
/// The largest distance from the load-exclusive, in bytes, at which an instruction is read. An instruction beyond
/// belongs to no sequence: a word that no CPU executes may look like a branch to an address without memory.
const REACH: u64 = 4096;

/// Returns whether the store-exclusive of a sequence may follow the instruction `word`, at which control has left the
/// sequence before its store: not if the instruction begins another sequence, ends every one (CLREX), or waits (YIELD,
/// WFE, WFI, WFET, WFIT), as a loop does that polls a lock.
#[inline(always)]
pub(super) fn may_come_to_store(word: u32) -> bool {
    let is_clear = word & !0xf00 == 0xd503_305f;
    // WFET and WFIT have a register in bits 4 to 0, and differ in bit 5.
    let is_wait = matches!(word, 0xd503_203f | 0xd503_205f | 0xd503_207f) || word & !0x3f == 0xd503_1000;
    !is_clear && !is_wait && !matches!(exclusive(word), Some(Exclusive::Load))
}

/// A list of addresses of limited length, each contained once. Its room is not on the stack, where it would be cleared
/// by a function that can be probed.
struct Addresses<'a> {
    room: &'a [AtomicU64],
    count: usize,
}

impl Addresses<'_> {
    #[inline(always)]
    fn get(&self, number: usize) -> Option<u64> {
        if number < self.count { self.room.get(number).map(|address| address.load(Relaxed)) } else { None }
    }

    #[inline(always)]
    fn contains(&self, address: u64) -> bool {
        let mut number = 0;
        while let Some(listed) = self.get(number) {
            if listed == address {
                return true;
            }
            number += 1;
        }
        false
    }

    /// Adds `address`. Returns `None` if there is no room.
    #[inline(always)]
    fn add(&mut self, address: u64) -> Option<()> {
        if !self.contains(address) {
            self.room.get(self.count)?.store(address, Relaxed);
            self.count += 1;
        }
        Some(())
    }
}

/// The addresses at which control leaves a sequence, and the room to find them.
#[derive(Debug)]
pub(super) struct Exits {
    exits: [AtomicU64; EXITS],
    /// The exits at which the store-exclusive was executed.
    after_store: [AtomicU64; EXITS],
    /// The number of these.
    stores: AtomicUsize,
    words: [AtomicU64; WORDS],
}

impl Exits {
    pub(super) const fn new() -> Self {
        Self {
            exits: [const { AtomicU64::new(0) }; EXITS],
            after_store: [const { AtomicU64::new(0) }; EXITS],
            stores: AtomicUsize::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Finds the exits of the sequence that the load-exclusive at the virtual address `load` begins, and returns their
    /// number. `read` returns the instruction at an address.
    ///
    /// Returns `None` if there are too many exits or instructions, if an exit does not tell whether the store-exclusive
    /// before it was executed, or if a branch before the store leads back, to the load-exclusive or after it: such a
    /// loop could turn forever, with interrupts masked. A block that only lies after the code it belongs to looks the
    /// same.
    #[inline(always)]
    pub(super) fn find(&self, load: u64, read: impl Fn(u64) -> u32) -> Option<usize> {
        let mut exits = Addresses { room: &self.exits, count: 0 };
        let mut after_store = Addresses { room: &self.after_store, count: 0 };
        let mut words = Addresses { room: &self.words, count: 0 };
        words.add(load.wrapping_add(4))?;
        let mut next = 0;
        while let Some(at) = words.get(next) {
            next += 1;
            if at.wrapping_sub(load).cast_signed().unsigned_abs() > REACH {
                exits.add(at)?;
                continue;
            }
            let word = read(at);
            let is_far = at.wrapping_sub(load) > 4 * LENGTH;
            let (falls_through, target) = match Continuation::of(word) {
                Continuation::Store => {
                    after_store.add(at.wrapping_add(4))?;
                    continue;
                }
                Continuation::Next { .. } if is_far => (false, None),
                Continuation::End => (false, None),
                Continuation::Next { falls_through, offset } => {
                    (falls_through, offset.map(|offset| at.wrapping_add_signed(offset)))
                }
            };
            if !falls_through && target.is_none() {
                exits.add(at)?;
            }
            if falls_through {
                words.add(at.wrapping_add(4))?;
            }
            if let Some(target) = target {
                // A branch to before the load-exclusive leaves the sequence.
                if target.wrapping_sub(load) <= at.wrapping_sub(load) {
                    return None;
                }
                words.add(target)?;
            }
        }
        let mut stores = 0;
        while let Some(exit) = after_store.get(stores) {
            if words.contains(exit) {
                return None;
            }
            exits.add(exit)?;
            stores += 1;
        }
        self.stores.store(stores, Relaxed);
        Some(exits.count)
    }

    /// Returns whether the exit `address` follows a store-exclusive of the sequence that was found last, which has been
    /// executed there.
    #[inline(always)]
    pub(super) fn is_after_store(&self, address: u64) -> bool {
        Addresses { room: &self.after_store, count: self.stores.load(Relaxed) }.contains(address)
    }

    /// Returns the exit with this number, which is below the number that was found.
    #[inline(always)]
    pub(super) fn get(&self, number: usize) -> Option<u64> {
        self.exits.get(number).map(|exit| exit.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u32 = 0x885f_fc08; // ldaxr w8, [x0]
    const STORE: u32 = 0x8809_fc0a; // stlxr w9, w10, [x0]
    const ADD: u32 = 0x1100_050a; // add w10, w8, #1
    const RET: u32 = 0xd65f_03c0;
    const CLREX: u32 = 0xd503_3f5f;

    fn exits(words: &[u32]) -> Option<Vec<u64>> {
        let read = |address: u64| words.get(address as usize / 4).copied().unwrap_or(RET);
        let found = Exits::new();
        let mut all: Vec<u64> = (0..found.find(0, read)?).filter_map(|number| found.get(number)).collect();
        all.sort_unstable();
        Some(all)
    }

    #[test]
    fn a_loop_is_left_after_its_store() {
        // cbnz w9, .-12
        assert_eq!(exits(&[LOAD, ADD, STORE, 0x35ff_ffa9, RET]), Some(vec![12]));
    }

    #[test]
    fn a_comparison_that_fails_is_an_exit() {
        // cmp w8, w1; b.ne 24; stlxr; cbnz w9, 0; ret; clrex; ret
        assert_eq!(exits(&[LOAD, 0x6b01_011f, 0x5400_0081, STORE, 0x35ff_ff89, RET, CLREX, RET]), Some(vec![16, 24]));
        // cbz w8 and tbnz w8, #0, both to the CLREX.
        assert_eq!(exits(&[LOAD, 0x3400_00a8, 0x3700_0088, STORE, RET, RET, CLREX]), Some(vec![16, 24]));
        // b.ne to a jump that leads there.
        assert_eq!(exits(&[LOAD, 0x5400_0061, STORE, RET, 0x1400_0002, RET, CLREX]), Some(vec![12, 24]));
    }

    #[test]
    fn barriers_are_passed_and_calls_and_waits_are_not() {
        // dmb ish; isb; nop
        assert_eq!(exits(&[LOAD, 0xd503_3bbf, 0xd503_3fdf, 0xd503_201f, STORE]), Some(vec![20]));
        // wfe; bl; blr x1; msr daifset, #2; ldaxr
        for word in [0xd503_205f, 0x9400_0010, 0xd63f_0020, 0xd503_42df, LOAD, CLREX, RET] {
            assert_eq!(exits(&[LOAD, ADD, word, STORE]), Some(vec![8]), "{word:#010x}");
        }
    }

    #[test]
    fn a_store_may_follow_a_call_and_a_return_but_no_wait() {
        // bl; blr x1; ret; msr daifset, #2; add
        assert!([0x9400_0010, 0xd63f_0020, RET, 0xd503_42df, ADD].into_iter().all(may_come_to_store));
        // yield; wfe; wfi; wfet x1; wfit x1; clrex; clrex #0; ldaxr
        let waits = [0xd503_203f, 0xd503_205f, 0xd503_207f, 0xd503_1001, 0xd503_1021];
        assert!(!waits.into_iter().chain([CLREX, 0xd503_305f, LOAD]).any(may_come_to_store));
    }

    #[test]
    fn an_exit_that_does_not_tell_of_the_store_is_refused() {
        // b.ne to the instruction after the store.
        assert_eq!(exits(&[LOAD, 0x5400_0041, STORE, ADD, RET]), None);
    }

    #[test]
    fn what_is_far_away_is_not_read() {
        // b.ne to 8 KiB away, and back.
        let words = [LOAD, 0x5401_0001, STORE, 0x35ff_ffa9];
        let read = |address: u64| match words.get(address as usize / 4) {
            Some(word) => *word,
            None => panic!("{address:#x} was read"),
        };
        let found = Exits::new();
        assert_eq!(found.find(0, read), Some(2));
        assert_eq!([found.get(0), found.get(1)], [Some(0x2004), Some(12)]);
        assert_eq!([0x2004, 12, 0].map(|exit| found.is_after_store(exit)), [false, true, false]);
    }

    #[test]
    fn a_loop_in_front_of_the_store_is_refused() {
        // cbnz w8, 0; stlxr w9, w10, [x0]; cbnz w9, 0
        assert_eq!(exits(&[LOAD, 0x35ff_ffe8, STORE, 0x35ff_ffa9, RET]), None);
        // cbnz w8, 20; stlxr; cbnz w9, 0; ret; ldr w8, [x0]; cbnz w8, 20; b 0
        let polls = [LOAD, 0x3500_0088, STORE, 0x35ff_ffa9, RET, 0xb940_0008, 0x35ff_ffe8, 0x17ff_fff9];
        assert_eq!(exits(&polls), None);
        // cbnz w8, to the instruction before the load-exclusive
        assert_eq!(exits(&[LOAD, 0x35ff_ffc8, STORE, RET]), Some(vec![12, 0_u64.wrapping_sub(4)]));
    }

    #[test]
    fn a_sequence_without_an_end_is_left_after_some_instructions() {
        let mut words = vec![LOAD];
        words.resize(200, ADD);
        assert_eq!(exits(&words), Some(vec![4 * LENGTH + 4]));
        // Conditional branches to more exits than there are breakpoints.
        let mut words = vec![LOAD];
        words.extend((0..10).map(|number| 0x5400_0001 | (20 + 4 * number) << 5));
        words.resize(20, ADD);
        words.push(STORE);
        words.resize(400, CLREX);
        assert_eq!(exits(&words), None);
    }
}
