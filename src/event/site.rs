//! The places in the code at which static events happen, as `emit!` lists them in the section `.kprobes.sites`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

use crate::insn;
use crate::insn::encode;
use crate::insn::encode::compute::Branch;

/// A place at which an event happens. Each word is the distance to an address from the word itself, so that the section
/// needs no relocation when it is loaded.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EventSite {
    instruction: isize,
    block: isize,
    function: isize,
}

impl EventSite {
    /// The virtual address of the NOP.
    pub(crate) fn instruction(&self) -> usize {
        target(&self.instruction)
    }

    /// The virtual address of the block, which evaluates the fields and calls the function.
    pub(crate) fn block(&self) -> usize {
        target(&self.block)
    }

    /// The virtual address of the function that the block calls.
    pub(crate) fn function(&self) -> usize {
        target(&self.function)
    }

    /// The branch to the block, which replaces the NOP while something listens; `None` if the block is out of reach,
    /// which [`embedding`](crate::embedding) refuses before the first probe is registered.
    pub(crate) fn branch(&self) -> Option<u32> {
        insn::branch(self.instruction() as u64, self.block() as u64).ok()
    }

    /// The word for which analyses of the code take the instruction, whether the NOP or the branch stands there.
    pub(crate) fn either_way(&self) -> u32 {
        either_way(self.block().wrapping_sub(self.instruction()) as isize)
    }
}

/// The length of the description of a site in a linked program, in bytes.
#[doc(hidden)]
pub const IN_PROGRAM: usize = 24;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<EventSite>() == IN_PROGRAM);

/// Reads the description of a site in a linked program, which begins at the virtual address `address`. Returns the
/// virtual address of the instruction, and what an analysis of the code takes it for.
#[doc(hidden)]
#[must_use]
pub fn in_program(description: &[u8; IN_PROGRAM], address: u64) -> (u64, u32) {
    let target = |word: usize| {
        let distance = i64::from_le_bytes(description.as_chunks().0[word]);
        address.wrapping_add(8 * word as u64).wrapping_add_signed(distance)
    };
    let (instruction, block) = (target(0), target(1));
    (instruction, either_way(block.wrapping_sub(instruction) as isize))
}

/// Returns a branch over `distance` bytes that may be taken or not, and reads no register: CBZ XZR. If that does not
/// reach so far, returns BR XZR, whose target an analysis of the code cannot determine.
fn either_way(distance: isize) -> u32 {
    const ZERO_REGISTER: u8 = 31;
    Branch::Zero(ZERO_REGISTER).word(distance as i64).unwrap_or(encode::branch_register(ZERO_REGISTER))
}

/// Returns the virtual address that is the distance `word` away from the word.
pub(super) fn target(word: &isize) -> usize {
    core::ptr::from_ref(word).addr().wrapping_add_signed(*word)
}

/// All sites of the image.
#[cfg(target_os = "none")]
pub(crate) fn all() -> &'static [EventSite] {
    unsafe extern "C" {
        safe static __kprobes_sites_start: EventSite;
        safe static __kprobes_sites_end: EventSite;
    }
    let (start, end) = (&raw const __kprobes_sites_start, &raw const __kprobes_sites_end);
    let count = (end.addr() - start.addr()) / size_of::<EventSite>();
    // SAFETY: `kprobes.x` has the section `.kprobes.sites` between the two, and `emit!` alone puts entries there.
    unsafe { core::slice::from_raw_parts(start, count) }
}

/// The host's programs have no sites.
#[cfg(not(target_os = "none"))]
pub(crate) fn all() -> &'static [EventSite] {
    &[]
}

/// The sites of the event whose function is at the virtual address `function`.
pub(crate) fn of(function: usize) -> impl Iterator<Item = &'static EventSite> {
    all().iter().filter(move |site| site.function() == function)
}

/// The site whose instruction is at the virtual address `address`.
pub(crate) fn at(address: usize) -> Option<&'static EventSite> {
    fill();
    if INSTRUCTIONS.may_have(address) { all().iter().find(|site| site.instruction() == address) } else { None }
}

/// Whether a site may lead to the function at the virtual address `function`. For most other functions it is false.
pub(crate) fn may_lead_to(function: usize) -> bool {
    fill();
    FUNCTIONS.may_have(function)
}

/// The addresses of the sites and of their functions. The linker does not sort the sites, and analyses of the code ask
/// about every branch.
static INSTRUCTIONS: Filter = Filter::empty();
static FUNCTIONS: Filter = Filter::empty();

/// Fills the filters, once. It does not wait for another CPU or an interrupted task that is filling them: both add the
/// same bits.
fn fill() {
    static IS_FILLED: AtomicBool = AtomicBool::new(false);
    if IS_FILLED.load(Acquire) {
        return;
    }
    for site in all() {
        INSTRUCTIONS.add(site.instruction());
        FUNCTIONS.add(site.function());
    }
    IS_FILLED.store(true, Release);
}

/// A set of virtual addresses of instructions, as bits at their hashes.
struct Filter([AtomicU64; 1 << (Self::BITS - 6)]);

impl Filter {
    /// The number of bits of a hash.
    const BITS: u32 = 11;

    const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; _])
    }

    fn add(&self, address: usize) {
        let (word, bit) = self.place(address);
        word.fetch_or(bit, Relaxed);
    }

    /// Returns true for every address in the set, and for few others.
    fn may_have(&self, address: usize) -> bool {
        let (word, bit) = self.place(address);
        word.load(Relaxed) & bit != 0
    }

    fn place(&self, address: usize) -> (&AtomicU64, u64) {
        // The golden ratio spreads addresses that are close to each other (Knuth, The Art of Computer Programming,
        // 6.4).
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - Self::BITS);
        (&self.0[hash as usize >> 6], 1 << (hash & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::{Op, RegisterAccess, Verdict, classify};

    #[test]
    fn a_filter_has_what_was_added_and_little_else() {
        let filter = Filter::empty();
        let others = || (0..4096).map(|number| 0xffff_ffc0_0010_0000 + number * 4);
        assert!(!others().any(|address| filter.may_have(address)));
        let addresses = || (0..32).map(|number| 0xffff_ffc0_0001_2340 + number * 0x734);
        addresses().for_each(|address| filter.add(address));
        assert!(addresses().all(|address| filter.may_have(address)));
        assert!(others().filter(|&address| filter.may_have(address)).count() < 4096 / 16);
    }

    /// The analyses follow both ways from a site, and find no register that it reads or writes.
    #[test]
    fn a_site_is_a_branch_that_touches_nothing() {
        for distance in [-(1 << 20), -4, 8, (1 << 20) - 4] {
            let word = either_way(distance);
            let Verdict::Simulate(operation @ Op::CompareBranch { .. }) = classify(word) else { panic!("{word:#x}") };
            assert_eq!(operation.control().branch_offset(), Some(distance as i32));
            let access = RegisterAccess::of(word);
            assert!(access.reads.is_empty() && access.writes.is_empty(), "{access:?}");
        }
        for distance in [1 << 20, -(1 << 20) - 4] {
            assert!(matches!(classify(either_way(distance)), Verdict::Simulate(Op::BranchRegister { .. })));
        }
        assert_eq!(classify(encode::NOP), Verdict::Simulate(Op::Nop));
    }
}
