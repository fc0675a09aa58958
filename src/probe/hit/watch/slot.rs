//! The watchpoints, one for each pair of registers. All CPUs have the same ones.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize};

use super::range::{Values, untagged};
use super::{MOST, WatchHandler};
use crate::insn::MemoryAccess;

/// The states of a slot.
const FREE: u8 = 0;
/// It has an owner, and no CPU watches.
const TAKEN: u8 = 1;
/// The CPUs that have loaded it watch.
const ARMED: u8 = 2;

/// A watchpoint. Its fields change only while it is [`TAKEN`], when no CPU uses them.
#[derive(Debug)]
pub(in crate::probe) struct Slot {
    state: AtomicU8,
    pub(super) loads: AtomicBool,
    pub(super) stores: AtomicBool,
    address: AtomicU64,
    bytes: AtomicU64,
    pub(super) value: AtomicU64,
    pub(super) control: AtomicU64,
    /// The [`WatchHandler`]; null before the slot has had an owner.
    handler: AtomicPtr<()>,
    pub(super) data: AtomicUsize,
    /// 0 while CPUs may watch. Otherwise the virtual address of the load-exclusive for whose sequence the watchpoint
    /// was given up.
    pub(in crate::probe) given_up_at: AtomicU64,
}

/// What a watchpoint watches, and what it calls.
#[derive(Clone, Copy, Debug)]
pub(in crate::probe) struct Request {
    pub(in crate::probe) address: u64,
    pub(in crate::probe) bytes: u64,
    pub(in crate::probe) values: Values,
    pub(in crate::probe) loads: bool,
    pub(in crate::probe) stores: bool,
    pub(in crate::probe) handler: WatchHandler,
    pub(in crate::probe) data: usize,
}

/// The number of slots that have an owner.
static OWNED: AtomicUsize = AtomicUsize::new(0);

/// The slots, by the numbers of their registers.
pub(in crate::probe) static SLOTS: [Slot; MOST] = [const { Slot::new() }; MOST];

/// Returns whether there may be a watchpoint.
#[inline(always)]
pub(super) fn are_used() -> bool {
    OWNED.load(Relaxed) != 0
}

/// FAR_EL1 may lie this far below the watched bytes, in an access that is not decoded.
const NEAR: u64 = 2048;

/// Returns one byte of an access that is not decoded, a store or a load: the first one at the virtual address `far`, or
/// above it, that the registers of this CPU watch for such accesses (Arm ARM, D2.10.5).
///
/// The registers belong to the slots of `slots` for whose numbers `is_loaded` returns true. All of them watch loads if
/// `is_wide`. So the owner of the watchpoint that was hit may not want the access, and then no other gets it instead.
#[inline(always)]
pub(super) fn nearest(
    slots: &[Slot],
    stores: bool,
    far: u64,
    is_wide: bool,
    is_loaded: impl Fn(usize) -> bool,
) -> MemoryAccess {
    let mut found = MemoryAccess { address: far, bytes: 1, loads: !stores, stores };
    let mut least = NEAR;
    let mut number = 0;
    while let Some(slot) = slots.get(number) {
        let distance = slot.distance(far);
        let is_watched = if stores { slot.stores.load(Relaxed) } else { is_wide || slot.loads.load(Relaxed) };
        if is_watched && distance < least && is_loaded(number) {
            least = distance;
            found.address = if distance == 0 { far } else { slot.first() };
        }
        number += 1;
    }
    found
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(FREE),
            loads: AtomicBool::new(false),
            stores: AtomicBool::new(false),
            address: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            value: AtomicU64::new(0),
            control: AtomicU64::new(0),
            handler: AtomicPtr::new(core::ptr::null_mut()),
            data: AtomicUsize::new(0),
            given_up_at: AtomicU64::new(0),
        }
    }

    /// Takes one of the first `count` slots for `request`, and returns its number; `None` if none is free.
    pub(in crate::probe) fn take(count: usize, request: &Request) -> Option<usize> {
        let is_taken = |slot: &&Slot| slot.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok();
        let number = SLOTS.iter().take(count).position(|slot| is_taken(&slot))?;
        OWNED.fetch_add(1, Relaxed);
        SLOTS[number].fill(request);
        Some(number)
    }

    /// Stores what the slot, which the caller has taken, watches and calls.
    fn fill(&self, request: &Request) {
        self.loads.store(request.loads, Relaxed);
        self.stores.store(request.stores, Relaxed);
        self.address.store(request.address, Relaxed);
        self.bytes.store(request.bytes, Relaxed);
        self.value.store(request.values.value, Relaxed);
        self.control.store(request.values.control, Relaxed);
        self.handler.store(request.handler as *mut (), Relaxed);
        self.data.store(request.data, Relaxed);
        self.given_up_at.store(0, Relaxed);
    }

    /// Arms or disarms the slot, which has an owner. CPUs see this when they load their registers.
    pub(in crate::probe) fn set_armed(&self, is_armed: bool) {
        // Release: a CPU that finds the slot armed finds its fields.
        self.state.store(if is_armed { ARMED } else { TAKEN }, Release);
    }

    /// Frees the slot, which no CPU watches for any more.
    pub(in crate::probe) fn free(&self) {
        self.state.store(FREE, Release);
        OWNED.fetch_sub(1, Relaxed);
    }

    /// Returns whether CPUs are to watch.
    #[inline(always)]
    pub(super) fn is_watching(&self) -> bool {
        self.state.load(Acquire) == ARMED && self.given_up_at.load(Relaxed) == 0
    }

    /// Returns whether the registers of some CPU may be loaded from the slot.
    pub(super) fn is_armed(&self) -> bool {
        self.state.load(Acquire) == ARMED
    }

    /// Returns whether the access is one that the owner wants.
    #[inline(always)]
    pub(super) fn matches(&self, access: &MemoryAccess) -> bool {
        let is_wanted = access.loads && self.loads.load(Relaxed) || access.stores && self.stores.load(Relaxed);
        let access = MemoryAccess { address: untagged(access.address), ..*access };
        is_wanted && access.overlaps(self.address.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Returns how far above the virtual address `address` the first watched byte is; 0 if the address is watched.
    #[inline(always)]
    pub(super) fn distance(&self, address: u64) -> u64 {
        let (address, first) = (untagged(address), self.address.load(Relaxed));
        if address.wrapping_sub(first) < self.bytes.load(Relaxed) { 0 } else { first.wrapping_sub(address) }
    }

    /// Returns the first watched byte.
    #[inline(always)]
    pub(super) fn first(&self) -> u64 {
        self.address.load(Relaxed)
    }

    /// Returns the handler. The slot has an owner.
    #[inline(always)]
    pub(super) fn handler(&self) -> WatchHandler {
        // SAFETY: `fill` stored a `WatchHandler` before the slot had its owner, and nothing stores anything else.
        unsafe { core::mem::transmute::<*mut (), WatchHandler>(self.handler.load(Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exception::frame::TrapFrame;
    use crate::probe::WatchHit;

    /// The slot holds a pointer to the function, and not only its address: a call needs the pointer.
    #[test]
    fn the_handler_that_was_taken_is_called() {
        static SEEN: AtomicUsize = AtomicUsize::new(0);
        fn handler(hit: &WatchHit<'_>) {
            SEEN.fetch_add(hit.data(), Relaxed);
        }
        let values = Values::of(0x1000, 8).unwrap();
        let request = Request { address: 0x1000, bytes: 8, values, loads: true, stores: false, handler, data: 7 };
        let slot = Slot::new();
        slot.fill(&request);
        let access = MemoryAccess { address: 0x1000, bytes: 1, loads: true, stores: false };
        slot.handler()(&WatchHit { frame: &TrapFrame::ZERO, access, data: slot.data.load(Relaxed) });
        assert_eq!(SEEN.load(Relaxed), 7);
    }

    /// The registers do not compare tags either, so an access by a tagged pointer takes an exception. It is reported.
    #[test]
    fn the_tag_of_a_pointer_is_not_compared() {
        const FIRST: u64 = 0xffff_ffc0_0000_1000;
        fn handler(_: &WatchHit<'_>) {}
        let values = Values::of(FIRST, 8).unwrap();
        let slot = Slot::new();
        slot.fill(&Request { address: FIRST, bytes: 8, values, loads: true, stores: false, handler, data: 0 });
        let matches = |address| slot.matches(&MemoryAccess { address, bytes: 4, loads: true, stores: false });
        for (address, is_watched) in [
            (FIRST + 4, true),
            (0x5aff_ffc0_0000_1004, true),
            (0x5aff_ffc0_0000_0ffd, true),
            (0x5aff_ffc0_0000_1008, false),
            // In the lower half.
            (0xff7f_ffc0_0000_1004, false),
        ] {
            assert_eq!(matches(address), is_watched, "{address:#x}");
        }
        assert_eq!((slot.distance(0x5aff_ffc0_0000_1004), slot.distance(0x5aff_ffc0_0000_0ff0)), (0, 16));
    }

    /// The other watchpoint would report an access that does not touch its memory.
    #[test]
    fn an_access_that_is_not_decoded_goes_to_the_watchpoint_that_was_hit() {
        fn handler(_: &WatchHit<'_>) {}
        let slots = [Slot::new(), Slot::new()];
        for (slot, address, stores) in [(&slots[0], 0x1000, true), (&slots[1], 0x1100, false)] {
            let values = Values::of(address, 8).unwrap();
            slot.fill(&Request { address, bytes: 8, values, loads: !stores, stores, handler, data: 0 });
        }
        let nearest = |stores, far, is_wide, loaded: [bool; 2]| {
            let found = nearest(&slots, stores, far, is_wide, |number| loaded[number]);
            (found.address, [0, 1].map(|number: usize| slots[number].matches(&found)))
        };
        // A load is of the second one, unless the registers of the first one watch loads, too, for a sequence.
        assert_eq!(nearest(false, 0x0ff8, false, [true; 2]), (0x1100, [false, true]));
        assert_eq!(nearest(false, 0x0ff8, true, [true; 2]), (0x1000, [false; 2]));
        assert_eq!(nearest(false, 0x1004, true, [true; 2]), (0x1004, [false; 2]));
        assert_eq!(nearest(false, 0x1008, true, [true; 2]), (0x1100, [false, true]));
        assert_eq!(nearest(true, 0x0ff8, false, [true; 2]), (0x1000, [true, false]));
        // Another CPU is loading the first one just now.
        assert_eq!(nearest(false, 0x0ff8, true, [false, true]), (0x1100, [false, true]));
        assert_eq!(nearest(true, 0x2000, false, [true; 2]), (0x2000, [false; 2]));
    }
}
